"""From the text of a cell to code that can be run.

A cell is compiled as an ordinary module, its last expression apart, with `await` allowed. Only a cell with a `return` at
the top needs more: a module may not return. It becomes the body of a function that declares every name of the cell
`global`; then the flags that make a function's names local are taken off its code, so that `locals()`, `exec` and a
traceback see a module again. A return is then a real one: it passes `except:`, `finally` and `with` as it should,
which an exception in disguise would not.
"""

import _ast
import _symtable
import _warnings

COROUTINE = 0x80
_LOCAL = 0x1 | 0x2 | 0x10  # optimized, new locals, nested: what makes a function's names its own
_ONLY_AST = _ast.PyCF_ONLY_AST
_AWAIT = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_WRAPPER = "__belljar_cell__"


class Cell:
    """Compiled code: `body`, whose value counts only if it `returns`, then `tail`, the last expression."""

    __slots__ = ("name", "tree", "body", "tail", "returns", "future")

    def __init__(self, source, name, future):
        self.name = name
        self.future = future
        self.tree = compile(source, name, "exec", _ONLY_AST | _AWAIT | future, dont_inherit=True)
        self.body = self.tail = None
        self.returns = False

    def compile(self, source):
        body = self.tree.body
        last = _last_expression(body, source)
        statements = body if last is None else body[:-1]
        try:
            if statements:
                self.body = self._compile(_ast.Module(statements, []), "exec")
                self.future |= self.body.co_flags & _future_flags(source)
            if last is not None:
                self.tail = self._compile(_ast.Expression(last.value), "eval")
        except SyntaxError as error:
            if "'return' outside function" not in str(error.msg):
                raise
            self.tail = None
            self.body = _returning(source, self.name, self.future)
            self.returns = True

    def _compile(self, tree, mode):
        return compile(tree, self.name, mode, _AWAIT | self.future, dont_inherit=True)

    @property
    def awaits(self):
        return any(code is not None and code.co_flags & COROUTINE for code in (self.body, self.tail))

    def binds_result(self):
        """Whether it assigns `result`, as far as one can see without running it."""
        return _binds_result(self.tree.body)


def _last_expression(body, source):
    """The last statement, if it is an expression that no semicolon follows."""
    if not body or not isinstance(body[-1], _ast.Expr):
        return None
    last = body[-1]
    if "\r" in source:  # the compiler counts lines as if these were newlines
        source = source.replace("\r\n", "\n").replace("\r", "\n")
    lines = source.encode("utf-8", "surrogatepass").split(b"\n")[last.end_lineno - 1 :]
    lines[0] = lines[0][last.end_col_offset :]
    for line in lines:
        for character in line:
            if character in b"#":
                break
            if character in b";":
                return None
    return last


def _future_flags(source):
    if "__future__" not in source:
        return 0
    import __future__

    flags = 0
    for name in __future__.all_feature_names:
        flags |= getattr(__future__, name).compiler_flag
    return flags & ~_LOCAL


def _annotations_are_text(future):
    if not future:
        return False
    import __future__

    return bool(future & __future__.annotations.compiler_flag)


def _returning(source, name, future):
    """Code of a cell with a `return` at the top; it gives (value,) for a return, [value] for a last expression."""
    with _Quiet():
        # Everything else that a module may not hold (`yield`, say) is refused here, with the returns out of the way.
        tree = compile(source, name, "exec", _ONLY_AST | _AWAIT | future, dont_inherit=True)
        tree.body = _rewrite(tree.body, lambda node: _ast.Expr(node.value) if node.value else _ast.Pass())
        module = compile(tree, name, "exec", _AWAIT | future, dont_inherit=True)
    future |= module.co_flags & _future_flags(source)

    names = sorted(n for n in _symtable.symtable(source, name, "exec").symbols if n.isidentifier())
    kind = "async def" if module.co_flags & COROUTINE else "def"
    template = "%s %s():\n %s\n pass" % (kind, _WRAPPER, "global " + ",".join(names) if names else "pass")
    wrapper = compile(template, name, "exec", _ONLY_AST, dont_inherit=True)

    with _Quiet():
        tree = compile(source, name, "exec", _ONLY_AST | _AWAIT | future, dont_inherit=True)
    last = _last_expression(tree.body, source)
    leading = [s for s in tree.body if isinstance(s, _ast.ImportFrom) and s.module == "__future__"]
    body = [s for s in tree.body if s not in leading]
    if last is not None:
        value = _at(_ast.List([last.value], _ast.Load()), last)
        body[-1] = _at(_ast.Return(value), last)
    unevaluated = source if _annotations_are_text(future) else None
    body = _rewrite(body, _tupled, unevaluated, skip=body[-1] if last is not None else None)
    wrapper.body[0].body = wrapper.body[0].body[:1] + body
    wrapper.body = leading + wrapper.body
    _fill(wrapper)
    code = compile(wrapper, name, "exec", future, dont_inherit=True)
    code = next(c for c in code.co_consts if getattr(c, "co_name", None) == _WRAPPER)
    return _as_module(code)


