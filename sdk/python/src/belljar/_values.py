"""Values of Python as the plain data of guest/PROTOCOL.md, and back.

To a guest goes data alone: `encode` refuses the rest and names the place. From a guest comes anything: `decode` never
raises, and does nothing that the data names. What it cannot read is given back as it came.
"""

from __future__ import annotations

import sys
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple, Union, cast

Json = Union[None, bool, int, float, str, List["Json"], Dict[str, "Json"]]
Object = Dict[str, Json]

__all__ = ["Cut", "Fields", "Json", "Repr", "decode", "encode", "exception_of"]

_WHOLE = (1 << 63) - 1
_DIGITS = 100_000  # of a number: turning text into one takes more than linear time
_LONG = 1000  # digits from which on it counts
_ALL_DIGITS = 2_000_000  # of the long numbers in one value
_FRACTION_DIGITS = 10_000  # of each of its parts: they are reduced, which takes quadratic time
_DEEPEST = 100  # containers
_NESTING = 180  # levels of JSON; the engine takes 200, and the message around a value counts
_NESTING_READ = 200
_SHOWN = 200  # characters of a path in a message
_KEY_DEPTH = 8  # containers in a key, which is hashed as a whole
_CROWD = 64  # keys of one hash; a guest can choose numbers that all have the same
_TUPLE_FIELDS = 256
_TUPLE_TYPES = 64  # new types of named tuples in one value: each is slow to make
_COLUMNS = 10_000  # of the tables in one value: pandas is slow to make one
_EMPTY = 10_000  # lists for an array without items
_LEVELS = 32  # of an index
_NAME = 100  # characters


class Fields:
    """An instance of a dataclass whose class only the guest has. It can be read and compared.

    `_name` is the name of the class, `_asdict()` gives the fields.
    """

    __slots__ = ("_name", "_values")

    _name: str
    _values: Dict[str, object]

    def __init__(self, name: str, values: Dict[str, object]) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_values", dict(values))

    def _asdict(self) -> Dict[str, object]:
        return dict(self._values)

    def __getattr__(self, name: str) -> Any:
        # Names with underscores on both sides mean something to Python, and the guest chose these names.
        hidden = name in Fields.__slots__ or name.startswith("__") and name.endswith("__")
        if not hidden and name in self._values:
            return self._values[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a value of a guest can only be read")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a value of a guest can only be read")

    def __dir__(self) -> List[str]:
        return ["_asdict", "_name", *self._values]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fields):
            return NotImplemented
        return self._name == other._name and self._values == other._values

    def __hash__(self) -> int:
        return hash((self._name, frozenset(self._values.items())))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{self._name}({fields})"

    def __reduce__(self) -> Tuple[object, ...]:
        return Fields, (self._name, self._values)


class Repr(str):
    """What the guest could only show: the text, and in `type` the name of its type."""

    type: str

    def __new__(cls, text: str, type: str = "") -> Repr:
        made = super().__new__(cls, text)
        made.type = type
        return made

    def __repr__(self) -> str:
        return str(self)


class Cut(str):
    """What was too much to send: the text that stands for it, and in `why` one of `depth`, `size` and `cycle`."""

    why: str

    def __new__(cls, text: str, why: str = "") -> Cut:
        made = super().__new__(cls, text)
        made.why = why
        return made


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


def decode(plain: Json) -> object:
    """The value of plain data. Never raises; a tag that is unknown or malformed is a dict like any other."""
    try:
        return _Decoder().one(plain, 0)
    except RecursionError:  # whoever calls has used most of the stack
        return plain


def exception_of(type_name: str, message: str) -> Optional[Exception]:
    """A built-in exception by name, or None if there is none of that name that takes a message alone."""
    import builtins

    kind = vars(builtins).get(type_name)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    if issubclass(kind, (StopIteration, StopAsyncIteration)):  # these mean something else to a generator
        return None
    try:
        return kind(message)
    except Exception:
        return None


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


