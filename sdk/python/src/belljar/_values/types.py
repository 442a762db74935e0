"""What values are made of, and what both directions know of them."""

from __future__ import annotations

from binascii import b2a_base64
from typing import Any, Dict, List, NoReturn, Tuple, Union

Json = Union[None, bool, int, float, str, List["Json"], Dict[str, "Json"]]
Object = Dict[str, Json]

WHOLE = (1 << 63) - 1
DIGITS = 100_000  # of a number: turning text into one takes more than linear time
FRACTION_DIGITS = 10_000  # of each of its parts: they are reduced, which takes quadratic time


class Fields:
    """An instance of a dataclass whose class only the guest has. It can be read and compared.

    `_name` is the name of the class, `_asdict()` gives the fields.
    """

    __slots__ = ("_name", "_values")

    _name: str
    _values: Dict[str, object]

    def __init__(self, name: str, values: Dict[str, object]) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_values", dict(values))

    def _asdict(self) -> Dict[str, object]:
        return dict(self._values)

    def __getattr__(self, name: str) -> Any:
        # Names with underscores on both sides mean something to Python, and the guest chose these names.
        hidden = name in Fields.__slots__ or name.startswith("__") and name.endswith("__")
        if not hidden and name in self._values:
            return self._values[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a value of a guest can only be read")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a value of a guest can only be read")

    def __dir__(self) -> List[str]:
        return ["_asdict", "_name", *self._values]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fields):
            return NotImplemented
        return self._name == other._name and self._values == other._values

    def __hash__(self) -> int:
        return hash((self._name, frozenset(self._values.items())))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{self._name}({fields})"

    def __reduce__(self) -> Tuple[object, ...]:
        return Fields, (self._name, self._values)


class Repr(str):
    """What the guest could only show: the text, and in `type` the name of its type."""

    type: str

    def __new__(cls, text: str, type: str = "") -> Repr:
        made = super().__new__(cls, text)
        made.type = type
        return made

    def __repr__(self) -> str:
        return str(self)


class Cut(str):
    """What was too much to send: the text that stands for it, and in `why` one of `depth`, `size` and `cycle`."""

    why: str

    def __new__(cls, text: str, why: str = "") -> Cut:
        made = super().__new__(cls, text)
        made.why = why
        return made


def base64(octets: bytes) -> str:
    return str(b2a_base64(octets, newline=False), "ascii")
