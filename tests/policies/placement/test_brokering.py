"""Where work goes: the whole pipeline, from adverts to the quote that is taken."""

import json
from collections import Counter
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pure.market import (
    CENT,
    NOW_S,
    make_advert,
    make_ask,
    make_market,
    make_pool,
    make_preferences,
    make_terms,
    seeded,
)

from federation.messages.adverts import AdvertisedWindow, PriceChange, SiteAdvert
from federation.reasons import Reason
from policies.placement.asks import CHEAPEST, FASTEST, GREENEST, Demand, Objective, WhenClosed
from policies.placement.brokering import BackoffEnd, PoolQuote, choose_quote, place
from policies.placement.decisions import DecisionReason
from policies.placement.market import Market
from policies.placement.placement import Refusal


def decide(ask, market, preferences=None, seed=1, now_s=NOW_S, site_backoff=None):
    return place(ask, market, preferences or make_preferences(), now_s, seeded(seed), site_backoff)


def shares(decision):
    return {lane.key[0]: n for lane, n in decision.plan.shares}


# --- choosing ------------------------------------------------------------------------------------


def test_the_cheapest_that_may_run_it_gets_it() -> None:
    market = make_market(
        a=make_pool(price_nanos=CENT, jurisdiction="US"),
        b=make_pool(price_nanos=2 * CENT, jurisdiction="GB"),
        c=make_pool(price_nanos=3 * CENT, jurisdiction="GB"),
    )
    decision = decide(make_ask(terms=make_terms(jurisdictions=frozenset({"GB"}))), market)
    assert shares(decision) == {"b": 100}
    assert decision.why == DecisionReason.BEST
    assert decision.quotes_from == [("b", "main"), ("c", "main")]
    assert decision.verdict(("a", "main")).reason == Reason.OUTSIDE_JURISDICTION
    assert decision.verdict(("b", "main")) == decision.ranking[0]
    assert decision.verdict(("z", "main")) is None


def test_the_way_of_the_inputs_counts_beside_the_price_of_slots() -> None:
    near, far = make_pool(price_nanos=2 * CENT), make_pool(price_nanos=CENT, receive_nanos=CENT)
    market = make_market(a=near, b=far)
    assert shares(decide(make_ask(), market)) == {"b": 100}
    ask = make_ask(moved_bytes=10**10)  # ten GB at a cent, where slots save a third of one
    decision = decide(ask, market)
    assert shares(decision) == {"a": 100}
    row = next(each for each in decision.to_plain()["candidates"] if each["site"] == "b")
    slots_nanos = make_cost(100, CENT)
    assert (row["moves"], row["moved_bytes"]) == ("0.1 USD", 10**10)
    assert abs(row["cost_nanos"] - slots_nanos - 10 * CENT) <= 1
    # Where they are there already, nothing moves.
    ask = make_ask(moved_bytes=10**10, moved_to=frozenset({"b"}))
    assert shares(decide(ask, market)) == {"b": 100}


def test_objects_are_not_moved_to_the_own_site() -> None:
    market = make_market(home=make_pool(receive_nanos=10**12))
    [row] = decide(make_ask(moved_bytes=10**12), market).to_plain()["candidates"]
    assert row["moves_nanos"] == 0


