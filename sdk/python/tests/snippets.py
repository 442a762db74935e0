"""The Python examples of the source documents, byte for byte except the lines that import from elsewhere."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from pathlib import Path
from typing import Any, Dict

_ELSEWHERE = re.compile(r"^from (orchestrator|unified[.\w]*) import .*\n", re.MULTILINE)


def blocks(document: str, sha256: str) -> Dict[str, str]:
    """A document's Python examples by what stands above them. The document is the one with that hash."""
    text = (Path(__file__).parent / "documents" / document).read_bytes()
    assert hashlib.sha256(text).hexdigest() == sha256, f"{document} was changed"
    found: Dict[str, str] = {}
    heading = ""
    for part in re.finditer(r"^##+ (.+)$|^\*\*(.+)\*\*$|^```python\n((?:.*\n)*?)```$", text.decode(), re.MULTILINE):
        if part.group(3) is None:
            heading = part.group(1) or part.group(2)
        else:
            assert heading not in found, f"two examples below {heading!r}"
            found[heading] = part.group(3)
    return found


async def execute(example: str, names: Dict[str, Any]) -> Dict[str, Any]:
    """Executes an example among these names, as a notebook would: it may await."""
    code = compile(_ELSEWHERE.sub("", example), "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(code, names)
    if inspect.iscoroutine(waiting):
        await waiting
    return names
