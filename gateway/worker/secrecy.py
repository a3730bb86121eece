"""An agent's token, kept from the tasks that it runs: they are processes of the same user.

What a process was started with stays to be read in /proc/PID/environ, by all of its user's, also
when it has taken it out of its own variables. So the bytes themselves are overwritten. Its memory
could be read by them as well (ptrace, /proc/PID/mem), where the kernel is not told otherwise: that
is what "dumpable" stands for.

Not against root, nor against who can read the file that the token comes from.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from federation.address import SECRET_VARIABLE, TOKEN_VARIABLE

PR_SET_DUMPABLE: Final = 4
# A pilot's mark, "/" and its name, by which gateway.grids.processes finds it.
PILOT_VARIABLE: Final = "GRIDFED_PILOT"
# What slots get nothing of: secrets, tokens, and where the gateway keeps what is its own.
PRIVATE_VARIABLES: Final = (SECRET_VARIABLE, TOKEN_VARIABLE, "GRIDFED_CONFIG_DIR")
_BEGIN, _END = 47, 48  # env_start and env_end in /proc/PID/stat, counted after the program's name


def take_variable(name: str) -> str:
    """A variable of our environment, which nobody finds there from now on; empty without one."""
    value = os.environ.pop(name, "")
    if sys.platform == "linux":  # also where it was taken out before, or never was ours: a fork's
        _overwrite(os.fsencode(name))
    return value


def hide_memory() -> None:
    """Have the kernel keep other processes of our user from looking into this one (Linux).

    What they could read of it in /proc belongs to root after that; its children's is as ever. Not
    where its gateway, on the same host, has to find it by its environment.
    """
    if sys.platform == "linux" and PILOT_VARIABLE not in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _overwrite(name: bytes) -> None:
    """Fill what the kernel shows as the value of a variable with nothing.

    Where the environment lies says /proc/self/stat; the C library's own copies are gone with
    unsetenv, which `os.environ` has called.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    begin, end = int(fields[_BEGIN]), int(fields[_END])
    if not 0 < begin < end:
        return  # the kernel does not tell
    at = begin
    for each in ctypes.string_at(begin, end - begin).split(b"\0"):
        if each.startswith(name + b"="):
            ctypes.memset(at + len(name) + 1, 0, len(each) - len(name) - 1)
        at += len(each) + 1
