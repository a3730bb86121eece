"""An agent's queue of messages for its gateway, in which adjacent reports are merged. Pure.

A report leaves at once while the session takes frames. When the gateway is slower than the slots,
reports gather here, and many small ones become few.
"""

from collections.abc import Iterable
from typing import Any, Final

from federation.messages.messages import Report, TaskOutput
from federation.messages.printed import joined, parted
from federation.sessions.handshake import Dialogue
from gateway.worker.live_output import size_of
from gateway.worker.pieces import AgentBundle, AssignmentTerms

MERGED_BYTES_MAX: Final = 256 << 10


class WorkerOutbox:
    """Messages in the order in which they are sent."""

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._bytes: dict[int, int] = {}  # of the reports that may still grow, by place
        self._last: dict[int, int] = {}  # the place of an assignment's last report
        self.output_chars = 0  # in the queued messages with output of tasks

    def add(self, message: Any) -> None:
        """Queue a message that is not merged."""
        self._messages.append(message)

    def add_output(self, message: TaskOutput) -> None:
        """Queue output of tasks; its sender heeds `output_chars`."""
        self.output_chars += size_of(message)
        self._messages.append(message)

    def add_report(self, report: Report) -> None:
        """Queue a report, merged into the assignment's last one if it continues that."""
        size = _report_bytes(report)
        place = self._last.get(report.assignment)
        if place is not None:
            last = self._messages[place]
            total = self._bytes[place] + size
            if last.first + len(last.values) == report.first and total <= MERGED_BYTES_MAX:
                self._messages[place] = _merge(last, report)
                self._bytes[place] = total
                return
        place = len(self._messages)
        self._last[report.assignment] = place
        self._bytes[place] = size
        self._messages.append(report)

    def add_failure(
        self, terms: AssignmentTerms, task: int, kind: str, text: str, wall_ns: int = 0
    ) -> None:
        """Queue the report of a task that ended without its slot's report."""
        failure = [0, kind, text, b""]
        self.add_report(Report(terms.assignment, task, [b""], [failure], [], wall_ns, 0, 0))

    def add_cancelled(self, pieces: Iterable[AgentBundle]) -> None:
        """Queue the reports of tasks that were cancelled before they ran."""
        for piece in pieces:
            for task in range(piece.first, piece.stop):
                self.add_failure(piece.terms, task, "cancelled", "stopped on request")

    def take(self) -> list[Any]:
        """Return all queued messages in order, and empty the queue."""
        messages = self._messages
        self._messages = []
        self._bytes.clear()
        self._last.clear()
        self.output_chars = 0
        return messages

    def __len__(self) -> int:
        return len(self._messages)

    # --- as gateway.sessions.conversation.Outgoing -----------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no message is queued."""
        return not self._messages

    def fill(self, dialogue: Dialogue) -> None:
        """Post the queued messages."""
        for message in self.take():
            dialogue.post(message)


def _report_bytes(report: Report) -> int:
    texts = sum(len(failure[2]) + len(failure[3]) for failure in report.failures)
    return sum(map(len, report.values)) + texts + sum(len(item[1]) for item in report.prints)


def _merge(last: Report, more: Report) -> Report:
    shift = len(last.values)
    printed = [[at + shift, *piece] for at, *piece in joined(more.prints, more.streams)]
    prints, streams = parted([*joined(last.prints, last.streams), *printed])
    return Report(
        last.assignment,
        last.first,
        last.values + more.values,
        last.failures + [[at + shift, *rest] for at, *rest in more.failures],
        prints,
        last.wall_ns + more.wall_ns,
        last.cpu_ns + more.cpu_ns,
        max(last.peak_memory_bytes, more.peak_memory_bytes),
        streams,
        last.left or more.left,
    )
