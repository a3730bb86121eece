"""The output of tasks that a gateway keeps, as lines."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from federation.clocks import UNIX_EPOCH_S, MonoS, UtcS
from federation.messages.printed import STREAMS

ASK_WAIT_S: Final = 10.0
LINE_CHARS_MAX: Final = 1 << 16  # a longer line is given in parts
# Of a job that is followed, a line without an end is given when no more of it came for HELD_S, as
# of a question; and after HELD_MAX_S in any case, as of a bar that moves all the time.
HELD_S: Final = 1.0
HELD_MAX_S: Final = 10.0
NO_OUTPUT: Final = "no output of it is kept"  # where a gateway of an older version says no more


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a task has printed.

    Attributes:
        task: its number in the job.
        stream: "stdout" or "stderr".
        text: the line without its end, as the task wrote it: it may hold control characters. Of
            text that overwrites itself by carriage returns, as of a bar, it is the last state.
        at: when the line arrived at the gateway, UTC.
    """

    task: int
    stream: str
    text: str
    at: datetime


@dataclass(slots=True)
class _OpenLine:
    """A line without its end; its first part was fed at `since_s`, its last at `last_at_s`."""

    text: str
    since_s: MonoS
    last_at_s: MonoS


class LineAssembler:
    """Puts the pieces of tasks' output together to lines. `mono_s` is any monotonic clock."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], _OpenLine] = {}  # by task and stream
        self._begun: set[tuple[int, int]] = set()  # the line's beginning was given already

    @property
    def is_open(self) -> bool:
        """Whether a line without its end is held."""
        return bool(self._open)

    def feed(
        self, at_s: UtcS, task: int, stream: int, text: str, mono_s: MonoS = MonoS(0.0)
    ) -> Iterator[LogLine]:
        """Take a piece; yield the lines that it completes."""
        key = task, stream
        held = self._open.pop(key, None)
        *whole, rest = ((held.text if held else "") + text).split("\n")
        for each in whole:
            if each or key not in self._begun:  # the end of a line that was given is no line
                yield _line(at_s, task, stream, each)
            self._begun.discard(key)
        if len(rest) > LINE_CHARS_MAX:
            yield _line(at_s, task, stream, rest)
        elif rest:
            since_s = mono_s if held is None or whole else held.since_s
            self._open[key] = _OpenLine(rest, since_s, mono_s)

    def overdue(self, at_s: UtcS, mono_s: MonoS) -> Iterator[LogLine]:
        """Yield what there is of lines without an end that were held long enough."""
        for key, held in list(self._open.items()):
            if mono_s - held.last_at_s >= HELD_S or mono_s - held.since_s >= HELD_MAX_S:
                del self._open[key]
                self._begun.add(key)
                yield _line(at_s, *key, held.text)

    def finish(self, at_s: UtcS) -> Iterator[LogLine]:
        """Yield the lines that have no end."""
        for (task, stream), held in self._open.items():
            yield _line(at_s, task, stream, held.text)
        self._open.clear()


def read_lines(
    ask: Callable[[dict[str, Any]], dict[str, Any]],
    task: int | None,
    *,
    follow: bool,
    on_cut: Callable[[int], None] = lambda _bytes: None,
    on_none: Callable[[str], None] = lambda _why: None,
    mono_s: Callable[[], float] = time.monotonic,
) -> Iterator[LogLine]:
    """Yield the lines that a gateway keeps of a job, in the order in which they arrived.

    Args:
        ask: sends the question `logs` with these details, and returns the answer.
        task: of this task alone; None: of all.
        follow: wait for more until the job has ended.
        on_cut: called with the bytes of older output that the site no longer has, if any.
        on_none: called with the reason, in words, where there was no line at all.
        mono_s: the monotonic clock.
    """
    assembler, after, at_s = LineAssembler(), 0, UNIX_EPOCH_S
    details: dict[str, Any] = {} if task is None else {"task": task}
    wait_s = 0.0  # the first answer comes at once
    while True:
        found = ask({**details, "after": after, "wait_s": wait_s})
        now_s = MonoS(mono_s())
        if not wait_s and not after and found["cut_bytes"]:
            on_cut(found["cut_bytes"])
        for number, printed_at_s, its_task, stream, text in found["pieces"]:
            at_s = UtcS(printed_at_s)
            after = number
            yield from assembler.feed(at_s, its_task, stream, text, now_s)
        if not found["more"] and (found["ended"] or not follow):
            yield from assembler.finish(at_s)
            if not after:
                on_none(found.get("note") or NO_OUTPUT)
            return
        if follow:
            yield from assembler.overdue(at_s, now_s)
            wait_s = HELD_S if assembler.is_open else ASK_WAIT_S


def _line(at_s: UtcS, task: int, stream: int, text: str) -> LogLine:
    shown = text.removesuffix("\r").rpartition("\r")[2]
    return LogLine(
        task, STREAMS.get(stream, "stdout"), shown, datetime.fromtimestamp(float(at_s), UTC)
    )


__all__ = ["LineAssembler", "LogLine", "read_lines"]
