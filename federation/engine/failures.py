"""The exceptions that failed calls raise in the client."""

import contextlib
from dataclasses import replace

from federation.engine.books.streams import Ended
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
from federation.objects.room import with_advice
from federation.payload import open_result
from federation.raised import add_note, has_note, show_call
from federation.reasons import Reason


def failure_of(ended: Ended, task: int, job: str, results: str | None) -> BaseException:
    """Return the exception of a failed call, with a note that says which call it is.

    A worker adds one that names itself too; this is for failures that no worker has noted.
    `results` is the option of that name as the job was opened with it; None: it is detached.
    """
    if ended.kind == "result":
        ended = replace(ended, text=with_advice(ended.text, results))
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
    if ended.kind == "dependency":
        return _dependency_failed(ended)
    if ended.payload:
        try:
            error = open_result(ended.payload)
        except SerializationError:
            error = None
        if isinstance(error, BaseException):
            error.__cause__ = RemoteTraceback(ended.text)
            return error
    return FAILURES.get(ended.kind, FAILURES["error"])(ended.text)


def _dependency_failed(ended: Ended) -> BaseException:
    """Return the exception of a call that lacks an input, caused by that of the input."""
    error = FAILURES["dependency"](ended.text)
    if ended.payload:
        with contextlib.suppress(SerializationError):
            cause = open_result(ended.payload)
            if isinstance(cause, BaseException):
                error.__cause__ = cause
    return error
