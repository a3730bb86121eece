"""Assigns a worker's cores and GPUs to its slots. Pure."""

import math
from collections.abc import Collection, Sequence
from itertools import pairwise


def share_cores(cores: Collection[int], slots: int) -> list[frozenset[int]]:
    """Return the cores of each slot: adjacent cores in shares as equal as possible.

    With more slots than cores some slots share a core.
    """
    order = sorted(cores)
    if slots >= len(order):
        return [frozenset({order[slot % len(order)]}) for slot in range(slots)]
    edges = [len(order) * slot // slots for slot in range(slots + 1)]
    return [frozenset(order[low:high]) for low, high in pairwise(edges)]


def show_cores(cores: Collection[int]) -> str:
    """Format cores as cgroups and container runtimes expect them: `0,1`."""
    return ",".join(map(str, sorted(cores)))


def gpus_held(amount: float) -> int:
    """Return the number of GPUs that a task holds; a fraction of a GPU takes the whole GPU."""
    return math.ceil(amount)


class Devices:
    """The GPUs of a worker, and the slots that hold them."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self._free = list(names)
        self._held: dict[int, list[str]] = {}  # by slot

    @property
    def free(self) -> int:
        """The number of free GPUs."""
        return len(self._free)

    def hold(self, slot: int, gpus: int) -> list[str]:
        """Give a slot this many GPUs, instead of those it had; the first ones that are free."""
        self.release(slot)
        assert gpus <= len(self._free), "GPUs must be checked before a slot changes its environment"
        taken, self._free = self._free[:gpus], self._free[gpus:]
        if taken:
            self._held[slot] = taken
        return taken

    def release(self, slot: int) -> None:
        """Take back the GPUs of a slot, in the order of their names."""
        free = {*self._free, *self._held.pop(slot, ())}
        self._free = [name for name in self.names if name in free]
