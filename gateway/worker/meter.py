"""What a slot's tasks are charged: what the slot says, within what its agent has seen pass. Pure.

A task can change its slot's process, and so what that says of the time of this task and of later
ones. The agent knows when a slot had work, so all of that time is somebody's: what the slot does
not account for is charged to the tasks that it reports next, but for what getting work there and
back takes. That is allowed for by a budget, which is small and grows slowly, so that a slot that
tells of less than passes gains by it once, and then a twentieth.
"""

from typing import Final, NamedTuple

SPARE_NS: Final = 250_000_000  # at most: a busy host, and what a function imports
CHUNK_NS: Final = 1_000_000  # for each chunk's way there and back
SHARE: Final = 20  # one part in so many of the time
GAP_NS: Final = 200_000_000


class Moment(NamedTuple):
    """By the monotonic clock, and by one that stands still while the agent does."""

    now_ns: int
    seen_ns: int


class Attention:
    """Tells moments. Ask several times within GAP_NS: longer gaps are the agent's own."""

    def __init__(self, now_ns: int) -> None:
        self._moment = Moment(now_ns, now_ns)

    def at(self, now_ns: int) -> Moment:
        """This moment."""
        before = self._moment
        seen_ns = before.seen_ns + min(now_ns - before.now_ns, GAP_NS)
        self._moment = Moment(now_ns, seen_ns)
        return self._moment


class Meter:
    """The time of one slot's process."""

    __slots__ = ("_last", "_open_ns", "_room_ns", "_spare_ns")

    def __init__(self) -> None:
        self._last: Moment | None = None  # up to when its time is accounted for; None: it has none
        self._spare_ns = SPARE_NS  # that it may still leave unexplained
        self._room_ns = 0  # that has passed and was not charged
        self._open_ns = 0  # of that, what reports without tasks have not explained

    def hand(self, moment: Moment) -> None:
        """A chunk goes to the slot."""
        if self._last is None:
            self._last = moment
        self._earn(CHUNK_NS)

    def rest(self) -> None:
        """The slot has no chunk any more."""
        self._last = None
        self._open_ns = 0

    def charge(self, wall_ns: int, tasks: int, moment: Moment) -> int:
        """What tasks are charged that the slot says took so long together. Ask for each report."""
        last = self._last or moment
        self._last = moment
        passed_ns, seen_ns = moment.now_ns - last.now_ns, moment.seen_ns - last.seen_ns
        self._earn(seen_ns // SHARE)
        room_ns = min(self._room_ns, SPARE_NS + self._open_ns) + passed_ns
        wall_ns = min(wall_ns, room_ns) if tasks else 0
        open_ns = self._open_ns + seen_ns - wall_ns
        if tasks:
            wall_ns = min(wall_ns + max(0, open_ns - self._spare_ns), room_ns)
            self._earn(-open_ns)
            open_ns = 0
        self._room_ns, self._open_ns = room_ns - wall_ns, max(0, open_ns)
        return wall_ns

    def silent_ns(self, moment: Moment) -> int:
        """For how long, as the agent has seen it, no report has told of tasks."""
        return 0 if self._last is None else self._open_ns + moment.seen_ns - self._last.seen_ns

    def heir(self) -> "Meter":
        """For the slot's next process: what this one left unexplained is spent."""
        meter = Meter()
        meter._spare_ns = self._spare_ns
        return meter

    def _earn(self, spare_ns: int) -> None:
        self._spare_ns = min(max(0, self._spare_ns + spare_ns), SPARE_NS)
