"""Lists of imports and forbidden calls: a courtesy to honest code."""

import unittest

from fake import Runner


class Imports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runner = Runner(imports=["math", "json", "time", "datetime", "collections", "importlib", "asyncio", "helper", "pickle"])
        with open(cls.runner.cwd + "/helper.py", "w") as file:
            file.write("def get():\n    import os\n    return os\n")

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def refused(self, code, name, line=1, column=1):
        done = self.runner.run(code)
        self.assertEqual(done["status"], "refused", done)
        error = done["error"]
        self.assertEqual((error["type"], error["message"]), ("ImportError", "Import '%s' not allowed" % name))
        self.assertEqual((error["line"], error["column"]), (line, column))
        self.assertIn("^", error["traceback"])

    def raised(self, code, name):
        error = self.runner.run(code)
        self.assertEqual(error["status"], "error", error)
        self.assertEqual((error["error"]["type"], error["error"]["message"]), ("ImportError", "Import '%s' not allowed" % name))

    def test_source(self):
        self.refused("import os", "os")
        self.refused("x = 1\nif x:\n    import os.path", "os", 3, 5)
        self.refused("from os import path", "os")
        self.refused("import math, sys", "sys")
        self.refused("def f():\n  from subprocess import run", "subprocess", 2, 3)
        self.refused("printed = 1\nimport os", "os", 2)
        self.assertEqual(self.runner.value("'printed' in globals()"), False)
        self.refused("é = 1; import os", "os", 1, 8)

    def test_allowed(self):
        self.assertEqual(self.runner.value("import math, json, collections.abc\nfrom json import loads\nloads('[1]') + [math.floor(1.5)]"), [1, 1])
        self.assertEqual(self.runner.value("from __future__ import annotations\n1"), 1)
        self.assertEqual(self.runner.value("import asyncio\nawait asyncio.sleep(0, 4)"), 4)

    def test_running(self):
        self.raised("__import__('os')", "os")
        self.raised("import importlib\nimportlib.import_module('os.path')", "os")
        self.raised("exec('import os')", "os")
        self.raised("exec('import os', {})", "os")
        self.raised("import helper\nhelper.get()", "os")
        self.assertEqual(self.runner.value("try:\n  import os\nexcept ImportError as e:\n  x = str(e)\nx"), "Import 'os' not allowed")
        error = self.runner.run("exec('import os')")["error"]["traceback"]
        self.assertNotIn("imports.py", error)

    def test_what_c_code_imports(self):
        """time.strptime is C, and imports _strptime with the caller's globals."""
        self.assertEqual(self.runner.value("import time\ntime.strptime('2020', '%Y').tm_year"), 2020)
        self.assertEqual(self.runner.value("import datetime\ndatetime.datetime.strptime('2020', '%Y').year"), 2020)
        self.assertEqual(self.runner.value("import pickle\npickle.loads(pickle.dumps(len)) is len"), True)

    def test_open(self):
        error = self.runner.run("open('/etc/passwd')")["error"]
        self.assertEqual(error["type"], "PermissionError")
        self.assertIn("/etc/passwd", error["message"])
        self.assertEqual(self.runner.run("open('/workspace/../etc/passwd')")["error"]["type"], "PermissionError")
        self.assertEqual(self.runner.value("with open('mine', 'w') as f: f.write('x')\nopen('mine').read()"), "x")

    def test_no_list(self):
        with Runner() as runner:
            self.assertEqual(runner.value("import os\nopen('/etc/passwd').close()\nos.sep"), "/")


class ForbiddenCalls(unittest.TestCase):
    def test_calls(self):
        with Runner(forbidden_calls=["eval", "open", "os.system", "subprocess.run"]) as runner:
            for code, name, line, column in (
                ("eval('1')", "eval", 1, 1),
                ("x = 1\ny = [eval('1')]", "eval", 2, 6),
                ("import os\nos.system('true')", "os.system", 2, 1),
                ("import os as o\no.system('true')", "os.system", 2, 1),
                ("from os import system as s\ns('true')", "os.system", 2, 1),
                ("import subprocess\nsubprocess.run(['true'])", "subprocess.run", 2, 1),
                ("import builtins\nbuiltins.eval('1')", "eval", 2, 1),
                ("def f(): return open('x')", "open", 1, 17),
            ):
                done = runner.run(code)
                self.assertEqual(done["status"], "refused", done)
                self.assertEqual((done["error"]["type"], done["error"]["message"]), ("ForbiddenCall", "Call of '%s' not allowed" % name))
                self.assertEqual((done["error"]["line"], done["error"]["column"]), (line, column))
            runner.value("from os import system as later")
            self.assertEqual(runner.run("later('true')")["status"], "refused")
            self.assertEqual(runner.value("class A:\n  def open(self): return 1\nA().open()"), 1)
            self.assertEqual(runner.value("evaluate = len\nevaluate('ab')"), 2)


if __name__ == "__main__":
    unittest.main()
