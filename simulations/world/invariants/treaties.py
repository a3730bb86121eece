"""Invariants between sites, under all faults of hosts and the network; see invariants.

Invariants of their books are in books.py.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from federation.clocks import MonoS
from federation.membership.gossip import MemberState
from federation.messages.contracts import ContractPhase
from federation.money import parse_money
from gateway.contracts.model.purchase import Purchase
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.ports import PortKind
from gateway.scheduler.quotas.overruns import OVERRUN_MAX
from simulations.world.client import SimJob
from simulations.world.gateway import SimMember
from simulations.world.invariants.books import (
    BooksAgree,
    BooksBalance,
    DaysAgree,
    ReportsAreStatements,
)
from simulations.world.invariants.budgets import BudgetsHold
from simulations.world.invariants.invariants import WAKING_S, Invariant
from simulations.world.invariants.reserving import ReservationsKept
from simulations.world.trace import TraceEntry

if TYPE_CHECKING:
    from simulations.world.world import World

# All sites have found each other this long after the last fault: a dead site is tried every
# GossipSettings.reconnect_s, or dials when it comes back, and an exchange comes every exchange_s.
AGREE_S: Final = 60.0
REFUTED_S: Final = 5.0  # a false suspicion is refuted within this time
LATE_S: Final = 3.0  # a tick, a clock that drifts, a site that was stopped meanwhile
TICKS_S: Final = 0.5  # due work is done at the next tick


class PaidOnce(Invariant):
    """A site pays for no task more often than it has booked a run of it for its user."""

    def finish(self) -> None:
        """Count each user's tasks in the books of purchases."""
        for site in self.world.sites.values():
            tables = site.disk.tables
            bought: defaultdict[str, Counter[int]] = defaultdict(Counter)
            for key, posted in tables.postings.items():
                contract = tables.contracts.get(key[:2])
                # A task that was stopped before it used anything is delivered, and is no run.
                if key[0] == "buy" and contract is not None and posted.cost_nanos:
                    tasks = range(posted.first, posted.first + posted.tasks)
                    bought[contract.job].update(tasks)
            for name, times in bought.items():
                used: Counter[int] = Counter()
                for usage in tables.usage.get(name, {}).values():
                    used.update(range(usage.first, usage.first + usage.tasks))
                for number, count in times.items():
                    if count > used[number]:
                        text = f"{site.name} bought task {number} {count} times, of"
                        self.fail(f"{text} {used[number]} runs", name, number)


