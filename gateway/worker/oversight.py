"""What the clock says of slots: time limits, memory limits, notices, silence; and their pulse."""

from collections.abc import Sequence
from typing import Any, Final

from gateway.worker.limits import describe_memory
from gateway.worker.pieces import SlotBook, Terms
from gateway.worker.process import NOBODY, Doom, SlotProcess
from gateway.worker.roster import Roster

START_MAX_NS: Final = 120 * 10**9  # of a slot: a busy host, and a container that is unpacked
QUIET_MAX_NS: Final = 5 * 10**9
# A task that has run for so long is told to have begun. Shorter ones are reported instead: telling
# of each would cost as much as its result.
BEGUN_S: Final = 0.25


def oversee(
    roster: Roster, processes: Sequence[SlotProcess], limit_bytes: int, now_ns: int
) -> None:
    """Look after all slots: end the process of one where it, or its task, is over a limit.

    `limit_bytes` is each slot's memory, 0 for no limit.
    """
    for slot, process in zip(roster.slots, processes, strict=True):
        _oversee_one(roster, slot, process, limit_bytes, now_ns)


def _oversee_one(
    roster: Roster, slot: SlotBook, process: SlotProcess, limit_bytes: int, now_ns: int
) -> None:
    started, busy_s = process.started, process.busy_s(now_ns)
    running = roster.running(slot, started) if busy_s else None
    limit_s = running[0].timeout_s if running else None
    if limit_s is not None and busy_s > limit_s:
        text = f"it ran over its time limit of {limit_s:g} s and was stopped"
        process.kill(Doom(started, "timeout", text))
    if running:
        _heed_notice(roster, process, started, running, now_ns)
    if busy_s or not slot.chunks or process.is_sending:
        process.quiet_since_ns = now_ns
    elif now_ns - process.quiet_since_ns > QUIET_MAX_NS:
        # It has work, is at none, and says nothing: a report was garbled on its way.
        process.distrust()
    if slot.home.site and slot.is_ready and not slot.chunks and process.has_strays:
        process.kill()  # another site's work is over when its tasks are
    if not slot.is_ready and now_ns - process.born_ns > START_MAX_NS:
        process.kill(Doom(NOBODY, "environment", f"it did not start in {START_MAX_NS / 1e9:g} s"))
    used_bytes = process.memory_bytes() if limit_bytes else 0
    if used_bytes > limit_bytes or process.lost_memory:
        # What a task has left behind is not the fault of the next one.
        number = started if running else NOBODY
        text = describe_memory(used_bytes, limit_bytes)
        if used_bytes <= limit_bytes:
            text = f"it used more memory than its slot may, {limit_bytes:,} bytes"
        process.kill(Doom(number, "memory", text))


def _heed_notice(
    roster: Roster, process: SlotProcess, started: int, running: tuple[Terms, int], now_ns: int
) -> None:
    """Stop a task whose slot is needed, when the time that it was given is over."""
    stops_ns = roster.stops_ns(running[0].assignment, running[1])
    if stops_ns is None:
        process.tell_stop(NOBODY, 0)
        return
    process.tell_stop(started, stops_ns)
    if now_ns >= stops_ns:
        process.kill(Doom(started, "preempted", "it was stopped to make room for other work"))


def newly_begun(roster: Roster, processes: Sequence[SlotProcess], now_ns: int) -> list[list[int]]:
    """Tasks that have run for a while and that the gateway was not told of, as Begun has them."""
    found = []
    for slot, process in zip(roster.slots, processes, strict=True):
        started, busy_s = process.started, process.busy_s(now_ns)
        if busy_s < BEGUN_S or started == slot.told:
            continue
        running = roster.running(slot, started)
        if running is not None:
            slot.told = started
            found.append([running[0].assignment, running[1], round(busy_s * 1000)])
    return found


def pulse_of(roster: Roster, processes: Sequence[SlotProcess], now_ns: int) -> list[dict[str, Any]]:
    """What each slot is doing, as a Pulse tells it."""
    slots = []
    for slot, process in zip(roster.slots, processes, strict=True):
        busy_s = process.busy_s(now_ns)
        running = roster.running(slot, process.started) if busy_s else None
        state = "running" if running else "idle" if slot.is_ready else "starting"
        slots.append(
            {
                "pid": process.pid,
                "state": state,
                "job": running[0].job if running else "",
                "task": running[1] if running else None,
                "since_s": busy_s if running else 0.0,
                "rss_bytes": process.memory_bytes(),
            }
        )
    return slots
