"""A broker whose pool has windows: the slots of each party, preemption, and its deadline."""

from dataclasses import replace

import pytest
from support.pure.broker import after_its_time
from support.pure.windows import NO_OTHERS, PRICE, RISK, WindowsWorld, assigned, orders, spec

from federation.messages import messages
from federation.reasons import Reason
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Remark, SendToClient, SendToWorker, Write
from gateway.scheduler.quotas.occupancy import PoolOccupancy
from policies.access.claims import EVERYTHING, NOTHING, Amount, Claim, Claims
from policies.access.windows import EVERYBODY, Window
from policies.calendar.hours import Hours
from policies.parties import OTHERS, OURS, read_party


def window(claims=NO_OTHERS, from_h=17, to_h=23, **settings):
    return Window("risk run", Hours(from_h * 3600, to_h * 3600), claims, **settings)


def test_a_pool_without_rules_bounds_nobody():
    world = WindowsWorld()
    world.learn(0.001)
    assert assigned(world.submit("j", 1_000, site="paris")) > 4


def test_who_may_have_nothing_waits_and_is_told_why():
    world = WindowsWorld(window(), at_s=18 * 3600.0)
    assert assigned(world.submit("theirs", 10, site="paris")) == 0
    assert assigned(world.submit("ours", 10)) == 4
    assert world.why("theirs") == (
        {Reason.WINDOW_CLOSED},
        ["gives others no slot in window 'risk run', until 1970-01-01 23:00:00 UTC"],
    )


def test_when_the_window_ends_what_waits_is_given_out():
    world = WindowsWorld(window(), at_s=18 * 3600.0)
    world.submit("theirs", 10, site="paris")
    assert assigned(world.pass_to(23 * 3600.0)) == 4


def test_a_bound_is_kept_over_all_workers_of_a_pool():
    world = WindowsWorld(base=Claims((Claim(OTHERS, borrows=Amount(3)),)), slots=(2, 2, 2))
    world.learn(0.001)
    world.submit("theirs", 1_000, site="paris")
    assert world.running("theirs") == 3
    reasons, texts = world.why("theirs")
    assert reasons == {Reason.OVER_CLAIM}
    assert texts[0] == "has no more slots for others: 3 of 3 are in use"
    world.do(events.WorkerGone(3, "lost", is_orderly=True))
    assert world.running("theirs") == 3


def test_slots_that_are_not_lent_are_kept_for_their_owner():
    claims = Claims((Claim(RISK, Amount(3), lends=Amount(1)),))
    world = WindowsWorld(base=claims)
    world.submit("other", 10)
    assert world.running("other") == 2
    world.submit("run", 10, name="risk")
    assert world.running("run") == 2


@pytest.mark.parametrize(("task_s", "begun"), [(30.0, 4), (59.0, 4), (61.0, 0)])
def test_nothing_begins_that_would_not_be_done_when_a_window_begins(task_s, begun):
    world = WindowsWorld(window(), at_s=17 * 3600.0 - 60)
    world.learn(task_s)
    assert assigned(world.submit("theirs", 10, site="paris")) == begun
    if not begun:
        assert world.why("theirs")[1] == [
            "starts no task of this job that may run into window 'risk run', which begins "
            "at 1970-01-01 17:00:00 UTC"
        ]


def test_what_may_spill_over_begins():
    world = WindowsWorld(window(spill_s=10.0), at_s=17 * 3600.0 - 60)
    world.learn(69.0)
    assert assigned(world.submit("theirs", 10, site="paris")) == 4


@pytest.mark.parametrize(("ahead_s", "begun"), [(601.0, 4), (599.0, 0)])
def test_what_nobody_knows_the_length_of_begins_up_to_the_drain_lead(ahead_s, begun):
    world = WindowsWorld(window(drain_lead_s=600.0), at_s=17 * 3600.0 - ahead_s)
    assert assigned(world.submit("theirs", 10, site="paris")) == begun


