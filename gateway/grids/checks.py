"""The contract suite for provisioning grids: for ours and for third parties'.

Each check is a plain async function; it runs on a `Bench`, and raises an AssertionError that names
the broken promise. With pytest:

    @pytest.mark.parametrize("check", checks.CHECKS, ids=checks.name_of)
    async def test_mine(check):
        async with make_bench() as bench:
            await checks.run(check, bench)

or all of them, one after another, by `await check_grid(make_bench)` under trio.

A bench opens a grid, and, as far as it can, observes the grid independently of the adapter, and
injects faults. Promises beyond its abilities are not checked: `run` raises `NotChecked`.

Each check runs with a fake gateway that pilots dial. Afterwards everything is stopped, no leftovers
may exist, and the secret must not have appeared in any text.
"""

import math
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

import trio

from federation.clocks import UtcS
from federation.words import duration_text
from gateway.grids.contract import (
    Capacity,
    FailureClass,
    Limits,
    Maintained,
    PilotState,
    Provisioning,
)
from gateway.grids.fake_gateway import Arrival
from gateway.grids.scene import SECRETS, Bench, NotChecked, Scene, alive, fault_of, set_scene

__all__ = ["CHECKS", "Bench", "Check", "Maker", "NotChecked", "check_grid", "name_of", "run"]

SHORT_DIAL_S: Final = 1.0

Check = Callable[[Scene], Awaitable[None]]
Maker = Callable[[], AbstractAsyncContextManager[Bench]]

# --- the promises --------------------------------------------------------------------------------


async def check_names_itself(scene: Scene) -> None:
    """check() names the grid; limits() and capacity() have sane values."""
    grid = scene.open()
    text = await grid.check()
    assert scene.bench.called.lower() in text.lower(), f"check() does not name the grid: {text!r}"
    scene.check_text(text, "what check() says")
    limits = await grid.limits()
    assert isinstance(limits, Limits), f"limits() are {limits}"
    assert limits.pilots_max >= 1, f"limits() allow no pilot in an order: {limits}"
    assert limits.orders_max >= 1, f"limits() allow no order: {limits}"
    assert limits.limit_s is None or limits.limit_s > 0, f"limits() allow no run time: {limits}"
    capacity = await grid.capacity(scene.bench.shape)
    assert isinstance(capacity, Capacity), f"capacity() is {capacity}"
    assert capacity.slots_now >= 0, f"capacity() is below zero: {capacity}"
    most = math.inf if capacity.slots_max is None else capacity.slots_max
    assert most >= capacity.slots_now, f"capacity() has more slots now than at most: {capacity}"
    assert not await scene.look(grid), "pilots() of a new mark are not empty"


async def check_life(scene: Scene) -> None:
    """An order starts its pilots; they come, work, and can all be stopped."""
    grid, order = scene.open(), scene.order()
    await grid.start(order)
    shown = await scene.until_at_work(grid, order.names())
    assert shown.keys() == set(order.names()), (
        f"pilots() shows pilots that were not ordered: {shown}"
    )
    assert len({each.grid_id for each in shown.values()}) == len(shown), (
        f"two pilots have the same grid_id: {shown}"
    )
    for name, each in shown.items():
        slots = order.shape.slots
        assert each.slots == slots, f"{name} is shown with {each.slots} slots, not {slots}"
        is_paid = each.paid_at_s is None or each.paid_at_s <= UtcS(time.time() + 1)
        assert is_paid, f"{name} runs, but is paid from {each.paid_at_s} on"
    came = scene.check_arrivals(order)
    assert len(came) == order.pilots, f"workers came that were not ordered: {came}"
    await _check_environment(scene, came)
    first, *rest = order.names()
    await grid.stop([first])
    shown = await scene.until_gone(grid, [first])
    assert alive(shown).keys() == set(rest), f"stop() of {first} left {alive(shown).keys()}"
    await grid.stop([first])
    await grid.stop(order.names())
    await grid.stop(order.names())
    await scene.until_gone(grid, order.names())
    await scene.until_nothing_is_left()


async def _check_environment(scene: Scene, came: Iterable[Arrival]) -> None:
    """Tasks see Launch.environment without its secrets; other users see none of it."""
    for each in came:
        for name, value in scene.launch.environment.items():
            with trio.move_on_after(scene.bench.wait_s) as scope:
                found = await scene.gateway.getenv(each.name, name)
            assert not scope.cancelled_caught, f"{each.name} ran no task"
            if name in SECRETS:  # the pilot has shown that it has them
                assert value.encode() not in found, f"a task of {each.name} sees {name}"
                continue
            assert value.encode() in found, f"{each.name} has {name} = {found!r}, not {value!r}"
    for text in await scene.bench.texts():
        scene.check_text(text, f"text that others can read: {text[:2000]!r}")
    for path in scene.launch.folder.rglob("*"):
        if path.is_file() and path.stat().st_mode & 0o077:
            text = path.read_bytes().decode(errors="replace")
            scene.check_text(text, f"{path}, which others can read")


