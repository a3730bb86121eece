"""The stream between two bulk ports: docs/protocol.md, "Bulk transfer". Pure.

    puller                                   holder
      hello (8 bytes) · OPEN ticket ─────────►
      ◄──────────────── MANIFEST | REFUSED text
      WANT [[first, stop], …] ───────────────►
      ◄──────────────── BLOCK number, bytes …  | REFUSED text

A frame is its kind (1 byte), a number (4), the length of its content (4) and the content. The
puller owes no answer, and closes when it has all that it wants.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import msgpack

from federation.bulk.pull import MANIFEST_BYTES_MAX
from federation.errors import ProtocolError
from federation.objects.manifests import BLOCK_BYTES
from federation.ranges import Range

HELLO: Final = b"gfbulk1\n"
TICKET_BYTES_MAX: Final = 8 << 10
WANT_BYTES_MAX: Final = 64 << 10
REASON_BYTES_MAX: Final = 2 << 10
RANGES_MAX: Final = 4_096
NUMBER_MAX: Final = 1 << 31
HEAD_BYTES: Final = 9
_HEAD: Final = struct.Struct("!BII")


class FrameKind(IntEnum):
    """The kinds of frames of a bulk stream."""

    OPEN = 1
    WANT = 2
    MANIFEST = 3
    BLOCK = 4
    REFUSED = 5


FROM_PULLER: Final = {FrameKind.OPEN: TICKET_BYTES_MAX, FrameKind.WANT: WANT_BYTES_MAX}
FROM_HOLDER: Final = {
    FrameKind.MANIFEST: MANIFEST_BYTES_MAX,
    FrameKind.BLOCK: BLOCK_BYTES,
    FrameKind.REFUSED: REASON_BYTES_MAX,
}


@dataclass(frozen=True, slots=True)
class FrameHead:
    """The head of a frame: what comes, and how many bytes of it."""

    kind: FrameKind
    number: int
    length: int

    def to_bytes(self) -> bytes:
        """Return it for the wire."""
        return _HEAD.pack(self.kind, self.number, self.length)


def read_head(data: bytes, allowed: dict[FrameKind, int]) -> FrameHead:
    """Read a head; `allowed` has the kinds that may come, each with the most bytes.

    Raises:
        ProtocolError: another kind comes, or more bytes.
    """
    if len(data) != HEAD_BYTES:
        raise ProtocolError("the stream ended within a frame")
    kind, number, length = _HEAD.unpack(data)
    if kind not in allowed:
        raise ProtocolError(f"a frame of kind {kind} is not expected here")
    if length > allowed[FrameKind(kind)]:
        raise ProtocolError(f"a frame of kind {kind} has {length:,} bytes, over the limit")
    return FrameHead(FrameKind(kind), number, length)


def frame(kind: FrameKind, content: bytes = b"", number: int = 0) -> bytes:
    """Return a whole frame."""
    return FrameHead(kind, number, len(content)).to_bytes() + content


def refused(reason: str) -> bytes:
    """Return the frame that ends a stream, with the reason for people."""
    return frame(FrameKind.REFUSED, reason.encode()[:REASON_BYTES_MAX])


def read_reason(content: bytes) -> str:
    """Return the reason of a frame REFUSED, as one line that can be shown."""
    text = content.decode(errors="replace")
    return "".join(each if each.isprintable() else " " for each in text)[:500]


def pack_ranges(ranges: list[Range]) -> bytes:
    """Return the content of a frame WANT; the first RANGES_MAX of the ranges."""
    packed: bytes = msgpack.packb([list(each) for each in ranges[:RANGES_MAX]])
    return packed


def read_ranges(content: bytes, blocks: int) -> list[Range]:
    """Read the content of a frame WANT, for an object of so many blocks. Raises ProtocolError."""
    try:
        plain = msgpack.unpackb(content, max_array_len=RANGES_MAX)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"the wanted blocks can't be read: {type(error).__name__}") from None
    if type(plain) is not list or not plain:
        raise ProtocolError("the wanted blocks must be a list of ranges")
    found: list[Range] = []
    for each in plain:
        is_range = type(each) is list and len(each) == 2 and all(type(n) is int for n in each)
        if not is_range or not 0 <= each[0] < each[1] <= blocks:
            raise ProtocolError(f"a wanted range is not one of {blocks:,} blocks")
        found.append((each[0], each[1]))
    if sum(stop - first for first, stop in found) > blocks:
        raise ProtocolError("blocks are wanted twice")
    return found
