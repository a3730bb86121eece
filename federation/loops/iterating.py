"""Asynchronous iteration: over the results of a map, and over futures as they are done."""

import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from federation.loops.waits import until_done

T = TypeVar("T")
ResultT = TypeVar("ResultT", covariant=True)
FutureT = TypeVar("FutureT", bound=concurrent.futures.Future[Any])

AT_ONCE: Final = 256  # results that a thread hands over together


class ReadMap(Protocol[ResultT]):
    """What is used of a map (federation.engine.mapping)."""

    @property
    def is_ready(self) -> bool:
        """Whether the next result can be given without waiting."""

    def __next__(self) -> ResultT:
        """Wait for the next result."""

    def close(self, *, stop: bool = False) -> None:
        """Cancel the calls that have not begun; with `stop`, running ones too."""


class AsyncResults(Generic[T]):
    """The results of a map, in the order of its inputs, for `async for`.

    The map starts at once, in a thread: inputs may be slow, and results are waited for there. A
    failed call ends it with its exception, and cancels the calls that have not begun. A task that
    is cancelled while it waits for a result cancels all calls, running ones too. `aclose` does so
    for a loop that is left early; dropping the iterator cancels what has not begun.

    Args:
        start: starts the map; called in the thread.
    """

    def __init__(self, start: Callable[[], ReadMap[T]]) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "gridfed-map")
        self._started = self._thread.submit(start)
        self._ready: deque[T] = deque()
        self._error: BaseException | None = None
        self._is_over = False

    def __aiter__(self) -> "AsyncResults[T]":
        return self

    async def __anext__(self) -> T:
        if not self._ready and not self._is_over:
            step = self._thread.submit(_take, self._started, self._ready)
            await until_done(step, self._give_up)
            self._error = step.result()
            self._is_over = self._error is not None
            if self._is_over:
                self._thread.shutdown(wait=False)
        if self._ready:
            return self._ready.popleft()
        error, self._error = self._error, None
        if error is not None and not isinstance(error, StopIteration):
            raise error
        raise StopAsyncIteration

    def _give_up(self) -> None:
        self._is_over = True
        self._ready.clear()
        self._started.add_done_callback(_stop)
        self._thread.shutdown(wait=False)

    async def aclose(self) -> None:
        """Cancel all calls that have not ended, and drop the results that were not read."""
        if not self._is_over:
            self._give_up()


def _take(
    started: "concurrent.futures.Future[ReadMap[T]]", ready: deque[T]
) -> BaseException | None:
    """Append the results that are there, at least one; return what ended the map, if it ended."""
    try:
        results = started.result()
        ready.append(next(results))
        while len(ready) < AT_ONCE and results.is_ready:
            ready.append(next(results))
    except BaseException as error:  # noqa: BLE001 - raised in the task that iterates
        return error
    return None


def _stop(started: "concurrent.futures.Future[ReadMap[Any]]") -> None:
    if not started.cancelled() and started.exception() is None:
        started.result().close(stop=True)


class CompletedFutures(Generic[FutureT]):
    """Futures in the order in which they are done, for `for` and for `async for`.

    Args:
        futures: the futures, each given once.
        timeout_s: raise TimeoutError when one is not done within so many seconds.
    """

    def __init__(self, futures: Iterable[FutureT], timeout_s: float | None) -> None:
        self._futures = list(dict.fromkeys(futures))
        self._timeout_s = timeout_s
        self._done = concurrent.futures.as_completed(self._futures, timeout_s)

    def __iter__(self) -> "CompletedFutures[FutureT]":
        return self

    def __next__(self) -> FutureT:
        found: Any = next(self._done)
        return found  # type: ignore[no-any-return]

    async def __aiter__(self) -> AsyncIterator[FutureT]:
        done: deque[FutureT] = deque()
        bell: concurrent.futures.Future[None] = concurrent.futures.Future()
        is_late = False

        def ring() -> None:
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                bell.set_result(None)

        def take(future: Any) -> None:
            done.append(future)
            ring()

        def end() -> None:
            nonlocal is_late
            is_late = True
            ring()

        timer = None if self._timeout_s is None else threading.Timer(self._timeout_s, end)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            for future in self._futures:
                future.add_done_callback(take)
            for given in range(len(self._futures)):
                while not done:
                    if is_late:
                        left = len(self._futures) - given
                        raise TimeoutError(f"{left} (of {len(self._futures)}) futures unfinished")
                    bell = concurrent.futures.Future()
                    if not done and not is_late:  # else it was rung before this bell was there
                        await until_done(bell)
                yield done.popleft()
        finally:
            if timer is not None:
                timer.cancel()
