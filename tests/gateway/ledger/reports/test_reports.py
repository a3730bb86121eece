"""Reports: every record in one row, every sum exact for any grouping."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.alerts.books import AlertBooks
from gateway.ledger.db.contracts.records import ContractOpened, Posted, PostingSettled
from gateway.ledger.db.jobs.records import JobOpenedRecord
from gateway.ledger.db.settlement.records import Disputed, DisputeSettled
from gateway.ledger.db.usage.records import CapacityRecord, Dimension, UsageRecord
from gateway.ledger.page.facts import UnsettledCost
from gateway.ledger.page.gathering import gather
from gateway.ledger.reports import (
    ALL,
    KINDS,
    OURS,
    OpenClaim,
    Present,
    ReportTable,
    UsageQuestion,
    make_report,
    named_rows,
    to_csv,
)
from gateway.ledger.reports.finality import OpenAmounts
from gateway.ledger.reports.keys import KEYS
from gateway.ledger.reports.report import DATA
from gateway.ledger.store.store import Store
from policies.costs.alerts import AlertBudget, AlertScope
from policies.tariffs import Tariff
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

Commit = Callable[..., None]
Usage = Callable[..., UsageRecord]

HOUR_NS = 3_600 * 10**9
NO_DATA = (0, "0", 0, "0")
FRIDAY_S = datetime(2026, 11, 20, tzinfo=UTC).timestamp()
NOW_S = FRIDAY_S + 10 * 86_400
PRICES = {"local": Tariff(40_000_000, "USD", "1"), "cloud": Tariff(90_000_000, "USD", "1")}
PRESENT = Present(NOW_S, PRICES)


def ask(
    store: Store,
    kind: str,
    by: str = "",
    where: tuple[tuple[str, str], ...] = (),
    present: Present = PRESENT,
    whose: str | None = None,
    **period: float,
) -> ReportTable:
    names = by.split(",") if by else []
    question = UsageQuestion.of(names, where, site="london", whose=whose, **period)
    return make_report(kind, store, question, present)


def column(report: ReportTable, *names: str) -> list[Any]:
    """The cells of a column, or of several as tuples."""
    places = [report.columns.index(name) for name in names]
    rows = [tuple(row[at] for at in places) for row in report.rows]
    return [row[0] for row in rows] if len(names) == 1 else rows


# --- cost, usage, carbon -------------------------------------------------------------------------


def test_cost_by_user_with_its_totals(store: Store, commit: Commit, usage: Usage) -> None:
    commit(
        store,
        usage(first=0, cost_nanos=10**9, list_cost_nanos=2 * 10**9),
        usage(first=1, cost_nanos=1),
        usage(first=2, user="bob", currency="EUR", cost_nanos=5 * 10**8),
    )
    report = ask(store, "cost", "user")
    assert report.columns == (
        *("user", "currency", "tasks", "cost_nanos", "cost", "list_cost_nanos", "list_cost"),
        *DATA,
    )
    assert report.rows == (
        ("ada", "USD", 20, 10**9 + 1, "1.000000001", 2 * 10**9 + 1, "2.000000001", *NO_DATA),
        ("bob", "EUR", 10, 5 * 10**8, "0.5", 5 * 10**8, "0.5", *NO_DATA),
    )
    assert report.totals == (
        (None, "EUR", 10, 5 * 10**8, "0.5", 5 * 10**8, "0.5", *NO_DATA),
        (None, "USD", 20, 10**9 + 1, "1.000000001", 2 * 10**9 + 1, "2.000000001", *NO_DATA),
    )


def test_failed_stopped_and_repeated_work_is_told_apart(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(
        store,
        usage(first=0, tasks=5, wall_ns=50, cpu_ns=5, peak_memory_bytes=7),
        usage(first=5, tasks=2, wall_ns=20, cpu_ns=2, state="failed"),
        usage(first=20, tasks=4, wall_ns=40, cpu_ns=0, state="cancelled", cost_nanos=0),
        usage(first=0, tasks=1, wall_ns=10, cpu_ns=1, state="repeat", attempt=1, cost_nanos=0),
        usage(first=10, tasks=1, wall_ns=10, cpu_ns=0, state="void", cost_nanos=0),
        usage(first=7, tasks=3, wall_ns=30, cpu_ns=3, state="preempted", cost_nanos=0),
    )
    report = ask(store, "usage", "project")
    assert dict(zip(report.columns, report.rows[0], strict=True)) == {
        "project": "risk",
        "currency": "USD",
        "records": 6,
        "tasks": 16,
        "tasks_failed": 2,
        "tasks_cancelled": 4,
        "tasks_preempted": 3,
        "tasks_repeated": 1,
        "tasks_void": 1,
        "tasks_lost": 0,
        "wall_ns": 160,
        "failed_ns": 20,
        "cancelled_ns": 40,
        "preempted_ns": 30,
        "repeated_ns": 10,
        "void_ns": 10,
        "lost_ns": 0,
        "cpu_ns": 11,
        "peak_memory_bytes": 2**20,
        "cost_nanos": 2 * 16_667,
        "cost": "0.000033334",
        **dict(zip(DATA, NO_DATA, strict=True)),
    }
    by_state = ask(store, "usage", "state")
    assert column(by_state, "state", "tasks") == [
        *(("cancelled", 4), ("failed", 2), ("ok", 5), ("preempted", 3), ("repeat", 1), ("void", 1)),
    ]


def test_carbon_is_added_up_across_currencies(store: Store, commit: Commit, usage: Usage) -> None:
    green: dict[str, Any] = {
        "energy_uj": 1_800 * 10**9,
        "carbon_ng": 125 * 10**9,
        "embodied_ng": 7,
        "carbon_source": "static",
    }
    commit(store, usage(first=0, **green), usage(first=1, currency="EUR", **green))
    report = ask(store, "carbon", "user")
    assert "currency" not in report.columns
    (row,) = report.rows
    assert dict(zip(report.columns, row, strict=True)) == {
        "user": "ada",
        "tasks": 20,
        "wall_ns": 3_000_000_000,
        "energy_uj": 3_600 * 10**9,
        "energy_kwh": "1",
        "carbon_ng": 250 * 10**9,
        "carbon_g": "250",
        "embodied_ng": 14,
        "embodied_g": "0.000000014",
        "g_per_kwh": "250",
        "energy_unknown_ns": 0,
        "carbon_unknown_ns": 0,
    }
    assert report.facts == {"as_of_s": NOW_S, "whose": "ours"}
    assert not any("unknown" in note for note in report.notes)


def test_carbon_that_nobody_knows_is_unknown_and_not_zero(
    store: Store, commit: Commit, usage: Usage
) -> None:
    known = {"energy_uj": 3_600 * 10**9, "carbon_ng": 250 * 10**9, "embodied_ng": 1}
    commit(
        store,
        usage(first=0, user="known", wall_ns=4 * HOUR_NS, carbon_source="static", **known),
        # As clean as can be, and measured: that is a zero.
        usage(first=1, user="clean", wall_ns=HOUR_NS, energy_uj=5, carbon_source="static"),
        usage(first=2, user="no factor", wall_ns=2 * HOUR_NS, energy_uj=3_600 * 10**9),
        usage(first=3, user="nothing", wall_ns=HOUR_NS),
    )
    report = ask(store, "carbon", "user")
    shown = ("user", "energy_uj", "carbon_ng", "carbon_g", "embodied_ng", "g_per_kwh")
    assert column(report, *shown) == [
        ("clean", 5, 0, "0", 0, "0"),
        ("known", 3_600 * 10**9, 250 * 10**9, "250", 1, "250"),
        ("no factor", 3_600 * 10**9, None, None, 0, None),
        ("nothing", None, None, None, None, None),
    ]
    unknown = column(report, "user", "energy_unknown_ns", "carbon_unknown_ns")
    assert unknown == [
        *(("clean", 0, 0), ("known", 0, 0)),
        ("no factor", 0, 2 * HOUR_NS),
        ("nothing", HOUR_NS, HOUR_NS),
    ]
    total = dict(zip(report.columns, report.totals[0], strict=True))
    assert (total["energy_uj"], total["carbon_g"]) == (2 * 3_600 * 10**9 + 5, "250")
    assert total["g_per_kwh"] == "250", "of the energy of which it is known"
    assert (total["energy_unknown_ns"], total["carbon_unknown_ns"]) == (HOUR_NS, 3 * HOUR_NS)
    energy, carbon = (note for note in report.notes if "unknown" in note)
    assert energy.startswith("energy: unknown for 12.50 % of the slot time")
    assert carbon.startswith("carbon: unknown for 37.50 % of the slot time")
    lines = {line.split(",")[0]: line.split(",") for line in to_csv(report).splitlines()}
    place = report.columns.index("carbon_g")
    assert [lines[name][place] for name in ("clean", "no factor", "nothing")] == ["0", "", ""]
    rows = {row["user"]: row for row in named_rows(report)[0]}
    assert rows["nothing"]["carbon_g"] is None
    assert rows["clean"]["carbon_g"] == "0"
    # By what is kept of each record it is the same as by the hour.
    assert ask(store, "carbon", "job").totals[0][1:] == report.totals[0][1:]


CALENDAR = {
    "hour": ["2026-11-19T23:00Z", "2026-11-20T00:00Z", "2027-01-01T05:00Z"],
    "day": ["2026-11-19", "2026-11-20", "2027-01-01"],
    "week": ["2026-W47", "2026-W53"],  # the first of January 2027 is a Friday
    "month": ["2026-11", "2027-01"],
    "year": ["2026", "2027"],
    "weekday": ["Thu", "Fri"],
    "hour-of-day": ["00", "05", "23"],
}


@pytest.mark.parametrize("by", CALENDAR)
def test_the_calendar_is_that_of_utc(store: Store, commit: Commit, usage: Usage, by: str) -> None:
    new_year_s = datetime(2027, 1, 1, 5, 59, 59, tzinfo=UTC).timestamp()
    moments = (FRIDAY_S - 0.001, FRIDAY_S, new_year_s)
    commit(store, *(usage(first=n, ended_at_s=at) for n, at in enumerate(moments)))
    report = ask(store, "cost", by)
    assert column(report, by) == CALENDAR[by]
    assert sum(column(report, "cost_nanos")) == 3 * 16_667
    for cell in CALENDAR[by]:  # and each can be chosen by, as it is written
        (row,) = ask(store, "cost", by, ((by, cell),)).rows
        assert row in report.rows


def test_a_day_begins_at_midnight(store: Store, commit: Commit, usage: Usage) -> None:
    commit(
        store,
        usage(first=0, ended_at_s=FRIDAY_S - 0.001, cost_nanos=1),
        usage(first=1, ended_at_s=FRIDAY_S, cost_nanos=2),
    )
    assert column(ask(store, "cost", "day"), "day", "cost_nanos") == [
        ("2026-11-19", 1),
        ("2026-11-20", 2),
    ]
    assert column(ask(store, "cost", "day", start_at_s=FRIDAY_S), "cost_nanos") == [2]
    assert column(ask(store, "cost", "day", end_at_s=FRIDAY_S), "cost_nanos") == [1]


def test_here_has_our_own_name(store: Store, commit: Commit, usage: Usage) -> None:
    commit(
        store,
        usage(first=0),
        usage(first=1, pool="paris/fast", cost_nanos=7),
        usage(job="dublin:9", cost_nanos=9),
    )
    report = ask(store, "cost", "origin,site")
    assert column(report, "origin", "site", "cost_nanos") == [
        ("dublin", "london", 9),
        ("london", "london", 16_667),
        ("london", "paris", 7),
    ]
    for where, costs in (
        ((("site", "london"),), 16_676),
        ((("site", "london"), ("origin", "london")), 16_667),
        ((("site", "paris"), ("site", "london")), 16_683),
        ((("site", "tokyo"),), None),
    ):
        totals = ask(store, "cost", "", where, whose="all").totals
        assert [row[2] for row in totals] == ([] if costs is None else [costs])


def test_by_a_tag_and_by_all_tags(store: Store, commit: Commit, usage: Usage) -> None:
    texts = ("", "gpu=2,linux", "gpu=2", "linux", "gpus=3")
    commit(store, *(usage(first=n, tags=text) for n, text in enumerate(texts)))
    assert column(ask(store, "cost", "tag"), "tag") == sorted(texts)
    by_gpu = ask(store, "usage", "tag:gpu")
    assert column(by_gpu, "tag:gpu", "records") == [("", 3), ("2", 2)]
    assert column(ask(store, "usage", "tag:linux"), "tag:linux", "records") == [
        ("", 3),
        ("yes", 2),
    ]
    assert column(ask(store, "usage", "", (("tag:gpu", "2"),)), "records") == [2]
    assert column(ask(store, "usage", "", (("tag", "gpu=2"),)), "records") == [1]


@pytest.mark.parametrize(
    ("by", "value"),
    [
        ("user", "ada"),
        ("group", "equity desk"),
        ("name", "var"),
        ("job", "job-1"),
        ("pool", "local"),
        ("worker", "worker-1"),
        ("window", "night"),
        ("class", "preemptible"),
        ("tariff", "1"),
    ],
)
def test_by_each_column_of_a_record(
    store: Store, commit: Commit, usage: Usage, by: str, value: str
) -> None:
    commit(
        store,
        usage(group="equity desk", window="night", price_class="preemptible"),
        usage(job="2", user="x", name="x", pool="x", worker="x", tariff="x"),
    )
    assert value in column(ask(store, "cost", by), by)
    (row,) = ask(store, "cost", by, ((by, value),)).rows
    assert row[0] == value
    assert row[2] == 10


def test_without_keys_a_report_is_its_totals(store: Store, commit: Commit, usage: Usage) -> None:
    commit(store, usage())
    report = ask(store, "cost")
    assert report.rows == report.totals == (("USD", 10, *(16_667, "0.000016667") * 2, *NO_DATA),)


def held(usage: Usage, **given: Any) -> UsageRecord:
    """A record of a GB that was held for two hours, and of half a GB that was moved."""
    nothing = {"tasks": 0, "wall_ns": 0, "cpu_ns": 0, "peak_memory_bytes": 0, "kind": "held"}
    return usage(
        **{"job": "held/1", "pool": "objects", "held_byte_s": 7_200 * 10**9, **nothing, **given}
    )


def test_data_is_told_from_slot_time(store: Store, commit: Commit, usage: Usage) -> None:
    moved = {"kind": "moved", "held_byte_s": 0, "moved_bytes": 5 * 10**8, "job": "ticket"}
    commit(
        *(store, usage(cost_nanos=7), held(usage, cost_nanos=40)),
        *(held(usage, first=1, cost_nanos=2), held(usage, cost_nanos=3, **moved)),
    )
    assert column(ask(store, "cost", "kind"), "kind", "cost_nanos", *DATA) == [
        ("held", 42, 14_400 * 10**9, "4", 0, "0"),
        ("moved", 3, 0, "0", 5 * 10**8, "0.5"),
        ("time", 7, *NO_DATA),
    ]
    assert ask(store, "cost", "", (("kind", "held"),)).totals[0][2] == 42
    with pytest.raises(ValueError, match="kind can't be 'disk': use a form such as held"):
        ask(store, "cost", "", (("kind", "disk"),))
    # In no figure of slots, and in the money of all others.
    assert set(column(ask(store, "utilisation", "pool"), "pool")) == {"local"}
    assert ask(store, "showback", "").totals[0][3] == 52
    savings = column(ask(store, "savings", ""), "work", "cost_nanos")
    assert savings == [("charged", 7), ("data", 45)]
    page = gather(store, "london", Present(NOW_S), 1_699_999_200, 1_700_006_400)
    costs = {each.key[2]: (each.cost_nanos, each.held_byte_s) for each in page.hours}
    assert costs == {"data": (45, 14_400 * 10**9), "ok": (7, 0)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_of_nothing_is_empty(store: Store, kind: str) -> None:
    report = ask(store, kind, "pool")
    assert (report.rows, report.totals) == ((), ())


def test_a_key_is_asked_for_once_however_often(store: Store) -> None:
    assert ask(store, "cost", "pool,user,pool").columns[:3] == ("pool", "user", "currency")


NASTY = [
    "'; DROP TABLE usage; --",
    '" OR 1=1',
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "a,b\nc",
    "100%_",
    "\u202egnp.exe",
    "[bold]x[/]",
]


@pytest.mark.parametrize("text", NASTY)
def test_a_name_is_a_name_whatever_is_in_it(
    store: Store, commit: Commit, usage: Usage, text: str
) -> None:
    names = ("user", "group", "project", "name", "worker", "window", "tariff")
    commit(store, usage(**dict.fromkeys(names, text)), usage(first=1))
    for name in names:
        assert text in column(ask(store, "usage", name), name)
        assert column(ask(store, "usage", name, ((name, text),)), "records") == [1]


@pytest.mark.parametrize(
    ("by", "where", "complaint"),
    [
        ("users; DROP", (), "no report by 'users; DROP': choose from user, group"),
        ("tag:", (), "choose from"),
        ("", (("colour", "red"),), "no report by 'colour'"),
        ("", (("day", "yesterday"),), "use a form such as 2026-11-20"),
        ("", (("weekday", "Caturday"),), "use a form such as Mon"),
        ("", (("hour-of-day", "24"),), "use a form such as 18"),
        ("", (("state", "done"),), "use a form such as failed"),
        (",".join(list(KEYS)[:9]), (), "at most 8 keys"),
        ("", tuple(("user", str(n)) for n in range(101)), "at most 100 values"),
    ],
)
def test_a_question_that_can_not_be_is_refused(
    by: str, where: tuple[tuple[str, str], ...], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        UsageQuestion.of(by.split(",") if by else [], where)


@pytest.mark.parametrize(
    ("start_at_s", "end_at_s"),
    [(5.0, 5.0), (9.0, 5.0), (-1.0, None), (None, float("nan")), (1e30, None)],
)
def test_a_period_that_can_not_be_is_refused(start_at_s: Any, end_at_s: Any) -> None:
    with pytest.raises(ValueError, match="period"):
        UsageQuestion.of([], (), start_at_s, end_at_s)


def test_a_kind_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="unknown report 'profit': choose from cost, usage"):
        ask(store, "profit")


# --- equal sums in all groupings -----------------------------------------------------------------

AMOUNTS = st.integers(0, 2**63 - 1) | st.integers(0, 10**6)
DETAILS = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ada", "bob", "", "=1+1", "é\n,"]),
        "group": st.sampled_from(["", "desk"]),
        "project": st.sampled_from(["risk", "desk"]),
        "pool": st.sampled_from(["local", "cloud", "paris/fast"]),
        "job": st.sampled_from(["job-1", "dublin:2"]),
        "tags": st.sampled_from(["", "gpu=2,linux"]),
        "state": st.sampled_from(["ok", "failed", "repeat"]),
        "ended_at_s": st.sampled_from([FRIDAY_S + n for n in (-86_400.0, -1e-6, 0.0, 1e7)]),
        "currency": st.sampled_from(["USD", "EUR"]),
        "tasks": AMOUNTS,
        "wall_ns": AMOUNTS,
        "cost_nanos": AMOUNTS,
        "list_cost_nanos": AMOUNTS,
        "energy_uj": AMOUNTS,
        "carbon_ng": AMOUNTS,
        "carbon_source": st.sampled_from(["", "static"]),
    }
)
CAPACITY = st.builds(
    lambda pool, hour, slots: CapacityRecord(
        pool, FRIDAY_S + hour * 3600, FRIDAY_S + hour * 3600 + 1800, slots
    ),
    st.sampled_from(["local", "cloud", "unpriced"]),
    st.integers(-30, 30),
    st.integers(1, 10**6),
)
BY = {
    "utilisation": ["pool", "hour", "day", "week", "month", "year", "weekday", "hour-of-day"],
    **{
        kind: [*KEYS, "tag:gpu", "tag:linux"]
        for kind in ("cost", "usage", "carbon", "savings", "showback")
    },
}


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_sums_are_equal_however_they_are_grouped(usage: Usage, kind: str, data: Any) -> None:
    store = MemoryStore(Disk())
    records = [
        usage(first=n, **fields)
        for n, fields in enumerate(data.draw(st.lists(DETAILS, max_size=20)))
    ]
    store.write([*records, *data.draw(st.lists(CAPACITY, max_size=8))], False, lambda: None)
    by = data.draw(st.lists(st.sampled_from(BY[kind]), unique=True, min_size=1, max_size=4))
    bound = st.none() | st.sampled_from([FRIDAY_S - 3600, FRIDAY_S, FRIDAY_S + 3600])
    period: dict[str, Any] = {"start_at_s": data.draw(bound), "end_at_s": None}
    period["whose"] = data.draw(st.sampled_from([OURS, ALL]))
    whole = ask(store, kind, "pool" if kind == "utilisation" else "", **period)
    report = ask(store, kind, ",".join(by), **period)
    assert _sums(whole, whole.totals) == _sums(whole, whole.rows)
    assert _sums(report, report.rows) == _sums(report, report.totals) == _sums(whole, whole.totals)
    keys = [row[: len(by)] for row in report.rows]
    assert len(keys) >= len(set(keys))


SUMMED = ("records", "tasks", "tasks_failed", "tasks_preempted", "tasks_repeated")


def _sums(report: ReportTable, rows: Any) -> Any:
    """The sum of each whole number, by currency and use."""
    sums: Counter[Any] = Counter()
    for row in rows:
        cells = dict(zip(report.columns, row, strict=True))
        for name, cell in cells.items():
            if (name in SUMMED or name.endswith(("_nanos", "_ns", "_uj", "_ng"))) and cell:
                sums[name, cells.get("currency"), cells.get("use")] += cell
    return {name: total for name, total in sums.items() if total}


# --- utilisation and showback --------------------------------------------------------------------


def _a_busy_friday(usage: Usage) -> list[Any]:
    """Two slots for two hours; of one of them risk had an hour, and desk a half."""
    return [
        CapacityRecord("local", FRIDAY_S, FRIDAY_S + 3600, 2),
        CapacityRecord("local", FRIDAY_S + 3600, FRIDAY_S + 7200, 2),
        usage(first=0, ended_at_s=FRIDAY_S + 3000, wall_ns=HOUR_NS, cost_nanos=40_000_000),
        usage(
            first=10,
            project="desk",
            state="failed",
            ended_at_s=FRIDAY_S + 4000,
            wall_ns=HOUR_NS // 4,
            cost_nanos=10_000_000,
        ),
        usage(
            first=0,
            attempt=1,
            project="desk",
            state="repeat",
            ended_at_s=FRIDAY_S + 5000,
            wall_ns=HOUR_NS // 4,
            cost_nanos=0,
        ),
    ]


def test_what_stood_idle_is_a_row(store: Store, commit: Commit, usage: Usage) -> None:
    commit(store, *_a_busy_friday(usage), usage(job="2", pool="paris/fast", wall_ns=HOUR_NS))
    report = ask(store, "utilisation", "pool")
    assert report.columns == ("pool", "use", "tasks", "slot_ns", "slot_h", "share")
    assert report.rows == (
        ("local", "ok", 10, HOUR_NS, "1", "0.25"),
        ("local", "failed", 10, HOUR_NS // 4, "0.25", "0.0625"),
        ("local", "repeat", 10, HOUR_NS // 4, "0.25", "0.0625"),
        ("local", "idle", None, 5 * HOUR_NS // 2, "2.5", "0.625"),
    )
    assert report.totals == tuple((None, *row[1:]) for row in report.rows)
    by_hour = ask(store, "utilisation", "hour-of-day", (("weekday", "Fri"),))
    assert column(by_hour, "hour-of-day", "use", "slot_h") == [
        ("00", "ok", "1"),
        ("00", "idle", "1"),
        ("01", "failed", "0.25"),
        ("01", "repeat", "0.25"),
        ("01", "idle", "1.5"),
    ]


def test_nothing_is_idle_where_nobody_counted_slots(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, usage(wall_ns=HOUR_NS))
    assert column(ask(store, "utilisation"), "use") == ["ok"]


def test_slots_that_are_not_in_the_books_yet_count_once(store: Store, commit: Commit) -> None:
    written = CapacityRecord("local", FRIDAY_S, FRIDAY_S + 900, 2)
    seen = CapacityRecord("local", FRIDAY_S + 900, FRIDAY_S + 1800, 2)
    commit(store, written)
    present = Present(NOW_S, PRICES, unwritten=(written, seen))
    assert column(ask(store, "utilisation", present=present), "use", "slot_h") == [("idle", "1")]
    later = ask(store, "utilisation", present=present, start_at_s=FRIDAY_S + 3600)
    assert later.rows == ()


def test_long_work_that_ends_in_an_hour_is_made_up_for_by_the_hours_before(
    store: Store, commit: Commit, usage: Usage
) -> None:
    hours = [FRIDAY_S + n * 3600 for n in range(3)]
    commit(
        store,
        *(CapacityRecord("local", at, at + 3600, 1) for at in hours),
        usage(ended_at_s=hours[2] + 1, wall_ns=2 * HOUR_NS),
    )
    idle = [
        row
        for row in column(ask(store, "utilisation", "hour"), "use", "slot_h")
        if row[0] == "idle"
    ]
    assert idle == [("idle", "1"), ("idle", "1"), ("idle", "-1")]
    assert ("idle", "1") in column(ask(store, "utilisation", "day"), "use", "slot_h")


def test_what_stood_idle_is_borne_by_who_used_the_pool(
    store: Store, commit: Commit, usage: Usage
) -> None:
    # What others sent, and what was bought elsewhere, bears nothing.
    elsewhere = usage(job="2", pool="paris/fast", wall_ns=HOUR_NS, cost_nanos=5)
    sent = usage(job="dublin:1", project="theirs", wall_ns=0, cost_nanos=3)
    unused = CapacityRecord("cloud", FRIDAY_S, FRIDAY_S + 3600, 1)
    commit(store, *_a_busy_friday(usage), elsewhere, sent, unused)
    report = ask(store, "showback", "project", whose="all")
    names = ("project", "cost_nanos", "idle_ns", "idle_cost_nanos", "full_cost_nanos")
    idle_ns, idle_nanos = 5 * HOUR_NS // 2, 100_000_000
    assert column(report, *names) == [
        ("desk", 10_000_000, idle_ns // 3, idle_nanos // 3, 10_000_000 + idle_nanos // 3),
        (
            "risk",
            40_000_005,
            idle_ns * 2 // 3,
            idle_nanos * 2 // 3 + 1,
            40_000_005 + idle_nanos * 2 // 3 + 1,
        ),
        ("theirs", 3, 0, 0, 3),
        (None, 0, HOUR_NS, 90_000_000, 90_000_000),
    ]
    assert report.totals[0][report.columns.index("idle_cost_nanos")] == idle_nanos + 90_000_000
    chosen = ask(store, "showback", "project", (("project", "risk"),))
    assert column(chosen, *names) == column(report, *names)[1:2]
    ours = ask(store, "showback", "project")
    assert ours.rows == tuple(row for row in report.rows if row[0] != "theirs")
    by_pool = ask(store, "showback", "pool")
    assert ("cloud", 90_000_000) in column(by_pool, "pool", "idle_cost_nanos")


def test_a_pool_without_a_price_is_named(store: Store, commit: Commit) -> None:
    commit(store, CapacityRecord("old", FRIDAY_S, FRIDAY_S + 3600, 3))
    report = ask(store, "showback")
    assert report.rows == ()
    assert report.facts["unpriced_idle_ns"] == {"old": 3 * HOUR_NS}
    assert "pool old has no price now: 3 idle slot-hours" in report.notes[0]


@pytest.mark.parametrize("kind", ["utilisation", "showback"])
def test_idle_time_is_known_by_the_hour(store: Store, kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} is reported by the hour"):
        ask(store, kind, "pool", start_at_s=FRIDAY_S + 1)


def test_slots_are_a_pools_whoever_uses_them(store: Store) -> None:
    with pytest.raises(ValueError, match="utilisation can't be reported by 'user'"):
        ask(store, "utilisation", "user")
    with pytest.raises(ValueError, match="utilisation can't be reported by 'project'"):
        ask(store, "utilisation", "pool", (("project", "risk"),))
    with pytest.raises(ValueError, match="add it to --by"):
        ask(store, "showback", "project", (("user", "ada"),))


# --- savings -------------------------------------------------------------------------------------


def test_savings_against_the_dearest_pool_and_a_static_grid(
    store: Store, commit: Commit, usage: Usage
) -> None:
    cheap = {"pool": "local", "wall_ns": 3 * HOUR_NS, "cost_nanos": 120_000_000}
    dear = {"pool": "paris/fast", "wall_ns": HOUR_NS, "cost_nanos": 70_000_000}
    other = {"wall_ns": 9 * HOUR_NS, "cost_nanos": 9 * 10**9}
    commit(
        store,
        usage(first=0, ended_at_s=FRIDAY_S + 1, **cheap),
        usage(first=1, ended_at_s=FRIDAY_S + 7300, project="desk", **dear, list_cost_nanos=10**8),
        usage(first=2, ended_at_s=FRIDAY_S + 1, state="repeat", wall_ns=HOUR_NS, cost_nanos=0),
        usage(job="dublin:1", ended_at_s=FRIDAY_S + 1, **other),
    )
    report = ask(store, "savings", "project")
    names = ("project", "work", "cost", "dearest", "dearest_saved", "static", "static_saved")
    # 0.1 USD a slot-hour in paris/fast; 3 slots for 3 hours at 0.04 USD.
    assert column(report, *names) == [
        ("desk", "charged", "0.07", "0.1", "0.03", "0.09", "0.02"),
        ("risk", "charged", "0.12", "0.3", "0.18", "0.27", "0.15"),
    ]
    assert report.facts["dearest"] == {"USD": {"pool": "paris/fast", "price_nanos": 10**8}}
    assert report.facts["static"] == {
        "USD": {
            "slots": 3,
            "period_s": 10_800.0,
            "price_nanos": 40_000_000,
            "busiest_hour_s": FRIDAY_S,
        }
    }
    priced = Present(NOW_S, PRICES, static_price=(10**9, "USD"))
    day = {"start_at_s": FRIDAY_S, "end_at_s": FRIDAY_S + 86_400}
    assert ask(store, "savings", present=priced, **day).totals[0][10:12] == (
        72 * 10**9,
        "72",
    )
    assert "a grid of 3 slots, the use of the busiest hour, for 3.00 h" in "\n".join(report.notes)


def _with_losses(usage: Usage, dear: str) -> list[UsageRecord]:
    """A run that was lost after an hour, the next one, and a repetition that the site pays."""
    at = {"ended_at_s": FRIDAY_S + 1, "wall_ns": HOUR_NS}
    nobody = {"user": "", "project": "", "state": "repeat"}
    return [
        usage(first=0, **at, state="wasted", cost_nanos=40_000_000),
        usage(first=0, attempt=1, **at | {"wall_ns": 3 * HOUR_NS}, cost_nanos=80_000_000),
        usage(first=1, **at, pool=dear, project="desk", cost_nanos=90_000_000),
        usage(first=1, attempt=1, **at, pool="paris/fast", **nobody, cost_nanos=50_000_000),
        usage(first=2, attempt=1, **at, state="repeat", cost_nanos=0),
        usage(first=3, **at, state="lost", cost_nanos=0, job="tokyo:j-1"),
    ]


def test_savings_tell_apart_what_was_wasted_and_overhead(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, *_with_losses(usage, "cloud"))
    report = ask(store, "savings", "project")
    names = ("project", "work", "wall_ns", "cost", "dearest", "dearest_saved", "static_saved")
    # 0.09 USD a slot-hour in cloud; 4 slots for an hour at 0.04 USD.
    assert column(report, *names) == [
        ("", "overhead", HOUR_NS, "0.05", "0", "-0.05", "-0.05"),
        ("desk", "charged", HOUR_NS, "0.09", "0.09", "0", "-0.05"),
        ("risk", "charged", 3 * HOUR_NS, "0.08", "0.27", "0.19", "0.04"),
        ("risk", "wasted", HOUR_NS, "0.04", "0", "-0.04", "-0.04"),
    ]
    assert report.facts["dearest"]["USD"] == {"pool": "cloud", "price_nanos": 90_000_000}
    [total] = report.totals
    assert dict(zip(report.columns, total, strict=True))["dearest_saved"] == "0.1"


def test_a_lost_run_makes_its_pool_no_cheaper(store: Store, commit: Commit, usage: Usage) -> None:
    commit(store, *_with_losses(usage, "local")[:2])
    report = ask(store, "savings", "user")
    assert report.facts["dearest"]["USD"] == {"pool": "local", "price_nanos": 40_000_000}
    assert column(report, "work", "dearest_saved_nanos") == [("charged", 0), ("wasted", 0)]
    commit(store, usage(first=9, pool="tiny", state="wasted", currency="EUR"))
    euros = ask(store, "savings").rows[0]
    assert euros[:3] == ("wasted", "EUR", 10)
    assert set(euros[6:]) == {None}, "nothing was done in this currency: there is no other way"


@pytest.mark.parametrize("by", ["", "project", "user", "site", "pool", "state", "day", "job"])
def test_savings_sum_up_to_the_costs_of_all_other_reports(
    store: Store, commit: Commit, usage: Usage, by: str
) -> None:
    commit(store, *_with_losses(usage, "cloud"))
    for whose in (OURS, ALL):
        reports = {kind: ask(store, kind, by, whose=whose) for kind in ("cost", "usage", "savings")}
        sums = {sum(column(each, "cost_nanos")) for each in reports.values()}
        assert sums == {260_000_000}
        assert {
            each.totals[0][each.columns.index("cost_nanos")] for each in reports.values()
        } == sums


def test_a_period_that_is_not_over_counts_up_to_now(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, usage(ended_at_s=FRIDAY_S + 1, wall_ns=HOUR_NS))
    present = Present(FRIDAY_S + 7200, PRICES)
    report = ask(
        store, "savings", present=present, start_at_s=FRIDAY_S, end_at_s=FRIDAY_S + 30 * 86_400
    )
    assert report.facts["static"]["USD"]["period_s"] == 7200.0


@pytest.mark.parametrize(
    ("length_s", "busy_s", "slots"),
    [
        (600, {0: 600}, 8),  # a site that is ten minutes old
        (5400, {0: 3600, 1: 1800}, 8),
        (3605, {0: 3600, 1: 600}, 10),  # what ends in five seconds is not of five seconds
        (7200, {0: 3600, 1: 1800}, 8),
    ],
)
def test_a_grid_is_sized_by_the_time_that_there_was(
    store: Store, commit: Commit, usage: Usage, length_s: int, busy_s: dict[int, int], slots: int
) -> None:
    for hour, seconds in busy_s.items():
        ended_at_s = FRIDAY_S + hour * 3600 + 1
        commit(store, usage(first=hour, ended_at_s=ended_at_s, wall_ns=8 * seconds * 10**9))
    period = {"start_at_s": FRIDAY_S, "end_at_s": FRIDAY_S + length_s}
    report = ask(store, "savings", present=Present(FRIDAY_S + length_s, PRICES), **period)
    assert report.facts["static"]["USD"]["slots"] == slots


def test_an_hour_that_is_not_over_counts_up_to_now(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, usage(ended_at_s=FRIDAY_S + 1, wall_ns=HOUR_NS))
    report = ask(store, "savings", present=Present(FRIDAY_S + 2520, PRICES))
    assert report.facts["static"]["USD"]["period_s"] == 2520.0
    assert "for 0.70 h" in "\n".join(report.notes)
    set_back = ask(store, "savings", present=Present(FRIDAY_S - 7200, PRICES))
    assert set_back.facts["static"]["USD"]["period_s"] == 0.0


def test_one_pool_is_no_dearer_than_itself_however_records_are_rounded(
    store: Store, commit: Commit, usage: Usage
) -> None:
    # 7 ns at 0.04 USD an hour are 0.08 nano-units, and each record is rounded up.
    tiny = {"pool": "local", "wall_ns": 7, "cost_nanos": 1, "list_cost_nanos": 1}
    commit(store, *(usage(first=n, user=f"u{n % 2}", **tiny) for n in range(5)))
    report = ask(store, "savings", "user")
    assert column(report, "dearest_saved_nanos") == [0, 0]
    assert report.facts["dearest"]["USD"] == {"pool": "local", "price_nanos": 40_000_000}
    assert "in local, at 0.04 USD per slot-hour" in "\n".join(report.notes)


def test_a_static_price_that_nothing_compares_with_is_refused(
    store: Store, commit: Commit, usage: Usage
) -> None:
    priced = Present(NOW_S, PRICES, static_price=(10**9, "GBP"))
    assert ask(store, "savings", present=priced).rows == (), "there is nothing to compare"
    commit(store, usage(first=0), usage(first=1, currency="EUR"))
    commit(store, usage(first=2, currency="GBP", state="repeat", cost_nanos=0))
    with pytest.raises(ValueError, match="in GBP, but the work was billed in EUR, USD"):
        ask(store, "savings", present=priced)
    commit(store, usage(first=3, currency="GBP"))
    assert "GBP" in ask(store, "savings", present=priced).facts["static"]


def test_without_a_price_in_a_currency_there_is_no_static_grid(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, usage(currency="EUR"))
    report = ask(store, "savings")
    assert column(report, "static_nanos", "static_saved") == [(None, None)]
    assert "no pool of this site has a price in EUR" in "\n".join(report.notes)


# --- what is final -------------------------------------------------------------------------------


def _deliveries(usage: Usage) -> list[Any]:
    bought = ("c1", "buy", "paris")
    sold = ("c2", "sell", "dublin")
    rest = (10, 100)
    return [
        JobOpenedRecord("job-1", "var", "ada", "risk", False, b"", 1.0),
        ContractOpened(*bought, "job-1", "fast", 1, 1, "USD", 30.0, FRIDAY_S),
        ContractOpened(*sold, "dublin:1", "local", 1, 1, "USD", 30.0, FRIDAY_S),
        Posted(*bought, 1, 0, *rest, 700, "USD", FRIDAY_S + 1),
        Posted(*bought, 1, 10, *rest, 40, "USD", FRIDAY_S + 2),
        Posted(*sold, 1, 0, *rest, 5, "USD", FRIDAY_S + 3),
        PostingSettled(*bought, 1, 0, "post", 700, "USD", FRIDAY_S + 4),
        usage(first=0, pool="paris/fast", cost_nanos=700, ended_at_s=FRIDAY_S + 1),
        usage(first=10, pool="paris/fast", cost_nanos=40, ended_at_s=FRIDAY_S + 2),
        usage(job="dublin:1", cost_nanos=5, ended_at_s=FRIDAY_S + 3),
    ]


RUNNING = (
    OpenClaim({Dimension.USER: "ada", Dimension.PROJECT: "risk", Dimension.SITE: ""}, "USD", 11),
    OpenClaim({Dimension.USER: "bob", Dimension.PROJECT: "risk", Dimension.SITE: ""}, "EUR", 13),
)


def test_what_is_held_by_another_clock_than_it_was_booked_by_settles_nothing() -> None:
    standing = OpenAmounts(NOW_S, {"USD": 3, "EUR": 9}, {"USD": 5, "EUR": 2}, {}, {}, {}, {}, {})
    assert standing.settled_nanos == {"EUR": 7, "USD": 0}


def test_what_is_settled_is_told_apart_from_what_is_held_and_what_is_guessed(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, *_deliveries(usage))
    present = Present(NOW_S, PRICES, RUNNING)
    report = ask(store, "cost", "user", present=present, whose="all")
    assert report.facts == {
        "whose": "all",
        "as_of_s": NOW_S,
        "booked_nanos": {"USD": 745},
        "settled_nanos": {"USD": 700},
        "held_nanos": {"USD": 40},
        "reversed_nanos": {},
        "due_nanos": {"USD": 5},
        "voided_nanos": {},
        "refunded_nanos": {},
        "estimated_nanos": {"EUR": 13, "USD": 11},
    }
    ours = ask(store, "cost", "user", present=present)
    assert ours.facts == report.facts | {
        "whose": "ours",
        "booked_nanos": {"USD": 740},
        "due_nanos": {},
    }
    assert report.notes == (
        "all work, including work of other sites",
        "as of 2026-11-30 00:00:00 UTC",
        "settled: 0.0000007 USD",
        ("estimated, for running work that is not in the table: 0.000000013 EUR, 0.000000011 USD"),
        "held, delivered by other sites and not settled: 0.00000004 USD",
        "due, delivered to other sites and not settled: 0.000000005 USD",
    )
    for where, held, due, estimated in (
        (("user", "ada"), {"USD": 40}, {}, {"USD": 11}),
        (("user", "bob"), {}, {}, {"EUR": 13}),
        (("site", "paris"), {"USD": 40}, {}, {}),
        (("worker", "w"), None, None, None),
    ):
        facts = ask(store, "cost", "", (where,), present=present, whose="all").facts
        found = [facts[f"{name}_nanos"] for name in ("held", "due", "estimated")]
        assert found == [held, due, estimated]
    past = ask(store, "cost", present=present, end_at_s=FRIDAY_S + 2).facts
    assert (past["held_nanos"], past["estimated_nanos"]) == ({}, {})
    assert past["settled_nanos"] == {"USD": 700}


def test_overhead_is_held_and_reversed_for_nobody(
    store: Store, commit: Commit, usage: Usage
) -> None:
    """One task ran twice at another site, and half of a bundle: the repetitions are the site's."""
    bought = ("c1", "buy", "paris")
    at = {"pool": "paris/fast", "group": "desk"}
    nobody = {"user": "", "project": "", "group": "", "state": "repeat", "attempt": 2}
    commit(
        store,
        JobOpenedRecord("job-1", "var", "ada", "risk", False, b"", 1.0),
        ContractOpened(*bought, "job-1", "fast", 1, 1, "USD", 30.0, FRIDAY_S),
        usage(first=20, tasks=1, **at, cost_nanos=1000, ended_at_s=FRIDAY_S + 10),
        usage(first=20, tasks=1, **at | nobody, cost_nanos=1000, ended_at_s=FRIDAY_S + 20),
        usage(first=30, tasks=5, **at | nobody, cost_nanos=3000, ended_at_s=FRIDAY_S + 30),
        usage(first=35, tasks=5, **at, cost_nanos=4000, attempt=2, ended_at_s=FRIDAY_S + 30),
        Posted(*bought, 2, 20, 1, 100, 1000, "USD", FRIDAY_S + 10.1),
        Posted(*bought, 3, 20, 1, 100, 1000, "USD", FRIDAY_S + 20.1),
        Posted(*bought, 4, 30, 10, 100, 7000, "USD", FRIDAY_S + 30.1),
        PostingSettled(*bought, 2, 20, "post", 1000, "USD", FRIDAY_S + 11),
    )
    cost = ask(store, "cost", "user")
    assert column(cost, "user", "cost_nanos") == [("", 4000), ("ada", 5000)]
    assert (cost.facts["held_nanos"], cost.facts["settled_nanos"]) == ({"USD": 8000}, {"USD": 1000})
    for key, ours in (("user", "ada"), ("project", "risk"), ("group", "desk")):
        facts = [ask(store, "cost", "", ((key, value),)).facts for value in (ours, "")]
        assert [each["held_nanos"] for each in facts] == [{"USD": 4000}, {"USD": 4000}]
        assert [each["settled_nanos"] for each in facts] == [{"USD": 1000}, {"USD": 0}]
    pending = store.contracts.pending(0.0, NOW_S)
    assert [(each.user, each.records, each.tasks, each.cost_nanos) for each in pending] == [
        ("", 1, 6, 4000),
        ("ada", 1, 5, 4000),
    ]
    commit(
        store,
        PostingSettled(*bought, 3, 20, "post", 1000, "USD", FRIDAY_S + 40),
        Disputed("buy", "c1", 3, 20, "paris", "twice", FRIDAY_S + 41),
        DisputeSettled(
            *("buy", "c1", 3, 20, "paris", "accepted", "", FRIDAY_S + 42, 1000, "USD"),
        ),
    )
    [reversed_] = store.contracts.reversed(0.0, NOW_S)
    assert (reversed_.user, reversed_.cost_nanos) == ("", 1000)
    assert ask(store, "cost", "", (("user", "ada"),)).facts["reversed_nanos"] == {}


