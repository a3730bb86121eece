"""Two and more sites that deal with each other, as pure objects."""

from collections import Counter
from dataclasses import replace
from math import inf

import pytest
from support.pure.parts import whole
from support.pure.town import CHEAP, DEAR, RULES, UTC_S, Town, dear_and_cheap, spec

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase
from federation.messages.messages import Dropped, RejectJob
from federation.ranges import RangeSet
from federation.reasons import Reason
from gateway.api.views import work_views
from gateway.api.views.federation_views import explain_job
from gateway.contracts.buying.site_backoff import SILENT_MAX_S
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from policies.access.claims import NOTHING, Claim, Claims
from policies.access.residency import ResidencyRule
from policies.access.windows import PoolRules, WindowSpan
from policies.parties import ALL, OTHERS, OURS, read_party
from policies.placement.asks import FASTEST, Preferences, WhenClosed, Wishes
from policies.placement.brokering import BackoffEnd
from policies.placement.market import EMPTY_S
from policies.tariffs import Tariff


@pytest.fixture(
    params=[
        pytest.param(True, id="in frames"),
        pytest.param(False, id="one by one", marks=pytest.mark.thorough),
    ]
)
def town(request):
    """A dear small site, and a cheap large one, that know each other."""
    return dear_and_cheap(in_frames=request.param)


def finished(town, tasks, site="london"):
    return lambda: len(town.sites[site].answers()) == tasks


def check_books(town, buyer="london", seller="paris"):
    bought, sold = town.sites[buyer].postings("buy"), town.sites[seller].postings("sell")
    assert bought == sold
    assert {row[2] for row in bought.values()} <= {"post"}
    return bought


def test_a_job_goes_where_it_is_cheap_and_comes_back_whole(town):
    town.sites["london"].submit(5000)
    town.run(finished(town, 5000))
    assert town.sites["london"].answers() == {at: b"r%d" % at for at in range(5000)}


def test_both_sides_book_the_same_and_the_user_pays_what_was_quoted(town):
    town.sites["london"].submit(5000)
    town.run(finished(town, 5000))
    town.pass_time(2.0)
    postings = check_books(town)
    used = [r for r in town.sites["london"].books if isinstance(r, records.UsageRecord)]
    remote = [r for r in used if r.pool == "paris/local"]
    assert sum(r.cost_nanos for r in remote) == sum(row[1] for row in postings.values()) > 0
    assert {r.price_nanos for r in remote} == {CHEAP}
    assert sum(r.tasks for r in used) == 5000


def test_a_cheap_site_that_is_slow_at_a_function_is_dearer_for_it(town):
    london = town.sites["london"]
    asked = spec()
    london.exchange.refresh(UTC_S)
    assert london.exchange.deciding.decide(asked, 100, UTC_S).plan.shares[0][0].key[0] == "paris"
    for _ in range(5):
        london.broker.durations.learn(asked.function, 100, 100 * 10_000_000)
        london.broker.durations.learn(asked.function, 100, 100 * 3_000_000_000, "paris")
    shares = london.exchange.deciding.decide(asked, 100, UTC_S).plan.shares
    assert [lane.key[0] for lane, _ in shares] == ["london"], "a hundredth of the price, 300 times"


def test_of_many_jobs_only_so_many_are_planned_at_a_time_and_none_runs_before_its_turn(
    town, monkeypatch
):
    monkeypatch.setattr(
        "gateway.contracts.planning.planning_rate.LOOKS_MAX", 180
    )  # ten jobs, when two pools are known
    london = town.sites["london"]
    plans = Counter()
    decide = london.exchange.deciding.decide_for

    def counted(*asked, **more):
        plans[town.now_s] += 1
        return decide(*asked, **more)

    monkeypatch.setattr(london.exchange.deciding, "decide_for", counted)
    abroad = Wishes(forbidden_sites=frozenset({"london"}))
    for number in range(50):
        london.submit(1, f"job {number}", wishes=abroad)
    town.run(lambda: not london.broker.jobs)
    assert max(plans.values()) <= 20
    assert {r.pool for r in london.books if isinstance(r, records.UsageRecord)} == {"paris/local"}


def test_a_turn_plans_a_part_of_many_jobs_however_late_it_is(town, monkeypatch):
    module = "gateway.contracts.planning.planning_rate"
    monkeypatch.setattr(f"{module}.TURN_LOOKS", 5 * 18)  # five plans, when two pools are known
    london = town.sites["london"]
    decided, of_turn = Counter(), []
    decide, plan = london.exchange.deciding.decide_for, london.exchange.plan

    def counted(*asked, **more):
        decided[len(of_turn)] += 1
        return decide(*asked, **more)

    def turned(*times):
        of_turn.append(times)
        plan(*times)

    monkeypatch.setattr(london.exchange.deciding, "decide_for", counted)
    monkeypatch.setattr(london.exchange, "plan", turned)
    abroad = Wishes(forbidden_sites=frozenset({"london"}))
    for number in range(50):
        london.submit(1, f"job {number}", wishes=abroad)
    town.now_s += 1.0  # rounds are over, and all is due again
    town.run(lambda: not london.broker.jobs)
    assert 5 <= max(decided.values()) <= 10


def test_a_flood_of_one_user_delays_the_plan_of_another_by_a_plan_or_two(town, monkeypatch):
    """Each job of the flood takes the plans of several turns."""
    module = "gateway.contracts.planning.planning_rate"
    monkeypatch.setattr(f"{module}.TURN_LOOKS", 18)  # one plan, when two pools are known
    london = town.sites["london"]
    plan, planned = london.exchange._plan, []

    def noted(job, *rest):
        planned.append(job.id)
        return plan(job, *rest)

    monkeypatch.setattr(london.exchange, "_plan", noted)
    abroad = Wishes(forbidden_sites=frozenset({"london"}))
    london.do(events.ClientJoined(1, "eve"), events.ClientJoined(2, "ann"))

    def opened(client, job, user):
        return (
            events.JobOpened(client, job, spec(user=user, wishes=abroad)),
            events.TasksArrived(client, job, 0, [b"x"]),
        )

    for turn in range(5):
        flood = [each for at in range(20) for each in opened(1, f"flood {turn} {at}", "eve")]
        london.do(*flood, *(opened(2, "honest", "ann") if turn == 2 else ()))
        town.now_s += 0.3
    assert "honest" in planned[:5]


