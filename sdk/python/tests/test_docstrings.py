"""The examples in docstrings are run."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import belljar

FOUND = [module.name for module in pkgutil.walk_packages(belljar.__path__, "belljar.")]
MODULES = [name for name in FOUND if not name.startswith("belljar.integrations")]


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("module", ["belljar", *MODULES])
def test_examples(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0


def test_the_everyday_calls_have_examples() -> None:
    finder = doctest.DocTestFinder()
    for thing in (belljar, belljar.run, belljar.Sandbox, belljar.map):
        assert any(test.examples for test in finder.find(thing, getattr(thing, "__name__", "x")))
