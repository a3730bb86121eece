"""A pool controller whose grid answers nonsense, or whose clock is set; probes and strangers."""

from math import nan

import pytest
import trio
from trio.testing import MockClock

from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig
from gateway.grids.contract import Capacity, FailureClass, GridFault, Limits, PilotState, Sighting
from gateway.grids.scaling.pool_controller import FACTS_S, SETTLE_S, STRANGER_S, PoolController
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from policies.placement.asks import Preferences
from policies.placement.autoscaling import ScalingRules
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff

EPOCH_S = 1_790_000_000.0


class DumbGrid:
    """Gives scripted answers, and starts all orders."""

    def __init__(self):
        self.answers = {"check": "a grid", "limits": Limits(), "capacity": Capacity(9)}
        self.started, self.stopped = [], []
        self.shown = []
        self.stop_fault = None

    async def check(self):
        return self.answers["check"]

    async def limits(self):
        return self.answers["limits"]

    async def capacity(self, _shape):
        return self.answers["capacity"]

    async def price_nanos(self):
        return self.answers.get("prices")

    async def pilots(self):
        return self.answers.get("pilots", list(self.shown))

    async def start(self, order):
        self.started.append((trio.current_time(), order))
        self.shown += [
            Sighting(name, PilotState.QUEUED, name, order.shape.slots) for name in order.names()
        ]

    async def stop(self, names):
        self.stopped.append((trio.current_time(), frozenset(names)))
        if self.stop_fault is not None:
            raise self.stop_fault


class Scene:
    """A pool controller on a dumb grid, in virtual time, by a clock that can be set."""

    def __init__(self, rules, **scale):
        self.grid, self.said, self.set_by_s = DumbGrid(), [], 0.0
        self.expected = []
        pool = PoolConfig("cloud", "processes", scale=ScaleConfig(rules, start_s=1.0, **scale))
        offer = CapacityOffer("pool cloud", "cloud", {}, "3.11", "USD")
        self.pool = pool
        self.broker = Broker({"cloud": Tariff(40_000_000, "USD", "1")}, {offer.name: offer}, boot=1)

    def utc_s(self):
        return EPOCH_S + trio.current_time() + self.set_by_s

    def controller(self):
        return PoolController(
            *(self.pool, self.grid, self.broker),
            expect=self.expected.append,
            utc_s=self.utc_s,
            say=self.said.append,
            preferences=Preferences(),
        )


def play(scene, act):
    """Let the pool controller work while `act(scene, controller)` runs."""

    async def run():
        controller = scene.controller()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(controller.run)
            await act(scene, controller)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=MockClock(autojump_threshold=0))


def pilot(**changes):
    given = {"name": "a.0", "state": PilotState.QUEUED, "grid_id": "1", "slots": 1} | changes
    return Sighting(**given)


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        ("pilots", None),
        ("pilots", {"a.0": "running"}),
        ("pilots", ["a.0"]),
        ("pilots", [pilot(name=7)]),
        ("pilots", [pilot(name="a" * 1_000)]),
        ("pilots", [pilot(name="a\n.0")]),
        ("pilots", [pilot(state="running")]),
        ("pilots", [pilot(slots=-5)]),
        ("pilots", [pilot(slots="5")]),
        ("pilots", [pilot(ends_at_s=nan)]),
        ("pilots", [pilot(paid_at_s="now")]),
        ("limits", None),
        ("limits", Limits(pilots_max=0)),
        ("limits", Limits(orders_max=1.5)),
        ("limits", Limits(limit_s=nan)),
        ("limits", Limits(limit_s=-60.0)),
        ("limits", Limits(pilots_left=-1)),
        ("capacity", 7),
        ("capacity", Capacity(-1)),
        ("capacity", Capacity(1, "many")),
        ("capacity", Capacity(0, 5, nan)),
        ("check", None),
        ("prices", 7),
        ("prices", (-1, "USD")),
        ("prices", (10**30, "USD")),
        ("prices", (1, "dollars")),
    ],
)
def test_what_is_no_answer_is_said_and_the_site_goes_on(what, answer):
    async def act(scene, controller):
        scene.grid.answers[what] = answer
        await trio.sleep(10.0)
        assert any(
            f"`{what}` of the grid failed: the answer of the adapter is invalid" in s
            for s in scene.said
        )
        assert bool(scene.grid.started) == (what != "pilots"), "nothing is known of what is there"
        assert controller.view()["max"] == 2

    play(Scene(ScalingRules(slots_max=2, slots_min=2)), act)


