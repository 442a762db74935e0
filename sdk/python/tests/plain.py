"""Values, and what the other side reads of them."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import math
import pathlib
import time
import uuid

from belljar._values import decode, encode

P = collections.namedtuple("P", "x y")


class Color(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    HIGH = 3


class Word(str, enum.Enum):
    A = "a"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: int


class Text(str):
    pass


class Whole(int):
    pass


def wire(thing):
    """What the other side reads."""
    return json.loads(json.dumps(encode(thing), allow_nan=False))


def back(thing):
    return decode(wire(thing))


def nest(inner, levels, wrap=lambda thing: [thing]):
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def quick(work, seconds=3):
    """The result of what must not take long."""
    start = time.process_time()
    result = work()
    assert time.process_time() - start < seconds
    return result


UTC = datetime.timezone.utc
ROWS = [
    (None, None),
    (True, True),
    (0, 0),
    (-7, -7),
    (2**63 - 1, 2**63 - 1),
    (1 - 2**63, 1 - 2**63),
    (-(2**63), {"$": "int", "v": "-9223372036854775808"}),
    (2**63, {"$": "int", "v": "9223372036854775808"}),
    (1.5, 1.5),
    (1e300, 1e300),
    (math.inf, {"$": "float", "v": "inf"}),
    (-math.inf, {"$": "float", "v": "-inf"}),
    (1 - 2j, {"$": "complex", "v": [1.0, -2.0]}),
    (complex(0, math.inf), {"$": "complex", "v": [0.0, {"$": "float", "v": "inf"}]}),
    ("", ""),
    ("héllo \U0001f600", "héllo \U0001f600"),
    (b"\x00\xff", {"$": "bytes", "v": "AP8="}),
    (b"", {"$": "bytes", "v": ""}),
    ([1, [2, "x"]], [1, [2, "x"]]),
    ((), {"$": "tuple", "v": []}),
    ((1, (2,)), {"$": "tuple", "v": [1, {"$": "tuple", "v": [2]}]}),
    ({3, 1, 2}, {"$": "set", "v": [1, 2, 3]}),
    (frozenset("a"), {"$": "frozenset", "v": ["a"]}),
    ({}, {}),
    ({"a": {"b": 1}}, {"a": {"b": 1}}),
    ({"é": 1}, {"é": 1}),
    ({1: "x", "y": (1,)}, {"$": "dict", "v": [[1, "x"], ["y", {"$": "tuple", "v": [1]}]]}),
    ({"$": 1}, {"$": "dict", "v": [["$", 1]]}),
    ({(1, 2): 3}, {"$": "dict", "v": [[{"$": "tuple", "v": [1, 2]}, 3]]}),
    (datetime.datetime(2024, 2, 29, 1, 2, 3, 4), {"$": "datetime", "v": "2024-02-29T01:02:03.000004"}),
    (datetime.datetime(2024, 1, 1, tzinfo=UTC), {"$": "datetime", "v": "2024-01-01T00:00:00+00:00"}),
    (datetime.date(2024, 2, 29), {"$": "date", "v": "2024-02-29"}),
    (datetime.time(1, 2, 3), {"$": "time", "v": "01:02:03"}),
    (datetime.timedelta(-1, 5, 7), {"$": "timedelta", "v": [-1, 5, 7]}),
    (decimal.Decimal("1.50"), {"$": "decimal", "v": "1.50"}),
    (decimal.Decimal("Infinity"), {"$": "decimal", "v": "Infinity"}),
    (fractions.Fraction(-3, 7), {"$": "fraction", "v": "-3/7"}),
    (uuid.UUID(int=5), {"$": "uuid", "v": "00000000-0000-0000-0000-000000000005"}),
    (pathlib.PurePosixPath("/a/b"), {"$": "path", "v": "/a/b"}),
    (pathlib.Path("a"), {"$": "path", "v": "a"}),
    (P(1, (2,)), {"$": "namedtuple", "name": "P", "v": {"x": 1, "y": {"$": "tuple", "v": [2]}}}),
]

CIRCLE: list = []
CIRCLE.append({"a": CIRCLE})


def arrays(numpy):
    yield numpy.array([[1, 2], [3, 4]], "int32")
    yield numpy.array([1, 2], ">i4")
    yield numpy.arange(6).reshape(2, 3).T
    yield numpy.arange(10)[::2]
    yield numpy.array([True, False])
    yield numpy.array([1.5, numpy.inf], "float16")
    yield numpy.array([1 + 2j], "complex64")
    yield numpy.array(["2024-01-01", "NaT"], "datetime64[ns]")
    yield numpy.array([1, 2], "timedelta64[25s]")
    yield numpy.array(["a", "bcd", ""])
    yield numpy.array([b"a", b"bcd"])
    yield numpy.array(5)
    yield numpy.zeros((0, 3))
    yield numpy.zeros((3, 0))
    yield numpy.array([2**64 - 1], "uint64")
