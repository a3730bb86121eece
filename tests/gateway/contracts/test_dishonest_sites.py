"""Attacks of an approved member that does not keep to the rules. Pure objects: see town.py."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.pure.town import CHEAP, DEAR, RULES, UTC_S, Town, dear_and_cheap, spec

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.messages import NeedFunction
from federation.messages.wire import pack, unpack
from gateway.api.views.work_views import live_job
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide, SendFunction
from policies.placement.asks import Wishes

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))


@pytest.fixture
def town():
    return dear_and_cheap()


def forwarded(town, tasks=400, **changes):
    """London's job is at work in Paris; the first forward."""
    town.sites["london"].submit(tasks, wishes=ABROAD, **changes)
    town.deliver()
    return next(m for *_, m in town.said if isinstance(m, deals.Forward))


def as_buyer(town, message):
    """London sends this to Paris, in place of its gateway's messages."""
    paris = town.sites["paris"]
    paris.kernel.hear("london", PeerSide.BUYER, message, town.now_s, UTC_S + town.now_s)
    paris.do()


def as_seller(town, message, site="paris"):
    """A site says this to London."""
    london = town.sites["london"]
    london.kernel.hear(site, PeerSide.SELLER, message, town.now_s, UTC_S + town.now_s)
    london.do()


def delivery(forward, count=None, **changes):
    """A delivery of the first tasks of a forward."""
    count = len(forward.arguments) if count is None else count
    message = deals.Deliver(
        *(forward.contract, forward.epoch, forward.first, [b"r"] * count, [], [], 0, 0, 0, 0),
        *(int(UTC_S * 1000), []),
    )
    return replace(message, **changes)


def asked(town):
    return next(m for *_, m in town.said if isinstance(m, deals.AskQuote))


@pytest.mark.parametrize("place", [{"first": 2**63 - 1}, {"epoch": 2**63}, {"first": 1 << 40}])
def test_a_forward_beyond_all_numbers_is_refused(town, place):
    forward = forwarded(town)
    again = replace(forward, **({"epoch": forward.epoch + 100, "first": 10_000} | place))
    with pytest.raises(ProtocolError, match="too large"):
        as_buyer(town, again)


def test_a_seller_can_t_claim_tasks_of_a_life_of_its_buyer_that_has_only_begun(town):
    london = town.sites["london"]
    contract = forwarded(town, detached=True).contract
    town.mail.clear()
    arguments = [b"%d" % number for number in range(400)]
    history = events.JobRecovered("j", spec(detached=True), 400, (), 0, 0, (), {}, 0, 0)
    london.workers = 0
    london.recover(2, history, events.TasksArrived(0, "j", 0, arguments))
    london.join(1)
    with pytest.raises(ProtocolError, match="not forwarded"):
        as_seller(town, deals.Holding(contract, [[(2 << 30) + 1, 0, 10]]))
    with pytest.raises(ProtocolError):
        as_seller(town, deals.Holding(contract, [[1, 5, 5]]))
    town.cut.add(frozenset(("london", "paris")))
    while london.broker.jobs:  # what Paris had comes home when its lease has ended
        assert town.now_s < 60
        london.work()
        town.pass_time(0.05)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wall_ns": 2**62, "cost_nanos": 2**62 * CHEAP // (3600 * 10**9)},
        {"failures": [[405, "error", "x", b""]], "wall_ns": 10**6},
        {"values": [], "wall_ns": 10**6},
    ],
    ids=["more time than has passed", "failures beside its tasks", "no tasks"],
)
def test_a_delivery_that_can_t_be_is_refused_and_nothing_is_booked(town, wrong):
    forward = forwarded(town)
    with pytest.raises(ProtocolError):
        as_seller(town, delivery(forward, **wrong))
    assert not town.sites["london"].postings("buy")


NUMBERS = st.sampled_from([0, 1, 10**9, 4_900 * 10**9, 10**16, 2**62, 2**63 - 1])
TERMS = ("price_nanos", "list_nanos", "minimum_nanos", "step_ns", "slots")
USED = ("wall_ns", "cpu_ns", "peak_memory_bytes", "cost_nanos", "energy_uj", "carbon_ng")


