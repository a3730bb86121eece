"""The books of one lot of a delegating grid: the place of each task, and its reports. Pure.

A task is queued here, or in a parcel at the engine, or settled: reported, or handed back. An engine
is not trusted more than needed: news of a parcel that is not out are ignored, so that each task is
settled exactly once whatever the engine does.

Taking back is a question to the engine. A recall is answered when the engine has reported on every
parcel concerned, or after RECALL_S; parcels not given back by then count as begun.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from federation.clocks import MonoS
from federation.messages.messages import Report, Returned
from federation.messages.printed import parted
from federation.ranges import RangeSet
from gateway.grids.delegating import FAILURE_KINDS, Done, Parcel
from gateway.scheduler.model.durations import Durations
from gateway.worker.pieces import AgentBundle, AssignmentTerms, HeldAssignment, cut_out
from gateway.worker.slot.channel import is_part

PARCEL_S: Final = 0.5  # of work in a parcel, if the duration of a call is known
PARCEL_TASKS_MAX: Final = 1_000
AHEAD: Final = 2  # parcels per slot: one at work, one in transit
RECALL_S: Final = 2.0
REPORT_BYTES: Final = 256 << 10  # of results in one report, unless a single one is larger
HUNG_S: Final = 30.0  # beyond the time limits of all its calls, a parcel is given up


@dataclass(slots=True)
class SentParcel:
    """A piece at the engine, as a parcel. `begun_at_s`: when it was reported to be at work."""

    piece: AgentBundle
    begun_at_s: MonoS | None = None
    is_hung: bool = False


@dataclass(slots=True)
class _Recall:
    """An unanswered recall, which waits for the engine's reports on these parcels."""

    assignment: int
    first: int
    stop: int
    until_s: MonoS
    waits: set[str]
    taken: RangeSet


