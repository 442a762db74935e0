"""Cells: their values, and that names persist, whichever form a cell has."""

import time
import unittest

from fake import Runner


class Cells(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runner = Runner()

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def check(self, code, wanted, stdin=None):
        done = self.runner.run(code, stdin)
        self.assertEqual(done["status"], "ok", done)
        self.assertEqual(done.get("value"), wanted, code)

    def test_last_expression(self):
        self.check("1 + 1", 2)
        self.check("x = 20\nx + 1", 21)
        self.check("x", 20)
        self.check("", None)
        self.check("# only a comment", None)
        self.check("None", None)
        self.check("'text'", "text")
        self.check("(\n 1,\n 2\n)[0] # ; no semicolon", 1)

    def test_semicolon_hides(self):
        self.check("5;", None)
        self.check("5 ; # comment", None)
        self.check("(5\n) ;\n\n", None)
        self.check("'é' + ';'", "é;")
        self.check("5 # ;", 5)
        self.check("a = 1\r\n5;\r\n", None)
        self.check("a = 1\r5", 5)

    def test_return(self):
        self.check("return 5", 5)
        self.check("return", None)
        self.check("for i in range(9):\n  if i == 4: return i * 2", 8)
        self.check("i", 4)
        self.check("if False: return 1\n7", 7)
        self.check("if True: return None\n7", None)
        self.check("if False: return 1\n7;", None)

    def test_return_is_no_exception(self):
        self.check("log = []\ntry:\n  return 1\nexcept:\n  log.append('except')\nfinally:\n  log.append('finally')", 1)
        self.check("log", ["finally"])
        self.check(
            "class Manager:\n"
            "  def __enter__(self): return self\n"
            "  def __exit__(self, kind, error, trace): log.append(kind is None)\n"
            "with Manager():\n  return 2",
            2,
        )
        self.check("log", ["finally", True])

    def test_names_persist_with_return(self):
        code = """
import os.path as p, math
from collections import *
def f(n):
    return n + later
class C:
    attribute = 3
    def method(self): return C.attribute
with open('/dev/null') as handle: pass
try: 1 / 0
except ZeroDivisionError as e: caught = str(e)
[(walrus := k) for k in range(4)]
annotated: int = 6
bare: str
a, (b, *c) = 1, (2, 3, 4)
del math
global declared
declared = 1
if a: return 'done'
"""
        self.check(code, "done")
        self.check("later = 10\nf(1)", 11)
        self.check("[p.sep, OrderedDict.__name__, C().method(), caught, walrus, annotated, a, b, c, declared]",
                   ["/", "OrderedDict", 3, "division by zero", 3, 6, 1, 2, [3, 4], 1])
        self.check("['math' in globals(), 'e' in globals(), 'k' in globals(), 'handle' in globals()]", [False, False, False, True])
        self.check("sorted({'annotated', 'bare'} & set(__annotations__))", ["annotated", "bare"])
        self.check("[f.__qualname__, C.__qualname__, C.method.__qualname__, f.__module__]", ["f", "C", "C.method", "__main__"])

    def test_return_cell_is_a_module(self):
        self.check("exec('made = 9')\nreturn locals() is globals()", True)
        self.check("made", 9)
        self.check("return [(lambda: 0).__qualname__, __name__]", ["<lambda>", "__main__"])
        self.check("def outer():\n  v = 1\n  def inner():\n    nonlocal v\n    v += 1\n    return v\n  return inner()\nreturn outer()", 2)
        self.check("return [[x + y for x in range(2)] for y in range(2)]", [[0, 1], [1, 2]])
        self.check("n = 3\nclass K:\n  m = [n for _ in range(2)]\nreturn K.m", [3, 3])

    def test_names_before_an_exception(self):
        self.assertEqual(self.runner.run("before = 1\n1 / 0\nafter = 2")["status"], "error")
        self.check("[before, 'after' in globals()]", [1, False])
        self.assertEqual(self.runner.run("before = 2\nif 1 / 0: return 1")["status"], "error")
        self.check("before", 2)

    def test_await(self):
        self.check("import asyncio\nawait asyncio.sleep(0, 'slept')", "slept")
        self.check("w = await asyncio.sleep(0, 3)\nw + 1", 4)
        self.check("w", 3)
        self.check("async def count():\n  for i in range(3): yield i\n[i async for i in count()]", [0, 1, 2])
        self.check("t = 0\nasync for i in count(): t += i\nt", 3)
        self.check("if await asyncio.sleep(0, True): return 'both'\n1", "both")
        self.check(
            "class M:\n  async def __aenter__(self): return 5\n  async def __aexit__(self, *a): pass\n"
            "async with M() as m: return m",
            5,
        )
        self.check("m", 5)

    def test_one_loop(self):
        self.check("async def later():\n  await asyncio.sleep(0.01)\n  return 'later'\n"
                   "import asyncio\ntask = asyncio.ensure_future(later()) if False else asyncio.get_event_loop_policy() and None\n"
                   "await asyncio.sleep(0)\ntask = asyncio.create_task(later())\nNone", None)
        self.check("await task", "later")
        self.check("async def run(): return 3\nasyncio.run(run())", 3)
        self.check("await asyncio.sleep(0, 1)", 1)

    def test_result_variable(self):
        self.check("result = 41 + 1", 42)
        self.check("y = 1", None)
        self.check("result = 42", 42)
        self.check("result = 1\nprint('x')", 1)
        self.check("result = 1\n2", 2)
        self.check("result = 1\nreturn 3", 3)
        self.check("result = 1\nif True: return", None)
        self.check("result", 1)
        self.check("del result", None)
        self.check("for n in range(3): result = n", 2)
        self.check("for n in range(3): result = n", 2)
        self.check("if False: result = 1", None)
        self.check("import math as result\nresult = None", None)

    def test_future(self):
        self.check("from __future__ import annotations\ndef g(a: undefined): pass\ng.__annotations__['a']", "undefined")
        self.check("def h(a: undefined): pass\nh.__annotations__['a']", "undefined")
        self.check("from __future__ import annotations\nz: undefined = 1\nreturn __annotations__['z']", "undefined")

    def test_stdin(self):
        self.check("input()", "first", "first\nsecond\n")
        self.check("import sys\nsys.stdin.read()", "é\n", "é\n")
        done = self.runner.run("input()")
        self.assertEqual(done["error"]["type"], "EOFError")
        self.check("input('prompt ')", "a", "a")

    def test_main_module(self):
        self.check("class P:\n  pass\nimport pickle\ntype(pickle.loads(pickle.dumps(P()))).__name__", "P")
        self.check("import inspect\ndef shown():\n  return 1\ninspect.getsource(shown)", "def shown():\n  return 1\n")
        self.check("__name__", "__main__")
        self.check("import sys\nsys.modules['__main__'].__dict__ is globals()", True)
        self.check("sys.argv", [""])

    def test_own_modules_are_hidden(self):
        with Runner() as runner:
            for name in ("encode", "channel", "check", "session"):
                with open(runner.cwd + "/%s.py" % name, "w") as file:
                    file.write("mine = %r" % name)
            code = "import encode, channel, check, session\n[encode.mine, channel.mine, check.mine, session.mine]"
            self.assertEqual(runner.value(code), ["encode", "channel", "check", "session"])
            self.assertEqual(runner.value("import sys\n[n for n in sys.modules if 'belljar' in n]"), [])
            self.assertEqual(runner.value("[p for p in sys.path if 'guest' in p]"), [])

    def test_environment(self):
        with Runner(env={"ONLY": "this", "TZ": "Asia/Tokyo"}) as runner:
            value = runner.value("import os\n{k: v for k, v in os.environ.items() if k != 'MPLBACKEND'}")
            self.assertEqual(value, {"ONLY": "this", "TZ": "Asia/Tokyo"})
            self.assertEqual(runner.value("import time\ntime.timezone"), -9 * 3600)

    def test_globals(self):
        values = {"n": 1, "t": {"$": "tuple", "v": [1, {"$": "bytes", "v": "AAE="}]}, "d": {"a": [None]}}
        with Runner(globals=values) as runner:
            self.assertEqual(runner.value("[n, t == (1, b'\\0\\1'), d]"), [1, True, {"a": [None]}])

    def test_globals_of_a_cell(self):
        with Runner(globals={"n": 1, "kept": 0}, forbidden_calls=["eval"]) as runner:
            self.assertEqual(runner.value("[n, kept]", globals={"n": 2}), [2, 0])
            self.assertEqual(runner.value("own = n\nn"), 2)
            self.assertEqual(runner.value("[n, own]", globals={"n": {"$": "tuple", "v": [3]}, "own": 4}), [{"$": "tuple", "v": [3]}, 4])
            self.assertEqual(runner.value("n = 5\nreturn n", globals={"n": 4}), 5)
            self.assertEqual(runner.value("n", globals={}, tools=[]), 5)
            self.assertIsNone(runner.value("own", globals={"own": None}))
            # Given, and not made by the cell: no value of it.
            self.assertIsNone(runner.value("other = 1", globals={"result": 6}))
            # Before the code is looked at, so it is there whatever comes of that.
            self.assertEqual(runner.run("(", globals={"n": 7})["error"]["type"], "SyntaxError")
            self.assertEqual(runner.run("eval('1')", globals={"own": 8})["status"], "refused")
            self.assertEqual(runner.value("[n, own]"), [7, 8])
            done = runner.run("1", globals={"n": {"$": "nonsense"}})
            self.assertEqual((done["status"], done["error"]["type"]), ("error", "ValueError"))
            self.assertEqual(runner.value("n"), 7)

    def test_globals_of_a_cell_that_was_interrupted(self):
        with Runner() as runner:
            runner.start("while True: pass", globals={"n": 1})
            time.sleep(0.2)
            runner.interrupt()
            self.assertEqual(runner.finish()["status"], "interrupted")
            self.assertEqual(runner.value("n"), 1)


if __name__ == "__main__":
    unittest.main()
