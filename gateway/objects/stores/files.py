"""A store in a folder: one file for each name, made beside its place and then moved there.

A crash half way leaves a file whose name begins with a dot; the next start removes it (`clear`).
"""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gateway.objects.stores.contract import NotStored, StoreFull, check_name

UNFINISHED: Final = ".put-"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FileObjectStore:
    """Keeps bytes as files of a folder, which it makes for its owner alone.

    Args:
        folder: where.
        durable: whether a power cut may take nothing that `put` has returned for; slower.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._folder = folder
        self._durable = durable
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> bool:
        """Store pieces as one; see ObjectStore."""
        path = self._path(name)
        if path.exists():
            return False
        descriptor, unfinished = tempfile.mkstemp(prefix=UNFINISHED, dir=self._folder)
        try:
            with open(descriptor, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
            try:
                os.link(unfinished, path)  # unlike a rename this fails where the name is taken
            except FileExistsError:
                return False
            if self._durable:
                self._sync_folder()
            return True
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull(f"{self._folder} has no room: {error}") from None
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def get(self, name: str, first: int = 0, stop: int | None = None) -> bytes:
        """Return bytes of a name; see ObjectStore."""
        try:
            with self._path(name).open("rb") as file:
                file.seek(first)
                return file.read() if stop is None else file.read(max(0, stop - first))
        except FileNotFoundError:
            raise NotStored(name) from None

    def size(self, name: str) -> int:
        """Return the number of bytes under a name; see ObjectStore."""
        try:
            return self._path(name).stat().st_size
        except FileNotFoundError:
            raise NotStored(name) from None

    def delete(self, name: str) -> bool:
        """Delete a name; see ObjectStore."""
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def list(self) -> Iterator[str]:
        """Yield all names; see ObjectStore."""
        return (path.name for path in self._folder.iterdir() if path.name[0] != ".")

    def clear(self) -> int:
        """Remove what a crash left half written; return how many files. For the only user of it."""
        left = list(self._folder.glob(f"{UNFINISHED}*"))
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    def _path(self, name: str) -> Path:
        return self._folder / check_name(name)
