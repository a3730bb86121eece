"""A worker agent in virtual time: the real books, outbox and conversation, over simulated slots.

Callbacks replace gateway.worker.agent around them, step for step. A slot runs its bundles' tasks
one after the other, according to each task's plan.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from federation.clocks import MonoS
from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import (
    Assign,
    BegunTasks,
    Bye,
    Drain,
    Hello,
    NeedFunction,
    Notice,
    Pulse,
    PutFunction,
    Recall,
    Report,
    Returned,
)
from federation.ranges import Range, RangeSet
from federation.sessions.handshake import Opened, SharedSecret
from gateway.sessions.conversation import Conversation, Lapsed
from gateway.worker.agent import WATCH_S
from gateway.worker.conversation import PULSE_S
from gateway.worker.outbox import WorkerOutbox
from gateway.worker.oversight import BEGUN_S
from gateway.worker.pieces import AssignmentTerms, Freeze, SlotBook, SlotBundle
from gateway.worker.slot.cells import NO_LIMIT, SETTLE_S
from gateway.worker.slot.functions import FunctionCache
from gateway.worker.task_book import LEVEL_S, TaskBook
from simulations.world.driving import HostDriver
from simulations.world.graphs import opened
from simulations.world.host import Ground, SimHost
from simulations.world.network import SimLink
from simulations.world.plan import PYTHON, WorkerPlan
from simulations.world.tasks import Task, read_task

PART_S: Final = 0.05
SLOT_START_S: Final = 0.2


@dataclass(slots=True)
class SimSlot:
    """A slot's process. `started` is the number of its latest task."""

    bundles: deque[SlotBundle] = field(default_factory=deque)
    started: int = -1
    since_s: float | None = None  # when it began that task
    next: int = 0  # the next task of its first bundle
    limit: int = NO_LIMIT
    values: list[bytes] = field(default_factory=list)
    failures: list[list[Any]] = field(default_factory=list)
    part_s: float = 0.0
    task: Task | None = None
    done: dict[int, bytes] = field(default_factory=dict)  # of a chain: results by task
    is_dead: bool = False


