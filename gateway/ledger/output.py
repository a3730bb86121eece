"""Where reports, pages and exports go: a file that is there whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path

from gateway.ledger.errors import StoreError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written under another name, take it to the disk, and give it its own name.

    A file of that name is replaced; until then, and if anything goes wrong, it stays as it is.

    Raises StoreError: it can't be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Who spent how much is nobody else's business.
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            write(part)
            _sync(part)
            part.replace(path)
            _sync(path.parent)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"can't write {path}: {error.strerror or error}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