def test_what_another_site_has_voided_is_not_settled(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, *_deliveries(usage))
    commit(store, PostingSettled("c2", "sell", "dublin", 1, 0, "void", 5, "USD", FRIDAY_S + 5))
    report = ask(store, "cost", whose="all")
    names = ("booked", "settled", "due", "voided")
    found = [report.facts[f"{name}_nanos"] for name in names]
    assert found == [{"USD": 745}, {"USD": 700}, {}, {"USD": 5}]
    assert "voided, delivered to other sites and refused by them: 0.000000005 USD" in report.notes
    assert ask(store, "cost").facts["voided_nanos"] == {}


def test_what_was_taken_back_is_said_beside_what_is_settled(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, *_deliveries(usage))
    commit(
        store,
        PostingSettled("c2", "sell", "dublin", 1, 0, "post", 5, "USD", FRIDAY_S + 5),
        Disputed("buy", "c1", 1, 0, "paris", "wrong", FRIDAY_S + 6),
        Disputed("sell", "c2", 1, 0, "dublin", "wrong", FRIDAY_S + 6),
    )
    assert ask(store, "cost", whose="all").facts["reversed_nanos"] == {}
    commit(
        store,
        DisputeSettled(
            *("buy", "c1", 1, 0, "paris", "accepted", "", FRIDAY_S + 9, 700, "USD"),
        ),
        DisputeSettled(
            *("sell", "c2", 1, 0, "dublin", "accepted", "", FRIDAY_S + 9, 5, "USD"),
        ),
    )
    report = ask(store, "cost", whose="all")
    names = ("settled", "held", "reversed", "due", "refunded")
    assert [report.facts[f"{name}_nanos"] for name in names] == [
        *({"USD": 705}, {"USD": 40}, {"USD": 700}),
        *({}, {"USD": 5}),
    ]
    assert report.notes[-2:] == (
        "reversed, settled and later cancelled by the site that delivered it: 0.0000007 USD",
        ("refunded, delivered to other sites and later cancelled by this site: 0.000000005 USD"),
    )
    ours = ask(store, "cost", where=(("user", "ada"),)).facts
    assert (ours["reversed_nanos"], ours["refunded_nanos"]) == ({"USD": 700}, {})
    assert ask(store, "cost", end_at_s=FRIDAY_S + 1).facts["reversed_nanos"] == {}
    [buy, sell] = store.contracts.reversed(0.0, NOW_S)
    assert (buy.site, buy.user, buy.records, buy.cost_nanos) == ("paris", "ada", 1, 700)
    assert (sell.site, sell.job, sell.origin, sell.cost_nanos) == (
        "dublin",
        "dublin:1",
        "dublin",
        5,
    )


