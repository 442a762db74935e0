"""What a caller asks for, checked here before anything starts, as the wire wants it."""

from __future__ import annotations

import os
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ._values import encode

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    Quantity = Union[int, float, str]
    Content = Union[str, bytes, os.PathLike[str]]

    class LimitOptions(TypedDict, total=False):
        """What may be used. Sizes are bytes or text such as "512M"; times are seconds or text such as "30s"."""

        timeout: Optional[Quantity]
        memory: Optional[Quantity]
        cpu_seconds: Optional[Quantity]
        cpu_percent: Optional[int]
        processes: Optional[int]
        open_files: Optional[int]
        file_size: Optional[Quantity]
        disk: Optional[Quantity]
        output_limit: Optional[Quantity]

    class PlaceOptions(LimitOptions, total=False):
        """What a sandbox is made with."""

        policy: Optional[str]
        """The id of a policy. Without one, an engine of your own gives what is asked for."""
        env: Optional[Mapping[str, str]]
        files: Optional[Mapping[str, Content]]
        """Files for the work directory: text, bytes, or a path of this machine to read."""
        mounts: Sequence[str]
        """`HOST:GUEST[:ro|rw]`."""
        environment: Optional[str]
        provider: Optional[str]
        """The wall to run behind: `native`, `docker`, `gvisor`, or `venv`, which is none and has to be `approved`."""
        image: Optional[str]
        """The image to make the sandbox of, for the provider `docker`."""
        approved: bool
        """You have read the code: it may run although there is no wall, or its policy wants approval. For an engine of
        your own; a service asks those who may approve."""
        network: Optional[str]
        """`none`, `local`, `restricted` or `full`."""
        allowed_hosts: Optional[Sequence[str]]
        """The only hosts that can be reached: `api.example.com`, `api.example.com:8443`, `*.example.com`."""
        require: Sequence[str]
        """Controls without which nothing may run."""
        globals: Optional[Mapping[str, Any]]
        """Data and functions that the code finds under these names."""
        tools: Optional[Mapping[str, Callable[..., Any]]]
        """Functions of yours that the code may call."""
        allowed_imports: Optional[Sequence[str]]
        forbidden_calls: Sequence[str]
        max_tool_calls: Optional[int]
        tenant_id: Optional[str]
        user_id: Optional[str]
        run_id: Optional[str]
        metadata: Optional[Mapping[str, str]]

    class RunOptions(PlaceOptions, total=False):
        language: str
        args: Sequence[str]
        stdin: Union[str, bytes, None]
        outputs: Sequence[str]
        """Files wanted back, in `Result.files`."""
        fresh_interpreter: bool
        on_stdout: Optional[Callable[[str], object]]
        on_stderr: Optional[Callable[[str], object]]
        on_display: Optional[Callable[[Any], object]]
        check: bool
        """Raise what came of it unless it succeeded."""

    class SandboxOptions(PlaceOptions, total=False):
        language: str
        idle_timeout: Optional[Quantity]
        max_age: Optional[Quantity]
        max_concurrent_tools: Optional[int]

    class CellOptions(LimitOptions, total=False):
        stdin: Optional[str]
        globals: Optional[Mapping[str, Any]]
        tools: Optional[Mapping[str, Callable[..., Any]]]
        outputs: Sequence[str]
        on_stdout: Optional[Callable[[str], object]]
        on_stderr: Optional[Callable[[str], object]]
        on_display: Optional[Callable[[Any], object]]
        check: bool


Tools = Dict[str, "Callable[..., Any]"]

_LIMITS = frozenset(
    ("timeout", "memory", "cpu_seconds", "cpu_percent", "processes", "open_files", "file_size", "disk", "output_limit")
)
_COUNTS = frozenset(("cpu_percent", "processes", "open_files"))
_PLACE = _LIMITS | {
    "policy", "env", "files", "mounts", "environment", "provider", "image", "approved", "network", "allowed_hosts",
    "require", "globals", "tools", "allowed_imports",
    "forbidden_calls", "max_tool_calls", "tenant_id", "user_id", "run_id", "metadata", "language",
}  # fmt: skip
_HEARING = frozenset(("on_stdout", "on_stderr", "on_display"))
RUN = _PLACE | _HEARING | {"args", "stdin", "outputs", "fresh_interpreter", "check"}
SANDBOX = _PLACE | {"idle_timeout", "max_age", "max_concurrent_tools"}
CELL = _LIMITS | _HEARING | {"stdin", "globals", "tools", "outputs", "check"}

