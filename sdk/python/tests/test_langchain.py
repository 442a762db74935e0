"""The tool for LangChain, with LangChain itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Iterator

import pytest

import belljar

pytest.importorskip("langchain_core", reason="not tested here: LangChain, which is not installed")

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool

from belljar.integrations.langchain import BelljarTool

pytestmark = pytest.mark.usefixtures("client")


def call(code: str) -> Any:
    """A call as a model makes it."""
    return {"type": "tool_call", "id": "call-1", "name": "run_python", "args": {"code": code}}


@pytest.fixture
def tool() -> Iterator[BelljarTool]:
    with BelljarTool() as made:
        yield made


def test_what_a_model_sees(tool: BelljarTool) -> None:
    function = convert_to_openai_tool(tool)["function"]
    assert function["name"] == "run_python" and "Python" in function["description"]
    assert function["parameters"]["required"] == ["code"]
    assert "stay" in tool.description and "anew" in BelljarTool(keep_state=False).description
    assert BelljarTool(name="js", options={"language": "javascript"}).description.startswith("Runs JavaScript")
    assert BelljarTool(description="Mine.").description == "Mine."


def test_invoke_keeps_state_until_it_is_closed(tool: BelljarTool) -> None:
    """R42."""
    tool.invoke({"code": "x = 41"})
    assert tool.invoke({"code": "print('hi'); x + 1"}) == "stdout:\nhi\nvalue:\n42"
    assert tool.invoke("x") == "value:\n41"
    tool.close()
    tool.close()
    assert "NameError" in tool.invoke("x")


async def test_invoke_and_ainvoke_share_the_state(tool: BelljarTool) -> None:
    await tool.ainvoke({"code": "x = 1"})
    assert tool.invoke({"code": "x + 1"}) == "value:\n2"
    await asyncio.gather(*(tool.ainvoke({"code": "x += 1"}) for _ in range(5)))
    assert await tool.ainvoke({"code": "x"}) == "value:\n6"


async def test_each_call_can_begin_anew() -> None:
    with BelljarTool(keep_state=False) as tool:
        assert tool.invoke({"code": "x = 1; x"}) == "value:\n1"
        assert "NameError" in tool.invoke({"code": "x"})
        assert await tool.ainvoke({"code": "y = 2; y"}) == "value:\n2"
        assert "NameError" in await tool.ainvoke({"code": "y"})


async def test_a_tool_call_gives_a_message_with_the_result(tool: BelljarTool) -> None:
    """R4: the artifact is the one result type."""
    for message in (tool.invoke(call("print('a'); 6 * 7")), await tool.ainvoke(call("print('a'); 6 * 7"))):
        assert isinstance(message, ToolMessage)
        assert message.tool_call_id == "call-1" and message.content == "stdout:\na\nvalue:\n42"
        assert isinstance(message.artifact, belljar.Result) and message.artifact.value == 42


def test_errors_are_text(tool: BelljarTool) -> None:
    failed = tool.invoke(call("1 / 0"))
    assert failed.content.endswith("ZeroDivisionError: division by zero") and not failed.artifact.success
    late = BelljarTool(options={"timeout": 0.5}, keep_state=False).invoke({"code": "while True: pass"})
    assert "0.5 s" in late
    malformed = tool.invoke({**call(""), "args": {"cod": "1"}})
    assert malformed.status == "error"
    assert "NUL" in tool.invoke({"code": "\0"})


def test_what_did_not_run_is_a_tool_exception() -> None:
    options = {"policy": "nobody-defined-it"}
    told = BelljarTool(options=options).invoke(call("1"))
    assert told.status == "error" and "nobody-defined-it" in told.content
    with pytest.raises(ToolException, match="nobody-defined-it"):
        BelljarTool(options=options, handle_tool_error=False).invoke(call("1"))


def test_a_sandbox_that_is_over_is_told_and_replaced(tool: BelljarTool, client: belljar.Client) -> None:
    tool.invoke({"code": "x = 1"})
    sandbox = tool._sandbox
    assert sandbox is not None
    client.call("DELETE", f"/v1/sessions/{sandbox.id}")
    assert "gone" in tool.invoke({"code": "x"})
    assert "NameError" in tool.invoke({"code": "x"})


async def test_cancelling_interrupts_the_code_and_keeps_the_state(tool: BelljarTool) -> None:
    await tool.ainvoke({"code": "x = 5"})
    began = time.monotonic()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(tool.ainvoke({"code": "import time\ntime.sleep(30)"}), 0.5)
    assert await tool.ainvoke({"code": "x"}) == "value:\n5"
    assert time.monotonic() - began < 25


def test_options_are_checked_at_once() -> None:
    """R6."""
    with pytest.raises(TypeError, match="memry"):
        BelljarTool(options={"memry": "1G"})
    with pytest.raises(ValueError, match="timeout"):
        BelljarTool(options={"timeout": -1}, keep_state=False)


def test_the_code_may_call_functions_of_the_host() -> None:
    with BelljarTool(options={"tools": {"price": {"tea": 3.5}.get}}) as tool:
        assert tool.invoke({"code": "price('tea') * 2"}) == "value:\n7.0"
