"""Files that this process has mapped: privately, and without a descriptor.

A mapping keeps the memory of an object for as long as a view of it lives, also where the object
host has ended. `mmap.mmap` keeps a descriptor beside each mapping (before Python 3.13 in any case),
so a process with 1,024 descriptors could have no more arrays than that: here mappings are made by
the C library's own call.

Linux limits the mappings of a process too (`vm.max_map_count`, 65,530 by default), and Python,
NumPy and threads need some of them: `has_room` leaves them half.
"""

import contextlib
import ctypes
import functools
import mmap
import os
import weakref
from pathlib import Path
from typing import Final

USUAL_MAX: Final = 65_530
_mapped: set[int] = set()  # addresses


def _limit() -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    return USUAL_MAX


MAPPED_MAX: Final = _limit() // 2


def has_room() -> bool:
    """Whether fewer than MAPPED_MAX files are mapped."""
    return len(_mapped) < MAPPED_MAX


def map_file(descriptor: int, size: int, *, is_writable: bool = False) -> memoryview:
    """Map `size` bytes of a file, 1 or more, for as long as a view of them lives.

    If they are writable, pages that are changed are copied, and no other process sees it. Raises
    OSError.
    """
    prot = mmap.PROT_READ | (mmap.PROT_WRITE if is_writable else 0)
    library = _library()
    address = library.mmap(None, size, prot, mmap.MAP_PRIVATE, descriptor, 0)
    if address in (None, _FAILED):
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: {size:,} bytes can't be mapped")
    mapped = (ctypes.c_ubyte * size).from_address(address)
    _mapped.add(address)
    weakref.finalize(mapped, _unmap, address, size).atexit = False
    view = memoryview(mapped).cast("B")
    return view if is_writable else view.toreadonly()


def _unmap(address: int, size: int) -> None:
    _mapped.discard(address)  # first: then the address may be another mapping's
    _library().munmap(address, size)


_FAILED: Final = ctypes.c_void_p(-1).value


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library
