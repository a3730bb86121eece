"""The grid's view and the workers' reports, combined; also where both are late, or wrong."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.grids.contract import FailureClass, GridFault, Order, PilotState, Shape, Sighting
from gateway.grids.scaling.fleet import DIAL_S, PROOF_S, TRIES_MAX, UNSEEN_S, AtWork, Fleet
from policies.placement.autoscaling import PilotStage

START_S = 20.0
IDLE = AtWork(slots=2, busy=0, idle_since_s=0.0)


def order(name="a", pilots=2):
    return Order(name, pilots, Shape(slots=2))


def fault(text, *, is_full=False):
    return GridFault(FailureClass.AGAIN, text, is_full=is_full)


def shown(name, state=PilotState.RUNNING, **more):
    return Sighting(name, state, f"id-{name}", 2, **more)


def ordered(*orders, now_s=0.0):
    fleet = Fleet(START_S)
    for each in orders:
        fleet.ordered(each, now_s)
    return fleet


def stages(fleet):
    return {name: each.stage for name, each in fleet.pilots.items()}


def test_from_the_order_to_the_end():
    fleet = ordered(order())
    assert stages(fleet) == dict.fromkeys(("a.0", "a.1"), PilotStage.QUEUED)
    fleet.see([shown("a.0", PilotState.QUEUED), shown("a.1", PilotState.STARTING)], {}, 5.0)
    assert stages(fleet) == {"a.0": PilotStage.QUEUED, "a.1": PilotStage.STARTING}
    fleet.see([shown("a.0"), shown("a.1")], {"a.1": IDLE}, 9.0)
    assert stages(fleet) == {"a.0": PilotStage.STARTING, "a.1": PilotStage.READY}
    fleet.stopped(["a.1"], 20.0)
    assert fleet.done({"a.1": AtWork(2, 1, 0.0)}) == []
    assert fleet.done({"a.1": IDLE}) == ["a.1"]
    fleet.see([shown("a.0"), shown("a.1", PilotState.ENDED)], {"a.0": IDLE}, 25.0)
    assert stages(fleet) == {"a.0": PilotStage.READY}
    assert (fleet.failures, fleet.orders) == (0, {})


def test_a_part_that_is_shown_late_is_waited_for():
    fleet = ordered(order(pilots=3))
    fleet.see([shown("a.0")], {}, 1.0)
    fleet.see([shown("a.0")], {}, UNSEEN_S - 1)
    assert len(fleet.pilots) == 3
    fleet.see([shown("a.0"), shown("a.2")], {}, UNSEEN_S - 1)
    fleet.see([shown("a.0"), shown("a.2")], {}, UNSEEN_S)
    assert set(fleet.pilots) == {"a.0", "a.2"}
    assert (fleet.failures, fleet.why) == (1, "the grid shows 2 of 3 accepted pilots")
    assert fleet.unseen(2 * UNSEEN_S) == []
    fleet.see([shown(f"a.{at}") for at in range(3)], {}, UNSEEN_S + 1)
    assert set(fleet.pilots) == {"a.0", "a.1", "a.2"}


def test_an_order_that_is_never_shown_is_made_again_and_given_up():
    fleet = ordered(order())
    assert fleet.unseen(UNSEEN_S - 1) == []
    now_s = 0.0
    for _ in range(TRIES_MAX - 1):
        now_s += UNSEEN_S
        assert fleet.unseen(now_s) == [order()]
        assert fleet.unseen(now_s + 1) == []
    assert fleet.unseen(now_s + UNSEEN_S) == []
    assert (fleet.pilots, fleet.orders, fleet.failures) == ({}, {}, 1)
    assert "does not show it" in fleet.why


def test_a_clock_that_is_set_moves_all_that_was_noted():
    early, late = ordered(order(), now_s=100.0), ordered(order(), now_s=1_100.0)
    for fleet, at_s in ((early, 105.0), (late, 1_105.0)):
        fleet.see([shown("a.0"), shown("a.1", PilotState.ENDED)], {}, at_s)
        fleet.stopped(["a.0"], at_s)
    early.clock_set(1_000.0)
    assert early == late


def test_an_order_that_is_not_wanted_any_more_is_not_made_again():
    fleet = ordered(order())
    fleet.stopped(order().names(), 5.0)
    assert fleet.unseen(UNSEEN_S) == []
    assert (fleet.pilots, fleet.orders, fleet.failures) == ({}, {}, 0)


def test_a_grid_that_is_full_is_no_failure():
    fleet = Fleet(5.0)
    fleet.ordered(order(pilots=3), 0.0)
    fleet.refused(order(pilots=3), fault("no more for now", is_full=True), 3.0)
    assert (fleet.failures, fleet.why, fleet.pilots, fleet.orders) == (0, "no more for now", {}, {})


def test_what_is_shown_of_a_refused_order_stays():
    fleet = ordered(order(pilots=3))
    fleet.see([shown("a.1")], {}, 1.0)
    fleet.stopped(["a.1"], 2.0)
    fleet.refused(order(pilots=3), fault("no room"), 3.0)
    assert stages(fleet) == {"a.1": PilotStage.DRAINING}
    assert (fleet.failures, fleet.why, fleet.orders) == (1, "no room", {})


def test_many_failures_of_one_order_are_one():
    fleet = ordered(order("a", 50), order("b", 50))
    fleet.see(
        [shown(name, PilotState.ENDED, fault="bad image") for name in order("a", 50).names()], {}, 1
    )
    assert (fleet.failures, fleet.why, fleet.failed_at_s) == (1, "bad image", 1)
    fleet.see([shown("b.0", PilotState.ENDED)], {}, 2)
    fleet.see([shown("b.1", PilotState.ENDED)], {}, 3)
    assert (fleet.failures, fleet.failed_at_s) == (2, 3)
    fleet.see([shown("b.2")], {"b.2": IDLE}, 4)
    assert fleet.failures == 0
    fleet.see([shown("b.2"), shown("b.3", PilotState.ENDED)], {"b.2": IDLE}, 5)
    assert fleet.failures == 1


def test_who_comes_and_dies_at_once_is_a_failure_until_one_does_something():
    """A host on which workers die is not paid for again and again: the pauses grow."""
    fleet = ordered(order("a", 1), order("b", 1), order("c", 1))
    for failures, name in enumerate(("a.0", "b.0"), 1):
        fleet.see([shown(name)], {name: IDLE}, failures)
        assert fleet.failures == failures - 1, "to have come proves nothing then"
        fleet.see([shown(name, PilotState.ENDED, fault="out of memory")], {}, failures + 0.5)
        assert (fleet.failures, fleet.failed_at_s) == (failures, failures + 0.5)
    assert fleet.why == "its worker connected, and completed no task: out of memory"
    fleet.see([shown("c.0")], {"c.0": AtWork(2, 1, 0.0, tasks_done=1)}, 4.0)
    assert fleet.failures == 0


@pytest.mark.parametrize(
    ("tasks_done", "stays_s", "failures"), [(1, 1.0, 0), (0, PROOF_S, 0), (0, PROOF_S - 1.0, 1)]
)
def test_who_has_worked_or_stayed_has_not_failed(tasks_done, stays_s, failures):
    fleet = ordered(order("a", 1))
    fleet.see([shown("a.0")], {"a.0": IDLE}, 1.0)
    fleet.see([shown("a.0")], {"a.0": AtWork(2, 0, 0.0, tasks_done=tasks_done)}, 1.0 + stays_s)
    fleet.see([shown("a.0", PilotState.ENDED)], {}, 2.0 + stays_s)
    assert fleet.failures == failures


def test_a_start_that_ends_by_way_of_ending_failed_all_the_same():
    fleet = ordered(order(pilots=1))
    fleet.see([shown("a.0", PilotState.ENDING)], {}, 1.0)
    assert stages(fleet) == {"a.0": PilotStage.DRAINING}
    fleet.see([shown("a.0", PilotState.ENDED, fault="disk")], {}, 2.0)
    assert (fleet.failures, fleet.why) == (1, "disk")


def test_what_we_let_go_is_no_failure_and_one_stop():
    fleet = ordered(order())
    fleet.stopped(["a.0", "gone"], 1.0)
    fleet.stopped(["a.0"], 2.0)
    fleet.see([shown("a.1")], {}, 3.0)
    fleet.see([shown("a.1"), shown("a.0", PilotState.ENDED)], {}, 4.0)
    assert fleet.failures == 0
    assert list(fleet.past(5.0).stops) == [1.0]
    assert fleet.past(61.5).stops == []


def test_a_pilot_that_is_shown_twice_lives_while_one_does():
    for sightings in (["running", "ended"], ["ended", "running"]):
        fleet = ordered(order(pilots=1))
        fleet.see([shown("a.0", PilotState(each)) for each in sightings], {}, 1.0)
        assert stages(fleet) == {"a.0": PilotStage.STARTING}


def test_a_worker_that_comes_before_its_sighting_is_ready():
    fleet = ordered(order(pilots=1))
    fleet.see([], {"a.0": IDLE}, 10.0)
    assert stages(fleet) == {"a.0": PilotStage.READY}
    assert fleet.orders == {}
    assert fleet.start_s == pytest.approx(START_S + 0.2 * (10.0 - START_S))


# What is shown, when; a worker has come with the last: how long the start took.
RUNS_LATER = (540, PilotState.RUNNING, None)
MEASURED = [
    ("at once", [(7, PilotState.RUNNING, None)], 7),
    (
        "after a queue",
        [
            (500, PilotState.QUEUED, None),
            (510, PilotState.STARTING, None),
            (540, PilotState.RUNNING, None),
        ],
        40,
    ),
    ("queued until just now", [(500, PilotState.QUEUED, None), (502, PilotState.RUNNING, None)], 2),
    ("as it is paid", [(500, PilotState.QUEUED, None), (540, PilotState.RUNNING, 512)], 28),
    ("paid by a wrong clock: later", [(30, PilotState.RUNNING, 4000)], 30),
    ("paid by a wrong clock: earlier", [(30, PilotState.RUNNING, -4000)], 30),
]


@pytest.mark.parametrize(("_name", "seen", "took_s"), MEASURED, ids=[each[0] for each in MEASURED])
def test_a_start_is_measured_without_the_queue(_name, seen, took_s):
    fleet = ordered(order(pilots=1))
    for now_s, stand, paid_at_s in seen:
        workers = {"a.0": IDLE} if now_s == seen[-1][0] else {}
        fleet.see([shown("a.0", stand, paid_at_s=paid_at_s)], workers, now_s)
    assert fleet.start_s == pytest.approx(START_S + 0.2 * (took_s - START_S))


def test_nothing_is_measured_of_what_was_found():
    fleet = Fleet(START_S)
    fleet.see([shown("old.0")], {}, 1.0)
    fleet.see([shown("old.0")], {"old.0": IDLE}, 2.0)
    assert (stages(fleet), fleet.start_s) == ({"old.0": PilotStage.READY}, START_S)


def test_who_runs_without_a_worker_is_silent_after_its_time():
    fleet = ordered(order(pilots=1))
    fleet.see([shown("a.0", PilotState.STARTING)], {}, 10 * DIAL_S)
    fleet.see([shown("a.0")], {}, 11 * DIAL_S)
    assert fleet.silent(12 * DIAL_S - 1) == []
    assert fleet.silent(12 * DIAL_S) == ["a.0"]
    fleet.see([], {}, 12 * DIAL_S)
    assert "its worker did not connect" in fleet.why


def test_slow_starters_have_longer():
    fleet = Fleet(1000.0)
    fleet.see([shown("a.0")], {}, 0.0)
    assert fleet.silent(2999.0) == []
    assert fleet.silent(3000.0) == ["a.0"]


def test_a_worker_that_goes_away_has_its_time_to_come_back():
    fleet = ordered(order(pilots=1))
    fleet.see([shown("a.0")], {"a.0": IDLE}, 5.0)
    fleet.see([shown("a.0")], {}, 5000.0)
    assert fleet.silent(5001.0) == []
    assert fleet.silent(5000.0 + DIAL_S) == ["a.0"]
    fleet.see([shown("a.0")], {"a.0": IDLE}, 5100.0)
    assert fleet.silent(9000.0) == []
    fleet.see([], {}, 9000.0)
    assert fleet.failures == 0


def test_who_is_away_is_not_idle_in_the_autoscaler_s_eyes():
    fleet = ordered(order(pilots=1))
    fleet.see([shown("a.0")], {"a.0": IDLE}, 5.0)
    [there] = fleet.view({"a.0": IDLE})
    [away] = fleet.view({})
    assert (there.is_idle, away.is_idle, away.stage) == (True, False, PilotStage.READY)


def test_an_order_of_one_pilot_each_is_as_quick_as_one_of_many():
    """20,000 pilots in 20,000 orders: work that grew with their product took minutes."""
    many = [order(f"o{at}", 1) for at in range(20_000)]
    fleet = ordered(*many)
    for at in range(3):
        fleet.see([shown(f"o{each}.0") for each in range(at * 9_000)], {}, float(at))
    assert len(fleet.orders) == 2_000


class RandomGrid(RuleBasedStateMachine):
    """A grid of random delays and losses, with a pool controller that obeys."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.chance = random.Random(seed)
        self.now_s = 1_000_000.0
        self.fleet = Fleet(START_S)
        self.asked = {}  # every pilot ever ordered → in this life
        self.there = {}  # name → stand: the truth
        self.visible = set()  # of them, those that the grid shows already
        self.workers = {}
        self.known_orders = set()
        self.listed = set()  # those that were shown by the last look
        self.number = 0

    def arrive(self, made, share):
        """The grid takes an order, or a part of it; once."""
        if made.name not in self.known_orders:
            self.known_orders.add(made.name)
            for name in made.names():
                if self.chance.random() < share:
                    self.there[name] = PilotState.QUEUED

    @rule(pilots=st.integers(1, 4), share=st.sampled_from([0.0, 0.5, 1.0]), lost=st.booleans())
    def order(self, pilots, share, lost):
        self.number += 1
        made = order(f"o{self.number}", pilots)
        self.fleet.ordered(made, self.now_s)
        self.asked.update(dict.fromkeys(made.names()))
        if not lost:
            self.arrive(made, share)

    @rule()
    def make_again(self):
        for made in self.fleet.unseen(self.now_s):
            self.arrive(made, 1.0)

    @precondition(lambda self: self.fleet.orders)
    @rule()
    def refuse(self):
        """The grid raises, and may have done a part of it nevertheless."""
        made = self.chance.choice([each.order for each in self.fleet.orders.values()])
        before = self.fleet.failures
        self.known_orders.add(made.name)
        self.fleet.refused(made, fault("no"), self.now_s)
        assert self.fleet.failures <= before + 1
        assert not self.listed & set(made.names()) - self.fleet.pilots.keys() - self.gone()

    def gone(self):
        return self.listed - self.there.keys()

    @rule(by_s=st.sampled_from([0.1, 5.0, 59.0, 130.0]))
    def wait(self, by_s):
        self.now_s += by_s

    @rule()
    def go_on(self):
        """Pilots become visible, run, come, and end."""
        for name, stand in list(self.there.items()):
            match self.chance.randrange(6):
                case 0:
                    self.visible.add(name)
                case 1 if stand is PilotState.QUEUED:
                    self.there[name] = PilotState.STARTING
                case 2 if stand in (PilotState.QUEUED, PilotState.STARTING):
                    self.there[name] = PilotState.RUNNING
                case 3 if stand is PilotState.RUNNING:
                    self.workers[name] = AtWork(2, self.chance.randrange(3), self.now_s)
                case 4 if self.chance.random() < 0.3:
                    self.there[name] = PilotState.ENDING
                case 5 if stand is PilotState.ENDING:
                    del self.there[name]
                    self.workers.pop(name, None)

    @rule(doubled=st.booleans())
    def look(self, doubled):
        before, start_s = self.fleet.failures, self.fleet.start_s
        awaited = {name for made in self.fleet.orders.values() for name in made.missing}
        seen = [
            shown(name, stand, paid_at_s=self.now_s - 1 if stand is PilotState.RUNNING else None)
            for name, stand in self.there.items()
            if name in self.visible
        ]
        ended = [shown(name, PilotState.ENDED) for name in self.asked if name not in self.there]
        seen += self.chance.sample(ended, min(2, len(ended)))
        seen += seen if doubled else []
        self.chance.shuffle(seen)
        self.fleet.see(seen, self.workers, self.now_s)
        alive = {each.name for each in seen if each.state is not PilotState.ENDED}
        self.listed = alive
        assert alive <= self.fleet.pilots.keys(), "one that the grid shows is forgotten"
        assert self.fleet.pilots.keys() <= alive | awaited | self.workers.keys(), "a ghost"
        orders_failed = self.fleet.failures - before
        assert orders_failed <= self.number
        assert 0.0 <= self.fleet.start_s <= max(start_s, self.now_s - 1_000_000.0)
        again = self.fleet.failures
        self.fleet.see(seen, self.workers, self.now_s)
        assert self.fleet.failures == again, "what is seen twice has failed twice"

    @rule()
    def let_go(self):
        names = self.chance.sample(sorted(self.fleet.pilots), min(2, len(self.fleet.pilots)))
        stops = len(self.fleet.stops)
        self.fleet.stopped(names, self.now_s)
        self.fleet.stopped(names, self.now_s)
        assert len(self.fleet.stops) <= stops + len(names)

    @rule()
    def stop(self):
        """Stop the pilots that the pool controller tells the grid to stop."""
        doomed = {*self.fleet.done(self.workers), *self.fleet.silent(self.now_s)}
        for name in doomed:
            self.there.pop(name, None)
            self.workers.pop(name, None)

    @rule()
    def restart(self):
        """A gateway's next life: it knows only the grid's view."""
        self.fleet = Fleet(START_S)
        self.listed = set()

    @invariant()
    def never_more_than_ordered(self):
        names = [each.name for each in self.fleet.view(self.workers)]
        assert len(set(names)) == len(names)
        assert set(names) <= self.asked.keys()

    @invariant()
    def nothing_is_left_when_the_grid_has_nothing(self):
        fleet, orders = self.fleet, self.fleet.orders.values()
        assert fleet.failures >= 0
        assert all(made.missing <= fleet.pilots.keys() for made in orders), "awaited, not known"
        assert all(made.missing <= set(made.order.names()) for made in orders)
        assert bool(fleet.why) or not fleet.failures

    def teardown(self):
        """In the end all is settled: exactly the pilots of the grid are known."""
        if not hasattr(self, "fleet"):
            return
        self.visible |= self.there.keys()
        for _ in range(TRIES_MAX + 2):
            self.now_s += UNSEEN_S
            self.fleet.unseen(self.now_s)
            self.fleet.see([shown(*each) for each in self.there.items()], self.workers, self.now_s)
        assert not self.fleet.orders
        assert (
            self.fleet.pilots.keys() == self.there.keys() | self.workers.keys() & self.asked.keys()
        )


TestRandomGrid = RandomGrid.TestCase
TestRandomGrid.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
