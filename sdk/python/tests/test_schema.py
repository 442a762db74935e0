"""A tool for models: its definition, and the answers to its calls."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Dict, Iterator

import pytest

import belljar
from belljar._schema import LONGEST, cut


def package(name: str) -> Any:
    """A package that the test needs; one that is not there is told."""
    try:
        return __import__("importlib").import_module(name)
    except ImportError:
        pytest.skip(f"not tested here: the definitions against {name}, which is not installed")


def parameters(schema: Dict[str, Any]) -> Any:
    """The JSON schema within a definition."""
    schema = schema.get("function", schema)
    return schema.get("parameters") or schema["input_schema"]


@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic"])
@pytest.mark.parametrize("languages", [["python"], ["python", "javascript", "bash"]])
def test_the_parameters_are_a_json_schema(kind: Any, languages: Any) -> None:
    jsonschema = package("jsonschema")
    schema = parameters(belljar.tool_schema(kind, languages=languages))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = {"code": "1"} if len(languages) == 1 else {"code": "1", "language": "bash"}
    assert validator.is_valid(good)
    for bad in ({}, {"code": 1}, {**good, "more": 1}, {"code": "1", "language": "cobol"}):
        assert not validator.is_valid(bad), bad


def test_the_definitions_are_what_the_apis_document() -> None:
    flat = belljar.tool_schema("openai-responses", name="go", description="Runs.")
    assert flat == {
        "type": "function",
        "name": "go",
        "description": "Runs.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The code to run."}},
            "required": ["code"],
            "additionalProperties": False,
        },
    }
    function = {key: value for key, value in flat.items() if key != "type"}
    assert belljar.tool_schema(name="go", description="Runs.") == {"type": "function", "function": function}
    assert belljar.tool_schema("anthropic", name="go", description="Runs.") == {
        "name": "go",
        "description": "Runs.",
        "input_schema": flat["parameters"],
    }
    assert "JavaScript" in belljar.tool_schema("anthropic", languages=["python", "javascript"])["description"]


def test_the_packages_of_openai_take_them() -> None:
    package("openai")
    pydantic = package("pydantic")
    from openai.types.chat import ChatCompletionFunctionToolParam
    from openai.types.responses import FunctionToolParam

    languages = ["python", "bash"]
    for kind, type_ in (("openai", ChatCompletionFunctionToolParam), ("openai-responses", FunctionToolParam)):
        adapter = pydantic.TypeAdapter(type_)
        schema = belljar.tool_schema(kind, languages=languages)  # type: ignore[arg-type]
        assert adapter.validate_python(schema, strict=True)
        with pytest.raises(pydantic.ValidationError):
            adapter.validate_python(belljar.tool_schema("anthropic"))


def test_the_package_of_anthropic_takes_it() -> None:
    package("anthropic")
    pydantic = package("pydantic")
    from anthropic.types import ToolParam

    adapter = pydantic.TypeAdapter(ToolParam)
    assert adapter.validate_python(belljar.tool_schema("anthropic", languages=["python", "bash"]))
    with pytest.raises(pydantic.ValidationError):
        adapter.validate_python(belljar.tool_schema("openai"))


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"kind": "gemini"}, ValueError, "kind"),
        ({"name": "has space"}, ValueError, "name"),
        ({"name": "x" * 65}, ValueError, "name"),
        ({"name": 1}, TypeError, "name"),
        ({"description": 1}, TypeError, "description"),
        ({"languages": "python"}, TypeError, "languages"),
        ({"languages": []}, ValueError, "languages"),
        ({"languages": [1]}, TypeError, "languages"),
        ({"languages": ["a", "a"]}, ValueError, "languages"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: Dict[str, Any], error: Any, named: str) -> None:
    """R6."""
    with pytest.raises(error, match=named):
        belljar.tool_schema(**options)


# What a model may write, and what tells it so.
MALFORMED = [
    ("", "not JSON"),
    ('{"code": "1"', "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("[]", "object with `code`"),
    (None, "object with `code`"),
    (5, "object with `code`"),
    ({}, "`code` is missing"),
    ({"code": None}, "code must be text"),
    ({"code": ["1"]}, "code must be text"),
    ({"code": "a\0b"}, "NUL"),
    ({"code": "'\ud800'"}, "half a character"),
    ({"code": "1", "timeout": 900}, "no argument 'timeout'"),
    ({"code": "1", "language": "bash"}, "must be 'python'"),
    ({1: 2}, "no argument '1'"),
]


@pytest.mark.parametrize(("arguments", "told"), MALFORMED)
def test_malformed_arguments_are_told_and_nothing_starts(
    arguments: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belljar._sandbox.run", None)
    assert told in belljar.answer_tool_call(arguments)


def test_a_language_of_several_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    languages = ["python", "bash"]
    monkeypatch.setattr("belljar._sandbox.run", None)
    assert "`language` is missing" in belljar.answer_tool_call({"code": "1"}, languages=languages)
    assert "'perl'" in belljar.answer_tool_call({"code": "1", "language": "perl"}, languages=languages)


def test_mistakes_of_the_caller_are_raised() -> None:
    for options in ({"memry": "1G"}, {"check": True}, {"language": "bash"}):
        with pytest.raises(TypeError, match=next(iter(options))):
            belljar.answer_tool_call({"code": "1"}, **options)


@pytest.mark.usefixtures("client")
class TestAnswers:
    @pytest.fixture
    def sandbox(self) -> Iterator[belljar.Sandbox]:
        with belljar.Sandbox() as made:
            yield made

    def test_what_is_printed_and_the_value(self) -> None:
        """R4."""
        code = "import sys; print('hello'); print('careful', file=sys.stderr); {'a': 1}"
        answer = belljar.answer_tool_call(json.dumps({"code": code}))
        assert answer == "stdout:\nhello\nstderr:\ncareful\nvalue:\n{'a': 1}"
        assert belljar.answer_tool_call({"code": "x = 1"}) == "(It ran, and printed nothing.)"

    def test_an_error_has_its_traceback(self) -> None:
        answer = belljar.answer_tool_call({"code": "print('before')\ndef f():\n    return 1 / 0\nf()"})
        assert answer.startswith("stdout:\nbefore\nerror:\nTraceback")
        assert "line 3, in f" in answer and answer.endswith("ZeroDivisionError: division by zero")
        assert "SyntaxError" in belljar.answer_tool_call({"code": "def f(:"})

    def test_code_that_does_not_end_is_told(self) -> None:
        """R22."""
        answer = belljar.answer_tool_call({"code": "while True: pass"}, timeout=0.5)
        assert answer.startswith("error:\n") and "0.5 s" in answer

    def test_another_language(self) -> None:
        languages = ["python", "bash"]
        answer = belljar.answer_tool_call({"code": "echo $((6 * 7)); exit 3", "language": "bash"}, languages=languages)
        assert answer.startswith("stdout:\n42\nerror:\n") and "3" in answer

    def test_a_sandbox_keeps_its_state(self, sandbox: belljar.Sandbox) -> None:
        """R42."""
        belljar.answer_tool_call({"code": "x = 41"}, sandbox=sandbox)
        assert belljar.answer_tool_call({"code": "x + 1"}, sandbox=sandbox) == "value:\n42"
        assert "must be 'python'" in belljar.answer_tool_call({"code": "1", "language": "bash"}, sandbox=sandbox)
        lost = belljar.answer_tool_call({"code": "while True: pass"}, sandbox=sandbox, timeout=0.5)
        assert "began anew" in lost or belljar.answer_tool_call({"code": "x"}, sandbox=sandbox) == "value:\n41"
        for wrong in ({"languages": ["python"]}, {"memory": "1G", "policy": "standard"}):
            with pytest.raises((TypeError, ValueError)):
                belljar.answer_tool_call({"code": "1"}, sandbox=sandbox, **wrong)

    def test_a_long_answer_keeps_its_beginning_and_its_end(self) -> None:
        """R31."""
        answer = belljar.answer_tool_call({"code": "print('first'); print('x' * 100_000); print('last')"})
        assert LONGEST - 100 < len(answer) <= LONGEST
        assert answer.startswith("stdout:\nfirst") and answer.endswith("last") and "characters left out" in answer

    def test_what_is_displayed_is_named(self) -> None:
        code = "class Picture:\n    def _repr_svg_(self): return '<svg/>'\nPicture()"
        assert "image/svg+xml" in belljar.answer_tool_call({"code": code})

    def test_what_is_not_the_models_doing_is_raised(self, sandbox: belljar.Sandbox) -> None:
        with pytest.raises(belljar.RequestError, match="nobody-defined-it"):
            belljar.answer_tool_call({"code": "1"}, policy="nobody-defined-it")
        sandbox.close()
        with pytest.raises(belljar.SandboxClosed):
            belljar.answer_tool_call({"code": "1"}, sandbox=sandbox)


@pytest.mark.parametrize(
    ("module", "package_", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("smolagents", "smolagents", "smolagents"),
        ("inspect_ai", "inspect_ai", "inspect"),
    ],
)
def test_an_integration_without_its_package_says_what_to_install(module: str, package_: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package_!r}] = None; import belljar.integrations.{module}"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = failed.stderr.splitlines()[-1]
    assert last.startswith("ImportError") and f'pip install "belljar[{extra}]"' in last


@pytest.mark.parametrize("length", [0, 1, 99, 100, 101, 102, 1000, 123_456])
def test_cut(length: int) -> None:
    text = "".join(chr(97 + n % 26) for n in range(length))
    short = cut(text, 100)
    assert len(short) <= 100 and (short == text) == (length <= 100)
    if length > 100:
        head, rest = short.split("\n[... ")
        number, tail = rest.split(" characters left out ...]\n")
        assert text.startswith(head) and text.endswith(tail) and len(head) + len(tail) + int(number) == length
