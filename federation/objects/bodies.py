"""The bytes of an object: a header, a pickle, and the large buffers beside it.

    magic (8 bytes) · header length (4) · header · pickle · buffer · buffer …

Each part after the header begins at a multiple of 64 bytes. The header is MessagePack: [format,
Python version, sizes of the parts]. The format is `pickle5`: the first part is the pickle, by
protocol 5 with its buffers out of band, and the others are those buffers. Nothing is copied to
measure an object, and one copy writes it; to load it, buffers are views of the mapped file.

`read_layout` opens no pickle, and trusts nothing: the object host uses it.
"""

import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import msgpack

from federation.errors import SerializationError
from federation.objects.bands import load_in_pieces
from federation.objects.manifests import place
from federation.payload import buffer_taker, dump_apart

MAGIC: Final = b"gfobj1\r\n"
FORMAT: Final = "pickle5"
PARTS_MAX: Final = 10_000  # buffers beyond this number stay in the pickle
HEADER_BYTES_MAX: Final = 1 << 20
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_LENGTH: Final = struct.Struct("!I")


class BadBody(Exception):
    """Bytes that are no object."""


@dataclass(frozen=True, slots=True)
class ObjectBody:
    """A value as it will be written: its header, and its parts with their offsets.

    The parts are views of the value's own memory: it must not change until they are written. A
    large pickle is several of them, without a gap.
    """

    head: bytes
    parts: tuple[memoryview, ...]
    offsets: tuple[int, ...]
    size: int

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield what is to be written, and where."""
        yield 0, memoryview(self.head)
        yield from zip(self.offsets, self.parts, strict=True)


def make_body(value: Any) -> ObjectBody:
    """Pickle a value, with its large buffers beside the pickle and uncopied.

    Raises:
        SerializationError: it can't be pickled, or holds a reference to another object.
    """
    buffers: list[memoryview] = []
    try:
        band: list[memoryview] = dump_apart(value, buffer_taker(buffers, 0, PARTS_MAX - 1))
    except SerializationError:
        raise
    except Exception as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise SerializationError(
            f"the value, of type {kind}, can't be pickled: {type(error).__name__}: {error}"
        ) from error
    return body_of(band, buffers)


def body_of(band: bytes | Sequence[memoryview], buffers: Sequence[memoryview]) -> ObjectBody:
    """Return the object of a pickle, whole or in pieces, and the buffers that it left out."""
    pieces = [memoryview(band)] if isinstance(band, bytes) else band
    lengths = [piece.nbytes for piece in pieces]
    sizes = [sum(lengths), *(buffer.nbytes for buffer in buffers)]
    header: bytes = msgpack.packb([FORMAT, PYTHON, sizes])
    head = MAGIC + _LENGTH.pack(len(header)) + header
    (start, *others), size = place(len(head), sizes)
    offsets = [start + before for before in accumulate(lengths[:-1], initial=0)]
    return ObjectBody(head, (*pieces, *buffers), (*offsets, *others), size)


def read_layout(view: memoryview) -> tuple[str, str, list[memoryview]]:
    """Return the format, the Python version and the parts of an object's bytes. Raises BadBody."""
    form, python, parts = _read(view)
    return form, python, parts[1:]


def parts_of(view: memoryview) -> list[memoryview]:
    """Return all that identifies an object: its header, and its parts. Raises BadBody."""
    return _read(view)[2]


def _read(view: memoryview) -> tuple[str, str, list[memoryview]]:
    start = len(MAGIC) + _LENGTH.size
    if len(view) < start or bytes(view[: len(MAGIC)]) != MAGIC:
        raise BadBody("it does not begin as an object does")
    (length,) = _LENGTH.unpack_from(view, len(MAGIC))
    if length > min(HEADER_BYTES_MAX, len(view) - start):
        raise BadBody("its header is too long")
    try:
        form, python, sizes = msgpack.unpackb(view[start : start + length], raw=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadBody(f"its header is not valid: {type(error).__name__}") from None
    is_sound = (
        type(form) is str
        and type(python) is str
        and type(sizes) is list
        and 0 < len(sizes) <= PARTS_MAX
        and all(type(size) is int and 0 <= size <= len(view) for size in sizes)
    )
    if not is_sound:
        raise BadBody("its header is not valid")
    offsets, whole = place(start + length, sizes)
    if whole != len(view):
        raise BadBody("its parts do not fill it")
    parts = [view[at : at + size] for at, size in zip(offsets, sizes, strict=True)]
    return form, python, [view[: start + length], *parts]


def load(view: memoryview) -> Any:
    """Unpickle an object. Its buffers are views of these bytes, and as little writable as they are.

    Raises:
        SerializationError: it can't be unpickled here.
    """
    try:
        form, _, parts = read_layout(view)
    except BadBody as error:
        raise SerializationError(f"the object can't be read: {error}") from None
    if form != FORMAT:
        raise SerializationError(f"the object has the format {form!r:.40}, which is not known here")
    return load_in_pieces(parts[0], parts[1:])
