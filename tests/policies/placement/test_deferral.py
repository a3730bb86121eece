"""Work that waits for better hours: tables by hand, and a small world in which time passes."""

from dataclasses import dataclass, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pure.market import (
    CENT,
    INSTANT,
    NOW_S,
    make_ask,
    make_market,
    make_pool,
    make_preferences,
    seeded,
)

from federation.messages.adverts import AdvertisedWindow, Outlook, PriceChange, SiteAdvert
from federation.reasons import Reason
from policies.placement.asks import (
    CHEAPEST,
    FASTEST,
    GREENEST,
    Demand,
    Objective,
    Preferences,
    WhenClosed,
)
from policies.placement.brokering import place
from policies.placement.deferral import Berth, SlotRun, _settled
from policies.placement.market import Market
from policies.placement.outlook import Curve, flat

HOUR = 3600.0
EXACT = make_preferences(band=0.0, defer_gain=0.1, defer_margin=0.0, defer_margin_s=0.0)


def electric(now, *ahead, step_s=HOUR, **changes):
    """A pool of 1 kW slots: a slot-hour emits as much as a kilowatt-hour."""
    outlook = Outlook(NOW_S + step_s, step_s, tuple(10 * each for each in ahead)) if ahead else None
    values = {"slots_total": 10, "slot_watts": 1_000.0, "carbon_g_per_kwh": float(now)}
    return make_pool(**{**values, "carbon_ahead": outlook, **changes})


def waiting(tasks=10, task_s=HOUR, hours=12, objective=GREENEST, **changes):
    return make_ask(
        objective, tasks, task_s, deferrable=True, deadline_s=NOW_S + hours * HOUR, **changes
    )


def decide(ask, preferences=EXACT, **pools):
    return place(ask, make_market(**pools), preferences, NOW_S, seeded())


def begun(decision):
    return {lane.key[0]: n for lane, n in decision.plan.shares}


def schedule(decision):
    """Site → [(hours from now, tasks)]."""
    found = {}
    for run in decision.deferral.runs:
        hours = round((run.begin_at_s - NOW_S) / HOUR, 3)
        found.setdefault(run.berth.key[0], []).append((hours, run.tasks))
    return found


# --- tables --------------------------------------------------------------------------------------

CLEAN_LATER = (400, 300, 100, 300)  # in the second hour from now it is clean


@pytest.mark.parametrize(
    ("ask", "ahead", "runs"),
    [
        # All of it fits into the greenest hour …
        ({"tasks": 10}, CLEAN_LATER[1:], [(2, 10)]),
        # … unless it is over by the deadline, or can't be done by then.
        ({"tasks": 10, "hours": 2}, CLEAN_LATER[1:], [(1, 10)]),
        ({"tasks": 20}, CLEAN_LATER[1:], [(1, 20)]),  # of the hours beside it the earlier
        # In parts: short tasks fill the clean hour and the next best.
        ({"tasks": 240, "task_s": 300.0, "hours": 4}, CLEAN_LATER[1:], [(1, 240)]),
        ({"tasks": 180, "task_s": 300.0, "hours": 3}, (300, 100), [(1, 60), (2, 120)]),
        # A long task is put where its whole run is greenest.
        ({"tasks": 10, "task_s": 2 * HOUR}, (300, 100, 200, 400), [(2, 10)]),
        ({"tasks": 10, "task_s": 2 * HOUR}, (200, 100, 300, 400), [(1, 10)]),
        # Now and later: what the clean hours don't hold begins at once, for now is better than
        # the dirty hours between.
        ({"tasks": 20, "hours": 3}, (900, 100), [(0, 10), (2, 10)]),
    ],
)
def test_the_greenest_start_in_time_is_waited_for(ask, ahead, runs):
    found = decide(waiting(**ask), a=electric(400, *ahead))
    assert schedule(found)["a"] == runs
    assert begun(found).get("a", 0) == sum(n for hour, n in runs if hour == 0)
    assert found.plan.short == found.deferral.waits == sum(n for hour, n in runs if hour > 0)
    assert found.plan.reason is Reason.BETTER_LATER
    assert found.deferral.until_s == NOW_S + HOUR * min(hour for hour, _ in runs if hour)
    assert found.deferral.carbon_g <= 0.9 * found.deferral.at_once_g


