"""What buying and selling have in common: knobs, what happens next, whom to ask. Pure."""

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

RELAY: Final = "relay"  # what the pool of a quote is called that is another site's
LEASE_MAX_S: Final = 86_400.0
LEASE_MARGIN_S: Final = 1.0
CONTRACT_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class DealRules:
    """The knobs of contracts. Times in seconds.

    `lease_s` is how long a seller may go on without a word from the buyer, and so how long the
    buyer waits before it places the tasks of an unreachable seller elsewhere. A gateway that dies
    leaves agents that work on for the workers' `grace_s`: the seller stops that much earlier, so
    `lease_s` must be more than twice that.
    """

    lease_s: float = 30.0
    grace_s: float = 10.0
    valid_s: float = 5.0  # how long a quote stands
    hold_s: float = 5.0  # how long slots stay set aside for a contract that is not committed
    quote_wait_s: float = 1.0  # how long to wait for the slowest of the quotes
    bill_s: float = 0.25  # how often deliveries are billed
    plan_s: float = 0.25  # how often the places of a job that waits are chosen anew
    idle_s: float = 10.0  # a contract without work is closed after so long
    # A site that declined or did not answer is spared for so long, then twice as long, up to:
    rest_s: float = 5.0
    rest_max_s: float = 300.0
    contracts_max: int = 10_000  # with one site, in each direction
    unsettled_bytes_max: int = 256 << 20  # results of one buyer; over it none of its tasks starts
    buyer_bytes_max: int = 1 << 30  # arguments of one buyer, all contracts together
    grant_s: float = 86_400.0  # how long what we grant for a contract lets work start

    @property
    def lease_min_s(self) -> float:
        """The shortest that a seller takes: workers of a gateway that dies go on for the grace."""
        return 2 * self.grace_s + LEASE_MARGIN_S

    def rest_after_s(self, times: int) -> float:
        """How long who was of no use so many times, one after the other, is left alone."""
        return float(min(self.rest_s * 2.0 ** min(times - 1, 30), self.rest_max_s))

    def __post_init__(self) -> None:
        if self.lease_s <= 2 * self.grace_s:
            raise ValueError(
                f"lease_s is {self.lease_s:g}: it must be more than twice the workers' grace_s "
                f"({self.grace_s:g}), or a dead gateway's workers outlive the lease"
            )


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often, one after the other, somebody was of no use, and until when that counts."""

    times: int = 0
    until_s: float = 0.0

    def once_more(self, now_s: float, rules: DealRules) -> "Backoff":
        """And now again: this time for longer."""
        times = self.times + 1
        return Backoff(times, now_s + rules.rest_after_s(times))


NO_BACKOFF: Final = Backoff()


class Permits(Protocol):
    """Whom this site deals with; the trust book answers."""

    def runners(self, project: str) -> Set[str]:
        """The sites that may run work of this project; single pools of them as "site/pool"."""

    def barred(self, project: str) -> Set[str]:
        """Pools of runners that may not run work of this project, as "site/pool"."""

    def reach(self, target: str, project: str) -> Set[str]:
        """The sites, itself included, where a site may let work of this project run.

        All of them are sites whose results users here take.
        """

    def readable(self) -> Set[str]:
        """The sites whose pickled results users here take, also if they only came through them."""

    def may_send(
        self, site: str, origin: str, pool: str, project: str, slots: int, price: Tariff
    ) -> str:
        """Why a site may not have so many slots of a pool for this project; empty when it may."""


@dataclass(slots=True)
class Outcome:
    """What follows from what happened: events for the broker, effects for the outbox, in order."""

    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def happened(self, event: Event) -> None:
        """The broker is to be told."""
        self.events.append(event)

    def write(self, record: Record, *, durable: bool = False) -> None:
        """A record is to be stored."""
        self.effects.append(Write(record, durable))

    def harden(self) -> None:
        """What follows is said when all that was written survives a power cut."""
        self.effects.append(Harden())

    def say(
        self,
        site: str,
        side: Side,
        message: Deal | NeedFunction | SliceMessage,
        *,
        urgent: bool = False,
    ) -> None:
        """A message goes to another site."""
        self.effects.append(Say(site, side, message, urgent))
