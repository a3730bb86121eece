"""Keeps the output of tasks off the gateway's loop: a queue of bounded size, and a thread.

    add ─► queue ─► thread ─► LogFile (SQLite)
                                 ▲
    read, in a thread that may ──┘ waits for what was added before it

`add` and `forget` never block, and never fail: output that can't be written is dropped, and the
operator is told.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federation.clocks import UtcS
from gateway.logs.limits import PIECE_BYTES, LogLimits, LogPage
from gateway.logs.log_file import Added, LogFile, read

NAME: Final = "logs.sqlite"  # in the folder of the site's state
QUEUE_BYTES_MAX: Final = 32 << 20  # output that waits to be written; more of it is dropped
BATCH_BYTES_MAX: Final = 4 << 20  # in one transaction
TROUBLE_S: Final = 60.0  # the operator is told of trouble so often at most
READ_WAIT_S: Final = 10.0  # how long a read waits for output that was added before it


@dataclass(frozen=True, slots=True)
class _Forget:
    """Drop the output of these jobs."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _ForgetSilent:
    """Drop the output of jobs without any since a moment, UTC, except for these."""

    utc_s: UtcS
    besides: frozenset[str]


_Order = Added | _Forget | _ForgetSilent


class TaskLogs:
    """The output of the tasks of a site's jobs.

    Args:
        folder: the folder of the site's state; it exists.
        say: takes lines for the operator; called from a thread of its own.
        mono_s: a monotonic clock that any thread may read, unlike that of the loop.

    Raises sqlite3.Error or OSError when the file can't be opened.
    """

    def __init__(
        self,
        folder: Path,
        limits: LogLimits,
        say: Callable[[str], None],
        mono_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = folder / NAME
        self._file = LogFile(self._path, limits)
        self._say = say
        self._mono_s = mono_s
        self._said_at_s = float("-inf")
        self._turn = threading.Condition()
        self._queue: deque[_Order] = deque()
        self._bytes = 0
        self._added = self._done = 0  # orders that were given, and carried out
        self._dropped = 0  # pieces
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="task logs", daemon=True)
        self._thread.start()

    def add(self, job: str, utc_s: UtcS, pieces: Sequence[tuple[int, int, str]]) -> None:
        """Keep output that has arrived at a moment, UTC: (task, stream, text) of each piece."""
        size = _size(pieces)
        with self._turn:
            if self._bytes + size > QUEUE_BYTES_MAX:
                self._dropped += len(pieces)
                return
            self._bytes += size
            self._give((job, utc_s, pieces))

    def forget(self, jobs: Collection[str]) -> None:
        """Drop the output of these jobs."""
        with self._turn:
            self._give(_Forget(tuple(jobs)))

    def forget_silent(self, utc_s: UtcS, besides: Collection[str]) -> None:
        """Drop the output of jobs that have had none since a moment, UTC, except for these."""
        with self._turn:
            self._give(_ForgetSilent(utc_s, frozenset(besides)))

    def read(self, job: str, task: int | None, after: int, bytes_max: int) -> LogPage:
        """Return output, with all that was added before; see log_file.read. Blocks.

        Raises sqlite3.Error where the file can't be read.
        """
        with self._turn:
            added = self._added
            self._turn.wait_for(lambda: self._done >= added, READ_WAIT_S)
        return read(self._path, job, task, after, bytes_max)

    def close(self) -> None:
        """Write what is queued, and close the file."""
        with self._turn:
            self._is_closing = True
            self._turn.notify_all()
        self._thread.join()
        self._file.close()

    def _give(self, order: _Order) -> None:
        self._queue.append(order)
        self._added += 1
        self._turn.notify_all()

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._queue or self._is_closing)
                if not self._queue:
                    return
                orders, dropped = self._next(), self._dropped
                self._dropped = 0
            trouble = f"{dropped:,} pieces came too fast to be kept" if dropped else ""
            try:
                self._carry_out(orders)
            except Exception as error:  # noqa: BLE001 - without this thread no output is kept at all
                trouble = f"{type(error).__name__}: {error}"
            if trouble:
                self._tell(f"output of tasks is lost: {trouble}")
            with self._turn:
                self._done += len(orders)
                self._turn.notify_all()

    def _next(self) -> list[_Order]:
        """Take one order, or as much output as one transaction takes."""
        orders = [self._queue.popleft()]
        size = _size_of(orders[0])
        while isinstance(orders[0], tuple) and self._queue and size < BATCH_BYTES_MAX:
            if not isinstance(self._queue[0], tuple):
                break
            orders.append(self._queue.popleft())
            size += _size_of(orders[-1])
        self._bytes -= size
        return orders

    def _carry_out(self, orders: list[_Order]) -> None:
        match orders[0]:
            case _Forget(jobs):
                self._file.forget(jobs)
            case _ForgetSilent(utc_s, besides):
                self._file.forget(self._file.silent_since(utc_s, besides))
            case _:
                self._file.add([each for each in orders if isinstance(each, tuple)])

    def _tell(self, text: str) -> None:
        mono_s = self._mono_s()
        if mono_s - self._said_at_s >= TROUBLE_S:
            self._said_at_s = mono_s
            with contextlib.suppress(RuntimeError):  # the loop that writes the log has ended
                self._say(f"logs: {text}")


def _size(pieces: Sequence[tuple[int, int, str]]) -> int:
    return sum(len(text) + PIECE_BYTES for _, _, text in pieces)


def _size_of(order: _Order) -> int:
    return _size(order[2]) if isinstance(order, tuple) else 0


__all__ = ["NAME", "TaskLogs"]
