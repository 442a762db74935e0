"""Arrays of numpy and tables of pandas as plain data, and back. Loaded when the guest has such a thing."""

import sys

_KINDS = "biufcmMSU"


def dtype_name(dtype):
    """A name that numpy reads back and people can read: `float64`, `datetime64[ns]`, `U3`."""
    if dtype.kind in "SU":
        return "%s%d" % (dtype.kind, dtype.itemsize // (4 if dtype.kind == "U" else 1))
    return dtype.name


def scalar(encoder, thing):
    dtype = thing.dtype
    if dtype.kind not in _KINDS or dtype.name in ("longdouble", "float128", "complex256", "clongdouble"):
        return encoder.other(thing)
    encoder._spend(40)
    if dtype.kind == "M":
        value = str(thing)
    elif dtype.kind == "m":
        value = None if thing != thing else int(thing.astype("int64"))
    else:
        value = encoder.one(thing.item(), 0, 0)
    return {"$": "scalar", "dtype": dtype_name(dtype), "v": value}


def array(encoder, thing):
    numpy = sys.modules["numpy"]
    dtype = thing.dtype
    if dtype.kind not in _KINDS or dtype.itemsize > 16 and dtype.kind not in "SU" or dtype.name in ("float128", "longdouble"):
        return encoder.other(thing)
    encoder._spend(thing.nbytes * 4 // 3 + 60)
    masked = getattr(numpy.ma, "MaskedArray", None) if "numpy.ma" in sys.modules else None
    if masked is not None and issubclass(type(thing), masked):
        return encoder.other(thing)
    plain = numpy.ascontiguousarray(thing, dtype=dtype.newbyteorder("<")).tobytes()
    return {"$": "ndarray", "dtype": dtype_name(dtype), "shape": list(thing.shape), "v": belljar.encode.base64(plain)}


def series(encoder, thing, depth, nesting):
    encoder._spend(len(thing) * 4 + 40)
    return {
        "$": "series",
        "name": encoder.one(thing.name, depth, nesting + 1),
        "index": encoder.items(thing.index.tolist(), depth, nesting + 2),
        "v": encoder.items(thing.tolist(), depth, nesting + 2),
    }


def dataframe(encoder, thing, depth, nesting):
    rows, columns = thing.shape
    encoder._spend(rows * (columns + 2) * 2 + 60)
    plain = [encoder.items(thing.iloc[:, number].tolist(), depth, nesting + 3) for number in range(columns)]
    return {
        "$": "dataframe",
        "columns": encoder.items(thing.columns.tolist(), depth, nesting + 2),
        "index": encoder.items(thing.index.tolist(), depth, nesting + 2),
        "v": [list(row) for row in zip(*plain)] if columns else [[] for _ in range(rows)],
    }


def decode_array(plain, octets):
    try:
        import numpy
    except ImportError:
        return {"dtype": plain["dtype"], "shape": plain["shape"], "data": octets}
    dtype = numpy.dtype(plain["dtype"])
    return numpy.frombuffer(octets, dtype.newbyteorder("<")).reshape(plain["shape"]).astype(dtype)


def decode_scalar(plain, value):
    try:
        import numpy
    except ImportError:
        return value
    dtype = numpy.dtype(plain["dtype"])
    if value is None and dtype.kind == "m":
        value = "NaT"
    return numpy.array(value, dtype)[()]


def decode_series(name, index, values):
    try:
        import pandas
    except ImportError:
        return dict(zip(index, values))
    return pandas.Series(values, index=index, name=name)


def decode_dataframe(columns, index, rows):
    try:
        import pandas
    except ImportError:
        return [dict(zip(columns, row)) for row in rows]
    return pandas.DataFrame(rows, columns=columns, index=index)
