"""Invariants of graphs: no call begins before its inputs, and none has another value."""

from typing import TYPE_CHECKING, Any

from federation.engine.books.streams import Ended
from simulations.world.client import SimJob
from simulations.world.graphs import inputs_of
from simulations.world.invariants.invariants import Invariant
from simulations.world.trace import TraceEntry

if TYPE_CHECKING:
    from simulations.world.world import World


class InputsFirst(Invariant):
    """A call begins with the results of all its inputs, and ends by them only if one failed."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._opened: dict[str, SimJob] = {}

    def see(self, entry: TraceEntry) -> None:
        """Check the values that a call reads."""
        if entry.what == "opens":
            self._opened[entry.job] = entry.data
        elif entry.what == "reads":
            self._check(self._opened[entry.job], entry.first, entry.data)

    def _check(self, job: SimJob, number: int, values: Any) -> None:
        wanted = tuple(job.tasks[each].result for each in inputs_of(job.plan, number))
        if values != wanted:
            self.fail(f"task {number} reads {values!r}, not {wanted!r}", job.id, number)

    def check(self) -> None:
        """Check the counts of calls that wait, and of those in a slot with their input."""
        for site in self.world.sites.values():
            if site.server is None:
                continue
            for job in site.server.broker.jobs.values():
                if min(job.riding, job.blocked, job.blocked_bytes) < 0:
                    self.fail(f"{site.name}: job {job.id} counts calls twice", job.id)
                in_flight = sum(len(each.left) for each in job.assignments.values())
                if job.riding > in_flight:
                    text = f"{site.name}: {job.riding} calls of job {job.id} ride, {in_flight} run"
                    self.fail(text, job.id)

    def finish(self) -> None:
        """Check that each call which ended by an input has one that failed, and nothing is left."""
        for job in self.jobs:
            for number, outcome in enumerate(job.outcomes):
                if not isinstance(outcome, Ended) or outcome.kind != "dependency":
                    continue
                ends = [job.outcomes[each] for each in inputs_of(job.plan, number)]
                if not any(isinstance(each, Ended) for each in ends):
                    self.fail(f"task {number} fell, and no input of it", job.id, number)
        for site in self.world.sites.values():
            if site.server is None:
                continue
            graphs = site.server.broker.graphs
            if graphs.values_bytes or graphs.waiting_jobs():
                self.fail(f"{site.name} still holds {graphs.values_bytes} bytes of values")