def test_savings_and_showback_leave_out_what_other_sites_do_not_pay(
    store: Store, commit: Commit, usage: Usage
) -> None:
    """Of three sold runs one is voided, one refunded; of a fourth one half is voided."""
    commit(store, *_sold(usage))
    for kind, work in (("savings", "charged"), ("showback", None)):
        report = ask(store, kind, "project", whose="all")
        names = ("tasks", "wall_ns", "cost_nanos")
        assert column(report, *names) == [(20, 2 * HOUR_NS, 14)], kind
        assert work is None or column(report, "work") == [work]
        found = [report.facts[f"{name}_nanos"] for name in ("booked", "settled", "voided")]
        assert found == [{"USD": 14}, {"USD": 14}, {}]
        assert report.facts["refunded_nanos"] == {}
        assert ask(store, kind, "user", (("user", "ada"),), whose="all").rows == ()
    assert ask(store, "cost", whose="all").facts["settled_nanos"] == {"USD": 10 + 9 + 4}
    period = {"start_at_s": FRIDAY_S + 3600, "end_at_s": FRIDAY_S + 7200}
    assert ask(store, "savings", "", whose="all", **period).rows == ()


def _sold(usage: Usage) -> list[Any]:
    found: list[Any] = []
    for first, cost, parts in (
        (0, 7, {0: (7, "void")}),
        (10, 9, {10: (9, "post")}),
        (20, 10, {20: (10, "post")}),
        (30, 8, {30: (4, "void"), 35: (4, "post")}),
    ):
        at_s = FRIDAY_S + 1 + first
        found.append(
            usage(
                job="dublin:c3",
                first=first,
                cost_nanos=cost,
                wall_ns=HOUR_NS,
                user="dan",
                ended_at_s=at_s,
            )
        )
        for at, (nanos, state) in parts.items():
            key = ("c3", "sell", "dublin", 1, at)
            found += [
                Posted(*key, 5, 7, nanos, "USD", at_s),
                PostingSettled(*key, state, nanos, "USD", at_s + 1),
            ]
    return [
        ContractOpened("c3", "sell", "dublin", "dublin:c3", "local", 1, 5, "USD", 30.0, FRIDAY_S),
        *found,
        Disputed("sell", "c3", 1, 10, "dublin", "wrong", FRIDAY_S + 60),
        DisputeSettled(
            *("sell", "c3", 1, 10, "dublin", "accepted", "", FRIDAY_S + 61, 9, "USD"),
        ),
    ]


