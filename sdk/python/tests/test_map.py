"""Many at once."""

from __future__ import annotations

import itertools
import time
from typing import List, Tuple

import pytest

import belljar

pytestmark = pytest.mark.usefixtures("client")


def test_order_is_kept() -> None:
    codes = [f"import time; time.sleep({0.2 if n == 0 else 0}); {n}" for n in range(20)]
    assert [r.value for r in belljar.map(codes, concurrency=4)] == list(range(20))


def test_or_not() -> None:
    codes = ["import time; time.sleep(1); 'slow'", "'quick'"]
    values = [r.value for r in belljar.map(codes, concurrency=2, ordered=False)]
    assert values == ["quick", "slow"]


def test_each_has_its_own_options_and_progress_is_told() -> None:
    seen: List[Tuple[int, object]] = []
    requests = [{"code": "x", "globals": {"x": n}} for n in range(3)]
    results = belljar.map(requests, progress=lambda done, total: seen.append((done, total)))
    assert [r.value for r in results] == [0, 1, 2] and seen == [(1, 3), (2, 3), (3, 3)]


def test_what_is_refused_is_a_result() -> None:
    good, bad, also = belljar.map(["1", {"code": "1", "policy": "restricted", "language": "bash"}, "1/0"])
    assert good.value == 1 and not bad.success and also.error_type == "ZeroDivisionError"
    with pytest.raises(belljar.Denied):
        bad.check()


def test_an_endless_source_is_read_as_results_are_taken() -> None:
    taken = itertools.count()
    results = belljar.map((f"{next(taken)}" for _ in itertools.count()), concurrency=2)
    assert [next(results).value for _ in range(5)] == [0, 1, 2, 3, 4]
    assert next(taken) < 15
    results.close()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"requests": [3]}, "requests[0]"),
        ({"requests": ["1", {}]}, "requests[1]"),
        ({"requests": [{"code": "1", "timeout": -1}]}, "requests[0]"),
        ({"requests": ["1"], "concurrency": 0}, "concurrency"),
        ({"requests": ["1"], "concurrency": 1.5}, "concurrency"),
        ({"requests": ["1"], "progress": 3}, "progress"),
        ({"requests": ["1"], "timout": 3}, "timeout"),
        ({"requests": ["1", "a\0b"]}, "requests[1]"),
        ({"requests": ["1"], "check": True}, "requests[0]"),
    ],
)
def test_what_is_wrong_is_named(arguments: dict, names: str) -> None:
    with pytest.raises((TypeError, ValueError)) as wrong:
        list(belljar.map(**arguments))
    assert names in str(wrong.value)


async def test_async() -> None:
    values = [r.value async for r in belljar.map_async([f"{n} * 2" for n in range(10)], concurrency=3)]
    assert values == [n * 2 for n in range(10)]


def test_who_takes_no_more_has_the_rest_ended() -> None:
    began = time.monotonic()
    results = belljar.map(["1", *["import time; time.sleep(25)"] * 8], concurrency=4)
    assert next(results).value == 1
    time.sleep(0.5)
    results.close()
    assert time.monotonic() - began < 24


def test_a_bar_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm", reason="not tested here: progress by tqdm: it is not installed")
    assert [result.value for result in belljar.map(["1", "2"], progress=True)] == [1, 2]
    assert "2/2" in capsys.readouterr().err
