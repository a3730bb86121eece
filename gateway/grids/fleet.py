"""The pilots of one pool: what its grid shows, and what their workers say, put together. Pure.

The grid's list says which there are; a worker that has come says that a pilot is ready, and what it
does. Between an order and its first sighting the pilots are taken to be on their way; so long, and
the order is made again, by the same name. A pilot whose worker does not come is a failed start.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.grids.contract import Order, Sighting, Stand
from policies.butler import MINUTE_S, Past, Pilot, Stage

UNSEEN_S: Final = 60.0  # an order that the grid does not show after so long is made again
DIAL_S: Final = 120.0  # a worker has so long to dial once its pilot runs
START_WEIGHT: Final = 0.2  # of the newest start in the mean of how long they take


@dataclass(frozen=True, slots=True)
class AtWork:
    """What the broker knows of a pilot's worker.

    Attributes:
        busy: of its slots.
        idle_s: since when it has nothing to do; UTC.
        lost_s: how long its tasks have run, in all.
    """

    slots: int
    busy: int
    idle_s: float
    lost_s: float = 0.0


@dataclass(slots=True)
class _Known:
    """A pilot that was ordered or found. `since_s`: it has been in its stage."""

    slots: int
    asked_s: float
    stage: Stage = Stage.QUEUED
    since_s: float = 0.0
    sighting: Sighting | None = None
    has_come: bool = False


@dataclass(slots=True)
class Fleet:
    """The pilots of one pool.

    Attributes:
        start_s: how long a start takes: as its owner expects, then as measured.
        pilots: by name, those that have not ended.
        orders: that the grid has not shown yet, and when each was made.
        failures: starts that failed since one did not; `failed_s`: when the last of them did.
        why: what the grid said of the last one that failed.
    """

    start_s: float
    pilots: dict[str, _Known] = field(default_factory=dict)
    orders: dict[str, tuple[Order, float]] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    failures: int = 0
    failed_s: float = 0.0
    why: str = ""

    # --- what is asked of the grid -------------------------------------------------------------

    def ordered(self, order: Order, now_s: float) -> None:
        """An order is about to be made."""
        self.orders[order.name] = order, now_s
        for name in order.names():
            self.pilots[name] = _Known(order.shape.slots, now_s, since_s=now_s)
            self.starts.append(now_s)

    def refused(self, order: Order, text: str, now_s: float) -> None:
        """The grid did not take an order."""
        self.orders.pop(order.name, None)
        for name in order.names():
            self.pilots.pop(name, None)
        self._note_failure(text, now_s)

    def drained(self, names: Iterable[str], now_s: float) -> None:
        """These get nothing more."""
        for name in names:
            self._enter(self.pilots[name], Stage.DRAINING, now_s)

    def stopped(self, names: Iterable[str], now_s: float) -> None:
        """The grid was told to stop these."""
        for name in names:
            self.stops.append(now_s)
            self._enter(self.pilots[name], Stage.DRAINING, now_s)

    # --- what is seen --------------------------------------------------------------------------

    def see(
        self, sightings: Sequence[Sighting], workers: Mapping[str, AtWork], now_s: float
    ) -> None:
        """Take in what the grid shows, and who has come."""
        shown = {each.name: each for each in sightings}
        for name in [each for each in self.orders if _is_shown(self.orders[each][0], shown)]:
            del self.orders[name]
        for name, sighting in shown.items():
            if sighting.stand is Stand.ENDED:
                self._ended(name, sighting.fault or "it ended before its worker came", now_s)
                continue
            known = self.pilots.get(name)
            if known is None:  # of a former life
                known = self.pilots[name] = _Known(sighting.slots, now_s, since_s=now_s)
            known.sighting = sighting
            self._advance(known, sighting, workers.get(name), now_s)
        for name in [each for each in self.pilots if each not in shown]:
            if not self._is_awaited(name) and name not in workers:
                self._ended(name, "the grid knows nothing of it", now_s)

    def _advance(
        self, known: _Known, sighting: Sighting, worker: AtWork | None, now_s: float
    ) -> None:
        if sighting.stand is Stand.ENDING or known.stage is Stage.DRAINING:
            self._enter(known, Stage.DRAINING, now_s)
        elif worker is not None:
            if not known.has_come:
                self._came(known, now_s)
            self._enter(known, Stage.READY, now_s)
        elif sighting.stand is Stand.QUEUED:
            self._enter(known, Stage.QUEUED, now_s)
        else:
            self._enter(known, Stage.STARTING, now_s)

    def _enter(self, known: _Known, stage: Stage, now_s: float) -> None:
        if known.stage is not stage:
            known.stage, known.since_s = stage, now_s

    def _came(self, known: _Known, now_s: float) -> None:
        """A pilot's worker has come: so long does a start take."""
        known.has_come = True
        self.failures = 0
        begun_s = known.asked_s
        if known.stage is Stage.STARTING:
            begun_s = min(known.since_s, (known.sighting and known.sighting.paid_s) or now_s)
        self.start_s += START_WEIGHT * (now_s - begun_s - self.start_s)

    def _is_awaited(self, name: str) -> bool:
        return any(name in order.names() for order, _ in self.orders.values())

    def _ended(self, name: str, text: str, now_s: float) -> None:
        known = self.pilots.pop(name, None)
        if known is not None and not known.has_come and known.stage is not Stage.DRAINING:
            self._note_failure(text, now_s)

    def _note_failure(self, text: str, now_s: float) -> None:
        self.failures += 1
        self.failed_s = now_s
        self.why = text

    # --- what follows --------------------------------------------------------------------------

    def unseen(self, now_s: float) -> list[Order]:
        """Orders that are to be made again: nobody knows whether they arrived."""
        found = [order for order, at_s in self.orders.values() if now_s - at_s >= UNSEEN_S]
        for order in found:
            self.orders[order.name] = order, now_s
        return found

    def silent(self, now_s: float) -> list[str]:
        """Pilots that run, and whose worker has not come in time: to be stopped."""
        return [
            name
            for name, each in self.pilots.items()
            if each.stage is Stage.STARTING
            and each.sighting is not None
            and each.sighting.stand is Stand.RUNNING
            and now_s - each.since_s >= DIAL_S
        ]

    def done(self, workers: Mapping[str, AtWork]) -> list[str]:
        """Pilots that are drained and have nothing left: to be stopped."""
        return [
            name
            for name, each in self.pilots.items()
            if each.stage is Stage.DRAINING and (name not in workers or not workers[name].busy)
        ]

    def view(self, workers: Mapping[str, AtWork]) -> list[Pilot]:
        """The pilots, as the butler sees them."""
        found = []
        for name, each in self.pilots.items():
            paid_s = each.sighting.paid_s if each.sighting is not None else None
            pilot = Pilot(name, each.stage, each.slots, each.since_s, paid_s)
            worker = workers.get(name)
            if worker is not None and each.stage is Stage.READY:
                pilot = replace(
                    pilot, busy=worker.busy, since_s=worker.idle_s, lost_s=worker.lost_s
                )
            found.append(pilot)
        return found

    def past(self, now_s: float) -> Past:
        """What was done lately."""
        self.starts = [each for each in self.starts if each > now_s - MINUTE_S]
        self.stops = [each for each in self.stops if each > now_s - MINUTE_S]
        return Past(self.start_s, self.starts, self.stops, self.failures, self.failed_s)


def _is_shown(order: Order, shown: Mapping[str, Sighting]) -> bool:
    return any(name in shown for name in order.names())
