"""An agent's books: which tasks wait, which slot has which, and how to get them back. Pure.

Tasks come in assignments and go to slots in *chunks* worth about ten milliseconds. A slot has
one chunk that it works on and one that waits in its channel, so that it never idles. A task is
in one place: the queue, a chunk, or gone (reported or handed back).

Taking tasks back from a slot (`bound_to_reclaim`, `reclaim`) needs no answer from it. The agent
writes a limit into the slot's cells, waits until the slot must have seen it, and reads where the
slot is: what lies past both is the agent's again, and the slot will stop there by itself. The
slot is not fed until it has said so.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from federation.ranges import Range

CHUNK_S: Final = 0.010
CHUNK_TASKS_MAX: Final = 1000
CHUNK_MIN_S: Final = 0.001  # less is not worth a chunk of its own
# A chunk waits behind the running one only when tasks are shorter than this.
AHEAD_MAX_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Terms:
    """What an assignment says of its tasks."""

    assignment: int
    job: str
    function: bytes
    timeout_s: float | None
    prints: bool


@dataclass(slots=True)
class Piece:
    """Contiguous tasks of one assignment, with their arguments."""

    terms: Terms
    first: int
    arguments: list[bytes]

    @property
    def stop(self) -> int:
        """The number after its last task's."""
        return self.first + len(self.arguments)

    def cut(self, first: int, stop: int) -> "Piece":
        """The part [first, stop)."""
        return Piece(self.terms, first, self.arguments[first - self.first : stop - self.first])


@dataclass(slots=True)
class Chunk:
    """A piece at a slot, as the slot's tasks [number, end).

    Those before `reported` are done; those from `live` on have been reclaimed.
    """

    number: int
    piece: Piece
    reported: int
    live: int

    @property
    def end(self) -> int:
        """The slot's number after its last task."""
        return self.number + len(self.piece.arguments)

    def task(self, number: int) -> int:
        """The job's number of the slot's task `number`."""
        return self.piece.first + number - self.number

    def part(self, low: int, high: int) -> Piece:
        """The slot's tasks [low, high) as a piece."""
        return self.piece.cut(self.task(low), self.task(high))


@dataclass(slots=True)
class SlotBook:
    """What one slot has."""

    index: int
    chunks: deque[Chunk] = field(default_factory=deque)
    next_number: int = 0
    functions: set[bytes] = field(default_factory=set)
    limited: bool = False  # tasks are being taken back: not fed until it has stopped
    ready: bool = False

    @property
    def unreported(self) -> int:
        """Tasks that it has and that are still its."""
        return sum(max(0, chunk.live - chunk.reported) for chunk in self.chunks)


