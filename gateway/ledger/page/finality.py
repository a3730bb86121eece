"""How final costs are: settled, held, or only estimated. Pure.

The terms and amounts are those of `gateway.ledger.reports.finality`.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gateway.ledger.page import tables, writing
from gateway.ledger.page.charts import ChartSeries, Stacks
from gateway.ledger.page.facts import PageFacts
from gateway.ledger.page.figures import PageFigure, Palette, nothing
from gateway.ledger.page.tables import Cell, Table

_HEADS: Final = ("Booked", "Settled", "Held", "Running now, estimated", "Reversed since")
_COLUMNS: Final = 100  # characters that fit below a chart
_BOOKED, _SETTLED, _HELD, _RUNNING, _REVERSED = range(5)


class CostParts(NamedTuple):
    """The parts of our users' cost in one currency, in nano-units."""

    settled_nanos: int
    held_nanos: int
    running_nanos: int


def totals(facts: PageFacts, currency: str) -> CostParts:
    """Return the parts of the cost at all sites."""
    whole = _total(_by_site(facts, currency))
    return CostParts(whole[_SETTLED], whole[_HELD], whole[_RUNNING])


def finality(facts: PageFacts, currencies: Sequence[str]) -> Table:
    """Return how final the cost of our users' work is, a row for each currency."""
    rows = []
    for currency in currencies:
        amounts = _total(_by_site(facts, currency))
        rows.append((tables.text(currency), *_cells(amounts, writing.exact_decimals(amounts))))
    return Table(tables.heads("Currency", *_HEADS), tuple(rows))


def standing(facts: PageFacts, currency: str, colours: Palette) -> PageFigure:
    """Return the same by the site that ran the work."""
    title = f"Settled, held and estimated cost by site, {currency}"
    found = _by_site(facts, currency)
    whole = _total(found)
    if not any(whole):
        return nothing(title, "our users had no cost in this currency.")
    sites = sorted(found, key=lambda site: _place(site, colours))
    room = min(writing.LABEL_MAX, _COLUMNS // len(sites))
    parts = (("settled", _SETTLED, 0), ("held", _HELD, 1), ("running now, estimated", _RUNNING, 4))
    chart = Stacks(
        tuple(writing.labels(sites, room)),
        tuple(
            ChartSeries(name, tuple(max(0, found[site][at]) / 1e9 for site in sites), colour)
            for name, at, colour in parts
        ),
        currency,
    )
    places = writing.decimals(max(whole))
    table = Table(
        tables.heads("Ran at", *_HEADS),
        tuple((tables.name(site), *_cells(found[site], places)) for site in sites),
        (tables.text("Total"), *_cells(whole, places)),
    )
    lead = (
        f"As of {writing.moment(facts.as_of_s)}: {writing.amount(whole[_SETTLED], places)} "
        f"{currency} is settled, {writing.amount(whole[_HELD], places)} is held and may "
        f"still be refused, {writing.amount(whole[_RUNNING], places)} is estimated for "
        "running work."
    )
    alt = f"Stacked bars: settled, held and estimated cost in {currency} of each site."
    return PageFigure(title, lead, alt, chart, table)


def _by_site(facts: PageFacts, currency: str) -> dict[Any, list[int]]:
    """Return amounts in the order of the headings, in nano-units, by site."""
    found: dict[Any, list[int]] = {}
    for day in facts.days:
        if day.currency == currency:
            found.setdefault(day.key[1], [0] * len(_HEADS))[_BOOKED] += day.cost_nanos
    for each in facts.unsettled:
        if each.currency == currency:
            amounts = found.setdefault(each.site, [0] * len(_HEADS))
            amounts[_HELD] = each.held_nanos
            amounts[_RUNNING] = each.estimated_nanos
            amounts[_REVERSED] = each.reversed_nanos
    for amounts in found.values():
        amounts[_SETTLED] = amounts[_BOOKED] - amounts[_HELD]
    return found


def _total(found: dict[Any, list[int]]) -> list[int]:
    return [sum(each) for each in zip(*found.values(), strict=True)] or [0] * len(_HEADS)


def _cells(amounts: Sequence[int], places: int) -> tuple[Cell, ...]:
    return tuple(tables.money(amount, places) for amount in amounts)


def _place(site: object, colours: Palette) -> int:
    """Return a site's position, as in all charts: our own first, the rest without a name last."""
    colour = colours.get(site)
    return len(colours) if colour is None else colour
