"""Values of Python as plain data. What is no data is refused, with the place."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Optional, Tuple, cast

from . import arrays
from .types import DIGITS, FRACTION_DIGITS, WHOLE, Fields, Json, Object, base64

_DEEPEST = 100  # containers
_NESTING = 180  # levels of JSON; the engine takes 200, and the message around a value counts
_SHOWN = 200  # characters of a path in a message


def encode(thing: object, what: str = "value") -> Json:
    """The plain data of a value.

    What is no data raises TypeError, what is too deep, too long or holds itself ValueError. The message begins with
    `what` and the path from there.
    """
    try:
        return _Encoder().one(thing, 0, 0)
    except _Refused as error:
        kind, message = error.kind, f"{what + error.path()}: {error}"
    raise kind(message)


class _Refused(Exception):
    """A value that cannot be sent. `steps` lead to it, the last one first."""

    def __init__(self, kind: Callable[[str], Exception], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.steps: List[str] = []

    def below(self, step: str) -> None:
        self.steps.append(step)

    def path(self) -> str:
        path = "".join(reversed(self.steps))
        if len(path) <= _SHOWN:
            return path
        return f"{path[: _SHOWN // 2]}...{path[-_SHOWN // 2 :]}"


_Method = Callable[["_Encoder", Any, int, int], Json]


class _Encoder:
    def __init__(self) -> None:
        self._above: set[int] = set()  # the containers around the one at hand
        self._methods: Dict[type, _Method] = dict(_EXACT)

    def one(self, thing: object, depth: int, nesting: int) -> Json:
        """Encode one value. `depth` counts containers, `nesting` levels of JSON."""
        method = self._methods.get(type(thing))
        if method is None:
            method = self._methods[type(thing)] = _method_for(thing)
        if method not in _CONTAINERS:
            return method(self, thing, depth, nesting)
        if id(thing) in self._above:
            raise _Refused(ValueError, "it contains itself")
        if depth >= _DEEPEST or nesting > _NESTING - 3:
            raise _Refused(ValueError, "it is nested too deeply to be sent")
        self._above.add(id(thing))
        try:
            return method(self, thing, depth + 1, nesting)
        finally:
            self._above.discard(id(thing))

    def items(self, things: List[Any], depth: int, nesting: int) -> List[Json]:
        plain: List[Json] = []
        try:
            for thing in things:
                plain.append(self.one(thing, depth, nesting))
        except _Refused as error:
            error.below(f"[{len(plain)}]")
            raise
        return plain

    def named(self, things: List[Tuple[str, Any]], depth: int, nesting: int) -> Object:
        plain: Object = {}
        name = ""
        try:
            for name, thing in things:
                plain[_utf8(name)] = self.one(thing, depth, nesting)
        except _Refused as error:
            error.below("." + name)
            raise
        return plain

    def constant(self, thing: Any, *_: int) -> Json:
        plain: Json = thing
        return plain

    def nothing(self, thing: Any, *_: int) -> Json:
        return None

    def whole(self, thing: int, *_: int) -> Json:
        number = int.__int__(thing)
        if -WHOLE <= number <= WHOLE:
            return number
        return {"$": "int", "v": _digits(number, DIGITS)}

    def real(self, thing: float, *_: int) -> Json:
        number = float.__float__(thing)
        if number - number == 0:
            return number
        return {"$": "float", "v": repr(number)}

    def complex(self, thing: complex, *_: int) -> Json:
        return {"$": "complex", "v": [self.real(thing.real), self.real(thing.imag)]}

    def text(self, thing: str, *_: int) -> Json:
        return _utf8(thing)

    def octets(self, thing: Any, *_: int) -> Json:
        return {"$": "bytes", "v": base64(bytes(thing))}

    def list(self, thing: List[Any], depth: int, nesting: int) -> Json:
        return self.items([*thing], depth, nesting + 1)

    def tuple(self, thing: Tuple[Any, ...], depth: int, nesting: int) -> Json:
        names = _field_names(type(thing))
        if names is not None and len(names) == len(thing):
            plain = self.named([*zip(names, thing)], depth, nesting + 2)
            return {"$": "namedtuple", "name": type(thing).__name__, "v": plain}
        return {"$": "tuple", "v": self.items([*thing], depth, nesting + 2)}

    def set(self, thing: Any, depth: int, nesting: int) -> Json:
        things = [*thing]
        try:
            things.sort()  # so that the same set gives the same data
        except Exception:
            pass
        try:
            plain = self.items(things, depth, nesting + 2)
        except _Refused as error:
            error.steps[-1] = "{...}"
            raise
        return {"$": "frozenset" if isinstance(thing, frozenset) else "set", "v": plain}

    def dict(self, thing: Dict[Any, Any], depth: int, nesting: int) -> Json:
        items = [*thing.items()]
        keys: List[Json] = [key for key, _ in items]
        if not all(type(key) is str and key.isascii() for key in keys):
            keys = self._keys(keys, depth, nesting + 3)
        names = [key for key in keys if isinstance(key, str) and key != "$"]
        plain = len(names) == len(keys)
        values: List[Json] = []
        try:
            for _, item in items:
                values.append(self.one(item, depth, nesting + (1 if plain else 3)))
        except _Refused as error:
            error.below(f"[{_short(items[len(values)][0])}]")
            raise
        if plain:
            return dict(zip(names, values))
        return {"$": "dict", "v": [[key, item] for key, item in zip(keys, values)]}

    def _keys(self, keys: List[Any], depth: int, nesting: int) -> List[Json]:
        try:
            return self.items(keys, depth, nesting)
        except _Refused as error:
            error.below(".keys()")
            raise

    def iso(self, thing: Any, *_: int) -> Json:
        kind = next(kind.__name__ for kind in type(thing).__mro__ if kind.__module__ == "datetime")
        if hasattr(thing, "to_pydatetime"):  # of pandas
            if thing != thing:  # not a time
                return None
            thing = thing.to_pydatetime(warn=False)
        return {"$": kind, "v": str(thing.isoformat())}

    def duration(self, thing: Any, *_: int) -> Json:
        if thing != thing:  # pandas' NaT
            return None
        return {"$": "timedelta", "v": [int(thing.days), int(thing.seconds), int(thing.microseconds)]}

    def decimal(self, thing: Any, *_: int) -> Json:
        text = str(thing)
        if len(text) > DIGITS:
            raise _too_long(DIGITS)
        return {"$": "decimal", "v": text}

    def fraction(self, thing: Any, *_: int) -> Json:
        over = _digits(int(thing.numerator), FRACTION_DIGITS)
        return {"$": "fraction", "v": f"{over}/{_digits(int(thing.denominator), FRACTION_DIGITS)}"}

    def uuid(self, thing: Any, *_: int) -> Json:
        return {"$": "uuid", "v": str(thing)}

    def path(self, thing: Any, *_: int) -> Json:
        return {"$": "path", "v": _utf8(str(thing))}

    def enum(self, thing: Any, depth: int, nesting: int) -> Json:
        member = thing.name
        name = f"{type(thing).__name__}.{member}" if isinstance(member, str) else str(thing)
        try:
            return {"$": "enum", "name": _utf8(name), "v": self.one(thing.value, depth, nesting + 1)}
        except _Refused as error:
            error.below(".value")
            raise

    def dataclass(self, thing: Any, depth: int, nesting: int) -> Json:
        from dataclasses import fields

        names = [field.name for field in fields(thing)]
        values = [(name, getattr(thing, name)) for name in names if hasattr(thing, name)]
        return {"$": "dataclass", "name": type(thing).__name__, "v": self.named(values, depth, nesting + 2)}

    def fields(self, thing: Fields, depth: int, nesting: int) -> Json:
        values = [*thing._asdict().items()]  # pyright: ignore[reportPrivateUsage]
        name = _utf8(thing._name)  # pyright: ignore[reportPrivateUsage]
        return {"$": "dataclass", "name": name, "v": self.named(values, depth, nesting + 2)}

    def error(self, thing: BaseException, *_: int) -> Json:
        message = str(thing).encode("utf-8", "backslashreplace").decode("utf-8")
        return {"$": "error", "type": type(thing).__name__, "message": message}

    def scalar(self, thing: Any, depth: int, nesting: int) -> Json:
        name = arrays.dtype_name(thing.dtype)
        if name is None:
            raise _not_data(f"a numpy scalar of type {thing.dtype}", "a plain number or text")
        kind = thing.dtype.kind
        if kind == "M":
            value: Json = str(thing)
        elif kind == "m":
            value = None if thing != thing else int(thing.astype("int64"))
        else:
            value = self.one(thing.item(), depth, nesting + 1)
        return {"$": "scalar", "dtype": name, "v": value}

    def array(self, thing: Any, *_: int) -> Json:
        if hasattr(thing, "mask"):
            raise _not_data("a masked array", "what its .filled() gives")
        name = arrays.dtype_name(thing.dtype)
        if name is None:
            raise _not_data(f"an array of type {thing.dtype}", "what its .tolist() gives")
        shape: List[Json] = [int(size) for size in thing.shape]
        little = thing.astype(thing.dtype.newbyteorder("<"), copy=False)
        return {"$": "ndarray", "dtype": name, "shape": shape, "v": base64(little.tobytes())}

    def series(self, thing: Any, depth: int, nesting: int) -> Json:
        index = self._labels(".index", thing.index, depth, nesting + 2)
        values = self.items(thing.tolist(), depth, nesting + 2)
        return {"$": "series", "name": self.one(thing.name, depth, nesting + 1), "index": index, "v": values}

    def dataframe(self, thing: Any, depth: int, nesting: int) -> Json:
        rows, width = thing.shape
        labels = thing.columns.tolist()
        columns = self._labels(".columns", thing.columns, depth, nesting + 2)
        index = self._labels(".index", thing.index, depth, nesting + 2)
        plain: List[List[Json]] = []
        try:
            for number in range(width):
                plain.append(self.items(thing.iloc[:, number].tolist(), depth, nesting + 3))
        except _Refused as error:
            error.below(f"[{_short(labels[len(plain)])}]")
            raise
        found: List[Json] = [[*row] for row in zip(*plain)] if width else [[] for _ in range(rows)]
        return {"$": "dataframe", "columns": columns, "index": index, "v": found}

    def _labels(self, step: str, labels: Any, depth: int, nesting: int) -> List[Json]:
        try:
            return self.items(labels.tolist(), depth, nesting)
        except _Refused as error:
            error.below(step)
            raise

    def other(self, thing: Any, *_: int) -> Json:
        raise _refusal(thing)


_EXACT: Dict[type, _Method] = {
    type(None): _Encoder.constant,
    bool: _Encoder.constant,
    int: _Encoder.whole,
    float: _Encoder.real,
    complex: _Encoder.complex,
    str: _Encoder.text,
    bytes: _Encoder.octets,
    bytearray: _Encoder.octets,
    memoryview: _Encoder.octets,
    list: _Encoder.list,
    tuple: _Encoder.tuple,
    set: _Encoder.set,
    frozenset: _Encoder.set,
    dict: _Encoder.dict,
    Fields: _Encoder.fields,
}


# Types of modules that are looked at only if somebody has imported them. The first that fits counts.
_BY_MODULE: Tuple[Tuple[str, str, _Method], ...] = (
    ("enum", "Enum", _Encoder.enum),
    ("numpy", "generic", _Encoder.scalar),
    ("numpy", "ndarray", _Encoder.array),
    ("pandas", "Series", _Encoder.series),
    ("pandas", "DataFrame", _Encoder.dataframe),
    ("datetime", "datetime", _Encoder.iso),
    ("datetime", "date", _Encoder.iso),
    ("datetime", "time", _Encoder.iso),
    ("datetime", "timedelta", _Encoder.duration),
    ("decimal", "Decimal", _Encoder.decimal),
    ("fractions", "Fraction", _Encoder.fraction),
    ("uuid", "UUID", _Encoder.uuid),
    ("pathlib", "PurePath", _Encoder.path),
)


_BY_BASE: Tuple[Tuple[type, _Method], ...] = (
    (int, _Encoder.whole),
    (float, _Encoder.real),
    (complex, _Encoder.complex),
    (str, _Encoder.text),
    (bytes, _Encoder.octets),
    (bytearray, _Encoder.octets),
    (list, _Encoder.list),
    (tuple, _Encoder.tuple),
    (set, _Encoder.set),
    (frozenset, _Encoder.set),
    (dict, _Encoder.dict),
    (BaseException, _Encoder.error),
)


_CONTAINERS = frozenset(
    [
        _Encoder.list,
        _Encoder.tuple,
        _Encoder.set,
        _Encoder.dict,
        _Encoder.enum,
        _Encoder.dataclass,
        _Encoder.fields,
        _Encoder.series,
        _Encoder.dataframe,
    ]
)


def _method_for(thing: object) -> _Method:
    mine = type(thing)
    for module, name, method in _BY_MODULE:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(mine, kind):
            return method
    if isinstance(getattr(mine, "__dataclass_fields__", None), dict):
        return _Encoder.dataclass
    for base, method in _BY_BASE:
        if issubclass(mine, base):
            return method
    pandas = sys.modules.get("pandas")
    if any(thing is getattr(pandas, name, mine) for name in ("NA", "NaT")):
        return _Encoder.nothing
    return _Encoder.other


def _field_names(kind: type) -> Optional[List[str]]:
    """The names of a named tuple's fields."""
    found: object = getattr(kind, "_fields", None)
    if not isinstance(found, tuple):
        return None
    fields = cast("Tuple[object, ...]", found)
    names = [field for field in fields if isinstance(field, str)]
    return names if len(names) == len(fields) else None


