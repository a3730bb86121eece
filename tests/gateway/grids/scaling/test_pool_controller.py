"""The pool controller with a grid that does as it is told by the test, on trio's own mock clock."""

from dataclasses import replace
from itertools import pairwise

import pytest
import trio

from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig
from gateway.grids.contract import Capacity, FailureClass, GridFault, Limits, PilotState, Sighting
from gateway.grids.scaling.ordering import CALL_S, STOP_AGAIN_S, STOP_RETRY_S
from gateway.grids.scaling.pool_controller import FACTS_S, PoolController
from gateway.scheduler.broker import Broker
from policies.placement.asks import Preferences
from policies.placement.autoscaling import PAUSE_MIN_S, ScalingRules
from policies.tariffs import Tariff

UTC_S = 1_800_000_000.0


class ScriptedGrid:
    """Gives scripted answers, and notes the requests."""

    def __init__(self):
        self.calls = []  # (what, with what, when)
        self.shown = {}
        self.bounds = Limits()
        self.room = 100
        self.faults = {}  # by call
        self.slow_s = {}

    async def check(self):
        return await self._call("check", answer="a grid by script")

    async def limits(self):
        return await self._call("limits", answer=self.bounds)

    async def capacity(self, shape):
        return await self._call("capacity", shape, answer=Capacity(0, self.room - len(self.shown)))

    async def price_nanos(self):
        return None

    async def pilots(self):
        return await self._call("pilots", answer=list(self.shown.values()))

    async def start(self, order):
        await self._call("start", order)
        for name in order.names():
            self.shown.setdefault(name, Sighting(name, PilotState.QUEUED, f"id-{name}", 1))

    async def stop(self, names):
        await self._call("stop", names)

    async def _call(self, what, given=None, answer=None):
        self.calls.append((what, given, trio.current_time()))
        await trio.sleep(self.slow_s.get(what, 0.0))
        if what in self.faults:
            raise self.faults[what]
        return answer

    def asked(self, what):
        return [given for call, given, _ in self.calls if call == what]

    def asked_s(self, what):
        return [at_s for call, _, at_s in self.calls if call == what]


class Scene:
    def __init__(self, nursery, **rules):
        self.grid = ScriptedGrid()
        self.said = []
        self.broker = Broker({"burst": Tariff(0, "USD", "t")}, boot=1)
        scale = ScaleConfig(
            ScalingRules(**{"slots_max": 10, "slots_min": 3, "idle_s": 5.0} | rules)
        )
        self.pool = PoolConfig("burst", "processes", scale=scale)
        self.nursery = nursery
        self.live()

    def live(self):
        self.scope = trio.CancelScope()
        self.controller = PoolController(
            *(self.pool, self.grid, self.broker),
            expect=lambda event: self.broker.handle(event, trio.current_time()),
            utc_s=lambda: UTC_S + trio.current_time(),
            say=self.said.append,
            preferences=Preferences(),
        )
        self.nursery.start_soon(self._run)

    async def _run(self):
        with self.scope:
            await self.controller.run()


@pytest.fixture
def make(nursery):
    return lambda **rules: Scene(nursery, **rules)


async def test_a_trouble_is_said_once_and_its_end_too(make, autojump_clock):
    scene = make()
    scene.grid.faults["pilots"] = GridFault(FailureClass.AGAIN, "the controller restarts")
    await trio.sleep(60)
    assert len(scene.grid.asked("pilots")) > 5
    told = "pool burst: `pilots` of the grid failed: the controller restarts"
    assert scene.said.count(told) == 1
    assert scene.grid.asked("start") == []
    assert scene.controller.trouble == "the controller restarts"
    del scene.grid.faults["pilots"]
    await trio.sleep(10)
    assert scene.said[-2:] == [
        "pool burst: `pilots` of the grid works again",
        "pool burst: 3 pilots ordered (the minimum of 3 slots is kept)",
    ]
    assert sum(each.pilots for each in scene.grid.asked("start")) == 3


async def test_facts_are_asked_for_seldom(make, autojump_clock):
    scene = make(slots_min=0)
    await trio.sleep(10 * FACTS_S)
    for what in ("limits", "capacity"):
        assert 9 <= len(scene.grid.asked(what)) <= 11
    assert len(scene.grid.asked("check")) == 1


