"""Reads the files that a configuration names: regular ones, up to a size, without waiting."""

import errno
import os
import stat
from pathlib import Path

from federation.words import size_text


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return the content of a regular file.

    Opening a named pipe would wait for its writer, and a device may have no end.

    Raises OSError, whose `strerror` is for people: also if the file is not regular, or larger than
    `bytes_max`.
    """
    with open(path, "rb", opener=open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        body = file.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise OSError(errno.EFBIG, f"the file has more than {size_text(bytes_max)}")
    return body


def open_at_once(path: str, flags: int) -> int:
    """An opener for `open` that does not wait for the writer of a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