class _Malformed(Exception):
    """Data that is not what its tag says."""


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
        if -_WHOLE <= number <= _WHOLE:
            return number
        return {"$": "int", "v": _digits(number, _DIGITS)}

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
        return {"$": "bytes", "v": _base64(bytes(thing))}

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
        if len(text) > _DIGITS:
            raise _too_long(_DIGITS)
        return {"$": "decimal", "v": text}

    def fraction(self, thing: Any, *_: int) -> Json:
        over = _digits(int(thing.numerator), _FRACTION_DIGITS)
        return {"$": "fraction", "v": f"{over}/{_digits(int(thing.denominator), _FRACTION_DIGITS)}"}

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
        name = _dtype_name(thing.dtype)
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
        name = _dtype_name(thing.dtype)
        if name is None:
            raise _not_data(f"an array of type {thing.dtype}", "what its .tolist() gives")
        shape: List[Json] = [int(size) for size in thing.shape]
        little = thing.astype(thing.dtype.newbyteorder("<"), copy=False)
        return {"$": "ndarray", "dtype": name, "shape": shape, "v": _base64(little.tobytes())}

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
    if isinstance(key, int) and not -_WHOLE <= key <= _WHOLE:
        return "<a long number>"
    text = repr(key[:60] if isinstance(key, (str, bytes)) else key)
    return text if len(text) <= 60 else text[:60] + "..."


def _base64(octets: bytes) -> str:
    return str(b2a_base64(octets, newline=False), "ascii")


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


def _dtype_name(dtype: Any) -> Optional[str]:
    """A name that both sides know: `float64`, `datetime64[ns]`, `U3`; None for what is not sent."""
    if dtype.kind in "SU":
        return f"{dtype.kind}{dtype.itemsize // (4 if dtype.kind == 'U' else 1)}"
    name = str(dtype.name)
    return name if _dtype(name) is not None else None


_SIZES = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint8": ("B", 1),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "uint64": ("Q", 8),
    "float16": ("e", 2),
    "float32": ("f", 4),
    "float64": ("d", 8),
    "complex64": ("ff", 8),
    "complex128": ("dd", 16),
}


def _dtype(name: str) -> Optional[Tuple[str, int]]:
    """The code and the size of an item: a code of the module struct, two for complex numbers, or M, m, S, U."""
    import re

    found = _SIZES.get(name)
    if found is not None:
        return found
    if re.fullmatch(r"(datetime|timedelta)64(\[[0-9]{0,9}([YMWDhms]|ms|us|ns|ps|fs|as)\])?", name):
        return ("M" if name[0] == "d" else "m"), 8
    if re.fullmatch(r"[SU][0-9]{1,9}", name):
        return name[0], int(name[1:]) * (4 if name[0] == "U" else 1)
    return None


