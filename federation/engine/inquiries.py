"""What a client asks its gateway about its own calls: whether they run, and why they wait."""

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from federation.engine.books.streams import Stream
from federation.engine.nested.background import BackgroundHelp
from federation.engine.nested.helping import AskingBack, Awaited, HelpingWait
from federation.errors import GridError
from federation.ranges import RangeSet
from federation.words import clean

ANSWER_S: Final = 2.0  # the longest wait for an answer about a call
LOOK_S: Final = 0.5  # the longest age of the facts about running tasks
# A task that waits so long for calls of its own client says why: it keeps a slot meanwhile, and if
# all slots do so none of these calls ever begins.
NESTED_S: Final = 10.0

_log = logging.getLogger("gridfed")


class AskingEngine(Protocol):
    """The engine of a client (federation.engine.engine), as far as its questions need it."""

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that owns the connection."""

    @property
    def takes_work(self) -> bool:
        """Whether new calls are taken."""

    def ask(
        self, verb: str, details: dict[str, Any], timeout_s: float | None = None, at: str = ""
    ) -> Any:
        """Send the gateway a request; return the answer's value. Raises GridError."""


class DrivenEngine(AskingEngine, Protocol):
    """The same, as far as waiting for calls needs it."""

    is_of_task: bool
    has_said_why: bool
    closed: bool
    error: GridError | None

    @property
    def own_calls(self) -> AskingBack:
        """Takes calls back, and runs them here."""

    @property
    def background(self) -> BackgroundHelp:
        """Does so for waits that can't."""

    def drive(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Take messages until `done()`; False when the time runs out first."""


def is_running(engine: AskingEngine, stream: Stream, task: int) -> bool:
    """Whether a call runs, by an answer of the gateway that is at most LOOK_S old.

    Waits up to ANSWER_S for it. False where no gateway answers, or it is too old for the question.
    """
    known = stream.running
    if known is None or time.monotonic() - known[0] >= LOOK_S:
        if engine.is_foreign or not engine.takes_work or stream.rejected:
            return False
        try:
            found = engine.ask("running", {"job": stream.id}, ANSWER_S, stream.home)["running"]
        except GridError:
            found = []
        ranges = RangeSet([(int(low), int(high)) for low, high in found])
        known = stream.running = time.monotonic(), ranges
    return task in known[1]


def why_waiting(engine: AskingEngine, stream: Stream) -> str:
    """Return why the calls of a job wait, in one sentence; empty if none does, or if unknown.

    Asks the gateway, and waits up to ANSWER_S for its answer.
    """
    if engine.is_foreign or not engine.takes_work or not stream.unfinished:
        return ""
    try:
        found = engine.ask("job", {"job": stream.id}, ANSWER_S, stream.home)
    except GridError:
        return ""  # it is shown beside the work, which goes on, or tells of its own trouble
    return clean(str(found.get("waits_for", "")))


def drive(
    engine: DrivenEngine,
    call: Awaited,
    done: Callable[[], bool],
    timeout_s: float | None,
    *,
    may_help: bool,
) -> None:
    """Drive an engine until a call is `done()`, or the time is over.

    In a task the call is run here if it does not begin elsewhere, and if it may: by the waiting
    thread, or beside it where it has a time limit. A task says once why its calls wait.
    """
    if engine.is_of_task and may_help and timeout_s is None:
        wait = HelpingWait(engine, call, done)
        while not wait.drive(NESTED_S) and not engine.closed and engine.error is None:
            say_nested(engine, call.stream)
        return
    with helped(engine, call, done, may_help=may_help):
        _drive(engine, call, done, timeout_s)


def helped(
    engine: DrivenEngine, call: Awaited, done: Callable[[], bool], *, may_help: bool
) -> contextlib.AbstractContextManager[None]:
    """Return a block in which a thread helps with a call for which a task waits."""
    if not engine.is_of_task or not may_help:
        return contextlib.nullcontext()
    return engine.background.waiting(lambda: [] if done() else [(call.stream, call.task)])


def _drive(
    engine: DrivenEngine, call: Awaited, done: Callable[[], bool], timeout_s: float | None
) -> None:
    if says_why(engine) and (timeout_s is None or timeout_s > NESTED_S):
        if engine.drive(done, NESTED_S) or engine.closed or engine.error is not None:
            return
        say_nested(engine, call.stream)
        timeout_s = None if timeout_s is None else timeout_s - NESTED_S
    engine.drive(done, timeout_s)


def says_why(engine: DrivenEngine) -> bool:
    """Whether a client has yet to say why its calls wait: it is a task's, and did not say it."""
    return engine.is_of_task and not engine.has_said_why


def say_nested(engine: DrivenEngine, stream: Stream) -> None:
    """Log, in the output of a task, why the calls of its own client wait; once in a client."""
    if engine.has_said_why:
        return
    engine.has_said_why = True
    why = why_waiting(engine, stream)
    if why:
        _log.warning("this task has waited %g s for calls of its own: %s", NESTED_S, why)
