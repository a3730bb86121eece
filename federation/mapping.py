"""The results of a map: an iterator that feeds the grid as it is consumed."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeVar, cast

from federation.engine import Engine
from federation.errors import GridError, SerializationError
from federation.outcomes import exception_of
from federation.payload import open_result, seal_calls, seal_singles
from federation.progress import bar
from federation.streams import CHUNK_BYTES_MAX, CHUNK_TASKS_MAX, PENDING, Chunk, Ended, Stream

T = TypeVar("T")

# Calls that a map may have unfinished: enough for a large grid, and a bound on our memory.
AHEAD_CALLS: Final = 64_000
AHEAD_BYTES: Final = 64 << 20
# A batch is made larger as long as making it takes less than this, and ends when its inputs took
# longer: a slow input's items leave one by one, a fast one's by the thousand.
BATCH_S: Final = 0.002
LOOK_S: Final = 0.01  # a slow input is waited for so long before a look at what has arrived
GLANCE_S: Final = 0.001  # how long that look may take
# Inputs that are there already: no clock is read between their items.
_AT_HAND: Final = frozenset({list, tuple, range, dict, set, frozenset, str, bytes, deque})


class MapResults(Generic[T]):
    """An iterator over the results of a map, in the order of its inputs.

    `job` is the id of the job. Closing it (or dropping it half way) cancels the rest.
    """

    def __init__(
        self,
        engine: Engine,
        stream: Stream,
        calls: Iterable[Any],
        *,
        singles: bool,
        timeout: float | None,
        progress: bool,
        total: int | None,
    ) -> None:
        self._engine = engine
        self._stream = stream
        self._feeder = _Feeder(engine, stream, calls, singles)
        self._until_s = None if timeout is None else time.monotonic() + timeout
        self._chunks: deque[Chunk] = deque()
        self._ahead = 0
        self._ahead_bytes = 0
        self._lead = 0  # the most calls that were ahead
        self._fed_s = time.monotonic()
        self._ready: Iterator[T] = iter(())
        self._bar = bar(total, stream.opening.name) if progress else None
        self._over = False
        self._feed()

    @property
    def job(self) -> str:
        """The id of the job that this map is."""
        return self._stream.id

    def __iter__(self) -> "MapResults[T]":
        return self

    def __next__(self) -> T:
        # The common case first: a whole chunk was opened at once.
        for value in self._ready:
            if self._bar is not None:
                self._bar.update()
            return value
        return self._next()

    def _next(self) -> T:
        while not self._over:
            self._feed()
            # Once the client takes no new work this raises, after what was taken has come.
            if not self._chunks and not self._feed_more():
                self._finish()
                break
            chunk = self._chunks[0]
            if not chunk.missing and not chunk.failures and not chunk.taken:
                values = _open_all(chunk)
                if values is not None:
                    self._chunks.popleft()
                    self._forget(chunk)
                    self._ready = iter(values)
                    return self.__next__()
            if chunk.taken == len(chunk.outcomes):
                self._chunks.popleft()
                self._forget(chunk)
                continue
            return self._take_one(chunk)
        raise StopIteration

    def _take_one(self, chunk: Chunk) -> T:
        """One outcome of a chunk that is not whole yet, or that holds something bad."""
        at = chunk.taken
        if chunk.outcomes[at] is PENDING:
            self._wait(chunk, at)
            if not chunk.missing and not chunk.failures and not at:
                return self._next()
        outcome = chunk.outcomes[at]
        error: BaseException | None = None
        value: Any = None
        if type(outcome) is Ended:
            error = exception_of(outcome)
        else:
            try:
                value = open_result(outcome)
            except SerializationError as unreadable:
                error = unreadable
        chunk.taken = at + 1  # only now: a Ctrl-C while it was opened must not lose it
        if self._bar is not None:
            self._bar.update()
        if error is not None:
            self.close()
            raise error
        return cast("T", value)

    def _wait(self, chunk: Chunk, at: int) -> None:
        while chunk.outcomes[at] is PENDING:
            left_s = None if self._until_s is None else self._until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                self.close()
                raise TimeoutError("a result of the map was not there in time")
            step_s = GLANCE_S if self._may_feed() else left_s
            if left_s is not None and step_s is not None:
                step_s = min(step_s, left_s)
            self._engine.drive(lambda: chunk.outcomes[at] is not PENDING, step_s)
            if chunk.outcomes[at] is PENDING:
                if self._engine.closed or self._engine.error:
                    self._over = True
                    raise self._engine.error or GridError("the client was shut down during a map")
                self._feed()

    def _feed(self) -> None:
        """Take inputs as far ahead as allowed, waiting for a slow input for LOOK_S at most.

        While a result is there, a slow input gets no more time than the consumer has taken, and
        only to keep up the lead: no result is held back, and a slow consumer starves no worker.
        """
        feeder = self._feeder
        before_s = feeder.waited_s
        spare_s = time.monotonic() - self._fed_s
        while self._may_feed():
            waited_s = feeder.waited_s - before_s
            if feeder.pull_s < BATCH_S or not self._has_result():
                may_wait = waited_s < LOOK_S
            else:
                may_wait = self._ahead < self._lead and waited_s + feeder.pull_s <= spare_s
            if not may_wait:
                return
            self._feed_more()
            self._fed_s = time.monotonic()
            self._lead = max(self._lead, self._ahead)

    def _may_feed(self) -> bool:
        has_room = self._ahead < AHEAD_CALLS and self._ahead_bytes < AHEAD_BYTES
        return has_room and self._feeder.has_more and self._engine.takes_work

    def _has_result(self) -> bool:
        """Whether the next result is there."""
        for chunk in self._chunks:
            if chunk.taken < len(chunk.outcomes):
                return chunk.outcomes[chunk.taken] is not PENDING
        return False

    def _feed_more(self) -> bool:
        """Take one batch of inputs; whether there was one."""
        chunk = self._feeder.next_chunk()
        if chunk is None:
            return False
        self._chunks.append(chunk)
        self._ahead += len(chunk.outcomes)
        self._ahead_bytes += chunk.size
        return True

    def _forget(self, chunk: Chunk) -> None:
        self._ahead -= len(chunk.outcomes)
        self._ahead_bytes -= chunk.size

    def _finish(self) -> None:
        self._over = True
        self._engine.close_stream(self._stream)
        if self._bar is not None:
            self._bar.close()

    def close(self) -> None:
        """Cancel what has not been consumed."""
        if self._over:
            return
        self._over = True
        self._ready = iter(())
        if self._bar is not None:
            self._bar.close()
        if not self._engine.closed and self._stream.unfinished:
            self._engine.abandon(self._stream)
        elif not self._engine.closed:
            self._engine.close_stream(self._stream)

    def __del__(self) -> None:
        if not getattr(self, "_over", True) and not self._engine.closed:
            self._engine.abandon(self._stream)

    @staticmethod
    def feed_all(engine: Engine, stream: Stream, calls: Iterable[Any], *, singles: bool) -> None:
        """Send every call of a job, waiting where the gateway must catch up.

        What it has not acknowledged as kept is bounded in calls and in bytes of arguments.
        """

        def has_room() -> bool:
            few = stream.unfinished < AHEAD_CALLS and stream.held_bytes < AHEAD_BYTES
            return few or stream.rejected

        feeder = _Feeder(engine, stream, calls, singles)
        while not stream.rejected and feeder.next_chunk() is not None:
            if not has_room():
                engine.drive(has_room)
            if engine.error is not None:
                raise engine.error


class _Feeder:
    """Turns an iterable into chunks of sealed calls, as fast as it gives items."""

    def __init__(self, engine: Engine, stream: Stream, calls: Iterable[Any], singles: bool) -> None:
        self._engine = engine
        self._stream = stream
        self._calls = iter(calls)
        self._at_hand = type(calls) in _AT_HAND
        self._seal = seal_singles if singles else _seal_tuples
        self._batch = 1
        self._sealed: deque[list[bytes]] = deque()  # made, but not sent: large arguments
        self._ended = False
        self.pull_s = 0.0  # how long the last batch of inputs took to come
        self.waited_s = 0.0  # and all of them

    @property
    def has_more(self) -> bool:
        """Whether there may be more calls."""
        return bool(self._sealed) or not self._ended

    def next_chunk(self) -> Chunk | None:
        """Seal and send the next batch of inputs; None when there are no more."""
        if self._sealed:
            return self._engine.extend(self._stream, self._sealed.popleft())
        if self._ended:
            return None
        started_s = time.perf_counter()
        calls = self._pull()
        self.pull_s = time.perf_counter() - started_s
        self.waited_s += self.pull_s
        if not calls:
            self._ended = True
            return None
        payloads = self._seal(calls)
        size = sum(map(len, payloads))
        if size > CHUNK_BYTES_MAX:
            for payload in payloads:
                self._engine.check_size(payload)
        if time.perf_counter() - started_s < BATCH_S and size < CHUNK_BYTES_MAX // 2:
            self._batch = min(2 * self._batch, CHUNK_TASKS_MAX)
        else:
            self._batch = max(1, self._batch // 2)
        self._sealed.extend(_in_messages(payloads, size))
        return self._engine.extend(self._stream, self._sealed.popleft())

    def _pull(self) -> list[Any]:
        """The next inputs: a batch, or what came before one of them kept us waiting."""
        batch = islice(self._calls, self._batch)
        if self._at_hand:
            return list(batch)
        calls = []
        until_s = time.perf_counter() + BATCH_S
        for call in batch:
            calls.append(call)
            if time.perf_counter() >= until_s:
                break
        return calls


def _open_all(chunk: Chunk) -> list[Any] | None:
    """The results of a whole chunk; None when one can't be unpickled and they must go singly."""
    try:
        return list(map(open_result, chunk.outcomes))
    except SerializationError:
        return None


def _in_messages(payloads: list[bytes], size: int) -> list[list[bytes]]:
    """Payloads in lists that each fit into a message."""
    if size <= CHUNK_BYTES_MAX:
        return [payloads]
    lists: list[list[bytes]] = [[]]
    room = CHUNK_BYTES_MAX
    for payload in payloads:
        if len(payload) > room and lists[-1]:
            lists.append([])
            room = CHUNK_BYTES_MAX
        lists[-1].append(payload)
        room -= len(payload)
    return lists


def _seal_tuples(calls: list[Any]) -> list[bytes]:
    return seal_calls([tuple(call) for call in calls])
