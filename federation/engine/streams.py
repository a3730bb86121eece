"""The client's books: jobs as streams of calls, those sent, and those still unfinished. Pure.

A `Stream` is one job. Its calls are kept in chunks of up to a thousand. Arguments stay until their
results are in, so that all unfinished calls can be sent again to a gateway that was restarted. A
call ends once: later outcomes for it are ignored.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from federation.errors import FAILURES
from federation.messages.messages import OpenJob, Tasks
from federation.offers import Offer
from federation.ranges import Range, RangeSet

CHUNK_TASKS_MAX: Final = 1000
CHUNK_BYTES_MAX: Final = 1 << 20
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


Outcome = bytes | Ended


class ClientBundle:
    """Contiguous calls of a stream: arguments, and outcomes as they come (PENDING before)."""

    __slots__ = (
        "arguments",
        "failures",
        "first",
        "futures",
        "missing",
        "outcomes",
        "sent",
        "size",
        "taken",
    )

    def __init__(self, first: int, arguments: list[bytes], futures: list[Any] | None) -> None:
        self.first = first
        self.arguments = arguments
        self.futures = futures
        self.outcomes: list[Any] = [PENDING] * len(arguments)
        self.missing = len(arguments)
        self.failures = 0
        self.sent = False
        self.taken = 0  # outcomes that a map has yielded
        self.size = sum(map(len, arguments))

    @property
    def stop(self) -> int:
        """The number after its last call's."""
        return self.first + len(self.outcomes)

    def append(self, payload: bytes, future: Any) -> None:
        """Add a call to a chunk that has not been sent."""
        assert self.futures is not None
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
        self.running: tuple[float, RangeSet] | None = None  # what ran, and when that was asked
        self.home = ""  # the address of the gateway where it was opened last
        self.key: Hashable = None  # of the calls that `submit` adds to it
        self.waiting: deque[ClientBundle] = deque()
        self._firsts: list[int] = []
        self._chunks: list[ClientBundle] = []

    # --- calls ---------------------------------------------------------------------------------

    def submit(self, payload: bytes, future: Any) -> int:
        """Add one call; return its number."""
        tail = self._chunks[-1] if self._chunks else None
        if (
            tail is None
            or tail.sent
            or tail.futures is None
            or len(tail.arguments) >= CHUNK_TASKS_MAX
            or tail.size + len(payload) > CHUNK_BYTES_MAX
        ):
            self._add(ClientBundle(self.total, [payload], [future]))
        else:
            tail.append(payload, future)
        self.total += 1
        return self.total - 1

    def extend(self, arguments: list[bytes]) -> ClientBundle:
        """Add a chunk of calls whose outcomes are read from the chunk itself."""
        chunk = ClientBundle(self.total, arguments, None)
        self._add(chunk)
        self.total = chunk.stop
        return chunk

    def _add(self, chunk: ClientBundle) -> None:
        self._chunks.append(chunk)
        self._firsts.append(chunk.first)
        self.waiting.append(chunk)

    @property
    def rejected(self) -> bool:
        """Whether the gateway will not run this job."""
        return self.rejection is not None

    @property
    def is_open(self) -> bool:
        """Whether the job takes more calls."""
        return not self.closed and self.rejection is None

    @property
    def unfinished(self) -> int:
        """The number of unfinished calls."""
        return sum(chunk.missing for chunk in self._chunks)

    @property
    def held_bytes(self) -> int:
        """Bytes of arguments that are kept, because their chunk has unfinished calls."""
        return sum(chunk.size for chunk in self._chunks)

    def next_to_send(self) -> tuple[ClientBundle, list[Tasks]] | None:
        """Return the next chunk to send and its messages; it counts as sent from now on."""
        while self.waiting:
            chunk = self.waiting.popleft()
            if chunk.missing:
                chunk.sent = True
                return chunk, self._messages(chunk)
        return None

    def _messages(self, chunk: ClientBundle) -> list[Tasks]:
        return [
            Tasks(self.id, low, chunk.arguments[low - chunk.first : high - chunk.first])
            for low, high in chunk.unfinished()
        ]

    def send_again(self) -> None:
        """Queue all unfinished calls again: the gateway does not know this job."""
        for chunk in self._chunks:
            chunk.sent = False
        self.waiting = deque(self._chunks)

    def end_unsent(self, ended: Ended) -> "Placed":
        """End every call that has not been sent."""
        waiting, self.waiting = self.waiting, deque()
        return self.end([span for chunk in waiting for span in chunk.unfinished()], ended)

    def take_out(self, first: int, stop: int) -> tuple[list[tuple[bytes, Any]], "Placed"]:
        """Remove unfinished calls; return each with its future, which stays pending.

        Only calls with futures are removed.
        """
        calls: list[tuple[bytes, Any]] = []
        placed = Placed()
        for chunk in self._touching(first, stop):
            if chunk.futures is None:
                continue
            low, high = max(first, chunk.first) - chunk.first, min(stop, chunk.stop) - chunk.first
            for at in range(low, high):
                if chunk.outcomes[at] is PENDING:
                    calls.append((chunk.arguments[at], chunk.futures[at]))
                    chunk.futures[at] = None
            ended = [Ended("cancelled", "the task was moved to another job")] * (high - low)
            placed.add(self.place(chunk.first + low, ended, failed=True))
        return calls, placed

    def loosen(self, number: int, to_weak: Callable[[Any], Any]) -> None:
        """Replace the future of an unfinished call by the result of `to_weak`."""
        for chunk in self._touching(number, number + 1):
            at = number - chunk.first
            if chunk.futures is not None and chunk.outcomes[at] is PENDING:
                chunk.futures[at] = to_weak(chunk.futures[at])

    def arguments_max(self) -> int:
        """Return the bytes of the largest call that may have to be sent again."""
        return max((len(each) for chunk in self._chunks for each in chunk.arguments), default=0)

    def elsewhere(self) -> list[list[int]]:
        """Return the ended calls, for a gateway where the job was opened again.

        That gateway was never sent the calls that ended before, and must not wait for them.
        """
        if not self.opening.again or self.opening.detached:
            return []
        ended = RangeSet([(0, self.total)] if self.total else [])
        for chunk in self._chunks:
            for first, stop in chunk.unfinished():
                ended.remove(first, stop)
        return [list(pair) for pair in ended][:ELSEWHERE_MAX]

    # --- outcomes ------------------------------------------------------------------------------

    def place(self, first: int, outcomes: list[Any], *, failed: bool) -> "Placed":
        """Put the outcomes of calls `first`, `first` + 1, … in their places.

        Calls that had ended keep their outcomes. `failed` tells whether any outcome is an Ended.
        """
        placed = Placed()
        stop = first + len(outcomes)
        for chunk in self._touching(first, stop):
            low, high = max(first, chunk.first), min(stop, chunk.stop)
            self._place_in(
                chunk,
                low - chunk.first,
                outcomes[low - first : high - first],
                placed,
                failed=failed,
            )
            if failed:
                chunk.failures = sum(type(outcome) is Ended for outcome in chunk.outcomes)
            if not chunk.missing:
                self._forget(chunk, placed)
        return placed

    def _place_in(
        self,
        chunk: ClientBundle,
        start: int,
        part: list[Any],
        placed: "Placed",
        *,
        failed: bool,
    ) -> None:
        end = start + len(part)
        if failed:
            calls = chunk.arguments[start:end]
            part = [_with_call(each, call) for each, call in zip(part, calls, strict=True)]
        is_fresh = chunk.outcomes[start:end].count(PENDING) == len(part)
        fresh: Sequence[int] = range(len(part))
        if not is_fresh:
            fresh = [at for at in fresh if chunk.outcomes[start + at] is PENDING]
        if chunk.futures is not None:
            # First of all: if a Ctrl-C comes in between, they are still resolved.
            self._resolved.extend(
                (chunk.futures[start + at], part[at])
                for at in fresh
                if chunk.futures[start + at] is not None
            )
        if is_fresh:
            chunk.outcomes[start:end] = part
        else:
            for at in fresh:
                chunk.outcomes[start + at] = part[at]
        chunk.missing -= len(fresh)
        if chunk.sent:
            placed.calls += len(fresh)

    def end(self, ranges: Iterable[Range], ended: Ended) -> "Placed":
        """End these calls without a value."""
        placed = Placed()
        for first, stop in ranges:
            parts = [(max(first, c.first), min(stop, c.stop)) for c in self._touching(first, stop)]
            for low, high in parts:
                placed.add(self.place(low, [ended] * (high - low), failed=True))
        return placed

    def end_all(self, ended: Ended) -> "Placed":
        """End all unfinished calls."""
        return self.end([(0, self.total)], ended)

    def _touching(self, first: int, stop: int) -> list[ClientBundle]:
        at = max(0, bisect_right(self._firsts, first) - 1)
        found = []
        while at < len(self._chunks) and self._firsts[at] < stop:
            if self._chunks[at].stop > first:
                found.append(self._chunks[at])
            at += 1
        return found

    def _forget(self, chunk: ClientBundle, placed: "Placed") -> None:
        at = bisect_right(self._firsts, chunk.first) - 1
        del self._firsts[at], self._chunks[at]
        if chunk.sent:
            placed.size += chunk.size
        chunk.arguments = []


def _with_call(outcome: Any, call: bytes) -> Any:
    """Add its call to an outcome that is a failure of a task; others stay as they are."""
    is_failure = type(outcome) is Ended and outcome.kind in FAILURES
    return replace(outcome, arguments=call) if is_failure else outcome


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
