"""The pilots of one pool: merges the grid's list with the reports of workers. Pure.

The grid's list says which pilots exist; a worker that has come proves that its pilot is ready, and
reports its work. Between an order and its first sighting a pilot counts as coming, for a limited
time; then an order without any sighting is made again, by the same name. The missing pilots of a
partly shown order, or of one that was made again in vain, are given up; if they are shown later,
they are adopted like those of a former run.

A pilot that ends, or is given up, before its worker came is a failed start, unless we stopped it.
All failures of one order count as one: they have one cause, and each doubles the back-off. A pilot
whose worker came, and that ended by itself within PROOF_S without finishing a task, is a failure
too: otherwise a host on which workers die at once would be paid for again and again. After such a
failure the arrival of the next worker proves nothing; finishing a task does, or staying.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from federation.clocks import UtcS
from gateway.grids.contract import PILOT_MARK, FailureClass, GridFault, Order, PilotState, Sighting
from policies.placement.autoscaling import MINUTE_S, Pilot, PilotStage, ScalingHistory

UNSEEN_S: Final = 60.0  # an order that the grid does not show after this time is made again, …
TRIES_MAX: Final = 3  # … up to this many times in all
DIAL_S: Final = 120.0  # the time for a worker to dial once its pilot runs, …
DIAL_STARTS: Final = 3.0  # … or this multiple of the start time
PROOF_S: Final = 60.0  # a worker that has stayed for this time has not failed to start
START_WEIGHT: Final = 0.2  # of the newest start in the mean start time


@dataclass(frozen=True, slots=True)
class AtWork:
    """The broker's knowledge of a pilot's worker.

    Attributes:
        busy: of its slots.
        idle_s: since when it has nothing to do; UTC.
        lost_s: how long its tasks have run, in all.
        tasks_done: so far.
    """

    slots: int
    busy: int
    idle_since_s: UtcS
    lost_s: float = 0.0
    tasks_done: int = 0


@dataclass(slots=True)
class KnownPilot:
    """A pilot that was ordered or found.

    Attributes:
        asked_at_s: when it was ordered, in this run of the site; None: it was found.
        begun_at_s: the observed beginning of its start: it was ordered or queued until then.
        since_s: it has been in its stage.
        alone_since_s: since when it runs without a worker of its name; None: it does not.
        came_at_s: when its worker came first; None: it has not.
        is_proven: it has finished a task, or stayed for long, or was found.
        is_let_go: we drained or stopped it.
        leaves: why its grid wants it to end (its host is out of service); empty: it does not.
        is_drained: an operator drains its worker.
    """

    slots: int
    asked_at_s: UtcS | None
    begun_at_s: UtcS
    since_s: UtcS
    stage: PilotStage = PilotStage.QUEUED
    sighting: Sighting | None = None
    alone_since_s: UtcS | None = None
    came_at_s: UtcS | None = None
    is_proven: bool = False
    is_let_go: bool = False
    leaves: str = ""
    is_drained: bool = False


@dataclass(slots=True)
class Made:
    """An order of this run that is not fully shown yet. `missing`: pilots not shown so far."""

    order: Order
    at_s: UtcS
    missing: set[str]
    tries: int = 1


@dataclass(slots=True)
class Fleet:
    """The pilots of one pool.

    Attributes:
        start_s: the duration of a start: the owner's estimate, then as measured.
        pilots: by name, those that have not ended.
        orders: those that the grid has not fully shown yet, by name.
        failures: failed starts since the last success; `failed_at_s`: when the last of them failed.
        why: the grid's reason for the last failure.
        barred: the grid's reason for a failure that is not worth a retry until something is
            changed; empty: none.
        leaving: pilots that the grid wants to end, each with its reason, as it last told.
        drained: pilots whose workers an operator drains: they are stopped once they are idle.
    """

    start_s: float
    pilots: dict[str, KnownPilot] = field(default_factory=dict)
    orders: dict[str, Made] = field(default_factory=dict)
    starts: list[UtcS] = field(default_factory=list)
    stops: list[UtcS] = field(default_factory=list)
    failures: int = 0
    failed_at_s: UtcS = UtcS(0.0)
    why: str = ""
    barred: str = ""
    leaving: Mapping[str, str] = field(default_factory=dict)
    drained: Collection[str] = ()
    # orders with a counted failure, since the last success
    _failed: set[str] = field(default_factory=set)
    _is_fleeting: bool = False  # the last failure was of a pilot whose worker had come

    # --- orders --------------------------------------------------------------------------------

    def ordered(self, order: Order, utc_s: UtcS) -> None:
        """Note an order that is about to be made."""
        names = order.names()
        self.orders[order.name] = Made(order, utc_s, set(names))
        for name in names:
            self.pilots[name] = KnownPilot(order.shape.slots, utc_s, utc_s, utc_s)
        self.starts += [utc_s] * len(names)

    def refused(self, order: Order, fault: GridFault, utc_s: UtcS) -> None:
        """Note that the grid refused an order. Pilots of it that were shown exist nevertheless.

        A permanent refusal bars further orders until `forgive`. A full grid has as many pilots as
        it takes, which is no failure.
        """
        made, text = self.orders.pop(order.name, None), str(fault)
        if fault.failure_class is FailureClass.NEVER and not fault.is_full:
            self.barred = text
        if made is not None and fault.is_full:
            self.why = text
            for name in made.missing:
                self.pilots.pop(name, None)
        elif made is not None:
            self._give_up(made, text, utc_s)

    def forgive(self) -> None:
        """Retry failed starts at once: the operator may have fixed their cause."""
        self.barred = ""
        self._works()

    def stopped(self, names: Iterable[str], utc_s: UtcS) -> None:
        """Note that pilots are drained or stopped; those that have ended meanwhile do not count."""
        for name in names:
            known = self.pilots.get(name)
            if known is not None and not known.is_let_go:
                known.is_let_go = True
                self.stops.append(utc_s)
                _enter(known, PilotStage.DRAINING, utc_s)

    def taken_back(self, names: Iterable[str], utc_s: UtcS) -> None:
        """Note that drained pilots get work again."""
        for name in names:
            known = self.pilots[name]
            known.is_let_go = False
            _enter(known, PilotStage.READY, utc_s)

    # --- sightings -----------------------------------------------------------------------------

    def see(
        self, sightings: Sequence[Sighting], workers: Mapping[str, AtWork], utc_s: UtcS
    ) -> None:
        """Take in the grid's list, and the present workers."""
        ended = {each.name: each for each in sightings if each.state is PilotState.ENDED}
        shown = {each.name: each for each in sightings if each.state is not PilotState.ENDED}
        for name, sighting in shown.items():
            known = self.pilots.get(name)
            if known is None:  # of a former run, or given up too soon
                known = KnownPilot(sighting.slots, None, utc_s, utc_s, is_proven=True)
                self.pilots[name] = known
            known.sighting = sighting
        self._strike_off(shown.keys() | ended.keys() | workers.keys(), utc_s)
        for name, known in list(self.pilots.items()):
            worker = workers.get(name)
            known.leaves = self.leaving.get(name, "")
            if worker is not None:
                known.is_drained = name in self.drained
            if name in shown or (worker is not None and name not in ended):
                self._advance(known, worker, utc_s)
            elif name in ended:
                self._ended(
                    name, ended[name].fault or "the pilot ended before its worker connected", utc_s
                )
            elif not self._is_awaited(name):
                self._ended(name, "the grid does not know the pilot", utc_s)

    def _strike_off(self, found: set[str], utc_s: UtcS) -> None:
        """Remove fully shown orders; give up the long-missing pilots of partly shown ones."""
        for name in found if self.orders else ():
            expected = self.orders.get(order_of(name))
            if expected is not None:
                expected.missing.discard(name)
        for name, made in list(self.orders.items()):
            is_part = len(made.missing) < made.order.pilots
            if not made.missing:
                del self.orders[name]
            elif is_part and utc_s - made.at_s >= UNSEEN_S:
                del self.orders[name]
                there = made.order.pilots - len(made.missing)
                text = f"the grid shows {there} of {made.order.pilots} accepted pilots"
                self._give_up(made, text, utc_s)

    def _advance(self, known: KnownPilot, worker: AtWork | None, utc_s: UtcS) -> None:
        """Update a pilot that exists, by its sighting if there is any, or its worker."""
        state = known.sighting.state if known.sighting is not None else PilotState.QUEUED
        is_alone = state is PilotState.RUNNING and worker is None
        if not is_alone:
            known.alone_since_s = None
        elif known.alone_since_s is None:
            known.alone_since_s = utc_s
        if worker is not None and known.came_at_s is None:
            self._came(known, utc_s)
        if worker is not None and not known.is_proven and known.came_at_s is not None:
            known.is_proven = worker.tasks_done > 0 or utc_s - known.came_at_s >= PROOF_S
            if known.is_proven:
                self._works()
        if state is PilotState.ENDING or known.is_let_go or known.leaves or known.is_drained:
            _enter(known, PilotStage.DRAINING, utc_s)
        elif worker is not None:
            _enter(known, PilotStage.READY, utc_s)
        elif state is PilotState.QUEUED:
            known.begun_at_s = utc_s
            _enter(known, PilotStage.QUEUED, utc_s)
        else:
            _enter(known, PilotStage.STARTING, utc_s)

    def _came(self, known: KnownPilot, utc_s: UtcS) -> None:
        """Note that a pilot's worker has come, and learn the start time, less the grid's queue."""
        known.came_at_s = utc_s
        if not self._is_fleeting:
            self._works()
        if known.asked_at_s is None:
            return  # its beginning is unknown
        begun_s = known.begun_at_s
        paid_at_s = known.sighting.paid_at_s if known.sighting is not None else None
        if paid_at_s is not None and known.asked_at_s <= paid_at_s <= utc_s:
            begun_s = paid_at_s
        self.start_s += START_WEIGHT * (max(0.0, utc_s - begun_s) - self.start_s)

    def _works(self) -> None:
        """Reset the failures: starts work."""
        self.failures, self._is_fleeting = 0, False
        self._failed.clear()

    def _is_awaited(self, name: str) -> bool:
        made = self.orders.get(order_of(name))
        return made is not None and name in made.missing

    def _give_up(self, made: Made, text: str, utc_s: UtcS) -> None:
        """Give up the missing pilots of an order."""
        lost = [self.pilots.pop(name) for name in made.missing if name in self.pilots]
        if not all(each.is_let_go for each in lost):
            self._note_failure(made.order.name, text, utc_s)

    def _ended(self, name: str, text: str, utc_s: UtcS) -> None:
        known = self.pilots.pop(name)
        if known.is_let_go or known.leaves:
            return
        if known.came_at_s is not None and not known.is_proven:
            if known.is_drained:  # the next one may come to the same host: it waits for longer
                text = "an operator drains its host"
            text = f"its worker connected, and completed no task: {text}"
            self._is_fleeting = True
            self._note_failure(order_of(name), text, utc_s)
        elif known.came_at_s is None:
            if self._is_silent(known, utc_s):
                text = (
                    "its worker did not connect: check that its host can reach this gateway's "
                    "address"
                )
            self._note_failure(order_of(name), text, utc_s)

    def _note_failure(self, order: str, text: str, utc_s: UtcS) -> None:
        self.failures += order not in self._failed
        self._failed.add(order)
        self.failed_at_s = utc_s
        self.why = text

    # --- conclusions ---------------------------------------------------------------------------

    def unseen(self, utc_s: UtcS) -> list[Order]:
        """Return orders to be made again: it is unknown whether they arrived."""
        found = []
        for name, made in list(self.orders.items()):
            if utc_s - made.at_s < UNSEEN_S or len(made.missing) < made.order.pilots:
                continue
            if all(self.pilots[each].is_let_go for each in made.missing):
                del self.orders[name]  # it is not needed any more
                self._give_up(made, "", utc_s)
            elif made.tries >= TRIES_MAX:
                del self.orders[name]
                text = f"the grid accepted an order {made.tries} times, and does not show it"
                self._give_up(made, text, utc_s)
            else:
                made.at_s = utc_s
                made.tries += 1
                found.append(made.order)
        return found

    def silent(self, utc_s: UtcS) -> list[str]:
        """Return running pilots whose worker has not come in time: to be stopped."""
        return [name for name, each in self.pilots.items() if self._is_silent(each, utc_s)]

    def _is_silent(self, known: KnownPilot, utc_s: UtcS) -> bool:
        patience_s = max(DIAL_S, DIAL_STARTS * self.start_s)
        return known.alone_since_s is not None and utc_s - known.alone_since_s >= patience_s

    def done(self, workers: Mapping[str, AtWork]) -> list[str]:
        """Return drained pilots without remaining tasks: to be stopped."""
        return [
            name
            for name, each in self.pilots.items()
            if each.stage is PilotStage.DRAINING and (name not in workers or not workers[name].busy)
        ]

    def view(self, workers: Mapping[str, AtWork]) -> list[Pilot]:
        """Return the pilots for the autoscaler. One whose worker is absent does not count as
        idle.
        """
        found = []
        for name, each in self.pilots.items():
            since_s, busy, lost_s = each.since_s, 0, 0.0
            if each.stage is PilotStage.READY:
                worker = workers.get(name)
                if worker is None:
                    busy = each.slots
                else:
                    since_s, busy, lost_s = worker.idle_since_s, worker.busy, worker.lost_s
            paid_at_s = each.sighting.paid_at_s if each.sighting is not None else None
            ends_at_s = each.sighting.ends_at_s if each.sighting is not None else None
            found.append(
                Pilot(
                    *(name, each.stage, each.slots, since_s, paid_at_s, busy, lost_s),
                    ends_at_s=ends_at_s,
                )
            )
        return found

    @property
    def is_moving(self) -> bool:
        """Whether any pilot is starting or ending."""
        return bool(self.orders) or any(
            each.stage is not PilotStage.READY for each in self.pilots.values()
        )

    def clock_set(self, by_s: float) -> None:
        """Shift all noted times, as the time of day was set."""
        for known in self.pilots.values():
            known.begun_at_s += by_s
            known.since_s += by_s
            known.asked_at_s = None if known.asked_at_s is None else known.asked_at_s + by_s
            known.alone_since_s = (
                None if known.alone_since_s is None else known.alone_since_s + by_s
            )
            known.came_at_s = None if known.came_at_s is None else known.came_at_s + by_s
        for made in self.orders.values():
            made.at_s += by_s
        self.starts = [each + by_s for each in self.starts]
        self.stops = [each + by_s for each in self.stops]
        self.failed_at_s += by_s

    def slots(self, *, is_shown: bool = False) -> int:
        """Return the slots of all pilots that have not ended, or of those the grid shows."""
        return sum(
            each.slots for each in self.pilots.values() if not is_shown or each.sighting is not None
        )

    @property
    def slots_coming(self) -> int:
        """The slots of pilots that are queued or starting."""
        on_the_way = PilotStage.QUEUED, PilotStage.STARTING
        return sum(each.slots for each in self.pilots.values() if each.stage in on_the_way)

    def past(self, utc_s: UtcS) -> ScalingHistory:
        """Return recent starts, stops and failures."""
        self.starts = [each for each in self.starts if each > utc_s - MINUTE_S]
        self.stops = [each for each in self.stops if each > utc_s - MINUTE_S]
        return ScalingHistory(
            *(self.start_s, self.starts, self.stops, self.failures, self.failed_at_s),
            barred=self.barred,
        )


def _enter(known: KnownPilot, stage: PilotStage, utc_s: UtcS) -> None:
    if known.stage is not stage:
        known.stage, known.since_s = stage, utc_s


def order_of(name: str) -> str:
    """Return the order of a pilot of this name."""
    return name.rpartition(PILOT_MARK)[0]
