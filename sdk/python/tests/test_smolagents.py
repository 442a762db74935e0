"""The executor for smolagents, within a CodeAgent whose model says what the test wrote down."""

from __future__ import annotations

from typing import Any, Iterator, List

import pytest

import belljar

pytest.importorskip("smolagents", reason="not tested here: smolagents, which is not installed")

from smolagents import CodeAgent, Tool, tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import LogLevel

from belljar.integrations.smolagents import BelljarExecutor

pytestmark = pytest.mark.usefixtures("client")


class Canned(Model):  # type: ignore[misc]
    """A model that writes this code, step by step, and remembers what it was told."""

    def __init__(self, *steps: str) -> None:
        super().__init__(model_id="canned")
        self.steps = list(steps)
        self.heard: List[str] = []

    def generate(self, messages: Any, *_: Any, **__: Any) -> ChatMessage:
        self.heard.append(str(messages[-1].content))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: so.\n<code>\n{self.steps.pop(0)}\n</code>")


@tool
def price(name: str) -> float:
    """What something costs.

    Args:
        name: What it is.
    """
    called.append(name)
    return {"tea": 3.5}[name]


called: List[str] = []


@pytest.fixture
def executor() -> Iterator[BelljarExecutor]:
    called.clear()
    with BelljarExecutor() as made:
        yield made


def agent(executor: BelljarExecutor, *steps: str, **options: Any) -> CodeAgent:
    options = {"verbosity_level": LogLevel.OFF, "max_steps": len(steps), **options}
    return CodeAgent(tools=[price], model=Canned(*steps), executor=executor, **options)


def test_an_agent_calls_a_tool_keeps_its_state_and_answers(executor: BelljarExecutor) -> None:
    """R41, R42: functions of the host, and variables that stay."""
    made = agent(
        executor,
        "cost = price('tea')\nprint('one costs', cost)",
        "import os\nprint(os.getcwd(), os.path.exists('/etc/shadow'))\ncost * factor",
        "final_answer({'total': cost * factor, 'set': {1, 2}})",
    )
    with made:
        answer = made.run("What do four cost?", additional_args={"factor": 4})
    assert answer == {"total": 14.0, "set": {1, 2}}
    assert called == ["tea"]
    assert "one costs 3.5" in made.model.heard[1]
    assert "/workspace False" in made.model.heard[2] and "14.0" in made.model.heard[2]
    assert executor._sandbox is None, "the agent cleans up"


def test_an_error_is_told_and_the_agent_goes_on(executor: BelljarExecutor) -> None:
    made = agent(executor, "print('before')\nx = 5\n1 / 0", "price('coffee')", "final_answer(x)")
    assert made.run("Try.") == 5
    assert "ZeroDivisionError: division by zero" in made.model.heard[1]
    assert made.memory.steps[1].observations == "Execution logs:\nbefore\n"
    assert "KeyError" in made.model.heard[2] and "coffee" in made.model.heard[2]


def test_a_final_answer_ends_the_code(executor: BelljarExecutor) -> None:
    executor.send_tools({})
    output = executor("print('a')\ntry:\n    final_answer('x')\nexcept Exception:\n    pass\nprint('b')")
    assert (output.output, output.logs, output.is_final_answer) == ("x", "a\n", True)
    following = executor("1 + 1")
    assert (following.output, following.is_final_answer) == (2, False)


def test_the_agents_own_final_answer_runs_here(executor: BelljarExecutor) -> None:
    class Doubled(Tool):  # type: ignore[misc]
        name = "final_answer"
        description = "Answers."
        inputs = {"answer": {"type": "integer", "description": "It."}}
        output_type = "integer"

        def forward(self, answer: int) -> int:
            return answer * 2

    executor.send_tools({"final_answer": Doubled()})
    assert executor("final_answer(answer=21)").output == 42


def test_what_the_agent_sent_is_there_after_a_state_was_lost(executor: BelljarExecutor) -> None:
    executor.send_variables({"factor": 4})
    executor.send_tools({"price": price})
    executor("mine = 1")
    with pytest.raises(belljar.ExecutionError, match="lost: variables"):
        executor("import os\nos._exit(1)")
    assert executor("price('tea') * factor").output == 14.0
    with pytest.raises(belljar.ExecutionError, match="NameError"):
        executor("mine")
    assert executor("final_answer(1)").is_final_answer


def test_a_sandbox_that_is_over_is_told_and_replaced(executor: BelljarExecutor, client: belljar.Client) -> None:
    executor.send_tools({"price": price})
    sandbox = executor._sandbox
    assert sandbox is not None
    client.call("DELETE", f"/v1/sessions/{sandbox.id}")
    with pytest.raises(belljar.ExecutionError, match="new sandbox"):
        executor("1")
    assert executor("price('tea')").output == 3.5


def test_what_is_no_data_is_refused(executor: BelljarExecutor) -> None:
    with pytest.raises(TypeError, match="thing"):
        executor.send_variables({"thing": object()})


def test_long_logs_are_cut() -> None:
    """R31."""
    with BelljarExecutor(max_print_outputs_length=1000) as executor:
        assert len(executor("print('x' * 100_000)").logs) < 2000


def test_options_are_those_of_a_sandbox() -> None:
    """R6, R39."""
    with pytest.raises(TypeError, match="memry"):
        BelljarExecutor(memry="1G")  # type: ignore[call-arg]
    with BelljarExecutor(allowed_imports=["math"]) as executor:
        assert executor("import math\nmath.floor(2.5)").output == 2
        with pytest.raises(belljar.ExecutionError, match="Import 'os' not allowed"):
            executor("import os")
