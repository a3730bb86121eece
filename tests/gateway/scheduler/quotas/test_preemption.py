"""The choice of tasks that make room: whose notices, whose recalled slots, and at what price."""

import pytest
from support.pure.windows import NO_OTHERS, RISK, WindowsWorld, orders, spec

from federation.messages import messages
from gateway.scheduler.model import events
from gateway.scheduler.quotas.preemption import LOOK_S, Preemption
from policies.access.claims import Amount, Claim, Claims
from policies.access.windows import EVERYBODY, Window, WindowPlan, rules_at
from policies.calendar.hours import Hours
from policies.parties import read_party

FX = read_party("project:fx")
EVENING = 17 * 3600.0


def window(claims, from_h=0, to_h=24, **settings):
    return Window("risk run", Hours(from_h * 3600, to_h * 3600), claims, **settings)


def told(effects):
    """The numbers of tasks with notice, by assignment; those let off count below zero."""
    found = {}
    for each in orders(effects, messages.Notice):
        tasks = (each.stop - each.first) * (1 if each.in_s is not None else -1)
        found[each.assignment] = found.get(each.assignment, 0) + tasks
    return found


def of(world, job):
    return set(world.broker.jobs[job].assignments)


def test_slots_are_kept_for_each_of_two_owners_for_whom_tasks_were_stopped():
    claims = Claims((Claim(RISK, Amount(2)), Claim(FX, Amount(2))))
    world = WindowsWorld(window(claims))
    world.submit("rest", 4)
    world.now_s += 1
    opened = [
        (events.JobOpened(world.clients, name, spec(name)),
         events.TasksArrived(world.clients, name, 0, [b"x"] * 2))
        for name in ("risk", "fx")
    ]  # fmt: skip
    effects = world.do(*(event for pair in opened for event in pair))
    assert sum(told(effects).values()) == 4
    pool = world.broker.occupancy.pools["fast"]
    assert [pool.levels[claim].kept for claim in (0, 1)] == [2, 2]


def test_who_has_less_in_the_next_window_is_told_also_where_others_have_as_much_as_before():
    world = WindowsWorld(window(NO_OTHERS, 17, 23, drain_lead_s=600.0))
    world.submit("ours", 2)
    world.submit("theirs", 2, site="paris")
    effects = world.pass_to(EVENING - 599.0)
    assert told(effects).keys() == of(world, "theirs")
    assert sum(told(effects).values()) == 2


def test_rules_that_turn_in_one_pool_let_off_its_tasks_and_leave_those_of_others():
    world = WindowsWorld(slots=(2,))
    world.do(events.WorkerJoined(9, "w9", "slow", 2, {}, "3.11"))
    world.submit("fast", 2, site="paris", pool="fast")
    world.now_s += 1
    world.submit("slow", 2, site="paris", pool="slow")
    plan = WindowPlan((window(NO_OTHERS, grace_s=600.0),), EVERYBODY)
    rules = rules_at(plan, world.now_s)
    effects = world.do(events.RulesTurned({"fast": rules, "slow": rules}))
    assert told(effects) == dict.fromkeys(of(world, "fast") | of(world, "slow"), 1)
    world.now_s += 1
    effects = world.do(events.RulesTurned({"fast": None}))
    assert told(effects) == dict.fromkeys(of(world, "fast"), -1)


@pytest.mark.parametrize(("places", "stopped"), [(None, 2), ({"fast": 1.0}, 2), ({"fast": 0.5}, 0)])
def test_tasks_make_room_in_a_pool_for_work_that_is_planned_there(places, stopped):
    world = WindowsWorld(base=EVERYBODY)
    world.submit("rest", 4)
    world.submit("run", 2, name="risk")
    world.broker.jobs["run"].places = places
    world.now_s += 1
    effects = world.turn(window(Claims((Claim(RISK, Amount(2)),))))
    assert sum(told(effects).values()) == stopped


def test_a_worker_where_one_job_can_not_run_may_make_room_for_another():
    world = WindowsWorld(window(Claims((Claim(RISK, Amount(2)),))), slots=(1, 1))
    world.submit("rest", 2)
    world.now_s += 1
    for name in ("first", "second"):
        world.broker.handle(
            events.JobOpened(world.clients, name, spec("risk", priority=float(name == "first"))),
            world.now_s,
        )
    first, second = (world.broker.jobs[name] for name in ("first", "second"))
    workers = list(world.broker.workers.values())
    first.unfit, second.unfit = {workers[0].place}, {workers[1].place}
    effects = world.do(
        *(events.TasksArrived(world.clients, name, 0, [b"x"]) for name in ("first", "second"))
    )
    assert sum(told(effects).values()) == 2


def test_a_look_at_all_tasks_is_not_repeated_at_once(monkeypatch):
    world = WindowsWorld(window(NO_OTHERS))
    looks, look_at = [], Preemption._look_at
    monkeypatch.setattr(Preemption, "_look_at", lambda *args: looks.append(args) or look_at(*args))
    world.now_s += 1
    world.do()
    world.do()
    world.now_s += LOOK_S / 2
    world.do()
    assert len(looks) == 1
    world.now_s += LOOK_S
    world.do()
    assert len(looks) == 2
