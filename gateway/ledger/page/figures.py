"""A figure of the page, and the parts that all figures share. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from gateway.ledger.page.charts import Chart
from gateway.ledger.page.facts import PageFacts
from gateway.ledger.page.tables import Table

HOURS: Final = tuple(f"{hour:02}" for hour in range(24))

Palette = Mapping[object, int | None]


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A chart and its table; without them, `lead` gives the reason.

    `alt` describes the chart for readers who can't see it; `lead` summarises it.
    """

    title: str
    lead: str
    alt: str = ""
    chart: Chart | None = None
    table: Table | None = None


def nothing(title: str, reason: str) -> PageFigure:
    """Return a figure without a chart, with the reason."""
    return PageFigure(title, f"Nothing to show: {reason}")


def floats(numbers: Iterable[Fraction | None]) -> tuple[float | None, ...]:
    """Return numbers for a chart."""
    return tuple(None if each is None else float(each) for each in numbers)


def palette(facts: PageFacts) -> Palette:
    """Return a colour for each site, the same in all charts: our own has the first."""
    cost: dict[Any, int] = {facts.site: 0}
    for each in facts.flows:
        cost[each.key[1]] = cost.get(each.key[1], 0) + each.wall_ns
    names = [site for site in cost if site not in (None, facts.site)]
    names.sort(key=lambda site: (-cost[site], site))
    return {None: None} | {site: at for at, site in enumerate([facts.site, *names])}
