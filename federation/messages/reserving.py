"""The messages between two gateways about slots that one reserves at the other.

    buyer                                          seller
      Reserve(hold) ────────────────────────────────►     slots are held for a moment
      ◄──────────────────────────────────── Reserved      held, at this price; or refused
      Reserve(book) ────────────────────────────────►     once all sites hold theirs
      ◄──────────────────────────────────── Reserved      booking
      Reserve(keep) ────────────────────────────────►     once all sites have booked theirs
      ◄──────────────────────────────────── Reserved      booked; later ended, with the bill
      Reserve(settle) ──────────────────────────────►     the bill is booked, and will be paid
      ◄──────────────────────────────────── Reserved      settled
      Reserve(release) ─────────────────────────────►     not wanted any more
      ◄──────────────────────────────────── Reserved      cancelled, or expired

Both travel sealed. Each is repeated until it is answered, and a repetition changes nothing;
policies.reservations.coallocation explains why this books all or nothing. `reservation` is the
buyer's name for it, of the form of a contract's, never used twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from federation.messages.registry import FromBuyer, FromSeller, Receiver
from federation.messages.wire import Count, Text


class Step(StrEnum):
    """The step that a buyer requests for a reservation."""

    HOLD = "hold"
    BOOK = "book"
    KEEP = "keep"
    SETTLE = "settle"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Reserve(FromBuyer, to=Receiver.RESERVED_HERE, sealed=True):
    """Apply a step to a reservation: `slots` of `pool` (empty: of any) in [from_ms, until_ms).

    `user` is the user at the buyer's site that it is for; empty: for all its work. Each message
    repeats every field.
    """

    kind: ClassVar[str] = "reserve"
    reservation: Text
    step: Text
    pool: Text
    slots: Count
    from_ms: Count
    until_ms: Count
    user: Text
    project: Text


@dataclass(frozen=True, slots=True)
class Reserved(FromSeller, to=Receiver.RESERVED_THERE, sealed=True):
    """The state of a reservation at the seller, or "refused" with the reason.

    `price_nanos` is the price of a slot-hour; the factors are millionths of that for unused time
    and for the time left at a cancellation. `lease_ms` is how long it is held. Once it is over,
    `used_ns` of slot time were used, and `billed_nanos` are charged in addition, as of `at_ms`.
    """

    kind: ClassVar[str] = "reserved"
    reservation: Text
    state: Text
    reason: Text
    pool: Text
    price_nanos: Count
    currency: Text
    unused_factor: Count
    cancel_factor: Count
    lease_ms: Count
    used_ns: Count
    billed_nanos: Count
    at_ms: Count
