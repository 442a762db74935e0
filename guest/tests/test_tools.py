"""Tools of the host, called from cells."""

import time
import unittest

from fake import Runner, readable


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        def fail(kind, message="m"):
            raise type(kind, (Exception,), {})(message)

        cls.runner = Runner(tools={"add": lambda a, b: a + b, "fail": fail, "none": lambda: None, "keys": lambda **k: sorted(k)})

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def check(self, code, wanted):
        self.assertEqual(self.runner.value(code), wanted, code)

    def error(self, code):
        done = self.runner.run(code)
        self.assertEqual(done["status"], "error", done)
        return done["error"]

    def test_sync(self):
        self.check("add(2, 3)", 5)
        self.check("add(a=1, b=2)", 3)
        self.check("none()", None)
        self.check("keys(x=1, y=2)", ["x", "y"])
        self.check("[add(i, i) for i in range(3)]", [0, 2, 4])
        self.check("add.__name__", "add")
        numbers = []
        for _ in range(3):
            self.runner.value("add(1, 1)")
            numbers += [event["call"] for event in self.runner.events]
        self.assertEqual(sorted(set(numbers)), numbers)

    def test_async(self):
        self.check("await add(2, 3)", 5)
        self.check("import asyncio\nawait asyncio.gather(add(1, 2), add(3, 4))", [3, 7])
        self.check("await asyncio.gather(*[add(i, 1) for i in range(3)])", [1, 2, 3])
        self.check("await asyncio.gather(*(add(i, 1) for i in range(3)))", [1, 2, 3])
        self.check("await asyncio.gather(*map(add, [1], [2]))", [3])
        self.check("async def f(): return await add(1, 1)\nasyncio.run(f())", 2)
        self.check("await asyncio.wait_for(add(1, 1), 5)", 2)
        self.check("t = add(1, 5)\nu = add(2, 5)\n[await t, await u]", [6, 7])
        self.check("def plain(): return add(1, 1) + 1\nawait asyncio.sleep(0)\nplain()", 3)
        self.check("def plain(): return add(1, 1) + 1\nasync def f():\n  await asyncio.sleep(0)\n  return plain()\nawait asyncio.gather(f(), add(1, 2), f())", [3, 3, 3])

    def test_parallel(self):
        """All calls of a gather are under way before the first is answered, and answers may come in any order."""
        with Runner(tools=["slow"]) as runner:
            runner.start("import asyncio\nawait asyncio.gather(*[slow(i) for i in range(5)])")
            calls = [runner.channel.receive() for _ in range(5)]
            for call in reversed(calls):
                runner.channel.send({"op": "tool_result", "call": call["call"], "value": call["args"][0] * 10})
            self.assertEqual(runner.finish()["value"], [0, 10, 20, 30, 40])

    def test_not_awaited(self):
        error = self.error("import asyncio\nawait asyncio.sleep(0)\nx = add(1, 2) + 1")
        self.assertEqual(error["type"], "TypeError")
        self.assertIn("await add(...)", error["message"])
        self.check("await asyncio.sleep(0)\nadd(1, 2)\n5", 5)
        self.check("1 + 1", 2)

    def test_threads(self):
        code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda n: add(n, n), range(200)))
found == [n * 2 for n in range(200)]"""
        self.check(code, True)
        code = """
import threading
found = []
def work(): found.append(add(1, 1))
threads = [threading.Thread(target=work) for _ in range(10)]
for t in threads: t.start()
own = [add(i, 0) for i in range(50)]
for t in threads: t.join()
[found, own == list(range(50))]"""
        self.check(code, [[2] * 10, True])
        code = """
