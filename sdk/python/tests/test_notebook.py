"""The notebook runs from its first cell to its last, and shows what it says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import start_service

import belljar
from belljar._engine import find_executable

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.ipynb"

for needed in ("nbclient", "nbformat", "ipykernel"):
    pytest.importorskip(needed, reason=f"not tested here: the notebook, since {needed} is not installed")

import nbformat  # noqa: E402
from nbclient import NotebookClient  # noqa: E402

Output = Dict[str, Any]


@pytest.fixture(params=["embedded", "service"])
def executed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Dict[str, List[Output]]:
    """What each cell put out, by its code. The kernel is a process of its own."""
    source = str(Path(belljar.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((source, os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("BELLJAR_BIN", find_executable())
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("BELLJAR_URL", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    running = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place)
    if request.param == "embedded":
        running.execute()
    else:
        # One whose quota nobody else uses.
        process, url = start_service(tmp_path)
        monkeypatch.setenv("BELLJAR_URL", url)
        try:
            running.execute()
        finally:
            process.terminate()
            process.wait(60)
    return {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def outputs(executed: Dict[str, List[Output]], part: str) -> List[Output]:
    """Of the one cell that has this in its code."""
    [found] = [put_out for source, put_out in executed.items() if part in source]
    return found


def test_every_cell_shows_what_it_says(executed: Dict[str, List[Output]]) -> None:
    [printed] = outputs(executed, "under glass")
    assert printed["output_type"] == "execute_result" and printed["data"]["text/plain"] == "under glass\n42"

    [table] = outputs(executed, "class Table")
    rows = "<tr><td>tea</td><td>3.5</td></tr><tr><td>cake</td><td>4.25</td></tr>"
    assert table["data"]["text/html"] == f"<table>{rows}</table>"

    [picture] = outputs(executed, "class Bars")
    drawn = picture["data"]["image/svg+xml"]
    assert drawn.startswith("<svg xmlns") and drawn.count("<rect") == 3

    several = outputs(executed, "displays")
    assert [one["output_type"] for one in several] == ["display_data", "display_data"]
    assert "<td>1</td>" in several[0]["data"]["text/html"] and several[1]["data"]["image/svg+xml"].count("<rect") == 1

    [failed] = outputs(executed, "Table(5)")
    text = failed["data"]["text/plain"]
    assert text.startswith("before\nTraceback") and text.rstrip().endswith("'int' object is not iterable")

    [caught] = outputs(executed, "check=True")
    assert caught["text"] == "ZeroDivisionError - division by zero\n"

    streamed = outputs(executed, "on_stdout")
    assert "".join(one["text"] for one in streamed) == "step 0\nstep 1\nstep 2\n"


def test_it_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))
