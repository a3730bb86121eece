"""Budgets and quotas: limits on consumption in a period, and the amount still free. Pure.

A Budget is the configured limit; its BudgetAccount is its state at this site. All amounts are
integers, in nano-units of a currency or of slot-seconds:

    left = amount - spent - elsewhere        spent amounts do not return before the next period
    room = left - held - lent - reserved     the others return, unless they are spent

Handing out tasks *holds* the most that each can cost. When they have run, the hold is released and
the actual cost is spent. So as long as nothing costs more than its hold, no order of events spends
more than the amount. For a budget that this site owns, `elsewhere` is the part of their slices that
other sites have spent, `lent` the part that they may still spend
(gateway.contracts.slices.lending), and `reserved` is kept free for sites that request a slice.

Spending belongs to the period in which it was reported, as in the books. Amounts that are held when
a period ends stay held in the next.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from federation.clocks import UtcS
from federation.money import NANOS_LIMIT, format_amount
from federation.reasons import Reason
from policies.calendar.periods import UTC_ZONE, Period, PeriodLength, period_at
from policies.parties import Owner, Party, PartyKind
from policies.tariffs import Tariff

SLOT_TIME: Final = "slot-s"  # the unit of a quota: slot time, at any cost
# A task that is stopped at its time limit may have run longer by this much.
KILL_S: Final = 1.0
# For a task without a time limit, the hold is this many times the average task; for a function that
# has never run, UNKNOWN_S seconds.
FACTOR: Final = 2.0
UNKNOWN_S: Final = 60.0
SLICE_S: Final = 300.0


class Running(StrEnum):
    """The fate of running tasks when a budget is exhausted."""

    FINISH = "finish"
    STOP = "stop"


class Waiting(StrEnum):
    """The fate of queued tasks when a budget is exhausted: wait for the next period, or end."""

    WAIT = "wait"
    END = "end"


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount that a party may use up in each calendar period, or once.

    Attributes:
        unit: a currency, or SLOT_TIME.
        amount_nanos: in that unit; for a budget that another site owns, the size of this site's
            slice.
        span: the kind of period; None: the budget is not periodic.
        is_hard: work that might exceed it does not start; else it only counts.
        factor: see FACTOR; `unknown_s`: see UNKNOWN_S.
        owner: the site that owns the whole budget; empty: this site.
        sites: the sites that may have slices of it.
        slice_s: how long such a slice is valid without a message from the owner.
        is_credit: it is the most that a site may owe this site; paid amounts no longer count as
            spent.
    """

    name: str
    party: Party
    unit: str
    amount_nanos: int
    span: PeriodLength | None = PeriodLength.MONTH
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
        """Whether it limits money, not time."""
        return self.unit != SLOT_TIME

    @property
    def whose(self) -> str:
        """The party, in words."""
        return str(self.party)

    def covers(self, whose: Owner) -> bool:
        """Whether work of this owner is paid from the budget.

        A project means one of this site's own. Another site may have a project of the same name,
        and has its own budget for it, or a slice of this one.
        """
        if self.party.kind is PartyKind.PROJECT and whose.site:
            return False
        return self.party.counts(whose)

    def period_at(self, utc_s: UtcS) -> Period | None:
        """The period at a time; None for a budget that is not periodic."""
        return None if self.span is None else period_at(self.span, self.zone, utc_s)

    def bound_nanos(
        self, tariff: Tariff, limit_s: float | None, task_s: float | None
    ) -> int | None:
        """Return the most that a task is assumed to use up; None if this budget can't pay for it.

        Args:
            tariff: the tariff that would apply.
            limit_s: its time limit, which makes the result an upper bound. None: it has none.
            task_s: the average duration of such tasks; None: unknown.
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
        """Return the amount that tasks use up with this total slot time."""
        return tariff.charge_nanos(tasks, wall_ns) if self.is_money else wall_ns

    def show(self, nanos: int) -> str:
        """Format an amount with the budget's unit."""
        return f"{format_amount(nanos)} {self.unit}"


