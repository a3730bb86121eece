"""A world: hosts, the network between them, faults, and invariants."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, assert_never

from federation.membership.gossip import MemberState
from gateway.scheduler.model import events
from gateway.scheduler.model.ports import PortKind
from simulations.world.client import SimClient
from simulations.world.clock import Clock
from simulations.world.gateway import Gateway, SimMember
from simulations.world.host import Ground, SimHost
from simulations.world.invariants.books import unsettled
from simulations.world.invariants.budgets import are_given_back
from simulations.world.invariants.dispatching import ComesToRest
from simulations.world.invariants.graphs import InputsFirst
from simulations.world.invariants.invariants import Invariant, all_invariants
from simulations.world.invariants.labels import StaysWithin
from simulations.world.invariants.lost_runs import LostAsRun
from simulations.world.invariants.reserving import reserve
from simulations.world.invariants.stopping import CancelledBeginsNothing, StopsWhenTold
from simulations.world.invariants.telling import ToldIsStored
from simulations.world.invariants.treaties import between_sites
from simulations.world.network import Network
from simulations.world.operators import Operator
from simulations.world.plan import (
    Crash,
    DrainWorkers,
    Fault,
    NetworkCut,
    Pause,
    Reset,
    SlowStore,
    WorldPlan,
)
from simulations.world.trace import InvariantBroken, Trace
from simulations.world.worker import SimWorker

CHECK_S: Final = 0.5  # the interval at which invariants check the state of all hosts
# The maximum duration of the final cleanup: orphaned jobs have a minute. Then come the books, of
# which a week must be over; differences are tried again after some time.
GOODBYE_S: Final = 180.0

MakeMember = Callable[..., SimMember]
INVARIANTS: Final[tuple[Callable[["World"], Invariant], ...]] = (
    *all_invariants,
    InputsFirst,
    StaysWithin,
    ComesToRest,
    ToldIsStored,
    StopsWhenTold,
    CancelledBeginsNothing,
    *between_sites,
    LostAsRun,
)


@dataclass(frozen=True, slots=True)
class WorldRun:
    """The result of a world. `broken` is None when all invariants held."""

    broken: InvariantBroken | None
    trace: Trace
    events: int
    seconds: float  # virtual
    digest: str


class _Ear:
    """Passes one gateway's decisions and messages to an invariant."""

    def __init__(self, invariant: Invariant, site: SimMember) -> None:
        self.decided = partial(invariant.decided, site)
        self.told = partial(invariant.told, site)


