"""What a slot's process runs in: its home. Tasks of one home share its process, one by one. Pure.

A bare slot is a process as any other. Other homes are containers, sandboxes and processes with
packages of their own; and, of each, those that hold so many GPUs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from federation.environments import Environment
from policies.environments import IMAGE, PACKAGES


@dataclass(frozen=True, slots=True)
class Home:
    """What a slot's process runs in.

    Attributes:
        environment: `key_of` an environment; empty for none.
        site: whose work it is, when it is kept apart from that of all others; empty for ours.
        gpus: how many it holds for as long as it lives.
    """

    environment: str = ""
    site: str = ""
    gpus: int = 0

    def __str__(self) -> str:
        what = self.environment.partition("|")[0] or "a bare slot"
        whose = f" for work of {self.site}" if self.site else ""
        return what + whose + (f" with {self.gpus} GPUs" if self.gpus else "")


BARE: Final = Home()


def key_of(environment: Environment | None) -> str:
    """What tells environments apart that can't share a process."""
    if environment is None:
        return ""
    if environment.image:
        return f"{IMAGE}{environment.image}|{environment.python}"
    return f"{PACKAGES}{environment.packages}|{environment.digest}"


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
