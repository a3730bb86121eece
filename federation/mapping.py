"""The results of a map: an iterator that feeds the grid as it is consumed."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from federation.engine import Engine
from federation.errors import GridError
from federation.outcomes import exception_of
from federation.payload import open_result, seal_calls, seal_singles
from federation.progress import bar
from federation.streams import CHUNK_BYTES_MAX, CHUNK_TASKS_MAX, PENDING, Chunk, Ended, Stream

T = TypeVar("T")

# Calls that a map may have unfinished: enough for a large grid, and a bound on our memory.
AHEAD_CALLS: Final = 64_000
AHEAD_BYTES: Final = 64 << 20
# A batch is made larger as long as making it takes less than this: a slow input's items leave
# one by one, a fast one's by the thousand.
BATCH_S: Final = 0.002
LOOK_S: Final = 0.01


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
            if not self._chunks:
                self._finish()
                break
            chunk = self._chunks[0]
            if not chunk.missing and not chunk.failures and not chunk.taken:
                self._chunks.popleft()
                self._forget(chunk)
                self._ready = iter(list(map(open_result, chunk.outcomes)))
                return self.__next__()
            if chunk.taken == len(chunk.outcomes):
                self._chunks.popleft()
                self._forget(chunk)
                continue
            return self._take_one(chunk)
        raise StopIteration

    def _take_one(self, chunk: Chunk) -> T:
        """One outcome of a chunk that is not whole yet, or that has failures."""
        at = chunk.taken
        if chunk.outcomes[at] is PENDING:
            self._wait(chunk, at)
            if not chunk.missing and not chunk.failures and not at:
                return self._next()
        outcome = chunk.outcomes[at]
        chunk.taken = at + 1
        if self._bar is not None:
            self._bar.update()
        if type(outcome) is Ended:
            self.close()
            raise exception_of(outcome)
        value: T = open_result(outcome)
        return value

    def _wait(self, chunk: Chunk, at: int) -> None:
        while chunk.outcomes[at] is PENDING:
            left_s = None if self._until_s is None else self._until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                self.close()
                raise TimeoutError("a result of the map was not there in time")
            step_s = LOOK_S if self._feeder.waiting else left_s
            if left_s is not None and step_s is not None:
                step_s = min(step_s, left_s)
            self._engine.drive(lambda: chunk.outcomes[at] is not PENDING, step_s)
            if chunk.outcomes[at] is PENDING and (self._engine.closed or self._engine.error):
                self._over = True
                raise self._engine.error or GridError("the client was shut down during a map")
            self._feed()

    def _feed(self) -> None:
        """Take inputs as far ahead as allowed."""
        while self._ahead < AHEAD_CALLS and self._ahead_bytes < AHEAD_BYTES:
            chunk = self._feeder.next_chunk()
            if chunk is None:
                return
            self._chunks.append(chunk)
            self._ahead += len(chunk.outcomes)
            self._ahead_bytes += chunk.size

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
        """Send every call of a job, waiting where the gateway must catch up."""
        feeder = _Feeder(engine, stream, calls, singles)
        while not stream.rejected and feeder.next_chunk() is not None:
            if stream.unfinished > AHEAD_CALLS:
                engine.drive(lambda: stream.rejected or stream.unfinished <= AHEAD_CALLS)
            if engine.error is not None:
                raise engine.error


class _Feeder:
    """Turns an iterable into chunks of sealed calls, as fast as it gives items."""

    def __init__(self, engine: Engine, stream: Stream, calls: Iterable[Any], singles: bool) -> None:
        self._engine = engine
        self._stream = stream
        self._calls = iter(calls)
        self._seal = seal_singles if singles else _seal_tuples
        self._batch = 1
        self._sealed: deque[list[bytes]] = deque()  # made, but not sent: large arguments
        self.waiting = True  # there may be more inputs

    def next_chunk(self) -> Chunk | None:
        """Seal and send the next batch of inputs; None when there are no more."""
        if self._sealed:
            return self._engine.extend(self._stream, self._sealed.popleft())
        if not self.waiting:
            return None
        started_s = time.perf_counter()
        calls = list(islice(self._calls, self._batch))
        if not calls:
            self.waiting = False
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
