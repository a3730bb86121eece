"""Reads files that are named to us: regular ones, up to a size, without waiting."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return the content of a regular file.

    Opening a named pipe would wait for its writer, and a device may have no end.

    Raises OSError, whose `strerror` is for people: also if the name is not valid, or the file is
    not regular, or larger than `bytes_max`.
    """
    try:
        descriptor = open_at_once(str(path), os.O_RDONLY | os.O_CLOEXEC)
    except ValueError:  # of a null character
        raise OSError(errno.EINVAL, "its name is not valid") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    with open(descriptor, "rb") as file:
        body = file.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max:,} bytes")
    return body


def shown_path(path: Path) -> str:
    """Return a path for an error: of a relative one also the folder in which it was looked for."""
    return str(path) if path.is_absolute() else f"{path} (in the folder {Path.cwd()})"


def open_at_once(path: str, flags: int) -> int:
    """An opener for `open` that does not wait for the writer of a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
