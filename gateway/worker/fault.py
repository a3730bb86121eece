"""Names the task at fault when a slot ends. Pure.

A task can write anything into its slot's cells, and then take the slot down. So the slot's word
decides only between tasks of its current bundle. A slot that had work and claims that it was at
none of it is believed once, if no time has passed that must be charged.
"""

from typing import Final, NamedTuple

from gateway.worker.pieces import SlotBook

# A slot whose channel is broken is killed at once. If it had reported no task for longer than this
# before, the current task has taken the time.
DOUBT_NS: Final = 2 * 10**9


class End(NamedTuple):
    """The known facts of the end of a slot's process."""

    started: int  # the task that it started last, by its word
    is_at_work: bool  # by its word
    doomed: int | None  # the task for which the agent killed it
    is_breached: bool  # its channel was broken, by any of its tasks
    silent_ns: int  # from its last report until its channel was broken
    charged_ns: int  # the charge of its task


def judge(slot: SlotBook, end: End) -> tuple[int, bool]:
    """Return a task of the slot, and whether it is at fault.

    If it is not at fault, no task is: the tasks before it may have run, and are to be tried one by
    one.
    """
    low = slot.unsettled
    if low is None:
        return end.started, False
    bundle = slot.bundles[0]
    is_its_own = low <= end.started < bundle.live
    if end.doomed is not None:
        if end.doomed < low:  # it was reported after all: its successor is innocent
            return (end.started if is_its_own else low), False
        return (end.doomed if end.doomed < bundle.live else low), True
    is_in_doubt = end.is_breached and end.started > low and end.silent_ns < DOUBT_NS
    if is_in_doubt and not bundle.piece.alone:
        return end.started + 1, False
    if is_its_own and (end.is_at_work or end.is_breached):
        return end.started, True
    if end.charged_ns or bundle.piece.alone:
        return low, True
    return (end.started if is_its_own else low) + 1, False
