"""Jobs that come before pools are known are judged again when these are."""

import pytest
from support.pure.broker import (
    CLIENT,
    PRICE,
    WORKER,
    BrokerWorld,
    Peers,
    orders,
    spec,
    told,
    written,
)

from federation.messages import messages
from federation.reasons import Reason
from gateway.ledger.db import records
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.tasks.provisional import SETTLE_S

GPU = {"gpu": 1}


def rejections(effects):
    return told(effects, messages.RejectJob)


def wait(world, seconds):
    """Let time pass, as the gateway's ticks see it."""
    effects = []
    for _ in range(int(seconds)):
        world.now_s += 1.0
        effects += world.do(events.Ticked())
    return effects


@pytest.fixture
def empty():
    """A site that has just started: no worker has joined."""
    return BrokerWorld(slots=0)


@pytest.mark.parametrize("detached", [False, True])
def test_a_job_that_no_pool_can_run_is_refused_once_they_are_known(empty, detached):
    assert not rejections(empty.submit(2, tags=GPU, detached=detached))
    empty.join(WORKER)
    effects = wait(empty, 2 * SETTLE_S)
    (rejection,) = rejections(effects)
    assert (rejection.job, rejection.code) == ("j", Reason.TAG_MISSING)
    assert "no pool here can ever run it" in rejection.reason
    assert [each.state for each in written(effects, records.JobEnded)] == ["rejected"]
    assert not empty.broker.jobs


def test_while_no_worker_is_known_it_waits(empty):
    empty.submit(1, tags=GPU)
    assert not rejections(wait(empty, 10 * SETTLE_S))
    assert orders(empty.join(WORKER, tags=GPU))


def test_a_worker_that_joins_a_little_later_than_the_first_is_waited_for(empty):
    empty.submit(1, tags=GPU)
    empty.join(WORKER)
    assert not rejections(wait(empty, SETTLE_S - 1))
    empty.join(WORKER + 1)
    assert not rejections(wait(empty, SETTLE_S - 1))
    assert orders(empty.join(WORKER + 2, tags=GPU))
    assert not rejections(wait(empty, 3 * SETTLE_S))


def test_what_another_site_may_run_waits_until_it_may_not():
    peers = Peers()
    empty, peers.runs = BrokerWorld(slots=0, peers=peers), True
    empty.join(WORKER)
    empty.submit(1, tags=GPU)
    assert not rejections(wait(empty, 5 * SETTLE_S))
    peers.runs = False  # its pools are known now
    assert rejections(wait(empty, 2 * SETTLE_S))


@pytest.fixture
def half():
    """A site that has just started, with two pools: no worker of the other has joined."""
    world = BrokerWorld(slots=0)
    world.broker = Broker({"local": PRICE, "other": PRICE})
    world.do(events.ClientJoined(CLIENT, "ann"))
    world.join(WORKER)
    return world


def join_other(world):
    return world.do(events.WorkerJoined(WORKER + 1, "w3", "other", 1, GPU, "3.11"))


def test_a_job_for_a_pool_whose_workers_are_not_back_yet_waits_for_them(half):
    assert not rejections(half.submit(1, tags=GPU))
    assert not rejections(wait(half, SETTLE_S / 2))
    assert orders(join_other(half))


def test_a_job_for_a_pool_whose_workers_do_not_come_back_is_refused_then(half):
    assert not rejections(half.submit(1, tags=GPU))
    assert rejections(wait(half, 3 * SETTLE_S))


def test_later_a_job_that_no_worker_there_is_can_run_is_refused_at_once(half):
    wait(half, 2 * SETTLE_S)
    assert rejections(half.submit(1, tags=GPU))


def test_a_job_that_is_opened_again_after_a_restart_waits_for_its_worker():
    world = BrokerWorld()
    opened = events.JobOpened(CLIENT, "j", spec(tags=GPU), again=True)
    assert not rejections(world.do(opened))
    assert rejections(world.do(events.JobOpened(CLIENT, "new", spec(tags=GPU))))
    world.do(events.TasksArrived(CLIENT, "j", 0, [b"0"]))
    assert orders(world.join(WORKER + 1, tags=GPU))


def test_what_can_run_here_is_not_judged_again():
    world = BrokerWorld()
    world.do(events.JobOpened(CLIENT, "j", spec()))
    world.do(events.WorkerGone(WORKER, "it was lost"))
    assert not rejections(wait(world, 5 * SETTLE_S))