@pytest.mark.parametrize(
    ("price_class", "preempts", "begun"),
    [("preemptible", True, 2), ("preemptible", False, 0), ("guaranteed", True, 0)],
)
def test_what_is_paid_less_for_it_begins_where_it_will_be_stopped(price_class, preempts, begun):
    world = WindowsWorld(window(NO_OTHERS, 13, 23, preempts=preempts), slots=(1, 1))
    world.learn(7_200.0)
    world.submit("theirs", 5, site="paris", price_class=price_class)
    assert world.broker.jobs["theirs"].in_flight == begun


def test_when_a_window_begins_all_is_called_back_and_what_runs_is_stopped():
    world = WindowsWorld(window(grace_s=30.0))
    [order] = orders(world.submit("theirs", 4, site="paris"))
    effects = world.pass_to(17 * 3600.0)
    notices, recalls = orders(effects, messages.Notice), orders(effects, messages.Recall)
    assert [(each.assignment, each.first, each.stop, each.in_s) for each in notices] == [
        (order.assignment, order.first, order.first + len(order.arguments), 30.0)
        for order in [order]
    ]
    assert [(each.assignment, each.kill) for each in recalls] == [(order.assignment, False)]
    [remark] = [each.text for each in effects if isinstance(each, Remark)]
    assert remark == (
        "pool fast stops 4 tasks by 1970-01-01 17:00:30 UTC: others may have 0 slots in "
        "window 'risk run'"
    )
    # Nothing is asked for a second time.
    world.now_s += 5
    effects = world.do()
    assert not orders(effects, messages.Notice)
    assert not orders(effects, messages.Recall)


def test_what_was_told_ahead_is_not_told_twice_that_it_is_too_much():
    claims = Claims((Claim(OTHERS, borrows=Amount(2)),))
    world = WindowsWorld(window(claims, drain_lead_s=600.0))
    world.submit("theirs", 4, site="paris")
    told = orders(world.pass_to(17 * 3600.0 - 599.0), messages.Notice)
    assert sum(each.stop - each.first for each in told) == 2
    world.now_s += 5
    assert not orders(world.do(), messages.Notice)


def test_of_tasks_in_several_ranges_the_last_are_stopped_and_no_more():
    world = WindowsWorld(window(Claims((Claim(OTHERS, borrows=Amount(1)),))))
    [order] = orders(world.submit("theirs", 4, site="paris"))
    world.do(events.Reported(1, order.assignment, order.first + 2, [b""], []))
    notices = orders(world.pass_to(17 * 3600.0), messages.Notice)
    stopped = [task - order.first for each in notices for task in range(each.first, each.stop)]
    assert sorted(stopped) == [1, 3]


def test_who_makes_room_as_a_window_begins_makes_it_for_who_is_guaranteed_some_as_well():
    """Two of four are too many, and the two that are free then are all that is guaranteed."""
    claims = Claims((Claim(RISK, Amount(2)), Claim(OTHERS, borrows=Amount(2))))
    world = WindowsWorld(window(claims, grace_s=30.0))
    world.submit("theirs", 4, site="paris")
    world.submit("run", 2, name="risk")
    notices = orders(world.pass_to(17 * 3600.0), messages.Notice)
    assert sum(each.stop - each.first for each in notices) == 2


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("elsewhere", {"pool": "slow"}),
        ("unclaimed", {}),
        ("unfit", {"name": "risk", "tags": {"gpu": True}}),
    ],
)
def test_work_for_which_nobody_makes_room_is_not_in_the_way_of_others(name, about):
    world = WindowsWorld(base=Claims((Claim(RISK, Amount(2)),)), slots=(4,))
    world.turn(window(EVERYBODY, 0, 24), base=Claims((Claim(RISK, Amount(2)),)))
    world.submit("theirs", 4, site="paris")
    world.submit(name, 3, **about)
    world.now_s += 1
    claims = Claims((Claim(RISK, Amount(2)),))
    world.turn(window(claims, 0, 24))
    world.now_s += 1
    notices = orders(world.submit("run", 5, name="risk"), messages.Notice)
    assert sum(each.stop - each.first for each in notices) == 2


