"""What processes of ours have in common: how they end, of what, how seldom they collect garbage."""

import gc
import os
import subprocess
from typing import TypeVar

import trio

E = TypeVar("E", bound=BaseException)


async def wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    """Wait until a child has ended; its exit code."""
    if process.poll() is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()


def first_of(group: BaseExceptionGroup[E]) -> E:
    """The first of errors that came about side by side."""
    error: E | BaseExceptionGroup[E] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def collect_seldom() -> None:
    """Look for garbage in cycles seldom: what a message makes is freed without that.

    With Python's own threshold a lone task paid for several collections on its way.
    """
    gc.freeze()  # modules and tables stay: there is no point in looking at them again
    gc.set_threshold(20_000, 20, 20)