class BudgetAccount:
    """The state of a budget at this site. Callers that keep its invariants may change the counts.

    Attributes:
        spent_nanos: in this period.
        held_nanos: for tasks that are handed out and not reported, and for contracts that this site
            pays for.
        elsewhere_nanos: for a budget that this site owns, the spending of other sites in this
            period.
        lent_nanos: likewise, the amount that other sites hold, and may spend or give back.
        reserved_nanos: the amount kept free because other sites have requested it.
        total_nanos: spent since it was opened, over all periods.
        allotted_nanos: for another site's budget, all that the owner has given this site, less the
            amounts given back.
        is_open: whether this site's slice of another's budget may be used: it is valid and
            confirmed.
        refused: why the owner gives no more now for work that needs `refused_nanos` or more; empty:
            it may give more.
        short_nanos: the largest need that found no room since this was last read;
        least_short_nanos: the smallest such need of a task.
    """

    __slots__ = (
        *("allotted_nanos", "budget", "elsewhere_nanos", "held_nanos", "is_open", "lent_nanos"),
        *("least_short_nanos", "period", "refused", "refused_nanos", "reserved_nanos"),
        *("short_nanos", "spent_nanos", "total_nanos", "was_told"),
    )

    def __init__(self, budget: Budget, utc_s: UtcS) -> None:
        self.budget = budget
        self.period = budget.period_at(utc_s)
        self.spent_nanos = self.held_nanos = self.total_nanos = self.short_nanos = 0
        self.elsewhere_nanos = self.lent_nanos = self.reserved_nanos = self.allotted_nanos = 0
        self.is_open = not budget.owner
        self.refused, self.refused_nanos = "", 0
        self.least_short_nanos = 0
        self.was_told = False  # whether people were told that it is exhausted

    @property
    def limit_nanos(self) -> int:
        """The amount that may be spent here in this period."""
        if not self.budget.owner:
            return self.budget.amount_nanos
        return self.allotted_nanos - (self.total_nanos - self.spent_nanos)

    @property
    def left_nanos(self) -> int:
        """The part of the limit that is unspent, here and elsewhere; negative when exceeded."""
        return self.limit_nanos - self.spent_nanos - self.elsewhere_nanos

    @property
    def free_nanos(self) -> int:
        """The part that is not spent, held or lent; negative when more is held than there is."""
        return self.left_nanos - self.held_nanos - self.lent_nanos

    @property
    def room_nanos(self) -> int:
        """The amount that can still be held here; may be negative, like `free_nanos`."""
        room = self.free_nanos
        kept = min(self.reserved_nanos, max(0, room))
        return room - kept if self.is_open else min(0, room)

    def fits(self, each_nanos: int, tasks: int) -> int:
        """Return how many of `tasks` have room, if each may use up `each_nanos`."""
        room = self.room_nanos
        if each_nanos * tasks <= room or not self.budget.is_hard or not each_nanos:
            return tasks
        self.lack(each_nanos)
        return max(0, room // each_nanos)

    def lack(self, one_nanos: int) -> None:
        """Note that there was no room for a task that may use up `one_nanos`."""
        self.short_nanos = max(self.short_nanos, one_nanos)
        self.least_short_nanos = min(self.least_short_nanos or one_nanos, one_nanos)

    def is_exhausted(self, one_nanos: int = 1) -> bool:
        """Whether nothing more that costs `one_nanos` can be paid from it in this period.

        Held and lent amounts count as if they returned; work that costs nothing can always be paid.
        For another site's budget, the owner has to refuse first.
        """
        if not self.budget.is_hard or not one_nanos or self.left_nanos >= one_nanos:
            return False
        return not self.budget.owner or (bool(self.refused) and one_nanos >= self.refused_nanos)

    def spend(self, nanos: int, utc_s: UtcS) -> None:
        """Count an amount that was reported at a time."""
        self.turn(utc_s)
        self.spent_nanos += nanos
        self.total_nanos += nanos

    def turn(self, utc_s: UtcS) -> bool:
        """Begin a new period if the last one is over; a clock that is set back begins none."""
        if self.period is None or utc_s < self.period.end_at_s:
            return False
        self.period = self.budget.period_at(utc_s)
        self.spent_nanos = 0
        self.was_told = False
        return True

    def standing(self, one_nanos: int = 0) -> str:
        """Describe its state for people; include the cost of one task if that is the problem."""
        budget, period = self.budget, self.period
        if budget.is_credit:
            owed, limit = budget.show(self.spent_nanos), budget.show(self.limit_nanos)
            text = f"{budget.party.name} owes {owed}, of a credit limit of {limit}"
        else:
            when = f" in {period.key}" if period is not None else ""
            spent, limit = budget.show(self.spent_nanos), budget.show(self.limit_nanos)
            text = f"{spent} of {limit} is spent{when}"
            if self.elsewhere_nanos:
                text += f", {budget.show(self.elsewhere_nanos)} at other sites"
        if self.lent_nanos:
            text += f", {budget.show(self.lent_nanos)} is held by other sites"
        if self.held_nanos:
            text += f", {budget.show(self.held_nanos)} is held for running work"
        if one_nanos > 1:
            text += f"; a task may cost up to {budget.show(one_nanos)}"
        return text

    def used_up(self) -> str:
        """Say, for a progress bar, that nothing more is paid from it, and until when."""
        text = f"{named(self.budget).removeprefix('the ')} is used up"
        if self.refused:
            return f"{text}; {self.budget.owner} says: {self.refused}"
        if self.period is not None:
            return f"{text} until {when_shown(self.period.end_at_s, self.budget.zone)}"
        if self.budget.is_credit:  # it returns with the payments of the other site
            return text
        owner = self.budget.owner or "this site"
        return f"{text} for good, as it has no period: an operator of {owner} can raise its amount"

    def objection(self, one_nanos: int = 0) -> str:
        """Explain why nothing more is paid from it, with the figures, and when that may change."""
        budget = self.budget
        is_short = 0 < self.left_nanos < one_nanos
        state = "has too little left for a task" if is_short else "is exhausted"
        text = f"{named(budget)} {state}: {self.standing(one_nanos)}"
        return text + (
            f"; {budget.owner} says: {self.refused}" if self.refused else self.next_period()
        )

    def next_period(self) -> str:
        """Say when its next period begins, as the end of a sentence; empty without periods."""
        if self.period is None:
            return ""
        return f"; the next period begins {when_shown(self.period.end_at_s, self.budget.zone)}"


@dataclass(slots=True)
class Earmark:
    """Money held in several budgets for one contract, and used up as the contract is delivered."""

    budget_accounts: tuple[BudgetAccount, ...]
    left_nanos: int

    def use(self, nanos: int) -> None:
        """Release the amount that was delivered; the caller spends it."""
        nanos = min(nanos, self.left_nanos)
        self.left_nanos -= nanos
        for budget_account in self.budget_accounts:
            budget_account.held_nanos -= nanos

    def is_in(self, budget_accounts: Collection[BudgetAccount]) -> bool:
        """Whether one of these budgets still holds some of it."""
        return self.left_nanos > 0 and any(each in budget_accounts for each in self.budget_accounts)

    def end(self) -> None:
        """Release all of it: nothing more is delivered."""
        self.use(self.left_nanos)


def payers(budget_accounts: Iterable[BudgetAccount]) -> tuple[BudgetAccount, ...]:
    """Return the budgets of money budgets."""
    return tuple(
        budget_account for budget_account in budget_accounts if budget_account.budget.is_money
    )


def hard_payers(budget_accounts: Iterable[BudgetAccount]) -> tuple[BudgetAccount, ...]:
    """Return those of the money budgets without whose room no work begins."""
    return tuple(each for each in payers(budget_accounts) if each.budget.is_hard)


def money_room(budget_accounts: Iterable[BudgetAccount]) -> int | None:
    """Return the money that a job can be promised: the least room of its hard budgets, or None.

    None means no limit. The result never exceeds the maximum of a promise, even if another site
    grants more of its own budget.
    """
    rooms = [each.room_nanos for each in hard_payers(budget_accounts)]
    return max(0, min(*rooms, NANOS_LIMIT)) if rooms else None


def unpayable(
    budget_accounts: Iterable[BudgetAccount], currency: str | None, site: str
) -> tuple[Reason, str] | None:
    """Explain why work in a currency can't be paid from any of the budgets, whatever their room.

    Args:
        budget_accounts: all that pay for the owner's work.
        currency: the currency of the charge; None: unknown.
        site: the owner's site; empty: this site.
    """
    paying = payers(budget_accounts)
    units = [each.budget.unit for each in paying if each.budget.is_credit]
    if units and currency not in units:
        text = f"{site} has credit in {', '.join(units)} at this site, not in {currency}"
        return Reason.CREDIT_LIMIT, text
    for budget in (each.budget for each in paying):
        if budget.is_hard and not budget.is_credit and budget.unit != currency:
            text = f"{named(budget)} is in {budget.unit}, and can't pay for work in {currency}"
            return Reason.CURRENCY_DIFFERS, text
    return None


def note_short(budget_accounts: Iterable[BudgetAccount], one_nanos: int) -> None:
    """Note in each hard money budget that it has no room for a task of `one_nanos`, where so."""
    for budget_account in hard_payers(budget_accounts):
        if budget_account.room_nanos < one_nanos:
            budget_account.lack(one_nanos)


def earmark(
    budget_accounts: Iterable[BudgetAccount], nanos: int, *, anyway: bool = False
) -> Earmark | None:
    """Hold money for a contract in all budgets that pay for it; return None when there is no room.

    `anyway`: hold without a check, for a contract promised in an earlier run of this site.
    """
    paying = payers(budget_accounts)
    room = money_room(paying)
    if not anyway and room is not None and nanos > room:
        return None
    for budget_account in paying:
        budget_account.held_nanos += nanos
    return Earmark(paying, nanos)


def named(budget: Budget) -> str:
    """Name a budget in words."""
    if budget.is_credit:
        return f"the credit of {budget.party.name}"
    kind = "budget" if budget.is_money else "quota"
    return f"the {kind} {budget.name!r} ({budget.party})"


def when_shown(at_s: UtcS, zone: ZoneInfo) -> str:
    """Format a time by the clock of a zone, for people."""
    return f"{datetime.fromtimestamp(float(at_s), zone):%Y-%m-%d %H:%M} {zone.key}"
