"""No turn of the loop is long: 50,000 jobs, 4,000 workers, counted in calls."""

import sys
from itertools import count

import pytest

from federation.messages import messages
from gateway.config.pools import PoolFacts
from gateway.contracts.exchange import Exchange
from gateway.runtime.kernel import Kernel
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Expel, SendToWorker
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.accounts import ClientLimits
from gateway.scheduler.quotas.room_making import (
    STOPS_MAX,
    TESTS_MAX,
    RoomHeld,
    RoomWanted,
    WorkerRoom,
    choose,
)
from gateway.sessions.inbox import TURN_MAX
from gateway.trust.dealing_partners import Nobody
from policies.placement.asks import Preferences
from policies.tariffs import Tariff
from tests.support.pure.town import RULES

WORKERS, SLOTS = 4_000, 3
JOBS = 50_000
TASKS = 4
CLIENTS = 5
# Python calls in a turn: some 20 ms of a core.
CALLS_MAX = 50_000
TURNS_MAX = 100  # that are counted


class Counter:
    """Counts the Python functions that are called."""

    def __enter__(self):
        self.calls = 0
        sys.setprofile(self._count)
        return self

    def _count(self, frame, event, argument):
        self.calls += event == "call"

    def __exit__(self, *_):
        sys.setprofile(None)


class Gateway:
    """Broker and exchange, driven turn by turn as the gateway server does it."""

    def __init__(self, jobs):
        self.now_s, self.most = 1000.0, 0
        tariffs, limits = {"p": Tariff(1, "USD", "v")}, ClientLimits(10**9, 1 << 40)
        facts, nobody = {"p": PoolFacts()}, Nobody()
        self.kernel = Kernel(
            lambda peers: Broker(tariffs, limits=limits, peers=peers),
            lambda broker: Exchange(
                *("local", 0, broker, RULES, Preferences(), nobody, facts, nobody, count(1_000))
            ),
        )
        self.broker, self.exchange = self.kernel.broker, self.kernel.exchange
        self.out = []
        self.clients = range(1, CLIENTS + 1)
        self.act(*(events.ClientJoined(each, f"user{each}") for each in self.clients))
        self.jobs = [f"j{number}" for number in range(jobs)]
        for number, job in enumerate(self.jobs):
            for event in self.opened(job, self.clients[number % CLIENTS]):
                self.broker.handle(event, self.now_s)
        self.broker.take_fresh()

    def opened(self, job, client, tags=None):
        spec = JobSpec(
            *("f", b"f" * 32, False, f"user{client}", "p", 0.0, tags or {}, None, 0),
            *(None, None, "3.11", False),
        )
        return (
            events.JobOpened(client, job, spec),
            events.TasksArrived(client, job, 0, [b"x"] * TASKS),
            events.JobClosed(client, job, TASKS),
        )

    def act(self, *happened):
        self.now_s += 0.001
        for effect in self.kernel.act(happened, self.now_s, self.now_s):
            assert not isinstance(effect, Expel)
            if isinstance(effect, SendToWorker) and isinstance(effect.message, messages.Assign):
                self.out.append((effect.worker, effect.message))

    def turns(self, *happened):
        """Handle an event, and go on until nothing is left; return the longest turn's calls."""
        most = turns = 0
        while happened or (turns < TURNS_MAX and not self.broker.is_settled) or not turns:
            part, happened = happened[:TURN_MAX], happened[TURN_MAX:]
            turns += 1
            with Counter() as counter:
                self.act(*part)
            most = max(most, counter.calls)
        self.now_s += 1.0
        return most

    def join(self, number, tags=None):
        return events.WorkerJoined(100 + number, f"w{number}", "p", SLOTS, tags or {}, "3.11")

    def reports(self, most, wall_ns):
        parts, self.out = self.out[:most], self.out[most:]
        return [
            events.Reported(
                worker, each.assignment, each.first, [b""] * len(each.arguments), wall_ns=wall_ns
            )
            for worker, each in parts
        ]


