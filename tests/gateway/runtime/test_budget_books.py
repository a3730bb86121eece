"""Budgets after a restart: read from books of each kind."""

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.contracts.slices.borrowing import held_of
from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from gateway.ledger.db.contracts.records import Posted, PostingSettled
from gateway.ledger.db.settlement.records import Payment
from gateway.ledger.db.usage.records import UsageRecord
from gateway.runtime.budget_books import read_known, spent_between
from gateway.scheduler.model.budget_accounts import BudgetAccounts, BudgetSpent
from policies.calendar.periods import PeriodLength
from policies.costs.budgets import SLOT_TIME, Budget
from policies.parties import read_party
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

NOW_S = 1_700_000_000.0  # 2023-11-14T22:13:20Z
HOUR_S = 3_600.0


def used(number=0, **fields):
    """Ada's task of the project risk, a minute ago, in our pool; it took 2 s and cost 7."""
    defaults = {
        "job": f"j{number}", "first": 0, "tasks": 1, "attempt": 1, "user": "ada", "project": "risk",
        "name": "var", "pool": "local", "worker": "w", "state": "ok", "started_at_s": NOW_S - 62,
        "ended_at_s": NOW_S - 60, "wall_ns": 2 * 10**9, "cpu_ns": 1, "peak_memory_bytes": 1,
        "price_nanos": 1, "currency": "USD", "tariff": "v", "cost_nanos": 7, "group": "desk",
    }  # fmt: skip
    return UsageRecord(**(defaults | fields))


def store_of(*records):
    disk = Disk()
    disk.commit(list(records), durable=True)
    return MemoryStore(disk)


WORK = (
    used(0),
    used(1, user="bob", group="", project="other", cost_nanos=20),
    used(2, currency="EUR", cost_nanos=300),
    used(3, job="paris:c", user="eve@paris", group="", cost_nanos=4_000),
    used(4, job="lyon:c", user="eve@lyon", group="", project="x", cost_nanos=50_000),
    used(5, state="repeat", cost_nanos=0),
    used(6, pool="rome/grid", cost_nanos=600_000),
    used(7, ended_at_s=NOW_S - 86_400, cost_nanos=7_000_000),
    used(8, state="preempted", cost_nanos=0),
    used(9, state="preempted", price_class="preemptible", cost_nanos=8_000_000, currency="GBP"),
)


@pytest.mark.parametrize(
    ("party", "unit", "spent"),
    [
        ("all", "USD", 654_027),
        ("ours", "USD", 600_027),
        ("others", "USD", 54_000),
        ("user:ada", "USD", 600_007),
        ("user:bob", "USD", 20),
        ("user:eve@paris", "USD", 4_000),
        ("group:desk", "USD", 600_007),
        ("project:risk", "USD", 600_007),  # of paris' project of that name nothing
        ("site:paris", "USD", 4_000),
        ("site:rome", "USD", 0),  # which only ran ours
        ("ours", "EUR", 300),
        ("ours", "GBP", 8_000_000),
        ("ours", SLOT_TIME, 10 * 10**9),  # in whatever money, but for what is not theirs to pay
        ("others", SLOT_TIME, 4 * 10**9),
    ],
)
def test_what_was_spent_is_what_the_books_have_of_a_party(party, unit, spent):
    budget = Budget("b", read_party(party), unit, 10**18, PeriodLength.DAY)
    store = store_of(*WORK)
    assert spent_between(store.usage, budget, NOW_S - HOUR_S, NOW_S) == spent
    known = read_known(store, BudgetAccounts([budget], utc_s=NOW_S), NOW_S)
    assert known.spent == {"b": BudgetSpent(spent, spent)}
    assert known.owed == {}


@settings(max_examples=60, deadline=None)
@given(
    ends_s=st.lists(st.floats(NOW_S - 3 * 86_400, NOW_S), max_size=12),
    span=st.sampled_from([None, *PeriodLength]),
    zone=st.sampled_from(["UTC", "Asia/Kolkata", "America/New_York"]).map(ZoneInfo),
)
def test_of_a_period_every_moment_counts_and_no_other(ends_s, span, zone):
    budget = Budget("b", read_party("ours"), "USD", 10**18, span, zone)
    records = [
        used(at, ended_at_s=end_at_s, started_at_s=end_at_s) for at, end_at_s in enumerate(ends_s)
    ]
    known = read_known(store_of(*records), BudgetAccounts([budget], utc_s=NOW_S), NOW_S)
    start_at_s = budget.period_at(NOW_S).start_at_s if span else 0.0
    spent = 7 * sum(start_at_s <= end_at_s < NOW_S for end_at_s in ends_s)
    assert known.spent["b"].period_nanos == spent


def test_of_anothers_budget_what_was_spent_since_our_account_was_opened_counts():
    budget = Budget("b", read_party("ours"), "USD", 10, PeriodLength.DAY, owner="london")
    budget_accounts = BudgetAccounts([budget], utc_s=NOW_S)
    at_s = NOW_S - 2 * 86_400
    account = held_of(budget_accounts.own["b"], round(at_s * 1000))
    records = [
        used(0, ended_at_s=at_s - 1, cost_nanos=1),
        used(1, ended_at_s=at_s + 1, cost_nanos=20),
        used(2, cost_nanos=300),
    ]
    store = store_of(*records, account, SliceHeld("x", "y", 1, "EUR", "ours", "day", "UTC", True))
    known = read_known(store, budget_accounts, NOW_S)
    assert known.spent == {"b": BudgetSpent(320, 300)}
    assert known.accounts == {account: BudgetSpent(320, 300)}
    assert read_known(store_of(*records), budget_accounts, NOW_S).spent == {"b": BudgetSpent(0, 0)}


def test_an_account_of_other_terms_is_read_by_its_own():
    budget = Budget("b", read_party("ours"), "USD", 10, owner="london")
    former = SliceHeld("london", "b", 1_000, "USD", "user:bob", "ever", "Europe/London")
    known = read_known(store_of(*WORK, former), BudgetAccounts([budget], utc_s=NOW_S), NOW_S)
    assert known.accounts == {former: BudgetSpent(20, 20)}


def test_what_sites_owe_is_what_is_delivered_and_not_voided_less_what_we_owe_them():
    def posted(side, first, nanos):
        return Posted("c", side, "paris", 1, first, 1, 1, nanos, "USD", NOW_S)

    def settled(side, first, state, nanos):
        return PostingSettled("c", side, "paris", 1, first, state, nanos, "USD", NOW_S)

    store = store_of(
        *(posted("sell", 0, 100), settled("sell", 0, "post", 100)),
        *(posted("sell", 1, 20), settled("sell", 1, "void", 20)),
        posted("sell", 2, 3),
        *(posted("buy", 0, 40), settled("buy", 0, "post", 40)),
        posted("buy", 1, 5_000),
        Payment("paris", "r", "USD", "received", "bank", 10, "", NOW_S),
    )
    budget_accounts = BudgetAccounts([], {"paris": ((1_000, "USD"),)}, NOW_S)
    assert read_known(store, budget_accounts, NOW_S).owed == {("paris", "USD"): 100 + 3 - 40 - 10}


def test_what_was_lent_is_kept_as_it_was_written_last():
    row = SliceLent("b", "USD", "paris", 1, "5", "0", "0", "0", "0", 0, 0, 1, 1, NOW_S)
    later = SliceLent("b", "USD", "paris", 1, "9" * 30, "1", "2", "0", "0", 3, 4, 1, 2, NOW_S)
    assert store_of(row, later).budgets.lent() == [later]
