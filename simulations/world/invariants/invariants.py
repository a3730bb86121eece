"""Invariants of every world, one class each; `all_invariants` lists them.

An invariant sees every line of the trace as it is written (`see`), each gateway's decisions and
messages (`decided`, `told`) and every commit of a site (`committed`). It checks the state of all
hosts twice a second (`check`), and once more at the end (`finish`). It raises InvariantBroken.
Invariants that compare sites belong here too: they see the whole world.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from federation.engine.books.streams import Ended
from federation.ranges import RangeSet
from federation.sessions.hearing import SILENT_BEATS
from federation.sessions.session import DIALLER_WINDOW
from gateway.ledger.accounting.journal import Booked
from gateway.ledger.db.records import Record
from gateway.ledger.db.usage.records import Dimension, UsageRecord
from gateway.runtime.server import BACKLOG_MAX
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.effects import Effect
from gateway.scheduler.model.jobs import Job as BrokerJob
from gateway.scheduler.quotas.accounts import ClientLimits
from gateway.scheduler.quotas.fair_shares import FairShares
from gateway.scheduler.tasks.completion import CRASHES_MAX
from policies.access.entitlements import NO_WINDOW, EntitlementRule
from policies.access.fairness import ShareNode
from policies.access.windows import Window, WindowPlan
from policies.parties import ANOTHER_SITE
from simulations.world.client import SimJob
from simulations.world.memory.store import MemoryStore
from simulations.world.plan import PoolPlan
from simulations.world.trace import InvariantBroken, TraceEntry

if TYPE_CHECKING:
    from simulations.world.gateway import SimMember
    from simulations.world.worker import SimWorker
    from simulations.world.world import World

# A stopped process runs on for a moment before it looks at the clock.
WAKING_S: Final = 0.5
LATE_S: Final = 3.0  # the latency of a message in bad weather, plus the time until it is looked at
# Results that were taken in before the store's backlog was found too long.
BACKLOG_SLACK: Final = 10_000
LOSSES_MAX: Final = ClientLimits().losses_max
NO_MONEY: Final = ("is exhausted", "has too little left")  # in the refusal of a job by its budget


class Invariant:
    """A property that must hold."""

    def __init__(self, world: "World") -> None:
        self.world = world

    def see(self, entry: TraceEntry) -> None:
        """Check a line of the trace."""

    def committed(
        self,
        site: "SimMember",
        records: Sequence[Record],
        booked: Sequence[Booked],
        *,
        is_anew: bool,
    ) -> None:
        """Check a commit of a site, and its bookings.

        `is_anew`: it is the whole contents, at first and after a power cut.
        """

    def decided(self, site: "SimMember", effects: Sequence[Effect]) -> None:
        """Check effects that a gateway is about to perform, in order."""

    def told(self, site: "SimMember", message: Any) -> None:
        """Check a message of a gateway to a client, a worker or another site."""

    def check(self) -> None:
        """Check the state of all hosts."""

    def finish(self) -> None:
        """Check the final state."""

    def fail(self, text: str, job: str = "", task: int = 0) -> None:
        """Raise InvariantBroken."""
        raise InvariantBroken(type(self).__name__, text, job, task)

    @property
    def jobs(self) -> list[SimJob]:
        """All jobs that any client has opened."""
        return [job for client in self.world.clients.values() for job in client.jobs.values()]


class EndsOnce(Invariant):
    """Every task ends once, and its client learns the true outcome."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._starts: Counter[tuple[str, int]] = Counter()

    def see(self, entry: TraceEntry) -> None:
        """Check that a client is never told twice, nor of a call that it never made."""
        if entry.what == "starts" and entry.job:
            self._starts[entry.job, entry.first] += 1
        if entry.what in ("is told twice", "hears of a call never made", "got wrong arguments"):
            self.fail(f"{entry.host} {entry.what}: {entry.note}", entry.job, entry.first)

    def finish(self) -> None:
        """Check that nothing is left open, and each outcome is possible."""
        for job in self.jobs:
            if job.is_lost:
                continue
            if not job.is_over:
                at = next((at for at, each in enumerate(job.outcomes) if each is None), 0)
                self.fail(f"job {job.id}: {job.left} tasks never ended", job.id, at)
            for task, outcome in zip(job.tasks, job.outcomes, strict=True):
                if isinstance(outcome, bytes):
                    if outcome != task.result:
                        self.fail(f"{task} came to {outcome!r}", job.id, task.number)
                elif isinstance(outcome, Ended) and not self._may_end(job, task.manner, outcome):
                    self.fail(f"{task} ended as {outcome}", job.id, task.number)
                elif isinstance(outcome, Ended) and outcome.kind == "lost":
                    # A task that has not begun goes back without limit; one that has, for so many
                    # workers.
                    starts = self._starts[job.id, task.number]
                    if starts < LOSSES_MAX:
                        self.fail(f"{task} began {starts} times and was lost", job.id, task.number)
                elif outcome is None and not job.is_cancelled:
                    self.fail(f"{task} has no outcome", job.id, task.number)

    def _may_end(self, job: SimJob, manner: str, ended: Ended) -> bool:
        kind = ended.kind.partition(":")[0]
        if kind == "cancelled":
            return job.is_cancelled
        if kind == "refused":
            if "tasks that have not ended" in ended.text:
                return self._has_queue_limit()
            is_broke = self._has_budgets and any(each in ended.text for each in NO_MONEY)
            return job.is_cancelled or "can ever run it" in ended.text or is_broke
        possible = {
            "error": manner in ("error", "flaky"),
            "crash": manner == "poison",
            "timeout": job.plan.timeout_s is not None,
            "lost": True,  # its workers died while they ran it
            "budget": job.plan.max_cost_nanos is not None or self._has_budgets,
            "deadline": job.plan.deadline_s is not None,
            "queue": self._has_queue_limit(),
            "dependency": job.plan.chain > 0,  # see InputsFirst
        }
        return possible.get(kind, False)

    def _has_queue_limit(self) -> bool:
        """Whether a rule limits its user's queued tasks."""
        rules = [
            rule for site in self.world.sites.values() for rule in site.plan.entitlements.rules
        ]
        return any(rule.queued_max is not None for rule in rules)

    @property
    def _has_budgets(self) -> bool:
        return any(site.budgets for site in self.world.plan.sites)


