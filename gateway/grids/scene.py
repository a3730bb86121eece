"""The setting of a check of a grid: a fake gateway, a mark of its own, past sightings.

See gateway.grids.checks.
"""

import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from federation.address import SECRET_VARIABLE, TOKEN_VARIABLE, is_weak
from federation.clocks import NEVER_S, UtcS
from federation.words import duration_text
from gateway.base.clocks import mono_now
from gateway.grids.contract import (
    FailureClass,
    GridFault,
    Launch,
    Order,
    PilotState,
    Provisioning,
    Shape,
    Sighting,
)
from gateway.grids.fake_gateway import Arrival, FakeGateway

# A value of the environment must arrive unchanged by shells and by options with commas.
ODD: Final = "a 'b' \"c\" $HOME `id` $(id) \\n, d=e; f & g%h é"
DIAL_S: Final = 300.0
SCAN_S: Final = 0.01  # short enough to see short-lived commands
LOOKS: Final = 50
DAY_S: Final = 86_400.0
SECRETS: Final = (SECRET_VARIABLE, TOKEN_VARIABLE)
_ORDER: Final = tuple(PilotState)


class NotChecked(Exception):
    """A bench can't do what a check needs; the text names it."""


class Bench:
    """A kind of grid to be checked: subclass it, override `open` and all supported methods.

    Attributes:
        called: a word in the result of check().
        wait_s: how long the grid may take for anything: until a pilot has come, or is gone.
        look_s: between two looks at it.
        shape: of the pilots that are ordered.
        pilots: of an order; two or more.
        listen: where the fake gateway listens, for pilots to dial.
        denied_blame: the failure class of wrong credentials; AGAIN where the grid can't tell them
            from expired ones, which are renewed.
    """

    called: str
    wait_s: float = 30.0
    look_s: float = 0.1
    shape: Shape = Shape(slots=1, tags={"checked": True, "weight": 2.5})
    pilots: int = 2
    listen: str = "tcp://127.0.0.1:0"
    denied_blame: FailureClass = FailureClass.NEVER

    def open(self, launch: Launch) -> Provisioning:
        """Open a new object for the grid, as its GridKind's `open` does."""
        raise NotImplementedError

    def dialled(self, address: str) -> str:
        """Return the fake gateway's address, as pilots on other hosts dial it."""
        return address

    async def left(self, mark: str) -> Collection[str]:
        """Return the remains of a mark (jobs, instances, processes), without the adapter."""
        raise NotChecked("the bench can't look past the adapter")

    async def texts(self) -> Iterable[str]:
        """Return texts that others can read: job listings, descriptions of instances, logs."""
        return ()

    async def take(self, pilot: Sighting) -> None:
        """Take a pilot away, as the grid itself would: its host dies, it is preempted."""
        raise NotChecked("the bench can't take a pilot away")

    def withdrawn(self, pilot: Sighting) -> AbstractAsyncContextManager[None]:
        """Take the host of a pilot out of service within the block, as its administrator would."""
        raise NotChecked("the bench can't take a host out of service")

    def full(self) -> AbstractAsyncContextManager[None]:
        """Make the grid have no capacity within the block."""
        raise NotChecked("the bench can't refuse capacity")

    def denied(self, launch: Launch) -> Provisioning:
        """Open a new object with wrong credentials, or a wrong partition."""
        raise NotChecked("the bench has no invalid credentials")

    def down(self) -> AbstractAsyncContextManager[None]:
        """Make the grid's service unreachable within the block."""
        raise NotChecked("the bench has no service that can be stopped")


@dataclass(frozen=True, slots=True)
class _Seen:
    at: int
    grid_id: str