def test_work_that_made_room_for_free_and_fees_are_no_work_to_compare(
    store: Store, commit: Commit, usage: Usage
) -> None:
    at = {"ended_at_s": FRIDAY_S + 1, "wall_ns": HOUR_NS}
    fee = {"tasks": 0, "wall_ns": 0, "name": "reservation r-1, not used", "pool": "cloud"}
    commit(
        store,
        usage(first=0, **at, cost_nanos=40_000_000),
        usage(first=1, **at, cost_nanos=90_000_000, pool="cloud"),
        usage(first=2, **at, cost_nanos=0, state="preempted"),
        usage(first=3, **at | fee, cost_nanos=500_000_000),
    )
    report = ask(store, "savings", "project")
    # 0.09 USD a slot-hour in cloud, whose fee is no price; 2 slots for an hour at 0.04 USD.
    assert column(report, "work", "cost", "dearest", "static") == [
        ("charged", "0.13", "0.18", "0.08"),
        ("reserved", "0.5", "0", "0"),
    ]
    assert report.facts["dearest"]["USD"] == {"pool": "cloud", "price_nanos": 90_000_000}
    assert report.facts["static"]["USD"]["slots"] == 2


# --- whose work it is ----------------------------------------------------------------------------

OTHERS_KINDS = ("cost", "usage", "carbon", "savings", "showback")


