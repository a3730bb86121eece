"""The output of a task: its end is kept on request, or sent while the task runs; else dropped.

These streams replace sys.stdout and sys.stderr of a slot. Output to the file descriptors themselves
(C code, child processes) takes another way: the agent drains them, and keeps the end to show it
when the slot dies.

Threads, signal handlers and finalizers of a task may print at any moment, also within these methods
and while a report is sent.
"""

import _thread
import contextlib
import io
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from federation.messages.printed import PIECES_MAX, PRINTS_BYTES_MAX, STDERR, STDOUT, to_character

# Lines are sent at once, up to BURST of them; then at this rate, several together.
BURST: Final = 20.0
SENDS_PER_S: Final = 10.0
SOON_S: Final = 0.3  # after which the rest is sent: a line without its end, or one over that rate


def _soon(call: Callable[[], None]) -> None:
    """Call a function after SOON_S, by a thread of its own, if there can be one.

    `threading` takes a lock to start a thread, which the code that a finalizer interrupts may hold.
    """

    def run() -> None:
        time.sleep(SOON_S)
        call()

    with contextlib.suppress(RuntimeError):  # at the limit of threads the next print sends it
        _thread.start_new_thread(run, ())


class OutputTail:
    """The last output of one task: pieces of stdout and stderr, in their order."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, bytearray]] = deque()
        self._bytes = 0
        self._cut = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, stream: int, data: bytes) -> None:
        """Take bytes of a stream; the oldest bytes over the limit are counted and dropped."""
        pieces = self._pieces
        if pieces and pieces[-1][0] == stream:
            pieces[-1][1].extend(data)
        else:
            pieces.append((stream, bytearray(data)))
        self._bytes += len(data)
        if self._bytes > 2 * PRINTS_BYTES_MAX or len(pieces) > 2 * PIECES_MAX:
            self._trim()  # now and then: to cut at every print would take longer than to print

    def _trim(self) -> None:
        pieces = self._pieces
        while pieces and (self._bytes > PRINTS_BYTES_MAX or len(pieces) > PIECES_MAX):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._pieces[0][1]
        over = self._bytes - PRINTS_BYTES_MAX
        count = len(oldest) if over <= 0 or over >= len(oldest) else to_character(oldest, over)
        self._cut += _characters(oldest[:count])
        self._bytes -= count
        del oldest[:count]
        if not oldest:
            self._pieces.popleft()

    def take(self) -> list[list[Any]]:
        """Return the output since the last call as pieces [text, stream]."""
        if not self._pieces:
            return []
        self._trim()
        pieces = [[data.decode(errors="ignore"), stream] for stream, data in self._pieces]
        if self._cut:
            pieces[0][0] = f"[gridfed: {self._cut:,} earlier characters were cut]\n{pieces[0][0]}"
        self._pieces.clear()
        self._bytes = self._cut = 0
        return pieces


class Prints:
    """The output of one task after the other.

    Args:
        number: returns the slot's number of the running task.
        send: sends the rows that it is given a function for to the agent, now; it returns False,
            and takes none, while it can't.
        soon: calls a function after a moment, from another thread.

    Attributes:
        is_dirty: whether the running task has printed what is wanted.
    """

    def __init__(
        self,
        number: Callable[[], int] = lambda: 0,
        send: Callable[[Callable[[], list[list[Any]]]], bool] | None = None,
        soon: Callable[[Callable[[], None]], None] = _soon,
    ) -> None:
        self.is_dirty = False
        self._number = number
        self._send = send
        self._soon = soon
        self._is_due = False  # the rest is sent soon
        self._is_keeping = self._is_live = False
        self._lock = threading.RLock()
        self._kept, self._unsent = OutputTail(), OutputTail()
        self._rows: list[list[Any]] = []  # of tasks before this one, unsent
        self.unsent_chars = 0  # in these
        self._tokens, self._at_s = BURST, 0.0
        self._streams = [_open(self, STDOUT), _open(self, STDERR)]

    def install(self, *, keep: bool, live: bool = False) -> None:
        """Replace sys.stdout and sys.stderr, whatever the last task has done to them.

        Args:
            keep: the end of the output is for `take`.
            live: the output is sent while the task runs, and is for `rows`.
        """
        self._is_keeping, self._is_live = keep, live
        for at, stream in enumerate(self._streams):
            if stream.closed:
                self._streams[at] = _open(self, at + 1)
        sys.stdout, sys.stderr = self._streams

    def disown(self) -> None:
        """Send nothing any more: this process is a child that a task has forked."""
        self._lock = threading.RLock()  # another thread may have held it
        self._send = None

    def add(self, stream: int, data: bytes) -> None:
        """Take bytes of a stream; send them at once if they end a line, else soon."""
        if not data or not (self._is_keeping or self._is_live):
            return
        with self._lock:
            self.is_dirty = True
            if self._is_keeping:
                self._kept.add(stream, data)
            if self._is_live:
                self._unsent.add(stream, data)
        if not self._is_live or self._send is None:
            return
        if data[-1] == 10 and self._may_send() and self._send(self.rows):
            self._tokens -= 1.0
        elif not self._is_due:
            self._is_due = True
            self._soon(self._send_rest)

    def _send_rest(self) -> None:
        self._is_due = False
        send = self._send
        if self._unsent and send is not None and not send(self.rows) and not self._is_due:
            self._is_due = True
            self._soon(self._send_rest)

    def _may_send(self) -> bool:
        now_s = time.monotonic()
        since_s, self._at_s = now_s - self._at_s, now_s
        self._tokens = min(BURST, self._tokens + since_s * SENDS_PER_S)
        return self._tokens >= 1.0

    def take(self) -> list[list[Any]]:
        """End a task; return the end of its output as pieces [text, stream], if it is kept."""
        with self._lock:
            self.is_dirty = False
            rows = self._taken()
            self._rows += rows
            self.unsent_chars += sum(len(row[1]) for row in rows)
            return self._kept.take()

    def rows(self) -> list[list[Any]]:
        """Return the output that was not sent yet: [task, text, stream]."""
        with self._lock:
            rows, self._rows = [*self._rows, *self._taken()], []
            self.unsent_chars = 0
            return rows

    def _taken(self) -> list[list[Any]]:
        return [[self._number(), *piece] for piece in self._unsent.take()]


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
