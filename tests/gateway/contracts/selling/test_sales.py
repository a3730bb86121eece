"""A seller refuses requests that break the rules, and reports the end of work that is not begun."""

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
from gateway.contracts.selling.unsettled import POSTING_BYTES, UnsettledResults
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
    """London's first question to Paris."""
    town.sites["london"].submit(4, wishes=ABROAD)
    town.deliver(lambda: any(isinstance(each, deals.AskQuote) for _, _, each in town.said))
    return said(town, deals.AskQuote)[0]


def said(town, kind):
    return [each for _, _, each in town.said if isinstance(each, kind)]


def hear(town, sales, *messages):
    """London sends this to Paris, and the answers arrive."""
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
    assert not sale.is_awaited
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
        deals.Abandon("london-1-99"),
        deals.CloseContract("london-1-99"),
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
        ({"epoch": EPOCH_MAX, "first": 100}, ""),
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
    town.now_s += 1.0
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
    lasts_s = RULES.hold_s if is_idle else RULES.valid_s
    sales.tick(town.now_s + lasts_s - 0.2, UTC_S)
    assert sales.sales
    town.now_s += lasts_s
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


@pytest.mark.parametrize(("is_posted", "state"), [(1, "post"), (0, "void")])
def test_a_verdict_that_comes_twice_is_booked_once_and_nothing_is_kept(
    town, sales, is_posted, state
):
    sale = under_way(town, sales)
    paris = town.sites["paris"]
    assert sales.unsettled_bytes("london") == 0
    paris.work(1, task_s=1.0)
    assert sale.owed_nanos == 0
    assert sales.unsettled_bytes("london") > 0
    [delivery] = said(town, deals.Deliver)
    town.mail.clear()
    assert sale.kept
    verdict = deals.Settle(sale.contract, [[delivery.epoch, delivery.first, is_posted]])
    for _ in range(2):
        sales.hear("london", verdict, town.now_s, UTC_S)
    paris.do()
    settled = [each for each in paris.books if isinstance(each, records.PostingSettled)]
    assert [(each.side, str(each.state)) for each in settled] == [("sell", state)]
    assert (sale.kept, sale.tab.pending, sale.tab.verdicts) == ({}, {}, {})
    assert sales.unsettled_bytes("london") == 0


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


def test_a_report_of_tasks_of_two_bundles_is_delivered_by_bundle(town, sales):
    sale = under_way(town, sales)
    [forward] = said(town, deals.Forward)
    later = replace(forward, epoch=forward.epoch + 1, first=10, arguments=[b"a", b"b"])
    hear(town, sales, later)
    values = [b"r%d" % number for number in range(1, 6)]
    sales.told(sale.handle, Results(sale.job, 1, values, [], [], []), None, UTC_S)
    town.sites["paris"].do()
    found = [(each.epoch, each.first, each.values) for each in said(town, deals.Deliver)]
    assert found == [
        (forward.epoch, 1, [b"r1", b"r2", b"r3"]),
        (later.epoch, 10, [b"r4", b"r5"]),
    ]


@pytest.mark.parametrize("is_known", [False, True])
def test_what_is_told_to_a_contract_that_is_over_is_nothing(town, sales, is_known):
    sale = under_way(town, sales)
    handle = sale.handle if is_known else -99
    sales.approval_ended("london", "it is approved no more", town.now_s)
    sales.told(handle, Results(sale.job, 0, [b"r"], [], [], []), None, UTC_S)
    town.sites["paris"].do()
    assert not said(town, deals.Deliver)


def test_a_contract_is_booked_with_the_rules_of_then(town, sales):
    commit = until(town, deals.Commit)
    paris = town.sites["paris"]
    paris.broker.charging.rules = 7
    hear(town, sales, commit)
    opened = [each for each in paris.books if isinstance(each, records.ContractOpened)]
    assert [each.rules for each in opened] == [7]


def test_a_buyer_that_sends_work_is_forgiven_its_former_holds(town, sales):
    until(town, deals.Forward)
    [forward] = said(town, deals.Forward)
    sales._idle_holds.ran_out("london", town.now_s)
    assert sales._idle_holds.refusal("london", town.now_s) is Reason.BUSY
    hear(town, sales, forward)
    assert sales._idle_holds.refusal("london", town.now_s) is None