def test_a_grid_that_can_not_stop_pilots_is_not_told_all_the_time():
    async def act(scene, controller):
        scene.grid.stop_fault = GridFault(FailureClass.NEVER, "no permission")
        scene.grid.shown = [pilot()]
        await trio.sleep(SETTLE_S + 61.0)  # what a former life had queued is kept so long
        assert 5 <= len(scene.grid.stopped) <= 8, scene.grid.stopped

    play(Scene(ScalingRules(slots_max=2)), act)


@pytest.mark.parametrize("by_s", [-7_200.0, 7_200.0])
def test_a_clock_that_is_set_neither_hastens_nor_holds_up(by_s):
    async def act(scene, controller):
        scene.grid.start = refuse
        await trio.sleep(5.0)
        assert controller.fleet.failures == 1
        scene.set_by_s = by_s
        await trio.sleep(1.0)
        assert controller.fleet.failures == 1, "the pause after a failure goes on"
        await trio.sleep(30.0)
        assert controller.fleet.failures > 1, "and ends"

    async def refuse(_order):
        raise GridFault(FailureClass.AGAIN, "not now")

    play(Scene(ScalingRules(slots_max=1, slots_min=1)), act)


def test_a_worker_that_the_grid_does_not_show_is_let_go():
    """A pilot that was started while our state lay elsewhere: no other process would end it."""

    async def act(scene, controller):
        scene.grid.shown = [pilot(state=PilotState.RUNNING)]
        for handle, name in ((5, "a.0"), (6, "old.0")):
            joined = events.WorkerJoined(handle, name, "cloud", 1, {}, "3.11")
            scene.broker.handle(joined, scene.utc_s())
        await trio.sleep(STRANGER_S - 5.0)
        assert events.DrainAsked(6, on=True, by=events.Drainer.CONTROLLER) not in scene.expected
        await trio.sleep(10.0)
        assert (
            scene.expected.count(events.DrainAsked(6, on=True, by=events.Drainer.CONTROLLER)) == 1
        )
        assert events.DrainAsked(5, on=True, by=events.Drainer.CONTROLLER) not in scene.expected

    play(Scene(ScalingRules(slots_max=2, slots_min=1)), act)


def test_what_begins_only_later_by_the_grids_word_is_a_later_start_for_who_plans():
    async def act(scene, controller):
        def planned_s():
            [*_, told] = [each for each in scene.expected if isinstance(each, events.PoolGrows)]
            return told.growth.start_s

        scene.grid.answers["capacity"] = Capacity(0, 5, scene.utc_s() + 600.0)
        await trio.sleep(10.0)
        assert 588.0 <= planned_s() - controller.fleet.start_s <= 592.0
        scene.grid.answers["capacity"] = Capacity(1, 5, scene.utc_s() + 600.0)
        await trio.sleep(FACTS_S + 1.0)
        assert planned_s() == controller.fleet.start_s, "one would begin at once"

    play(Scene(ScalingRules(slots_max=5)), act)


def test_a_probe_waits_in_the_grids_queue_though_there_is_no_work():
    async def act(scene, controller):
        await trio.sleep(1.0)
        found = await controller.probe({"probe-1": True}, 30.0)
        assert found["failed"] is None
        await trio.sleep(60.0)
        assert scene.grid.stopped == []

    play(Scene(ScalingRules(slots_max=2)), act)


def test_a_probe_keeps_its_owners_limits():
    async def full(scene, controller):
        await trio.sleep(1.0)
        assert (await controller.probe({}, 30.0))["failed"] is None
        assert "1 of at most 1 slots exist" in (await controller.probe({}, 30.0))["failed"][1]

    async def dry(scene, controller):
        assert "dry_run" in (await controller.probe({}, 30.0))["failed"][1]
        assert scene.grid.started == []

    play(Scene(ScalingRules(slots_max=1)), full)
    play(Scene(ScalingRules(slots_max=1), dry_run=True), dry)
