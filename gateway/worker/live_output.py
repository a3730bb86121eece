"""Output of the tasks at one slot that waits to be sent to the gateway. Pure.

A slot sends what its tasks print, and the agent drains what they write to file descriptors. Both
gather here for a moment, so that a task that writes without end costs a bounded rate of messages:
the oldest output is dropped, and the next piece says how much.
"""

from collections import deque
from typing import Final

from federation.messages.messages import TaskOutput
from federation.messages.printed import PRINTS_BYTES_MAX

FLUSH_S: Final = 0.25  # between two messages about a running task
OUTBOX_CHARS_MAX: Final = 4 << 20  # of all slots, that the gateway has not taken; more waits here


class LiveOutput:
    """The output of one slot's tasks since the last message."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, int, int, str]] = deque()  # assignment, task, stream, text
        self._chars = 0
        self._cut = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, assignment: int, task: int, stream: int, text: str) -> None:
        """Take a piece; the oldest pieces over the limit are counted and dropped."""
        cut = len(text) - PRINTS_BYTES_MAX
        if cut > 0:
            self._cut += cut
            text = text[cut:]
        self._pieces.append((assignment, task, stream, text))
        self._chars += len(text)
        while self._chars > PRINTS_BYTES_MAX:
            *_, gone = self._pieces.popleft()
            self._chars -= len(gone)
            self._cut += len(gone)

    def take(self) -> list[TaskOutput]:
        """Return the messages with it, in order."""
        found: list[TaskOutput] = []
        for assignment, task, stream, text in self._pieces:
            if not found or found[-1].assignment != assignment:
                found.append(TaskOutput(assignment, []))
            if self._cut:
                text = f"[gridfed: {self._cut:,} earlier characters were cut]\n{text}"
                self._cut = 0
            found[-1].pieces.append([task, stream, text])
        self._pieces.clear()
        self._chars = 0
        return found


def size_of(message: TaskOutput) -> int:
    """Return the characters in a message."""
    return sum(len(text) for _, _, text in message.pieces)


__all__ = ["FLUSH_S", "OUTBOX_CHARS_MAX", "LiveOutput", "size_of"]
