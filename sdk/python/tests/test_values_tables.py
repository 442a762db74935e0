"""Arrays and tables, with numpy and pandas and without."""

import pytest
from plain import arrays, back, quick, wire

from belljar._values import decode, encode


@pytest.fixture
def numpy():
    return pytest.importorskip("numpy")


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas")


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
