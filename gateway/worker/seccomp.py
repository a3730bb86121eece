"""A filter of system calls for sandboxes: no process in one makes a user namespace. Pure.

In a user namespace of its own a process holds all capabilities over what it makes there, and with
them reaches parts of the kernel that are otherwise root's alone: mounts, packet filters, and what
was found wrong in them. Nothing that tasks do needs that.

The filter is a program of the kernel's classic BPF over `struct seccomp_data`, as bubblewrap's
--seccomp takes it (linux/filter.h, linux/seccomp.h).
"""

import errno
import platform
import struct
from dataclasses import dataclass
from typing import Final

CLONE_NEWUSER: Final = 0x10000000
_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_X32: Final = 0x40000000  # of the numbers of x86-64's third set of calls


@dataclass(frozen=True, slots=True)
class _Machine:
    """A processor's AUDIT_ARCH (linux/audit.h), and its numbers of system calls."""

    audit: int
    clone: int
    unshare: int
    setns: int
    clone3: int = 435


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 56, 272, 308),
    "aarch64": _Machine(0xC00000B7, 220, 97, 268),
}


def no_user_namespaces(machine: str = "") -> bytes:
    """The filter for this host's kind of processor, or another; empty for one that is not known.

    clone and unshare with CLONE_NEWUSER, and setns, fail with EPERM. clone3, whose flags lie in
    memory that no filter can read, fails with ENOSYS: the C library uses clone then. So do calls
    of another architecture, whose numbers mean something else.
    """
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    allow, refuse, absent = 10, 11, 12  # where each ends
    program = [
        _load(_ARCHITECTURE_AT),
        _jump(_JUMP_EQUAL, 1, known.audit, otherwise=absent),
        _load(_NUMBER_AT),
        _jump(_JUMP_AT_LEAST, 3, _X32, to=absent),
        _jump(_JUMP_EQUAL, 4, known.clone3, to=absent),
        _jump(_JUMP_EQUAL, 5, known.setns, to=refuse),
        _jump(_JUMP_EQUAL, 6, known.clone, to=8),
        _jump(_JUMP_EQUAL, 7, known.unshare, otherwise=allow),
        _load(_FIRST_ARGUMENT_AT),  # its lower half, where the flags are: both are little-endian
        _jump(_JUMP_SET, 9, CLONE_NEWUSER, to=refuse),
        _end(_ALLOW),
        _end(_ERROR | errno.EPERM),
        _end(_ERROR | errno.ENOSYS),
    ]
    return b"".join(program)


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD_WORD, 0, 0, offset)


def _jump(kind: int, at: int, value: int, to: int = 0, otherwise: int = 0) -> bytes:
    """A comparison at place `at`; without `to` or `otherwise` the next instruction follows."""
    jumps = [place - at - 1 if place else 0 for place in (to, otherwise)]
    return struct.pack("=HBBI", kind, *jumps, value)


def _end(value: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, value)
