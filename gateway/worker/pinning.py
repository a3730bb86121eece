"""Cores for slots: each its own, as far as they reach. Pure."""

from collections.abc import Collection
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
