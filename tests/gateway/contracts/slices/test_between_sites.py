"""Budgets, credit and slices of brokers that buy from each other: never overrun."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.town import CHEAP, DEAR, RULES, UTC_S, Town

from federation.messages import deals
from federation.messages.messages import Dropped
from federation.messages.registry import FromBuyer, FromSeller
from federation.reasons import Reason
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from policies.access.windows import EVERYBODY, WindowPlan, rules_at
from policies.costs.budgets import SLOT_TIME, Budget, Waiting
from policies.parties import Owner, read_party
from policies.placement.asks import Wishes
from policies.placement.market import EMPTY_S
from policies.reservations.reservations import (
    Reservation,
    ReservationRules,
    ReservationState,
    overlay,
)

HOUR_S = 3_600
TASK_S = 0.2
# What a task costs, and what is held for one, by its time limit and the time that stopping takes.
CHEAP_TASK = -(-CHEAP // (5 * HOUR_S))
BOUND = -(-CHEAP * 6 // (5 * HOUR_S))
DEAR_BOUND = -(-DEAR * 6 // (5 * HOUR_S))
ABROAD = Wishes(forbidden_sites=frozenset({"london"}))


def budget(amount, party="project:risk", **changes):
    return Budget("b", read_party(party), "USD", amount, **{"span": None, **changes})


def pair(*, london=(), paris=(), credit=None):
    """London, which buys, and Paris, which is cheap."""
    town = Town()
    town.build("london", DEAR, 1, london)
    town.build("paris", CHEAP, 4, paris, credit or {})
    town.show()
    return town


def budget_account(site):
    return site.broker.budget_accounts.own["b"]


def costs(site, pool=""):
    used = (each for each in site.books if isinstance(each, records.UsageRecord))
    return sum(each.cost_nanos for each in used if pool in ("", each.pool))


def go_on(town, rounds, check=lambda: None, task_s=TASK_S):
    """Let every slot do a task, and time pass."""
    for _ in range(rounds):
        town.pass_time(task_s)
        for site in list(town.sites.values()):
            workers = site.broker.workers.values()
            site.work(sum(each.slots for each in workers if not each.job), task_s=task_s)
        town.deliver()
        check()


def until(town, condition, task_s=TASK_S):
    for _ in range(300):
        if condition():
            return
        go_on(town, 1, task_s=task_s)
    raise AssertionError("it does not come to an end")


def declined(town, code):
    return [
        each for _, _, each in town.said if isinstance(each, deals.Decline) if each.code == code
    ]


# --- what we buy ---------------------------------------------------------------------------------


def test_a_contract_is_held_by_its_grant_when_it_is_committed_and_settled_as_it_delivers():
    town = pair(london=[budget(8_000 * CHEAP_TASK)])
    london = town.sites["london"]
    london.submit(100, wishes=ABROAD)
    town.deliver()
    ((contract, bought),) = london.exchange.purchases.purchases.items()
    (opened,) = [each for each in london.books if isinstance(each, records.ContractOpened)]
    assert opened.max_cost_nanos == budget_account(london).held_nanos == 8_000 * CHEAP_TASK
    assert all(
        not each.holds for each in london.broker.workers[bought.handle].assignments.values()
    ), "it is held as a whole"
    until(town, lambda: len(london.answers()) >= 40)
    spent = budget_account(london).spent_nanos
    assert spent == costs(london) > 0
    assert budget_account(london).held_nanos == 8_000 * CHEAP_TASK - spent
    until(town, lambda: not london.broker.jobs and not london.exchange.purchases.purchases)
    assert contract not in london.exchange.purchases.purchases
    assert budget_account(london).held_nanos == 0
    assert budget_account(london).spent_nanos == costs(london)


def test_what_is_bought_never_costs_more_than_the_budget_and_the_rest_waits():
    town = pair(london=[budget(50 * CHEAP_TASK)])
    london = town.sites["london"]
    london.submit(200, wishes=ABROAD)

    def check():
        assert costs(london) == budget_account(london).spent_nanos <= 50 * CHEAP_TASK

    go_on(town, 60, check)
    assert 40 <= len(london.answers()) <= 60, "the last ones are the seller's loss"
    assert london.broker.jobs["j"].waiting == 200 - len(london.answers())


def test_a_job_without_time_limit_or_cost_limit_is_bounded_by_the_grant():
    town = pair(london=[budget(50 * CHEAP_TASK)])
    london = town.sites["london"]
    london.submit(100, wishes=ABROAD)
    town.deliver()
    go_on(town, 10, task_s=6.0)  # thirty times what was thought
    assert costs(london) <= 50 * CHEAP_TASK


@pytest.mark.parametrize("then", [[], [deals.Closed], [deals.Decline]])
def test_what_was_delivered_is_free_for_nobody_until_it_is_counted_as_spent(then):
    """The next message of the same frame may hold another contract, and lend a part."""
    town = pair(london=[budget(8_000 * CHEAP_TASK)])
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(100, wishes=ABROAD)
    town.deliver()
    paris.work()
    room = budget_account(london).room_nanos
    delivery = next(each for *_, each in town.mail if isinstance(each, deals.Deliver))
    utc_s = UTC_S + town.now_s
    end = ("draining", "bye") if deals.Decline in then else ()
    for message in (delivery, *(each(delivery.contract, *end) for each in then)):
        london.kernel.hear("paris", PeerSide.SELLER, message, town.now_s, utc_s)
        assert budget_account(london).room_nanos == room
    london.do()
    assert budget_account(london).spent_nanos == delivery.cost_nanos > 0
    assert budget_account(london).room_nanos == (
        budget_account(london).left_nanos if then else room
    )


def test_what_was_spent_meanwhile_is_not_committed():
    town = pair(london=[budget(1_000 * CHEAP_TASK)])
    london = town.sites["london"]
    london.submit(100, wishes=ABROAD)
    while not any(isinstance(each, deals.Held) for *_, each in town.mail):
        sender, receiver, side, _, message = town.mail.popleft()
        there = FromBuyer if sender == "london" else FromSeller
        assert isinstance(message, there)
        theirs = side.BUYER if side is side.SELLER else side.SELLER
        at = (town.now_s, UTC_S + town.now_s)
        town.sites[receiver].kernel.hear(sender, theirs, message, *at)
        town.sites[receiver].do()
    budget_account(london).spent_nanos = 900 * CHEAP_TASK
    town.deliver()
    assert not [each for each in london.books if isinstance(each, records.ContractOpened)]
    until(town, lambda: len(london.answers()) == 100)
    assert budget_account(london).spent_nanos <= 1_000 * CHEAP_TASK


def reserved_at_paris(town, by="ann"):
    """All of Paris' slots are London's for an hour, at the cost of a user there."""
    london, paris = town.sites["london"], town.sites["paris"]
    made = Reservation(
        *("r1", "local", read_party("project:risk"), 4, UTC_S, UTC_S + HOUR_S, CHEAP, "USD"),
        *(Owner(by, project="risk" if by == "ann" else ""), UTC_S),
        state=ReservationState.BOOKED,
    )
    london.broker.reserved.hold(made, "paris")
    theirs = replace(made, who=read_party("site:london"), by=Owner("ann@london", site="london"))
    rules = rules_at(WindowPlan((), EVERYBODY), UTC_S)
    rules = overlay(rules, [theirs], ReservationRules(), UTC_S)
    paris.do(events.RulesTurned({"local": rules}))
    town.show()
    return made


def test_in_slots_that_are_reserved_there_nothing_is_held_beside_their_price():
    town = pair(london=[budget(10 * CHEAP)])
    made, london = reserved_at_paris(town), town.sites["london"]
    reserved = budget_account(london).held_nanos
    assert reserved == made.total_nanos
    london.submit(100, wishes=ABROAD)
    town.deliver()
    assert london.exchange.purchases.purchases
    until(town, lambda: len(london.answers()) >= 40)
    assert costs(london, "paris/local") == costs(london) == budget_account(london).spent_nanos > 0
    assert budget_account(london).held_nanos == reserved - costs(london)
    until(town, lambda: not london.broker.jobs and not london.exchange.purchases.purchases)
    assert budget_account(london).held_nanos == reserved - costs(london)
    london.broker.reserved.end(made, UTC_S, "paris")
    assert budget_account(london).held_nanos == 0


def test_who_has_no_budget_uses_up_what_is_held_for_the_slots_of_his_party():
    town = pair(london=[budget(10 * CHEAP, "user:bob")])
    made, london = reserved_at_paris(town, by="bob"), town.sites["london"]
    assert budget_account(london).held_nanos == made.total_nanos
    london.submit(100, wishes=ABROAD)
    until(town, lambda: not london.broker.jobs)
    assert budget_account(london).held_nanos == made.total_nanos - costs(london) < made.total_nanos
    assert budget_account(london).spent_nanos == 0


def test_a_seller_that_is_lost_holds_nothing_when_its_lease_is_over():
    town = pair(london=[budget(1_000 * CHEAP_TASK)])
    london = town.sites["london"]
    london.submit(100, wishes=ABROAD)
    town.deliver()
    assert budget_account(london).held_nanos > 0
    town.cut.add(frozenset(("london", "paris")))
    town.sites["paris"].at_work.clear()
    town.pass_time(2 * RULES.lease_s, step_s=0.5)
    assert budget_account(london).held_nanos == 0


def test_a_contract_of_a_former_life_is_held_by_what_is_left_of_its_grant():
    town = pair(london=[budget(1_000 * CHEAP_TASK)])
    london = town.sites["london"]
    london.submit(100, wishes=ABROAD, detached=True)
    until(town, lambda: sum(isinstance(e, records.OutcomeKept) for e in london.books) > 2)
    town.deliver()
    spent = budget_account(london).spent_nanos
    job = london.broker.jobs["j"]
    left = [part for part in job.known if part]
    recovered = events.JobRecovered(
        "j", job.spec, 100, tuple(job.ended), 0, 0, tuple(job.charged), dict(job.costs_nanos),
        job.wall_ns, job.cpu_ns, attempt_max=job.attempt_max, function=job.spec.function,
    )  # fmt: skip
    arrived = [
        events.TasksArrived(0, "j", low, [b""] * (high - low))
        for first, stop in left
        for low, high in job.ended.missing(first, stop)
    ]
    london.recover(2, recovered, *arrived)
    assert budget_account(london).spent_nanos == spent == costs(london)
    assert budget_account(london).held_nanos == 1_000 * CHEAP_TASK - spent


def test_what_is_left_for_no_task_at_home_is_spent_where_a_contract_bounds_it():
    town = Town(prefer_own_s=1e6)
    town.build("london", CHEAP, 3, [budget(2 * BOUND, waiting=Waiting.END)])
    town.build("paris", CHEAP, 3)
    town.show()
    london = town.sites["london"]
    london.submit(30, timeout_s=TASK_S)
    until(town, lambda: not london.broker.jobs)
    assert costs(london, "local") > 0
    assert costs(london, "paris/local") > 0
    assert budget_account(london).left_nanos < CHEAP_TASK
    assert budget_account(london).held_nanos == 0


def test_what_is_left_for_no_task_at_home_is_not_kept_for_ever_for_a_pool_without_workers():
    town = Town(prefer_own_s=1e6)
    town.build("london", CHEAP, 3, [budget(2 * BOUND, waiting=Waiting.END)])
    town.build("paris", CHEAP, 0)
    town.show()
    london = town.sites["london"]
    london.submit(30, timeout_s=TASK_S)
    until(town, lambda: budget_account(london).left_nanos < BOUND)
    for _ in range(9):
        town.pass_time(EMPTY_S / 10, 5.0)
        town.show()
    assert budget_account(london).left_nanos >= CHEAP_TASK
    assert london.broker.jobs["j"].waiting
    town.pass_time(EMPTY_S / 5, 5.0)
    assert not london.broker.jobs
    assert {each.failure for each in london.told if isinstance(each, Dropped)} == {"budget"}


def test_what_is_left_for_no_task_at_home_is_not_kept_for_a_site_whose_rules_forbid_the_work():
    town = Town(prefer_own_s=1e6)
    town.build("london", CHEAP, 3, [budget(2 * BOUND, waiting=Waiting.END)])
    town.build("paris", CHEAP, 3)
    town.sites["paris"].permits.may_send = lambda *_: "not this"
    town.show()
    london = town.sites["london"]
    london.submit(30, timeout_s=TASK_S)
    until(town, lambda: not london.broker.jobs)
    assert budget_account(london).left_nanos >= CHEAP_TASK
    assert declined(town, "not-entitled")
    assert {each.failure for each in london.told if isinstance(each, Dropped)} == {"budget"}


def test_a_quota_without_room_for_a_task_buys_nothing_as_time_counts_anywhere():
    quota = replace(budget(10**11), unit=SLOT_TIME)
    town = pair(london=[quota])
    london = town.sites["london"]
    budget_account(london).held_nanos += quota.amount_nanos
    london.submit(5, timeout_s=TASK_S)
    go_on(town, 3)
    assert not town.said
    budget_account(london).held_nanos -= quota.amount_nanos
    until(town, lambda: not london.broker.jobs)
    assert costs(london, "paris/local") > 0


def test_an_explanation_names_the_budget_that_keeps_a_job_from_our_own_pool():
    town = pair(london=[budget(10**11)])
    london = town.sites["london"]
    budget_account(london).held_nanos += 10**11
    london.submit(5, timeout_s=TASK_S)
    [job] = london.broker.jobs.values()
    decision = london.exchange.deciding.decide_for(job, job.waiting, UTC_S + town.now_s)
    refusal = decision.verdict(("london", "local"))
    assert refusal.reason is Reason.BUDGET_EXHAUSTED
    assert refusal.text == "the budget 'b' (project:risk) has no room for a task now"


# --- what we sell --------------------------------------------------------------------------------


def test_a_site_that_has_used_up_what_we_lend_it_is_declined_with_the_figure():
    town = pair(paris=[budget(10, "site:london")])
    london = town.sites["london"]
    london.submit(5, wishes=ABROAD)
    town.deliver()
    (found,) = declined(town, Reason.BUDGET_EXHAUSTED)
    assert (
        "the budget 'b' (site:london) has too little left for a task: 0 USD of 0.00000001 USD"
        in found.reason
    )
    assert not [each for each in london.books if isinstance(each, records.ContractOpened)]
    refused = london.exchange.purchases.site_backoff.rests(london.broker.jobs["j"].spec)
    assert "budget-exhausted" in str(refused["paris/local"])


def test_work_that_a_budget_does_not_pay_for_any_more_is_given_back_and_done_elsewhere():
    town = pair(paris=[budget(8 * BOUND, "others")])
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(100, timeout_s=TASK_S)
    until(town, lambda: len(london.answers()) == 100)
    assert 0 < costs(paris) <= 8 * BOUND
    assert costs(london, "local") > 0, "the rest ran at home"
    assert budget_account(paris).held_nanos == 0


def test_a_site_that_owes_all_that_it_may_gets_no_more_until_it_has_paid():
    limit = 8 * BOUND
    town = pair(credit={"london": ((limit, "USD"),)})
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(100, wishes=ABROAD, timeout_s=TASK_S)
    (owing,) = paris.broker.budget_accounts.credit_of("london")

    def check():
        assert owing.spent_nanos + owing.held_nanos <= limit

    go_on(town, 60, check)
    site_backoff = london.exchange.purchases.site_backoff

    def rest_s():
        rest = site_backoff.sites.get("paris")
        return rest.until_s - UTC_S - town.now_s if rest is not None else 0.0

    until(town, lambda: rest_s() > 20)  # it grows with each refusal
    before = len(london.answers())
    assert 30 < before < 100
    assert declined(town, Reason.CREDIT_LIMIT)
    assert "london owes" in declined(town, Reason.CREDIT_LIMIT)[0].reason
    paid = records.Payment(
        "london", "r1", "USD", "received", "bank", owing.spent_nanos, "", UTC_S + town.now_s
    )
    paris.broker.budget_accounts.note(paid)
    assert owing.spent_nanos == 0
    paid_at_s = town.now_s
    london.exchange.paid("paris")
    until(town, lambda: len(london.answers()) > before)
    assert town.now_s - paid_at_s < 2, "it waits for something else"


def test_what_is_relayed_is_held_at_our_own_price_as_it_is_handed_out():
    town = Town()
    town.build("london", DEAR, 0)
    town.build("paris", DEAR, 0, [budget(40 * DEAR_BOUND, "site:london")])
    town.build("lyon", CHEAP, 4)
    town.show(hidden={("lyon", "london"), ("london", "lyon")})
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20, timeout_s=TASK_S)
    until(town, lambda: len(london.answers()) == 20)
    assert [each.earmark for each in paris.exchange.purchases.purchases.values()] in ([], [None])
    assert budget_account(paris).spent_nanos == costs(paris) > 0
    assert budget_account(paris).held_nanos == 0


# --- one budget, many gateways -------------------------------------------------------------------

SITES = ("london", "paris", "lyon")
AMOUNT, SLICE = 20 * BOUND, 5 * BOUND


def shared(*, amount=AMOUNT, slice_nanos=SLICE, **changes):
    """Three sites that pay from London's budget. Each has slots of its own."""
    town = Town(prefer_own_s=changes.pop("prefer_own_s", float("inf")))
    lent = budget(amount, sites=frozenset(SITES[1:]), slice_s=60.0, **changes)
    held = budget(slice_nanos, owner="london", **changes)
    for name in SITES:
        town.build(name, CHEAP, 3, [lent if name == "london" else held])
    town.show()
    return town


