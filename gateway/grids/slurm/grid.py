"""Pilots as Slurm's job arrays.

    start(order) ── sbatch --array=0-99 --job-name=gridfed-MARK.ORDER ──► slurmctld
    pilots() ────── one squeue for all of them ─────────────────────────►
    stop(names) ─── scancel 7_[1,2] ────────────────────────────────────►

What is ours is known by its job's name; nothing is kept here but names of orders that were made,
so that one is not made again after Slurm has forgotten it (MinJobAge).
"""

import fcntl
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from gateway.grids.contract import (
    Blame,
    Capacity,
    GridFault,
    Launch,
    Limits,
    Order,
    Shape,
    Sighting,
    Stand,
    check_order,
)
from gateway.grids.slurm.asking import request_of
from gateway.grids.slurm.commands import Commands
from gateway.grids.slurm.listing import Node, Partition, read_jobs
from gateway.grids.slurm.rest import SlurmRest
from gateway.grids.slurm.settings import SlurmSettings
from gateway.grids.slurm.states import FORESEEN_S, Listing, job_start, look
from gateway.grids.slurm.way import Bounds, Way

ARRAY_MAX: Final = 1_000  # as Slurm is by default, and where it can't be asked
LOCK_S: Final = 0.02  # between two looks whether another one submits
MADE_MAX: Final = 10_000  # names of orders that are kept
# What is in one of these states begins nothing.
UNUSABLE: Final = frozenset(
    (
        *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "UNKNOWN"),
        *("MAINTENANCE", "MAINT", "NOT_RESPONDING", "NO_RESPOND", "INVAL", "INVALID_REG"),
        *("POWERED_DOWN", "POWERING_DOWN", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED"),
    )
)


