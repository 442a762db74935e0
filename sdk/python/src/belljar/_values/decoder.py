"""Values of plain data. Whatever it is, nothing raises, and nothing that the data names is done."""

from __future__ import annotations

import sys
from typing import Callable, Dict, List, Optional, Tuple

from . import arrays, reading
from .reading import Malformed
from .types import DIGITS, FRACTION_DIGITS, Cut, Fields, Json, Object, Repr

_LONG = 1000  # digits from which on it counts
_ALL_DIGITS = 2_000_000  # of the long numbers in one value
_NESTING_READ = 200
_TUPLE_TYPES = 64  # new types of named tuples in one value: each is slow to make
_COLUMNS = 10_000  # of the tables in one value: pandas is slow to make one


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
        return reading.checked_keys([reading.key(self.one(item, depth), 0) for item in plain])

    def numbers(self, texts: List[str], limit: int) -> Optional[List[int]]:
        """The whole numbers; None if to make them would take long."""
        sizes = [len(reading.check_digits(text)) for text in texts]
        self._digits -= sum(size for size in sizes if _LONG < size <= limit + 1)
        if self._digits < 0 or max(sizes) > limit + 1:
            return None
        return [reading.from_digits(text) for text in texts]

    def whole(self, plain: Object, _: int) -> object:
        text = reading.text(plain, "v")
        numbers = self.numbers([text], DIGITS)
        return Cut(text, "size") if numbers is None else numbers[0]

    def real(self, plain: Object, _: int) -> object:
        return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[reading.text(plain, "v")]

    def complex(self, plain: Object, depth: int) -> object:
        real, imaginary = self.items(reading.items(plain, "v"), depth + 1)
        return complex(reading.number(real), reading.number(imaginary))

    def octets(self, plain: Object, _: int) -> object:
        return reading.octets(plain)

    def tuple(self, plain: Object, depth: int) -> object:
        return tuple(self.items(reading.items(plain, "v"), depth + 1))

    def namedtuple(self, plain: Object, depth: int) -> object:
        name = reading.text(plain, "name")
        values = self.named(reading.fields(plain, "v"), depth + 1)
        shape = name, tuple(values)
        if shape not in self._shapes:
            if len(self._shapes) >= _TUPLE_TYPES or not reading.is_shape(*shape):
                return Fields(name, values)
            self._shapes.add(shape)
        return reading.tuple_type(*shape)(*values.values())

    def dataclass(self, plain: Object, depth: int) -> object:
        return Fields(reading.text(plain, "name"), self.named(reading.fields(plain, "v"), depth + 1))

    def set(self, plain: Object, depth: int) -> object:
        keys = self.keys(reading.items(plain, "v"), depth + 1)
        return reading.whole_of(set(keys), keys)

    def frozenset(self, plain: Object, depth: int) -> object:
        keys = self.keys(reading.items(plain, "v"), depth + 1)
        return reading.whole_of(frozenset(keys), keys)

    def dict(self, plain: Object, depth: int) -> object:
        pairs = reading.rows(plain, "v", 2)
        keys = self.keys([key for key, _ in pairs], depth + 2)
        return reading.whole_of(dict(zip(keys, [self.one(item, depth + 2) for _, item in pairs])), keys)

    def datetime(self, plain: Object, _: int) -> object:
        from datetime import datetime

        return reading.from_iso(datetime.fromisoformat, reading.text(plain, "v"))

    def date(self, plain: Object, _: int) -> object:
        from datetime import date

        return reading.from_iso(date.fromisoformat, reading.text(plain, "v"))

    def time(self, plain: Object, _: int) -> object:
        from datetime import time

        return reading.from_iso(time.fromisoformat, reading.text(plain, "v"))

    def timedelta(self, plain: Object, _: int) -> object:
        from datetime import timedelta

        days, seconds, microseconds = [reading.count(number) for number in reading.items(plain, "v")]
        return timedelta(days, seconds, microseconds)

    def decimal(self, plain: Object, _: int) -> object:
        from decimal import Decimal

        text = reading.text(plain, "v")
        if len(text) > DIGITS:
            return Cut(text, "size")
        found = Decimal(text)
        if found.is_nan() and "nan" not in text.lower():  # what the caller's context makes of a mistake
            raise Malformed
        return found

    def fraction(self, plain: Object, _: int) -> object:
        from fractions import Fraction

        text = reading.text(plain, "v")
        over, _slash, under = text.partition("/")
        numbers = self.numbers([over, under or "1"], FRACTION_DIGITS)
        return Cut(text, "size") if numbers is None else Fraction(*numbers)

    def uuid(self, plain: Object, _: int) -> object:
        from uuid import UUID

        text = reading.text(plain, "v")
        found = UUID(text)
        if str(found) != text.lower():
            raise Malformed
        return found

    def path(self, plain: Object, _: int) -> object:
        from pathlib import PurePosixPath  # it names something in the guest, and nothing here

        return PurePosixPath(reading.text(plain, "v"))

    def enum(self, plain: Object, depth: int) -> object:
        return self.one(plain["v"], depth)

    def array(self, plain: Object, _: int) -> object:
        name = reading.text(plain, "dtype")
        shape = [reading.count(size) for size in reading.items(plain, "shape")]
        octets = reading.octets(plain)
        code, size, count = arrays.layout(name, shape, octets)
        numpy = arrays.module("numpy")
        if numpy is None:
            return arrays.nested(arrays.flat(code, size, octets), shape)
        dtype = numpy.dtype(name)
        if count == 0:
            return numpy.zeros(shape, dtype)
        little = dtype.newbyteorder("<")
        if code == "?":
            return (numpy.frombuffer(octets, "u1") != 0).reshape(shape)
        if code == "U" and int(numpy.frombuffer(octets, "<u4").max()) > sys.maxunicode:
            raise Malformed
        return numpy.frombuffer(octets, little).reshape(shape).astype(dtype)

    def scalar(self, plain: Object, depth: int) -> object:
        name = reading.text(plain, "dtype")
        found = arrays.dtype(name)
        if found is None:
            raise Malformed
        code, size = found
        value = self.one(plain["v"], depth)
        if not arrays.is_scalar(code, size, value):
            raise Malformed
        numpy = arrays.module("numpy")
        if numpy is None:
            return value
        if code in "SU":
            return numpy.str_(value) if code == "U" else numpy.bytes_(value)
        return numpy.array("NaT" if value is None else value, numpy.dtype(name))[()]

    def _table(self, columns: int) -> None:
        self._columns -= max(columns, 1)
        if self._columns < 0:
            raise Malformed

    def series(self, plain: Object, depth: int) -> object:
        name = reading.key(self.one(plain.get("name"), depth), 0)
        labels = [reading.key(label, 0) for label in self.items(reading.items(plain, "index"), depth + 1)]
        values = self.items(reading.items(plain, "v"), depth + 1)
        if len(labels) != len(values):
            raise Malformed
        self._table(1)
        pandas = arrays.module("pandas")
        if pandas is None:
            return reading.whole_of(dict(zip(reading.checked_keys(labels), values)), labels)
        return pandas.Series(values, index=arrays.index(pandas, labels), name=name)

    def dataframe(self, plain: Object, depth: int) -> object:
        columns = [reading.key(label, 0) for label in self.items(reading.items(plain, "columns"), depth + 1)]
        labels = [reading.key(label, 0) for label in self.items(reading.items(plain, "index"), depth + 1)]
        rows = [self.items(row, depth + 2) for row in reading.rows(plain, "v", len(columns))]
        if len(labels) != len(rows):
            raise Malformed
        self._table(len(columns))
        pandas = arrays.module("pandas")
        if pandas is None:
            reading.checked_keys(columns)
            return [reading.whole_of(dict(zip(columns, row)), columns) for row in rows]
        index = arrays.index(pandas, labels)
        if not columns:
            return pandas.DataFrame(index=index)
        return pandas.DataFrame(rows, columns=arrays.index(pandas, columns), index=index)

    def error(self, plain: Object, _: int) -> object:
        kind, message = reading.text(plain, "type"), reading.text(plain, "message")
        return exception_of(kind, message) or RuntimeError(f"{kind}: {message}")

    def undefined(self, plain: Object, _: int) -> object:
        return None

    def repr(self, plain: Object, _: int) -> object:
        return Repr(reading.text(plain, "v"), reading.text(plain, "type"))

    def cut(self, plain: Object, _: int) -> object:
        return Cut(reading.text(plain, "v"), reading.text(plain, "why"))


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
