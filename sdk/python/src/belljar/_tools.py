"""Functions of the host that guest code calls."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Dict, cast

from ._events import Call
from ._values import encode

Answer = Dict[str, Any]
_LONGEST = 100_000


def begin(function: Callable[..., Any], call: Call) -> Any:
    """Calls it; an async function gives what has to be awaited."""
    return function(*call.args, **call.kwargs)


def given(call: Call, value: object) -> Answer:
    """What the guest gets."""
    return {"type": "tool_result", "call": call.call, "value": encode(value, f"what {call.name}() returned")}


def raised(call: Call, error: BaseException) -> Answer:
    """What the guest sees raised: the same type where that is built in, and the text; nothing else of the host."""
    try:
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        text = message[:_LONGEST].encode("utf-8", "replace").decode("utf-8")
    except Exception:  # such as a number that is too long to be written
        text = "its message cannot be shown"
    return {"type": "tool_error", "call": call.call, "kind": type(error).__name__, "message": text}


def missing(call: Call) -> Answer:
    return {"type": "tool_error", "call": call.call, "kind": "NameError", "message": f"there is no tool {call.name!r}"}


def finish(function: Callable[..., Any], call: Call) -> Any:
    """Calls it, and waits for what it gives, also where that has to be awaited."""
    value = begin(function, call)
    return _wait(cast("Awaitable[Any]", value)) if hasattr(value, "__await__") else value


def _wait(awaitable: Awaitable[Any]) -> Any:
    import asyncio

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())