def longest_turns(jobs):
    """The calls of the longest turn of each kind of thing that happens, with so many jobs open."""
    gateway = Gateway(jobs)
    found = {}
    for number in range(WORKERS):
        gateway.broker.handle(gateway.join(number), gateway.now_s)
    found["hand out to all"] = gateway.turns()
    assert sum(each.in_flight for each in gateway.broker.workers.values()) == min(
        WORKERS * SLOTS, jobs * TASKS
    )
    for wall_s in (1e-5, 5.0):  # first they are short, then long
        reports = gateway.reports(1_000, round(wall_s * 1e9))
        found[f"reports of {wall_s:g} s"] = gateway.turns(*reports)
    found["a job"] = gateway.turns(
        events.JobOpened(1, "new", next(iter(gateway.broker.jobs.values())).spec),
        events.TasksArrived(1, "new", 0, [b"x"]),
    )
    lost = list(gateway.broker.workers)[:2]
    gone = [gateway.turns(events.WorkerGone(each, "lost")) for each in lost]  # see Lanes' weights
    found["a worker lost"] = max(gone)
    open_jobs = [each for each in gateway.broker.jobs.values() if each.client == 2][:200]
    cancels = [events.CancelAsked(2, 0, each.id, (), True) for each in open_jobs]
    found["cancels"] = gateway.turns(*cancels)
    with Counter() as counter:
        gateway.kernel.tick(gateway.now_s, gateway.now_s)
    found["a tick"] = counter.calls
    found["a client leaves"] = gateway.turns(events.ClientGone(1))
    assert all(each.leaving for each in gateway.broker.jobs.values() if each.client == 1)
    return found


def test_no_turn_is_long_by_many_kinds_of_jobs_that_no_worker_here_can_have():
    """Each of them wants another amount of a resource that only a departed worker has."""
    gateway = Gateway(0)
    broker = gateway.broker
    broker.handle(gateway.join(0, {"memory": 1_000.0}), gateway.now_s)
    broker.handle(events.WorkerGone(100, "goodbye", is_orderly=True), gateway.now_s)
    for number in range(1, 301):
        broker.handle(gateway.join(number, {"memory": 1.0}), gateway.now_s)
    for number in range(200):
        for event in gateway.opened(f"large {number}", 1, {"memory": 2.0 + number}):
            broker.handle(event, gateway.now_s)
    assert len(broker.ready) == 200
    assert gateway.turns() < CALLS_MAX
    assert broker.is_settled


def test_no_turn_is_long_by_jobs_that_are_held_against_the_offers_of_all_workers():
    gateway = Gateway(0)
    for number in range(1_000):
        gateway.broker.handle(gateway.join(number), gateway.now_s)
    jobs = [gateway.opened(f"hopeless {each}", 1, {"gpu": 1.0})[0] for each in range(TURN_MAX)]
    assert gateway.broker.looks(jobs[0].spec) == 1_000
    assert gateway.turns(*jobs) < CALLS_MAX
    assert gateway.broker.looks(jobs[0].spec) == 0
    gateway.broker.handle(gateway.join(1_000), gateway.now_s)
    assert gateway.broker.looks(jobs[0].spec) == 1_001


@pytest.mark.parametrize("idle", [0, 1])
@pytest.mark.parametrize("kinds", [1, 100])
def test_no_look_for_room_is_long_by_many_jobs_with_guaranteed_slots(kinds, idle):
    """Each job was tested at each worker, and again for each task: seconds in each look."""
    places = range(WORKERS)
    rooms = {each: WorkerRoom(idle, {"memory": 4.0}) for each in places}
    wants = [RoomWanted(0, 10, {"memory": 1 + at % kinds / 100}, places) for at in range(100)]
    held = [RoomHeld(each, 9, each, SLOTS, {}) for each in places]
    with Counter() as counter:
        found, following = choose(wants, rooms, held, {9: WORKERS * SLOTS}, 0)
    assert sum(each.tasks for each in found) == STOPS_MAX
    assert not following
    assert counter.calls < CALLS_MAX / 2


def test_a_look_for_room_goes_on_where_the_last_one_ended():
    """Of jobs that can run nowhere, the first ones would keep the others from being looked at."""
    rooms = {each: WorkerRoom(0) for each in range(TESTS_MAX)}
    wants = [RoomWanted(0, 1, {"gpu": 1.0 + at}, range(TESTS_MAX)) for at in range(5)]
    held = [RoomHeld(each, 9, each, 1, {}) for each in rooms]
    with Counter() as counter:
        assert choose(wants, rooms, held, {9: TESTS_MAX}, 0) == ([], 1)
    assert counter.calls < CALLS_MAX


@pytest.mark.thorough  # minutes long: it counts every call
def test_the_longest_turn_is_bounded_whatever_waits():
    found = longest_turns(JOBS)
    assert max(found.values()) < CALLS_MAX, found