class ChargedOnce(Invariant):
    """Exactly one charge for each run that counted, and every sum agrees with its parts."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._stopped: Counter[tuple[str, int]] = Counter()  # runs that were killed
        self._cut_short: Counter[str] = Counter()  # sold jobs, whose tasks were killed

    def see(self, entry: TraceEntry) -> None:
        """Count killed runs: they are charged, and may be followed by others."""
        if entry.what == "is asked to cancel" and entry.data.kill and entry.data.ranges:
            self._cut_short[entry.job] += 1
        if entry.what in ("is stopped (cancelled)", "is stopped (preempted)"):
            self._stopped.update((entry.job, task) for task in range(entry.first, entry.stop))

    def committed(
        self,
        site: "SimMember",
        records: Sequence[Record],
        booked: Sequence[Booked],
        *,
        is_anew: bool,
    ) -> None:
        """Check that no task is charged more often than it may have run."""
        for record in records:
            if not isinstance(record, UsageRecord) or not record.is_charge:
                continue
            for client in self.world.clients.values():
                job = client.jobs.get(record.job)
                if job is not None and client.gateway == site.name:
                    charges = site.disk.charged(job.id)
                    tasks = range(record.first, record.first + record.tasks)
                    again = {number: charges[number] for number in tasks if charges[number] > 1}
                    # A seller that stops a contract's tasks delivers those that were lost, too.
                    cut_short = sum(
                        self._cut_short[f"{site.name}:{contract}"]
                        for (side, contract), row in site.disk.tables.contracts.items()
                        if side == "buy" and row.job == job.id
                    )
                    # Attempts are counted anew in a client's new session, and for a detached job by
                    # a gateway that has restarted.
                    lives = (site.life + 1) // 2 if job.plan.detached else 1
                    self._check_job(job, again, max(lives, client.sessions), cut_short)

    def _check_job(
        self, job: SimJob, charges: Mapping[int, int], rounds: int, cut_short: int
    ) -> None:
        for number, count in charges.items():
            manner = job.tasks[number].manner
            may_fail = manner in ("error", "flaky") or job.plan.timeout_s is not None
            runs = 1 + job.plan.retries if may_fail else 1
            # Crashes and other failures are counted apart; the last of either ends the task.
            runs += CRASHES_MAX - 1 if manner == "poison" else 0
            may_run = runs * rounds if runs > 1 else 1
            if count > may_run + self._stopped[job.id, number] + cut_short:
                self.fail(f"task {number} of {job.id} is charged {count} times", job.id, number)

    def finish(self) -> None:
        """Check that what ran is charged, except after power cuts, and that sums agree."""
        for client in self.world.clients.values():
            disk = self.world.sites[client.gateway].disk
            for job in client.jobs.values():
                counts = disk.charged(job.id)
                for number, outcome in enumerate(job.outcomes):
                    ran = isinstance(outcome, bytes) or (
                        isinstance(outcome, Ended) and outcome.kind in ("crash", "timeout")
                    )
                    if ran and not counts[number] and not disk.power_cuts:
                        self.fail(f"task {number} of {job.id} is free", job.id, number)
        for site in self.world.sites.values():
            store = MemoryStore(site.disk)
            overhead = site.disk.overhead_nanos()
            total = overhead + sum(each.cost_nanos for each in site.disk.charges())
            for dimension in (Dimension.JOB, Dimension.USER, Dimension.POOL):
                summed = sum(each.cost_nanos for each in store.usage.totals([dimension]))
                if summed != total:
                    self.fail(f"{site.name}: {summed} nanos by {dimension}, {total} in total")
            by_row = sum(sum(row.costs_nanos.values()) for row in store.jobs.latest(1 << 30))
            if by_row > total:
                self.fail(f"{site.name}: jobs cost {by_row} nanos, {total} were charged")
            for each in site.disk.charges():
                if each.wall_ns and not each.carbon_source:
                    self.fail(f"{site.name}: the emissions of {each.job} are unknown", each.job)


class InItsPlace(Invariant):
    """No task runs where its tags forbid, beyond the slots, or beyond a counted tag."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._running: dict[str, Counter[str]] = {}  # by worker: how many tasks of each job run
        self._jobs: dict[str, SimJob] = {}

    def see(self, entry: TraceEntry) -> None:
        """Count running tasks, by worker."""
        if entry.what == "opens":
            self._jobs[entry.job] = entry.data
        elif entry.what == "starts" and entry.job:
            running = self._running.setdefault(entry.host, Counter())
            running[entry.job] += 1
            self._look(entry, running)
        elif entry.data is not None and entry.host in self.world.workers and entry.job:
            self._running[entry.host][entry.job] -= 1

    def _look(self, entry: TraceEntry, running: Counter[str]) -> None:
        worker, job = self.world.workers[entry.host], self._jobs[entry.job]
        if running.total() > worker.plan.slots:
            self.fail(f"{entry.host} runs {running.total()} tasks", entry.job, entry.first)
        for tag, wanted in job.plan.tags.items():
            there = worker.tags.get(tag)
            if there is None:
                self.fail(f"{entry.host} has no {tag}", entry.job, entry.first)
            elif there is not True:
                needs = (self._jobs[name].plan.tags.get(tag, 0) * n for name, n in running.items())
                used = sum(needs)
                if used > there + 1e-6:
                    self.fail(f"{entry.host} uses {used:g} {tag}", entry.job, entry.first)
            elif wanted is not True:
                self.fail(f"{entry.host} counts no {tag}", entry.job, entry.first)


