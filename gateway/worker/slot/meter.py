"""The charges of a slot's tasks: the slot's figures, bounded by the agent's clock. Pure.

A task can change its slot's process, and so the slot's figures for this task and for later ones.
The agent knows when a slot had work, so all of that time is charged: the tasks that the slot
reports next are charged for the time that it does not account for, except for the travel of work
there and back. A budget allows for that travel. It is small and grows slowly, so a slot that
under-reports gains the budget once, and a twentieth of the time from then on.
"""

from typing import Final, NamedTuple

SPARE_NS: Final = 250_000_000  # at most: a busy host, and the imports of a function
BUNDLE_NS: Final = 1_000_000  # for each bundle's way there and back
SHARE: Final = 20  # the budget grows by one part in this many of the time
GAP_NS: Final = 200_000_000


class Moment(NamedTuple):
    """A moment by the monotonic clock, and by one that stops while the agent is suspended."""

    now_ns: int
    seen_ns: int


class Attention:
    """The clock of moments. Ask several times within GAP_NS: longer gaps are the agent's own."""

    def __init__(self, now_ns: int) -> None:
        self._moment = Moment(now_ns, now_ns)

    def at(self, now_ns: int) -> Moment:
        """Return this moment."""
        before = self._moment
        seen_ns = before.seen_ns + min(now_ns - before.now_ns, GAP_NS)
        self._moment = Moment(now_ns, seen_ns)
        return self._moment


class Meter:
    """The time of one slot's process."""

    __slots__ = ("_last", "_open_ns", "_room_ns", "_spare_ns", "_uncut_ns")

    def __init__(self) -> None:
        # up to when its time is accounted for; None: it has no work
        self._last: Moment | None = None
        self._spare_ns = SPARE_NS  # the time that it may still leave unexplained
        self._room_ns = 0  # the time that has passed and was not charged
        self._open_ns = 0  # the part of it not explained by reports without tasks
        self._uncut_ns = 0  # the time that the agent has seen pass since the room was cut

    def hand(self, moment: Moment) -> None:
        """Note that a bundle goes to the slot."""
        if self._last is None:
            self._last = moment
        self._earn(BUNDLE_NS)

    def rest(self) -> None:
        """Note that the slot has no bundle any more."""
        self._last = None
        self._open_ns = 0
        self._cut()

    def charge(self, wall_ns: int, tasks: int, moment: Moment) -> int:
        """Return the charge of tasks that took `wall_ns` by the slot's word. Call once a report."""
        last = self._last or moment
        self._last = moment
        passed_ns, seen_ns = moment.now_ns - last.now_ns, moment.seen_ns - last.seen_ns
        self._earn(seen_ns // SHARE)
        # An agent that stood still reads many reports at once: the rest that the first of them
        # leaves of the passed time is the others'.
        self._uncut_ns += seen_ns
        if self._uncut_ns >= GAP_NS:
            self._cut()
        room_ns = self._room_ns + passed_ns
        wall_ns = min(wall_ns, room_ns) if tasks else 0
        open_ns = self._open_ns + seen_ns - wall_ns
        if tasks:
            wall_ns = min(wall_ns + max(0, open_ns - self._spare_ns), room_ns)
            self._earn(-open_ns)
            open_ns = 0
        self._room_ns, self._open_ns = room_ns - wall_ns, max(0, open_ns)
        return wall_ns

    def silent_ns(self, moment: Moment) -> int:
        """Return how long, by the agent's clock, no report has named tasks."""
        return 0 if self._last is None else self._open_ns + moment.seen_ns - self._last.seen_ns

    def heir(self) -> "Meter":
        """Return the meter of the slot's next process, which keeps the remaining budget."""
        meter = Meter()
        meter._spare_ns = self._spare_ns
        return meter

    def _cut(self) -> None:
        """Let go of time that no later task can have taken."""
        self._room_ns = min(self._room_ns, SPARE_NS + self._open_ns)
        self._uncut_ns = 0

    def _earn(self, spare_ns: int) -> None:
        self._spare_ns = min(max(0, self._spare_ns + spare_ns), SPARE_NS)
