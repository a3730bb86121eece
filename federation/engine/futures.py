"""The futures of a client's calls, and how outcomes resolve them; the output of tasks.

Results ─► screen ─► streams ─► resolve_all ─► TaskFuture.finish
"""

import concurrent.futures
import contextlib
import logging
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Collection, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from federation.engine import progress
from federation.engine.books.streams import Ended, Outcome, Stream
from federation.engine.failures import failure_of
from federation.engine.inquiries import (
    ANSWER_S,
    DrivenEngine,
    drive,
    helped,
    is_running,
    why_waiting,
)
from federation.engine.objects import LeftResult, ObjectRef
from federation.errors import DependencyFailed, SerializationError
from federation.loops.waits import WaitedInLoops, until_done
from federation.messages.printed import STDOUT
from federation.objects.labels import DataLabel
from federation.objects.left import REF
from federation.objects.open_calls import InputFailure, InputValue
from federation.objects.references import reduced_input
from federation.payload import add_plain, open_result, seal_value
from federation.raised import seal_exception
from federation.ranges import Range, RangeSet
from federation.words import HEADLINE_CHARS_MAX, Length, clean, headline, read_timeout

T = TypeVar("T")
EXCEPTION_BYTES_MAX: Final = 128 << 10  # of an input's failure, for the calls that need it

_log = logging.getLogger("gridfed")


class FutureCancels(Protocol):
    """The cancels of an engine (federation.engine.cancelling), as far as futures need them."""

    def calls(
        self, stream: Stream, ranges: list[Range], *, stop: bool, timeout_s: float | None = None
    ) -> list[Range]:
        """Cancel calls; return those that were."""

    def loosen(self, stream: Stream, task: int) -> None:
        """Hold the future of a call weakly."""

    def abandon(self, stream: Stream, calls: Range | None = None, *, stop: bool = False) -> None:
        """Cancel calls without waiting."""


class FutureEngine(DrivenEngine, Protocol):
    """The engine of a future (federation.engine.engine), as far as futures need it."""

    futures_lock: threading.RLock

    @property
    def cancels(self) -> FutureCancels:
        """Cancels calls."""


