"""Tasks that are cancelled with a stop are stopped, wherever they run."""

from collections import deque
from typing import TYPE_CHECKING, Final

from federation.ranges import RangeSet
from gateway.scheduler.model.events import CancelAsked
from gateway.scheduler.model.jobs import ALL_TASKS
from simulations.world.invariants.invariants import LATE_S, Invariant
from simulations.world.plan import Crash, DrainWorkers, Fault, Reset
from simulations.world.trace import TraceEntry

if TYPE_CHECKING:
    from simulations.world.world import World

# This long after a fault, hosts may still be reconnecting.
RECOVERED_S: Final = 30.0


class StopsWhenTold(Invariant):
    """A task that its client wants stopped runs nowhere once the message had time to arrive.

    That includes other sites, and sites to which these have forwarded it. Where a fault may have
    cut off a host, or still does, leases stop the task: LeaseHolds checks those.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._running: dict[str, dict[int, set[str]]] = {}  # by job and task: at which workers
        self._asked: deque[tuple[float, str, RangeSet]] = deque()  # when, of which job and tasks
        self._faults = [(each.at_s, _over_s(each) + RECOVERED_S) for each in world.plan.faults
                        if not isinstance(each, DrainWorkers)]  # fmt: skip

    def see(self, entry: TraceEntry) -> None:
        """Note running tasks, and tasks to be stopped."""
        asked = entry.data
        if isinstance(asked, CancelAsked):
            if asked.kill:
                ranges = RangeSet(asked.ranges or [(0, ALL_TASKS)])
                self._asked.append((entry.at_s, entry.job, ranges))
        elif entry.job and asked is not None and entry.host in self.world.workers:
            runners = self._running.setdefault(entry.job, {}).setdefault(entry.first, set())
            if entry.what == "starts":
                runners.add(entry.host)
            else:
                runners.discard(entry.host)

    def check(self) -> None:
        """Check tasks that were to be stopped some time ago."""
        now_s = self.world.clock.now_s
        while self._asked and now_s >= self._asked[0][0] + LATE_S:
            at_s, job, ranges = self._asked.popleft()
            if not any(from_s < now_s and at_s < until_s for from_s, until_s in self._faults):
                self._look(job, ranges)

    def _look(self, job: str, ranges: RangeSet) -> None:
        for number, runners in self._running.get(job, {}).items():
            if runners and number in ranges:
                text = f"{min(runners)} still runs task {number}, {LATE_S:g} s after it was stopped"
                self.fail(text, job, number)


def _over_s(fault: Fault) -> float:
    """Return when a fault is over."""
    match fault:
        case Crash(at_s, _, back_after_s):
            return at_s + back_after_s
        case Reset(at_s, _, _, times, every_s):
            return at_s + times * every_s
        case _:
            return fault.at_s + fault.for_s