def test_runs_that_follow_each_other_may_touch_by_a_rounding():
    # Floats for which one that is to end at `second_s` ends a hair later, whatever is done.
    second_s, task_s = float.fromhex("0x1.955d6e4c09295p+30"), float.fromhex("0x1.1ccfcccp+3")
    first_s = second_s - task_s
    assert first_s + task_s > second_s
    worth = Curve((second_s - 1.0,), (2.0, 1.0))
    berth = Berth(
        *(("paris", "cpu"), False, 1, task_s, task_s, second_s - 100.0, second_s + task_s),
        *(0.0, True, worth, flat(0.0), flat(0.0), ()),
    )
    found = list(_settled([SlotRun(berth, first_s, 1), SlotRun(berth, second_s, 1)]))
    assert [run.begin_at_s for run in found] == [first_s, first_s + task_s]


def test_what_it_saves_is_said_in_grams_and_money():
    pool = electric(400, 300, 100, price_nanos=5 * CENT, next_price=PriceChange(CENT, NOW_S + HOUR))
    deferral = decide(waiting(tasks=5), a=pool).deferral
    assert deferral.at_once_g == pytest.approx(5 * 400)
    assert deferral.carbon_g == pytest.approx(5 * 100)
    assert deferral.at_once_money == pytest.approx(5 * 5 * CENT)
    assert deferral.money == pytest.approx(5 * CENT)
    plain = deferral.to_plain("USD", 20)
    assert plain["waits"] == 5
    assert plain["runs"][0]["begin_s"] == NOW_S + 2 * HOUR
    assert plain["runs"][0]["carbon_g"] == pytest.approx(500)
    assert (plain["cost"], plain["at_once_cost"]) == ("0.05 USD", "0.25 USD")


@pytest.mark.parametrize(
    ("ask", "pool", "preferences", "why"),
    [
        ({}, electric(400), {}, "has a forecast of other hours"),
        ({}, electric(100, 200, 300), {}, "would gain 0%"),
        ({}, electric(100, 91), {}, "would gain 9%, less than the minimum of 10%"),
        ({}, electric(100, 91), {"defer_gain": 0.05}, ""),
        ({"task_s": None}, electric(400, 100), {}, "the duration of its tasks is not known"),
        ({"task_s": 60.0, "hours": 1.5}, electric(400, 100), {}, ""),
        (
            {"tasks": 200, "hours": 10},
            electric(400, 100),
            {},
            "part of the job can't be placed now",
        ),
        (
            {"hours": 1.01},
            electric(400, 100),
            {"defer_margin_s": 60.0},
            "a forecast of other hours",
        ),
        ({"hours": 1.05}, electric(400, 100), {"defer_margin_s": 60.0}, "would gain 2%"),
        ({"hours": 2.02}, electric(400, 100), {"defer_margin_s": 60.0}, ""),
        ({"hours": 1.4}, electric(400, 100), {"defer_margin": 0.5}, "leaves no time"),
        ({"hours": 2.5}, electric(400, 100), {"defer_margin": 0.5}, ""),
        ({"objective": FASTEST}, electric(400, 100), {}, "weighs time"),
        ({"objective": Objective(0, 1, 1)}, electric(400, 100), {}, "weighs time"),
        ({"objective": CHEAPEST}, electric(400, 100), {}, "a forecast of other hours"),
        ({"objective": Objective(1, 0, 1)}, electric(400, 100), {}, ""),
        (
            {"budget_nanos": 10 * 4 * CENT},
            electric(400, 100, next_price=PriceChange(5 * CENT, NOW_S + HOUR)),
            {},
            "would exceed its cost limit",
        ),
        ({"budget_nanos": 10 * 4 * CENT}, electric(400, 100), {}, ""),
        # What is not known of carbon is no reason to wait.
        ({}, electric(400, 100, slot_watts=None), {}, "a forecast of other hours"),
        ({}, electric(0, 0), {}, "would gain 0%"),
    ],
)
def test_what_does_not_wait_is_told_why(ask, pool, preferences, why):
    found = decide(waiting(**ask), replace(EXACT, **preferences), a=pool)
    assert why in found.deferral.why
    assert bool(found.deferral.waits) == (not why)
    assert bool(found.deferral.why) == bool(why)


