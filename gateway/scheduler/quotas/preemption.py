"""Preemption: chooses the tasks that must make room, and recalls or stops them. Pure.

There are three reasons, for pools with windows or claims:

- A party's work has more slots than it may have: a window has begun, or the pool has shrunk.
- It will exceed its slots when the next window begins: running tasks are told when they will be
  stopped.
- A party with a guarantee has work and fewer slots than guaranteed: parties above their own
  guarantee release some.

Tasks that have not begun are recalled at once. Running tasks get a `Notice`, and their worker stops
them when it expires: the death of a gateway delays no stop. The tasks that have run for the
shortest time are chosen, so that the least work is lost, and a choice is kept. Each task is taken
to fill a slot, as long tasks do; shorter ones end before they need to be stopped.

For guaranteed work only tasks are stopped in whose place it can run (`room_making`). The slots that
it gets so are kept for it while it has waiting work, and stops that did not help are not repeated
(`call_backs`).
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from typing import Final

from federation.clocks import NEVER_S, UtcS
from federation.messages.messages import Notice
from federation.offers import show_time
from federation.ranges import RangeSet
from federation.words import count
from gateway.scheduler.model import matching
from gateway.scheduler.model.effects import Effect, Remark, SendToWorker
from gateway.scheduler.model.jobs import Assignment, Job, Worker
from gateway.scheduler.quotas import room_making
from gateway.scheduler.quotas.call_backs import CallBacks
from gateway.scheduler.quotas.entitling import Entitling
from gateway.scheduler.quotas.occupancy import Occupancy, PoolOccupancy
from gateway.scheduler.quotas.room_making import GROWTH, TESTS_MAX, RoomHeld, RoomWanted, WorkerRoom
from policies.access.claims import excess, surplus
from policies.access.entitlements import Work
from policies.access.windows import Closing, PoolRules, Window
from policies.parties import Owner
from policies.placement.placement import Need

LOOK_S: Final = 0.2  # between two looks, unless the rules change
MINUTE_S: Final = 60.0
LATE_S: Final = 10.0  # how late a task may stop before it is reported as overdue


@dataclass(slots=True)
class _Stop:
    """Tasks that are stopped at one moment, for a window.

    Attributes:
        is_ahead: the window has not begun.
        is_overdue: their worker has not stopped them; they are not counted on any more.
    """

    window: Window
    stops_at_s: UtcS
    tasks: RangeSet
    is_ahead: bool
    is_overdue: bool = False

    def still_holds(self, rules: PoolRules, utc_s: UtcS) -> bool:
        """Whether other rules also require these tasks to stop by then."""
        if not utc_s < self.stops_at_s:
            return False
        for at, span in enumerate(rules.spans):
            if span.window == self.window:
                from_s = span.from_s if at else rules.begun_at_s
                last_s = max(from_s + self.window.spill_s, utc_s) + self.window.grace_s
                return from_s - self.window.drain_lead_s <= utc_s and self.stops_at_s <= last_s
        return False


@dataclass(slots=True)
class _Told:
    """The notices to an assignment's worker: each task is in at most one of the stops."""

    assignment: Assignment
    stops: list[_Stop] = field(default_factory=list)
    is_recalled: bool = False

    def leaving(self, by_s: UtcS) -> int:
        """Return how many of its tasks will have stopped by then."""
        found, left = 0, self.assignment.left
        for each in self.stops:
            if each.stops_at_s <= by_s and not each.is_overdue:
                found += _overlap(each.tasks, left)
        return found

    def untold(self, by_s: UtcS) -> int:
        """Return how many of its tasks have no notice to stop by then."""
        found, left = len(self.assignment.left), self.assignment.left
        for each in self.stops:  # each task is in one of them at most
            if each.stops_at_s <= by_s:
                found -= _overlap(each.tasks, left)
        return found

    def told(self, by_s: UtcS) -> RangeSet:
        """Return the tasks with notice to stop by then."""
        return RangeSet(
            part for each in self.stops if each.stops_at_s <= by_s for part in each.tasks
        )


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why slots are taken: the window, the time when tasks are stopped (inf: never), the text."""

    pool: str
    window: Window | None
    stops_at_s: UtcS
    text: str

    @property
    def may_stop(self) -> bool:
        """Whether running tasks are stopped at all."""
        return self.window is not None and self.window.preempts and self.stops_at_s < NEVER_S


class Preemption:
    """Enforces the rules of a broker's pools.

    Args:
        workers: all workers.
        waiting: yields a job of each group with equal terms, and the group's waiting tasks.
        entitling: finds work that may not run and needs no room.
        may_want: returns whether a job would have tasks for a worker that fits it, with a number of
            its pool's slots free.
        recall: recalls the tasks of an assignment that have not begun.
        effects: the list to which orders are appended.
    """

    def __init__(
        self,
        workers: Mapping[int, Worker],
        waiting: Callable[[], Iterable[tuple[Job, int]]],
        occupancy: Occupancy,
        entitling: Entitling,
        may_want: Callable[[Job, Worker, UtcS, int], bool],
        recall: Callable[[Assignment], None],
        effects: list[Effect],
    ) -> None:
        self._workers = workers
        self._waiting = waiting
        self._occupancy = occupancy
        self._entitling = entitling
        self._may_want = may_want
        self._recall = recall
        self._effects = effects
        self._told: dict[int, _Told] = {}
        # By assignment, how many of its tasks will have stopped, as found in this look at its pool.
        self._leaves: dict[int, int] = {}
        self._looked_at_s = UtcS(-inf)
        self._stopped: dict[str, deque[tuple[UtcS, int]]] = {}  # by pool: when, how many
        self._call_backs: dict[str, CallBacks] = {}  # by pool
        # By pool, the most slots that each claim had between the last two looks.
        self._peaks: dict[str, Counter[int]] = {}
        self._next_want: dict[str, int] = {}  # by pool: where the next look for room begins
        self._said: dict[str, str] = {}  # by pool: the last message of a dry run

    def turned(self, turned: Mapping[str, PoolRules | None], utc_s: UtcS) -> None:
        """Apply new rules to these pools; keep each notice that the new rules also require.

        Otherwise tasks would get more time with each unrelated change. Once a window has begun, its
        advance notices are kept only for tasks in excess. All notices are sent again, as a clock
        may have jumped.
        """
        over = {
            name: excess(pool.levels, pool.used)
            for name, pool in self._occupancy.pools.items()
            if name in turned
        }
        for name in turned:
            self._call_backs.pop(name, None)  # its claims may be others now
        youngest_first = sorted(self._told.values(), key=lambda told: -told.assignment.given_at_s)
        for told in youngest_first:
            name = told.assignment.worker.offer.pool
            if name not in turned:
                continue
            rules, stops = turned[name], told.stops
            told.is_recalled, told.stops = False, []
            for each in stops:
                kept = RangeSet()
                if rules is not None and each.still_holds(rules, utc_s):
                    claim = self._occupancy.pools[name].claim_of(told.assignment)
                    kept = self._keep(each, told, rules, over[name], claim)
                    self._notify(told.assignment, kept, each.stops_at_s - utc_s)
                if utc_s < each.stops_at_s:
                    self._notify(told.assignment, _without(each.tasks, kept), None)
                if kept:
                    each.tasks = kept
                    told.stops.append(each)
            if not told.stops:
                del self._told[told.assignment.id]
        self._looked_at_s = UtcS(-inf)

    def _keep(
        self, stop: _Stop, told: _Told, rules: PoolRules, over: dict[int, int], claim: int
    ) -> RangeSet:
        """Return a stop's tasks that still have to stop; `over` is the remaining excess."""
        tasks = _both(stop.tasks, told.assignment.left)
        if stop.is_ahead and rules.now.window == stop.window:
            stop.is_ahead = False
            tasks = _last(tasks, RangeSet(), over.get(claim, 0))
            over[claim] = over.get(claim, 0) - len(tasks)
        return tasks

    def settle(self, utc_s: UtcS) -> None:
        """Check which tasks must make room, unless that was just done."""
        if not self._occupancy.pools or 0 <= utc_s - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = utc_s
        for number, told in list(self._told.items()):
            if not told.assignment.left:
                del self._told[number]
            else:
                self._note_overdue(told, utc_s)
        for name, pool in self._occupancy.pools.items():
            self._look_at(name, pool, utc_s)

    def _note_overdue(self, told: _Told, utc_s: UtcS) -> None:
        """Check whether a worker has stopped its tasks in time; report it once if it has not."""
        for each in told.stops:
            if each.is_overdue or utc_s < each.stops_at_s + LATE_S:
                continue
            each.is_overdue = True
            tasks = len(_both(each.tasks, told.assignment.left))
            if tasks:
                worker = told.assignment.worker
                text = (
                    f"worker {worker.name} of pool {worker.offer.pool} has not stopped "
                    f"{tasks} of its tasks by {show_time(each.stops_at_s)}: other tasks are "
                    "stopped instead"
                )
                self._effects.append(Remark(text))

    def _look_at(self, name: str, pool: PoolOccupancy, utc_s: UtcS) -> None:
        if not self._may_concern(name, pool, utc_s):
            return
        window = pool.rules.now.window
        grace_s = window.grace_s if window is not None else 0.0
        spilt_s = pool.rules.begun_at_s + (window.spill_s if window is not None else 0.0)
        by_s = max(spilt_s, utc_s) + grace_s
        leaving = self._leaving_by_claim(name, pool, by_s)
        used = {claim: max(0, slots - leaving[claim]) for claim, slots in pool.used.items()}
        over = excess(pool.levels, used)
        for claim in excess(pool.levels, pool.used):
            who = pool.rules.now.claims.all[claim].who
            text = f"{who} may have {count(pool.levels[claim].most, 'slot')}{_in(window)}"
            # Recall unstarted tasks even of a party whose excess was already told to stop.
            slots = over.get(claim, 0)
            self._take(pool.latest_first(claim), slots, _Reason(name, window, by_s, text), utc_s)
            used[claim] -= slots
        wanted = self._wanted(name, pool, used, utc_s)
        text = f"guaranteed slots are needed by their owners{_in(window)}"
        reason = _Reason(name, window, utc_s + grace_s, text)
        self._call_back(pool, wanted, used, by_s, reason, utc_s)
        if self._is_ahead(pool, utc_s):
            self._tell_ahead(name, pool, utc_s)

    def _call_back(
        self,
        pool: PoolOccupancy,
        wanted: list[tuple[int, Job, int]],
        used: Mapping[int, int],
        by_s: UtcS,
        reason: _Reason,
        utc_s: UtcS,
    ) -> None:
        """Take slots from claims above their guarantee, for wanted work that can use them."""
        over = surplus(pool.levels, used)
        calls = self._call_backs.setdefault(reason.pool, CallBacks())
        coming = {claim: calls.coming(claim, used.get(claim, 0)) for claim, *_ in wanted}
        slots_wanted: Counter[int] = Counter()
        for claim, _, slots in wanted:
            slots_wanted[claim] += slots
        if not over or all(coming[claim] >= slots for claim, slots in slots_wanted.items()):
            return  # as in most looks: what was told to stop is still stopping
        workers = {
            handle: each for handle, each in self._workers.items() if _is_of(reason.pool, each)
        }
        told = {each.assignment.worker.handle for each in self._told.values()}
        has_room = [
            at
            for at, (handle, each) in enumerate(workers.items())
            if each.in_flight < each.slots or handle in told
        ]
        rooms = _Rooms(workers, partial(self._room, by_s=by_s))
        any_prepares = any(each.preparing for each in workers.values())
        growth = self._occupancy.growth_of(reason.pool)
        if growth > 0:
            rooms.made[GROWTH] = WorkerRoom(growth, is_any=True)
        start = self._next_want.pop(reason.pool, 0) % len(wanted)
        places: dict[object, _Places] = {}
        wants = []
        for claim, job, slots in (*wanted[start:], *wanted[:start]):
            function = job.spec.function if any_prepares else b""
            key = job.need, frozenset(job.unfit or ()), function
            if key not in places:
                places[key] = _Places(job, self._workers)
            wants.append(RoomWanted(claim, slots, job.counted, places[key]))
        holding = [
            RoomHeld(each, claim, each.worker.handle, untold, each.job.counted)
            for claim in over
            for each, untold in islice(self._untold_of(pool, claim, by_s), TESTS_MAX)
        ]
        free = pool.total - sum(used.values())
        chosen, following = room_making.choose(
            *(wants, rooms, holding, over, free, coming), has_room=has_room
        )
        if following:
            self._next_want[reason.pool] = start + following
        for claim in dict.fromkeys(each.for_claim for each in chosen):
            tasks = [(each.what, each.tasks) for each in chosen if each.for_claim == claim]
            stops = self._take_from(tasks, reason, utc_s)
            if stops:
                stopped = sum(len(stop.tasks) for _, stop in stops)
                had_then = used.get(claim, 0) + coming[claim]
                level = min(pool.levels[claim].guaranteed, had_then + stopped)
                had = max(self._peaks[reason.pool][claim], used.get(claim, 0))
                calls.called(claim, level, had, partial(_are_pending, stops))
                pool.keep(calls.levels)

    def _room(self, worker: Worker, by_s: UtcS) -> WorkerRoom:
        """Return the room at a worker once the tasks with notice have stopped."""
        most = worker.slots if worker.trial is None else min(worker.slots, worker.trial)
        room = WorkerRoom(
            most - worker.in_flight, {name: float(at) for name, at in worker.free.items()}
        )
        for each in worker.assignments.values():
            tasks = self._leaves.get(each.id)
            if tasks is None and (told := self._told.get(each.id)) is not None:
                tasks = told.leaving(by_s)
            if tasks:
                room.change(each.job.counted, tasks)
        room.slots = max(0, room.slots)  # tasks that have not begun are recalled
        return room

    def _untold(self, assignment: Assignment, by_s: UtcS) -> int:
        """Return how many tasks of an assignment have no notice to stop by then."""
        told = self._told.get(assignment.id)
        return len(assignment.left) if told is None else told.untold(by_s)

    def _untold_of(
        self, pool: PoolOccupancy, claim: int, by_s: UtcS
    ) -> Iterator[tuple[Assignment, int]]:
        """Yield a claim's assignments with tasks that have no notice, the latest first."""
        for each in pool.latest_first(claim):
            untold = self._untold(each, by_s)
            if untold:
                yield each, untold

    def _may_concern(self, name: str, pool: PoolOccupancy, utc_s: UtcS) -> bool:
        """Whether any task may have to make room; faster than a check of all assignments."""
        self._judge(name, pool, utc_s)
        if not any(pool.used.values()):
            return False
        if excess(pool.levels, pool.used) or self._wanted(name, pool, pool.used, utc_s):
            return True
        return self._is_ahead(pool, utc_s)

    def _is_ahead(self, pool: PoolOccupancy, utc_s: UtcS) -> bool:
        """Whether some party is to be told of a time when it may have less."""
        first = pool.rules.now.claims.first_reserved
        seats = range(first, first + len(pool.seats))
        ahead = (
            pool.closing(whose, claim)
            for whose in pool.examples.values()
            for claim in (pool.claim(whose), *seats)
        )
        return any(each is not None and each.told_at_s <= utc_s for each in ahead)

    def _judge(self, name: str, pool: PoolOccupancy, utc_s: UtcS) -> None:
        """Check whether the slots that were called back are used, and which are still kept."""
        calls = self._call_backs.get(name)
        if calls is not None and calls.levels:
            nothing = dict.fromkeys(calls.levels, 0)
            working = {claim for claim, *_ in self._wanted(name, pool, nothing, utc_s)}
            for claim in calls.look(pool.peaks, working, utc_s):
                who = pool.rules.now.claims.all[claim].who
                text = (
                    f"pool {name} has stopped tasks for guaranteed slots of {who}, which has not "
                    "used them: it stops none for a while"
                )
                self._effects.append(Remark(text))
            pool.keep(calls.levels)
        self._peaks[name], pool.peaks = pool.peaks, Counter(pool.used)

    def _leaving_by_claim(self, name: str, pool: PoolOccupancy, by_s: UtcS) -> Counter[int]:
        """Return how many tasks of each claim will have stopped by then."""
        found: Counter[int] = Counter()
        self._leaves = {}
        for number, told in self._told.items():
            if told.stops and told.assignment.worker.offer.pool == name:
                tasks = self._leaves[number] = told.leaving(by_s)
                found[pool.claim_of(told.assignment)] += tasks
        return found

    def _leaving(self, held: Iterable[Assignment], by_s: UtcS) -> int:
        told = (self._told.get(each.id) for each in held)
        return sum(each.leaving(by_s) for each in told if each is not None)

    def _wanted(
        self, name: str, pool: PoolOccupancy, used: Mapping[int, int], utc_s: UtcS
    ) -> list[tuple[int, Job, int]]:
        """Return, in order, the work that would use guaranteed slots which its claim lacks.

        Of each job its claim, and the number of those slots.
        """
        calls = self._call_backs.get(name)
        short = {
            claim: level.guaranteed - used.get(claim, 0)
            for claim, level in enumerate(pool.levels)
            if level.guaranteed > used.get(claim, 0)
            and (calls is None or calls.may_call(claim, utc_s))
        }
        found = dict.fromkeys(short, 0)
        wanted: list[tuple[int, Job, int]] = []
        fitting: dict[Need, Worker | None] = {}
        entitled: dict[Work, float] = {}  # remaining slots, less those already wanted
        missing = sum(short.values())
        for job, tasks_waiting in self._waiting() if short else ():
            if not missing:
                break
            may_come = job.places is None or job.places.get(name, 0) >= 1
            if not may_come or job.spec.pool not in ("", name):
                continue
            claims = [each for each in pool.claims_for(job) if each in short]
            if not claims:
                continue
            if job.need not in fitting:
                fitting[job.need] = self._fitting(name, job)
            worker = fitting[job.need]
            if worker is None:
                continue
            if job.work not in entitled:
                entitled[job.work] = self._entitling.slots_left(job.work, name)
            waiting = int(min(tasks_waiting, entitled[job.work]))
            tasks = min(waiting, sum(short[each] - found[each] for each in claims))
            # Otherwise tasks would be stopped again and again for work that never starts here.
            if tasks <= 0 or not self._may_want(job, worker, utc_s, tasks):
                continue
            entitled[job.work] -= tasks
            for claim in claims:
                more = min(tasks, short[claim] - found[claim])
                if more:
                    wanted.append((claim, job, more))
                found[claim] += more
                missing -= more
                tasks -= more
        return wanted

    def _fitting(self, name: str, job: Job) -> Worker | None:
        """Return a worker of a pool on which a job could run."""
        for each in self._workers.values():
            if _is_of(name, each) and matching.verdict(job, each) is None:
                return each
        return None

    def _tell_ahead(self, name: str, pool: PoolOccupancy, utc_s: UtcS) -> None:
        """Give notice to tasks that will exceed their slots in the next window."""
        concerned: dict[Closing, list[Assignment]] = {}
        known: dict[tuple[Owner, int], Closing | None] = {}
        for claim in list(pool.held):
            for each in pool.latest_first(claim):
                party = each.job.whose, claim
                if party not in known:
                    known[party] = pool.closing(*party)
                closes = known[party]
                if closes is not None and closes.told_at_s <= utc_s and closes.stops_at_s < NEVER_S:
                    concerned.setdefault(closes, []).append(each)
        for closes, assignments in concerned.items():
            tasks = sum(len(each.left) for each in assignments)
            slots = tasks - closes.slots - self._leaving(assignments, closes.stops_at_s)
            text = f"window {closes.window!r} begins at {show_time(closes.at_s)}"
            window = pool.rules.span_at(closes.at_s).window
            reason = _Reason(name, window, closes.stops_at_s, text)
            if slots > 0:
                self._take(assignments, slots, reason, utc_s, is_ahead=True)

    # --- taking slots --------------------------------------------------------------------------

    def _take(
        self,
        held: Iterable[Assignment],
        slots: int,
        reason: _Reason,
        utc_s: UtcS,
        *,
        is_ahead: bool = False,
    ) -> None:
        """Free `slots` slots of these: recall unstarted tasks now, stop running ones in time."""
        if self._is_dry(reason, slots):
            return
        stopped = 0
        for each in held:
            stop = self._stop(each, slots - stopped, reason, utc_s, is_ahead=is_ahead)
            stopped += len(stop.tasks) if stop is not None else 0
            if not is_ahead:
                self._recall_once(each)
        self._say_stopped(reason, stopped)

    def _take_from(
        self, chosen: list[tuple[Assignment, int]], reason: _Reason, utc_s: UtcS
    ) -> list[tuple[Assignment, _Stop]]:
        """Free slots as `_take`, of these numbers of tasks; return the stops."""
        if self._is_dry(reason, sum(tasks for _, tasks in chosen)):
            return []
        stops = []
        for each, tasks in chosen:
            stop = self._stop(each, tasks, reason, utc_s, is_ahead=False)
            if stop is not None:
                stops.append((each, stop))
            self._recall_once(each)
        self._say_stopped(reason, sum(len(stop.tasks) for _, stop in stops))
        return stops

    def _is_dry(self, reason: _Reason, slots: int) -> bool:
        """Whether the window stops nothing, but says that it would."""
        if reason.window is None or not reason.window.is_dry:
            return False
        self._say_once(reason, f"would stop {count(slots, 'task')}: {reason.text}")
        return True

    def _recall_once(self, assignment: Assignment) -> None:
        told = self._told.setdefault(assignment.id, _Told(assignment))
        if not told.is_recalled:
            told.is_recalled = True
            self._recall(assignment)

    def _say_stopped(self, reason: _Reason, stopped: int) -> None:
        if stopped:
            stop = show_time(reason.stops_at_s)
            text = f"pool {reason.pool} stops {count(stopped, 'task')} by {stop}: {reason.text}"
            self._effects.append(Remark(text))

    def _stop(
        self, each: Assignment, most: int, reason: _Reason, utc_s: UtcS, *, is_ahead: bool
    ) -> _Stop | None:
        """Tell at most `most` tasks of an assignment when they are stopped, if any are.

        They are the last tasks without notice for this time or earlier.
        """
        window, told = reason.window, self._told.setdefault(each.id, _Told(each))
        if window is None or not reason.may_stop:
            return None
        most = min(most, self._left_this_minute(reason, utc_s))
        chosen = _last(each.left, told.told(reason.stops_at_s), most)
        count = len(chosen)
        if not count:
            return None
        for later in told.stops:
            for first, stop in chosen:
                later.tasks.remove(first, stop)
        told.stops = [later for later in told.stops if later.tasks]
        self._leaves.pop(each.id, None)
        made = _Stop(window, reason.stops_at_s, chosen, is_ahead)
        told.stops.append(made)
        self._notify(each, chosen, max(0.0, reason.stops_at_s - utc_s))
        if window.stops_per_minute:
            self._stopped.setdefault(reason.pool, deque()).append((utc_s, count))
        text = f"{reason.pool} stops {count} of its tasks by {show_time(reason.stops_at_s)}"
        each.job.note(utc_s, f"{text}: {reason.text}")
        return made

    def _notify(self, assignment: Assignment, tasks: RangeSet, in_s: float | None) -> None:
        for first, stop in tasks:
            if in_s is not None:
                assignment.told = assignment.told or RangeSet()
                assignment.told.add(first, stop)
            notice, worker = Notice(assignment.id, first, stop, in_s), assignment.worker
            self._effects.append(SendToWorker(worker.handle, notice, worker.port))

    def _left_this_minute(self, reason: _Reason, utc_s: UtcS) -> int:
        """Return how many tasks may still be stopped, by the window's limit."""
        limit = reason.window.stops_per_minute if reason.window is not None else 0
        if not limit:
            return 1 << 62
        recent = self._stopped.setdefault(reason.pool, deque())
        while recent and not 0 <= utc_s - recent[0][0] < MINUTE_S:
            recent.popleft()
        return max(0, limit - sum(count for _, count in recent))

    def _say_once(self, reason: _Reason, text: str) -> None:
        if self._said.get(reason.pool) != text:
            self._said[reason.pool] = text
            self._effects.append(Remark(f"pool {reason.pool}, dry run: {text}"))


