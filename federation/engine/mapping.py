"""The results of a map: an iterator that feeds the grid as it is consumed.

A map starts at once. While its client is open it runs ahead of its reader by a buffer. When the
client closes, the rest runs and its results are dropped (Feeder.run_out).
"""

import logging
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from itertools import islice
from typing import Any, Final, Generic, TypeVar, cast

from federation.engine.books.streams import (
    BUNDLE_BYTES_MAX,
    BUNDLE_TASKS_MAX,
    PENDING,
    ClientBundle,
    Ended,
    Stream,
    in_messages,
)
from federation.engine.engine import ClientEngine
from federation.engine.failures import failure_of
from federation.engine.futures import opened
from federation.engine.inquiries import NESTED_S, helped, say_nested, says_why, why_waiting
from federation.engine.nested.helping import HelpingWait, MapCall
from federation.engine.progress import bar
from federation.errors import GridError, ObjectLost, ObjectRefused, SerializationError
from federation.loops.iterating import AsyncResults
from federation.objects.open_calls import SealedCall
from federation.objects.references import any_has_references
from federation.payload import NONE, open_result, seal_calls, seal_singles

T = TypeVar("T")

_log = logging.getLogger("gridfed")

# The unfinished calls that a map may have: enough for a large grid, and a bound on our memory.
AHEAD_CALLS: Final = 64_000
AHEAD_BYTES: Final = 64 << 20
# A batch grows while making it takes less than this, and ends when its inputs took longer: the
# items of a slow input leave one by one, those of a fast input by the thousand.
BATCH_S: Final = 0.002
WHY_S: Final = 2.0  # a bar that stands still for this long says why, and asks anew as often
LOOK_S: Final = 0.01  # the longest wait for a slow input before a check for arrivals
GLANCE_S: Final = 0.001  # the longest time for that check
# Inputs held in memory: no clock is read between their items, and any thread may take them.
_AT_HAND: Final = frozenset({list, tuple, range, dict, set, frozenset, str, bytes, deque})


class Inputs:
    """The calls of a map: an iterable of arguments, and facts about the iterables behind it.

    Args:
        calls: one argument each if `singles`, else a tuple of them.
        sources: the iterables that `calls` is made of.

    Attributes:
        at_hand: all sources are of built-in types that hold their items.
        is_finite: some source has a length, so the calls end.
        total: the maximum number of calls; None if unknown.
    """

    def __init__(self, calls: Iterable[Any], *sources: Iterable[Any], singles: bool) -> None:
        self.calls = calls
        self.singles = singles
        self.at_hand = all(type(each) in _AT_HAND for each in sources)
        self.is_finite = any(isinstance(each, Sized) for each in sources)
        lengths = [
            len(each)
            for each in sources
            if isinstance(each, Sequence) or (isinstance(each, Sized) and type(each) in _AT_HAND)
        ]
        self.total = min(lengths, default=None)


