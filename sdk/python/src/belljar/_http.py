"""HTTP/1.1 and WebSocket, as far as a client of belljar needs them: bytes in, bytes out, and no sockets.

A run is one request on a connection that stays. The standard library's client takes longer for its headers alone than
the engine for a warm sandbox, so this is written out.
"""

from __future__ import annotations

import os
import struct
from typing import Generator, List, NamedTuple, Optional, Tuple, Union

LONGEST_HEAD = 64 << 10
LONGEST_MESSAGE = 32 << 20
LARGEST_ANSWER = 1 << 30

# What both kinds of connection do: bytes that are yielded are sent, a number is how many are wanted at most. Those come
# back, or b"" at the end; what goes wrong is thrown in.
Step = Union[bytes, int]


class ProtocolError(Exception):
    """The other side does not speak as it should."""


class Closed(ProtocolError):
    """The other side hung up before it answered."""


class TooLarge(ProtocolError):
    """The answer is more than is read."""


class Response(NamedTuple):
    status: int
    body: bytes
    keep: bool
    """Whether the connection can be used again."""


def exchange(data: bytes, buffer: bytearray, largest: int) -> Generator[Step, bytes, Response]:
    """Sends a request and reads the answer."""
    refused: Optional[OSError] = None
    try:
        yield data
    except (BrokenPipeError, ConnectionResetError) as error:
        # Whoever takes no more of it may have said why.
        refused = error
    try:
        came = yield 65536
        whole = whole_response(came) if refused is None else None
        if whole is not None:
            return whole
        buffer += came
        answered = yield from response(buffer, largest)
    except (OSError, ProtocolError):
        if refused is not None:
            raise refused from None
        raise
    return answered if refused is None else answered._replace(keep=False)


def handshake(path: str, host: str, headers: str, buffer: bytearray) -> Generator[Step, bytes, Response]:
    """Asks to become a WebSocket, and reads the answer."""
    yield upgrade(path, host, headers)
    answered = yield from response(buffer)
    return answered


def request(method: str, path: str, host: str, body: Optional[bytes], headers: str = "") -> bytes:
    """One request as bytes. `headers` are whole lines."""
    head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}"
    if body is None:
        return f"{head}\r\n".encode("latin-1")
    kind = "" if "content-type:" in headers else "content-type: application/json\r\n"
    return f"{head}{kind}content-length: {len(body)}\r\n\r\n".encode("latin-1") + body


def response(buffer: bytearray, largest: int = LARGEST_ANSWER) -> Generator[int, bytes, Response]:
    """Reads one response. What came beyond it stays in `buffer`."""
    status, headers = yield from _head(buffer)
    keep = True
    length: Optional[int] = None
    chunked = False
    for name, value in headers:
        if name == "content-length":
            length = _number(value, 10)
        elif name == "transfer-encoding":
            chunked = value.lower() == "chunked"
        elif name == "connection":
            keep = value.lower() != "close"
    if status == 101 or status == 204 or status == 304:
        return Response(status, b"", keep)
    if chunked:
        return Response(status, (yield from _chunks(buffer, largest)), keep)
    if length is None:
        return Response(status, (yield from _rest(buffer, largest)), False)
    if length > largest:
        raise TooLarge(f"an answer of {length} bytes is larger than {largest}")
    return Response(status, (yield from _exactly(buffer, length)), keep)


_LENGTH = b"\r\ncontent-length: "


def whole_response(came: bytes) -> Optional[Response]:
    """An ordinary response that came in one piece, which most do; None for every other one."""
    head, _, body = came.partition(b"\r\n\r\n")
    _, found, rest = head.partition(_LENGTH)
    length = rest.partition(b"\r\n")[0]
    if not found or not length.isdigit() or len(length) > 12 or int(length) != len(body):
        return None
    if not head.startswith(b"HTTP/1.1 2") or b"\r\nconnection:" in head or head.count(_LENGTH) != 1:
        return None
    status = head[9:12]
    return Response(int(status), body, True) if status.isdigit() else None


