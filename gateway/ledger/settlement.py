"""What two sites owe each other: statements of account, which both sides get equal. Pure.

A statement is made of what both have booked with the same time: deliveries that were paid for,
reversals, payments. So the balance at one site is that at the other with the sign changed, to the
nano-unit, for any time that has been compared (gateway.bookkeeper). What has no verdict yet is
held: it is told apart, and in no balance.

As there is one account for each site and currency, what is sold and bought is netted by itself: the
balance is what one of the two has to pay.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from federation.reconciliation import Sums

from .records import Payment, StatementKept


@dataclass(frozen=True, slots=True)
class Account:
    """What was between us and a site in a time, in one currency; amounts in nano-units.

    Attributes:
        sold: to it, and paid for; `refunded` what of that was reversed, then or before.
        bought: from it; `credited` what of that was reversed.
        paid, received: payments, conversions and losses.
        held_sold, held_bought: delivered, and without a verdict.
    """

    sold: int = 0
    refunded: int = 0
    bought: int = 0
    credited: int = 0
    paid: int = 0
    received: int = 0
    held_sold: int = 0
    held_bought: int = 0
    sold_tasks: int = 0
    bought_tasks: int = 0

    @property
    def net(self) -> int:
        """What it adds to what the site owes us."""
        return self.sold - self.refunded - self.bought + self.credited + self.paid - self.received


@dataclass(frozen=True, slots=True)
class Statement:
    """An account of one site and currency: what was owed before, what came, what is owed then.

    Above zero the site owes us, below we owe it.
    """

    site: str
    currency: str
    opening_nanos: int
    account: Account

    @property
    def balance_nanos(self) -> int:
        """What is owed at the end."""
        return self.opening_nanos + self.account.net


def statements_of(
    site: str,
    before: Mapping[str, Account],
    within: Mapping[str, Account],
) -> list[Statement]:
    """A statement for each currency in which there is anything."""
    return [
        Statement(
            site,
            currency,
            before[currency].net if currency in before else 0,
            within.get(currency, Account()),
        )
        for currency in sorted({*before, *within})
    ]


def accounts(
    sold: Mapping[str, Sums], bought: Mapping[str, Sums], payments: Iterable[Payment]
) -> dict[str, Account]:
    """Put together what was sold, bought and paid, by currency."""
    paid: dict[tuple[str, str], int] = {}
    for each in payments:
        key = each.currency, each.direction
        paid[key] = paid.get(key, 0) + each.amount_nanos
    found = {}
    for currency in {*sold, *bought, *(currency for currency, _ in paid)}:
        ours, theirs = sold.get(currency, Sums()), bought.get(currency, Sums())
        found[currency] = Account(
            sold=ours.cost_nanos,
            refunded=ours.reversed_nanos,
            bought=theirs.cost_nanos,
            credited=theirs.reversed_nanos,
            paid=paid.get((currency, "paid"), 0),
            received=paid.get((currency, "received"), 0),
            held_sold=ours.pending_nanos,
            held_bought=theirs.pending_nanos,
            sold_tasks=ours.tasks,
            bought_tasks=theirs.tasks,
        )
    return found


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