def test_cheaper_hours_are_waited_for_by_what_weighs_money():
    pool = make_pool(slots_total=10, next_price=PriceChange(CENT, NOW_S + HOUR))
    found = decide(waiting(objective=CHEAPEST), a=pool)
    assert schedule(found) == {"a": [(1, 10)]}
    assert found.deferral.money == pytest.approx(10 * CENT)


def test_a_window_that_opens_when_it_is_green_is_waited_for():
    night = AdvertisedWindow(NOW_S + 5 * HOUR, NOW_S + 9 * HOUR, 10, CENT)
    day = AdvertisedWindow(NOW_S - HOUR, NOW_S + 2 * HOUR, 10, CENT)
    pool = electric(400, 400, 400, 400, 400, 100, 100, windows=(day, night))
    assert schedule(decide(waiting(), a=pool)) == {"a": [(5, 10)]}
    # Who would rather go elsewhere than wait for a window does not.
    elsewhere = waiting(when_closed=WhenClosed.ELSEWHERE)
    assert not decide(elsewhere, a=pool).deferral.waits
    # Between the two nothing can run, and what does not end in time does not begin.
    green_between = electric(400, 400, 400, 100, 400, 390, 390, windows=(day, night))
    assert not decide(waiting(), a=green_between).deferral.waits


def test_each_pool_is_used_when_it_is_green():
    """Part of it begins at once where it is clean now, the rest where it will be."""
    found = decide(
        waiting(tasks=25), a=electric(100, 900, 900), b=electric(900, 900, 100, slots_total=15)
    )
    assert schedule(found) == {"a": [(0, 10)], "b": [(2, 15)]}
    assert begun(found) == {"a": 10}
    assert found.quotes_from == [("a", "main")]


def test_of_equally_green_starts_the_cheaper_counts_then_the_sooner():
    """Thirty tasks, of which ten have a clean hour: the others could go anywhere at any time."""
    cheap, dear = (electric(400, 400, 400, 100, 400, price_nanos=each) for each in (CENT, 9 * CENT))
    dear = replace(dear, carbon_ahead=None)
    decision = decide(waiting(30, hours=6), a=dear, b=cheap)
    assert schedule(decision) == {"b": [(0.0, 20), (3.0, 10)]}


def test_a_pool_that_is_dirty_now_counts_when_it_promises_most():
    """It is not among those that are liked most now."""
    many = {f"s{n}": electric(300) for n in range(12)}
    preferences = replace(EXACT, sites_max=4)
    found = decide(waiting(), preferences, **many, z=electric(900, 50))
    assert schedule(found) == {"z": [(1, 10)]}
    assert begun(found) == {}
    assert found.quotes_from == []


def test_what_is_to_stay_at_home_waits_for_better_hours_there():
    home, abroad = electric(400, 100), electric(400, 10)
    at_home = replace(EXACT, prefer_own_s=inf)
    assert schedule(decide(waiting(), at_home, home=home, a=abroad)) == {"home": [(1, 10)]}
    assert schedule(decide(waiting(), EXACT, home=home, a=abroad)) == {"a": [(1, 10)]}


def test_who_does_not_know_his_future_counts_with_the_intensity_of_now():
    found = decide(waiting(tasks=10), a=electric(400, 200), b=electric(150))
    assert begun(found) == {"b": 10}
    found = decide(waiting(tasks=10), a=electric(400, 100), b=electric(150))
    assert schedule(found) == {"a": [(1, 10)]}


