"""Call a function when the guest imports a certain module, and when it has it already."""

import sys

_wanted = {}


def after_import(name, function):
    """Call function(module) once, when the module is there."""
    module = sys.modules.get(name)
    if module is not None:
        function(module)
        return
    _wanted.setdefault(name, []).append(function)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder:
    """Finds nothing itself; it only sees the module come by, and wraps its loader."""

    def find_spec(self, name, path=None, target=None):
        if name not in _wanted:
            return None
        functions = _wanted.pop(name)
        if not _wanted:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    _wrap(spec.loader, functions)
                return spec
        _wanted[name] = functions
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        return None


def _wrap(loader, functions):
    execute = loader.exec_module

    def exec_module(module):
        try:
            del loader.exec_module
        except AttributeError:
            pass
        execute(module)
        for function in functions:
            function(module)

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a loader that cannot be wrapped (frozen): no harm, only no call
        pass


_finder = _Finder()