def _is_of(name: str, worker: Worker) -> bool:
    """Whether a worker of a pool takes tasks."""
    return worker.offer.pool == name and not worker.job and not worker.draining


class _Rooms(Mapping[int, WorkerRoom]):
    """The room at each worker of a pool, found when it is asked for; `made`: that so far."""

    def __init__(self, workers: Mapping[int, Worker], find: Callable[[Worker], WorkerRoom]) -> None:
        self._workers = workers
        self._find = find
        self.made: dict[int, WorkerRoom] = {}

    def __getitem__(self, handle: int) -> WorkerRoom:
        found = self.made.get(handle)
        if found is None:
            found = self.made[handle] = self._find(self._workers[handle])
        return found

    def __contains__(self, handle: object) -> bool:
        return handle in self._workers or handle in self.made

    def __iter__(self) -> Iterator[int]:
        yield from self._workers
        yield from (each for each in self.made if each not in self._workers)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Places:
    """The workers on which a job could run if it had room; each is tested once, when asked for."""

    def __init__(self, job: Job, workers: Mapping[int, Worker]) -> None:
        self._job = job
        self._workers = workers
        self._known: dict[int, bool] = {}

    def __contains__(self, handle: object) -> bool:
        known = self._known.get(handle) if isinstance(handle, int) else False
        if known is None and isinstance(handle, int):
            worker = self._workers[handle]
            # Others than these take no tasks, but have some that may be chosen.
            is_open = _is_of(worker.offer.pool, worker)
            known = self._known[handle] = is_open and _can_run(self._job, worker)
        return bool(known)


