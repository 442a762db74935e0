"""A session: cells that run one after the other in one namespace."""

import sys
from posix import _exit, getpid

_NOTHING = object()

DEFAULT_LIMITS = {"value_bytes": 1 << 20, "values": 100_000, "depth": 32, "displays": 64, "display_bytes": 8 << 20}


class Session:
    def __init__(self, channel, setup):
        import builtins

        self.channel = channel
        self.limits = dict(DEFAULT_LIMITS)
        self.limits.update(setup.get("limits") or {})
        self.cell = None  # the id of the running cell, or of the last one
        self._future = 0
        self._process = getpid()
        self._loop = None
        if "env" in setup:
            belljar.environment.replace(setup["env"] or {})
        belljar.environment.import_path("")
        sys.argv = [""]
        belljar.ending.begin()
        module = type(sys)("__main__")
        module.__builtins__ = builtins
        self.module = module
        self.namespace = module.__dict__
        sys.modules["__main__"] = module
        self.displays = belljar.displays.Displays(self)
        builtins.display = self.displays.display
        self.sources = belljar.sources.Sources()
        belljar.cells, belljar.encode, belljar.streams, belljar.interrupts, belljar.tracebacks  # before a cell can break imports
        self.check = None
        if setup.get("imports") is not None or setup.get("forbidden_calls"):
            self.check = belljar.check.Check(setup.get("imports"), setup.get("forbidden_calls"))
        if setup.get("imports") is not None:
            belljar.imports.limit(setup["imports"])
        self._builtins = builtins
        self._give(setup)

    def _give(self, message):
        """Put the tools and values that a message brings into the namespace."""
        if message.get("tools"):
            self._builtins.ToolError = belljar.tools.ToolError
            for tool in message["tools"]:
                self.namespace[tool["name"]] = belljar.tools.Tools.of(self).callable(tool["name"])
        for name, value in (message.get("globals") or {}).items():
            self.namespace[name] = belljar.decode.value(value)

    def execute(self, message):
        """Run a cell, and say how it ended."""
        self.cell = message["id"]
        interrupts = belljar.interrupts
        belljar.streams.begin(message.get("stdin"))
        self.displays.begin()
        try:
            interrupts.start(Session._attempt.__code__)
            report = self._attempt(message)
            interrupts.stop()
        except BaseException as error:
            interrupts.stop()
            # An interrupt between two steps above, or what the guest did to the interpreter.
            report = _plain_report(error)
        if getpid() != self._process:
            self._end_of_fork(report)
        belljar.streams.flush()
        self.displays.end()
        report["event"] = "done"
        report["id"] = self.cell
        self.channel.send(report)

    def command(self, message):
        """Run a program, and say how it ended."""
        self.cell = message["id"]
        interrupts = belljar.interrupts
        try:
            command = belljar.commands.Command(message["argv"], message.get("stdin"))
            interrupts.cancel = command.interrupt
            interrupts.start(Session.command.__code__)
            report = command.run()
        except BaseException as error:  # what is no command, or what the guest did to the interpreter
            report = {"error": {"type": belljar.tracebacks.type_name(error), "message": belljar.tracebacks.text_of(error)}}
        interrupts.stop()
        interrupts.cancel = None
        report.update(event="done", id=self.cell, status="command")
        self.channel.send(report)

    def _attempt(self, message):
        code = message["code"]
        name = "<cell %s>" % self.cell
        limit = sys.getrecursionlimit()
        error = None
        try:
            belljar.interrupts.check()
            self._give(message)
            value = self._run(code, name)
            report = {"status": "ok"}
            if value is not None:
                report["value"] = self.displays.result(value)
            self.displays.leave_figures()
            return report
        except belljar.check.Refused as refused:
            return {"status": "refused", "error": refused.report(name, code)}
        except BaseException as raised:
            error = raised
        if limit < 1000:
            sys.setrecursionlimit(1000)  # the guest made it small; a report needs some frames
        try:
            report = {"status": "error", "error": belljar.tracebacks.report(error, name)}
            if issubclass(type(error), KeyboardInterrupt):
                report["status"] = "interrupted"
            elif issubclass(type(error), SystemExit):
                report["status"] = "exit"
                report["error"]["message"] = str(belljar.program.exit_status(error))
            else:
                self.displays.leave_figures()
            return report
        finally:
            error = None  # its frames hold the guest's data
            if limit < 1000:
                sys.setrecursionlimit(limit)

    def _run(self, source, name):
        namespace = self.namespace
        self.sources.add(name, source)
        try:
            cell = belljar.cells.Cell(source, name, self._future)
            if self.check is not None:
                self.check(cell.tree)
            cell.compile(source)
        except SyntaxError as error:
            self.sources.complete(error)
            raise
        self._future = cell.future
        before = namespace.get("result", _NOTHING)
        if cell.returns:
            namespace.setdefault("__annotations__", {})
        value, returned = self._awaited(_steps(cell, namespace)) if cell.awaits else _run(cell, namespace)
        if returned:
            return value
        if value is None:
            result = namespace.get("result", _NOTHING)
            if result is not _NOTHING and (result is not before or cell.binds_result()):
                value = result
        return value

    def _awaited(self, coroutine):
        if self._loop is None:
            self._loop = belljar.loop.Loop()
        return self._loop.run(coroutine)

    def _end_of_fork(self, report):
        """The cell forked, and this is the child: the parent answers, the child only ends."""
        belljar.streams.flush()
        error = report.get("error")
        if report["status"] == "exit":
            _exit(int(error["message"]) & 0xFF)
        if error:
            try:
                sys.stderr.write(error["traceback"])
                sys.stderr.flush()
            except BaseException:
                pass
        _exit(1 if error else 0)


def _run(cell, namespace):
    """Run a cell that does not await. Gives its value, and whether it returned."""
    value = None
    if cell.body is not None:
        value = eval(cell.body, namespace)
        if cell.returns:
            return _returned(value)
    if cell.tail is not None:
        value = eval(cell.tail, namespace)
    return value, False


async def _steps(cell, namespace):
    """The same for a cell that awaits: all of it runs in the event loop."""
    value = None
    if cell.body is not None:
        value = eval(cell.body, namespace)
        if cell.body.co_flags & belljar.cells.COROUTINE:
            value = await value
        if cell.returns:
            return _returned(value)
    if cell.tail is not None:
        value = eval(cell.tail, namespace)
        if cell.tail.co_flags & belljar.cells.COROUTINE:
            value = await value
    return value, False


def _returned(value):
    """What the code of a cell with a `return` gave: see cells.py."""
    return (value[0] if value else None), type(value) is tuple


def _plain_report(error):
    """A report that needs nothing."""
    status = "interrupted" if issubclass(type(error), KeyboardInterrupt) else "error"
    name = type.__dict__["__name__"].__get__(type(error))
    return {
        "status": status,
        "error": {"type": name, "message": "", "traceback": name + "\n", "line": None, "column": None},
    }
