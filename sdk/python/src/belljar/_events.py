"""What happens during an execution, as it happens."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Union

from ._request import Hearing
from ._result import Display, Result
from ._values import decode
from ._wire import execution as execution_of
from ._wire import output, problem


class Output(NamedTuple):
    """A piece of what it prints."""

    stream: str
    """`stdout` or `stderr`."""
    text: str


class ToolStarted(NamedTuple):
    """It calls a function of the host."""

    call: int
    name: str


class ToolEnded(NamedTuple):
    """A function of the host answered it."""

    call: int
    name: str
    error: Optional[str]


class Done(NamedTuple):
    """It is over."""

    result: Result


Event = Union[Output, Display, ToolStarted, ToolEnded, Done]


class Call(NamedTuple):
    """A call of a tool that has to be answered."""

    call: int
    name: str
    args: List[Any]
    kwargs: Mapping[str, Any]


def read(message: Mapping[str, Any], execution: int) -> Union[Event, Call, None]:
    """What a message means for that execution; what is not known means nothing. Raises what went wrong."""
    kind = message.get("type")
    of = message.get("id")
    if kind == "problem" and of is None and "call" not in message:
        of = execution  # what was sent could not be understood, and nothing else will come
    if kind != "tool_call" and of != execution:
        return None  # of one that is over, such as an answer of a tool that came too late
    if kind == "output":
        return Output(*output(message))
    if kind == "display":
        return Display(message.get("data") or {}, decode(message.get("value")))
    if kind == "tool_call":
        kwargs = {str(name): decode(value) for name, value in (message.get("kwargs") or {}).items()}
        return Call(
            int(message["call"]), str(message["name"]), [decode(one) for one in message.get("args") or []], kwargs
        )
    if kind == "tool_started":
        return ToolStarted(int(message["call"]), str(message["name"]))
    if kind == "tool_ended":
        return ToolEnded(int(message["call"]), str(message["name"]), message.get("error"))
    if kind == "result":
        return Done(execution_of(message["execution"]))
    if kind == "problem":
        raise problem(message.get("problem") or {})
    return None


def tell(event: object, hearing: Hearing) -> None:
    """Tells whoever wants to hear of it."""
    if isinstance(event, Output):
        heard = hearing.on_stdout if event.stream == "stdout" else hearing.on_stderr
        if heard is not None:
            heard(event.text)
    elif isinstance(event, Display) and hearing.on_display is not None:
        hearing.on_display(event)