class _Quiet:
    """No warnings: the same source is read several times, and one warning is enough."""

    _ALL = ("ignore", None, Warning, None, 0)

    def __enter__(self):
        self._filters = _warnings.filters
        self._changed = getattr(_warnings, "_filters_mutated", int)
        self._filters.insert(0, self._ALL)
        self._changed()

    def __exit__(self, *unused):
        self._filters.remove(self._ALL)
        self._changed()


def _at(node, place):
    node.lineno, node.col_offset = place.lineno, place.col_offset
    node.end_lineno, node.end_col_offset = place.end_lineno, place.end_col_offset
    return node


def _fill(tree, line=1, column=0):
    """Give a place to the nodes that were made here."""
    if "lineno" in tree._attributes:
        if not hasattr(tree, "lineno"):
            tree.lineno = tree.end_lineno = line
            tree.col_offset = tree.end_col_offset = column
        line, column = tree.lineno, tree.col_offset
    for field in tree._fields:
        value = getattr(tree, field, None)
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, _ast.AST):
                _fill(child, line, column)


def _tupled(node):
    value = node.value or _at(_ast.Constant(None), node)
    return _at(_ast.Return(_at(_ast.Tuple([value], _ast.Load()), node)), node)


def blocks(node):
    """The lists of statements in a statement, without those of functions and classes, which are scopes of their own."""
    if isinstance(node, (_ast.FunctionDef, _ast.AsyncFunctionDef, _ast.ClassDef)):
        return
    for field in ("body", "orelse", "finalbody"):
        if isinstance(getattr(node, field, None), list):
            yield node, field
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part, "body"


def _rewrite(statements, replace_return, source=None, skip=None):
    """These statements for a function's body: returns replaced, and what a function may not hold put otherwise."""
    done = []
    for node in statements:
        if node is skip:
            done.append(node)
            continue
        for part, field in blocks(node):
            setattr(part, field, _rewrite(getattr(part, field), replace_return, source))
        if isinstance(node, _ast.Return):
            node = _at(replace_return(node), node)
        elif replace_return is not _tupled:
            pass
        elif isinstance(node, _ast.ImportFrom) and node.names[0].name == "*":
            text = "from %s%s import *" % ("." * (node.level or 0), node.module or "")
            node = _at(_statement("exec(%r)" % text), node)
        elif isinstance(node, _ast.AnnAssign) and isinstance(node.target, _ast.Name):
            if node.value is not None:
                done.append(_at(_ast.Assign([node.target], node.value), node))
            if node.simple:
                store = _at(_statement("__annotations__[%r] = 0" % node.target.id), node)
                store.value = node.annotation
                if source is not None:  # `from __future__ import annotations`
                    import ast

                    store.value = _ast.Constant(ast.get_source_segment(source, node.annotation))
                node = store
            else:
                node = _at(_ast.Pass(), node)
        done.append(node)
    return done


def _statement(text):
    """A statement without a place of its own, so that it takes that of what it replaces."""
    node = compile(text, "", "exec", _ONLY_AST, dont_inherit=True).body[0]
    todo = [node]
    while todo:
        part = todo.pop()
        for attribute in part._attributes:
            if hasattr(part, attribute):
                delattr(part, attribute)
        for field in part._fields:
            value = getattr(part, field, None)
            todo.extend(v for v in (value if isinstance(value, list) else (value,)) if isinstance(v, _ast.AST))
    return node


def _as_module(code):
    """The function's code as if it stood in a module: names in qualified names, and locals that are the globals."""
    prefix = _WRAPPER + ".<locals>."

    def renamed(part):
        constants = []
        for constant in part.co_consts:
            if isinstance(constant, str) and constant.startswith(prefix):
                constant = constant[len(prefix) :]
            elif hasattr(constant, "co_consts"):
                constant = renamed(constant)
            constants.append(constant)
        changes = {"co_consts": tuple(constants)}
        if getattr(part, "co_qualname", "").startswith(prefix):
            changes["co_qualname"] = part.co_qualname[len(prefix) :]
        return part.replace(**changes)

    code = renamed(code)
    changes = {"co_flags": code.co_flags & ~_LOCAL, "co_name": "<module>"}
    if hasattr(code, "co_qualname"):
        changes["co_qualname"] = "<module>"
    return code.replace(**changes)


def _binds_result(statements):
    for node in statements:
        if isinstance(node, (_ast.Assign, _ast.AnnAssign, _ast.AugAssign)):
            targets = node.targets if isinstance(node, _ast.Assign) else [node.target]
            for target in targets:
                for part in getattr(target, "elts", [target]):
                    if getattr(part, "id", None) == "result":
                        return getattr(node, "value", None) is not None
        elif isinstance(node, (_ast.For, _ast.AsyncFor, _ast.With, _ast.AsyncWith, _ast.Try)):
            if any(_binds_result(getattr(part, field)) for part, field in blocks(node)):
                return True
    return False
