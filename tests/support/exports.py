"""Hours, runs and corrections for tests of exports, with awkward names.

Beside them, the sums of exports and of statements.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from typing import Any
from xml.etree import ElementTree

from hypothesis import strategies as st
from sqlalchemy import Connection

from gateway.ledger.exports import car, reading, usage_record
from gateway.ledger.exports.focus import charges
from gateway.ledger.exports.focus_columns import EXPORTED
from gateway.ledger.exports.rows import Correction, Hour, UsageRun
from gateway.ledger.store import owed
from gateway.ledger.store.store import Store

HOUR = 472_222  # 2023-11-14T22
SITE = "london"

HOSTILE = (
    *("ada", "", " ", "none", "NULL", "100%", "100%25", "%%", "a%%b", "%0A", "  spaces  "),
    *("bo'b; DROP TABLE usage;--", "<b>&amp;\"x'</b>]]>", "=1+1", "+1", "-1", "@x", "'=1", "\tx"),
    *("a\x00b", "a\x01\x1f\x7f\x85b", "line\nline\r\nline", "a\u2028b\u2029c", "\ufffe\uffff"),
    *("Zoë 漢字", "a: b", "x" * 300, "-", "a.b", "é", "VO: x\n%%\nSite: y"),
)

names = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
amounts = st.one_of(st.sampled_from([0, 1, 10**6, 3600 * 10**9]), st.integers(0, 10**14))


def hour(**fields: Any) -> Hour:
    """An hour; all but the fields of interest have defaults."""
    defaults: dict[str, Any] = {
        **dict.fromkeys(("group", "site", "origin", "window", "tags"), ""),
        "hour": HOUR,
        "user": "ada",
        "project": "risk",
        "name": "var",
        "pool": "local",
        "price_class": "guaranteed",
        "state": "ok",
        "tariff": "1",
        "currency": "USD",
        "footprint": "",
        "records": 2,
        "peak_memory_bytes": 2**20,
        "tasks": 20,
        "wall_ns": 3_000_000_000,
        "cpu_ns": 2_800_000_000,
        "cost_nanos": 33_334,
        "list_cost_nanos": 40_000,
        "energy_uj": 0,
        "carbon_ng": 0,
        "embodied_ng": 0,
        "kind": "time",
        "held_byte_s": 0,
        "moved_bytes": 0,
    }
    return Hour(**(defaults | fields))


def run(**fields: Any) -> UsageRun:
    """The same of a run."""
    defaults: dict[str, Any] = {
        **dict.fromkeys(("group", "site", "origin", "window", "tags"), ""),
        "job": "job-1",
        "first": 0,
        "attempt": 0,
        "tasks": 10,
        "user": "ada",
        "project": "risk",
        "name": "var",
        "pool": "local",
        "worker": "worker-1",
        "price_class": "guaranteed",
        "state": "ok",
        "tariff": "1",
        "currency": "USD",
        "started_at_s": 1_700_000_000.25,
        "ended_at_s": 1_700_000_001.75,
        "wall_ns": 1_500_000_001,
        "cpu_ns": 1_400_000_000,
        "peak_memory_bytes": 2**20,
        "cost_nanos": 16_667,
        "list_cost_nanos": 20_000,
        "records": 1,
    }
    return UsageRun(**(defaults | fields))


def correction(**fields: Any) -> Correction:
    """The same of a correction."""
    defaults: dict[str, Any] = {
        "corrects": "sell/tokyo-1-1/1/0",
        "at_s": 1_700_000_100.0,
        "corrected_at_s": 1_700_000_001.75,
        "amount_nanos": 16_667,
        "currency": "USD",
        "origin": "tokyo",
        "site": "",
        "pool": "local",
        "job": "tokyo:job-1",
    }
    return Correction(**(defaults | fields))


def traded(
    connection: Connection, site: str, other: str, start: int | None = None, end: int | None = None
) -> dict[str, Counter[str]]:
    """The sales of a site to another one less its purchases there, by format and currency.

    As its exports of the hours [start, end), counted from 1970, have them.
    """
    span = [None if hour is None else hour * 3600.0 for hour in (start, end)]

    def runs() -> Iterator[UsageRun]:
        return chain(reading.runs(connection, *span), reading.refunds(connection, *span))

    hours = reading.hours(connection, start, end)
    columns = [column.name for column in EXPORTED]
    names = ("BillingAccountId", "PublisherName", "BillingCurrency", "BilledCost")
    places = [columns.index(name) for name in names]
    rows = charges(site, hours, reading.corrections(connection, *span))
    return {
        "focus": _traded(site, other, *([row[at] for at in places] for row in rows)),
        "usage-record": _traded(site, other, *_charges(usage_record.usage_records(site, runs()))),
        "car": _traded(site, other, *_charges(car.computing_records(site, runs()))),
    }


def stated(store: Store, other: str, start: int = 0, end: int = 10**6) -> Counter[str]:
    """The same by the statement of that time, with deliveries that have no verdict yet."""
    found: Counter[str] = Counter()
    for each in owed.statements(store.settlement, other, start * 3600.0, end * 3600.0):
        of = each.turnover
        sold, bought = of.sold + of.held_sold, of.bought + of.held_bought
        found[each.currency] = sold - of.refunded - bought + of.credited
    return found


def _charges(document: Iterator[str]) -> Iterator[tuple[str, str, str, str]]:
    for record in ElementTree.fromstring("".join(document)):
        cells = {each.tag.rpartition("}")[2]: each for each in record}
        [unit] = cells["Charge"].attrib.values()
        names = (cells[name].text or "" for name in ("SubmitHost", "MachineName"))
        yield (*names, unit, cells["Charge"].text or "")


def _traded(site: str, other: str, *rows: Any) -> Counter[str]:
    """Rows of payer, seller, currency and amount."""
    found: Counter[str] = Counter()
    for payer, seller, currency, amount in rows:
        sign = {(other, site): 1, (site, other): -1}.get((payer, seller), 0)
        found[currency] += sign * round(Fraction(amount) * 10**9)
    return found


_texts = dict.fromkeys(("user", "group", "project", "name", "window", "tags", "tariff"), names)
_kinds = {
    "state": st.sampled_from(["ok", "failed", "repeat"]),
    "price_class": st.sampled_from(["guaranteed", "preemptible"]),
    "currency": st.sampled_from(["USD", "EUR"]),
    "wall_ns": amounts,
    "cpu_ns": amounts,
    "cost_nanos": amounts,
    "list_cost_nanos": amounts,
}
_places = {"site": st.sampled_from(["", "paris"]), "origin": st.sampled_from(["", "tokyo"])}

hours = st.builds(
    hour,
    hour=st.integers(0, 10**6),
    pool=st.sampled_from(["local", "paris/gpu", "="]),
    records=st.integers(1, 10**6),
    energy_uj=amounts,
    carbon_ng=amounts,
    embodied_ng=amounts,
    **_texts,
    **_kinds,
    **_places,
)
runs = st.builds(
    run,
    job=names,
    pool=names,
    worker=names,
    first=st.integers(0, 10**9),
    attempt=st.integers(0, 9),
    peak_memory_bytes=amounts,
    **_texts,
    **_kinds,
    **_places,
)
corrections = st.builds(
    correction,
    at_s=st.floats(1.7e9, 1.8e9),
    amount_nanos=st.integers(1, 10**14),
    origin=st.sampled_from(["", "tokyo"]),
    site=st.sampled_from(["", "paris"]),
    pool=names,
    job=names,
)