def test_what_runs_is_told_before_a_window_begins():
    world = WindowsWorld(window(drain_lead_s=600.0, grace_s=30.0))
    world.submit("theirs", 4, site="paris")
    assert not orders(world.pass_to(17 * 3600.0 - 601.0), messages.Notice)
    effects = world.pass_to(17 * 3600.0 - 599.0)
    assert [each.in_s for each in orders(effects, messages.Notice)] == [629.0]
    assert not orders(effects, messages.Recall)
    assert "17:00:30 UTC: window 'risk run' begins at" in world.broker.jobs["theirs"].notes[-1][1]


def test_what_was_told_ahead_stands_when_its_window_begins_and_is_called_back_then():
    world = WindowsWorld(window(drain_lead_s=20.0, grace_s=5.0, stops_per_minute=4))
    world.submit("theirs", 4, site="paris")
    ahead = orders(world.pass_to(17 * 3600.0 - 20.0), messages.Notice)
    effects = world.pass_to(17 * 3600.0)
    again = orders(effects, messages.Notice)
    assert [(each.assignment, each.first, each.stop) for each in again] == [
        (each.assignment, each.first, each.stop) for each in ahead
    ]
    assert [each.in_s for each in ahead + again] == [25.0, 5.0]
    assert len(orders(effects, messages.Recall)) == 1
    assert not [each for each in effects if isinstance(each, Remark)]  # it was said


@pytest.mark.parametrize("change", [{"grace_s": 60.0}, {"is_dry": True}, {"preempts": False}])
@pytest.mark.parametrize("ahead_s", [10.0, 0.0])
def test_what_was_told_ahead_by_other_rules_counts_no_more(change, ahead_s):
    world = WindowsWorld(window(drain_lead_s=20.0, grace_s=5.0))
    world.submit("theirs", 4, site="paris")
    assert orders(world.pass_to(17 * 3600.0 - 20.0), messages.Notice)
    world.now_s = 17 * 3600.0 - ahead_s
    effects = world.turn(window(**({"drain_lead_s": 20.0, "grace_s": 5.0} | change)))
    told = [each.in_s for each in orders(effects, messages.Notice)]
    assert told == ([None, 60.0 + ahead_s] if "grace_s" in change else [None])


def test_looking_at_the_calendar_again_gives_nobody_more_time():
    world = WindowsWorld(window(spill_s=3600.0, grace_s=30.0))
    world.submit("theirs", 4, site="paris")
    assert orders(world.pass_to(17 * 3600.0), messages.Notice)[-1].in_s == 3630.0
    assert orders(world.pass_to(17.75 * 3600.0), messages.Notice)[-1].in_s == 930.0


@pytest.mark.parametrize(("task_s", "begun"), [(59.0, 4), (61.0, 0)])
def test_nothing_begins_that_would_not_be_done_when_a_window_ends_that_gave_it_more(task_s, begun):
    world = WindowsWorld(window(EVERYBODY), base=NO_OTHERS, at_s=23 * 3600.0 - 60)
    world.learn(task_s)
    assert assigned(world.submit("theirs", 10, site="paris")) == begun
    if not begun:
        assert world.why("theirs")[1] == [
            "starts no task of this job that may run after 1970-01-01 23:00:00 UTC, when "
            "it may have fewer slots"
        ]


def test_what_runs_on_when_such_a_window_ends_is_not_stopped():
    world = WindowsWorld(window(EVERYBODY), base=NO_OTHERS, at_s=22 * 3600.0)
    world.submit("theirs", 4, site="paris")
    effects = world.pass_to(23 * 3600.0)
    assert not orders(effects, messages.Notice)
    assert len(orders(effects, messages.Recall)) == 1


def test_a_window_that_is_taken_away_takes_its_notices_with_it():
    world = WindowsWorld(window(drain_lead_s=600.0))
    world.submit("theirs", 4, site="paris")
    world.pass_to(17 * 3600.0 - 599.0)
    assert [each.in_s for each in orders(world.turn(), messages.Notice)] == [None]