class SlurmGrid:
    """A pool of pilots in a Slurm cluster.

    Args:
        utc_s: the clock.
    """

    def __init__(
        self,
        settings: SlurmSettings,
        launch: Launch,
        utc_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._launch = launch
        self._utc_s = utc_s
        rest = settings.rest
        self._way: Way = SlurmRest(settings, rest) if rest is not None else Commands(settings)
        self._made: OrderedDict[str, None] = OrderedDict()
        self._told_strays = False

    async def check(self) -> str:
        """Look whether Slurm answers, and takes what our orders would be."""
        settings = self._settings
        version = await self._way.version()
        partitions = self._ours(await self._way.partitions())
        for each in partitions:
            if not each.is_up:
                text = f"partition {each.name} is not UP: `scontrol show partition {each.name}`"
                raise GridFault(Blame.ELSEWHERE, text)
            if _is_barred(each, settings.account):
                text = f"partition {each.name} does not take account {settings.account!r}"
                raise GridFault(Blame.NEVER, text)
        limits = await self.limits()
        probe = Order("probe", 1, Shape())
        await self._way.expect(request_of(settings, self._launch, probe))
        way = "slurmrestd" if settings.rest is not None else "commands"
        said = f"{version} by {way}, partition {settings.partition}: "
        said += f"up to {limits.pilots_max:,} pilots an order"
        if not await trio.Path(settings.python).exists():
            said += f"; python {settings.python} is not on this host: is it on the nodes?"
        return said

    async def limits(self) -> Limits:
        """Slurm's own limits, as of now."""
        bounds = await self._way.bounds()
        limit_s = self._settings.walltime_s
        if limit_s is None:
            given = [each.limit_s for each in self._ours(await self._way.partitions())]
            limit_s = min((each for each in given if each is not None), default=None)
        return Limits(self._array_max(bounds), self._settings.orders_max, limit_s)

    async def capacity(self, shape: Shape) -> Capacity:
        """What the partition's nodes have free, and have at all, less what is ours."""
        nodes = [each for each in await self._way.nodes() if self._is_of_ours(each)]
        fit = [self._pilots_on(each, shape) for each in nodes]
        now, most = sum(each for each, _ in fit), sum(each for _, each in fit)
        busy = sum(
            each.slots
            for each in (await self._look()).sightings
            if each.stand in (Stand.STARTING, Stand.RUNNING, Stand.ENDING)
        )
        slots_now = now * shape.slots
        begins_s = None
        if not slots_now and most:
            probe = Order("probe", 1, shape)
            begins_s = await self._way.expect(request_of(self._settings, self._launch, probe))
        if begins_s is not None and not 0 <= begins_s - self._utc_s() <= FORESEEN_S:
            begins_s = None
        return Capacity(slots_now, max(slots_now, most * shape.slots - busy), begins_s)

    async def pilots(self) -> Sequence[Sighting]:
        """All of ours that Slurm knows: those that ended, too, for MinJobAge (300 s by default)."""
        found = await self._look()
        if found.strays:
            if not self._told_strays:
                self._launch.say(
                    f"pool {self._launch.pool}: lets {len(found.strays)} jobs of Slurm go that "
                    "would never begin, or that are there twice"
                )
            await self._way.cancel(found.strays)
        self._told_strays = bool(found.strays)
        return found.sightings

    async def start(self, order: Order) -> None:
        """Submit an order as one job array.

        One after the other, also if another object does it for the same gateway: what was just
        submitted is seen by who looks next. What has begun is not cancelled, or nobody would know
        whether Slurm has it; it takes no longer than `timeout`.
        """
        check_order(order, Limits(self._array_max(await self._way.bounds())))
        request = request_of(self._settings, self._launch, order)
        async with alone(self._launch.folder / "starting"):
            if order.name in self._made:
                return
            if order.name not in (await self._look()).orders:
                with trio.CancelScope(shield=True):
                    await self._way.submit(request)
            self._made[order.name] = None
            while len(self._made) > MADE_MAX:
                self._made.popitem(last=False)

    async def stop(self, names: Collection[str]) -> None:
        """Cancel their jobs. Slurm sends SIGTERM, and SIGKILL after its KillWait."""
        wanted = set(names)
        if not wanted:
            return
        ids = [
            each.grid_id
            for each in (await self._look()).sightings
            if each.name in wanted and each.stand is not Stand.ENDED
        ]
        if ids:
            await self._way.cancel(ids)

    # --- what the above is made of ---------------------------------------------------------------

    async def _look(self) -> Listing:
        data = await self._way.jobs()
        mark, per_slot = self._launch.mark, self._settings.cpus_per_slot
        # Every job of a large cluster may be among them.
        return await trio.to_thread.run_sync(
            lambda: look(read_jobs(data, job_start(mark)), mark, self._utc_s(), per_slot)
        )

    def _array_max(self, bounds: Bounds) -> int:
        known = (self._settings.array_max, bounds.array_max, bounds.jobs_max)
        return max(1, min((each for each in known if each is not None), default=ARRAY_MAX))

    def _ours(self, partitions: Iterable[Partition]) -> list[Partition]:
        """The partitions that were configured, all of which there must be."""
        by_name = {each.name: each for each in partitions}
        for name in self._settings.partitions:
            if name not in by_name:
                text = f"there is no partition {name}; there are {', '.join(sorted(by_name)[:50])}"
                raise GridFault(Blame.NEVER, text)
        return [by_name[name] for name in self._settings.partitions]

    def _is_of_ours(self, node: Node) -> bool:
        wanted = set(self._settings.partitions)
        if "RESERVED" in node.states and not self._settings.reservation:
            return False  # for whom, it does not say
        return not node.states & UNUSABLE and bool(node.partitions & wanted)

    def _pilots_on(self, node: Node, shape: Shape) -> tuple[int, int]:
        """How many pilots of a shape a node has room for: now, and when it is empty."""
        cpus = shape.slots * self._settings.cpus_per_slot
        needs = [(cpus, node.cpus, node.cpus_taken)]
        memory_mb = -(-shape.memory_bytes // (1 << 20))
        needs += [(memory_mb, node.memory_mb, node.memory_taken_mb)] if memory_mb else []
        needs += [(shape.gpus, node.gpus, node.gpus_taken)] if shape.gpus else []
        now = min(max(0, total - taken) // need for need, total, taken in needs)
        return now, min(total // need for need, total, _ in needs)


@asynccontextmanager
async def alone(path: Path) -> AsyncIterator[None]:
    """Be the only one on this host in there: of this process and of others. Raises GridFault."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise GridFault(Blame.AGAIN, f"{path}: {error.strerror}") from None
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await trio.sleep(LOCK_S)
        yield  # closing it unlocks it


def _is_barred(partition: Partition, account: str) -> bool:
    if not account:
        return False  # Slurm knows ours, and we don't
    return account in partition.denied or bool(
        partition.accounts and account not in partition.accounts
    )
