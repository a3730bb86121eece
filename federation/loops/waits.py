"""Waits in an event loop for what another thread ends, under asyncio and under trio.

    await until_done(future, give_up) ─► suspended ◄─ the future's done callback wakes the loop

A task that is cancelled while it waits calls `give_up` first.
"""

import asyncio
import concurrent.futures
import contextlib
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
OF_LOOPS: Final = "asyncio.tasks"  # its callbacks change futures of the loop, without a lock


def _nothing() -> None:
    pass


async def until_done(
    future: "concurrent.futures.Future[Any]", give_up: Callable[[], object] = _nothing
) -> None:
    """Return when a future is done, without blocking the event loop.

    Args:
        future: any future of concurrent.futures.
        give_up: called when the waiting task is cancelled first; it must not wait.

    Raises RuntimeError outside of asyncio and trio.
    """
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        await _in_trio(trio, future, give_up)
    else:
        await _in_asyncio(future, give_up)


async def _in_asyncio(
    future: "concurrent.futures.Future[Any]", give_up: Callable[[], object]
) -> None:
    loop = asyncio.get_running_loop()
    if future.done():
        return
    waiter: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake(_future: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(settle)

    future.add_done_callback(wake)
    try:
        await waiter
    except BaseException:
        if not future.done():
            give_up()
        raise


async def _in_trio(
    trio: Any, future: "concurrent.futures.Future[Any]", give_up: Callable[[], object]
) -> None:
    if future.done():
        await trio.lowlevel.checkpoint()
        return
    task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()
    is_waiting = True

    def settle() -> None:
        nonlocal is_waiting
        if is_waiting:
            is_waiting = False
            trio.lowlevel.reschedule(task)

    def wake(_future: Any) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(settle)

    def abort(_raise_cancel: Any) -> Any:
        nonlocal is_waiting
        is_waiting = False
        if not future.done():
            give_up()
        return trio.lowlevel.Abort.SUCCEEDED

    future.add_done_callback(wake)
    await trio.lowlevel.wait_task_rescheduled(abort)


async def in_thread(threads: concurrent.futures.Executor, function: Callable[[], T]) -> T:
    """Run a function in a thread, and return its result.

    A task that is cancelled meanwhile does not wait: a function that has begun goes on, and its
    result is dropped.
    """
    future = threads.submit(function)
    await until_done(future, future.cancel)
    return future.result()


class _InItsLoop:
    """A done callback that runs in the event loop in which it was registered."""

    def __init__(self, fn: Callable[[Any], object], loop: asyncio.AbstractEventLoop) -> None:
        self._fn = fn
        self._loop = loop

    def __call__(self, future: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            self._loop.call_soon_threadsafe(self._fn, future)

    def __eq__(self, other: object) -> bool:
        """Whether it is this callback: `asyncio.wait` removes what it has registered."""
        return self is other or self._fn == other

    def __hash__(self) -> int:
        return hash(self._fn)


def in_its_loop(fn: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a done callback that another thread may call, in place of one of asyncio's own.

    `asyncio.wait` registers its callback with what it is given. It expects to be called in its
    loop: called in another thread, it sets a result there, and the loop sleeps on for ever. A
    callback of anybody else is returned as it is.
    """
    if getattr(fn, "__module__", None) != OF_LOOPS:
        return fn
    try:
        return _InItsLoop(fn, asyncio.get_running_loop())
    except RuntimeError:
        return fn


class WaitedInLoops(concurrent.futures.Future[T]):
    """A future of concurrent.futures that `asyncio.wait` takes as it is."""

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call fn(future) when it is done, in any thread; at once if it is."""
        super().add_done_callback(in_its_loop(fn))

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Forget a callback; return how often it was registered. For `asyncio.wait`."""
        mine: Any = self
        with self._condition:
            before: list[Any] = mine._done_callbacks
            mine._done_callbacks = [each for each in before if each != fn]
            return len(before) - len(mine._done_callbacks)