class TaskFuture(WaitedInLoops[T]):
    """The future of one task: a real concurrent.futures.Future that can cancel on the grid.

    Attributes:
        job: the id of the job that the task belongs to.
        task: its number in that job.
    """

    _end_text = ""  # of a cancelled task: the user who did it

    def __init__(self, engine: FutureEngine, stream: Stream) -> None:
        # Replaces Future.__init__, which makes a lock for every future, at half the cost of a
        # submit. This class makes the lock on first use. A test compares the attributes.
        self._own: threading.Condition | None = None
        self._state = "PENDING"
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._engine = engine
        self._stream = stream
        self.task = -1

    def placed(self, stream: Stream, task: int) -> None:
        """Record that the future is call `task` of this job from now on. For the engine."""
        self._stream, self.task = stream, task

    if TYPE_CHECKING:  # an attribute, as in the standard library: its `as_completed` asks for one
        _condition: threading.Condition
    else:

        @property
        def _condition(self) -> threading.Condition:
            """The condition under which the standard library registers waiters and callbacks."""
            own = self._own
            if own is None:
                with self._engine.futures_lock:
                    own = self._own = self._own or threading.Condition()
                if self._engine.is_of_task and not self.done():
                    self._engine.background.note(self)
            return own

    @property
    def is_waited_for(self) -> bool:
        """Whether a function of the standard library waits for it. For the engine."""
        return bool(self._waiters)

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Set the outcome: directly while the lock is unused, otherwise as any future does."""
        with self._engine.futures_lock:
            if self._own is None:
                if self._state == "PENDING":
                    self._result, self._exception = result, error
                    self._state = "FINISHED"
                return
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(result)

    def told_end(self, text: str) -> None:
        """Remember by whom the task is cancelled. For the engine."""
        if self._state == "PENDING":
            self._end_text = clean(text)[:HEADLINE_CHARS_MAX]

    def _cancelled(self) -> concurrent.futures.CancelledError:
        if not self._end_text:
            return concurrent.futures.CancelledError()
        text = f"task {self.task} of job {self.job}: {self._end_text}"
        return concurrent.futures.CancelledError(text)

    def done(self) -> bool:
        """Whether the task has a result, has failed, or was cancelled."""
        return self._state not in ("PENDING", "RUNNING")

    def running(self) -> bool:
        """Whether the task runs now, as far as its gateway knows.

        Asks the gateway, at most twice a second for all tasks of a job, and waits for its answer
        for at most two seconds. Workers report a task that has run for a quarter of a second. A
        task that was handed to another site counts as running. A task whose worker was lost is not
        running until it begins again.
        """
        return not self.done() and is_running(self._engine, self._stream, self.task)

    def why_waiting(self) -> str:
        """Return why tasks of its job wait, in one sentence; empty if this task does not wait.

        Asks the gateway, and waits up to two seconds for its answer.
        """
        return "" if self.done() or self.running() else why_waiting(self._engine, self._stream)

    # Of a future that is an argument of a call: its result as it came, and why it has none.
    is_input = False
    is_inner = False  # only other calls need its result: it is not opened here
    packed: bytes | None = None
    lost: InputFailure | None = None

    @property
    def node(self) -> tuple[str, int]:
        """The id of its job, and its number there."""
        return self._stream.id, self.task

    @property
    def stream(self) -> Stream:
        """Its job, in the client's books."""
        return self._stream

    @property
    def label(self) -> DataLabel:
        """Where its result may lie, as far as this client knows."""
        return self._stream.label

    @property
    def engine(self) -> FutureEngine:
        """The engine of its client."""
        return self._engine

    def as_input(self) -> InputValue | InputFailure | None:
        """Return what it gives to a call; None: it has not ended. For the engine."""
        if self.lost is not None:
            return self.lost
        if not self.done():
            return None
        if self.packed is not None:
            return InputValue(self.packed)
        if self.cancelled():
            return InputFailure(f"{self._title()} was cancelled")
        if self._exception is not None:
            return self._as_failure(self._exception)
        found: Any = self._result
        if isinstance(found, ObjectRef):
            return LeftResult(found.objects, found.lease).as_input()
        if isinstance(found, LeftResult):
            return found.as_input()
        try:
            self.packed = seal_value(found)
        except SerializationError as error:
            return InputFailure(str(error))
        return InputValue(self.packed)

    def _as_failure(self, error: BaseException) -> InputFailure:
        cause, text = error, f"{self._title()} failed: {type(error).__name__}: {error}"
        if isinstance(error, DependencyFailed):
            cause, text = error.__cause__ or error, str(error)
        text = headline(text)
        return InputFailure(text, seal_exception(cause, text, EXCEPTION_BYTES_MAX))

    def _title(self) -> str:
        return f"task {self.task} of job {self.job} ({self._stream.opening.name}), which it needs,"

    def __reduce__(self) -> tuple[Any, ...]:
        """Stand for its result among the arguments of a call of its client."""
        self.is_input = True
        found = reduced_input(self)
        if self.done():
            self.as_input()  # as it is now: it may be changed before the call is sent
        return found

    def __dask_tokenize__(self) -> tuple[str, str, int]:
        """Return what is the same for the same future: Dask names collections by it."""
        return "gridfed", self._stream.id, self.task

    def __copy__(self) -> "TaskFuture[T]":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "TaskFuture[T]":
        return self

    def __repr__(self) -> str:
        return f"<TaskFuture: task {self.task} of job {self._stream.id}, {self._state.lower()}>"

    @property
    def job(self) -> str:
        """The id of the task's job."""
        return self._stream.id

    def __await__(self) -> Generator[Any, Any, T]:
        """Wait for the result in an event loop, asyncio's or trio's, which goes on meanwhile.

        A task that is cancelled while it waits cancels the call, also a running one.
        """
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        if not self.done() and self._engine.is_foreign:
            return self.result()  # raises
        with helped(self._engine, self, self.done, may_help=not self.is_input):
            await until_done(self, self._abandon)
        return self.result()

    def _abandon(self) -> None:
        """Cancel the call without waiting for the gateway, running or not."""
        self._engine.cancels.abandon(self._stream, (self.task, self.task + 1), stop=True)

    def cancel(self, *, stop: bool = False) -> bool:
        """Cancel the task if it has not started; with `stop`, also end it if it is running.

        Asks the gateway and waits for its answer for at most two seconds. Returns True if the task
        will give no result.
        """
        if self.cancelled():
            return True
        if self.done():
            return False
        span = (self.task, self.task + 1)
        if self._engine.cancels.calls(self._stream, [span], stop=stop, timeout_s=ANSWER_S):
            with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError):
                super().exception(ANSWER_S)  # another thread may be about to set it
        return self.cancelled()

    def result(self, timeout: Length | None = None) -> T:
        """Wait for the task and return its result, or raise the exception that the task raised.

        After a KeyboardInterrupt during the wait, the task is cancelled, and stopped if it is
        running, as soon as nothing refers to the future any more. An interrupted
        `submit(f).result()` in a notebook cell thus leaves nothing in a slot. A future that is kept
        can be asked again.
        """
        timeout = None if timeout is None else read_timeout(timeout)
        try:
            self._wait(timeout)
            if self._state == "FINISHED" and self._exception is None:
                found = self._result
                if type(found) is LeftResult:  # another thread may open it meanwhile, too
                    self._result = found = opened(found, self._stream.opening.results)
                return cast("T", found)
            return super().result(timeout=0 if timeout is not None else None)
        except concurrent.futures.CancelledError:
            raise self._cancelled() from None
        finally:
            del self  # a traceback through this frame must not keep the future alive

    def exception(self, timeout: Length | None = None) -> BaseException | None:
        """Wait for the task and return the exception that it raised, or None."""
        timeout = None if timeout is None else read_timeout(timeout)
        try:
            self._wait(timeout)
            return super().exception(timeout=0 if timeout is not None else None)
        except concurrent.futures.CancelledError:
            raise self._cancelled() from None
        finally:
            del self  # as above

    def _wait(self, timeout: float | None) -> None:
        # The waiting thread drives the connection itself, so that no other thread has to be woken.
        try:
            if not self.done() and not self._engine.closed:
                # As an input, it is needed by calls at the gateway: it must not be taken back.
                may_help = not self.is_input
                drive(self._engine, self, self.done, timeout, may_help=may_help)
            if timeout is not None and not self.done():
                raise TimeoutError(
                    f"task {self.task} of job {self.job} has no result after {timeout:g} s; "
                    "`why_waiting()` of its future tells if it waits, and for what"
                )
        except KeyboardInterrupt as interrupt:
            self.let_go(interrupt)
            raise
        finally:
            del self  # as above

    def let_go(self, interrupt: KeyboardInterrupt) -> None:
        """Cancel the task once nothing refers to the future; the traceback does not count.

        For an interrupt during the submit or the wait.
        """
        self._engine.cancels.loosen(self._stream, self.task)
        traceback.clear_frames(interrupt.__traceback__)