async def check_stop_of_nothing(scene: Scene) -> None:
    """Stopping absent pilots has no effect, whatever their names; others run on."""
    grid, order = scene.open(), scene.order()
    await grid.stop([])
    await grid.stop(scene.order().names())
    await grid.start(order)
    await scene.until_at_work(grid, order.names())
    first, last = order.names()[0], order.names()[-1]
    canary = scene.launch.folder / "canary"
    await grid.stop(
        [
            *("", " ", "*", "%", ".*", "-", "--all", "-u", "0", "1", "../..", "\n", "é"),
            "a" * 300,
            *(order.name, f"{order.name}.", f"{order.name}.*", f"{order.name}.{order.pilots}"),
            *(
                f"{first[:-2]}",
                f"{first}0",
                f"{first} {last}",
                f"{first},{last}",
                f"{first}\n{last}",
            ),
            *(f"; touch {canary}", f"$(touch {canary})", f"' || touch {canary} #"),
            *(first.upper(), f" {first}", f"x{first}"),
        ]
    )
    shown = await scene.look(grid)
    assert all(
        name in shown and shown[name].state is PilotState.RUNNING for name in order.names()
    ), f"a name that does not exist stopped a pilot: {shown}"
    assert not canary.exists(), "a name was executed as a command"


async def check_stop_at_once(scene: Scene) -> None:
    """Pilots that were ordered a moment ago can be stopped; no pilot comes later."""
    grid, order = scene.open(), scene.order()
    await grid.start(order)
    await grid.stop(order.names())
    await scene.until_gone(grid, order.names())
    await scene.until_nothing_is_left()
    await grid.start(order)  # repeat it, as a gateway does that is unsure of its order
    await grid.stop(order.names())
    await scene.until_gone(grid, order.names())
    await scene.until_nothing_is_left()


async def check_started_once(scene: Scene) -> None:
    """One order is started once: if repeated, concurrent, or sent by the gateway's next run."""
    grid, order, other = scene.open(), scene.order(), scene.order()
    next_life = scene.open()
    async with trio.open_nursery() as nursery:
        for each in (grid, grid, next_life):
            nursery.start_soon(each.start, order)
        nursery.start_soon(grid.start, other)
    both = {*order.names(), *other.names()}
    await scene.until_at_work(grid, both)
    await grid.start(order)
    await next_life.start(order)
    await scene.open().start(order)
    shown = await scene.until_at_work(scene.open(), both)
    assert shown.keys() == both, f"pilots() shows pilots that were not ordered: {shown}"
    await grid.stop(both)
    await scene.until_gone(next_life, both)
    await scene.until_nothing_is_left()
    scene.check_arrivals(order)
    scene.check_arrivals(other)


async def check_found_again(scene: Scene) -> None:
    """A gateway's next run finds its pilots and stops them; it leaves another mark's alone."""
    order = scene.order()
    await scene.open().start(order)
    next_life = scene.open()
    before = await scene.until_at_work(next_life, order.names())
    for mark in (f"{scene.launch.mark}1", scene.launch.mark[:-1], scene.launch.mark.upper()):
        stranger = scene.open(mark=mark)
        shown = await scene.look(stranger)
        assert not shown, f"pilots() shows pilots of another mark: {shown}"
        await stranger.stop(order.names())
    shown = await scene.look(next_life)
    assert alive(shown).keys() == before.keys(), f"stop() of another mark stopped some of {before}"
    assert {name: each.grid_id for name, each in shown.items()} == {
        name: each.grid_id for name, each in before.items()
    }, f"a repeated start() replaced pilots: {before}, then {shown}"
    await next_life.stop(order.names())
    await scene.until_gone(next_life, order.names())
    await scene.until_nothing_is_left()


async def check_too_large(scene: Scene) -> None:
    """An impossible order is refused with NEVER, and none of its pilots is started."""
    grid = scene.open()
    limits = await grid.limits()
    await scene.fault(
        grid.start(scene.order(limits.pilots_max + 1)),
        FailureClass.NEVER,
        "start() of more than limits().pilots_max",
    )
    await scene.fault(grid.start(scene.order(-1)), FailureClass.NEVER, "start() of -1 pilots")
    none = replace(scene.bench.shape, slots=0)
    await scene.fault(
        grid.start(scene.order(shape=none)), FailureClass.NEVER, "start() without slots"
    )
    assert not await scene.look(grid), "a refused order left something behind"
    await scene.until_nothing_is_left()


