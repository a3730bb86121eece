"""How contracts end: early, idle, twice over, and while something is on its way. Pure objects."""

from dataclasses import replace

import pytest
from support.pure.town import CHEAP, DEAR, RULES, UTC_S, Town, dear_and_cheap, spec

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase
from gateway.contracts.selling.unsettled import POSTING_BYTES
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from policies.placement.asks import Wishes

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))
MESSAGES_MAX = 2_000


@pytest.fixture
def town():
    return dear_and_cheap()


def deliver(town, most=MESSAGES_MAX):
    """Carry messages until none is left; return how many, at most so many."""
    count = 0
    while (town.mail or town.later) and count < most:
        while town.later:
            site, event = town.later.pop(0)
            site.do(event)
        if town.mail:
            sender, receiver, side, _, message = town.mail.popleft()
            there = PeerSide.BUYER if side is PeerSide.SELLER else PeerSide.SELLER
            site = town.sites[receiver]
            site.kernel.hear(sender, there, message, town.now_s, UTC_S + town.now_s)
            site.do()
            count += 1
    return count


def runs_on(town, site):
    """None of the tasks in its slots can be given back any more."""
    site._recall = lambda worker, order: town.later.append(
        (site, events.HandedBack(worker, order.assignment, ()))
    )


def said(town, *kinds):
    return [message for *_, message in town.said if isinstance(message, kinds)]


def live(site):
    return [each for each in site.exchange.purchases.purchases.values() if each.is_live]


def measured(town, **changes):
    """London has run the function abroad; it takes a tenth of a second."""
    london = town.sites["london"]
    london.submit(8, "first", **changes)
    town.run(lambda: len(london.answers()) == 8, task_s=0.1)
    london.results.clear()
    town.pass_time(15.0)
    return london, town.sites["paris"]


def test_a_bundle_that_is_too_much_for_an_empty_contract_ends_it():
    town = dear_and_cheap(replace(RULES, buyer_bytes_max=30_000))
    london = town.sites["london"]
    london.submit(8, "first")
    town.run(lambda: len(london.answers()) == 8)
    london.submit(250, "small", wishes=ABROAD)
    deliver(town)
    town.pass_time(0.5)
    london.do(events.JobOpened(1, "big", spec(wishes=ABROAD)))
    london.do(events.TasksArrived(1, "big", 0, [b"x" * 20_000]))
    london.do(events.JobClosed(1, "big", 1))
    assert deliver(town) < MESSAGES_MAX
    assert len([m for m in said(town, deals.Forward) if len(m.arguments[0]) == 20_000]) < 10


def test_what_an_ending_contract_gives_back_is_not_sent_under_it_again(town):
    london, paris = measured(town, wishes=ABROAD)
    runs_on(town, paris)
    london.submit(40, "second", wishes=ABROAD)
    deliver(town)
    town.now_s += 0.6
    paris.kernel.tick(town.now_s, UTC_S + 100_000)  # its grant has expired; four tasks run
    paris.do()
    deliver(town)
    paris.work(1, task_s=0.5)  # one slot is free, three run on
    assert deliver(town) < MESSAGES_MAX


