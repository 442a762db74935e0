"""What does not go to a guest."""

import decimal
import enum
import fractions
import json
import pathlib
import sys
import threading
import types

import pytest
from plain import CIRCLE, P, Point, back, nest

from belljar._values import Fields, encode

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