def total(town):
    """The cost of our users' work, at all sites: each in its own books."""
    return sum(
        each.cost_nanos
        for site in town.sites.values()
        for each in site.books
        if isinstance(each, records.UsageRecord) and not each.origin
    )


@pytest.mark.parametrize("prefer_own_s", [float("inf"), 0.0], ids=["at home", "anywhere"])
def test_three_gateways_spend_one_budget_at_once_and_never_more(prefer_own_s):
    town = shared(prefer_own_s=prefer_own_s)
    for site in town.sites.values():
        site.submit(150, timeout_s=TASK_S)

    def check():
        assert total(town) <= AMOUNT

    go_on(town, 120, check)
    spread = [len(site.answers()) for site in town.sites.values()]
    assert all(spread), spread
    # What is left is less than the sites hold for a task, each in its own slice.
    assert total(town) > AMOUNT - 3 * BOUND
    for site in town.sites.values():
        (why,) = site.broker.spending.why_waiting(site.broker.jobs["j"]).values()
        assert any(each in why for each in ("exhausted", "has no room now", "has too little left"))


@pytest.mark.parametrize("quarters", [1, 2, 3, 5, 6, 7])
def test_what_its_owner_has_left_for_no_task_at_home_is_asked_for_and_spent_elsewhere(quarters):
    amount = quarters * BOUND // 4
    town = shared(amount=amount, slice_nanos=BOUND, waiting=Waiting.END, prefer_own_s=1e6)
    paris = town.sites["paris"]
    paris.submit(60, timeout_s=TASK_S)
    until(town, lambda: not paris.broker.jobs)
    assert amount - total(town) < CHEAP_TASK


