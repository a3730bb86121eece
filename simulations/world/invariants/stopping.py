"""Tasks that are to stop are stopped, wherever they run, and cancelled jobs begin none."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from federation.messages.deals import Forward
from federation.messages.messages import Answer, Assign
from federation.ranges import RangeSet
from gateway.scheduler.model.effects import Effect, SendToClient, SendToSite, SendToWorker
from gateway.scheduler.model.events import CancelAsked
from gateway.scheduler.model.jobs import ALL_TASKS
from simulations.world.invariants.invariants import LATE_S, Invariant
from simulations.world.plan import Crash, DrainWorkers, Fault, Reset
from simulations.world.trace import TraceEntry

if TYPE_CHECKING:
    from simulations.world.gateway import SimMember
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


class CancelledBeginsNothing(Invariant):
    """Once its client has the answer to a cancel of a whole job, its gateway hands out none of it.

    That holds in all later lives of the gateway, for its workers and for other sites.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._asked: dict[tuple[str, int, int, int], str] = {}  # site, life, client, request: job
        self._answers: dict[int, str] = {}  # by id of the message
        self._cancelled: set[tuple[str, str]] = set()  # site and job

    def see(self, entry: TraceEntry) -> None:
        """Note cancels of whole jobs."""
        asked, site = entry.data, self.world.sites.get(entry.host)
        if isinstance(asked, CancelAsked) and not asked.ranges and site is not None:
            self._asked[site.name, site.life, asked.client, asked.request] = asked.job

    def decided(self, site: "SimMember", effects: Sequence[Effect]) -> None:
        """Check what is handed out, and note answers that are on their way."""
        for effect in effects:
            match effect:
                case SendToClient(client, Answer(request, "") as answer):
                    job = self._asked.pop((site.name, site.life, client, request), None)
                    if job is not None:
                        self._answers[id(answer)] = job
                case SendToWorker(_, Assign(job=job, first=first)):
                    self._check(site, job, first)
                case SendToSite(message=Forward(contract, _, first)) if site.server is not None:
                    purchase = site.server.exchange.purchases.purchases.get(contract)
                    self._check(site, purchase.job if purchase is not None else "", first)
                case _:
                    pass

    def told(self, site: "SimMember", message: Any) -> None:
        """Note that an answer leaves."""
        job = self._answers.pop(id(message), None)
        if job is not None:
            self._cancelled.add((site.name, job))

    def _check(self, site: "SimMember", job: str, task: int) -> None:
        if (site.name, job) in self._cancelled:
            self.fail(f"{site.name} hands out task {task} of a cancelled job", job, task)


def _over_s(fault: Fault) -> float:
    """Return when a fault is over."""
    match fault:
        case Crash(at_s, _, back_after_s):
            return at_s + back_after_s
        case Reset(at_s, _, _, times, every_s):
            return at_s + times * every_s
        case _:
            return fault.at_s + fault.for_s
