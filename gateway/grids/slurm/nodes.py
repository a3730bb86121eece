"""The states of Slurm's nodes: which begin no job, and which are out of service. Pure.

Slurm lets the jobs of a node that is drained run to their end, which for a pilot may be days away.
So the pilots of such a node are reported as leaving: they take no new task, and end.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from gateway.grids.slurm.listing import SlurmNode

# The words for a node that its administrators, or Slurm by itself, have taken out of service.
# `scontrol reboot ASAP` drains as well. A node that does not answer may be back in a moment.
_OUT: Final[Mapping[str, str]] = {
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "drained",
    "DOWN": "down",
    "FAIL": "failing",
    "FAILING": "failing",
    "ERROR": "in error",
    "INVAL": "invalid: its configuration differs from slurm.conf",
    "INVALID_REG": "invalid: its configuration differs from slurm.conf",
    "MAINT": "in maintenance",
    "MAINTENANCE": "in maintenance",
}
_MAINTENANCE: Final = frozenset(("MAINT", "MAINTENANCE"))
# A node in one of these states begins no job.
UNUSABLE: Final = frozenset(
    (
        *_OUT,
        *("FUTURE", "UNKNOWN", "NOT_RESPONDING", "NO_RESPOND"),
        *("POWERED_DOWN", "POWERING_DOWN", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED"),
    )
)
_REASON_CHARS: Final = 100


def why_out(node: SlurmNode, reservation: str = "") -> str:
    """Return why a node is out of service; empty where it is in service.

    Args:
        reservation: the one that the pool's pilots run in, if any. A maintenance reservation of
            that name is theirs, so it does not take its nodes from them.
    """
    words = node.states & _OUT.keys()
    if reservation and node.reservation in ("", reservation):
        words -= _MAINTENANCE
    if not words:
        return ""
    said = f"node {node.name} is {' and '.join(sorted({_OUT[each] for each in words}))}"
    if words <= _MAINTENANCE:  # a reason stays with a node after it was resumed
        return said
    reason = "".join(each for each in node.reason if each.isprintable())[:_REASON_CHARS].strip()
    return f"{said} ({reason})" if reason else said


def leaving(
    hosts: Mapping[str, str], nodes: Iterable[SlurmNode], reservation: str = ""
) -> dict[str, str]:
    """Return the pilots whose node is out of service, each with the reason.

    Args:
        hosts: the node of each pilot, by the pilot's name.
        nodes: those of Slurm, as they are now; one that is missing says nothing.
    """
    out = {each.name: why for each in nodes if (why := why_out(each, reservation))}
    return {pilot: out[node] for pilot, node in hosts.items() if node in out}


def ask_for(hosts: Collection[str], most: int) -> tuple[str, ...]:
    """Return the names of nodes to ask for, sorted; empty to ask for all, beyond `most`."""
    names = sorted(set(hosts))
    return tuple(names) if len(names) <= most else ()
