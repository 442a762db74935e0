"""Many executions at once: `map` and `map_async`."""

from __future__ import annotations

import os
import sys
import threading
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
)

from . import _client, _limits, _request
from ._client import Client
from ._errors import RequestError, SandboxError
from ._result import Result

if TYPE_CHECKING:
    from concurrent.futures import Future
    from queue import SimpleQueue

Wish = Union[str, Mapping[str, Any]]
Progress = Callable[[int, Optional[int]], object]

_AGAIN = 0.2
_LONGEST = 30.0


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
        wish = {"code": wish}
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
    return _limits.whole("concurrency", wanted, 1)


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


def _pause(error: SandboxError) -> Optional[float]:
    """How long to wait for a service that is full, where nothing of this one has run; None if it is something else."""
    if not isinstance(error, RequestError) or error.kind != "busy":
        return None
    return min(error.retry_after or _AGAIN, _LONGEST)


F = TypeVar("F")


class _Window(List[F]):
    """Those of many that are under way, in the order of the requests."""

    def __init__(
        self, requests: Iterable[Wish], width: int, common: Mapping[str, Any], start: Callable[[str, Dict[str, Any]], F]
    ) -> None:
        super().__init__()
        self._requests = enumerate(requests)
        # Those that are done and wait for one before them count too, so that results do not pile up.
        self._most = width * 2
        self._common = common
        self._start = start

    def fill(self) -> bool:
        """Starts what there is room for; False if nothing is under way."""
        while len(self) < self._most:
            following = next(self._requests, None)
            if following is None:
                break
            at, wish = following
            self.append(self._start(*_of(wish, at, self._common)))
        return bool(self)


class _Workers:
    """Threads that run programs. They keep nobody from ending the process."""

    def __init__(self, width: int, client: Client) -> None:
        from queue import SimpleQueue

        self._client = client.sibling()
        self._over = threading.Event()
        self._waiting: SimpleQueue[Optional[Tuple[Future[Result], str, Dict[str, Any]]]] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"belljar-map-{n}", daemon=True) for n in range(width)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, code: str, options: Dict[str, Any]) -> Future[Result]:
        from concurrent.futures import Future

        future: Future[Result] = Future()
        self._waiting.put((future, code, options))
        return future

    def _work(self) -> None:
        while True:
            job = self._waiting.get()
            if job is None or self._over.is_set():
                return
            future, code, options = job
            try:
                future.set_result(self._one(code, options))
            except BaseException as error:
                future.set_exception(error)

    def _one(self, code: str, options: Dict[str, Any]) -> Result:
        from ._sandbox import run

        while True:
            try:
                return run(code, client=self._client, **options)
            except SandboxError as error:
                pause = _pause(error)
                if pause is None or self._over.wait(pause):
                    return Failed(error)

    def end(self) -> None:
        """Ends what still runs, and waits for that."""
        self._over.set()
        self._client.hang_up()
        for _ in self._threads:
            self._waiting.put(None)
        if sys.is_finalizing():
            # Threads that are no more than guests of a process stand still by now: nobody would come.
            return
        for thread in self._threads:
            thread.join(_LONGEST)


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
    return _map(iter(requests), width, bar, ordered, _client.chosen(client), common)


def _map(
    requests: Iterator[Wish], width: int, bar: _Bar, ordered: bool, client: Client, common: Mapping[str, Any]
) -> Iterator[Result]:
    from concurrent.futures import FIRST_COMPLETED, wait

    workers = _Workers(width, client)
    under_way = _Window(requests, width, common, workers.run)
    try:
        while under_way.fill():
            if ordered:
                first = under_way[0]
            else:
                first = next(iter(wait(under_way, return_when=FIRST_COMPLETED).done))
            result = first.result()
            under_way.remove(first)
            bar.step()
            yield result
    finally:
        bar.close()
        # Whoever takes no more results has what still runs ended.
        workers.end()


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
    width = _concurrency(concurrency)
    gate = asyncio.Semaphore(width)
    bar = _Bar(progress, _total(requests))
    chosen = _client.chosen(client)

    async def one(code: str, options: Dict[str, Any]) -> Result:
        async with gate:
            while True:
                try:
                    return await run_async(code, client=chosen, **options)
                except SandboxError as error:
                    pause = _pause(error)
                    if pause is None:
                        return Failed(error)
                await asyncio.sleep(pause)

    def start(code: str, options: Dict[str, Any]) -> asyncio.Task[Result]:
        return asyncio.ensure_future(one(code, options))

    under_way = _Window(requests, width, common, start)
    try:
        while under_way.fill():
            if ordered:
                first = under_way[0]
            else:
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                first = next(iter(done))
            result = await first
            under_way.remove(first)
            bar.step()
            yield result
    finally:
        for task in under_way:
            task.cancel()
        bar.close()
