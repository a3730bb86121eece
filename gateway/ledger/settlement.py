"""What two sites owe each other: statements of account, which both sides get equal. Pure.

A statement is made of what both have booked: deliveries that were paid for and reversals, with the
same time (gateway.bookkeeper compares them), and payments, by the same reference, each when its
people saw it. So the balance at one site is that at the other with the sign changed, to the
nano-unit, but for payments that one alone has booked by then, and for what one has written off.
What has no verdict yet is held: it is told apart, and in no balance; nor is what was voided.

As there is one account for each site and currency, what is sold and bought is netted by itself: the
balance is what one of the two has to pay.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from federation.errors import ProtocolError
from federation.payments import Line, Match, lines_of, match
from federation.reconciliation import Sums
from federation.wire import unpack

from .records import PaymentsTold, StatementKept
from .rows import PaymentRow

ONLY_TOLD_MAX: Final = 5  # currencies in which another site alone says that something was paid


@dataclass(frozen=True, slots=True)
class Turnover:
    """What was between us and a site in a time, in one currency; amounts in nano-units.

    Attributes:
        sold: to it, and paid for; `refunded` what of that was reversed, then or before.
        bought: from it; `credited` what of that was reversed.
        paid, received: payments and conversions, less what was undone.
        written_off: what will never be paid to us, less what we will never pay; this site's own
            judgement, which the other one need not share.
        held_sold, held_bought: delivered, and without a verdict.
        void_sold, void_bought: delivered, and not paid for, by the buyer's verdict: in no balance.
    """

    sold: int = 0
    refunded: int = 0
    bought: int = 0
    credited: int = 0
    paid: int = 0
    received: int = 0
    written_off: int = 0
    held_sold: int = 0
    held_bought: int = 0
    sold_tasks: int = 0
    bought_tasks: int = 0
    void_sold: int = 0
    void_bought: int = 0
    void_sold_tasks: int = 0
    void_bought_tasks: int = 0

    @property
    def net(self) -> int:
        """What it adds to what the site owes us."""
        traded = self.sold - self.refunded - self.bought + self.credited
        return traded + self.paid - self.received - self.written_off


@dataclass(frozen=True, slots=True)
class Statement:
    """An account of one site and currency: what was owed before, what came, what is owed then.

    Above zero the site owes us, below we owe it.

    Attributes:
        unconfirmed_nanos: what payments have added to the balance that the site has not, by now.
        to_confirm_nanos: what payments would add that it has and we have not.
    """

    site: str
    currency: str
    opening_nanos: int
    turnover: Turnover
    unconfirmed_nanos: int = 0
    to_confirm_nanos: int = 0

    @property
    def balance_nanos(self) -> int:
        """What is owed at the end."""
        return self.opening_nanos + self.turnover.net


def statements_of(
    site: str,
    before: Mapping[str, Turnover],
    within: Mapping[str, Turnover],
    paid: Iterable[Match] = (),
) -> list[Statement]:
    """A statement for each currency in which there is anything; `paid` is what `matches` found.

    Of currencies in which nothing is booked here, and that the other site alone says it paid in,
    there are at most ONLY_TOLD_MAX, the first by name: it may name as many as it likes.
    """
    here: dict[str, int] = {}
    there: dict[str, int] = {}
    for each in paid:
        if not each.is_even:
            for sums, line, sign in ((here, each.ours, 1), (there, each.theirs, -1)):
                if line is not None:
                    nanos = sums.get(line.currency, 0) + sign * line.effect_nanos
                    sums[line.currency] = nanos
    booked = {*before, *within, *here}
    only_told = sorted(there.keys() - booked)[:ONLY_TOLD_MAX]
    return [
        Statement(
            site,
            currency,
            before[currency].net if currency in before else 0,
            within.get(currency, Turnover()),
            here.get(currency, 0),
            there.get(currency, 0),
        )
        for currency in sorted({*booked, *only_told})
    ]


def turnovers(
    sold: Mapping[str, Sums],
    bought: Mapping[str, Sums],
    moved: Iterable[tuple[str, str, int]] = (),
    void_sold: Mapping[str, Sums] = MappingProxyType({}),
    void_bought: Mapping[str, Sums] = MappingProxyType({}),
) -> dict[str, Turnover]:
    """Put together what was sold, bought and moved, by currency; `moved` is what it yields."""
    sums: dict[str, dict[str, int]] = {}
    for currency, name, nanos in moved:
        of_currency = sums.setdefault(currency, {})
        of_currency[name] = of_currency.get(name, 0) + nanos
    found = {}
    for currency in {*sold, *bought, *sums, *void_sold, *void_bought}:
        ours, theirs = sold.get(currency, Sums()), bought.get(currency, Sums())
        void, refused = void_sold.get(currency, Sums()), void_bought.get(currency, Sums())
        found[currency] = Turnover(
            sold=ours.cost_nanos,
            refunded=ours.reversed_nanos,
            bought=theirs.cost_nanos,
            credited=theirs.reversed_nanos,
            held_sold=ours.pending_nanos,
            held_bought=theirs.pending_nanos,
            sold_tasks=ours.tasks,
            bought_tasks=theirs.tasks,
            void_sold=void.cost_nanos,
            void_bought=refused.cost_nanos,
            void_sold_tasks=void.tasks,
            void_bought_tasks=refused.tasks,
            **sums.get(currency, {}),
        )
    return found


def moved(
    payments: Iterable[PaymentRow], start_s: float, end_s: float
) -> Iterator[tuple[str, str, int]]:
    """Yield what payments come to in [start_s, end_s): currency, column of a turnover, amount.

    What was undone counts from when it was booked to when it was undone: a time that both sites
    have compared stays as it was.
    """
    for each in payments:
        column, nanos = str(each.direction), each.amount_nanos
        if each.through == "loss":
            column, nanos = "written_off", nanos if column == "received" else -nanos
        if start_s <= each.paid_at_s < end_s:
            yield each.currency, column, nanos
        if each.undone_at_s is not None and start_s <= each.undone_at_s < end_s:
            yield each.currency, column, -nanos


def void_share(delivered: Mapping[str, Sums], void: Mapping[str, Sums]) -> float:
    """What share of the slot time that has a verdict is void: 0 to 1."""
    void_ns = sum(each.wall_ns for each in void.values())
    whole_ns = void_ns + sum(each.wall_ns for each in delivered.values())
    return void_ns / whole_ns if whole_ns else 0.0


def lines(payments: Iterable[PaymentRow]) -> list[Line]:
    """What both sites have to have: all but what was undone, and what is written off."""
    return [
        Line(
            each.reference,
            each.currency,
            each.direction,
            each.amount_nanos,
            round(each.paid_at_s * 1000),
        )
        for each in payments
        if each.stands and each.through != "loss"
    ]


def matches(payments: Iterable[PaymentRow], told: PaymentsTold | None) -> list[Match]:
    """What we and one site have booked of payments, side by side; `told` is what it said last.

    What can't be read any more is as if it had never been told: `gridfed audit` names it.
    """
    ours, theirs, since_ms = lines(payments), None, 0
    if told is not None:
        with suppress(ProtocolError):
            theirs, since_ms = lines_of(unpack(told.lines, len(told.lines))), told.since_ms
    return match(ours, theirs, since_ms)


def agreed_until(
    kept: Iterable[StatementKept], next_ms: Callable[[int], int | None], *, is_final: bool = False
) -> int:
    """Up to when all deliveries of one side were agreed on with a site: milliseconds since 1970.

    A day that was not, and in which something was delivered, ends it, whatever was agreed of later
    ones.

    Args:
        kept: what was found out about them, in the order of time.
        next_ms: when the first delivery from a moment on was booked, if there is one.
        is_final: only periods that are closed count.
    """
    until_ms = 0
    for each in kept:
        if each.state != "agreed" or (is_final and not each.is_final):
            continue
        if each.stop_ms <= until_ms:
            continue
        if each.first_ms > until_ms:
            delivered_ms = next_ms(until_ms)
            if delivered_ms is not None and delivered_ms < each.first_ms:
                break
        until_ms = each.stop_ms
    return until_ms


def settled_until(kept: Iterable[StatementKept]) -> int:
    """Before when nothing may be booked any more: the end of the latest time that was agreed on."""
    return max((each.stop_ms for each in kept if each.state == "agreed"), default=0)
