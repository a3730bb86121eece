"""Decisions where two things happen at once, and the refusals of a seller. Pure objects."""

from dataclasses import replace

import pytest
from support.pure.broker import CLIENT, WORKER, BrokerWorld, orders, spec, written
from support.pure.town import CHEAP, RULES, UTC_S, Town, dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase
from federation.messages.messages import Recall
from federation.reasons import Reason
from gateway.contracts.model.purchase import MISDATED_MAX_S
from gateway.contracts.model.sale import Sale
from gateway.ledger.db import records
from gateway.scheduler.lifecycle.absences import ORPHAN_S
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide, SendToWorker, Write
from policies.costs.budgets import Budget
from policies.parties import read_party
from policies.placement.asks import Wishes
from policies.tariffs import Tariff

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))


@pytest.fixture
def town():
    return dear_and_cheap()


@pytest.fixture
def london(town):
    return town.sites["london"]


@pytest.fixture
def paris(town):
    return town.sites["paris"]


def effects_of(site):
    """A list that every effect of a site is added to from now on."""
    found, perform = [], site._perform

    def watched(effects):
        found.extend(effects)
        perform(effects)

    site._perform = watched
    return found


def ends(site, side):
    return [
        each.state
        for each in site.books
        if isinstance(each, records.ContractEnded) and each.side == side
    ]


@pytest.mark.parametrize("phase", [ContractPhase.QUOTED, ContractPhase.HELD])
def test_a_contract_ends_beside_an_older_offer_that_stays_open(town, london, paris, phase):
    price = Tariff(CHEAP, "USD", "test")
    offer = Sale("lyon-1-1", "lyon", None, "local", price, 1, phase, until_s=1e9)
    paris.exchange.sales.sales["lyon", "lyon-1-1"] = offer
    london.submit(4, wishes=ABROAD)
    town.run(lambda: not london.broker.jobs)
    town.pass_time(2 * RULES.lease_s)
    assert list(paris.exchange.sales.sales) == [("lyon", "lyon-1-1")]
    assert ends(paris, "sell") == ["settled"]


def test_a_buyers_verdict_is_written_as_durable(town, london):
    effects = effects_of(london)
    london.submit(4, wishes=ABROAD)
    town.run(lambda: not london.broker.jobs)
    town.pass_time(2 * RULES.lease_s)
    verdicts = [
        each
        for each in effects
        if isinstance(each, Write) and isinstance(each.record, records.PostingSettled)
    ]
    assert verdicts
    assert all(each.durable for each in verdicts)


@pytest.mark.parametrize("stop", [True, False])
def test_tasks_abroad_are_stopped_there_only_when_the_client_says_so(town, london, paris, stop):
    london.submit(4, wishes=ABROAD)
    town.deliver()
    assert any(paris.at_work.values())
    effects = effects_of(paris)
    london.do(events.CancelAsked(CLIENT, 77, "j", (), stop))
    town.deliver()
    reclaims = [each for _, _, each in town.said if isinstance(each, deals.Reclaim)]
    recalls = [
        each.message
        for each in effects
        if isinstance(each, SendToWorker) and isinstance(each.message, Recall)
    ]
    assert {each.kill for each in reclaims} == {stop}
    assert {each.kill for each in recalls} == {stop}


@pytest.mark.parametrize("phase", [ContractPhase.OPEN, ContractPhase.LAPSED])
def test_what_a_seller_never_billed_is_void_when_it_closes(town, london, paris, phase):
    london.submit(1, wishes=ABROAD)
    town.deliver()
    paris.work()
    town.deliver(lambda: any(london.postings("buy").values()))
    town.mail.clear()
    [purchase] = london.exchange.purchases.purchases.values()
    assert purchase.tab.pending
    if phase is ContractPhase.LAPSED:
        purchase.phase, purchase.ended_as = phase, "lapsed"
    closed = deals.Closed(purchase.contract)
    london.kernel.hear("paris", PeerSide.SELLER, closed, town.now_s, UTC_S + town.now_s)
    london.do()
    assert [state for _, _, state in london.postings("buy").values()] == ["void"]
    assert ends(london, "buy") == ["lapsed" if phase is ContractPhase.LAPSED else "settled"]
    assert not london.exchange.purchases.purchases


