"""Waits in an event loop for what another thread ends, under asyncio and under trio.

    await until_done(future, give_up) ─► suspended ◄─ the future's done callback wakes the loop

A task that is cancelled while it waits calls `give_up` first.
"""

import asyncio
import concurrent.futures
import contextlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


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