def test_a_site_that_dies_with_a_slice_keeps_it_and_comes_back_with_what_it_spent():
    town = shared()
    london, lyon = town.sites["london"], town.sites["lyon"]
    lyon.submit(3, timeout_s=TASK_S)
    until(town, lambda: len(lyon.answers()) == 3)
    spent = budget_account(lyon).spent_nanos
    del town.sites["lyon"]
    for name in ("london", "paris"):
        town.sites[name].submit(200, timeout_s=TASK_S)
    go_on(town, 150)
    (share,) = [each for each in london.exchange.lending.of("b") if each.site == "lyon"]
    assert share.unspent > 0
    assert total(town) + share.granted <= AMOUNT
    town.sites["lyon"] = lyon
    lyon.recover(2)
    assert budget_account(lyon).total_nanos == spent
    before = total(town)

    def check():
        assert total(town) <= AMOUNT

    go_on(town, 150, check)
    assert share.unspent == 0
    assert total(town) > before, "what it gave back was spent by others"


@settings(max_examples=25, deadline=None)
@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from(["submit", "work", "work", "cut", "mend", "die", "wait", "hurry"]),
            st.sampled_from(SITES),
            st.integers(1, 12),
        ),
        min_size=10,
        max_size=40,
    )
)
def test_whatever_happens_one_budget_is_never_overrun(moves):
    town = shared(prefer_own_s=0.0)
    jobs = 0
    for move, name, n in moves:
        site = town.sites[name]
        other = SITES[(SITES.index(name) + 1) % 3]
        match move:
            case "submit":
                jobs += 1
                site.submit(n, f"j{jobs}", timeout_s=TASK_S)
            case "work":
                town.pass_time(TASK_S)
                site.work(n, task_s=TASK_S)
            case "cut":
                town.cut.add(frozenset((name, other)))
            case "mend":
                town.cut.discard(frozenset((name, other)))
            case "die":
                site.recover(site.boot + 1)
            case "wait":
                town.pass_time(n * 0.2)
            case "hurry":
                town.deliver()
        town.deliver()
        assert total(town) <= AMOUNT
        for each in town.sites.values():
            held = budget_account(each).held_nanos
            assert held >= 0


def test_a_budget_of_another_site_is_named_by_whoever_waits_for_a_part_of_it():
    town = shared()
    town.cut.add(frozenset(("london", "paris")))
    paris = town.sites["paris"]
    paris.submit(2, timeout_s=TASK_S)
    town.pass_time(1.0)
    (why,) = paris.broker.spending.why_waiting(paris.broker.jobs["j"]).values()
    assert why == (
        "the budget 'b' (project:risk) has no room: london has not lent a slice of it, or "
        "not recently"
    )
    town.cut.clear()
    until(town, lambda: len(paris.answers()) == 2)


def test_a_slice_says_nothing_of_other_currencies():
    changed = replace(budget(SLICE, owner="london"), unit="EUR")
    town = Town()
    town.build("london", CHEAP, 1, [budget(AMOUNT, sites=frozenset({"paris"}))])
    town.build("paris", CHEAP, 1, [changed])
    town.pass_time(1.0)
    assert (
        "the budget is in USD, ever, UTC at its owner"
        in budget_account(town.sites["paris"]).refused
    )