def test_what_a_seller_never_billed_is_void_when_it_closes_with_tasks_out(town, london, paris):
    london.submit(2, wishes=ABROAD)
    town.deliver()
    paris.work(1)
    town.deliver(lambda: any(london.postings("buy").values()))
    town.mail.clear()
    [purchase] = london.exchange.purchases.purchases.values()
    assert purchase.tab.pending
    assert london.exchange.purchases._out(purchase)
    closed = deals.Closed(purchase.contract)
    london.kernel.hear("paris", PeerSide.SELLER, closed, town.now_s, UTC_S + town.now_s)
    london.do()
    assert [state for _, _, state in london.postings("buy").values()] == ["void"]


def test_an_idle_contract_closes_though_its_pool_is_drained_again_and_again(town, london):
    london.do(events.ClientJoined(CLIENT, "ann"))
    london.do(events.JobOpened(CLIENT, "j", spec(wishes=ABROAD)))
    london.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))
    town.run(lambda: london.results[CLIENT])
    [purchase] = london.exchange.purchases.purchases.values()
    for _ in range(4):
        for on in (True, False):
            london.do(events.DrainAsked(purchase.handle, on))
        town.pass_time(RULES.idle_s / 2)
    assert "j" in london.broker.jobs
    assert not london.exchange.purchases.purchases


def test_a_seller_has_no_more_contracts_with_one_buyer_than_its_limit(town, london, paris):
    sales = paris.exchange.sales
    sales._rules = replace(sales._rules, contracts_max=1)
    london.submit(2, "j1", wishes=ABROAD)
    town.deliver()
    london.submit(2, "j2", wishes=ABROAD)
    town.pass_time(1.0)
    assert len(sales.sales) == 1
    codes = [each.code for _, _, each in town.said if isinstance(each, deals.Decline)]
    assert codes
    assert set(codes) == {Reason.BUSY}


def test_contracts_of_other_buyers_do_not_count_against_the_limit(town, london, paris):
    sales = paris.exchange.sales
    sales._rules = replace(sales._rules, contracts_max=1)
    price = Tariff(CHEAP, "USD", "test")
    for buyer in ("lyon", "oslo"):
        sales.sales[buyer, f"{buyer}-1-1"] = Sale(
            f"{buyer}-1-1", buyer, None, "local", price, 1, ContractPhase.QUOTED, until_s=1e9
        )
    london.submit(2, wishes=ABROAD)
    town.run(lambda: not london.broker.jobs)


def test_a_failed_task_counts_against_its_users_limit_no_more():
    world = BrokerWorld()
    [order] = orders(world.submit(2))
    world.report(order, failures=[[0, "error", "no", b""]])
    assert world.broker.clients[CLIENT].tasks == 1
    assert world.broker.clients[CLIENT].account.tasks == 1


def test_a_job_may_give_a_pool_only_so_many_tasks_over_all_its_bundles():
    world = BrokerWorld(slots=0)
    world.submit(10)
    world.do(events.PlacesChosen("j", {"local": 3.0}))
    given = orders(world.join(WORKER))
    count = 0
    while given:
        [order] = given
        count += len(order.arguments)
        given = orders(world.report(order, wall_ns=5_000_000_000))
    assert count == 3


def test_the_end_of_a_recovered_job_counts_what_ended_before_the_restart():
    world = BrokerWorld(slots=0)
    opened = spec(detached=True)
    world.do(events.JobRecovered("j", opened, 6, ((0, 5),), 1, 2, (), {}, 0, 0))
    world.do(events.TasksArrived(0, "j", 5, [b"5"]))
    [order] = orders(world.join(WORKER))
    [end] = written(world.report(order), records.JobEnded)
    assert (end.done, end.failed, end.cancelled) == (3, 1, 2)


def test_tasks_that_are_resumed_after_a_restart_hold_money_until_they_are_reported():
    town = Town()
    money = Budget("b", read_party("project:risk"), "USD", 10**12, span=None)
    london = town.build("london", CHEAP, 0, [money])
    detached = spec(detached=True, timeout_s=1.0)
    london.recover(
        2,
        events.JobRecovered("j", detached, 4, (), 0, 0, (), {}, 0, 0),
        events.TasksArrived(0, "j", 0, [b""] * 4),
    )
    held = london.broker.budget_accounts.own["b"]
    assert held.held_nanos == 0
    broker = london.broker
    broker.handle(events.WorkerJoined(WORKER, "w", "local", 4, {}, "3.11", job="j"), town.now_s)
    broker.handle(events.Resumed(WORKER, 7, ((0, 4),)), town.now_s)
    assert held.held_nanos > 0
    broker.handle(events.Reported(WORKER, 7, 0, [b"r"] * 4), town.now_s)
    assert held.held_nanos == 0