class _Decoder:
    def __init__(self) -> None:
        self._shapes: set[Tuple[str, Tuple[str, ...]]] = set()  # of named tuples
        self._digits = _ALL_DIGITS
        self._columns = _COLUMNS

    def one(self, plain: Json, depth: int) -> object:
        """Decode one value. `depth` counts levels of JSON."""
        if depth >= _NESTING_READ:
            return plain
        if isinstance(plain, list):
            return self.items(plain, depth + 1)
        if not isinstance(plain, dict):
            return plain
        if "$" not in plain:
            return self.named(plain, depth + 1)
        kind = plain["$"]
        method = _KINDS.get(kind) if isinstance(kind, str) else None
        if method is None:
            return plain
        try:
            return method(self, plain, depth + 1)
        except RecursionError:  # Python 3.9 may abort if it is caught down here and the calls go on
            raise
        except Exception:
            return plain

    def items(self, plain: List[Json], depth: int) -> List[object]:
        return [self.one(item, depth) for item in plain]

    def named(self, plain: Object, depth: int) -> Dict[str, object]:
        return {name: self.one(item, depth) for name, item in plain.items()}

    def keys(self, plain: List[Json], depth: int) -> List[object]:
        return _checked_keys([_key(self.one(item, depth), 0) for item in plain])

    def numbers(self, texts: List[str], limit: int) -> Optional[List[int]]:
        """The whole numbers; None if to make them would take long."""
        sizes = [len(_check_digits(text)) for text in texts]
        self._digits -= sum(size for size in sizes if _LONG < size <= limit + 1)
        if self._digits < 0 or max(sizes) > limit + 1:
            return None
        return [_from_digits(text) for text in texts]

    def whole(self, plain: Object, _: int) -> object:
        text = _text(plain, "v")
        numbers = self.numbers([text], _DIGITS)
        return Cut(text, "size") if numbers is None else numbers[0]

    def real(self, plain: Object, _: int) -> object:
        return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[_text(plain, "v")]

    def complex(self, plain: Object, depth: int) -> object:
        real, imaginary = self.items(_list(plain, "v"), depth + 1)
        return complex(_number(real), _number(imaginary))

    def octets(self, plain: Object, _: int) -> object:
        return _octets(plain)

    def tuple(self, plain: Object, depth: int) -> object:
        return tuple(self.items(_list(plain, "v"), depth + 1))

    def namedtuple(self, plain: Object, depth: int) -> object:
        name = _text(plain, "name")
        values = self.named(_object(plain, "v"), depth + 1)
        shape = name, tuple(values)
        if shape not in self._shapes:
            if len(self._shapes) >= _TUPLE_TYPES or not _is_shape(*shape):
                return Fields(name, values)
            self._shapes.add(shape)
        return _tuple_type(*shape)(*values.values())

    def dataclass(self, plain: Object, depth: int) -> object:
        return Fields(_text(plain, "name"), self.named(_object(plain, "v"), depth + 1))

    def set(self, plain: Object, depth: int) -> object:
        keys = self.keys(_list(plain, "v"), depth + 1)
        return _whole_of(set(keys), keys)

    def frozenset(self, plain: Object, depth: int) -> object:
        keys = self.keys(_list(plain, "v"), depth + 1)
        return _whole_of(frozenset(keys), keys)

    def dict(self, plain: Object, depth: int) -> object:
        pairs = _lists(plain, "v", 2)
        keys = self.keys([key for key, _ in pairs], depth + 2)
        return _whole_of(dict(zip(keys, [self.one(item, depth + 2) for _, item in pairs])), keys)

    def datetime(self, plain: Object, _: int) -> object:
        from datetime import datetime

        return _from_iso(datetime.fromisoformat, _text(plain, "v"))

    def date(self, plain: Object, _: int) -> object:
        from datetime import date

        return _from_iso(date.fromisoformat, _text(plain, "v"))

    def time(self, plain: Object, _: int) -> object:
        from datetime import time

        return _from_iso(time.fromisoformat, _text(plain, "v"))

    def timedelta(self, plain: Object, _: int) -> object:
        from datetime import timedelta

        days, seconds, microseconds = [_count(number) for number in _list(plain, "v")]
        return timedelta(days, seconds, microseconds)

    def decimal(self, plain: Object, _: int) -> object:
        from decimal import Decimal

        text = _text(plain, "v")
        if len(text) > _DIGITS:
            return Cut(text, "size")
        found = Decimal(text)
        if found.is_nan() and "nan" not in text.lower():  # what the caller's context makes of a mistake
            raise _Malformed
        return found

    def fraction(self, plain: Object, _: int) -> object:
        from fractions import Fraction

        text = _text(plain, "v")
        over, _slash, under = text.partition("/")
        numbers = self.numbers([over, under or "1"], _FRACTION_DIGITS)
        return Cut(text, "size") if numbers is None else Fraction(*numbers)

    def uuid(self, plain: Object, _: int) -> object:
        from uuid import UUID

        text = _text(plain, "v")
        found = UUID(text)
        if str(found) != text.lower():
            raise _Malformed
        return found

    def path(self, plain: Object, _: int) -> object:
        from pathlib import PurePosixPath  # it names something in the guest, and nothing here

        return PurePosixPath(_text(plain, "v"))

    def enum(self, plain: Object, depth: int) -> object:
        return self.one(plain["v"], depth)

    def array(self, plain: Object, _: int) -> object:
        name = _text(plain, "dtype")
        shape = [_count(size) for size in _list(plain, "shape")]
        octets = _octets(plain)
        code, size, count = _layout(name, shape, octets)
        numpy = _module("numpy")
        if numpy is None:
            return _nested(_flat(code, size, octets), shape)
        dtype = numpy.dtype(name)
        if count == 0:
            return numpy.zeros(shape, dtype)
        little = dtype.newbyteorder("<")
        if code == "?":
            return (numpy.frombuffer(octets, "u1") != 0).reshape(shape)
        if code == "U" and int(numpy.frombuffer(octets, "<u4").max()) > sys.maxunicode:
            raise _Malformed
        return numpy.frombuffer(octets, little).reshape(shape).astype(dtype)

    def scalar(self, plain: Object, depth: int) -> object:
        name = _text(plain, "dtype")
        found = _dtype(name)
        if found is None:
            raise _Malformed
        code, size = found
        value = self.one(plain["v"], depth)
        if not _is_scalar(code, size, value):
            raise _Malformed
        numpy = _module("numpy")
        if numpy is None:
            return value
        if code in "SU":
            return numpy.str_(value) if code == "U" else numpy.bytes_(value)
        return numpy.array("NaT" if value is None else value, numpy.dtype(name))[()]

    def _table(self, columns: int) -> None:
        self._columns -= max(columns, 1)
        if self._columns < 0:
            raise _Malformed

    def series(self, plain: Object, depth: int) -> object:
        name = _key(self.one(plain.get("name"), depth), 0)
        labels = [_key(label, 0) for label in self.items(_list(plain, "index"), depth + 1)]
        values = self.items(_list(plain, "v"), depth + 1)
        if len(labels) != len(values):
            raise _Malformed
        self._table(1)
        pandas = _module("pandas")
        if pandas is None:
            return _whole_of(dict(zip(_checked_keys(labels), values)), labels)
        return pandas.Series(values, index=_index(pandas, labels), name=name)

    def dataframe(self, plain: Object, depth: int) -> object:
        columns = [_key(label, 0) for label in self.items(_list(plain, "columns"), depth + 1)]
        labels = [_key(label, 0) for label in self.items(_list(plain, "index"), depth + 1)]
        rows = [self.items(row, depth + 2) for row in _lists(plain, "v", len(columns))]
        if len(labels) != len(rows):
            raise _Malformed
        self._table(len(columns))
        pandas = _module("pandas")
        if pandas is None:
            _checked_keys(columns)
            return [_whole_of(dict(zip(columns, row)), columns) for row in rows]
        index = _index(pandas, labels)
        if not columns:
            return pandas.DataFrame(index=index)
        return pandas.DataFrame(rows, columns=_index(pandas, columns), index=index)

    def error(self, plain: Object, _: int) -> object:
        kind, message = _text(plain, "type"), _text(plain, "message")
        return exception_of(kind, message) or RuntimeError(f"{kind}: {message}")

    def undefined(self, plain: Object, _: int) -> object:
        return None

    def repr(self, plain: Object, _: int) -> object:
        return Repr(_text(plain, "v"), _text(plain, "type"))

    def cut(self, plain: Object, _: int) -> object:
        return Cut(_text(plain, "v"), _text(plain, "why"))