add_plain(TaskFuture)


def helped_all(futures: Iterable[Any]) -> contextlib.AbstractContextManager[None]:
    """Return a block in which a task waits for any of these futures, and helps with their calls."""
    calls = [each for each in futures if isinstance(each, TaskFuture) and not each.is_input]
    engine = next((each.engine for each in calls if each.engine.is_of_task), None)
    if engine is None:
        return contextlib.nullcontext()
    own = [each for each in calls if each.engine is engine]
    left = lambda: [(each.stream, each.task) for each in own if not each.done()]  # noqa: E731
    return engine.background.waiting(left)


def abandon_all(futures: Iterable[TaskFuture[Any]]) -> None:
    """Cancel calls without waiting for the gateway, running ones too."""
    found: dict[Stream, tuple[FutureEngine, RangeSet]] = {}
    for future in futures:
        if not future.done():
            _, tasks = found.setdefault(future.stream, (future.engine, RangeSet()))
            tasks.add(future.task, future.task + 1)
    for stream, (engine, tasks) in found.items():
        for calls in tasks:
            engine.cancels.abandon(stream, calls, stop=True)


def show(text: str, stream: int = STDOUT) -> None:
    """Print the output of a task to the same stream here, if this process can."""
    try:
        progress.show(text, stream)
    except (OSError, ValueError) as error:
        _log.warning("the output of a task can't be shown: %s", error)


