"""Checks of limits where they are constructed (R6). Each names the field."""

from __future__ import annotations

import math
from typing import Iterable, List, Optional

MIB = 1 << 20
MOST_MB = 16777216


def whole(field: str, value: object, least: int, most: Optional[int] = None) -> int:
    """A whole number of a range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} must be a whole number, not {type(value).__name__}")
    if value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ValueError(f"{field} must be {bounds}, and is {value}")
    return value


def seconds(field: str, value: object) -> float:
    """A time that ends."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{field} must be a number of seconds, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{field} must be above 0 and must end, and is {number}")
    return number


def flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{field} must be True or False, not {type(value).__name__}")
    return value


def text(field: str, value: object) -> str:
    """Text that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{field} must be text, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{field} is empty")
    return value


def texts(field: str, values: object) -> List[str]:
    """A list of text, none of it empty."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{field} must be a list of text, not {type(values).__name__}")
    return [text(f"{field}[{at}]", value) for at, value in enumerate(values)]
