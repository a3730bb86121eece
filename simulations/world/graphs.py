"""Graphs in a world: which calls wait for which, on the side of the user and of a slot."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from federation.engine.books.streams import Ended
from federation.objects.inputs import has_inputs, read_head
from federation.objects.labels import UNLABELLED, DataLabel
from federation.objects.open_calls import InputFailure, InputValue, OpenCall
from simulations.world.plan import JobPlan

if TYPE_CHECKING:
    from simulations.world.client import SimJob


def inputs_of(plan: JobPlan, number: int) -> tuple[int, ...]:
    """Return the tasks of its job for which a call waits.

    A call waits for the one before it, but for the first of each chain: that waits for the last
    calls of the chains before, up to `fan_in` of them.
    """
    if not plan.chain or not number:
        return ()
    if number % plan.chain:
        return (number - 1,)
    ends = (number - 1 - at * plan.chain for at in range(plan.fan_in))
    return tuple(each for each in ends if each >= 0)


@dataclass(frozen=True, slots=True, eq=False)
class SimFuture:
    """A call of a user's job as an input of another one; see open_calls.InputFuture."""

    job: "SimJob"
    number: int
    is_detached: bool = False

    @property
    def node(self) -> tuple[str, int]:
        """Its job and number."""
        return self.job.id, self.number

    @property
    def label(self) -> DataLabel:
        """Its label, as far as its user knows."""
        return UNLABELLED

    def as_input(self) -> InputValue | InputFailure | None:
        """Return what its user knows of it."""
        outcome = self.job.outcomes[self.number]
        if isinstance(outcome, Ended):
            return InputFailure(outcome.text)
        return None if outcome is None else InputValue(outcome)


def sealed(job: "SimJob", number: int) -> bytes | OpenCall:
    """Return a call of a user's job, with the calls that it waits for."""
    arguments = job.tasks[number].arguments
    found = tuple(SimFuture(job, each) for each in inputs_of(job.plan, number))
    return OpenCall(arguments, (), found) if found else arguments


def opened(call: bytes, done: dict[int, bytes]) -> tuple[bytes, tuple[bytes, ...]] | None:
    """Return the arguments and the values of inputs of a call, as a slot does.

    None: it waits for a task of its chain that is not in `done`, by the numbers of its job.
    """
    if not has_inputs(call):
        return call, ()
    head = read_head(call)
    found: list[bytes] = []
    for each in head.inputs:
        if isinstance(each, bytes):
            found.append(each)
        elif all(task in done for task in range(each[1], each[2])):
            found += [done[task] for task in range(each[1], each[2])]
        else:
            return None
    return call[head.start :], tuple(found)