class RunsOnce(Invariant):
    """No task runs at two workers at the same time: one lease ends before another begins.

    Excepted are workers that are stopped, or were until now, and work handed out before the gateway
    died: its workers learn of that when they find the next one.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._running: dict[tuple[str, int], dict[str, int]] = {}

    def see(self, entry: TraceEntry) -> None:
        """Note which worker runs which task."""
        if not entry.job or entry.host not in self.world.workers or entry.data is None:
            return
        runners = self._running.setdefault((entry.job, entry.first), {})
        if entry.what != "starts":
            runners.pop(entry.host, None)
            return
        life = self._life_at(entry.host)
        for name, since in runners.items():
            other = self.world.workers[name]
            wakes = other.is_paused or entry.at_s - other.resumed_s < WAKING_S
            if not wakes and since == self._life_at(name):
                text = f"task {entry.first} runs at {name}, and now at {entry.host}"
                self.fail(text, entry.job, entry.first)
        runners[entry.host] = life

    def _life_at(self, worker: str) -> int:
        return self.world.sites[self.world.workers[worker].gateway].life


class AddsUp(Invariant):
    """The broker's counts equal the real numbers, and none is negative."""

    def check(self) -> None:
        """Recount everything."""
        for site in self.world.sites.values():
            if site.server is not None:
                self._recount(site.name)

    def _recount(self, site: str) -> None:
        server = self.world.sites[site].server
        assert server is not None
        broker = server.broker
        for worker in broker.workers.values():
            held = list(worker.assignments.values())
            if worker.in_flight != sum(len(each.left) for each in held) or worker.load_s < 0:
                self.fail(f"{site}: {worker.name} has {worker.in_flight} tasks in flight")
            held_bytes = sum(each.run.size for each in held)
            if worker.held_bytes != held_bytes:
                text = f"{worker.name} has {worker.held_bytes} bytes of arguments"
                self.fail(f"{site}: {text}, not {held_bytes}", held[0].job.id if held else "")
            for tag, free in worker.free.items() if not worker.job else ():
                used = sum(each.job.counted.get(tag, 0) * len(each.left) for each in held)
                there = worker.offer.tags[tag]
                if free < 0 or abs(there - used - free) > 1e-6:
                    name = held[0].job.id if held else ""
                    text = f"{site}: {worker.name} has {free:g} {tag} free, {used:g} are in use"
                    self.fail(text, name)
        for job in broker.jobs.values():
            self._recount_job(site, job)
        if broker.shares is not None:
            self._recount_shares(site, broker, broker.shares)

    def _recount_shares(self, site: str, broker: Broker, shares: FairShares) -> None:
        held: Counter[ShareNode] = Counter()
        jobs: Counter[ShareNode] = Counter()
        for job in broker.jobs.values():
            for node in job.leaf.path if job.leaf is not None else ():
                jobs[node] += job.leaf is node
                for each in job.assignments.values():
                    held[node] += each.held_ns * len(each.left) * (not each.worker.job)
        for node in shares.tree.nodes():
            below = sum(each.used for each in node.children.values())
            if node.path and (node.held_ns, node.jobs) != (held[node], jobs[node]):
                self.fail(f"{site}: share {node.title} holds {node.held_ns}, not {held[node]}")
            if not node.used >= below >= 0:
                self.fail(f"{site}: share {node.title} has used less than its children")

    def _recount_job(self, site: str, job: BrokerJob) -> None:
        waiting = sum(len(run.arguments) for run in job.queue)
        in_flight = sum(len(each.left) for each in job.assignments.values())
        counts = (job.waiting, job.in_flight)
        if counts != (waiting, in_flight) or min(job.load_nanos, job.held_bytes) < 0:
            self.fail(f"{site}: job counts {counts}, has {(waiting, in_flight)}", job.id)
        at_work = RangeSet(pair for each in job.assignments.values() for pair in each.left)
        queued = RangeSet((run.first, run.stop) for run in job.queue)
        if len(at_work) != in_flight or len(queued) != waiting:
            self.fail(f"{site}: a task is in two places", job.id)
        if any(at_work.within(*pair) or job.ended.within(*pair) for pair in queued):
            self.fail(f"{site}: a task is queued, but is elsewhere", job.id)