def test_a_window_that_does_not_preempt_calls_back_only_what_has_not_begun():
    world = WindowsWorld(window(preempts=False))
    world.submit("theirs", 4, site="paris")
    effects = world.pass_to(17 * 3600.0)
    assert not orders(effects, messages.Notice)
    assert len(orders(effects, messages.Recall)) == 1


def test_a_task_that_was_stopped_runs_again_and_has_its_tries_left():
    world = WindowsWorld(window(Claims((Claim(RISK, EVERYTHING), Claim(OURS, borrows=NOTHING)))))
    [order] = orders(world.submit("j", 4, retries=0))
    world.pass_to(17 * 3600.0)
    effects = world.report(order, kind="preempted")
    assert not [each for each in effects if isinstance(each, SendToClient)]
    assert (world.broker.jobs["j"].waiting, world.broker.jobs["j"].failed) == (4, 0)
    again = orders(world.pass_to(23 * 3600.0))
    assert sum(len(each.arguments) for each in again) == 4
    assert "fast stopped 4 of its tasks, to make room" in world.broker.jobs["j"].notes[-1][1]


@pytest.mark.parametrize(("price_class", "cost_nanos"), [("guaranteed", 0), ("preemptible", 10**6)])
def test_what_had_to_make_room_is_paid_for_by_its_class(price_class, cost_nanos):
    world = WindowsWorld(window(Claims((Claim(OURS, borrows=NOTHING),))))
    [order] = orders(world.submit("j", 4, price_class=price_class))
    world.pass_to(17 * 3600.0)
    [used] = [
        each.record
        for each in world.report(order, kind="preempted")
        if isinstance(each, Write) and isinstance(each.record, records.UsageRecord)
    ]
    assert (used.state, used.tasks, used.wall_ns) == ("preempted", 4, 10**9)
    assert used.cost_nanos == cost_nanos


def test_what_was_stopped_says_nothing_of_how_long_a_task_takes():
    world = WindowsWorld(window())
    [order] = orders(world.submit("theirs", 1, site="paris"))
    world.pass_to(17 * 3600.0)
    world.report(order, kind="preempted", wall_s=0.001)
    assert world.broker.durations.of(b"pricing" * 8) is None


def test_a_buyer_is_told_what_was_stopped():
    world = WindowsWorld(window())
    [order] = orders(world.submit("theirs", 1, site="paris"))
    world.pass_to(17 * 3600.0)
    effects = world.report(order, kind="preempted")
    [results] = [each.message for each in effects if isinstance(each, SendToClient)]
    assert [kind for _, kind, *_ in results.failures] == ["preempted"]


def test_who_is_owed_slots_is_found_without_a_look_at_every_job(monkeypatch):
    world = WindowsWorld(base=Claims((Claim(RISK, Amount(2), lends=EVERYTHING),)))
    world.learn(60.0)
    world.submit("ours", 4)
    for number in range(500):
        job = f"other-{number}"
        world.do(
            events.JobOpened(world.clients, job, spec()),
            events.TasksArrived(world.clients, job, 0, [b"x"]),
        )
    looked = []
    claims_for = PoolOccupancy.claims_for
    monkeypatch.setattr(
        PoolOccupancy, "claims_for", lambda pool, job: looked.append(job) or claims_for(pool, job)
    )
    world.now_s += 1
    world.do(events.Ticked())
    assert 0 < len(looked) < 10


def test_guaranteed_slots_are_called_back_from_whoever_ran_for_the_shortest_time():
    claims = Claims((Claim(RISK, Amount(3)),))
    world = WindowsWorld(window(claims, 0, 24, grace_s=20.0), slots=(1, 1, 1, 1))
    first = orders(world.submit("old", 2))
    world.now_s += 100
    second = orders(world.submit("young", 2))
    world.now_s += 1
    effects = world.submit("run", 2, name="risk")
    stopped = {each.assignment for each in orders(effects, messages.Notice)}
    assert stopped == {each.assignment for each in second}
    assert {each.in_s for each in orders(effects, messages.Notice)} == {20.0}
    # A third task of the owner's takes one of the old ones', and no more than that.
    world.now_s += 1
    effects = world.submit("another", 5, name="risk")
    stopped = [each.assignment for each in orders(effects, messages.Notice)]
    assert len(stopped) == 1
    assert set(stopped) < {each.assignment for each in first}


