"""The client's books: jobs as streams of calls, those sent, and those still unfinished. Pure.

A `Stream` is one job. Its calls are kept in bundles of up to a thousand. Arguments stay until their
results are in, so that all unfinished calls can be sent again to a gateway that was restarted. A
call ends once: later outcomes for it are ignored.
"""

import itertools
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from federation.engine.books.asked_back import AskedBack
from federation.errors import FAILURES
from federation.messages.messages import Cancel, CloseJob, HoldChanged, OpenJob, Tasks
from federation.objects.labels import UNLABELLED, DataLabel, conflict, meet, read_label
from federation.objects.open_calls import InputFailure, OpenCall, SealedCall
from federation.objects.references import objects_of, references_of
from federation.offers import Offer
from federation.ranges import Range, RangeSet
from federation.sessions.handshake import Dialogue
from federation.words import clean

BUNDLE_TASKS_MAX: Final = 1000
BUNDLE_BYTES_MAX: Final = 1 << 20
BACKLOG_BYTES: Final = 1 << 20  # the most that is packed ahead of the window
HOLDER_CHARS_MAX: Final = 128
MESSAGE_BYTES: Final = 64 << 20  # as gateways take by default
ENVELOPE_BYTES: Final = 4096  # room in a message beside its one large payload
DEPENDENCY: Final = "dependency"  # the kind of failure of a call that lacks an input
ELSEWHERE_MAX: Final = 10_000  # ranges in one message; ranges left out end with the session


class _Pending:
    """Stands for a result that is not there yet."""

    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _Pending()


@dataclass(frozen=True, slots=True)
class Ended:
    """A call that ended without a value: failure kind, text, and the pickled exception if any.

    `offers` are limits by which a job that was refused for its own limits would be accepted.
    `arguments` are those of the call, sealed, where this client has them.
    """

    kind: str
    text: str
    payload: bytes = b""
    offers: tuple[Offer, ...] = ()
    arguments: bytes = b""


Outcome = Any  # bytes, an Ended, or federation.engine.objects.LeftResult

_numbers = itertools.count()


class ClientBundle:
    """Contiguous calls of a stream: arguments, and outcomes as they come (PENDING before)."""

    __slots__ = (
        "arguments",
        "failures",
        "first",
        "futures",
        "has_open",
        "leases",
        "missing",
        "number",
        "outcomes",
        "sent",
        "size",
        "taken",
    )

    def __init__(
        self,
        first: int,
        arguments: list[SealedCall],
        futures: list[Any] | None,
        leases: Mapping[bytes, Any] | None = None,
    ) -> None:
        self.number = next(_numbers)  # in the order in which bundles of this client begin
        self.has_open = False  # whether some of its calls have futures among their arguments
        self.first = first
        self.arguments = arguments
        self.futures = futures
        self.outcomes: list[Any] = [PENDING] * len(arguments)
        self.missing = len(arguments)
        self.failures = 0
        # By digest, the objects that its calls refer to; held until all of the calls have ended.
        self.leases: dict[bytes, Any] = dict(leases or {})
        self.sent = False
        self.taken = 0  # outcomes that a map has yielded
        self.size = sum(map(len, arguments))

    @property
    def stop(self) -> int:
        """The number after its last call's."""
        return self.first + len(self.outcomes)

    def append(
        self, payload: SealedCall, future: Any, leases: Mapping[bytes, Any] | None = None
    ) -> None:
        """Add a call to a bundle that has not been sent."""
        assert self.futures is not None
        if leases:
            self.leases.update(leases)
        self.arguments.append(payload)
        self.futures.append(future)
        self.outcomes.append(PENDING)
        self.missing += 1
        self.size += len(payload)

    def unfinished(self) -> list[Range]:
        """Return the unfinished calls, as ranges of the job's numbers."""
        if self.missing == len(self.outcomes):
            return [(self.first, self.stop)]
        found = RangeSet()
        for at, outcome in enumerate(self.outcomes):
            if outcome is PENDING:
                found.add(self.first + at, self.first + at + 1)
        return list(found)

    def open_calls(self, first: int, stop: int) -> list[tuple[int, OpenCall]]:
        """Return its unfinished calls of [first, stop) with futures among their arguments."""
        low, high = max(first, self.first), min(stop, self.stop)
        calls = zip(range(low, high), self.arguments[low - self.first :], strict=False)
        return [
            (task, call)
            for task, call in (calls if self.has_open else ())
            if isinstance(call, OpenCall) and self.outcomes[task - self.first] is PENDING
        ]