def test_tasks_go_out_as_soon_as_their_contract_opens_not_at_the_next_plan(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(100)
    town.deliver()  # no time has passed since the first plan
    assert any(paris.at_work.values())


def test_a_job_that_grows_buys_more_slots_of_a_pool_that_has_them(town):
    """Not at the end of its first contract, which was for the work that there was."""
    london, paris = town.sites["london"], town.sites["paris"]
    abroad = Wishes(forbidden_sites=frozenset({"london"}))
    london.do(events.ClientJoined(1, "ann"), events.JobOpened(1, "j", spec(wishes=abroad)))
    for at in range(3):
        london.do(events.TasksArrived(1, "j", at, [b"%d" % at]))
        town.deliver()
        town.pass_time(RULES.plan_s + 0.1)
        town.show()
    at_work = sum(len(order.arguments) for orders in paris.at_work.values() for order in orders)
    assert at_work == 3
    london.do(events.JobClosed(1, "j", 3))
    town.run(finished(town, 3))
    town.pass_time(3.0)
    assert not london.exchange.purchases.purchases


@pytest.mark.parametrize(
    ("when_closed", "ran_at"), [(WhenClosed.WAIT, "paris/local"), (WhenClosed.ELSEWHERE, "local")]
)
def test_work_waits_for_another_sites_window_or_goes_elsewhere_by_its_jobs_wish(
    town, when_closed, ran_at
):
    london, paris = town.sites["london"], town.sites["paris"]
    opens_s = UTC_S + 5.0
    nobody, everybody = Claims((Claim(OTHERS, borrows=NOTHING),)), Claims()
    closed, opened = (
        WindowSpan(UTC_S, opens_s, None, nobody),
        WindowSpan(opens_s, UTC_S + 86_400.0, None, everybody),
    )
    paris.do(events.RulesTurned({"local": PoolRules((closed, opened), UTC_S)}))
    town.show()
    london.broker.durations.learn(spec().function, 100, 100 * 10**6)
    london.submit(20, wishes=Wishes(when_closed=when_closed))
    town.pass_time(4.0)
    asked = [m for _, to, m in town.said if to == "paris" and isinstance(m, deals.AskQuote)]
    assert not asked, "it is known to be closed"
    if when_closed is WhenClosed.WAIT:
        assert not london.at_work[1], "it waits"
        london.exchange.refresh(UTC_S + town.now_s, london.broker.jobs["j"])
        found = whole(
            explain_job(london.broker.jobs["j"], london.exchange, london.broker, UTC_S + town.now_s)
        )
        assert [(each["site"], each["opens_s"]) for each in found["shares"]] == [("paris", opens_s)]
        assert found["when_closed"] == "wait"
    town.pass_time(1.5)
    paris.do(events.RulesTurned({"local": PoolRules((opened,), UTC_S)}))
    town.show()
    town.run(finished(town, 20))
    used = [each for each in london.books if isinstance(each, records.UsageRecord)]
    assert {each.pool for each in used} == {ran_at}


def test_what_a_job_would_find_at_home_depends_on_whose_it_is(town):
    london = town.sites["london"]
    claims = Claims((Claim(read_party("project:risk")), Claim(OURS, borrows=NOTHING)))
    span = WindowSpan(UTC_S, UTC_S + 86_400.0, None, claims)
    london.do(events.RulesTurned({"local": PoolRules((span,), UTC_S)}))
    at_home = frozenset({"london"})
    for project, goes in (("risk", True), ("desk", False)):
        asked = spec(project=project, wishes=Wishes(allowed_sites=at_home))
        london.exchange.refresh(UTC_S, whose=asked.whose)
        assert (london.exchange.deciding.decide(asked, 1, UTC_S).plan is not None) is goes


def test_a_contract_is_stored_before_it_is_committed(town):
    london = town.sites["london"]
    london.submit(100)
    town.run(finished(town, 100))
    [opened] = [r for r in london.books if isinstance(r, records.ContractOpened)]
    commits = [m for sender, _, m in town.said if isinstance(m, deals.Commit)]
    assert [opened.contract] == [m.contract for m in commits]
    assert (opened.side, opened.site, opened.price_nanos) == ("buy", "paris", CHEAP)


def test_the_function_crosses_once_for_a_job_and_site(town):
    town.sites["london"].submit(5000)
    town.run(finished(town, 5000))
    assert town.functions.count(("london", "paris", b"f" * 32)) == 1


def test_contracts_end_on_both_sides_when_the_job_has_ended(town):
    town.sites["london"].submit(100)
    town.run(finished(town, 100))
    town.pass_time(3.0)
    assert not town.sites["london"].exchange.purchases.purchases
    assert not town.sites["paris"].exchange.sales.sales
    assert not town.sites["paris"].broker.jobs
    assert not town.sites["paris"].broker.clients


def test_a_dead_seller_loses_nothing_and_its_tasks_wait_for_the_lease(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.deliver()
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    before = len(london.answers())
    assert any(each.in_flight for each in london.broker.workers.values() if each.job)
    town.cut.add(frozenset(("london", "paris")))
    paris.at_work.clear()
    died_s = town.now_s
    out = next(iter(london.exchange.purchases.purchases.values())).contract
    town.run(lambda: out not in london.exchange.purchases.purchases or not london.broker.workers)
    town.run(finished(town, 20_000))
    assert len(london.answers()) == 20_000 > before
    assert town.now_s - died_s >= RULES.lease_s


def test_a_seller_without_word_from_its_buyer_stops_before_the_buyer_places_again(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    town.cut.add(frozenset(("london", "paris")))
    stopped_s = None
    while any(each.is_live for each in london.exchange.purchases.purchases.values()):
        town.pass_time(0.05)
        live = [each for each in paris.exchange.sales.sales.values() if each.is_live]
        if not live and stopped_s is None:
            stopped_s = town.now_s
    assert stopped_s is not None
    # The agents of a dead gateway work on for the grace: even they have stopped by then.
    assert stopped_s + RULES.grace_s <= town.now_s


def test_a_partition_that_heals_pays_nothing_twice(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    paris.work(500)  # delivered into the cut
    town.cut.add(frozenset(("london", "paris")))
    paris.work(500)
    town.run(finished(town, 20_000))
    assert not any(sale.kept for sale in paris.exchange.sales.sales.values())
    town.cut.clear()
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.pass_time(3.0)
    sold, bought = paris.postings("sell"), london.postings("buy")
    assert {row[2] for row in sold.values()} == {"post", "void"}
    posted = {key: row for key, row in sold.items() if row[2] == "post"}
    assert posted == bought


def test_a_delivery_under_an_old_epoch_does_not_count(town):
    london = town.sites["london"]
    london.submit(2000)
    town.run(lambda: len(london.answers()) > 100)
    first = next(m for _, _, m in town.said if isinstance(m, deals.Deliver))
    again = len(london.answers())
    london.kernel.hear("paris", PeerSide.SELLER, first, town.now_s, 1.0)
    london.do()
    assert len(london.answers()) == again


def test_a_delivery_that_is_dearer_than_agreed_is_refused(town):
    london = town.sites["london"]
    london.submit(20_000)
    town.run(lambda: any(isinstance(m, deals.Forward) for *_, m in town.said))
    forward = next(m for *_, m in town.said if isinstance(m, deals.Forward))
    dear = deals.Deliver(
        forward.contract, forward.epoch, forward.first, [b"r"], [], [], 1000, 0, 0, 10**6, 0, []
    )
    with pytest.raises(ProtocolError, match="costs more"):
        london.kernel.hear("paris", PeerSide.SELLER, dear, town.now_s, 1.0)


def test_a_cancelled_job_is_taken_back_from_the_seller(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    london.do(events.CancelAsked(1, 7, "j", (), True))
    town.pass_time(3.0)
    assert not paris.broker.jobs
    assert not london.broker.jobs
    assert not london.exchange.purchases.purchases


def test_a_seller_that_refuses_is_left_alone_for_a_while(town):
    london, paris = town.sites["london"], town.sites["paris"]
    paris.permits.refused = "not you"
    london.submit(50)
    town.run(finished(town, 50))
    assert {r.pool for r in london.books if isinstance(r, records.UsageRecord)} == {"local"}
    declined = [m for *_, m in town.said if isinstance(m, deals.Decline)]
    assert 1 <= len(declined) <= 2


def test_a_job_that_may_not_leave_stays(town):
    london = town.sites["london"]
    london.submit(50, wishes=Wishes(allowed_sites=frozenset({"london"})))
    town.run(finished(town, 50))
    assert not [m for *_, m in town.said if isinstance(m, deals.Forward)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("currency", ["EUR", "GBP"])
def test_a_job_waits_for_a_site_that_has_not_shown_itself_and_may_charge_in_its_currency(
    workers, currency
):
    town = Town()
    town.preferences = Preferences(rates={"EUR": 1.1, "GBP": 1.3})
    london, paris = town.build("london", DEAR, workers), town.build("paris", CHEAP, 0)
    paris.broker.tariffs["local"] = Tariff(CHEAP, "EUR", "test")
    paris.join(4)
    limit = {"max_cost_nanos": DEAR, "currency": currency}
    abroad = Wishes(allowed_sites=frozenset({"paris"}))
    london.submit(3, "first", wishes=abroad, **limit)
    town.pass_time(1.0)
    assert not [m for m in london.told if isinstance(m, RejectJob)]
    [why] = work_views.why_waiting(london.broker, london.broker.jobs["first"], UTC_S)
    assert (why["reason"], currency in why["text"]) == ("currency-differs", True)
    town.show()
    london.submit(3, "second", wishes=abroad, **limit)
    refused = [m.code for m in london.told if isinstance(m, RejectJob)]
    assert refused[:1] == ([] if currency == "EUR" else ["currency-differs"])
    if currency == "EUR":
        town.run(lambda: not london.broker.jobs)
        assert {r.pool for r in london.books if isinstance(r, records.UsageRecord)} == {
            "paris/local"
        }


def test_slots_that_are_held_are_let_go_when_nobody_commits(town):
    paris = town.sites["paris"]
    ask = next_question(town)
    town.cut.add(frozenset(("london", "paris")))
    paris.kernel.hear("london", PeerSide.BUYER, ask, town.now_s, 1.0)
    paris.kernel.hear("london", PeerSide.BUYER, deals.Hold(ask.contract), town.now_s, 1.0)
    assert paris.exchange.offering.held_slots("local") > 0
    town.pass_time(RULES.hold_s + 0.1)
    assert paris.exchange.offering.held_slots("local") == 0


def next_question(town):
    london = town.sites["london"]
    london.submit(50)
    return next(m for *_, m in town.said if isinstance(m, deals.AskQuote))


def test_a_commit_at_other_terms_than_quoted_is_refused(town):
    paris = town.sites["paris"]
    ask = next_question(town)
    paris.kernel.hear("london", PeerSide.BUYER, ask, town.now_s, 1.0)
    paris.kernel.hear("london", PeerSide.BUYER, deals.Hold(ask.contract), town.now_s, 1.0)
    commit = deals.Commit(ask.contract, "local", CHEAP - 1, "USD", RULES.lease_s)
    with pytest.raises(ProtocolError, match="differ from the quote"):
        paris.kernel.hear("london", PeerSide.BUYER, commit, town.now_s, 1.0)


def test_a_restarted_seller_gives_the_tasks_back(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    paris.at_work.clear()
    paris.start(boot=2)
    paris.join(4)
    town.show()
    town.run(finished(town, 20_000))
    assert town.sites["london"].answers() == {at: b"r%d" % at for at in range(20_000)}


def ended(site):
    return [r for r in site.books if isinstance(r, records.JobEnded)]


def kept_tasks(site):
    """Tasks of the detached job whose outcomes are in the books; none twice."""
    found = set()
    for record in site.books:
        if isinstance(record, records.OutcomeKept):
            tasks = set(range(record.first, record.first + record.count))
            assert not tasks & found
            found |= tasks
    return found


def restart_with_detached_job(town, tasks):
    london = town.sites["london"]
    done = RangeSet()
    for at in kept_tasks(london):
        done.add(at, at + 1)
    recovered = events.JobRecovered(
        "j", spec(detached=True), tasks, tuple(done), 0, 0, (), {}, 0, 0
    )
    missing = done.missing(0, tasks)
    arrived = [
        events.TasksArrived(0, "j", low, [b"%d" % at for at in range(low, high)])
        for low, high in missing
    ]
    london.workers = 0
    london.recover(2, recovered, *arrived)
    london.join(1)


def test_a_buyer_that_restarts_takes_up_what_its_seller_still_runs(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000, detached=True)
    town.run(lambda: len(kept_tasks(london)) > 1000)
    town.deliver()
    out = {each.contract for each in london.exchange.purchases.purchases.values()}
    at_paris = sum(len(each.arguments) for work in paris.at_work.values() for each in work)
    assert at_paris
    town.mail.clear()  # what was under way died with the gateway
    restart_with_detached_job(town, 20_000)
    assert not [each for work in london.at_work.values() for each in work], (
        "nothing is placed while tasks may be out"
    )
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.deliver()
    assert {each.contract for each in london.exchange.purchases.purchases.values()} == out
    town.show()
    town.run(lambda: len(kept_tasks(london)) == 20_000)
    town.pass_time(4.0)
    used = [r for r in london.books if isinstance(r, records.UsageRecord) and r.state == "ok"]
    assert sum(r.tasks for r in used) == 20_000
    check_books(town)


def test_a_buyer_that_restarts_may_be_told_late_that_its_contract_is_committed(town):
    """Its seller's disk was slow, and writes the answer into the session of the next life."""
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(200, detached=True)
    town.deliver(lambda: any(isinstance(each[-1], deals.Committed) for each in town.mail))
    late = [each for each in town.mail if isinstance(each[-1], deals.Committed)]
    town.mail.clear()
    restart_with_detached_job(town, 200)
    paris.exchange.sales.buyer_came("london")
    town.mail.extend(late)
    town.show()
    town.run(lambda: len(kept_tasks(london)) == 200)
    town.pass_time(4.0)
    check_books(town)


def restart_while_deliveries_are_under_way(town):
    """A job half done at a buyer that begins anew; returns the results that it never received."""
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(2_000, detached=True)
    town.run(lambda: len(kept_tasks(london)) > 100)
    town.deliver()
    paris.work(50)
    lost = [m for m in (each[-1] for each in town.mail) if isinstance(m, deals.Deliver)]
    town.mail.clear()
    restart_with_detached_job(town, 2_000)
    town.said.clear()
    return lost


def test_a_bill_for_what_a_power_cut_took_is_not_answered_before_it_is_delivered_again(town):
    lost = restart_while_deliveries_are_under_way(town)
    london, paris = town.sites["london"], town.sites["paris"]
    bill = deals.Bill(lost[0].contract, [m.delivery.row for m in lost])
    london.kernel.hear("paris", PeerSide.SELLER, bill, town.now_s, UTC_S)
    london.do()
    assert not [m for *_, m in town.said if isinstance(m, deals.Settle)]
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.show()
    town.run(lambda: len(kept_tasks(london)) == 2_000)
    town.pass_time(4.0)
    check_books(town)


def test_nor_when_the_session_is_lost_between_what_it_holds_and_what_it_delivers_again(town):
    lost = restart_while_deliveries_are_under_way(town)
    london, paris = town.sites["london"], town.sites["paris"]
    contract = lost[0].contract
    [sale] = [each for each in paris.exchange.sales.sales.values() if each.contract == contract]
    for message in (sale.holding(), deals.Bill(contract, [m.delivery.row for m in lost])):
        london.kernel.hear("paris", PeerSide.SELLER, message, town.now_s, UTC_S)
        london.do()
    assert not [row for *_, m in town.said if isinstance(m, deals.Settle) for row in m.verdicts
                if not row[2]]  # fmt: skip
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.show()
    town.run(lambda: len(kept_tasks(london)) == 2_000)
    town.pass_time(4.0)
    check_books(town)


def test_a_seller_whose_lease_ended_before_its_buyer_was_back_is_paid_for_what_it_delivered(town):
    london, paris = town.sites["london"], town.sites["paris"]
    apart = frozenset(("london", "paris"))
    london.submit(2_000, detached=True)
    town.run(lambda: len(kept_tasks(london)) > 100)
    paris.work(50)
    town.cut.add(apart)
    sales = paris.exchange.sales.sales
    while any(each.is_live for each in sales.values()):
        town.pass_time(0.1)
    assert any(each.tab.pending for each in sales.values())
    town.mail.clear()
    restart_with_detached_job(town, 2_000)
    town.cut.remove(apart)
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.show()
    town.run(lambda: len(kept_tasks(london)) == 2_000)
    town.pass_time(30.0)
    sold, bought = paris.postings("sell"), london.postings("buy")
    lost = sold.keys() - bought.keys()  # delivered when nobody was there, and run again
    assert {sold[key][2] for key in lost} == {"void"}
    assert {key: sold[key] for key in bought} == bought


def test_what_a_seller_that_restarts_had_on_its_way_is_void_when_its_buyer_has_given_it_up(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(2_000)
    town.run(lambda: len(london.answers()) > 100)
    paris.work(50)
    lost = {
        (each[-1].contract, each[-1].epoch, each[-1].first)
        for each in town.mail
        if isinstance(each[-1], deals.Deliver)
    }
    assert lost
    town.mail.clear()
    paris.workers = 0
    paris.recover(2)
    paris.join(4)
    paris.exchange.sales.buyer_came("london")  # which bills what London takes to be out still
    paris.do()
    town.run(lambda: len(london.answers()) == 2_000)
    town.pass_time(30.0)
    sold, bought = paris.postings("sell"), london.postings("buy")
    assert {sold[key][2] for key in lost} == {"void"}
    assert {key: sold[key] for key in bought} == bought


def test_a_buyer_that_restarts_waits_for_the_lease_of_a_seller_that_is_gone(town):
    london = town.sites["london"]
    london.submit(20_000, detached=True)
    town.run(lambda: len(kept_tasks(london)) > 1000)
    town.deliver()
    town.cut.add(frozenset(("london", "paris")))
    town.mail.clear()
    began_s = town.now_s
    restart_with_detached_job(town, 20_000)
    while not any(london.at_work.values()):
        assert town.now_s < began_s + 60
        town.pass_time(0.05)
    assert town.now_s - began_s >= RULES.lease_s
    town.run(lambda: len(kept_tasks(london)) == 20_000)


def test_who_gives_back_what_is_held_for_a_job_that_is_over_is_served_in_a_moment(town):
    london, paris = town.sites["london"], town.sites["paris"]

    def is_held():
        return any(isinstance(each[-1], deals.Held) for each in town.mail)

    for client in (1, 2, 3):
        london.submit(20_000, client=client)
        town.pass_time(10.0, until=is_held)
        assert is_held()
        london.do(events.ClientGone(client))
        town.pass_time(0.1)
    london.submit(20_000, client=4)
    town.pass_time(2.0)
    assert paris.broker.jobs


def test_what_a_seller_says_that_it_holds_is_planned_for_once_however_often_it_says_it(
    town, monkeypatch
):
    london = town.sites["london"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 100)
    (purchase,) = london.exchange.purchases.live("j")
    settled = []
    settle = london.broker.settle
    monkeypatch.setattr(london.broker, "settle", lambda utc_s: settled.append(1) or settle(utc_s))
    for _ in range(50):
        for message in (
            deals.GivenBack(purchase.contract, 1, []),
            deals.Holding("nobody-1-1", []),
        ):
            london.kernel.hear("paris", PeerSide.SELLER, message, town.now_s, UTC_S)
    assert not settled
    london.do()
    assert settled


@pytest.mark.parametrize("detached", [True, False])
def test_a_seller_that_ended_a_contract_while_its_buyer_was_away_is_asked_again(town, detached):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(2_000, detached=detached)
    town.run(lambda: len(kept_tasks(london) if detached else london.answers()) > 100)
    town.deliver()
    town.mail.clear()
    paris.exchange.sales.sales.clear()  # as if all had been settled, and "closed" was not heard
    if detached:
        restart_with_detached_job(town, 2_000)
    else:
        london.recover(2)
    town.deliver()
    contracts = london.exchange.purchases.purchases.values()
    assert [each.phase for each in contracts] == ["lapsed"]
    assert not london.exchange.purchases.site_backoff.is_backed_off("paris", UTC_S + town.now_s)


def test_attached_tasks_of_a_buyer_that_restarts_are_stopped_where_they_ran(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    town.mail.clear()
    london.workers = 0
    london.results.clear()
    london.recover(2)
    london.join(1)
    town.show()
    town.deliver()
    town.pass_time(2.0)
    assert not paris.broker.jobs
    london.submit(3000, client=1)
    town.run(finished(town, 3000))


def test_a_seller_that_restarts_is_paid_for_what_it_delivered(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    paris.work(300)
    town.deliver()  # delivered, and not billed yet
    assert "pending" in {row[2] for row in paris.postings("sell").values()}
    paris.workers = 0
    paris.recover(2)
    paris.join(4)
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.show()
    town.run(finished(town, 20_000))
    town.pass_time(4.0)
    check_books(town)


def chain(hides=()):
    """London knows Paris, and Paris knows Tokyo, which alone has the requested tag."""
    town = Town()
    london = town.build("london", DEAR, 1)
    town.build("paris", CHEAP, 1)
    town.build("tokyo", 2 * CHEAP, 4, gpu=True)
    london.permits.strangers.add("tokyo")
    town.show(hidden={("tokyo", "london"), *((site, "london") for site in hides)})
    return town


@pytest.mark.parametrize("shown", [True, False])
def test_a_job_is_forwarded_on_by_a_site_that_knows_more(shown):
    town = chain(hides=set() if shown else {"paris"})
    london, tokyo = town.sites["london"], town.sites["tokyo"]
    london.submit(3000, tags={"gpu": True})
    town.run(finished(town, 3000))
    town.pass_time(4.0)
    check_books(town, "london", "paris")
    check_books(town, "paris", "tokyo")
    assert {r.user for r in tokyo.books if isinstance(r, records.UsageRecord)} == {
        "ann@london@paris"
    }
    assert {r.price_nanos for r in london.books if isinstance(r, records.UsageRecord)} == {
        2 * CHEAP
    }


def test_a_neighbour_that_shows_nothing_is_asked_by_the_rules_of_the_jobs_project(monkeypatch):
    town = Town()
    london = town.build("london", DEAR, 1)
    town.build("paris", CHEAP, 4, vault=True)
    town.show(hidden={("paris", "london")})
    runners = {"risk": {"paris"}}
    monkeypatch.setattr(london.permits, "runners", lambda project: runners.get(project, set()))
    london.submit(3, tags={"vault": True})
    town.run(finished(town, 3))


def test_neighbours_that_are_of_no_use_make_way_for_the_next():
    town = Town()
    london = town.build("london", DEAR, 1)
    for name in ("amsterdam", "berlin", "cairo", "dublin"):
        town.build(name, DEAR, 1)
    town.build("paris", CHEAP, 4, vault=True)
    town.show(hidden={("paris", site) for site in town.sites})
    for job in ("a", "b", "c"):
        london.submit(3, job, tags={"vault": True})
    town.run(lambda: not london.broker.jobs)


@pytest.mark.parametrize(
    ("wishes", "refused"),
    [
        ({"allowed_sites": frozenset({"oslo"})}, "the job may run only at oslo"),
        ({"allowed_sites": frozenset({"oslo", "paris"})}, ""),
        ({"allowed_sites": frozenset({"london"})}, ""),
        ({"jurisdictions": frozenset({"XX"})}, ""),  # who knows where Paris has pools
        (
            {"jurisdictions": frozenset({"XX"}), "forbidden_sites": frozenset({"paris"})},
            "the job may run only at XX",
        ),
        ({"forbidden_sites": frozenset({"paris"})}, ""),
        ({"forbidden_sites": frozenset({"london"})}, ""),
        (
            {"forbidden_sites": frozenset({"london", "paris"})},
            "may not run at london, paris, and no other site is known here (known: london, paris)",
        ),
    ],
)
def test_a_job_that_may_run_nowhere_is_refused_at_once(town, wishes, refused):
    london = town.sites["london"]
    london.submit(30, wishes=Wishes(**wishes))
    reasons = [m.reason for m in london.told if isinstance(m, RejectJob)]
    assert bool(reasons) == bool(refused)
    assert not reasons or refused in reasons[0]


def test_a_job_that_a_rule_lets_run_nowhere_is_refused_with_the_rule(town):
    london = town.sites["london"]
    rule = ResidencyRule((ALL,), sites=frozenset({"oslo"}), change="change 15, by root")
    london.broker.entitling.residency = (rule,)
    london.submit(30)
    reason = next(m.reason for m in london.told if isinstance(m, RejectJob))
    assert "the job may run only at oslo ([[residency]], change 15, by root);" in reason


def test_what_a_relay_can_place_nowhere_any_more_it_gives_back():
    town = chain()
    london, tokyo = town.sites["london"], town.sites["tokyo"]
    london.submit(3000, tags={"gpu": True})
    town.run(lambda: len(london.answers()) > 300)
    town.cut.add(frozenset(("paris", "tokyo")))
    tokyo.permits.refused = "no more of that"
    relayed = london.exchange.purchases
    town.run(lambda: not relayed.live("j"))
    london.join(2, gpu=True)
    town.run(finished(town, 3000))


def test_a_relay_that_learns_of_a_seller_gets_the_work_that_waits_at_its_buyer():
    town = Town()
    hidden = {("tokyo", "london")}
    london = town.build("london", DEAR, 1)
    london.permits.strangers.add("tokyo")
    town.build("paris", CHEAP, 1)
    town.show()
    london.submit(20, tags={"gpu": True})
    for _ in range(64):
        town.pass_time(5.0)
        town.show(hidden)
    told = london.exchange.purchases.site_backoff._useless["j", "paris"]
    assert told.until_s > UTC_S + town.now_s + 12, "it would wait for longer than below"
    town.build("tokyo", CHEAP, 4, gpu=True)
    town.show(hidden)  # Paris learns of Tokyo,
    town.show(hidden)  # and London that Paris has
    town.run(finished(town, 20), seconds=10.0)


def test_a_job_never_comes_back_to_a_site_that_passed_it_on(town):
    paris = town.sites["paris"]
    ask = next_question(town)
    town.cut.add(frozenset(("london", "paris")))
    looped = replace(ask, contract="london-9-1", path=["paris", "london"])
    paris.kernel.hear("london", PeerSide.BUYER, looped, town.now_s, 1.0)
    paris.do()
    assert not paris.exchange.sales.sales


def test_a_buyer_may_not_pretend_that_a_job_is_somebody_elses(town):
    ask = next_question(town)
    with pytest.raises(ProtocolError, match="path"):
        town.sites["paris"].kernel.hear(
            "london", PeerSide.BUYER, replace(ask, path=["tokyo"]), town.now_s, 1.0
        )


def test_work_that_was_meant_for_a_site_that_is_gone_stays_when_nobody_else_is_known(town):
    london = town.sites["london"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.cut.add(frozenset(("london", "paris")))
    town.sites["paris"].at_work.clear()
    london.exchange.market.forget("paris")
    town.run(finished(town, 20_000))


def test_a_forward_that_went_out_after_the_seller_said_what_it_holds_is_not_lost(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    paris.exchange.sales.buyer_came("london")
    paris.do()
    said = [each for each in town.mail if isinstance(each[-1], deals.Holding)]
    assert said
    paris.work(500)
    town.deliver()  # more is forwarded meanwhile
    town.mail.extend(said)
    town.run(finished(town, 20_000))
    town.pass_time(4.0)
    check_books(town)


def test_a_forward_that_was_lost_with_its_session_is_sent_again(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    paris.work(500)
    while town.mail and not any(isinstance(each[-1], deals.Forward) for each in town.mail):
        sender, receiver, side, _, message = town.mail.popleft()
        theirs = PeerSide.BUYER if side is PeerSide.SELLER else PeerSide.SELLER
        town.sites[receiver].kernel.hear(sender, theirs, message, town.now_s, UTC_S + town.now_s)
        town.sites[receiver].do()
    assert town.mail
    town.mail.clear()
    london.exchange.unreachable("paris", town.now_s)
    paris.exchange.sales.buyer_came("london")
    paris.do()
    began_s = town.now_s
    town.run(finished(town, 20_000))
    assert town.now_s - began_s < RULES.lease_s
    town.pass_time(4.0)
    check_books(town)


def test_a_contract_that_never_came_about_ends_in_the_books_too(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(100)
    while not any(isinstance(each[-1], deals.Held) for each in town.mail):
        sender, receiver, side, _, message = town.mail.popleft()
        theirs = PeerSide.BUYER if side is PeerSide.SELLER else PeerSide.SELLER
        town.sites[receiver].kernel.hear(sender, theirs, message, town.now_s, UTC_S + town.now_s)
        town.sites[receiver].do()
    held = town.mail.popleft()
    town.cut.add(frozenset(("london", "paris")))  # the commit is lost
    london.kernel.hear("paris", PeerSide.SELLER, held[-1], town.now_s, town.now_s)
    london.do()
    [opened] = [r for r in london.books if isinstance(r, records.ContractOpened)]
    town.run(finished(town, 100))
    town.pass_time(3 * RULES.hold_s)
    ends = [r for r in london.books if isinstance(r, records.ContractEnded)]
    assert [each.contract for each in ends if each.contract == opened.contract]
    assert not paris.exchange.sales.sales


def test_a_seller_that_was_out_of_reach_for_long_is_not_spared_when_it_is_back(town):
    exchange, utc_s = town.sites["london"].exchange, 1000.0
    for _ in range(8):
        exchange.unreachable("paris", utc_s)
    assert "paris" in exchange.purchases.site_backoff.sites
    exchange.reached("paris")
    assert "paris" not in exchange.purchases.site_backoff.sites
    exchange.unreachable("paris", utc_s)
    assert exchange.purchases.site_backoff.sites["paris"].until_s == utc_s + RULES.rest_s


def test_a_new_session_with_a_seller_that_refuses_does_not_end_its_rest(town):
    london, paris = town.sites["london"], town.sites["paris"]
    paris.permits.refused = "not you"
    london.submit(50)
    town.run(lambda: "paris/local" in london.exchange.purchases.site_backoff.rests(spec()))
    london.exchange.reached("paris")
    assert "paris/local" in london.exchange.purchases.site_backoff.rests(spec())


def test_a_project_that_a_seller_refuses_does_not_stall_another(town):
    london, paris = town.sites["london"], town.sites["paris"]
    paris.permits.may_send = lambda _site, _origin, _pool, project, *_: (
        "not this" if project == "secret" else ""
    )
    abroad = Wishes(allowed_sites=frozenset({"paris"}))
    london.submit(5, "forbidden", project="secret", wishes=abroad)
    town.pass_time(3 * RULES.rest_s)
    declined = [m for *_, m in town.said if isinstance(m, deals.Decline)]
    assert {each.code for each in declined} == {"not-entitled"}
    assert 2 <= len(declined) <= 3  # ever more seldom
    london.submit(40, "permitted", wishes=abroad)
    town.run(lambda: "permitted" not in london.broker.jobs, seconds=2.0)


def test_a_buyer_at_its_slot_limit_is_told_to_come_again_soon(town):
    london, paris = town.sites["london"], town.sites["paris"]
    paris.permits.may_send = lambda *request: "" if request[4] <= 2 else "too many slots"
    abroad = Wishes(allowed_sites=frozenset({"paris"}))
    london.submit(1000, "first", wishes=abroad)
    town.pass_time(1.0)
    london.submit(40, "second", user="bob", wishes=abroad)
    town.pass_time(5.0)
    declined = [m for *_, m in town.said if isinstance(m, deals.Decline)]
    assert {(each.code, "all the slots that the rules" in each.reason) for each in declined} == {
        ("no-slots", True)
    }
    town.run(lambda: not london.broker.jobs)


@pytest.mark.parametrize("delay_s", [1.5, 2.0])
def test_a_seller_whose_quotes_come_too_late_is_waited_for_longer(town, delay_s):
    assert delay_s > RULES.quote_wait_s
    town.delays_s[deals.Quote] = delay_s
    town.sites["london"].submit(40, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    town.run(lambda: not town.sites["london"].broker.jobs, seconds=3 * delay_s + 2.0)
    quotes = [m for *_, m in town.said if isinstance(m, deals.Quote)]
    assert len(quotes) == 2  # the first too late


def test_a_seller_that_was_silent_for_long_is_asked_again_soon_after(town):
    """A gateway that was flooded for a while, and is well again."""
    london = town.sites["london"]
    town.delays_s[deals.Quote] = inf
    london.submit(40, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    for _ in range(20):
        town.pass_time(10.0, step_s=0.25)
        town.show()
    asked = [m for *_, m in town.said if isinstance(m, deals.AskQuote)]
    assert 5 <= len(asked) <= 12
    del town.delays_s[deals.Quote]
    town.run(lambda: not london.broker.jobs, seconds=SILENT_MAX_S + 5.0)


def test_what_was_billed_again_in_a_new_session_may_be_settled_twice(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    paris.work(300)
    town.deliver()
    assert "pending" in {row[2] for row in paris.postings("sell").values()}
    for _ in range(2):
        paris.exchange.sales.buyer_came("london")
        town.now_s += 2 * RULES.bill_s
        paris.exchange.sales.tick(town.now_s, town.now_s)
        paris.do()
    assert sum(isinstance(each[-1], deals.Bill) for each in town.mail) == 2
    town.run(finished(town, 20_000))
    town.pass_time(4.0)
    check_books(town)


def test_a_buyer_that_settles_nothing_gets_no_more_of_its_tasks_run():
    town = dear_and_cheap(replace(RULES, unsettled_bytes_max=100_000))
    london, paris = town.sites["london"], town.sites["paris"]
    carry, settles, is_held = town.carry, [], True

    def hold_settles(sender, say):
        if is_held and isinstance(say.message, deals.Settle):
            settles.append((sender, say))
        else:
            carry(sender, say)

    town.carry = hold_settles
    london.submit(20_000)
    for _ in range(100):
        paris.work()
        town.pass_time(RULES.bill_s)
    kept = sum(len(m.values) for s in paris.exchange.sales.sales.values() for m in s.kept.values())
    assert 1000 < kept < 10_000
    is_held = False
    for sender, say in settles:
        carry(sender, say)
    town.run(finished(town, 20_000))


def test_a_seller_whose_workers_work_on_for_longer_gets_a_longer_lease(town):
    slow = replace(RULES, lease_s=60.0, grace_s=25.0)
    town.rules = slow
    paris = town.sites["paris"]
    paris.start(2)
    paris.join(4)
    town.show()
    london = town.sites["london"]
    london.submit(5000)
    town.run(lambda: len(london.answers()) > 1000)
    [sale] = paris.exchange.sales.sales.values()
    assert sale.lease.lease_s == 2 * slow.grace_s + 1 > RULES.lease_s
    town.cut.add(frozenset(("london", "paris")))
    died_s = town.now_s
    paris.at_work.clear()
    town.run(finished(town, 5000), seconds=120.0)
    assert town.now_s - died_s > 2 * slow.grace_s


def test_a_buyer_that_is_full_is_full_for_new_contracts_and_no_more_when_the_old_have_lapsed():
    town = dear_and_cheap(replace(RULES, unsettled_bytes_max=20_000))
    london, paris = town.sites["london"], town.sites["paris"]
    carry = town.carry

    def without_settles(sender, say):
        if not isinstance(say.message, deals.Settle):
            carry(sender, say)

    town.carry = without_settles
    abroad = Wishes(allowed_sites=frozenset({"paris"}))
    london.submit(2000, "a", wishes=abroad)
    for _ in range(40):
        paris.work(50)
        town.pass_time(0.05)
    before = len(london.answers())
    london.submit(50, "b", client=2, wishes=abroad)
    for _ in range(20):
        paris.work()
        town.pass_time(0.05)
    assert 0 < before < 2000
    assert not london.answers(2)
    town.cut.add(frozenset(("london", "paris")))
    town.pass_time(2 * RULES.lease_s)
    town.cut.clear()
    assert not paris.exchange.sales._unsettled.is_full("london")


def test_explain_counts_what_is_under_way_once(town):
    london = town.sites["london"]
    london.submit(8, "first")
    town.run(finished(town, 8), task_s=0.1)
    london.submit(3, "second", max_cost_nanos=800, currency="USD")
    town.deliver()
    job = london.broker.jobs["second"]
    assert (job.waiting, job.in_flight) == (0, 3)
    found = whole(explain_job(job, london.exchange, london.broker, UTC_S))
    assert [share["site"] for share in found["shares"]] == ["paris"], found["text"]


def test_what_a_buyer_says_of_its_tasks_is_load_that_its_seller_shows(town):
    """Else a busy seller looks idle until the first of them is done, and others send more."""
    town.sites["london"].submit(
        6, "long", task_s=600.0, wishes=Wishes(allowed_sites=frozenset({"paris"}))
    )
    town.deliver()
    [shown] = town.sites["paris"].exchange.show(UTC_S).pools
    assert shown.slots_free == 0
    assert shown.load_slot_s >= 4 * 600.0


def test_a_quote_of_a_slot_that_is_free_begins_at_once_whatever_the_others_do(town):
    london, paris = town.sites["london"], town.sites["paris"]
    paris.broker.durations.learn(spec().function, 100, 100 * 600 * 10**9)
    paris.submit(3, "own")
    town.show()
    for tasks in (1, 2):
        london.submit(tasks, f"j{tasks}", wishes=Wishes(allowed_sites=frozenset({"paris"})))
    asked = [m for *_, m in town.said if isinstance(m, deals.AskQuote)]
    for ask in asked:
        paris.kernel.hear("london", PeerSide.BUYER, ask, 0.0, UTC_S)
        paris.do()
    quotes = [m for *_, m in town.said if isinstance(m, deals.Quote)]
    assert [each.tasks for each in quotes] == [1, 2]
    assert quotes[0].begin_in_s == 0.0
    assert quotes[1].begin_in_s == pytest.approx(450.0)


def test_who_is_busier_than_it_showed_is_left_for_what_we_have(town):
    """Paris showed itself idle; by the time it is asked it has much to do."""
    london, paris = town.sites["london"], town.sites["paris"]
    london.broker.durations.learn(spec().function, 100, 100 * 10 * 10**9)
    paris.broker.durations.learn(b"l" * 32, 100, 100 * 600 * 10**9)
    paris.submit(8, "own", function=b"l" * 32)
    london.submit(1, wishes=Wishes(FASTEST))
    town.deliver()
    assert [m.begin_in_s for *_, m in town.said if isinstance(m, deals.Quote)] == [1_200.0]
    assert not [m for *_, m in town.said if isinstance(m, deals.Hold)]
    town.pass_time(0.5)
    assert london.at_work[1], "it runs at home"


@pytest.mark.parametrize("task_s", [0.0, -1.0, float("nan"), 1e10])
def test_tasks_of_no_length_are_not_quoted(town, task_s):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(1, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    [ask] = [m for *_, m in town.said if isinstance(m, deals.AskQuote)]
    paris.kernel.hear("london", PeerSide.BUYER, replace(ask, task_s=task_s), 0.0, UTC_S)
    paris.do()
    _, _, told = town.said[-1]
    assert (type(told), told.code) == (deals.Decline, Reason.BAD_REQUEST)


def test_explain_shows_a_few_workers_of_each_pool_those_with_tasks_first():
    town = Town()
    london = town.build("london", CHEAP, 0)
    for at in range(300):
        london.join(1, **({"fast": True} if at >= 298 else {}))
    london.submit(2, tags={"fast": True})
    job = london.broker.jobs["j"]
    found = whole(explain_job(job, london.exchange, london.broker, UTC_S))
    assert [each["in_flight"] for each in found["places"]] == [1, 1, *[0] * 8]
    assert {each["why_not"] != "" for each in found["places"][2:]} == {True}
    assert found["places_left_off"] == [{"pool": "local", "workers": 290, "in_flight": 0}]


def test_a_contract_takes_no_more_when_its_buyer_has_too_much_here_and_nothing_is_lost():
    town = dear_and_cheap(replace(RULES, buyer_bytes_max=30_000))
    london, paris = town.sites["london"], town.sites["paris"]
    abroad = Wishes(allowed_sites=frozenset({"paris"}))
    london.submit(8, "first")
    town.run(finished(town, 8))  # it is known how long a task takes: many go ahead
    london.results.clear()
    for name in "abc":
        london.submit(300, name, wishes=abroad)
    most = 0
    while london.broker.jobs:
        assert town.now_s < 60
        town.deliver()
        most = max(most, sum(len(job.known) - len(job.ended) for job in paris.broker.jobs.values()))
        paris.work(200)
        town.pass_time(0.05)
    assert 0 < most <= 300, "a hundred bytes for each task"
    assert not [
        m for *_, m in town.said if isinstance(m, deals.Decline) and m.code == "bad-request"
    ]


def test_a_contract_whose_close_was_lost_with_its_session_is_closed_in_the_next(town):
    london, paris = town.sites["london"], town.sites["paris"]
    carry, lost = town.carry, []

    def lose_the_first_close(sender, say):
        if isinstance(say.message, deals.CloseContract) and not lost:
            lost.append(say)
        else:
            carry(sender, say)

    town.carry = lose_the_first_close
    london.submit(100)
    town.run(lambda: lost)
    assert paris.exchange.sales.sales
    london.exchange.unreachable("paris", town.now_s)
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.pass_time(2.0)
    assert not london.exchange.purchases.purchases
    assert not paris.exchange.sales.sales


def dropped(town, site="london"):
    """The tasks that a site's client was told ended without running, by failure."""
    found: dict[str, int] = {}
    for message in town.sites[site].told:
        if isinstance(message, Dropped):
            tasks = sum(stop - first for first, stop in message.ranges)
            found[message.failure] = found.get(message.failure, 0) + tasks
    return found


def test_a_job_whose_money_pays_for_no_more_task_anywhere_ends(town):
    london = town.sites["london"]
    london.submit(8, "first")
    town.run(finished(town, 8), task_s=0.1)  # now it is known how long a task takes
    london.results.clear()
    # A task costs 278 nanos where it is cheap: 1,000 pay for three and a part of a fourth, which
    # runs when it is thought to be shorter; its seller may not bill more than was granted.
    london.submit(40, "second", max_cost_nanos=1000, currency="USD")
    town.run(lambda: "second" not in london.broker.jobs, task_s=0.1)
    ran = len(london.answers())
    assert ran in (3, 4)
    assert dropped(town) == {"budget": 40 - ran}
    used = [r for r in london.books if isinstance(r, records.UsageRecord) and r.job == "second"]
    assert sum(r.cost_nanos for r in used) <= 1000


def test_a_site_that_is_spared_is_no_hope_for_a_job_that_could_not_pay_there(town):
    london = town.sites["london"]
    london.submit(8, "first")
    town.run(finished(town, 8), task_s=0.1)
    london.exchange.purchases.site_backoff.sites["paris"] = BackoffEnd(UTC_S + 10**6)
    london.submit(40, "second", max_cost_nanos=100, currency="USD")
    town.run(lambda: "second" not in london.broker.jobs, task_s=0.1)  # one round showed the price
    assert dropped(town)["budget"] >= 36


def hear_of_each_other(town, seconds):
    """Let time pass in which all sites advertise their pools."""
    for _ in range(round(seconds / 10)):
        town.pass_time(10.0, 1.0)
        town.show()


def with_money_for_three_tasks(slots):
    """London with a job whose money is used up there, and Paris, where one task more is paid for.

    A task of a tenth of a second costs 27,778 nanos at home, and 278 in Paris.
    """
    town = Town()
    london, _ = town.build("london", DEAR, 1), town.build("paris", CHEAP, slots)
    town.show()
    london.submit(4, "first")
    town.run(lambda: not london.broker.jobs, task_s=0.1)
    london.results.clear()
    london.submit(5, "second", max_cost_nanos=100_000, currency="USD")
    town.run(finished(town, 3), task_s=0.1)
    return town


def test_a_pool_without_workers_is_no_hope_for_ever_for_a_job_whose_money_is_used_up_elsewhere():
    town = with_money_for_three_tasks(0)
    london = town.sites["london"]
    hear_of_each_other(town, EMPTY_S - 60)
    assert london.broker.jobs["second"].waiting == 2
    assert dropped(town) == {}
    hear_of_each_other(town, 120)
    assert dropped(town) == {"budget": 2}
    assert not london.broker.jobs


def test_a_pool_whose_workers_come_back_in_time_does_what_money_at_home_does_not_pay_for():
    town = with_money_for_three_tasks(0)
    hear_of_each_other(town, EMPTY_S - 60)
    town.sites["paris"].join(2)
    town.show()
    town.run(finished(town, 5), task_s=0.1)
    assert dropped(town) == {}


def test_a_site_that_is_asked_blindly_and_is_too_dear_is_not_asked_for_ever():
    town = Town()
    london, _ = town.build("london", DEAR, 1), town.build("paris", DEAR // 2, 4)
    town.show(hidden={("paris", "london")})
    london.submit(8, "first")
    town.run(finished(town, 8), task_s=0.1)
    # A task of a tenth of a second costs 27,778 nanos at home, and half of that in Paris.
    london.submit(40, "second", max_cost_nanos=20_000, currency="USD")
    town.run(lambda: "second" not in london.broker.jobs, task_s=0.1)
    assert dropped(town)["budget"] >= 38


@pytest.mark.parametrize("stated", [True, False])
def test_hopeless_work_that_only_a_relay_can_place_ends_with_a_reason(stated):
    """A task costs some 50 nanos, or 556, at the only seller, which its buyer does not see."""
    town = chain()
    london = town.sites["london"]
    if not stated:
        london.submit(8, "first", tags={"gpu": True})
        town.run(finished(town, 8), task_s=0.1)
    hint = {"task_s": 0.1} if stated else {}
    london.submit(40, "second", tags={"gpu": True}, max_cost_nanos=10, currency="USD", **hint)
    notes = london.broker.jobs["second"].notes
    town.run(lambda: "second" not in london.broker.jobs, task_s=0.1)
    assert dropped(town)["budget"] >= (40 if stated else 38)
    [note] = [text for _, text in notes if "costs about" in text]
    assert " USD at paris: what is left of the job's cost limit pays for none" in note
    if stated:
        [reason] = [each.reason for each in london.told if isinstance(each, Dropped)]
        assert reason.endswith("of job second: one task costs about 0.000000556 USD at paris")


def test_what_was_refused_by_former_terms_is_asked_again_by_new_ones():
    town = Town(rules=replace(RULES, rest_s=60.0))
    london, paris = town.build("london", DEAR, 0), town.build("paris", CHEAP, 4)
    paris.permits.refused = "not to you"
    town.show()
    london.submit(4)
    town.pass_time(4.0)
    assert london.broker.jobs["j"].in_flight == 0
    paris.permits.refused = ""
    town.pass_time(4.0)
    assert london.broker.jobs["j"].in_flight == 0, "it is in back-off"
    paris.price_nanos = CHEAP // 2
    paris.broker.tariffs["local"] = Tariff(paris.price_nanos, "USD", "later")
    town.show()
    town.pass_time(1.0)
    assert london.broker.jobs["j"].in_flight == 4


def test_a_job_is_told_why_a_relay_has_nothing_for_it():
    town = chain()
    london = town.sites["london"]
    london.submit(4, tags={"gpu": True}, max_cost_nanos=10**6, currency="EUR")
    town.pass_time(20.0)
    notes = [text for _, text in london.broker.jobs["j"].notes]
    assert notes == ["paris declined (no-slots: paris has no slots that can run the job now)"]


def test_what_runs_already_counts_against_the_cost_limit_of_a_job(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(8, "first")
    town.run(finished(town, 8), task_s=0.1)
    london.submit(40, "second", max_cost_nanos=1000, currency="USD")
    town.deliver()
    under_way = london.broker.jobs["second"].in_flight
    assert under_way > 0
    for _ in range(4):  # plans while nothing comes back
        town.pass_time(RULES.plan_s)
    assert london.broker.jobs["second"].in_flight == under_way
    assert len(london.exchange.purchases.purchases) == 1
    assert paris.broker.jobs


def test_a_job_whose_deadline_passed_ends(town):
    london = town.sites["london"]
    london.submit(40, tags={"gpu": 1}, wishes=Wishes(deadline_s=UTC_S + 5))
    town.pass_time(4.0)
    assert dropped(town) == {}
    town.pass_time(2.0)
    assert dropped(town) == {"deadline": 40}
    assert not london.broker.jobs


def test_what_comes_after_the_deadline_of_its_job_is_not_begun(town):
    london = town.sites["london"]
    london.do(events.ClientJoined(1, "ann"))
    london.do(events.JobOpened(1, "j", spec(wishes=Wishes(deadline_s=UTC_S - 1))))
    london.do(events.TasksArrived(1, "j", 0, [b"0"]))
    assert dropped(town) == {"deadline": 1}
    assert not any(london.at_work.values())


def test_a_quote_that_is_dearer_than_its_advert_is_not_taken(town):
    london, paris = town.sites["london"], town.sites["paris"]
    paris.broker.tariffs["local"] = Tariff(100 * CHEAP, "USD", "raised")
    london.submit(5000)
    town.run(finished(town, 5000))
    assert [m for *_, m in town.said if isinstance(m, deals.Quote)]
    assert not [m for *_, m in town.said if isinstance(m, deals.Hold)]
    assert "paris/local" in london.exchange.purchases.site_backoff.rests(spec())


def test_a_quote_in_other_money_than_its_advert_is_not_taken(town):
    paris = town.sites["paris"]
    paris.broker.tariffs["local"] = Tariff(CHEAP, "EUR", "changed")
    town.sites["london"].submit(500)
    town.run(finished(town, 500))
    assert not [m for *_, m in town.said if isinstance(m, deals.Hold)]


def test_of_quotes_for_what_nobody_advertised_the_cheapest_is_taken():
    town = Town()
    for name, price in (("london", DEAR), ("aachen", 50 * CHEAP), ("paris", CHEAP)):
        town.build(name, price, 0 if name == "london" else 4)
    town.show(hidden={("london", "aachen"), ("london", "paris")})
    town.sites["london"].submit(200)
    town.run(finished(town, 200))
    held = [receiver for _, receiver, m in town.said if isinstance(m, deals.Hold)]
    assert held[0] == "paris"


def test_who_is_not_known_is_asked_before_money_is_said_to_be_over():
    town = Town()
    town.build("london", DEAR, 1)
    town.build("paris", CHEAP, 4)
    town.show(hidden={("london", "paris")})
    london = town.sites["london"]
    london.submit(2, "first", wishes=Wishes(allowed_sites=frozenset({"london"})))
    town.run(finished(town, 2), task_s=0.1)
    london.results.clear()
    # At home a task of a tenth of a second costs 27,778 nanos.
    london.submit(3, "second", max_cost_nanos=20_000, currency="USD")
    town.run(lambda: "second" not in london.broker.jobs, task_s=0.1)
    assert len(london.answers()) == 3
    assert dropped(town) == {}


def test_what_is_explained_is_what_was_planned(town):
    london = town.sites["london"]
    london.submit(8, "first")
    town.run(finished(town, 8), task_s=0.1)
    london.submit(400, "second", wishes=Wishes(objective=FASTEST))
    job = london.broker.jobs["second"]
    now_s = UTC_S + town.now_s
    london.exchange.refresh(now_s, without=job)
    own = london.exchange.market.advert("london")
    assert own is not None
    assert own.pools[0].tasks_queued == 0  # what is asked about is no load to itself
    london.exchange.refresh(now_s)
    whole = london.exchange.market.advert("london")
    assert whole is not None
    assert whole.pools[0].tasks_queued == job.waiting > 0


def test_a_buyer_gets_no_more_slots_in_all_than_it_may_have(town):
    london, paris = town.sites["london"], town.sites["paris"]
    paris.permits.may_send = lambda *asked: "too many" if asked[4] > 3 else ""
    for name in ("first", "second"):
        london.submit(40, name)
        town.pass_time(1.0)
    offered = [m.slots for *_, m in town.said if isinstance(m, deals.Quote)]
    assert offered == [2, 1]  # four slots are there, and three allowed: a half, and what is left
    town.run(lambda: not london.broker.jobs)


def test_slots_that_another_has_taken_meanwhile_are_not_held():
    town = Town()
    for name, price, slots in (("london", DEAR, 1), ("tokyo", DEAR, 1), ("paris", CHEAP, 4)):
        town.build(name, price, slots)
    town.show()
    buyers = [town.sites[name] for name in ("london", "tokyo")]
    for buyer in buyers:
        buyer.submit(8, "first")
        town.run(lambda buyer=buyer: "first" not in buyer.broker.jobs, task_s=0.1)
    town.pass_time(20.0)  # the contracts of these have ended
    town.said.clear()
    for buyer in buyers:  # both ask before either holds
        buyer.submit(400, "second", wishes=Wishes(forbidden_sites=frozenset({"london", "tokyo"})))
    town.pass_time(1.0)
    said = [m for *_, m in town.said]
    assert [m.slots for m in said if isinstance(m, deals.Quote)][:2] == [4, 4]
    assert [m.code for m in said if isinstance(m, deals.Decline)][:1] == ["no-slots"]


@pytest.mark.parametrize(
    "changes",
    [
        {"currency": "usd"},
        {"currency": ""},
        {"price_nanos": -1},
        {"pool": "x" * 1000},
        {"slots": 0},
    ],
)
def test_a_quote_that_makes_no_sense_breaks_the_protocol_and_nothing_else(town, changes):
    london = town.sites["london"]
    london.submit(400, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    ask = next(m for *_, m in town.said if isinstance(m, deals.AskQuote))
    pool = ask.pool or "local"
    quote = replace(
        deals.Quote(ask.contract, pool, 4, 4, CHEAP, "USD", 0.0, 1.0, 5.0, 5.0), **changes
    )
    with pytest.raises(ProtocolError):
        london.kernel.hear("paris", PeerSide.SELLER, quote, town.now_s, UTC_S)


@pytest.mark.parametrize("contract", ["paris-1-1", "london-1", "x", "london-1-1-1"])
def test_a_contract_that_is_not_named_after_its_buyer_is_refused(town, contract):
    ask = next_question(town)
    paris = town.sites["paris"]
    with pytest.raises(ProtocolError, match="does not begin with its buyer"):
        paris.kernel.hear(
            "london", PeerSide.BUYER, replace(ask, contract=contract), town.now_s, UTC_S
        )


def test_a_name_of_a_contract_is_good_once(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(40)
    town.run(finished(town, 40))
    town.pass_time(30.0)
    assert not paris.exchange.sales.sales
    ask = next(m for *_, m in town.said if isinstance(m, deals.AskQuote))
    with pytest.raises(ProtocolError, match="used before"):
        paris.kernel.hear("london", PeerSide.BUYER, ask, town.now_s, UTC_S)


def test_what_comes_back_and_is_delivered_in_one_frame_counts_once(town):
    london = town.sites["london"]
    london.submit(40, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    forward = first_forward(town)
    count = len(forward.arguments)
    back = [[forward.first, forward.first + count]]
    for message in (
        deals.GivenBack(forward.contract, forward.epoch, back),
        deals.Deliver(forward.contract, forward.epoch, forward.first, [b"r"] * count, [], [], 0, 0,
                      0, 0, int(UTC_S * 1000), []),
    ):  # fmt: skip
        london.kernel.hear("paris", PeerSide.SELLER, message, town.now_s, UTC_S)
    london.do()
    assert london.postings("buy") == {}
    assert london.answers() == {}


def test_a_job_does_not_go_to_another_country_for_a_quote_without_a_pool():
    town = Town()
    town.build("london", DEAR, 0)
    town.build("paris", CHEAP, 4)
    town.show(hidden={("london", "paris")})
    town.sites["london"].submit(4, wishes=Wishes(jurisdictions=frozenset({"DE"})))
    town.pass_time(3.0)
    assert [m.code for *_, m in town.said if isinstance(m, deals.Decline)][:1] == ["no-slots"]
    assert not [m for *_, m in town.said if isinstance(m, deals.Quote)]


def test_a_site_that_has_nothing_for_one_job_is_not_spared_for_others():
    town = Town()
    town.build("london", DEAR, 0)
    town.build("paris", CHEAP, 4)
    town.show()
    london = town.sites["london"]
    london.submit(1, "never", tags={"gpu": 1})
    town.pass_time(20.0)
    asked = [m for *_, m in town.said if isinstance(m, deals.AskQuote)]
    assert 1 <= len(asked) <= 4  # ever more seldom
    london.submit(40, "other")
    town.run(lambda: "other" not in london.broker.jobs, seconds=5.0)


def test_what_was_sold_for_a_pool_runs_in_no_other(town):
    paris = town.sites["paris"]
    london = town.sites["london"]
    london.submit(400, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    town.pass_time(0.3)
    (job,) = paris.broker.jobs.values()
    assert job.spec.pool == "local"
    paris.broker.tariffs["other"] = Tariff(CHEAP, "USD", "test")
    paris.do(events.WorkerJoined(77, "w77", "other", 4, {}, "3.11"))
    assert not paris.broker.workers[77].assignments


def test_no_task_took_longer_than_since_it_was_forwarded(town):
    london = town.sites["london"]
    london.submit(40, wishes=Wishes(allowed_sites=frozenset({"paris"})))
    forward = first_forward(town)
    values, at_ms = [b"r"] * len(forward.arguments), int(UTC_S * 1000)
    deliver = deals.Deliver(
        forward.contract,
        forward.epoch,
        forward.first,
        values,
        [],
        [],
        2**63 - 1,
        0,
        0,
        0,
        at_ms,
        [],
    )
    with pytest.raises(ProtocolError, match="more time than has passed"):
        london.kernel.hear("paris", PeerSide.SELLER, deliver, town.now_s, UTC_S)
    london.do()
    assert london.broker.durations.of(forward_function(london)) is None


def first_forward(town):
    """Let time pass until something is forwarded."""
    while not (found := [m for *_, m in town.said if isinstance(m, deals.Forward)]):
        assert town.now_s < 60
        town.pass_time(0.05)
    return found[0]


def forward_function(site):
    (job,) = site.broker.jobs.values()
    return job.spec.function


def test_quotes_that_are_not_taken_up_are_given_back_at_once(town):
    london, paris = town.sites["london"], town.sites["paris"]
    lyon = town.build("lyon", CHEAP, 4)
    town.show()
    for job in ("a", "b"):
        london.submit(4, job, wishes=Wishes(allowed_sites=frozenset({"paris", "lyon"})))
        town.run(lambda job=job: job not in london.broker.jobs)
    asked = {m.contract for *_, m in town.said if isinstance(m, deals.Quote)}
    held = {m.contract for *_, m in town.said if isinstance(m, deals.Hold)}
    closed = {m.contract for *_, m in town.said if isinstance(m, deals.CloseContract)}
    assert asked - held
    assert asked - held <= closed
    quoted = [sale for site in (paris, lyon) for sale in site.exchange.sales.sales.values()]
    assert not [each for each in quoted if each.phase is ContractPhase.QUOTED]
