"""Shares of a pool by claim: guaranteed, lent and borrowed slots. Pure.

Each claim has a floor, `guaranteed`. It says how much of the floor others may use while it is idle
(`lends`), and how many free or lent slots beyond it its party may use (`borrows`). Work belongs to
the first claim whose party includes it, in the owner's order; work outside all claims has no
guarantee, and may borrow everything. Lent slots are called back when their owner has work for them.

With slots N, guaranteed gᵢ, lent lᵢ ≤ gᵢ, borrowed bᵢ, used uᵢ:
    most of i            mᵢ = min(N, gᵢ + bᵢ)
    kept from i          kᵢ = Σ_{j≠i} max(0, gⱼ - lⱼ - uⱼ)
    more for i           min(mᵢ - uᵢ, N - Σu - kᵢ), and at least 0
    to be called back    of those with u > g, for those with u < g and queued work

(Symphony's ownership, lending and borrowing; Kueue's lending and borrowing limits.)

Reserved slots are taken out before all of that. A reservation is a claim of its own that lends and
borrows nothing, and no other claim gets more than the remainder. Its work is the work handed out at
its tariff; other work of its party belongs to the party's ordinary claim.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federation.clocks import UtcS
from policies.parties import ALL, Owner, Party
from policies.tariffs import Tariff

SLOTS_MAX: Final = 10**8
CLAIMS_MAX: Final = 64
PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,2})?) ?%", re.ASCII)
WHOLE: Final = 10_000  # hundredths of a percent


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of a pool's slots: absolute, or in hundredths of a percent of the total."""

    slots: int | None = None
    part: int = WHOLE

    def of(self, total: int) -> int:
        """Return the number of slots out of a total: whole slots, rounded down."""
        if self.slots is not None:
            return min(self.slots, total)
        return total * self.part // WHOLE

    def __str__(self) -> str:
        if self.slots is not None:
            return str(self.slots)
        return f"{self.part / 100:g}%"


NOTHING: Final = Amount(0)
EVERYTHING: Final = Amount()


def read_amount(value: object) -> Amount:
    """Parse `40`, `"25%"`, or the same share as `0.25`. Raise ValueError."""
    if type(value) is int and 0 <= value <= SLOTS_MAX:
        return Amount(value)
    if isinstance(value, float) and 0 < value < 1:
        return Amount(part=round(value * WHOLE))
    found = PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or (part := round(float(found[1]) * 100)) > WHOLE:
        raise ValueError(
            f"{value!r:.40} is not a number of slots: write a number such as 40, or a share "
            'such as "25%"'
        )
    return Amount(part=part)


@dataclass(frozen=True, slots=True)
class Claim:
    """A party's rights to a pool."""

    who: Party
    guaranteed: Amount = NOTHING
    lends: Amount = EVERYTHING  # of the guaranteed slots
    borrows: Amount = EVERYTHING  # of the pool, beyond the guaranteed slots
    elsewhere: bool | None = None  # whether its work may leave; None: if it has no guarantee

    @property
    def stays(self) -> bool:
        """Whether its work stays at this site."""
        if self.elsewhere is not None:
            return not self.elsewhere
        return self.guaranteed != NOTHING


REST: Final = Claim(ALL)


@dataclass(frozen=True, slots=True)
class ReservedSlots:
    """Slots that are reserved for a party.

    Attributes:
        tariff: the tariff at booking, which names the reservation.
        until_s: the end of the reservation, UTC.
        is_booked: whether a buyer will pay for them; else they are held, and may be released.
    """

    who: Party
    slots: int
    tariff: Tariff
    until_s: UtcS = UtcS(0.0)
    is_booked: bool = True

    @property
    def reservation(self) -> str:
        """The id of the reservation."""
        return self.tariff.reservation

    @property
    def claim(self) -> Claim:
        """The reservation as a claim on a pool."""
        return Claim(self.who, Amount(self.slots), NOTHING, NOTHING)


@dataclass(frozen=True, slots=True)
class ClaimLevel:
    """A claim in slots."""

    guaranteed: int
    kept: int  # the part of it that is never lent
    most: int


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims on a pool, in the owner's order. All other work belongs to REST.

    Attributes:
        reserved: the reservations, the first booked first.

    Raises:
        ValueError: more than everything is guaranteed, or a party is named twice.
    """

    named: tuple[Claim, ...] = ()
    reserved: tuple[ReservedSlots, ...] = ()

    def __post_init__(self) -> None:
        names = [str(each.who) for each in self.named]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is listed twice")
        if len(names) > CLAIMS_MAX:
            raise ValueError(f"there are more than {CLAIMS_MAX}")
        parts = [each.guaranteed.part for each in self.named if each.guaranteed.slots is None]
        if sum(parts) > WHOLE:
            raise ValueError(f"the guarantees add up to {sum(parts) / 100:g} % of the slots")

    @property
    def all(self) -> tuple[Claim, ...]:
        """The named claims, then REST, then the reservations."""
        return (*self.named, REST, *(each.claim for each in self.reserved))

    @property
    def first_reserved(self) -> int:
        """The index of the first reservation in `all`."""
        return len(self.named) + 1

    @property
    def is_trivial(self) -> bool:
        """Whether there are no claims or reservations, so that everything is open to all."""
        return not self.named and not self.reserved

    def of(self, whose: Owner) -> int:
        """Return the index of the claim of an owner's work, except work in a reservation."""
        return next(at for at, each in enumerate(self.all) if each.who.includes(whose))

    def levels(self, total: int) -> list[ClaimLevel]:
        """Convert the claims to slots, for a total.

        When there are fewer slots than are guaranteed, the first claims get theirs first, and
        reservations before all others.
        """
        left = total
        reserved = []
        for seats in self.reserved:
            slots = min(seats.slots, left)
            left -= slots
            reserved.append(ClaimLevel(slots, slots, slots))
        room = left
        found = []
        for each in (*self.named, REST):
            guaranteed = min(each.guaranteed.of(total), left)
            left -= guaranteed
            most = min(room, guaranteed + each.borrows.of(total))
            kept = guaranteed - each.lends.of(guaranteed)
            found.append(ClaimLevel(guaranteed, kept, most))
        return found + reserved


def more(levels: Sequence[ClaimLevel], used: Mapping[int, int], total: int, claim: int) -> int:
    """Return how many more slots the work of a claim may take now."""
    kept = sum(max(0, each.kept - used.get(at, 0)) for at, each in enumerate(levels) if at != claim)
    free = total - sum(used.values()) - kept
    return max(0, min(levels[claim].most - used.get(claim, 0), free))


def excess(levels: Sequence[ClaimLevel], used: Mapping[int, int]) -> dict[int, int]:
    """Return the slots, by claim, that its work holds beyond its limit."""
    found = {at: used.get(at, 0) - each.most for at, each in enumerate(levels)}
    return {at: slots for at, slots in found.items() if slots > 0}


def surplus(levels: Sequence[ClaimLevel], used: Mapping[int, int]) -> dict[int, int]:
    """Return the slots, by claim, that its work has beyond its guarantee, the most first.

    These alone are called back for claims below their guarantee.
    """
    over = {at: used.get(at, 0) - each.guaranteed for at, each in enumerate(levels)}
    return {at: over[at] for at in sorted(over, key=lambda at: (-over[at], at)) if over[at] > 0}
