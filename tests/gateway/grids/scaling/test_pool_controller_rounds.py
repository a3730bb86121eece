"""A pool controller's rounds, one by one: a grid that is a list, and a site of the town as its
broker.
"""

from collections.abc import Collection
from dataclasses import replace

import pytest
import trio
from support.pure import town
from support.pure.town import CHEAP, UTC_S, Town

from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig
from gateway.grids.contract import (
    Capacity,
    FailureClass,
    GridFault,
    Limits,
    Order,
    PilotState,
    Provisioning,
    Sighting,
)
from gateway.grids.scaling.ordering import STOP_AGAIN_S
from gateway.grids.scaling.pool_controller import SETTLE_S, START_STEP, PoolController
from gateway.scheduler.model import events
from policies.placement.asks import Preferences
from policies.placement.autoscaling import PilotStage, ScalingRules
from policies.placement.placement import CapacityOffer

POOL = "local"
SCALE = ScaleConfig(ScalingRules(slots_max=4, idle_s=10.0), start_s=10.0, look_s=1.0)


class ListedGrid(Provisioning):
    """A grid that gives all that is ordered, as `stand`, and stops on request.

    `out`: pilots on hosts that are out of service, and why; a fault is raised.
    """

    def __init__(self) -> None:
        self.out: dict[str, str] | GridFault = {}
        self.state = PilotState.QUEUED
        self.shown: dict[str, Sighting] = {}
        self.stopped: list[str] = []

    async def check(self) -> str:
        return "a list"

    async def limits(self) -> Limits:
        return Limits()

    async def capacity(self, shape: object) -> Capacity:
        slots = 4 - sum(each.slots for each in self.shown.values())
        return Capacity(slots, slots)

    async def pilots(self) -> list[Sighting]:
        return list(self.shown.values())

    async def leaving(self) -> dict[str, str]:
        if isinstance(self.out, GridFault):
            raise self.out
        return dict(self.out)

    async def start(self, order: Order) -> None:
        for name in order.names():
            self.shown[name] = Sighting(name, self.state, name, order.shape.slots)

    async def stop(self, names: Collection[str]) -> None:
        self.stopped += names
        for name in names:
            self.shown.pop(name, None)


class World:
    """A pool controller, its grid and its site; time passes when it is told to."""

    def __init__(self, nursery: trio.Nursery, scale: ScaleConfig = SCALE) -> None:
        self.town = Town()
        self.site = self.town.build("paris", CHEAP, 0)
        self.broker = self.site.broker
        self.grid = ListedGrid()
        self.pool = PoolConfig(POOL, "listed", scale=scale)
        self.inbox: list[events.Event] = []
        self.said: list[str] = []
        self.nursery = nursery
        self.controller = self.begin()

    def begin(self) -> PoolController:
        """A new life of the pool controller."""
        controller = PoolController(
            *(self.pool, self.grid, self.broker),
            expect=self.inbox.append,
            utc_s=lambda: UTC_S + self.town.now_s,
            say=self.said.append,
            preferences=Preferences(),
        )
        controller._nursery = self.nursery
        return controller

    def hear(self) -> None:
        """The broker takes the pool controller's messages."""
        waiting, self.inbox[:] = list(self.inbox), []
        self.site.do(*waiting)

    async def round(self, more_s: float = 1.0) -> None:
        self.town.now_s += more_s
        if self.controller._ahead_s is not None:
            self.controller._ahead_s += more_s  # both clocks go on: none was set
        await self.controller._round()
        await trio.testing.wait_all_tasks_blocked()

    def come(self, name: str, slots: int = 1, host: str = "", **tags: bool) -> int:
        """A pilot's worker dials."""
        self.grid.shown[name] = replace(self.grid.shown[name], state=PilotState.RUNNING)
        self.site.workers += 1
        handle = self.site.workers
        self.site.do(events.WorkerJoined(handle, name, POOL, slots, tags, "3.11", host=host))
        return handle

    @property
    def stages(self) -> list[PilotStage]:
        return [each.stage for each in self.controller.fleet.pilots.values()]


@pytest.fixture
async def world(nursery):
    return World(nursery)


async def test_a_pilot_that_is_tried_is_there_until_it_has_done_a_task(world):
    await world.round()
    found = await world.controller.probe({"probe": True}, 300.0)
    assert found["failed"] is None
    for _ in range(3):  # in the grid's queue, with nothing to do
        await world.round(50.0)
    handle = world.come(found["pilot"])
    await world.round(50.0)
    assert (world.stages, world.grid.stopped) == ([PilotStage.READY], [])
    world.broker.workers[handle].tasks_done = 1
    for _ in range(3):
        await world.round(11.0)
        world.hear()
    assert world.grid.stopped == [found["pilot"]]