async def check_hostile_names(scene: Scene) -> None:
    """An order with a harmful name is refused, and does no harm."""
    grid = scene.open()
    canary = scene.launch.folder / "canary"
    for name in (
        "",
        "a b",
        "../a",
        "a\nb",
        "é",
        "a" * 41,
        f"a;touch {canary}",
        f"$(touch {canary})",
    ):
        order = scene.order(name=name)
        await scene.fault(
            grid.start(order), FailureClass.NEVER, f"start() of an order named {name!r}"
        )
    assert not canary.exists(), "a name was executed as a command"
    assert not await scene.look(grid), "a refused order left something behind"


async def check_cancelled(scene: Scene) -> None:
    """An order whose start() was cancelled exists and is shown, or does not exist."""
    grid = scene.open()
    orders = []
    for wait_s in (0.0, 0.003, 0.1):
        orders.append(scene.order(1))
        with trio.move_on_after(wait_s):
            await grid.start(orders[-1])
    next_life = scene.open()
    names = [name for order in orders for name in order.names()]
    for order in orders:
        await next_life.start(order)  # whether it had been started or not
    await scene.until_at_work(next_life, names)
    await next_life.stop(names)
    await scene.until_gone(next_life, names)
    await scene.until_nothing_is_left()
    for order in orders:
        scene.check_arrivals(order)


async def check_lonely_pilots_end(scene: Scene) -> None:
    """A pilot whose gateway never answers ends by itself after dial_s."""
    with socket.socket() as mute:  # a port that is taken, and gives no answer
        mute.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        grid = scene.open(address=scene.bench.dialled(address), dial_s=SHORT_DIAL_S)
        order = scene.order()
        await grid.start(order)
        await scene.until(grid, f"{order.names()} to start", lambda shown: bool(shown))
        await scene.until_gone(grid, order.names())
        await scene.until_nothing_is_left()
    assert not scene.gateway.arrivals, f"workers came to another gateway: {scene.gateway.arrivals}"


