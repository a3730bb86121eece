"""Atomic writes of reports, pages and exports: a file is complete or absent."""

import os
from collections.abc import Callable
from pathlib import Path

from gateway.ledger.db.errors import StoreError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under a temporary name, sync it to disk, and rename it to its own name.

    A file of that name is replaced; until then, and on any failure, it stays as it is. Raises
    StoreError if the file can't be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Spending is confidential: only the owner may read the file.
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
