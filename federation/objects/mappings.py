"""Files that this process has mapped: privately, and without a descriptor.

A mapping keeps the memory of an object for as long as a view of it lives, also where the object
host has ended. `mmap.mmap` keeps a descriptor beside each mapping (before Python 3.13 in any case),
so a process with 1,024 descriptors could have no more arrays than that: here mappings are made by
the C library's own call.

Linux limits the mappings of a process too (`vm.max_map_count`, 65,530 by default), and Python,
NumPy and threads need some of them: `has_room` leaves them half.

A large file is mapped at an address that is a multiple of a huge page's bytes: where the file has
huge pages (federation.objects.huge_pages), each of them takes one page fault and not hundreds.
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


def _huge_bytes() -> int:
    with contextlib.suppress(OSError, ValueError):
        path = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
        return int(path.read_text(encoding="ascii"))
    return 0


MAPPED_MAX: Final = _limit() // 2
HUGE_BYTES: Final = _huge_bytes()  # of a huge page: 2 MiB on most computers; 0 if there are none


def has_room() -> bool:
    """Whether fewer than MAPPED_MAX files are mapped."""
    return len(_mapped) < MAPPED_MAX


def map_file(descriptor: int, size: int, *, is_writable: bool = False) -> memoryview:
    """Map `size` bytes of a file, 1 or more, for as long as a view of them lives.

    If they are writable, pages that are changed are copied, and no other process sees it. Raises
    OSError.
    """
    address = map_range(descriptor, size, is_writable=is_writable)
    mapped = (ctypes.c_ubyte * size).from_address(address)
    _mapped.add(address)
    weakref.finalize(mapped, _unmap, address, size).atexit = False
    view = memoryview(mapped).cast("B")
    return view if is_writable else view.toreadonly()


def map_range(descriptor: int, size: int, *, is_writable: bool = False) -> int:
    """Map a file privately and return the address: `unmap_range` ends it. Raises OSError."""
    prot = mmap.PROT_READ | (mmap.PROT_WRITE if is_writable else 0)
    if not HUGE_BYTES or size < HUGE_BYTES:
        return _call_mmap(None, size, prot, mmap.MAP_PRIVATE, descriptor)
    # The kernel aligns no file by itself: room for one more page is taken, and cut off around it.
    room = size + HUGE_BYTES
    base = _call_mmap(None, room, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    start = -(-base // HUGE_BYTES) * HUGE_BYTES
    try:
        _call_mmap(start, size, prot, mmap.MAP_PRIVATE | _MAP_FIXED, descriptor)
    except OSError:
        unmap_range(base, room)
        raise
    stop = start + -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    for first, last in ((base, start), (stop, base + room)):
        if first < last:
            unmap_range(first, last - first)
    return start


def _call_mmap(where: int | None, size: int, prot: int, flags: int, descriptor: int) -> int:
    address = _library().mmap(where, size, prot, flags, descriptor, 0)
    if address in (None, _FAILED):
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: {size:,} bytes can't be mapped")
    return int(address)


def unmap_range(address: int, size: int) -> None:
    """End a mapping that `map_range` made."""
    _library().munmap(address, size)


def advise(address: int, size: int, advice: int) -> bool:
    """Advise the kernel on mapped memory (madvise); return whether it has followed."""
    return bool(_library().madvise(address, size, advice) == 0)


def _unmap(address: int, size: int) -> None:
    _mapped.discard(address)  # first: then the address may be another mapping's
    unmap_range(address, size)


_FAILED: Final = ctypes.c_void_p(-1).value
_MAP_FIXED: Final = 0x10  # of Linux; HUGE_BYTES is 0 elsewhere


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library