class Scene:
    """A bench with a fake gateway, a mark of its own, and past sightings."""

    def __init__(self, bench: Bench, gateway: FakeGateway, launch: Launch, said: list[str]) -> None:
        self.bench = bench
        self.gateway = gateway
        self.launch = launch
        self.said = said
        self.secrets = {launch.environment[each] for each in SECRETS if each in launch.environment}
        self._seen: dict[tuple[int, str], _Seen] = {}
        self._opened: list[Provisioning] = []  # kept, so that no two have the same id

    def open(self, **changes: object) -> Provisioning:
        """Open a new object, as a restarted gateway does; or with another mark."""
        grid = self.bench.open(replace(self.launch, **changes))  # type: ignore[arg-type]
        self._opened.append(grid)
        return grid

    def order(self, pilots: int = 0, **changes: object) -> Order:
        """Return an order with a new name."""
        name = f"check-{secrets.token_hex(5)}"
        order = Order(name, pilots or self.bench.pilots, self.bench.shape)
        return replace(order, **changes)  # type: ignore[arg-type]

    async def look(self, grid: Provisioning) -> dict[str, Sighting]:
        """Return the grid's pilots, checked for plausibility; states only go forward."""
        found = await grid.pilots()
        shown = {each.name: each for each in found}
        assert len(shown) == len(found), f"pilots() shows a name twice: {found}"
        for each in found:
            self._check_sighting(grid, each)
        return shown

    def _check_sighting(self, grid: Provisioning, each: Sighting) -> None:
        utc_s = UtcS(time.time())
        at = _ORDER.index(each.state)
        assert each.grid_id, f"{each.name} has no grid_id"
        before = self._seen.get((id(grid), each.name), _Seen(0, each.grid_id))
        was = _ORDER[before.at]
        assert at >= before.at, f"{each.name} went back from {was} to {each.state}"
        is_same = each.grid_id == before.grid_id or was is not PilotState.RUNNING
        assert is_same, f"{each.name} had the grid_id {before.grid_id}, and now {each.grid_id}"
        self._seen[id(grid), each.name] = _Seen(at, each.grid_id)
        is_paid = each.paid_at_s is not None
        assert not (each.state is PilotState.QUEUED and is_paid), (
            f"{each.name} is queued, but paid for"
        )
        if each.paid_at_s is not None:
            assert utc_s - DAY_S < each.paid_at_s < utc_s + 60, (
                f"{each.name} has the invalid paid_at_s {each.paid_at_s}"
            )
        for name in ("begins_at_s", "ends_at_s"):
            moment_s = getattr(each, name)
            sane = moment_s is None or utc_s - DAY_S < moment_s < NEVER_S
            assert sane, f"{each.name}: {name} is not a time in UTC: {moment_s}"
        self.check_text(f"{each}", f"the sighting of {each.name}")

    async def until(
        self,
        grid: Provisioning,
        what: str,
        is_so: Callable[[dict[str, Sighting]], bool],
    ) -> dict[str, Sighting]:
        """Look until a condition holds."""
        shown: dict[str, Sighting] = {}
        with trio.move_on_after(self.bench.wait_s):
            while True:
                shown = await self.look(grid)
                if is_so(shown):
                    return shown
                await trio.sleep(self.bench.look_s)
        raise AssertionError(
            f"{what}: timed out after {duration_text(self.bench.wait_s)}. The grid shows "
            f"{list(shown.values())}; connected to the gateway are "
            f"{sorted(self.gateway.names())}; refused were {self.gateway.refusals}; the log "
            f"has {self.said}"
        )

    async def until_it_answers(self, grid: Provisioning) -> None:
        """Wait for a service that was down; the next look finds whether it is back."""
        with trio.move_on_after(self.bench.wait_s):
            while True:
                fault = await fault_of(grid.pilots())
                if fault is None or fault.failure_class is not FailureClass.AGAIN:
                    return
                await trio.sleep(self.bench.look_s)

    async def until_at_work(self, grid: Provisioning, names: Iterable[str]) -> dict[str, Sighting]:
        """Look until these pilots run and have come."""
        wanted = set(names)

        def are_there(shown: dict[str, Sighting]) -> bool:
            running = {each.name for each in shown.values() if each.state is PilotState.RUNNING}
            return wanted <= running & self.gateway.names()

        return await self.until(grid, f"{sorted(wanted)} to run and connect", are_there)

    async def until_gone(self, grid: Provisioning, names: Iterable[str]) -> dict[str, Sighting]:
        """Look until these pilots are gone, or have ended."""
        lost = set(names)
        return await self.until(
            grid, f"{sorted(lost)} to end", lambda shown: not lost & alive(shown).keys()
        )

    async def until_nothing_is_left(self) -> None:
        """Wait until the grid itself has nothing left of ours."""
        ends_at_s = mono_now() + self.bench.wait_s
        while True:
            try:
                left = await self.bench.left(self.launch.mark)
            except NotChecked:
                return
            if not left:
                return
            assert mono_now() < ends_at_s, f"left behind, and charged: {sorted(left)}"
            await trio.sleep(self.bench.look_s)

    async def fault(self, call: Awaitable[object], failure_class: FailureClass, what: str) -> None:
        """Check that a call raises a GridFault of that failure class, with a meaningful text."""
        fault = await fault_of(call)
        assert fault is not None, f"{what}: no GridFault was raised"
        text = str(fault)
        assert fault.failure_class is failure_class, (
            f"{what}: the failure class is {fault.failure_class}, not {failure_class}: {text}"
        )
        assert len(text) >= 8, f"{what}: the fault does not say what is wrong: {text!r}"
        self.check_text(text, f"the fault of {what}")

    def check_text(self, text: str, where: str) -> None:
        """Check that a text holds no secret."""
        for secret in self.secrets:
            assert secret not in text, f"the secret appears in {where}"

    def check_arrivals(self, order: Order) -> list[Arrival]:
        """Return the pilots of an order that came, checked: each once, and as ordered."""
        came = [each for each in self.gateway.arrivals if each.name in order.names()]
        names = [each.name for each in came]
        assert len(set(names)) == len(names), f"a pilot was started twice: {came}"
        for each in came:
            shape = order.shape
            assert each.slots == shape.slots, f"{each.name} has {each.slots} slots, not {shape}"
            assert each.tags == dict(shape.tags), f"{each.name} has tags {each.tags}, not {shape}"
            token = self.launch.environment.get(TOKEN_VARIABLE, "")
            assert each.token == token, f"{each.name} lacks the token of its environment"
            assert each.pool == self.launch.pool, f"{each.name} belongs to pool {each.pool!r}"
        return came