def _not_data(name: str, instead: str) -> _Refused:
    return _Refused(TypeError, f"{name} is not data; pass {instead}")


def _refusal(thing: object) -> _Refused:
    import types
    from collections.abc import Awaitable, Iterable, Mapping

    if isinstance(thing, types.ModuleType):
        return _Refused(TypeError, "a module is not data; import it in the guest's own code")
    if isinstance(thing, type):
        return _Refused(TypeError, "a class is not data; define it in the guest's own code")
    if isinstance(thing, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return _Refused(TypeError, "a function is not data; offer it as a tool")
    kind = type(thing).__name__
    name = f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
    if isinstance(thing, Awaitable):
        return _not_data(name, "what it gives when awaited")
    if isinstance(thing, Mapping):
        return _not_data(name, "dict(...) of it")
    if hasattr(thing, "read"):
        return _not_data(name, "its content or its path")
    if isinstance(thing, Iterable):
        return _not_data(name, "list(...) of it")
    return _not_data(name, "a dict, a list or another plain value in its place")


def _too_long(limit: int) -> _Refused:
    return _Refused(ValueError, f"a number of more than {limit} digits is too long")


def _utf8(thing: str) -> str:
    text = str.__str__(thing)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            half = text[error.start]
            raise _Refused(ValueError, f"the text holds {half!a}, which UTF-8 cannot say; pass bytes") from None
    return text


def _short(key: object) -> str:
    """A key as a path shows it."""
    if not isinstance(key, (str, bytes, int, float)):
        return f"<{type(key).__name__}>"
    if isinstance(key, int) and not -WHOLE <= key <= WHOLE:
        return "<a long number>"
    text = repr(key[:60] if isinstance(key, (str, bytes)) else key)
    return text if len(text) <= 60 else text[:60] + "..."


def _digits(number: int, limit: int) -> str:
    """Decimal text of a whole number, also where the interpreter has a limit for that."""
    if number.bit_length() * 0.30103 > limit:
        raise _too_long(limit)
    return "-" + _positive(-number) if number < 0 else _positive(number)


def _positive(number: int) -> str:
    if number.bit_length() < 2000:
        return str(number)
    half = int(number.bit_length() * 0.30103) // 2
    high, low = divmod(number, 10**half)
    return _positive(high) + _positive(low).zfill(half)
