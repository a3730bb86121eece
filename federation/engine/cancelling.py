"""Cancels of a client: calls and jobs, at once or without waiting, and by dropped futures."""

import weakref
from collections import deque
from typing import Any

from federation.engine.books.jobs import CANCELLED, JobTable
from federation.engine.books.requests import RequestTable
from federation.engine.books.streams import Stream
from federation.engine.leading import Leading
from federation.engine.requests import Requests
from federation.errors import JobNotFound
from federation.messages.messages import Cancel
from federation.ranges import Range
from federation.sessions.handshake import Dialogue


class Cancels:
    """Cancels calls here, and asks the gateway to.

    Args:
        leading: its lock guards the jobs.
        jobs, dialogue: the jobs, and the messages about them.
        requests, table: the questions to the gateway.
    """

    def __init__(
        self,
        leading: Leading,
        jobs: JobTable,
        dialogue: Dialogue,
        requests: Requests,
        table: RequestTable,
    ) -> None:
        self._leading = leading
        self._jobs = jobs
        self._dialogue = dialogue
        self._requests = requests
        self._table = table
        self._abandoned: deque[tuple[Stream, Range | None, bool]] = deque()

    def calls(
        self, stream: Stream, ranges: list[Range], *, stop: bool, timeout_s: float | None = None
    ) -> list[Range]:
        """Cancel calls; return those that were. Waits up to `timeout_s` for the gateway."""
        self._leading.check_process()
        with self._leading.lock:
            self._jobs.take(stream, stream.withdraw(ranges, CANCELLED))
            taken = self._jobs.cancel_unsent(stream, ranges)
        question = Cancel(0, stream.id, [list(pair) for pair in ranges], stop)
        kept = self._jobs.attached(stream.id) is not None
        answer = self._requests.answer(question, timeout_s, kept=kept)
        if answer is not None and not answer.code:
            taken += [(low, high) for low, high in answer.value["taken"]]
        with self._leading.lock:
            self._leading.settle()
        return taken

    def unstarted(self, stream: Stream) -> int:
        """Cancel the unstarted calls of a job; return their number."""
        if not stream.unfinished:
            return 0
        taken = self.calls(stream, [(0, stream.total)], stop=False)
        return sum(stop - first for first, stop in taken)

    def job(self, job: str, *, stop: bool, at: str = "") -> tuple[int, str]:
        """Cancel a whole job by its id.

        Return the number of tasks taken back or stopped, and the job's id, user and project as its
        gateway writes them (empty from an older gateway).

        For a job of this client, the calls that wait here count too. The job takes no more calls:
        the next `submit` opens another. Raises JobNotFound, GatewayUnreachable.
        """
        with self._leading.lock:
            stream = self._jobs.attached(job)
            before = stream.unfinished if stream is not None else 0
            if stream is not None:
                self._jobs.take(stream, stream.withdraw([(0, stream.total)], CANCELLED))
                self._jobs.close_to_calls(stream, CANCELLED)
                before -= stream.unfinished
        kept = self._jobs.attached(job) is not None
        answer = self._requests.answer(Cancel(0, job, [], stop), at=at, kept=kept)
        with self._leading.lock:
            if stream is not None and (answer is None or answer.code):
                self._jobs.sender.close(stream, self._dialogue)  # it continues, without more calls
            self._leading.settle()
        answer = self._requests.checked(answer)
        if answer.code:
            raise JobNotFound(answer.reason)
        taken = sum(int(high) - int(low) for low, high in answer.value["taken"])
        return before + taken, str(answer.value.get("title", ""))

    def abandon(self, stream: Stream, calls: Range | None = None, *, stop: bool = False) -> None:
        """Cancel calls whose results are not needed, without waiting; by default a whole job.

        With `stop`, running calls too. Safe in a finaliser. Does nothing in a forked child: the job
        continues in the parent.
        """
        if self._leading.is_foreign:
            return
        self._abandoned.append((stream, calls, stop))
        self._leading.wake()  # the leader does it: a finaliser may run in the middle of anything

    def loosen(self, stream: Stream, task: int) -> None:
        """Hold the future of a call weakly: once nothing else refers to it, the call is cancelled.

        For a future whose wait was interrupted. A running call is stopped.
        """
        if self._leading.is_foreign:
            return

        def to_weak(future: Any) -> Any:
            if isinstance(future, weakref.ref):
                return future  # its wait was interrupted before
            return weakref.ref(future, lambda _: self.abandon(stream, (task, task + 1), stop=True))

        with self._leading.lock:
            stream.loosen(task, to_weak)

    def post_abandoned(self) -> None:
        """Cancel what was abandoned. The lock is held."""
        while self._abandoned:
            self._drop(*self._abandoned.popleft())

    def _drop(self, stream: Stream, calls: Range | None, stop: bool) -> None:
        if self._jobs.find(stream.id) is None:
            return
        self._jobs.take(
            stream, stream.withdraw([(0, stream.total) if calls is None else calls], CANCELLED)
        )
        if calls is None:
            self._jobs.close_to_calls(stream, CANCELLED)
            self._table.post(Cancel(0, stream.id, [], stop))
        else:
            self._jobs.cancel_unsent(stream, [calls])
            self._table.post(Cancel(0, stream.id, [list(calls)], stop))
