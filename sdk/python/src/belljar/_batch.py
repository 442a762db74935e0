"""Many executions at once: `map` and `map_async`."""

from __future__ import annotations

import os
from typing import Any, AsyncIterator, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from . import _client, _request
from ._client import Client
from ._errors import RequestError, SandboxError
from ._result import Result

Wish = Union[str, Mapping[str, Any]]
Progress = Callable[[int, Optional[int]], object]

_AGAIN = 0.2


class Failed(Result):
    """One of many that did not run: its `reason` is the exception, and it counts as failed."""

    def __init__(self, reason: SandboxError) -> None:
        record: Dict[str, Any] = getattr(reason, "record", None) or {}
        told = {"type": type(reason).__name__, "stage": "run", "message": reason.message}
        super().__init__({"status": "failed", "outcome": {"status": "failed", "error": told}, "record": record})
        self.reason = reason

    def check(self) -> Result:
        raise self.reason


def _of(wish: Wish, at: int, common: Mapping[str, Any]) -> Tuple[str, Dict[str, Any]]:
    """The code and the options of one of many."""
    if isinstance(wish, str):
        return wish, dict(common)
    if not isinstance(wish, Mapping):
        raise TypeError(f"requests[{at}] must be code or a mapping with `code`, not {type(wish).__name__}")
    options = {**common, **wish}
    code = options.pop("code", None)
    if not isinstance(code, str):
        raise TypeError(f"requests[{at}] has no `code`")
    if options.get("check"):
        raise ValueError(f"requests[{at}]: check is for one; look at each result of many")
    try:
        _request.run(code, options)
    except (TypeError, ValueError) as error:
        raise type(error)(f"requests[{at}]: {error}") from None
    return code, options


def _concurrency(wanted: Optional[int]) -> int:
    if wanted is None:
        return (os.cpu_count() or 1) * 4
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise TypeError(f"concurrency must be a whole number, not {type(wanted).__name__}")
    if wanted < 1:
        raise ValueError(f"concurrency must be 1 or more, and is {wanted}")
    return wanted


class _Bar:
    """Tells how far it is: to a callback, or to tqdm where that is asked for and installed."""

    def __init__(self, progress: Union[Progress, bool, None], total: Optional[int]) -> None:
        self._done = 0
        self._total = total
        self._callback: Optional[Progress] = progress if callable(progress) else None
        self._bar: Any = None
        if progress is True:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="run")
        elif progress is not None and progress is not False and not callable(progress):
            raise TypeError(f"progress must be a function or a bool, not {type(progress).__name__}")

    def step(self) -> None:
        self._done += 1
        if self._callback is not None:
            self._callback(self._done, self._total)
        if self._bar is not None:
            self._bar.update(1)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _total(requests: Iterable[Wish]) -> Optional[int]:
    return len(requests) if hasattr(requests, "__len__") else None  # type: ignore[arg-type]


def _one(client: Client, code: str, options: Dict[str, Any]) -> Result:
    import time

    from ._sandbox import run

    while True:
        try:
            return run(code, client=client, **options)
        except RequestError as error:
            if error.kind != "busy":
                return Failed(error)
            # A service that is full is asked again; nothing of this one has run.
            time.sleep(error.retry_after or _AGAIN)
        except SandboxError as error:
            return Failed(error)


def map(
    requests: Iterable[Wish],
    *,
    concurrency: Optional[int] = None,
    progress: Union[Progress, bool, None] = None,
    ordered: bool = True,
    client: Optional[Client] = None,
    **common: Any,
) -> Iterator[Result]:
    """Runs many programs, so many at a time, and gives each result as it comes, in the order of the requests.

    A request is code, or a mapping with `code` and whatever `run` takes; `common` is for all of them. One that is
    refused is a result as well, whose `check()` raises the reason. `requests` may be endless: it is read as results are
    taken.

    >>> import belljar
    >>> [result.value for result in belljar.map(["1 + 1", {"code": "x * 2", "globals": {"x": 21}}])]
    [2, 42]
    """
    _request.known("map()", common, _request.RUN)
    width = _concurrency(concurrency)
    bar = _Bar(progress, _total(requests))
    return _map(iter(requests), width, bar, ordered, client or _client.default(), common)


def _map(
    requests: Iterator[Wish], width: int, bar: _Bar, ordered: bool, client: Client, common: Mapping[str, Any]
) -> Iterator[Result]:
    from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

    pool = ThreadPoolExecutor(width, thread_name_prefix="belljar-map")
    client = client.sibling()
    under_way: List[Future[Result]] = []
    numbered = enumerate(requests)

    def fill() -> None:
        # Those that are done and wait for one before them count too, so that results do not pile up.
        while len(under_way) < width * 2:
            following = next(numbered, None)
            if following is None:
                return
            at, wish = following
            under_way.append(pool.submit(_one, client, *_of(wish, at, common)))

    try:
        fill()
        while under_way:
            if ordered:
                first = under_way[0]
            else:
                first = next(iter(wait(under_way, return_when=FIRST_COMPLETED).done))
            result = first.result()
            under_way.remove(first)
            bar.step()
            yield result
            fill()
    finally:
        for future in under_way:
            future.cancel()
        bar.close()
        # Whoever takes no more results has what still runs ended.
        client.hang_up()
        pool.shutdown(wait=True)


async def map_async(
    requests: Iterable[Wish],
    *,
    concurrency: Optional[int] = None,
    progress: Union[Progress, bool, None] = None,
    ordered: bool = True,
    client: Optional[Client] = None,
    **common: Any,
) -> AsyncIterator[Result]:
    """The same as `map`, as an async iterator."""
    import asyncio

    from ._async_sandbox import run_async

    _request.known("map_async()", common, _request.RUN)
    gate = asyncio.Semaphore(_concurrency(concurrency))
    width = _concurrency(concurrency)
    bar = _Bar(progress, _total(requests))
    chosen = client or _client.default()

    async def one(code: str, options: Dict[str, Any]) -> Result:
        async with gate:
            while True:
                try:
                    return await run_async(code, client=chosen, **options)
                except RequestError as error:
                    if error.kind != "busy":
                        return Failed(error)
                    await asyncio.sleep(error.retry_after or _AGAIN)
                except SandboxError as error:
                    return Failed(error)

    under_way: List[asyncio.Task[Result]] = []
    numbered = enumerate(requests)

    def fill() -> None:
        while len(under_way) < width * 2:
            following = next(numbered, None)
            if following is None:
                return
            at, wish = following
            under_way.append(asyncio.ensure_future(one(*_of(wish, at, common))))

    try:
        fill()
        while under_way:
            if ordered:
                first = under_way[0]
            else:
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                first = next(iter(done))
            result = await first
            under_way.remove(first)
            bar.step()
            yield result
            fill()
    finally:
        for task in under_way:
            task.cancel()
        bar.close()
