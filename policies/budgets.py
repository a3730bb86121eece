"""Budgets and quotas: what somebody may use up in a period, and what of it is free. Pure.

A Budget is what was written down; its Purse is where it stands at this site. In integers, in
nano-units of a currency or of slot-seconds:

    left = amount - spent - elsewhere        what is spent does not come back before the next period
    room = left - held - lent - reserved     the others do, unless it is spent

What tasks may take is *held* when they are handed out, by the most that one can come to; when they
have run it is released, and what they took is spent. So as long as nothing takes more than was
held for it, no order of events spends more than the amount. Of a budget that we own `elsewhere` is
what other sites have spent of their slices, and `lent` what they may still spend
(gateway.budgets.lending); `reserved` is kept free for those that ask for some.

What is spent belongs to the period in which it was reported, as in the books; what is held when a
period ends is held in the next.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from federation.money import NANOS_LIMIT, format_amount
from federation.reasons import Reason
from policies.parties import Kind, Party, Whose
from policies.periods import UTC_ZONE, Period, Span, period_at
from policies.tariffs import Tariff

SLOT_TIME: Final = "slot-s"  # the unit of a quota: time of slots, whatever it costs
# A task that is stopped at its time limit may have run for so much longer.
KILL_S: Final = 1.0
# Of tasks without a time limit: so many times what they take on average is held for each, and of
# those that never ran, so long.
FACTOR: Final = 2.0
UNKNOWN_S: Final = 60.0
SLICE_S: Final = 300.0


class Running(StrEnum):
    """What becomes of what runs when a budget is exhausted."""

    FINISH = "finish"
    STOP = "stop"


class Waiting(StrEnum):
    """What becomes of what waits then: it waits for the next period, or ends."""

    WAIT = "wait"
    END = "end"


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount for each period of the calendar, or for good, that a party may use up.

    Attributes:
        unit: a currency, or SLOT_TIME.
        amount_nanos: of that; of a budget that another site owns, what we have of it at a time.
        span: None: it is for good.
        is_hard: nothing starts that might take more; else it only counts.
        factor: see FACTOR; `unknown_s` likewise.
        owner: the site that has the whole of it; empty: ours.
        sites: that may have slices of it.
        slice_s: how long such a slice lasts without a word of ours.
        is_credit: it is what a site may owe us: what it has paid is not spent any more.
    """

    name: str
    party: Party
    unit: str
    amount_nanos: int
    span: Span | None = Span.MONTH
    zone: ZoneInfo = UTC_ZONE
    is_hard: bool = True
    running: Running = Running.FINISH
    waiting: Waiting = Waiting.WAIT
    factor: float = FACTOR
    unknown_s: float = UNKNOWN_S
    owner: str = ""
    sites: frozenset[str] = frozenset()
    slice_s: float = SLICE_S
    is_credit: bool = False

    @property
    def is_money(self) -> bool:
        """Whether it is about what things cost, not about time."""
        return self.unit != SLOT_TIME

    @property
    def whose(self) -> str:
        """Whom it is about, in words."""
        return str(self.party)

    def covers(self, whose: Whose) -> bool:
        """Whether somebody's work is paid from it.

        A project is that of our own users: another site may have one of that name, and has its own
        budget for it, or a slice of this one.
        """
        if self.party.kind is Kind.PROJECT and whose.site:
            return False
        return self.party.includes(whose)

    def period_at(self, now_s: float) -> Period | None:
        """The period that counts at a moment; None: there is but one."""
        return None if self.span is None else period_at(self.span, self.zone, now_s)

    def bound_nanos(
        self, tariff: Tariff, limit_s: float | None, task_s: float | None
    ) -> int | None:
        """The most that a task is taken to use up; None where it can't be paid from this.

        Args:
            tariff: by which it would be charged.
            limit_s: its time limit: then this is an upper bound. None: it has none.
            task_s: how long such tasks take on average; None: nobody knows.
        """
        if self.is_money and tariff.currency != self.unit:
            return None
        if limit_s is not None:
            time_s = limit_s + KILL_S
        elif task_s is not None:
            time_s = task_s * self.factor
        else:
            time_s = self.unknown_s
        task_ns = round(time_s * 1e9)
        return tariff.most_nanos(task_ns) if self.is_money else task_ns

    def used_nanos(self, tariff: Tariff, tasks: int, wall_ns: int) -> int:
        """What tasks use up of it that have taken so much time of their slots together."""
        return tariff.charge_nanos(tasks, wall_ns) if self.is_money else wall_ns

    def show(self, nanos: int) -> str:
        """An amount of it, as people write it."""
        return f"{format_amount(nanos)} {self.unit}"