async def check_calls_at_once(scene: Scene) -> None:
    """All calls may be concurrent."""
    grid = scene.open()
    orders = [scene.order(1) for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for order in orders:
            nursery.start_soon(grid.start, order)
            nursery.start_soon(grid.pilots)
            nursery.start_soon(grid.capacity, scene.bench.shape)
            nursery.start_soon(grid.limits)
            nursery.start_soon(grid.stop, scene.order().names())
            nursery.start_soon(grid.check)
    names = [name for order in orders for name in order.names()]
    await scene.until_at_work(grid, names)
    async with trio.open_nursery() as lookers:
        for _ in range(4):
            lookers.start_soon(_keep_looking, grid, scene.bench.look_s)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(grid.stop, [name])
                nursery.start_soon(grid.stop, names)
        await scene.until_gone(grid, names)
        lookers.cancel_scope.cancel()
    await scene.until_nothing_is_left()


async def _keep_looking(grid: Provisioning, look_s: float) -> None:
    while True:
        await grid.pilots()
        await trio.sleep(look_s)


async def check_taken_away(scene: Scene) -> None:
    """A pilot that the grid takes away is gone, the others stay; it is not replaced."""
    grid, order = scene.open(), scene.order()
    await grid.start(order)
    shown = await scene.until_at_work(grid, order.names())
    first, *rest = order.names()
    await scene.bench.take(shown[first])
    shown = await scene.until_gone(grid, [first])
    assert alive(shown).keys() == set(rest), f"stop() of {first} stopped others too: {alive(shown)}"
    scene.check_arrivals(order)


async def check_leaving(scene: Scene) -> None:
    """A pilot whose host is out of service is named with a reason, runs on, and is forgotten."""
    grid, order = scene.open(), scene.order()
    if not isinstance(grid, Maintained):
        raise NotChecked("the grid does not tell of hosts that are out of service")
    assert not await grid.leaving(), "leaving() names pilots before any was started"
    await grid.start(order)
    shown = await scene.until_at_work(grid, order.names())
    assert not await grid.leaving(), f"leaving() names pilots of hosts in service: {shown}"
    first = order.names()[0]
    async with scene.bench.withdrawn(shown[first]):
        for one in (grid, scene.open()):  # and the gateway's next run
            why = await _until_named(scene, one, first, is_named=True)
            scene.check_text(why, "a reason of leaving()")
        shown = await scene.look(grid)
        assert shown[first].state is PilotState.RUNNING, f"the pilot was ended: {shown[first]}"
    await _until_named(scene, grid, first, is_named=False)


async def _until_named(scene: Scene, grid: Provisioning, name: str, *, is_named: bool) -> str:
    """Ask until leaving() names a pilot, or does not; return the reason."""
    assert isinstance(grid, Maintained)
    found: Mapping[str, str] = {}
    with trio.move_on_after(scene.bench.wait_s):
        while True:
            await scene.look(grid)  # as a gateway does before
            found = await grid.leaving()
            if (name in found) is is_named:
                break
            await trio.sleep(scene.bench.look_s)
    assert (name in found) is is_named, (
        f"leaving() {'does not name' if is_named else 'still names'} {name} after "
        f"{duration_text(scene.bench.wait_s)}: {found}"
    )
    assert not is_named or found[name], f"leaving() gives no reason for {name}"
    return found.get(name, "")


async def check_no_capacity(scene: Scene) -> None:
    """Without capacity an order is queued, ends with a fault, or is refused: ELSEWHERE."""
    grid, order, full = scene.open(), scene.order(), scene.bench.full()
    async with full:
        capacity = await grid.capacity(scene.bench.shape)
        assert capacity.slots_now == 0, f"capacity() of a full grid is {capacity}"
        fault = await fault_of(grid.start(order))
        if fault is not None:
            assert fault.failure_class is FailureClass.ELSEWHERE, (
                f"the fault has the failure class {fault.failure_class}: {fault}"
            )
            scene.check_text(str(fault), "a fault")
        shown = await scene.until(
            grid,
            "an order without capacity to be shown, or to end",
            lambda shown: all(each.state is not PilotState.STARTING for each in shown.values()),
        )
        for each in shown.values():
            assert each.state is not PilotState.RUNNING, (
                f"the pilot runs although nothing is free: {each}"
            )
            assert each.state is PilotState.QUEUED or each.fault, (
                f"the pilot has no fault text: {each}"
            )
        await grid.stop(order.names())
        await scene.until_gone(grid, order.names())


async def check_denied(scene: Scene) -> None:
    """Wrong credentials: NEVER, or the bench's class, by every call that needs them."""
    grid, failure_class = scene.bench.denied(scene.launch), scene.bench.denied_blame
    await scene.fault(grid.check(), failure_class, "check() with wrong credentials")
    await scene.fault(grid.start(scene.order()), failure_class, "start() with wrong credentials")
    await scene.until_nothing_is_left()


async def check_down(scene: Scene) -> None:
    """A service that is down: AGAIN. pilots() never returns an empty list for a failure."""
    grid, order, down = scene.open(), scene.order(), scene.bench.down()
    await grid.start(order)
    await scene.until_at_work(grid, order.names())
    async with down:
        for one in (grid, scene.open()):
            await scene.fault(one.check(), FailureClass.AGAIN, "check() without the service")
            await scene.fault(one.pilots(), FailureClass.AGAIN, "pilots() without the service")
            await scene.fault(
                one.start(scene.order()), FailureClass.AGAIN, "start() without the service"
            )
            await scene.fault(
                one.stop(order.names()), FailureClass.AGAIN, "stop() without the service"
            )
    await scene.until_it_answers(grid)
    await scene.until(grid, "the grid to be back", lambda shown: shown.keys() <= set(order.names()))


CHECKS: Final[tuple[Check, ...]] = (
    check_names_itself,
    check_life,
    check_stop_of_nothing,
    check_stop_at_once,
    check_started_once,
    check_found_again,
    check_too_large,
    check_hostile_names,
    check_cancelled,
    check_lonely_pilots_end,
    check_calls_at_once,
    check_taken_away,
    check_leaving,
    check_no_capacity,
    check_denied,
    check_down,
)


# --- running checks ------------------------------------------------------------------------------


def name_of(check: Check) -> str:
    """Return the name of a check."""
    return str(check.__name__).removeprefix("check_")


async def run(check: Check, bench: Bench) -> None:
    """Run one check. Raises AssertionError, and NotChecked if the bench can't do it."""
    try:
        async with set_scene(bench) as scene:
            await check(scene)
    except BaseExceptionGroup as group:
        raise _alone(group) from group


def _alone(error: BaseException) -> BaseException:
    """Unwrap the groups of nurseries that hold a single exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def check_grid(make: Maker, checks: Iterable[Check] = CHECKS) -> dict[str, str]:
    """Run all checks, each on a new bench; return the skipped ones, with reasons."""
    unchecked = {}
    for check in checks:
        async with make() as bench:
            try:
                await run(check, bench)
            except NotChecked as reason:
                unchecked[name_of(check)] = str(reason)
            except AssertionError as error:
                raise AssertionError(f"{name_of(check)}: {error}") from error
    return unchecked