async def test_orders_are_as_small_and_as_seldom_as_the_grid_wants_them(make, autojump_clock):
    scene = make(slots_max=50, slots_min=30)
    scene.grid.bounds = Limits(pilots_max=4, orders_max=5)
    await trio.sleep(50)
    assert [each.pilots for each in scene.grid.asked("start")] == [4] * 5
    await trio.sleep(60)
    orders = [each.pilots for each in scene.grid.asked("start")]
    assert sum(orders) == 30, orders
    assert max(orders) == 4
    assert len(orders) <= 10, "five in a minute"


async def test_orders_have_new_names_in_each_life(make, autojump_clock):
    scene = make()
    await trio.sleep(10)
    scene.scope.cancel()
    scene.grid.shown.clear()
    await trio.sleep(1)
    scene.live()
    await trio.sleep(10)
    first, second = scene.grid.asked("start")
    assert first.name != second.name
    assert not set(first.names()) & set(second.names())


async def test_what_a_former_life_had_started_is_taken_up(make, autojump_clock):
    scene = make()
    await trio.sleep(10)
    scene.scope.cancel()
    scene.live()
    await trio.sleep(100)
    assert len(scene.grid.asked("start")) == 1


async def test_a_stop_that_does_nothing_is_repeated_once_a_minute(make, autojump_clock):
    scene = make()
    await trio.sleep(5)
    scene.controller.take_in(replace(scene.pool, scale=ScaleConfig(ScalingRules(slots_max=10))))
    await trio.sleep(3 * STOP_AGAIN_S)
    told_s = scene.grid.asked_s("stop")
    assert len(told_s) == 3
    assert all(b - a >= STOP_AGAIN_S for a, b in pairwise(told_s))
    assert {frozenset(each) for each in scene.grid.asked("stop")} == {frozenset(scene.grid.shown)}


async def test_a_stop_that_fails_is_repeated_soon(make, autojump_clock):
    scene = make()
    await trio.sleep(5)
    scene.grid.faults["stop"] = GridFault(FailureClass.AGAIN, "not now")
    scene.controller.take_in(replace(scene.pool, scale=ScaleConfig(ScalingRules(slots_max=10))))
    await trio.sleep(3.5 * STOP_RETRY_S)
    assert len(scene.grid.asked("stop")) == 4
    assert scene.said.count("pool burst: `stop` of the grid failed: not now") == 1


async def test_a_start_whose_answer_is_lost_is_made_again_by_the_same_name(make, autojump_clock):
    scene = make()
    scene.grid.slow_s["start"] = 2 * CALL_S
    await trio.sleep(CALL_S + 30)
    orders = scene.grid.asked("start")
    assert len(orders) == 2
    assert orders[0] == orders[1]


async def test_who_is_not_wanted_any_more_is_stopped_once_its_order_was_made(make, autojump_clock):
    """Told before, the grid would find nothing to stop, start them, and bill them for a minute."""
    scene = make()
    scene.grid.slow_s["start"] = 10.0
    await trio.sleep(2)
    scene.controller.take_in(replace(scene.pool, scale=ScaleConfig(ScalingRules(slots_max=10))))
    await trio.sleep(7)
    assert scene.grid.asked("stop") == []
    await trio.sleep(3)
    assert {name for names in scene.grid.asked("stop") for name in names} == set(scene.grid.shown)


async def test_after_a_refusal_nothing_is_started_for_a_while(make, autojump_clock):
    scene = make()
    scene.grid.faults["start"] = GridFault(FailureClass.ELSEWHERE, "full")
    await trio.sleep(60)
    started_s = scene.grid.asked_s("start")
    rests = [b - a for a, b in pairwise(started_s)]
    assert rests == pytest.approx([10, 20], abs=1.5)
    assert scene.controller.view()["failed"] == "full"


async def test_a_grid_that_is_full_is_asked_again_and_nothing_has_failed(make, autojump_clock):
    scene = make()
    scene.grid.faults["start"] = GridFault(
        FailureClass.ELSEWHERE, "a limit is reached", is_full=True
    )
    await trio.sleep(5 * FACTS_S)
    started_s = scene.grid.asked_s("start")
    assert [b - a for a, b in pairwise(started_s)] == pytest.approx([FACTS_S] * 4, abs=1.5)
    view = scene.controller.view()
    assert (view["failures"], view["failed"]) == (0, "a limit is reached")
    assert "the grid accepts 0 more pilots now" in view["why"]
    assert len([each for each in scene.said if "a limit is reached" in each]) == 1, "said once"
    scene.grid.faults.clear()
    await trio.sleep(2 * FACTS_S)
    assert scene.grid.shown


