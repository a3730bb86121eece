"""Which task is at fault when a slot ends. Pure.

A task can write what it likes into its slot's cells, and then take the slot down. So the slot's
word decides only between tasks of the chunk that it is at, and a slot that had work and says that
it was at none of it is believed once, when no time has passed that somebody must be charged for.
"""

from typing import Final, NamedTuple

from gateway.worker.pieces import SlotBook

# A slot whose channel is broken is ended at once. When its tasks have said nothing for longer than
# that before, it is the one it is at that has taken the time.
DOUBT_NS: Final = 2 * 10**9


class End(NamedTuple):
    """What is known of the end of a slot's process."""

    started: int  # the last task that it came to, by its word
    is_at_work: bool  # by its word
    doomed: int | None  # the task for which the agent ended it
    is_breached: bool  # its channel was broken, by any of its tasks
    silent_ns: int  # since it told of tasks, until its channel was broken
    charged_ns: int  # what its task must be charged


def judge(slot: SlotBook, end: End) -> tuple[int, bool]:
    """A task of the slot, and whether it is at fault.

    If it is not, nobody is: the tasks before it may have run, and are to be tried one by one.
    """
    low = slot.unsettled
    if low is None:
        return end.started, False
    chunk = slot.chunks[0]
    is_its_own = low <= end.started < chunk.live
    if end.doomed is not None:
        if end.doomed < low:  # it was reported after all: who came after it is innocent
            return (end.started if is_its_own else low), False
        return (end.doomed if end.doomed < chunk.live else low), True
    is_in_doubt = end.is_breached and end.started > low and end.silent_ns < DOUBT_NS
    if is_in_doubt and not chunk.piece.alone:
        return end.started + 1, False
    if is_its_own and (end.is_at_work or end.is_breached):
        return end.started, True
    if end.charged_ns or chunk.piece.alone:
        return low, True
    return (end.started if is_its_own else low) + 1, False