def test_an_estimate_has_the_mean_of_its_run():
    ask = make_ask(GREENEST, tasks=20, task_s=HOUR)
    (one,) = decide(ask, a=electric(400, 200)).ranking
    assert one.estimate.carbon_g == pytest.approx(10 * 400 + 10 * 200)
    # By what is to come the clean one is the dirty one.
    turning, steady = electric(100, 900, 900), electric(300)
    assert decide(ask, a=turning, b=steady).ranking[0].key[0] == "b"
    short = make_ask(GREENEST, tasks=20, task_s=60.0)
    assert decide(short, a=turning, b=steady).ranking[0].key[0] == "a"


def test_what_may_wait_has_a_deadline():
    with pytest.raises(ValueError, match="needs a deadline"):
        make_ask(deferrable=True)


# --- a world in which time passes ----------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A pool whose electricity goes by a curve that all sites know."""

    slots: int
    step_s: float
    steps: tuple[int, ...]  # grams a kilowatt-hour, from the world's beginning on

    @property
    def curve(self):
        edges = [NOW_S + self.step_s * at for at in range(1, len(self.steps))]
        return Curve(edges, [float(each) for each in self.steps])

    def grams(self, tasks, task_s, begin_at_s=NOW_S):
        """The emissions of so many tasks from a time on, as many at a time as there are slots."""
        total = 0.0
        while tasks > 0:
            mean = self.curve.mean(begin_at_s, begin_at_s + task_s)
            total += min(tasks, self.slots) * mean * task_s / HOUR
            tasks, begin_at_s = tasks - self.slots, begin_at_s + task_s
        return total

    def advert(self, name, now_s, running):
        begin_at_s = NOW_S + (now_s - NOW_S) // self.step_s * self.step_s
        ahead = [self.curve.at(begin_at_s + self.step_s * at) for at in range(1, 49)]
        outlook = Outlook(
            begin_at_s + self.step_s, self.step_s, tuple(round(10 * g) for g in ahead)
        )
        load_s = sum(end - now_s for end in running)
        pool = make_pool(
            slots_total=self.slots,
            slots_free=self.slots - len(running),
            load_slot_s=load_s,
            slot_watts=1_000.0,
            carbon_g_per_kwh=self.curve.at(now_s),
            carbon_ahead=outlook,
        )
        return SiteAdvert(name, round(now_s * 1_000), now_s, 60.0, (pool,))


@dataclass
class Outcome:
    ended_s: float = NOW_S
    grams: float = 0.0
    promised_g: float = 0.0  # by the first plan that begins at once
    short: bool = False
    waited: bool = False


def live(places: dict[str, Place], ask: Demand, preferences: Preferences) -> Outcome:
    """Run an ask's tasks in these places, and plan again whenever something happens."""
    outcome, now_s, left = Outcome(), NOW_S, ask.tasks
    running: dict[str, list[float]] = {name: [] for name in places}
    while left or any(running.values()):
        for name in running:
            running[name] = [end for end in running[name] if end > now_s + 1e-6]
        moments = [end for ends in running.values() for end in ends]
        if left:
            market = Market("home")
            for name, each in places.items():
                market.learn(each.advert(name, now_s, running[name]), now_s)
            decision = place(replace(ask, tasks=left), market, preferences, now_s, seeded())
            if now_s == NOW_S:
                at_once = place(
                    replace(ask, deferrable=False), market, preferences, now_s, seeded()
                )
                outcome.short = at_once.plan is None or at_once.plan.short > 0
                outcome.promised_g = sum(
                    places[lane.key[0]].grams(n, ask.task_s)
                    for lane, n in (at_once.plan.shares if at_once.plan else ())
                )
            for lane, tasks in decision.plan.shares if decision.plan else ():
                name = lane.key[0]
                count = min(tasks, places[name].slots - len(running[name]), left)
                end_at_s = now_s + ask.task_s
                running[name] += [end_at_s] * count
                left -= count
                outcome.grams += (
                    count * places[name].curve.mean(now_s, end_at_s) * ask.task_s / HOUR
                )
                outcome.ended_s = max(outcome.ended_s, end_at_s)
                moments += [end_at_s] * bool(count)
            if decision.puts_off:
                outcome.waited = True
                moments.append(max(decision.deferral.look_at_s, now_s + 1.0))
            if not moments:
                break  # its deadline leaves no room for any task
        now_s = min(moments, default=now_s)
    outcome.short |= left > 0
    return outcome


