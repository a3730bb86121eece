"""Simulated tasks: a task's arguments describe its behaviour."""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from simulations.world.host import Ground
from simulations.world.plan import JobPlan


@dataclass(frozen=True, slots=True)
class Task:
    """One call. `manner` is "ok", "error", "flaky", "poison" or "stuck"."""

    job: str
    number: int
    seconds: float
    manner: str

    @property
    def arguments(self) -> bytes:
        """Its wire format."""
        return f"{self.job} {self.number} {self.seconds:.6f} {self.manner}".encode()

    @property
    def result(self) -> bytes:
        """Its unique return value."""
        return f"{self.job} {self.number} done".encode()

    @property
    def is_stuck(self) -> bool:
        """Whether it never ends by itself."""
        return self.manner == "stuck"

    @property
    def is_poison(self) -> bool:
        """Whether it kills its slot."""
        return self.manner == "poison"

    def fails(self, ground: Ground) -> bool:
        """Whether it raises this time."""
        return self.manner == "error" or (self.manner == "flaky" and ground.dice.random() < 0.5)


@lru_cache(maxsize=4096)
def read_task(arguments: bytes) -> Task:
    """Parse a call."""
    job, number, seconds, manner = arguments.decode().split()
    return Task(job, int(number), float(seconds), manner)


def draw_task(plan: JobPlan, job: str, number: int, dice: Random) -> Task:
    """Draw a task by its job's plan."""
    seconds = plan.task_s
    if plan.spread > 1.0:
        seconds *= min(plan.spread, dice.expovariate(1.0) * 2)
    lot = dice.randrange(1000)
    for manner in ("errors", "flaky", "poison", "stuck"):
        share = getattr(plan, manner)
        if lot < share:
            return Task(job, number, seconds, "error" if manner == "errors" else manner)
        lot -= share
    return Task(job, number, seconds, "ok")
