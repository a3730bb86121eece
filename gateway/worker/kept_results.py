"""Results that stay at the site: from the file of a slot to the report that refers to it.

A slot hands over the file of a large result before the part that the result belongs to. The object
host keeps it, and only then is the part reported, with a reference in the result's place.
"""

import os
from dataclasses import replace
from typing import Final

import trio

from federation.messages.messages import Report
from federation.objects.left import AUTO, LEFT, WHOLE, left_value
from federation.objects.segments import Segment
from gateway.worker.conversation import WorkerConversation
from gateway.worker.held_objects import HeldObjects
from gateway.worker.outbox import WorkerOutbox
from gateway.worker.pieces import AssignmentTerms
from gateway.worker.slot.channel import FIGURE_MAX, UNSENT
from gateway.worker.slot.process import SlotProcess

KEEP_S: Final = 30.0  # time for the object host to take a result


class KeptResults:
    """The results of an agent's slots that the object host is to keep.

    Args:
        objects: the connection with the object host.
        outbox: takes the reports.
        gateway: sends them.

    Attributes:
        files: by slot: the result that its next part refers to.
    """

    def __init__(
        self, objects: HeldObjects, outbox: WorkerOutbox, gateway: WorkerConversation
    ) -> None:
        self._objects = objects
        self._outbox = outbox
        self._gateway = gateway
        self.files: dict[int, Segment] = {}
        self._waiting: set[object] = set()  # reports that wait until their results are kept

    @property
    def is_waiting(self) -> bool:
        """Whether a report waits until its results are kept."""
        return bool(self._waiting)

    def may_take(self, index: int, process: SlotProcess, size: int) -> bool:
        """Whether a slot's result of `size` bytes may be taken: one in a part, with its file."""
        return process.has_file and index not in self.files and 0 < size < FIGURE_MAX

    def take(self, index: int, process: SlotProcess, size: int) -> None:
        """Take the file of a result, which the slot's next part refers to."""
        self.files[index] = Segment(process.take_file(), size)

    def report(
        self, index: int, terms: AssignmentTerms, report: Report, nursery: trio.Nursery
    ) -> None:
        """Report a slot's part after the result is kept that the slot has handed over for it."""
        nursery.start_soon(self._keep, terms, report, self.files.pop(index), nursery)

    def slot_ended(self, index: int) -> None:
        """Release the file of a slot that ended before it reported the part."""
        file = self.files.pop(index, None)
        if file is not None:
            file.close()

    def drop_all(self) -> None:
        """Report none of the results that wait: their tasks are the gateway's again."""
        self._waiting.clear()

    async def _keep(
        self, terms: AssignmentTerms, report: Report, segment: Segment, nursery: trio.Nursery
    ) -> None:
        """Have the object host keep a result, then report it with the others of its part.

        Without room there it goes in the message after all, if it is not too large for that.
        """
        waiting = object()
        self._waiting.add(waiting)
        at, size = report.values.index(LEFT), segment.size
        values, failures = list(report.values), list(report.failures)
        answer: bytes | str = "the object host does not answer"
        try:
            with trio.move_on_after(KEEP_S):
                named = (terms.project, terms.job, segment)
                answer = await self._objects.leave(*named, nursery)
            if isinstance(answer, bytes):
                values[at] = left_value(answer, size)
            elif terms.results == AUTO and size < self._gateway.result_bytes_max:
                values[at] = WHOLE + os.pread(segment.descriptor, size, 0)
            else:
                values[at] = b""
                text = f"the result, of {size:,} bytes, can't be left at the site: {answer}"
                failures = sorted([*failures, [at, UNSENT, text, b""]])
        finally:
            segment.close()
        if waiting in self._waiting:  # else these tasks are the gateway's again
            self._waiting.discard(waiting)
            is_left = values[at] != b""
            self._outbox.add_report(replace(report, values=values, failures=failures, left=is_left))
            self._gateway.flush()
