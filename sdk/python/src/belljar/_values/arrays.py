"""Arrays and tables: the types of their items, and what they are with and without numpy and pandas."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, cast

from .reading import Malformed
from .types import WHOLE

_EMPTY = 10_000  # lists for an array without items
_LEVELS = 32  # of an index

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


def dtype(name: str) -> Optional[Tuple[str, int]]:
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


def dtype_name(of: Any) -> Optional[str]:
    """A name that both sides know: `float64`, `datetime64[ns]`, `U3`; None for what is not sent."""
    if of.kind in "SU":
        return f"{of.kind}{of.itemsize // (4 if of.kind == 'U' else 1)}"
    name = str(of.name)
    return name if dtype(name) is not None else None


def module(name: str) -> Any:
    """A module that need not be installed. The name is never one of the data."""
    from importlib import import_module

    try:
        return import_module(name)
    except Exception:
        return None


def layout(name: str, shape: List[int], octets: bytes) -> Tuple[str, int, int]:
    """The code, the size and the number of items of an array, if its bytes are that many."""
    from math import prod

    found = dtype(name)
    if found is None or found[1] == 0 or len(shape) > _LEVELS or any(not 0 <= size <= WHOLE for size in shape):
        raise Malformed
    code, size = found
    if prod(shape) * size != len(octets):
        raise Malformed
    return code, size, prod(shape)


def flat(code: str, size: int, octets: bytes) -> List[Any]:
    """The items of an array, for whoever has no numpy."""
    from struct import iter_unpack

    if code in ("S", "U"):
        parts = [octets[at : at + size] for at in range(0, len(octets), size)]
        if code == "S":
            return [part.rstrip(b"\0") for part in parts]
        return [part.decode("utf-32-le").rstrip("\0") for part in parts]
    if code in ("M", "m"):
        raise Malformed  # numbers without their unit say nothing
    items = iter_unpack("<" + code, octets)
    return [complex(*item) for item in items] if len(code) == 2 else [item[0] for item in items]


def nested(flat: List[Any], shape: List[int]) -> object:
    """The items as lists in lists. A shape without items must not make many lists."""
    from math import prod

    if 0 in shape:
        shape = shape[: shape.index(0)]
        if prod(shape) > _EMPTY:
            raise Malformed
        flat = [[] for _ in range(prod(shape))]
    if not shape:
        return flat[0]
    for size in reversed(shape[1:]):
        flat = [flat[at : at + size] for at in range(0, len(flat), size)]
    return flat


def is_scalar(code: str, size: int, value: object) -> bool:
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


def index(pandas: Any, labels: List[object]) -> Any:
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
