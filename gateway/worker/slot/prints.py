"""The output of a task: its end is kept up to a limit on request, else dropped at no cost.

These streams replace sys.stdout and sys.stderr of a slot. Output to the file descriptors themselves
(C code, child processes) takes another way: the agent drains them and keeps the end, to show it
when the slot dies.
"""

import io
import sys
from collections import deque
from typing import Any

from federation.messages.printed import PIECES_MAX, PRINTS_BYTES_MAX, STDERR, STDOUT


class Prints:
    """The output of one task after the other: pieces of stdout and stderr, in their order."""

    def __init__(self) -> None:
        self.is_keeping = False
        self._pieces: deque[tuple[int, bytearray]] = deque()
        self._bytes = 0
        self._cut = 0
        self._streams = [_open(self, STDOUT), _open(self, STDERR)]

    def install(self, *, keep: bool) -> None:
        """Replace sys.stdout and sys.stderr, whatever the last task has done to them."""
        self.is_keeping = keep
        for at, stream in enumerate(self._streams):
            if stream.closed:
                self._streams[at] = _open(self, at + 1)
        sys.stdout, sys.stderr = self._streams

    def add(self, stream: int, data: bytes) -> None:
        """Take bytes of a stream; the oldest bytes over the limit are counted and dropped."""
        if not self.is_keeping or not data:
            return
        pieces = self._pieces
        if pieces and pieces[-1][0] == stream:
            pieces[-1][1].extend(data)
        else:
            pieces.append((stream, bytearray(data)))
        self._bytes += len(data)
        while self._bytes > PRINTS_BYTES_MAX or len(pieces) > PIECES_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._pieces[0][1]
        over = self._bytes - PRINTS_BYTES_MAX
        # No half of a character is left at the start.
        count = len(oldest) if over <= 0 or over >= len(oldest) else _to_character(oldest, over)
        self._cut += _characters(oldest[:count])
        self._bytes -= count
        del oldest[:count]
        if not oldest:
            self._pieces.popleft()

    def take(self) -> list[list[Any]]:
        """Return the output since the last call as pieces [text, stream]."""
        if not self._pieces:
            return []
        pieces = [[data.decode(errors="ignore"), stream] for stream, data in self._pieces]
        if self._cut:
            pieces[0][0] = f"[gridfed: {self._cut:,} earlier characters were cut]\n{pieces[0][0]}"
        self._pieces.clear()
        self._bytes = self._cut = 0
        return pieces


def _to_character(data: bytearray, at: int) -> int:
    """Return the first place from `at` on at which a character of UTF-8 begins."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


def _characters(data: bytes | bytearray) -> int:
    return len(data) if data.isascii() else len(data.decode(errors="ignore"))


class _Raw(io.RawIOBase):
    """The bytes under a text stream."""

    def __init__(self, prints: Prints, stream: int) -> None:
        super().__init__()
        self._prints = prints
        self._stream = stream

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream  # the descriptors of stdout and stderr have these numbers

    def write(self, data: Any) -> int:
        taken = bytes(data)
        self._prints.add(self._stream, taken)
        return len(taken)


def _open(prints: Prints, stream: int) -> io.TextIOWrapper:
    # The output of a task travels as UTF-8 text: half a surrogate pair must not stop it.
    raw: Any = _Raw(prints, stream)
    return io.TextIOWrapper(
        raw, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True
    )