def test_what_workers_hold_is_counted_in_bytes_until_it_is_reported():
    world = BrokerWorld(slots=4)
    [order] = orders(world.submit(4))
    worker = world.broker.workers[WORKER]
    held = worker.held_bytes
    assert held >= sum(map(len, order.arguments))
    world.report(order, 1)
    assert worker.held_bytes == held, "until all of a bundle is reported"
    world.do(events.Reported(WORKER, order.assignment, order.first + 1, [b"r"] * 3, []))
    assert worker.held_bytes == 0


def test_what_a_worker_resumes_after_a_restart_is_counted_in_bytes_as_well():
    world = BrokerWorld(slots=0)
    world.do(events.JobRecovered("j", spec(detached=True), 4, (), 0, 0, (), {}, 0, 0))
    world.do(events.TasksArrived(0, "j", 0, [b"12345"] * 4))
    world.broker.handle(
        events.WorkerJoined(WORKER, "w", "local", 4, {}, "3.11", job="j"), world.now_s
    )
    world.broker.handle(events.Resumed(WORKER, 7, ((0, 4),)), world.now_s)
    worker = world.broker.workers[WORKER]
    assert worker.held_bytes >= 20
    world.broker.handle(events.Reported(WORKER, 7, 0, [b"r"] * 4), world.now_s)
    assert worker.held_bytes == 0


def test_a_recovered_job_that_was_never_closed_is_given_up_when_nobody_comes_for_it():
    world = BrokerWorld(slots=0)
    world.do(events.JobRecovered("open", spec(detached=True), None, (), 0, 0, (), {}, 0, 0))
    world.do(events.JobRecovered("whole", spec(detached=True), 2, (), 0, 0, (), {}, 0, 0))
    for name in ("open", "whole"):
        world.do(events.TasksArrived(0, name, 0, [b"x"] * 2))
    world.do(events.Ticked())
    assert set(world.broker.jobs) == {"open", "whole"}
    world.now_s += ORPHAN_S + 1
    world.do(events.Ticked())
    assert set(world.broker.jobs) == {"whole"}


def test_what_a_client_that_is_back_sends_again_is_another_attempt():
    world = BrokerWorld()
    [order] = orders(world.submit(1))
    [first] = written(world.report(order), records.UsageRecord)
    world.do(events.ClientJoined(9, "ann"))
    world.do(events.JobOpened(9, "j", spec()))
    [again] = orders(world.do(events.TasksArrived(9, "j", 0, [b"0"])))
    [second] = written(world.report(again), records.UsageRecord)
    assert second.attempt > first.attempt


def test_a_detached_job_whose_client_left_belongs_to_nobody():
    world = BrokerWorld(slots=0)
    world.submit(2, detached=True)
    world.do(events.ClientGone(CLIENT))
    world.do(events.Ticked())
    assert world.broker.jobs["j"].client == 0
    world.do(events.ClientJoined(CLIENT, "eve"))
    world.do(events.CancelAsked(CLIENT, 5, "j", (), False))
    assert world.broker.jobs["j"].waiting == 2


def test_an_assignment_that_ends_while_it_is_called_back_is_not_waited_for(town, london, paris):
    london.submit(4, wishes=ABROAD)
    town.deliver()
    london.do(events.CancelAsked(CLIENT, 77, "j", (), False))
    paris.work()
    town.deliver()
    answers = [each for each in london.told if getattr(each, "request", None) == 77]
    assert len(answers) == 1


def test_a_seller_may_not_date_a_delivery_before_its_contract(town, london, paris):
    london.submit(4, wishes=ABROAD)
    town.deliver()
    [purchase] = london.exchange.purchases.purchases.values()
    assert purchase.opened_at_s == UTC_S + town.now_s
    paris.work()
    early = next(each for _, _, each in town.said if isinstance(each, deals.Deliver))
    early = replace(early, at_ms=int((UTC_S - 2 * MISDATED_MAX_S) * 1000))
    with pytest.raises(ProtocolError, match="before its contract"):
        london.kernel.hear("paris", PeerSide.SELLER, early, town.now_s, UTC_S + town.now_s)


def test_slots_that_nobody_asked_for_are_not_taken(town, london):
    london.submit(4, wishes=ABROAD)
    town.deliver(lambda: any(isinstance(each, deals.Quote) for _, _, each in town.said))
    [purchase] = london.exchange.purchases.purchases.values()
    held = deals.Held(purchase.contract, 5.0)
    purchase.phase = ContractPhase.OPEN
    with pytest.raises(ProtocolError, match="not requested"):
        london.kernel.hear("paris", PeerSide.SELLER, held, town.now_s, UTC_S)


