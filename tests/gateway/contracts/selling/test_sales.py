"""A seller refuses what breaks the rules, and says what came of work that does not come about."""

from dataclasses import replace

import pytest
from support.pure.town import CHEAP, DEAR, UTC_S, Town, dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase
from federation.messages.messages import Dropped, NeedFunction, RejectJob
from federation.reasons import Reason
from gateway.contracts.model.dealing import CONTRACT_CHARS_MAX
from gateway.contracts.selling import sales as selling
from gateway.scheduler.model import events
from policies.placement.asks import Wishes

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))


@pytest.fixture
def town():
    return dear_and_cheap()


@pytest.fixture
def sales(town):
    return town.sites["paris"].exchange.sales


def asked(town):
    """What London asked Paris first."""
    town.sites["london"].submit(4, wishes=ABROAD)
    town.deliver(lambda: any(isinstance(each, deals.AskQuote) for _, _, each in town.said))
    return said(town, deals.AskQuote)[0]


def said(town, kind):
    return [each for _, _, each in town.said if isinstance(each, kind)]


def hear(town, sales, *messages):
    """London says this to Paris, and what follows arrives."""
    for each in messages:
        sales.hear("london", each, town.now_s, UTC_S + town.now_s)
    town.sites["paris"].do()
    town.deliver()


def under_way(town, sales):
    """The one contract, when its tasks run at Paris."""
    town.sites["london"].submit(4, wishes=ABROAD)
    town.deliver()
    [sale] = sales.sales.values()
    assert sale.out
    assert sale.phase is ContractPhase.OPEN
    return sale


def test_a_buyer_may_not_say_what_sellers_say(town, sales):
    with pytest.raises(ProtocolError, match="'decline' is not handled by sales"):
        sales.hear("london", deals.Decline("london-1-1", "busy", ""), 0.0, UTC_S)


@pytest.mark.parametrize("contract", ["", "london-1-\n", "x" * (CONTRACT_CHARS_MAX + 1)])
def test_a_contract_has_a_name_that_can_be_shown(town, sales, contract):
    ask = replace(asked(town), contract=contract)
    with pytest.raises(ProtocolError, match="has no name"):
        sales.hear("london", ask, 0.0, UTC_S)


def test_a_buyer_has_only_so_many_quotes_that_it_does_not_take_up(town, sales, monkeypatch):
    monkeypatch.setattr(selling, "QUOTES_MAX", 2)
    ask = asked(town)
    town.mail.clear()
    names = iter(range(100, 200))

    def once_more(buyer):
        contract = f"{buyer}-1-{next(names)}"
        sales.hear(buyer, replace(ask, contract=contract, grant=b""), 0.0, UTC_S)

    for phase in (ContractPhase.QUOTED, ContractPhase.QUOTED, ContractPhase.OPEN):
        sale = selling.Sale("c", "london", None, "local", None, 1, phase, 1e9)
        sales.sales["london", f"c{len(sales.sales)}"] = sale
    sales._offering = type("Offers", (), {"answer": lambda *_: OFFER})()
    with pytest.raises(ProtocolError, match="more than 2 quotes"):
        once_more("london")
    once_more("oslo")
    sales.sales["london", "c0"].phase = ContractPhase.HELD
    once_more("london")


QUOTE = deals.Quote("london-1-7", "local", 1, 1, 5, "USD", 0.0, 1.0, 8.0, 8.0)
OFFER = type("Offer", (), {"quote": QUOTE, "spec": None, "price": None})()


def test_what_others_took_meanwhile_is_not_held_and_its_quote_is_gone(town, sales):
    ask = asked(town)
    town.deliver(lambda: sales.sales)
    town.mail.clear()
    sales._offering.can_hold = lambda *_: False
    hear(town, sales, deals.Hold(ask.contract))
    assert not sales.sales
    [decline] = said(town, deals.Decline)
    assert decline.code == Reason.NO_SLOTS
    assert not said(town, deals.Held)


@pytest.mark.parametrize(
    "message",
    [
        deals.Hold("london-1-99"),
        deals.Commit("london-1-99", "local", 1, "USD", 8.0),
        deals.Forward("london-1-99", 1, 0, [b""]),
        deals.Reclaim("london-1-99", 1, 0, 1, True),
        deals.Settle("london-1-99", [[1, 0, 1]]),
        deals.Resume("london-1-99"),
    ],
)
def test_a_contract_that_is_not_there_is_named_to_its_buyer(town, sales, message):
    hear(town, sales, message)
    [decline] = said(town, deals.Decline)
    assert (decline.contract, decline.code) == ("london-1-99", Reason.JOB_NOT_FOUND)


def test_a_bundle_that_comes_twice_runs_once(town, sales):
    sale = under_way(town, sales)
    [forward] = said(town, deals.Forward)
    tasks = sale.next_number
    hear(town, sales, forward)
    assert sale.next_number == tasks


