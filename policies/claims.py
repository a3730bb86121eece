"""Who may use how much of a pool: what is guaranteed, lent, and borrowed. Pure.

Each claim has a floor, `guaranteed`, and says how much of it others may have while it is not used
(`lends`), and how many slots beyond it its party may have of what is free or lent (`borrows`). Work
belongs to the first claim whose party includes it, in the owner's order; who is in none has nothing
guaranteed, and may borrow everything. What is lent is called back when its owner has work for it.

With slots N, guaranteed gᵢ, lent lᵢ ≤ gᵢ, borrowed bᵢ, used uᵢ:
    most of i            mᵢ = min(N, gᵢ + bᵢ)
    kept from i          kᵢ = Σ_{j≠i} max(0, gⱼ - lⱼ - uⱼ)
    more for i           min(mᵢ - uᵢ, N - Σu - kᵢ), and at least 0
    to be called back    of those with u > g, for those with u < g and work that waits
(Symphony's ownership, lending and borrowing; Kueue's lending and borrowing limits.)

What is reserved is taken out before all of that: a reservation is a claim of its own, that lends
and borrows nothing, and of the others none has more than what is left. Work is in it that is given
out by its tariff; its party's other work belongs to the claim that it always belongs to.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies.parties import ALL, Party, Whose
from policies.tariffs import Tariff

SLOTS_MAX: Final = 10**8
CLAIMS_MAX: Final = 64
PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,2})?) ?%", re.ASCII)
WHOLE: Final = 10_000  # hundredths of a percent


@dataclass(frozen=True, slots=True)
class Amount:
    """Some of a pool's slots: so many, or so many hundredths of a percent of what there are."""

    slots: int | None = None
    part: int = WHOLE

    def of(self, total: int) -> int:
        """How many that are of so many slots: whole ones, rounded down."""
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
    """Read `40` or `"25%"`. Raises ValueError."""
    if type(value) is int and 0 <= value <= SLOTS_MAX:
        return Amount(value)
    found = PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or (part := round(float(found[1]) * 100)) > WHOLE:
        raise ValueError(f'{value!r:.40} is no number of slots: write one, as 40, or as "25%"')
    return Amount(part=part)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a party may use of a pool."""

    who: Party
    guaranteed: Amount = NOTHING
    lends: Amount = EVERYTHING  # of what is guaranteed
    borrows: Amount = EVERYTHING  # of the pool, beyond what is guaranteed


REST: Final = Claim(ALL)


@dataclass(frozen=True, slots=True)
class Seats:
    """Slots that are reserved for a party.

    Attributes:
        tariff: what they were booked at; its version names the reservation.
        until_s: when they are everybody's again, UTC.
        is_booked: whether somebody will pay for them; else they are held, and may be let go.
    """

    who: Party
    slots: int
    tariff: Tariff
    until_s: float = 0.0
    is_booked: bool = True

    @property
    def name(self) -> str:
        """Names the reservation, also on usage records."""
        return self.tariff.version

    @property
    def claim(self) -> Claim:
        """As a claim on a pool."""
        return Claim(self.who, Amount(self.slots), NOTHING, NOTHING)


@dataclass(frozen=True, slots=True)
class Level:
    """A claim in slots."""

    guaranteed: int
    kept: int  # of it, that nobody else ever has
    most: int


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims on a pool, in the owner's order. What is in none of them is everybody else's.

    Attributes:
        reserved: what is reserved besides, the first booked first.

    Raises:
        ValueError: more than everything is guaranteed, or a party is named twice.
    """

    named: tuple[Claim, ...] = ()
    reserved: tuple[Seats, ...] = ()

    def __post_init__(self) -> None:
        names = [str(each.who) for each in self.named]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is named twice")
        if len(names) > CLAIMS_MAX:
            raise ValueError(f"there may be {CLAIMS_MAX} at most")
        parts = [each.guaranteed.part for each in self.named if each.guaranteed.slots is None]
        if sum(parts) > WHOLE:
            raise ValueError(f"{sum(parts) / 100:g} % of the slots are guaranteed")

    @property
    def all(self) -> tuple[Claim, ...]:
        """The claims, then everybody else's, then what is reserved."""
        return (*self.named, REST, *(each.claim for each in self.reserved))

    @property
    def first_reserved(self) -> int:
        """Which of all is the first reservation."""
        return len(self.named) + 1

    @property
    def is_trivial(self) -> bool:
        """Whether everybody may use everything."""
        return not self.named and not self.reserved

    def of(self, whose: Whose) -> int:
        """Which claim somebody's work belongs to, but for what is given out as reserved."""
        return next(at for at, each in enumerate(self.all) if each.who.includes(whose))

    def levels(self, total: int) -> list[Level]:
        """The claims in slots, when there are so many.

        When fewer slots are there than are guaranteed, the first claims have theirs first; what is
        reserved before all others.
        """
        left = total
        reserved = []
        for seats in self.reserved:
            slots = min(seats.slots, left)
            left -= slots
            reserved.append(Level(slots, slots, slots))
        room = left
        found = []
        for each in (*self.named, REST):
            guaranteed = min(each.guaranteed.of(total), left)
            left -= guaranteed
            most = min(room, guaranteed + each.borrows.of(total))
            kept = guaranteed - each.lends.of(guaranteed)
            found.append(Level(guaranteed, kept, most))
        return found + reserved


def more(levels: Sequence[Level], used: Mapping[int, int], total: int, claim: int) -> int:
    """How many more slots the work of a claim may take now."""
    kept = sum(max(0, each.kept - used.get(at, 0)) for at, each in enumerate(levels) if at != claim)
    free = total - sum(used.values()) - kept
    return max(0, min(levels[claim].most - used.get(claim, 0), free))


def excess(levels: Sequence[Level], used: Mapping[int, int]) -> dict[int, int]:
    """By claim, the slots that its work has and may not have."""
    found = {at: used.get(at, 0) - each.most for at, each in enumerate(levels)}
    return {at: slots for at, slots in found.items() if slots > 0}


def called_back(
    levels: Sequence[Level], used: Mapping[int, int], wanted: Mapping[int, int], total: int
) -> dict[int, int]:
    """By claim, the slots that its work must give up for those who have work and less than theirs.

    Who is furthest over what is guaranteed gives first; nobody gives of what is guaranteed.

    Args:
        wanted: by claim, the slots that its waiting work could use.
    """
    short = sum(
        min(slots, max(0, levels[at].guaranteed - used.get(at, 0))) for at, slots in wanted.items()
    )
    short -= max(0, total - sum(used.values()))
    over = {at: used.get(at, 0) - each.guaranteed for at, each in enumerate(levels)}
    found: dict[int, int] = {}
    for at in sorted(over, key=lambda at: (-over[at], at)):
        slots = min(short, over[at])
        if slots <= 0:
            break
        found[at] = slots
        short -= slots
    return found
