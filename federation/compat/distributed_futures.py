"""Futures as those of dask.distributed, `wait` and `as_completed`."""

import concurrent.futures
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from federation.compat.task_clients import cause_of
from federation.compat.tasks import same
from federation.engine.futures import TaskFuture, abandon_all, helped_all
from federation.engine.objects import ObjectRef
from federation.errors import DependencyFailed
from federation.loops.waits import in_its_loop, until_done
from federation.words import Length, read_timeout

T = TypeVar("T")
_numbers = itertools.count()


class Future(Generic[T]):
    """A value that a call makes, or that was scattered; may stand among the arguments of calls.

    Attributes:
        key: the name of the value; unique in this process unless it was given.
        client: the client that made it.
    """

    def __init__(
        self, held: "TaskFuture[T] | ObjectRef[T] | _Plain[T]", key: str, client: Any = None
    ) -> None:
        self._held = held
        self.key = key
        self.client = client
        self._again: Callable[[], TaskFuture[T]] | None = None

    def on_retry(self, again: Callable[[], TaskFuture[T]]) -> "Future[T]":
        """Set how the call is submitted again. For the client."""
        self._again = again
        return self

    @property
    def held(self) -> "TaskFuture[T] | ObjectRef[T] | _Plain[T]":
        """The future of the call, or the reference to the object."""
        return self._held

    @property
    def status(self) -> str:
        """Its state: "pending", "finished", "error" or "cancelled"."""
        held = self._held
        if not isinstance(held, TaskFuture):
            return "finished"
        if not held.done():
            return "pending"
        if held.cancelled():
            return "cancelled"
        return "finished" if held.exception(0) is None else "error"

    def done(self) -> bool:
        """Whether the value is there, or will not come."""
        held = self._held
        return held.done() if isinstance(held, TaskFuture) else True

    def cancelled(self) -> bool:
        """Whether the call was cancelled."""
        held = self._held
        return isinstance(held, TaskFuture) and held.cancelled()

    def result(self, timeout: Length | None = None) -> T:
        """Wait for the value, or raise the exception of the call that failed."""
        held = self._held
        if not isinstance(held, TaskFuture):
            return held.result()
        try:
            return held.result(timeout)
        except DependencyFailed as error:
            raise cause_of(error) from error

    def exception(self, timeout: Length | None = None) -> BaseException | None:
        """Wait for the call; return its exception, or that of the call that it needed, or None."""
        held = self._held
        if not isinstance(held, TaskFuture):
            return None
        found = held.exception(timeout)
        return None if found is None else cause_of(found)

    def traceback(self, timeout: Length | None = None) -> Any:
        """Return the traceback of the exception, or None; `exception().__cause__` has its text."""
        found = self.exception(timeout)
        return None if found is None else found.__traceback__

    def cancel(
        self, reason: str | None = None, msg: str | None = None, force: bool = False
    ) -> None:
        """Cancel the call, also while it runs, without waiting; other calls that need it fail."""
        if isinstance(self._held, TaskFuture):
            abandon_all([self._held])

    def retry(self) -> None:
        """Run the call again, if it has failed or was cancelled."""
        if self._again is not None and self.status in ("error", "cancelled"):
            self._held = self._again()

    def release(self) -> None:
        """Let go of the value; dropping the future does so, too."""
        if isinstance(self._held, ObjectRef):
            self._held.release()

    def add_done_callback(self, fn: Callable[["Future[T]"], object]) -> None:
        """Call fn(future) when it is done, in another thread; at once if it is."""
        held, call = self._held, in_its_loop(fn)
        if isinstance(held, TaskFuture):
            held.add_done_callback(lambda _: call(self))
        else:
            call(self)

    def remove_done_callback(self, fn: Callable[["Future[T]"], object]) -> int:
        """Do nothing: `asyncio.wait` removes its callback when its task waits no more."""
        return 0

    def __await__(self) -> Generator[Any, Any, T]:
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        if isinstance(self._held, TaskFuture) and not self._held.done():
            with helped_all([self._held]):
                await until_done(
                    self._held
                )  # the call goes on if the task is cancelled, as in Dask
        return self.result()

    def __reduce__(self) -> Any:
        return self._held.__reduce__()

    def __dask_tokenize__(self) -> tuple[str, str]:
        """Return its identity, by which Dask names collections."""
        return "gridfed", self.key

    def __repr__(self) -> str:
        return f"<Future: {self.status}, key: {self.key}>"


class _Plain(Generic[T]):
    """A scattered value for which there was no room: it travels in each call."""

    def __init__(self, value: T) -> None:
        self._value = value

    def result(self) -> T:
        """Return the value."""
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return same, (self._value,)


def plain(value: T) -> _Plain[T]:
    """Return what stands for a value that could not be put."""
    return _Plain(value)


