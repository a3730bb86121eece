"""The two ways to ask Slurm, under one interface."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from gateway.grids.slurm.asking import Request
from gateway.grids.slurm.listing import Node, Partition
from gateway.grids.slurm.memory import UNSAID, Memory
from gateway.grids.slurm.quotas import Quotas

# More than Slurm says of a hundred thousand jobs is a mistake, or no Slurm.
ANSWER_BYTES_MAX: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """How Slurm is configured; None: it does not say.

    Attributes:
        array_max: tasks of an array.
        jobs_max: that it holds, of everybody.
        has_quotas: limits of accounts and qualities of service are kept.
        counts_memory: a job takes memory of its node, and not CPUs alone.
        memory: what a job has that asks for none.
    """

    array_max: int | None = None
    jobs_max: int | None = None
    has_quotas: bool = False
    counts_memory: bool = True
    memory: Memory = UNSAID


async def is_there(path: str, at_most_s: float) -> bool:
    """Whether a file is there; not, where a file system of the net does not answer in time."""
    with trio.move_on_after(at_most_s):
        return await trio.to_thread.run_sync(os.path.exists, path, abandon_on_cancel=True)
    return False


class Way(Protocol):
    """A way to ask Slurm. Each call raises GridFault, and takes no longer than the settings say."""

    async def version(self) -> str:
        """Of Slurm; its controller has answered."""
        ...

    async def jobs(self) -> Mapping[str, Any]:
        """The jobs that it knows of, as its JSON."""
        ...

    async def nodes(self) -> Sequence[Node]:
        """All nodes."""
        ...

    async def partitions(self) -> Sequence[Partition]:
        """All partitions."""
        ...

    async def bounds(self) -> Bounds:
        """How it is configured."""
        ...

    async def quotas(self, qos: Sequence[str]) -> Quotas:
        """The limits of accounts and of these qualities of service that hold for us now."""
        ...

    async def expect(self, request: Request) -> float | None:
        """When such a job would begin (UTC), without having it; None: it does not say."""
        ...

    async def submit(self, request: Request) -> None:
        """Have an array."""
        ...

    async def cancel(self, grid_ids: Collection[str]) -> None:
        """Let tasks go, "7_1"; those that have ended are no fault."""
        ...
