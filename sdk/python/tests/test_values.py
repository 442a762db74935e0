"""What goes to a guest, and what may come from one."""

import builtins
import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import math
import pathlib
import pickle
import random
import subprocess
import sys
import threading
import time
import types
import uuid

import pytest

from belljar import _values
from belljar._values import Cut, Fields, Repr, decode, encode, exception_of

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
    start = time.monotonic()
    result = work()
    assert time.monotonic() - start < seconds
    return result


@pytest.fixture
def without(monkeypatch):
    """Have no module of these names."""

    def remove(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return remove


# Both ways.

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


@pytest.mark.parametrize("thing, plain", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_a_row_of_the_table_goes_both_ways(thing, plain):
    assert wire(thing) == plain
    assert back(thing) == thing
    assert type(wire(thing)) is type(plain)


def test_not_a_number_goes_both_ways():
    assert wire(math.nan) == {"$": "float", "v": "nan"}
    assert math.isnan(back(math.nan))
    assert back(decimal.Decimal("NaN")).is_nan()


def test_minus_zero_keeps_its_sign():
    assert math.copysign(1, back(-0.0)) == -1


@pytest.mark.parametrize("thing", [bytearray(b"ab"), memoryview(b"ab"), memoryview(b"axbx")[::2]])
def test_other_bytes_come_back_as_bytes(thing):
    assert back(thing) == b"ab"


def test_a_long_number_goes_both_ways():
    for number in (10**4300, -(10**20_000) + 7, 3**60_000, 10**600, 10**600 - 1):
        assert back(number) == number
    assert wire(-(10**5000)) == {"$": "int", "v": "-1" + "0" * 5000}
    wide = fractions.Fraction(10**5000, 3)
    assert back(wide) == wide


def test_members_of_an_enum_come_back_as_their_value():
    assert wire(Color.RED) == {"$": "enum", "name": "Color.RED", "v": "r"}
    assert wire(Level.HIGH) == {"$": "enum", "name": "Level.HIGH", "v": 3}
    assert wire(Word.A) == {"$": "enum", "name": "Word.A", "v": "a"}
    assert wire(Right.READ | Right.WRITE)["v"] == 3
    assert (back(Color.RED), back(Level.HIGH), back({Word.A: 1})) == ("r", 3, {"a": 1})


def test_subclasses_are_what_they_are_made_of():
    moved = collections.OrderedDict(a=1, b=2)
    moved.move_to_end("a")
    assert list(wire(moved)) == ["b", "a"]
    assert wire(collections.defaultdict(list, a=[1])) == {"a": [1]}
    assert wire(collections.Counter("aa")) == {"a": 2}
    assert type(encode(Text("x"))) is str
    assert type(encode(Whole(3))) is int
    assert wire({Text("x"): Whole(3)}) == {"x": 3}


def test_a_dataclass_comes_back_as_its_fields():
    assert wire(Point(1, (2,))) == {"$": "dataclass", "name": "Point", "v": {"x": 1, "y": {"$": "tuple", "v": [2]}}}
    found = back(Point(1, "a"))
    assert (found.x, found.y, found._name, found._asdict()) == (1, "a", "Point", {"x": 1, "y": "a"})
    assert repr(found) == "Point(x=1, y='a')"
    assert found == back(Point(1, "a")) != back(Point(2, "a"))
    assert found != {"x": 1, "y": "a"}
    assert wire(found) == wire(Point(1, "a"))
    assert back({Frozen(1): 2}) == {Fields("Frozen", {"x": 1}): 2}


def test_fields_can_only_be_read():
    found = Fields("Point", {"x": 1})
    with pytest.raises(AttributeError):
        found.x = 2
    with pytest.raises(AttributeError):
        del found.x
    with pytest.raises(AttributeError):
        _ = found.z
    assert dir(found) == sorted(["_asdict", "_name", "x"])
    assert copy.deepcopy(found) == pickle.loads(pickle.dumps(found)) == copy.copy(found) == found


def test_names_that_mean_something_to_python_are_no_attributes():
    found = decode(
        {"$": "dataclass", "name": "A", "v": {"__array__": 1, "__class__": 2, "_name": 3, "_values": 4, "_x": 5}}
    )
    assert type(found) is Fields and found.__class__ is Fields
    assert not hasattr(found, "__array__")
    assert (found._name, found._x, found._asdict()["__array__"]) == ("A", 5, 1)


def test_a_named_tuple_is_one_and_its_type_is_kept():
    first, second = back(P(1, 2)), back(P(3, 4))
    assert (first.x, first.y, first._fields) == (1, 2, ("x", "y"))
    assert type(first) is type(second)
    assert repr(first) == "P(x=1, y=2)"


@pytest.mark.parametrize("name", ["class", "a b", "", "_x", "x" * 101, "é", "__init__", "x)\nimport os\n("])
def test_a_named_tuple_that_python_cannot_have_comes_back_as_fields(name):
    found = decode({"$": "namedtuple", "name": "A", "v": {name: 1}})
    assert type(found) is Fields and found._asdict() == {name: 1}


def test_errors():
    assert wire(ValueError("no")) == {"$": "error", "type": "ValueError", "message": "no"}
    found = back(ValueError("no"))
    assert type(found) is ValueError and str(found) == "no"
    own = type("Own", (Exception,), {})("why")
    assert repr(back(own)) == repr(RuntimeError("Own: why"))
    assert repr(back(KeyboardInterrupt("x"))) == repr(RuntimeError("KeyboardInterrupt: x"))
    assert wire(ValueError("\ud800"))["message"] == "\\ud800"


def test_exception_of():
    assert repr(exception_of("KeyError", "x")) == repr(KeyError("x"))
    assert repr(exception_of("IOError", "x")) == repr(OSError("x"))
    for name in ("UnicodeDecodeError", "SystemExit", "BaseException", "StopIteration", "open", "Nope", "", "__doc__"):
        assert exception_of(name, "x") is None
    assert exception_of("ExceptionGroup", "x") is None


def test_what_was_only_shown():
    found = decode({"$": "repr", "type": "module", "v": "<module 'os'>"})
    assert type(found) is Repr and found == "<module 'os'>" and found.type == "module"
    assert repr([found]) == "[<module 'os'>]"
    assert pickle.loads(pickle.dumps(found)).type == "module"
    assert wire(found) == "<module 'os'>"


def test_what_was_cut():
    found = decode({"$": "cut", "why": "depth", "v": "[...]"})
    assert type(found) is Cut and found == "[...]" and found.why == "depth"
    assert copy.copy(found).why == "depth"


def test_undefined_is_none():
    assert decode([{"$": "undefined"}]) == [None]


def test_values_of_javascript():
    assert decode({"$": "datetime", "v": "2024-01-01T00:00:00.000Z"}) == datetime.datetime(2024, 1, 1, tzinfo=UTC)
    assert decode({"$": "datetime", "v": "2024-01-01T00:00:00.1"}) == datetime.datetime(2024, 1, 1, 0, 0, 0, 100_000)
    assert decode({"$": "dict", "v": [[[1, [2]], "a"], [{"b": 1}, "c"]]}) == {(1, (2,)): "a", (("b", 1),): "c"}
    assert decode({"$": "set", "v": [[1], {"$": "set", "v": [2]}]}) == {(1,), frozenset([2])}


def test_nothing_is_lost_where_keys_fall_together():
    for plain in (
        {"$": "set", "v": [1, True]},
        {"$": "dict", "v": [[1, "a"], [1.0, "b"]]},
        {"$": "set", "v": [[1], [1]]},
    ):
        assert decode(plain) is plain


# Refused.

CIRCLE: list = []
CIRCLE.append({"a": CIRCLE})
NOT_DATA = [
    (types, "value: a module is not data; import it in the guest's own code"),
    ({"x": [1, 2, types]}, "value['x'][2]: a module is not data; import it in the guest's own code"),
    ([Point], "value[0]: a class is not data; define it in the guest's own code"),
    (lambda: 1, "value: a function is not data; offer it as a tool"),
    (len, "value: a function is not data; offer it as a tool"),
    ([].append, "value: a function is not data; offer it as a tool"),
    ((x for x in ()), "value: a generator is not data; pass list(...) of it"),
    (range(3), "value: a range is not data; pass list(...) of it"),
    ({}.keys(), "value: a dict_keys is not data; pass list(...) of it"),
    (types.MappingProxyType({}), "value: a mappingproxy is not data; pass dict(...) of it"),
    (sys.__stdin__, "value: a TextIOWrapper is not data; pass its content or its path"),
    (object(), "value: an object is not data; pass a dict, a list or another plain value in its place"),
    (
        (1, threading.Event()),
        "value[1]: an Event is not data; pass a dict, a list or another plain value in its place",
    ),
    ({len}, "value{...}: a function is not data; offer it as a tool"),
    ({len: 1}, "value.keys()[0]: a function is not data; offer it as a tool"),
    ({(1, 2): {5: len}}, "value[<tuple>][5]: a function is not data; offer it as a tool"),
    (P(1, len), "value.y: a function is not data; offer it as a tool"),
    (Point(1, [len]), "value.y[0]: a function is not data; offer it as a tool"),
    (
        enum.Enum("E", {"A": object()}).A,
        "value.value: an object is not data; pass a dict, a list or another plain value in its place",
    ),
    (Fields("A", {"x": len}), "value.x: a function is not data; offer it as a tool"),
]


@pytest.mark.parametrize("thing, message", NOT_DATA, ids=[str(number) for number in range(len(NOT_DATA))])
def test_what_is_not_data_is_a_type_error_that_names_the_place(thing, message):
    with pytest.raises(TypeError) as caught:
        encode(thing)
    assert str(caught.value) == message
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_coroutine_is_not_data():
    async def later():
        pass

    thing = later()
    with pytest.raises(TypeError, match="a coroutine is not data; pass what it gives when awaited"):
        encode(thing)
    thing.close()


def test_the_message_begins_with_what_it_was_for():
    with pytest.raises(TypeError, match=r"^globals\['x'\]\[2\]: a module is not data"):
        encode({"x": [1, 2, types]}, "globals")


def test_what_contains_itself_is_refused():
    with pytest.raises(ValueError, match=r"^value\[0\]\['a'\]: it contains itself$"):
        encode(CIRCLE)
    point = Point(1)
    point.y = point
    with pytest.raises(ValueError, match=r"^value\.y: it contains itself$"):
        encode(point)


def test_a_set_that_has_no_order_goes_both_ways():
    assert back({1, "a", (2,)}) == {1, "a", (2,)}


def test_the_same_thing_twice_is_no_circle():
    twice = [1]
    assert encode([twice, twice, {"a": twice}]) == [[1], [1], {"a": [1]}]


def test_what_is_too_deep_is_refused():
    assert back(nest(1, 100)) == nest(1, 100)
    with pytest.raises(ValueError, match=r"^it.*\.\.\..*: it is nested too deeply to be sent$") as caught:
        encode(nest(1, 101), "it")
    assert len(str(caught.value)) < 400
    assert back(nest(1, 80, lambda thing: (thing,))) == nest(1, 80, lambda thing: (thing,))
    for wrap in (lambda thing: (thing,), lambda thing: {1: thing}, lambda thing: {"$": thing}):
        with pytest.raises(ValueError, match="nested too deeply"):
            encode(nest(1, 100, wrap))
    with pytest.raises(ValueError, match="nested too deeply"):
        encode(nest(1, 100_000))


def test_what_is_let_through_is_not_too_deep_for_the_engine():
    for wrap in (
        lambda t: [t],
        lambda t: (t,),
        lambda t: {1: t},
        lambda t: P(1, t),
        lambda t: Point(1, t),
        lambda t: {"a": t},
    ):
        deepest = 0
        for levels in range(1, 101):
            try:
                text = json.dumps(encode(nest(2**70, levels, wrap)))
            except ValueError:
                break
            open_now = 0
            for character in text:
                open_now += (character in "[{") - (character in "]}")
                deepest = max(deepest, open_now)
        assert 90 < deepest <= 182


@pytest.mark.parametrize(
    "thing, place",
    [
        ("a\ud800", "value"),
        ({"a\ud800": 1}, r"value\.keys\(\)\[0\]"),
        ([pathlib.PurePosixPath("\udcff")], r"value\[0\]"),
    ],
)
def test_half_a_character_is_refused(thing, place):
    with pytest.raises(
        ValueError, match="^" + place + r": the text holds '\\ud[8c][0f][0f]', which UTF-8 cannot say; pass bytes$"
    ):
        encode(thing)


def test_a_number_that_is_too_long_is_refused():
    for thing in (1 << 400_000, decimal.Decimal("1" * 100_001), fractions.Fraction(1 << 100_000)):
        with pytest.raises(ValueError, match=r"^value\[0\]: a number of more than 100?_?000?0? digits is too long$"):
            encode([thing])


def test_a_long_key_is_shown_in_short():
    with pytest.raises(TypeError) as caught:
        encode({"k" * 1000: {2**100: len}})
    assert len(str(caught.value)) < 200


# Hostile.

LONG = "9" * 10_000_000
MALFORMED = [
    {"$": None},
    {"$": 1},
    {"$": []},
    {"$": {}},
    {"$": "nope"},
    {"$": "int"},
    {"$": "int", "v": 5},
    {"$": "int", "v": ""},
    {"$": "int", "v": "-"},
    {"$": "int", "v": "1_0"},
    {"$": "int", "v": " 1"},
    {"$": "int", "v": "٣"},
    {"$": "int", "v": "0x10"},
    {"$": "float", "v": "1"},
    {"$": "float", "v": "NaN"},
    {"$": "float", "v": []},
    {"$": "complex", "v": [1]},
    {"$": "complex", "v": [1, "2"]},
    {"$": "complex", "v": [True, 1]},
    {"$": "complex", "v": [10**400, 1]},
    {"$": "bytes", "v": "A"},
    {"$": "bytes", "v": "AA=="[:3]},
    {"$": "bytes", "v": "A\nA=="},
    {"$": "bytes", "v": "é"},
    {"$": "bytes", "v": "AB=="},
    {"$": "tuple", "v": "ab"},
    {"$": "tuple", "v": {}},
    {"$": "namedtuple", "v": {}},
    {"$": "namedtuple", "name": 1, "v": {}},
    {"$": "namedtuple", "name": "A", "v": []},
    {"$": "dataclass", "name": "A", "v": []},
    {"$": "set", "v": [{"$": "dataclass", "name": "A", "v": {"x": [1]}}]},
    {"$": "frozenset", "v": None},
    {"$": "dict", "v": [[1]]},
    {"$": "dict", "v": [1]},
    {"$": "dict", "v": [[1, 2, 3]]},
    {"$": "dict", "v": {"a": 1}},
    {"$": "datetime", "v": "tomorrow"},
    {"$": "datetime", "v": "2024-13-01T00:00:00"},
    {"$": "datetime", "v": "2024-01-01T00:00:00+99:00"},
    {"$": "datetime", "v": "+010000-01-01T00:00:00.000Z"},
    {"$": "datetime", "v": 5},
    {"$": "datetime", "v": "2" * 10_000_000},
    {"$": "date", "v": "2024-01-01T00:00:00"},
    {"$": "time", "v": "25:00:00"},
    {"$": "timedelta", "v": [1, 2]},
    {"$": "timedelta", "v": [1, 2, 3, 4]},
    {"$": "timedelta", "v": [1.5, 2, 3]},
    {"$": "timedelta", "v": [10**3000, 0, 0]},
    {"$": "decimal", "v": "one"},
    {"$": "decimal", "v": "1E99999999999999999999999"},
    {"$": "decimal", "v": 1},
    {"$": "fraction", "v": "1/0"},
    {"$": "fraction", "v": "1E999999999"},
    {"$": "fraction", "v": "1.5"},
    {"$": "fraction", "v": "1/2/3"},
    {"$": "fraction", "v": ""},
    {"$": "uuid", "v": "x"},
    {"$": "uuid", "v": "{00000000-0000-0000-0000-000000000005}"},
    {"$": "path", "v": 1},
    {"$": "enum"},
    {"$": "error", "type": "ValueError"},
    {"$": "error", "type": [], "message": "x"},
    {"$": "repr", "v": "x"},
    {"$": "cut", "why": 1, "v": "x"},
    {"$": "scalar", "dtype": "int64", "v": "5"},
    {"$": "scalar", "dtype": "int64", "v": [1, 2]},
    {"$": "scalar", "dtype": "int8", "v": 300},
    {"$": "scalar", "dtype": "int8", "v": -129},
    {"$": "scalar", "dtype": "uint8", "v": -1},
    {"$": "scalar", "dtype": "object", "v": 1},
    {"$": "scalar", "dtype": "O", "v": 1},
    {"$": "scalar", "dtype": "datetime64[s]", "v": "now"},
    {"$": "scalar", "dtype": "datetime64[s]", "v": "2024-01-01T00:00Z"},
    {"$": "scalar", "dtype": "bool", "v": 1},
    {"$": "scalar", "dtype": "float64", "v": None},
    {"$": "series", "name": None, "index": [1], "v": []},
    {"$": "series", "name": None, "index": "a", "v": ["x"]},
    {"$": "dataframe", "columns": ["a"], "index": [0], "v": [[1, 2]]},
    {"$": "dataframe", "columns": ["a"], "index": [0, 1], "v": [[1]]},
    {"$": "dataframe", "columns": ["a"], "index": [0], "v": ["x"]},
    {"$": "dataframe", "columns": 5, "index": [], "v": []},
    {"$": "dataframe", "columns": list(range(10_001)), "index": [0], "v": [[0] * 10_001]},
] + [
    {"$": "ndarray", "dtype": dtype, "shape": shape, "v": v}
    for dtype, shape, v in [
        ("O", [1], "AAAAAAAAAAA="),
        ("object", [1], "AAAAAAAAAAA="),
        ("i4,O", [1], "AAAAAAAAAAA="),
        ("void8", [1], "AAAAAAAAAAA="),
        ("V8", [1], "AAAAAAAAAAA="),
        ("<i8", [1], "AAAAAAAAAAA="),
        ("int64\n", [1], "AAAAAAAAAAA="),
        ("float128", [1], "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("datetime64[x]", [1], "AAAAAAAAAAA="),
        ("int64", [2], "AAAAAAAAAAA="),
        ("int64", [], ""),
        ("int64", [10**18], ""),
        ("int64", [10**30], ""),
        ("int64", [-1, -1], "AAAAAAAAAAA="),
        ("int64", [True], "AAAAAAAAAAA="),
        ("int64", [1.0], "AAAAAAAAAAA="),
        ("int64", ["1"], "AAAAAAAAAAA="),
        ("int64", [1] * 100, "AAAAAAAAAAA="),
        ("int64", 1, "AAAAAAAAAAA="),
        ("int64", [1], "AAAAAAAAAA"),
        ("int64", [1], None),
        ("U0", [10**15], ""),
        ("S0", [10**15], ""),
        ("U999999999", [1], ""),
        ("U1", [1], "/////w=="),
        (5, [1], "AAAAAAAAAAA="),
    ]
]


@pytest.mark.parametrize("plain", MALFORMED, ids=[str(number) for number in range(len(MALFORMED))])
def test_what_is_malformed_comes_back_as_it_came(plain):
    before = copy.deepcopy(plain)
    assert quick(lambda: decode(plain)) is plain
    assert plain == before
    assert decode([plain, (1)])[0] is plain


def test_what_is_malformed_leaves_the_rest_alone():
    assert decode([{"$": "nope", "v": {"$": "tuple", "v": []}}, {"$": "tuple", "v": [{"$": "int"}]}]) == [
        {"$": "nope", "v": {"$": "tuple", "v": []}},
        ({"$": "int"},),
    ]


@pytest.mark.parametrize(
    "kind, text", [("int", LONG), ("int", "-" + LONG), ("decimal", LONG), ("fraction", LONG + "/" + LONG)]
)
def test_a_number_of_ten_million_digits_is_its_text(kind, text):
    found = quick(lambda: decode({"$": kind, "v": text}))
    assert type(found) is Cut and found == text and found.why == "size"


def test_many_long_numbers_do_not_take_long():
    ints = [{"$": "int", "v": "7" * 100_000}] * 500
    found = quick(lambda: decode(ints))
    assert type(found[0]) is int and type(found[-1]) is Cut
    parts = [{"$": "fraction", "v": "7" * 10_000 + "/" + "3" * 9_999 + "1"}] * 3000
    found = quick(lambda: decode(parts))
    assert type(found[0]) is fractions.Fraction and type(found[-1]) is Cut
    short = [{"$": "int", "v": "7" * 999}] * 10_000
    assert type(quick(lambda: decode(short))[-1]) is int


def test_absurd_decimals_are_decimals():
    found = quick(
        lambda: decode({"$": "set", "v": [{"$": "decimal", "v": "1E999999999"}, {"$": "fraction", "v": "1/3"}, 1]})
    )
    assert len(found) == 3
    with decimal.localcontext() as context:
        context.traps[decimal.InvalidOperation] = False
        plain = {"$": "decimal", "v": "one"}
        assert decode(plain) is plain
    snan = {"$": "set", "v": [{"$": "decimal", "v": "sNaN"}]}
    assert decode(snan) is snan


def test_numbers_that_all_have_one_hash_are_no_set():
    prime = 2**61 - 1
    many = [{"$": "int", "v": str(prime * number)} for number in range(1, 100_000)]
    for plain in (
        {"$": "set", "v": many},
        {"$": "dict", "v": [[key, 1] for key in many]},
        {"$": "set", "v": [[key] for key in many]},
    ):
        assert quick(lambda plain=plain: decode(plain), 10) is plain
    assert len(decode({"$": "set", "v": list(range(1000))})) == 1000


def test_keys_in_keys_are_bounded():
    inner = list(range(100_000))
    for _ in range(50):
        inner = {"$": "dict", "v": [[inner, 1]]}
    quick(lambda: decode(inner))


def test_depth_without_end_neither_raises_nor_is_lost():
    for wrap in (
        lambda t: [t],
        lambda t: {"a": t},
        lambda t: {"$": "tuple", "v": [t]},
        lambda t: {"$": "enum", "v": t},
    ):
        decode(nest(1, 100_000, wrap))
    assert decode(nest(1, 150)) == nest(1, 150)
    assert decode(nest({"$": "int", "v": "5"}, 500)) == nest({"$": "int", "v": "5"}, 500)


def test_a_caller_with_little_stack_left_gets_the_plain_data():
    plain = [nest(1, 180, lambda t: {"$": "tuple", "v": [t]})] * 20

    def deep(left):
        return deep(left - 1) if left else decode(plain)

    for left in range(0, sys.getrecursionlimit() - 150, 50):
        deep(left)


def test_types_of_named_tuples_are_bounded():
    many = [{"$": "namedtuple", "name": f"A{number}", "v": {"x": number}} for number in range(20_000)]
    found = quick(lambda: decode(many))
    assert [thing.x for thing in found] == list(range(20_000))
    assert isinstance(found[0], tuple) and type(found[-1]) is Fields
    for number in range(1000):
        decode({"$": "namedtuple", "name": f"B{number}", "v": {"x": 1}})
    assert _values._tuple_type.cache_info().currsize <= 256
    wide = {"$": "namedtuple", "name": "A", "v": {f"x{number}": 1 for number in range(100_000)}}
    assert type(quick(lambda: decode(wide))) is Fields


TAGS = [*_values._KINDS, "nope", "", "$", None, 1]
TEXTS = [
    "", "a", "x", "$", "v", "nan", "-inf", "1", "-5", "1/3", "1E999999999", "AAAAAAAAAAA=", "AAA=", "2024-01-01",
    "2024-01-01T00:00:00Z", "12:30", "00000000-0000-0000-0000-000000000005", "int64", "uint8", "bool", "U1", "S2",
    "O", "float16", "datetime64[ns]", "timedelta64[D]", "complex64", "NaT", "ValueError", "UnicodeDecodeError",
    "SystemExit", "class", "__class__", "size", "\ud800", "\0", "é", "9" * 5000,
]  # fmt: skip
NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    2**31,
    2**63,
    -(2**64),
    10**30,
    10**400,
    0.0,
    -0.0,
    1.5,
    1e308,
    math.inf,
    math.nan,
    True,
    False,
    None,
]
KEYS = ["v", "v", "v", "name", "dtype", "shape", "index", "columns", "type", "message", "why", "x", "$"]


def some_json(random_, depth):
    choice = random_.random()
    if depth <= 0 or choice < 0.25:
        return random_.choice(TEXTS) if random_.random() < 0.5 else random_.choice(NUMBERS)
    if choice < 0.5:
        return [some_json(random_, depth - 1) for _ in range(random_.randrange(4))]
    made = {random_.choice(KEYS): some_json(random_, depth - 1) for _ in range(random_.randrange(5))}
    if choice < 0.9:
        made["$"] = random_.choice(TAGS)
    return made


def mutated(random_, plain):
    """A value that is nearly right."""
    if random_.random() < 0.1:
        return some_json(random_, 2)
    if isinstance(plain, list):
        return [mutated(random_, item) for item in plain if random_.random() > 0.05]
    if isinstance(plain, dict):
        return {key: mutated(random_, item) for key, item in plain.items() if random_.random() > 0.03}
    return plain


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bare", [False, True])
def test_no_json_makes_it_raise(bare, without):
    if bare:
        without("numpy", "pandas")
    random_ = random.Random(1)
    whole = [plain for _, plain in ROWS] + [
        {"$": "ndarray", "dtype": "int64", "shape": [1, 1], "v": "AAAAAAAAAAA="},
        {"$": "scalar", "dtype": "datetime64[s]", "v": "2024-01-01"},
        {"$": "scalar", "dtype": "float64", "v": 1.5},
        {"$": "series", "name": "n", "index": [1, 2], "v": [1, {"$": "float", "v": "nan"}]},
        {"$": "dataframe", "columns": ["a", "b"], "index": [0, 1], "v": [[1, "x"], [2, None]]},
        {"$": "dataframe", "columns": [{"$": "tuple", "v": [1, 2]}], "index": [{"$": "tuple", "v": ["a"]}], "v": [[1]]},
    ]
    start = time.monotonic()
    for _ in range(15_000):
        decode(some_json(random_, 5))
    for _ in range(100):
        for plain in whole:
            decode([mutated(random_, plain)])
            decode({"$": "set", "v": [mutated(random_, plain), plain]})
    assert time.monotonic() - start < 60


def test_nothing_is_imported_and_the_import_is_cheap():
    code = (
        "import sys, importlib.util as u\n"
        "spec = u.spec_from_file_location('_values', sys.argv[1])\n"
        "module = u.module_from_spec(spec); sys.modules['_values'] = module; spec.loader.exec_module(module)\n"
        "module.encode({'a': [1, (2.5, b'x')]}); module.decode({'a': [{'$': 'tuple', 'v': ['json', 'xml']}]})\n"
        "print(*set(sys.modules) & {'datetime', 'decimal', 'fractions', 'uuid', 'numpy', 'pandas', 'json', 'xml'})"
    )
    command = [sys.executable, "-IBS", "-c", code, _values.__file__]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert out.split() == []


# The guest's own code for the same data.

GUEST = pathlib.Path(__file__).resolve().parents[3] / "guest" / "python"
LIMITS = {"value_bytes": 1 << 20, "depth": 60}


class Guest(types.ModuleType):
    """The modules of the runner, as guest/python/__main__.py loads them."""

    def __init__(self):
        super().__init__("guest")
        self.builtins = dict(vars(builtins))
        self.directory = str(GUEST)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        module = types.ModuleType(name)
        module.belljar = self
        exec(compile((GUEST / (name + ".py")).read_text(), name, "exec", dont_inherit=True), module.__dict__)
        setattr(self, name, module)
        return module


@pytest.mark.skipif(not GUEST.is_dir(), reason="only the source tree has the guest's side")
def test_both_sides_agree():
    guest = Guest()
    numpy = sys.modules.get("numpy")
    things = [thing for thing, _ in ROWS] + [Color.RED, Level.HIGH, Point(1, [2]), ValueError("x"), math.nan, 10**9000]
    things += [*arrays(numpy), numpy.float32(1.5), numpy.datetime64("2024-01-01")] if numpy else []
    for thing in things:
        plain = guest.encode.value(thing, LIMITS)
        assert encode(thing) == plain
        if type(thing) is not Point:  # the guest gives a dict
            assert json.dumps(encode(decode(plain))) == json.dumps(encode(guest.decode.value(plain)))
    assert decode(guest.encode.value(types, LIMITS)).type == "module"
    assert decode(guest.encode.value(CIRCLE, LIMITS))[0]["a"].why == "cycle"


# numpy and pandas.


@pytest.fixture
def numpy():
    return pytest.importorskip("numpy")


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas")


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


def test_arrays_go_both_ways(numpy):
    for array in arrays(numpy):
        found = back(array)
        assert type(found) is numpy.ndarray and found.shape == array.shape
        assert found.dtype == array.dtype.newbyteorder("=")
        numpy.testing.assert_array_equal(found, array)
        assert found.flags.writeable
    assert wire(numpy.array([1, 2], ">i2")) == {"$": "ndarray", "dtype": "int16", "shape": [2], "v": "AQACAA=="}


def test_arrays_without_numpy_are_lists(numpy, without):
    made = [(wire(array), array) for array in arrays(numpy)]
    without("numpy")
    for plain, array in made:
        found = decode(plain)
        if array.dtype.kind in "Mm":
            assert found is plain
        else:
            assert found == array.tolist()
    many = {"$": "ndarray", "dtype": "int8", "shape": [10**12, 0], "v": ""}
    assert quick(lambda: decode(many)) is many


def test_bytes_that_are_no_bools_become_bools(numpy):
    found = decode({"$": "ndarray", "dtype": "bool", "shape": [3], "v": "AAL/"})
    assert found.tolist() == [False, True, True] and found.view("u1").tolist() == [0, 1, 1]


def test_scalars_go_both_ways(numpy, without):
    things = [
        numpy.int8(-5), numpy.uint64(2**64 - 1), numpy.float32(1.5), numpy.float64(2), numpy.bool_(True),
        numpy.complex64(1j), numpy.datetime64("2024-01-01"), numpy.datetime64("2024-01-01T00:00:00.5", "ms"),
        numpy.timedelta64(5, "s"), numpy.str_("ab"), numpy.str_(""), numpy.bytes_(b"x"), numpy.float64("inf"),
    ]  # fmt: skip
    for thing in things:
        found = back(thing)
        assert type(found) is type(thing) and found.dtype == thing.dtype and found == thing
    assert numpy.isnat(back(numpy.timedelta64("NaT", "s"))) and numpy.isnat(back(numpy.datetime64("NaT", "s")))
    assert wire(numpy.int8(-5)) == {"$": "scalar", "dtype": "int8", "v": -5}
    wide = {"$": "scalar", "dtype": "U999999999", "v": "a"}
    assert quick(lambda: decode(wide)) == "a"
    without("numpy")
    assert decode({"$": "scalar", "dtype": "int8", "v": -5}) == -5


def test_arrays_that_are_not_data(numpy):
    with pytest.raises(
        TypeError, match=r"^value\[0\]: an array of type object is not data; pass what its .tolist\(\) gives$"
    ):
        encode([numpy.array([{}], object)])
    with pytest.raises(TypeError, match=r"a masked array is not data; pass what its .filled\(\) gives"):
        encode(numpy.ma.array([1], mask=[True]))
    with pytest.raises(TypeError, match="is not data"):
        encode(numpy.zeros(1, "i4,f8"))
    if numpy.dtype("longdouble").itemsize > 8:
        with pytest.raises(TypeError, match="a numpy scalar of type .* is not data"):
            encode(numpy.longdouble(1))


def test_series_go_both_ways(pandas):
    for series in (
        pandas.Series([1, 2], name="n"),
        pandas.Series([1.5, None], index=["a", "b"]),
        pandas.Series(["x", "y"], index=pandas.MultiIndex.from_tuples([(1, "a"), (2, "b")])),
        pandas.Series([pandas.Timestamp("2024-01-01", tz="UTC")]),
        pandas.Series([[1], {"a": 2}]),
    ):
        found = back(series)
        assert found.tolist() == series.tolist() or series.isna().any()
        assert found.index.tolist() == series.index.tolist() and found.name == series.name
    assert wire(pandas.Series([1, 2], name="n")) == {"$": "series", "name": "n", "index": [0, 1], "v": [1, 2]}
    assert wire([pandas.NA, pandas.NaT, pandas.Timedelta("NaT"), pandas.Timedelta(1, "s")])[:3] == [None] * 3
    with pytest.raises(TypeError, match=r"^value.index\[0\]: a Period is not data"):
        encode(pandas.Series([1], index=pandas.period_range("2024", periods=1, freq="D")))


def test_dataframes_go_both_ways(pandas):
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", None]}, index=["r", "s"])
    plain = wire(frame)
    assert plain["columns"] == ["a", "b"] and plain["index"] == ["r", "s"] and plain["v"][0] == [1, "x"]
    pandas.testing.assert_frame_equal(back(frame), frame)
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    pandas.testing.assert_frame_equal(back(twice), twice, check_index_type=False)
    assert back(pandas.DataFrame(index=[1, 2])).shape == (2, 0)
    assert back(pandas.DataFrame(columns=["a"])).shape == (0, 1)
    with pytest.raises(TypeError, match=r"^value\['a'\]\[1\]: a function is not data"):
        encode(pandas.DataFrame({"a": [1, len]}))


def test_tables_without_pandas_are_dicts(without):
    without("pandas")
    assert decode({"$": "series", "name": None, "index": ["a", "b"], "v": [1, 2]}) == {"a": 1, "b": 2}
    frame = {"$": "dataframe", "columns": ["a", "b"], "index": [0, 1], "v": [[1, 2], [3, 4]]}
    assert decode(frame) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    for plain in (
        {"$": "series", "name": None, "index": ["a", "a"], "v": [1, 2]},
        {"$": "dataframe", "columns": ["a", "a"], "index": [0], "v": [[1, 2]]},
    ):
        assert decode(plain) is plain


def test_labels_of_unequal_length_do_not_fill_a_table(pandas):
    wide = [{"$": "tuple", "v": list(range(20_000))}] + [{"$": "tuple", "v": [number]} for number in range(20_000)]
    plain = {"$": "series", "name": None, "index": wide, "v": [0] * len(wide)}
    assert quick(lambda: decode(plain)).shape == (20_001,)
    inner = [[["x", "9" * 50_000]], [["x", "y"]]]
    plain = {"$": "series", "name": None, "index": inner, "v": [0, 1]}
    assert quick(lambda: decode(plain)).index.nlevels == 1
    columns = list(range(10_000))
    frame = {"$": "dataframe", "columns": columns, "index": [0], "v": [columns]}
    assert quick(lambda: decode(frame), 10).shape == (1, 10_000)


def test_many_tables_do_not_take_long(pandas):
    frame = {"$": "dataframe", "columns": ["a"], "index": [0], "v": [[1]]}
    series = {"$": "series", "name": None, "index": [0], "v": [1]}
    found = quick(lambda: decode([frame, series] * 50_000), 10)
    assert type(found[0]) is pandas.DataFrame and type(found[1]) is pandas.Series
    assert found[-2:] == [frame, series]