def test_a_contract_that_is_ending_gives_back_what_comes(town, sales):
    sale = under_way(town, sales)
    sale.ending, tasks = (Reason.COST_LIMIT, "it has cost enough"), sale.next_number
    epoch = sale.out.highest + 1
    hear(town, sales, deals.Forward(sale.contract, epoch, 10, [b"", b""]))
    assert said(town, deals.GivenBack) == [deals.GivenBack(sale.contract, epoch, [[10, 12]])]
    assert sale.next_number == tasks


def test_a_function_that_the_seller_lacks_is_asked_for(town, sales):
    town.sites["paris"].has_functions = False
    sale = under_way(town, sales)
    assert {each.digest for each in said(town, NeedFunction)} == {sale.spec.function}


@pytest.mark.parametrize("row", [[1, 0], [1, 0, 1, 1]])
def test_a_verdict_has_three_parts(town, sales, row):
    sale = under_way(town, sales)
    with pytest.raises(ProtocolError, match="a verdict must be"):
        sales.hear("london", deals.Settle(sale.contract, [row]), town.now_s, UTC_S)


def test_tasks_that_end_without_running_are_delivered_as_failed_and_free(town, sales):
    sale = under_way(town, sales)
    dropped = Dropped(sale.job, [[0, 1], [2, 4]], "lost", f"job {sale.job} was given up")
    sales.told(sale.handle, dropped, None, UTC_S)
    town.sites["paris"].do()
    failed = [
        (each.first + at, kind, text, each.cost_nanos)
        for each in said(town, deals.Deliver)
        for at, kind, text, _ in each.failures
    ]
    assert failed == [(task, "lost", "a job sent to paris was given up", 0) for task in (0, 2, 3)]


def test_a_job_that_the_seller_will_not_run_goes_back_whole_and_its_contract_ends(town, sales):
    sale = under_way(town, sales)
    sales.told(sale.handle, RejectJob(sale.job, Reason.BAD_REQUEST, "not here"), None, UTC_S)
    town.sites["paris"].do()
    assert [each.ranges for each in said(town, deals.GivenBack)] == [[[0, 4]]]
    [decline] = said(town, deals.Decline)
    assert (decline.code, decline.reason) == (Reason.BAD_REQUEST, "not here")
    assert sale.phase is ContractPhase.LAPSED


def test_a_buyer_that_the_broker_expels_is_told_and_its_contract_lapses(town, sales):
    sale = under_way(town, sales)
    sales.expelled(sale.handle, "it sends too much")
    town.sites["paris"].do()
    [decline] = said(town, deals.Decline)
    assert (decline.code, decline.reason) == (Reason.BAD_REQUEST, "it sends too much")
    assert sale.phase is ContractPhase.LAPSED
    sales.expelled(sale.handle, "and again")
    sales.expelled(-99, "nobody")
    assert sale.phase is ContractPhase.LAPSED


def test_a_buyer_that_is_back_is_released_only_when_all_has_stopped(town, sales):
    sale = under_way(town, sales)
    grace_s = town.rules.grace_s
    town.cut.add(frozenset(("london", "paris")))
    town.sites["paris"].work(1)  # so that something is owed under it
    town.pass_time(20.0, until=lambda: sale.phase is ContractPhase.LAPSED)
    assert sale.lapsed_at_s == pytest.approx(town.now_s)
    town.cut.clear()
    lapsed_s = town.now_s
    hear(town, sales, deals.Resume(sale.contract))
    sales.tick(lapsed_s + 0.9 * grace_s, UTC_S)
    assert sale.was_told
    bills = len(said(town, deals.Bill))
    sales.tick(lapsed_s + grace_s, UTC_S)
    town.sites["paris"].do()
    assert not sale.was_told
    assert len(said(town, deals.Bill)) > bills, "what was put off while its buyer was away"


def test_the_functions_of_contracts_are_known_before_their_jobs(town, sales):
    assert sales.functions == set()
    sale = under_way(town, sales)
    assert sales.functions == {sale.spec.function}


def test_what_waits_again_under_a_contract_that_is_ending_goes_back_to_its_buyer():
    town = Town()
    town.build("london", DEAR, 1)
    paris = town.build("paris", CHEAP, 1)
    paris.join(1)
    town.show()
    london, sales = town.sites["london"], paris.exchange.sales
    # What has begun is not given back when it is asked for.
    paris._recall = lambda worker, recall: town.later.append(
        (paris, events.HandedBack(worker, recall.assignment, ()))
    )
    london.submit(2, wishes=ABROAD, max_cost_nanos=6_000, currency="USD")
    town.deliver()
    assert [len(orders) for orders in paris.at_work.values()] == [1, 1]
    town.pass_time(4.0)
    paris.work(1, task_s=4.0)  # it costs more than was granted for both
    town.deliver()
    [sale] = sales.sales.values()
    assert sale.ending is not None
    assert sale.out
    for worker in (1, 2):
        paris.do(events.WorkerGone(worker, "its host is gone"))
    assert paris.broker.jobs[sale.job].waiting == 1
    town.pass_time(0.5)
    assert not sale.out
    assert not london.broker.jobs  # its money is used up
    assert [(each.failure, each.ranges) for each in london.told if isinstance(each, Dropped)] == [
        ("budget", [[1, 2]])
    ]