async def test_a_pilot_that_is_tried_and_never_comes_is_let_go(world):
    await world.round()
    found = await world.controller.probe({}, 30.0)
    await world.round(91.0)
    assert world.grid.stopped == [found["pilot"]]


@pytest.mark.parametrize(
    ("scale", "why"),
    [
        pytest.param(replace(SCALE, dry_run=True), "dry_run is set", id="dry run"),
        pytest.param(
            replace(SCALE, rules=replace(SCALE.rules, slots_min=4)),
            "4 of at most 4 slots exist",
            id="full",
        ),
    ],
)
async def test_nothing_is_tried_beyond_what_the_owner_allows(nursery, scale, why):
    world = World(nursery, scale)
    await world.round()
    there = dict(world.grid.shown)
    what, text = (await world.controller.probe({}, 30.0))["failed"]
    assert (what, why in text) == ("start", True), text
    assert world.grid.shown == there


async def test_who_is_let_go_is_stopped_only_once_the_broker_knows(world):
    """In the moment in which it is decided, an idle worker may be given something."""
    world.controller.take_in(
        replace(world.pool, scale=replace(SCALE, rules=ScalingRules(4, slots_min=1)))
    )
    await world.round()
    [name] = world.grid.shown
    handle = world.come(name)
    await world.round()
    world.controller.take_in(world.pool)
    await world.round(11.0)
    await world.round(11.0)
    assert world.stages == [PilotStage.DRAINING]
    assert world.grid.stopped == []
    world.hear()
    assert world.broker.workers[handle].draining
    await world.round()
    assert world.grid.stopped == [name]


@pytest.mark.parametrize("how", ["it dials again", "the grid takes it"])
async def test_who_ends_gets_nothing_more(world, how):
    world.controller.take_in(
        replace(world.pool, scale=replace(SCALE, rules=ScalingRules(4, slots_min=1)))
    )
    await world.round()
    [name] = world.grid.shown
    handle = world.come(name)
    await world.round()
    if how == "it dials again":
        world.controller.fleet.stopped([name], UTC_S + world.town.now_s)
        world.site.do(events.WorkerGone(handle, "its line broke"))
        handle = world.come(name)
    else:
        world.grid.shown[name] = replace(world.grid.shown[name], state=PilotState.ENDING)
    await world.round()
    world.hear()
    assert world.broker.workers[handle].draining


async def test_what_a_former_life_had_queued_waits_until_work_is_back(world):
    await world.grid.start(Order("old", 2, world.controller._ordering.shape))
    world.controller = world.begin()
    await world.round()
    await world.round(SETTLE_S - 1)
    assert world.grid.stopped == []
    await world.round(2.0)
    assert sorted(world.grid.stopped) == ["old.0", "old.1"]


async def test_a_stop_is_told_again_where_it_did_not_help(world):
    await world.round()
    found = await world.controller.probe({}, 0.0)
    await world.round(61.0)
    world.grid.shown[found["pilot"]] = Sighting(found["pilot"], PilotState.RUNNING, "x", 1)
    await world.round(STOP_AGAIN_S - 1)
    await world.round(2.0)
    assert world.grid.stopped == [found["pilot"]] * 2


async def test_slots_on_their_way_are_still_slots_that_there_will_be(world):
    """The grid has less to give by the slots it gives: a plan must not turn elsewhere for that."""
    world.controller.take_in(
        replace(world.pool, scale=replace(SCALE, rules=ScalingRules(4, slots_min=3)))
    )
    await world.round()
    world.controller._asked_at_s = float("-inf")
    await world.round()
    world.hear()
    assert world.broker.growth[POOL].slots == 4


async def test_a_gpu_that_is_named_is_none_that_is_counted(nursery):
    world = World(nursery)
    world.controller.take_in(replace(world.pool, tags={"gpu": "a100"}))
    assert world.controller._ordering.shape.gpus == 0
    world.controller.take_in(replace(world.pool, tags={"gpu": 2}))
    assert world.controller._ordering.shape.gpus == 2


def ask_for_slots(world, slots_min):
    """The pool's owner wants so many at least."""
    world.controller.take_in(
        replace(world.pool, scale=replace(SCALE, rules=ScalingRules(4, slots_min)))
    )


