"""Values of Python as the plain data of guest/PROTOCOL.md, and back.

To a guest goes data alone: `encode` refuses the rest and names the place. From a guest comes anything: `decode` never
raises, and does nothing that the data names. What it cannot read is given back as it came.
"""

from .decoder import decode, exception_of
from .encoder import encode
from .types import Cut, Fields, Json, Repr

__all__ = ["Cut", "Fields", "Json", "Repr", "decode", "encode", "exception_of"]