class Stream:
    """One job, as its client sees it.

    Args:
        opening: the message that opens it.
        resolved: the queue for futures with an outcome, to be resolved outside any lock.
    """

    def __init__(self, opening: OpenJob, resolved: "deque[tuple[Any, Outcome]]") -> None:
        self._resolved = resolved
        self.opening = opening
        self.id = opening.job
        self.total = 0  # calls made so far
        self.closed = False
        self.rejection: Ended | None = None
        self.running: tuple[float, RangeSet] | None = None  # running tasks, and when that was asked
        self.told_label: tuple[str, ...] = ()  # words of its results' label, by its gateway
        self.home = ""  # the address of the gateway where it was opened last
        self._hold: tuple[str, dict[str, Any]] | None = None  # the last gateway's address, its text
        self._placed = Placed()  # of calls that ended while they were sent
        self.ended_here = RangeSet()  # calls that ended before they were sent: an input failed
        self._untold = RangeSet()  # those of them of which the gateway was not told
        self.back = AskedBack()  # calls that a waiting task runs itself
        self.paused = False  # its objects are not held by the new session yet: nothing is sent
        self.key: Hashable = None  # of the calls that `submit` adds to it
        self.repeats = 0  # how often its calls were run already: see left_results.RepeatedCalls
        self.waiting: deque[ClientBundle] = deque()
        self._firsts: list[int] = []
        self._bundles: list[ClientBundle] = []

    @property
    def label(self) -> DataLabel:
        """Where its results may lie, as far as this client knows."""
        opened, told = self.opening.wishes.get("label", ()), self.told_label
        if not (opened or told):
            return UNLABELLED
        label = read_label(opened).within(read_label(told))  # places that both allow
        return label.named(f"a result of {self.opening.name}")

    # --- calls ---------------------------------------------------------------------------------

    def submit(
        self, payload: SealedCall, future: Any, leases: Mapping[bytes, Any] | None = None
    ) -> int:
        """Add one call; return its number. `leases` are of the objects that it refers to."""
        tail = self._bundles[-1] if self._bundles else None
        if (
            tail is None
            or tail.sent
            or tail.futures is None
            or len(tail.arguments) >= BUNDLE_TASKS_MAX
            or tail.size + len(payload) > BUNDLE_BYTES_MAX
        ):
            self._add(ClientBundle(self.total, [payload], [future], leases))
        else:
            tail.append(payload, future, leases)
        if type(payload) is OpenCall:
            self._bundles[-1].has_open = True
        self.total += 1
        return self.total - 1

    def extend(
        self,
        arguments: list[SealedCall],
        leases: Mapping[bytes, Any] | None = None,
        *,
        has_open: bool = False,
    ) -> ClientBundle:
        """Add a bundle of calls whose outcomes are read from the bundle itself.

        `has_open`: some have futures among their arguments.
        """
        bundle = ClientBundle(self.total, arguments, None, leases)
        bundle.has_open = has_open
        self._add(bundle)
        self.total = bundle.stop
        return bundle

    def _add(self, bundle: ClientBundle) -> None:
        self._bundles.append(bundle)
        self._firsts.append(bundle.first)
        self.waiting.append(bundle)

    def note_hold(self, message: HoldChanged, address: str, site: str) -> None:
        """Remember that the gateway of `site` at `address` holds the job, or has released it."""
        by, at = clean(message.by)[:HOLDER_CHARS_MAX], clean(message.site or site)
        told: dict[str, Any] = {"by": by, "at_s": message.at_s}
        told |= {"is_operators": message.is_operators, "site": at[:HOLDER_CHARS_MAX]}
        self._hold = address, told

    @property
    def is_held(self) -> bool:
        """Whether a gateway holds it, as far as this client was told."""
        return self._hold is not None and bool(self._hold[1]["by"])

    def opening_at(self, address: str) -> OpenJob:
        """Return the message that opens the job at a gateway: another one learns of its hold."""
        if self._hold is None:
            return self.opening
        said_by, hold = self._hold
        return replace(self.opening, hold={**hold, "is_own": said_by == address})

    @property
    def rejected(self) -> bool:
        """Whether the gateway will not run this job."""
        return self.rejection is not None

    @property
    def is_open(self) -> bool:
        """Whether the job takes more calls."""
        return not self.closed and self.rejection is None

    @property
    def is_over(self) -> bool:
        """Whether it takes no more calls, and none of them has to be sent or to end.

        A detached job is not over then: it is kept until its client has seen that all of it is at
        the gateway.
        """
        is_done = self.closed and not self.waiting and not self.unfinished
        return is_done and not self.opening.detached

    @property
    def unfinished(self) -> int:
        """The number of unfinished calls."""
        return sum(bundle.missing for bundle in self._bundles)

    @property
    def held_bytes(self) -> int:
        """Bytes of arguments that are kept, because their bundle has unfinished calls."""
        return sum(bundle.size for bundle in self._bundles)

    @property
    def begun(self) -> int:
        """The number of its next bundle to send: the lower, the earlier it began."""
        return self.waiting[0].number if self.waiting else -1

    def next_to_send(
        self, bytes_max: int = MESSAGE_BYTES
    ) -> tuple[ClientBundle, list[Tasks]] | None:
        """Return the next bundle to send and its messages; it counts as sent from now on.

        `bytes_max` is for one call with the values of its inputs.
        """
        while self.waiting and not self.paused:
            bundle = self.waiting.popleft()
            if bundle.missing:
                messages = self._messages(bundle, self._to_send(bundle), bytes_max)
                if bundle.missing:
                    bundle.sent = True
                    return bundle, messages
        return None

    def _to_send(self, bundle: ClientBundle) -> list[Range]:
        """Return its unfinished calls but for those that have come back."""
        if not self.back.here:
            return bundle.unfinished()
        found = RangeSet(bundle.unfinished())
        for first, stop in self.back.here:
            found.remove(first, stop)
        return list(found)

    def send_calls(self, ranges: Iterable[Range], bytes_max: int) -> "tuple[list[Tasks], Placed]":
        """Return messages with those of these calls that have been sent and have not ended.

        Also those that end now instead, as an input of them has failed.
        """
        found: list[Tasks] = []
        self._placed = Placed()
        for first, stop in ranges:
            for bundle in self._touching(first, stop):
                wanted = RangeSet(self._to_send(bundle)).within(first, stop)
                if bundle.sent and wanted:
                    found += self._messages(bundle, wanted, bytes_max)
        return found, self._placed

    def _messages(
        self, bundle: ClientBundle, ranges: Iterable[Range], bytes_max: int
    ) -> list[Tasks]:
        if bundle.has_open:
            return self._open_messages(bundle, ranges, bytes_max)
        return [
            Tasks(
                self.id,
                low,
                bundle.arguments[low - bundle.first : high - bundle.first],  # type: ignore[arg-type]
                sorted(bundle.leases),
            )
            for low, high in ranges
        ]

    def _open_messages(
        self, bundle: ClientBundle, ranges: Iterable[Range], bytes_max: int
    ) -> list[Tasks]:
        """Return messages of calls as their inputs are now; end the calls whose inputs failed."""
        ready: dict[int, bytes] = {}
        failed: dict[int, InputFailure] = {}
        labels: dict[int, tuple[str, ...]] = {}  # of values that are in calls now
        for task in [task for pair in ranges for task in range(*pair)]:
            call = bundle.arguments[task - bundle.first]
            if isinstance(call, OpenCall):
                made = call.as_sent()
                bundle.leases.update(call.leases)
                told = [label for each in call.inputs if (label := each.label)]
                if told:
                    labels[task] = meet(told).words
                    if no_place := conflict(told):
                        made = InputFailure(no_place)
                if isinstance(made, bytes) and len(made) > bytes_max:
                    size = f"{len(made):,} bytes, the limit is {bytes_max:,}"
                    made = InputFailure(f"its arguments and inputs have {size}")
            else:
                made = call
            if isinstance(made, InputFailure):
                failed[task] = made
                _lose(bundle, task, made)
            else:
                ready[task] = made
        messages = []
        for label, tasks in itertools.groupby(ready, lambda task: labels.get(task, ())):
            for low, high in RangeSet((task, task + 1) for task in tasks):
                for first, calls in _in_parts(
                    low, [ready[task] for task in range(low, high)], bytes_max
                ):
                    used = sorted(objects_of(calls))  # large arguments may have come as bytes
                    messages.append(
                        Tasks(self.id, first, calls, used, inputs=True, label=list(label))
                    )
        for task, why in failed.items():
            self._end_here(bundle, task, why)
        return messages

    def _end_here(self, bundle: ClientBundle, task: int, why: InputFailure) -> None:
        self.ended_here.add(task, task + 1)
        self._untold.add(task, task + 1)
        self._placed.add(self.place(task, [_behind(why)], failed=True))

    def take_untold(self) -> Cancel | None:
        """Return the message that tells of the calls that ended here since the last time.

        The gateway must not wait for them: calls that were sent before may need them.
        """
        ranges, self._untold = self._untold, RangeSet()
        return Cancel(0, self.id, [list(pair) for pair in ranges], True) if ranges else None

    def end_behind(self, ranges: Iterable[Range], ended: Ended) -> "Placed":
        """End calls of which the gateway says that an input failed.

        The failure that this client knows is told, where it does: the gateway may know only that
        a call in between has ended here.
        """
        placed = Placed()
        for first, stop in ranges:
            for bundle in self._touching(first, stop):
                for task, call in bundle.open_calls(first, stop):
                    why = call.failure()
                    if why is not None:
                        _lose(bundle, task, why)
                        placed.add(self.place(task, [_behind(why)], failed=True))
        placed.add(self.end(ranges, ended))
        return placed

    def send_again(self) -> None:
        """Queue all unfinished calls again: the gateway does not know this job."""
        for bundle in self._bundles:
            bundle.sent = False
        self.waiting = deque(self._bundles)

    def end_unsent(self, ended: Ended) -> "Placed":
        """End every call that has not been sent."""
        waiting, self.waiting = self.waiting, deque()
        return self.end([span for bundle in waiting for span in bundle.unfinished()], ended)

    def take_out(self, first: int, stop: int) -> tuple[list[tuple[SealedCall, Any]], "Placed"]:
        """Remove unfinished calls; return each with its future, which stays pending.

        Only calls with futures are removed.
        """
        calls: list[tuple[SealedCall, Any]] = []
        placed = Placed()
        for bundle in self._touching(first, stop):
            if bundle.futures is None:
                continue
            low, high = (
                max(first, bundle.first) - bundle.first,
                min(stop, bundle.stop) - bundle.first,
            )
            for at in range(low, high):
                if bundle.outcomes[at] is PENDING:
                    calls.append((bundle.arguments[at], bundle.futures[at]))
                    bundle.futures[at] = None
            ended = [Ended("cancelled", "the task was moved to another job")] * (high - low)
            placed.add(self.place(bundle.first + low, ended, failed=True))
        return calls, placed

    def pending(self, tasks: Iterable[int]) -> dict[int, SealedCall]:
        """Return those of the calls that have not ended, with their arguments."""
        found = {}
        for task in tasks:
            for bundle in self._touching(task, task + 1):
                if bundle.outcomes[task - bundle.first] is PENDING:
                    found[task] = bundle.arguments[task - bundle.first]
        return found

    def unread_calls(self, at_most: int) -> list[int]:
        """Return the first unfinished calls that no other call reads."""
        found: list[int] = []
        for bundle in self._bundles:
            for at, outcome in enumerate(bundle.outcomes if bundle.missing else ()):
                future = bundle.futures[at] if bundle.futures is not None else None
                if outcome is PENDING and not getattr(future, "is_input", False):
                    found.append(bundle.first + at)
                    if len(found) >= at_most:
                        return found
        return found

    def loosen(self, number: int, to_weak: Callable[[Any], Any]) -> None:
        """Replace the future of an unfinished call by the result of `to_weak`."""
        for bundle in self._touching(number, number + 1):
            at = number - bundle.first
            if bundle.futures is not None and bundle.outcomes[at] is PENDING:
                bundle.futures[at] = to_weak(bundle.futures[at])

    def arguments_max(self) -> int:
        """Return the bytes of the largest call that may have to be sent again."""
        return max((len(each) for bundle in self._bundles for each in bundle.arguments), default=0)

    def elsewhere(self) -> list[list[int]]:
        """Return the calls that ended or came back, for a gateway where the job was opened again.

        That gateway was never sent those calls, and must not wait for them.
        """
        if not self.opening.again or self.opening.detached:
            return [list(pair) for pair in self.ended_here][:ELSEWHERE_MAX]
        ended = RangeSet([(0, self.total)] if self.total else [])
        for bundle in self._bundles:
            for first, stop in bundle.unfinished():
                ended.remove(first, stop)
        for first, stop in self.back.here:
            ended.add(first, stop)
        return [list(pair) for pair in ended][:ELSEWHERE_MAX]

    # --- outcomes ------------------------------------------------------------------------------

    def place(self, first: int, outcomes: list[Any], *, failed: bool) -> "Placed":
        """Put the outcomes of calls `first`, `first` + 1, … in their places.

        Calls that had ended keep their outcomes. `failed` tells whether any outcome is an Ended.
        """
        placed = Placed()
        stop = first + len(outcomes)
        for bundle in self._touching(first, stop):
            low, high = max(first, bundle.first), min(stop, bundle.stop)
            self._place_in(
                bundle,
                low - bundle.first,
                outcomes[low - first : high - first],
                placed,
                failed=failed,
            )
            if failed:
                bundle.failures = sum(type(outcome) is Ended for outcome in bundle.outcomes)
            if not bundle.missing:
                self._forget(bundle, placed)
        return placed

    def _place_in(
        self,
        bundle: ClientBundle,
        start: int,
        part: list[Any],
        placed: "Placed",
        *,
        failed: bool,
    ) -> None:
        end = start + len(part)
        if failed:
            calls = bundle.arguments[start:end]
            part = [_with_call(each, call) for each, call in zip(part, calls, strict=True)]
        is_fresh = bundle.outcomes[start:end].count(PENDING) == len(part)
        fresh: Sequence[int] = range(len(part))
        if not is_fresh:
            fresh = [at for at in fresh if bundle.outcomes[start + at] is PENDING]
        if bundle.futures is not None:
            # First of all: if a Ctrl-C comes in between, they are still resolved.
            self._resolved.extend(
                (bundle.futures[start + at], part[at])
                for at in fresh
                if bundle.futures[start + at] is not None
            )
        if is_fresh:
            bundle.outcomes[start:end] = part
        else:
            for at in fresh:
                bundle.outcomes[start + at] = part[at]
        bundle.missing -= len(fresh)
        if bundle.sent:
            placed.calls += len(fresh)

    def end(self, ranges: Iterable[Range], ended: Ended) -> "Placed":
        """End these calls without a value."""
        placed = Placed()
        for first, stop in ranges:
            parts = [(max(first, c.first), min(stop, c.stop)) for c in self._touching(first, stop)]
            for low, high in parts:
                placed.add(self.place(low, [ended] * (high - low), failed=True))
        return placed

    def withdraw(self, ranges: Iterable[Range], ended: Ended) -> "Placed":
        """Run none of these calls here that were asked back: their client cancels them."""
        return self.end(self.back.withdraw(ranges), ended)

    def end_all(self, ended: Ended) -> "Placed":
        """End all unfinished calls."""
        return self.end([(0, self.total)], ended)

    def _touching(self, first: int, stop: int) -> list[ClientBundle]:
        at = max(0, bisect_right(self._firsts, first) - 1)
        found = []
        while at < len(self._bundles) and self._firsts[at] < stop:
            if self._bundles[at].stop > first:
                found.append(self._bundles[at])
            at += 1
        return found

    def _forget(self, bundle: ClientBundle, placed: "Placed") -> None:
        at = bisect_right(self._firsts, bundle.first) - 1
        del self._firsts[at], self._bundles[at]
        if bundle.sent:
            placed.size += bundle.size
        bundle.arguments, bundle.leases = [], {}

    def leases(self) -> dict[bytes, Any]:
        """Return the leases of the objects that its unfinished bundles refer to."""
        return {digest: each for bundle in self._bundles for digest, each in bundle.leases.items()}

    def calls_with(self, digests: Set[bytes]) -> list[Range]:
        """Return the unfinished calls that refer to any of these objects."""
        found = RangeSet()
        for bundle in self._bundles:
            if bundle.leases.keys() & digests:
                for first, stop in bundle.unfinished():
                    for at in range(first, stop):
                        if not digests.isdisjoint(
                            references_of(bundle.arguments[at - bundle.first])
                        ):
                            found.add(at, at + 1)
        return list(found)