class HoldsEnd(Invariant):
    """Quotes and holds end in time, by an independent clock, and no contract stays for good."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._since: dict[tuple[str, str, ContractPhase], MonoS] = {}  # when it was first seen

    def check(self) -> None:
        """Check all quotes and holds."""
        for site in self.world.sites.values():
            server = site.server
            if server is None or site.is_paused or self._woke(site):
                continue
            rules = server.exchange.rules
            most_s = {ContractPhase.QUOTED: rules.valid_s, ContractPhase.HELD: rules.hold_s}
            mono_s = site.mono_s()
            for sale in server.exchange.sales.sales.values():
                if sale.phase in most_s:
                    key = site.name, sale.contract, sale.phase
                    seen_s = mono_s - self._since.setdefault(key, mono_s)
                    if seen_s > most_s[sale.phase] + TICKS_S:
                        self.fail(f"{site.name}: {sale.contract} is {sale.phase} for {seen_s:.1f}")

    def _woke(self, site: SimMember) -> bool:
        return self.world.clock.now_s - site.resumed_s < WAKING_S

    def finish(self) -> None:
        """Check that no contract is left, in memory or in the books."""
        for site in self.world.sites.values():
            server = site.server
            if server is not None:
                for sale in server.exchange.sales.sales.values():
                    self.fail(f"{site.name} still sells {sale.contract}, {sale.phase}")
                for purchase in server.exchange.purchases.purchases.values():
                    self.fail(f"{site.name} still buys {purchase.contract}, {purchase.phase}")
            tables = site.disk.tables
            for side, contract in tables.contracts.keys() - tables.ended:
                self.fail(f"{site.name}: the books have {contract} ({side}) open")


class IdleContractsClose(Invariant):
    """A contract without tasks out is closed in time: soon when its job is over.

    By the clock of its buyer. A contract of an earlier run of the buyer waits for its seller.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._busy_at_s: dict[tuple[str, int, int], MonoS] = {}  # by site, its run, and handle
        self._over_at_s: dict[tuple[str, int, int], MonoS] = {}  # since when its job is over

    def see(self, entry: TraceEntry) -> None:
        """Note tasks that are handed out, however briefly."""
        if entry.what != "assigns":
            return
        port, worker = entry.data
        if port is PortKind.PEER:
            site = self.world.sites[entry.host]
            self._busy_at_s[site.name, site.life, worker] = site.mono_s()

    def check(self) -> None:
        """Check every open contract."""
        for site in self.world.sites.values():
            is_awake = self.world.clock.now_s - site.resumed_s >= WAKING_S
            if site.server is not None and not site.is_paused:
                for purchase in site.server.exchange.purchases.purchases.values():
                    if purchase.phase is ContractPhase.OPEN:
                        self._look(site, site.server.broker, purchase, is_awake=is_awake)

    def _look(self, site: SimMember, broker: Broker, purchase: Purchase, *, is_awake: bool) -> None:
        key, mono_s = (site.name, site.life, purchase.handle), site.mono_s()
        worker = broker.workers.get(purchase.handle)
        if purchase.is_recovered or (worker is not None and worker.assignments):
            self._busy_at_s[key] = mono_s
            self._over_at_s.pop(key, None)
            return
        idle_s = mono_s - self._busy_at_s.setdefault(key, mono_s)
        over_s = 0.0
        if purchase.job not in broker.jobs:
            over_s = mono_s - self._over_at_s.setdefault(key, mono_s)
        if is_awake and (idle_s > site.plan.deals.idle_s + LATE_S or over_s > LATE_S):
            text = f"{site.name} keeps {purchase.contract}, idle for {idle_s:.1f} s"
            self.fail(text, purchase.job)


class RunsWhereWished(Invariant):
    """No task runs at a site that its user forbade, or that its own site does not trust with it."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._jobs: dict[str, SimJob] = {}
        self._homes: dict[str, str] = {}

    def see(self, entry: TraceEntry) -> None:
        """Check the site of each started task."""
        if entry.what == "opens":
            self._jobs[entry.job] = entry.data
            self._homes[entry.job] = self.world.clients[entry.host].gateway
        elif entry.what == "starts" and entry.job:
            plan = self._jobs[entry.job].plan
            site = self.world.workers[entry.host].gateway
            home = self._homes[entry.job]
            distrusted = self.world.sites[home].plan.runs_not
            if site != home and home in self.world.sites[site].plan.takes_not:
                self.fail(f"{entry.host} of {site} runs work that {home} may not send", entry.job,
                          entry.first)  # fmt: skip
            if site in (*plan.never, *distrusted) or (plan.only and site not in plan.only):
                self.fail(f"{entry.host} of {site} runs work that is forbidden there", entry.job,
                          entry.first)  # fmt: skip


class LimitsHold(Invariant):
    """No task is handed out after its job's deadline, and no job costs more than its user allowed.

    By the clock of the site where it was opened. Tasks that are out when a limit is reached may
    end: a job may cost more by its longest tasks, one in each existing slot. Tasks that never end
    are stopped at OVERRUN_MAX times the limit.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._until: dict[str, tuple[str, float]] = {}  # job → site, deadline by its clock

    def see(self, entry: TraceEntry) -> None:
        """Check tasks that are handed out."""
        if entry.what == "opens" and entry.data.plan.deadline_s is not None:
            site = self.world.sites[self.world.clients[entry.host].gateway]
            if entry.job not in self._until:
                until_s = entry.at_s + entry.data.plan.deadline_s - site.skew_s
                self._until[entry.job] = site.name, until_s
        elif entry.what == "assigns" and entry.job in self._until:
            site_name, until_s = self._until[entry.job]
            late_s = entry.at_s - until_s
            if entry.host == site_name and late_s > LATE_S:
                text = f"{site_name} gives out tasks {late_s:.1f} s after their deadline"
                self.fail(text, entry.job, entry.first)

    def finish(self) -> None:
        """Check the charges."""
        prices = [
            parse_money(pool.price)[0] for plan in self.world.plan.sites for pool in plan.pools
        ]
        slots = sum(worker.slots for worker in self.world.plan.workers)
        for client in self.world.clients.values():
            costs: Counter[str] = Counter()
            for record in self.world.sites[client.gateway].disk.charges():
                costs[record.job] += record.cost_nanos
            for job in client.jobs.values():
                most = job.plan.max_cost_nanos
                if most is None or not job.tasks:
                    continue
                if any(task.is_stuck for task in job.tasks):
                    most *= OVERRUN_MAX
                longest_s = max(task.seconds for task in job.tasks)
                more = slots * round(longest_s * max(prices) / 3600)
                if costs[job.id] > most + more:
                    self.fail(f"costs {costs[job.id]:,} nanos, {most:,} + {more:,} allowed", job.id)


