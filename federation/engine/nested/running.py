"""Runs a call in the task that waits for it, as a slot does (gateway.worker.slot.slot).

Its arguments and its result are copies, and its failure is that of a call at a worker.
"""

import pickle
import sys
import threading
from collections import OrderedDict
from typing import Any, Final

import cloudpickle

from federation.engine.books.streams import Ended
from federation.engine.nested.depth import call_depth, set_call_depth
from federation.payload import NONE, PROTOCOL
from federation.raised import (
    EXCEPTION_BYTES_MAX,
    add_note,
    call_text,
    clip,
    seal_exception,
    traceback_text,
    unpicklable_text,
)
from federation.words import NOTE

DEPTH_MAX: Final = 64  # calls in one another, in one thread
FRAMES_MIN: Final = 300  # of Python's limit, for a call and the client below it
FUNCTIONS_MAX: Final = 64


_functions: OrderedDict[bytes, Any] = OrderedDict()  # by their bodies; a slot keeps them as well
_functions_lock = threading.Lock()


def run_call(body: bytes, payload: bytes, which: str) -> bytes | Ended:
    """Run a call; return its pickled result, or its failure.

    Args:
        body: its pickled function.
        payload: its pickled arguments, without a head.
        which: the call and its job, for people.

    Raises KeyboardInterrupt alone, which ends the task that waits.
    """
    depth = call_depth()
    if depth >= DEPTH_MAX or _is_stack_full():
        return _too_deep(which)
    set_call_depth(depth + 1)
    try:
        return _run(body, payload, f"{which}, in the task that waits for it")
    finally:
        set_call_depth(depth)


def _run(body: bytes, payload: bytes, which: str) -> bytes | Ended:
    opened = "the function"
    function = call = None
    try:
        function = _load(body)
        opened = "the arguments"
        call = pickle.loads(payload)  # noqa: S301 - sealed by this client
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - unpickling runs foreign code
        shown = traceback_text(error).rstrip()
        return Ended("error", clip(f"{opened} of {which} can't be unpickled:\n{shown}"))
    try:
        value = function(*call) if type(call) is tuple else function(*call.args, **call.kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a call may raise anything
        add_note(error, f"{which}: {call_text(function, call)}")
        text = traceback_text(error)
        return Ended("error", text, seal_exception(error, text, EXCEPTION_BYTES_MAX))
    if value is None:
        return NONE
    try:
        data: bytes = cloudpickle.dumps(value, protocol=PROTOCOL)
    except Exception as error:  # noqa: BLE001 - foreign __reduce__ methods may raise anything
        note = f"{NOTE}{which}: {call_text(function, call)}"
        return Ended("result", clip(f"{unpicklable_text(value, error)}\n{note}"))
    return data


def _load(body: bytes) -> Any:
    with _functions_lock:
        if body in _functions:
            _functions.move_to_end(body)
            return _functions[body]
    function = pickle.loads(body)  # noqa: S301 - sealed by this client
    with _functions_lock:
        _functions[body] = function
        while len(_functions) > FUNCTIONS_MAX:
            _functions.popitem(last=False)
    return function


def _is_stack_full() -> bool:
    """Whether so few frames are left that the client itself could fail half way."""
    try:
        sys._getframe(max(1, sys.getrecursionlimit() - FRAMES_MIN))
    except ValueError:
        return False
    return True


def _too_deep(which: str) -> Ended:
    text = (
        f"{which}: {call_depth()} calls that wait for one another run in this task already, as no "
        f"slot was free for them; the limit is {DEPTH_MAX}. Run the deeper calls as plain function "
        "calls, or submit them all from the client and pass their futures as arguments"
    )
    return Ended("error", text, seal_exception(RecursionError(text), text, EXCEPTION_BYTES_MAX))
