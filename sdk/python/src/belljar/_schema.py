"""A tool for language models: its definition as their APIs want it, and the answer to a call of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import _request
from ._result import Result, shown_value

if TYPE_CHECKING:
    from typing_extensions import Literal

    from ._client import Client
    from ._sandbox import Sandbox

    Kind = Literal["openai", "openai-responses", "anthropic"]

KINDS = ("openai", "openai-responses", "anthropic")
LONGEST = 20_000
"""How many characters of an answer a model gets."""
_MARK = 60  # characters of what stands for the rest

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PROPER = {"python": "Python", "javascript": "JavaScript", "typescript": "TypeScript", "bash": "Bash", "shell": "shell"}


def tool_schema(
    kind: Kind = "openai",
    *,
    name: str = "run_python",
    description: Optional[str] = None,
    languages: Sequence[str] = ("python",),
) -> Dict[str, Any]:
    """The definition of a tool that runs code, for the `tools` of a request to a model.

    `openai` is for Chat Completions, `openai-responses` for Responses, `anthropic` for Messages. With several languages
    the model names one in each call. `answer_tool_call` answers the calls.

    >>> import belljar
    >>> belljar.tool_schema("anthropic")["input_schema"]["required"]
    ['code']
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if not isinstance(name, str):
        raise TypeError(f"name must be text, not {type(name).__name__}")
    if not _NAME.fullmatch(name):
        raise ValueError(f"name must be 1 to 64 letters, digits, _ and -, and is {name!r}")
    spoken = checked_languages(languages)
    if description is None:
        description = describe(spoken)
    elif not isinstance(description, str):
        raise TypeError(f"description must be text, not {type(description).__name__}")
    parameters = _parameters(spoken)
    if kind == "anthropic":
        return {"name": name, "description": description, "input_schema": parameters}
    function = {"name": name, "description": description, "parameters": parameters, "strict": True}
    if kind == "openai":
        return {"type": "function", "function": function}
    return {"type": "function", **function}


def checked_languages(languages: object) -> List[str]:
    if isinstance(languages, str) or not isinstance(languages, Sequence):
        raise TypeError(f"languages must be a list of names, not {type(languages).__name__}")
    if not languages:
        raise ValueError("languages is empty")
    for language in languages:
        if not isinstance(language, str):
            raise TypeError(f"languages must be a list of names, and one is {type(language).__name__}")
        if not language.strip():
            raise ValueError("languages holds an empty name")
    if len(set(languages)) != len(languages):
        raise ValueError("languages holds a name twice")
    return list(languages)


def describe(languages: Sequence[str], more: str = "") -> str:
    """What a model is told of the tool."""
    proper = [_PROPER.get(language, language) for language in languages]
    named = proper[0] if len(proper) == 1 else f"{', '.join(proper[:-1])} or {proper[-1]}"
    return (
        f"Runs {named} code in a sandbox. Gives what the code prints, the value of its last expression, and the "
        f"traceback if it fails.{more}"
    )


def _parameters(languages: Sequence[str]) -> Dict[str, Any]:
    properties: Dict[str, Any] = {"code": {"type": "string", "description": "The code to run."}}
    if len(languages) > 1:
        properties["language"] = {
            "type": "string",
            "enum": list(languages),
            "description": "The language that the code is in.",
        }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class Wrong(NamedTuple):
    """Arguments that cannot be used, and what to tell the model about them."""

    text: str


class Asked(NamedTuple):
    """What a model wants to run."""

    code: str
    language: str


def read_arguments(arguments: object, languages: Sequence[str]) -> Union[Asked, Wrong]:
    """What the arguments of a call say. A model may have written anything."""
    if isinstance(arguments, (str, bytes, bytearray)):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return Wrong(f"The arguments are not JSON: {error}")
    if not isinstance(arguments, Mapping):
        return Wrong(f"The arguments must be an object with `code`, not {type(arguments).__name__}.")
    takes = ("code", "language") if len(languages) > 1 else ("code",)
    for name in arguments:
        if name not in takes and name != "language":
            there = " and ".join(f"`{one}`" for one in takes)
            return Wrong(f"There is no argument {str(name)[:100]!r}; there is {there}.")
    if "code" not in arguments:
        return Wrong("The argument `code` is missing: the text of the code to run.")
    try:
        code = _request.code(arguments["code"])
    except (TypeError, ValueError) as error:
        return Wrong(f"The argument `code` cannot be used: {error}.")
    language = arguments.get("language", languages[0] if len(languages) == 1 else None)
    if language not in languages:
        given = "is missing" if language is None else f"is {str(language)[:100]!r}"
        return Wrong(f"The argument `language` {given}; it must be {' or '.join(repr(one) for one in languages)}.")
    return Asked(code, str(language))


def answer_tool_call(
    arguments: Union[Mapping[str, Any], str],
    *,
    sandbox: Optional[Sandbox] = None,
    languages: Optional[Sequence[str]] = None,
    client: Optional[Client] = None,
    **options: Any,
) -> str:
    """Runs what a model asked for, and gives the text to answer it with.

    `arguments` are those of the call, as a mapping or as JSON. The code runs in `sandbox`, where variables and files
    stay from call to call, or else in a fresh one. `options` are those of `Sandbox.run` or of `run`. Arguments that
    cannot be used and code that fails are an answer as well; what is not the model's doing, such as an engine that is
    gone, is raised.

    >>> import belljar
    >>> print(belljar.answer_tool_call('{"code": "print(6 * 7)"}'))
    stdout:
    42
    >>> belljar.answer_tool_call({"cod": "1"})
    "There is no argument 'cod'; there is `code`."
    """
    if sandbox is not None:
        if languages is not None or client is not None:
            raise ValueError(f"{'languages' if languages is not None else 'client'}: the sandbox has its own")
        _request.known("answer_tool_call() with a sandbox", options, _request.CELL - {"check"})
        asked = read_arguments(arguments, [sandbox.language])
        return asked.text if isinstance(asked, Wrong) else answer_text(sandbox.run(asked.code, **options))
    _request.known("answer_tool_call()", options, _request.RUN - {"check", "language"})
    spoken = checked_languages(("python",) if languages is None else languages)
    asked = read_arguments(arguments, spoken)
    if isinstance(asked, Wrong):
        return asked.text
    from ._sandbox import run

    return answer_text(run(asked.code, client=client, language=asked.language, **options))


def answer_text(result: Result, longest: int = LONGEST) -> str:
    """What a model is told of a result."""
    parts: List[str] = []

    def part(title: str, text: str) -> None:
        if text:
            parts.append(f"{title}:\n{text}" if text.endswith("\n") else f"{title}:\n{text}\n")

    part("stdout", result.stdout)
    part("stderr", result.stderr)
    plain = ""
    for display in result.displays:
        plain = display.data.get("text/plain", "")
        part(f"display ({', '.join(sorted(display.data))})", plain or "(not text)")
    if result.value is not None and shown_value(result.value) != plain:
        part("value", shown_value(result.value))
    if not result.success:
        raised = result.exception
        part("error", (raised.traceback if raised is not None else "") or result.error or f"ended as {result.status}")
    if result.state_lost:
        part("note", f"The sandbox began anew; lost: {result.state_lost}.")
    return cut("".join(parts).rstrip("\n"), longest) or "(It ran, and printed nothing.)"


def cut(text: str, longest: int) -> str:
    """The text, or its beginning and its end where it is longer."""
    if len(text) <= longest:
        return text
    kept = max(longest - _MARK, 2)
    head = kept // 2
    return f"{text[:head]}\n[... {len(text) - kept} characters left out ...]\n{text[head - kept :]}"