def _three_trades(usage: Usage) -> list[Any]:
    """Own work, bought, sold, and passed on from one site to another; projects of one name."""
    hour = {"ended_at_s": FRIDAY_S + 60, "wall_ns": HOUR_NS, "energy_uj": 1}
    return [
        usage(first=0, cost_nanos=1, **hour),
        usage(first=1, pool="paris/fast", cost_nanos=10, **hour),
        usage(job="dublin:1", cost_nanos=100, **hour),
        usage(job="dublin:2", pool="paris/fast", cost_nanos=1000, **hour),
    ]


@pytest.mark.parametrize("kind", OTHERS_KINDS)
def test_a_report_is_of_our_own_users_unless_all_is_asked_for(
    store: Store, commit: Commit, usage: Usage, kind: str
) -> None:
    commit(store, *_three_trades(usage))
    ours, everything = (ask(store, kind, "project", whose=whose) for whose in (None, "all"))
    assert column(ours, "project", "tasks") == [("risk", 20)]
    assert column(everything, "project", "tasks") == [("risk", 40)]
    assert (ours.facts["whose"], everything.facts["whose"]) == ("ours", "all")
    assert "our own users' work; --all includes work of other sites" in ours.notes
    assert "all work, including work of other sites" in everything.notes
    if kind != "carbon":
        costs = [
            report.totals[0][report.columns.index("cost_nanos")] for report in (ours, everything)
        ]
        assert costs == [11, 1111]