class Purse:
    """Where a budget stands at this site. Its counts may be changed by whoever keeps to its rules.

    Attributes:
        spent_nanos: in this period.
        held_nanos: for what was handed out and is not reported; for contracts that we pay.
        elsewhere_nanos: of a budget of ours: what other sites have spent in this period.
        lent_nanos: likewise: what they have, and may spend or give back.
        reserved_nanos: what is not for us, as other sites have asked for it.
        total_nanos: spent since it was opened, in whatever period.
        allotted_nanos: of another's budget: what it has given us in all, less what we gave back.
        is_open: whether what we have of another's may be used: it lasts, and was heard of.
        refused: why its owner gives us no more now, for what uses up `refused_nanos` or more;
            empty: it may.
        short_nanos: the most that was needed and had no room since this was looked at;
        least_short_nanos: the least that a task needed of that.
    """

    __slots__ = (
        *("allotted_nanos", "budget", "elsewhere_nanos", "held_nanos", "is_open", "lent_nanos"),
        *("least_short_nanos", "period", "refused", "refused_nanos", "reserved_nanos"),
        *("short_nanos", "spent_nanos", "total_nanos", "was_told"),
    )

    def __init__(self, budget: Budget, now_s: float) -> None:
        self.budget = budget
        self.period = budget.period_at(now_s)
        self.spent_nanos = self.held_nanos = self.total_nanos = self.short_nanos = 0
        self.elsewhere_nanos = self.lent_nanos = self.reserved_nanos = self.allotted_nanos = 0
        self.is_open = not budget.owner
        self.refused, self.refused_nanos = "", 0
        self.least_short_nanos = 0
        self.was_told = False  # people, that it is exhausted

    @property
    def limit_nanos(self) -> int:
        """What may be spent here in this period."""
        if not self.budget.owner:
            return self.budget.amount_nanos
        return self.allotted_nanos - (self.total_nanos - self.spent_nanos)

    @property
    def left_nanos(self) -> int:
        """What of that is not spent, here or elsewhere; below zero when more is."""
        return self.limit_nanos - self.spent_nanos - self.elsewhere_nanos

    @property
    def free_nanos(self) -> int:
        """What nobody has, here or elsewhere; below zero when more is held than there is."""
        return self.left_nanos - self.held_nanos - self.lent_nanos

    @property
    def room_nanos(self) -> int:
        """What may still be held here; as `free_nanos`."""
        room = self.free_nanos
        kept = min(self.reserved_nanos, max(0, room))
        return room - kept if self.is_open else min(0, room)

    def fits(self, each_nanos: int, tasks: int) -> int:
        """How many of so many tasks have room that may use up so much each."""
        room = self.room_nanos
        if each_nanos * tasks <= room or not self.budget.is_hard or not each_nanos:
            return tasks
        self.lack(each_nanos)
        return max(0, room // each_nanos)

    def lack(self, one_nanos: int) -> None:
        """Note that there was no room for a task that may use up so much."""
        self.short_nanos = max(self.short_nanos, one_nanos)
        self.least_short_nanos = min(self.least_short_nanos or one_nanos, one_nanos)

    def is_exhausted(self, one_nanos: int = 1) -> bool:
        """Whether nothing more that uses up so much can be paid from it in this period.

        What is held, or lent, counts as if it came back; what costs nothing can always be paid.
        Of another's budget its owner has to say so.
        """
        if not self.budget.is_hard or not one_nanos or self.left_nanos >= one_nanos:
            return False
        return not self.budget.owner or (bool(self.refused) and one_nanos >= self.refused_nanos)

    def spend(self, nanos: int, now_s: float) -> None:
        """Count what was reported at a moment."""
        self.turn(now_s)
        self.spent_nanos += nanos
        self.total_nanos += nanos

    def turn(self, now_s: float) -> bool:
        """Begin a new period if the last one is over; a clock that is set back begins none."""
        if self.period is None or now_s < self.period.end_s:
            return False
        self.period = self.budget.period_at(now_s)
        self.spent_nanos = 0
        self.was_told = False
        return True

    def standing(self, one_nanos: int = 0) -> str:
        """Where it stands, for people; with what one task may use up, if that is the trouble."""
        budget, period = self.budget, self.period
        if budget.is_credit:
            owed, limit = budget.show(self.spent_nanos), budget.show(self.limit_nanos)
            text = f"{budget.party.name} owes {owed}, of {limit} that it may owe"
        else:
            when = f" in {period.key}" if period is not None else ""
            spent, limit = budget.show(self.spent_nanos), budget.show(self.limit_nanos)
            text = f"{spent} of {limit} is spent{when}"
            if self.elsewhere_nanos:
                text += f", {budget.show(self.elsewhere_nanos)} at other sites"
        if self.lent_nanos:
            text += f", other sites hold {budget.show(self.lent_nanos)}"
        if self.held_nanos:
            text += f", {budget.show(self.held_nanos)} is held for what runs"
        if one_nanos > 1:
            text += f"; a task may use up to {budget.show(one_nanos)}"
        return text

    def objection(self, one_nanos: int = 0) -> str:
        """Why nothing more is paid from it, with the figures, and when that may change."""
        budget, period = self.budget, self.period
        text = f"{named(budget)} is exhausted: {self.standing(one_nanos)}"
        if self.refused:
            text += f"; {budget.owner} says: {self.refused}"
        elif period is not None:
            text += f"; it begins anew {when_shown(period.end_s, budget.zone)}"
        return text


@dataclass(slots=True)
class Earmark:
    """Money that is held in several purses for one contract, and used up as it is delivered."""

    purses: tuple[Purse, ...]
    left_nanos: int

    def use(self, nanos: int) -> None:
        """Release what was delivered; whoever calls this spends it."""
        nanos = min(nanos, self.left_nanos)
        self.left_nanos -= nanos
        for purse in self.purses:
            purse.held_nanos -= nanos

    def end(self) -> None:
        """Release all of it: nothing more is delivered."""
        self.use(self.left_nanos)


def payers(purses: Iterable[Purse]) -> tuple[Purse, ...]:
    """Those that are about money."""
    return tuple(purse for purse in purses if purse.budget.is_money)


def money_room(purses: Iterable[Purse]) -> int | None:
    """What a job may be promised money for: the least room of its hard budgets; None: no limit.

    No more than a promise can say, whatever another site says that we may spend of its budget.
    """
    rooms = [each.room_nanos for each in payers(purses) if each.budget.is_hard]
    return max(0, min(*rooms, NANOS_LIMIT)) if rooms else None


def unpayable(
    purses: Iterable[Purse], currency: str | None, site: str
) -> tuple[Reason, str] | None:
    """Why nothing in a currency can be paid from somebody's purses, whatever room they have.

    Args:
        purses: all that pay for somebody's work.
        currency: that it is charged in; None: that is not known.
        site: whose user it is; empty: ours.
    """
    paying = payers(purses)
    units = [each.budget.unit for each in paying if each.budget.is_credit]
    if units and currency not in units:
        text = f"{site} has credit in {', '.join(units)} here, and none in {currency}"
        return Reason.CREDIT_LIMIT, text
    for budget in (each.budget for each in paying):
        if budget.is_hard and not budget.is_credit and budget.unit != currency:
            text = f"{named(budget)} is in {budget.unit}, and pays for nothing in {currency}"
            return Reason.CURRENCY_DIFFERS, text
    return None


def note_short(purses: Iterable[Purse]) -> None:
    """Note that those without room were asked for some."""
    for purse in payers(purses):
        if purse.budget.is_hard and purse.room_nanos <= 0:
            purse.short_nanos = max(1, purse.short_nanos)


def earmark(purses: Iterable[Purse], nanos: int, *, anyway: bool = False) -> Earmark | None:
    """Hold money for a contract in all purses that pay for it; None when there is no room.

    `anyway`: it was promised in a former life.
    """
    paying = payers(purses)
    room = money_room(paying)
    if not anyway and room is not None and nanos > room:
        return None
    for purse in paying:
        purse.held_nanos += nanos
    return Earmark(paying, nanos)


def named(budget: Budget) -> str:
    """A budget, in words."""
    if budget.is_credit:
        return f"the credit of {budget.party.name}"
    kind = "budget" if budget.is_money else "quota"
    return f"the {kind} {budget.name!r} ({budget.party})"


def when_shown(at_s: float, zone: ZoneInfo) -> str:
    """A moment by the clock of a zone, as people write it."""
    return f"{datetime.fromtimestamp(at_s, zone):%Y-%m-%d %H:%M} {zone.key}"
