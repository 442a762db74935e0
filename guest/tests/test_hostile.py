"""Cells that break things: the runner answers, or it is gone and nothing else."""

import os
import time
import unittest

from fake import Closed, Runner, frame, readable


class Hostile(unittest.TestCase):
    def check(self, runner, code="1 + 1", wanted=2):
        self.assertEqual(runner.value(code), wanted)

    def test_broken_code(self):
        with Runner() as runner:
            for code in ("\0", "x = 1\0", "(", "'", "\\", "\ud800", "def", "\x00\x01\x02", "return return", "await", "yield", "é" * 1000, "\t\n  x", "if", "@", "\ufeff1"):
                done = runner.run(code)
                self.assertIn(done["status"], ("error", "ok"), (code, done))
            self.check(runner)

    def test_much_code(self):
        with Runner() as runner:
            self.assertEqual(runner.value("#" + "x" * 50_000_000 + "\n5"), 5)
            self.assertEqual(runner.value("x = '" + "y" * 50_000_000 + "'\nlen(x)"), 50_000_000)
            self.assertEqual(runner.value("a = 1\n" * 200_000 + "a"), 1)

    def test_flood(self):
        with Runner() as runner:
            self.assertEqual(runner.run("for i in range(300_000): print(i)")["status"], "ok")
            self.assertEqual(len(runner.printed().splitlines()), 300_000)

    def test_output_is_there_before_done(self):
        with Runner() as runner:
            runner.value("import sys\nsys.stdout.write('no newline')\nsys.stderr.write('err')\nNone")
            self.assertEqual((runner.printed(), runner.printed(runner.err)), ("no newline", "err"))

    def test_closed_streams(self):
        with Runner() as runner:
            self.assertEqual(runner.run("import os, sys\nsys.stdout.close()")["status"], "ok")
            self.check(runner, "print('again')\n1", 1)
            self.assertEqual(runner.printed(), "again\n")
            self.assertEqual(runner.run("os.close(1)\nos.close(2)")["status"], "ok")
            self.assertIn(runner.run("print('x')")["status"], ("ok", "error"))
            self.check(runner)
            self.assertEqual(runner.run("1 / 0")["error"]["type"], "ZeroDivisionError")

    def test_replaced_streams(self):
        with Runner() as runner:
            runner.run("import sys, io\nsys.stdout = io.StringIO()\nsys.stderr = None\nsys.stdin = 5\nprint('lost')")
            self.check(runner, "print('seen')\n1", 1)
            self.assertEqual(runner.printed(), "seen\n")
            runner.run("class Bad:\n  def flush(self): raise SystemExit\n  def write(self, t): 1 / 0\nsys.stdout = sys.stderr = Bad()")
            self.check(runner)
            self.assertEqual(runner.run("sys.exit('text')")["status"], "exit")
            runner.run("del sys.stdout, sys.stderr, sys.stdin")
            self.check(runner)

    def test_closed_channel(self):
        """Without its channel a runner ends at once."""
        with Runner() as runner:
            runner.start("import os\nos.close(3)")
            with self.assertRaises((Closed, ConnectionResetError)):
                runner.finish()
            self.assertEqual(runner.wait(), 0)

    def test_exit_now(self):
        with Runner() as runner:
            runner.start("import os\nos._exit(3)")
            with self.assertRaises((Closed, ConnectionResetError)):
                runner.finish()
            self.assertEqual(os.WEXITSTATUS(runner.wait()), 3)

    def test_engine_goes(self):
        with Runner() as runner:
            runner.value("import atexit\natexit.register(print, 'bye')\nf = open('kept', 'w')\nf.write('kept')\nNone")
            runner.channel.sock.shutdown(2)
            self.assertEqual(runner.wait(), 0)
            self.assertEqual(runner.printed(), "bye\n")
            with open(runner.cwd + "/kept") as file:
                self.assertEqual(file.read(), "kept")

    def test_engine_goes_in_a_call(self):
        with Runner(tools=["never"]) as runner:
            runner.start("never()")
            runner.channel.receive()
            runner.channel.sock.shutdown(2)
            self.assertEqual(runner.wait(), 0)

    def test_half_a_frame(self):
        with Runner() as runner:
            runner.channel.sock.sendall(frame({"op": "execute", "id": 1, "code": "1", "stdin": None})[:9])
            time.sleep(0.1)
            runner.channel.sock.shutdown(1)
            self.assertEqual(runner.wait(), 0)

    def test_nonsense_from_the_engine(self):
        for data in (b"\x02\0\0\0{]", b"\x02\0\0\0[]", b"\x02\0\0\0{}", b"\x01\0\0\0\xff"):
            with Runner() as runner:
                runner.channel.sock.sendall(data)
                self.assertEqual(os.WEXITSTATUS(runner.wait()), 70)
                self.assertIn("no message", runner.printed(runner.err))

    def test_several_cells_at_once(self):
        with Runner() as runner:
            first, second = runner.start("a = 1\na"), runner.start("a + 1")
            self.assertEqual(runner.finish(first)["value"], 1)
            self.assertEqual(runner.finish(second)["value"], 2)

    def test_threads_after_the_cell(self):
        with Runner() as runner:
            runner.value("import threading, time\ndef later():\n  time.sleep(0.2)\n  print('late')\nthreading.Thread(target=later).start()")
            self.check(runner)
            self.check(runner, "time.sleep(0.4)\n3", 3)
            self.assertEqual(runner.printed(), "late\n")
            self.assertFalse(readable(runner.channel.sock, 0.05))

    def test_replaced_builtins(self):
        with Runner(tools={"add": lambda a, b: a + b}) as runner:
            code = """
import builtins, json, struct, os, sys, io, asyncio, linecache, traceback, signal, time, select
def broken(*args, **kwargs): raise RuntimeError('replaced')
for name in ('len', 'isinstance', 'issubclass', 'print', 'open', 'type', 'getattr', 'hasattr', 'list', 'dict', 'str', 'int', 'repr', 'eval',
             'exec', 'compile', 'enumerate', 'zip', 'map', 'any', 'all', 'min', 'max', 'sum', 'sorted', 'next', 'iter', 'range', 'ValueError', 'vars'):
    setattr(builtins, name, broken)
json.dumps = json.loads = struct.pack = struct.unpack = broken
os.read = os.write = os.getpid = os.fork = os.pipe = os.posix_spawnp = os.waitpid = os.waitid = os.close = select.poll = time.time = signal.signal = broken
os.environ = None
"""
            self.assertEqual(runner.run(code)["status"], "ok")
            self.check(runner, "add(2, 3)", 5)
            self.check(runner, "[1, (2,), {3: b'4'}]", [1, {"$": "tuple", "v": [2]}, {"$": "dict", "v": [[3, {"$": "bytes", "v": "NA=="}]]}])
            self.assertEqual(runner.run("1 / 0")["error"]["type"], "ZeroDivisionError")
            self.check(runner, "return 5", 5)
            self.check(runner, "display('x')\n1", 1)
            self.assertEqual(runner.value("[n, add(n, 1)]", globals={"n": 1}, tools=[{"name": "add"}]), [1, 2])
            self.assertEqual(runner.command("cat", stdin="x" * 200_000), {"exit_code": 0})

    def test_deleted_modules(self):
        with Runner() as runner:
            runner.run("import sys\nfor name in [n for n in sys.modules if n not in ('sys', 'builtins')]: del sys.modules[name]")
            self.check(runner)
            runner.run("globals().clear()")
            self.check(runner)
            self.assertEqual(runner.command("true"), {"exit_code": 0})
            self.assertEqual(runner.run("1 / 0")["error"]["type"], "ZeroDivisionError")

    def test_forged_frames(self):
        """A cell can write to the channel; the runner does not mind."""
        with Runner() as runner:
            runner.start("import os\nos.write(3, b'\\x02\\0\\0\\0{}')\n5")
            self.assertEqual(runner.channel.receive(), {})
            self.assertEqual(runner.finish()["value"], 5)

    def test_trace_and_profile(self):
        with Runner() as runner:
            runner.run("import sys, threading\nsys.settrace(lambda *a: 1 / 0)")
            self.assertIn(runner.run("1 + 1")["status"], ("ok", "error"))
            self.check(runner)

    def test_hooks(self):
        with Runner() as runner:
            runner.run("import sys\ndef bad(*a): raise SystemExit\nsys.excepthook = sys.displayhook = sys.unraisablehook = bad\nsys.meta_path.insert(0, 5)")
            self.check(runner)
            self.assertEqual(runner.run("1 / 0")["error"]["type"], "ZeroDivisionError")

    def test_memory_is_let_go(self):
        """What a failed cell held is freed with it."""
        with Runner() as runner:
            code = "import weakref\nclass Big: pass\ndef f():\n  big = Big()\n  global seen\n  seen = weakref.ref(big)\n  1 / 0\nf()"
            self.assertEqual(runner.run(code)["status"], "error")
            self.check(runner, "seen() is None", True)


if __name__ == "__main__":
    unittest.main()