def test_who_asks_for_the_origin_asks_for_all(store: Store, commit: Commit, usage: Usage) -> None:
    commit(store, *_three_trades(usage))
    for kind in OTHERS_KINDS:
        by_origin = ask(store, kind, "origin")
        assert column(by_origin, "origin", "tasks") == [("dublin", 20), ("london", 20)]
        dublins = ask(store, kind, "origin,project", (("origin", "dublin"),))
        assert column(dublins, "project", "tasks") == [("risk", 20)]
        assert "all work, including work of other sites, filtered by origin" in dublins.notes
        assert column(ask(store, kind, "origin", whose="ours"), "origin") == ["london"]
    assert ask(store, "cost", "", (("origin", "dublin"),), whose="ours").rows == ()
    with pytest.raises(ValueError, match='"ours" or "all", not \'theirs\''):
        ask(store, "cost", whose="theirs")


@pytest.mark.parametrize("whose", [None, "all"])
def test_slots_are_used_by_whoever_used_them(
    store: Store, commit: Commit, usage: Usage, whose: str | None
) -> None:
    commit(store, *_three_trades(usage))
    report = ask(store, "utilisation", whose=whose)
    assert column(report, "use", "slot_h") == [("ok", "2")]
    assert report.facts["whose"] == "all"
    assert report.notes == ("all use of the slots, by any site",)


