"""What a cell raises, interrupts and exits."""

import sys
import time
import unittest

from fake import Runner


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runner = Runner()

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def error(self, code, status="error"):
        done = self.runner.run(code)
        self.assertEqual(done["status"], status, done)
        return done["error"]

    def test_traceback_shows_only_the_cell(self):
        self.runner.run("def fails(n):\n    return 1 / n")
        error = self.error("x = 1\nfails(0)")
        self.assertEqual((error["type"], error["message"], error["line"]), ("ZeroDivisionError", "division by zero", 2))
        lines = error["traceback"].splitlines()
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertIn('line 2, in <module>', lines[1])
        self.assertEqual(lines[2].strip(), "fails(0)")
        self.assertIn("return 1 / n", error["traceback"])
        self.assertNotIn("__main__.py", error["traceback"])
        self.assertNotIn("session.py", error["traceback"])
        if sys.version_info >= (3, 11):
            self.assertEqual(self.error("y = 'é' + 1")["column"], 5)

    def test_library_frames_are_left_out(self):
        error = self.error("import json\njson.loads('{')")
        self.assertEqual(error["type"], "JSONDecodeError")
        self.assertNotIn("decoder.py", error["traceback"])
        self.assertIn("json.loads('{')", error["traceback"])

    def test_syntax_error(self):
        error = self.error("x = 1\ny = (")
        self.assertEqual((error["type"], error["line"]), ("SyntaxError", 2))
        self.assertIn("^", error["traceback"])
        self.assertNotIn("Traceback", error["traceback"])
        self.assertEqual(self.error("yield 1")["message"], "'yield' outside function")
        self.assertIn("yield 1", self.error("yield 1")["traceback"])
        self.assertIn("outside", self.error("class A:\n  return 1")["message"])
        self.assertEqual(self.error("if 1:\nx")["type"], "IndentationError")
        self.assertEqual(self.error("return 1\nyield 2")["type"], "SyntaxError")

    def test_chains(self):
        trace = self.error("try:\n  1 / 0\nexcept ZeroDivisionError as e:\n  raise KeyError('k') from e")["traceback"]
        self.assertIn("direct cause", trace)
        self.assertIn("ZeroDivisionError", trace)
        trace = self.error("try:\n  1 / 0\nexcept ZeroDivisionError as e:\n  raise KeyError('k')")["traceback"]
        self.assertIn("During handling", trace)

    @unittest.skipIf(sys.version_info < (3, 11), "no groups and notes before 3.11")
    def test_groups_and_notes(self):
        error = self.error("e = ExceptionGroup('many', [ValueError('a'), KeyError('b')])\ne.add_note('a note')\nraise e")
        for part in ("many", "ValueError: a", "KeyError", "a note"):
            self.assertIn(part, error["traceback"])
        self.assertEqual(error["type"], "ExceptionGroup")

    def test_await_traceback(self):
        error = self.error("import asyncio\nasync def f():\n  await asyncio.sleep(0)\n  raise ValueError('deep')\nawait f()")
        self.assertEqual((error["message"], error["line"]), ("deep", 4))
        self.assertNotIn("asyncio/", error["traceback"])
        self.assertIn("await f()", error["traceback"])

    def test_spiteful_exceptions(self):
        self.assertEqual(self.error("class E(Exception):\n  def __str__(self): raise E\nraise E")["type"], "E")
        self.assertEqual(self.error("class F(Exception):\n  def __str__(self): return 5\nraise F")["type"], "F")
        self.assertEqual(self.error("class G(Exception):\n  def __str__(self): return str(self)\nraise G")["type"], "G")
        error = self.error("class H(Exception):\n  def __str__(self): return 'x' * 50_000_000\nraise H")
        self.assertLess(len(error["message"]), 70_000)
        self.assertLess(len(error["traceback"]), 300_000)
        self.assertEqual(self.error("class I(BaseException):\n  def __getattribute__(self, n): raise I\nraise I")["type"], "I")
        self.assertEqual(self.error("e = KeyError()\ne.__context__ = e2 = ValueError()\ne2.__context__ = e\nraise e")["type"], "KeyError")
        self.assertEqual(self.error("raise ValueError('\\udc80')")["type"], "ValueError")
        self.assertEqual(self.error("e = SyntaxError('m')\ne.lineno = 'x'\ne.filename = 5\nraise e")["type"], "SyntaxError")
        self.assertEqual(self.runner.value("1"), 1)

    def test_recursion_and_memory(self):
        error = self.error("def f(): f()\nf()")
        self.assertEqual(error["type"], "RecursionError")
        self.assertLess(len(error["traceback"]), 20_000)
        self.assertEqual(self.error("'x' * (1 << 60)")["type"], "MemoryError")
        self.assertEqual(self.error("(" * 5000 + ")" * 5000)["type"] in ("MemoryError", "SyntaxError", "RecursionError"), True)
        self.assertEqual(self.error("-" * 100_000 + "1")["type"] in ("MemoryError", "SyntaxError", "RecursionError"), True)
        self.assertEqual(self.error("import sys\nsys.setrecursionlimit(60)\n1 / 0")["type"], "ZeroDivisionError")
        self.assertEqual(self.runner.value("1 + 1"), 2)
        self.assertEqual(self.runner.value("sys.setrecursionlimit(1000)\n5"), 5)

    def test_exit(self):
        self.assertEqual(self.error("import sys\nsys.exit(3)", "exit")["message"], "3")
        self.assertEqual(self.error("exit()", "exit")["message"], "0")
        self.assertEqual(self.error("raise SystemExit('last words')", "exit")["message"], "1")
        self.assertIn("last words", self.runner.printed(self.runner.err))
        self.assertEqual(self.error("import asyncio\nawait asyncio.sleep(0)\nsys.exit(4)", "exit")["message"], "4")
        self.assertEqual(self.runner.value("1 + 1"), 2)


