"""The division of a job's money among the contracts of a plan. Pure objects."""

from dataclasses import replace

import pytest
from support.pure.town import CHEAP, UTC_S, Town, spec

from federation.messages import deals
from gateway.contracts.buying.grant_parts import part_of
from gateway.ledger.db import records
from policies.costs.budgets import Budget
from policies.parties import read_party
from policies.placement.asks import FASTEST, Wishes

PARIS, TOKYO = ("paris", "local"), ("tokyo", "local")
ASSUMED_S = 60.0
ONE_CHEAP = CHEAP // 60  # a task of ASSUMED_S
ONE_DEAR = 1000 * ONE_CHEAP
ABROAD = Wishes(forbidden_sites=frozenset({"london"}))


def cheap_and_dear(**changes):
    """London, which has no workers, cheap Paris and dear Tokyo."""
    town = Town()
    town.build("london", CHEAP, 0, **changes)
    town.build("paris", CHEAP, 2)
    town.build("tokyo", 1000 * CHEAP, 2)
    town.show()
    return town


def planned(tasks=8, task_s=None):
    """London's plan for a job in haste, which is split over both."""
    london = cheap_and_dear().sites["london"]
    london.exchange.refresh(UTC_S)
    asked = spec(wishes=replace(ABROAD, objective=FASTEST))
    if task_s is not None:
        london.broker.durations.learn(asked.function, 100, round(100 * task_s * 1e9))
    decision = london.exchange.deciding.decide(asked, tasks, UTC_S)
    assert {lane.key for lane, _ in decision.plan.shares} == {PARIS, TOKYO}
    return decision


def parts(left_nanos, decision=None, **state):
    decision = decision or planned()
    return [part_of(left_nanos, decision, key, ASSUMED_S, **state) for key in (PARIS, TOKYO)]


@pytest.mark.parametrize("left_nanos", [ONE_CHEAP, ONE_CHEAP + 1, ONE_DEAR])
def test_money_that_pays_for_no_dear_task_is_all_for_the_cheap_share(left_nanos):
    assert parts(left_nanos) == [left_nanos, 0]


def test_money_for_more_pays_the_cheap_share_whole_and_one_dear_task():
    cheap, dear = parts(ONE_DEAR + 2 * ONE_CHEAP)
    assert cheap >= ONE_CHEAP
    assert dear >= ONE_DEAR
    assert cheap + dear <= ONE_DEAR + 2 * ONE_CHEAP


def test_too_little_for_one_assumed_task_is_tried_once_where_it_is_cheapest():
    assert parts(ONE_CHEAP // 5) == [ONE_CHEAP // 5, 0]
    assert parts(ONE_CHEAP // 5, is_first=False) == [0, 0], "before one was measured"


def test_of_known_tasks_no_share_has_less_than_one():
    decision = planned(task_s=36.0)
    one_cheap, one_dear = CHEAP // 100, CHEAP * 10
    assert parts(one_dear, decision) == [one_dear // 8, 0]
    assert parts(one_cheap - 1, decision) == [0, 0]
    cheap, dear = parts(100 * one_dear, decision)
    assert cheap >= one_cheap
    assert dear >= one_dear


def test_a_small_budget_is_spent_at_the_cheap_site_and_its_job_ends():
    """The dear site had 99.9 % of it, and the cheap one less than a task."""
    budget = Budget("risk", read_party("project:risk"), "USD", ONE_CHEAP // 2, span=None)
    town = cheap_and_dear(budgets=[budget])
    london = town.sites["london"]
    london.submit(4, project="risk", wishes=replace(ABROAD, objective=FASTEST))
    town.run(lambda: len(london.answers()) == 4, task_s=0.1)
    assert {to for sender, to, what in town.said if isinstance(what, deals.Hold)} == {"paris"}
    used = [each for each in london.books if isinstance(each, records.UsageRecord)]
    assert sum(each.tasks for each in used) == 4, "none of them was wasted"
