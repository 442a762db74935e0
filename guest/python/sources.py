"""The text of the cells, where tracebacks and `inspect.getsource` look for it: in linecache.

linecache is slow to import, so this waits until somebody else does.
"""

import sys

_LIMIT = 32 << 20  # characters of cells to remember


class Sources:
    def __init__(self):
        self._texts = {}
        self._size = 0
        self._cache = None
        belljar.watch.after_import("linecache", self._imported)

    def add(self, name, text):
        self._texts[name] = text
        self._size += len(text)
        while self._size > _LIMIT and len(self._texts) > 1:
            oldest = next(iter(self._texts))
            self._size -= len(self._texts.pop(oldest))
            if self._cache is not None:
                self._cache.pop(oldest, None)
        if self._cache is not None:
            self._show(name, text)

    def _imported(self, linecache):
        self._cache = linecache.cache
        for name, text in self._texts.items():
            self._show(name, text)

    def _show(self, name, text):
        # Without a time of change the entry is never thrown out as stale.
        self._cache[name] = (len(text), None, self._lines(text), name)

    def _lines(self, text):
        lines = text.splitlines(True)
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"  # linecache does so, and carets depend on it
        return lines

    def complete(self, error):
        """Give a SyntaxError its line: the compiler looks for it in a file."""
        text = self._texts.get(error.filename)
        if text is not None and error.text is None and error.lineno:
            error.text = "".join(self._lines(text)[error.lineno - 1 : error.lineno]) or None
