"""A site of the year: the real exchange, broker, windows and prices, without a runtime.

The sessions, frames and store of gateway.runtime.server, gateway.runtime.outbox and
gateway.peering.message_router are left
out: events are passed directly, a record is stored when it is written, and a message reaches
another site after a moment. Nothing is decided here.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, assert_never

from federation.clocks import MonoS, UtcS
from federation.messages.adverts import SiteAdvert
from federation.messages.messages import MESSAGES
from gateway.config.site import PoolConfig, SiteConfig
from gateway.contracts.exchange import Exchange
from gateway.ledger.db.usage.records import UsageRecord
from gateway.runtime.kernel import Kernel
from gateway.runtime.prices import Prices
from gateway.runtime.timetable import WindowTimetable
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import (
    AnswerBill,
    Effect,
    Expel,
    Harden,
    HoldObjects,
    KeepOutput,
    LogOrder,
    PeerSide,
    PullObjects,
    ReadOutcomes,
    Remark,
    SendFunction,
    SendToClient,
    SendToSite,
    SendToWorker,
    TakeObjects,
    Write,
)
from gateway.trust.grant_signer import KeyGrantSigner
from policies.costs.carbon import Emissions, Intensity, mg_per_kwh
from simulations.world.clock import Clock
from simulations.world.peers import SimRoll
from simulations.world.plan import PYTHON
from simulations.year.facts import BEGIN_S, electricity
from simulations.year.scenario import ELASTIC_SLOTS, YearScenario, YearSitePlan
from simulations.year.slots import YearSlots
from simulations.year.work import YearJob

OWNED, ELASTIC = "grid", "cloud"
MESSAGE_BYTES_MAX = 64 << 20
SIDES = {PeerSide.BUYER: PeerSide.SELLER, PeerSide.SELLER: PeerSide.BUYER}


class Listener(Protocol):
    """An observer of sites, which is also their client."""

    def told(self, site: str, client: int, message: Any) -> None:
        """Take a message to a client of a site."""

    def booked(self, site: str, record: UsageRecord) -> None:
        """Take a usage record that a site has booked."""


class YearMember:
    """A site.

    Args:
        plan: its properties.
        others: the sites that it deals with; none: it is alone.
        works: by the arguments of their tasks.
        listener: see there.
        say: sends a message to another site: from, to, side, frame.
    """

    def __init__(
        self,
        clock: Clock,
        plan: YearSitePlan,
        scenario: YearScenario,
        others: Iterable[str],
        works: Mapping[bytes, YearJob],
        listener: Listener,
        say: Callable[[str, str, PeerSide, bytes], None],
    ) -> None:
        self._clock = clock
        self._scenario = scenario
        self._listener = listener
        self._send = say
        self.plan = plan
        self.name = plan.name
        self.config = _for_scenario(plan.config(), scenario)
        self._power = electricity(plan.electricity)
        self._hour = -1
        utc_s = self.utc_s()
        self._prices = Prices(self.config.pools, utc_s)
        self._timetable = WindowTimetable({pool.name: pool.plan for pool in self.config.pools})
        roll = SimRoll(self.name, others, int(utc_s))
        tariffs = {name: each.tariff for name, each in self._prices.now.items()}
        self.kernel = Kernel(
            lambda peers: Broker(tariffs, boot=int(utc_s), peers=peers, prices=self._prices.now),
            lambda broker: Exchange(
                self.name,
                int(utc_s),
                broker,
                self.config.deals,
                self.config.preferences,
                roll,
                {pool.name: pool.facts for pool in self.config.pools},
                KeyGrantSigner(roll),
                itertools.count(len(self.config.pools) + 1),
            ),
        )
        self.broker, self.exchange = self.kernel.broker, self.kernel.exchange
        self._came: list[events.Event] = []
        self._heard: list[tuple[str, PeerSide, bytes]] = []
        self._is_looking = False
        self._shown_s = -scenario.advert_s
        self.slots: dict[str, YearSlots] = {}
        for number, pool in enumerate(self.config.pools, 1):
            total = plan.slots if pool.name == OWNED else ELASTIC_SLOTS
            self.slots[pool.name] = YearSlots(
                clock, number, total, works, self.expect, scenario.length_s
            )
            self._came.append(
                events.WorkerJoined(number, pool.name, pool.name, total, pool.tags, PYTHON)
            )
        self._by_handle = {each.handle: each for each in self.slots.values()}

    def utc_s(self) -> UtcS:
        """Return its calendar time."""
        return self._scenario.begin_s + self._clock.now_s

    # --- input ---------------------------------------------------------------------------------

    def expect(self, *happened: events.Event) -> None:
        """Queue events: they are processed together with all others of this moment."""
        self._came += happened
        self._look_soon()

    def hear(self, site: str, side: PeerSide, frame: bytes) -> None:
        """Queue a message from a site, which is the buyer or the seller in it."""
        self._heard.append((site, side, frame))
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._clock.after(0.0, self._look)

    def _look(self) -> None:
        self._is_looking = False
        heard, self._heard = self._heard, []
        came, self._came = self._came, []
        for site, side, frame in heard:
            message = MESSAGES.decode(frame, MESSAGE_BYTES_MAX)
            self.kernel.hear(site, side, message, MonoS(self._clock.now_s), self.utc_s())
        self._act(came)

    def tick(self) -> None:
        """Process the passing of time: another hour, a window, leases, work to be planned again."""
        happened = self._news_of_the_hour()
        utc_s = self.utc_s()
        news = (self._timetable.renew(utc_s), self._prices.renew(self.broker, utc_s))
        happened += [each for each in news if each is not None]
        is_due = self.kernel.tick(MonoS(self._clock.now_s), utc_s)
        if happened or is_due or self.broker.is_uneven or self.broker.occupancy.pools:
            self._act(happened)

    def _news_of_the_hour(self) -> list[events.Event]:
        """Return events for the cost and emissions of electricity, if they changed."""
        hour = self._power.hour(self.utc_s() - BEGIN_S)
        if hour == self._hour:
            return []
        self._hour = hour
        self._prices.replace(self._priced(pool) for pool in self.config.pools)
        return [
            events.EmissionsKnown(pool.name, self._emissions(pool)) for pool in self.config.pools
        ]

    def _emissions(self, pool: PoolConfig) -> Emissions:
        grams = self._power.g_per_kwh[self._hour]
        source = f"green-dcc {self.plan.electricity} 2023"
        return replace(pool.emissions, intensity=Intensity(mg_per_kwh(grams), source))

    def _priced(self, pool: PoolConfig) -> PoolConfig:
        """Return a pool with the hour's electricity in its price; on-demand prices include it."""
        if pool.name != OWNED:
            return pool
        amount, currency = pool.price.split()
        machine = pool.emissions.machine
        watts = machine.busy_watts if machine is not None else 0.0
        power = max(0.0, self._power.usd_per_kwh[self._hour]) * watts / 1000
        return replace(pool, price=f"{float(amount) + power:.9f} {currency}")

    @property
    def usd_per_kwh(self) -> float:
        """The present price of electricity here."""
        return self._power.usd_per_kwh[self._hour]

    # --- output --------------------------------------------------------------------------------

    def _act(self, happened: Iterable[events.Event]) -> None:
        for effect in self.kernel.act(happened, MonoS(self._clock.now_s), self.utc_s()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Write():
                if isinstance(effect.record, UsageRecord):
                    self._listener.booked(self.name, effect.record)
            case SendToClient(client, message):
                self._listener.told(self.name, client, message)
            case SendToWorker(worker, message):
                self._by_handle[worker].order(message)
            case SendToSite(site, side, message):
                self._send(self.name, site, SIDES[side], MESSAGES.encode(message))
            case Expel() | AnswerBill():
                raise AssertionError(f"{self.name}: unexpected expulsion: {effect}")
            case Harden() | Remark() | KeepOutput() | LogOrder() | SendFunction():
                return
            case HoldObjects() | TakeObjects() | PullObjects() | ReadOutcomes():
                return
            case _:
                assert_never(effect)

    def advert(self) -> SiteAdvert | None:
        """Return its advert for the others, when one is due."""
        if self._clock.now_s - self._shown_s < self._scenario.advert_s:
            return None
        self._shown_s = self._clock.now_s
        return replace(self.exchange.show(self.utc_s()), valid_s=5 * self._scenario.advert_s)


def _for_scenario(config: SiteConfig, scenario: YearScenario) -> SiteConfig:
    """Return a configuration, with the fault that a scenario plants in it."""
    if scenario.preempts:
        return config
    pools = []
    for pool in config.pools:
        windows = tuple(replace(each, preempts=False) for each in pool.plan.windows)
        pools.append(replace(pool, plan=replace(pool.plan, windows=windows)))
    return replace(config, pools=tuple(pools))
