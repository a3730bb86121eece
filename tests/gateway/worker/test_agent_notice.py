"""Stop orders: tasks know the deadline, those that go on are stopped, and no others are."""

import sys
import time

import cloudpickle
import pytest

from federation import deadline
from federation.messages.messages import Notice

pytestmark = pytest.mark.real

# The functions of these tests are not installed where the slots look.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def save_in_time(mark, path):
    """Wait for a deadline to be known, and say when it is."""
    mark.touch()
    while (at_s := deadline()) is None:
        time.sleep(0.005)
    path.write_text(str(at_s))
    return at_s


def go_on(mark):
    mark.touch()
    while True:
        time.sleep(0.01)


def wait_for(mark, path):
    mark.touch()
    while not path.exists():
        time.sleep(0.005)
    return deadline()


def act(what, *args):
    return what(*args)


def notice(gateway, work, in_s, first=0, stop=1_000):
    gateway.say(work.worker, Notice(work.number, first, stop, in_s))


def test_a_task_learns_when_it_will_be_stopped_and_may_end_before(gateway, start_agent, tmp_path):
    start_agent(gateway)
    mark = tmp_path / "mark"
    work = gateway.assign(gateway.worker(), act, [(save_in_time, mark, tmp_path / "at")])
    gateway.wait_for(mark.exists)
    before_s = time.time()
    notice(gateway, work, 30.0)
    [at_s] = work.wait().values().values()
    assert before_s + 29.9 < at_s < time.time() + 30.1


def test_a_task_that_goes_on_is_stopped_and_named_as_that(gateway, start_agent, tmp_path):
    start_agent(gateway)
    mark = tmp_path / "mark"
    work = gateway.assign(gateway.worker(), act, [(go_on, mark)])
    gateway.wait_for(mark.exists)
    notice(gateway, work, 0.1)
    [(kind, text, payload)] = work.wait().failures().values()
    assert (kind, payload) == ("preempted", b"")
    assert text.startswith("the task was stopped to make room for other work")
    assert work.reports[0].wall_ns > 10**8


def test_only_the_tasks_that_were_named_are_stopped(gateway, start_agent, tmp_path):
    start_agent(gateway, 2)
    marks, go = [tmp_path / "a", tmp_path / "b"], tmp_path / "go"
    work = gateway.assign(
        gateway.worker(), act, [(wait_for, marks[0], go), (wait_for, marks[1], tmp_path / "never")]
    )
    gateway.wait_for(lambda: all(each.exists() for each in marks))
    notice(gateway, work, 0.0, first=1, stop=2)
    gateway.wait_for(lambda: work.failures())
    go.touch()
    work.wait()
    assert set(work.failures()) == {1}
    assert work.values() == {0: None}


def test_a_time_limit_is_a_deadline_too_and_the_sooner_counts(gateway, start_agent, tmp_path):
    start_agent(gateway)
    marks = [tmp_path / "a", tmp_path / "b"]
    worker = gateway.worker()
    limited = gateway.assign(worker, act, [(save_in_time, marks[0], tmp_path / "x")], timeout_s=60)
    [at_s] = limited.wait().values().values()
    assert 50 < at_s - time.time() < 60.1
    go = tmp_path / "go"
    work = gateway.assign(worker, act, [(wait_for, marks[1], go)], timeout_s=60)
    gateway.wait_for(marks[1].exists)
    notice(gateway, work, 20.0)
    go.touch()
    [at_s] = work.wait().values().values()
    assert at_s - time.time() < 60.1


def test_outside_of_tasks_nobody_knows_a_deadline():
    assert deadline() is None


def test_a_notice_for_what_is_not_here_is_left_at_that(gateway, start_agent):
    agent = start_agent(gateway)
    worker = gateway.worker()
    gateway.say(worker, Notice(999, 0, 5, 0.0))
    assert gateway.assign(worker, act, [(abs, -1)]).wait().values() == {0: 1}
    assert agent.is_alive