def test_report_page_and_budget_say_the_same_of_the_same_books(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, *_three_trades(usage))
    day = {"start_at_s": FRIDAY_S, "end_at_s": FRIDAY_S + 86_400}
    cost = ask(store, "cost", "project", **day)
    [(project, nanos)] = column(cost, "project", "cost_nanos")
    page = gather(store, "london", Present(NOW_S), *day.values())
    for sums in (page.projects, page.days, page.hours):
        assert sum(each.cost_nanos for each in sums) == nanos == 11
    flows = {each.key: each.cost_nanos for each in page.flows}
    by_both = ask(store, "cost", "origin,site", **day)
    assert flows == {tuple(row[:2]): row[4] for row in by_both.rows}
    assert sum(flows.values()) == ask(store, "cost", whose="all", **day).totals[0][2] == 1111
    budgets = [
        AlertBudget("all", 10**9, "USD"),
        AlertBudget("risk", 10**9, "USD", whose=AlertScope.PROJECT, of=project),
        AlertBudget("dublin", 10**9, "USD", whose=AlertScope.ORIGIN, of="dublin"),
    ]
    spent = AlertBooks(store).facts(budgets, (), FRIDAY_S + 3600).spent
    assert [spent[rule.name].spent_nanos for rule in budgets] == [nanos, nanos, 1100]
    dublin = ask(store, "cost", "", (("origin", "dublin"),), **day)
    assert dublin.totals[0][2] == 1100
    assert ask(store, "savings", **day).totals[0][4] == nanos
    assert ask(store, "showback", **day).totals[0][3] == nanos


