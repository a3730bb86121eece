"""Autoscaling of a rented pool: the slots to start and to release, with reasons. Pure.

*Growing.* A pool grows with the work there is, not to a ratio. Any number of slots does W
slot-seconds of work for the same money, but each started slot has an overhead: it is paid for while
it starts, while it stands idle before it is released, and to the end of its billing step. So more
slots mean a sooner and dearer result; `waste` says how much dearer it may be:

    o = start + idle + step / 2          slot-seconds that one more slot wastes
    n = waste · W' / o                   slots whose waste is that part of the work, …
    n ≤ open tasks                       … and no more than have something to do
    n ≥ slots that do W_d by d           the work that is due by d, for each d: an existing slot
                                         does d - now of it, in whole tasks; a starting one as
                                         much less as it still needs; a new one d - now - start

W' is the work that is left when new slots could be ready: work done by then needs none. No slot is
started for a deadline before which it could not be ready. Work whose owner prefers speed to a low
price (`haste`) justifies more waste.

*Shrinking.* The time of the next work is unknown. Releasing a slot once its idle time has cost as
much as another start pays at most twice the optimum with perfect foresight (the rent-or-buy
problem: Karlin, Manasse, McGeoch and Owicki 1994); so `idle` defaults to the start time. Slots that
are billed by the hour are released at the end of a paid hour. Idle slots are released before busy
ones, and busy ones only where the pool must become smaller: those that lose least. Each is drained
first.

Draining slots that still work are taken back when they are wanted again: that is sooner and cheaper
than a start.

*Limits.* Starts and stops are limited per minute in all cases, and to the capacity of the grid.
Failed starts cause a growing back-off; a failure that only a change can fix stops all starts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf
from typing import Final, NamedTuple

from federation.clocks import UtcS
from federation.words import count, duration_text
from policies.placement.asks import Objective
from policies.tariffs import HOUR_NS, cost_nanos

MINUTE_S: Final = 60.0
# The next billing step is decided this long before the end of a paid one.
STEP_LEAD_S: Final = 30.0
PAUSE_MIN_S: Final = 10.0  # after one failed start; doubles with each further one, …
PAUSE_MAX_S: Final = 900.0  # … up to this
HASTE_MAX: Final = 10.0  # the factor on waste for work that is wanted soon at any price


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """A pool's limits on growing and shrinking, from its owner's configuration.

    Attributes:
        slots_min: slots that are always kept.
        slots_max: the maximum of slots.
        pilot_slots: slots of one pilot.
        waste: the cost of starting and idling, as a part of the work; over zero.
        idle_s: how long a pilot without work is kept; None: as long as a start takes.
        step_s: the billing step; 0: by the second.
        starts_max, stops_max: of pilots, within a minute.
        hourly_nanos: the maximum cost of all slots together in an hour; None: no limit.
    """

    slots_max: int
    slots_min: int = 0
    pilot_slots: int = 1
    waste: float = 0.1
    idle_s: float | None = None
    step_s: float = 0.0
    starts_max: int = 100
    stops_max: int = 100
    hourly_nanos: int | None = None


class PilotStage(StrEnum):
    """The stage of a pilot."""

    QUEUED = "queued"  # submitted to the grid, not begun: it costs nothing
    STARTING = "starting"  # it is paid for, and its worker has not connected
    READY = "ready"
    DRAINING = "draining"  # it gets no more tasks, and is stopped when it has none


@dataclass(frozen=True, slots=True)
class Pilot:
    """A worker that a grid runs, or will run, for this site.

    Attributes:
        since_s: when this stage began; for a ready pilot without work, when it became idle.
        paid_since_s: since when it is paid for; None: it is not.
        busy: its busy slots.
        lost_s: the work that is lost if it is stopped now: the total run time of its tasks.
        can_return: it drains by this site's choice alone, and can be given work again.
        ends_at_s: when its grid will stop it; None: never.
    """

    name: str
    stage: PilotStage
    slots: int
    since_s: UtcS
    paid_since_s: UtcS | None = None
    busy: int = 0
    lost_s: float = 0.0
    can_return: bool = False
    ends_at_s: UtcS | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it is ready and has no tasks."""
        return self.stage is PilotStage.READY and not self.busy


