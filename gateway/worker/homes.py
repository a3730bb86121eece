"""What a slot's process runs in: its home. Tasks of one home share its process, one by one. Pure.

A bare slot is a process as any other. Other homes are containers, sandboxes and processes with
packages of their own; and, of each, those that hold so many GPUs.
"""

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

    @property
    def image(self) -> str:
        """The container image that it is; empty if it is none."""
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


BARE: Final = Home()


def key_of(environment: Environment | None) -> str:
    """What tells environments apart that can't share a process."""
    if environment is None:
        return ""
    if environment.image:
        return f"{IMAGE}{environment.image}|{environment.python}"
    return f"{PACKAGES}{environment.packages}|{environment.digest}"
