"""A contract whose job has no task left to run makes way for other jobs of its buyer."""

import pytest
from support.pure.town import CHEAP, DEAR, UTC_S, Town, spec

from federation.messages import deals
from federation.messages.contracts import ContractPhase
from gateway.api.views.wait_reasons import wait_reason
from gateway.api.views.work_views import why_waiting
from gateway.scheduler.model import events
from policies.costs.budgets import Budget
from policies.parties import read_party
from policies.placement.asks import Wishes

CAP = 2
G = b"g" * 32


def may_send(site, origin, pool, project, slots, price):
    return "" if slots <= CAP else f"slots={CAP}"


@pytest.fixture
def town():
    """Paris, cheap, gives london two slots; its job j has both, and nothing to run."""
    town = Town()
    london = town.build("london", DEAR, 1)
    town.build("paris", CHEAP, 4).permits.may_send = may_send
    town.show()
    london.do(events.ClientJoined(1, "ann"))
    london.do(events.JobOpened(1, "j", spec()))
    london.do(events.TasksArrived(1, "j", 0, [b"1"] * 4))
    town.run(lambda: done(london, "j") == 4)
    assert [each.job for each in live(london)] == ["j"]
    return town


def done(site, job):
    return sum(len(part.values) for part in site.results[1] if part.job == job)


def live(site):
    return [each for each in site.exchange.purchases.purchases.values() if each.is_live]


def submit(site, job, tasks=2, **changes):
    site.do(events.JobOpened(1, job, spec(function=G, **changes)))
    site.do(events.TasksArrived(1, job, 0, [b"1"] * tasks))
    site.do(events.JobClosed(1, job, tasks))


def opened(site, job, seconds=2.0):
    """Wait until a job has its contract, and the one of another has gone."""
    site.town.pass_time(seconds, until=lambda: [each.job for each in live(site)] == [job])
    return [each.job for each in live(site)] == [job]


def test_an_idle_contract_makes_way_for_a_job_that_may_go_there_alone(town):
    london = town.sites["london"]
    submit(london, "k", wishes=Wishes(allowed_sites=frozenset({"paris"})))
    assert opened(london, "k")


def test_cheap_work_does_not_go_to_a_dear_pool_because_of_an_idle_contract(town):
    london = town.sites["london"]
    submit(london, "k")
    assert opened(london, "k")
    assert not any(each.job == "k" for work in london.at_work.values() for each in work)
    town.run(lambda: done(london, "k") == 2)
    assert not any(part.sites == [] for part in london.results[1] if part.job == "k")


def test_a_contract_with_work_is_not_given_back(town):
    london = town.sites["london"]
    london.do(events.TasksArrived(1, "j", 4, [b"1"] * 2))
    town.deliver()
    submit(london, "k", wishes=Wishes(allowed_sites=frozenset({"paris"})))
    town.pass_time(2.0)
    assert [each.job for each in live(london)] == ["j"]
    assert not [each for *_, each in town.said if isinstance(each, deals.CloseContract)]
    broker, utc_s = london.broker, UTC_S + town.now_s
    reasons = why_waiting(broker, broker.jobs["k"], utc_s)
    assert wait_reason(broker, broker.jobs["k"], reasons, utc_s, is_nested=False) == (
        "its plan sends it to other sites, and no slot there is bought for it yet; those bought at "
        "paris/local serve other jobs"
    )


def test_two_idle_contracts_stay_where_the_seller_has_slots_for_both(town):
    town.sites["paris"].permits.may_send = lambda *_: ""
    london = town.sites["london"]
    submit(london, "k")
    town.run(lambda: done(london, "k") == 2)
    assert [each.job for each in live(london)][:1] == ["j"]