def _can_run(job: Job, worker: Worker) -> bool:
    """Whether a worker could run a job if it had room."""
    if matching.verdict(job, worker) is not None or (job.unfit and worker.place in job.unfit):
        return False
    return not worker.preparing or job.spec.function not in worker.preparing


def _are_pending(stops: list[tuple[Assignment, _Stop]]) -> bool:
    """Whether any of these tasks is still to stop; those that are overdue are not waited for."""
    return any(not stop.is_overdue and _both(stop.tasks, each.left) for each, stop in stops)


def _both(some: RangeSet, others: RangeSet) -> RangeSet:
    return RangeSet(part for first, stop in some for part in others.within(first, stop))


def _overlap(some: RangeSet, others: RangeSet) -> int:
    """Return the number of tasks in both."""
    return sum(high - low for first, stop in some for low, high in others.within(first, stop))


def _without(some: RangeSet, others: RangeSet) -> RangeSet:
    return RangeSet(part for first, stop in some for part in others.missing(first, stop))


def _last(left: RangeSet, known: RangeSet, most: int) -> RangeSet:
    """Return the last `most` of these tasks, without the known ones."""
    found = RangeSet()
    for first, stop in reversed(list(left)):
        for low, high in reversed(known.missing(first, stop)):
            if most <= 0:
                return found
            found.add(max(low, high - most), high)
            most -= min(most, high - low)
    return found


def _in(window: Window | None) -> str:
    return f" in window {window.name!r}" if window is not None else ""
