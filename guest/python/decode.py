"""Plain data of PROTOCOL.md as values of Python.

Where the type itself is on the other side only, the nearest plain thing stands for it: a dict for a dataclass, the value for
a member of an enum, the text for what was only shown.
"""

from binascii import a2b_base64


def value(plain):
    if type(plain) is list:
        return [value(item) for item in plain]
    if type(plain) is not dict:
        return plain
    kind = plain.get("$")
    if kind is None:
        return {key: value(item) for key, item in plain.items()}
    decode = _KINDS.get(kind)
    if decode is None:
        raise ValueError("the engine sent a value of the unknown kind %r" % (kind,))
    return decode(plain)


def _hashable(thing):
    """A key of a dict or member of a set that came as a list."""
    if type(thing) is list:
        return tuple(_hashable(item) for item in thing)
    if type(thing) is set:
        return frozenset(thing)
    if type(thing) is dict:
        return tuple((key, _hashable(item)) for key, item in thing.items())
    return thing


def _whole(plain):
    import sys

    text = plain["v"]
    if len(text) > 4000 and hasattr(sys, "set_int_max_str_digits"):
        limit = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            return int(text)
        finally:
            sys.set_int_max_str_digits(limit)
    return int(text)


def _complex(plain):
    real, imaginary = plain["v"]
    return complex(value(real), value(imaginary))


def _namedtuple(plain):
    from collections import namedtuple

    fields = plain["v"]
    values = [value(item) for item in fields.values()]
    try:
        return namedtuple(plain["name"], list(fields))(*values)
    except ValueError:  # names that Python cannot have
        return dict(zip(fields, values))


def _datetime(plain):
    import datetime

    text = plain["v"]
    kind = getattr(datetime, plain["$"])
    if text.endswith("Z"):  # before 3.11 fromisoformat does not know it
        text = text[:-1] + "+00:00"
    try:
        return kind.fromisoformat(text)
    except ValueError:
        # Before 3.11 a fraction has three or six digits.
        head, dot, tail = text.partition(".")
        digits = len(tail) - len(tail.lstrip("0123456789"))
        return kind.fromisoformat(head + dot + tail[:digits][:6].ljust(6, "0") + tail[digits:])


def _timedelta(plain):
    import datetime

    return datetime.timedelta(*plain["v"])


def _decimal(plain):
    from decimal import Decimal

    return Decimal(plain["v"])


def _fraction(plain):
    from fractions import Fraction

    over, _, under = plain["v"].partition("/")
    return Fraction(_whole({"v": over}), _whole({"v": under or "1"}))


def _uuid(plain):
    from uuid import UUID

    return UUID(plain["v"])


def _path(plain):
    from pathlib import PurePath, Path

    try:
        return Path(plain["v"])
    except Exception:
        return PurePath(plain["v"])


_KINDS = {
    "int": _whole,
    "float": lambda plain: float(plain["v"]),
    "complex": _complex,
    "bytes": lambda plain: a2b_base64(plain["v"]),
    "tuple": lambda plain: tuple([value(item) for item in plain["v"]]),
    "namedtuple": _namedtuple,
    "set": lambda plain: {_hashable(value(item)) for item in plain["v"]},
    "frozenset": lambda plain: frozenset([_hashable(value(item)) for item in plain["v"]]),
    "dict": lambda plain: {_hashable(value(key)): value(item) for key, item in plain["v"]},
    "datetime": _datetime,
    "date": _datetime,
    "time": _datetime,
    "timedelta": _timedelta,
    "decimal": _decimal,
    "fraction": _fraction,
    "uuid": _uuid,
    "path": _path,
    "enum": lambda plain: value(plain["v"]),
    "ndarray": lambda plain: belljar.tables.decode_array(plain, a2b_base64(plain["v"])),
    "scalar": lambda plain: belljar.tables.decode_scalar(plain, value(plain["v"])),
    "dataclass": lambda plain: {key: value(item) for key, item in plain["v"].items()},
    "series": lambda plain: belljar.tables.decode_series(value(plain["name"]), value(plain["index"]), value(plain["v"])),
    "dataframe": lambda plain: belljar.tables.decode_dataframe(
        value(plain["columns"]), value(plain["index"]), value(plain["v"])
    ),
    "error": lambda plain: belljar.tools.exception(plain["type"], plain["message"]),
    "undefined": lambda plain: None,
    "repr": lambda plain: plain["v"],
    "cut": lambda plain: plain["v"],
}
