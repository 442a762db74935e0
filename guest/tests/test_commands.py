"""Programs that the engine asks for between cells."""

import os
import signal
import time
import unittest

from fake import Runner, readable

# Ignores SIGINT, and says when it does.
STUBBORN = "trap '' INT; echo ready; while :; do sleep 0.05; done"


def wait_for(runner, text):
    end = time.monotonic() + 20
    while text not in runner.printed():
        assert time.monotonic() < end, "not printed: " + text
        time.sleep(0.01)


def is_gone(pid):
    """Whether a process has ended; it may still be waited for."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Commands(unittest.TestCase):
    def setUp(self):
        self.runner = Runner()

    def tearDown(self):
        self.runner.close()

    def script(self, text, mode=0o755):
        path = self.runner.cwd + "/script"
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)

    def test_output(self):
        self.assertEqual(self.runner.command("sh", "-c", "echo out; echo err >&2"), {"exit_code": 0})
        self.assertEqual((self.runner.printed(), self.runner.printed(self.runner.err)), ("out\n", "err\n"))
        self.assertEqual(self.runner.command("printf", "%s|", "é", "a b", "$HOME", "*", ""), {"exit_code": 0})
        self.assertEqual(self.runner.printed(), "out\né|a b|$HOME|*||")

    def test_order_of_output(self):
        self.runner.value("import sys, io\nsys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, 'w', closefd=False)))\nprint('first')")
        self.runner.command("echo", "second")
        self.runner.value("print('third')")
        self.assertEqual(self.runner.printed(), "first\nsecond\nthird\n")

    def test_much_output(self):
        self.assertEqual(self.runner.command("head", "-c", "20000000", "/dev/zero"), {"exit_code": 0})
        self.assertEqual(len(self.runner.printed()), 20_000_000)

    def test_ends(self):
        self.assertEqual(self.runner.command("sh", "-c", "exit 7"), {"exit_code": 7})
        self.assertEqual(self.runner.command("sh", "-c", "exit 255"), {"exit_code": 255})
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGRTMIN):
            self.assertEqual(self.runner.command("sh", "-c", "kill -%d $$" % number), {"signal": number})

    def test_not_started(self):
        def error(*argv):
            return self.runner.command(*argv)["error"]

        self.assertEqual(error("no-such-program"), {"type": "FileNotFoundError", "message": "`no-such-program` is not there"})
        self.assertEqual(error("./script", "x"), {"type": "FileNotFoundError", "message": "`./script` is not there"})
        self.script("#!/bin/sh\n", 0o644)
        self.assertEqual(error("./script"), {"type": "PermissionError", "message": "`./script` cannot be executed"})
        self.assertEqual(error("/"), {"type": "PermissionError", "message": "`/` cannot be executed"})
        self.script("\x7fELF is not enough")
        self.assertEqual(error("./script"), {"type": "OSError", "message": "`./script` cannot be started: Exec format error"})
        self.assertEqual(error("true", "x" * 10_000_000), {"type": "OSError", "message": "`true` cannot be started: Argument list too long"})
        self.assertEqual(error("true", "a\0b")["type"], "ValueError")
        self.assertEqual(error("tr\ud800ue")["type"], "UnicodeEncodeError")
        self.assertIn("message", error())
        self.assertEqual(self.runner.command("true"), {"exit_code": 0})

    def test_no_more_processes(self):
        """The limit does not hold for root, so the runner is somebody else."""
        if os.getuid() != 0:
            self.skipTest("NOT TESTED: only root can be somebody else")
        code = "import os, resource\nresource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\nos.setuid(12345)"
        self.assertEqual(self.runner.run(code)["status"], "ok")
        error = self.runner.command("true")["error"]
        self.assertEqual(error, {"type": "BlockingIOError", "message": "`true` cannot be started: Resource temporarily unavailable"})
        self.assertEqual(self.runner.value("1 + 1"), 2)

    def test_no_more_descriptors(self):
        self.runner.run("import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\nheld = []\ntry:\n  while True: held.append(os.dup(0))\nexcept OSError: pass")
        self.assertEqual(self.runner.command("true")["error"]["type"], "OSError")
        self.runner.run("for number in held: os.close(number)")
        self.assertEqual(self.runner.command("true"), {"exit_code": 0})

    def test_environment(self):
        self.runner.value("import os\nos.environ['MINE'] = 'é'\nos.makedirs('bin')\nos.environ['PATH'] = os.getcwd() + '/bin:' + os.environ['PATH']")
        with open(self.runner.cwd + "/bin/own-program", "w") as file:
            file.write("#!/bin/sh\necho $MINE $0")
        os.chmod(self.runner.cwd + "/bin/own-program", 0o755)
        self.assertEqual(self.runner.command("own-program"), {"exit_code": 0})
        self.assertEqual(self.runner.printed(), "é %s/bin/own-program\n" % self.runner.cwd)
        self.runner.value("os.environ = {}")
        self.assertEqual(self.runner.command("own-program"), {"exit_code": 0})
        self.assertEqual(self.runner.printed(), "é %s/bin/own-program\n" % self.runner.cwd * 2)
        with Runner(env={"ONLY": "this"}) as runner:  # no PATH: the system's own
            runner.command("env")
            self.assertEqual(sorted(line for line in runner.printed().split() if not line.startswith("MPLBACKEND=")), ["ONLY=this"])

    def test_directory(self):
        self.assertEqual(self.runner.command("pwd"), {"exit_code": 0})
        self.runner.value("import os\nos.mkdir('below')\nos.chdir('below')")
        self.assertEqual(self.runner.command("pwd"), {"exit_code": 0})
        self.assertEqual(self.runner.printed(), "%s\n%s/below\n" % ((os.path.realpath(self.runner.cwd),) * 2))

    def test_session_goes_on(self):
        self.runner.value("import threading\nkept = [1]\nlock = threading.Lock()")
        self.runner.command("false")
        self.runner.command("no-such-program")
        self.assertEqual(self.runner.value("kept.append(2)\n[kept, lock.locked()]"), [[1, 2], False])
        first, second, third = self.runner.start("kept"), self.runner.start_command("echo", "x"), self.runner.start("len(kept)")
        self.assertEqual(self.runner.finish(first)["value"], [1, 2])
        self.assertEqual(self.runner.finish(second)["exit_code"], 0)
        self.assertEqual(self.runner.finish(third)["value"], 2)

    def test_before_setup(self):
        with Runner(started=False) as runner:
            runner.channel.receive()
            self.assertEqual(runner.command("true"), {"exit_code": 0})
            self.assertEqual(runner.value("1 + 1"), 2)

    def test_lists_do_not_apply(self):
        with Runner(imports=[], forbidden_calls=["echo"]) as runner:
            self.assertEqual(runner.command("echo", "import os; echo()"), {"exit_code": 0})
            self.assertEqual(runner.printed(), "import os; echo()\n")

    def test_descriptors(self):
        self.runner.value("import os\nkept = os.open('/dev/null', os.O_RDONLY)\nfor number in (3, kept, os.dup2(0, 50)): os.set_inheritable(number, True)")
        self.runner.command("sh", "-c", "for n in 3 4 5 6 7 8 9 50; do [ -e /proc/$$/fd/$n ] && echo $n; done; echo; ls -l /proc/$$/fd >&2")
        self.assertEqual(self.runner.printed(), "\n", self.runner.printed(self.runner.err))
        self.assertEqual(self.runner.value("[os.get_inheritable(n) for n in (3, kept, 50)]"), [True] * 3)
        self.assertEqual(self.runner.command("sh", "-c", "echo forged >&3"), {"exit_code": 2})
        self.assertFalse(readable(self.runner.channel.sock, 0.05))

    def test_nothing_is_left(self):
        count = "import os\nlen(os.listdir('/proc/self/fd'))"
        before = self.runner.value(count)
        for argv in (["true"], ["no-such-program"], ["sh", "-c", "kill -9 $$"], ["true", "a\0b"]):
            self.runner.command(*argv, stdin="x" * 100_000)
        self.assertEqual(self.runner.value(count), before)
        code = "try: x = os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError: x = None\nx"
        self.assertIsNone(self.runner.value(code))

    def test_stdin(self):
        self.assertEqual(self.runner.command("cat", stdin="text é\n"), {"exit_code": 0})
        self.assertEqual(self.runner.command("cat"), {"exit_code": 0})
        self.assertEqual(self.runner.command("cat", stdin=""), {"exit_code": 0})
        self.assertEqual(self.runner.command("cat", "/dev/stdin", stdin="by name"), {"exit_code": 0})
        self.assertEqual(self.runner.printed(), "text é\nby name")

    def test_large_stdin(self):
        self.assertEqual(self.runner.command("cat", stdin="0123456789" * 2_000_000), {"exit_code": 0})
        self.assertEqual(self.runner.printed(), "0123456789" * 2_000_000)

    def test_unread_stdin(self):
        start = time.monotonic()
        self.assertEqual(self.runner.command("true", stdin="x" * 20_000_000), {"exit_code": 0})
        self.assertEqual(self.runner.command("sh", "-c", "exec <&-; sleep 0.3; exit 3", stdin="x" * 1_000_000), {"exit_code": 3})
        # One that is left in the background has the pipe open, and never reads it.
        self.assertEqual(self.runner.command("sh", "-c", "exec 4<&0; sleep 30 <&4 & echo $!", stdin="x" * 1_000_000), {"exit_code": 0})
        self.assertLess(time.monotonic() - start, 10)
        os.kill(int(self.runner.printed()), signal.SIGKILL)

    def test_signals_of_the_session(self):
        """Whatever a cell made of them, the program begins with none of it, and its end is told."""
        self.runner.value("import signal, os\nfor number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT): signal.signal(number, signal.SIG_IGN)\n"
                          "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nNone")
        self.assertEqual(self.runner.command("true", stdin="x" * 1_000_000), {"exit_code": 0})
        self.assertEqual(self.runner.command("sh", "-c", "exit 5"), {"exit_code": 5})
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGPIPE):
            self.assertEqual(self.runner.command("sh", "-c", "kill -%d $$" % number), {"signal": number})
        code = "[signal.getsignal(n) for n in (signal.SIGCHLD, signal.SIGPIPE)] == [signal.SIG_IGN, signal.SIG_DFL]"
        self.assertTrue(self.runner.value(code))
        self.assertTrue(self.runner.value("signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR1}"))

    def test_session_that_waits_for_every_child(self):
        code = "import signal, os\ndef all(*a):\n  try:\n    while os.waitpid(-1, os.WNOHANG)[0]: pass\n  except ChildProcessError: pass\nsignal.signal(signal.SIGCHLD, all)\nNone"
        self.runner.value(code)
        for _ in range(20):
            self.assertEqual(self.runner.command("sh", "-c", "exit 5", stdin="x" * 100_000), {"exit_code": 5})
        self.runner.value("import threading\ndef wait():\n  global status\n  status = os.wait()[1]\nthreading.Thread(target=wait).start()\nthreading.Thread(target=wait).start()")
        found = self.runner.command("sleep", "0.2")
        self.assertIn(found.get("error", {}).get("type", found), ("ChildProcessError", {"exit_code": 0}))
        self.assertEqual(self.runner.value("1 + 1"), 2)

    def test_handler_that_raises(self):
        self.runner.value("import signal\ndef late(*a): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.3)\nNone")
        found = self.runner.command("sh", "-c", "echo $$; exec sleep 60")
        self.assertEqual(found, {"error": {"type": "TimeoutError", "message": "late"}})
        self.assertTrue(is_gone(int(self.runner.printed())))
        self.assertEqual(self.runner.value("1 + 1"), 2)

    def test_threads_go_on(self):
        self.runner.tools = {"add": lambda a, b: a + b}
        self.runner.value("import threading, time\nfound = []\ndef work():\n  time.sleep(0.1)\n  found.append(add(1, 2))\nthreading.Thread(target=work).start()", tools=[{"name": "add"}])
        self.assertEqual(self.runner.command("sleep", "0.5"), {"exit_code": 0})
        self.assertEqual(self.runner.value("found"), [3])

    def test_interrupt(self):
        for argv, stdin in ((["sleep", "60"], None), (["sleep", "60"], "x" * 1_000_000), (["cat", "/dev/zero"], None)):
            if argv[0] == "cat":
                self.runner.value("import os\nnull = os.open('/dev/null', os.O_WRONLY)\nos.dup2(null, 1)\nNone")
            start = time.monotonic()
            self.runner.start_command(*argv, stdin=stdin)
            time.sleep(0.3)
            self.runner.interrupt()
            self.assertEqual(self.runner.finish()["signal"], signal.SIGINT)
            self.assertLess(time.monotonic() - start, 30)
            self.assertEqual(self.runner.value("1 + 1"), 2)

    def test_interrupt_of_what_it_started(self):
        self.runner.start_command("sh", "-c", "sleep 60; echo never")
        time.sleep(0.3)
        start = time.monotonic()
        self.runner.interrupt()
        self.assertEqual(self.runner.finish()["signal"], signal.SIGINT)
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(self.runner.printed(), "")

    def test_interrupt_that_is_handled(self):
        self.runner.start_command("sh", "-c", "trap 'echo cleaned; exit 4' INT; echo ready; while :; do sleep 0.05; done")
        wait_for(self.runner, "ready")
        self.runner.interrupt()
        self.assertEqual(self.runner.finish()["exit_code"], 4)
        self.assertEqual(self.runner.printed(), "ready\ncleaned\n")

    def test_interrupt_that_is_ignored(self):
        self.runner.start_command("sh", "-c", STUBBORN)
        wait_for(self.runner, "ready")
        start = time.monotonic()
        for _ in range(5):
            self.runner.interrupt()
            time.sleep(0.1)
        self.assertEqual(self.runner.finish()["signal"], signal.SIGKILL)
        self.assertTrue(1.8 < time.monotonic() - start < 30, time.monotonic() - start)
        self.assertEqual(self.runner.value("1 + 1"), 2)

    def test_interrupts_at_any_time(self):
        """Between commands they do nothing, and during one they end that and nothing else."""
        for number in range(60):
            self.runner.start_command("sleep", "0.01")
            time.sleep(number % 12 / 1000)
            self.runner.interrupt()
            done = self.runner.finish()
            self.assertTrue(done.get("exit_code") == 0 or done.get("signal") == signal.SIGINT, done)
        self.assertEqual(self.runner.value("import time\ntime.sleep(0.05)\n1"), 1)
        self.runner.start("while True: pass")
        time.sleep(0.2)
        self.runner.interrupt()
        self.assertEqual(self.runner.finish()["status"], "interrupted")

    def test_waiting_costs_nothing(self):
        code = "import resource\nsum(resource.getrusage(resource.RUSAGE_SELF)[:2])"
        before = self.runner.value(code)
        self.runner.command("sleep", "1")
        self.runner.command("sleep", "1", stdin="x" * 1_000_000)
        self.assertLess(self.runner.value(code) - before, 0.2)


if __name__ == "__main__":
    unittest.main()
