"""Where requests go, what they look like, and what answers mean. No reading and no waiting."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Generator, Mapping, Optional, Tuple

from . import _errors, _http
from ._engine import Engine
from ._http import Response
from ._result import Result

_CONNECTING = 10.0


class Endpoint:
    """An engine or a service."""

    host = "belljar"
    headers = ""
    prefix = ""
    is_embedded = False

    def open(self) -> socket.socket:
        """A new connection, blocking."""
        raise NotImplementedError

    def request(self, method: str, path: str, body: Optional[bytes], headers: str) -> bytes:
        """A request to it, as bytes."""
        return _http.request(method, self.prefix + path, self.host, body, self.headers + headers)

    def handshake(self, path: str, buffer: bytearray) -> Generator[_http.Step, bytes, _http.Response]:
        """The steps to a WebSocket."""
        return _http.handshake(self.prefix + path, self.host, self.headers, buffer)

    def close(self) -> None:
        """Lets go of it."""

    def forget(self) -> None:
        """In a fork: what is open belongs to another process."""

    def doubt(self) -> None:
        """A connection broke: the other side may be gone."""

    def is_at_hand(self) -> bool:
        """Whether a connection can be had without waiting."""
        return False

    def describe(self) -> str:
        raise NotImplementedError


class Embedded(Endpoint):
    """The engine of this process."""

    is_embedded = True

    def __init__(self) -> None:
        self.engine = Engine()

    def open(self) -> socket.socket:
        return self.engine.connect()

    def close(self) -> None:
        self.engine.close()

    def forget(self) -> None:
        self.engine.forget()

    def doubt(self) -> None:
        self.engine.doubt()

    def is_at_hand(self) -> bool:
        return self.engine.is_at_hand

    def describe(self) -> str:
        return "the engine of this process"


class Remote(Endpoint):
    """A service by its URL."""

    def __init__(self, url: str, api_key: Optional[str]) -> None:
        from urllib.parse import urlsplit

        if not isinstance(url, str):
            raise TypeError(f"url must be text, not {type(url).__name__}")
        like = "is not like http://127.0.0.1:8377 or https://sandbox.example.com"
        if "@" in url:
            raise ValueError(f"url {like}: a name and a password are not for a service; it has keys")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError(f"url: {url!r} {like}") from None
        is_plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or not is_plain:
            raise ValueError(f"url: {url!r} {like}")
        if api_key is not None and (not isinstance(api_key, str) or not api_key.isascii() or not api_key.isprintable()):
            raise ValueError("api_key is not a key of a service")
        self.url = url
        self.is_tls = parts.scheme == "https"
        self.name = parts.hostname
        self.port = port or (443 if self.is_tls else 80)
        self.host = parts.netloc
        self.prefix = parts.path.rstrip("/")
        self.headers = f"authorization: Bearer {api_key}\r\n" if api_key else ""

    def open(self) -> socket.socket:
        try:
            plain = socket.create_connection((self.name, self.port), _CONNECTING)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A service that is gone without a word is found out in a minute.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
            if self.is_tls:
                import ssl

                plain = ssl.create_default_context().wrap_socket(plain, server_hostname=self.name)
            plain.settimeout(None)
        except OSError as error:
            raise self.unreachable(error) from error
        return plain

    def unreachable(self, error: OSError) -> _errors.EngineUnavailable:
        hint = "is it running? `belljar serve` starts one; BELLJAR_URL names another"
        return _errors.EngineUnavailable(f"the service at {self.url} cannot be reached: {error}", hint=hint)

    def describe(self) -> str:
        return f"the service at {self.url}"


def endpoint_of_environment() -> Endpoint:
    """The service that BELLJAR_URL names, else an engine of this process."""
    url = os.environ.get("BELLJAR_URL")
    return Remote(url, os.environ.get("BELLJAR_KEY") or None) if url else Embedded()


def dumps(thing: object) -> bytes:
    """JSON as bytes."""
    return json.dumps(thing, separators=(",", ":")).encode("utf-8")


def answer(response: Response) -> Any:
    """What a response says, or the exception that it is."""
    if 200 <= response.status < 300:
        return loads(response.body) if response.body else None
    told = None
    if response.status >= 400:
        try:
            told = loads(response.body)
        except _errors.EngineUnavailable:
            pass
    if not isinstance(told, dict) or "kind" not in told:
        error = _errors.RequestError(
            f"the answer was {response.status}: {response.body[:200].decode('utf-8', 'replace')}"
        )
        error.status = response.status
        raise error
    raise problem(told)


def loads(body: bytes) -> Any:
    """JSON that an engine or a service sent."""
    try:
        return json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise strange(error) from None


def strange(error: object) -> _errors.EngineUnavailable:
    """What answers does not answer as belljar does."""
    return _errors.EngineUnavailable(f"what answers is not belljar, or is broken: {error}", hint="is the URL right?")


def execution(told: object) -> Result:
    """The result that an answer is."""
    if not isinstance(told, dict) or not isinstance(told.get("outcome"), dict):
        raise strange("a result has no outcome")
    try:
        return Result(told)
    except (TypeError, ValueError, AttributeError) as error:
        raise strange(error) from None


def problem(told: Mapping[str, Any]) -> _errors.SandboxError:
    """The exception for a problem document."""
    kind, detail = str(told.get("kind", "")), str(told.get("detail", ""))
    hint = told["hint"] if isinstance(told.get("hint"), str) else None
    retry_after = told.get("retry_after")
    if isinstance(retry_after, bool) or not isinstance(retry_after, (int, float)) or not 0 <= retry_after < 1e6:
        retry_after = None
    denial = told.get("denial")
    if isinstance(denial, dict):
        if kind == "quota_exceeded":
            exceeded = _errors.QuotaExceeded(denial, told.get("record"))
            exceeded.retry_after = retry_after
            return exceeded
        return _errors.PolicyViolation(denial, told.get("record"))
    if kind == "unavailable":
        return _errors.EngineUnavailable(detail, hint=hint)
    made = _errors.BadRequest if kind == "usage" else _errors.RequestError
    error = made(detail, hint=hint)
    status = told.get("status")
    error.kind, error.retry_after = kind, retry_after
    error.status = status if isinstance(status, int) else 0
    return error


def sandbox_problem(error: _errors.RequestError) -> _errors.SandboxError:
    """What a problem with a sandbox's own address means: it is over, a file is missing, or what it says."""
    if error.kind != "not_found":
        return error
    if error.message.startswith(("there is no session", "the session is")):
        return _errors.SandboxClosed(f"the sandbox is over: {error.message}")
    missing = _errors.FileNotFoundError(error.message)
    missing.kind, missing.status = error.kind, error.status
    return missing


def output(message: Mapping[str, Any]) -> Tuple[str, str]:
    """Which stream, and the text of a piece of it."""
    text: Optional[str] = message.get("text")
    if text is None:
        from base64 import b64decode

        text = b64decode(message.get("base64") or "").decode("utf-8", "replace")
    return str(message.get("stream", "stdout")), text
