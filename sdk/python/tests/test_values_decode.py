"""What may come from a guest that means harm."""

import copy
import decimal
import fractions
import math
import random
import sys
import time

import pytest
from plain import ROWS, nest, quick

from belljar._values import Cut, Fields, decode, decoder, reading

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
    assert reading.tuple_type.cache_info().currsize <= 256
    wide = {"$": "namedtuple", "name": "A", "v": {f"x{number}": 1 for number in range(100_000)}}
    assert type(quick(lambda: decode(wide))) is Fields


TAGS = [*decoder._KINDS, "nope", "", "$", None, 1]
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