class World:
    """The whole simulation.

    Args:
        plan: its parts, and its events.
        seed: of all random choices.
        clock, make_member: the driver's; by default those of the heap.
    """

    def __init__(
        self,
        plan: WorldPlan,
        seed: int,
        *,
        clock: Clock | None = None,
        make_member: MakeMember = Gateway,
        invariants: Sequence[Callable[["World"], Invariant]] = INVARIANTS,
    ) -> None:
        self.plan = plan
        self.clock = clock or Clock()
        self.dice = Random(seed)
        self.trace = Trace(lambda: self.clock.now_s)
        self.network = Network(self.clock, Random(self.dice.getrandbits(64)), plan.weather)
        self.sites: dict[str, SimMember] = {}
        self.workers: dict[str, SimWorker] = {}
        self.clients: dict[str, SimClient] = {}
        for site in plan.sites:
            self.sites[site.name] = make_member(self._ground(), site)
        for worker in plan.workers:
            pools = {pool.name: pool.tags for pool in self.sites[worker.site].config.pools}
            self.workers[worker.name] = SimWorker(self._ground(), worker, pools[worker.pool])
        for client in plan.clients:
            self.clients[client.name] = SimClient(self._ground(), client)
        self.hosts: dict[str, SimHost] = {**self.sites, **self.workers, **self.clients}
        self.operators = [self._operator(site) for site in self.sites.values() if site.plan.others]
        self._written, self._is_settled = -1, False
        self.invariants = [make(self) for make in invariants]
        for invariant in self.invariants:
            self.trace.watchers.append(invariant.see)
            looks_at_commits = type(invariant).committed is not Invariant.committed
            for member in self.sites.values() if looks_at_commits else ():
                member.disk.auditors.append(partial(invariant.committed, member))
            listens = type(invariant).told is not Invariant.told
            for member in self.sites.values() if listens else ():
                member.ears.append(_Ear(invariant, member))

    def _ground(self) -> Ground:
        """Return a host's environment, with its own random source.

        So the draws of one host change nothing for the others.
        """
        return Ground(self.clock, Random(self.dice.getrandbits(64)), self.trace, self.network)

    def _operator(self, site: SimMember) -> Operator:
        others = [self.sites[name] for name in site.plan.others]
        return Operator(site, others, self.clock, Random(self.dice.getrandbits(64)))

    # --- phases --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start all hosts, and schedule the faults."""
        for host in (*self.sites.values(), *self.clients.values()):
            host.start()
        for name, worker in self.workers.items():
            self.clock.at(worker.plan.from_s, self.hosts[name].start)
        for fault in self.plan.faults:
            self.clock.at(fault.at_s, partial(self._befall, fault))
        self.clock.at(self.plan.calm_s, self._calm_down)
        for operator in self.operators:
            operator.begin()
        for site in self.sites.values():
            for wish in site.plan.reserves:
                self.clock.at(wish.at_s, partial(reserve, site, wish))
        self._check()

    def acts(self) -> Iterator[tuple[float, Callable[[], bool]]]:
        """Yield the phases: until when time must pass, and the condition to stop earlier."""
        self.begin()
        yield self.plan.calm_s, lambda: False
        yield self.plan.calm_s + self.plan.settle_s, self.is_done
        self.part()
        yield self.clock.now_s + GOODBYE_S, self.is_quiet
        self.finish()

    def run(self) -> WorldRun:
        """Run the world on the heap."""
        try:
            for until_s, is_over in self.acts():
                self.clock.run(until_s, is_over)
        except InvariantBroken as broken:
            return self.told(broken)
        return self.told(None)

    def told(self, broken: InvariantBroken | None) -> WorldRun:
        """Return the result."""
        digest = self.trace.digest()
        return WorldRun(broken, self.trace, self.clock.events, self.clock.now_s, digest)

    def is_done(self) -> bool:
        """Whether every client knows all its results."""
        return all(client.is_over for client in self.clients.values())

    def part(self) -> None:
        """Let finished clients say goodbye, and stop new work of operators."""
        for operator in self.operators:
            operator.is_backed_off = True
        for client in self.clients.values():
            if client.is_over:
                client.leave()

    def is_quiet(self) -> bool:
        """Whether nothing is left to do anywhere."""
        receptions = [site.server for site in self.sites.values() if site.server is not None]
        brokers = [each.broker for each in receptions]
        workers = (each for broker in brokers for each in broker.workers.values())
        # A worker that is back may have an older session that is not given up yet.
        present = {each.name for each in workers if each.port is PortKind.WORKER}
        is_whole = len(brokers) == len(self.sites) and present == set(self.workers)
        is_idle = all(worker.is_idle for worker in self.workers.values())
        is_stored = not any(each.store.backlog for each in receptions)
        is_empty = not any(each.jobs or each.clients for each in brokers)
        exchanges = [each.exchange for each in receptions]
        is_empty &= not any(each.sales.sales or each.purchases.purchases for each in exchanges)
        is_empty &= are_given_back(self.sites.values())
        return (
            is_whole and is_idle and is_stored and is_empty and self.is_agreed and self.is_settled
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do in the books; computed when one has changed."""
        written = sum(site.disk.written for site in self.sites.values())
        if written != self._written:
            self._written = written
            self._is_settled = self._settled()
        return self._is_settled

    def _settled(self) -> bool:
        pairs = [(site, self.sites[name]) for site in self.sites.values()
                 for name in site.plan.others]  # fmt: skip
        is_done = all(operator.has_nothing_to_do for operator in self.operators)
        return is_done and not any(text for pair in pairs for text in unsettled(*pair))

    @property
    def is_agreed(self) -> bool:
        """Whether all sites that know each other believe the others to be alive."""
        return all(
            site.gossip is not None and site.gossip.state(other) is MemberState.ALIVE
            for site in self.sites.values()
            for other in site.plan.others
        )

    def finish(self) -> None:
        """Check everything once more."""
        for invariant in self.invariants:
            invariant.check()
            invariant.finish()

    def _check(self) -> None:
        self.clock.after(CHECK_S, self._check)
        for invariant in self.invariants:
            invariant.check()

    # --- faults --------------------------------------------------------------------------------

    def _befall(self, fault: Fault) -> None:
        self.trace.add("(fate)", str(fault))
        match fault:
            case Crash(_, host, back_after_s, power):
                self.hosts[host].crash(power=power)
                life = self.hosts[host].life
                self.clock.after(back_after_s, partial(self._bring_back, host, life))
            case Pause(_, host, for_s):
                self.hosts[host].pause()
                self.clock.after(for_s, self.hosts[host].resume)
            case NetworkCut(_, source, target, for_s, one_way):
                ways = [(source, target)] if one_way else [(source, target), (target, source)]
                for way in ways:
                    self.network.cut(*way)
                    self.clock.after(for_s, partial(self.network.heal, *way))
            case Reset(_, one, other, times, every_s):
                for nth in range(times):
                    self.clock.after(nth * every_s, partial(self.network.reset, one, other))
            case SlowStore(_, site, commit_s, for_s):
                self.sites[site].commit_s = commit_s
                self.clock.after(for_s, partial(self._hurry, site))
            case DrainWorkers(_, site, for_s):
                self._drain(site, on=True)
                self.clock.after(for_s, partial(self._drain, site, on=False))
            case _:
                assert_never(fault)

    def _bring_back(self, host: str, life: int) -> None:
        if self.hosts[host].life == life:  # it was not restarted meanwhile
            self.hosts[host].start()

    def _hurry(self, site: str) -> None:
        self.sites[site].commit_s = None

    def _drain(self, site: str, *, on: bool) -> None:
        server = self.sites[site].server
        if server is not None and not self.sites[site].is_paused:
            for handle in list(server.broker.workers):
                server.expect(events.DrainAsked(handle, on))

    def _calm_down(self) -> None:
        """End all faults: restart and resume all hosts."""
        self.trace.add("(fate)", "calm")
        for host in self.hosts.values():
            host.resume()
            host.start()
        for source in self.hosts:
            for target in self.hosts:
                while self.network.is_cut(source, target):
                    self.network.heal(source, target)
        for site in self.sites:
            self._hurry(site)
            self._drain(site, on=False)