def _in_parts(first: int, calls: list[bytes], bytes_max: int) -> Iterator[tuple[int, list[bytes]]]:
    """Cut calls into runs that fit a message, each with the number of its first call."""
    start = size = 0
    for at, call in enumerate(calls):
        if size + len(call) > bytes_max and at > start:
            yield first + start, calls[start:at]
            start, size = at, 0
        size += len(call)
    yield first + start, calls[start:]


def _lose(bundle: ClientBundle, task: int, why: InputFailure) -> None:
    """Tell a future why it has no value before it is resolved: calls behind it may be sent now."""
    future = None if bundle.futures is None else bundle.futures[task - bundle.first]
    if isinstance(future, weakref.ref):
        future = future()
    if future is not None:
        future.lost = why


def _behind(why: InputFailure) -> Ended:
    """Return the outcome of a call that can't run as an input of it has failed."""
    return Ended(DEPENDENCY, why.text, why.payload)


def _with_call(outcome: Any, call: SealedCall) -> Any:
    """Add its call to an outcome that is a failure of a task; others stay as they are."""
    is_failure = type(outcome) is Ended and outcome.kind in FAILURES
    if not is_failure or isinstance(call, OpenCall):
        return outcome
    return replace(outcome, arguments=call)


class Placed:
    """The effect of a batch of outcomes: calls and argument bytes that are no longer in flight."""

    __slots__ = ("calls", "size")

    def __init__(self) -> None:
        self.calls = 0
        self.size = 0

    def add(self, other: "Placed") -> None:
        """Add the counts of another batch."""
        self.calls += other.calls
        self.size += other.size


