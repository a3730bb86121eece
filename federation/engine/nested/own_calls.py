"""The calls of a task's own client: asked back from the gateway, and run in the task."""

from federation.engine.books.jobs import CANCELLED, JobTable
from federation.engine.books.requests import RequestTable
from federation.engine.books.streams import Ended, Stream
from federation.engine.leading import Leading


class OwnCalls:
    """Runs calls of an engine in the thread that waits for them.

    Args:
        leading: its lock guards the jobs.
        jobs: the jobs.
        table: the questions to the gateway.
    """

    def __init__(self, leading: Leading, jobs: JobTable, table: RequestTable) -> None:
        self._leading = leading
        self._jobs = jobs
        self._table = table

    def ask_back(self, stream: Stream, task: int) -> bool:
        """Ask the gateway for a call that has not begun, unless it is asked for already.

        Returns whether it is asked for, or has come back. The answer comes later, by `is_back`.
        """
        with self._leading.lock:
            question = self._jobs.ask_back(stream, task)
            if question is None:
                return False
            self._table.post(question)
            self._leading.transmit()
            return True

    def is_asked(self, stream: Stream, task: int) -> bool:
        """Whether the gateway has not answered for a call yet."""
        return stream.back.are_asked([(task, task + 1)])

    def is_back(self, stream: Stream, task: int) -> bool:
        """Whether a call is to be run here."""
        return stream.back.is_to_run(task)

    def run(self, stream: Stream, task: int) -> None:
        """Run a call that came back, unless another thread does. No lock is held meanwhile."""
        from federation.engine.nested.running import run_call  # here: few clients need it

        with self._leading.lock:
            begun = self._jobs.begin_here(stream, task)
        if begun is None:
            return
        outcome: bytes | Ended = CANCELLED  # by Ctrl-C
        try:
            outcome = run_call(*begun, f"task {task} of job {stream.id}")
        finally:
            self._place(stream, task, outcome)

    def _place(self, stream: Stream, task: int, outcome: bytes | Ended) -> None:
        with self._leading.lock:
            if self._jobs.find(stream.id) is stream:
                placed = stream.place(task, [outcome], failed=type(outcome) is Ended)
                self._jobs.take(stream, placed)
                self._leading.transmit()
            self._leading.settle()
            self._leading.notify()
        self._leading.wake()