class SimWorker(SimHost):
    """One worker: a host with slots; see gateway.sessions.conversation.Correspondent."""

    def __init__(self, ground: Ground, plan: WorkerPlan, gateway_tags: dict[str, Any]) -> None:
        super().__init__(ground, plan.name, skew_s=plan.skew_s, drift=plan.drift)
        self.plan = plan
        self.gateway = plan.site
        self.tags = {**gateway_tags, **plan.tags}

    def boot(self) -> None:
        """Start the slots, and dial."""
        self.task_book = TaskBook(self.plan.slots)
        self._functions = FunctionCache()
        self._asked: set[bytes] = set()
        self._outbox = WorkerOutbox()
        self._is_draining = self._is_levelling = False
        self._pulse_s = MonoS(0.0)
        self._slots = [SimSlot() for _ in range(self.plan.slots)]
        for book in self.task_book.slots:
            self._ready_soon(book.index)
        self._driver = HostDriver(self)
        self._conversation = Conversation(
            self, self._outbox, self.hello(), SharedSecret(""), self.random_bytes
        )
        self._driver.start(self._conversation)
        self.after(WATCH_S, self._watch)

    def die(self, *, power: bool) -> None:
        """Kill its slots."""
        self._driver.die()
        for slot in self._slots:
            self._stop(slot, "dies with its agent")
            slot.is_dead = True

    def halt(self) -> None:
        """Trace the pause, for invariants that count running tasks."""
        self.trace.add(self.name, "halts", data=self)

    def hello(self) -> Hello:
        """Return its introduction."""
        about = {
            "slots": self.plan.slots,
            "tags": self.plan.tags,
            "pool": self.plan.pool,
            "python": PYTHON,
            "host": self.name,
            "begun": True,
            "others": True,
        }
        if self.plan.graphs:
            about |= {"inputs": True, "chains": True}
        return Hello([], "worker", self.name, "ops", b"", "", 0, about)

    @property
    def is_idle(self) -> bool:
        """Whether it has no tasks and no messages left."""
        return self.task_book.is_idle and not self._outbox

    def running(self) -> list[str]:
        """Return the jobs of the tasks that its slots run."""
        found = []
        for book, slot in zip(self.task_book.slots, self._slots, strict=True):
            running = self.task_book.running(book, slot.started)
            if running is not None and slot.since_s is not None:
                found.append(running[0].job)
        return found

    # --- the conversation, as in gateway.worker.conversation ------------------------------------

    def dial(self, on_change: Callable[[], None]) -> SimLink:
        """Return a new link to the gateway."""
        return self.ground.network.dial(self.name, self.gateway, on_change)

    def refused(self, error: SessionRefused | ProtocolError) -> None:
        """Trace it, and go on trying."""
        what = "is refused" if isinstance(error, SessionRefused) else "hangs up"
        self.note(what, str(error))

    def unanswered(self, _for_s: float) -> None:
        """Go on trying."""

    def heard_all(self) -> None:
        """See Correspondent."""

    def flush(self) -> None:
        """Send the frames that may go now."""
        self._conversation.flush(self.mono_s())

    # --- messages of the gateway, as in gateway.worker.agent ------------------------------------

    def hear(self, messages: list[Any]) -> None:
        """Take messages of the gateway."""
        for message in messages:
            match message:
                case Opened(resumed):
                    if not resumed:
                        self._drop_all("a new session")
                case Assign():
                    self._assigned(message)
                case PutFunction(digest, body):
                    self._asked.discard(digest)
                    gone = self._functions.put(digest, body, self.task_book.functions)
                    self.task_book.known.difference_update(gone)
                    self.task_book.known.add(digest)
                case Recall():
                    self._recalled(message)
                case Notice():
                    self._noticed(message)
                case Drain(on):
                    self._is_draining = on
                case Lapsed(reason):
                    self.note("lets its lease go")
                    self._drop_all(reason)
                case Bye(reason):
                    self._drop_all(reason)
        self._feed()

    def _assigned(self, message: Assign) -> None:
        number, first = message.assignment, message.first
        if self._is_draining:
            stop = first + len(message.arguments)
            self._outbox.add(Returned(number, [[first, stop]]))
            return
        terms = AssignmentTerms(
            *(number, message.job, message.function, message.timeout_s, message.prints),
            wary=message.wary,
            chained=message.chained,
        )
        self.task_book.assign(terms, first, message.arguments)
        if message.function not in self._functions and message.function not in self._asked:
            self._asked.add(message.function)
            self._outbox.add(NeedFunction(message.function))

    def _drop_all(self, reason: str) -> None:
        self._is_draining = False
        self._asked.clear()
        self._outbox.take()
        if not self.task_book.is_idle:
            self.note("drops its tasks", reason)
        for book in self.task_book.drop_all():
            self._kill(book.index, reason)

    # --- slots ---------------------------------------------------------------------------------

    def _ready_soon(self, index: int) -> None:
        book = self.task_book.slots[index]

        def ready() -> None:
            book.is_ready = True
            self._feed()

        self.after(SLOT_START_S, ready)

    def _feed(self) -> None:
        for number, tasks in self.task_book.take_returning():
            self._outbox.add(Returned(number, [list(tasks)]))
        for book, bundle in self.task_book.feed():
            slot = self._slots[book.index]
            if bundle.piece.terms.wary:
                book.told = bundle.number
                self._outbox.add(
                    BegunTasks([[bundle.piece.terms.assignment, bundle.piece.first, 0]])
                )
                self.flush()
            slot.bundles.append(bundle)
            if len(slot.bundles) == 1:
                slot.next = bundle.number
                self._step(book.index, slot)
        if not self._is_levelling and self.task_book.is_uneven(self._started()):
            self._is_levelling = True
            self.after(0.0, self._level)
        self.flush()

    def _started(self) -> list[int]:
        return [slot.started for slot in self._slots]

    def _step(self, index: int, slot: SimSlot) -> None:
        """Start a slot's next task, or end its bundle."""
        bundle = slot.bundles[0]
        number = slot.next
        if number >= bundle.number + len(bundle.piece.arguments) or number >= slot.limit:
            self._end_bundle(index, slot)
            return
        if number == bundle.number or not bundle.piece.terms.chained:
            slot.done.clear()
        call = opened(bundle.piece.arguments[number - bundle.number], slot.done)
        if call is None:  # the task before it has failed
            self._end_bundle(index, slot)
            return
        arguments, values = call
        task = read_task(arguments)
        slot.started, slot.since_s, slot.task = number, self.clock.now_s, task
        span = (task.number, task.number + 1)
        terms = bundle.piece.terms
        self.trace.add(self.name, "starts", task.job, span, f"of {terms.assignment}", self)
        if values:
            self.trace.add(self.name, "reads", task.job, span, data=values)
        # Under a contract, tasks have numbers and a job of their own.
        is_ours = ":" not in terms.job
        if is_ours and (task.number != bundle.task(number) or task.job != terms.job):
            self.trace.add(self.name, "got wrong arguments", task.job, span)
        seconds = math.inf if task.is_stuck else task.seconds * self.plan.slower

        def over() -> None:
            if not slot.is_dead and slot.started == number:
                self._end_task(index, slot, task)

        if seconds < math.inf:
            self.after(seconds, over)

    def _end_task(self, index: int, slot: SimSlot, task: Task) -> None:
        if task.is_poison:
            self._bury(index, slot, "crash", "its process ended")
            return
        self._stop(slot, "ends")
        at = len(slot.values)
        failed = task.fails(self.ground)
        slot.values.append(b"" if failed else task.result)
        if not failed:
            slot.done[task.number] = task.result
        if failed:
            slot.failures.append([at, "error", "it raises", b""])
        slot.part_s += task.seconds * self.plan.slower
        slot.next += 1
        if slot.part_s > PART_S and self._send_part(index, slot) is False:
            return
        if not slot.is_dead:
            self._step(index, slot)

    def _stop(self, slot: SimSlot, how: str) -> None:
        if slot.task is not None:
            span = (slot.task.number, slot.task.number + 1)
            self.trace.add(self.name, how, slot.task.job, span, data=self)
            slot.task = None
        slot.since_s = None

    def _send_part(self, index: int, slot: SimSlot) -> bool:
        values, failures, wall_ns = slot.values, slot.failures, round(slot.part_s * 1e9)
        slot.values, slot.failures, slot.part_s = [], [], 0.0
        book = self.task_book.slots[index]
        number = slot.next - len(values)
        found = self.task_book.report(book, number, len(values), wall_ns)
        if found is None:
            self.trace.add(self.name, "distrusts a slot", note=str(number))
            return False
        if values:
            terms, first = found
            used = (wall_ns, wall_ns, 1 << 20)
            self._outbox.add_report(Report(terms.assignment, first, values, failures, [], *used))
            self.flush()
        return True

    def _end_bundle(self, index: int, slot: SimSlot) -> None:
        if not self._send_part(index, slot):
            return
        slot.bundles.popleft()
        book = self.task_book.slots[index]
        self._outbox.add_cancelled(self.task_book.finish(book))
        if book.freeze is None:
            slot.limit = NO_LIMIT
        if slot.bundles:
            slot.next = slot.bundles[0].number
            self._step(index, slot)
        self._feed()

    def _kill(self, index: int, reason: str) -> None:
        """Kill a slot with unwanted work, and start another."""
        slot = self._slots[index]
        self._stop(slot, f"is killed ({reason})")
        slot.is_dead = True
        self.task_book.died(self.task_book.slots[index], slot.started, is_at_fault=False)
        self._slots[index] = SimSlot()
        self._ready_soon(index)

    def _bury(self, index: int, slot: SimSlot, kind: str, text: str) -> None:
        """Replace a slot after the end of its process, and charge its task for its time there."""
        ran_s = 0.0 if slot.since_s is None else self.clock.now_s - slot.since_s
        self._stop(slot, f"is stopped ({kind})")
        slot.is_dead = True
        book = self.task_book.slots[index]
        running = self.task_book.running(book, slot.started)
        cancelled = self.task_book.died(book, slot.started, is_at_fault=running is not None)
        self._slots[index] = SimSlot()
        self._ready_soon(index)
        if running is not None:
            self._outbox.add_failure(*running, kind, text, round(ran_s * 1e9))
        self._outbox.add_cancelled(cancelled)
        self._feed()

    # --- taking back ---------------------------------------------------------------------------

    def _level(self) -> None:
        started = self._started()
        if not self.task_book.is_uneven(started):
            self._is_levelling = False
            return
        busy_s = [
            self.clock.now_s - slot.since_s if slot.since_s is not None else 0.0
            for slot in self._slots
        ]
        donor = self.task_book.donor(started, busy_s)
        if donor is None:
            self.after(LEVEL_S, self._level)
        else:
            self._reclaim([donor], self._levelled)

    def _levelled(self) -> None:
        self._feed()
        self._level()

    def _reclaim(self, books: Iterable[SlotBook], then: Any) -> None:
        frozen: list[tuple[SlotBook, Freeze]] = []
        for book in books:
            slot = self._slots[book.index]
            freeze = self.task_book.freeze(book, slot.started)
            slot.limit = freeze.bound
            frozen.append((book, freeze))

        def settled() -> None:
            for book, freeze in frozen:
                started = self._slots[book.index].started
                self._outbox.add_cancelled(self.task_book.reclaim(book, freeze, started))
            then()

        self.after(SETTLE_S, settled)

    def _recalled(self, message: Recall) -> None:
        span = (message.assignment, message.first, message.stop)
        taken = self.task_book.withdraw(*span)
        holders = self.task_book.holders(*span, self._started())
        if not holders:
            self._hand_back(message, taken)
            return

        def settled() -> None:
            more = self.task_book.withdraw(*span)
            self._hand_back(message, taken + more)
            self._feed()

        self._reclaim(holders, settled)

    def _noticed(self, message: Notice) -> None:
        at_ns = None if message.in_s is None else round((self.mono_s() + message.in_s) * 1e9)
        self.task_book.note_stop(message.assignment, message.first, message.stop, at_ns)
        self._watch_notices()

    def _tell_begun(self) -> None:
        """Report tasks that have run for a while, as gateway.worker.oversight.newly_begun does."""
        begun = []
        for book, slot in zip(self.task_book.slots, self._slots, strict=True):
            if slot.since_s is None or slot.started == book.told:
                continue
            ran_s = self.clock.now_s - slot.since_s
            running = self.task_book.running(book, slot.started)
            if running is not None and ran_s >= BEGUN_S:
                book.told = slot.started
                begun.append([running[0].assignment, running[1], round(ran_s * 1000)])
        if begun:
            self._outbox.add(BegunTasks(begun))

    def _watch_notices(self) -> None:
        """Stop tasks that are out of time."""
        for book, slot in zip(list(self.task_book.slots), list(self._slots), strict=True):
            running = self.task_book.running(book, slot.started)
            if running is None or slot.since_s is None:
                continue
            stops_ns = self.task_book.stops_ns(running[0].assignment, running[1])
            if stops_ns is not None and self.mono_s() * 1e9 >= stops_ns:
                self._bury(book.index, slot, "preempted", "to make room")

    def _hand_back(self, message: Recall, taken: list[Range]) -> None:
        ranges = [[first, stop] for first, stop in RangeSet(taken)]
        self._outbox.add(Returned(message.assignment, ranges))
        if not message.kill:
            return
        self.task_book.cancel(message.assignment, message.first, message.stop)
        for book, slot in zip(list(self.task_book.slots), list(self._slots), strict=True):
            running = self.task_book.running(book, slot.started)
            if running is None or running[0].assignment != message.assignment:
                continue
            if message.first <= running[1] < message.stop and slot.since_s is not None:
                self._bury(book.index, slot, "cancelled", "stopped on request")

    # --- timers --------------------------------------------------------------------------------

    def _watch(self) -> None:
        self.after(WATCH_S, self._watch)
        mono_s = self.mono_s()
        for book, slot in zip(list(self.task_book.slots), list(self._slots), strict=True):
            running = self.task_book.running(book, slot.started)
            limit_s = running[0].timeout_s if running else None
            if limit_s is None or slot.since_s is None:
                continue
            if self.clock.now_s - slot.since_s > limit_s:
                self._bury(book.index, slot, "timeout", f"it ran over {limit_s:g} s")
        self._watch_notices()
        self._tell_begun()
        conversation = self._conversation
        beat_s = min(PULSE_S, conversation.heartbeat_s)
        if conversation.is_open and mono_s - self._pulse_s > beat_s:
            self._pulse_s = mono_s
            self._outbox.add(Pulse([]))
        conversation.tick(mono_s)