@dataclass(frozen=True, slots=True)
class PoolWork:
    """The work of a pool: the tasks that the broker would run there, and nowhere else.

    Attributes:
        tasks: that wait there or run.
        slot_s: slot-seconds that they still need, in all. Where counted resources let a pilot run
            fewer tasks at once than it has slots, this includes the slots that stand idle
            meanwhile.
        spread: slots beyond one per task that they would occupy all at once; negative: fewer,
            because their owners may not have more.
        running_s: slot-seconds of it that workers have already.
        due: (moment, tasks, their seconds) of the part of the queue that must be done by then.
        haste: the mean importance of finishing soon: see `haste`.
        owed: slots that were sold, as far as there are tasks for them.
        stranded: further tasks that wait here and that no pilot could run, of `stranded_jobs`;
            `stranded_why`: in words.
        kept: slots that are reserved, or will be when a start would end, and have no task. Queued
            tasks that these will run are not in `tasks`.
        least_s: the shortest duration of a queued task, as far as is known.
    """

    tasks: int = 0
    slot_s: float = 0.0
    running_s: float = 0.0
    due: tuple[tuple[UtcS, int, float], ...] = ()
    haste: float = 1.0
    owed: int = 0
    spread: int = 0
    stranded: int = 0
    stranded_why: str = ""
    stranded_jobs: tuple[str, ...] = ()
    kept: int = 0
    least_s: float = 0.0

    @property
    def at_once(self) -> int:
        """Slots that all of it could keep busy at once."""
        return self.tasks + self.spread


@dataclass(frozen=True, slots=True)
class ScalingHistory:
    """The recent history of a pool.

    Attributes:
        starts, stops: the moments of the last minute, one for each pilot.
        failures: failed starts since the last success.
        failed_at_s: the time of the last failure.
        start_s: the duration of a start, as measured, or as its owner expects.
        price_nanos: the cost of a slot-hour to this site, as far as is known.
        attainable: slots that the grid could give beyond those ready or starting; None: unknown.
        barred: why nothing is started until an operator has fixed a problem; empty: no bar.
    """

    start_s: float
    starts: Sequence[UtcS] = ()
    stops: Sequence[UtcS] = ()
    failures: int = 0
    failed_at_s: UtcS = UtcS(-inf)
    price_nanos: int = 0
    attainable: int | None = None
    barred: str = ""


@dataclass(frozen=True, slots=True)
class ScalingOrders:
    """The actions to take now.

    Attributes:
        wanted: the target number of slots.
        start: how many pilots to start.
        cancel: pilots that have not begun to work, by name: they are stopped at once.
        drain: pilots to give no more tasks, by name.
        undrain: draining pilots to take back, by name.
        why: in words, one reason for each action taken or omitted.
    """

    wanted: int
    start: int = 0
    cancel: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    undrain: tuple[str, ...] = ()


class PoolGrowth(NamedTuple):
    """The capacity that a pool could add, for the planner.

    Attributes:
        slots: that could be started.
        start_s: the duration of a start.
        slot_work_s: slot-seconds of work that justify one more slot.
        pilot_slots: slots that start together; peers are not told this.
    """

    slots: int
    start_s: float
    slot_work_s: float
    pilot_slots: int = 1

    def beside(self, warm: int, tasks: int, task_s: float, objective: Objective) -> int:
        """Return how many slots would be started for tasks, beside those that are ready.

        Work that the ready slots do during a start needs no new ones.
        """
        left_s = tasks * task_s - warm * self.start_s
        if warm and left_s <= 0:
            return 0
        return self.for_work(left_s, tasks, objective)

    def for_work(self, slot_s: float, tasks: int, objective: Objective) -> int:
        """Return how many slots would be started for so many tasks of work: in whole pilots."""
        worth_s = slot_s * haste(objective)
        slots = _slots_worth(worth_s, self.slot_work_s, min(self.slots, tasks))
        return min(self.slots, _whole(slots, self.pilot_slots))


NO_GROWTH: Final = PoolGrowth(0, 0.0, 0.0)


def haste(objective: Objective) -> float:
    """Return the factor on the usual waste: 1.0 where only money or carbon counts."""
    whole = objective.time + objective.money + objective.carbon
    return 1.0 + (HASTE_MAX - 1.0) * objective.time / whole


def _slots_worth(worth_s: float, each_s: float, most: int) -> int:
    """Return how many slots of cost `each_s` the work is worth: at least one, at most `most`.

    Other sites' figures, or a start that takes no time, can make the quotient overflow.
    """
    return most if worth_s >= most * each_s else max(1, int(worth_s / each_s))