_KINDS: Dict[str, Callable[[_Decoder, Object, int], object]] = {
    "int": _Decoder.whole,
    "float": _Decoder.real,
    "complex": _Decoder.complex,
    "bytes": _Decoder.octets,
    "tuple": _Decoder.tuple,
    "namedtuple": _Decoder.namedtuple,
    "set": _Decoder.set,
    "frozenset": _Decoder.frozenset,
    "dict": _Decoder.dict,
    "datetime": _Decoder.datetime,
    "date": _Decoder.date,
    "time": _Decoder.time,
    "timedelta": _Decoder.timedelta,
    "decimal": _Decoder.decimal,
    "fraction": _Decoder.fraction,
    "uuid": _Decoder.uuid,
    "path": _Decoder.path,
    "enum": _Decoder.enum,
    "ndarray": _Decoder.array,
    "scalar": _Decoder.scalar,
    "dataclass": _Decoder.dataclass,
    "series": _Decoder.series,
    "dataframe": _Decoder.dataframe,
    "error": _Decoder.error,
    "undefined": _Decoder.undefined,
    "repr": _Decoder.repr,
    "cut": _Decoder.cut,
}


def _text(plain: Object, key: str) -> str:
    found = plain[key]
    if not isinstance(found, str):
        raise _Malformed
    return found