def test_an_idle_contract_does_not_keep_the_money_of_another_job():
    amount = 1_000 * CHEAP
    held = Budget("b", read_party("project:risk"), "USD", amount, span=None)
    town = Town()
    london = town.build("london", DEAR, 0, [held])
    town.build("paris", CHEAP, 4)
    town.show()
    risk = {"project": "risk", "wishes": Wishes(allowed_sites=frozenset({"paris"}))}
    london.do(events.ClientJoined(1, "ann"))
    london.do(events.JobOpened(1, "j", spec(**risk)))
    london.do(events.TasksArrived(1, "j", 0, [b"1"] * 4))
    town.run(lambda: done(london, "j") == 4)
    account = london.broker.budget_accounts.own["b"]
    assert account.held_nanos > amount // 2, "the contract holds its limit"
    submit(london, "k", **risk)
    town.pass_time(2.0, until=lambda: "k" in [each.job for each in live(london)])
    assert "k" in [each.job for each in live(london)]


def test_money_that_is_gone_at_the_hold_comes_from_idle_contracts_of_the_same_budget():
    """All is of ann, whose own budget has room; that of the project was held for others meanwhile.

    Two jobs have nothing to run, and one of them is of the project.
    """
    amount = 1_000 * CHEAP
    budgets = [
        Budget("risk", read_party("project:risk"), "USD", amount, span=None),
        Budget("ann", read_party("user:ann"), "USD", 100 * amount, span=None),
    ]
    town = Town()
    london = town.build("london", DEAR, 0, budgets)
    town.build("paris", CHEAP, 4)
    town.show()
    there = Wishes(allowed_sites=frozenset({"paris"}))
    london.do(events.ClientJoined(1, "ann"))
    limits = {"max_cost_nanos": 100 * CHEAP, "currency": "USD"}
    for job, project in (("r", "risk"), ("n", "none")):
        london.do(events.JobOpened(1, job, spec(project=project, wishes=there, **limits)))
        london.do(events.TasksArrived(1, job, 0, [b"1"] * 2))
        town.run(lambda job=job: done(london, job) == 2)
    by_job = {each.job: each for each in live(london)}
    submit(london, "k", project="risk", wishes=there, **limits)
    town.pass_time(2.0, until=lambda: len([e for *_, e in town.said if is_hold(e)]) == 3)
    account = london.broker.budget_accounts.own["risk"]
    wanted = next(e for e in london.exchange.purchases.purchases.values() if e.job == "k")
    assert all(each.earmark.left_nanos > 0 for each in by_job.values())
    account.held_nanos += account.room_nanos - wanted.left_nanos + 1
    town.deliver(lambda: len([e for *_, e in town.said if isinstance(e, deals.Commit)]) == 3)
    assert by_job["r"].phase is ContractPhase.CLOSING
    assert by_job["n"].phase is ContractPhase.OPEN
    assert len([e for *_, e in town.said if isinstance(e, deals.Commit)]) == 3


def is_hold(message):
    return isinstance(message, deals.Hold)


def test_a_job_that_lacks_money_closes_no_idle_contract_that_holds_none_of_its_budget():
    amount = 1_000 * CHEAP
    budgets = [
        Budget(name, read_party(f"project:{name}"), "USD", amount, span=None)
        for name in ("risk", "credit")
    ]
    town = Town()
    london = town.build("london", DEAR, 0, budgets)
    town.build("paris", CHEAP, 4)
    town.show()
    there = Wishes(allowed_sites=frozenset({"paris"}))
    london.do(events.ClientJoined(1, "ann"))
    for job, project in (("r", "risk"), ("c", "credit"), ("n", "none")):
        london.do(events.JobOpened(1, job, spec(project=project, wishes=there)))
        london.do(events.TasksArrived(1, job, 0, [b"1"] * 2))
        town.run(lambda job=job: done(london, job) == 2)
    assert [each.job for each in live(london)] == ["r", "c", "n"]
    submit(london, "k", project="risk", wishes=there)
    town.pass_time(2.0, until=lambda: "k" in [each.job for each in live(london)])
    still = [each.job for each in live(london) if each.phase is ContractPhase.OPEN]
    assert still == ["c", "n", "k"]
    assert london.broker.budget_accounts.own["credit"].held_nanos > 0