def _head(buffer: bytearray) -> Generator[int, bytes, Tuple[int, List[Tuple[str, str]]]]:
    while True:
        end = buffer.find(b"\r\n\r\n")
        if end >= 0:
            break
        if len(buffer) > LONGEST_HEAD:
            raise ProtocolError("the head of the answer is too long")
        came = yield 65536
        if not came:
            raise Closed("the connection was closed before there was an answer")
        buffer += came
    lines = buffer[:end].decode("latin-1").split("\r\n")
    del buffer[: end + 4]
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise ProtocolError("the answer is no HTTP")
    headers: List[Tuple[str, str]] = []
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers.append((name.lower(), value.strip()))
    return _number(words[1], 10), headers


def _exactly(buffer: bytearray, length: int) -> Generator[int, bytes, bytes]:
    while len(buffer) < length:
        came = yield length - len(buffer)
        if not came:
            raise Closed("the connection was closed within an answer")
        buffer += came
    taken = bytes(buffer[:length])
    del buffer[:length]
    return taken


def _line(buffer: bytearray) -> Generator[int, bytes, bytes]:
    while True:
        end = buffer.find(b"\r\n")
        if end >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 2]
            return line
        if len(buffer) > LONGEST_HEAD:
            raise ProtocolError("a line of the answer is too long")
        came = yield 65536
        if not came:
            raise Closed("the connection was closed within an answer")
        buffer += came


def _chunks(buffer: bytearray, largest: int) -> Generator[int, bytes, bytes]:
    parts: List[bytes] = []
    total = 0
    while True:
        line = yield from _line(buffer)
        size = _number(line.split(b";")[0].decode("latin-1"), 16)
        if size == 0:
            while (yield from _line(buffer)):
                pass
            return b"".join(parts)
        total += size
        if total > largest:
            raise TooLarge(f"an answer is larger than {largest} bytes")
        parts.append((yield from _exactly(buffer, size)))
        yield from _line(buffer)


def _rest(buffer: bytearray, largest: int) -> Generator[int, bytes, bytes]:
    while True:
        came = yield 65536
        if not came:
            taken = bytes(buffer)
            buffer.clear()
            return taken
        buffer += came
        if len(buffer) > largest:
            raise TooLarge(f"an answer is larger than {largest} bytes")


def _number(text: str, base: int) -> int:
    try:
        number = int(text.strip()[:20], base)
    except ValueError:
        raise ProtocolError("the answer has a malformed number") from None
    if number < 0:
        raise ProtocolError("the answer has a negative length")
    return number


TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def upgrade(path: str, host: str, headers: str = "") -> bytes:
    """The request to become a WebSocket."""
    from base64 import b64encode

    key = b64encode(os.urandom(16)).decode("ascii")
    asked = f"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n"
    return request("GET", path, host, None, headers + asked)


def frame(kind: int, payload: bytes) -> bytes:
    """One message of a client, which has to be masked."""
    size = len(payload)
    if size > LONGEST_MESSAGE:
        raise ValueError(f"{size} bytes in one message are more than {LONGEST_MESSAGE}; put such data into files")
    if size < 126:
        head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
    mask = os.urandom(4)
    repeated = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return head + mask + masked.to_bytes(size, "big")


def message(buffer: bytearray) -> Generator[int, bytes, Tuple[int, bytes]]:
    """Reads one message: its kind and what it says. Pings are told as they are."""
    parts: List[bytes] = []
    first = total = 0
    while True:
        head = yield from _exactly(buffer, 2)
        kind, size = head[0] & 15, head[1] & 127
        if size == 126:
            (size,) = struct.unpack("!H", (yield from _exactly(buffer, 2)))
        elif size == 127:
            (size,) = struct.unpack("!Q", (yield from _exactly(buffer, 8)))
        total += size
        if (
            total > LARGEST_ANSWER
            or head[0] & 0x70
            or head[1] & 0x80
            or kind not in (0, TEXT, BINARY, CLOSE, PING, PONG)
        ):
            raise ProtocolError("a message of the engine is malformed or too large")
        payload = yield from _exactly(buffer, size)
        if kind >= CLOSE:
            return kind, payload
        first = first or kind
        if head[0] & 128 and not parts:
            return first, payload
        parts.append(payload)
        if head[0] & 128:
            return first, b"".join(parts)
