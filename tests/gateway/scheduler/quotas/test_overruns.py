"""Running tasks of jobs with a cost limit: one that passes it far is stopped, at home as abroad."""

import pytest

from gateway.scheduler.model import events
from tests.gateway.scheduler.quotas.test_spending import PRICE, UNIT, WORKER, World


def world(slots=1, price=PRICE):
    return World(slots=slots, tariffs={"local": price})


def begin(world):
    for _, order in world.orders:
        tasks = range(order.first, order.first + len(order.arguments))
        rows = tuple((order.assignment, task, 0.0) for task in tasks)
        world.do(events.TasksBegun(WORKER, rows))


def test_a_task_that_costs_twice_the_limit_of_its_job_is_stopped():
    home = world()
    home.submit(1, max_cost_nanos=5 * UNIT, currency="USD")
    begin(home)
    home.tick(10.0)
    assert not home.dropped, "exactly twice: it may still end"
    home.tick(0.5)
    assert home.dropped == [("budget", 1)]
    ((worker, recall),) = home.recalls
    assert worker == WORKER
    assert recall.kill
    home.tick()
    assert len(home.recalls) == 1, "it is being stopped already"


def test_all_running_tasks_count_and_what_was_paid():
    home = world(slots=4)
    home.submit(4, max_cost_nanos=10 * UNIT, currency="USD", task_s=2.0)
    begin(home)
    home.report(3.0)
    home.tick(2.5)  # 3 are paid, and three tasks have run for 5.5 s each
    assert home.dropped == []
    home.tick(0.5)
    assert sum(tasks for _, tasks in home.dropped) == 3
    assert {failure for failure, _ in home.dropped} == {"budget"}


def test_a_job_without_a_limit_runs_on():
    home = world()
    home.submit(1)
    begin(home)
    home.tick(3_600.0)
    assert not home.recalls


def test_a_task_that_has_not_said_that_it_began_is_not_counted():
    home = world()
    home.submit(1, max_cost_nanos=5 * UNIT, currency="USD")
    home.tick(3_600.0)
    assert not home.recalls


@pytest.mark.parametrize(
    ("changes", "begun"), [({}, 2), ({"timeout_s": 20.0}, 7), ({"task_s": 1.0}, 8)]
)
def test_a_first_round_of_unknown_length_costs_no_more_than_its_job_may(changes, begun):
    """A second costs one unit; without a time limit a task counts as a minute."""
    home = world(slots=8)
    home.submit(8, max_cost_nanos=150 * UNIT, currency="USD", **changes)
    assert sum(len(order.arguments) for _, order in home.orders) == begun


def test_one_task_is_tried_however_little_its_job_may_cost():
    home = world(slots=8)
    home.submit(8, max_cost_nanos=UNIT, currency="USD")
    assert sum(len(order.arguments) for _, order in home.orders) == 1
