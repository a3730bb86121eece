"""The second driver: the real gateways, under trio, on a mock clock.

All other hosts stay on the heap. One task sleeps until the heap's next event and runs it; between
two events the sites' own tasks run. All of it is in one thread, in virtual time.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from federation.transport import Port
from gateway.config.site import SiteConfig
from gateway.ledger.db.errors import StoreClosed
from gateway.ledger.store.store import Store
from gateway.peering.gossip_loop import GossipLoop
from gateway.runtime.environment import RuntimeEnvironment
from gateway.runtime.server import GatewayServer
from gateway.sessions.links import LinkNews
from gateway.sessions.listener import News
from gateway.site import Site
from simulations.world.clock import Clock
from simulations.world.gateway import SimMember, read_now
from simulations.world.host import Ground
from simulations.world.memory.store import MemoryStore
from simulations.world.peers import roll_of
from simulations.world.plan import SitePlan, WorldPlan
from simulations.world.trace import InvariantBroken
from simulations.world.triopeers import TrioPeers
from simulations.world.world import World, WorldRun

CLOSE_S: Final = 1e-9  # a time this near counts as now: sums of floats are not exact


@contextmanager
def determined(seed: int) -> Iterator[None]:
    """Make trio schedule tasks in an order that the seed decides. Private names: only here."""
    run: Any = trio_run
    before, state = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    run._r.seed(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = before
        run._r.setstate(state)


class TrioClock(Clock):
    """The heap of events, on trio's time."""

    def __init__(self) -> None:
        super().__init__(self._look_again)
        self._earlier = trio.Event()

    @property
    def now_s(self) -> float:
        """The current time."""
        return trio.current_time()

    def _look_again(self) -> None:
        self._earlier.set()

    async def pass_until(self, until_s: float, is_over: Callable[[], bool]) -> None:
        """Run like `run`, and let trio's tasks run in between."""
        look_at_s = self.now_s
        while self.now_s < until_s - CLOSE_S:
            if self.now_s >= look_at_s:
                if is_over():
                    return
                look_at_s = self.now_s + 0.25
            self._earlier = trio.Event()
            next_s = self.next_s
            wake_s = until_s if next_s is None else min(next_s, until_s)
            with trio.move_on_at(wake_s):
                await self._earlier.wait()
            while self.next_s is not None and self.next_s <= self.now_s + CLOSE_S:
                self.step()


class TrioGateway(SimMember):
    """A gateway.site.Site in the simulated world.

    It can't be stopped like a process: a pause isolates it from the network.
    """

    def __init__(self, ground: Ground, plan: SitePlan, nursery: trio.Nursery) -> None:
        super().__init__(ground, plan)
        self._nursery = nursery
        self._site: Site | None = None
        self._store: MemoryStore | None = None
        self._orders: set[trio.CancelScope] = set()

    @property
    def server(self) -> GatewayServer | None:
        """The running gateway, once it has started."""
        return getattr(self._site, "server", None)

    @property
    def older_books(self) -> list[str]:
        """See SimMember."""
        reconciler = getattr(self._site, "reconciler", None)
        return reconciler.older_books if reconciler is not None else []

    @property
    def gossip(self) -> GossipLoop | None:
        """The federation as it is seen here."""
        return self._site.gossip if self._site is not None else None

    def boot(self) -> None:
        """Start the site."""
        runtime = RuntimeEnvironment(
            mono_s=self.mono_s,
            utc_s=self.utc_s,
            random_bytes=self.random_bytes,
            open_port=self._open_port,
            open_store=self._open_store,
            open_logs=lambda _config, _say: None,
            read=read_now,
        )
        self._site = Site(self.config, self.note, runtime, self._open_federation)
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._serve, self._site, self._scope, self.life)

    async def _serve(self, site: Site, scope: trio.CancelScope, life: int) -> None:
        with scope:
            try:
                await site.run(task_status=_Started(lambda: self.watch(site.server)))
            except* StoreClosed:
                if self.life == life:
                    raise
                # It died in the middle of an operation, and its disk with it.

    def _open_federation(
        self,
        _config: SiteConfig,
        handles: Iterator[int],
        heard: Callable[[list[News]], None],
        link_news: Callable[[LinkNews], None],
        heard_all: Callable[[], None],
        _say: Callable[[str], None],
    ) -> TrioPeers | None:
        if not self.plan.others:
            return None
        roll = roll_of(self.plan, self.next_boot())
        rules = self.config.rules
        return TrioPeers(self, roll, rules, handles, heard, link_news, heard_all)

    def _open_port(self, _addresses: Any, changed: Callable[[], None], _tls: Any) -> Port:
        return self.ground.network.listen(self.name, changed)

    def _open_store(self, _config: Any, **_callbacks: Any) -> Store:
        site = self._site
        assert site is not None
        self._store = self.open_store(site.nudge)
        return self._store

    def order(self, verb: str, details: Mapping[str, Any]) -> None:
        """See SimMember."""
        site = self._site
        if site is not None and site.reconciler is not None:
            self._nursery.start_soon(self._obey, site, verb, details)

    async def _obey(self, site: Site, verb: str, details: Mapping[str, Any]) -> None:
        with trio.CancelScope() as scope:
            self._orders.add(scope)
            await self.obey(site, verb, details)
        self._orders.discard(scope)

    def die(self, *, power: bool) -> None:
        """Lose records queued for the store, and with the power the unsynced ones."""
        if self._store is not None:
            self._store.kill()
        if power:
            self.disk.cut_power()
        for scope in (self._scope, *self._orders):
            scope.cancel()
        self._site = None

    def pause(self) -> None:
        """Isolate it from the network."""
        if self.is_up:
            self.note("is out of reach")
            self.ground.network.isolate(self.name)

    def resume(self) -> None:
        """Undo `pause`."""
        self.ground.network.rejoin(self.name)


class _Started(trio.TaskStatus[list[str]]):
    """A task status that passes on that a site is ready."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready

    def started(self, value: Any = None) -> None:
        """Report that the site is ready."""
        self._ready()


def run_under_trio(plan: WorldPlan, seed: int) -> WorldRun:
    """Run a world with its gateways under trio."""
    with determined(Random(seed).getrandbits(64)):
        return trio.run(_run, plan, seed, clock=MockClock(autojump_threshold=0))


async def _run(plan: WorldPlan, seed: int) -> WorldRun:
    clock = TrioClock()
    world: World | None = None
    try:
        async with trio.open_nursery() as nursery:
            world = World(
                plan,
                seed,
                clock=clock,
                make_member=lambda ground, site: TrioGateway(ground, site, nursery),
            )
            for until_s, is_over in world.acts():
                await clock.pass_until(until_s, is_over)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        broken = _broken(group)
        if broken is None or world is None:
            raise
        return world.told(broken)
    assert world is not None
    return world.told(None)


def _broken(group: BaseExceptionGroup[Any]) -> InvariantBroken | None:
    """Return the broken invariant among several exceptions, if there is one."""
    for error in group.exceptions:
        found = _broken(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, InvariantBroken):
            return found
    return None
