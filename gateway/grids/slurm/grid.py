"""Pilots as Slurm's job arrays.

    start(order) ── sbatch --array=0-99 --job-name=gridfed-MARK.ORDER ──► slurmctld
    pilots() ────── one squeue for all of them ─────────────────────────►
    stop(names) ─── scancel 7_[1,2] ────────────────────────────────────►

Our jobs are recognized by their names. The only state here is the names of orders that were made,
so that none is made again after Slurm has forgotten it (MinJobAge).
"""

import fcntl
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from federation.clocks import UtcS
from federation.words import duration_text
from gateway.base.clocks import utc_now
from gateway.grids.contract import (
    Capacity,
    FailureClass,
    GridFault,
    Launch,
    Limits,
    Order,
    PilotState,
    Shape,
    Sighting,
    check_order,
)
from gateway.grids.slurm.asking import ArrayRequest, request_of
from gateway.grids.slurm.commands import Commands
from gateway.grids.slurm.listing import Partition, SlurmNode, read_jobs
from gateway.grids.slurm.memory import memory_of, read_amount_mb
from gateway.grids.slurm.nodes import UNUSABLE, ask_for, leaving
from gateway.grids.slurm.quotas import JOBS, SUBMITS, Quotas
from gateway.grids.slurm.rest import SlurmRest
from gateway.grids.slurm.settings import SlurmSettings
from gateway.grids.slurm.states import FORESEEN_S, Listing, job_start, look
from gateway.grids.slurm.way import SlurmBounds, SlurmInterface, is_there

ARRAY_MAX: Final = 1_000  # Slurm's default, also if it can't be asked
LOCK_S: Final = 0.02  # between two attempts to get the submission lock
MADE_MAX: Final = 10_000  # names of orders that are kept
NODES_MAX: Final = 200  # that are asked for by name


