"""The decisions about money by themselves: what a task needs, who is asked, what ends and why."""

from types import SimpleNamespace

import pytest

from federation.clocks import UtcS
from federation.ranges import RangeSet
from federation.reasons import Reason
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.reserved import ReservedAmounts
from gateway.scheduler.quotas.spending import BudgetEnforcement, Short
from policies.calendar.periods import PeriodLength
from policies.costs.budgets import SLOT_TIME, Budget, Running, Waiting
from policies.parties import read_party
from policies.tariffs import Tariff

UNIT = 10**9
NOON_S = UtcS(1_700_049_600.0)
DEAR = Tariff(36_000 * UNIT, "USD", "dear")  # ten units a slot-second
CHEAP = Tariff(3_600 * UNIT, "USD", "cheap")  # one
EURO = Tariff(UNIT, "EUR", "abroad")


def budget(amount=100, name="b", party="user:ann", unit="USD", **changes):
    fields = {"span": PeriodLength.DAY, **changes}
    return Budget(name, read_party(party), unit, amount * UNIT, **fields)


def spec(**changes):
    terms = {
        "name": "f", "function": b"f" * 32, "detached": False, "user": "ann", "project": "risk",
        "priority": 0.0, "tags": {}, "timeout_s": None, "retries": 0, "max_cost_nanos": None,
        "currency": "USD", "python": "3.11", "prints": False,
    }  # fmt: skip
    return JobSpec(**(terms | changes))


class Site:
    """The decisions of a site: with two pools of its own, and the prices of others."""

    def __init__(self, *budgets, credit=None, task_s=1.0, offered=(), tariffs=(DEAR, CHEAP)):
        self.accounts = BudgetAccounts(budgets, credit or {}, NOON_S)
        self.reserved, self.jobs = ReservedAmounts(self.accounts), {}
        self.decides = BudgetEnforcement(
            self.accounts,
            self.reserved,
            self.jobs,
            lambda _: tariffs,
            lambda _: task_s,
            lambda _: offered,
        )

    def __getitem__(self, name):
        return self.accounts.own[name]

    def run(self, name, *held, waiting=False, of=None, **about):
        """A job with an assignment of one task for each budget that holds something for it."""
        terms = spec(**about)
        accounts = self.accounts.of(terms.whose) if of is None else of
        job = SimpleNamespace(
            spec=terms, budget_accounts=accounts, assignments={}, waiting=waiting, needs_nanos=0
        )
        for at, account in enumerate(held):
            job.assignments[at] = SimpleNamespace(
                job=job, tariff=CHEAP, left=RangeSet([(at, at + 1)]), given_at_s=NOON_S,
                worker=SimpleNamespace(slots=1), holds=((account, UNIT),),
            )  # fmt: skip
        self.jobs[name] = job
        return job


# --- what a task needs ---------------------------------------------------------------------------


