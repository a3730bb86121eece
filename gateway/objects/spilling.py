"""Files on disk in place of memory: an object is copied to one, and is mapped from there again.

The file has no name: the disk frees it with its last descriptor, also after kill -9, as a memfd.
Where a file system makes none without a name, its name is removed as soon as it is made; a process
that is killed between these two steps leaves an empty file, which the next object host removes.
"""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "gridfed-object-"


def clear_folder(folder: Path) -> None:
    """Make the folder, and remove files that an object host has left there.

    Raises OSError. Another site may have the same folder: it misses no name that is removed here.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in folder.glob(f"{PREFIX}*"):
        with suppress(FileNotFoundError):
            each.unlink()


def _nameless(folder: Path) -> int:
    """Return a descriptor of a new file without a name. Raises OSError."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
    writing, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    with suppress(FileNotFoundError):
        Path(name).unlink()
    return writing


def spill(descriptor: int, size: int, folder: Path) -> int:
    """Copy the file of an object to disk; return a descriptor that is for reading alone.

    Raises OSError, as where the disk is full; nothing is left behind then.
    """
    writing, reading = _nameless(folder), -1
    try:
        # The same file, whatever has its name by now.
        reading = os.open(f"/proc/self/fd/{writing}", os.O_RDONLY | os.O_CLOEXEC)
        os.fchmod(writing, 0o400)
        os.posix_fallocate(writing, 0, size)  # a full disk is told before anything is copied
        at = 0
        while at < size:
            done = os.sendfile(writing, descriptor, at, size - at)
            if not done:
                raise OSError(f"the file of an object ends after {at:,} of {size:,} bytes")
            at += done
    except BaseException:
        if reading >= 0:
            os.close(reading)
        raise
    finally:
        os.close(writing)
    return reading