@pytest.mark.parametrize("whose", ["ours", "the grid's", "the worker's own", "an operator's too"])
async def test_who_still_works_gets_work_again_when_the_drain_was_ours(world, whose):
    ask_for_slots(world, 1)
    await world.round()
    [name] = world.grid.shown
    handle = world.come(name)
    await world.round()
    world.broker.workers[handle].in_flight = 1  # it is at something long
    if whose == "the worker's own":
        world.site.do(events.DrainAsked(handle, on=True, by=events.Drainer.ITSELF))
    world.controller.fleet.stopped([name], UTC_S + world.town.now_s)
    ask_for_slots(world, 0)
    world.controller._drain(world.controller._workers(), [])
    world.hear()
    assert world.broker.workers[handle].draining
    if whose == "an operator's too":
        world.site.do(events.DrainAsked(handle, on=True))
    if whose == "the grid's":
        world.grid.shown[name] = replace(world.grid.shown[name], state=PilotState.ENDING)
    await world.round()
    ask_for_slots(world, 1)
    await world.round()
    world.hear()
    await world.round()
    is_back = whose == "ours"
    assert world.broker.workers[handle].draining is not is_back
    assert len(world.grid.shown) == (1 if is_back else 2)
    assert world.controller.fleet.pilots[name].stage is (
        PilotStage.READY if is_back else PilotStage.DRAINING
    )


async def test_once_a_pilot_has_come_it_is_believed_before_the_table(world):
    """The table promises a tag that no host has: one is started for it, and none after that."""
    world.broker.offers[f"pool {POOL}"] = CapacityOffer(
        f"pool {POOL}", POOL, {"fast": True}, "3.11", "EUR"
    )
    world.controller = world.begin()
    world.site.do(
        events.ClientJoined(1, "ann"),
        events.JobOpened(1, "j", town.spec(tags={"fast": True}, pool=POOL)),
        events.TasksArrived(1, "j", 0, [b"1"]),
    )
    await world.round()
    [name] = world.grid.shown
    handle = world.come(name)
    await world.round()
    assert world.controller.work.stranded == 1
    [note] = [each for each in world.inbox if isinstance(each, events.JobNoted)]
    assert (note.job, "has no tag fast" in note.text) == ("j", True)
    assert [each for each in world.said if "has no tag fast" in each] == world.said[-1:]
    for _ in range(3):
        await world.round(11.0)
        world.hear()
    assert world.grid.stopped == [name]
    world.site.do(events.WorkerGone(handle, "stopped", is_orderly=True))
    await world.round(100.0)
    assert (world.controller.fleet.pilots, world.grid.shown) == ({}, {}), "nor when it is gone"
    world.controller.take_in(world.pool)
    await world.round()
    assert len(world.grid.shown) == 1, "somebody may have put it right"


async def test_a_worker_is_known_by_its_grids_name_when_it_comes(world):
    ask_for_slots(world, 1)
    await world.round()
    await world.round(0.1)  # sooner than it would look of its own accord
    world.hear()
    [name] = world.grid.shown
    handle = world.come(name)
    assert world.broker.workers[handle].title == f"{name} = {name}"


async def test_that_a_queue_is_a_moment_shorter_is_no_news(world, monkeypatch):
    begins_at_s = UTC_S + 600.0

    async def capacity(shape):
        return Capacity(0, 4, begins_at_s)

    monkeypatch.setattr(world.grid, "capacity", capacity)
    told = []
    for _ in range(2400):
        await world.round(0.25)
        told += [each.growth for each in world.inbox if isinstance(each, events.PoolGrows)]
        world.hear()
        left_s = max(0.0, begins_at_s - UTC_S - world.town.now_s)
        known_s = world.broker.growth[POOL].start_s
        assert known_s == pytest.approx(left_s + SCALE.start_s, rel=START_STEP + 0.01)
    assert len(told) <= 80


FAN = "node n1 is drained (a fan is broken)"


async def with_one_at_work(world):
    """A pilot whose worker runs a task; its name and the worker's handle."""
    ask_for_slots(world, 1)
    await world.round()
    [name] = world.grid.shown
    handle = world.come(name)
    await world.round()
    world.broker.workers[handle].in_flight = 1
    return name, handle


