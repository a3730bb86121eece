"""When, for how much, at what carbon: by hand, and the refusals that depend on time and load."""

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
)

from federation.messages.adverts import AdvertisedWindow, PriceChange
from federation.reasons import NEVER, Reason
from policies.placement.asks import CHEAPEST, FASTEST
from policies.placement.estimates import Estimate, affords, estimate, fits, tasks_by
from policies.placement.market import NetworkLink
from policies.placement.placement import Refusal

HOUR = 3600.0


def found(ask, *, link=None, now_s=NOW_S, preferences=None, **pool):
    market = make_market(a=make_pool(**pool), **({"link": link} if link else {}))
    (candidate,) = market.candidates
    return estimate(ask, candidate, now_s, preferences or make_preferences())


def test_an_idle_pool_does_it_in_whole_rounds() -> None:
    one = found(make_ask(tasks=250, task_s=10.0))
    assert (one.wait_s, one.begin_at_s - NOW_S, one.finish_at_s - NOW_S) == (0.0, 0.0, 30.0)
    # 2,500 slot-seconds at 4 cents an hour
    assert one.cost_nanos == round(4 * CENT * 2500 / 3600)


@pytest.mark.parametrize(
    ("tasks", "pool", "wait_s"),
    [
        (100, {"slots_free": 100, "load_slot_s": 900.0}, 0.0),  # there is a slot for each
        (100, {"slots_free": 99, "load_slot_s": 900.0}, 9.0),
        (1, {"slots_free": 0, "load_slot_s": 900.0}, 9.0),  # queue in slot-seconds / slots
        (1, {"slots_free": 0, "load_slot_s": 900.0, "work_rate": 50.0}, 18.0),  # half of them work
    ],
)
def test_the_wait_is_the_work_in_front_over_the_slots(tasks, pool, wait_s) -> None:
    assert found(make_ask(tasks=tasks), **pool).wait_s == pytest.approx(wait_s)


def test_a_draining_pool_gets_nothing_also_in_its_later_windows():
    open_later = AdvertisedWindow(NOW_S + 100, NOW_S + 200, 5, 1)
    for windows in ((), (open_later,)):
        refusal = found(make_ask(tasks=1), draining=True, windows=windows)
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.reason in NEVER) == (Reason.DRAINING, False)
        assert refusal.text == "is draining and takes nothing new"


def test_bytes_take_their_time() -> None:
    link = NetworkLink(0.1, 1000.0)
    ask = make_ask(tasks=100, task_s=10.0, function_bytes=500, task_bytes=300)
    one = found(ask, link=link)
    assert one.begin_at_s - NOW_S == pytest.approx(0.6)
    # 30 s for the arguments, and the last task runs after that.
    assert one.finish_at_s - NOW_S == pytest.approx(0.6 + 30 + 10)


def test_the_duration_measured_at_a_site_counts_for_more() -> None:
    ask = make_ask(tasks=100, task_s=10.0, task_s_at={"a": 5.0})
    assert found(ask).finish_at_s - NOW_S == 5.0


def test_a_price_that_changes_is_averaged_over_the_run() -> None:
    change = PriceChange(8 * CENT, NOW_S + 30)
    ask = make_ask(tasks=400, task_s=10.0)  # ends after 40 s, a quarter of it at the new price
    assert found(ask, next_price=change).price_nanos == 5 * CENT
    assert found(make_ask(tasks=300), next_price=change).price_nanos == 4 * CENT
    past = PriceChange(8 * CENT, NOW_S - 30)
    assert found(ask, next_price=past).price_nanos == 8 * CENT


def test_carbon_is_watts_times_intensity() -> None:
    one = found(make_ask(tasks=100, task_s=36.0), slot_watts=10.0, carbon_g_per_kwh=500.0)
    assert one.carbon_g == pytest.approx(5.0)  # an hour of 10 W at 500 g/kWh


NIGHT = AdvertisedWindow(NOW_S + HOUR, NOW_S + 2 * HOUR, 200, CENT)
DAY = AdvertisedWindow(NOW_S - HOUR, NOW_S + 100, 50, 6 * CENT)


