"""Handles a call's outcome in the client: a result, an exception, a print."""

import logging
import weakref
from collections import deque
from collections.abc import Collection
from concurrent.futures import Future, InvalidStateError
from typing import Any

from federation.engine import progress
from federation.engine.objects import LeftResult
from federation.engine.streams import Ended, Outcome
from federation.errors import (
    FAILURES,
    GatewayUnreachable,
    JobRefused,
    LimitsUnmet,
    ObjectLost,
    RemoteTraceback,
    SerializationError,
    SessionRefused,
)
from federation.messages.printed import STDOUT
from federation.objects.left import REF
from federation.payload import open_result
from federation.raised import add_note, has_note, show_call
from federation.reasons import Reason

_log = logging.getLogger("gridfed")


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
            try:
                value = open_result(outcome)
            except SerializationError as error:
                future.finish(None, error)
            else:
                future.finish(value, None)
        elif isinstance(outcome, Ended) and outcome.kind == "cancelled":
            if future.cancelled() or Future.cancel(future):
                future.set_running_or_notify_cancel()
        elif isinstance(outcome, Ended):
            future.finish(None, failure_of(outcome, future.task, future.job))
    except InvalidStateError:
        return  # it was resolved already: exactly once is kept


def opened(outcome: Any, results: str) -> Any:
    """Return the value of an outcome of a job with these `results` (federation.objects.left).

    Raises ObjectLost, ObjectRefused, SerializationError.
    """
    if type(outcome) is not LeftResult:
        return open_result(outcome)
    return outcome.reference() if results == REF else outcome.open()


def failure_of(ended: Ended, task: int, job: str) -> BaseException:
    """Return the exception of a failed call, with a note that says which call it is.

    A worker adds one that names itself too; this is for failures that no worker has noted.
    """
    error = exception_of(ended)
    if ended.kind in FAILURES and not has_note(error):
        add_note(error, f"task {task} of job {job}{_call(ended.arguments)}")
    return error


def _call(arguments: bytes) -> str:
    if not arguments:
        return ""
    try:
        call = open_result(arguments)
    except SerializationError:
        return ""  # it can be opened at a worker alone
    args, kwargs = (call, {}) if type(call) is tuple else (call.args, call.kwargs)
    return ": the call with " + show_call("", args, kwargs)


def exception_of(ended: Ended) -> BaseException:
    """Return the exception that a failed call raises in the client."""
    if ended.kind.startswith("refused"):
        _, _, code = ended.kind.partition(":")
        if not code:
            return SessionRefused(ended.text)
        if code == Reason.LIMITS_UNMET:
            return LimitsUnmet(ended.text, ended.offers)
        return JobRefused(ended.text, code)
    if ended.kind == "object":
        return ObjectLost(ended.text)
    if ended.kind == "unreachable":
        return GatewayUnreachable(ended.text)
    if ended.payload:
        try:
            error = open_result(ended.payload)
        except SerializationError:
            error = None
        if isinstance(error, BaseException):
            error.__cause__ = RemoteTraceback(ended.text)
            return error
    return FAILURES.get(ended.kind, FAILURES["error"])(ended.text)