def new_key(name: str) -> str:
    """Return a key for a value, from the name of its function."""
    return f"{name}-{next(_numbers)}"


class DoneAndNotDoneFutures(NamedTuple):
    """The answer of `wait`."""

    done: "set[Future[Any]]"
    not_done: "set[Future[Any]]"


def wait(
    fs: "Future[Any] | Iterable[Future[Any]]",
    timeout: Length | None = None,
    return_when: str = concurrent.futures.ALL_COMPLETED,
) -> DoneAndNotDoneFutures:
    """Wait until futures are done: all, or the first of them ("FIRST_COMPLETED").

    Raises TimeoutError, as Dask does, when they are not done within `timeout`.
    """
    found = [fs] if isinstance(fs, Future) else list(fs)
    calls = [each.held for each in found if isinstance(each.held, TaskFuture)]
    wants_one = return_when == concurrent.futures.FIRST_COMPLETED
    if not (wants_one and len(calls) < len(found)):
        concurrent.futures.wait(calls, read_timeout(timeout), return_when)
    done = {each for each in found if each.done()}
    is_late = not done if wants_one else len(done) < len(found)
    if is_late and found:
        raise TimeoutError(f"{len(found) - len(done)} of {len(found)} futures are not done")
    return DoneAndNotDoneFutures(done, set(found) - done)


class as_completed:
    """Yields futures as they are done, for `for` and `async for`; more may be added meanwhile.

    Args:
        futures: the first ones.
        loop: ignored.
        with_results: yield pairs of a future and its result.
        raise_errors: with results, raise the exception of a failed call; else it is in the pair.
        timeout: with `for`, raise TimeoutError when one is not done so long after the beginning.
    """

    def __init__(
        self,
        futures: Iterable[Future[Any]] = (),
        loop: Any = None,
        with_results: bool = False,
        raise_errors: bool = True,
        *,
        timeout: Length | None = None,
    ) -> None:
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._with_results = with_results
        self._raise_errors = raise_errors
        within_s = read_timeout(timeout)
        self._until_s = None if within_s is None else time.monotonic() + within_s
        self._bell: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.update(futures)

    def add(self, future: Future[Any]) -> None:
        """Add a future."""
        with self._lock:
            self._waiting[id(future)] = future
        future.add_done_callback(self._take)

    def update(self, futures: Iterable[Future[Any]]) -> None:
        """Add futures."""
        for each in futures:
            self.add(each)

    def _take(self, future: Future[Any]) -> None:
        self._done.put(future)
        with self._lock:
            bell, self._bell = self._bell, concurrent.futures.Future()
        bell.set_result(None)

    def count(self) -> int:
        """Return how many futures were not given yet."""
        with self._lock:
            return len(self._waiting)

    def is_empty(self) -> bool:
        """Whether all were given."""
        return not self.count()

    def has_ready(self) -> bool:
        """Whether the next can be given without waiting."""
        return not self._done.empty()

    def clear(self) -> None:
        """Forget all futures; their calls go on."""
        with self._lock:
            self._waiting.clear()

    def __iter__(self) -> "as_completed":
        return self

    def __next__(self) -> Any:
        while self.count():
            try:
                with self._helped():
                    future = self._done.get(timeout=self._left_s())
            except queue.Empty:
                raise TimeoutError(f"{self.count()} futures are not done") from None
            if self._is_new(future):
                return self._shown(future)
        raise StopIteration

    def _helped(self) -> contextlib.AbstractContextManager[None]:
        """Return a block in which a task helps with the calls of its own for which it waits."""
        if not self._done.empty():
            return contextlib.nullcontext()
        with self._lock:
            return helped_all([each.held for each in self._waiting.values()])

    def _left_s(self) -> float | None:
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())

    def _is_new(self, future: Future[Any]) -> bool:
        with self._lock:
            return self._waiting.pop(id(future), None) is not None

    def _shown(self, future: Future[Any]) -> Any:
        if not self._with_results:
            return future
        if self._raise_errors:
            return future, future.result()
        error = None if future.cancelled() else future.exception()
        return future, (future.result() if future.status == "finished" else error)

    def next_batch(self, block: bool = True) -> list[Any]:
        """Return all that are done; with `block`, at least one."""
        found = [next(self)] if block else []
        while not self._done.empty() and self.count():
            future = self._done.get()
            if self._is_new(future):
                found.append(self._shown(future))
        return found

    def batches(self) -> Iterator[list[Any]]:
        """Yield all that are done, again and again."""
        while self.count():
            yield self.next_batch()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while self.count():
            bell = self._bell
            try:
                future = self._done.get_nowait()
            except queue.Empty:
                with self._helped():
                    await until_done(bell)
                continue
            if self._is_new(future):
                yield self._shown(future)
