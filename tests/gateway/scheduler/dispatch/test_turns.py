"""How much one call of the dispatcher's `settle` does, and when it says that more is to do."""

import pytest
from support.pure.broker import CLIENT, BrokerWorld, orders, spec

from gateway.scheduler.dispatch import dispatcher
from gateway.scheduler.dispatch.dispatcher import BUNDLE_STEPS
from gateway.scheduler.model import events


def idle_workers(count):
    world = BrokerWorld(slots=0)
    world.broker.durations.learn(b"f" * 32, 1_000, 1_000 * 10**9)
    for number in range(2, 2 + count):
        world.join(number)
    return world


def arrive(world, tasks):
    """Submit without a turn of the dispatcher."""
    world.broker.handle(events.JobOpened(CLIENT, "j", spec()), world.now_s)
    world.broker.handle(events.TasksArrived(CLIENT, "j", 0, [b"x"] * tasks), world.now_s)


def turns(world, most=20):
    """How many bundles each turn hands out, until the dispatcher says that all is done."""
    found = []
    while len(found) < most:
        found.append(len(orders(world.broker.settle(world.now_s))))
        if world.broker.is_settled:
            break
    return found


def test_a_job_that_waits_for_a_slot_leaves_nothing_to_do():
    world = idle_workers(1)
    arrive(world, 3)
    assert turns(world) == [1]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (BUNDLE_STEPS + 1, [1, 1, 1]),  # a bundle, and the look at its worker
        (BUNDLE_STEPS + 2, [1, 1, 1]),  # and the look at the worker that is full now
        (2 * BUNDLE_STEPS + 3, [2, 1]),
    ],
)
def test_a_turn_hands_out_so_many_bundles_and_the_next_goes_on(monkeypatch, steps, expected):
    monkeypatch.setattr(dispatcher, "STEPS_MAX", steps)
    world = idle_workers(3)
    arrive(world, 3)
    assert turns(world) == expected


@pytest.mark.parametrize(("steps", "expected"), [(11, [0]), (10, [0, 0])])
def test_looks_at_jobs_that_fit_no_worker_count_for_each_worker(monkeypatch, steps, expected):
    """Three workers, and four jobs with a tag that none of them has: five steps for each."""
    world = idle_workers(3)
    world.join(9, tags={f"t{number}": True for number in range(5)})
    for number in range(5):
        world.submit(1, f"j{number}", tags={f"t{number}": True})
    assert world.broker.is_settled  # one of the five runs
    monkeypatch.setattr(dispatcher, "STEPS_MAX", steps)
    world.broker.handle(events.DrainAsked(2, True), world.now_s)
    world.broker.handle(events.DrainAsked(2, False), world.now_s)
    assert turns(world) == expected


def test_what_happens_during_a_round_has_a_round_of_its_own(monkeypatch):
    monkeypatch.setattr(dispatcher, "STEPS_MAX", BUNDLE_STEPS + 1)
    world = idle_workers(2)
    arrive(world, 3)
    assert len(orders(world.broker.settle(world.now_s))) == 1
    world.broker.handle(events.WorkerJoined(9, "w9", "local", 1, {}, "3.11"), world.now_s)
    assert sum(turns(world)) == 2
