"""Checks of limits where they are constructed (R6). Each names the field."""

from __future__ import annotations

import math
from typing import Iterable, List

MIB = 1 << 20
MOST_MB = 16777216


def whole(field: str, value: object, least: int, most: int) -> int:
    """A whole number of a range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{field} must be from {least} to {most}, and is {value}")
    return value


def seconds(field: str, value: object) -> float:
    """A time that ends."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{field} must be a number of seconds, not {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{field} must be above 0 and must end, and is {value}")
    return value


def flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{field} must be True or False, not {type(value).__name__}")
    return value


def texts(field: str, values: object) -> List[str]:
    """A list of text, none of it empty."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{field} must be a list of text, not {type(values).__name__}")
    found: List[str] = []
    for at, value in enumerate(values):
        if not isinstance(value, str):
            raise TypeError(f"{field}[{at}] must be text, not {type(value).__name__}")
        if not value:
            raise ValueError(f"{field}[{at}] is empty")
        found.append(value)
    return found