worlds = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(
        Place,
        st.integers(1, 5),
        st.sampled_from([1_800.0, HOUR]),
        st.lists(st.integers(10, 900), min_size=1, max_size=20).map(tuple),
    ),
    min_size=1,
)
tasks_of = st.integers(1, 40)
lengths = st.sampled_from([300.0, 1_000.0, 2_000.0, HOUR, 5_000.0, 9_000.0])
deadlines = st.floats(0.5, 16).map(lambda hours: round(hours, 2))
some_preferences = st.builds(
    make_preferences,
    band=st.sampled_from([0.0, 0.1]),
    defer_gain=st.sampled_from([0.02, 0.1, 0.3]),
    defer_margin=st.sampled_from([0.0, 0.5]),
    defer_margin_s=st.sampled_from([5.0, 60.0]),
)


@given(worlds, tasks_of, lengths, deadlines, some_preferences)
def test_a_plan_is_in_time_and_emits_what_it_says(places, tasks, task_s, hours, preferences):
    market = Market("home", INSTANT)
    for name, each in places.items():
        market.learn(each.advert(name, NOW_S, []), NOW_S)
    ask = waiting(tasks, task_s, hours)
    at_once = place(replace(ask, deferrable=False), market, preferences, NOW_S, seeded())
    found = place(ask, market, preferences, NOW_S, seeded())
    runs = found.deferral.runs if found.deferral else ()
    if not runs:
        assert found.plan == at_once.plan
        return
    assert sum(run.tasks for run in runs) == tasks
    assert sum(n for _, n in found.plan.shares) + found.plan.short == tasks
    counted_s = task_s * (1 + preferences.defer_margin)
    free_s = dict.fromkeys(places, NOW_S)
    grams = 0.0
    for run in runs:  # by when they begin
        name = run.berth.key[0]
        assert run.begin_at_s >= free_s[name] - 1e-3
        free_s[name] = run.begin_at_s + -(-run.tasks // places[name].slots) * counted_s
        grams += places[name].grams(run.tasks, task_s, run.begin_at_s)
    assert max(free_s.values()) <= ask.deadline_s - preferences.defer_margin_s / 2 + 1e-3
    assert found.deferral.carbon_g == pytest.approx(grams)
    before = sum(places[lane.key[0]].grams(n, task_s) for lane, n in at_once.plan.shares)
    assert found.deferral.at_once_g == pytest.approx(before)
    assert grams <= before * ((1 - preferences.defer_gain) if found.deferral.waits else 1) * (
        1 + 1e-6
    )


@settings(max_examples=150)
@given(worlds, tasks_of, lengths, deadlines, some_preferences)
def test_no_deadline_is_missed_by_waiting(places, tasks, task_s, hours, preferences):
    ask = waiting(tasks, task_s, hours)
    at_once = live(places, replace(ask, deferrable=False), preferences)
    later = live(places, ask, preferences)
    if not at_once.short and at_once.ended_s <= ask.deadline_s:
        assert not later.short
        assert later.ended_s <= ask.deadline_s + 1e-3


@settings(max_examples=150)
@given(worlds, tasks_of, lengths, deadlines, some_preferences)
def test_waiting_is_never_dirtier_than_beginning_at_once(places, tasks, task_s, hours, preferences):
    """Than that promised, or came to: its plans change, too, and not for the better always.

    Except for the loss when a plan is made anew with long tasks under way: in one of some ten
    thousand worlds a few per cent.
    """
    ask, preferences = waiting(tasks, task_s, hours), replace(preferences, band=0.0)
    found = live(places, ask, preferences)
    if not found.short and found.waited:
        at_once = live(places, replace(ask, deferrable=False), preferences)
        assert found.grams <= max(at_once.promised_g, at_once.grams) * 1.1
