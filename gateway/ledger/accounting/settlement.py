"""Statements of account: the balances between two sites, equal on both sides. Pure.

A statement is made from the bookings of both sites: paid deliveries and reversals, with the same
time (gateway.settlement.reconciler compares them), and payments, by the same reference, each at the
time when its site's people saw it. The balance at one site is therefore that at the other with the
sign changed, to the nano-unit, except for payments that only one site has booked by then, and for
amounts that one site has written off. Deliveries without a verdict are held: they are listed
separately, and in no balance; voided deliveries are in no balance either.

There is one account for each site and currency, so sales and purchases are netted: the balance is
the amount that one of the two has to pay.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.payments import Line, Match, lines_of, match
from federation.messages.reconciliation import Sums
from federation.messages.wire import unpack
from gateway.ledger.db.settlement.records import PaymentRow, PaymentsTold, StatementKept

ONLY_TOLD_MAX: Final = 5  # currencies with payments that only the other site reports


@dataclass(frozen=True, slots=True)
class Turnover:
    """The trade between us and a site in a time, in one currency; amounts in nano-units.

    Attributes:
        sold: to the site, and paid for; `refunded` the part of it that was reversed, then or
            before.
        bought: from the site; `credited` the part of it that was reversed.
        paid, received: payments and conversions, less those that were undone.
        written_off: amounts that will never be paid to us, less amounts that we will never pay;
            this site's own judgement, which the other site need not share.
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
        """The amount that it adds to the site's debt to us."""
        traded = self.sold - self.refunded - self.bought + self.credited
        return traded + self.paid - self.received - self.written_off


@dataclass(frozen=True, slots=True)
class Statement:
    """An account of one site and currency: the opening balance, the turnover, the closing balance.

    Above zero the site owes us, below zero we owe the site.

    Attributes:
        unconfirmed_nanos: the effect on the balance of payments that the site has not booked by
            now.
        to_confirm_nanos: the effect of payments that the site has booked and we have not.
    """

    site: str
    currency: str
    opening_nanos: int
    turnover: Turnover
    unconfirmed_nanos: int = 0
    to_confirm_nanos: int = 0

    @property
    def balance_nanos(self) -> int:
        """The balance at the end."""
        return self.opening_nanos + self.turnover.net


def statements_of(
    site: str,
    before: Mapping[str, Turnover],
    within: Mapping[str, Turnover],
    paid: Iterable[Match] = (),
) -> list[Statement]:
    """Return a statement for each currency with any booking; `paid` comes from `matches`.

    Of the currencies without a booking here, in which only the other site reports payments, at most
    ONLY_TOLD_MAX are included, the first by name: the site may name any number of them.
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
    """Combine sales, purchases and payments by currency; `moved` is from the function `moved`."""
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
    payments: Iterable[PaymentRow], start_at_s: UtcS, end_at_s: UtcS
) -> Iterator[tuple[str, str, int]]:
    """Yield the payments in [start_at_s, end_at_s) as currency, column of a turnover, amount.

    An undone payment counts from when it was booked to when it was undone: a time that both sites
    have compared stays as it was.
    """
    for each in payments:
        column, nanos = str(each.direction), each.amount_nanos
        if each.through == "loss":
            column, nanos = "written_off", nanos if column == "received" else -nanos
        if start_at_s <= each.paid_at_s < end_at_s:
            yield each.currency, column, nanos
        if each.undone_at_s is not None and start_at_s <= each.undone_at_s < end_at_s:
            yield each.currency, column, -nanos


def void_share(delivered: Mapping[str, Sums], void: Mapping[str, Sums]) -> float:
    """Return the void share of the slot time that has a verdict: 0 to 1."""
    void_ns = sum(each.wall_ns for each in void.values())
    whole_ns = void_ns + sum(each.wall_ns for each in delivered.values())
    return void_ns / whole_ns if whole_ns else 0.0


def lines(payments: Iterable[PaymentRow]) -> list[Line]:
    """Return the payments that both sites must have: all but undone ones and write-offs."""
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
    """Match our bookings of payments with a site's; `told` is the site's last report.

    An unreadable report is treated as missing: `gridfed audit` names it.
    """
    ours, theirs, since_ms = lines(payments), None, 0
    if told is not None:
        with suppress(ProtocolError):
            theirs, since_ms = lines_of(unpack(told.lines, len(told.lines))), told.since_ms
    return match(ours, theirs, since_ms)


def agreed_until(
    kept: Iterable[StatementKept], next_ms: Callable[[int], int | None], *, is_final: bool = False
) -> int:
    """Return the time until which all deliveries of one side are agreed: milliseconds since 1970.

    A day with deliveries that is not agreed ends that time, even if later days are agreed.

    Args:
        kept: the results of reconciliation, in the order of time.
        next_ms: the booking time of the first delivery from a moment on, if there is one.
        is_final: only closed periods count.
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
    """Return the end of the latest agreed time: nothing may be booked before it any more."""
    return max((each.stop_ms for each in kept if each.state == "agreed"), default=0)
