"""Workers that were lost: how long they wait, and how many tasks they have at first."""

from types import SimpleNamespace

import pytest
from support.pure.reception import make_server

from gateway.config.pools import PoolConfig
from gateway.config.site import SiteConfig
from gateway.scheduler.model.events import Drainer, WorkerJoined
from gateway.scheduler.model.jobs import Worker
from gateway.scheduler.tasks.probation import (
    JUDGED_S,
    NEWCOMERS_MAX,
    TRIAL_TASKS,
    WAIT_MAX_S,
    Probation,
    wait_s,
)
from policies.placement.placement import CapacityOffer
from simulations.world.memory.disk import Disk


class Pool:
    """One pool, and workers that join it."""

    def __init__(self, expected=()):
        self.now_s = 1_000.0
        self.probation = Probation(lambda pool, name: name in expected)
        self.handles = 0

    def join(self, name="w", slots=4, token=""):
        self.handles += 1
        offer = CapacityOffer(f"worker {name}", "local", {}, "3.11", "USD")
        worker = Worker(self.handles, name, offer, slots, None, {}, token=token)
        self.probation.joined(worker, self.now_s)
        return worker

    def lose(self, worker, *, is_lost=True):
        return self.probation.left(worker, self.now_s, is_lost=is_lost)

    def pass_time(self, seconds):
        self.now_s += seconds
        return self.probation.wake(self.now_s)


def waits(worker):
    return Drainer.LOSSES in worker.drained_by


def test_a_worker_nobody_knows_begins_as_it_is():
    worker = Pool().join()
    assert (worker.trial, waits(worker), worker.draining) == (None, False, False)


def test_one_that_left_with_nothing_begins_as_it_is():
    pool = Pool()
    pool.lose(pool.join(), is_lost=False)
    assert pool.join().trial is None


def test_one_that_was_lost_with_tasks_has_one_at_first_and_more_for_each_that_it_ends():
    pool = Pool()
    pool.lose(pool.join(slots=64))
    worker = pool.join(slots=64)
    assert (worker.trial, waits(worker)) == (1, False)
    for _ in range(3):
        pool.probation.finished(worker, worker.trial)
    assert worker.trial == 8
    pool.probation.finished(worker, 64)
    assert worker.trial is None
    pool.lose(worker, is_lost=False)
    assert pool.join(slots=64).trial is None, "its record is clean again"


def test_it_waits_twice_as_long_with_each_loss_up_to_a_bound():
    pool = Pool()
    waited = []
    for _ in range(12):
        worker = pool.join()
        since_s = pool.now_s
        while waits(worker):
            pool.pass_time(0.5)
        assert not worker.draining
        waited.append(pool.now_s - since_s)
        pool.lose(worker)
    assert waited == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert wait_s(10**6) == WAIT_MAX_S


def test_one_that_ends_as_much_as_it_loses_does_not_begin_anew_each_time():
    pool = Pool()
    for _ in range(6):
        pool.lose(pool.join())
    for _ in range(5):
        pool.pass_time(100)
        worker = pool.join()
        assert worker.trial == 1
        pool.probation.finished(worker, TRIAL_TASKS)
        pool.lose(worker)
    pool.pass_time(0)
    assert waits(pool.join())


def test_a_loss_is_forgotten_after_an_hour():
    pool = Pool()
    for _ in range(5):
        pool.lose(pool.join())
    pool.pass_time(3_601)
    assert pool.join().trial is None


def test_who_is_drained_by_somebody_else_goes_on_being_so():
    pool = Pool()
    for _ in range(3):
        pool.lose(pool.join())
    worker = pool.join()
    worker.drained_by.add(Drainer.OPERATOR)
    assert pool.pass_time(100)
    assert worker.draining


def test_new_names_are_no_way_round_it():
    pool = Pool()
    for number in range(NEWCOMERS_MAX):
        assert pool.join(f"a{number}").trial is None
        pool.lose(pool.join(f"n{number}"))
    assert pool.join("next").trial == 1
    for number in range(4):
        pool.lose(pool.join(f"m{number}"))
    assert waits(pool.join("more"))
    pool.pass_time(61)
    assert pool.join("later").trial is None


def test_sessions_that_joined_before_are_judged_as_well_until_they_have_done_enough():
    pool = Pool()
    sessions = [pool.join(f"n{number}") for number in range(8)]
    done, others = pool.join("done"), pool.join("others", token="t")
    pool.probation.finished(done, 1)
    for worker in sessions[:NEWCOMERS_MAX]:
        judged = pool.lose(worker)
    left = sessions[NEWCOMERS_MAX:]
    assert judged == [each.handle for each in left]
    assert {each.trial for each in left} == {1}
    assert (done.trial, others.trial) == (None, None)
    assert not any(waits(each) for each in left)
    assert pool.lose(left[0]) == [], "not each time at once: there may be thousands"
    pool.pass_time(JUDGED_S)
    pool.lose(left[1])
    assert all(waits(each) for each in left[2:])


def test_one_name_again_and_again_is_no_sign_against_others():
    pool = Pool()
    other = pool.join("other")
    for worker in [pool.join("vandal") for _ in range(8)]:
        pool.lose(worker)
    assert other.trial is None


def test_those_who_came_by_one_token_are_judged_together_and_nobody_else():
    pool = Pool()
    for number in range(NEWCOMERS_MAX):
        pool.lose(pool.join(f"n{number}", token="t"))
    assert pool.join("next", token="t").trial == 1
    assert pool.join("of another token", token="u").trial is None
    assert pool.join("of none").trial is None


def test_names_that_a_grid_was_asked_for_are_not_new():
    names = [f"pilot-{number}" for number in range(50)]
    pool = Pool(expected=names)
    for name in names[:40]:
        pool.lose(pool.join(name))
    assert pool.join(names[45]).trial is None
    assert pool.join("stranger").trial is None


@pytest.mark.parametrize("step_s", [-10_000.0, -1.0])
def test_a_clock_that_is_set_back_keeps_nobody_waiting_for_longer(step_s):
    pool = Pool()
    for _ in range(20):
        pool.lose(pool.join())
    pool.now_s += step_s
    worker = pool.join()
    pool.pass_time(WAIT_MAX_S)
    assert not waits(worker)


def test_a_worker_is_known_by_the_token_that_it_came_by():
    held = SimpleNamespace(token=SimpleNamespace(id="abc", may_work_in=lambda _pool: True))
    token_checker = SimpleNamespace(
        read=lambda _text: held,
        welcomes=lambda _site: False,
        is_revoked=lambda *_: False,
        note_use=lambda *_: None,
    )
    config = SiteConfig(name="london", pools=(PoolConfig("local", "local", 1),))
    server = make_server(config, Disk(), 1_000.0, token_checker=token_checker)
    about = {"slots": 1, "pool": "local", "python": "3.11"}
    events = []
    for number, shown in enumerate([{"token": "text"}, {}]):
        peer = SimpleNamespace(
            handle=number,
            role="worker",
            name="w",
            about=about | shown,
            origin=SimpleNamespace(host=""),
        )
        server._meet(peer, events)
    assert [each.token for each in events] == ["abc", ""]


def test_joined_events_say_what_a_worker_tells():
    assert WorkerJoined(1, "w", "local", 1, {}, "3.11").tells_begun is False
