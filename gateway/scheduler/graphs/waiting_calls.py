"""The calls of a site's jobs that wait for other tasks: taken in, filled, ended. Pure.

    calls arrive ─► take ─┬─ their inputs are here already ─► the queue
                          ├─ some come later ─► core, until `outcome` and `fell` tell of these
                          ├─ some have ended, and the books have them ─► ReadOutcomes ─► `read`
                          └─ some have ended, and only the client has them ─► SendAgain

The scheduler counts a waiting call as known and unfinished. It is in its job's queue only once its
inputs have ended: only then does anything ask for a slot.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any, Final, Protocol

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.messages import SendAgain
from federation.objects.inputs import TaskRow, filled, has_inputs, read_head
from federation.objects.labels import DataLabel, conflict
from federation.objects.left import left_in
from federation.ranges import Range, RangeSet
from federation.words import duration_text, headline, size_text
from gateway.base.ranked import RankedItems
from gateway.scheduler.graphs.core import CycleFound, Ready, TaskGraph
from gateway.scheduler.graphs.edges import call_ranges
from gateway.scheduler.graphs.stages import StageBook
from gateway.scheduler.model.effects import Effect, HoldObjects, ReadOutcomes
from gateway.scheduler.model.events import JobFate, OutcomesRead
from gateway.scheduler.model.jobs import Job, QueuedBundle
from policies.placement.asks import Wishes

RESIDENCY: Final = "residency"  # … of one whose inputs leave no place for it
DEPENDENCY: Final = "dependency"  # the kind of failure of a call that lacks an input
FILLED_BYTES_MAX: Final = 60 << 20  # of a call with its inputs; a message has at most 64 MiB
LOOKED_MAX: Final = 200_000  # inputs of the calls that one message brings: a tenth of a second
REMEDY: Final = (
    'use options(results="auto") for the tasks that make them, which leaves large results of '
    "submit and map as objects (those of submit_job are values always), or put a value that many "
    "calls read by client.put"
)
VALUES_BYTES_MAX: Final = 1 << 30  # of values with which calls wait, at a site
# From these on, those of running tasks included, tasks that make more than they free wait.
LIVE_BYTES_MAX: Final = VALUES_BYTES_MAX // 2
# How long a call waits for a task of a job that nobody has opened.
UNKNOWN_S: Final = 60.0
NAMED_MAX: Final = 4096  # failed tasks in one range from which on they are named together


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """How a task failed: its kind, the text for people, the pickled exception or nothing."""

    kind: str
    text: str
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class _Cause:
    """The first failure, for all calls that can't run because of it."""

    text: str
    payload: bytes
    kind: str = DEPENDENCY


class EndCalls(Protocol):
    """Ends calls that will not run."""

    def __call__(
        self, job: Job, ranges: list[Range], failure: str, reason: str, *, payload: bytes
    ) -> None:
        """End these calls with a failure of this kind."""


