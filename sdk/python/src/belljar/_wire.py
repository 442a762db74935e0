"""Where requests go, what they look like, and what answers mean. No reading and no waiting."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, Mapping, Optional, Tuple

from . import _errors
from ._engine import Engine
from ._http import Response

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

    def close(self) -> None:
        """Lets go of it."""

    def forget(self) -> None:
        """In a fork: what is open belongs to another process."""

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

    def describe(self) -> str:
        return "the engine of this process"


class Remote(Endpoint):
    """A service by its URL."""

    def __init__(self, url: str, api_key: Optional[str]) -> None:
        from urllib.parse import urlsplit

        if not isinstance(url, str):
            raise TypeError(f"url must be text, not {type(url).__name__}")
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise ValueError(f"url: {url!r} has no port that there could be") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError(f"url: {url!r} is not like http://127.0.0.1:8377 or https://sandbox.example.com")
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
    if response.status < 400:
        return json.loads(response.body.decode("utf-8")) if response.body else None
    try:
        told = json.loads(response.body)
    except ValueError:
        told = None
    if not isinstance(told, dict) or "kind" not in told:
        error = _errors.RequestError(
            f"the answer was {response.status}: {response.body[:200].decode('utf-8', 'replace')}"
        )
        error.status = response.status
        raise error
    raise problem(told)


def problem(told: Mapping[str, Any]) -> _errors.SandboxError:
    """The exception for a problem document."""
    kind, detail, hint = str(told.get("kind", "")), str(told.get("detail", "")), told.get("hint")
    retry_after = told.get("retry_after")
    denial: Optional[Dict[str, Any]] = told.get("denial")
    if denial is not None:
        if kind == "quota_exceeded":
            exceeded = _errors.QuotaExceeded(denial, told.get("record"))
            exceeded.retry_after = retry_after
            return exceeded
        return _errors.PolicyViolation(denial, told.get("record"))
    if kind == "unavailable":
        return _errors.EngineUnavailable(detail, hint=hint)
    made = _errors.BadRequest if kind == "usage" else _errors.RequestError
    error = made(detail, hint=hint)
    error.kind, error.status, error.retry_after = kind, int(told.get("status", 0)), retry_after
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
