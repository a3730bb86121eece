"""Reservations, as they are written and read."""

from dataclasses import dataclass

from federation.clocks import UNIX_EPOCH_S, UtcS
from gateway.ledger.db.checks import check_numbers, check_texts, check_times
from gateway.ledger.db.contracts.records import ContractSide


@dataclass(frozen=True, slots=True)
class ReservationKept:
    """The whole new state of a reservation; the record with the later step counts.

    Attributes:
        side: "sell": of one of our pools; "buy": of another site's pool, for us.
        site: the other site; empty: it is between us and a local user.
        who: the principal that it is for, as rules name it.
        whole: the booking that it is a part of.
        price_nanos: of a slot-hour.
        step: counts its records; the first is its creation time, in milliseconds since 1970, or 0.
        left_at_s: when it was cancelled.
        billed_nanos: the charge at its end, in addition to its usage; booked at `billed_at_s`.
    """

    side: ContractSide
    reservation: str
    site: str
    whole: str
    step: int
    state: str
    pool: str
    who: str
    slots: int
    from_s: UtcS
    until_s: UtcS
    price_nanos: int
    currency: str
    unused_factor: int
    cancel_factor: int
    user: str
    group: str
    project: str
    made_at_s: UtcS
    held_until_s: UtcS
    left_at_s: UtcS | None = None
    used_ns: int = 0
    billed_nanos: int = 0
    billed_at_s: UtcS = UtcS(0.0)

    def __post_init__(self) -> None:
        check_texts(self.side, self.reservation, self.site, self.whole, self.state, self.pool)
        check_texts(self.who, self.currency, self.user, self.group, self.project)
        check_numbers(
            self.step, self.slots, self.price_nanos, self.unused_factor, self.cancel_factor
        )
        check_numbers(self.used_ns, self.billed_nanos)
        check_times(
            self.from_s,
            self.until_s,
            self.made_at_s,
            self.held_until_s,
            self.left_at_s or UNIX_EPOCH_S,
        )
        check_times(self.billed_at_s)
