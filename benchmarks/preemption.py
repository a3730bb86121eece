"""The CPU time of looks at a pool with guaranteed slots, which stop tasks for the slots' owners.

One pool, one slot a worker. A borrower has all slots; then the owner of half of them has work. No
processes and no network. `first` is the look that stops tasks, `next` the median of those that
follow, in which more tasks are stopped and then none, `longest` the longest of these, and `quiet`
that of looks while nothing waits. The floor is one pass over all workers. CPU time counts, as the
machine is shared; Python collects no garbage meanwhile.
"""

import gc
import statistics
import time
from collections.abc import Callable

from benchmarks.harness import BenchSeries, alternate, machine, save
from federation.clocks import UtcS
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.access.claims import Amount, Claim, Claims
from policies.access.windows import Window, WindowPlan, rules_at
from policies.calendar.hours import Hours
from policies.parties import OTHERS, read_party
from policies.tariffs import Tariff

Row = tuple[str, str, str, float]

NOW_S = UtcS(1_000_000_000.0)
LOOKS = 21
LOOK_S = 0.25


def spec(project: str) -> JobSpec:
    """Return a job of a project, with its own function."""
    return JobSpec(
        "f", project.encode().ljust(32, b"."), False, "ann", project, 0.0, {}, None, 0, None, None,
        "3.11", False,
    )  # fmt: skip


class GuardedPool:
    """A broker whose one pool of so many workers is full with a borrower's tasks."""

    def __init__(self, workers: int) -> None:
        self._now_s = NOW_S
        self._broker = Broker({"p": Tariff(1, "USD", "v")}, limits=ClientLimits(10**9, 1 << 50))
        half = Claim(read_party("project:owner"), Amount(workers // 2))
        claims = Claims((half, Claim(OTHERS)))
        plan = WindowPlan((Window("day", Hours(0, 12 * 3600), claims, grace_s=60.0),))
        self._do(events.RulesTurned({"p": rules_at(plan, NOW_S)}))
        self._do(events.ClientJoined(1, "ann"))
        for number in range(workers):
            self._do(events.WorkerJoined(100 + number, f"w{number}", "p", 1, {}, "3.11"))
        self.submit("borrower", workers)
        self._broker.settle(self._now_s)
        while not self._broker.is_settled:
            self._broker.settle(self._now_s)

    def _do(self, *happened: events.Event) -> None:
        for each in happened:
            self._broker.handle(each, self._now_s)

    def submit(self, project: str, tasks: int) -> None:
        """Submit long tasks."""
        self._do(
            events.JobOpened(1, project, spec(project)),
            events.TasksArrived(1, project, 0, [b"x"] * tasks),
        )

    def looks(self) -> list[float]:
        """Return the CPU time of each of the next looks, in milliseconds."""
        found = []
        gc.collect()
        gc.disable()
        for _ in range(LOOKS):
            self._now_s += LOOK_S
            started_s = time.thread_time()
            self._broker.settle(self._now_s)
            found.append((time.thread_time() - started_s) * 1e3)
        gc.enable()
        return found

    def pass_over(self) -> float:
        """Return the CPU time of one pass over all workers, in milliseconds."""
        started_s = time.thread_time()
        assert sum(each.in_flight for each in self._broker.workers.values())
        return (time.thread_time() - started_s) * 1e3


def measured(workers: int) -> list[Row]:
    """Measure a pool of so many workers."""
    pool, who = GuardedPool(workers), f"{workers:,} workers"
    quiet = statistics.median(pool.looks())
    pool.submit("owner", workers // 2)
    first, *others = pool.looks()
    return [
        ("floor", f"{who}: one pass", "ms", pool.pass_over()),
        ("gridfed", f"{who}: quiet", "ms", quiet),
        ("gridfed", f"{who}: first", "ms", first),
        ("gridfed", f"{who}: next", "ms", statistics.median(others)),
        ("gridfed", f"{who}: longest", "ms", max(first, *others)),
    ]


def preemption(repeats: int, quick: bool) -> None:
    """Measure pools of several sizes."""
    sizes = (1_000,) if quick else (1_000, 4_000)

    def run(workers: int) -> Callable[[], list[Row]]:
        return lambda: measured(workers)

    series: list[BenchSeries] = alternate([run(each) for each in sizes], repeats)
    save("preemption", machine(), series, [])
