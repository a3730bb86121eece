"""Large pickles, written and read in pieces, so that other threads run in between.

`pickle.dumps` and `loads` keep the interpreter's lock from their beginning to their end: for a
gigabyte of bytes, text or floats that is seconds, and longer where memory is short. Nothing of the
process runs meanwhile, not even the thread that sends the heartbeats of its session: the gateway
then gives the client up. With a file of Python's own in place of memory, the pickler and the
unpickler call it for each 64 KiB, and large bytes are passed whole: they are not copied here.
"""

import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import cloudpickle

JOIN_BYTES: Final = 4 << 20  # a pickle that is smaller is one piece
STEP_BYTES: Final = 4 << 20  # copied at a time
COPY_BYTES: Final = 1 << 20  # arrays that are larger are copied by NumPy, without the lock


class _Pieces:
    """A file for a pickler: what is written to it, as it came."""

    def __init__(self) -> None:
        self.pieces: list[Any] = []
        self.size = 0

    def write(self, data: Any) -> int:
        """Keep a piece; the pickler does not change it afterwards."""
        self.pieces.append(data)
        self.size += len(data)
        return len(data)


class _PiecePickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        """Copy an array that is not contiguous before NumPy does, which would keep the lock."""
        numpy = sys.modules.get("numpy")
        if (
            numpy is not None
            and type(obj) is numpy.ndarray
            and obj.nbytes > COPY_BYTES
            and not obj.flags.forc
            and not obj.dtype.hasobject
        ):
            return numpy.ascontiguousarray(obj).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(obj)


def dump_in_pieces(
    value: Any, protocol: int, keep: Callable[[pickle.PickleBuffer], bool]
) -> list[memoryview]:
    """Pickle a value by cloudpickle into one or more pieces; large bytes in it are not copied.

    Args:
        value: it must not change until the pieces are written.
        protocol: of pickle.
        keep: takes the buffers; it returns True to leave one in the pickle.
    """
    file = _Pieces()
    _PiecePickler(file, protocol=protocol, buffer_callback=keep).dump(value)
    pieces = file.pieces if file.size > JOIN_BYTES else [b"".join(file.pieces)]
    return [memoryview(each).cast("B") for each in pieces]


class _Reader:
    """A file for an unpickler over bytes in memory."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or all that are left."""
        stop = len(self._data) if size < 0 else min(self._at + size, len(self._data))
        found = bytes(self._data[self._at : stop])
        self._at = stop
        return found

    def readinto(self, target: Any) -> int:
        """Fill a buffer, step by step; return the number of bytes."""
        into = memoryview(target).cast("B")
        size = min(len(into), len(self._data) - self._at)
        for at in range(0, size, STEP_BYTES):
            stop = min(at + STEP_BYTES, size)
            into[at:stop] = self._data[self._at + at : self._at + stop]
        self._at += size
        return size

    def readline(self) -> bytes:
        """Return the next line: pickles of old protocols have them."""
        found = bytes(self._data[self._at :]).partition(b"\n")
        line = found[0] + found[1]
        self._at += len(line)
        return line


def load_in_pieces(band: memoryview, buffers: Sequence[memoryview]) -> Any:
    """Unpickle a value; in one go if it is small."""
    if len(band) <= JOIN_BYTES:
        return pickle.loads(band, buffers=buffers)  # noqa: S301 - in a client or a slot
    return pickle.load(_Reader(band), buffers=buffers)  # noqa: S301 - the same


__all__ = ["JOIN_BYTES", "dump_in_pieces", "load_in_pieces"]
