"""Tasks of detached jobs among the arguments of calls."""

from typing import Any

from federation.objects.labels import UNLABELLED
from federation.objects.references import reduced_input


class DetachedTask:
    """Stands for the result of a task of a detached job; `JobHandle.task` makes one.

    Pass it anywhere among the arguments of a call, also inside lists, dicts and dataclasses: the
    call begins once the task has ended, and gets its result. Such calls of a detached job go on
    without their client.

    Attributes:
        job: the id of the job.
        number: the number of the task in it.
        gateway: the address of its gateway.
    """

    __slots__ = ("gateway", "job", "number")
    label = UNLABELLED  # its gateway knows it

    def __init__(self, job: str, number: int, gateway: str) -> None:
        self.job = job
        self.number = number
        self.gateway = gateway

    @property
    def node(self) -> tuple[str, int]:
        """The id of its job, and its number there. For the engine, as all that follows."""
        return self.job, self.number

    @property
    def is_detached(self) -> bool:
        """Whether its task stays without its client: always."""
        return True

    def as_input(self) -> None:
        """Return what it gives to a call: its gateway knows."""
        return

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced_input(self)

    def __copy__(self) -> "DetachedTask":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "DetachedTask":
        return self

    def __repr__(self) -> str:
        return f"<DetachedTask: task {self.number} of job {self.job}>"