def test_a_task_lacks_what_the_cheapest_pool_holds_for_it_and_what_it_costs_elsewhere():
    # The factor of three on a measured second: three units in the cheap pool.
    site = Site(budget(2, factor=3.0), offered=(Tariff(1_800 * UNIT, "USD", "half"),))
    assert site.decides.short(spec()).lacking == ((site["b"], 3 * UNIT, UNIT // 2),)


@pytest.mark.parametrize(
    ("task_s", "offered", "least"),
    [
        (1.0, (EURO,), 3 * UNIT),  # another currency pays nothing here
        (None, (CHEAP,), 1),  # unknown: only certain charges count
        (1.0, (), 3 * UNIT),
    ],
)
def test_elsewhere_counts_in_the_budgets_currency_and_by_the_measured_time(task_s, offered, least):
    site = Site(budget(2, factor=3.0, unknown_s=3.0), task_s=task_s, offered=offered)
    ((account, one_nanos, least_nanos),) = site.decides.short(spec()).lacking
    assert (account, one_nanos, least_nanos) == (site["b"], 3 * UNIT, least)


def test_a_task_that_was_stopped_for_its_cost_needs_more_than_that_elsewhere():
    site = Site(budget(2, waiting=Waiting.END), offered=(CHEAP,), tariffs=())
    site.run("cheap", waiting=True)
    job = site.run("dear", waiting=True)
    job.needs_nanos = 2 * UNIT
    site["b"].lack(2 * UNIT)
    site["b"].spend(UNIT, NOON_S)
    (ending,) = site.decides.ticked(NOON_S)
    assert ending.job is job
    assert "has too little left for a task" in ending.reason


def test_no_budget_lacks_what_fits_nor_a_soft_one_anything_nor_for_sold_work():
    assert not Site(budget(30)).decides.short(spec()).lacking
    assert not Site(budget(1, is_hard=False)).decides.short(spec()).lacking
    assert not Site(budget(1)).decides.short(spec(price=CHEAP, path=("paris",))).lacking
    assert Site(budget(30)).decides.short(spec()) == Short()
    assert Short().budget == ""


def test_work_may_leave_for_want_of_money_and_not_of_time():
    money, time = Site(budget(0)), Site(budget(0), budget(0, "t", unit=SLOT_TIME))
    assert money.decides.short(spec()).may_leave
    assert money.decides.short(spec()).budget == "the budget 'b' (user:ann)"
    assert not time.decides.short(spec()).may_leave


@pytest.mark.parametrize(
    ("refused_nanos", "least"), [(2 * UNIT, UNIT), (UNIT, 3 * UNIT), (UNIT // 2, 3 * UNIT)]
)
def test_an_owner_that_refused_the_need_here_is_asked_for_the_lesser_need_elsewhere(
    refused_nanos, least
):
    site = Site(budget(0))
    account = site["b"]
    account.refused, account.refused_nanos = "it is spent", refused_nanos
    Short(((account, 3 * UNIT, UNIT),)).note()
    assert (account.short_nanos, account.least_short_nanos) == (3 * UNIT, least)


# --- sold work -----------------------------------------------------------------------------------


def test_a_buyer_beyond_its_credit_is_sold_nothing_at_any_price():
    site = Site(credit={"paris": ((0, "USD"),)})
    code, text = site.decides.objection(spec(user="bob@paris"), "paris", CHEAP)
    assert "the credit of paris is exhausted" in text
    assert code is Reason.CREDIT_LIMIT
    assert site.decides.objection(spec(user="bob@rome"), "rome", CHEAP) is None


def test_a_charge_counts_against_the_hold_of_its_reservation(monkeypatch):
    site, used = Site(budget(10)), []
    monkeypatch.setattr(ReservedAmounts, "use", lambda _self, *given: used.append(given))
    record = SimpleNamespace(pool="local", cost_nanos=7, currency="USD", charged_nanos=7)
    site.decides.charge(SimpleNamespace(budget_accounts=()), CHEAP, [record], NOON_S)
    assert used == [("local", CHEAP, 7)]


# --- what ends -----------------------------------------------------------------------------------


def test_running_tasks_are_stopped_once_they_have_used_up_exactly_all_of_it():
    site = Site(budget(5, running=Running.STOP))
    job = site.run("j", site["b"])
    assert site.decides.ticked(UtcS(NOON_S + 4.0)) == []
    (ending,) = site.decides.ticked(UtcS(NOON_S + 5.0))
    assert (ending.job, ending.assignments) == (job, (job.assignments[0],))


def test_only_tasks_that_the_budget_pays_for_are_stopped():
    """Others of the same job are held in another one; sold work is the buyer's; others pay."""
    site = Site(budget(5, running=Running.STOP), budget(99, "other"))
    both = (site["b"], site["other"])
    job = site.run("j", *both, of=both)
    job.assignments[0].holds = ((site["other"], UNIT), (site["b"], UNIT))  # both pay for it
    site.run("sold", site["b"], of=(site["b"],), price=CHEAP, path=("paris",))
    site.run("elsewhere", site["other"], of=(site["other"],))
    (ending,) = site.decides.ticked(UtcS(NOON_S + 5.0))
    assert (ending.job, ending.assignments) == (job, (job.assignments[0],))


def test_only_waiting_jobs_that_it_pays_for_end_with_a_budget():
    site = Site(budget(0, waiting=Waiting.END), budget(99, "other", party="user:bob"))
    ended = site.run("j", waiting=True)
    site.run("idle")
    site.run("bobs", waiting=True, user="bob")
    site.run("sold", waiting=True, of=(site["b"],), price=CHEAP, path=("paris",))
    site["b"].lack(UNIT)
    assert [each.job for each in site.decides.ticked(NOON_S)] == [ended]


# --- why work waits ------------------------------------------------------------------------------


def test_work_waits_for_the_hard_budgets_without_room_in_the_cheapest_pool():
    site = Site(
        budget(0, "soft", is_hard=False), budget(99, "wide"), budget(2, "narrow", factor=3.0)
    )
    assert list(site.decides.why_waiting(site.run("j"))) == [site["narrow"]]
    fits = Site(budget(3, factor=3.0))  # in the dear pool thirty would be held
    assert fits.decides.why_waiting(fits.run("j")) == {}


def test_a_sites_credit_in_another_currency_is_no_reason_to_wait():
    site = Site(credit={"paris": ((0, "EUR"), (0, "USD"))})
    job = site.run("j", user="bob@paris", price=CHEAP, path=("paris",))
    assert [each.budget.unit for each in site.decides.why_waiting(job)] == ["USD"]


def test_the_end_of_a_budget_is_news_again_after_a_part_of_it_came_back():
    site = Site(budget(10))
    account = site["b"]
    account.spend(10 * UNIT, NOON_S)
    assert len(site.decides.news()) == 1
    account.spent_nanos = 10 * UNIT - 1  # a trifle
    assert site.decides.news() == []
    account.spent_nanos = 10 * UNIT
    assert site.decides.news() == []
    account.spent_nanos = 9 * UNIT  # a tenth
    assert site.decides.news() == []
    account.spent_nanos = 10 * UNIT
    assert len(site.decides.news()) == 1
