"""The home of a slot's process: tasks of one home share its process, one by one. Pure.

A bare slot is a plain process. Other homes are containers, sandboxes and processes with packages of
their own; and each of these with a number of GPUs.
"""

from dataclasses import dataclass
from typing import Final

from federation.messages.environments import Environment
from policies.placement.environments import IMAGE, PACKAGES


@dataclass(frozen=True, slots=True)
class SlotHome:
    """The environment, site and GPUs of a slot's process.

    Attributes:
        environment: `key_of` an environment; empty for none.
        site: the site whose work is kept apart here from all other work; empty for ours.
        gpus: the number that it holds for as long as it lives.
    """

    environment: str = ""
    site: str = ""
    gpus: int = 0

    @property
    def image(self) -> str:
        """Its container image; empty if it is none."""
        name = self.environment.partition("|")[0]
        return name.removeprefix(IMAGE) if name.startswith(IMAGE) else ""

    @property
    def image_python(self) -> str:
        """The Python that its image must have."""
        return self.environment.partition("|")[2]

    def __str__(self) -> str:
        what = self.environment.partition("|")[0] or "a bare slot"
        whose = f" for work of {self.site}" if self.site else ""
        return what + whose + (f" with {self.gpus} GPUs" if self.gpus else "")


BARE: Final = SlotHome()


def key_of(environment: Environment | None) -> str:
    """Return a key that is equal for environments that can share a process."""
    if environment is None:
        return ""
    if environment.image:
        return f"{IMAGE}{environment.image}|{environment.python}"
    return f"{PACKAGES}{environment.packages}|{environment.digest}"
