"""Periodic checks of slots: time limits, memory limits, notices, silence; and their pulse."""

from collections.abc import Sequence
from typing import Any, Final

from federation.words import duration_text, size_text
from gateway.worker.isolation.limits import WHOSE_LIMIT, describe_memory, shared_bytes
from gateway.worker.pieces import AssignmentTerms, SlotBook
from gateway.worker.slot.meter import Moment
from gateway.worker.slot.process import NOBODY, KillReason, SlotProcess
from gateway.worker.task_book import TaskBook

# for a slot: allows for a busy host, and a container that is unpacked
START_MAX_NS: Final = 120 * 10**9
QUIET_MAX_NS: Final = 5 * 10**9
# Time for work to travel to its slot and back. A slot that has not reported a task for longer is
# still at it.
WAY_NS: Final = 5 * 10**9
# A task that has run for this time is reported as begun. Shorter tasks are only reported when they
# end: a message for each would cost as much as its result.
BEGUN_S: Final = 0.25


def busy_s(slot: SlotBook, process: SlotProcess, moment: Moment) -> float:
    """Return how long a slot has been at its task.

    A task can write that it has just begun, or that there is none. So it is at least the time since
    the slot last reported a task, less the travel time, except while a bundle is being sent to it.
    """
    said_s = process.busy_s(moment.now_ns)
    if process.is_sending and len(slot.bundles) == 1:
        return said_s
    return max(said_s, (slot.meter.silent_ns(moment) - WAY_NS) / 1e9)


def oversee(
    task_book: TaskBook, processes: Sequence[SlotProcess], limit_bytes: int, moment: Moment
) -> None:
    """Check all slots: kill the process of one that is over a limit, or whose task is.

    `limit_bytes` is each slot's memory, 0 for no limit.
    """
    for slot, process in zip(task_book.slots, processes, strict=True):
        _oversee_one(task_book, slot, process, limit_bytes, moment)


def _oversee_one(
    task_book: TaskBook, slot: SlotBook, process: SlotProcess, limit_bytes: int, moment: Moment
) -> None:
    now_ns = moment.now_ns
    at_s = busy_s(slot, process, moment)
    number = task_book.at(slot, process.started)
    running = task_book.running(slot, number) if at_s > 0 else None
    limit_s = running[0].timeout_s if running else None
    if limit_s is not None and at_s > limit_s:
        text = f"the task exceeded its time limit of {duration_text(limit_s)} and was stopped"
        process.kill(KillReason(number, "timeout", text))
    if running:
        _heed_notice(task_book, process, number, running, now_ns)
    if not slot.bundles or process.is_sending or _is_at_its_work(slot, process):
        process.quiet_since_ns = None
    elif process.quiet_since_ns is None:
        process.quiet_since_ns = moment.seen_ns
    elif moment.seen_ns - process.quiet_since_ns > QUIET_MAX_NS:
        # It has work, is at none of it, and sends nothing: a report was garbled on its way, or a
        # task has written to its cells.
        process.distrust()
    if slot.home.site and slot.is_ready and not slot.bundles and process.has_strays:
        slot.is_forsaken = True
        process.kill()  # another site's processes end with its tasks
    if not slot.is_ready and now_ns - process.born_ns > START_MAX_NS:
        process.kill(
            KillReason(
                NOBODY,
                "environment",
                f"the slot did not start within {duration_text(START_MAX_NS / 1e9)}",
            )
        )
    used_bytes = process.memory_bytes() if limit_bytes else 0
    if used_bytes > limit_bytes or process.lost_memory:
        # The memory of leftover processes is not the fault of the next task.
        blamed = number if running else NOBODY
        slot.is_forsaken |= slot.is_ready and not slot.bundles
        if used_bytes > limit_bytes:
            text = describe_memory(used_bytes, limit_bytes, shared_bytes(process.pid))
        else:
            text = (
                f"the task exceeded the memory limit of its slot, {size_text(limit_bytes)}, "
                f"{WHOSE_LIMIT}"
            )
        process.kill(KillReason(blamed, "memory", text))


def _is_at_its_work(slot: SlotBook, process: SlotProcess) -> bool:
    """Whether a slot claims to be at a task of its first bundle, as it must be."""
    low, started = slot.unsettled, process.started
    is_its_own = low is not None and low <= started < slot.bundles[0].live
    return is_its_own and process.since_ns > 0


def _heed_notice(
    task_book: TaskBook,
    process: SlotProcess,
    number: int,
    running: tuple[AssignmentTerms, int],
    now_ns: int,
) -> None:
    """Stop a task whose slot is needed, when its grace period is over."""
    stops_ns = task_book.stops_ns(running[0].assignment, running[1])
    if stops_ns is None:
        process.tell_stop(NOBODY, 0)
        return
    process.tell_stop(number, stops_ns)
    if now_ns >= stops_ns:
        process.kill(
            KillReason(number, "preempted", "the task was stopped to make room for other work")
        )


def newly_begun(
    task_book: TaskBook, processes: Sequence[SlotProcess], moment: Moment
) -> list[list[int]]:
    """Return tasks that have run for a while and are not reported yet, in the format of Begun."""
    found = []
    for slot, process in zip(task_book.slots, processes, strict=True):
        at_s = busy_s(slot, process, moment)
        number = task_book.at(slot, process.started)
        if at_s < BEGUN_S or number == slot.told:
            continue
        running = task_book.running(slot, number)
        if running is not None:
            slot.told = number
            found.append([running[0].assignment, running[1], round(at_s * 1000)])
    return found


def pulse_of(
    task_book: TaskBook, processes: Sequence[SlotProcess], moment: Moment
) -> list[dict[str, Any]]:
    """Return the state of each slot, in the format of a Pulse."""
    slots = []
    for slot, process in zip(task_book.slots, processes, strict=True):
        at_s = busy_s(slot, process, moment)
        number = task_book.at(slot, process.started)
        running = task_book.running(slot, number) if at_s > 0 else None
        state = "running" if running else "idle" if slot.is_ready else "starting"
        slots.append(
            {
                "pid": process.pid,
                "state": state,
                "job": running[0].job if running else "",
                "task": running[1] if running else None,
                "since_s": at_s if running else 0.0,
                "rss_bytes": process.memory_bytes(),
            }
        )
    return slots
