"""The slots of a pool in the year: one worker with all of them, which follows its orders.

It stands for agents and their children. Assigned tasks run at once on free slots, else they wait
here; tasks that are told to stop do so by its own clock, and are reported. Of tasks that begin
together, and take the same time, it needs only the number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from federation.messages.messages import Assign, Drain, Notice, Recall
from gateway.scheduler.model import events
from simulations.world.clock import Clock, ClockTimer
from simulations.year.work import YearJob

RESULT = b"1"


@dataclass(slots=True, eq=False)
class Batch:
    """Tasks [first, stop) of an assignment that began at the same moment."""

    assignment: int
    first: int
    stop: int
    work: YearJob
    since_s: float
    timer: ClockTimer
    stops_s: float | None = None  # when they are to be stopped
    stops: ClockTimer | None = None


@dataclass(slots=True)
class UsedTime:
    """Slot-seconds of completed and of stopped work, all within the time."""

    done_s: float = 0.0
    lost_s: float = 0.0
    stopped: int = 0  # tasks


class YearSlots:
    """A pool's slots.

    Args:
        handle: the worker's number.
        total: their number.
        works: by the arguments of their tasks.
        tell: takes its reports, at any later moment.
        until_s: use is counted until then; `days` has it day by day.
    """

    def __init__(
        self,
        clock: Clock,
        handle: int,
        total: int,
        works: Mapping[bytes, YearJob],
        tell: Callable[[events.Event], None],
        until_s: float,
    ) -> None:
        self._clock = clock
        self.handle = handle
        self.total = total
        self._works = works
        self._tell = tell
        self._until_s = until_s
        self._free = total
        self._running: dict[int, list[Batch]] = {}  # by assignment
        self._queue: list[tuple[int, int, int, YearJob]] = []
        self.used = UsedTime()
        self.days = [0.0] * (int(until_s // 86_400) + 1)

    def order(self, message: Any) -> None:
        """Follow an order of the gateway."""
        match message:
            case Assign():
                work = self._works[message.arguments[0]]
                stop = message.first + len(message.arguments)
                self._queue.append((message.assignment, message.first, stop, work))
                self._start()
            case Notice():
                self._notice(message)
            case Recall():
                self._recall(message)
            case Drain():
                return
            case _:
                raise AssertionError(f"{message.kind!r} can't be sent to a worker")

    # --- running -------------------------------------------------------------------------------

    def _start(self) -> None:
        while self._queue and self._free:
            number, first, stop, work = self._queue.pop(0)
            middle = min(stop, first + self._free)
            if middle < stop:
                self._queue.insert(0, (number, middle, stop, work))
            self._run(number, first, middle, work)

    def _run(self, number: int, first: int, stop: int, work: YearJob) -> None:
        now_s, count = self._clock.now_s, stop - first
        self._free -= count
        if work.first_start_s is None:
            work.first_start_s = now_s
        if work.is_production:
            work.starts_s += [now_s] * count
        batch = Batch(number, first, stop, work, now_s, ClockTimer(lambda: None))
        batch.timer = self._clock.after(work.task_s, lambda: self._end(batch))
        self._running.setdefault(number, []).append(batch)

    def _end(self, batch: Batch) -> None:
        count = batch.stop - batch.first
        self._leave(batch)
        self.used.done_s += self._count(batch)
        wall_ns = round(batch.work.task_s * count * 1e9)
        report = events.Reported(
            self.handle,
            batch.assignment,
            batch.first,
            [RESULT] * count,
            wall_ns=wall_ns,
            cpu_ns=2 * wall_ns,  # both vCPUs of a slot
        )
        self._tell(report)
        self._start()

    def _leave(self, batch: Batch) -> None:
        self._free += batch.stop - batch.first
        batch.timer.cancel()
        if batch.stops is not None:
            batch.stops.cancel()
        batches = self._running[batch.assignment]
        batches.remove(batch)
        if not batches:
            del self._running[batch.assignment]

    def _count(self, batch: Batch) -> float:
        """Return the slot-seconds of a batch that ends now, within the time; add them to `days`."""
        from_s, to_s = batch.since_s, min(self._clock.now_s, self._until_s)
        count = batch.stop - batch.first
        at_s = from_s
        while at_s < to_s:
            day = int(at_s // 86_400)
            end_s = min(to_s, (day + 1) * 86_400.0)
            self.days[day] += count * (end_s - at_s)
            at_s = end_s
        return count * max(0.0, to_s - from_s)

    # --- stopping ------------------------------------------------------------------------------

    def _parts(self, number: int, first: int, stop: int) -> list[Batch]:
        """Return the running ones of these tasks, split into batches of their own."""
        found = []
        for batch in list(self._running.get(number, ())):
            low, high = max(first, batch.first), min(stop, batch.stop)
            if low >= high:
                continue
            for part in ((batch.first, low), (high, batch.stop)):
                if part[0] < part[1]:
                    self._split_off(batch, *part)
            batch.first, batch.stop = low, high
            found.append(batch)
        return found

    def _split_off(self, batch: Batch, first: int, stop: int) -> None:
        left_s = batch.since_s + batch.work.task_s - self._clock.now_s
        other = Batch(batch.assignment, first, stop, batch.work, batch.since_s, batch.timer)
        other.timer = self._clock.after(left_s, lambda: self._end(other))
        self._running[batch.assignment].append(other)
        self._stop_at(other, batch.stops_s)

    def _stop_at(self, batch: Batch, at_s: float | None) -> None:
        """Schedule the stop of a batch; None: not at all."""
        if batch.stops is not None:
            batch.stops.cancel()
        batch.stops_s = at_s
        batch.stops = None if at_s is None else self._clock.at(at_s, lambda: self._stop(batch))

    def _notice(self, message: Notice) -> None:
        for batch in self._parts(message.assignment, message.first, message.stop):
            in_s = message.in_s
            self._stop_at(batch, None if in_s is None else self._clock.now_s + in_s)

    def _stop(self, batch: Batch) -> None:
        self._fail(batch, "preempted")
        self._start()

    def _fail(self, batch: Batch, kind: str) -> None:
        """End a batch that was stopped; its work is lost."""
        self._leave(batch)
        self.used.lost_s += self._count(batch)
        count = batch.stop - batch.first
        if kind == "preempted":
            self.used.stopped += count
        wall_ns = round((self._clock.now_s - batch.since_s) * count * 1e9)
        failures = [[at, kind, "to make room", b""] for at in range(count)]
        values = [b""] * count
        number, first = batch.assignment, batch.first
        self._tell(
            events.Reported(
                self.handle, number, first, values, failures, wall_ns=wall_ns, cpu_ns=2 * wall_ns
            )
        )

    def _recall(self, message: Recall) -> None:
        back, kept = [], []
        for number, first, stop, work in self._queue:
            low, high = max(first, message.first), min(stop, message.stop)
            if number != message.assignment or low >= high:
                kept.append((number, first, stop, work))
                continue
            back.append((low, high))
            if first < low:
                kept.append((number, first, low, work))
            if high < stop:
                kept.append((number, high, stop, work))
        self._queue = kept
        self._tell(events.HandedBack(self.handle, message.assignment, tuple(back)))
        if message.kill:
            for batch in self._parts(message.assignment, message.first, message.stop):
                self._fail(batch, "cancelled")
        self._start()