def _whole(slots: int, pilot_slots: int) -> int:
    """Round slots up to whole pilots."""
    return -(-slots // pilot_slots) * pilot_slots


def growth(
    rules: ScalingRules, past: ScalingHistory, there: int, coming: int, utc_s: UtcS
) -> PoolGrowth:
    """Return the capacity that a pool could add.

    Args:
        there: slots that are ready now.
        coming: slots that are starting.
    """
    slots, attainable = slots_max(rules, past) - there, past.attainable
    if past.barred or _rest_s(past, utc_s) > 0:
        attainable = 0
    if attainable is not None:
        slots = min(slots, coming + attainable)
    per_slot_s = overhead_s(rules, past.start_s)
    return PoolGrowth(max(0, slots), past.start_s, per_slot_s / rules.waste, rules.pilot_slots)


def attend(
    rules: ScalingRules, pilots: Iterable[Pilot], work: PoolWork, past: ScalingHistory, utc_s: UtcS
) -> ScalingOrders:
    """Decide the actions for a pool now.

    Args:
        pilots: all of this site's pilots that the grid has.
    """
    known = list(pilots)
    spent: list[str] = []
    active: list[Pilot] = []
    for each in known:
        if _is_spent(rules, each, work, past, utc_s):
            spent.append(each.name)
        elif each.stage is not PilotStage.DRAINING:
            active.append(each)
    wanted, why = _wanted(rules, active, work, past, utc_s)
    said = [why]
    if spent:
        said.append(f"{count(len(spent), 'pilot')} would end before any queued task: draining")
    if work.stranded:
        tasks = count(work.stranded, "task")
        said.append(f"no slots are started or kept for {tasks} more: {work.stranded_why}")
    there = sum(each.slots for each in active)
    stops = _left_of(rules.stops_max, past.stops, utc_s)
    if there < wanted:
        room = slots_max(rules, past) - sum(each.slots for each in known)
        undrain, back = _taken_back(known, wanted - there)
        if undrain:
            drains = count(len(undrain), "drain")
            said.append(f"{drains} cancelled: the slots are needed again")
        start, limit = _starts(rules, wanted - there - back, room, past, utc_s)
        let_go, why_all = tuple(spent[:stops]), (*said, *limit)
        return ScalingOrders(wanted, start, drain=let_go, why=why_all, undrain=tuple(undrain))
    cancel, drain = _released(rules, active, wanted, work, past, utc_s)
    drain = [*spent, *drain]
    limited = len(cancel) + len(drain) > stops
    cancel = cancel[:stops]
    drain = drain[: stops - len(cancel)]
    said += (
        [f"{count(len(cancel), 'pilot')} cancelled before the start: not needed"] if cancel else []
    )
    said += [f"{count(len(drain), 'pilot')} draining"] if drain else []
    said += [f"the limit of {rules.stops_max} stops a minute is reached"] if limited else []
    return ScalingOrders(wanted, 0, tuple(cancel), tuple(drain), tuple(said))


def overhead_s(rules: ScalingRules, start_s: float) -> float:
    """Return the slot-seconds that one more slot is expected to waste: o above."""
    return start_s + _idle_s(rules, start_s) + rules.step_s / 2


def _idle_s(rules: ScalingRules, start_s: float) -> float:
    return start_s if rules.idle_s is None else rules.idle_s


def _wanted(
    rules: ScalingRules, active: Sequence[Pilot], work: PoolWork, past: ScalingHistory, utc_s: UtcS
) -> tuple[int, str]:
    """Return how many slots there should be, and why."""
    ready = sum(each.slots for each in active if each.stage is PilotStage.READY)
    ready = max(0, ready - work.kept)
    left_s = max(0.0, work.slot_s - ready * past.start_s)
    slots, why = 0, "at rest: the pool grows when it has work"
    if active:
        why = (
            f"no work: slots that are idle for {duration_text(_idle_s(rules, past.start_s))} "
            "are released"
        )
    if work.tasks:
        slots = min(ready, work.at_once)
        why = (
            f"{count(slots, 'slot')}: the present slots finish all {work.slot_s:,.0f} "
            f"slot-s of work before new ones start, which takes {duration_text(past.start_s)}"
        )
    if work.tasks and (left_s or not ready):
        slots, why = _worth(rules, work, left_s, past.start_s)
    if work.owed > slots:
        slots, why = work.owed, f"{count(work.owed, 'slot')}: sold to other sites"
    for due_s, slots_due in _by_deadline(active, work, past, utc_s):
        if slots_due > slots:
            slots = slots_due
            in_s = due_s - utc_s
            why = (
                f"{count(slots, 'slot')}: needed for the work that is due in {duration_text(in_s)}"
            )
    if work.kept:
        slots = max(slots, sum(each.busy for each in active)) + work.kept
        why = f"{count(slots, 'slot')}: {work.kept:,} reserved, in addition to the busy ones"
    if slots < rules.slots_min:
        slots, why = rules.slots_min, f"the minimum of {count(rules.slots_min, 'slot')} is kept"
    whole = _whole(slots, rules.pilot_slots)
    if whole != slots:
        why = f"{why}; rounded to {count(whole, 'slot')} in whole pilots of {rules.pilot_slots}"
    most = slots_max(rules, past)
    if whole > most:
        limit = "" if most == rules.slots_max else ", as more would exceed hourly_cost"
        return most, f"{why}; the limit is {count(most, 'slot')}{limit}"
    return whole, why


def _worth(rules: ScalingRules, work: PoolWork, left_s: float, start_s: float) -> tuple[int, str]:
    """Return how many slots the uncovered work is worth, and the figures behind that."""
    each_s = overhead_s(rules, start_s)
    slots = _slots_worth(rules.waste * work.haste * left_s, each_s, work.at_once)
    wasted = [f"{start_s:,.3g} to start", f"{_idle_s(rules, start_s):,.3g} idle"]
    if rules.step_s:
        wasted.append(f"{rules.step_s / 2:,.3g} to the end of a billing step")
    hurry = f" x {work.haste:.3g} for urgency" if work.haste > 1 else ""
    done_s, of_work = work.slot_s - left_s, " of work"
    if done_s:
        of_work = (
            f" not yet covered ({work.slot_s:,.0f} in all, {done_s:,.0f} done by the "
            "present slots before new ones start)"
        )
    figures = (
        f"waste {rules.waste:g}{hurry} x {left_s:,.0f} slot-s{of_work} / {each_s:,.3g} s for each "
        f"start ({', '.join(wasted)})"
    )
    if slots == work.at_once:
        bound = (
            "number of queued tasks"
            if work.spread >= 0
            else "number that their owners may use or can pay"
        )
        return slots, f"{count(slots, 'slot')}, limited to the {bound}: {figures}"
    return slots, f"{count(slots, 'slot')}: {figures}; raise waste for more"


def slots_max(rules: ScalingRules, past: ScalingHistory) -> int:
    """Return the maximum of slots, by number and by cost."""
    if rules.hourly_nanos is None or not past.price_nanos:
        return rules.slots_max
    paid_for = rules.hourly_nanos // cost_nanos(past.price_nanos, HOUR_NS)
    return min(rules.slots_max, paid_for // rules.pilot_slots * rules.pilot_slots)


def _by_deadline(
    active: Sequence[Pilot], work: PoolWork, past: ScalingHistory, utc_s: UtcS
) -> Iterable[tuple[UtcS, int]]:
    """Yield for each due time the slots that are needed for all the work due by then.

    Slots that are ready, or come soonest, are used before new ones.
    """
    if not work.due:
        return
    coming = sorted((_ready_in_s(each, past, utc_s), each.slots) for each in active)
    total_s = work.running_s  # the tasks at workers are done first
    for due_s, tasks, task_s in sorted(work.due):
        total_s += tasks * task_s
        needed, left_s = 0, total_s
        for wait_s, slots in (*coming, (past.start_s, work.at_once)):
            time_s = due_s - utc_s - wait_s
            time_s -= time_s % task_s
            if left_s <= 0 or time_s <= 0:
                break
            some = min(slots, ceil(left_s / time_s))
            needed += some
            left_s -= some * time_s
        yield due_s, min(work.at_once, needed)


def _ready_in_s(pilot: Pilot, past: ScalingHistory, utc_s: UtcS) -> float:
    """Return how long it takes until a pilot is ready, as an estimate."""
    if pilot.stage is PilotStage.READY:
        return 0.0
    return max(0.0, past.start_s - (utc_s - pilot.since_s))


def _starts(
    rules: ScalingRules, slots: int, room: int, past: ScalingHistory, utc_s: UtcS
) -> tuple[int, tuple[str, ...]]:
    """Return how many pilots to start for these slots, and the limit that applies.

    Args:
        room: slots that may be added. Pilots being released count as existing: they cost until they
            are gone.
    """
    wanted = max(0, slots) // rules.pilot_slots
    if not wanted:
        return 0, ()
    if past.barred:
        return 0, ("no pilots are started until the fault is fixed",)
    rest_s = _rest_s(past, utc_s)
    if rest_s > 0:
        return 0, (
            f"{count(past.failures, 'start')} failed: in back-off for {duration_text(rest_s)}",
        )
    limits = [
        (
            _left_of(rules.starts_max, past.starts, utc_s),
            f"the limit of {rules.starts_max} starts a minute is reached",
        ),
        (
            max(0, room) // rules.pilot_slots,
            "draining pilots count until they are gone",
        ),
    ]
    if past.attainable is not None:
        more = count(past.attainable, "slot")
        has = f"the grid can provide {more} more now, whatever the value of max"
        limits.append((past.attainable // rules.pilot_slots, has))
    most, why = min(limits, key=lambda each: each[0])
    return min(wanted, most), (why,) if most < wanted else ()


def _taken_back(known: Iterable[Pilot], slots: int) -> tuple[list[str], int]:
    """Return the draining pilots to take back for these slots, the last first, and their slots."""
    names: list[str] = []
    back = 0
    for each in sorted((each for each in known if each.can_return), key=lambda each: -each.since_s):
        if back >= slots:
            break
        names.append(each.name)
        back += each.slots
    return names, back


def _rest_s(past: ScalingHistory, utc_s: UtcS) -> float:
    """Return the remaining back-off after failed starts."""
    if not past.failures:
        return 0.0
    pause_s = min(PAUSE_MAX_S, PAUSE_MIN_S * 2.0 ** min(past.failures - 1, 16))
    return past.failed_at_s + pause_s - utc_s


def _released(
    rules: ScalingRules,
    active: Sequence[Pilot],
    wanted: int,
    work: PoolWork,
    past: ScalingHistory,
    utc_s: UtcS,
) -> tuple[list[str], list[str]]:
    """Return the pilots to cancel, and those to drain."""
    there = sum(each.slots for each in active)
    over = there - slots_max(rules, past)
    spare = there - max(wanted, min(work.at_once + work.kept, there))
    cancel: list[str] = []
    drain: list[str] = []
    for each in sorted(active, key=_dispensable):
        unneeded = each.stage is PilotStage.QUEUED and there - each.slots >= wanted
        rests = spare >= each.slots and _has_rested(rules, each, past.start_s, utc_s)
        if not (over > 0 or unneeded or rests):
            continue
        (drain if each.stage is PilotStage.READY else cancel).append(each.name)
        there -= each.slots
        over -= each.slots
        spare -= each.slots
    return cancel, drain


def _dispensable(pilot: Pilot) -> tuple[int, float, float]:
    """The sort key by which pilots are released, first the most dispensable."""
    match pilot.stage:
        case PilotStage.QUEUED:
            return 0, -pilot.since_s, 0.0  # the last in the queue
        case PilotStage.STARTING:
            return 1, -pilot.since_s, 0.0
        case _ if pilot.is_idle:
            return 2, float(pilot.since_s), 0.0
        case _:
            return 3, pilot.lost_s, float(pilot.since_s)


def _has_rested(rules: ScalingRules, pilot: Pilot, start_s: float, utc_s: UtcS) -> bool:
    """Whether a pilot has been idle for long enough, and its paid step ends."""
    if not pilot.is_idle or utc_s - pilot.since_s < _idle_s(rules, start_s):
        return False
    if not rules.step_s or pilot.paid_since_s is None:
        return True
    return rules.step_s - (utc_s - pilot.paid_since_s) % rules.step_s <= STEP_LEAD_S


def _is_spent(
    rules: ScalingRules, pilot: Pilot, work: PoolWork, past: ScalingHistory, utc_s: UtcS
) -> bool:
    """Whether an idle pilot will end before any queued task could finish, so that it only costs.

    It must have been idle for the usual time first: possibly all pilots end this soon.
    """
    if pilot.ends_at_s is None or not work.least_s or utc_s + work.least_s < pilot.ends_at_s:
        return False
    return pilot.is_idle and utc_s - pilot.since_s >= _idle_s(rules, past.start_s)


def _left_of(most: int, moments: Iterable[UtcS], utc_s: UtcS) -> int:
    """Return how many of `most` in a minute are left."""
    return max(0, most - sum(utc_s - MINUTE_S < each <= utc_s for each in moments))