def test_who_has_nothing_beyond_his_own_gives_nothing():
    claims = Claims((Claim(RISK, Amount(2)), Claim(read_party("project:fx"), Amount(2))))
    world = WindowsWorld(window(claims, 0, 24), slots=(1, 1, 1, 1))
    world.submit("fx", 2, name="fx")
    world.submit("rest", 2)
    world.now_s += 1
    effects = world.submit("run", 9, name="risk")
    rest = {each.id for each in world.broker.jobs["rest"].assignments.values()}
    assert {each.assignment for each in orders(effects, messages.Notice)} == rest


def test_no_more_are_stopped_in_a_minute_than_was_said():
    world = WindowsWorld(window(stops_per_minute=3), slots=(1,) * 5)
    world.submit("theirs", 5, site="paris")
    assert len(orders(world.pass_to(17 * 3600.0), messages.Notice)) == 3
    world.now_s += 30
    assert not orders(world.do(), messages.Notice)
    world.now_s += 31
    assert len(orders(world.do(), messages.Notice)) == 2


def test_a_dry_run_stops_nothing_and_says_once_what_it_would():
    world = WindowsWorld(window(is_dry=True))
    world.submit("theirs", 4, site="paris")
    effects = world.pass_to(17 * 3600.0)
    world.now_s += 1
    effects += world.do()
    assert not orders(effects, messages.Notice)
    assert not orders(effects, messages.Recall)
    assert [each.text for each in effects if isinstance(each, Remark)] == [
        "pool fast, dry run: would stop 4 tasks: others may have 0 slots in window 'risk run'"
    ]


def test_a_pool_that_shrinks_has_those_stopped_who_are_over_their_claim():
    world = WindowsWorld(
        window(Claims((Claim(OTHERS, borrows=Amount(part=5_000)),)), 0, 24), slots=(2, 2)
    )
    world.submit("theirs", 9, site="paris")
    assert world.running("theirs") == 2
    [busy] = [each.handle for each in world.broker.workers.values() if each.in_flight]
    world.now_s += 1
    effects = world.do(events.DrainAsked(3 - busy, on=True))
    assert sum(each.stop - each.first for each in orders(effects, messages.Notice)) == 1


def test_what_was_told_ahead_counts_once_against_what_may_be_stopped_in_a_minute():
    world = WindowsWorld(window(stops_per_minute=3, drain_lead_s=20.0, grace_s=5.0), slots=(1,) * 4)
    world.submit("theirs", 4, site="paris")
    told = orders(world.pass_to(17 * 3600.0 - 10), messages.Notice)
    assert [each.in_s for each in told] == [15.0] * 3
    said_again = orders(world.pass_to(17 * 3600.0), messages.Notice)
    assert {(each.assignment, each.in_s) for each in said_again} == {
        (each.assignment, 5.0) for each in told
    }


def test_what_was_told_ahead_and_is_not_too_much_any_more_is_let_off():
    claims = Claims((Claim(OTHERS, borrows=Amount(2)),))
    world = WindowsWorld(window(claims, drain_lead_s=60.0, grace_s=30.0), slots=(1,) * 4)
    given = orders(world.submit("theirs", 4, site="paris"))
    told = {each.assignment for each in orders(world.pass_to(17 * 3600.0 - 10), messages.Notice)}
    assert len(told) == 2
    for order in given:
        if order.assignment not in told:
            [handle] = [
                each.handle
                for each in world.broker.workers.values()
                if order.assignment in each.assignments
            ]
            world.report(order, worker=handle)
    taken_back = orders(world.pass_to(17 * 3600.0), messages.Notice)
    assert {(each.assignment, each.in_s) for each in taken_back} == {(each, None) for each in told}