class Roster:
    """The books of one agent with so many slots."""

    def __init__(self, slots: int) -> None:
        self.slots = [SlotBook(index) for index in range(slots)]
        self.queue: deque[Piece] = deque()
        self._seconds: dict[bytes, float] = {}

    # --- work comes and goes -------------------------------------------------------------------

    def add(self, piece: Piece) -> None:
        """Queue new tasks."""
        if piece.arguments:
            self.queue.append(piece)

    def feed(self) -> Iterator[tuple[SlotBook, Chunk]]:
        """Hand out chunks to slots that have room, one at a time."""
        waiting = sum(len(piece.arguments) for piece in self.queue)
        for depth in (0, 1):
            for slot in self.slots:
                if not self.queue:
                    return
                if not slot.ready or slot.limited or len(slot.chunks) > depth:
                    continue
                seconds = self._seconds.get(self.queue[0].terms.function)
                if depth == 1 and (seconds is None or seconds > AHEAD_MAX_S):
                    continue
                chunk = self._chunk(slot, seconds, waiting)
                waiting -= len(chunk.piece.arguments)
                yield slot, chunk

    def _chunk(self, slot: SlotBook, seconds: float | None, waiting: int) -> Chunk:
        piece = self.queue[0]
        tasks = 1 if seconds is None else max(1, int(CHUNK_S / max(seconds, 1e-9)))
        share = math.ceil(waiting / len(self.slots))
        if seconds is not None:
            share = max(share, int(CHUNK_MIN_S / max(seconds, 1e-9)))
        tasks = min(tasks, CHUNK_TASKS_MAX, share)
        if tasks >= len(piece.arguments):
            self.queue.popleft()
            taken = piece
        else:
            taken = piece.cut(piece.first, piece.first + tasks)
            self.queue[0] = piece.cut(piece.first + tasks, piece.stop)
        number = slot.next_number
        end = number + len(taken.arguments)
        slot.next_number = end
        chunk = Chunk(number, taken, reported=number, live=end)
        slot.chunks.append(chunk)
        return chunk

    def reported(
        self, slot: SlotBook, number: int, tasks: int, wall_ns: int
    ) -> tuple[Terms, int] | None:
        """A slot reports tasks from `number` on: whose they are and the job's first number.

        None when they are not the slot's to report.
        """
        for chunk in slot.chunks:
            if chunk.reported == number and tasks > 0 and number + tasks <= chunk.live:
                chunk.reported += tasks
                self._learn(chunk.piece.terms.function, tasks, wall_ns)
                return chunk.piece.terms, chunk.task(number)
        return None

    def _learn(self, function: bytes, tasks: int, wall_ns: int) -> None:
        seconds = wall_ns / tasks / 1e9
        known = self._seconds.get(function, seconds)
        self._seconds[function] = known + (seconds - known) * tasks / (tasks + 10)

    def ended(self, slot: SlotBook, number: int, stop: int) -> bool:
        """A slot is through with a chunk, having started none from `number` on.

        What it did not start and was not reclaimed is queued again. False when it has no such
        chunk.
        """
        if not slot.chunks or slot.chunks[0].end != stop or number < slot.chunks[0].reported:
            return False
        chunk = slot.chunks.popleft()
        if chunk.reported < chunk.live:
            self.queue.appendleft(chunk.part(chunk.reported, chunk.live))
        if not slot.chunks:
            slot.limited = False
        return True

    # --- taking back ---------------------------------------------------------------------------

    def withdraw(self, assignment: int, first: int, stop: int) -> list[Range]:
        """Take an assignment's queued tasks of [first, stop) out; return which they were."""
        taken: list[Range] = []
        kept: deque[Piece] = deque()
        for piece in self.queue:
            low, high = max(first, piece.first), min(stop, piece.stop)
            if piece.terms.assignment != assignment or low >= high:
                kept.append(piece)
                continue
            taken.append((low, high))
            parts = (piece.cut(piece.first, low), piece.cut(high, piece.stop))
            kept.extend(part for part in parts if part.arguments)
        self.queue = kept
        return sorted(taken)

    def holders(self, assignment: int, first: int, stop: int) -> list[SlotBook]:
        """The slots that have unreported tasks of an assignment in [first, stop)."""
        return [
            slot
            for slot in self.slots
            if any(
                chunk.piece.terms.assignment == assignment
                and chunk.task(chunk.reported) < stop
                and first < chunk.task(chunk.live)
                and chunk.reported < chunk.live
                for chunk in slot.chunks
            )
        ]

    def reclaim(self, slot: SlotBook, bound: int) -> None:
        """Queue again everything that the slot will not start: its tasks from `bound` on."""
        for chunk in reversed(slot.chunks):
            low = max(bound, chunk.reported, chunk.number)
            if low < chunk.live:
                self.queue.appendleft(chunk.part(low, chunk.live))
                chunk.live = low

    def richest(self) -> SlotBook | None:
        """The slot to take tasks from for one that has run dry: who has most beyond the first."""
        if self.queue or all(slot.chunks or not slot.ready for slot in self.slots):
            return None
        rich = [slot for slot in self.slots if not slot.limited and slot.unreported > 1]
        return max(rich, key=lambda slot: slot.unreported, default=None)

    def running(self, slot: SlotBook, started: int) -> tuple[Terms, int] | None:
        """Whose task the slot's number `started` is, if it is the slot's and not reported yet."""
        for chunk in slot.chunks:
            if chunk.reported <= started < min(chunk.end, chunk.live):
                return chunk.piece.terms, chunk.task(started)
        return None

    def died(self, slot: SlotBook, started: int, *, at_work: bool) -> tuple[Terms, int] | None:
        """A slot is gone: queue again what it had, except for the task that it was at.

        Returns that task, or None when it was at none.
        """
        fault = self.running(slot, started) if at_work else None
        pieces: list[Piece] = []
        for chunk in slot.chunks:
            low, high = chunk.reported, chunk.live
            if fault is not None and low <= started < high:
                pieces += [chunk.part(low, started), chunk.part(started + 1, high)]
            elif low < high:
                pieces.append(chunk.part(low, high))
        self.queue.extendleft(reversed([piece for piece in pieces if piece.arguments]))
        self.slots[slot.index] = SlotBook(slot.index)
        return fault

    def clear(self) -> None:
        """Forget all work: the gateway has placed it elsewhere."""
        self.queue.clear()

    @property
    def is_idle(self) -> bool:
        """Whether there is no work at all."""
        return not self.queue and not any(slot.unreported for slot in self.slots)