class ParcelBook:
    """The books of one lot.

    Args:
        lot: the prefix of its parcels' names.
        slots: how many parcels run at a time.
        result_bytes_max: of each result.
    """

    def __init__(self, lot: str, slots: int, result_bytes_max: int = 32 << 20) -> None:
        self.slots = slots
        self.result_bytes_max = result_bytes_max
        self.held: dict[int, HeldAssignment] = {}
        self.sent: dict[str, SentParcel] = {}
        self.known: set[bytes] = set()  # functions that are at the engine
        self._lot = lot
        self._parcels = 0
        self._queue: deque[AgentBundle] = deque()
        self._recalls: list[_Recall] = []
        self._durations = Durations()

    @property
    def is_idle(self) -> bool:
        """Whether there is no work at all."""
        return not self.held

    @property
    def functions(self) -> set[bytes]:
        """The functions of all held assignments."""
        return {held.terms.function for held in self.held.values()}

    # --- assignments and parcels ---------------------------------------------------------------

    def assign(
        self,
        terms: AssignmentTerms,
        first: int,
        arguments: list[bytes],
        left: Iterable[tuple[str, int, int]] = (),
        mono_s: MonoS = MonoS(0.0),
    ) -> None:
        """Add an assignment to the queue, unless it is known.

        Args:
            left: parcels of a former run that are at the engine, (name, first task, the one after
                its last), in order: their tasks are not sent anew.
        """
        if not arguments or terms.assignment in self.held:
            return
        piece = AgentBundle(terms, first, arguments)
        self.held[terms.assignment] = HeldAssignment(terms, RangeSet([(first, piece.stop)]))
        at = first
        for name, low, high in left:
            if at < low:
                self._queue.append(piece.cut(at, low))
            self.sent[name] = SentParcel(piece.cut(low, high), begun_at_s=mono_s)
            at = high
        if at < piece.stop:
            self._queue.append(piece.cut(at, piece.stop) if at > first else piece)

    def feed(self) -> list[Parcel]:
        """Make parcels while the engine has room; each is booked before it is returned."""
        parcels: list[Parcel] = []
        if len(self.sent) >= AHEAD * self.slots:
            return parcels
        known = self.known
        waiting = sum(len(each.arguments) for each in self._queue if each.terms.function in known)
        passed: list[AgentBundle] = []
        while waiting and len(self.sent) < AHEAD * self.slots:
            piece = self._queue.popleft()
            if piece.terms.function not in known:
                passed.append(piece)
                continue
            tasks = min(self._parcel_tasks(piece, waiting), len(piece.arguments))
            waiting -= tasks
            taken = piece.cut(piece.first, piece.first + tasks)
            if tasks < len(piece.arguments):
                self._queue.appendleft(piece.cut(taken.stop, piece.stop))
            parcels.append(self._parcel(taken))
        self._queue.extendleft(reversed(passed))
        return parcels

    def _parcel(self, piece: AgentBundle) -> Parcel:
        self._parcels += 1
        name, terms = f"{self._lot}-{self._parcels}", piece.terms
        self.sent[name] = SentParcel(piece)
        return Parcel(
            name,
            terms.job,
            terms.function,
            piece.arguments,
            terms.timeout_s,
            terms.prints,
            self.result_bytes_max,
            piece.first,
        )

    def _parcel_tasks(self, piece: AgentBundle, waiting: int) -> int:
        task_s = self._durations.of(piece.terms.function)
        if piece.alone or task_s is None:
            return 1
        free = max(1, self.slots - len(self.sent))
        worth = int(PARCEL_S / max(task_s, 1e-7))
        return max(1, min(worth, math.ceil(waiting / free), PARCEL_TASKS_MAX))

    # --- news of the engine --------------------------------------------------------------------

    def begun(self, name: str, mono_s: MonoS) -> None:
        """Note that a parcel is at work."""
        sent = self.sent.get(name)
        if sent is not None and sent.begun_at_s is None:
            sent.begun_at_s = mono_s
            self._heard(name)

    def done(self, done: Done, mono_s: MonoS) -> list[Report]:
        """Book the ended calls of a parcel; queue its rest again."""
        sent = self.sent.get(done.parcel)
        if sent is None:
            return []
        wrong = _wrong_with(done, len(sent.piece.arguments), self.result_bytes_max)
        if wrong:
            return self.broken(done.parcel, wrong, mono_s)
        del self.sent[done.parcel]
        piece, count = sent.piece, len(done.values)
        reports = list(_reports(piece, done))
        if count:
            if done.wall_ns:
                self._durations.learn(piece.terms.function, count, done.wall_ns)
            self._settle(piece.terms.assignment, piece.first, piece.first + count)
        rest = piece.cut(piece.first + count, piece.stop)
        if count == 0:
            # an end without any result must not recur: alone, the call at fault is known
            rest.alone = True
        reports += self._back(done.parcel, rest, mono_s, was_begun=True)
        return reports

    def lost(self, name: str, why: str) -> list[Report]:
        """Report the calls of a parcel that was taken from us: they run again, without blame."""
        sent = self.sent.pop(name, None)
        if sent is None:
            return []
        self._heard(name)
        return self._fail(sent.piece, "preempted", why)

    def broken(self, name: str, why: str, mono_s: MonoS) -> list[Report]:
        """Retry one by one the calls of a parcel that took its host down; fail a single one."""
        sent = self.sent.pop(name, None)
        if sent is None:
            return []
        piece = sent.piece
        if len(piece.arguments) > 1:
            piece.alone = True
            return self._back(name, piece, mono_s, was_begun=True)
        self._heard(name)
        return self._fail(piece, "crash", why)

    def cancelled(self, name: str, mono_s: MonoS) -> list[Report]:
        """Sort the tasks of a parcel that is back, without any of its calls having ended."""
        sent = self.sent.pop(name, None)
        if sent is None:
            return []
        piece = sent.piece
        if sent.is_hung:
            if len(piece.arguments) == 1:
                self._heard(name)
                return self._fail(
                    piece, "timeout", "the task exceeded its time limit and was stopped"
                )
            piece.alone = True
        return self._back(name, piece, mono_s, was_begun=sent.begun_at_s is not None)

    def _fail(self, piece: AgentBundle, kind: str, text: str) -> list[Report]:
        """Report tasks as failed, or as cancelled if a stop was requested."""
        cancelled = self.held[piece.terms.assignment].cancelled
        stopped = [piece.cut(*span) for span in cancelled.within(piece.first, piece.stop)]
        others = [piece.cut(*span) for span in cancelled.missing(piece.first, piece.stop)]
        reports = [_failed(part, "cancelled", "stopped on request") for part in stopped]
        reports += [_failed(part, kind, text) for part in others]
        self._settle(piece.terms.assignment, piece.first, piece.stop)
        return reports

    def _back(
        self, name: str, piece: AgentBundle, mono_s: MonoS, *, was_begun: bool
    ) -> list[Report]:
        """Sort returned tasks: stopped on request, due to make room, recalled, or to be queued."""
        reports: list[Report] = []
        kept: list[AgentBundle] = []
        assignment = piece.terms.assignment
        for at in range(piece.first, piece.stop):
            recall = None if was_begun else self._recall_of(name, assignment, at)
            task = piece.cut(at, at + 1)
            held = self.held[assignment]
            if recall is not None:
                recall.taken.add(at, at + 1)
                self._settle(assignment, at, at + 1)
            elif held.cancelled.within(at, at + 1):
                reports.append(_failed(task, "cancelled", "stopped on request"))
                self._settle(assignment, at, at + 1)
            elif was_begun and _stops(held, at, at + 1, mono_s):
                reports.append(_failed(task, "preempted", "the task was stopped to make room"))
                self._settle(assignment, at, at + 1)
            elif kept and kept[-1].stop == at:
                kept[-1].arguments += task.arguments
            else:
                kept.append(task)
        self._queue.extendleft(reversed(kept))
        self._heard(name)
        return reports

    def _recall_of(self, name: str, assignment: int, task: int) -> _Recall | None:
        for each in self._recalls:
            is_asked = each.assignment == assignment and name in each.waits
            if is_asked and each.first <= task < each.stop:
                return each
        return None

    def _settle(self, assignment: int, first: int, stop: int) -> None:
        held = self.held[assignment]
        held.left.remove(first, stop)
        if not held.left:
            del self.held[assignment]

    # --- taking back ---------------------------------------------------------------------------

    def recall(
        self, assignment: int, first: int, stop: int, mono_s: MonoS, *, kill: bool
    ) -> list[str]:
        """Take back unstarted tasks; return the parcels that the engine must be asked for.

        `answers` has the final answer. With `kill` running parcels are to be stopped as well.
        """
        self._queue, taken = cut_out(self._queue, assignment, first, stop)
        asked = {
            name
            for name, sent in self.sent.items()
            if sent.piece.terms.assignment == assignment
            and max(first, sent.piece.first) < min(stop, sent.piece.stop)
            and (kill or sent.begun_at_s is None)
        }
        waits = {name for name in asked if self.sent[name].begun_at_s is None}
        for low, high in taken:
            self._settle(assignment, low, high)
        held = self.held.get(assignment)
        if kill and held is not None:
            for low, high in held.left.within(first, stop):
                held.cancelled.add(low, high)
        self._recalls.append(_Recall(assignment, first, stop, mono_s + RECALL_S, waits, taken))
        return sorted(asked)

    def answers(self, mono_s: MonoS) -> list[Returned]:
        """Return answers to recalls that are complete, or have timed out."""
        ready = [each for each in self._recalls if not each.waits or mono_s >= each.until_s]
        self._recalls = [each for each in self._recalls if each not in ready]
        return [Returned(each.assignment, [list(span) for span in each.taken]) for each in ready]

    def _heard(self, name: str) -> None:
        """Note that the engine has reported on a parcel: no recall waits for it any more."""
        for each in self._recalls:
            each.waits.discard(name)

    def withdraw_all(self) -> list[Returned]:
        """Give back all queued tasks: none of them will be begun."""
        given: dict[int, RangeSet] = {}
        for piece in self._queue:
            given.setdefault(piece.terms.assignment, RangeSet()).add(piece.first, piece.stop)
        self._queue.clear()
        for assignment, spans in given.items():
            for low, high in spans:
                self._settle(assignment, low, high)
        return [Returned(number, [list(span) for span in spans]) for number, spans in given.items()]

    # --- timers --------------------------------------------------------------------------------

    def note_stop(self, assignment: int, first: int, stop: int, at_s: MonoS | None) -> None:
        """Note when tasks in [first, stop) are to be stopped; None: they run on, after all."""
        held = self.held.get(assignment)
        if held is None:
            return
        at_ns = None if at_s is None else round(at_s * 1e9)
        before, held.stops = held.stops, []
        for low, high, known_ns in before:
            parts = ((low, min(high, first)), (max(low, stop), high))
            held.stops += [(start, end, known_ns) for start, end in parts if start < end]
        if at_ns is not None:
            held.stops.append((first, stop, at_ns))

    def due(self, mono_s: MonoS) -> list[str]:
        """Return parcels to be stopped now: their slots are needed, or they hang beyond limits."""
        found = []
        for name, sent in self.sent.items():
            piece = sent.piece
            held = self.held[piece.terms.assignment]
            if _stops(held, piece.first, piece.stop, mono_s):
                if sent.begun_at_s is None:
                    sent.begun_at_s = mono_s  # a parcel that was sent may be at work
                found.append(name)
                continue
            limit_s = piece.terms.timeout_s
            if limit_s is None or sent.begun_at_s is None:
                continue
            if mono_s - sent.begun_at_s > limit_s * len(piece.arguments) + HUNG_S:
                sent.is_hung = True
                found.append(name)
        return found

    def drop_all(self) -> list[str]:
        """Forget all work: it is the gateway's again. Return the parcels the engine must end."""
        names = list(self.sent)
        self.held.clear()
        self.sent.clear()
        self._queue.clear()
        self._recalls.clear()
        return names