class BundleSender:
    """The calls that are on their way to the gateway, within its limits on what is unfinished.

    Args:
        closed: called with a job after the gateway was told that it has no more calls.
    """

    def __init__(self, closed: Callable[[Stream], None]) -> None:
        self._closed = closed
        self._sending: dict[str, Stream] = {}  # jobs with calls to send, or to be closed after them
        self._calls_out = 0
        self._bytes_out = 0
        self._in_order = False  # inputs go before the calls that wait for them

    def add(self, stream: Stream) -> None:
        """Send the waiting calls of a job from now on."""
        self._sending[stream.id] = stream

    def keep_order(self) -> None:
        """Send bundles in the order in which they began from now on, whatever their jobs.

        Otherwise calls could fill all of the room that the gateway has for them, and wait for
        inputs which are not sent for want of room.
        """
        self._in_order = True

    def drop(self, job: str) -> None:
        """Send no more calls of a job, if any wait."""
        self._sending.pop(job, None)

    def returned(self, placed: Placed) -> None:
        """Make room for other calls, as these have ended."""
        self._calls_out -= placed.calls
        self._bytes_out -= placed.size

    def restart(self) -> None:
        """Begin a new session, in which the gateway has none of the calls."""
        self._calls_out = self._bytes_out = 0

    def fill(self, dialogue: Dialogue) -> None:
        """Post as many bundles as session and gateway take now."""
        session, welcome = dialogue.session, dialogue.welcome
        if session is None or welcome is None or not dialogue.is_open:
            return
        while self._sending and session.backlog_bytes < BACKLOG_BYTES and session.has_room:
            if self._calls_out >= welcome.tasks_max or self._bytes_out >= welcome.bytes_max:
                break
            stream = next(iter(self._sending.values()))
            if self._in_order and len(self._sending) > 1:
                stream = min(self._sending.values(), key=lambda each: each.begun)
            self._send_bundle(stream, dialogue, welcome.message_bytes_max - ENVELOPE_BYTES)

    def _send_bundle(self, stream: Stream, dialogue: Dialogue, bytes_max: int) -> None:
        found = stream.next_to_send(bytes_max)
        untold = stream.take_untold()
        if untold is not None:
            dialogue.post(untold)
        if found is None:
            del self._sending[stream.id]
            self._maybe_close(stream, dialogue)
            return
        bundle, messages = found
        self._calls_out += bundle.missing
        self._bytes_out += bundle.size
        for message in messages:
            dialogue.post(message)

    def close(self, stream: Stream, dialogue: Dialogue) -> None:
        """Close a job to new calls; the gateway is told once all of them have been sent."""
        stream.closed = True
        if stream.id not in self._sending:
            self._maybe_close(stream, dialogue)

    def _maybe_close(self, stream: Stream, dialogue: Dialogue) -> None:
        if stream.closed and not stream.waiting:
            dialogue.post(CloseJob(stream.id, stream.total, stream.elsewhere()))
            self._closed(stream)


def in_messages(payloads: list[SealedCall], size: int) -> list[list[SealedCall]]:
    """Split payloads into lists that each fit into a message."""
    if size <= BUNDLE_BYTES_MAX:
        return [payloads]
    lists: list[list[SealedCall]] = [[]]
    room = BUNDLE_BYTES_MAX
    for payload in payloads:
        if len(payload) > room and lists[-1]:
            lists.append([])
            room = BUNDLE_BYTES_MAX
        lists[-1].append(payload)
        room -= len(payload)
    return lists
