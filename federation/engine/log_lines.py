"""The output of tasks that a gateway keeps, as lines."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from federation.messages.printed import STREAMS

ASK_WAIT_S: Final = 10.0
LINE_CHARS_MAX: Final = 1 << 16  # a longer line is given in parts


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


class LineAssembler:
    """Puts the pieces of tasks' output together to lines."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], str] = {}  # by task and stream: a line without its end

    def feed(self, at_s: float, task: int, stream: int, text: str) -> Iterator[LogLine]:
        """Take a piece; yield the lines that it completes."""
        *whole, rest = (self._open.pop((task, stream), "") + text).split("\n")
        for each in whole:
            yield _line(at_s, task, stream, each)
        if len(rest) > LINE_CHARS_MAX:
            yield _line(at_s, task, stream, rest)
        elif rest:
            self._open[task, stream] = rest

    def finish(self, at_s: float) -> Iterator[LogLine]:
        """Yield the lines that have no end."""
        for (task, stream), text in self._open.items():
            yield _line(at_s, task, stream, text)
        self._open.clear()


def read_lines(
    ask: Callable[[dict[str, Any]], dict[str, Any]],
    task: int | None,
    *,
    follow: bool,
    on_cut: Callable[[int], None] = lambda _bytes: None,
) -> Iterator[LogLine]:
    """Yield the lines that a gateway keeps of a job, in the order in which they arrived.

    Args:
        ask: sends the question `logs` with these details, and returns the answer.
        task: of this task alone; None: of all.
        follow: wait for more until the job has ended.
        on_cut: called with the bytes of older output that the site no longer has, if any.
    """
    assembler, after, at_s = LineAssembler(), 0, 0.0
    details: dict[str, Any] = {} if task is None else {"task": task}
    wait_s = 0.0  # the first answer comes at once
    while True:
        found = ask({**details, "after": after, "wait_s": wait_s})
        if not wait_s and not after and found["cut_bytes"]:
            on_cut(found["cut_bytes"])
        for number, at_s, its_task, stream, text in found["pieces"]:
            after = number
            yield from assembler.feed(at_s, its_task, stream, text)
        if not found["more"] and (found["ended"] or not follow):
            yield from assembler.finish(at_s)
            return
        wait_s = ASK_WAIT_S if follow else 0.0


def _line(at_s: float, task: int, stream: int, text: str) -> LogLine:
    shown = text.removesuffix("\r").rpartition("\r")[2]
    return LogLine(task, STREAMS.get(stream, "stdout"), shown, datetime.fromtimestamp(at_s, UTC))


__all__ = ["LineAssembler", "LogLine", "read_lines"]
