"""Cores and GPUs of a worker: which slot has which. Pure."""

import math
from collections.abc import Collection, Sequence
from itertools import pairwise


def share_cores(cores: Collection[int], slots: int) -> list[frozenset[int]]:
    """The cores of each slot: neighbours, as many for each as there are for all.

    With more slots than cores some slots have one in common.
    """
    order = sorted(cores)
    if slots >= len(order):
        return [frozenset({order[slot % len(order)]}) for slot in range(slots)]
    edges = [len(order) * slot // slots for slot in range(slots + 1)]
    return [frozenset(order[low:high]) for low, high in pairwise(edges)]


def show_cores(cores: Collection[int]) -> str:
    """Cores as cgroups and container runtimes write them: `0,1`."""
    return ",".join(map(str, sorted(cores)))


def gpus_held(amount: float) -> int:
    """The GPUs that a task has to itself; who asks for a part of one has all of it."""
    return math.ceil(amount)


class Devices:
    """The GPUs of a worker, and who holds which."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self._free = list(names)
        self._held: dict[int, list[str]] = {}  # by slot

    @property
    def free(self) -> int:
        """How many nobody holds."""
        return len(self._free)

    def hold(self, slot: int, gpus: int) -> list[str]:
        """Give a slot so many, instead of what it had; the first ones that are free."""
        self.release(slot)
        assert gpus <= len(self._free), "moved to a home without looking for its GPUs"
        taken, self._free = self._free[:gpus], self._free[gpus:]
        if taken:
            self._held[slot] = taken
        return taken

    def release(self, slot: int) -> None:
        """Take back what a slot had, in the order of their names."""
        free = {*self._free, *self._held.pop(slot, ())}
        self._free = [name for name in self.names if name in free]