import asyncio
loop = asyncio.get_running_loop()
got = await asyncio.gather(*[loop.run_in_executor(None, add, i, 1) for i in range(30)], *[add(i, 2) for i in range(30)])
got == [i + 1 for i in range(30)] + [i + 2 for i in range(30)]"""
        self.check(code, True)

    def test_errors(self):
        self.assertEqual(self.error("fail('ValueError')")["type"], "ValueError")
        self.check("try: fail('KeyError', 'k')\nexcept KeyError as e: x = e.args\nx", {"$": "tuple", "v": ["k"]})
        error = self.error("fail('HostTrouble', 'why')")
        self.assertEqual((error["type"], error["message"]), ("HostTrouble", "why"))
        self.assertNotIn("tools.py", error["traceback"])
        self.check("try: fail('HostTrouble', 'why')\nexcept ToolError as e: x = str(e)\nx", "why")
        for kind in ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "StopIteration", "UnicodeDecodeError", "print", "no name"):
            self.check("try: fail(%r)\nexcept ToolError as e: x = str(e)\nx" % kind, "m")
        self.check("try: await fail('OSError')\nexcept OSError as e: x = str(e)\nx", "m")

    def test_arguments_that_are_no_data(self):
        for code, which in (("add(1, object())", "2"), ("add(a=print, b=1)", "'a'"), ("add([1, [object()]], 2)", "1"), ("add('x' * 5_000_000, '')", "1")):
            error = self.error(code)
            self.assertEqual(error["type"], "TypeError")
            self.assertIn("argument %s of tool 'add'" % which, error["message"])
            self.assertEqual(self.runner.events, [])
        self.assertIn("holds itself", self.error("l = []\nl.append(l)\nadd(l, l)")["message"])

    def test_unknown_answers(self):
        self.runner.channel.send({"op": "tool_result", "call": 12345, "value": 1})
        self.runner.channel.send({"op": "tool_error", "call": "x", "type": "E", "message": ""})
        self.runner.channel.send({"op": "unheard-of"})
        self.check("add(1, 1)", 2)

    def test_late_answer(self):
        with Runner(tools=["slow"]) as runner:
            runner.start("slow()")
            call = runner.channel.receive()
            time.sleep(0.1)
            runner.interrupt()
            self.assertEqual(runner.finish()["status"], "interrupted")
            runner.channel.send({"op": "tool_result", "call": call["call"], "value": 1})
            self.assertEqual(runner.value("5"), 5)

    def test_waiting_costs_nothing(self):
        with Runner(tools=["slow"]) as runner:
            for code in ("await slow()", "slow()"):
                runner.start("import time\nbegin = time.process_time()\n%s\ntime.process_time() - begin" % code)
                call = runner.channel.receive()
                time.sleep(1)
                runner.channel.send({"op": "tool_result", "call": call["call"], "value": 1})
                self.assertLess(runner.finish()["value"], 0.4)  # the first imports asyncio

    def test_bytes_in_drops(self):
        """Frames that arrive byte by byte, also while somebody waits and is interrupted."""
        from fake import frame

        with Runner(tools=["slow"]) as runner:
            for byte in frame({"op": "execute", "id": 1, "code": "slow() + 'é'", "stdin": None}):
                runner.channel.sock.send(bytes([byte]))
            runner.count = 1
            call = runner.channel.receive()
            answer = frame({"op": "tool_result", "call": call["call"], "value": "abc"})
            runner.channel.sock.send(answer[:7])
            time.sleep(0.1)
            runner.interrupt()
            self.assertEqual(runner.finish()["status"], "interrupted")
            runner.channel.sock.send(answer[7:])
            self.assertEqual(runner.value("1 + 1"), 2)

    def test_tools_of_a_cell(self):
        with Runner(tools={"add": lambda a, b: a + b}) as runner:
            runner.tools.update(double=lambda n: n * 2, fail=lambda: {}["missing"])
            self.assertEqual(runner.run("double(4)")["error"]["type"], "NameError")
            self.assertEqual(runner.value("double(4)", tools=[{"name": "double"}]), 8)
            self.assertEqual(runner.value("[double(5), add(1, 2), double.__name__]"), [10, 3, "double"])
            self.assertEqual(runner.value("import asyncio\nawait asyncio.gather(double(1), add(1, 2))"), [2, 3])
            self.assertEqual(runner.value("await double(6)", tools=[{"name": "double"}]), 12)
            self.assertEqual(runner.run("double = 3\ndouble")["value"], 3)
            self.assertEqual(runner.value("double(double(n))", globals={"n": 2}, tools=[{"name": "double"}]), 8)
        with Runner() as runner:  # one that had none
            runner.tools = {"fail": lambda: [][1]}
            code = "try: fail()\nexcept IndexError as e: x = [str(e), isinstance(e, ToolError)]\nx"
            self.assertEqual(runner.value(code, tools=[{"name": "fail"}])[1], False)
            numbers = []
            for _ in range(3):
                runner.run("fail()", tools=[{"name": "fail"}])
                numbers += [event["call"] for event in runner.events]
            self.assertEqual(sorted(set(numbers)), numbers)

    def test_fork_does_not_speak(self):
        with Runner(tools={"add": lambda a, b: a + b}) as runner:
            value = runner.value("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\npid and 'parent'")
            self.assertEqual(value, "parent")
            code = ("r, w = os.pipe()\npid = os.fork()\nif not pid:\n  try: add(1, 1)\n  except RuntimeError as e: os.write(w, str(e).encode())\n"
                    "  os._exit(0)\nos.waitpid(pid, 0)\nos.read(r, 1000).decode()")
            self.assertIn("fork", runner.value(code))
            self.assertFalse(readable(runner.channel.sock, 0.1))


if __name__ == "__main__":
    unittest.main()
