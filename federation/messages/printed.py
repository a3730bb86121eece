"""The output of tasks: which stream each piece of it was written to. Pure.

On the wire `prints` are [offset, text], in the order in which a task wrote them, and `streams` has
the stream of each: STDOUT or STDERR. A party from before `streams` sends and reads `prints` alone;
all of its output counts as stdout. Elsewhere a piece is one row, [offset, text, stream].
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from federation.errors import ProtocolError

STDOUT: Final = 1
STDERR: Final = 2
STREAMS: Final = {STDOUT: "stdout", STDERR: "stderr"}
PRINTS_BYTES_MAX: Final = 64 << 10  # of one task in a message: the last of its output
PIECES_MAX: Final = 1_000  # of one task: more changes of the stream drop the oldest pieces


def stream_of(row: Sequence[Any]) -> int:
    """Return the stream of a row; STDOUT where it names none."""
    return int(row[2]) if len(row) > 2 else STDOUT


def are_streams(prints: Sequence[Any], streams: Sequence[int]) -> bool:
    """Whether the streams of a message belong to its prints; none at all do, too."""
    return not streams or (
        len(streams) == len(prints) and all(stream in STREAMS for stream in streams)
    )


def joined(prints: list[list[Any]], streams: Sequence[int]) -> list[list[Any]]:
    """Return [offset, text, stream] for the prints of a message.

    Raises ProtocolError if the streams don't belong to them.
    """
    if not are_streams(prints, streams):
        raise ProtocolError("the streams of a message don't belong to its prints")
    if not streams:
        return prints  # all of them are stdout
    return [[*row[:2], stream] for row, stream in zip(prints, streams, strict=True)]


def parted(rows: Iterable[Sequence[Any]]) -> tuple[list[list[Any]], list[int]]:
    """Return the prints and the streams of a message; no streams if all of it is stdout."""
    prints: list[list[Any]] = []
    streams: list[int] = []
    for row in rows:
        prints.append([row[0], row[1]])
        streams.append(stream_of(row))
    return prints, streams if STDERR in streams else []


def to_character(data: bytes | bytearray, at: int) -> int:
    """Return the first place from `at` on where a character of UTF-8 begins."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


__all__ = [
    "PIECES_MAX",
    "PRINTS_BYTES_MAX",
    "STDERR",
    "STDOUT",
    "STREAMS",
    "are_streams",
    "joined",
    "parted",
    "stream_of",
    "to_character",
]
