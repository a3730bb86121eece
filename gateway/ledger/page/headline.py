"""The four figures with which a page begins: spent, open, budget left, saved. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from federation.money import format_amount, rounded_amount
from gateway.ledger.page import finality, writing
from gateway.ledger.page.facts import PageFacts

UNKNOWN: Final = "n/a"


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """A budget in a currency, and what of it is left now; amounts are in nano-units."""

    name: str
    currency: str
    amount_nanos: int
    left_nanos: int


@dataclass(frozen=True, slots=True)
class HeadlineItem:
    """One figure: its heading, the amount for people, the exact one if there is any, and a note.

    The note may hold the name of a budget, which a user chose.
    """

    title: str
    text: str
    exact: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """The figures of one currency."""

    currency: str
    items: tuple[HeadlineItem, ...]


def headlines(
    facts: PageFacts, currencies: Sequence[str], budgets: Iterable[BudgetLeft] = ()
) -> list[Headline]:
    """Return the figures of each currency: of our users' work in the period, wherever it ran.

    Args:
        currencies: those that get a headline; never added up.
        budgets: as of now; of several in a currency the one is shown of which least is left.
    """
    left = list(budgets)
    return [
        Headline(
            currency,
            (*_costs(facts, currency), _budget(left, currency), _saved(facts, currency)),
        )
        for currency in currencies
    ]


def _costs(facts: PageFacts, currency: str) -> tuple[HeadlineItem, HeadlineItem]:
    parts = finality.totals(facts, currency)
    held, running = _shown(parts.held_nanos, currency), _shown(parts.running_nanos, currency)
    return (
        _item("Spent", parts.settled_nanos, currency, "settled, and final"),
        _item(
            "Open",
            parts.held_nanos + parts.running_nanos,
            currency,
            f"{held} held, {running} estimated for running work",
        ),
    )


def _budget(budgets: Sequence[BudgetLeft], currency: str) -> HeadlineItem:
    own = [each for each in budgets if each.currency == currency and each.amount_nanos > 0]
    if not own:
        return HeadlineItem("Budget left", UNKNOWN, note="no budget in this currency")
    least = min(own, key=lambda each: (each.left_nanos / each.amount_nanos, each.name))
    share = writing.share(max(0, least.left_nanos), least.amount_nanos)
    name, amount = writing.name(least.name, writing.LABEL_MAX), _shown(least.amount_nanos, currency)
    return _item("Budget left", least.left_nanos, currency, f"{share} of {amount}, {name}")


def _saved(facts: PageFacts, currency: str) -> HeadlineItem:
    ours = [each for each in facts.days if each.currency == currency]
    list_nanos = sum(each.list_cost_nanos for each in ours)
    if not list_nanos:
        return HeadlineItem("Saved", UNKNOWN, note="no work has a list price")
    saved = list_nanos - sum(each.cost_nanos for each in ours)
    note = f"{writing.share(saved, list_nanos)} less than at list prices"
    return _item("Saved", saved, currency, note)


def _item(title: str, nanos: int, currency: str, note: str) -> HeadlineItem:
    return HeadlineItem(title, _shown(nanos, currency), format_amount(nanos), note)


def _shown(nanos: int, currency: str) -> str:
    """Format an amount by its currency, with thousands separators."""
    whole, point, decimals = rounded_amount(format_amount(nanos), currency).partition(".")
    sign, digits = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    return f"{sign}{int(digits):,}{point}{decimals}"