class WithinLimits(Invariant):
    """Queues, windows and backlogs stay within the configured limits; no peer is expelled."""

    def see(self, entry: TraceEntry) -> None:
        """Check that no peer is expelled: none breaks the rules here."""
        if entry.what in ("expels", "is thrown out", "distrusts a slot", "hangs up"):
            self.fail(f"{entry.host} {entry.what}: {entry.note}")

    def check(self) -> None:
        """Measure every queue."""
        for site in self.world.sites.values():
            server = site.server
            if server is None:
                continue
            rules = server.listener.rules
            if server.store.backlog > BACKLOG_MAX + BACKLOG_SLACK:
                self.fail(f"{site.name}: {server.store.backlog} records wait for the store")
            for found in site.older_books:  # no copy is restored in these worlds
                self.fail(f"{site.name}: {found}")
            for client in server.broker.clients.values():
                if not 0 <= client.tasks <= 2 * rules.tasks_max:
                    self.fail(f"{site.name}: client {client.handle} has {client.tasks} tasks")
            for peer in server.listener.peers.values():
                if peer.session.owes > DIALLER_WINDOW:
                    self.fail(f"{site.name}: owes {peer.name} {peer.session.owes} frames")
                # A gateway that was not run counts silence from when it looks again.
                awake_s = self.world.clock.now_s - site.resumed_s
                silent_s = min(site.mono_s() - peer.hearing.heard_at_s, awake_s)
                noticed_s = max(SILENT_BEATS * rules.heartbeat_s, rules.grace_s)
                longest_s = noticed_s + rules.grace_s + 1.0
                if silent_s > longest_s and not site.is_paused and not self._woke(site.resumed_s):
                    self.fail(f"{site.name}: keeps {peer.name}, silent for {silent_s:.1f} s")

    def _woke(self, resumed_s: float) -> bool:
        return self.world.clock.now_s - resumed_s < WAKING_S