class WaitingCalls:
    """The calls that wait for inputs.

    Args:
        jobs: all jobs.
        effects: the list to which effects are appended, in sequence with all others.
        end: ends calls with a failure.
        queue: is told that more tasks of a job are queued.
        tell: sends a client a message.
        credit: (job, tasks): that many tasks are not unfinished any more.
        ended: whether a job that is not in `jobs` has ended as a detached one, as an attached one,
            or is not known.

    Attributes:
        sources: the jobs of which calls may wait for tasks; of ended tasks of others nothing need
            be told.
        stages: which jobs read results of which, for people.
        touched: the jobs of which calls have ended here, until `take_touched`.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        effects: list[Effect],
        *,
        end: EndCalls,
        queue: Callable[[Job], None],
        tell: Callable[[int, Any], None],
        credit: Callable[[Job, int], None],
        ended: Callable[[str], JobFate],
        bytes_max: Callable[[Job], int],
    ) -> None:
        self._jobs = jobs
        self._effects = effects
        self._end = end
        self._queue = queue
        self._tell = tell
        self._credit = credit
        self._fate = ended
        self._bytes_max = bytes_max
        self._graph = TaskGraph()
        self._calls: dict[str, dict[int, bytes]] = {}  # by job and task: as they came
        # By job and task: calls that came back from a slot, with their attempts and losses.
        self._returned: dict[str, dict[int, QueuedBundle]] = {}
        self._made: dict[str, tuple[int, int]] = {}  # by job: results that calls waited for, bytes
        self._held_back: set[str] = set()  # jobs that have been told so
        self._readers: set[str] = set()  # jobs of which calls have waited for inputs
        self.stages = StageBook(jobs)
        self._unknown: dict[str, UtcS] = {}  # jobs that nobody has opened, since when
        self._late: dict[str, UtcS] = {}  # jobs of which tasks are waited for that did not come
        self.sources: set[str] = set()
        self.touched: dict[str, Job] = {}
        self.narrowed: dict[str, Job] = {}  # whose places have changed: they are filed anew
        self._utc_s = UtcS(0.0)
        self._dated: RankedItems[Job] = RankedItems()  # jobs of waiting calls, by deadline

    @property
    def values_bytes(self) -> int:
        """The bytes of the values with which calls wait."""
        return self._graph.held_bytes

    def inputs_of(self, job: Job) -> list[str]:
        """Return the jobs whose tasks calls of a job wait for."""
        return self._graph.sources(job.id)

    def take_touched(self) -> list[Job]:
        """Return the jobs of which calls have ended here since the last time."""
        touched = list(self.touched.values())
        self.touched.clear()
        return touched

    # --- calls that arrive ---------------------------------------------------------------------

    def take(
        self, job: Job, first: int, calls: Sequence[bytes], utc_s: UtcS
    ) -> list[tuple[int, list[bytes]]]:
        """Take calls of a job that may wait for inputs; return those that don't, in runs.

        All of them count as known and unfinished. Those that can't run are ended here, and those
        whose inputs only the client has are left to it.
        """
        self._utc_s = utc_s
        plain: list[tuple[int, list[bytes]]] = []
        waiting: list[tuple[int, tuple[TaskRow, ...]]] = []
        again, reads = RangeSet(), dict[str, RangeSet]()
        looked = 0
        for task, call in enumerate(calls, first):
            rows = self._rows(job, call)
            width = sum(high - low for _, low, high in rows)
            if looked and looked + width > LOOKED_MAX:
                again.add(task, task + 1)  # in the next message
                continue
            looked += width
            why = self._objection(job, rows)
            if not rows:
                if plain and plain[-1][0] + len(plain[-1][1]) == task:
                    plain[-1][1].append(call)
                else:
                    plain.append((task, [call]))
            elif why:
                self._fail(job, [(task, task + 1)], _Cause(why, b""))
            elif why := self._narrow_by(job, rows):
                self._fail(job, [(task, task + 1)], _Cause(why, b"", RESIDENCY))
            elif self._is_gone(rows):
                again.add(task, task + 1)
            else:
                self._note_reads(rows, reads)
                self._calls.setdefault(job.id, {})[task] = call
                waiting.append((task, rows))
        self._send_again(job, again)
        self._wait(job, waiting)
        for source, wanted in reads.items():
            self._effects.append(ReadOutcomes(source, tuple(wanted)))
        return plain

    @staticmethod
    def _rows(job: Job, call: bytes) -> tuple[TaskRow, ...]:
        """Return the tasks that a call waits for; nothing where its head is wrong."""
        if not has_inputs(call):
            return ()
        job.need_inputs()
        try:
            return read_head(call).rows
        except ProtocolError:
            return ()  # its slot reports the error

    def _objection(self, job: Job, rows: Iterable[TaskRow]) -> str:
        """Why a call may not wait for these tasks; empty if it may."""
        for name, _, _ in rows:
            source = self._jobs.get(name)
            is_detached = self._is_detached(name)
            if source is not None and not _is_same(source, job):
                return f"it waits for a task of {source.title}, and is of {job.title}"
            if job.spec.detached and is_detached is False:
                return (
                    f"it is of a detached job, and waits for a task of job {name}, which ends with "
                    "its client: submit that as a detached job too"
                )
        return ""

    def _narrow_by(self, job: Job, rows: Iterable[TaskRow]) -> str:
        """Let the limits of inputs hold for a job that reads them, or return why it may not.

        Then the labels of these inputs, and of what it has read before, leave no place.
        """
        found = (self._jobs.get(name) for name, _, _ in rows)
        sources = [each for each in found if each is not None]
        why = conflict([job.spec.wishes.label, *map(_label_of, sources)])
        if not why:
            for source in sources:
                self._narrow(job, source.spec.wishes, _label_of(source))
        return why

    def _pass_on(self, source: Job) -> None:
        """Let a label that a job has had since calls began to wait for it hold for these, too."""
        source.is_narrowed = False
        label = _label_of(source)
        for consumer, ranges in self._graph.lacking(source.id):
            job = self._jobs[consumer]
            why = conflict([job.spec.wishes.label, label])
            if why:
                gone = self._graph.drop(consumer, ranges)
                self._leave(job, gone)
                self._fail(job, gone, _Cause(why, b"", RESIDENCY))
            elif job.narrow(label):
                self.narrowed[job.id] = job

    def _is_detached(self, name: str) -> bool | None:
        """Whether a job is a detached one; None: unknown."""
        source = self._jobs.get(name)
        if source is not None:
            return source.spec.detached
        fate = self._fate(name)
        return None if fate is JobFate.UNKNOWN else fate is JobFate.DETACHED

    def _is_gone(self, rows: Iterable[TaskRow]) -> bool:
        """Whether a task of these has ended whose value only the client has."""
        return any(
            self._is_detached(name) is False and self._lost(name, low, high)
            for name, low, high in rows
        )

    def _lost(self, name: str, low: int, high: int) -> list[Range]:
        """Return the tasks of [low, high) that have ended, and whose values are not held."""
        source = self._jobs.get(name)
        over = [(low, high)] if source is None else source.ended.within(low, high)
        found = RangeSet()
        for first, stop in over:
            found.add(first, stop)
            for task in self._graph.held(name, first, stop):
                found.remove(task, task + 1)
        return list(found)

    def _note_reads(self, rows: Iterable[TaskRow], reads: dict[str, RangeSet]) -> None:
        """Note the tasks whose outcomes may be in the books."""
        for name, low, high in rows:
            for part in self._lost(name, low, high):
                reads.setdefault(name, RangeSet()).add(*part)

    def _narrow(self, job: Job, wishes: Wishes, label: DataLabel) -> None:
        """Let the limits on places of an input's data hold for a job that reads it."""
        if job.narrow(label):
            self.narrowed[job.id] = job
        own = job.spec.wishes
        data = own.data | wishes.data
        places = own.jurisdictions
        if wishes.jurisdictions is not None:
            places = wishes.jurisdictions if places is None else places & wishes.jurisdictions
        if (data, places) != (own.data, own.jurisdictions):
            job.change_terms(wishes=replace(own, data=data, jurisdictions=places))

    def _wait(self, job: Job, waiting: list[tuple[int, tuple[TaskRow, ...]]]) -> None:
        """Let calls wait; queue those whose inputs are all here."""
        ready: list[Ready] = []
        for low, high in RangeSet((task, task + 1) for task, _ in waiting):
            rows = [rows for task, rows in waiting if low <= task < high]
            self._count(job, high - low)
            size = sum(len(self._calls[job.id][task]) for task in range(low, high))
            job.blocked_bytes += size
            job.hold_bytes(size)
            for part in call_ranges(low, rows):
                self.sources.update(edge.source for edge in part.edges)
                for edge in part.edges:
                    self.stages.note(job.id, edge.source, edge.width * (part.stop - part.first))
                try:
                    ready += self._graph.add(job.id, part)
                except CycleFound as found:
                    self._leave(job, [(part.first, part.stop)])
                    self._fail(job, [(part.first, part.stop)], _Cause(str(found), b""))
        if job.blocked:
            self._readers.add(job.id)
            job.unblock = lambda wanted: self._unblock(job, wanted)
            job.follow = lambda task, most, room: self._follow(job, task, most, room)
        self._release(ready)

    def _unblock(self, job: Job, wanted: RangeSet) -> list[Range]:
        """Take waiting calls of a job away, for one that ends them; return their ranges."""
        ranges = self._graph.drop(job.id, wanted)
        self._leave(job, ranges)
        return ranges

    def _leave(self, job: Job, ranges: Iterable[Range]) -> list[bytes]:
        """Note that calls wait no more; return them."""
        calls, found = self._calls.get(job.id, {}), []
        for low, high in ranges:
            for task in range(low, high):
                call = calls.pop(task, None)
                if call is None:  # it is on its way with its input
                    job.riding -= 1
                    continue
                job.hold_bytes(-len(call))
                job.blocked_bytes -= len(call)
                self._count(job, -1)
                found.append(call)
        if not calls:
            self._calls.pop(job.id, None)
        return found

    def _count(self, job: Job, more: int) -> None:
        """Count so many more calls of a job that wait; while there are any its deadline counts."""
        before = _due(job)
        job.blocked += more
        after = _due(job)
        if before != after:
            self._dated.move(job, before, after)

    def overdue(self, utc_s: UtcS, at_most: int) -> list[Job]:
        """Return jobs with waiting calls whose deadline has passed, the earliest first."""
        dated = takewhile(lambda pair: pair[0][0] <= utc_s, self._dated)
        return [job for _, job in islice(dated, at_most)]

    # --- chains: calls that go to a slot with the task that they wait for ------------------------

    def _follow(self, job: Job, task: int, most: int, room: int) -> list[bytes]:
        """Take the calls that ride with a task of a job: at most so many, and so many bytes."""
        calls, fit = self._calls.get(job.id, {}), 0
        while fit < most and (call := calls.get(task + fit + 1)) is not None:
            room -= len(call)
            if room < 0:
                break
            fit += 1
        number = self._graph.follow(job.id, task, fit)
        found = self._leave(job, [(task + 1, task + 1 + number)])
        job.riding += number
        return found

    def rode(self, job: Job, first: int, stop: int) -> None:
        """Note that tasks of a job have ended: those that rode are not held any more."""
        if job.riding:
            job.riding -= self._graph.rode(job.id, first, stop)

    def came_back(self, job: Job, run: QueuedBundle) -> list[QueuedBundle]:
        """Let the riding calls of a run wait again, which have not ended; return the others."""
        if not job.riding:
            return [run]
        tasks, ready = self._graph.came_back(job.id, run.first, run.stop)
        for task in tasks:
            back = run.cut(task, task + 1)
            self._calls.setdefault(job.id, {})[task] = back.arguments[0]
            self._returned.setdefault(job.id, {})[task] = back
            job.hold_bytes(len(back.arguments[0]))
            job.blocked_bytes += len(back.arguments[0])
        job.riding -= len(tasks)
        self._count(job, len(tasks))
        self._release(ready)
        riders = RangeSet((task, task + 1) for task in tasks)
        return [run.cut(low, high) for low, high in riders.missing(run.first, run.stop)]

    # --- outcomes of tasks ---------------------------------------------------------------------

    def outcome(
        self,
        job: Job,
        first: int,
        values: Sequence[bytes],
        failures: Iterable[Sequence[Any]],
        *,
        left: bool,
    ) -> None:
        """Take the results of tasks `first`, `first` + 1, … of a job, which have ended.

        Args:
            failures: rows [offset, kind, text, pickled exception] of those without a value.
            left: whether some values stand for objects.
        """
        if not self._graph.has_consumers(job.id):
            return
        if left:
            digests = tuple(left_in(values))
            for name in self._graph.consumer_jobs(job.id, first, first + len(values)):
                self._effects.append(HoldObjects(name, job.spec.scope, digests))
        self._learn_size(job, values)
        at = 0
        for offset, kind, text, payload in failures:
            self._ended(job.id, first + at, values[at : int(offset)])
            at = int(offset) + 1
            failure = TaskFailure(str(kind), str(text), bytes(payload))
            self.fell(job, [(first + at - 1, first + at)], failure)
        self._ended(job.id, first + at, values[at:])

    def _learn_size(self, job: Job, values: Sequence[bytes]) -> None:
        tasks, size = self._made.get(job.id, (0, 0))
        self._made[job.id] = tasks + len(values), size + sum(map(len, values))
        job.live_room = lambda: self._live_room(job)

    def _result_bytes(self, job: Job) -> float:
        tasks, size = self._made.get(job.id, (0, 0))
        return size / max(1, tasks)

    def _live_room(self, job: Job) -> int | None:
        """Return how many more tasks of a job may begin, for the sake of memory; None: any number.

        Live are the values with which calls wait, the calls that have theirs and have not ended,
        and what running tasks are expected to make. Tasks that free as much as they make are not
        bound. One task may always begin where none of a graph runs, so nothing waits for ever.
        """
        makes = self._result_bytes(job)
        calls = job.waiting + job.in_flight
        frees = job.held_bytes / calls if job.spec.has_inputs and calls else 0.0
        if job.id not in self.sources or makes <= frees:
            return None
        own_bytes_max = self._bytes_max(job) // 2
        near = self._graph.held_bytes + job.account.held_bytes + (job.in_flight + 1) * makes
        if 4 * near < min(LIVE_BYTES_MAX, own_bytes_max):
            return None  # far from it, and most graphs are: no look at all jobs of graphs
        makers = [each for name in self._made if (each := self._jobs.get(name)) is not None]
        readers = [each for name in self._readers if (each := self._jobs.get(name)) is not None]
        # The calls of a client have a limit of their own.
        here = LIVE_BYTES_MAX - self._graph.held_bytes - self._live_bytes(makers, readers)
        own = own_bytes_max - self._live_bytes(
            [each for each in makers if each.account is job.account],
            [each for each in readers if each.account is job.account],
        )
        room = int(min(here, own) // makes)
        if room > 0:
            return room
        if job.id not in self._held_back:
            self._held_back.add(job.id)
            text = "there is no room for more results of it with which calls wait"
            job.note(self._utc_s, f"{text}: its tasks wait until some of these have been read")
        return 0 if any(each.in_flight for each in (*makers, *readers)) else 1

    def _live_bytes(self, makers: Iterable[Job], readers: Iterable[Job]) -> float:
        """Return the bytes of filled calls, and those of results that are expected."""
        coming = sum(each.in_flight * self._result_bytes(each) for each in makers)
        return coming + sum(each.held_bytes - each.blocked_bytes for each in readers)

    def _ended(self, name: str, first: int, values: Sequence[bytes]) -> None:
        if not values:
            return
        source = self._jobs.get(name)
        if source is not None and source.is_narrowed:
            self._pass_on(source)
        if self._graph.held_bytes + sum(map(len, values)) > VALUES_BYTES_MAX:
            text = (
                f"the values with which calls wait at this site are over "
                f"{size_text(VALUES_BYTES_MAX)}: {REMEDY}"
            )
            self._fall(name, [(first, first + len(values))], _Cause(text, b""))
            return
        self._release(self._graph.ended(name, first, values))

    def _release(self, ready: Sequence[Ready]) -> None:
        """Fill calls whose inputs are all there, and queue them."""
        at = 0
        while at < len(ready):
            stop = at + 1
            while stop < len(ready) and _follows(ready[stop - 1], ready[stop]):
                stop += 1
            self._release_run(ready[at:stop])
            at = stop

    def _release_run(self, ready: Sequence[Ready]) -> None:
        job, first = self._jobs[ready[0].job], ready[0].task
        calls = self._leave(job, [(first, first + len(ready))])
        digests = tuple(dict.fromkeys(one for each in ready for one in left_in(each.values)))
        if digests:
            job.need_objects()
            calls_here = first, first + len(ready)
            self._effects.append(HoldObjects(job.id, job.spec.scope, digests, calls_here))
        runs: list[tuple[int, list[bytes]]] = []
        returned = self._returned.get(job.id, {})
        room = self._bytes_max(job) - job.account.held_bytes
        for task, (call, each) in enumerate(zip(calls, ready, strict=True), first):
            size = len(call) + sum(map(len, each.values))
            why = self._too_large(job, size, room)
            if why:
                self._fail(job, [(task, task + 1)], _Cause(why, b""))
                continue
            room -= size
            if task in returned:
                back, data = returned.pop(task), filled(call, each.values)
                job.enqueue(replace(back, arguments=[data], size=len(data)), ahead=True)
            elif runs and runs[-1][0] + len(runs[-1][1]) == task:
                runs[-1][1].append(filled(call, each.values))
            else:
                runs.append((task, [filled(call, each.values)]))
        # What is deeper in the graph goes first: it ends what was begun, and frees its inputs.
        depth = ready[0].depth
        is_deeper = bool(job.queue) and depth > job.queue[0].depth and not job.queue[0].alone
        for low, part in reversed(runs) if is_deeper else runs:
            run = QueuedBundle(low, part, sum(map(len, part)), job.attempt, depth=depth)
            job.enqueue(run, ahead=is_deeper)
        self._queue(job)

    def _too_large(self, job: Job, size: int, room: int) -> str:
        """Why a call of `size` bytes, with its inputs, may not begin; empty if it may.

        A value is copied into each call that reads it: a thousand calls with one large value would
        take the memory of the gateway.
        """
        if size > FILLED_BYTES_MAX:
            return (
                f"its inputs have {size_text(size)} together, the limit is "
                f"{size_text(FILLED_BYTES_MAX)}: {REMEDY}"
            )
        if size > room:
            return (
                f"its inputs have {size_text(size)}, and those of the calls of this client that "
                f"have not ended would be over {size_text(self._bytes_max(job))}: {REMEDY}"
            )
        return ""

    def fell(self, job: Job, ranges: Iterable[Range], failure: TaskFailure) -> None:
        """Take tasks of a job that have ended without a value: all calls that wait for them end."""
        if not self._graph.has_consumers(job.id):
            return
        verb = "was cancelled" if failure.kind == "cancelled" else "failed"
        why = headline(failure.text)
        for low, high in ranges:
            width = high - low if high - low > NAMED_MAX else 1
            for task in range(low, high, width):
                which = f"task {task}" if width == 1 else f"one of tasks {task} to {high - 1}"
                text = f"{which} of job {job.id} ({job.spec.name}), which it needs, {verb}: {why}"
                self._fall(job.id, [(task, task + width)], _Cause(text, failure.payload))

    def _fall(self, name: str, ranges: Iterable[Range], cause: _Cause) -> None:
        for each in self._graph.failed(name, ranges, cause):
            job = self._jobs[each.job]
            self._leave(job, [(each.first, each.stop)])
            self._fail(job, [(each.first, each.stop)], cause)

    def _fail(self, job: Job, ranges: list[Range], cause: _Cause) -> None:
        """End calls that are not waiting any more."""
        self.touched[job.id] = job
        self._end(job, ranges, cause.kind, cause.text, payload=cause.payload)

    # --- inputs that are not here --------------------------------------------------------------

    def _send_again(self, job: Job, ranges: RangeSet) -> None:
        """Have the client send calls again, with the values that it has by then."""
        for low, high in ranges:
            job.known.remove(low, high)
            self._credit(job, high - low)
        if ranges:
            self._tell(job.client, SendAgain(job.id, [list(pair) for pair in ranges]))

    def _give_up(
        self, name: str, text: str, known: RangeSet | None = None, within: RangeSet | None = None
    ) -> None:
        """Handle calls that wait for tasks of a job which will give no value here.

        The client of an attached job may have the value, or has submitted the task anew.
        """
        for consumer, ranges in self._graph.lacking(name, known, within):
            job = self._jobs[consumer]
            if job.spec.detached or self._is_detached(name) is not False:
                for task in [at for pair in ranges for at in range(*pair)]:
                    gone = self._graph.drop(consumer, [(task, task + 1)])
                    self._leave(job, gone)
                    self._fail(job, gone, _Cause(text, b""))
            else:
                gone = self._graph.drop(consumer, ranges)
                self._leave(job, gone)
                self._send_again(job, RangeSet(gone))

    def ended_elsewhere(self, job: Job, ranges: Iterable[Range]) -> None:
        """Note that tasks of a job will not come: their client has ended them, or has the values.

        Calls that wait for them are asked for again: they come with the values, or end there too.
        """
        if self._graph.has_consumers(job.id):
            text = f"a task of job {job.id} that it needs ended before this gateway had it"
            self._give_up(job.id, text, within=RangeSet(ranges))

    def finished(self, job: Job) -> None:
        """Note that a job is over: no more of its tasks will end."""
        self.sources.discard(job.id)
        self._returned.pop(job.id, None)
        self._made.pop(job.id, None)
        self._held_back.discard(job.id)
        self._readers.discard(job.id)
        self.stages.finished(job)
        self._graph.forget(job.id)
        if self._graph.has_consumers(job.id):
            # Results of a detached job that no call awaited when they came are being read.
            known = job.ended if job.spec.detached else None
            text = f"job {job.id} ended without a task that is an input of it"
            self._give_up(job.id, text, known)

    def read(self, event: OutcomesRead, utc_s: UtcS) -> None:
        """Take the outcomes in the books of tasks that are waited for."""
        name, asked = event.job, RangeSet([(event.first, event.stop)])
        if event.fate is JobFate.UNKNOWN:
            if name not in self._jobs and self._graph.has_consumers(name):
                self._unknown.setdefault(name, utc_s)
            return
        if event.trouble:
            self._give_up(name, event.trouble, within=asked)
            return
        if event.fate is JobFate.ATTACHED:
            if name not in self._jobs:
                self._give_up(name, f"job {name} has ended, and its results went to its client")
            return
        for consumer, ranges in self._graph.lacking(name):
            job = self._jobs[consumer]
            if (job.spec.user, job.spec.project) != event.whose:
                wrong = self._graph.drop(consumer, ranges)
                self._leave(job, wrong)
                text = f"it waits for a task of a job of another user or project, {name}"
                self._fail(job, wrong, _Cause(text, b""))
            elif event.wishes is not None:
                label = event.wishes.label.named(f"a result of job {name}")
                why = conflict([job.spec.wishes.label, label])
                if why:
                    wrong = self._graph.drop(consumer, ranges)
                    self._leave(job, wrong)
                    self._fail(job, wrong, _Cause(why, b"", RESIDENCY))
                else:
                    self._narrow(job, event.wishes, label)
        for first, values, failures in event.outcomes:
            self._from_books(event, first, values, failures)
        if name not in self._jobs:  # other tasks of it may be read by now
            text = f"job {name} has ended, and a result that it needs is not kept"
            self._give_up(name, text, within=asked)

    def _from_books(
        self,
        event: OutcomesRead,
        first: int,
        values: Sequence[bytes],
        failures: Iterable[Sequence[Any]],
    ) -> None:
        at = 0
        for offset, kind, text, payload in failures:
            self._ended(event.job, first + at, values[at : int(offset)])
            at = int(offset) + 1
            task = first + at - 1
            verb = "was cancelled" if kind == "cancelled" else "failed"
            why = f"task {task} of job {event.job}, which it needs, {verb}: {headline(str(text))}"
            self._fall(event.job, [(task, task + 1)], _Cause(why, bytes(payload)))
        self._ended(event.job, first + at, values[at:])

    def look(self, utc_s: UtcS) -> None:
        """Handle the calls that have waited too long for tasks which do not come."""
        self._look_for_tasks(utc_s)
        self.sources = set(filter(self._graph.has_consumers, self.sources))
        for name, since_s in list(self._unknown.items()):
            if name in self._jobs or not self._graph.has_consumers(name):
                del self._unknown[name]
            elif utc_s - since_s > UNKNOWN_S:
                del self._unknown[name]
                text = f"job {name}, of which it waits for a task, did not come within "
                self._give_up(name, text + duration_text(UNKNOWN_S))

    def _look_for_tasks(self, utc_s: UtcS) -> None:
        """Ask for calls again whose inputs their client has not sent for long.

        It may have ended these before it sent them: then it ends the calls too.
        """
        late: dict[str, UtcS] = {}
        for name in {source for job in self._calls for source in self._graph.sources(job)}:
            job = self._jobs.get(name)
            if job is None or job.spec.detached:
                continue
            lacking = self._graph.lacking(name, job.known)
            if not lacking:
                continue
            late[name] = self._late.get(name, utc_s)
            if utc_s - late[name] > UNKNOWN_S:
                del late[name]
                for consumer, ranges in lacking:
                    gone = self._graph.drop(consumer, ranges)
                    self._leave(self._jobs[consumer], gone)
                    self._send_again(self._jobs[consumer], RangeSet(gone))
        self._late = late

    def waiting_jobs(self) -> list[Job]:
        """Return the jobs with calls that wait for inputs."""
        return [self._jobs[name] for name in self._calls]


def _due(job: Job) -> tuple[UtcS, int] | None:
    """Return the deadline of waiting calls as a sort key; None: none waits, or without one."""
    deadline_s = job.spec.wishes.deadline_s
    return (deadline_s, job.number) if job.blocked and deadline_s is not None else None


def _label_of(source: Job) -> DataLabel:
    """Return where the results of a job may lie, as theirs."""
    return source.spec.wishes.label.named(f"a result of {source.spec.name}, job {source.id}")


def _is_same(source: Job, job: Job) -> bool:
    """Whether the results of one job may be inputs of the other: of one user and project."""
    mine, other = job.spec, source.spec
    same = (mine.user, mine.project, mine.origin) == (other.user, other.project, other.origin)
    return same and other.price is None


def _follows(before: Ready, after: Ready) -> bool:
    return before.job == after.job and before.task + 1 == after.task and before.depth == after.depth
