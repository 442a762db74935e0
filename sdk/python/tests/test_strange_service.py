"""What answers need not be belljar, and need not mean well."""

from __future__ import annotations

import socket
import threading
from typing import Callable

import pytest

import belljar


def json(body: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(body.encode())}\r\n\r\n{body}".encode()


def problem(body: str) -> bytes:
    return json(body).replace(b"200 OK", b"500 Oh", 1)


def serve(answer: bytes) -> "tuple[str, Callable[[], None]]":
    """Answers whatever comes with the same bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        while True:
            try:
                peer, _ = listener.accept()
                peer.recv(65536)
                peer.sendall(answer)
                peer.close()
            except OSError:
                return

    threading.Thread(target=work, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", listener.close


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"hello",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        json("<html>"),
        json("[1]"),
        json("null"),
        json("{}"),
        json("[" * 100_000),
        json('{"outcome": [1]}'),
        json('{"outcome": {"status": "odd"}}'),
        json("{}").replace(b"{}", b"\xff\xfe"),
        problem("[1]"),
        problem('{"kind": "denied", "denial": [1]}'),
        problem('{"kind": "x", "status": "abc", "retry_after": 1e300, "hint": 3}'),
        problem("[" * 100_000),
    ],
)
def test_every_answer_is_an_error_of_ours(answer: bytes) -> None:
    url, close = serve(answer)
    client = belljar.connect(url, "bj_secret", default=False)
    try:
        with pytest.raises(belljar.SandboxError) as wrong:
            belljar.run("1", client=client)
        assert "bj_secret" not in str(wrong.value) + repr(client)
        with pytest.raises(belljar.SandboxError):
            belljar.Sandbox(client=client)
    finally:
        close()
        client.close()