def test_a_budget_pays_for_the_way_and_for_tasks() -> None:
    market = make_market(a=make_pool(price_nanos=36 * CENT, receive_nanos=CENT))
    for budget_nanos, tasks in ((CENT - 1, 0), (CENT + CENT // 2, 5)):
        ask = make_ask(tasks=10, moved_bytes=10**9, budget_nanos=budget_nanos)
        decision = decide(ask, market)
        if tasks:
            assert sum(shares(decision).values()) == tasks
            assert decision.plan.cost_nanos <= budget_nanos
        else:
            [(_, refusal)] = decision.refused
            assert refusal.reason is Reason.COST_LIMIT
            assert "0.01 USD to move its inputs there and" in refusal.text


def test_a_quote_is_chosen_with_the_way_of_the_inputs() -> None:
    market = make_market(a=make_pool(receive_nanos=CENT), b=make_pool(receive_nanos=CENT))
    decision = decide(make_ask(moved_bytes=10**9), market)
    dear = PoolQuote(("a", "main"), 100, 4 * CENT, NOW_S, NOW_S + 10, CENT * 3 // 2)
    fair = PoolQuote(("b", "main"), 100, 4 * CENT, NOW_S, NOW_S + 10, CENT)
    assert choose_quote(decision, [dear, fair], NOW_S) == fair


def test_never_is_told_apart_from_not_now() -> None:
    never = make_market(a=make_pool(pythons=("3.9",)), z1=make_pool())
    busy = make_market(a=make_pool(slots_total=0), z1=make_pool())
    for market, hopeless in ((never, True), (busy, False), (Market("home"), True)):
        decision = decide(make_ask(), market)
        assert decision.why == DecisionReason.NOBODY
        assert decision.plan is None
        assert decision.quotes_from == []
        assert decision.is_hopeless is hopeless


def test_a_site_that_refused_lately_is_spared_for_a_while() -> None:
    market = make_market(a=make_pool(), b=make_pool(price_nanos=9 * CENT))
    decision = decide(make_ask(), market, site_backoff={"a": BackoffEnd(NOW_S + 5)})
    assert shares(decision) == {"b": 100}
    assert decision.verdict(("a", "main")).reason == Reason.SITE_RESTING
    assert shares(decide(make_ask(), market, site_backoff={"a": BackoffEnd(NOW_S)})) == {"a": 100}


def test_a_pool_left_out_for_another_reason_than_back_off_is_refused_with_that_reason() -> None:
    rest = BackoffEnd(NOW_S + 5, "no room", reason=Reason.BUDGET_EXHAUSTED)
    decision = decide(make_ask(), make_market(a=make_pool()), site_backoff={"a": rest})
    [(_, refusal)] = decision.refused
    assert (refusal.reason, refusal.text) == (Reason.BUDGET_EXHAUSTED, "no room")


@pytest.mark.parametrize(
    ("prefer_own_s", "at_home", "why"),
    [
        (0.0, 0, DecisionReason.BEST),
        (25.0, 30, DecisionReason.HOME_FIRST),
        (float("inf"), 100, DecisionReason.HOME_FIRST),
    ],
)
def test_work_stays_at_home_as_long_as_the_site_prefers(prefer_own_s, at_home, why) -> None:
    market = make_market(
        home=make_pool(slots_total=10, price_nanos=9 * CENT), a=make_pool(price_nanos=CENT)
    )
    decision = decide(make_ask(), market, make_preferences(prefer_own_s=prefer_own_s))
    assert shares(decision).get("home", 0) == at_home
    assert sum(shares(decision).values()) == 100
    assert decision.why == why
    assert ("home", "main") not in decision.quotes_from


def test_a_busy_home_is_not_preferred() -> None:
    busy = make_pool(slots_total=10, slots_free=0, load_slot_s=1000.0)
    decision = decide(
        make_ask(), make_market(home=busy, a=make_pool()), make_preferences(prefer_own_s=99)
    )
    assert shares(decision) == {"a": 100}


def test_home_does_not_cost_more_than_there_is() -> None:
    home = make_pool(slots_total=1000, price_nanos=9 * CENT)
    ask = make_ask(budget_nanos=make_cost(50, 9 * CENT))
    decision = decide(ask, make_market(home=home, a=make_pool(price_nanos=CENT)), HOMELY)
    assert decision.plan.cost_nanos <= ask.budget_nanos
    assert shares(decision)["home"] == 50


def test_several_pools_at_home_share_what_there_is() -> None:
    two = [make_pool("x", price_nanos=9 * CENT), make_pool("y", price_nanos=9 * CENT)]
    ask = make_ask(tasks=200, budget_nanos=make_cost(50, 9 * CENT))
    decision = decide(ask, make_market({"home": two}), HOMELY)
    assert decision.plan.cost_nanos <= ask.budget_nanos
    assert sum(decision.plan.tasks) == 50


HOMELY = make_preferences(prefer_own_s=60.0)


def make_cost(tasks, price_nanos, task_s=10):
    return -(-tasks * price_nanos * task_s // 3600)


# --- several places ------------------------------------------------------------------------------


def test_a_large_job_is_split_and_a_deadline_brings_in_the_dear() -> None:
    market = make_market(
        a=make_pool(slots_total=10, price_nanos=CENT),
        b=make_pool(slots_total=20, price_nanos=2 * CENT),
        c=make_pool(slots_total=1000, price_nanos=9 * CENT),
    )
    relaxed = decide(make_ask(tasks=1000), market)
    pressed = decide(
        make_ask(tasks=1000, deadline_s=NOW_S + 100), market, make_preferences(band=0.0)
    )
    assert shares(relaxed) == {"a": 1000}
    assert shares(pressed) == {"a": 100, "b": 200, "c": 700}
    assert pressed.quotes_from == [("a", "main"), ("b", "main"), ("c", "main")]


def test_when_the_liked_are_too_small_the_roomiest_are_asked() -> None:
    small = {f"s{n}": make_pool(slots_total=1, price_nanos=CENT + n) for n in range(20)}
    market = make_market(**small, c=make_pool(slots_total=1000, price_nanos=9 * CENT))
    decision = decide(
        make_ask(tasks=500, deadline_s=NOW_S + 20), market, make_preferences(band=0.0)
    )
    assert decision.plan.short == 0
    assert shares(decision)["c"] >= 480
    assert len(decision.preferred) <= make_preferences().sites_max


def test_what_nobody_can_do_in_time_is_named() -> None:
    decision = decide(make_ask(deadline_s=NOW_S + 15), make_market(a=make_pool(slots_total=30)))
    assert shares(decision) == {"a": 30}
    assert (decision.plan.short, decision.plan.reason) == (70, Reason.DEADLINE)


def test_what_nobody_can_do_before_a_window_closes_is_named() -> None:
    closes = AdvertisedWindow(NOW_S - 1, NOW_S + 15, 30, CENT)
    decision = decide(make_ask(), make_market(a=make_pool(slots_total=30, windows=(closes,))))
    assert shares(decision) == {"a": 30}
    assert (decision.plan.short, decision.plan.reason) == (70, Reason.WINDOW_CLOSED)


def test_a_task_of_unknown_length_is_tried_a_round_at_a_time() -> None:
    market = make_market(a=make_pool(slots_total=30), b=make_pool(slots_total=20))
    ask = make_ask(tasks=1000, task_s=None)
    decision = decide(ask, market)
    assert shares(decision) == {"a": 30, "b": 20}
    assert decision.plan.reason == Reason.DURATION_UNKNOWN
    # With a budget only in one place: nobody knows what it will cost.
    decision = decide(make_ask(tasks=1000, task_s=None, budget_nanos=1), market)
    assert len(shares(decision)) == 1


def test_no_limit_keeps_a_task_of_unknown_length_from_being_tried() -> None:
    market = make_market(a=make_pool())
    ask = make_ask(task_s=None, deadline_s=NOW_S + 0.01, budget_nanos=0)
    decision = decide(ask, market)
    assert shares(decision) == {"a": 100}
    guess = quote("a", finish_s=NOW_S + 9)
    assert choose_quote(decision, [guess], NOW_S) is guess
    late = PoolQuote(("a", "main"), 100, CENT, NOW_S + 1, NOW_S + 1)
    assert choose_quote(decision, [late], NOW_S) is None


def test_a_slow_link_gets_less() -> None:
    market = make_market(a=make_pool(), b=make_pool(link_bytes_s=1000.0))
    ask = make_ask(FASTEST, tasks=2000, task_s=1.0, task_bytes=100)
    decision = decide(ask, market, make_preferences(band=0.0))
    # 100 a second there, 10 a second through the link
    assert shares(decision)["a"] > 8 * shares(decision).get("b", 1)


# --- herding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [CHEAPEST, FASTEST, Objective(1, 1)])
def test_brokers_with_the_same_adverts_do_not_all_choose_the_same(objective) -> None:
    pools = {
        f"s{n}": make_pool(price_nanos=(100 + n) * CENT, slots_free=0, load_slot_s=10.0 * n)
        for n in range(5)
    }
    market = make_market(**pools)
    ask = make_ask(objective, tasks=1, task_s=600.0)
    chosen = Counter(next(iter(shares(decide(ask, market, seed=n)))) for n in range(20))
    assert len(chosen) >= 3
    assert max(chosen.values()) <= 12


def test_live_quotes_spread_what_old_adverts_would_pile_up() -> None:
    """Twenty brokers hold the same adverts of five alike; each site knows its own load."""
    loads = {f"s{n}": 0.0 for n in range(5)}
    market = make_market(**{name: make_pool(slots_free=0) for name in loads})
    for broker in range(20):
        decision = decide(make_ask(FASTEST), market, seed=broker)
        answers = [
            quote(site, finish_s=NOW_S + loads[site] / 100 + 10) for site, _ in decision.quotes_from
        ]
        loads[choose_quote(decision, answers, NOW_S).key[0]] += 1000.0
    assert max(loads.values()) <= 6000.0
    assert min(loads.values()) >= 2000.0


def test_what_we_sent_keeps_us_from_piling_up_on_an_old_advert() -> None:
    """Two brokers place ten jobs each before any advert is renewed."""
    loads = Counter()
    for broker in range(2):
        market = make_market(**{f"s{n}": make_pool(slots_free=0) for n in range(4)})
        for job in range(10):
            chance = seeded(f"{broker}-{job}")
            decision = place(make_ask(FASTEST), market, make_preferences(), NOW_S, chance)
            for lane, n in decision.plan.shares:
                market.sent(lane.key, n, n * lane.task_s, NOW_S)
                loads[lane.key[0]] += n
    assert sum(loads.values()) == 2000
    assert max(loads.values()) <= 1.5 * 2000 / 4


# --- quotes --------------------------------------------------------------------------------------


def quote(site, tasks=100, price_nanos=CENT, finish_s=NOW_S + 10):
    return PoolQuote((site, "main"), tasks, price_nanos, NOW_S, finish_s)


def three(objective=CHEAPEST, **changes):
    market = make_market(a=make_pool(), b=make_pool(), c=make_pool())
    return decide(make_ask(objective, **changes), market)


@pytest.mark.parametrize(
    ("objective", "quotes", "best"),
    [
        (CHEAPEST, [quote("a", price_nanos=3), quote("b", price_nanos=2), quote("c")], "b"),
        (FASTEST, [quote("a", finish_s=NOW_S + 9), quote("b")], "a"),
        (CHEAPEST, [quote("a", tasks=99, price_nanos=1), quote("b", price_nanos=2)], "b"),
        (CHEAPEST, [quote("a", tasks=99, price_nanos=1), quote("b", tasks=0)], "a"),
        (CHEAPEST, [quote("unasked", price_nanos=0), quote("b")], "b"),
        (CHEAPEST, [quote("b"), quote("a")], "a"),
    ],
)
def test_the_best_live_quote_is_taken(objective, quotes, best) -> None:
    assert choose_quote(three(objective), quotes, NOW_S).key[0] == best


def test_a_quote_that_breaks_a_limit_does_not_count() -> None:
    decision = three(deadline_s=NOW_S + 20, budget_nanos=make_cost(100, 4 * CENT))
    late, dear = quote("a", finish_s=NOW_S + 21), quote("b", price_nanos=5 * CENT)
    assert choose_quote(decision, [late, dear], NOW_S) is None
    assert choose_quote(decision, [late, dear, quote("c")], NOW_S).key[0] == "c"
    assert choose_quote(decide(make_ask(), Market("home")), [quote("c")], NOW_S) is None


@pytest.mark.parametrize(
    ("begins_in_s", "objective", "is_taken"),
    [(0, FASTEST, True), (19, FASTEST, True), (30, FASTEST, False), (30, CHEAPEST, True)],
    ids=["as shown", "sooner than our own", "later than our own", "later, and that is no matter"],
)
def test_a_quote_is_taken_if_our_own_pools_would_not_be_better(begins_in_s, objective, is_taken):
    """A looked idle, and is not: ours would be done after 30 s, for twice as much."""
    home = make_pool(price_nanos=8 * CENT, slots_free=0, load_slot_s=2_000.0)
    decision = decide(make_ask(objective), make_market(home=home, a=make_pool()))
    assert shares(decision) == {"a": 100}
    found = choose_quote(decision, [quote("a", finish_s=NOW_S + begins_in_s + 10)], NOW_S)
    assert (found is not None) is is_taken


def test_our_own_pools_are_no_better_if_they_can_do_only_a_part_in_time():
    home = make_pool(price_nanos=CENT, slots_total=1)
    ask = make_ask(CHEAPEST, deadline_s=NOW_S + 60)
    decision = decide(ask, make_market(home=home, a=make_pool(price_nanos=2 * CENT)))
    answer = quote("a", price_nanos=2 * CENT, finish_s=NOW_S + 10)
    assert choose_quote(decision, [answer], NOW_S) is answer


# --- properties ----------------------------------------------------------------------------------

pools = st.builds(
    make_pool,
    slots_total=st.sampled_from([0, 1, 10, 1000]),
    slots_free=st.just(0),
    price_nanos=st.integers(0, 10) | st.integers(0, 10**9),
    currency=st.sampled_from(["USD", "USD", "EUR"]),
    load_slot_s=st.floats(0, 1000),
    tags=st.sampled_from([{}, {"gpu": 1}, {"gpu": 4}]),
    pythons=st.sampled_from([("3.11",), ("3.11", "3.12"), ("3.12",)]),
    jurisdiction=st.sampled_from(["", "GB", "US"]),
    projects=st.sampled_from([None, frozenset({"risk"}), frozenset({"fx"})]),
    carbon_g_per_kwh=st.none() | st.floats(0, 700),
    slot_watts=st.just(4.0),
)
sites = st.dictionaries(
    st.sampled_from(["home", *"abcdef"]),
    st.lists(pools, max_size=3).map(
        lambda some: [
            type(one)(**{f: getattr(one, f) for f in one.__slots__} | {"pool": f"p{n}"})
            for n, one in enumerate(some)
        ]
    ),
)
asks = st.builds(
    make_ask,
    st.sampled_from([CHEAPEST, FASTEST, GREENEST, Objective(1, 2, 3)]),
    tasks=st.integers(1, 10**6),
    task_s=st.none() | st.floats(0, 100),
    deadline_s=st.none() | st.floats(NOW_S - 1, NOW_S + 1000),
    terms=st.builds(
        make_terms,
        tags=st.sampled_from([{}, {"gpu": 2}]),
        allowed_sites=st.none() | st.frozensets(st.sampled_from([*"abc", "home"])),
        forbidden_sites=st.frozensets(st.sampled_from("abc")),
        jurisdictions=st.none() | st.just(frozenset({"GB"})),
        path=st.sampled_from([(), ("d",)]),
        hops_left=st.integers(0, 2),
        trusted=st.frozensets(st.sampled_from("abcdef")),
        currency=st.just("USD"),
    ),
    budget_nanos=st.none() | st.integers(0, 10**10),
)
some_preferences = st.builds(
    make_preferences,
    prefer_own_s=st.sampled_from([0.0, 10.0, float("inf")]),
    band=st.sampled_from([0.0, 0.1]),
    sites_max=st.integers(1, 4),
    rates=st.sampled_from([{}, {"EUR": 1.1}]),
)


@given(asks, sites, some_preferences, st.integers(0, 99))
def test_no_rule_is_ever_broken(ask: Demand, offered, preferences, seed) -> None:
    decision = decide(ask, make_market(offered), preferences, seed)
    refused = {candidate.key for candidate, _ in decision.refused}
    accepted = {one.key for one in decision.ranking or ()}
    assert not refused & accepted
    assert len(refused) + len(accepted) == sum(map(len, offered.values()))
    assert (decision.plan is None) == (not accepted)
    if decision.plan is None:
        return
    assert sum(decision.plan.tasks) + decision.plan.short == ask.tasks
    assert len(decision.quotes_from) <= max(preferences.quotes_max, preferences.sites_max)
    chosen = {lane.key for lane, _ in decision.plan.shares} | set(decision.quotes_from)
    assert chosen <= accepted
    terms = ask.terms
    for site, pool in chosen:
        (advert,) = (one for one in offered[site] if one.pool == pool)
        assert site == "home" or site in terms.trusted - set(terms.path)
        assert site == "home" or terms.hops_left > 0
        assert site not in terms.forbidden_sites
        assert terms.allowed_sites is None or site in terms.allowed_sites
        assert terms.jurisdictions is None or advert.jurisdiction in terms.jurisdictions
        assert advert.projects is None or "risk" in advert.projects
        assert "3.11" in advert.pythons
        assert advert.tags.get("gpu", 0) >= terms.need.tags.get("gpu", 0)
        assert advert.currency == "USD"
    if ask.task_s is not None:
        if ask.budget_nanos is not None:
            assert decision.plan.cost_nanos <= ask.budget_nanos
        if ask.deadline_s is not None:
            assert decision.plan.finish_s <= ask.deadline_s - NOW_S + 1e-3


@given(asks, sites, some_preferences, st.integers(0, 99), st.randoms())
def test_equal_seeds_decide_alike_in_whatever_order_adverts_come(
    ask, offered, preferences, seed, shuffler
) -> None:
    names = list(offered)
    shuffler.shuffle(names)
    shuffled = {name: shuffler.sample(offered[name], len(offered[name])) for name in names}
    one = decide(ask, make_market(offered), preferences, seed)
    other = decide(ask, make_market(shuffled), preferences, seed)
    assert one.to_plain() == other.to_plain()


extremes = st.builds(
    make_pool,
    slots_total=st.sampled_from([0, 1, 10**8]),
    slots_free=st.just(0),
    price_nanos=st.sampled_from([0, 1, 2**63 - 1]),
    load_slot_s=st.sampled_from([0.0, 5e-324, 1e12]),
    work_rate=st.sampled_from([None, 0.0, 5e-324, 1e12]),
    arrival_rate=st.sampled_from([None, 0.0, 1e12]),
    carbon_g_per_kwh=st.sampled_from([None, 0.0, 1e12]),
    slot_watts=st.sampled_from([0.0, 1e12]),
    windows=st.sampled_from(
        [(), (AdvertisedWindow(0.0, 1e12, 10**8, 0),), (AdvertisedWindow(1e12 - 1, 1e12, 1, 9),)]
    ),
    next_price=st.sampled_from([None, PriceChange(2**63 - 1, 0.0), PriceChange(0, 1e12)]),
    rtt_s=st.sampled_from([None, 0.0, 3600.0]),
    link_bytes_s=st.sampled_from([None, 1.0, 1e12]),
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys("abc", extremes)),
    st.sampled_from([CHEAPEST, FASTEST, GREENEST, Objective(1, 1, 1)]),
    st.sampled_from([1, 10**12]),
    st.sampled_from([None, 0.0, 1e9]),
    st.sampled_from([0, 2**62]),
    st.sampled_from([None, NOW_S + 1, 1e12]),
    st.sampled_from([None, 0, 2**63 - 1]),
)
def test_whatever_is_advertised_is_judged(
    offered, objective, tasks, task_s, size, deadline_s, budget_nanos
) -> None:
    ask = make_ask(
        objective,
        tasks,
        task_s,
        task_bytes=size,
        function_bytes=size,
        deadline_s=deadline_s,
        budget_nanos=budget_nanos,
    )
    market = make_market({name: [] for name in "abc"})
    for name, pool in offered.items():
        advert = SiteAdvert.from_plain(make_advert(name, pool, version=2).to_plain())
        assert market.learn(advert, NOW_S)
    decision = decide(ask, market, now_s=NOW_S + 50)
    assert all(isfinite(one.utility) for one in decision.ranking or ())
    assert json.dumps(decision.to_plain(), allow_nan=False)
    if decision.plan is not None:
        assert sum(decision.plan.tasks) + decision.plan.short == tasks


@given(asks, sites, some_preferences, st.integers(0, 99))
def test_every_refusal_can_be_read(ask, offered, preferences, seed) -> None:
    for _, refusal in decide(ask, make_market(offered), preferences, seed).refused:
        assert isinstance(refusal, Refusal)
        assert "{" not in refusal.text


def test_a_budget_needs_a_currency_and_an_ask_a_task() -> None:
    with pytest.raises(ValueError, match="currency"):
        make_ask(terms=make_terms(), budget_nanos=1)
    with pytest.raises(ValueError, match="at least one task"):
        make_ask(tasks=0)
    with pytest.raises(ValueError, match="needs measured durations"):
        make_ask(task_s=None, task_s_at={"a": 1.0})


def test_an_advert_grows_old_between_decisions() -> None:
    market = make_market(a=make_pool())
    market.learn(make_advert("b", make_pool(price_nanos=1), valid_s=5.0), NOW_S)
    assert shares(decide(make_ask(), market)) == {"b": 100}
    later = decide(make_ask(), market, now_s=NOW_S + 6)
    assert shares(later) == {"a": 100}
    assert later.verdict(("b", "main")).reason == Reason.ADVERT_STALE


# --- windows that open later ---------------------------------------------------------------------


def opening(in_s, **changes):
    """A pool that has no slots until then, and 100 for an hour after that."""
    price_nanos = changes.pop("price_nanos", CENT)
    opens = AdvertisedWindow(NOW_S + in_s, NOW_S + in_s + 3600.0, 100, price_nanos)
    return make_pool(slots_total=0, windows=(opens,), price_nanos=price_nanos, **changes)


@pytest.mark.parametrize(
    ("objective", "when_closed", "goes", "asked"),
    [
        # A thousand seconds to save three quarters: who counts time does not wait, unless told to.
        (CHEAPEST, None, {"a"}, ["a", "b"]),
        (CHEAPEST, WhenClosed.WAIT, {"a"}, []),
        (CHEAPEST, WhenClosed.ELSEWHERE, {"b"}, ["b"]),
        (Objective(money=1, time=1), None, {"b"}, ["b", "a"]),
        (Objective(money=1, time=1), WhenClosed.WAIT, {"a"}, []),
        (Objective(money=1, time=1), WhenClosed.ELSEWHERE, {"b"}, ["b"]),
    ],
)
def test_a_window_that_opens_later_is_waited_for_by_the_jobs_wish(
    objective, when_closed, goes, asked
) -> None:
    market = make_market(a=opening(1000.0), b=make_pool())
    decision = decide(make_ask(objective, when_closed=when_closed), market)
    assert set(shares(decision)) == goes
    assert [site for site, _ in decision.quotes_from] == asked
    assert decision.plan.short == 0


def test_who_goes_elsewhere_waits_where_nothing_else_is_open() -> None:
    decision = decide(make_ask(when_closed=WhenClosed.ELSEWHERE), make_market(a=opening(60.0)))
    assert decision.why is DecisionReason.NOBODY
    assert not decision.is_hopeless
    refusal = decision.verdict(("a", "main"))
    assert refusal.reason is Reason.WINDOW_CLOSED
    assert refusal.text == 'opens in 1 min, and the job does not wait (when_closed = "elsewhere")'


def test_who_waits_says_for_whom_and_until_when() -> None:
    market = make_market(a=opening(1000.0), b=make_pool())
    decision = decide(make_ask(when_closed=WhenClosed.WAIT), market)
    refusal = decision.verdict(("b", "main"))
    assert refusal.reason is Reason.WAITS_FOR_WINDOW
    assert refusal.text == 'could run it, but the job waits for a/main (when_closed = "wait")'
    plain = decision.to_plain()
    assert plain["when_closed"] == "wait"
    assert [each["opens_s"] for each in plain["shares"]] == [NOW_S + 1000.0]


def test_who_waits_begins_at_once_where_the_best_is_open() -> None:
    market = make_market(a=opening(1000.0, price_nanos=9 * CENT), b=make_pool())
    decision = decide(make_ask(when_closed=WhenClosed.WAIT), market)
    assert shares(decision) == {"b": 100}
    assert decision.verdict(("a", "main")).key == ("a", "main")  # no refusal
    assert [each["opens_s"] for each in decision.to_plain()["shares"]] == [None]


def test_nobody_waits_beyond_a_deadline() -> None:
    market = make_market(a=opening(1000.0), b=make_pool())
    ask = make_ask(when_closed=WhenClosed.WAIT, deadline_s=NOW_S + 900.0)
    assert shares(decide(ask, market)) == {"b": 100}


def test_a_site_that_is_spared_now_may_be_waited_for() -> None:
    market = make_market(a=opening(1000.0), b=make_pool())
    site_backoff = {"a": BackoffEnd(NOW_S + 5)}
    asks = (make_ask(when_closed=each) for each in (WhenClosed.WAIT, None))
    assert [shares(decide(ask, market, site_backoff=site_backoff)) for ask in asks] == [
        {"a": 100},
        {"b": 100},
    ]


def test_a_pool_is_asked_when_it_has_opened_by_its_own_clock_as_well() -> None:
    market = make_market(a=opening(10.0), b=make_pool())
    ask = make_ask(when_closed=WhenClosed.WAIT)
    for since_s, asked in ((-1.0, []), (1.0, []), (3.0, ["a", "b"])):
        now_s = NOW_S + 10.0 + since_s
        site_backoff = {"a": BackoffEnd(now_s + 0.5)} if not asked else {}
        decision = decide(ask, market, now_s=now_s, site_backoff=site_backoff)
        assert shares(decision) == {"a": 100}
        assert [site for site, _ in decision.quotes_from] == asked


def test_what_may_begin_at_home_does_not_wait_for_others() -> None:
    market = make_market(home=make_pool(), a=opening(1000.0))
    preferences = make_preferences(prefer_own_s=60.0)
    decision = decide(make_ask(when_closed=WhenClosed.WAIT), market, preferences)
    assert shares(decision) == {"home": 100}


@pytest.mark.parametrize("certain", [{"minimum_nanos": 500}, {"step_ns": 2 * 10**9}])
def test_a_task_of_unknown_length_costs_its_minimum_or_a_step(certain):
    """A step of two seconds costs 556 nanos at a slot-hour of 10 ** 6."""
    market = make_market(a=make_pool(price_nanos=10**6, **certain))
    poor, rich = (decide(make_ask(task_s=None, budget_nanos=nanos), market) for nanos in (499, 556))
    assert poor.plan is None
    [(_, refusal)] = poor.refused
    assert refusal.reason is Reason.COST_LIMIT
    assert shares(rich) == {"a": 100}
