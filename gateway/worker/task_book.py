"""An agent's books: the queue, the tasks of each slot, and how to take tasks back. Pure.

Tasks come in assignments and go to slots in *bundles* worth up to fifty milliseconds. A slot has
one bundle that it works on and one queued in its channel, so that it never idles. A task is in one
place: the queue, a bundle, or settled (reported, or handed back).

Taking tasks back from a slot needs no answer from it. The agent writes a limit into the slot's
cells (`freeze`), waits until the slot must have seen it, and reads the slot's position. The tasks
past both belong to the agent again (`reclaim`), and the slot stops there by itself. It is fed again
only after it reports that. Only the slot knows whether it has started the very task at that
boundary; it reports that when its bundle is over.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from federation.ranges import Range, RangeSet
from gateway.scheduler.model.durations import Durations
from gateway.worker.isolation.homes import BARE, SlotHome
from gateway.worker.pieces import (
    AgentBundle,
    AssignmentTerms,
    Freeze,
    HeldAssignment,
    SlotBook,
    SlotBundle,
    cut_out,
)

BUNDLE_S: Final = 0.05
BUNDLE_TASKS_MAX: Final = 1000
# Queued tasks are spread over all slots, but not in bundles worth less than this.
SPREAD_S: Final = 0.001
# A bundle is queued behind the running one only when tasks are shorter than this.
AHEAD_MAX_S: Final = 0.2
# Tasks are moved from a slot to one that has run dry when that saves at least this time.
LEVEL_S: Final = 0.005
ALL_TASKS: Final = 1 << 62  # beyond the last task of any assignment
# A slot moves to another home for work worth this much of its time: about the cost of a move.
MOVE_S: Final = 0.5


class TaskBook:
    """The books of one agent with a number of slots."""

    def __init__(
        self, slots: int, gpus: int = 0, *, keeps_apart: bool = False, usual: str = ""
    ) -> None:
        self._gpus = gpus
        self._keeps_apart = keeps_apart  # whether other sites' work has homes of its own
        self._usual = usual  # the environment of other sites' work that names none
        # of functions that have one, the keys of their homes
        self.environments: dict[bytes, str] = {}
        self._homes: dict[tuple[bytes, str, int], SlotHome] = {}
        self.slots = [SlotBook(index) for index in range(slots)]
        self.held: dict[int, HeldAssignment] = {}
        self.known: set[bytes] = set()  # the functions that are here
        self._queue: deque[AgentBundle] = deque()
        self._returning: list[AgentBundle] = []  # parts of chains, which only the gateway can fill
        self._durations = Durations()

    # --- assignments ---------------------------------------------------------------------------

    def assign(
        self,
        terms: AssignmentTerms,
        first: int,
        arguments: list[bytes],
        *,
        alone: bool = False,
    ) -> None:
        """Add an assignment to the queue, unless it is known; `alone`: its tasks go one by one."""
        if arguments and terms.assignment not in self.held:
            left = RangeSet([(first, first + len(arguments))])
            self.held[terms.assignment] = HeldAssignment(terms, left)
            self._queue.append(AgentBundle(terms, first, arguments, alone=alone or terms.wary))

    @property
    def functions(self) -> set[bytes]:
        """The functions of all held assignments."""
        return {held.terms.function for held in self.held.values()}

    @property
    def is_idle(self) -> bool:
        """Whether there is no work at all."""
        return not self.held

    # --- feeding slots -------------------------------------------------------------------------

    def feed(self) -> Iterator[tuple[SlotBook, SlotBundle]]:
        """Give bundles to slots that have room, one at a time; empty slots come first."""
        waiting = sum(len(piece.arguments) for piece in self._runnable())
        for depth in (0, 1):
            for slot in self.slots:
                if waiting and slot.has_room and len(slot.bundles) == depth:
                    piece = self._next_for(slot)
                    if piece is None:
                        continue
                    if depth == 0 or self._may_wait(slot, piece):
                        bundle = self._give(slot, piece, waiting)
                        waiting -= len(bundle.piece.arguments)
                        yield slot, bundle

    def _runnable(self) -> Iterator[AgentBundle]:
        return (piece for piece in self._queue if piece.terms.function in self.known)

    # --- homes -----------------------------------------------------------------------------------

    def home_of(self, terms: AssignmentTerms) -> SlotHome:
        """Return the home of tasks under these terms; their function is here."""
        apart = terms.origin if self._keeps_apart else ""
        key = (terms.function, apart, terms.gpus)
        home = self._homes.get(key)
        if home is None:
            environment = self.environments.get(terms.function) or (self._usual if apart else "")
            home = self._homes[key] = SlotHome(environment, apart, terms.gpus)
        return home

    def settle_in(self, function: bytes, environment: str) -> None:
        """Note the environment of a function."""
        self.environments[function] = environment

    def forget_function(self, function: bytes) -> None:
        """Forget a function that is not here any more."""
        self.known.discard(function)
        self.environments.pop(function, None)
        for key in [key for key in self._homes if key[0] == function]:
            del self._homes[key]

    def _next_for(self, slot: SlotBook) -> AgentBundle | None:
        """Return the first piece that a slot can run in its present home.

        Returns None as well if the first piece of the queue has no slot in its home and could have
        this slot: that piece takes precedence. A slot with work in its home first stays there for
        as long as a move takes: otherwise it would only move between homes whose tasks alternate.
        """
        pieces = self._runnable()
        head = next(pieces)
        home = self.home_of(head.terms)
        if home == slot.home:
            return head
        has_stayed = slot.worked_ns >= MOVE_S * 1e9
        if has_stayed and self._is_homeless(home) and self._gpus_to_have(slot) >= home.gpus:
            return None
        return next((each for each in pieces if self.home_of(each.terms) == slot.home), None)

    def _is_homeless(self, home: SlotHome) -> bool:
        return all((slot.moves_to or slot.home) != home for slot in self.slots)

    def _gpus_to_have(self, mover: SlotBook) -> int:
        """Return the GPUs available to a slot if idle slots release theirs."""
        held = (
            (slot.moves_to or slot.home).gpus
            for slot in self.slots
            if slot is not mover and (slot.bundles or slot.moves_to is not None)
        )
        return self._gpus - sum(held)

    @property
    def may_move(self) -> bool:
        """Whether tasks are queued while a slot is idle."""
        return bool(self._queue) and any(slot.has_room and not slot.bundles for slot in self.slots)

    def moves(self, busy_s: Sequence[float]) -> list[SlotBook]:
        """Return idle slots that are to restart where work is queued: see `moves_to`.

        Call it after `feed`. A home without a slot gets one. For another home a slot moves only
        from one without queued tasks, and for work that is worth its time: by measured durations,
        or because all slots there have been at their tasks for longer (`busy_s`).
        """
        moved: list[SlotBook] = []
        if not self.may_move:
            return moved
        waiting: dict[SlotHome, list[AgentBundle]] = {}
        for piece in self._runnable():
            waiting.setdefault(self.home_of(piece.terms), []).append(piece)
        for home, pieces in waiting.items():
            coming = sum(
                (slot.moves_to or slot.home) == home and not slot.bundles for slot in self.slots
            )
            for _ in range(self._slots_worth(home, pieces, busy_s) - coming):
                slot = self._mover(home, waiting)
                if slot is None:
                    break
                moved += self._move(slot, home)
        return moved

    def _slots_worth(
        self, home: SlotHome, pieces: list[AgentBundle], busy_s: Sequence[float]
    ) -> int:
        """Return how many slots the queued tasks of a home keep busy for longer than a move."""
        there = [slot for slot in self.slots if (slot.moves_to or slot.home) == home]
        least = int(all(busy_s[slot.index] > MOVE_S for slot in there))
        tasks = sum(len(piece.arguments) for piece in pieces)
        known = [self._durations.of(piece.terms.function) for piece in pieces]
        if None in known:
            return tasks
        worth_s = sum(
            len(piece.arguments) * (task_s or 0.0)
            for piece, task_s in zip(pieces, known, strict=True)
        )
        return max(least, min(tasks, int(worth_s / MOVE_S)))

    def _mover(self, home: SlotHome, waiting: Iterable[SlotHome]) -> SlotBook | None:
        """Return the idle slot best spared: a bare one, or one whose home has no queued tasks."""
        is_homeless = self._is_homeless(home)
        wanted = set(waiting)
        found = [
            slot
            for slot in self.slots
            if slot.has_room
            and not slot.bundles
            and (is_homeless or slot.home not in wanted)
            and self._gpus_to_have(slot) >= home.gpus
        ]
        # If GPUs are needed, a slot that holds some moves and so releases them; else bare slots go
        # first.
        return min(
            found,
            key=lambda slot: (
                slot.home in wanted,
                slot.home.gpus == 0 if home.gpus else slot.home != BARE,
            ),
            default=None,
        )

    def _move(self, slot: SlotBook, home: SlotHome) -> list[SlotBook]:
        """Move a slot, and have idle slots release the GPUs that it needs."""
        moved = [slot]
        slot.moves_to, slot.is_forsaken = home, True
        for other in self.slots:
            held = sum((each.moves_to or each.home).gpus for each in self.slots)
            if held <= self._gpus:
                break
            if other.home.gpus and not other.bundles and other.moves_to is None:
                other.moves_to, other.is_forsaken = BARE, True
                moved.append(other)
        return moved

    def stuck(self, started: Sequence[int], busy_s: Sequence[float]) -> list[SlotBook]:
        """Return slots with tasks queued behind a long one, while others could move.

        Between slots of one home `donor` balances the work.
        """
        if not any(slot.has_room and not slot.bundles for slot in self.slots):
            return []
        dry = self._dry()
        return [
            slot
            for slot, at, at_s in zip(self.slots, started, busy_s, strict=True)
            if at_s > MOVE_S and slot.freeze is None and not slot.is_forsaken
            if slot.home not in dry and slot.movable(at)
        ]

    def evict(self, function: bytes) -> list[AgentBundle]:
        """Give up all queued tasks of a function; they must be reported as failed."""
        return self._evict([each for each in self._queue if each.terms.function == function])

    def evict_home(self, home: SlotHome) -> list[AgentBundle]:
        """Give up all queued tasks of a home; they must be reported as failed."""
        return self._evict([each for each in self._runnable() if self.home_of(each.terms) == home])

    def _evict(self, pieces: list[AgentBundle]) -> list[AgentBundle]:
        gone = set(map(id, pieces))
        self._queue = deque(piece for piece in self._queue if id(piece) not in gone)
        for piece in pieces:
            self._settle(piece.terms.assignment, piece.first, piece.stop)
        return pieces

    def _may_wait(self, slot: SlotBook, piece: AgentBundle) -> bool:
        """Whether a slot that has a bundle may have this one as well: if both are short."""
        if piece.alone or slot.bundles[0].piece.alone or slot.home.gpus:
            return False  # only running tasks hold GPUs, never queued ones
        for function in (slot.bundles[0].piece.terms.function, piece.terms.function):
            task_s = self._durations.of(function)
            if task_s is None or task_s > AHEAD_MAX_S:
                return False
        return True

    def _give(self, slot: SlotBook, piece: AgentBundle, waiting: int) -> SlotBundle:
        tasks = min(self._bundle_tasks(piece, waiting), len(piece.arguments))
        taken = piece.cut(piece.first, piece.first + tasks)
        at = next(at for at, queued in enumerate(self._queue) if queued is piece)
        if tasks == len(piece.arguments):
            del self._queue[at]
        else:
            self._queue[at] = piece.cut(piece.first + tasks, piece.stop)
        number = slot.next_number
        slot.next_number += tasks
        bundle = SlotBundle(number, taken, reported=number, live=slot.next_number)
        slot.bundles.append(bundle)
        return bundle

    def _bundle_tasks(self, piece: AgentBundle, waiting: int) -> int:
        if piece.terms.chained:
            return len(piece.arguments)
        task_s = self._durations.of(piece.terms.function)
        if task_s is None or piece.alone:
            return 1
        worth_s = min(BUNDLE_S, max(waiting * task_s / len(self.slots), SPREAD_S))
        return max(1, min(int(worth_s / max(task_s, 1e-9)), BUNDLE_TASKS_MAX))

    # --- preemption ----------------------------------------------------------------------------

    def note_stop(self, assignment: int, first: int, stop: int, at_ns: int | None) -> None:
        """Note when tasks in [first, stop) are to be stopped; None: they run on, after all."""
        held = self.held.get(assignment)
        if held is None:
            return
        before, held.stops = held.stops, []
        for low, high, known_ns in before:
            parts = ((low, min(high, first)), (max(low, stop), high))
            held.stops += [(start, end, known_ns) for start, end in parts if start < end]
        if at_ns is not None:
            held.stops.append((first, stop, at_ns))

    def stops_ns(self, assignment: int, task: int) -> int | None:
        """Return when a task is to be stopped."""
        held = self.held.get(assignment)
        found = (at for low, high, at in held.stops if low <= task < high) if held else ()
        return next(iter(found), None)

    # --- results -------------------------------------------------------------------------------

    def report(
        self, slot: SlotBook, number: int, tasks: int, wall_ns: int
    ) -> tuple[AssignmentTerms, int] | None:
        """Book results of a slot's tasks from `number` on; return their terms and first task.

        None when they are not the slot's to report.
        """
        bundle = slot.bundles[0] if slot.bundles else None
        if bundle is None or number != bundle.reported or number + tasks > bundle.live:
            return None
        terms, first = bundle.piece.terms, bundle.task(number)
        if tasks:
            bundle.reported += tasks
            slot.worked_ns += wall_ns
            self._durations.learn(terms.function, tasks, wall_ns)
            self._settle(terms.assignment, first, first + tasks)
        return terms, first

    def may_finish(self, slot: SlotBook) -> bool:
        """Whether a slot may end its bundle: it may leave tasks only where it must stop."""
        bundle = slot.bundles[0]
        if bundle.piece.terms.chained:
            return True  # a call can't be opened without the result of the one before
        stop = bundle.live if slot.freeze is None else min(slot.freeze.bound, bundle.live)
        return bundle.reported >= stop

    def finish(self, slot: SlotBook) -> list[AgentBundle]:
        """End a slot's bundle, and queue its unstarted tasks again.

        Returns the tasks among them that must be reported as cancelled.
        """
        bundle = slot.bundles.popleft()
        if not slot.bundles:
            slot.freeze = None
            slot.meter.rest()
        return self._take_back([bundle.part(bundle.reported, bundle.live)])

    def running(self, slot: SlotBook, started: int) -> tuple[AssignmentTerms, int] | None:
        """Return the task of the slot's number `started`, if it is an unreported one of its own."""
        for bundle in slot.bundles:
            if bundle.reported <= started < bundle.live:
                return bundle.piece.terms, bundle.task(started)
        return None

    def at(self, slot: SlotBook, started: int) -> int:
        """Return the number of the current task of a slot at work; `started` is its word.

        If that is none of its tasks, or a reported one, the current task is its first unreported
        one.
        """
        low = slot.unsettled
        return started if low is None or self.running(slot, started) else low

    def _settle(self, assignment: int, first: int, stop: int) -> None:
        left = self.held[assignment].left
        left.remove(first, stop)
        if not left:
            del self.held[assignment]

    def _take_back(self, pieces: Iterable[AgentBundle]) -> list[AgentBundle]:
        """Put tasks back at the head of the queue; return those that were cancelled meanwhile."""
        cancelled: list[AgentBundle] = []
        kept: list[AgentBundle] = []
        for piece in pieces:
            if not piece.arguments:
                continue
            held = self.held[piece.terms.assignment]
            for first, stop in held.cancelled.within(piece.first, piece.stop):
                cancelled.append(piece.cut(first, stop))
            for first, stop in held.cancelled.missing(piece.first, piece.stop):
                kept.append(piece.cut(first, stop))
        for piece in cancelled:
            self._settle(piece.terms.assignment, piece.first, piece.stop)
        self._returning += [piece for piece in kept if piece.terms.chained]
        self._queue.extendleft(piece for piece in reversed(kept) if not piece.terms.chained)
        return cancelled

    def take_returning(self) -> list[tuple[int, Range]]:
        """Give parts of chains back to the gateway: the assignment of each, and its tasks."""
        pieces, self._returning = self._returning, []
        for piece in pieces:
            self._settle(piece.terms.assignment, piece.first, piece.stop)
        return [(piece.terms.assignment, (piece.first, piece.stop)) for piece in pieces]

    # --- taking back ---------------------------------------------------------------------------

    def withdraw(self, assignment: int, first: int, stop: int) -> list[Range]:
        """Give an assignment's queued tasks of [first, stop) back to the gateway."""
        self._queue, taken = cut_out(self._queue, assignment, first, stop)
        returning, more = cut_out(self._returning, assignment, first, stop)
        self._returning = list(returning)
        for low, high in more:
            taken.add(low, high)
        for low, high in taken:
            self._settle(assignment, low, high)
        return list(taken)

    def cancel(self, assignment: int, first: int, stop: int) -> None:
        """Forbid starting tasks of [first, stop) that come back from a slot."""
        held = self.held.get(assignment)
        if held is not None:
            for low, high in held.left.within(first, stop):
                held.cancelled.add(low, high)

    def holders(
        self, assignment: int, first: int, stop: int, started: Sequence[int]
    ) -> list[SlotBook]:
        """Return the slots with unstarted tasks of an assignment in [first, stop)."""
        found = []
        for slot, at in zip(self.slots, started, strict=True):
            after = slot.reached(at) + 1
            for bundle in slot.bundles:
                low = bundle.task(max(bundle.number, bundle.reported, after))
                is_ours = bundle.piece.terms.assignment == assignment
                if is_ours and max(low, first) < min(bundle.task(bundle.live), stop):
                    found.append(slot)
                    break
        return found

    def freeze(self, slot: SlotBook, started: int) -> Freeze:
        """Stop a slot after its task `started`: its limit must become the `bound` of the result.

        Only a slot at work can be frozen: the end of its work unfreezes it.
        """
        assert slot.bundles, "an idle slot must be resumed before it gets a task"
        if slot.freeze is None:
            slot.freeze = Freeze(slot.reached(started) + 1)
        return slot.freeze

    def reclaim(self, slot: SlotBook, freeze: Freeze, started: int) -> list[AgentBundle]:
        """Queue the tasks again that a slot will never start, now that it must have seen its limit.

        `started` is its position now. Nothing happens if it has died meanwhile, or has ended its
        bundles and been fed again. Returns the tasks that must be reported as cancelled.
        """
        if slot.freeze is not freeze or self.slots[slot.index] is not slot:
            return []
        pieces: list[AgentBundle] = []
        after = slot.reached(started) + 1
        for bundle in slot.bundles:
            low = max(freeze.bound, after, bundle.reported, bundle.number)
            if low < bundle.live:
                pieces.append(bundle.part(low, bundle.live))
                bundle.live = low
        return self._take_back(pieces)

    def is_uneven(self, started: Sequence[int]) -> bool:
        """Whether a slot has run dry while another has unstarted tasks."""
        dry = self._dry()
        if not dry or any(True for _ in self._runnable()):
            return False
        return any(
            slot.freeze is None and slot.home in dry and slot.movable(at) > 0
            for slot, at in zip(self.slots, started, strict=True)
        )

    def _dry(self) -> set[SlotHome]:
        """Return the homes of idle slots: only tasks of these homes can go to them."""
        return {slot.home for slot in self.slots if slot.has_room and not slot.bundles}

    def donor(self, started: Sequence[int], busy_s: Sequence[float]) -> SlotBook | None:
        """Return the slot to take unstarted tasks from: the one that would need longest for them.

        None when that saves too little; `busy_s` is how long each is at its task.
        """
        best: SlotBook | None = None
        best_s = LEVEL_S
        dry = self._dry()
        for slot, at, at_s in zip(self.slots, started, busy_s, strict=True):
            count = slot.movable(at)
            if slot.freeze is not None or slot.is_forsaken or not count or slot.home not in dry:
                continue
            task_s = self._durations.of(slot.bundles[-1].piece.terms.function) or 0.0
            ahead_s = max(at_s, count * task_s)
            if ahead_s >= best_s:
                best, best_s = slot, ahead_s
        return best

    # --- ends of slots and sessions ------------------------------------------------------------

    def died(self, slot: SlotBook, started: int, *, is_at_fault: bool) -> list[AgentBundle]:
        """Queue the tasks of a dead slot again, without its task `started` if that fails.

        Those before `started` are sent one by one: see `gateway.worker.fault`.

        Returns the tasks that must be reported as cancelled.
        """
        pieces: list[AgentBundle] = []
        for bundle in slot.bundles:
            low, high = bundle.reported, bundle.live
            middle = min(max(low, started), high)
            done = bundle.part(low, middle)
            done.alone = True
            if is_at_fault and low <= started < high:
                task = bundle.task(started)
                self._settle(bundle.piece.terms.assignment, task, task + 1)
                middle += 1
            pieces += [done, bundle.part(middle, high)]
        meter = slot.meter.heir()
        self.slots[slot.index] = SlotBook(slot.index, home=slot.moves_to or slot.home, meter=meter)
        return self._take_back(pieces)

    def drop_all(self) -> list[SlotBook]:
        """Forget all work: it is the gateway's again. Return the slots that must be killed."""
        self.held.clear()
        self._queue.clear()
        self._returning.clear()
        busy = [slot for slot in self.slots if slot.bundles]
        for slot in busy:
            # Numbers of assignments may be reused: no old ones may stay.
            slot.bundles.clear()
            slot.is_forsaken = True
        return busy