async def fault_of(call: Awaitable[object]) -> GridFault | None:
    """Return the fault that a call raises, if it does."""
    try:
        await call
    except GridFault as fault:
        return fault
    return None


def alive(shown: dict[str, Sighting]) -> dict[str, Sighting]:
    """Return the pilots that have not ended."""
    return {name: each for name, each in shown.items() if each.state is not PilotState.ENDED}


@asynccontextmanager
async def set_scene(bench: Bench) -> AsyncIterator[Scene]:
    """Provide a fake gateway, a mark and a folder; clean up afterwards."""
    secret = secrets.token_hex(16)
    gateway = FakeGateway(bench.listen, secret)
    said: list[str] = []
    with TemporaryDirectory(prefix="gridfed-check-") as folder:
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.run)
            address = bench.dialled(gateway.address)
            environment = {SECRET_VARIABLE: secret, "GRIDFED_CHECK": ODD}
            if not is_weak(address):  # no pilot would show a token there
                environment[TOKEN_VARIABLE] = secrets.token_hex(16)
            launch = Launch(
                site="checks",
                pool="checked",
                mark=f"check-{secrets.token_hex(6)}",
                address=address,
                environment=environment,
                folder=Path(folder),
                say=said.append,
                dial_s=DIAL_S,
            )
            scene = Scene(bench, gateway, launch, said)
            nursery.start_soon(_scan, scene)
            try:
                yield scene
            except BaseException as error:
                with trio.CancelScope(shield=True):
                    await _tidy_after(error, scene)
                raise
            await _tidy(scene)
            nursery.cancel_scope.cancel()
    for line in said:
        scene.check_text(line, f"the grid's log: {line!r}")


async def _tidy(scene: Scene) -> None:
    """Stop everything, whatever the result of a check."""
    grid = scene.open()
    shown = await grid.pilots()
    await grid.stop([each.name for each in shown])
    await scene.until_gone(grid, [each.name for each in shown])
    await scene.until_nothing_is_left()


async def _tidy_after(error: BaseException, scene: Scene) -> None:
    """Stop everything after a failed check: further failures are only noted."""
    try:
        await _tidy(scene)
    except Exception as another:  # noqa: BLE001 - a broken grid may raise anything
        error.add_note(f"Then stopping all pilots failed: {another}")


async def _scan(scene: Scene) -> None:
    """Look continually for the secret in this host's list of processes."""
    looks: dict[str, int] = {}
    while True:
        for line in await trio.to_thread.run_sync(_command_lines, looks):
            scene.check_text(line, f"the list of processes: {line!r}")
        await trio.sleep(SCAN_S)


def _command_lines(looks: dict[str, int]) -> list[str]:
    """Return the command lines of processes, LOOKS times each, as they may exec another."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and looks.setdefault(entry, 0) < LOOKS:
            looks[entry] += 1
            with contextlib.suppress(OSError):  # it has ended
                found.append(Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace"))
    return found
