"""Chooses the tasks that make room for guaranteed work, where that work can use the room. Pure.

A free slot helps a waiting task only at a worker on which the task can run, and only if the worker
also has the counted tags that the task holds. So room is planned worker by worker:

- Room that is free, or becomes free by earlier orders, is used first, also that of a growing pool.
- Otherwise the tasks are chosen that were handed out last, of the claim that is furthest over its
  guarantee. Several at one worker are chosen only if one alone does not make room there.
- Where no choice makes room for a task, nothing is stopped for it.

A pool may have thousands of workers, and its owners hundreds of jobs that wait. So a look does not
test every worker for each of them: wants with equal places and tags share their place among the
workers, and only those with a slot, or with a task to stop, are tested. The stops and the tests of
one look are bounded; the next look goes on.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop
from typing import Final, Generic, TypeVar

H = TypeVar("H")  # what is held, as its owner knows it
NOISE: Final = 1e-9  # of sums of counted tags
GROWTH: Final = -1  # the place of slots that a pool may still start
STOPS_MAX: Final = 200  # tasks chosen in one look
TESTS_MAX: Final = 2_000  # tests of a worker or of a task in one look


@dataclass(slots=True)
class WorkerRoom:
    """The room at one worker.

    Attributes:
        slots: without a task.
        tags: the amounts of counted tags that no task holds.
        is_any: tags count for nothing: no worker is there yet.
    """

    slots: int
    tags: dict[str, float] = field(default_factory=dict)
    is_any: bool = False

    def fits(self, counted: Mapping[str, float]) -> int:
        """Return how many tasks with these tags have room."""
        tasks: float = self.slots
        for name, amount in {} if self.is_any else counted.items():
            if amount > 0:
                tasks = min(tasks, (self.tags.get(name, 0) + NOISE) // amount)
        return int(max(0, tasks))

    def change(self, counted: Mapping[str, float], tasks: int) -> None:
        """Free the room of tasks with these tags or, below zero, take it."""
        self.slots += tasks
        for name, amount in counted.items():
            self.tags[name] = self.tags.get(name, 0) + amount * tasks


@dataclass(frozen=True, slots=True)
class RoomWanted:
    """Waiting tasks of a claim that is below its guarantee.

    Attributes:
        counted: the tags that each of them holds.
        places: the workers on which they can run, by their handles. One object for wants with
            equal ones: these are tested once for all of them.
    """

    claim: int
    tasks: int
    counted: Mapping[str, float]
    places: Container[int]


@dataclass(frozen=True, slots=True)
class RoomHeld(Generic[H]):
    """Tasks at a worker that may have to make room.

    Attributes:
        what: the assignment that they belong to.
        tasks: those that have no order to stop yet.
        counted: the tags that each of them holds.
    """

    what: H
    claim: int
    place: int
    tasks: int
    counted: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RoomChoice(Generic[H]):
    """A number of tasks of an assignment that make room for a claim."""

    what: H
    tasks: int
    for_claim: int


def choose(
    wants: Sequence[RoomWanted],
    rooms: Mapping[int, WorkerRoom],
    held: Sequence[RoomHeld[H]],
    surplus: Mapping[int, int],
    free: int,
    coming: Mapping[int, int] | None = None,
    has_room: Sequence[int] | None = None,
) -> tuple[list[RoomChoice[H]], int]:
    """Return the tasks to stop, at most STOPS_MAX, and the first want that was not looked at.

    That is 0 if all were, or if the tasks that were chosen come first. By the rest of a long list
    the next look is to begin: otherwise wants for which no room can be made would be tested again
    and again, and those behind them never.

    Args:
        wants: the waiting work, in its order.
        rooms: by worker, in the order in which they are used; changed. GROWTH: slots that are not
            there yet.
        held: in the order in which they are chosen.
        surplus: by claim, the slots that it has beyond its guarantee.
        free: the slots of the pool that no claim uses.
        coming: by claim, the slots for which tasks were told to stop. Nothing more is stopped for
            these, whether there is room for them or not.
        has_room: the positions, among the workers, of those that may have room; None: of all.
    """
    plan = _Plan(rooms, held, dict(surplus), max(0, free), dict(coming or {}), has_room)
    return plan.make(wants)


@dataclass(slots=True)
class _Kind:
    """Wants with equal places and tags.

    Attributes:
        open_at: the position, among the workers that had slots at first, up to which none has room.
        reopened: a heap of the positions of workers where tasks were chosen since.
        seen: how many of these it has taken note of.
        held_at: the position up to which no held task can make room for it.
        failed_at: the number of choices when none made room for it.
    """

    places: Container[int]
    counted: Mapping[str, float]
    open_at: int = 0
    reopened: list[int] = field(default_factory=list)
    seen: int = 0
    held_at: int = 0
    failed_at: int = -1


class _Plan(Generic[H]):
    def __init__(
        self,
        rooms: Mapping[int, WorkerRoom],
        held: Sequence[RoomHeld[H]],
        surplus: dict[int, int],
        free: int,
        coming: dict[int, int],
        has_room: Sequence[int] | None,
    ) -> None:
        self._rooms = rooms
        self._held = held
        self._surplus = surplus
        self._free = free
        self._coming = coming
        self._left = [each.tasks for each in held]  # that may still be chosen
        self._chosen: dict[tuple[int, int], int] = {}  # by position and claim
        self._kinds: dict[object, _Kind] = {}
        self._order = [place for place in rooms if place != GROWTH]
        self._at = {place: at for at, place in enumerate(self._order)}
        places = range(len(self._order)) if has_room is None else has_room
        self._open_first = [at for at in places if rooms[self._order[at]].slots > 0]
        self._freed: list[int] = []  # positions of workers, as tasks were chosen there
        self._given_to = 0  # the position up to which nothing more can be chosen
        self._stops = 0
        self._tests = 0

    @property
    def _is_over(self) -> bool:
        return self._tests >= TESTS_MAX or self._stops >= STOPS_MAX

    def make(self, wants: Sequence[RoomWanted]) -> tuple[list[RoomChoice[H]], int]:
        rest = 0
        for number, want in enumerate(wants):
            kind = self._kind(want)
            left = self._fill(want, kind)
            if self._is_over:  # perhaps there is more room
                rest = number
                break
            without = max(0, self._coming.get(want.claim, 0) - (want.tasks - left))
            self._coming[want.claim] = max(0, self._coming.get(want.claim, 0) - want.tasks)
            if left > without and kind.failed_at != self._stops:
                self._stop_for(want, kind, left - without)
            if self._is_over:
                rest = number + 1
                break
        choices = [
            RoomChoice(self._held[at].what, tasks, claim)
            for (at, claim), tasks in self._chosen.items()
        ]
        return choices, 0 if choices or rest >= len(wants) else rest

    def _kind(self, want: RoomWanted) -> _Kind:
        """Return the kind of a want, with the workers where there may be room again."""
        key = id(want.places), tuple(sorted(want.counted.items()))
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(want.places, want.counted)
        if kind.seen < len(self._freed):
            rooms, order = self._rooms, self._order
            fresh = {at for at in self._freed[kind.seen :] if rooms[order[at]].slots > 0}
            kind.reopened = sorted(fresh.union(kind.reopened))
            kind.seen = len(self._freed)
        return kind

    def _fill(self, want: RoomWanted, kind: _Kind) -> int:
        """Use the room that there is; return the tasks that are left."""
        left = want.tasks
        while left and self._free:
            place = self._open(kind)
            if place is None:
                break
            room = self._rooms[place]
            tasks = min(left, room.fits(want.counted), self._free)
            self._place(want, room, tasks)
            left -= tasks
        growth = self._rooms.get(GROWTH)
        if growth is not None and left and self._free and not self._is_over:
            tasks = min(left, growth.fits(want.counted), self._free)
            self._place(want, growth, tasks)
            left -= tasks
        return left

    def _open(self, kind: _Kind) -> int | None:
        """Return the first worker with room for a task of a kind."""
        first, reopened = self._open_first, kind.reopened
        while (kind.open_at < len(first) or reopened) and self._tests < TESTS_MAX:
            is_first = kind.open_at < len(first) and not (
                reopened and reopened[0] < first[kind.open_at]
            )
            place = self._order[first[kind.open_at] if is_first else reopened[0]]
            self._tests += 1
            if place in kind.places and self._rooms[place].fits(kind.counted):
                return place
            if is_first:
                kind.open_at += 1
            else:
                heappop(reopened)
        return None

    def _place(self, want: RoomWanted, room: WorkerRoom, tasks: int) -> None:
        room.change(want.counted, -tasks)
        self._free -= tasks

    def _stop_for(self, want: RoomWanted, kind: _Kind, left: int) -> None:
        """Stop tasks until there is room for `left` tasks of a want, or none can be made."""
        # Slots are idle, but more are in use than the pool has: any task that ends makes room.
        idle = self._open(kind)
        pending: dict[int, list[int]] = {}  # by place, the positions of tasks chosen together
        is_start, before = idle is None, self._stops
        while self._given_to < len(self._held) and self._is_given(self._given_to):
            self._given_to += 1
        first = max(kind.held_at, self._given_to) if is_start else self._given_to
        kind.held_at = max(kind.held_at, self._given_to)
        for at in range(first, len(self._held)):
            held = self._held[at]
            self._tests += not self._is_given(at)
            while (
                left
                and not self._is_over
                and self._left[at]
                and self._may_give(held, pending.get(held.place, ()))
            ):
                if idle is not None:
                    self._commit([at], want.claim)
                    self._place(want, self._rooms[idle], 1)
                    idle = self._open(kind)
                    left -= 1
                    continue
                if held.place not in kind.places:
                    break
                is_start = False
                together = pending.setdefault(held.place, [])
                if together.count(at) >= self._left[at]:
                    break
                together.append(at)
                if self._fits_after(held.place, together, want):
                    needed = self._needed(held.place, together, want)
                    del pending[held.place]
                    self._commit(needed, want.claim)
                    self._place(want, self._rooms[held.place], 1)
                    left -= 1
            if at == kind.held_at and (is_start or self._is_given(at)):
                kind.held_at += 1
            if not left or self._is_over:
                return
        if before == self._stops:
            kind.failed_at = before

    def _is_given(self, at: int) -> bool:
        """Whether no further task can be chosen of those held there, for any want."""
        return not self._left[at] or self._surplus.get(self._held[at].claim, 0) <= 0

    def _may_give(self, held: RoomHeld[H], together: Sequence[int]) -> bool:
        given = sum(self._held[each].claim == held.claim for each in together)
        return self._surplus.get(held.claim, 0) > given

    def _fits_after(self, place: int, stopped: Sequence[int], want: RoomWanted) -> bool:
        self._tests += len(stopped)
        room = self._rooms[place]
        after = WorkerRoom(room.slots, dict(room.tags))
        for each in stopped:
            after.change(self._held[each].counted, 1)
        return after.fits(want.counted) > 0

    def _needed(self, place: int, together: list[int], want: RoomWanted) -> list[int]:
        """Return those without which there is no room; the first chosen are left out first."""
        needed = list(together)
        for each in together[:-1]:
            others = list(needed)
            others.remove(each)
            if self._fits_after(place, others, want):
                needed = others
        return needed

    def _commit(self, stopped: Sequence[int], claim: int) -> None:
        for at in stopped:
            held = self._held[at]
            self._left[at] -= 1
            self._stops += 1
            self._surplus[held.claim] -= 1
            self._free += 1
            self._chosen[at, claim] = self._chosen.get((at, claim), 0) + 1
            if held.place in self._rooms:
                self._rooms[held.place].change(held.counted, 1)
                self._freed.append(self._at[held.place])
