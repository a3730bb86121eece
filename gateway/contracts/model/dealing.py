"""The common part of buying and selling: settings, back-off, permits, outcomes. Pure."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol

from federation.clocks import Instant
from federation.messages.registry import GatewayMessage
from gateway.config.contracts import DealRules
from gateway.ledger.db.records import Record
from gateway.scheduler.model.effects import Effect, Harden, PeerSide, SendToSite, Write
from gateway.scheduler.model.events import Event
from policies.tariffs import Tariff

RELAY: Final = "relay"  # the name of the pool in a quote for another site's pool
LEASE_MAX_S: Final = 86_400.0
CONTRACT_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Backoff(Generic[Instant]):
    """The back-off from a site or pool: the number of failures in a row, and its end."""

    times: int
    until_s: Instant

    def once_more(self, now: Instant, rules: DealRules) -> "Backoff[Instant]":
        """The back-off after another failure, for longer."""
        times = self.times + 1
        return Backoff(times, now + rules.rest_after_s(times))


class Permits(Protocol):
    """The sites that this site deals with; the trust book answers."""

    def runners(self, project: str) -> Set[str]:
        """The sites that may run work of this project; single pools of them as "site/pool"."""

    def barred(self, project: str) -> Set[str]:
        """Pools of runners that may not run work of this project, as "site/pool"."""

    def reach(self, target: str, project: str) -> Set[str]:
        """The sites, including `target`, where `target` may let work of this project run.

        Users here accept results of all of them.
        """

    def readable(self) -> Set[str]:
        """The sites whose pickled results users here accept, also if forwarded by others."""

    def may_send(
        self, site: str, origin: str, pool: str, project: str, slots: int, price: Tariff
    ) -> str:
        """Why a site may not have that many slots of a pool for this project; empty if it may.

        The text names the rule that refuses, and may be sent to the site.
        """


@dataclass(slots=True)
class Consequences:
    """The consequences of an event: events for the broker, effects for the outbox, in order."""

    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def happened(self, event: Event) -> None:
        """Pass an event to the broker."""
        self.events.append(event)

    def write(self, record: Record, *, durable: bool = False) -> None:
        """Store a record."""
        self.effects.append(Write(record, durable))

    def harden(self) -> None:
        """Hold the following messages until all previous writes survive a power cut."""
        self.effects.append(Harden())

    def say(self, site: str, side: PeerSide, message: GatewayMessage) -> None:
        """Send a message to another site."""
        self.effects.append(SendToSite(site, side, message))
