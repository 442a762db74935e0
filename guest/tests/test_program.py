"""A program behaves as `python3 FILE` does: the same output, errors and exit status, cold and forked from a zygote."""

import os
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest

import fake
import fakezygote
from fake import Runner
from fakezygote import CHDIR, CHROOT, PROGRAM, REHEARSE, Zygote

# Whoever starts tests in the background may have them ignore it, and then so does everything that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


VARIABLES = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

PROGRAMS = {
    "hello": "print('hello'); import sys; print('é', file=sys.stderr)",
    "module": """
import sys, os
m = sys.modules['__main__']
print({k: type(v).__name__ for k, v in sorted(vars(m).items())})
print(__name__, __file__, __package__, __spec__, __doc__, __builtins__ is __import__('builtins'), m.__dict__ is globals())
print(sys.argv, sys.path[0], os.getcwd(), sys.path.count(sys.path[0]))
print(__loader__.name, __loader__.path)
""",
    "environment": "import os, time; print(sorted(os.environ.items()), time.tzname)",
    "streams": """
import sys
for s in (sys.stdin, sys.stdout, sys.stderr):
    b = getattr(s, 'buffer', None)
    print(s.name, s.mode, s.encoding, s.errors, s.newlines, s.line_buffering, s.write_through, s.fileno(), s.isatty(), s.closed, type(b).__name__, b.name, s is getattr(sys, '__%s__' % s.name[1:-1]))
print(repr(sys.stdin.read()))
print('a', end=''); import os; os.write(1, b'b'); print('c')
""",
    "raise": "def f():\n    raise ValueError('é')\nf()\n",
    "chain": "try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('k') from e\n",
    "syntax2": "def f():\n  return\nbreak\n",
    "indent": "if 1:\nx\n",
    "encoding": b"# -*- coding: latin-1 -*-\nprint('\xe9')\n",
    "bom": b"\xef\xbb\xbfprint('bom')\n",
    "exit0": "import sys; sys.exit()",
    "exit3": "import sys; sys.exit(3)",
    "exit-1": "raise SystemExit(-1)",
    "exit256": "raise SystemExit(256)",
    "exit-text": "raise SystemExit('words')",
    "exit-none": "raise SystemExit(None)",
    "exit-object": "raise SystemExit([1, 2])",
    "exit-bool": "raise SystemExit(True)",
    "os-exit": "import os; print('x'); os._exit(7)",
    "abort": "import os; os.abort()",
    "kill": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT); [None for _ in range(1000)]; print('never')",
    "keyboard": "raise KeyboardInterrupt",
    "keyboard-caught": "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    print('caught')",
    "atexit": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nprint('main')\n",
    "atexit-raise": "import atexit\ndef bad(): raise ValueError('bad')\natexit.register(print, 'still')\natexit.register(bad)\n",
    "atexit-exit": "import atexit, sys\natexit.register(print, 'after')\nsys.exit(4)",
    "thread": "import threading, time\ndef f():\n    time.sleep(0.1)\n    print('thread')\nthreading.Thread(target=f).start()\nprint('main')\n",
    "daemon": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('main')\n",
    "thread-raise": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start(); t.join(); print('main')\n",
    "unclosed": "f = open('unclosed.txt', 'w')\nf.write('kept')\n",
    "unclosed-cycle": "class A: pass\na = A(); a.a = a; a.f = open('unclosed.txt', 'w')\na.f.write('cycle')\n",
    "unclosed-module": "import other\nother.f.write('module')\n",
    "unclosed-local": "def f():\n    h = open('unclosed.txt', 'w')\n    h.write('local')\n    1 / 0\nf()\n",
    "del": "class A:\n    def __del__(self): print('deleted')\na = A()\nprint('end')\n",
    "del-cycle": "class A:\n    def __del__(self): print('deleted')\na = A(); a.me = a\nprint('end')\n",
    "del-globals": "import os\nclass A:\n    def __del__(self): os.write(1, b'deleted')\na = A(); a.me = a\nb = A()\n",
    "hook": "import sys\nsys.excepthook = lambda k, e, t: print('hook', k.__name__, t.tb_frame.f_code.co_name, t.tb_next)\n1 / 0\n",
    "hook-raise": "import sys\ndef hook(k, e, t): raise OSError('in hook')\nsys.excepthook = hook\n1 / 0\n",
    "recursion": "def f(): f()\ntry: f()\nexcept RecursionError: print('survived')\n",
    "pickle": "import pickle\nclass A:\n    x = 1\nprint(type(pickle.loads(pickle.dumps(A()))) is A)\n",
    "source": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))\nprint(inspect.getsourcefile(f))\n",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1), __annotations__)\ny: int = 1\nprint(__annotations__)\n",
    "sibling": "import other, sys\nprint(other.__file__, other.value)",
    "named-as-ours": "import encode\nprint(encode.mine)\n",
    "multiprocessing": """
import multiprocessing as mp
def work(n): return n * n
if __name__ == '__main__':
    with mp.get_context('fork').Pool(2) as pool:
        print(pool.map(work, range(5)))
""",
    "spawn": """
import multiprocessing as mp
def work(q): q.put(5)
if __name__ == '__main__':
    c = mp.get_context('spawn')
    q = c.SimpleQueue()
    p = c.Process(target=work, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)
""",
    "futures": "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor(2)\np.submit(lambda: print('future'))\n",
    "asyncio": "import asyncio\nasync def main():\n    await asyncio.sleep(0.01)\n    print('async')\nasyncio.run(main())\n",
    "subprocess": "import subprocess, sys\nprint('before')\nsubprocess.run([sys.executable, '-c', 'import os; print(sorted(os.listdir(\"/proc/self/fd\")))'])\nprint('after')\n",
    "descriptors": "import os\nprint([n for n in range(3, 50) if os.path.exists('/proc/self/fd/%d' % n)])\n",
    "signals": "import signal\nfor s in ('SIGINT', 'SIGPIPE', 'SIGCHLD', 'SIGTERM', 'SIGXFSZ'): print(s, signal.getsignal(getattr(signal, s)))\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.set_wakeup_fd(-1))\n",
    "fork": "import os\npid = os.fork()\nif pid == 0:\n    print('child'); raise SystemExit(5)\nprint('parent', os.waitpid(pid, 0)[1] >> 8)\n",
    "input": "print(input('? '))\ntry: input()\nexcept EOFError as e: print('eof', e)\n",
    "close-stdout": "import sys\nprint('x')\nsys.stdout.close()\n",
    "stderr-none": "import sys\nsys.stderr = None\n1 / 0\n",
    "gc": "import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.get_debug())\n",
    "main-thread": "import threading\nprint(threading.current_thread() is threading.main_thread(), threading.active_count(), threading.enumerate())\n",
    "warn": "import warnings\nwarnings.warn('careful')\n",
    "deprecated": "import warnings\nwarnings.warn('old', DeprecationWarning)\n",
    "globals": "import sys\nprint(sorted(globals()))\nprint(sys.getrecursionlimit(), sys.flags.interactive, hasattr(sys, 'ps1'))\nprint('display' in dir(__builtins__))\n",
    "settrace": "import sys\nprint(sys.gettrace(), sys.getprofile(), sys.dont_write_bytecode)\n",
    "annotations": "x: int\nprint(__annotations__)\n",
    "timing": "import time, tempfile, os\nprint(os.path.dirname(tempfile.mktemp()))\n",
    "empty": "",
}
if sys.version_info >= (3, 10):  # before, a file that ends too early gets other words than a text
    PROGRAMS["syntax"] = "print('never')\nx = (\n"