def test_what_has_not_begun_is_called_back_also_of_what_was_told_ahead():
    world = WindowsWorld(window(drain_lead_s=60.0, grace_s=30.0))
    world.submit("theirs", 4, site="paris")
    assert not orders(world.pass_to(17 * 3600.0 - 10), messages.Recall)
    assert len(orders(world.pass_to(17 * 3600.0), messages.Recall)) == 1


def test_of_two_who_may_have_equally_many_neither_makes_room_for_the_other():
    parties = (read_party("user:ada@paris"), read_party("user:bob@paris"))
    claims = Claims(tuple(Claim(each, borrows=Amount(2)) for each in parties))
    world = WindowsWorld(window(claims, drain_lead_s=60.0), slots=(1,) * 4)
    world.submit("a", 2, name="ada", site="paris")
    world.submit("b", 2, name="bob", site="paris")
    assert not orders(world.pass_to(17 * 3600.0 - 10), messages.Notice)
    assert not orders(world.pass_to(17 * 3600.0), messages.Notice)


def test_slots_are_called_back_by_when_it_was_said_also_before_another_window():
    """A party told to leave by 17:00, and then sooner, leaves at the sooner instant."""
    day = Window("day", Hours(0, 17 * 3600), Claims((Claim(OURS, Amount(2)),)), grace_s=30.0)
    night = Window("night", Hours(17 * 3600, 86_400), NO_OTHERS, drain_lead_s=600.0)
    world = WindowsWorld(day, night)
    world.submit("theirs", 4, site="paris")
    told = orders(world.pass_to(17 * 3600.0 - 500), messages.Notice)
    assert [(each.first, each.stop, each.in_s) for each in told] == [(0, 4, 500.0)]
    world.now_s += 1
    told = orders(world.submit("ours", 2), messages.Notice)
    assert [(each.first, each.stop, each.in_s) for each in told] == [(2, 4, 30.0)]
    for _ in range(3):
        world.now_s += 10
        assert not orders(world.do(), messages.Notice)


@pytest.mark.parametrize("jump_s", [0.0, 100.0, 3_600.0])
def test_who_must_make_room_has_no_longer_when_rules_are_told_again(jump_s):
    """Of a window that goes on: as when a day has passed, a clock has jumped, or a file changed."""
    world = WindowsWorld(window(grace_s=30.0, spill_s=60.0))
    world.submit("theirs", 4, site="paris")
    told = orders(world.pass_to(17 * 3600.0), messages.Notice)
    assert [each.in_s for each in told] == [90.0]
    world.now_s += jump_s
    said_again = orders(world.pass_to(world.now_s), messages.Notice)
    if jump_s:  # it is past the moment: what has not been stopped has the grace once more
        assert [each.in_s for each in said_again] == [30.0]
    else:
        assert [each.in_s for each in said_again] == [90.0]


@pytest.mark.parametrize("back_s", [60.0, 7_200.0])
def test_a_clock_that_is_set_back_gives_nobody_longer(back_s):
    world = WindowsWorld(window(grace_s=30.0), at_s=18 * 3600.0 - 1)
    world.turn()
    world.submit("theirs", 4, site="paris")
    assert [each.in_s for each in orders(world.turn(*[window(grace_s=30.0)]), messages.Notice)]
    told = orders(world.pass_to(world.now_s - back_s), messages.Notice)
    begun = back_s < 3_000
    assert [each.in_s for each in told if each.in_s is not None] == [30.0] * begun


GUARANTEED = window(Claims((Claim(RISK, Amount(2)),)), 0, 24, grace_s=5.0)


def for_another_pool(world):
    """A worker of another pool has the job's tags, and is busy."""
    world.broker.tariffs["large"] = PRICE
    world.do(events.WorkerJoined(9, "w9", "large", 1, {"gpu": 1}, "3.11"))
    world.submit("busy", 1, name="risk", tags={"gpu": 1})
    world.submit("run", 2, name="risk", tags={"gpu": 1})