def _list(plain: Object, key: str) -> List[Json]:
    found = plain[key]
    if not isinstance(found, list):
        raise _Malformed
    return found


def _lists(plain: Object, key: str, length: int) -> List[List[Json]]:
    """A list of lists that all have this length."""
    found: List[List[Json]] = []
    for item in _list(plain, key):
        if not isinstance(item, list) or len(item) != length:
            raise _Malformed
        found.append(item)
    return found


def _object(plain: Object, key: str) -> Object:
    found = plain[key]
    if not isinstance(found, dict):
        raise _Malformed
    return found


def _octets(plain: Object) -> bytes:
    text = _text(plain, "v")
    octets = a2b_base64(text)
    if _base64(octets) != text:  # it skips what is no base64
        raise _Malformed
    return octets


def _count(number: Json) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise _Malformed
    return number


def _number(thing: object) -> float:
    if not isinstance(thing, (int, float)) or isinstance(thing, bool):
        raise _Malformed
    return thing


def _check_digits(text: str) -> str:
    digits = text[1:] if text.startswith("-") else text
    if not digits.isascii() or not digits.isdigit():
        raise _Malformed
    return text


def _from_digits(text: str) -> int:
    """A whole number, also where the interpreter has a limit for its text. Halves take less time than the whole."""
    if text.startswith("-"):
        return -_from_digits(text[1:])
    if len(text) <= 600:
        return int(text)
    half = len(text) // 2
    scale: int = 10**half
    return _from_digits(text[:-half]) * scale + _from_digits(text[-half:])


def _from_iso(parse: Callable[[str], object], text: str) -> object:
    if len(text) > _NAME:
        raise _Malformed
    if text.endswith("Z"):  # before 3.11 fromisoformat does not know it
        text = text[:-1] + "+00:00"
    try:
        return parse(text)
    except ValueError:
        # Before 3.11 a fraction has three or six digits.
        head, dot, tail = text.partition(".")
        digits = len(tail) - len(tail.lstrip("0123456789"))
        return parse(head + dot + tail[:digits][:6].ljust(6, "0") + tail[digits:])


def _key(thing: object, depth: int) -> object:
    """What stands for a value as a key or a member of a set: a tuple for a list, a frozenset for a set."""
    if depth > _KEY_DEPTH:
        raise _Malformed
    kind, parts = type(thing), cast(Any, thing)
    if kind in (list, tuple):
        return tuple([_key(part, depth + 1) for part in parts])
    if kind is dict:
        return tuple([(_key(key, depth + 1), _key(item, depth + 1)) for key, item in parts.items()])
    return frozenset(parts) if kind is set else thing


def _checked_keys(keys: List[object]) -> List[object]:
    """The keys, if not so many of them have the same hash that to look one up takes long."""
    if len(keys) > _CROWD:
        from collections import Counter

        if max(Counter(map(hash, keys)).values()) > _CROWD:
            raise _Malformed
    return keys


def _whole_of(found: Any, keys: List[object]) -> object:
    """What was built from keys, if none was lost: JavaScript tells 1 from true, Python does not."""
    if len(found) != len(keys):
        raise _Malformed
    return found


