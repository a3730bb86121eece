"""The output of a task: kept up to a limit on request, else dropped at no cost.

These streams replace sys.stdout and sys.stderr of a slot. Output to the file descriptors themselves
(C code, child processes) takes another way: the agent drains them and keeps the end, to show it
when the slot dies.
"""

import io
import sys
from typing import Any, Final

PRINTS_BYTES_MAX: Final = 64 << 10


class Prints:
    """The output of one task after the other; stdout and stderr together, in order."""

    def __init__(self) -> None:
        self.is_keeping = False
        self._parts: list[bytes] = []
        self._bytes = 0
        self._cut = 0
        self._streams = [_open(self, 1), _open(self, 2)]

    def install(self, *, keep: bool) -> None:
        """Replace sys.stdout and sys.stderr, whatever the last task has done to them."""
        self.is_keeping = keep
        for at, stream in enumerate(self._streams):
            if stream.closed:
                self._streams[at] = _open(self, at + 1)
        sys.stdout, sys.stderr = self._streams

    def add(self, data: bytes) -> None:
        """Take bytes; those over the limit are counted and dropped."""
        if not self.is_keeping:
            return
        room = PRINTS_BYTES_MAX - self._bytes
        if room > 0:
            self._parts.append(data[:room])
        self._bytes += max(0, min(room, len(data)))
        cut = data[max(0, room) :]
        self._cut += len(cut) if cut.isascii() else len(cut.decode(errors="ignore"))

    def take(self) -> str:
        """Return the output since the last call."""
        if not self._bytes:
            return ""
        text = b"".join(self._parts).decode(errors="ignore")
        if self._cut:
            text += f"\n[gridfed: {self._cut:,} more characters were cut]\n"
        self._parts, self._bytes, self._cut = [], 0, 0
        return text


class _Raw(io.RawIOBase):
    """The bytes under a text stream."""

    def __init__(self, prints: Prints, descriptor: int) -> None:
        super().__init__()
        self._prints = prints
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        taken = bytes(data)
        self._prints.add(taken)
        return len(taken)


def _open(prints: Prints, descriptor: int) -> io.TextIOWrapper:
    # The output of a task travels as UTF-8 text: half a surrogate pair must not stop it.
    raw: Any = _Raw(prints, descriptor)
    return io.TextIOWrapper(
        raw, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True
    )