def unread(world):
    """Its user does not read results."""
    world.submit("run", 0, name="risk")
    world.do(
        events.ClientReading(world.clients, ready=False),
        events.TasksArrived(world.clients, "run", 0, [b"x"] * 2),
    )


def too_long(world):
    """It would not be done when it may have nothing any more."""
    world.turn(
        replace(GUARANTEED, when=Hours(0, 13 * 3600)),
        Window("fx", Hours(13 * 3600, 86_400), Claims((Claim(RISK, borrows=NOTHING),))),
    )
    world.learn(7_200.0, name="risk")
    world.submit("run", 2, name="risk")


@pytest.mark.parametrize("submit", [for_another_pool, unread, too_long])
def test_nobody_makes_room_for_what_does_not_begin_here(submit):
    """Others took the slots again, and were stopped again, for as long as it waited."""
    world = WindowsWorld(GUARANTEED, slots=(1,) * 4)
    world.submit("theirs", 50, site="paris")
    submit(world)
    assert world.broker.jobs["run"].waiting == 2
    world.now_s += 1
    effects = world.do()
    assert not orders(effects, messages.Notice)
    assert not orders(effects, messages.Recall)


def test_a_worker_that_stops_nothing_is_told_of_and_not_waited_for():
    world = WindowsWorld(window(Claims((Claim(OTHERS, borrows=Amount(2)),)), 0, 24), slots=(1,) * 3)
    world.submit("theirs", 2, site="paris")
    [idle] = [each.handle for each in world.broker.workers.values() if not each.in_flight]
    first, second = (each for each in (1, 2, 3) if each != idle)
    world.now_s += 1
    less = Claims((Claim(OTHERS, borrows=Amount(1)),))
    [notice] = orders(world.turn(window(less, 0, 24)), messages.Notice)
    [deaf] = [
        each for each in world.broker.workers.values() if notice.assignment in each.assignments
    ]
    world.now_s += 9
    assert not orders(world.do(), messages.Notice)
    world.now_s += 2
    effects = world.do()
    [notice] = orders(effects, messages.Notice)
    assert {deaf.handle} ^ {first, second} == {
        each.handle
        for each in world.broker.workers.values()
        if notice.assignment in each.assignments
    }
    said = [each.text for each in effects if isinstance(each, Remark)]
    assert said[0] == (
        f"worker {deaf.name} of pool fast has not stopped 1 of its tasks by 1970-01-01 "
        "12:00:01 UTC: other tasks are stopped instead"
    )
    world.now_s += 2
    assert not [each for each in world.do() if isinstance(each, Remark)]


# --- room that the owner of guaranteed slots can use ----------------------------------------


def two_hosts(*gpus, slots=2):
    """A pool of hosts with so many GPUs each, where RISK has two slots guaranteed."""
    world = WindowsWorld(replace(GUARANTEED, grace_s=0.0), slots=())
    for number, gpu in enumerate(gpus, 1):
        tags = {"gpu": gpu} if gpu else {}
        world.do(events.WorkerJoined(number, f"w{number}", "fast", slots, tags, "3.11"))
    return world


def notices(effects):
    """The worker and the tasks of each order to stop."""
    return [
        (each.worker, each.message)
        for each in effects
        if isinstance(each, SendToWorker) and isinstance(each.message, messages.Notice)
    ]


def stop_all(world, effects):
    """Workers stop tasks at once; return the effects of that."""
    found = []
    for worker, notice in notices(effects):
        values, failures = [b""], [[0, "preempted", "", b""]]
        for task in range(notice.first, notice.stop):
            stopped = events.Reported(worker, notice.assignment, task, values, failures)
            found += world.do(stopped)
    return found


