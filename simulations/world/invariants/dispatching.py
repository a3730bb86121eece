"""Work that is handed out stays where it is, unless there is a reason to move it."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from simulations.world.invariants.invariants import Invariant
from simulations.world.trace import TraceEntry

if TYPE_CHECKING:
    from simulations.world.world import World

# In half a second. A recall and its answer take about a millisecond: tasks that go back and forth
# are handed out some five hundred times.
HANDOUTS_MAX: Final = 20


class ComesToRest(Invariant):
    """No task is recalled from a worker only to be handed out again, and again."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._handouts: Counter[tuple[str, str, int]] = Counter()  # by site, job, first task

    def see(self, entry: TraceEntry) -> None:
        """Count the assignments that begin with a task."""
        if entry.what != "assigns":
            return
        key = (entry.host, entry.job, entry.first)
        self._handouts[key] += 1
        if self._handouts[key] > HANDOUTS_MAX:
            text = f"{entry.host} handed out task {entry.first} over {HANDOUTS_MAX} times in 0.5 s"
            self.fail(text, entry.job, entry.first)

    def check(self) -> None:
        """Begin a new count; this is called twice a second."""
        self._handouts.clear()
