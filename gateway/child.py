"""Child processes, awaited without polling."""

import os
import subprocess

import trio


async def wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    """Wait until a child has ended; its exit code."""
    if process.poll() is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()