@pytest.mark.parametrize("kind", [deals.Commit, deals.Forward])
def test_slots_that_were_held_and_given_back_unused_are_held_against_their_buyer(town, sales, kind):
    last = until(town, kind)
    if kind is deals.Forward:
        hear(town, sales, last)
    [sale] = sales.sales.values()
    town.now_s += 2.0
    sale.idle_s = 2.0
    sales.hear("london", deals.CloseContract(sale.contract), town.now_s, UTC_S)
    assert (not sales.sales) is (kind is deals.Commit)
    refusal = sales._idle_holds.refusal("london", town.now_s)
    assert refusal is (Reason.NO_SLOTS if kind is deals.Commit else None)


def test_a_buyer_that_abandons_a_contract_is_billed_again(town, sales):
    sale = under_way(town, sales)
    town.sites["paris"].work(1)
    sale.unbilled = []
    sales.hear("london", deals.Abandon(sale.contract), town.now_s, UTC_S)
    assert [each.first for each in sale.unbilled] == [0]


def test_a_lease_ends_one_grace_early_so_that_agents_have_stopped_in_time(town, sales):
    sale = under_way(town, sales)
    end_s = sale.lease.until_s - RULES.grace_s
    sales.tick(end_s - 0.1, UTC_S)
    assert sale.phase is ContractPhase.OPEN
    sales.tick(end_s, UTC_S)
    assert (sale.is_live, sale.ended_as) == (False, "lapsed")


def test_a_lease_is_renewed_before_it_ends(town, sales):
    sale = under_way(town, sales)
    sales.tick(sale.lease.until_s - RULES.grace_s - 0.5, UTC_S)
    town.sites["paris"].do()
    assert [each.contracts for each in said(town, deals.Renew)] == [[sale.contract]]


# --- contracts that end early --------------------------------------------------------------------


def stopping(over=None, too_much=None, *, is_overrun=False):
    return SimpleNamespace(
        is_overrun=lambda *_: is_overrun,
        why_over=lambda *_: over,
        why_too_much=lambda *_: too_much,
        why_stuck=lambda *_: None,
    )


def test_a_buyer_that_sends_too_much_gets_it_back_and_the_contract_ends(town, sales):
    sale = under_way(town, sales)
    [forward] = said(town, deals.Forward)
    sales._stopping = stopping(too_much=(Reason.BUSY, "too much"))
    hear(town, sales, replace(forward, epoch=forward.epoch + 1, first=10))
    given = {each.epoch: each.ranges for each in said(town, deals.GivenBack)}
    assert given == {forward.epoch: [[0, 4]], forward.epoch + 1: [[10, 14]]}
    assert [each.code for each in said(town, deals.Decline)] == [Reason.BUSY]
    assert sale.phase is ContractPhase.LAPSED


def test_a_contract_ends_for_the_first_reason_that_there_was(town, sales):
    sale = under_way(town, sales)
    for reason in ("night begins", "another"):
        sales._stopping = stopping((Reason.WINDOW_CLOSED, reason))
        sales.tick(town.now_s, UTC_S)
    assert sale.ending == (Reason.WINDOW_CLOSED, "night begins")


def test_a_contract_that_may_not_go_on_ends_at_once_if_nothing_is_out(town, sales):
    sale = under_way(town, sales)
    sale.out.take_all()
    sales._stopping = stopping((Reason.WINDOW_CLOSED, "night begins"))
    sales.tick(town.now_s, UTC_S)
    town.sites["paris"].do()
    assert [each.reason for each in said(town, deals.Decline)] == ["night begins"]
    assert sale.ended_as == "ended"


def test_tasks_that_cost_more_than_their_grant_are_stopped_once(town, sales):
    under_way(town, sales)
    paris, stopped = town.sites["paris"], []
    paris._recall = lambda worker, recall: stopped.append(recall)
    sales._stopping = stopping(is_overrun=True)
    for _ in range(2):
        sales.tick(town.now_s, UTC_S)
        paris.do()
    assert stopped
    assert all(each.kill for each in stopped)
    assert len({each.first for each in stopped}) == len(stopped)