def test_report_and_page_say_the_same_of_what_is_not_final(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(
        store,
        *_deliveries(usage),
        Disputed("buy", "c1", 1, 0, "paris", "wrong", FRIDAY_S + 5),
        DisputeSettled("buy", "c1", 1, 0, "paris", "accepted", "", FRIDAY_S + 6, 700, "USD"),
    )
    present = Present(
        NOW_S, PRICES, (*RUNNING, OpenClaim({Dimension.ORIGIN: "dublin"}, "USD", 999))
    )
    for end_at_s, runs in ((NOW_S + 3600, True), (NOW_S - 3600, False)):
        day = {"start_at_s": FRIDAY_S, "end_at_s": end_at_s}
        facts = ask(store, "cost", present=present, **day).facts
        page = gather(store, "london", present, *day.values())
        for name in ("held_nanos", "reversed_nanos", "estimated_nanos"):
            sums: Counter[str] = Counter()
            for each in page.unsettled:
                sums[each.currency] += getattr(each, name)
            assert {code: nanos for code, nanos in sums.items() if nanos} == facts[name]
        by_site = {(each.site, each.currency): each for each in page.unsettled}
        assert by_site["paris", "USD"] == UnsettledCost("paris", "USD", 40, 700, 0)
        assert (("london", "EUR") in by_site) is runs


def test_what_is_pending_of_a_contract_and_a_period(
    store: Store, commit: Commit, usage: Usage
) -> None:
    commit(store, *_deliveries(usage))
    buy, sell = store.contracts.pending(0.0, NOW_S)
    assert (buy.side, buy.site, buy.pool, buy.user, buy.tasks, buy.cost_nanos) == (
        *("buy", "paris", "fast", "ada"),
        *(10, 40),
    )
    assert (sell.side, sell.job, sell.user, sell.project) == ("sell", "dublin:1", "", "")
    assert store.contracts.pending(FRIDAY_S + 2, FRIDAY_S + 3) == [buy]
    assert store.contracts.pending(FRIDAY_S + 4, NOW_S) == []


def test_the_slots_of_an_hour_are_read_back(store: Store, commit: Commit) -> None:
    first, second = (
        CapacityRecord("fast", 7200.0, 7260.0, 4),
        CapacityRecord("fast", 7260.0, 7270.0, 2),
    )
    commit(store, second, first, CapacityRecord("slow", 7200.0, 7270.0, 1))
    assert store.usage.capacity_of("fast", 2) == [first, second]
    assert store.usage.capacity_of("fast", 3) == []
