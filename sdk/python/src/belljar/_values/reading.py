"""Parts of plain data, if they are what the decoder takes them for. A guest chose them: what takes long is bounded."""

from __future__ import annotations

from binascii import a2b_base64
from functools import lru_cache
from typing import Any, Callable, List, Tuple, cast

from .types import Json, Object, base64

_KEY_DEPTH = 8  # containers in a key, which is hashed as a whole
_CROWD = 64  # keys of one hash; a guest can choose numbers that all have the same
_TUPLE_FIELDS = 256
_NAME = 100  # characters


class Malformed(Exception):
    """Data that is not what its tag says."""


def text(plain: Object, key: str) -> str:
    found = plain[key]
    if not isinstance(found, str):
        raise Malformed
    return found


def items(plain: Object, key: str) -> List[Json]:
    found = plain[key]
    if not isinstance(found, list):
        raise Malformed
    return found


def rows(plain: Object, key: str, length: int) -> List[List[Json]]:
    """A list of lists that all have this length."""
    found: List[List[Json]] = []
    for item in items(plain, key):
        if not isinstance(item, list) or len(item) != length:
            raise Malformed
        found.append(item)
    return found


def fields(plain: Object, key: str) -> Object:
    found = plain[key]
    if not isinstance(found, dict):
        raise Malformed
    return found


def octets(plain: Object) -> bytes:
    written = text(plain, "v")
    found = a2b_base64(written)
    if base64(found) != written:  # it skips what is no base64
        raise Malformed
    return found


def count(number: Json) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise Malformed
    return number


def number(thing: object) -> float:
    if not isinstance(thing, (int, float)) or isinstance(thing, bool):
        raise Malformed
    return thing


def check_digits(text: str) -> str:
    digits = text[1:] if text.startswith("-") else text
    if not digits.isascii() or not digits.isdigit():
        raise Malformed
    return text


def from_digits(text: str) -> int:
    """A whole number, also where the interpreter has a limit for its text. Halves take less time than the whole."""
    if text.startswith("-"):
        return -from_digits(text[1:])
    if len(text) <= 600:
        return int(text)
    half = len(text) // 2
    scale: int = 10**half
    return from_digits(text[:-half]) * scale + from_digits(text[-half:])


def from_iso(parse: Callable[[str], object], text: str) -> object:
    if len(text) > _NAME:
        raise Malformed
    if text.endswith("Z"):  # before 3.11 fromisoformat does not know it
        text = text[:-1] + "+00:00"
    try:
        return parse(text)
    except ValueError:
        # Before 3.11 a fraction has three or six digits.
        head, dot, tail = text.partition(".")
        digits = len(tail) - len(tail.lstrip("0123456789"))
        return parse(head + dot + tail[:digits][:6].ljust(6, "0") + tail[digits:])


def key(thing: object, depth: int) -> object:
    """What stands for a value as a key or a member of a set: a tuple for a list, a frozenset for a set."""
    if depth > _KEY_DEPTH:
        raise Malformed
    kind, parts = type(thing), cast(Any, thing)
    if kind in (list, tuple):
        return tuple([key(part, depth + 1) for part in parts])
    if kind is dict:
        return tuple([(key(name, depth + 1), key(item, depth + 1)) for name, item in parts.items()])
    return frozenset(parts) if kind is set else thing


def checked_keys(keys: List[object]) -> List[object]:
    """The keys, if not so many of them have the same hash that to look one up takes long."""
    if len(keys) > _CROWD:
        from collections import Counter

        if max(Counter(map(hash, keys)).values()) > _CROWD:
            raise Malformed
    return keys


def whole_of(found: Any, keys: List[object]) -> object:
    """What was built from keys, if none was lost: JavaScript tells 1 from true, Python does not."""
    if len(found) != len(keys):
        raise Malformed
    return found


def is_shape(name: str, fields: Tuple[str, ...]) -> bool:
    """Whether Python can have a named tuple with these names."""
    if len(fields) > _TUPLE_FIELDS or any(field.startswith("_") for field in fields):
        return False
    return all(map(_is_name, (name, *fields)))


def _is_name(text: str) -> bool:
    from keyword import iskeyword

    return len(text) <= _NAME and text.isascii() and text.isidentifier() and not iskeyword(text)


@lru_cache(maxsize=256)
def tuple_type(name: str, fields: Tuple[str, ...]) -> Any:
    """A type of named tuples. The names are those of `is_shape`, since Python compiles them."""
    import collections

    make: Any = collections.namedtuple
    return make(name, fields, module=__package__)