class MapResults(Generic[T]):
    """An iterator over the results of a map, in the order of its inputs.

    `job` is the id of the job. Closing the iterator, or dropping it half way, cancels the calls
    that have not begun. A map that is dropped unread runs on, and its results are dropped.
    """

    def __init__(
        self,
        engine: ClientEngine,
        stream: Stream,
        inputs: Inputs,
        *,
        timeout: float | None,
        progress: bool,
    ) -> None:
        self._engine = engine
        self._stream = stream
        self._feeder = Feeder(engine, stream, inputs)
        self._until_s = None if timeout is None else time.monotonic() + timeout
        self._bundles: deque[ClientBundle] = deque()
        self._ahead = 0
        self._ahead_bytes = 0
        self._lead = 0  # the most calls that were ahead
        self._given = 0  # the number after the last call of the bundles that were read
        self._fed_s = time.monotonic()
        self._ready: list[T] = []  # unpickled results, the next one last
        self._bar = bar(inputs.total, stream.opening.name) if progress else None
        self._asked_s = time.monotonic()  # when the bar looked last whether it stands still, …
        self._left = -1  # … and the unfinished calls then
        self._is_told = False  # whether the bar shows why it stands still
        self._is_read = False
        self._is_interrupted = False
        self._over = False
        engine.attend(self._feeder)
        try:
            self._feed()
        except BaseException as error:
            # It will not be read, and it was not left unread on purpose.
            self._is_read, self._is_interrupted = True, isinstance(error, KeyboardInterrupt)
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            del self  # a traceback through this frame must not keep the map alive

    @property
    def job(self) -> str:
        """The id of this map's job."""
        return self._stream.id

    def __iter__(self) -> "MapResults[T]":
        return self

    def __aiter__(self) -> "AsyncResults[T]":
        return AsyncResults(lambda: self)

    @property
    def is_ready(self) -> bool:
        """Whether the next result is there, so that it can be read without waiting."""
        return bool(self._ready) or self._has_result()

    def __next__(self) -> T:
        # The common case first: a whole bundle was unpickled at once.
        if self._ready:
            if self._bar is not None:
                self._bar.update()
            return self._ready.pop()
        try:
            return self._next()
        except KeyboardInterrupt as interrupt:
            self._is_interrupted = True
            traceback.clear_frames(interrupt.__traceback__)
            raise
        finally:
            del self  # a traceback through this frame must not keep the map alive

    def _next(self) -> T:
        self._is_read, self._is_interrupted = True, False
        while not self._over:
            self._feed()
            if not self._bundles:
                self._check_closing()
            if not self._bundles and not self._feed_more():
                self._finish()
                break
            bundle = self._bundles[0]
            if not bundle.missing and not bundle.failures and not bundle.taken:
                values = _open_all(bundle)
                if values is not None:
                    self._bundles.popleft()
                    self._forget(bundle)
                    values.reverse()
                    self._ready = values
                    return self.__next__()
            if bundle.taken == len(bundle.outcomes):
                self._bundles.popleft()
                self._forget(bundle)
                continue
            return self._take_one(bundle)
        raise StopIteration

    def _check_closing(self) -> None:
        """Raise RuntimeError if the rest of the results was dropped, or will not come."""
        feeder = self._feeder
        if feeder.is_closing and (feeder.has_more or self._given < self._stream.total):
            self._over = True
            raise RuntimeError(
                "no more results after shutdown: the client was shut down before all were read"
            )

    def _take_one(self, bundle: ClientBundle) -> T:
        """Return one outcome of a bundle that is incomplete, or that has a failed call."""
        at = bundle.taken
        if bundle.outcomes[at] is PENDING:
            self._wait(bundle, at)
            if not bundle.missing and not bundle.failures and not at:
                return self._next()
        outcome = bundle.outcomes[at]
        error: BaseException | None = None
        value: Any = None
        if type(outcome) is Ended:
            if outcome.kind == "cancelled":
                self._check_closing()
            error = failure_of(outcome, bundle.first + at, self.job, self._stream.opening.results)
        else:
            try:
                value = opened(outcome, self._stream.opening.results)
            except (ObjectLost, ObjectRefused, SerializationError) as unreadable:
                error = unreadable
        bundle.taken = at + 1  # only now: a Ctrl-C during the unpickling must not lose it
        bundle.outcomes[at] = NONE  # given: the bundle stays for its other calls
        if self._bar is not None:
            self._bar.update()
        if error is not None:
            self._say_end(f"task {bundle.first + at} failed, the rest is cancelled")
            self.close()
            raise error
        return cast("T", value)

    def _wait(self, bundle: ClientBundle, at: int) -> None:
        call = MapCall(self._stream, bundle.first + at)
        has_limit = self._until_s is not None  # otherwise this thread runs it: see `_driver`
        is_done = lambda: bundle.outcomes[at] is not PENDING  # noqa: E731
        with helped(self._engine, call, is_done, may_help=has_limit):
            self._wait_for(bundle, at)

    def _wait_for(self, bundle: ClientBundle, at: int) -> None:
        said_at_s = time.monotonic() + NESTED_S
        engine, drive = self._engine, self._driver(bundle, at)
        while bundle.outcomes[at] is PENDING:
            left_s = None if self._until_s is None else self._until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                self._say_end("timed out, the rest is cancelled")
                self.close()
                raise TimeoutError("a result of the map timed out")
            step_s = GLANCE_S if self._may_feed() else left_s
            if self._bar is not None:
                step_s = WHY_S if step_s is None else min(step_s, WHY_S)
            if says_why(engine):
                step_s = NESTED_S if step_s is None else min(step_s, NESTED_S)
                if time.monotonic() >= said_at_s:
                    say_nested(engine, self._stream)
            if left_s is not None and step_s is not None:
                step_s = min(step_s, left_s)
            drive(step_s)
            if bundle.outcomes[at] is PENDING:
                if engine.closed or engine.error:
                    self._over = True
                    self._say_end("the gateway was lost")
                    raise engine.error or GridError("the client was shut down during a map")
                self._feed()
                self._show_wait()
        if self._is_told:  # the wait is over: its reason must not stay beside a bar that moves
            self._say_why("")

    def _driver(self, bundle: ClientBundle, at: int) -> Callable[[float | None], bool]:
        """Return what waits for a call, up to a time in seconds; in a task it may run the call."""
        engine = self._engine

        def is_done() -> bool:
            return bundle.outcomes[at] is not PENDING

        if engine.is_of_task and self._until_s is None:
            return HelpingWait(engine, MapCall(self._stream, bundle.first + at), is_done).drive
        return lambda step_s: engine.drive(is_done, step_s)

    def _show_wait(self) -> None:
        """Show in the bar why it stands still, if it does."""
        stream, now_s = self._stream, time.monotonic()
        if self._bar is None or now_s - self._asked_s < WHY_S:
            return
        is_still, self._left = stream.unfinished == self._left, stream.unfinished
        self._asked_s = now_s
        why = why_waiting(self._engine, stream) if is_still else ""
        self._say_why(why)

    def _say_why(self, why: str) -> None:
        assert self._bar is not None
        self._bar.set_postfix_str(f"waiting: {why}" if why else "")
        self._is_told = bool(why)

    def _say_end(self, text: str) -> None:
        """Show in the bar why it goes no further: not what it waited for before."""
        if self._bar is not None:
            self._bar.set_postfix_str(text)
            self._is_told = False

    def _feed(self) -> None:
        """Take inputs as far ahead as allowed, waiting for a slow input for LOOK_S at most.

        While a result is ready, a slow input gets no more time than the consumer has taken, and
        only to keep up the lead. So no result is held back, and a slow consumer starves no worker.
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
        feeder = self._feeder
        return has_room and feeder.has_more and not feeder.is_closing and self._engine.takes_work

    def _has_result(self) -> bool:
        """Whether the next result is there."""
        for bundle in self._bundles:
            if bundle.taken < len(bundle.outcomes):
                return bundle.outcomes[bundle.taken] is not PENDING
        return False

    def _feed_more(self) -> bool:
        """Take one batch of inputs; return whether there was one."""
        bundle = self._feeder.next_bundle()
        if bundle is None:
            return False
        self._bundles.append(bundle)
        self._ahead += len(bundle.outcomes)
        self._ahead_bytes += bundle.size
        return True

    def _forget(self, bundle: ClientBundle) -> None:
        self._given = bundle.stop
        self._ahead -= len(bundle.outcomes)
        self._ahead_bytes -= bundle.size

    def _finish(self) -> None:
        self._over = True
        self._engine.dismiss(self._feeder)
        self._engine.close_stream(self._stream)
        if self._bar is not None:
            self._bar.close()

    def close(self, *, stop: bool = False) -> None:
        """Cancel the calls that have not begun, and drop all unread results.

        With `stop`, also end those that are running.
        """
        if self._over:
            return
        self._over = True
        self._ready = []
        if self._bar is not None:
            self._bar.close()
        self._engine.dismiss(self._feeder)
        if not self._engine.closed and self._stream.unfinished:
            self._engine.cancels.abandon(self._stream, stop=stop)
        elif not self._engine.closed:
            self._engine.close_stream(self._stream)

    def __del__(self) -> None:
        if getattr(self, "_over", True) or self._engine.closed:
            return
        if not self._is_read:
            self._feeder.is_unattended = True
            return
        self._engine.dismiss(self._feeder)
        # An interrupted wait for results also stops the running calls.
        self._engine.cancels.abandon(self._stream, stop=self._is_interrupted)


def feed_all(engine: ClientEngine, stream: Stream, inputs: Inputs) -> None:
    """Send every call of a detached job, waiting where the gateway must catch up.

    The unacknowledged part is bounded in calls and in bytes of arguments.
    """
    feeder = Feeder(engine, stream, inputs)
    while not stream.rejected and feeder.next_bundle() is not None:
        if not feeder.has_room():
            engine.drive(lambda: feeder.has_room() or stream.rejected)
        if engine.error is not None:
            raise engine.error


class Feeder:
    """Turns the inputs of a map into bundles of sealed calls, as fast as they come.

    Attributes:
        stream: the job of the calls.
        is_unattended: its map was dropped unread: the engine feeds it.
        is_closing: the client closes: the reader feeds no more.
    """

    def __init__(self, engine: ClientEngine, stream: Stream, inputs: Inputs) -> None:
        self._engine = engine
        self.stream = stream
        self._calls = iter(inputs.calls)
        self._at_hand = inputs.at_hand
        self._is_finite = inputs.is_finite
        self._total = inputs.total
        self._taken = 0
        self._seal = seal_singles if inputs.singles else _seal_tuples
        self._batch = 1
        self._gathers = inputs.at_hand and (inputs.total or BUNDLE_TASKS_MAX) < BUNDLE_TASKS_MAX
        self._sealed: deque[list[SealedCall]] = deque()  # sealed, but not sent: large arguments
        self._leases: dict[bytes, Any] = {}  # of the objects that these refer to
        self._ended = False
        self._lock = threading.RLock()  # the thread that closes the client feeds as well
        self.is_unattended = False
        self.is_closing = False
        self.pull_s = 0.0  # how long the last batch of inputs took to come
        self.waited_s = 0.0  # the same, for all batches

    @property
    def has_more(self) -> bool:
        """Whether there may be more calls."""
        return bool(self._sealed) or not self._ended

    @property
    def runs_out(self) -> bool:
        """Whether all calls run even if unread: the inputs are finite, or have all come."""
        return self._is_finite or self._ended

    @property
    def not_taken(self) -> int:
        """Calls that were not given to the job; of inputs without a length, only sealed ones."""
        sealed = sum(map(len, self._sealed))
        if self._ended or self._total is None:
            return sealed
        return self._total - self._taken + sealed

    def has_room(self) -> bool:
        """Whether the job may be given more calls: its backlog is bounded in calls and bytes."""
        stream = self.stream
        return stream.unfinished < AHEAD_CALLS and stream.held_bytes < AHEAD_BYTES

    def run_out(self, until_s: float = math.inf) -> None:
        """Feed all remaining calls, and drop their results; wait where there is no room.

        Returns early when the job or the connection ends, or at `until_s` of the monotonic clock.
        """
        engine, stream = self._engine, self.stream
        while stream.is_open and engine.error is None and not engine.closed:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            if not self.has_room():
                at_most_s = None if left_s == math.inf else left_s
                engine.drive(lambda: self.has_room() or not stream.is_open, at_most_s)
            elif not self._feed_late():
                break

    def feed_on(self) -> bool:
        """Feed one bundle of an unattended map; return False when there is nothing to do for now.

        Only for inputs that any thread may take; others wait until the client closes.
        """
        engine, stream = self._engine, self.stream
        if not (stream.is_open and self.has_more):
            engine.dismiss(self)
            engine.close_stream(stream)
            return False
        if not (self._at_hand and self.has_room() and engine.takes_work):
            return False
        return self._feed_late()

    def _feed_late(self) -> bool:
        """Feed a bundle for an unread map; return False if there is none, or it can't be sent."""
        try:
            return self.next_bundle() is not None
        except Exception as error:  # noqa: BLE001 - inputs raise any exception
            if self._engine.shut and not self.is_closing:
                return False  # just now: the thread that closes the client continues
            self._ended = True
            text = f"{type(error).__name__}: {error}"
            _log.warning("the rest of a map is dropped: its inputs raised %.300s", text)
            return False

    def next_bundle(self) -> ClientBundle | None:
        """Seal and send the next batch of inputs; return None when there are no more."""
        with self._lock:
            if not self._sealed and not self._ended:
                self._gather()
            if not self._sealed:
                return None
            bundle = self._engine.extend(self.stream, self._sealed[0], late=self.is_closing)
            self._sealed.popleft()
            if not self._sealed:
                self._leases.clear()
            return bundle

    def _gather(self) -> None:
        """Take and seal the next inputs: a batch, or several if there are few in total."""
        payloads: list[SealedCall] = []
        size, started_s = 0, time.perf_counter()
        while True:
            calls = self._pull()
            self.pull_s = time.perf_counter() - started_s
            if not calls:
                self._ended = True
                break
            self._taken += len(calls)
            sealed = self._seal(calls)
            if any_has_references(sealed):  # now: the inputs may hold the only references
                self._leases.update(self._engine.objects.leases_for(sealed, self.stream.opening))
            size += sum(map(len, sealed))
            payloads += sealed
            is_quick = time.perf_counter() - started_s < BATCH_S and size < BUNDLE_BYTES_MAX // 2
            if is_quick:
                self._batch = min(2 * self._batch, BUNDLE_TASKS_MAX)
            else:
                self._batch = max(1, self._batch // 2)
            if not (is_quick and self._gathers):
                break
        self.waited_s += self.pull_s
        if size > BUNDLE_BYTES_MAX:
            for payload in payloads:
                self._engine.check_size(payload)
        if payloads:
            self._sealed.extend(in_messages(payloads, size))

    def _pull(self) -> list[Any]:
        """Return the next inputs: a batch, or those that came before a slow one delayed it."""
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


def _open_all(bundle: ClientBundle) -> list[Any] | None:
    """Return the results of a whole bundle; None if one can't be unpickled: take them singly."""
    try:
        return list(map(open_result, bundle.outcomes))
    except SerializationError:
        return None


def _seal_tuples(calls: list[Any]) -> Sequence[SealedCall]:
    return seal_calls([tuple(call) for call in calls])
