"""Every example of the README does what it shows."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple

import pytest
from conftest import start_service

import belljar

README = Path(__file__).parent.parent / "README.md"
FENCE = re.compile(r"^```(\w+) ?([\w.]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVICE = "http://127.0.0.1:8377"


class Block(NamedTuple):
    language: str
    needs: str
    text: str
    line: int


def blocks() -> List[Block]:
    text = README.read_text(encoding="utf-8")
    return [Block(*found.groups(), text[: found.start()].count("\n") + 2) for found in FENCE.finditer(text)]


def execute(block: Block, names: Dict[str, Any]) -> None:
    example = doctest.DocTestParser().get_doctest(block.text, names, "README.md", str(README), block.line - 1)
    assert example.examples, f"line {block.line}: nothing to run"
    told: List[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    runner.run(example, out=told.append, clear_globs=False)
    names.update(example.globs)
    assert runner.summarize(verbose=False).failed == 0, "".join(told)


def test_every_block_is_one_that_is_looked_at() -> None:
    kinds = [block.language for block in blocks()]
    assert set(kinds) == {"sh", "pycon"} and kinds.count("pycon") >= 12
    assert README.read_text(encoding="utf-8").count("```") == 2 * len(kinds)


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One whose quota nobody else uses."""
    process, url = start_service(tmp_path_factory.mktemp("readme"))
    yield url
    process.terminate()
    process.wait(60)


@pytest.mark.usefixtures("client")
def test_the_tour(own_service: str) -> None:
    names: Dict[str, Any] = {}
    for block in blocks():
        if block.language == "pycon" and not block.needs:
            execute(block._replace(text=block.text.replace(SERVICE, own_service)), names)


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("block", [block for block in blocks() if block.needs], ids=lambda block: block.needs)
def test_the_frameworks(block: Block) -> None:
    try:
        importlib.import_module(block.needs)
    except ImportError:
        pytest.skip(f"not tested here: the README's example of {block.needs}, which is not installed")
    execute(block, {"belljar": belljar})


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