async def test_no_more_is_ordered_than_the_grid_says_it_takes(make, autojump_clock):
    scene = make(slots_max=50, slots_min=30)
    scene.grid.bounds = Limits(pilots_max=4, pilots_left=6)
    await trio.sleep(FACTS_S / 2)
    assert sorted(each.pilots for each in scene.grid.asked("start")) == [2, 4]
    scene.grid.bounds = Limits(pilots_max=4, pilots_left=0)
    await trio.sleep(2 * FACTS_S)
    assert len(scene.grid.asked("start")) == 2


async def test_a_slow_grid_does_not_slow_the_rounds(make, autojump_clock):
    """A call takes seconds, and that is no time that the gateway has spent on it."""
    scene = make()
    scene.grid.slow_s["pilots"] = 3.0
    await trio.sleep(60)
    looked_s = scene.grid.asked_s("pilots")
    assert max(b - a for a, b in pairwise(looked_s)) < 5


async def test_other_rules_are_taken_in(make, autojump_clock):
    scene = make(slots_min=0)
    await trio.sleep(10)
    assert scene.grid.asked("start") == []
    scene.controller.take_in(
        replace(scene.pool, scale=ScaleConfig(ScalingRules(slots_max=10, slots_min=2)))
    )
    await trio.sleep(2)
    assert [each.pilots for each in scene.grid.asked("start")] == [2]


async def test_what_can_not_work_is_tried_again_when_somebody_has_acted(make, autojump_clock):
    scene = make()
    scene.grid.faults["start"] = GridFault(FailureClass.NEVER, "no partition named fast")
    await trio.sleep(1_000)
    assert len(scene.grid.asked("start")) == 1
    [said] = [each for each in scene.said if "no pilot was started" in each]
    assert "no partition named fast; no pilots are started until `gridfed reload`" in said
    assert scene.controller.view()["barred"] == "no partition named fast"
    scene.controller.take_in(scene.pool)
    await trio.sleep(100)
    assert len(scene.grid.asked("start")) == 2
    del scene.grid.faults["start"]
    assert (await scene.controller.probe({}, 30.0))["failed"] is None
    await trio.sleep(10)
    assert sum(each.pilots for each in scene.grid.asked("start")[2:]) == 3, (
        "the probe is one of them"
    )


async def test_no_more_is_ordered_than_the_grid_says_it_has(make, autojump_clock):
    scene = make(slots_min=8)
    scene.grid.room = 5
    await trio.sleep(3 * FACTS_S)
    assert sum(each.pilots for each in scene.grid.asked("start")) == 5
    assert "the grid can provide 0 slots more now" in scene.controller.view()["why"][-1]
    scene.grid.room = 7
    await trio.sleep(FACTS_S + 1)
    assert sum(each.pilots for each in scene.grid.asked("start")) == 7
    for name in list(scene.grid.shown)[:3]:
        del scene.grid.shown[name]
    asked = len(scene.grid.asked("capacity"))
    await trio.sleep(scene.pool.scale.look_s + PAUSE_MIN_S + 1)
    assert sum(each.pilots for each in scene.grid.asked("start")) == 10
    assert len(scene.grid.asked("capacity")) == asked, "what has ended is there again before that"


async def test_what_may_be_spent_in_an_hour_bounds_what_is_ordered(make, autojump_clock):
    scene = make(slots_min=8, hourly_nanos=350)
    scene.broker.tariffs["burst"] = Tariff(100, "USD", "t")
    scene.controller.take_in(replace(scene.pool, scale=replace(scene.pool.scale, currency="USD")))
    await trio.sleep(20)
    assert sum(each.pilots for each in scene.grid.asked("start")) == 3
    assert (
        "the limit is 3 slots, as more would exceed hourly_cost"
        in scene.controller.view()["why"][0]
    )


async def test_what_is_ordered_let_go_and_found_again_is_said_and_not_often(make, autojump_clock):
    scene = make()
    await trio.sleep(5)
    scene.controller.take_in(
        replace(scene.pool, scale=ScaleConfig(ScalingRules(slots_max=10, slots_min=1)))
    )
    await trio.sleep(1)
    scene.controller.take_in(replace(scene.pool, scale=ScaleConfig(ScalingRules(slots_max=10))))
    await trio.sleep(20)
    scene.scope.cancel()
    scene.live()
    await trio.sleep(5)
    assert [each for each in scene.said if "script" not in each] == [
        "pool burst: 3 pilots ordered (the minimum of 3 slots is kept)",
        "pool burst: 3 pilots released (no work: slots that are idle for 30 s are released)",
        "pool burst: found the pilots of an earlier run: 3 queued",
    ]