class LeaseHolds(Invariant):
    """When a buyer gives up tasks at a seller, no worker of the seller runs them any more.

    Excepted are workers that are stopped, or were until now, and tasks that a seller handed out
    before it died: its workers learn of that when they find the next gateway, and their results are
    fenced.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._running: dict[tuple[str, int], dict[str, int]] = {}

    def see(self, entry: TraceEntry) -> None:
        """Note which worker runs which task, and check when a contract is given up."""
        if not entry.job:
            return
        if entry.host in self.world.workers and entry.data is not None:
            runners = self._running.setdefault((entry.job, entry.first), {})
            if entry.what == "starts":
                gateway = self.world.workers[entry.host].gateway
                runners[entry.host] = self.world.sites[gateway].life
            else:
                runners.pop(entry.host, None)
        elif entry.what == "gives up":
            for number in range(entry.first, entry.stop):
                self._look(entry, number)

    def _look(self, entry: TraceEntry, number: int) -> None:
        for name, life in self._running.get((entry.job, number), {}).items():
            worker = self.world.workers[name]
            wakes = worker.is_paused or entry.at_s - worker.resumed_s < WAKING_S
            is_sellers = worker.gateway == entry.data
            if is_sellers and not wakes and life == self.world.sites[worker.gateway].life:
                text = f"{name} still runs task {number}, which {entry.host} places again"
                self.fail(text, entry.job, number)


class AllAgree(Invariant):
    """Some time after the last fault, all sites believe all others to be alive.

    A suspicion is no fault while its subject can still refute it: lost datagrams raise some.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._suspected_s: dict[tuple[str, str], float] = {}  # since when, of those that are now

    def check(self) -> None:
        """Compare all sites' beliefs, once it is time."""
        if self.world.clock.now_s >= self.world.plan.calm_s + AGREE_S:
            self._ask()

    def finish(self) -> None:
        """Compare once more: a world may end sooner, but not before all agree (World.is_quiet)."""
        self._ask()

    def _ask(self) -> None:
        suspected_s = {}
        now_s = self.world.clock.now_s
        for site in self.world.sites.values():
            gossip = site.gossip
            for other in site.plan.others if gossip is not None else ():
                state = gossip.state(other) if gossip is not None else None
                if state is MemberState.ALIVE:
                    continue
                since_s = self._suspected_s.get((site.name, other), now_s)
                if state is not MemberState.SUSPECT or now_s - since_s > REFUTED_S:
                    self.fail(f"{site.name} thinks that {other} is {gossip and gossip.word(other)}")
                suspected_s[site.name, other] = since_s
        self._suspected_s = suspected_s


between_sites: Final[tuple[Callable[["World"], Invariant], ...]] = (
    BooksAgree,
    BooksBalance,
    DaysAgree,
    ReportsAreStatements,
    BudgetsHold,
    PaidOnce,
    HoldsEnd,
    IdleContractsClose,
    RunsWhereWished,
    LimitsHold,
    LeaseHolds,
    AllAgree,
    ReservationsKept,
)
