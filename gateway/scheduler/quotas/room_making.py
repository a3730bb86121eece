"""Chooses the tasks that make room for guaranteed work, where that work can use the room. Pure.

A free slot helps a waiting task only at a worker on which the task can run, and only if the worker
also has the counted tags that the task holds. So room is planned worker by worker:

- Room that is free, or becomes free by earlier orders, is used first, also that of a growing pool.
- Otherwise the tasks are chosen that were handed out last, of the claim that is furthest over its
  guarantee. Several at one worker are chosen only if one alone does not make room there.
- Where no choice makes room for a task, nothing is stopped for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

H = TypeVar("H")  # what is held, as its owner knows it
NOISE: Final = 1e-9  # of sums of counted tags
GROWTH: Final = -1  # the place of slots that a pool may still start


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
        places: the workers on which they can run, by their handles.
    """

    claim: int
    tasks: int
    counted: Mapping[str, float]
    places: Sequence[int]


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
) -> list[RoomChoice[H]]:
    """Return the tasks to stop.

    Args:
        wants: the waiting work, in its order.
        rooms: by worker; changed. GROWTH: slots that are not there yet.
        held: in the order in which they are chosen.
        surplus: by claim, the slots that it has beyond its guarantee.
        free: the slots of the pool that no claim uses.
        coming: by claim, the slots for which tasks were told to stop. Nothing more is stopped for
            these, whether there is room for them or not.
    """
    return _Plan(rooms, held, dict(surplus), max(0, free), dict(coming or {})).make(wants)


class _Plan(Generic[H]):
    def __init__(
        self,
        rooms: Mapping[int, WorkerRoom],
        held: Sequence[RoomHeld[H]],
        surplus: dict[int, int],
        free: int,
        coming: dict[int, int],
    ) -> None:
        self._rooms = rooms
        self._held = held
        self._surplus = surplus
        self._free = free
        self._coming = coming
        self._left = [each.tasks for each in held]  # that may still be chosen
        self._chosen: dict[tuple[int, int], int] = {}  # by position and claim

    def make(self, wants: Sequence[RoomWanted]) -> list[RoomChoice[H]]:
        for want in wants:
            left = want.tasks
            for place in (*want.places, GROWTH):
                room = self._rooms.get(place)
                if room is not None and left:
                    tasks = min(left, room.fits(want.counted), self._free)
                    self._place(want, room, tasks)
                    left -= tasks
            without = max(0, self._coming.get(want.claim, 0) - (want.tasks - left))
            self._coming[want.claim] = max(0, self._coming.get(want.claim, 0) - want.tasks)
            if left > without:
                self._stop_for(want, left - without)
        return [
            RoomChoice(self._held[at].what, tasks, claim)
            for (at, claim), tasks in self._chosen.items()
        ]

    def _place(self, want: RoomWanted, room: WorkerRoom, tasks: int) -> None:
        room.change(want.counted, -tasks)
        self._free -= tasks

    def _stop_for(self, want: RoomWanted, left: int) -> None:
        """Stop tasks until there is room for `left` tasks of a want, or none can be made."""
        places = set(want.places)
        # Slots are idle, but more are in use than the pool has: any task that ends makes room.
        idle = [each for each in want.places if self._rooms[each].fits(want.counted)]
        pending: dict[int, list[int]] = {}  # by place, the positions of tasks chosen together
        for at, held in enumerate(self._held):
            while left and self._left[at] and self._may_give(held, pending.get(held.place, ())):
                if idle:
                    self._commit([at], want.claim)
                    self._place(want, self._rooms[idle[0]], 1)
                    idle = [each for each in idle if self._rooms[each].fits(want.counted)]
                    left -= 1
                    continue
                if held.place not in places:
                    break
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
            if not left:
                return

    def _may_give(self, held: RoomHeld[H], together: Sequence[int]) -> bool:
        given = sum(self._held[each].claim == held.claim for each in together)
        return self._surplus.get(held.claim, 0) > given

    def _fits_after(self, place: int, stopped: Sequence[int], want: RoomWanted) -> bool:
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
            self._surplus[held.claim] -= 1
            self._free += 1
            self._chosen[at, claim] = self._chosen.get((at, claim), 0) + 1
            if held.place in self._rooms:
                self._rooms[held.place].change(held.counted, 1)
