"""Files that users name: reads regular ones, up to a size, without waiting; formats by name."""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# Endings that promise a format. Another one, as of `costs.2026-11`, promises nothing.
FORMATS: Final = frozenset(
    [
        ".bmp",
        ".bz2",
        ".csv",
        ".db",
        ".doc",
        ".docx",
        ".dot",
        ".eps",
        ".gif",
        ".gz",
        ".htm",
        ".html",
        ".jpeg",
        ".jpg",
        ".json",
        ".jsonl",
        ".md",
        ".mermaid",
        ".ods",
        ".orc",
        ".parquet",
        ".pdf",
        ".png",
        ".ps",
        ".sql",
        ".sqlite",
        ".sqlite3",
        ".svg",
        ".svgz",
        ".tar",
        ".tex",
        ".tgz",
        ".tif",
        ".tiff",
        ".toml",
        ".tsv",
        ".txt",
        ".webp",
        ".xls",
        ".xlsx",
        ".xml",
        ".xz",
        ".yaml",
        ".yml",
        ".zip",
        ".zst",
    ]
)


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


def check_format(path: Path, written: Mapping[str, str]) -> None:
    """Refuse a name that promises another format than the file will have. Pure.

    Args:
        path: the file that is to be written.
        written: the endings that are right, in small letters, each with the name of its format.

    Raises ValueError, which names these.
    """
    ending = path.suffix.lower()
    if ending in FORMATS and ending not in written:
        right = " or ".join(f"{each} ({name})" for each, name in written.items())
        raise ValueError(
            f"{path}: no {ending} file can be written here; its name may end in {right}"
        )
