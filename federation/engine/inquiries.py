"""What a client asks its gateway about its own calls: whether they run, and why they wait."""

import time
from typing import Final

from federation.engine.engine import LEAVE_S, ClientEngine
from federation.engine.streams import Stream
from federation.errors import GridError
from federation.ranges import RangeSet
from federation.words import clean

LOOK_S: Final = 0.5  # the longest age of what is known to run


def is_running(engine: ClientEngine, stream: Stream, task: int) -> bool:
    """Whether a call runs, by an answer of the gateway that is at most LOOK_S old.

    Waits up to LEAVE_S for it. False where no gateway answers, or it is too old for the question.
    """
    known = stream.running
    if known is None or time.monotonic() - known[0] >= LOOK_S:
        if engine.is_foreign or not engine.takes_work or stream.rejected:
            return False
        try:
            found = engine.ask("running", {"job": stream.id}, LEAVE_S, stream.home)["running"]
        except GridError:
            found = []
        ranges = RangeSet([(int(low), int(high)) for low, high in found])
        known = stream.running = time.monotonic(), ranges
    return task in known[1]


def why_waiting(engine: ClientEngine, stream: Stream) -> str:
    """Return why the calls of a job wait, in one sentence; empty if none does, or if unknown.

    Asks the gateway, and waits up to LEAVE_S for its answer.
    """
    if engine.is_foreign or not engine.takes_work or not stream.unfinished:
        return ""
    try:
        found = engine.ask("job", {"job": stream.id}, LEAVE_S, stream.home)
    except GridError:
        return ""  # it is shown beside the work, which goes on, or tells of its own trouble
    return clean(str(found.get("waits_for", "")))