def _is_shape(name: str, fields: Tuple[str, ...]) -> bool:
    """Whether Python can have a named tuple with these names."""
    if len(fields) > _TUPLE_FIELDS or any(field.startswith("_") for field in fields):
        return False
    return all(map(_is_name, (name, *fields)))


def _is_name(text: str) -> bool:
    from keyword import iskeyword

    return len(text) <= _NAME and text.isascii() and text.isidentifier() and not iskeyword(text)


@lru_cache(maxsize=256)
def _tuple_type(name: str, fields: Tuple[str, ...]) -> Any:
    """A type of named tuples. The names are those of `_is_shape`, since Python compiles them."""
    import collections

    make: Any = collections.namedtuple
    return make(name, fields, module=__name__)


def _module(name: str) -> Any:
    """A module that need not be installed. The name is never one of the data."""
    from importlib import import_module

    try:
        return import_module(name)
    except Exception:
        return None


def _layout(name: str, shape: List[int], octets: bytes) -> Tuple[str, int, int]:
    """The code, the size and the number of items of an array, if its bytes are that many."""
    from math import prod

    found = _dtype(name)
    if found is None or found[1] == 0 or len(shape) > _LEVELS or any(not 0 <= size <= _WHOLE for size in shape):
        raise _Malformed
    code, size = found
    if prod(shape) * size != len(octets):
        raise _Malformed
    return code, size, prod(shape)


def _flat(code: str, size: int, octets: bytes) -> List[Any]:
    """The items of an array, for whoever has no numpy."""
    from struct import iter_unpack

    if code in ("S", "U"):
        parts = [octets[at : at + size] for at in range(0, len(octets), size)]
        if code == "S":
            return [part.rstrip(b"\0") for part in parts]
        return [part.decode("utf-32-le").rstrip("\0") for part in parts]
    if code in ("M", "m"):
        raise _Malformed  # numbers without their unit say nothing
    items = iter_unpack("<" + code, octets)
    return [complex(*item) for item in items] if len(code) == 2 else [item[0] for item in items]


def _nested(flat: List[Any], shape: List[int]) -> object:
    """The items as lists in lists. A shape without items must not make many lists."""
    from math import prod

    if 0 in shape:
        shape = shape[: shape.index(0)]
        if prod(shape) > _EMPTY:
            raise _Malformed
        flat = [[] for _ in range(prod(shape))]
    if not shape:
        return flat[0]
    for size in reversed(shape[1:]):
        flat = [flat[at : at + size] for at in range(0, len(flat), size)]
    return flat


def _is_scalar(code: str, size: int, value: object) -> bool:
    """Whether this is a value of that type: numpy would make some of much else."""
    import re

    if code == "M":
        date = r"[-+]?[0-9]{1,20}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d(\.\d{1,18})?)?)?)?)?)?"
        return isinstance(value, str) and (value == "NaT" or re.fullmatch(date, value, re.ASCII) is not None)
    if code == "m":
        return value is None or type(value) is int
    if code in "bhiq":
        return type(value) is int and -1 << size * 8 - 1 <= value < 1 << size * 8 - 1
    if code in "BHIQ":
        return type(value) is int and 0 <= value < 1 << size * 8
    kinds: Dict[str, Any] = {"?": bool, "S": bytes, "U": str, "ff": complex, "dd": complex}
    return isinstance(value, kinds.get(code, float))


def _index(pandas: Any, labels: List[object]) -> Any:
    """The labels of a table."""
    if {type(label) for label in labels} == {tuple} and _are_levels(cast("List[Tuple[object, ...]]", labels)):
        return pandas.MultiIndex.from_tuples(labels)
    return pandas.Index(labels, tupleize_cols=False)


def _are_levels(labels: List[Tuple[object, ...]]) -> bool:
    """Whether these are labels of several levels. pandas makes a table of unequal ones, and of tuples in them."""
    width = len(labels[0])
    if not 0 < width <= _LEVELS or any(len(label) != width for label in labels):
        return False
    return not any(isinstance(part, tuple) for label in labels for part in label)
