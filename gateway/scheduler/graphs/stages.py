"""The stages of graphs: which jobs read results of which, and how far each is. Pure.

A stage is a job. What is known of one stays for as long as its graph may be looked at: until it is
one of the oldest of STAGES_MAX stages that have ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.scheduler.model.jobs import Job

STAGES_MAX: Final = 2_000
SHOWN_MAX: Final = 500  # stages of one graph in an answer


@dataclass(slots=True)
class _Ended:
    """A stage whose job has ended."""

    name: str
    number: int
    total: int
    done: int
    failed: int


class StageBook:
    """Which jobs read results of which.

    Args:
        jobs: all jobs that have not ended.
    """

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self._jobs = jobs
        self._reads: dict[str, dict[str, int]] = {}
        self._readers: dict[str, set[str]] = {}
        self._ended: dict[str, _Ended] = {}

    def note(self, job: str, source: str, tasks: int) -> None:
        """Note that calls of a job read so many results of another, or of its own."""
        reads = self._reads.setdefault(job, {})
        reads[source] = reads.get(source, 0) + tasks
        self._readers.setdefault(source, set()).add(job)

    def finished(self, job: Job) -> None:
        """Note that a job has ended: its stage is kept."""
        if job.id not in self._reads and job.id not in self._readers:
            return
        name, total = job.spec.name, len(job.known)
        self._ended[job.id] = _Ended(name, job.number, total, job.done, job.failed)
        while len(self._ended) > STAGES_MAX:
            self._forget(next(iter(self._ended)))

    def _forget(self, job: str) -> None:
        del self._ended[job]
        for source in self._reads.pop(job, {}):
            readers = self._readers.get(source, set())
            readers.discard(job)
            if not readers:
                self._readers.pop(source, None)
        for reader in self._readers.pop(job, ()):
            self._reads.get(reader, {}).pop(job, None)

    def of(self, job: str) -> list[dict[str, Any]]:
        """Return the stages of the graph of a job, in order of their depth; empty if it has none.

        Of a very large graph, the SHOWN_MAX stages that are nearest to it.
        """
        found = dict.fromkeys([job])
        work = [job]
        for name in work:  # it grows
            for other in (*self._reads.get(name, ()), *sorted(self._readers.get(name, ()))):
                if other not in found and len(found) < SHOWN_MAX:
                    found[other] = None
                    work.append(other)
        if len(found) == 1 and job not in self._reads:
            return []
        depths = self._depths(found)
        rows = [self._row(name, depths[name], found) for name in found]
        return sorted(rows, key=lambda row: (row["depth"], self._number(row["id"])))

    def _depths(self, names: Iterable[str]) -> dict[str, int]:
        """Return the depth of each stage.

        Jobs may read each other, so only those that began earlier count.
        """
        depths: dict[str, int] = {}
        for name in sorted(names, key=self._number):
            reads = self._reads.get(name, {})
            before = [depths[source] for source in reads if source in depths]
            depths[name] = 1 + max(before) if before else 0
        return depths

    def _number(self, name: str) -> int:
        """Return the number of a job in the order in which jobs began; 0: it is not known here."""
        known = self._jobs.get(name) or self._ended.get(name)
        return 0 if known is None else known.number

    def _row(self, name: str, depth: int, shown: Iterable[str]) -> dict[str, Any]:
        reads = self._reads.get(name, {})
        row = {"id": name, "depth": depth}
        row["reads"] = [[source, tasks] for source, tasks in reads.items() if source in shown]
        job = self._jobs.get(name)
        if job is not None:
            over = job.done + job.failed + job.cancelled
            figures = (len(job.known), job.done, job.failed, job.in_flight)
            waiting = max(0, len(job.known) - over - job.in_flight)
            return row | _figures(job.spec.name, *figures, waiting)
        known = self._ended.get(name, _Ended("", 0, 0, 0, 0))
        return row | _figures(known.name, known.total, known.done, known.failed, 0, 0)


def _figures(
    name: str, total: int, done: int, failed: int, running: int, waiting: int
) -> dict[str, Any]:
    return {
        "name": name,
        "total": total,
        "done": done,
        "failed": failed,
        "running": running,
        "waiting": waiting,
    }
