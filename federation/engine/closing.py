"""How a client ends: submitted work runs to its end, or is dropped and then counted.

As with the executors of the standard library, leaving the `with` block and the interpreter's exit
wait for submitted work; an unread map runs in full. Work is dropped only where the user chose so
(Ctrl-C, `cancel_futures`), where inputs have no length and so perhaps no end, and at the
interpreter's exit if no gateway can be reached. The number of dropped tasks is logged as a warning,
which goes to stderr unless logging is set up.
"""

import contextlib
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from federation.engine.books.streams import Stream
from federation.engine.engine import LEAVE_S, ClientEngine
from federation.engine.nested.background import CALLS_MAX

# A notebook's server kills a kernel five seconds after it was told to end. The client must say
# goodbye before that; otherwise tasks run on until the gateway misses their client.
KERNEL_S: Final = 3.0

_log = logging.getLogger("gridfed")


def wind_up(
    engine: ClientEngine, *, cancel: bool, on_cancelled: Callable[[], object] = lambda: None
) -> None:
    """Cancel unstarted calls, if asked to; run the rest to its end; and close."""
    _take_back(engine, cancel=cancel)
    on_cancelled()
    _run_out(engine)
    engine.close()


def wind_up_later(engine: ClientEngine, *, cancel: bool) -> None:
    """Work as `wind_up`, but return once the cancels are done, or after LEAVE_S."""
    cancelled = threading.Event()
    threading.Thread(
        target=wind_up,
        args=(engine,),
        kwargs={"cancel": cancel, "on_cancelled": cancelled.set},
        name="gridfed-close",
        daemon=True,
    ).start()
    cancelled.wait(LEAVE_S)


def drop(engine: ClientEngine, why: str) -> None:
    """Close at once, and log the number of tasks that are dropped."""
    dropped = _unfinished(engine)
    try:
        engine.close()
    except KeyboardInterrupt:
        engine.let_go()  # the first one is being raised already
    _say(dropped, f"dropped: {why}")


def wind_up_at_exit(engine: ClientEngine) -> bool:
    """Run all work to its end and close, at the interpreter's exit; return False after a Ctrl-C.

    The wait for a lost gateway is at most `failover_s`; a notebook's kernel waits at most KERNEL_S.
    """
    if engine.closed or engine.is_foreign:
        return True
    engine.shut = True
    engine.hurry()
    why = "the client's process ends"
    try:
        _take_back(engine, cancel=False)
        _run_out(engine, KERNEL_S if "ipykernel" in sys.modules else None)
    except KeyboardInterrupt:
        drop(engine, "interrupted while the interpreter waited for them at exit")
        return False
    if engine.error is not None:
        _say(_unfinished(engine) + engine.failed, f"dropped: {engine.error}")
        engine.close()
    else:
        drop(engine, why)
    return True


def _take_back(engine: ClientEngine, *, cancel: bool) -> None:
    """Cancel unstarted calls: all of them if asked to, else those of maps that may have no end."""
    taken = endless = 0
    for feeder in engine.feeders:
        feeder.is_closing = True
        if not cancel and feeder.runs_out:
            continue
        engine.dismiss(feeder)
        if cancel:
            taken += feeder.not_taken
        else:
            endless += feeder.not_taken + engine.cancels.unstarted(feeder.stream)
    for stream in engine.streams if cancel else ():
        taken += engine.cancels.unstarted(stream)
    _say(taken, "cancelled by shutdown(cancel_futures=True) before they started")
    _say(
        endless,
        "of a map cancelled before they started: the client was closed, and a map whose "
        "inputs have no length runs only as far as its results are read. Read the map to "
        "its end, or pass the inputs as a list",
    )


def _run_out(engine: ClientEngine, at_most_s: float | None = None) -> None:
    until_s = math.inf if at_most_s is None else time.monotonic() + at_most_s
    with helped_to_end(engine):
        for feeder in engine.feeders:
            feeder.run_out(until_s)
        for stream in engine.streams:
            engine.close_stream(stream)
        engine.drive(
            lambda: engine.unfinished == 0,
            None if at_most_s is None else max(0.0, until_s - time.monotonic()),
        )


def helped_to_end(engine: ClientEngine) -> contextlib.AbstractContextManager[None]:
    """Return a block in which a task runs calls of its own that do not begin elsewhere."""
    if not engine.is_of_task or not engine.unfinished:
        return contextlib.nullcontext()

    def calls() -> list[tuple[Stream, int]]:
        found = [(each, each.unread_calls(CALLS_MAX)) for each in engine.streams]
        return [(stream, task) for stream, tasks in found for task in tasks]

    return engine.background.waiting(calls)


def _unfinished(engine: ClientEngine) -> int:
    """Return the number of submitted tasks that have not ended, with the unsent inputs of maps."""
    attached = (stream for stream in engine.streams if not stream.opening.detached)
    return sum(stream.unfinished for stream in attached) + sum(
        feeder.not_taken for feeder in engine.feeders
    )


def _say(tasks: int, what: str) -> None:
    if tasks:
        with contextlib.suppress(OSError, ValueError):  # stderr may be closed by now
            _log.warning("%s %s", f"{tasks:,} task{'s' * (tasks != 1)}", what)
