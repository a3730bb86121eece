"""Facts: the same sums in every figure, to the nano-unit; bounded; the same after a journey."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.messages.payments import Line
from federation.messages.wire import pack, unpack
from gateway.ledger.db.contracts.records import ContractOpened, Posted, PostingSettled
from gateway.ledger.db.settlement.records import Disputed, DisputeSettled, Payment, PaymentsTold
from gateway.ledger.db.usage.records import CapacityRecord, CapacityTotal, UsageRecord, UsageTotal
from gateway.ledger.page.facts import (
    PROJECTS_MAX,
    SITES_MAX,
    Deal,
    PageFacts,
    Sum,
    UnsettledCost,
    currencies,
    facts_from,
    from_plain,
    to_plain,
)
from gateway.ledger.page.gathering import DAYS_MAX, gather
from gateway.ledger.reports import Present
from gateway.ledger.store.store import Store

HOUR_NS = 3600 * 10**9
DAY_S = 86_400
NAMES = st.text(max_size=3)


def costs(sums: Iterable[Sum | UsageTotal]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in sums:
        found[each.currency] += each.cost_nanos
    return found


def row(
    hour: int, site: str, origin: str, project: str, state: str, cost_nanos: int, currency: str
) -> UsageTotal:
    key = (hour, site, origin, project, state, "carbon", "", "time")
    return UsageTotal(key, currency, 1, 0, 1, cost_nanos, 0, cost_nanos, cost_nanos, 1, 1, 1)


rows = st.lists(
    st.builds(
        row,
        st.integers(0, 2_000_000),
        NAMES,
        NAMES,
        NAMES,
        st.sampled_from(["ok", "failed", "repeat"]),
        st.integers(0, 10**25),
        st.sampled_from(["USD", "EUR", "JPY"]),
    ),
    max_size=60,
)


@given(rows)
def test_every_figure_adds_up_to_the_same_amounts(usage: list[UsageTotal]) -> None:
    facts = facts_from("home", (0.0, 3600.0), 0.0, iter(usage), [])
    ours = [each for each in usage if each.key[2] in ("", "home")]
    assert costs(facts.flows) == costs(facts.work) == costs(usage)
    assert costs(facts.days) == costs(facts.projects) == costs(facts.hours) == costs(ours)
    # What our own users sent is ours, and it is never among "the others" (None).
    assert costs(each for each in facts.flows if each.key[0] == "home") == costs(ours)
    at_home = sum(each.wall_ns for each in usage if each.key[1] in ("", "home"))
    assert sum(each.used_ns for each in facts.slots) == at_home


@given(rows)
def test_facts_are_bounded(usage: list[UsageTotal]) -> None:
    facts = facts_from("home", (0.0, 3600.0), 0.0, usage, [])
    for sums, at in ((facts.days, 1), (facts.hours, 1), (facts.flows, 0), (facts.flows, 1)):
        assert len({each.key[at] for each in sums} - {None}) <= SITES_MAX
    for currency in ("USD", "EUR", "JPY"):
        named = [each for each in facts.projects if each.currency == currency and each.key[0]]
        assert len(named) <= PROJECTS_MAX


@given(rows)
def test_facts_travel_as_plain_data(usage: list[UsageTotal]) -> None:
    unsettled = [UnsettledCost(site, "USD", 2**70, 1, 2) for site in ("", "a", "b")]
    slots = [CapacityTotal("a", 7, 2**70)]
    facts = facts_from("home", (0.0, 3600.0), 5.5, usage, slots, (), unsettled)
    assert from_plain(unpack(pack(to_plain(facts)), 1 << 24)) == facts


@pytest.mark.parametrize(
    "spoilt",
    [
        {},
        {"site": 3},
        {"days": [[[1, "a"], "USD", "x"]]},
        {"days": 7},
        {"slots": [[1]]},
        {"deals": [["a", 3, *"0123456789"]]},
        {"deals": [["a", "USD", "1", "2", "3"]]},
        {"unsettled": [["a", "USD", "1", "2"]]},
        {"unsettled": [[7, "USD", "1", "2", "3"]]},
        {"end_s": None},
    ],
)
def test_what_is_no_page_is_refused(spoilt: dict[str, Any], london: PageFacts) -> None:
    plain = to_plain(london) | spoilt if spoilt else {}
    with pytest.raises(ValueError, match="the facts of a page are invalid"):
        from_plain(plain)


def test_the_currency_with_most_work_comes_first(london: PageFacts) -> None:
    assert currencies(london) == ["USD", "EUR"]


def test_what_is_not_final_is_by_site_and_currency_and_bounded() -> None:
    sent = [row(0, f"s{at}", "", "p", "ok", 100 - at, "USD") for at in range(SITES_MAX + 3)]
    unsettled = [
        *(UnsettledCost(f"s{at}", "USD", 1, 10, 100) for at in range(SITES_MAX + 3)),
        UnsettledCost("s0", "USD", 5, 0, 0),
        UnsettledCost("", "NOK", 0, 0, 7),
    ]
    found = facts_from("home", (0.0, 3600.0), 0.0, sent, [], (), unsettled)
    assert found.unsettled[0] == UnsettledCost("home", "NOK", 0, 0, 7)
    assert found.unsettled[1] == UnsettledCost("s0", "USD", 6, 10, 100)
    assert found.unsettled[-1].site is None
    assert sum(each.held_nanos for each in found.unsettled) == SITES_MAX + 3 + 5
    assert len(found.unsettled) <= SITES_MAX + 2
    # What runs for the first time in a currency has a row, before anything of it is booked.
    assert currencies(found) == ["USD", "NOK"]


def test_slots_that_are_not_written_yet_are_there(
    store: Store, commit: Callable[..., None]
) -> None:
    start_at_s = 1_795_305_600.0  # a midnight
    written = CapacityRecord("old", start_at_s, start_at_s + 60, 4)
    commit(store, written)
    unwritten = (
        CapacityRecord(
            "new", start_at_s + 60, start_at_s + 100, 2
        ),  # the pool's first quarter of an hour
        CapacityRecord("old", start_at_s + 30, start_at_s + 90, 4),  # of which half is in the books
        CapacityRecord("new", start_at_s + DAY_S, start_at_s + DAY_S + 60, 9),  # after the period
    )
    present = Present(start_at_s + 100, unwritten=unwritten)
    [slots] = gather(store, "here", present, start_at_s, start_at_s + 3600).slots
    assert slots.capacity_ns == (4 * 60 + 2 * 40 + 4 * 30) * 10**9


def test_a_week_begins_on_monday() -> None:
    # 2026-11-23T05 is a Monday.
    monday = 1_795_410_000 // 3600
    facts = facts_from("a", (0.0, 1.0), 0.0, [], [CapacityTotal("a", monday, HOUR_NS)])
    assert [(each.weekday, each.hour) for each in facts.slots] == [(0, 5)]


def test_the_facts_of_a_store(
    store: Store, commit: Callable[..., None], usage: Callable[..., UsageRecord]
) -> None:
    start_at_s = 1_795_305_600.0  # a midnight
    times = [
        start_at_s - 1,
        start_at_s,
        start_at_s + DAY_S - 1,
        start_at_s + DAY_S,
        start_at_s + 2 * DAY_S,
    ]
    for at, ended_at_s in enumerate(times):
        commit(store, usage(first=at * 10, ended_at_s=ended_at_s, cost_nanos=10**at))
    commit(store, usage(first=100, pool="paris/a", ended_at_s=start_at_s + 5, cost_nanos=10**6))
    commit(store, usage(job="rome:1", ended_at_s=start_at_s + 5, cost_nanos=10**7))
    commit(store, CapacityRecord("local", start_at_s, start_at_s + 60, 4))

    facts = gather(
        store, "here", Present(start_at_s + 3 * DAY_S), start_at_s, start_at_s + 2 * DAY_S
    )

    day = int(start_at_s) // DAY_S
    assert {each.key: each.cost_nanos for each in facts.days} == {
        (day, "here"): 110,
        (day, "paris"): 10**6,
        (day + 1, "here"): 1_000,
    }
    assert {each.key: each.cost_nanos for each in facts.flows} == {
        ("here", "here"): 1_110,
        ("here", "paris"): 10**6,
        ("rome", "here"): 10**7,
    }
    assert sum(each.capacity_ns for each in facts.slots) == 240 * 10**9


def test_what_stands_between_sites_counts_what_was_taken_back_and_paid(
    store: Store, commit: Callable[..., None]
) -> None:
    start_at_s = 1_795_305_600.0  # a midnight
    deal = ("c1", "buy", "paris")
    times = [start_at_s - 9, start_at_s + 1, start_at_s + 2, start_at_s + 3]
    theirs = Line("W4", "USD", "received", 9, 10**12)
    commit(
        store,
        ContractOpened(*deal, "job-1", "fast", 1, 1, "USD", 30.0, start_at_s - 99),
        ContractOpened("c2", "sell", "rome", "rome:1", "local", 1, 1, "EUR", 30.0, start_at_s - 99),
        *(Posted(*deal, 1, at, 1, 1, 10**at, "USD", time_s) for at, time_s in enumerate(times)),
        Posted("c2", "sell", "rome", 1, 0, 1, 1, 77, "EUR", start_at_s + 1),
        *(PostingSettled(*deal, 1, at, "post", 10**at, "USD", start_at_s + 9) for at in (0, 1, 2)),
        Posted(*deal, 1, 4, 1, 1, 10**4, "USD", start_at_s + 4),
        PostingSettled(*deal, 1, 4, "void", 10**4, "USD", start_at_s + 9),
        Disputed("buy", "c1", 1, 0, "paris", "wrong", start_at_s + 10),
        DisputeSettled("buy", "c1", 1, 0, "paris", "accepted", "", start_at_s + 11, 1, "USD"),
        Payment("paris", "W1", "USD", "paid", "bank", 50, "", start_at_s + 12),
        Payment("oslo", "W2", "NOK", "received", "bank", 5, "", start_at_s + 12),
        Payment("paris", "L1", "USD", "received", "loss", 7, "", start_at_s + 13),
        Payment("paris", "W3", "USD", "paid", "bank", 50, "", start_at_s + DAY_S),
        PaymentsTold("paris", pack([theirs.row]), 0, b"", b"", start_at_s + DAY_S),
    )
    facts = gather(store, "here", Present(start_at_s + 2 * DAY_S), start_at_s, start_at_s + DAY_S)
    assert facts.deals == (
        # opening sold refunded bought credited paid received lost balance held void (un)confirmed
        Deal("oslo", "NOK", 0, 0, 0, 0, 0, 0, 5, 0, -5, 0, 0, 0, 0, -5, 0),
        Deal("paris", "USD", -1, 0, 0, 110, 1, 50, 0, 7, -67, 0, 1000, 0, 10**4, 100, 9),
        Deal("rome", "EUR", 0, 0, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0),
    )


def test_the_last_thirty_days_and_the_hour_under_way(store: Store) -> None:
    facts = gather(store, "here", Present(1_795_324_200.0), None, None)
    assert (facts.start_at_s, facts.end_at_s) == (1_792_713_600, 1_795_327_200)  # 23 Oct to 06:00


@pytest.mark.parametrize(
    ("start_at_s", "end_at_s", "reason"),
    [
        (36_000.0, 7_200.0, "before"),
        (5e9, None, "before"),
        (0.0, (DAYS_MAX + 1) * 86_400.0, "covers at most"),
        (float("nan"), None, "1970"),
        (None, float("inf"), "1970"),
        (-1.0, None, "1970"),
        (1e300, 2e300, "1970"),
    ],
)
def test_a_period_that_can_not_be(
    store: Store, start_at_s: float | None, end_at_s: float | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        gather(store, "here", Present(1_795_324_200.0), start_at_s, end_at_s)
