"""The Python runner: it executes cells and programs for the engine (see PROTOCOL.md).

    python3 python/__main__.py           a runner: the control channel is descriptor 3
    python3 python/__main__.py zygote    a warm interpreter that forks runners into sandboxes

It is no wall. It runs in the same process as the guest's code, so whatever it checks (imports, calls, paths) is a
courtesy to honest code; the sandbox around it is what holds.

Two things keep it out of the way of that code:

- Its modules are loaded by `Package` below, on first use, under names that no import statement finds. A guest's own
  `import values` finds the guest's own file.
- They see a copy of the builtins as they were at the start, and keep references of their own to the few functions
  of the standard library that they need at all times. Code that replaces `open`, `print` or `json.dumps`
  breaks itself, not the runner.

Each module finds the others as attributes of `belljar`, which `Package` puts among its globals.
Everything that costs time to import (ast, json, re, asyncio, traceback) is imported when it is needed, or in the zygote.
"""

import _io
import builtins
import sys

__builtins__ = dict(vars(builtins))  # for the functions below, and for all modules of the runner


class Package(type(sys)):
    """The runner's own modules; `package.values` loads values.py when it is first asked for."""

    def __init__(self, directory):
        super().__init__("_belljar", __doc__)
        self.directory = directory
        self.builtins = __builtins__

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        path = self.directory + "/" + name + ".py"
        try:
            with _io.open(path, "rb") as file:
                source = file.read()
        except FileNotFoundError:
            raise AttributeError(name) from None
        module = type(sys)("_belljar." + name)
        module.__file__ = path
        module.__builtins__ = self.builtins
        module.belljar = self
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
        setattr(self, name, module)
        return module


directory = __file__.rpartition("/")[0] or "."
if sys.path and sys.path[0] == directory:
    del sys.path[0]
if not directory.startswith("/"):
    import posix

    directory = posix.getcwd() + "/" + directory
belljar = Package(directory)
# Either returns only if it is to run a program.
if sys.argv[1:] == ["zygote"]:
    program = belljar.zygote.serve()
else:
    if not getattr(sys.stdout, "write_through", False):
        belljar.streams.renew()
    program = belljar.runner.serve()

# Here and not in a function: this is the only frame that a program could find below its own.
failure = None
try:
    exec(program.code(), program.namespace)
except BaseException as error:
    failure = error
if failure is not None:
    program.failed(failure)
    del failure
program.end()
