"""Invariants of labels: data stays where its label allows."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from federation.messages.deals import Deliver, Forward
from federation.messages.messages import Assign, Results
from federation.objects.inputs import has_inputs, read_head
from federation.objects.labels import DataLabel, read_label
from simulations.world.client import SimJob
from simulations.world.invariants.invariants import Invariant
from simulations.world.trace import TraceEntry

if TYPE_CHECKING:
    from simulations.world.gateway import SimMember
    from simulations.world.world import World


class StaysWithin(Invariant):
    """No call, result or output with a label is at a site that the label forbids.

    The bytes of a call and of a result name the job that they are of, at each site.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._labels: dict[str, DataLabel] = {}

    def see(self, entry: TraceEntry) -> None:
        """Learn the label of a job; check where a task of it starts."""
        if entry.what == "opens" and isinstance(entry.data, SimJob):
            if entry.data.plan.label:
                self._labels[entry.job] = read_label(entry.data.plan.label)
        elif entry.what == "starts" and entry.job in self._labels:
            worker = self.world.workers.get(entry.host)
            if worker is not None:
                self._check(worker.plan.site, entry.job, entry.first)

    def told(self, site: "SimMember", message: Any) -> None:
        """Check the bytes that a gateway passes on: it has them."""
        if not self._labels:
            return
        match message:
            case Assign() | Forward():
                self._check_all(site.name, message.arguments)
            case Results() | Deliver():
                self._check_all(site.name, message.values)
                self._check_all(site.name, (str(row[1]).encode() for row in message.prints))

    def _check_all(self, site: str, parts: Iterable[bytes]) -> None:
        for part in parts:
            data = part[read_head(part).start :] if has_inputs(part) else part
            job, _, rest = data.partition(b" ")
            name = job.decode(errors="replace")
            if name in self._labels:
                self._check(site, name, int(rest.partition(b" ")[0] or 0))

    def _check(self, site: str, job: str, task: int) -> None:
        why = self._labels[job].why_not(site, "")
        if why:
            self.fail(f"task {task} of a job is at {site}: {why}", job, task)
