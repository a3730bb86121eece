"""Helpers for all of our processes: exit, grouped errors, rare garbage collection."""

import gc
import os
import subprocess
from typing import TypeVar

import trio

E = TypeVar("E", bound=BaseException)


async def wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    """Wait until a child has ended; return its exit code."""
    if process.poll() is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()


def first_of(group: BaseExceptionGroup[E]) -> E:
    """Return the first of the concurrent errors in a group."""
    error: E | BaseExceptionGroup[E] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def collect_seldom() -> None:
    """Collect cyclic garbage seldom: objects made for a message are freed without it.

    With Python's own threshold a single task paid for several collections on its way.
    """
    gc.freeze()  # modules and tables stay: do not examine them again
    gc.set_threshold(20_000, 20, 20)
