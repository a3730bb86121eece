"""The events of a world, line by line: the input of invariants and of stories."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One event of tasks [first, stop) of a job, or of no single job when `job` is empty.

    `data` is for invariants only: it is not part of the line.
    """

    at_s: float
    host: str
    what: str
    job: str
    first: int
    stop: int
    note: str
    data: Any = None

    @property
    def line(self) -> str:
        """The printed and hashed form."""
        tasks = ""
        if self.job:
            alone = self.stop == self.first + 1
            tasks = f" {self.job[-6:]}[{self.first}{'' if alone else f'..{self.stop - 1}'}]"
        return f"{self.at_s:12.6f}  {self.host:<12} {self.what}{tasks} {self.note}".rstrip()


class InvariantBroken(BaseException):
    """A broken invariant: which, how, and for which task if it concerns one.

    It is not an Exception, because it may be raised within code that survives all errors.
    """

    def __init__(self, name: str, text: str, job: str = "", task: int = 0) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.job = job
        self.task = task


class Trace:
    """All events, oldest first."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.entries: list[TraceEntry] = []
        self.watchers: list[Callable[[TraceEntry], None]] = []
        self._now_s = now_s

    def add(
        self,
        host: str,
        what: str,
        job: str = "",
        span: tuple[int, int] = (0, 0),
        note: str = "",
        data: Any = None,
    ) -> None:
        """Add an event, and pass it to the watchers."""
        entry = TraceEntry(self._now_s(), host, what, job, *span, note, data)
        self.entries.append(entry)
        for watch in self.watchers:
            watch(entry)

    def digest(self) -> str:
        """Return a hash that is equal for equal runs, and only for those."""
        whole = hashlib.sha256()
        for entry in self.entries:
            whole.update(f"{entry.line} {entry.job}\n".encode())
        return whole.hexdigest()

    def story(self, job: str, task: int) -> Iterator[str]:
        """Yield the events of one task, and the general events meanwhile."""
        ours = [
            at
            for at, entry in enumerate(self.entries)
            if entry.job == job and (entry.first <= task < entry.stop or entry.stop == 0)
        ]
        if not ours:
            return
        for at, entry in enumerate(self.entries[: ours[-1] + 1]):
            is_ours = entry.job == job and (entry.first <= task < entry.stop or entry.stop == 0)
            if is_ours or (not entry.job and at > ours[0] - 50):
                yield entry.line
