"""Tasks in an agent's books: assignments, pieces, and the bundles that slots hold. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from federation.ranges import RangeSet
from gateway.worker.isolation.homes import BARE, SlotHome
from gateway.worker.slot.meter import Meter


@dataclass(frozen=True, slots=True)
class AssignmentTerms:
    """The terms of an assignment, common to all its tasks."""

    assignment: int
    job: str
    function: bytes
    timeout_s: float | None
    prints: bool
    origin: str = ""  # the site that sent it
    gpus: int = 0  # the number that each task has to itself
    task_pass: str = ""  # by which its tasks may be clients of the grid; empty: they may not be
    wary: bool = False  # each task is reported as begun before it starts
    logs: bool = False  # the output of its tasks is sent while they run
    objects: str = ""  # the project whose objects its calls refer to; empty: they refer to none
    results: str = ""  # which results are left as objects: federation.objects.left
    project: str = ""  # of those
    chained: bool = False  # its calls read results of the tasks before: one slot has all of them


@dataclass(slots=True)
class AgentBundle:
    """Contiguous tasks of one assignment, with their arguments.

    Tasks under suspicion (`alone`) shared a bundle with one that took the slot down; they are sent
    one at a time, so that the one at fault is clear.
    """

    terms: AssignmentTerms
    first: int
    arguments: list[bytes]
    alone: bool = False

    @property
    def stop(self) -> int:
        """The number after its last task's."""
        return self.first + len(self.arguments)

    def cut(self, first: int, stop: int) -> "AgentBundle":
        """Return the part [first, stop)."""
        part = self.arguments[first - self.first : stop - self.first]
        return AgentBundle(self.terms, first, part, self.alone)


@dataclass(slots=True)
class SlotBundle:
    """A piece at a slot, as the slot's tasks from `number` on.

    Tasks before `reported` are settled; tasks from `live` on were taken back.
    """

    number: int
    piece: AgentBundle
    reported: int
    live: int

    def task(self, number: int) -> int:
        """Return the job's number of the slot's task `number`."""
        return self.piece.first + number - self.number

    def part(self, low: int, high: int) -> AgentBundle:
        """Return the slot's tasks [low, high) as a piece."""
        return self.piece.cut(self.task(low), self.task(high))


@dataclass(eq=False, slots=True)
class Freeze:
    """One operation of taking tasks back: the slot starts none from `bound` on."""

    bound: int


@dataclass(slots=True)
class SlotBook:
    """The state of one slot process, from its start to its end."""

    index: int
    bundles: deque[SlotBundle] = field(default_factory=deque)
    next_number: int = 0
    is_ready: bool = False
    freeze: Freeze | None = None
    is_forsaken: bool = False  # its work is abandoned: it is being killed
    home: SlotHome = BARE
    moves_to: SlotHome | None = None  # it is being killed, to restart in another home
    worked_ns: int = 0  # by its reports
    meter: Meter = field(default_factory=Meter)
    told: int = -1  # the last of its tasks that was reported as begun

    @property
    def has_room(self) -> bool:
        """Whether it may be given more work at all."""
        return self.is_ready and self.freeze is None and not self.is_forsaken

    @property
    def unsettled(self) -> int | None:
        """The first unreported task of its current bundle; it may be running that one."""
        bundle = self.bundles[0] if self.bundles else None
        return bundle.reported if bundle is not None and bundle.reported < bundle.live else None

    def reached(self, started: int) -> int:
        """Return the last task that it may have started: a task can forge `started`."""
        low = self.unsettled
        return started if low is None else max(started, low)

    def movable(self, started: int) -> int:
        """Return how many of its tasks another slot may have: none while it has a chain."""
        if any(bundle.piece.terms.chained for bundle in self.bundles):
            return 0
        return self.unstarted(started)

    def unstarted(self, started: int) -> int:
        """Return how many of its tasks it has certainly not started; `started` is its word."""
        after = self.reached(started) + 1
        return sum(
            max(0, bundle.live - max(bundle.number, bundle.reported, after))
            for bundle in self.bundles
        )


@dataclass(slots=True)
class HeldAssignment:
    """An assignment that is not settled yet. `left` are the tasks the gateway waits for."""

    terms: AssignmentTerms
    left: RangeSet
    cancelled: RangeSet = field(default_factory=RangeSet)
    stops: list[tuple[int, int, int]] = field(default_factory=list)  # first, stop, when (ns)


def cut_out(
    queue: Iterable[AgentBundle], assignment: int, first: int, stop: int
) -> tuple[deque[AgentBundle], RangeSet]:
    """Return a queue without an assignment's tasks of [first, stop), and the tasks removed."""
    taken = RangeSet()
    kept: deque[AgentBundle] = deque()
    for piece in queue:
        low, high = max(first, piece.first), min(stop, piece.stop)
        if piece.terms.assignment != assignment or low >= high:
            kept.append(piece)
            continue
        taken.add(low, high)
        parts = (piece.cut(piece.first, low), piece.cut(high, piece.stop))
        kept.extend(part for part in parts if part.arguments)
    return kept, taken