def _stops(held: HeldAssignment, first: int, stop: int, mono_s: MonoS) -> bool:
    """Whether any task of [first, stop) is to be stopped by now."""
    return any(low < stop and first < high and at <= mono_s * 1e9 for low, high, at in held.stops)


def _failed(piece: AgentBundle, kind: str, text: str) -> Report:
    count = len(piece.arguments)
    failures: list[list[object]] = [[at, kind, text, b""] for at in range(count)]
    return Report(piece.terms.assignment, piece.first, [b""] * count, failures, [], 0, 0, 0)


def _reports(piece: AgentBundle, done: Done) -> Iterator[Report]:
    """Yield reports of ended calls: in parts that fit into a message, time in proportion.

    A single result may be nearly as large as a message; a parcel has up to a thousand of them.
    """
    sizes = _sizes(done)
    first = size = 0
    count, used = len(sizes), (done.wall_ns, done.cpu_ns)
    for stop, more in enumerate(sizes, 1):
        size += more
        if stop < count and size + sizes[stop] <= REPORT_BYTES:
            continue
        wall_ns, cpu_ns = (amount * stop // count - amount * first // count for amount in used)
        prints, streams = parted(
            [at - first, *piece] for at, *piece in done.prints if first <= at < stop
        )
        yield Report(
            piece.terms.assignment,
            piece.first + first,
            done.values[first:stop],
            [[at - first, *rest] for at, *rest in done.failures if first <= at < stop],
            prints,
            wall_ns,
            cpu_ns,
            done.peak_memory_bytes,
            streams,
        )
        first, size = stop, 0


def _sizes(done: Done) -> list[int]:
    """Return the approximate size of each call's part of a report, in bytes."""
    sizes = [len(value) for value in done.values]
    for at, _, text, payload in done.failures:
        sizes[at] += len(text) + len(payload)
    for at, text, *_ in done.prints:
        sizes[at] += len(text)
    return sizes


def _wrong_with(done: Done, tasks: int, bytes_max: int) -> str:
    """Return why an engine's results can't go into a report, or "".

    A gateway throws out senders of nonsense. A host's data come here unchecked: any field may be of
    any type.
    """
    nonsense = "the engine returned an invalid answer"
    if type(done.failures) is not list:
        return nonsense
    for each in done.failures:
        if type(each) is not list or len(each) < 2:
            return nonsense
        if type(each[1]) is not str or each[1] not in FAILURE_KINDS:
            return nonsense
    plain = [[each[0], "error", *each[2:]] for each in done.failures]
    used = (done.wall_ns, done.cpu_ns, done.peak_memory_bytes)
    if not is_part([done.values, plain, done.prints, *used, True]) or len(done.values) > tasks:
        return nonsense
    # A message has room for a slot's additions to a result, such as prints, beside the largest.
    if max(_sizes(done), default=0) > bytes_max + min(REPORT_BYTES, bytes_max // 2):
        return f"a result exceeds {bytes_max:,} bytes, the limit of a message"
    return ""


def regroup(lots: Iterable[tuple[int, int]], slots: int, lots_max: int) -> tuple[list[int], int]:
    """Resize lots, (number, slots) each, to `slots` in all; return those that end, and new slots.

    A lot is a worker to the gateway, and never changes its size. Growing adds one; shrinking ends
    the smallest first, and begins one with the remainder. Too many lots are merged into one.
    """
    have = sorted(lots, key=lambda each: each[1])
    total = sum(size for _, size in have)
    ended: list[int] = []
    while total > slots or (len(have) >= lots_max and total != slots):
        number, size = have.pop(0)
        ended.append(number)
        total -= size
    return ended, slots - total