def test_what_was_bought_is_written_as_durable(town, london):
    effects = effects_of(london)
    london.submit(4, wishes=ABROAD)
    town.deliver()
    opened = [
        each
        for each in effects
        if isinstance(each, Write) and isinstance(each.record, records.ContractOpened)
    ]
    assert [each.durable for each in opened] == [True]


def test_nothing_is_kept_of_what_came_back(town, london):
    london.submit(4, wishes=ABROAD)
    town.run(lambda: not london.broker.jobs)
    assert not london.exchange.purchases.deliveries._taken


def test_a_failed_task_is_known_by_its_own_number():
    world = BrokerWorld(slots=0)
    world.do(events.JobOpened(CLIENT, "j", spec()))
    world.do(events.TasksArrived(CLIENT, "j", 5, [b"x"] * 3))
    [order] = orders(world.join(WORKER, 3))
    assert order.first == 5
    world.report(order, failures=[[2, "error", "no", b""]])
    assert list(world.broker.jobs["j"].failures) == [(7, 8)]


def test_what_comes_back_of_a_job_that_was_left_runs_when_its_client_sends_it_again():
    world = BrokerWorld(slots=2)
    [order] = orders(world.submit(2))
    world.do(events.ClientGone(CLIENT))
    world.do(events.Ticked())
    world.do(events.HandedBack(WORKER, order.assignment, ((0, 2),)))
    world.do(events.ClientJoined(9, "ann"))
    world.do(events.JobOpened(9, "j", spec()))
    again = orders(world.do(events.TasksArrived(9, "j", 0, [b"0", b"1"])))
    assert [(each.first, list(each.arguments)) for each in again] == [(0, [b"0", b"1"])]


def test_what_a_worker_resumed_and_lost_goes_out_again_with_its_arguments():
    world = BrokerWorld(slots=0)
    world.do(events.JobRecovered("j", spec(detached=True), 4, ((1, 2),), 0, 0, (), {}, 0, 0))
    world.do(events.TasksArrived(0, "j", 0, [b"0"]))
    world.do(events.TasksArrived(0, "j", 2, [b"2", b"3"]))
    world.broker.handle(
        events.WorkerJoined(WORKER, "w", "local", 4, {}, "3.11", job="j"), world.now_s
    )
    world.broker.handle(events.Resumed(WORKER, 7, ((0, 1), (2, 4))), world.now_s)
    world.do(events.WorkerGone(WORKER, "lost", is_orderly=True))
    world.now_s += 3600.0
    found = {
        each.first + at: argument
        for each in orders(world.join(5, 8))
        for at, argument in enumerate(each.arguments)
    }
    assert found == {0: b"0", 2: b"2", 3: b"3"}


def test_a_contract_is_renewed_beside_one_that_is_not_known(town, london):
    london.submit(4, wishes=ABROAD)
    town.deliver()
    [contract] = london.exchange.purchases.purchases
    renew = deals.Renew(7, ["london-1-99", contract])
    london.kernel.hear("paris", PeerSide.SELLER, renew, town.now_s, UTC_S + town.now_s)
    london.do()
    granted = [each for _, _, each in town.said if isinstance(each, deals.Granted)]
    assert granted == [deals.Granted(7, [contract])]


def _expel(town, london, paris):
    [sale] = paris.exchange.sales.sales.values()
    paris.exchange.sales.expelled(sale.handle, "it sends too much")
    paris.do()


def _cut(town, london, paris):
    town.cut.add(frozenset(("london", "paris")))
    town.pass_time(2 * RULES.lease_s)
    town.cut.clear()
    paris.exchange.sales.buyer_came("london")
    paris.do()


def _restart(name):
    return lambda town, london, paris: town.sites[name].recover(2)


@pytest.mark.parametrize(
    ("end", "bought", "sold"),
    [
        (lambda town, london, _: town.run(lambda: not london.broker.jobs), "settled", "settled"),
        (_expel, "ended", "ended"),
        (_cut, "lapsed", "lapsed"),
        (_restart("london"), "abandoned", "abandoned"),
        (_restart("paris"), "ended", "interrupted"),
    ],
)
def test_books_say_how_a_contract_ended(town, london, paris, end, bought, sold):
    london.submit(4, wishes=ABROAD)
    town.deliver()
    assert any(paris.at_work.values())
    paris.work(1)  # so that something is owed
    end(town, london, paris)
    town.pass_time(4 * RULES.lease_s)
    assert (ends(london, "buy")[0], ends(paris, "sell")[0]) == (bought, sold)
