"""What goes to a guest and comes back."""

import builtins
import collections
import copy
import datetime
import decimal
import fractions
import json
import math
import pathlib
import pickle
import subprocess
import sys
import types

import pytest
from plain import (
    CIRCLE,
    ROWS,
    UTC,
    Color,
    Frozen,
    Level,
    P,
    Point,
    Right,
    Text,
    Whole,
    Word,
    arrays,
    back,
    wire,
)

from belljar import _values
from belljar._values import Cut, Fields, Repr, decode, encode, exception_of


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


def test_nothing_is_imported_and_the_import_is_cheap():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from belljar import _values as module\n"
        "module.encode({'a': [1, (2.5, b'x')]}); module.decode({'a': [{'$': 'tuple', 'v': ['json', 'xml']}]})\n"
        "print(*set(sys.modules) & {'datetime', 'decimal', 'fractions', 'uuid', 'numpy', 'pandas', 'json', 'xml'})"
    )
    command = [sys.executable, "-IBS", "-c", code, str(pathlib.Path(_values.__file__).parents[2])]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert out.split() == []


# The guest's own code for the same data.

GUEST = pathlib.Path(__file__).resolve().parents[3] / "guest" / "python"
LIMITS = {"value_bytes": 1 << 20, "values": 400_000, "depth": 60}


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
    try:
        import numpy
    except ImportError:
        numpy = None
    things = [thing for thing, _ in ROWS] + [Color.RED, Level.HIGH, Point(1, [2]), ValueError("x"), math.nan, 10**9000]
    things += [*arrays(numpy), numpy.float32(1.5), numpy.datetime64("2024-01-01")] if numpy else []
    for thing in things:
        plain = guest.encode.value(thing, LIMITS)
        assert encode(thing) == plain
        if type(thing) is not Point:  # the guest gives a dict
            assert json.dumps(encode(decode(plain))) == json.dumps(encode(guest.decode.value(plain)))
    assert decode(guest.encode.value(types, LIMITS)).type == "module"
    assert decode(guest.encode.value(CIRCLE, LIMITS))[0]["a"].why == "cycle"