class SlurmGrid:
    """A pool of pilots in a Slurm cluster.

    Args:
        utc_s: the clock.
    """

    def __init__(
        self,
        settings: SlurmSettings,
        launch: Launch,
        utc_s: Callable[[], UtcS] = utc_now,
    ) -> None:
        self._settings = settings
        self._launch = launch
        self._utc_s = utc_s
        rest = settings.rest
        self._way: SlurmInterface = (
            SlurmRest(settings, rest) if rest is not None else Commands(settings)
        )
        self._made: OrderedDict[str, None] = OrderedDict()
        self._told_strays = False
        self._hosts: Mapping[str, str] | None = None  # of pilots, as of the last look
        self._fit: int | None = None  # pilots of one order, after Slurm refused a larger one

    async def check(self) -> str:
        """Check whether Slurm answers, and would accept our orders."""
        settings = self._settings
        version = await self._way.version()
        partitions = self._ours(await self._way.partitions())
        for each in partitions:
            if not each.is_up:
                text = f"partition {each.name} is not UP: `scontrol show partition {each.name}`"
                raise GridFault(FailureClass.ELSEWHERE, text)
            if _is_barred(each, settings.account):
                text = f"partition {each.name} does not allow account {settings.account!r}"
                raise GridFault(FailureClass.NEVER, text)
        bounds = await self._way.bounds()
        quotas = await self._quotas(bounds, partitions)
        over = misfit(settings, quotas)
        if over:
            raise GridFault(FailureClass.NEVER, over)
        limits = self._limits(bounds, partitions, quotas)
        full = ""
        try:
            await self._way.expect(await self._request(Order("probe", 1, Shape()), bounds))
        except GridFault as fault:
            if not fault.is_full:
                raise
            full = f"; it accepts no more now: {fault}"
        way = "slurmrestd" if settings.rest is not None else "commands"
        said = f"{version} by {way}, partition {settings.partition}: "
        said += f"up to {limits.pilots_max:,} pilots an order"
        if not await is_there(settings.python, settings.timeout_s):
            said += f"; python {settings.python} is not on this host: check that it is on the nodes"
        return said + full

    async def limits(self) -> Limits:
        """Return Slurm's own limits, as of now."""
        bounds = await self._way.bounds()
        partitions = self._ours(await self._way.partitions())
        return self._limits(bounds, partitions, await self._quotas(bounds, partitions))

    async def capacity(self, shape: Shape) -> Capacity:
        """Return the free and the total capacity of the partition's nodes, less our own jobs.

        Limits of accounts and of qualities of service bound both, if Slurm shows them.
        """
        bounds, nodes = await self._way.bounds(), await self._way.nodes()
        partitions = self._ours(await self._way.partitions())
        nodes = [each for each in nodes if self._is_of_ours(each)]
        asked_mb, memory_mb = self._memory(shape, bounds, partitions, nodes)
        fit = [self._pilots_on(each, shape, memory_mb) for each in nodes]
        now, most = sum(each for each, _ in fit), sum(each for _, each in fit)
        ours = [
            each for each in (await self._look()).sightings if each.state is not PilotState.ENDED
        ]
        busy = sum(each.slots for each in ours if each.state is not PilotState.QUEUED)
        needs = {"cpu": self._cpus(shape), "mem": memory_mb, "gres/gpu": shape.gpus}
        let_now, let_most = (await self._quotas(bounds, partitions)).pilots(needs)
        slots_max = most * shape.slots - busy
        if let_now is not None and let_most is not None:
            now = min(now, let_now)
            there = sum(each.slots for each in ours)
            slots_max = min(slots_max, let_most * shape.slots - there)
        slots_now, begins_at_s = now * shape.slots, None
        if not slots_now and most and let_now != 0:
            probe = Order("probe", 1, shape)
            begins_at_s = await self._begins_at_s(
                request_of(self._settings, self._launch, probe, asked_mb)
            )
        return Capacity(slots_now, max(slots_now, slots_max), begins_at_s)

    async def pilots(self) -> Sequence[Sighting]:
        """Return all of ours that Slurm knows; ended ones for MinJobAge (300 s by default)."""
        found = await self._look()
        if found.strays:
            if not self._told_strays:
                self._launch.say(
                    f"pool {self._launch.pool}: cancels {len(found.strays)} Slurm jobs that "
                    "can never start, or are duplicates"
                )
            await self._way.cancel(found.strays)
        self._told_strays = bool(found.strays)
        return found.sightings

    async def leaving(self) -> Mapping[str, str]:
        """Return the pilots on nodes that are out of service, each with the reason.

        Nodes of pilots are those of the last look. Without a pilot on a node nothing is asked.
        """
        if self._hosts is None:
            await self._look()
        hosts = self._hosts
        if not hosts:
            return {}
        nodes = await self._way.nodes(ask_for(hosts.values(), NODES_MAX))
        return leaving(hosts, nodes, self._settings.reservation)

    async def start(self, order: Order) -> None:
        """Submit an order as one job array.

        Submissions are serialized, also among objects of the same gateway, so that the next one
        sees the last. A submission that has begun is not cancelled, as it would be unknown whether
        Slurm has it; it takes no longer than `timeout`.
        """
        bounds = await self._way.bounds()
        check_order(order, Limits(self._array_max(bounds)))
        request = await self._request(order, bounds)
        async with alone(self._launch.folder / "starting"):
            if order.name in self._made:
                return
            if order.name not in (await self._look()).orders:
                with trio.CancelScope(shield=True):
                    await self._submit(order, request)
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
            if each.name in wanted and each.state is not PilotState.ENDED
        ]
        if ids:
            await self._way.cancel(ids)

    # --- helpers ---------------------------------------------------------------------------------

    async def _submit(self, order: Order, request: ArrayRequest) -> None:
        """Submit an array. After a limit was exceeded the next one is half as large.

        The remainder of a limit is not always known, and others use it meanwhile.
        """
        try:
            await self._way.submit(request)
        except GridFault as fault:
            if fault.is_full:
                self._fit = max(1, order.pilots // 2)
            raise
        if self._fit is not None:
            self._fit = 2 * self._fit if self._fit < ARRAY_MAX else None

    async def _request(self, order: Order, bounds: SlurmBounds) -> ArrayRequest:
        """Return Slurm's request for an order, with memory where Slurm would give a whole node."""
        memory_mb = 0
        if not order.shape.memory_bytes and bounds.counts_memory:
            partitions = self._ours(await self._way.partitions())
            nodes = [each for each in await self._way.nodes() if self._is_of_ours(each)]
            memory_mb, _ = self._memory(order.shape, bounds, partitions, nodes)
        return request_of(self._settings, self._launch, order, memory_mb)

    def _memory(
        self,
        shape: Shape,
        bounds: SlurmBounds,
        partitions: Sequence[Partition],
        nodes: Sequence[SlurmNode],
    ) -> tuple[int, int]:
        """Return the requested and the charged memory of a pilot, in MB."""
        if shape.memory_bytes:
            asked_mb = -(-shape.memory_bytes // (1 << 20))
            return asked_mb, asked_mb
        options, cpus = dict(self._settings.options), self._cpus(shape)
        if "mem-per-cpu" in options:
            return 0, read_amount_mb(options["mem-per-cpu"]) * cpus
        if not bounds.counts_memory:
            return 0, 0
        has = [(each.cpus, each.memory_mb) for each in nodes]
        return memory_of(cpus, bounds.memory, [each.memory for each in partitions], has)

    def _cpus(self, shape: Shape) -> int:
        return shape.slots * self._settings.cpus_per_slot

    def _limits(
        self, bounds: SlurmBounds, partitions: Sequence[Partition], quotas: Quotas
    ) -> Limits:
        limit_s = self._settings.walltime_s
        if limit_s is None:
            given = [quotas.limit_s, *(each.limit_s for each in partitions)]
            limit_s = min((each for each in given if each is not None), default=None)
        known = self._array_max(bounds), self._fit, quotas.submits_max()
        most = max(1, min(each for each in known if each is not None))
        return Limits(most, self._settings.orders_max, limit_s, quotas.submits())

    async def _quotas(self, bounds: SlurmBounds, partitions: Sequence[Partition]) -> Quotas:
        """Return the limits that apply to us. Among several partitions the QOS is unknown."""
        if not bounds.has_quotas:
            return Quotas()
        qos = [partitions[0].qos] if len(partitions) == 1 else []
        return await self._way.quotas([each for each in (*qos, self._settings.qos) if each])

    async def _begins_at_s(self, request: ArrayRequest) -> UtcS | None:
        """Return when the next pilot would begin, as far as it is known."""
        try:
            found = await self._way.expect(request)
        except GridFault as fault:
            if fault.is_full:
                return None
            raise
        return found if found and 0 <= found - self._utc_s() <= FORESEEN_S else None

    async def _look(self) -> Listing:
        data = await self._way.jobs()
        mark, per_slot = self._launch.mark, self._settings.cpus_per_slot
        # It may list every job of a large cluster.
        found = await trio.to_thread.run_sync(
            lambda: look(read_jobs(data, job_start(mark)), mark, self._utc_s(), per_slot)
        )
        self._hosts = found.hosts
        return found

    def _array_max(self, bounds: SlurmBounds) -> int:
        known = (self._settings.array_max, bounds.array_max, bounds.jobs_max)
        return max(1, min((each for each in known if each is not None), default=ARRAY_MAX))

    def _ours(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return the configured partitions, all of which must exist."""
        by_name = {each.name: each for each in partitions}
        for name in self._settings.partitions:
            if name not in by_name:
                text = (
                    f"partition {name} does not exist; the partitions are "
                    f"{', '.join(sorted(by_name)[:50])}"
                )
                raise GridFault(FailureClass.NEVER, text)
        return [by_name[name] for name in self._settings.partitions]

    def _is_of_ours(self, node: SlurmNode) -> bool:
        wanted = set(self._settings.partitions)
        if "RESERVED" in node.states and not self._settings.reservation:
            return False  # the beneficiary of the reservation is unknown
        return not node.states & UNUSABLE and bool(node.partitions & wanted)

    def _pilots_on(self, node: SlurmNode, shape: Shape, memory_mb: int) -> tuple[int, int]:
        """Return how many pilots of a shape fit on a node: now, and when it is empty."""
        needs = [(self._cpus(shape), node.cpus, node.cpus_taken)]
        needs += [(memory_mb, node.memory_mb, node.memory_taken_mb)] if memory_mb else []
        needs += [(shape.gpus, node.gpus, node.gpus_taken)] if shape.gpus else []
        now = min(max(0, total - taken) // need for need, total, taken in needs)
        return now, min(total // need for need, total, _ in needs)


@asynccontextmanager
async def alone(path: Path) -> AsyncIterator[None]:
    """Hold an exclusive lock on this host, across processes. Raises GridFault."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise GridFault(FailureClass.AGAIN, f"{path}: {error.strerror}") from None
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await trio.sleep(LOCK_S)
        yield  # closing it unlocks it


def misfit(settings: SlurmSettings, quotas: Quotas) -> str:
    """Return why limits let no pilot of this pool run, ever; empty where they do."""
    walltime_s, limit_s = settings.walltime_s, quotas.limit_s
    if walltime_s is not None and limit_s is not None and walltime_s > limit_s:
        return f"`walltime` exceeds the limit of the account or qos: {duration_text(limit_s)}"
    for each in quotas.shared:
        if not each.most and each.what in (SUBMITS, JOBS, "cpu", "node"):
            return f"a limit allows no pilots: {each.said}"
    return ""


def _is_barred(partition: Partition, account: str) -> bool:
    if not account:
        return False  # Slurm knows our account, and we don't
    return account in partition.denied or bool(
        partition.accounts and account not in partition.accounts
    )
