"""The two ways to ask Slurm, under one interface."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gateway.grids.slurm.asking import Request
from gateway.grids.slurm.listing import Node, Partition

# More than Slurm says of a hundred thousand jobs is a mistake, or no Slurm.
ANSWER_BYTES_MAX: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """How Slurm is configured; None: it does not say.

    Attributes:
        array_max: tasks of an array.
        jobs_max: that it holds, of everybody.
    """

    array_max: int | None = None
    jobs_max: int | None = None


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

    async def expect(self, request: Request) -> float | None:
        """When such a job would begin (UTC), without having it; None: it does not say."""
        ...

    async def submit(self, request: Request) -> None:
        """Have an array."""
        ...

    async def cancel(self, grid_ids: Collection[str]) -> None:
        """Let tasks go, "7_1"; those that have ended are no fault."""
        ...
