"""What tests of exports make: hours, runs and corrections, with names that nobody wishes for."""

from typing import Any

from hypothesis import strategies as st

from gateway.ledger.exports.rows import Correction, Hour, Run

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
    """An hour of which only what matters needs to be said."""
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
    }
    return Hour(**(defaults | fields))


def run(**fields: Any) -> Run:
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
    return Run(**(defaults | fields))


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
    }
    return Correction(**(defaults | fields))


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
)