@pytest.mark.parametrize(
    ("objective", "windows", "begin_at_s", "price_nanos"),
    [
        (FASTEST, (DAY, NIGHT), 0.0, 6 * CENT),
        (CHEAPEST, (DAY, NIGHT), HOUR, CENT),
        (FASTEST, (NIGHT,), HOUR, CENT),
    ],
)
def test_of_several_windows_the_objective_picks(
    objective, windows, begin_at_s, price_nanos
) -> None:
    one = found(make_ask(objective), windows=windows)
    assert (one.begin_at_s - NOW_S, one.price_nanos) == (begin_at_s, price_nanos)


@pytest.mark.parametrize(
    ("ask", "pool", "reason", "text"),
    [
        ({}, {"slots_total": 0}, Reason.NO_SLOTS, "no free slot"),
        ({"task_s": 101.0}, {"windows": (DAY,)}, Reason.WINDOW_CLOSED, "closes in 1 min 40 s"),
        ({}, {"windows": (AdvertisedWindow(0, 1, 1, 1),)}, Reason.WINDOW_CLOSED, "no open window"),
        ({}, {"windows": (AdvertisedWindow(0, 9e9, 0, 1),)}, Reason.NO_SLOTS, "no free slot"),
        (
            {"deadline_s": NOW_S + 9.5},
            {},
            Reason.DEADLINE,
            "first task 0.5 s after the deadline",
        ),
        ({"deadline_s": NOW_S - 1}, {}, Reason.DEADLINE, "after the deadline"),
        (
            {"deadline_s": NOW_S + HOUR},
            {"windows": (NIGHT,)},
            Reason.DEADLINE,
            "after the deadline",
        ),
        (
            {"budget_nanos": 111_110},
            {},
            Reason.COST_LIMIT,
            "0.000111111 USD a task, and 0.00011111 USD is left",
        ),
        ({"budget_nanos": 0}, {}, Reason.COST_LIMIT, "0 USD is left"),
        ({}, {"currency": "EUR"}, Reason.CURRENCY_DIFFERS, "no exchange rate to USD"),
        (
            {"terms": make_terms(tags={"gpu": 2})},
            {"tags": {"gpu": 4}, "free_tags": {"gpu": 1}},
            Reason.TAG_IN_USE,
            "gpu=1 free on one worker now, 2 needed",
        ),
    ],
)
def test_not_now_has_a_reason_and_a_figure(ask, pool, reason, text) -> None:
    refusal = found(make_ask(**ask), **pool)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert text in refusal.text
    assert reason not in NEVER or reason == Reason.CURRENCY_DIFFERS


@pytest.mark.parametrize(
    ("ask", "pool"),
    [
        ({"deadline_s": NOW_S + 10}, {}),
        ({"budget_nanos": 111_112}, {}),
        ({"budget_nanos": 0}, {"price_nanos": 0}),
        ({"task_s": 100.0}, {"windows": (DAY,)}),
        ({"terms": make_terms(tags={"gpu": 1})}, {"tags": {"gpu": 4}, "free_tags": {"gpu": 1}}),
        ({"terms": make_terms(tags={"gpu": 1})}, {"tags": {"gpu": 4}, "free_tags": {"fpga": 0}}),
        # A guess refuses nobody: the first tasks will tell.
        ({"task_s": None, "budget_nanos": 1, "deadline_s": NOW_S + 0.1}, {}),
    ],
)
def test_what_just_keeps_its_limits_is_taken(ask, pool) -> None:
    one = found(make_ask(**ask), **pool)
    assert isinstance(one, Estimate)
    assert fits(make_ask(**ask), one) >= 1


@pytest.mark.parametrize(
    ("price_class", "closes_in_s", "count"),
    [
        ("preemptible", 5.0, 100),  # each slot may begin one
        ("preemptible", 25.0, 200),
        ("standard", 5.0, 0),
        ("standard", 25.0, 200),
    ],
)
def test_before_a_window_closes_what_may_be_stopped_begins_once_on_each_slot(
    price_class, closes_in_s, count
) -> None:
    ask = make_ask(tasks=250, task_s=10.0, price_class=price_class)
    one = found(ask)
    assert fits(ask, one._replace(closes_at_s=one.begin_at_s + closes_in_s)) == count