class Interrupts(unittest.TestCase):
    def interrupted(self, runner, code, after=0.3):
        runner.start(code)
        time.sleep(after)
        runner.interrupt()
        done = runner.finish()
        self.assertEqual(done["status"], "interrupted", done)
        self.assertEqual(done["error"]["type"], "KeyboardInterrupt")
        return done

    def test_interrupts(self):
        with Runner(tools=["never"]) as runner:
            runner.value("kept = 1")
            self.interrupted(runner, "while True: pass")
            done = self.interrupted(runner, "import time\ntime.sleep(60)")
            self.assertEqual(done["error"]["line"], 2)
            done = self.interrupted(runner, "import asyncio\nawait asyncio.sleep(60)")
            self.assertEqual(done["error"]["line"], 2)
            self.interrupted(runner, "await asyncio.sleep(0)\nwhile True: pass")
            self.interrupted(runner, "async def busy():\n  while True: await asyncio.sleep(0)\nawait asyncio.gather(busy(), busy())")
            self.interrupted(runner, "never()")
            self.interrupted(runner, "await never()")
            self.interrupted(runner, "class R:\n  def __repr__(self):\n    while True: pass\nR()")
            self.interrupted(runner, "class S(Exception):\n  def __str__(self):\n    while True: pass\nraise S")
            self.assertEqual(runner.value("kept + 1"), 2)
            self.assertEqual(runner.value("await asyncio.sleep(0, 5)"), 5)

    def test_interrupt_of_another_task(self):
        """The interrupt hits a task that the cell waits for; the loop is whole afterwards."""
        with Runner() as runner:
            code = "import asyncio, time\nasync def busy():\n  while True:\n    time.sleep(0.01)\n    await asyncio.sleep(0)\nawait asyncio.gather(busy(), busy())"
            for _ in range(5):
                self.interrupted(runner, code, 0.2)
                self.assertEqual(runner.value("for t in asyncio.all_tasks(): t is asyncio.current_task() or t.cancel()\nawait asyncio.sleep(0.01, 5)"), 5)

    def test_interrupt_between_cells(self):
        with Runner() as runner:
            runner.value("1")
            for _ in range(5):
                runner.interrupt()
                time.sleep(0.01)
            self.assertEqual(runner.value("1 + 1"), 2)

    def test_interrupt_that_is_caught(self):
        with Runner() as runner:
            runner.start("import time\ntry:\n  time.sleep(60)\nexcept KeyboardInterrupt:\n  pass\n'went on'")
            time.sleep(0.3)
            runner.interrupt()
            self.assertEqual(runner.finish().get("value"), "went on")

    def test_storm(self):
        """Interrupts at all moments: every cell is answered, and no frame is torn."""
        with Runner() as runner:
            seen = set()
            for number in range(300):
                runner.start("sum(range(%d))" % (number * 7 % 3000))
                runner.interrupt()
                if number % 3 == 0:
                    runner.interrupt()
                seen.add(runner.finish()["status"])
            self.assertLessEqual(seen, {"ok", "interrupted"})
            time.sleep(0.05)
            self.assertEqual(runner.value("1 + 1"), 2)

    def test_own_handler_does_not_last(self):
        with Runner() as runner:
            runner.value("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nNone")
            self.interrupted(runner, "while True: pass")


if __name__ == "__main__":
    unittest.main()
