"""Which calls wait for which tasks, and the consequences of their ends. Pure.

    add ─► waiting ─┬─ all inputs have ended with a result ─► Ready, with their values
                    ├─ an input has failed or was cancelled ─► Fallen, and all that waits for it
                    ├─ rides with its input to a slot ─┬─ ended
                    │                                  └─ came back: waits again
                    └─ taken back (cancelled, withdrawn)

A call is in here from `add` until one of these happens, and only then. A value is held for as long
as a call that has counted it waits, so "held" and "counted" are the same, and a second outcome of a
task changes nothing. No step recurses: a chain may be of any length.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, Generic, TypeVar

from federation.ranges import Range, RangeSet
from gateway.scheduler.graphs.edges import CallRange, Edge

BUCKET_BITS: Final = 6  # a range of tasks is entered once for each 64 of them
WIDE: Final = 1 << 12  # tasks of a range from which on it is entered once, and met by each look
CYCLE_LOOK_MAX: Final = 1_000_000  # inputs that are looked at for a cycle, when calls come
CYCLE_NAMES_MAX: Final = 8  # in the text
WAITS, GONE, RIDES = 0, 1, 2  # of a call


class CycleFound(Exception):
    """Calls that wait for each other; `names` are (job, task) in order, the first once more.

    A single name: so many calls came before their inputs that a cycle can't be ruled out.
    """

    def __init__(self, names: Sequence[tuple[str, int]]) -> None:
        self.names = tuple(names)
        shown = [f"task {task} of job {job}" for job, task in self.names]
        if len(shown) > CYCLE_NAMES_MAX:
            shown[CYCLE_NAMES_MAX // 2 : 1 - CYCLE_NAMES_MAX // 2] = ["…"]
        what = "calls wait for each other: " + " → ".join(shown)
        if len(shown) == 1:
            what = f"{shown[0]} waits for over {CYCLE_LOOK_MAX:,} calls that came after it"
        super().__init__(what)


@dataclass(frozen=True, slots=True)
class Ready:
    """A call whose inputs have all ended, with their values in the order of its edges.

    `depth` is one more than that of the task whose end released it; that of tasks without inputs
    is 0.
    """

    job: str
    task: int
    values: tuple[bytes, ...]
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Fallen:
    """Calls that can't run, because of the failure of a task: `cause` as it was told."""

    job: str
    first: int
    stop: int
    cause: object


class _Span:
    """A range of waiting calls. Five bytes for a call at most."""

    __slots__ = ("consumers", "edges", "first", "gone", "job", "left", "open", "shared", "stop")

    def __init__(self, job: str, part: CallRange) -> None:
        calls = part.stop - part.first
        self.job = job
        self.first = part.first
        self.stop = part.stop
        self.edges = part.edges
        own = sum(edge.width for edge in part.edges if edge.stride)
        self.shared = sum(edge.width for edge in part.edges if not edge.stride)  # still missing
        self.left = array("I", [own]) * calls if own else None  # of each call, still missing
        self.gone = bytearray(calls)  # of each call: WAITS, GONE or RIDES
        self.open = calls
        self.consumers: list[_Consumer] = []

    def waiting(self, calls: range) -> Iterator[int]:
        """Yield those of these calls that wait."""
        gone = self.gone
        return (at for at in calls if not gone[at])

    def left_here(self, calls: range) -> Iterator[int]:
        """Yield those of these calls that wait or ride."""
        gone = self.gone
        return (at for at in calls if gone[at] != GONE)

    @property
    def needs_one(self) -> bool:
        """Whether each of its calls has one input."""
        return len(self.edges) == 1 and self.edges[0].width == 1


@dataclass(slots=True, eq=False)
class _Consumer:
    """An edge and the span whose calls need its tasks."""

    span: _Span
    edge: Edge


_ItemT = TypeVar("_ItemT")