if sys.version_info >= (3, 11):
    PROGRAMS["group"] = "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])"
    PROGRAMS["note"] = "e = ValueError('v')\ne.add_note('a note')\nraise e"


def neutral(text):
    """Without what differs from run to run: addresses and process ids."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"started \d+", "started N", text)
    return re.sub(r"pid=\d+", "pid=N", text)


class Programs(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.zygote = Zygote(["json", "random", "threading", "tempfile"])

    @classmethod
    def tearDownClass(cls):
        cls.zygote.close()

    def place(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        for name, text in (("other.py", "value = 5\nf = open('unclosed.txt', 'w')\n"), ("encode.py", "mine = True\n")):
            with open(directory.name + "/" + name, "w") as file:
                file.write(text)
        return directory.name

    def outcome(self, where, status, files):
        _, out, err = files
        out.seek(0)
        err.seek(0)
        try:
            with open(where + "/unclosed.txt") as file:
                kept = file.read()
            os.unlink(where + "/unclosed.txt")
        except FileNotFoundError:
            kept = None
        texts = [neutral(file.read().decode("utf-8", "replace")) for file in (out, err)]
        for file in files:
            file.close()
        return {"status": status, "out": texts[0], "err": texts[1], "kept": kept}

    def files(self, text):
        stdin, out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile(), tempfile.TemporaryFile()
        stdin.write(text)
        stdin.seek(0)
        return stdin, out, err

    def real(self, where, path, args, text):
        stdin, out, err = files = self.files(text)
        pid = fake.spawn([sys.executable, path, *args], None, stdin.fileno(), out.fileno(), err.fileno(), VARIABLES, where)
        return self.outcome(where, os.waitpid(pid, 0)[1], files)

    def cold(self, where, path, args, text):
        stdin, out, err = files = self.files(text)
        import socket

        ours, theirs = socket.socketpair()
        pid = fake.spawn([sys.executable, fake.RUNNER], theirs.fileno(), stdin.fileno(), out.fileno(), err.fileno(), dict(VARIABLES, SECRET="x"), where)
        theirs.close()
        channel = fake.Channel(ours)
        channel.receive()
        channel.send({"op": "program", "path": path, "args": args, "env": VARIABLES})
        status = os.waitpid(pid, 0)[1]
        ours.close()
        return self.outcome(where, status, files)

    def forked(self, where, path, args, text, flags=0):
        chdir = {"nr": CHDIR, "args": [{"bytes": where.encode() + b"\0"}], "expect": 0}
        return self.fork(where, text, [chdir], flags, [fake.frame({"op": "program", "path": path, "args": args, "env": VARIABLES})])

    def forked_for_it(self, where, path, args, text):
        return self.forked(where, path, args, text, PROGRAM)

    def rehearsed(self, where, path, args, text):
        return self.forked(where, path, args, text, PROGRAM | REHEARSE)

    def fork(self, where, text, calls, flags, parts):
        stdin, out, err = files = self.files(text)
        fork = self.zygote.fork(stdin=stdin.fileno(), out=out, err=err, first=calls, flags=flags)
        for part in parts:
            fork.channel.sock.sendall(part)
            if part is not parts[-1]:
                time.sleep(0.02)
        ended = self.zygote.channel.receive()
        fork.close()
        self.assertEqual(ended["event"], "ended")
        return self.outcome(where, ended["status"], files)

    def compare(self, name, source):
        where = self.place()
        path = where + "/main.py"
        with open(path, "wb") as file:
            file.write(source if isinstance(source, bytes) else source.encode())
        for given in (path, "main.py") if name in ("module", "raise", "source") else (path,):
            wanted = self.real(where, given, ["a", "b c"], b"one line\n")
            for way in (self.cold, self.forked, self.forked_for_it, self.rehearsed):
                with self.subTest(program=name, way=way.__name__, path=given):
                    self.assertEqual(way(where, given, ["a", "b c"], b"one line\n"), wanted)

    def test_programs(self):
        for name, source in PROGRAMS.items():
            self.compare(name, source)

    @unittest.skipUnless(os.geteuid() == 0, "NOT TESTED: programs at their usual place (they need root)")
    def test_usual_place(self):
        """What a fork for programs is prepared for: one at the usual place, without further words."""
        where = self.place()
        os.mkdir(where + "/workspace")
        with open(where + "/workspace/main.py", "w") as file:
            file.write("import sys\nprint(sys.argv, __name__, __file__, sys.path[0], sys.path.count(sys.path[0]), sorted(globals()))\nsys.exit(3)\n")
        runner = os.path.dirname(fake.RUNNER)  # which is in every sandbox, and a rehearsal reads a part of it
        shutil.copytree(runner, where + runner)
        calls = [{"nr": CHROOT, "args": [{"bytes": where.encode() + b"\0"}], "expect": 0}, {"nr": CHDIR, "args": [{"bytes": b"/workspace\0"}], "expect": 0}]
        usual = fakezygote.frame(b'{"op":"program","path":"main.py"}')
        other = fake.frame({"op": "program", "path": "main.py", "args": []})
        wanted = self.fork(where, b"", calls, 0, [other])
        file = "/workspace/main.py" if sys.version_info >= (3, 9) else "main.py"
        self.assertTrue(wanted["out"].startswith("['main.py'] __main__ " + file + " /workspace 1 ['__annotations__'"), wanted)
        self.assertEqual((wanted["err"], os.WEXITSTATUS(wanted["status"])), ("", 3))
        self.ways(where, calls, usual, other, wanted)
        for name in ("del", "del-cycle", "del-globals"):
            with open(where + "/workspace/main.py", "w") as file:
                file.write(PROGRAMS[name])
            wanted = self.fork(where, b"", calls, 0, [other])
            self.assertIn("deleted", wanted["out"])
            self.ways(where, calls, usual, other, wanted)

    def ways(self, where, calls, usual, other, wanted):
        for flags in (0, PROGRAM, PROGRAM | REHEARSE):
            for parts in ([usual], [usual[:3], usual[3:20], usual[20:]], [other], [other[:20], other[20:]]):
                with self.subTest(flags=flags, parts=parts):
                    self.assertEqual(self.fork(where, b"", calls, flags, parts), wanted)

    def test_no_program_after_all(self):
        """The engine may go before it has said what to run."""
        for flags in (PROGRAM, PROGRAM | REHEARSE):
            for said in (b"", b"\x10\0"):
                fork = self.zygote.fork(flags=flags)
                fork.channel.sock.sendall(said)
                fork.close()
                self.assertEqual(self.zygote.channel.receive()["status"], 0)

    def test_missing(self):
        where = self.place()
        for path in (where + "/none.py", "none.py"):
            wanted = self.real(where, path, [], b"")
            self.assertEqual(self.cold(where, path, [], b""), wanted)

    def test_broken_pipe(self):
        where = self.place()
        with open(where + "/main.py", "w") as file:
            file.write("import sys\ntry:\n    for _ in range(100_000): print('x' * 1000)\nexcept BrokenPipeError: sys.stderr.write('broken'); raise\n")
        found = []
        for way in (self.real, self.cold):
            reader, writer = os.pipe()

            class Pipe:
                def fileno(self):
                    return writer

                def seek(self, *args):
                    pass

                def read(self):
                    return b""

                def close(self):
                    os.close(writer)

            files = self.files
            self.files = lambda text: (files(text)[0], Pipe(), files(text)[2])
            os.close(reader)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            found.append(way(where, where + "/main.py", [], b""))
            self.files = files
        self.assertEqual(found[0], found[1])
        self.assertIn("BrokenPipeError", found[0]["err"])

    def test_interrupt(self):
        """SIGINT ends a program as it ends python3: by the signal."""
        with Runner(started=False) as runner:
            runner.channel.receive()
            with open(runner.cwd + "/main.py", "w") as file:
                file.write("import time\nprint('on')\ntime.sleep(60)\n")
            runner.channel.send({"op": "program", "path": "main.py", "args": [], "env": VARIABLES})
            while "on" not in runner.printed():
                time.sleep(0.01)
            time.sleep(0.1)
            runner.interrupt()
            status = runner.wait()
            self.assertTrue(os.WIFSIGNALED(status), status)
            self.assertEqual(os.WTERMSIG(status), signal.SIGINT)
            self.assertIn("KeyboardInterrupt", runner.printed(runner.err))
            self.assertNotIn("__main__.py", runner.printed(runner.err))


if __name__ == "__main__":
    unittest.main()
