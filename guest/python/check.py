"""A look at the source of a cell before it runs: imports and calls that the policy does not want.

It is for honest code, which gets its answer at once and with a place. It is no wall, and easily passed.
"""

import _ast


class Refused(Exception):
    """The cell does not run."""

    def __init__(self, kind, message, node):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.node = node

    def report(self, name, source):
        line = self.node.lineno
        text = source.split("\n")[line - 1] if line <= source.count("\n") + 1 else ""
        column = len(text.encode("utf-8", "surrogatepass")[: self.node.col_offset].decode("utf-8", "replace")) + 1
        stripped = text.strip()
        shown = '  File "%s", line %d\n    %s\n    %s^\n' % (name, line, stripped, " " * (column - 1 - len(text) + len(text.lstrip())))
        return {
            "type": self.kind,
            "message": self.message,
            "traceback": "%s%s: %s\n" % (shown, self.kind, self.message),
            "line": line,
            "column": column,
        }


class Check:
    def __init__(self, imports, calls):
        self._imports = None if imports is None else frozenset(imports)
        self._calls = frozenset(calls or ())
        self._names = {}  # what a name of the session stands for: {"sp": "subprocess", "run": "subprocess.run"}

    def __call__(self, tree):
        """Raise Refused for the first thing that is not allowed."""
        if self._imports is None and not self._calls:
            return
        found = []
        calls = []
        todo = [(tree, False)]
        while todo:
            node, caught = todo.pop()
            if isinstance(node, _ast.Import):
                for alias in node.names:
                    self._import(alias.name, node, caught, found)
                    top = alias.name.partition(".")[0]
                    self._names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, _ast.ImportFrom) and not node.level:
                self._import(node.module, node, caught, found)
                for alias in node.names:
                    self._names[alias.asname or alias.name] = "%s.%s" % (node.module, alias.name)
            elif isinstance(node, _ast.Call):
                calls.append(node)
            for field in node._fields:
                value = getattr(node, field, None)
                inner = caught or (field == "body" and isinstance(node, _ast.Try) and _catches_import_error(node))
                for child in value if isinstance(value, list) else (value,):
                    if isinstance(child, _ast.AST):
                        todo.append((child, inner))
        for node in calls if self._calls else ():
            name = self._called(node.func)
            if name in self._calls:
                found.append(Refused("ForbiddenCall", "Call of '%s' not allowed" % name, node))
        if found:
            raise min(found, key=lambda refused: (refused.node.lineno, refused.node.col_offset))

    def _import(self, name, node, caught, found):
        # Code that is ready for an ImportError gets one, when it comes to it.
        if self._imports is not None and not caught and not allowed(name, self._imports):
            found.append(Refused("ImportError", message(name), node))

    def _called(self, node):
        """The dotted name of what is called, with the names of imports put in."""
        parts = []
        while isinstance(node, _ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, _ast.Name):
            return None
        parts.append(self._names.get(node.id, node.id))
        name = ".".join(reversed(parts))
        for prefix in ("builtins.", "__builtins__."):
            if name.startswith(prefix):
                name = name[len(prefix) :]
        return name


def allowed(name, names):
    """Whether a list that names packages allows this module: a package allows all that is in it."""
    while name:
        if name in names or name == "__future__":
            return True
        name = name.rpartition(".")[0]
    return False


def message(name):
    return "Import '%s' not allowed" % name.partition(".")[0]


def _catches_import_error(node):
    for handler in node.handlers:
        kinds = getattr(handler.type, "elts", [handler.type])
        if any(kind is None or getattr(kind, "id", None) in ("ImportError", "ModuleNotFoundError", "Exception", "BaseException") for kind in kinds):
            return True
    return False