def test_many_forwards_are_given_back_when_a_grant_ends(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(8, wishes=ABROAD)
    deliver(town)
    [purchase] = live(london)
    epochs = [9_000_000_000 + at for at in range(300)]
    for at, epoch in enumerate(epochs):
        forward = deals.Forward(purchase.contract, epoch, 1000 + at, [b""])
        paris.kernel.hear("london", PeerSide.BUYER, forward, town.now_s, UTC_S)
    paris.do()
    town.said.clear()
    paris.kernel.tick(town.now_s, UTC_S + 100_000)
    paris.do()
    while town.later:
        site, event = town.later.pop(0)
        site.do(event)
    given_back = {message.epoch for message in said(town, deals.GivenBack) if message.ranges}
    assert given_back >= set(epochs)


def test_what_is_delivered_again_counts_once_and_breaks_no_limit(town):
    london, paris = measured(town)
    carry = town.carry
    town.carry = lambda sender, say: isinstance(say.message, deals.Bill) or carry(sender, say)
    limit = 278 * 20 + 100  # of twenty tasks; what has come is never settled
    london.submit(40, "second", max_cost_nanos=limit, currency="USD", wishes=ABROAD)
    for _ in range(100):
        town.deliver()
        if len(london.answers()) >= 20:
            break
        paris.work(1, task_s=0.1)
        town.deliver()
        town.pass_time(0.05)
    town.carry = carry
    town.mail.clear()
    [purchase] = live(london)
    spent = purchase.spent_nanos
    assert purchase.tab.pending
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.deliver()
    assert purchase.spent_nanos == spent


def test_what_was_granted_holds_when_the_buyer_is_back(town):
    london = town.sites["london"]
    limit = 50_000
    wishes = Wishes(forbidden_sites=frozenset({"london"}))
    london.submit(200, detached=True, max_cost_nanos=limit, currency="USD", wishes=wishes)
    town.run(lambda: any(isinstance(r, records.OutcomeKept) for r in london.books))
    town.deliver()
    [before] = live(london)
    job = london.broker.jobs["j"]
    done = tuple(job.ended)
    arrived = [
        events.TasksArrived(0, "j", low, [b""] * (high - low))
        for low, high in job.ended.missing(0, 200)
    ]
    recovered = events.JobRecovered("j", job.spec, 200, done, 0, 0, (), dict(job.costs_nanos), 0, 0)
    town.mail.clear()
    london.workers = 0
    london.recover(2, recovered, *arrived)
    after = london.exchange.purchases.purchases[before.contract]
    assert (after.max_cost_nanos, after.spent_nanos) == (
        before.max_cost_nanos,
        before.spent_nanos,
    )
    assert after.max_cost_nanos is not None


def close_idle(town, until):
    """Let time pass, message by message, until something was said."""
    while not said(town, until):
        town.now_s += 0.05
        for site in town.sites.values():
            site.kernel.tick(town.now_s, UTC_S + town.now_s)
            site.do(events.Ticked())
            if said(town, until):
                return
        town.deliver()


def one_by_one(town):
    """A job at Paris that goes on as its user likes."""
    london = town.sites["london"]
    london.do(events.ClientJoined(1, "ann"))
    london.do(events.JobOpened(1, "j", spec(wishes=ABROAD)))
    london.do(events.TasksArrived(1, "j", 0, [b"0"]))
    town.run(lambda: len(london.answers()) == 1)
    town.deliver()
    return london


def test_nothing_is_sent_under_a_contract_that_is_being_closed(town):
    london = one_by_one(town)
    close_idle(town, deals.CloseContract)
    [closing] = said(town, deals.CloseContract)
    town.said.clear()
    london.do(events.TasksArrived(1, "j", 1, [b"1"]))
    town.show()
    town.deliver()
    assert closing.contract not in {message.contract for message in said(town, deals.Forward)}
    town.run(lambda: len(london.answers()) == 2)
    assert london.exchange.purchases.site_backoff.sites == {}


def test_tasks_that_come_while_a_contract_closes_have_lost_no_worker(town):
    london = one_by_one(town)
    close_idle(town, deals.Closed)
    london.do(events.TasksArrived(1, "j", 1, [b"1"]))
    town.show()
    town.deliver()
    job = london.broker.jobs["j"]
    runs = [*job.queue, *(each.run for each in job.assignments.values())]
    assert [run.losses for run in runs] == [0]


def test_closed_before_it_was_committed_to_is_against_the_rules(town):
    london = town.sites["london"]
    london.submit(200, wishes=ABROAD)
    [purchase] = london.exchange.purchases.purchases.values()
    closed = deals.Closed(purchase.contract)
    with pytest.raises(ProtocolError, match="before the commit"):
        london.kernel.hear("paris", PeerSide.SELLER, closed, town.now_s, UTC_S)


def test_a_lapsed_contract_that_is_declined_is_booked_as_lapsed(town):
    london = town.sites["london"]
    london.submit(200, wishes=ABROAD)
    town.deliver()
    [purchase] = live(london)
    apart = frozenset(("london", "paris"))
    town.cut.add(apart)
    town.pass_time(10.0)
    assert purchase.phase is ContractPhase.LAPSED
    decline = deals.Decline(purchase.contract, "job-not-found", "the contract does not exist")
    london.kernel.hear("paris", PeerSide.SELLER, decline, town.now_s, UTC_S + town.now_s)
    town.pass_time(30.0)
    ended = [
        each.state
        for each in london.books
        if isinstance(each, records.ContractEnded) and each.contract == purchase.contract
    ]
    assert ended == ["lapsed"]


def test_renewals_that_nobody_answers_are_forgotten(town):
    london, paris = town.sites["london"], town.sites["paris"]
    carry = town.carry
    town.carry = lambda sender, say: isinstance(say.message, deals.Granted) or carry(sender, say)
    london.submit(20_000, wishes=ABROAD)
    town.deliver()
    town.pass_time(100.0)
    assert len(paris.exchange.sales.renewals.asked) < 10


def test_nobody_answers_for_another_buyers_renewals(town):
    london, paris = town.sites["london"], town.sites["paris"]
    town.build("berlin", DEAR, 1)
    london.submit(2_000, wishes=ABROAD)
    town.deliver()
    contract = live(london)[0].contract
    for _ in range(80):
        town.now_s += 0.2
        for site in (london, paris):
            site.kernel.tick(town.now_s, UTC_S + town.now_s)
            site.do()
        for stamp in range(1, 30):  # between the question and its answer
            granted = deals.Granted(stamp, [])
            paris.kernel.hear("berlin", PeerSide.BUYER, granted, town.now_s, UTC_S + town.now_s)
        town.deliver()
    assert town.now_s > 1.5 * RULES.lease_s
    assert paris.exchange.sales.sales["london", contract].is_live


def test_a_buyer_of_many_short_tasks_is_not_thrown_out():
    town = Town()
    london, paris = town.build("london", DEAR, 1), town.build("paris", CHEAP, 256)
    town.show()
    for site in (london, paris):
        for _ in range(50):  # ten microseconds each
            site.broker.durations.learn(b"f" * 32, 10**6, 10**10)
    london.submit(400_000, wishes=ABROAD, detached=True)
    deliver(town, 5_000)
    assert said(town, deals.Forward)
    assert not said(town, deals.Decline)


def test_a_contract_whose_job_ended_before_it_opened_is_closed_and_nothing_else(town):
    london = town.sites["london"]
    london.submit(200, wishes=ABROAD)
    while not said(town, deals.Commit):
        deliver(town, 1)
    london.do(events.ClientGone(1))
    town.pass_time(15.0)
    assert not london.exchange.purchases.purchases
    assert not london.broker.draining


def test_what_is_never_settled_counts_after_its_contract_has_lapsed_and_after_a_restart():
    town = dear_and_cheap(replace(RULES, unsettled_bytes_max=20_000))
    london, paris = town.sites["london"], town.sites["paris"]
    carry = town.carry
    town.carry = lambda sender, say: isinstance(say.message, deals.Settle) or carry(sender, say)
    london.submit(400, wishes=ABROAD)
    for _ in range(60):
        town.deliver()
        paris.work(1)
        town.pass_time(0.01)
    unsettled = paris.exchange.sales._unsettled
    pending = sum(len(each.tab.pending) for each in paris.exchange.sales.sales.values())
    assert pending > 10
    for purchase in live(london):
        abandon = deals.Abandon(purchase.contract)
        paris.kernel.hear("london", PeerSide.BUYER, abandon, town.now_s, UTC_S + town.now_s)
    paris.do()
    assert unsettled._held["london"] == pending * POSTING_BYTES
    paris.workers = 0
    paris.recover(2)
    assert paris.exchange.sales._unsettled._held["london"] == pending * POSTING_BYTES
    town.carry = carry
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.pass_time(30.0)
    assert not paris.exchange.sales._unsettled._held


def test_a_buyer_that_is_back_after_its_lease_need_not_wait_for_another(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(4_000, detached=True)
    town.run(lambda: sum(isinstance(r, records.OutcomeKept) for r in london.books) > 3)
    town.deliver()
    paris.work(1)
    job, utc_s = london.broker.jobs["j"], UTC_S
    sales = paris.exchange.sales.sales
    while any(each.is_live for each in sales.values()):  # London is down
        town.now_s += 0.25
        paris.kernel.tick(town.now_s, utc_s + town.now_s)
        paris.do(events.Ticked())
    assert any(each.tab.pending for each in sales.values())
    town.now_s += RULES.grace_s
    town.mail.clear()
    arrived = [
        events.TasksArrived(0, "j", low, [b""] * (high - low))
        for low, high in job.ended.missing(0, 4_000)
    ]
    recovered = events.JobRecovered(
        "j", job.spec, 4_000, tuple(job.ended), 0, 0, (), dict(job.costs_nanos), 0, 0
    )
    london.workers = 0
    london.recover(2, recovered, *arrived)
    london.join(1)
    back_s = town.now_s
    paris.exchange.sales.buyer_came("london")
    paris.do()
    while not any(london.at_work.values()):
        assert town.now_s < back_s + RULES.lease_s / 2
        town.pass_time(0.1)
    town.show()
    town.run(lambda: "j" not in london.broker.jobs)
    town.pass_time(30.0)
    assert not paris.exchange.sales.sales


@pytest.mark.parametrize("stop", [True, False, None], ids=["stop", "cancel", "leave"])
def test_a_seller_that_renews_and_answers_nothing_keeps_no_job_for_ever(town, stop):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(4, wishes=ABROAD)
    town.deliver()
    hear = paris.kernel.hear
    deaf_to = deals.Reclaim | deals.CloseContract
    paris.kernel.hear = lambda site, side, message, *now: (
        isinstance(message, deaf_to) or hear(site, side, message, *now)
    )
    if stop is None:
        london.do(events.ClientGone(1))
    else:
        london.do(events.CancelAsked(1, 77, "j", (), stop))
    town.pass_time(5 * RULES.lease_s)
    assert not london.broker.jobs
    assert not london.exchange.purchases.purchases