class WindowsKept(Invariant):
    """In a window without slots for others, their work gets none, and is stopped once it has begun.

    A worker cut off from its gateway works on until its lease is over.
    """

    def check(self) -> None:
        """Check all tasks handed out to workers, and those that run in their slots."""
        for site in self.world.sites.values():
            for pool in site.plan.pools:
                if pool.windows.windows and site.server is not None:
                    self._check_given(site, pool.name, pool.windows)
        for worker in self.world.workers.values():
            if worker.is_up and not worker.is_paused:
                self._check_running(worker)

    def _check_given(self, site: "SimMember", pool: str, windows: WindowPlan) -> None:
        assert site.server is not None
        for worker in site.server.broker.workers.values():
            if worker.offer.pool != pool or worker.job:
                continue
            for each in worker.assignments.values():
                if each.job.whose.site and _is_shut(windows.at(each.given_at_s)):
                    window = windows.at(each.given_at_s)
                    assert window is not None
                    text = f"{site.name} gave slots to others in window {window.name!r}"
                    self.fail(text, each.job.id)

    def _check_running(self, worker: "SimWorker") -> None:
        site = self.world.sites[worker.plan.site]
        windows = next(each.windows for each in site.plan.pools if each.name == worker.plan.pool)
        utc_s = site.utc_s()
        window = windows.at(utc_s)
        is_awake = float(worker.mono_s()) - worker.resumed_s >= WAKING_S
        if window is None or not _is_shut(window) or not is_awake:
            return
        if not window.preempts or window.stops_per_minute:
            return
        begun_s = [*windows.spans(utc_s - 60, utc_s + 1)][-1].from_s  # it began no earlier
        late_s = site.plan.rules.grace_s + WAKING_S + LATE_S
        if utc_s - begun_s > window.spill_s + window.grace_s + late_s:
            for job in worker.running():
                if ":" in job:
                    self.fail(f"{worker.name} still runs work of another site", job)


def _is_shut(window: Window | None) -> bool:
    """Whether a window gives others no slots."""
    if window is None:
        return False
    return not window.claims.levels(1_000)[window.claims.of(ANOTHER_SITE)].most


class EntitlementsKept(Invariant):
    """No owner gets slots that no rule allows or one denies, nor more than the rule gives."""

    def check(self) -> None:
        """Check all tasks handed out to workers."""
        for site in self.world.sites.values():
            rules = site.plan.entitlements.rules
            if rules and site.server is not None:
                broker, plans = site.server.broker, site.plan.pools
                for rule in rules:
                    self._check(site.name, rule, broker, {each.name: each for each in plans})

    def _check(
        self, site: str, rule: EntitlementRule, broker: Broker, pools: Mapping[str, PoolPlan]
    ) -> None:
        slots = 0
        for worker in broker.workers.values():
            pool = worker.offer.pool
            if worker.job or not rule.covers(pool):
                continue
            held = [a for a in worker.assignments.values() if rule.includes(a.job.whose)]
            slots += min(worker.slots, sum(len(each.left) for each in held))
            for each in held if not rule.allows else ():
                window = pools[pool].windows.at(each.given_at_s)
                if rule.holds_in(window.name if window is not None else NO_WINDOW):
                    self.fail(f"{site} gave {each.job.whose} what it {rule}", each.job.id)
        if rule.slots_max is not None and slots > rule.slots_max:
            self.fail(f"{site} has given {slots} slots, and {rule}")


class Finishes(Invariant):
    """When faults have stopped, everything ends, and nothing is left behind."""

    def finish(self) -> None:
        """Look for leftovers."""
        for worker in self.world.workers.values():
            if not worker.is_idle:
                held = next(iter(worker.task_book.held.values()), None)
                self.fail(f"{worker.name} is still at work", held.terms.job if held else "")
        for site in self.world.sites.values():
            server = site.server
            if server is None:
                self.fail(f"{site.name} is down")
                continue
            for job in server.broker.jobs.values():
                self.fail(f"{site.name} still has job {job.id}", job.id)
            if server.broker.clients:
                self.fail(f"{site.name} still has clients")
            present = {worker.name for worker in server.broker.workers.values()}
            missing = {w.name for w in self.world.workers.values() if w.gateway == site.name}
            missing -= present
            if missing:
                self.fail(f"{site.name} never got {sorted(missing)} back")
            rows = MemoryStore(site.disk).jobs.latest(1 << 30)
            still = [row.job for row in rows if row.ended_at_s is None]
            if still:
                self.fail(f"{site.name}: the store has {still} open", still[0])


all_invariants: Final[tuple[Callable[["World"], Invariant], ...]] = (
    EndsOnce,
    ChargedOnce,
    InItsPlace,
    RunsOnce,
    AddsUp,
    WithinLimits,
    WindowsKept,
    EntitlementsKept,
    Finishes,
)