def test_tasks_that_no_worker_takes_any_more_go_back(town, sales):
    sale = under_way(town, sales)
    sales._stopping = stopping()
    sales._stopping.why_stuck = lambda *_: (Reason.NO_SLOTS, "no slots can start")
    sales.end_stuck(town.now_s, lambda _: False)
    assert sale.ending == (Reason.NO_SLOTS, "no slots can start")


# --- contracts that are over ---------------------------------------------------------------------


def test_a_buyer_that_did_not_ask_is_not_told_that_nothing_runs_any_more(town, sales):
    sale = under_way(town, sales)
    town.sites["paris"].work(1)  # so that something is owed under it
    ends_s = sale.lease.until_s
    for at_s in (ends_s, ends_s + 2 * RULES.grace_s):
        sales.tick(at_s, UTC_S)
    town.sites["paris"].do()
    assert sale.phase is ContractPhase.LAPSED
    assert not said(town, deals.Decline)


def test_what_is_owed_is_billed_once_more_when_a_buyer_is_released(town, sales):
    sale = under_way(town, sales)
    town.sites["paris"].work(1)
    end_s = sale.lease.until_s
    sales.tick(end_s, UTC_S)
    sale.was_told, sale.unbilled = True, []
    sales._billed_at_s = end_s + RULES.grace_s  # the next bill is sent later
    sales.tick(end_s + RULES.grace_s, UTC_S)
    assert [each.first for each in sale.unbilled] == [0]


def test_a_contract_of_an_earlier_run_is_not_released_before_agents_have_stopped(town, sales):
    under_way(town, sales)
    paris = town.sites["paris"]
    paris.work(1)
    town.now_s += RULES.grace_s
    paris.recover(2)
    sales, began_s = paris.exchange.sales, town.now_s
    [sale] = sales.sales.values()
    sales.hear("london", deals.Resume(sale.contract), began_s, UTC_S)
    for share, codes in ((0.9, []), (1.0, ["lapsed"])):
        sales.tick(began_s + share * RULES.grace_s, UTC_S)
        paris.do()
        assert [each.code for each in said(town, deals.Decline)] == codes


def test_a_contract_that_has_ended_is_no_client_any_more(town, sales):
    sale = under_way(town, sales)
    town.run(lambda: not town.sites["london"].broker.jobs)
    town.pass_time(2 * RULES.lease_s, until=lambda: not sales.sales)
    assert sale.handle not in town.sites["paris"].broker.clients


# --- results that are kept -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["verdict", "end"])
def test_a_buyer_whose_results_fill_the_memory_waits_and_others_do_not(town, sales, how):
    sales._unsettled = UnsettledResults(2 * POSTING_BYTES)
    paris = town.sites["paris"]
    first = under_way(town, sales)
    town.sites["london"].submit(4, "k", wishes=ABROAD)
    town.pass_time(2.0, until=lambda: len(sales.sales) == 2 and len(said(town, deals.Forward)) == 2)
    second = next(each for each in sales.sales.values() if each is not first)
    paris.do(events.ClientJoined(-55, "joe@lyon", "lyon"))
    other = selling.Sale("c", "lyon", None, "local", None, 1, ContractPhase.OPEN, 1e9, handle=-55)
    sales.sales["lyon", "c"] = other

    def ready():
        return [paris.broker.clients[each.handle].ready for each in (second, other)]

    results = Results(first.job, 0, [bytes(4 * POSTING_BYTES)], [], [], [])
    sales.told(first.handle, results, None, UTC_S)
    paris.do()
    assert ready() == [False, True]
    paris.do(events.ClientReading(-55, ready=False))
    [delivery] = said(town, deals.Deliver)
    if how == "verdict":
        row = [delivery.epoch, delivery.first, 1]
        sales.hear("london", deals.Settle(first.contract, [row]), town.now_s, UTC_S)
    else:
        sales.expelled(first.handle, "it sends too much")
    paris.do()
    assert ready() == [True, False]