def test_guaranteed_slots_come_from_a_host_whose_tags_are_free_and_once():
    """The youngest task was stopped, at the host whose GPUs the owner's first task had: it began
    again there, was the youngest again, and was stopped again."""
    world = two_hosts(2, 2)
    world.learn(0.6)
    world.submit("theirs", 60, name="pricing")
    assert world.running("theirs") >= 4
    world.now_s += 1
    effects = world.submit("gpu", 20, name="risk", tags={"gpu": 2})
    stopped = notices(effects)
    assert sorted(worker for worker, _ in stopped) == [1, 2]
    stop_all(world, effects)
    places = [each.worker.handle for each in world.broker.jobs["gpu"].assignments.values()]
    assert sorted(places) == [1, 2]
    for _ in range(20):
        world.now_s += 0.3
        assert not notices(world.do(events.Ticked()))
    assert world.running("theirs") == 2


def test_idle_slots_without_the_tags_do_not_count_as_room_for_the_owner():
    world = two_hosts(0, 2)
    world.submit("theirs", 2, tags={"gpu": 1})
    world.submit("other", 1)
    assert world.running("other") == 1
    assert sum(each.in_flight for each in world.broker.workers.values()) < 4
    world.now_s += 1
    effects = world.submit("gpu", 1, name="risk", tags={"gpu": 1})
    assert [worker for worker, _ in notices(effects)] == [2]
    stop_all(world, effects)
    assert world.running("gpu") == 1


def test_nothing_is_stopped_for_tags_that_would_not_be_free_then():
    world = two_hosts(1, 1, slots=4)
    world.submit("holds", 2, name="risk", tags={"gpu": 1})
    world.turn(replace(GUARANTEED, claims=Claims((Claim(RISK, Amount(4)),)), grace_s=0.0))
    world.submit("theirs", 60)
    world.now_s += 1
    effects = world.submit("more", 9, name="risk", tags={"gpu": 1})
    for _ in range(5):
        assert not notices(effects)
        world.now_s += 0.3
        effects = world.do(events.Ticked())


def test_slots_that_others_left_are_kept_from_work_of_a_higher_priority():
    """It took them first each time, and was stopped each time."""
    world = two_hosts(0, slots=4)
    world.submit("urgent", 60, priority=9.0)
    world.now_s += 1
    effects = world.submit("run", 20, name="risk")
    assert [(each.first, each.stop) for _, each in notices(effects)] == [(2, 4)]
    stop_all(world, effects)
    assert world.running("run") == 2
    # Its tasks are short: the next ones take their slots.
    for _ in range(5):
        for assignment in list(world.broker.jobs["run"].assignments.values()):
            first = next(iter(assignment.left))[0]
            done = events.Reported(1, assignment.id, first, [b""], wall_ns=2 * 10**9)
            world.do(after_its_time(world.broker, done))
        assert world.running("run") == 2
        world.now_s += 0.3
        assert not notices(world.do(events.Ticked()))
    # Once nothing of it waits they are lent again.
    world.do(events.CancelAsked(world.clients, 1, "run", (), False))
    world.now_s += 0.3
    world.do(events.Ticked())
    for assignment in list(world.broker.jobs["run"].assignments.values()):
        for first, _ in list(assignment.left):
            done = events.Reported(1, assignment.id, first, [b""], wall_ns=2 * 10**9)
            world.do(after_its_time(world.broker, done))
    assert world.running("urgent") >= 4


def test_stops_that_did_not_help_are_not_repeated_and_are_told():
    """The pool's grid stops the host before a task would end: no rule of windows knows that."""
    world = two_hosts(0, slots=4)
    world.learn(3_600.0, name="risk")
    world.submit("theirs", 60)
    world.broker.workers[1].ends_at_s = world.now_s + 600.0
    world.now_s += 1
    effects = world.submit("run", 20, name="risk")
    stops, remarks, began_s = 0, [], world.now_s
    while world.now_s < began_s + 60.0:
        stops += len(notices(effects))
        remarks += [each.text for each in effects if isinstance(each, Remark)]
        stop_all(world, effects)
        world.now_s += 0.3
        effects = world.do(events.Ticked())
    assert 0 < stops <= 2 * 4  # after 0, 6, 17 and 38 s
    assert any("which has not used them: it stops none for a while" in each for each in remarks)
    assert world.running("theirs") >= 4