async def test_a_pilot_on_a_drained_host_ends_its_task_and_is_stopped(world):
    name, handle = await with_one_at_work(world)
    world.grid.out = {name: FAN, "unknown.0": FAN}
    await world.round()
    world.hear()
    assert world.broker.workers[handle].draining, "it is given tasks"
    assert world.grid.stopped == [], "its task was ended"
    await world.round()
    [other] = world.grid.shown.keys() - {name}
    assert other, "another takes its place"
    assert any(FAN in each for each in world.said)
    assert any(FAN in each for each in world.controller.view()["why"])
    world.broker.workers[handle].in_flight = 0
    await world.round()
    await world.round()
    assert world.grid.stopped == [name]
    await world.round()
    assert world.controller.fleet.failures == 0, "its end is no failed start"
    assert sum(FAN in each for each in world.said) == 1, "it is reported once"


async def test_a_pilot_works_again_once_its_host_is_back_in_service(world):
    name, handle = await with_one_at_work(world)
    world.grid.out = {name: FAN}
    await world.round()
    world.hear()
    assert world.broker.workers[handle].draining
    world.grid.out = GridFault(FailureClass.AGAIN, "no answer")
    await world.round()
    await world.round()
    world.hear()
    assert world.broker.workers[handle].draining, "no answer is no news"
    world.grid.out = {}
    await world.round()
    world.hear()
    assert not world.broker.workers[handle].draining
    await world.round()
    assert (world.stages[0], name in world.grid.stopped) == (PilotStage.READY, False)


async def test_a_pilot_that_was_stopped_for_its_host_does_not_work_again(world):
    name, handle = await with_one_at_work(world)
    world.broker.workers[handle].in_flight = 0
    world.grid.out = {name: FAN}
    await world.round()
    world.hear()
    shown = world.grid.shown[name]
    await world.round()
    assert world.grid.stopped == [name]
    world.grid.shown[name] = shown  # it takes a moment to end
    world.grid.out = {}
    await world.round()
    world.hear()
    assert world.broker.workers[handle].draining


async def test_what_another_drained_stays_so_when_its_host_is_back(world):
    name, handle = await with_one_at_work(world)
    world.site.do(events.DrainAsked(handle, on=True))
    world.grid.out = {name: FAN}
    await world.round()
    world.hear()
    world.grid.out = {}
    await world.round()
    world.hear()
    assert world.broker.workers[handle].drained_by == {events.Drainer.OPERATOR}


def drain_host(world, *, on):
    world.site.do(events.DrainOrdered(events.DrainKind.HOST, "n1", on))


async def test_a_pilot_of_a_host_that_an_operator_drains_is_stopped_once_it_is_idle(world):
    ask_for_slots(world, 1)
    await world.round()
    [name] = world.grid.shown
    handle = world.come(name, host="n1.example.org")
    await world.round()
    world.broker.workers[handle].in_flight = 1
    drain_host(world, on=True)
    assert world.broker.workers[handle].draining
    await world.round()
    await world.round()
    assert (world.grid.stopped, len(world.grid.shown)) == ([], 2), "another is started meanwhile"
    world.broker.workers[handle].in_flight = 0
    await world.round()
    await world.round()
    assert world.grid.stopped == [name]


async def test_pilots_that_come_to_a_drained_host_again_and_again_are_waited_with(world):
    drain_host(world, on=True)
    ask_for_slots(world, 1)
    await world.round()
    [name] = world.grid.shown
    handle = world.come(name, host="n1")
    for _ in range(3):
        await world.round()
        world.hear()
    assert world.grid.stopped == [name]
    world.site.do(events.WorkerGone(handle, "stopped", is_orderly=True))
    await world.round()
    assert world.controller.fleet.failures == 1
    assert world.controller.fleet.why.endswith("an operator drains its host")
    [other] = world.grid.shown  # it was ordered while the first one ended
    world.come(other, host="n1")
    for _ in range(5):
        await world.round()
        world.hear()
    assert world.grid.shown == {}, "another is started at once"


async def test_a_pilot_of_a_host_that_is_resumed_works_again(world):
    name, handle = await with_one_at_work(world)
    world.site.do(events.DrainOrdered(events.DrainKind.WORKER, name, on=True))
    await world.round()
    assert world.stages[0] is PilotStage.DRAINING
    world.site.do(events.DrainOrdered(events.DrainKind.WORKER, name, on=False))
    await world.round()
    world.hear()
    assert world.stages[0] is PilotStage.READY
    assert not world.broker.workers[handle].draining


async def test_a_site_that_stops_does_not_stop_its_pilots(world):
    """It drains its workers, and its next run finds them."""
    _, handle = await with_one_at_work(world)
    world.site.do(events.DrainAsked(handle, on=True))
    world.broker.workers[handle].in_flight = 0
    for _ in range(3):
        await world.round()
        world.hear()
    assert world.grid.stopped == []
