"""Answers requests for reports from the books and the site's present state.

A whole number that does not fit into MessagePack travels as text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from federation.clocks import UtcS
from federation.money import parse_money
from gateway.api.context import SiteContext
from gateway.api.views.estimates import claims
from gateway.api.views.work_views import narrow
from gateway.ledger.reports import (
    ALL,
    UTILISATION,
    Cell,
    Present,
    ReportTable,
    UsageQuestion,
    make_report,
)
from gateway.ledger.reports.keys import Key, key_of
from gateway.ledger.reports.question import OURS
from gateway.trust.rights import Asker

ROWS_MAX: Final = 100_000
_MORE: Final = (
    "reports of all users need the operator's socket or a token with the scope audit (--all-users)"
)


async def report(site: SiteContext, details: Mapping[str, Any], asker: Asker) -> Any:
    """Make a report of the rows that the asker may see, as plain data.

    Raises ValueError, with a text for the asker, for an invalid question.
    """
    kind = details.get("kind", "cost")
    if not isinstance(kind, str):
        raise ValueError("kind must be text")
    question = _narrowed(_question(details, site.config.name), kind, asker)
    if kind == UTILISATION and details.get("whose", ALL) != ALL:
        raise ValueError("utilisation covers the work of all users: omit `whose`")
    static_price = _static_price(details)
    made: ReportTable = await site.read(
        make_report, kind, site.store, question, present(site, static_price)
    )
    if len(made.rows) > ROWS_MAX:
        raise ValueError(
            f"the report has {len(made.rows):,} rows, over the limit of {ROWS_MAX:,}: ask for "
            "a shorter period, fewer rows (where), or fewer keys (by)"
        )
    return {
        "kind": kind,
        "columns": list(made.columns),
        "rows": _plain(made.rows),
        "totals": _plain(made.totals),
        "facts": narrow(dict(made.facts)),
        "notes": [*made.notes, *_whose_notes(asker)],
    }


def _narrowed(question: UsageQuestion, kind: str, asker: Asker) -> UsageQuestion:
    """Limit a question to the rows that the asker may see; ValueError when there can be none."""
    if asker.sees_all and asker.projects is None:
        return question
    if kind == UTILISATION:
        raise ValueError(f"utilisation covers the work of all users: {_MORE}")
    where = dict(question.where)
    if not asker.sees_all:
        _keep(where, "user", frozenset({asker.user}))
        question = replace(question, whose=OURS)
    if asker.projects is not None:
        _keep(where, "project", asker.projects)
    return replace(question, where=where)


def _keep(where: dict[Key, frozenset[str]], name: str, seen: frozenset[str]) -> None:
    """Limit one key to the visible values."""
    key = key_of(name)
    where[key] = where.get(key, seen) & seen
    if not where[key]:
        raise ValueError(f"you may see only {name} {', '.join(sorted(seen))}: {_MORE}")


def _whose_notes(asker: Asker) -> list[str]:
    notes = (
        [] if asker.sees_all else [f"only the work of {asker.user}; --all-users includes all users"]
    )
    if asker.projects is not None:
        notes.append(f"only projects {', '.join(sorted(asker.projects))}, by the token")
    return notes


def present(site: SiteContext, static_price: tuple[int, str] | None = None) -> Present:
    """Return the present state of the site."""
    utc_s = site.runtime.utc_s()
    return Present(
        utc_s,
        dict(site.broker.tariffs),
        tuple(claims(site.broker.jobs.values(), utc_s)),
        static_price,
        site.recorder.unwritten(),
    )


def _question(details: Mapping[str, Any], site: str) -> UsageQuestion:
    by, where = details.get("by", []), details.get("where", [])
    if not isinstance(by, list) or not all(isinstance(item, str) for item in by):
        raise ValueError("`by` must be a list of names")
    if not isinstance(where, list) or not all(_is_pair(item) for item in where):
        raise ValueError("`where` must be a list of pairs, name and value")
    bounds = [details.get("start_s"), details.get("end_s")]
    if not all(at is None or type(at) in (int, float) for at in bounds):
        raise ValueError("start_s and end_s must be seconds since 1970, UTC")
    start_at_s, end_at_s = (None if at is None else UtcS(at) for at in bounds)
    whose = details.get("whose")
    if whose is not None and not isinstance(whose, str):
        raise ValueError("whose must be text")
    return UsageQuestion.of(
        by, [(name, value) for name, value in where], start_at_s, end_at_s, site, whose
    )


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(isinstance(each, str) for each in item)


def _static_price(details: Mapping[str, Any]) -> tuple[int, str] | None:
    text = details.get("static_price")
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError("static_price must be text")
    return parse_money(text)


def _plain(rows: Iterable[tuple[Cell, ...]]) -> list[list[Any]]:
    return [[narrow(cell) for cell in row] for row in rows]
