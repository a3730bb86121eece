"""Hides an agent's token from its tasks, which are processes of the same user.

The variables that a process was started with stay readable in /proc/PID/environ for processes of
the same user, even after it has removed them from its environment. So the bytes themselves are
overwritten. Those processes could read its memory too (ptrace, /proc/PID/mem), unless it is marked
as not "dumpable".

This does not protect against root, nor against a reader of the token's file.
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
# Variables withheld from slots: secrets, tokens, and the folder of the gateway's private files.
PRIVATE_VARIABLES: Final = (SECRET_VARIABLE, TOKEN_VARIABLE, "GRIDFED_CONFIG_DIR")
_BEGIN, _END = 47, 48  # env_start and env_end in /proc/PID/stat, counted after the program's name


def take_variable(name: str) -> str:
    """Remove a variable from our environment and from /proc; return its value, or ""."""
    value = os.environ.pop(name, "")
    if sys.platform == "linux":  # even if it was removed before, or was inherited by a fork
        _overwrite(os.fsencode(name))
    return value


def hide_memory() -> None:
    """Have the kernel keep other processes of our user from reading this one's memory (Linux).

    Its files in /proc belong to root after that; those of its children do not. Skipped if its
    gateway, on the same host, has to find it by its environment.
    """
    if sys.platform == "linux" and PILOT_VARIABLE not in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _overwrite(name: bytes) -> None:
    """Overwrite the value of a variable in the kernel's view with zeros.

    /proc/self/stat gives the place of the environment; the C library's own copies are gone with
    unsetenv, which `os.environ` has called.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    begin, end = int(fields[_BEGIN]), int(fields[_END])
    if not 0 < begin < end:
        return  # the kernel does not show the place
    at = begin
    for each in ctypes.string_at(begin, end - begin).split(b"\0"):
        if each.startswith(name + b"="):
            ctypes.memset(at + len(name) + 1, 0, len(each) - len(name) - 1)
        at += len(each) + 1
