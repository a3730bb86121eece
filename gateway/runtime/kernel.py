"""Joins the scheduler of a site with its contracts, as equals. Pure.

    frames, ticks ─ events ──────► broker ─ effects ──► clients, workers, the store
                                   ▲   │
                 events of contracts   effects for contracts
                                   │   ▼
    messages of other sites ─────► exchange ─ effects ─► other sites, the store

Neither hands the other an event or an effect. Events of clients and workers go to the broker, and
its effects go back to the runtime; the exchange gets only effects for contracts. After each batch
of events it plans the places of waiting jobs.
"""

from collections.abc import Callable, Iterable, Set
from typing import Any

from federation.clocks import MonoS, UtcS
from federation.messages import deals
from gateway.contracts.exchange import Exchange
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.effects import Effect, Expel, PeerSide, SendToClient, SendToWorker
from gateway.scheduler.model.events import Event
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.peer_queries import PeerQueries
from gateway.scheduler.model.ports import PortKind
from gateway.scheduler.model.terms import JobSpec
from policies.placement.offers import Unmet
from policies.tariffs import Tariff


class Kernel:
    """The decisions of a site: its broker and its exchange.

    Args:
        make_broker: makes the broker; its argument answers questions about other sites.
        make_exchange: makes the exchange, which reads the broker.
    """

    def __init__(
        self,
        make_broker: Callable[[PeerQueries], Broker],
        make_exchange: Callable[[Broker], Exchange],
    ) -> None:
        self.broker = make_broker(_Queries(self))
        self.exchange = make_exchange(self.broker)
        self._effects: list[Effect] = []  # decided since the last `act`

    def act(self, happened: Iterable[Event], mono_s: MonoS, utc_s: UtcS) -> list[Effect]:
        """Process events and all their consequences here; return the effects, in order."""
        broker, exchange = self.broker, self.exchange
        broker.begin_turn(mono_s)
        effects, self._effects = self._effects + exchange.take_effects(), []
        pending = [*exchange.take_events(), *happened]
        while True:
            decided: list[Effect] = []
            for event in pending:
                decided += broker.handle(event, utc_s)
            exchange.plan(mono_s, utc_s)
            for event in exchange.take_events():
                decided += broker.handle(event, utc_s)
            decided += broker.settle(utc_s)
            effects += self._routed(decided, mono_s, utc_s)
            effects += exchange.take_effects()
            pending = exchange.take_events()
            if not pending:
                return effects

    def hear(self, site: str, side: PeerSide, message: Any, mono_s: MonoS, utc_s: UtcS) -> None:
        """Handle a message of another site, which is our buyer or our seller here.

        Raises:
            ProtocolError: it broke the rules; the message had no effect.
        """
        self.exchange.hear(site, side, message, mono_s, utc_s)
        if side is PeerSide.SELLER and isinstance(message, deals.Holding):
            # Its seller's next delivery, in the same frame, counts for the tasks that this puts in
            # flight.
            self._tell_broker(mono_s, utc_s)

    def tick(self, mono_s: MonoS, utc_s: UtcS) -> bool:
        """Let the exchange act on the passing of time. Return whether `act` is needed."""
        return self.exchange.tick(mono_s, utc_s) or bool(self._effects)

    def _tell_broker(self, mono_s: MonoS, utc_s: UtcS) -> None:
        """Pass the events of contracts to the broker; leave planning and settling to `act`.

        A seller may report its held tasks thousands of times: planning for each takes too long.
        """
        broker, exchange = self.broker, self.exchange
        broker.begin_turn(mono_s)
        self._effects += exchange.take_effects()
        try:
            while (event := exchange.next_event()) is not None:
                self._effects += self._routed(broker.handle(event, utc_s), mono_s, utc_s)
            exchange.came_back()
        finally:  # a fault of ours over one message must not lose other messages
            self._effects += exchange.take_effects()

    def _routed(self, decided: list[Effect], mono_s: MonoS, utc_s: UtcS) -> list[Effect]:
        """Return the broker's effects; those for contracts, as the exchange turns them."""
        routed: list[Effect] = []
        for effect in decided:
            if (
                isinstance(effect, (SendToClient, SendToWorker, Expel))
                and effect.port is PortKind.PEER
            ):
                routed += self.exchange.take(effect, mono_s, utc_s)
            else:
                routed.append(effect)
        return routed


class _Queries(PeerQueries):
    """Puts the broker's questions to the exchange, which is made after the broker."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def may_run(self, spec: JobSpec) -> bool:
        return self._kernel.exchange.reach.may_run(spec)

    def may_be_made(self, job: Job) -> bool:
        return self._kernel.exchange.reach.may_be_made(job)

    def why_nowhere(self, spec: JobSpec) -> str:
        return self._kernel.exchange.reach.why_nowhere(spec)

    def unmet(self, job: str, spec: JobSpec, tasks: int, utc_s: UtcS) -> Unmet | None:
        return self._kernel.exchange.deciding.unmet(job, spec, tasks, utc_s)

    def currencies(self) -> Set[str]:
        return self._kernel.exchange.reach.currencies()

    def tariffs(self, spec: JobSpec, utc_s: UtcS) -> Iterable[Tariff]:
        return self._kernel.exchange.reach.tariffs(spec, utc_s)