class _Book(Generic[_ItemT]):
    """Items that cover ranges of the tasks of jobs: a few bytes for a task, whatever a client says.

    Narrow ones are entered for each 64 tasks, wide ones once.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, dict[int, list[_ItemT]]] = {}
        self._wide: dict[str, dict[_ItemT, Range]] = {}

    def __contains__(self, job: str) -> bool:
        return job in self._jobs or job in self._wide

    def add(self, job: str, first: int, stop: int, item: _ItemT) -> None:
        if stop - first >= WIDE:
            self._wide.setdefault(job, {})[item] = first, stop
            return
        buckets = self._jobs.setdefault(job, {})
        for at in _buckets(first, stop):
            buckets.setdefault(at, []).append(item)

    def remove(self, job: str, first: int, stop: int, item: _ItemT) -> None:
        if stop - first >= WIDE:
            del self._wide[job][item]
            if not self._wide[job]:
                del self._wide[job]
            return
        buckets = self._jobs[job]
        for at in _buckets(first, stop):
            rest = buckets[at]
            rest.remove(item)
            if not rest:
                del buckets[at]
        if not buckets:
            del self._jobs[job]

    def find(self, job: str, first: int, stop: int) -> list[_ItemT]:
        """Return the items that may cover a part of [first, stop), each once."""
        found = self._narrow(job, first, stop)
        wide = self._wide.get(job)
        if wide:
            found += [each for each, (low, high) in wide.items() if low < stop and first < high]
        return found

    def _narrow(self, job: str, first: int, stop: int) -> list[_ItemT]:
        buckets = self._jobs.get(job)
        if not buckets or first >= stop:
            return []
        wanted = _buckets(first, stop)
        if len(wanted) == 1:
            return list(buckets.get(wanted[0], ()))
        if len(wanted) > len(buckets):
            parts = (buckets[at] for at in sorted(buckets) if at in wanted)
        else:
            parts = (buckets[at] for at in wanted if at in buckets)
        return list(dict.fromkeys(chain.from_iterable(parts)))

    def all_of(self, job: str) -> list[_ItemT]:
        """Return all items of a job, each once."""
        buckets = self._jobs.get(job, {})
        found = dict.fromkeys(chain.from_iterable(buckets[at] for at in sorted(buckets)))
        return [*found, *self._wide.get(job, ())]


def _buckets(first: int, stop: int) -> range:
    return range(first >> BUCKET_BITS, ((stop - 1) >> BUCKET_BITS) + 1)


class TaskGraph:
    """The calls that wait for tasks, and the values that they wait with.

    Attributes:
        held_bytes: of the values.
    """

    def __init__(self) -> None:
        self._consumers: _Book[_Consumer] = _Book()
        self._spans: _Book[_Span] = _Book()
        self._values: dict[str, dict[int, bytes]] = {}
        self._uses: dict[str, dict[int, int]] = {}  # of each value: the uses that still wait
        self._depths: dict[str, dict[int, int]] = {}  # of tasks that have begun, if others wait
        self.held_bytes = 0

    def has_consumers(self, job: str) -> bool:
        """Whether any call may wait for a task of a job."""
        return job in self._consumers

    def held(self, job: str, first: int, stop: int) -> list[int]:
        """Return the tasks of [first, stop) whose values are held, in no order."""
        values = self._values.get(job, {})
        if len(values) < stop - first:
            return [task for task in values if first <= task < stop]
        return [task for task in range(first, stop) if task in values]

    def needed(self, job: str, first: int, stop: int) -> bool:
        """Whether a call waits for a task of [first, stop)."""
        return any(
            next(each.span.left_here(self._calls(each, first, stop)), None) is not None
            for each in self._consumers.find(job, first, stop)
        )

    @staticmethod
    def _calls(consumer: _Consumer, low: int, high: int) -> range:
        span = consumer.span
        return consumer.edge.consumers(low, high, span.stop - span.first)

    # --- calls that come -----------------------------------------------------------------------

    def add(self, job: str, part: CallRange) -> list[Ready]:
        """Let calls wait for their inputs; return those that can begin at once.

        A call is added once, or again after it has left. Raises CycleFound, and adds nothing then.
        """
        span = _Span(job, part)
        self._check_cycles(span)
        calls = part.stop - part.first
        self._spans.add(job, part.first, part.stop, span)
        for edge in part.edges:
            stop, consumer = edge.stop(calls), _Consumer(span, edge)
            span.consumers.append(consumer)
            self._consumers.add(edge.source, edge.first, stop, consumer)
            held = self._values.get(edge.source)
            if held:
                tasks = [at for at in range(edge.first, stop) if at in held]
                for low, high in RangeSet((at, at + 1) for at in tasks):
                    self._count(span, edge, low, high)
        return self._take_ready([span], {id(span): set(range(calls))})

    def _check_cycles(self, span: _Span) -> None:
        """Raise CycleFound where calls would wait for themselves, directly or by others.

        Calls that only need tasks which were there before can be on no cycle.
        """
        calls = span.stop - span.first
        own = [
            edge
            for edge in span.edges
            if edge.source == span.job
            and edge.stop(calls) > span.first
            and (edge.first + edge.width > span.first or edge.stride > 1)
        ]
        if not own and not self.needed(span.job, span.first, span.stop):
            return
        done: set[tuple[str, int]] = set()
        for at in range(calls):
            self._walk(span, (span.job, span.first + at), done)

    def _walk(self, new: _Span, start: tuple[str, int], done: set[tuple[str, int]]) -> None:
        """Follow inputs from a call, depth first, to a call that is on the way already."""
        path: dict[tuple[str, int], Iterator[tuple[str, int]]] = {}
        node: tuple[str, int] | None = start
        looks = 0
        while node is not None or path:
            if node is not None and node in path:
                names = list(path)
                raise CycleFound([*names[names.index(node) :], node])
            if node is not None and node not in done:
                path[node] = self._needs(new, node)
            looks += 1
            if looks > CYCLE_LOOK_MAX:
                raise CycleFound([start])
            last = next(reversed(path), None)
            if last is None:
                return
            node = next(path[last], None)
            if node is None:
                done.add(last)
                del path[last]

    def _needs(self, new: _Span, node: tuple[str, int]) -> Iterator[tuple[str, int]]:
        """Yield the inputs of a waiting call, a new one included; nothing for other tasks."""
        job, task = node
        for span in (new, *self._spans.find(job, task, task + 1)):
            if span.job != job or not span.first <= task < span.stop:
                continue
            if span.gone[task - span.first] == GONE:
                continue
            for edge in span.edges:
                for each in edge.inputs(task - span.first):
                    yield edge.source, each
            return

    # --- outcomes ------------------------------------------------------------------------------

    def ended(self, job: str, first: int, values: Sequence[bytes]) -> list[Ready]:
        """Take the values of tasks `first`, `first` + 1, …; return the calls that can begin.

        A task whose value is held keeps it.
        """
        stop = first + len(values)
        consumers = self._consumers.find(job, first, stop)
        if not consumers:
            return []
        held = self._values.setdefault(job, {})
        uses = self._uses.setdefault(job, {})
        fresh = [(first, stop)]
        if held:
            fresh = list(RangeSet((at, at + 1) for at in range(first, stop) if at not in held))
        touched: dict[int, set[int]] = {}
        spans: dict[int, _Span] = {}
        for low, high in fresh:
            for each in consumers:
                calls = self._count(each.span, each.edge, low, high)
                if calls:
                    spans[id(each.span)] = each.span
                    touched.setdefault(id(each.span), set()).update(calls)
            for task in range(low, high):
                if uses.get(task):
                    held[task] = values[task - first]
                    self.held_bytes += len(values[task - first])
        found = self._take_ready(spans.values(), touched, 1 + self._depth_of(job, first, stop))
        self._tidy(job)
        return found

    def _depth_of(self, job: str, first: int, stop: int) -> int:
        """Return the depth of the deepest of tasks that have ended, and forget them."""
        depths = self._depths.get(job)
        if depths is None:
            return 0
        found = max((depths.pop(task, 0) for task in range(first, stop)), default=0)
        if not depths:
            del self._depths[job]
        return found

    def _note_depth(self, job: str, task: int, depth: int) -> None:
        if job in self._consumers:
            self._depths.setdefault(job, {})[task] = depth

    def _count(self, span: _Span, edge: Edge, low: int, high: int) -> range:
        """Count tasks [low, high) as ended for an edge; return the calls that this may release."""
        calls = span.stop - span.first
        uses = self._uses.setdefault(edge.source, {})
        if not edge.stride:
            low, high = max(low, edge.first), min(high, edge.first + edge.width)
            if low >= high or not span.open:
                return range(0)
            span.shared -= high - low
            for task in range(low, high):
                uses[task] = uses.get(task, 0) + span.open
            return range(0) if span.shared else range(calls)
        left = span.left
        assert left is not None, "a span with a stride counts each call's inputs"
        found = edge.consumers(low, high, calls)
        for at in span.left_here(found):
            start = edge.first + at * edge.stride
            for task in range(max(low, start), min(high, start + edge.width)):
                left[at] -= 1
                uses[task] = uses.get(task, 0) + 1
        return range(0) if span.shared else found

    def _take_ready(
        self, spans: Iterable[_Span], touched: dict[int, set[int]], depth: int = 1
    ) -> list[Ready]:
        found = []
        for span in spans:
            if span.shared:
                continue
            left = span.left
            for at in sorted(touched[id(span)]):
                if not span.gone[at] and (left is None or not left[at]):
                    values = self._values_of(span, at)
                    found.append(Ready(span.job, span.first + at, values, depth))
                    self._leave(span, at)
                    self._note_depth(span.job, span.first + at, depth)
        return found

    def _values_of(self, span: _Span, at: int) -> tuple[bytes, ...]:
        return tuple(
            self._values[edge.source][task] for edge in span.edges for task in edge.inputs(at)
        )

    def _leave(self, span: _Span, at: int) -> None:
        """Let a call wait no more, and its inputs' values go that no other call waits with."""
        span.gone[at] = GONE
        span.open -= 1
        for edge in span.edges:
            uses = self._uses.get(edge.source)
            held = self._values.get(edge.source)
            if not uses or held is None:
                continue
            for task in edge.inputs(at):
                if task not in held:
                    continue
                uses[task] -= 1
                if not uses[task]:
                    del uses[task]
                    self.held_bytes -= len(held.pop(task))
            self._tidy(edge.source)
        if not span.open:
            self._spans.remove(span.job, span.first, span.stop, span)
            for each in span.consumers:
                stop = each.edge.stop(len(span.gone))
                self._consumers.remove(each.edge.source, each.edge.first, stop, each)

    def _tidy(self, job: str) -> None:
        if not self._values.get(job):
            self._values.pop(job, None)
            self._uses.pop(job, None)

    def failed(self, job: str, ranges: Iterable[Range], cause: object) -> list[Fallen]:
        """End the calls that wait for failed tasks, directly or by others; return them in order."""
        work = [(job, low, high) for low, high in ranges]
        found: list[Fallen] = []
        at = 0
        while at < len(work):
            source, low, high = work[at]
            at += 1
            self._depth_of(source, low, high)
            for each in self._consumers.find(source, low, high):
                span, gone = each.span, RangeSet()
                for call in span.left_here(self._calls(each, low, high)):
                    self._leave(span, call)
                    gone.add(span.first + call, span.first + call + 1)
                for first, stop in gone:
                    found.append(Fallen(span.job, first, stop, cause))
                    work.append((span.job, first, stop))
        return found

    # --- chains --------------------------------------------------------------------------------

    def follow(self, job: str, task: int, most: int) -> int:
        """Let at most so many calls after a task ride with it to its slot; return how many do.

        Each is the only call that waits for the one before it, and has no other input. It is here
        until `rode` or `came_back`.
        """
        for number in range(most):
            last = task + number
            found = (
                (each.span, at)
                for each in self._consumers.find(job, last, last + 1)
                for at in each.span.left_here(self._calls(each, last, last + 1))
            )
            readers = list(islice(found, 2))
            if len(readers) != 1:
                return number
            span, at = readers[0]
            is_next = span.job == job and span.first + at == last + 1
            if not is_next or span.gone[at] or not span.needs_one:
                return number
            span.gone[at] = RIDES
            self._note_depth(job, last + 1, self._depths.get(job, {}).get(last, 0) + 1)
        return most

    def rode(self, job: str, first: int, stop: int) -> int:
        """Take away the riding calls of [first, stop), which have ended; return how many."""
        found = list(self._riders(job, first, stop))
        for span, at in found:
            self._leave(span, at)
        return len(found)

    def came_back(self, job: str, first: int, stop: int) -> tuple[list[int], list[Ready]]:
        """Let the riding calls of [first, stop) wait again, which have not ended.

        Return their tasks, and those of them that can begin at once.
        """
        tasks: list[int] = []
        touched: dict[int, set[int]] = {}
        spans: dict[int, _Span] = {}
        for span, at in list(self._riders(job, first, stop)):
            span.gone[at] = WAITS
            tasks.append(span.first + at)
            spans[id(span)] = span
            touched.setdefault(id(span), set()).add(at)
        return tasks, self._take_ready(spans.values(), touched)

    def _riders(self, job: str, first: int, stop: int) -> Iterator[tuple[_Span, int]]:
        for span in self._spans.find(job, first, stop):
            low, high = max(first, span.first), min(stop, span.stop)
            for at in range(low - span.first, high - span.first):
                if span.gone[at] == RIDES:
                    yield span, at

    # --- calls that are taken back ---------------------------------------------------------------

    def drop(self, job: str, ranges: Iterable[Range]) -> list[Range]:
        """Let calls of a job wait no more; return those that did. Nothing else ends by it."""
        found = RangeSet()
        for low, high in ranges:
            for span in self._spans.find(job, low, high):
                start, end = max(low, span.first), min(high, span.stop)
                for at in span.waiting(range(start - span.first, end - span.first)):
                    self._leave(span, at)
                    found.add(span.first + at, span.first + at + 1)
        return list(found)

    def waits(self, job: str) -> RangeSet:
        """Return the waiting calls of a job."""
        found = RangeSet()
        for span in self._spans.all_of(job):
            for at in span.waiting(range(span.stop - span.first)):
                found.add(span.first + at, span.first + at + 1)
        return found

    def forget(self, job: str) -> None:
        """Forget what is known of the tasks of a job that is over."""
        self._depths.pop(job, None)

    def consumer_jobs(self, job: str, first: int, stop: int) -> list[str]:
        """Return the jobs with calls that wait for a task of [first, stop), each once."""
        found = (
            each.span.job
            for each in self._consumers.find(job, first, stop)
            if next(each.span.left_here(self._calls(each, first, stop)), None) is not None
        )
        return list(dict.fromkeys(found))

    def sources(self, job: str) -> list[str]:
        """Return the jobs of the tasks that calls of a job wait for, each once."""
        edges = (edge.source for span in self._spans.all_of(job) for edge in span.edges)
        return list(dict.fromkeys(edges))

    def lacking(
        self, job: str, known: RangeSet | None = None, within: RangeSet | None = None
    ) -> list[tuple[str, RangeSet]]:
        """Return the calls that wait for tasks of a job which have no value, by their job.

        With `known`, only those that wait for a task which is not in it; with `within`, only those
        that wait for a task of these ranges.
        """
        found: dict[str, RangeSet] = {}
        there = self._values.get(job, {}) if known is None else known
        for each in self._consumers.all_of(job):
            span, edge = each.span, each.edge
            for at in span.waiting(range(span.stop - span.first)):
                inputs = (task for task in edge.inputs(at) if within is None or task in within)
                if any(task not in there for task in inputs):
                    start = span.first + at
                    found.setdefault(span.job, RangeSet()).add(start, start + 1)
        return list(found.items())