def test_a_price_that_is_going_to_be_lower_may_pay_for_a_task() -> None:
    change = PriceChange(CENT, NOW_S + HOUR)
    ask = make_ask(task_s=HOUR, budget_nanos=2 * CENT)
    for changes, affordable in (({"next_price": change}, True), ({}, False)):
        (candidate,) = make_market(a=make_pool(**changes)).candidates
        assert affords(ask, candidate) is affordable


LATER = AdvertisedWindow(NOW_S + HOUR, NOW_S + 9 * HOUR, 100, CENT)
SHORT = AdvertisedWindow(
    NOW_S - HOUR, NOW_S + HOUR, 1, 6 * CENT
)  # a slot for an hour: 360 tasks of 10 s


@pytest.mark.parametrize(
    ("limits", "objective", "price_nanos"),
    [
        ({}, FASTEST, CENT),
        # Of two that serve within both limits the one counts that can do more of it.
        ({"deadline_s": NOW_S + HOUR + 20, "budget_nanos": 10**12}, CHEAPEST, 6 * CENT),
        ({"deadline_s": NOW_S + HOUR + 20}, CHEAPEST, CENT),
        ({"budget_nanos": 10**12}, CHEAPEST, CENT),
    ],
)
def test_with_both_limits_the_window_counts_that_can_do_more(limits, objective, price_nanos):
    ask = make_ask(objective, tasks=1000, task_s=10.0, **limits)
    one = found(ask, windows=(SHORT, LATER))
    assert one.price_nanos == price_nanos


def test_an_advert_is_believed_as_long_as_it_says() -> None:
    market = make_market()
    market.learn(make_advert("a", valid_s=60.0), NOW_S)
    (candidate,) = market.candidates
    ask, preferences = make_ask(), make_preferences()
    assert isinstance(estimate(ask, candidate, NOW_S + 60, preferences), Estimate)
    refusal = estimate(ask, candidate, NOW_S + 61, preferences)
    assert refusal.reason == Reason.ADVERT_STALE
    assert "1 min 1 s ago, and its advert was valid for 1 min" in refusal.text


def test_another_currency_is_compared_by_our_rate_and_charged_as_it_is() -> None:
    one = found(make_ask(), currency="EUR", preferences=make_preferences(rates={"EUR": 1.1}))
    assert one.cost_nanos == found(make_ask()).cost_nanos


@given(
    tasks=st.integers(1, 10**6),
    task_s=st.floats(0.001, 1000),
    slots=st.integers(1, 10**4),
    deadline_s=st.floats(1, 10**5),
    budget_nanos=st.integers(0, 10**13),
    price_nanos=st.integers(0, 10**9),
)
def test_what_fits_keeps_the_limits_and_one_more_would_not(
    tasks, task_s, slots, deadline_s, budget_nanos, price_nanos
) -> None:
    ask = make_ask(
        tasks=tasks, task_s=task_s, deadline_s=NOW_S + deadline_s, budget_nanos=budget_nanos
    )
    one = found(ask, slots_total=slots, price_nanos=price_nanos)
    if isinstance(one, Refusal):
        return
    count = fits(ask, one)
    assert 1 <= count <= tasks

    def keeps(n):
        part = found(make_ask(tasks=n, task_s=task_s), slots_total=slots, price_nanos=price_nanos)
        in_time = part.finish_at_s <= NOW_S + deadline_s + 1e-6
        return in_time and price_nanos * n * round(task_s * 1e9) <= budget_nanos * 3600 * 10**9

    assert keeps(count)
    assert count == tasks or not keeps(count + 1) or deadline_s % task_s < 1e-5


@pytest.mark.parametrize(
    ("seconds", "slots", "task_s", "tasks"),
    [(10, 4, 10, 4), (9.99, 4, 10, 0), (29, 4, 10, 8), (-1, 4, 10, 0), (0.3, 1, 0.1, 3)],
)
def test_tasks_by_a_time(seconds, slots, task_s, tasks) -> None:
    assert tasks_by(seconds, slots, task_s) == tasks
