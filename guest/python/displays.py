"""What a cell shows, by the rules of Jupyter: rich forms that an object offers, and figures."""

import sys

_METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
)


class Displays:
    def __init__(self, session):
        self._session = session
        self._sent = self._dropped = 0
        self._running = False
        belljar.watch.after_import("matplotlib.pyplot", self._pyplot)
        import os

        os.environ.setdefault("MPLBACKEND", "Agg")

    def begin(self):
        self._sent = self._dropped = 0
        self._running = True

    def end(self):
        """After a cell; what comes from its threads later has no cell to belong to."""
        self._running = False
        if self._dropped:
            text = "%d more displays were left out (at most %d in a cell)" % (self._dropped, self._session.limits["displays"])
            self._event({"text/plain": text})

    def display(self, *things, **options):
        """Show these objects in the richest form that they have."""
        for thing in things:
            forms = rich_forms(thing) or {}
            if "text/plain" not in forms:
                forms["text/plain"] = belljar.encode.brief(thing, 10_000) if not issubclass(type(thing), str) else repr(thing)
            self._send(forms, self._table(thing))

    def result(self, thing):
        """The value of a cell as data; if it has a rich form, that is shown as well."""
        forms = rich_forms(thing)
        plain = belljar.encode.value(thing, self._session.limits)
        if forms:
            if "text/plain" not in forms:
                forms["text/plain"] = belljar.encode.brief(thing, 10_000)
            table = plain if isinstance(plain, dict) and plain.get("$") == "dataframe" else None
            self._send(forms, table)
        return plain

    def _table(self, thing):
        pandas = sys.modules.get("pandas")
        if pandas is not None and issubclass(type(thing), getattr(pandas, "DataFrame", ())):
            return belljar.encode.value(thing, self._session.limits)
        return None

    def _send(self, forms, table=None):
        if not self._running:
            return
        if self._sent >= self._session.limits["displays"]:
            self._dropped += 1
            return
        self._sent += 1
        limit = self._session.limits["display_bytes"]
        data = {}
        size = 0
        left_out = []
        for mime, content in forms.items():
            # Escaped as JSON a character may take six bytes; look closer only where that could matter.
            length = len(content)
            if length * 6 + size > limit and length <= limit:
                length = len(belljar.channel.dumps(content))
            if length + size > limit:
                left_out.append("%s of %d bytes" % (mime, length))
            else:
                size += length
                data[mime] = content
        if left_out and set(data) <= {"text/plain"}:
            data = {"text/plain": "left out, since a display has at most %d bytes: %s" % (limit, ", ".join(left_out))}
        self._event(data, table)

    def _event(self, data, table=None):
        event = {"event": "display", "id": self._session.cell, "data": data}
        if table is not None:
            event["value"] = table
        self._session.channel.send(event)

    def leave_figures(self):
        """At the end of a cell: figures that were left open are shown and closed."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None and getattr(pyplot, "get_fignums", None) and pyplot.get_fignums():
            self._show_figures(pyplot)

    def _show_figures(self, pyplot):
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            try:
                if figure.axes or figure.get_children()[1:]:
                    self._send({"image/png": _png(figure), "text/plain": repr(figure)})
            finally:
                pyplot.close(figure)

    def _pyplot(self, pyplot):
        """pyplot has been imported: its show() shows, instead of warning that Agg has no window."""

        def show(*args, **kwargs):
            """Show the open figures."""
            self._show_figures(pyplot)

        pyplot.show = show


def rich_forms(thing):
    """{MIME: text} of all rich forms that the object offers, or None."""
    kind = type(thing)
    if kind in _PLAIN or issubclass(type(thing), type):
        return None
    forms = {}
    bundle = getattr(kind, "_repr_mimebundle_", None)
    if bundle is not None:
        found = _called(bundle, thing)
        if isinstance(found, tuple) and found:
            found = found[0]
        if isinstance(found, dict):
            for mime, content in found.items():
                _put(forms, mime, content)
    for name, mime in _METHODS:
        method = getattr(kind, name, None)
        if method is not None and mime not in forms:
            found = _called(method, thing)
            if isinstance(found, tuple) and found:
                found = found[0]
            _put(forms, mime, found)
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and issubclass(type(thing), getattr(figure, "Figure", ())) and "image/png" not in forms:
        forms["image/png"] = _png(thing)
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            pyplot.close(thing)  # or it would be shown again at the end of the cell
    return forms or None


_PLAIN = frozenset((bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None)))


def _called(method, thing):
    """A rich form; an object that cannot make it has none."""
    try:
        return method(thing)
    except NotImplementedError:
        return None
    except Exception as error:
        try:
            sys.stderr.write("%s of %s raised %s\n" % (getattr(method, "__name__", "display"), type(thing).__name__, type(error).__name__))
        except Exception:
            pass
        return None


def _put(forms, mime, content):
    if content is None or not isinstance(mime, str):
        return
    if isinstance(content, (bytes, bytearray, memoryview)):
        if mime.startswith("image/") and mime != "image/svg+xml":
            content = belljar.encode.base64(content)
        else:
            content = bytes(content).decode("utf-8", "replace")
    elif mime == "application/json" or mime.endswith("+json") and not isinstance(content, str):
        import json

        try:
            content = json.dumps(content)
        except (TypeError, ValueError, RecursionError):
            return
    elif not isinstance(content, str):
        content = str(content)
    if mime == "image/svg+xml":  # as all images
        content = belljar.encode.base64(content.encode("utf-8", "replace"))
    forms[mime] = content


def _png(figure):
    from io import BytesIO

    file = BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return belljar.encode.base64(file.getvalue())
