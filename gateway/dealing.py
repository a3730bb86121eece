"""The common part of buying and selling: knobs, back-off, permits, outcomes. Pure."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final, Protocol

from federation.deals import Deal
from federation.messages import NeedFunction
from federation.slices import SliceMessage
from gateway.effects import Effect, Harden, Say, Side, Write
from gateway.events import Event
from gateway.ledger.records import Record
from policies.tariffs import Tariff

RELAY: Final = "relay"  # the name of the pool in a quote for another site's pool
LEASE_MAX_S: Final = 86_400.0
LEASE_MARGIN_S: Final = 1.0
CONTRACT_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class DealRules:
    """The knobs of contracts. Times in seconds.

    `lease_s` is how long a seller may go on without a message of the buyer, and so how long the
    buyer waits before it places the tasks of an unreachable seller elsewhere. When a gateway dies,
    its agents go on for the workers' `grace_s`. The seller stops that much earlier, so `lease_s`
    must be more than twice `grace_s`.
    """

    lease_s: float = 30.0
    grace_s: float = 10.0
    valid_s: float = 5.0  # how long a quote is valid
    hold_s: float = 5.0  # how long slots are held for a contract that is not committed
    quote_wait_s: float = 1.0  # how long to wait for the slowest quote
    bill_s: float = 0.25  # how often deliveries are billed
    plan_s: float = 0.25  # how often a queued job is planned again
    idle_s: float = 10.0  # an idle contract is closed after this time
    # Back-off from a site that declined or did not answer: this long, doubled each time, up to:
    rest_s: float = 5.0
    rest_max_s: float = 300.0
    contracts_max: int = 10_000  # with one site, in each direction
    unsettled_bytes_max: int = 256 << 20  # results of one buyer; above it none of its tasks starts
    buyer_bytes_max: int = 1 << 30  # arguments of one buyer, all contracts together
    grant_s: float = 86_400.0  # how long a grant for a contract lets work start

    @property
    def lease_min_s(self) -> float:
        """The shortest lease of a seller: a dead gateway's workers go on for the grace."""
        return 2 * self.grace_s + LEASE_MARGIN_S

    def rest_after_s(self, times: int) -> float:
        """The back-off after `times` failures in a row."""
        return float(min(self.rest_s * 2.0 ** min(times - 1, 30), self.rest_max_s))

    def __post_init__(self) -> None:
        if self.lease_s <= 2 * self.grace_s:
            raise ValueError(
                f"lease_s is {self.lease_s:g}: it must be more than twice the workers' grace_s "
                f"({self.grace_s:g}), or a dead gateway's workers outlive the lease"
            )


@dataclass(frozen=True, slots=True)
class Backoff:
    """The back-off from a site or pool: the number of failures in a row, and its end."""

    times: int = 0
    until_s: float = 0.0

    def once_more(self, now_s: float, rules: DealRules) -> "Backoff":
        """The back-off after another failure, for longer."""
        times = self.times + 1
        return Backoff(times, now_s + rules.rest_after_s(times))


NO_BACKOFF: Final = Backoff()


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
        """Why a site may not have that many slots of a pool for this project; empty if it may."""


@dataclass(slots=True)
class Outcome:
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

    def say(
        self,
        site: str,
        side: Side,
        message: Deal | NeedFunction | SliceMessage,
        *,
        urgent: bool = False,
    ) -> None:
        """Send a message to another site."""
        self.effects.append(Say(site, side, message, urgent))