def some(*names):
    """Numbers for some of these fields."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, NUMBERS))


@settings(max_examples=150, deadline=None)
@given(
    terms=some(*TERMS),
    used=st.lists(some(*USED), min_size=1, max_size=4),
    passed_s=st.sampled_from([0.0, 10.0, 5_000.0, 80_000.0]),
)
@example(terms={"list_nanos": 2**63 - 1}, used=[{"wall_ns": 4_900 * 10**9}], passed_s=5_000.0)
@example(terms={"list_nanos": 10**16}, used=[{"wall_ns": 2**62}] * 4, passed_s=80_000.0)
def test_no_quote_and_no_delivery_ends_its_buyer_or_what_it_tells_of_jobs(terms, used, passed_s):
    town = dear_and_cheap()
    honest = town.carry

    def carry(name, say):
        if isinstance(say.message, deals.Quote):
            say = replace(say, message=replace(say.message, **terms))
        honest(name, say)

    town.carry = carry
    london = town.sites["london"]
    with contextlib.suppress(ProtocolError, StopIteration):  # or nobody takes up such a quote
        forward = forwarded(town)
        town.now_s += passed_s
        for number, fields in enumerate(used):
            first = {"first": forward.first + number, "at_ms": int((UTC_S + town.now_s) * 1000)}
            with contextlib.suppress(ProtocolError):
                as_seller(town, delivery(forward, 1, **first, **fields))
    view = live_job(london.broker.jobs["j"], UTC_S + town.now_s)
    assert unpack(pack(view), 1 << 20) == view


def test_what_a_seller_says_that_it_has_not_it_can_t_deliver_in_the_same_breath(town):
    london = town.sites["london"]
    forward = forwarded(town)
    london.exchange.unreachable("paris", UTC_S)
    now = town.now_s, UTC_S + town.now_s
    london.kernel.hear("paris", PeerSide.SELLER, deals.Holding(forward.contract, []), *now)
    london.kernel.hear("paris", PeerSide.SELLER, delivery(forward), *now)
    london.do()
    assert not london.postings("buy")


def test_an_open_contract_is_neither_held_nor_committed_again(town):
    forward = forwarded(town)
    [sale] = town.sites["paris"].exchange.sales.sales.values()
    commit = deals.Commit(sale.contract, sale.pool, sale.price.price_nanos, "USD", 0.0, "test")
    town.sites["paris"].broker.draining = True  # nothing could be held now
    for message in (commit, replace(commit, lease_s=8.0), deals.Hold(forward.contract)):
        with pytest.raises(ProtocolError):
            as_buyer(town, message)
    assert [sale] == list(town.sites["paris"].exchange.sales.sales.values())
    assert sale.is_live


def test_a_name_of_a_contract_is_not_used_again_after_its_seller_was_restarted(town):
    paris = town.sites["paris"]
    forwarded(town)
    question = asked(town)
    paris.work(4)
    town.mail.clear()
    paris.recover(2)
    with pytest.raises(ProtocolError, match="used before"):
        as_buyer(town, question)
    [sale] = paris.exchange.sales.sales.values()
    assert sale.tab.pending, "what is owed is owed"


def test_what_is_sold_as_a_relay_never_runs_in_a_pool_of_the_relay():
    town = Town()
    london = town.build("london", CHEAP, 0)
    paris, rome = town.build("paris", CHEAP, 4), town.build("rome", CHEAP, 4)
    london.permits.strangers.add("rome")
    town.show(hidden={("rome", "london"), ("paris", "london")})
    paris.permits.may_send = lambda _site, _origin, pool, *_: "" if pool == "relay" else "no rule"
    london.submit(40, wishes=Wishes(forbidden_sites=frozenset({"london"})))
    town.run(lambda: len(london.answers()) == 40)
    ran = [r for r in rome.books if isinstance(r, records.UsageRecord)]
    assert sum(r.tasks for r in ran) == 40
    assert not [r for r in paris.books if isinstance(r, records.UsageRecord) and r.pool == "local"]


def test_all_that_is_held_is_told_once_more_in_a_session_and_no_more(town):
    forward = forwarded(town)
    paris = town.sites["paris"]
    paris.work(50)
    before = len(town.mail)
    for _ in range(10):
        as_buyer(town, deals.Resume(forward.contract))
    told = [each[-1] for each in list(town.mail)[before:]]
    assert sum(isinstance(each, deals.Holding) for each in told) == 1


def test_a_function_is_sent_only_to_who_has_a_contract_for_it(town):
    forwarded(town)
    london = town.sites["london"]
    sent = []
    london._perform = lambda effects: sent.extend(e for e in effects if isinstance(e, SendFunction))
    for digest in (b"x" * 32, b"f" * 8_000_000, b"f" * 32):
        as_seller(town, NeedFunction(digest))
    assert [each.digest for each in sent] == [b"f" * 32]


def question_again(town, question, number):
    """The same question, in a contract of another number, with a grant for it."""
    paris, contract = town.sites["paris"], f"london-1-{number}"
    paris.signer._shown.clear()
    grant_terms = paris.signer.check("london", question.grant, UTC_S).grant_terms
    paris.signer._shown.clear()
    grant = town.sites["london"].signer.issue(replace(grant_terms, contract=contract))
    return replace(question, contract=contract, grant=grant)


@pytest.mark.parametrize("end", ["wait", "short lease"])
def test_who_has_slots_held_and_commits_to_nothing_waits(town, end):
    forwarded(town)
    question, paris = asked(town), town.sites["paris"]
    number = int(question.contract.rpartition("-")[2])
    for more in range(1, 30):
        again = question_again(town, question, number + more)
        as_buyer(town, again)
        sale = paris.exchange.sales.sales.get(("london", again.contract))
        if sale is None:
            town.pass_time(RULES.hold_s)
            continue
        as_buyer(town, deals.Hold(again.contract))
        if end == "short lease":
            terms = sale.pool, sale.price.price_nanos, sale.price.currency
            as_buyer(town, deals.Commit(again.contract, *terms, 0.0, sale.price.version))
        town.mail.clear()
        town.pass_time(RULES.hold_s + 0.1)
    holds = [m for *_, m in town.said if isinstance(m, deals.Held)]
    assert len(holds) < 10
    assert [m for *_, m in town.said if isinstance(m, deals.Decline) and m.code == "busy"]


@pytest.mark.parametrize("is_committed", [False, True], ids=["held", "committed"])
@pytest.mark.parametrize("held_s", [0.2, 4.0])
def test_who_gives_back_what_is_held_can_keep_it_a_fifth_of_the_time(town, held_s, is_committed):
    forwarded(town)
    question, paris = asked(town), town.sites["paris"]
    number = int(question.contract.rpartition("-")[2])
    began_s, holds = town.now_s, 0
    for more in range(1, 400):
        again = question_again(town, question, number + more)
        as_buyer(town, again)
        if ("london", again.contract) in paris.exchange.sales.sales:
            as_buyer(town, deals.Hold(again.contract))
            town.pass_time(held_s)
            if is_committed:
                sale = paris.exchange.sales.sales["london", again.contract]
                terms = sale.pool, sale.price.price_nanos, sale.price.currency
                as_buyer(town, deals.Commit(again.contract, *terms, 8.0, sale.price.version))
            as_buyer(town, deals.CloseContract(again.contract))
            holds += 1
        town.mail.clear()
        town.pass_time(0.1)
    passed_s = town.now_s - began_s
    assert passed_s / (5 * held_s) / 2 < holds <= passed_s / (5 * held_s) + 1, "it may ask again"
    declined = {m.code for *_, m in town.said if isinstance(m, deals.Decline)}
    assert declined == {"no-slots"}, "which rests nobody for long"


def test_a_relay_sells_no_more_slots_than_its_rules_let_a_buyer_have():
    town = Town()
    london, lyon = town.build("london", DEAR, 0), town.build("lyon", DEAR, 0)
    town.build("rome", CHEAP, 100)
    lyon.permits.may_send = lambda *about: "" if about[4] <= 5 else "over-slots"
    town.show(hidden={("rome", "london")})
    for number in range(4):
        london.submit(100, f"j{number}")
    town.deliver()
    slots = [m.slots for *_, m in town.said if isinstance(m, deals.Quote) and m.slots < 100]
    sold = [each.slots for (buyer, _), each in lyon.exchange.sales.sales.items()]
    assert slots
    assert 0 < sum(sold) <= 5


def bought(town):
    return [each for each in town.sites["london"].books if isinstance(each, records.Posted)]


def test_a_part_of_a_run_is_not_delivered_or_billed_a_second_time(town):
    forward = forwarded(town)
    count = len(forward.arguments)
    assert count > 1
    whole = delivery(forward, wall_ns=10**7, cost_nanos=10)
    as_seller(town, whole)
    again = replace(whole, first=forward.first + 1, values=whole.values[1:], cost_nanos=5)
    as_seller(town, again)
    assert [(each.first, each.tasks) for each in bought(town)] == [(forward.first, count)]
    for bill, is_paid in ((whole, 1), (again, 0)):
        as_seller(town, deals.Bill(forward.contract, [bill.delivery.row]))
        answer = [m for *_, m in town.said if isinstance(m, deals.Settle)][-1]
        assert answer.verdicts == [[forward.epoch, bill.first, is_paid]]
    costlier = replace(whole, cost_nanos=11)
    with pytest.raises(ProtocolError, match="differs from the delivery"):
        as_seller(town, deals.Bill(forward.contract, [costlier.delivery.row]))


def test_a_restart_of_its_buyer_lets_no_seller_charge_a_run_again(town):
    london = town.sites["london"]
    forward = forwarded(town, detached=True, retries=1)
    first, stop = forward.first, forward.first + len(forward.arguments)
    failures = [[1, "error", "no luck", b""]]
    as_seller(town, delivery(forward, failures=failures, wall_ns=10**7, cost_nanos=10))
    town.mail.clear()
    london.workers = 0
    job, done = spec(detached=True, retries=1), ((first, first + 1), (first + 2, stop))
    history = events.JobRecovered("j", job, 400, done, 0, 0, (), {}, 0, 0)
    arguments = [b"%d" % number for number in range(400)]
    london.recover(2, history, events.TasksArrived(0, "j", 0, arguments))
    as_seller(town, deals.Holding(forward.contract, [[forward.epoch, first + 1, first + 2]]))
    as_seller(town, delivery(forward, 1, wall_ns=10**7, cost_nanos=10, first=first + 1))
    assert [(each.first, each.tasks) for each in bought(town)] == [(first, stop - first)]


def stopped(forward, **changes):
    """All of a forward was stopped, to make room."""
    failures = [[at, "preempted", "", b""] for at in range(len(forward.arguments))]
    return delivery(forward, failures=failures, **changes)


def test_a_seller_that_stops_what_it_is_given_is_left_alone_for_a_while(town):
    london = town.sites["london"]
    forward = forwarded(town)
    as_seller(town, stopped(forward))
    assert "paris/local" in london.exchange.purchases.site_backoff.rests(spec())
    job = london.broker.jobs["j"]
    assert (job.failed, len(job.ended)) == (0, 0)
    assert job.notes[-1][1].startswith("paris/local stopped ")


def test_what_was_stopped_costs_nothing_but_in_the_class_that_is_cheaper_for_it(town):
    forward = forwarded(town)
    with pytest.raises(ProtocolError):
        as_seller(town, stopped(forward, wall_ns=10**6, cost_nanos=1))
    assert not bought(town)


def test_a_preemptible_job_pays_for_the_time_that_it_had(town):
    forward = forwarded(town, price_class="preemptible")
    used = 10**7
    as_seller(town, stopped(forward, wall_ns=used, cost_nanos=used * CHEAP // (3600 * 10**9)))
    assert [each.cost_nanos for each in bought(town)] == [used * CHEAP // (3600 * 10**9)]