def resolve_all(resolved: "deque[tuple[Any, Outcome]]") -> None:
    """Resolve the futures that wait in a queue; other threads may do so at the same time.

    A future may be held by a weak reference; one that is gone is skipped.
    """
    while resolved:
        try:
            held, outcome = resolved.popleft()
        except IndexError:
            return  # another thread was quicker
        future = held() if isinstance(held, weakref.ref) else held
        if future is None:
            continue
        try:
            resolve(future, outcome)
        except BaseException:
            # A callback, or Ctrl-C: the next thread continues, with this future first.
            if not future.done():
                resolved.appendleft((future, outcome))
            raise


def screen(
    values: list[Any],
    failures: list[list[Any]],
    sites: Collection[str],
    trusted: Collection[str] | None,
) -> list[Outcome]:
    """Convert the values and failures of a message to outcomes; `values` is changed in place.

    If a site is not `trusted` (None: all are), nothing is left to unpickle: its results become
    failures, its exceptions text.
    """
    outcomes: list[Any] = values
    strangers = [] if trusted is None else [site for site in sites if site not in trusted]
    if strangers:
        names = ", ".join(strangers)
        reason = (
            f"the result came through {names}, which this client does not trust (trusted_sites)"
        )
        outcomes[:] = [Ended("untrusted", reason)] * len(values)
    for offset, kind, text, payload in failures:
        if offset < len(outcomes):
            outcomes[offset] = Ended(kind, text, b"" if strangers else payload)
    return outcomes


def resolve(future: Any, outcome: Outcome) -> None:
    """Give a future its outcome; one that has been cancelled stays cancelled."""
    try:
        if type(outcome) is LeftResult:
            future.finish(outcome, None)
        elif type(outcome) is bytes:
            if getattr(future, "is_input", False):
                future.packed = outcome  # calls that are sent again need it
                if future.is_inner:
                    future.finish(None, None)
                    return
            try:
                value = open_result(outcome)
            except SerializationError as error:
                future.finish(None, error)
            else:
                future.finish(value, None)
        elif isinstance(outcome, Ended) and outcome.kind == "cancelled":
            future.told_end(outcome.text)
            if future.cancelled() or concurrent.futures.Future.cancel(future):
                future.set_running_or_notify_cancel()
        elif isinstance(outcome, Ended):
            future.finish(None, failure_of(outcome, future.task, future.job, results_of(future)))
    except concurrent.futures.InvalidStateError:
        return  # it was resolved already: exactly once is kept


def results_of(future: Any) -> str:
    """Return the option `results` with which a future's job was opened."""
    return str(future._stream.opening.results)


def opened(outcome: Any, results: str) -> Any:
    """Return the value of an outcome of a job with these `results` (federation.objects.left).

    Raises ObjectLost, ObjectRefused, SerializationError.
    """
    if type(outcome) is not LeftResult:
        return open_result(outcome)
    return outcome.reference() if results == REF else outcome.open()
