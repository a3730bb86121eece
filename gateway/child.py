"""Child processes that die with us: started from this very thread, awaited without polling."""

import ctypes
import os
import signal
import subprocess
from typing import Final

import trio

PR_SET_PDEATHSIG: Final = 1


async def wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    """Wait until a child has ended; its exit code."""
    if process.poll() is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()


def die_with_parent() -> None:
    """Have this process killed when the thread that started it ends, however it ends.

    It is the parent's *thread* that counts: who starts such a child must do so from a thread
    that lives as long as itself, its main one.
    """
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before we could say so
