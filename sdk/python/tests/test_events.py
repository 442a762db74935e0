"""What a message on a sandbox's socket means for the execution of the moment."""

from __future__ import annotations

from typing import Any, Dict

import pytest

import belljar
from belljar import _events

PROBLEM: Dict[str, Any] = {"type": "problem", "problem": {"kind": "usage", "detail": "that is no message"}}


@pytest.mark.parametrize("of", [{}, {"id": None}, {"id": 3}])
def test_a_problem_of_this_execution_or_of_none_is_raised(of: Dict[str, Any]) -> None:
    """One without an id is about a message that was not understood: nothing else will come."""
    with pytest.raises(belljar.BadRequest, match="that is no message"):
        _events.read({**PROBLEM, **of}, 3)


@pytest.mark.parametrize("of", [{"call": 7}, {"id": 2}, {"id": 2, "call": 7}])
def test_a_problem_of_something_else_means_nothing(of: Dict[str, Any]) -> None:
    """Such as an answer of a tool that came too late."""
    assert _events.read({**PROBLEM, **of}, 3) is None


def test_what_is_not_known_means_nothing() -> None:
    assert _events.read({"type": "weather", "id": 3}, 3) is None
    assert _events.read({}, 3) is None