EVALUATED = frozenset(("python", "py", "python3", "javascript", "js", "node"))
_NETWORKS = ("none", "local", "restricted", "full")
_PROVIDERS = ("native", "docker", "gvisor", "venv")
_WITH_IMAGES = ("docker",)


class Hearing:
    """Who hears what happens, as it happens."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.on_stdout: Optional[Callable[[str], object]] = _callback(options, "on_stdout")
        self.on_stderr: Optional[Callable[[str], object]] = _callback(options, "on_stderr")
        self.on_display: Optional[Callable[[Any], object]] = _callback(options, "on_display")

    def __bool__(self) -> bool:
        return any((self.on_stdout, self.on_stderr, self.on_display))


def _callback(options: Mapping[str, Any], name: str) -> Optional[Callable[[Any], object]]:
    callback: Optional[Callable[[Any], object]] = options.get(name)
    if callback is not None and not callable(callback):
        raise TypeError(f"{name} must be a function, not {_type(callback)}")
    return callback


def known(where: str, options: Mapping[str, Any], names: frozenset[str]) -> None:
    """Whether every argument is one that there is."""
    if options.keys() <= names:
        return
    for name in options:
        if name not in names:
            from difflib import get_close_matches

            close = get_close_matches(name, names, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{where} has no argument {name!r}{hint}")


def code(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"code must be text, not {_type(text)}")
    if "\0" in text:
        raise ValueError("code holds a NUL character")
    _utf8("code", text)
    return text


def command(words: object) -> Union[str, List[str]]:
    """A command: its words, or a line that the engine splits as a shell would."""
    if isinstance(words, str):
        if not words.strip():
            raise ValueError("command is empty")
        return _text("command", words)
    if not isinstance(words, (list, tuple)):
        raise TypeError(f"command must be text or a list of text, not {_type(words)}")
    if not words:
        raise ValueError("command is empty")
    return _texts("command", words)


def place(options: Mapping[str, Any]) -> Tuple[Dict[str, Any], Tools]:
    """What stands in every request, and the functions among it."""
    wish: Dict[str, Any] = {}
    # By what is given and not by what there is: most say little, and each microsecond counts.
    for name, value in options.items():
        if value is None:
            continue
        write = _WRITERS.get(name)
        if write is not None:
            write(wish, name, value)
    if "image" in wish and wish.get("provider", _WITH_IMAGES[0]) not in _WITH_IMAGES:
        raise ValueError(f"image is for the provider {' or '.join(_WITH_IMAGES)}, not for {wish['provider']}")
    limited = limits(options)
    if limited:
        wish["limits"] = limited
    data, tools = surroundings(options)
    if data:
        wish["globals"] = data
    return wish, tools


def _write_text(wish: Dict[str, Any], name: str, value: object) -> None:
    wish["policy_id" if name == "policy" else name] = _text(name, value)


def _write_map(wish: Dict[str, Any], name: str, value: object) -> None:
    wish[name] = _text_map(name, value)


def _write_texts(wish: Dict[str, Any], name: str, value: object) -> None:
    wish[{"allowed_imports": "allow_imports", "forbidden_calls": "forbid_calls"}.get(name, name)] = _texts(name, value)


def _write_network(wish: Dict[str, Any], name: str, value: object) -> None:
    network = getattr(value, "value", value)
    if network not in _NETWORKS:
        raise ValueError(f"network must be one of {', '.join(_NETWORKS)}, not {network!r}")
    wish[name] = network


def _write_provider(wish: Dict[str, Any], name: str, value: object) -> None:
    if value not in _PROVIDERS:
        raise ValueError(f"provider must be one of {', '.join(_PROVIDERS)}, not {value!r}")
    wish[name] = value


def _write_image(wish: Dict[str, Any], name: str, value: object) -> None:
    wish[name] = image(value)


def _write_approved(wish: Dict[str, Any], name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"approved must be True or False, not {_type(value)}")
    # A service knows no such word.
    if value:
        wish[name] = True


def image(name: object) -> str:
    """The name of an image, as engines write it."""
    text = _text("image", name)
    if not text.strip():
        raise ValueError("image is empty")
    if text.startswith("-") or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"image: {text!r} is no image's name; write NAME, NAME:TAG or NAME@DIGEST")
    return text


def _write_files(wish: Dict[str, Any], name: str, value: object) -> None:
    wish[name] = files(value)


_WRITERS: Dict[str, Callable[[Dict[str, Any], str, object], None]] = {
    **dict.fromkeys(("policy", "environment", "tenant_id", "user_id", "run_id", "language"), _write_text),
    **dict.fromkeys(("env", "metadata"), _write_map),
    **dict.fromkeys(("mounts", "require", "forbidden_calls", "allowed_imports", "allowed_hosts"), _write_texts),
    "network": _write_network,
    "provider": _write_provider,
    "image": _write_image,
    "approved": _write_approved,
    "files": _write_files,
}


def limits(options: Mapping[str, Any]) -> Dict[str, Union[int, float, str]]:
    """The limits among the options."""
    found: Dict[str, Union[int, float, str]] = {}
    for name, value in options.items():
        if name in _LIMITS and value is not None:
            found[name] = _count(name, value) if name in _COUNTS else quantity(name, value)
    return found


def quantity(name: str, value: object) -> Union[int, float, str]:
    """An amount: a number, or text with its unit."""
    if isinstance(value, str):
        if not value.strip():
            raise ValueError(f"{name} is empty")
        return _text(name, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number or text, not {_type(value)}")
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{name} must not be negative, endless or no number at all, and is {str(value)[:20]}")
    return value


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {_type(value)}")
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{name} must be from 0 to {(1 << 32) - 1}, and is {value}")
    return value


def count(options: Mapping[str, Any], name: str) -> Optional[int]:
    value = options.get(name)
    return None if value is None else _count(name, value)


def flag(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {_type(value)}")
    return value


def surroundings(options: Mapping[str, Any]) -> Tuple[Dict[str, Any], Tools]:
    """Data for the code, and functions that it may call; a function among the globals is one of these."""
    data: Dict[str, Any] = {}
    tools: Tools = {}
    if "globals" not in options and "tools" not in options:
        return data, tools
    for field in ("globals", "tools"):
        named = options.get(field)
        if named is None:
            continue
        if not isinstance(named, Mapping):
            raise TypeError(f"{field} must be a mapping from names, not {_type(named)}")
        for name, value in named.items():
            if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
                raise ValueError(f"{field}: {name!r} is not a name that code could use")
            if callable(value) and not isinstance(value, type):
                tools[name] = value
            elif field == "tools":
                raise TypeError(f"tools[{name!r}] must be a function, not {_type(value)}")
            else:
                data[name] = encode(value, f"globals[{name!r}]")
    return data, tools


def files(named: object) -> Dict[str, Any]:
    """Files for the work directory."""
    from base64 import b64encode

    if not isinstance(named, Mapping):
        raise TypeError(f"files must be a mapping from names to content, not {_type(named)}")
    found: Dict[str, Any] = {}
    for name, content in named.items():
        path = file_name("files", name)
        octets = file_bytes(f"files[{name!r}]", content)
        try:
            found[path] = octets.decode("utf-8")
        except UnicodeDecodeError:
            found[path] = {"base64": b64encode(octets).decode("ascii")}
        if isinstance(content, os.PathLike) and os.access(content, os.X_OK):
            found[path] = {"base64": b64encode(octets).decode("ascii"), "executable": True}
    return found


def file_bytes(what: str, content: object) -> bytes:
    if isinstance(content, str):
        return _utf8(what, content)
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    if isinstance(content, os.PathLike):
        with open(content, "rb") as file:
            return file.read()
    raise TypeError(f"{what} must be text, bytes or a path, not {_type(content)}")


def file_name(what: str, name: object) -> str:
    """R19: a name within the work directory."""
    text = _text(what, os.fspath(name) if isinstance(name, os.PathLike) else name)
    if not text or text.startswith("/") or "\0" in text or ".." in text.split("/"):
        raise ValueError(f"{what}: {text!r} is not a path within the work directory")
    return text


def outputs(options: Mapping[str, Any]) -> List[str]:
    wanted = options.get("outputs") or ()
    if isinstance(wanted, (str, bytes)) or not isinstance(wanted, Iterable):
        raise TypeError(f"outputs must be a list of file names, not {_type(wanted)}")
    return [file_name("outputs", name) for name in wanted]


def stdin(value: object) -> Dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        _utf8("stdin", value)
        return {"stdin": value}
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"stdin must be text or bytes, not {_type(value)}")
    try:
        return {"stdin": bytes(value).decode("utf-8")}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"stdin_base64": b64encode(value).decode("ascii")}


def run(text: str, options: Mapping[str, Any]) -> Tuple[Dict[str, Any], Tools]:
    """One execution in a sandbox of its own."""
    text = code(text)
    if not options:
        return {"code": text, "language": "python", "evaluate": True}, {}
    known("run()", options, RUN)
    wish, tools = place(options)
    wish["code"] = text
    args = options.get("args")
    if args:
        wish["args"] = _texts("args", args)
    wish.update(stdin(options.get("stdin")))
    wanted = outputs(options)
    if wanted:
        wish["outputs"] = wanted
    flag(options, "check")
    if flag(options, "fresh_interpreter"):
        wish["fresh_interpreter"] = True
    language = str(wish.setdefault("language", "python")).lower()
    if language in EVALUATED and not args and "stdin_base64" not in wish:
        wish["evaluate"] = True
    else:
        for name in ("globals", "tools", "allowed_imports", "forbidden_calls"):
            if options.get(name):
                reason = "args" if args else "stdin that is no text" if language in EVALUATED else language
                raise ValueError(f"{name} is for Python and JavaScript code without arguments, and there is {reason}")
    calls = count(options, "max_tool_calls")
    if calls is not None and tools:
        wish["max_tool_calls"] = calls
    return wish, tools


def sandbox(options: Mapping[str, Any]) -> Tuple[Dict[str, Any], Tools]:
    """A sandbox to keep."""
    known("Sandbox()", options, SANDBOX)
    wish, tools = place(options)
    for name in ("idle_timeout", "max_age"):
        value = options.get(name)
        if value is not None:
            wish[name] = quantity(name, value)
    for name in ("max_tool_calls", "max_concurrent_tools"):
        number = count(options, name)
        if number is not None:
            wish[name] = number
    if tools:
        wish["tools"] = sorted(tools)
    return wish, tools


def cell(work: Dict[str, Any], options: Mapping[str, Any]) -> Tuple[Dict[str, Any], Tools]:
    """One execution in a sandbox that is kept. `work` has the code or the command."""
    known("run()", options, CELL)
    flag(options, "check")
    wish = dict(work)
    limited = limits(options)
    if limited:
        wish["limits"] = limited
    given = stdin(options.get("stdin"))
    if "stdin_base64" in given:
        raise ValueError("stdin must be text here")
    wish.update(given)
    wanted = outputs(options)
    if wanted:
        wish["outputs"] = wanted
    data, tools = surroundings(options)
    if data:
        wish["globals"] = data
    if tools:
        wish["tools"] = sorted(tools)
    return wish, tools


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {_type(value)}")
    if "\0" in value:
        raise ValueError(f"{name} holds a NUL character")
    _utf8(name, value)
    return value


def _utf8(name: str, value: str) -> bytes:
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds half a character, which UTF-8 has no place for") from None


def _texts(name: str, values: object) -> List[str]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of text, not {_type(values)}")
    return [_text(f"{name}[{at}]", value) for at, value in enumerate(values)]


def _text_map(name: str, values: object) -> Dict[str, str]:
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping from text to text, not {_type(values)}")
    return {_text(name, key): _text(f"{name}[{key!r}]", value) for key, value in values.items()}


def _type(value: object) -> str:
    return type(value).__name__
