"""A seller refuses what breaks the rules, and says what came of work that does not come about."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.pure.town import CHEAP, DEAR, RULES, UTC_S, Town, dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase
from federation.messages.messages import Dropped, NeedFunction, RejectJob, Results
from federation.reasons import Reason
from gateway.contracts.model.dealing import CONTRACT_CHARS_MAX, LEASE_MAX_S
from gateway.contracts.selling import sales as selling
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.intake import EPOCH_MAX, TASKS_IN_JOB_MAX
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


# --- requests, holds and commits -----------------------------------------------------------------

YES = SimpleNamespace(refuses=lambda *_: True)


def until(town, kind):
    """Submit at London, and go on until it says a message of a kind, which does not arrive."""
    town.sites["london"].submit(4, wishes=ABROAD)
    town.pass_time(2.0, until=lambda: said(town, kind))
    town.mail.clear()
    return said(town, kind)[-1]


@pytest.mark.parametrize(
    ("part", "changed", "code", "text"),
    [
        ("_idle_holds", SimpleNamespace(refusal=lambda *_: Reason.NO_SLOTS), Reason.NO_SLOTS,
         "london holds slots without a commit"),
        ("_lapses", YES, Reason.BUSY, "london let contracts lapse"),
        ("names", SimpleNamespace(begin=lambda *_: None, is_reserved=lambda *_: True),
         Reason.BAD_REQUEST, "is used by a reservation"),
        ("_rules", replace(RULES, contracts_max=0), Reason.BUSY, "the limit of open contracts"),
    ],
)  # fmt: skip
def test_a_request_that_is_declined_gets_one_answer_and_no_quote(
    town, sales, part, changed, code, text
):
    ask = until(town, deals.AskQuote)
    setattr(sales, part, changed)
    hear(town, sales, ask)
    assert [each.code for each in said(town, deals.Decline)] == [code]
    assert text in said(town, deals.Decline)[0].reason
    assert not said(town, deals.Quote)
    assert not sales.sales


@pytest.mark.parametrize(
    ("lease_s", "is_taken"),
    [
        (RULES.lease_min_s, True),
        (RULES.lease_min_s - 0.1, False),
        (LEASE_MAX_S, True),
        (LEASE_MAX_S + 1.0, False),
    ],
)
def test_a_lease_is_within_bounds(town, sales, lease_s, is_taken):
    commit = replace(until(town, deals.Commit), lease_s=lease_s)
    hear(town, sales, commit)
    answer = deals.Committed if is_taken else deals.Decline
    others = deals.Decline if is_taken else deals.Committed
    assert len(said(town, answer)) == 1
    assert not said(town, others)
    assert bool(sales.sales) is is_taken


@pytest.mark.parametrize("kind", [deals.Hold, deals.Commit])
def test_a_step_that_comes_twice_is_refused(town, sales, kind):
    message = until(town, kind)
    hear(town, sales, message)
    with pytest.raises(ProtocolError, match=r"too late|can't be committed"):
        hear(town, sales, message)


def test_how_long_slots_were_held_before_the_commit_is_known(town, sales):
    commit = until(town, deals.Commit)
    town.now_s += 2.0
    hear(town, sales, commit)
    [sale] = sales.sales.values()
    assert sale.idle_s == pytest.approx(2.0)


@pytest.mark.parametrize(("seconds", "is_awaited"), [(-0.1, True), (0.1, False)])
def test_slots_are_kept_for_the_first_tasks_as_long_as_for_a_commit(
    town, sales, seconds, is_awaited
):
    sales.hear("london", until(town, deals.Commit), town.now_s, UTC_S)
    [sale] = sales.sales.values()
    assert sale.is_awaited
    sales.tick(town.now_s + RULES.hold_s + seconds, UTC_S)
    assert sale.is_awaited is is_awaited


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"first": TASKS_IN_JOB_MAX}, "too large"),
        ({"epoch": EPOCH_MAX + 1}, "too large"),
        ({"first": TASKS_IN_JOB_MAX - 4}, ""),
    ],
)
def test_numbers_of_tasks_and_epochs_are_bounded(town, sales, change, match):
    sale = under_way(town, sales)
    [forward] = said(town, deals.Forward)
    forward = replace(forward, **({"epoch": forward.epoch + 1} | change))
    if match:
        with pytest.raises(ProtocolError, match=match):
            hear(town, sales, forward)
    else:
        tasks = sale.next_number
        hear(town, sales, forward)
        assert sale.next_number == tasks + 4


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [deals.Hold, deals.Commit, deals.Forward])
def test_the_end_of_approval_ends_what_that_buyer_has_alone(town, sales, kind):
    until(town, kind)
    [sale] = sales.sales.values()
    sales.approval_ended("lyon", "it is approved no more", town.now_s)
    assert list(sales.sales.values()) == [sale]
    assert sale.phase is not ContractPhase.LAPSED
    sales.approval_ended("london", "it is approved no more", town.now_s)
    town.sites["paris"].do()
    codes = [each.code for each in said(town, deals.Decline)]
    if kind is deals.Forward:
        assert (sale.phase, sale.lapsed_at_s) == (ContractPhase.LAPSED, town.now_s)
        assert (codes, sale.ended_as) == ([Reason.SITE_NOT_TRUSTED], "ended")
    else:
        assert (sales.sales, codes) == ({}, [])


@pytest.mark.parametrize(("kind", "is_idle"), [(deals.Hold, False), (deals.Commit, True)])
def test_only_a_hold_that_runs_out_puts_its_buyer_in_back_off(town, sales, kind, is_idle):
    until(town, kind)
    [sale] = sales.sales.values()
    town.now_s = sale.until_s
    sales.tick(town.now_s, UTC_S + town.now_s)
    assert not sales.sales
    assert (sales._idle_holds.refusal("london", town.now_s) is not None) is is_idle


def test_a_contract_that_is_abandoned_while_its_tasks_run_is_told_to_the_operator(town, sales):
    sale = under_way(town, sales)
    assert sales.lapsed() == []
    town.now_s += 10.0
    hear(town, sales, deals.Abandon(sale.contract))
    assert sale.phase is ContractPhase.LAPSED
    assert sale.ended_as == "abandoned"
    [text] = sales.lapsed()
    assert text == "london let 1 contract lapse while tasks ran: 40 slot-seconds are unpaid"


def test_a_delivery_is_never_dated_in_a_period_that_both_sites_have_closed(town, sales):
    under_way(town, sales)
    closed_ms = int((UTC_S + 1e6) * 1000)
    sales.settled_ms["london"] = closed_ms
    town.sites["paris"].work(1)
    assert [each.at_ms for each in said(town, deals.Deliver)] == [closed_ms]


def test_a_stopped_task_of_an_overrun_contract_is_delivered_as_stopped_for_its_cost(town, sales):
    sale = under_way(town, sales)
    sale.is_overrun = True
    results = Results(
        sale.job,
        0,
        [b""] * 2,
        [[0, "cancelled", "stopped", b"x"], [1, "error", "no", b"y"]],
        [],
        [],
    )
    sales.told(sale.handle, results, None, UTC_S)
    town.sites["paris"].do()
    [delivery] = said(town, deals.Deliver)
    stopped = "the task was stopped at paris: it ran longer than its cost limit pays for"
    assert delivery.failures == [[0, "budget", stopped, b""], [1, "error", "no", b"y"]]


def test_a_verdict_that_comes_twice_is_booked_once_and_nothing_is_kept(town, sales):
    sale = under_way(town, sales)
    paris = town.sites["paris"]
    paris.work(1)
    [delivery] = said(town, deals.Deliver)
    town.mail.clear()
    assert sale.kept
    verdict = deals.Settle(sale.contract, [[delivery.epoch, delivery.first, 1]])
    for _ in range(2):
        sales.hear("london", verdict, town.now_s, UTC_S)
    paris.do()
    settled = [each for each in paris.books if isinstance(each, records.PostingSettled)]
    assert [each.side for each in settled if each.side == "sell"] == ["sell"]
    assert (sale.kept, sale.tab.pending, sale.tab.verdicts) == ({}, {}, {})


def test_what_a_buyer_may_have_missed_is_said_again_in_its_next_session(town, sales):
    sale = under_way(town, sales)
    paris = town.sites["paris"]
    paris.work(1)
    town.mail.clear()
    [delivery] = said(town, deals.Deliver)
    town.said.clear()
    sales.buyer_came("lyon")
    paris.do()
    assert town.said == []
    sales.buyer_came("london")
    paris.do()
    [holding, again] = [each for _, _, each in town.said]
    assert sorted(holding.forwards) == [[delivery.epoch, 0, 1], [delivery.epoch, 1, 4]]
    assert again == delivery
    assert [each.first for each in sale.unbilled] == [0]


def test_a_reclaim_is_answered_also_when_nothing_comes_back(town, sales):
    sale = under_way(town, sales)
    [epoch] = sale.out.forwards
    hear(town, sales, deals.Reclaim(sale.contract, epoch + 1, 0, 4, False))
    assert said(town, deals.GivenBack) == [deals.GivenBack(sale.contract, epoch + 1, [])]
