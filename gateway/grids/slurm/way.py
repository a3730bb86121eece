"""The two interfaces to Slurm, under one protocol."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from federation.clocks import UtcS
from gateway.grids.slurm.asking import ArrayRequest
from gateway.grids.slurm.listing import Partition, SlurmNode
from gateway.grids.slurm.memory import UNSAID, Memory
from gateway.grids.slurm.quotas import Quotas

# A larger answer, for a hundred thousand jobs, is a mistake, or not Slurm's.
ANSWER_BYTES_MAX: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class SlurmBounds:
    """Slurm's configuration; None: unknown.

    Attributes:
        array_max: tasks of an array.
        jobs_max: that it holds, of all users.
        has_quotas: limits of accounts and qualities of service are enforced.
        counts_memory: a job takes memory of its node, and not only CPUs.
        memory: the defaults of a job without a request.
    """

    array_max: int | None = None
    jobs_max: int | None = None
    has_quotas: bool = False
    counts_memory: bool = True
    memory: Memory = UNSAID


async def is_there(path: str, at_most_s: float) -> bool:
    """Whether a file exists; False if a network file system does not answer in time."""
    with trio.move_on_after(at_most_s):
        return await trio.to_thread.run_sync(os.path.exists, path, abandon_on_cancel=True)
    return False


class SlurmInterface(Protocol):
    """An interface to Slurm. Each call raises GridFault, and ends within its time limit."""

    async def version(self) -> str:
        """Return Slurm's version, after its controller has answered."""
        ...

    async def jobs(self) -> Mapping[str, Any]:
        """Return the known jobs, as Slurm's JSON."""
        ...

    async def nodes(self, names: Sequence[str] = ()) -> Sequence[SlurmNode]:
        """Return nodes of these names, if the way can ask for them, else all; () is all."""
        ...

    async def partitions(self) -> Sequence[Partition]:
        """Return all partitions."""
        ...

    async def bounds(self) -> SlurmBounds:
        """Return the limits of its configuration."""
        ...

    async def quotas(self, qos: Sequence[str]) -> Quotas:
        """Return the present limits of accounts and of these qualities of service for us."""
        ...

    async def expect(self, request: ArrayRequest) -> UtcS | None:
        """Return when such a job would begin (UTC), without submitting it; None: unknown."""
        ...

    async def submit(self, request: ArrayRequest) -> None:
        """Submit an array."""
        ...

    async def cancel(self, grid_ids: Collection[str]) -> None:
        """Cancel tasks, "7_1"; ended ones are no fault."""
        ...
