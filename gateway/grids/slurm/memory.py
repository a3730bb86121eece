"""The requested and charged memory of a pilot without a configured amount. Pure.

A cluster that counts memory (`CR_..._Memory`) gives to a job without a request its `DefMemPerCPU`
or `DefMemPerNode`, or a whole node if neither is set: one pilot would have it alone. So a pilot
then requests its share: the memory that belongs to its CPUs on the node with least for each.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_KEY: Final = re.compile(r"\b(Def|Max)MemPer(CPU|Node)\s*=\s*(\d{1,12})\b", re.ASCII)
_UNITS_KB: Final = {"K": 1, "M": 1 << 10, "": 1 << 10, "G": 1 << 20, "T": 1 << 30}


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory settings of a cluster or a partition, in MB; 0: not set."""

    default_cpu_mb: int = 0
    default_node_mb: int = 0
    max_cpu_mb: int = 0
    max_node_mb: int = 0

    def default_mb(self, cpus: int) -> int:
        """Return the charge of a job without a request."""
        return self.default_cpu_mb * cpus or self.default_node_mb

    def max_mb(self, cpus: int) -> int:
        """Return the most that a job may have of a node without being charged for more CPUs."""
        return self.max_cpu_mb * cpus or self.max_node_mb


UNSAID: Final = Memory()


def read_memory(text: str) -> Memory:
    """Parse `scontrol show config`, or the line of a partition."""
    found = {f"{which}{per}": int(mb) for which, per, mb in _KEY.findall(text)}
    keys = "DefCPU", "DefNode", "MaxCPU", "MaxNode"
    return Memory(*(found.get(each, 0) for each in keys))


def memory_of(
    cpus: int, cluster: Memory, partitions: Sequence[Memory], nodes: Iterable[tuple[int, int]]
) -> tuple[int, int]:
    """Return the request of a pilot with these CPUs, 0 for none, and its charge (MB).

    Args:
        partitions: those it may run in. Their settings take precedence over the cluster's.
        nodes: of them: the CPUs and the memory (MB) of each.
    """
    defaults = [each.default_mb(cpus) or cluster.default_mb(cpus) for each in partitions]
    if defaults and all(defaults):
        return 0, max(defaults)
    per_cpu_mb = min((mb // has for has, mb in nodes if has >= max(1, cpus)), default=0)
    limits = [each.max_mb(cpus) or cluster.max_mb(cpus) for each in partitions]
    asked_mb = min((per_cpu_mb * cpus, *filter(None, limits)))
    return asked_mb, asked_mb


def read_amount_mb(text: str) -> int:
    """Parse Slurm's "2G" or "500" into MB, rounded up; 0 if it is invalid."""
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", text.upper(), re.ASCII)
    return -(-int(match[1]) * _UNITS_KB[match[2]] // 1024) if match is not None else 0
