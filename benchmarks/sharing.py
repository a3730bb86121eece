"""The cost of fair shares for a broker: the same work handed out with [fair_share] and without.

No processes and no network: events go in, orders come out. `floor` is the broker without shares.
Short tasks are handed out and reported in large bundles; long ones end, and are replaced, one by
one. CPU time counts, as the machine is shared.
"""

import time
from collections import deque
from collections.abc import Callable

from benchmarks.harness import BenchSeries, alternate, machine, save
from federation.clocks import UtcS
from federation.messages import messages
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import SendToWorker
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from policies.access.shares import FairShare, Share
from policies.parties import read_party
from policies.tariffs import Tariff

Row = tuple[str, str, str, float]

NOW_S = UtcS(1_000_000_000.0)
WORKERS, SLOTS = 32, 8
GROUPS = 5
NS = 10**9


def parts(projects: int) -> FairShare:
    """Return projects in groups, each with different shares."""
    groups = tuple(Share(f"g{n}", 1 + n) for n in range(min(GROUPS, projects)))
    leaves = (
        Share(f"p{n}", 1 + n % 3, f"g{n % len(groups)}", read_party(f"project:p{n}"))
        for n in range(projects)
    )
    return FairShare(shares=(*groups, *leaves))


def opened(project: str) -> JobSpec:
    """Return a job of a project, with its own function."""
    return JobSpec(
        "f", project.encode().ljust(32, b"."), False, "ann", project, 0.0, {}, None, 0, None, None,
        "3.11", False,
    )  # fmt: skip


def handed_out(rules: FairShare | None, projects: int, task_s: float, tasks: int) -> float:
    """Return the bundles per second of CPU that a broker hands out and takes reports of."""
    broker = Broker({"p": Tariff(1, "USD", "v")}, limits=ClientLimits(10**9, 1 << 50))
    now_s = NOW_S
    reports: deque[tuple[int, int, int, int]] = deque()  # worker, assignment, first, stop
    bundles = 0

    def do(*happened: events.Event) -> None:
        nonlocal bundles
        effects = [each for event in happened for each in broker.handle(event, now_s)]
        for effect in effects + broker.settle(now_s):
            match effect:
                case SendToWorker(worker, messages.Assign() as order):
                    bundles += 1
                    stop = order.first + len(order.arguments)
                    step = 1 if task_s > 1.0 else 1000
                    for at in range(order.first, stop, step):
                        reports.append((worker, order.assignment, at, min(at + step, stop)))

    do(events.SharesKnown(rules, {}), events.ClientJoined(1, "ann"))
    for n in range(projects):
        spec = opened(f"p{n}")
        broker.durations.learn(spec.function, 1000, round(1000 * task_s * NS))
        do(events.JobOpened(1, f"j{n}", spec))
        for first in range(0, tasks, 1000):
            do(events.TasksArrived(1, f"j{n}", first, [b""] * min(1000, tasks - first)))
    for n in range(WORKERS):
        do(events.WorkerJoined(10 + n, f"w{n}", "p", SLOTS, {}, "3.11"))
    limit, done = tasks * projects // 2, 0  # all want more to the end
    started_s = time.process_time()
    while done < limit:
        worker, number, first, stop = reports.popleft()
        done += stop - first
        now_s += (stop - first) * task_s / (WORKERS * SLOTS)
        values, wall_ns = [b""] * (stop - first), round((stop - first) * task_s * NS)
        do(events.Reported(worker, number, first, values, wall_ns=wall_ns))
    return bundles / (time.process_time() - started_s)


CASES = (
    ("short tasks, 2 projects", 2, 0.0001, 4_000_000),
    ("short tasks, 100 projects", 100, 0.0001, 10_000),
    ("long tasks, 2 projects", 2, 10.0, 20_000),
    ("long tasks, 100 projects", 100, 10.0, 60),
)


def sharing(repeats: int, quick: bool) -> None:
    """Hand out short and long tasks of few and many projects, with fair shares and without."""
    facts = machine()
    part = 10 if quick else 1

    def run(who: str, is_shared: bool) -> Callable[[], list[Row]]:
        def run_() -> list[Row]:
            found = []
            for name, projects, task_s, tasks in CASES:
                rules = parts(projects) if is_shared else None
                rate = handed_out(rules, projects, task_s, tasks // part)
                found.append((who, name, "bundles per CPU s", rate))
            return found

        return run_

    found: list[BenchSeries] = alternate([run("floor", False), run("fair shares", True)], repeats)
    notes = [
        f"{WORKERS} workers of {SLOTS} slots. Each project has a job that wants more slots "
        "to the end; their shares are a tree of two levels. With fair shares, only jobs of "
        "the share whose turn it is are considered, if it has a task for a worker."
    ]
    save("sharing", facts, found, notes)
