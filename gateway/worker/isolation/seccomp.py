"""A filter of system calls that forbids user namespaces in sandboxes. Pure.

In a user namespace of its own a process holds all capabilities over the objects it makes there, and
so reaches parts of the kernel that are otherwise reserved to root: mounts, packet filters, and
their vulnerabilities. Tasks need none of that.

The filter is a program of the kernel's classic BPF over `struct seccomp_data`, in the format of
bubblewrap's --seccomp (linux/filter.h, linux/seccomp.h).
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
_X32: Final = 0x40000000  # a bit in the numbers of x86-64's third set of calls


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
    """Return the filter for this processor, or another; empty for an unknown one.

    clone and unshare with CLONE_NEWUSER, and setns, fail with EPERM. clone3, whose flags lie in
    memory that no filter can read, fails with ENOSYS: the C library uses clone then. So do calls of
    another architecture, whose numbers have other meanings.
    """
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    allow, refuse, absent = 10, 11, 12  # the places of the final instructions
    program = [
        _load(_ARCHITECTURE_AT),
        _jump(_JUMP_EQUAL, 1, known.audit, otherwise=absent),
        _load(_NUMBER_AT),
        _jump(_JUMP_AT_LEAST, 3, _X32, to=absent),
        _jump(_JUMP_EQUAL, 4, known.clone3, to=absent),
        _jump(_JUMP_EQUAL, 5, known.setns, to=refuse),
        _jump(_JUMP_EQUAL, 6, known.clone, to=8),
        _jump(_JUMP_EQUAL, 7, known.unshare, otherwise=allow),
        # its lower half has the flags: both processors are little-endian
        _load(_FIRST_ARGUMENT_AT),
        _jump(_JUMP_SET, 9, CLONE_NEWUSER, to=refuse),
        _end(_ALLOW),
        _end(_ERROR | errno.EPERM),
        _end(_ERROR | errno.ENOSYS),
    ]
    return b"".join(program)


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD_WORD, 0, 0, offset)


def _jump(kind: int, at: int, value: int, to: int = 0, otherwise: int = 0) -> bytes:
    """Encode a comparison at place `at`; `to` and `otherwise` default to the next instruction."""
    jumps = [place - at - 1 if place else 0 for place in (to, otherwise)]
    return struct.pack("=HBBI", kind, *jumps, value)


def _end(value: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, value)
