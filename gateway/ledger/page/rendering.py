"""Makes the page: one self-contained HTML file, which can't load or run anything."""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from gateway.ledger.page import costs, finality, headline, usage, writing
from gateway.ledger.page.facts import PageFacts, currencies
from gateway.ledger.page.figures import PageFigure, palette
from gateway.ledger.page.headline import BudgetLeft
from gateway.ledger.page.plots import draw

CURRENCIES_MAX: Final = 3  # with charts of their own


@dataclass(frozen=True, slots=True)
class Section:
    """Figures under one heading."""

    title: str
    figures: tuple[tuple[PageFigure, str], ...]  # each with the address of its picture, or ""


def render(facts: PageFacts, budgets: Iterable[BudgetLeft] = ()) -> str:
    """Render facts, and what is left of budgets, as one HTML document.

    Names are escaped by the template, which escapes everything; pictures are separate documents;
    and a Content-Security-Policy forbids all but those pictures and our one style sheet. A name can
    therefore not become markup, and markup would have no effect. The same facts give the same
    bytes.
    """
    found = currencies(facts)
    style = _read_asset("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .from_string(_read_asset("page.html"))
        .render(
            site=writing.name(facts.site),
            start=writing.moment(facts.start_at_s),
            end=writing.moment(facts.end_at_s),
            as_of=writing.moment(facts.as_of_s),
            is_running=facts.end_at_s > facts.as_of_s,
            headlines=headline.headlines(facts, found[:CURRENCIES_MAX], budgets),
            key_figures=costs.key_figures(facts, found) if found else None,
            finality=finality.finality(facts, found) if found else None,
            deals=costs.deals(facts),
            sections=list(_sections(facts, found)),
            left_out=found[CURRENCIES_MAX:],
            style=Markup(style),  # noqa: S704 - ours; the policy allows its digest
            policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'",
        )
    )


def _sections(facts: PageFacts, found: list[str]) -> Iterator[Section]:
    colours = palette(facts)
    for currency in found[:CURRENCIES_MAX]:
        yield _section(
            f"Cost in {currency}",
            costs.spend(facts, currency, colours),
            finality.standing(facts, currency, colours),
            costs.projects(facts, currency),
            costs.flows(facts, currency),
            costs.prices(facts, currency, colours),
        )
    yield _section(
        "Use of slots, and carbon",
        usage.utilisation(facts),
        usage.waste(facts),
        usage.carbon(facts),
    )


def _section(title: str, *figures: PageFigure) -> Section:
    return Section(title, tuple((each, _picture(each)) for each in figures))


def _picture(figure: PageFigure) -> str:
    if figure.chart is None:
        return ""
    svg = base64.b64encode(draw(figure.chart).encode()).decode()
    return f"data:image/svg+xml;base64,{svg}"


@cache
def _environment() -> Environment:
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
