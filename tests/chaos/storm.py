"""Lets faults happen: a thread for each lane, until the time is over."""

import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.faults import Act, Fault, Stage, draw
from tests.chaos.sites import BUYERS
from tests.chaos.work.clients import Answers

LOOK_S = 0.1
WATCH_S = 1.0
TOLD_CHARS = 600
RECOVER_LEASES = 20.0  # after so long without an answered probe a site has not recovered
RECOVER_MIN_S = 60.0


@dataclass
class Happened:
    """A fault that has happened, by the monotonic clock.

    Attributes:
        undone_s: when it was begun to be undone; `restored_s` when that was finished.
        here_s: from `restored_s` to the end of the first task that was sent after `undone_s`, at
            the site itself; `abroad_s` the same for its buyer, or across the cut. None: not
            measured, as no probe goes there, or there was none.
    """

    act: Act
    begun_s: float
    undone_s: float = 0.0
    restored_s: float = 0.0
    here_s: float | None = None
    abroad_s: float | None = None

    @property
    def restart_s(self) -> float:
        """The time to undo the fault: to start the ended processes again."""
        return self.restored_s - self.undone_s


def ways(act: Act) -> tuple[tuple[str, str] | None, tuple[str, str] | None]:
    """Which probes tell of a recovery: at the site itself, and from its buyer."""
    if act.lane == "network":
        buyer, _, seller = act.target.partition(">")
        return None, (buyer, seller)
    if act.lane == "clients":
        return (act.target, act.target), None
    abroad = [(buyer, seller) for buyer, seller in BUYERS.items() if seller == act.target]
    return (act.target, act.target), abroad[0] if abroad else None


class Storm:
    """Faults of several lanes at the same time."""

    def __init__(
        self, stage: Stage, kinds: Sequence[Fault], seed: int, pace_s: float, say: "Say"
    ) -> None:
        self._stage, self._seed, self._pace_s, self._say = stage, seed, pace_s, say
        self._kinds = {each.name: each for each in kinds}
        self._answers = Answers(stage.folder)
        self._over = threading.Event()
        self.happened: list[Happened] = []
        self._acting: set[str] = set()  # lanes in which a fault is not undone yet
        self._lock = threading.Lock()

    def run(self, seconds: float) -> None:
        """Let faults happen for so long; all of them are undone when this returns."""
        lanes = {lane for each in self._kinds.values() for lane in each.lanes}
        threads = [
            threading.Thread(target=self._lane, args=(lane,), name=lane) for lane in sorted(lanes)
        ]
        for each in threads:
            each.start()
        until_s = time.monotonic() + seconds
        try:
            while time.monotonic() < until_s:
                self._over.wait(WATCH_S)
                self._watch()
        finally:
            self._over.set()
            for each in threads:
                each.join()

    def _watch(self) -> None:
        """Complain of gateways that have ended though no fault was at them, and start them."""
        for name, site in self._stage.federation.sites.items():
            with self._lock:
                if name in self._acting or site.gateway.process.poll() is None:
                    continue
                self._acting.add(name)
            code = site.gateway.process.returncode
            said = site.gateway.text().strip()[-TOLD_CHARS:]
            self._stage.complain(f"the gateway of {name} ended by itself, {code}: {said}")
            site.start()
            with self._lock:
                self._acting.discard(name)

    def _lane(self, lane: str) -> None:
        kinds = list(self._kinds.values())
        following = draw(kinds, lane, self._seed, self._stage.times.lease_s, self._pace_s)
        while not self._over.is_set():
            act = following()
            if self._over.wait(act.pause_s):
                return
            try:
                self._one(act)
            except Exception:
                self._stage.complain(f"{act.kind} at {act.target}: {traceback.format_exc()}")
                return

    def _one(self, act: Act) -> None:
        kind = self._kinds[act.kind]
        found = Happened(act, time.monotonic())
        self._occupy(act.lane)
        if unfit := kind.unfit(self._stage, act):
            self._say(f"{act.kind} at {act.target} is left out: {unfit}")
            with self._lock:
                self._acting.discard(act.lane)
            return
        try:
            kind.do(self._stage, act)
            self._over.wait(act.hold_s)
        finally:
            found.undone_s = time.monotonic()
            kind.undo(self._stage, act)
            found.restored_s = time.monotonic()
            with self._lock:
                self._acting.discard(act.lane)
        with self._lock:
            self.happened.append(found)
        here, abroad = ways(act)
        if here is not None:
            found.here_s = self._recovery(found, here)
        elif abroad is not None:
            found.abroad_s = self._recovery(found, abroad)
        self._say(_told(found))

    def _occupy(self, lane: str) -> None:
        """Have a lane for a fault: a gateway that has ended by itself is started first."""
        while True:
            with self._lock:
                if lane not in self._acting:
                    self._acting.add(lane)
                    return
            time.sleep(LOOK_S)

    def _recovery(self, found: Happened, way: tuple[str, str]) -> float | None:
        """Wait until work goes on; from when on no other fault is in its way, only so long."""
        limit_s = max(RECOVER_MIN_S, RECOVER_LEASES * self._stage.times.lease_s)
        while True:
            done_s = self._answers.first_after(*way, found.undone_s)
            if done_s is not None:
                return max(0.0, done_s - found.restored_s)
            since_s = max(found.restored_s, self._free_since_s(way))
            if time.monotonic() >= since_s + limit_s:
                act = found.act
                self._stage.complain(
                    f"{act.kind} at {act.target}: no task of {way[0]} was done at {way[1]} for "
                    f"{limit_s:.0f} s after it, and after all others in its way"
                )
                return None
            time.sleep(LOOK_S)

    def _free_since_s(self, way: tuple[str, str]) -> float:
        """Since when no fault is in the way of work: now, while there is one."""
        with self._lock:
            lanes = {*way, *(["network"] if way[0] != way[1] else [])}
            if lanes & self._acting:
                return time.monotonic()
            return max(
                (each.restored_s for each in self.happened if each.act.lane in lanes), default=0.0
            )

    def measure_abroad(self) -> None:
        """Look again for answers that buyers had after the lane had gone on.

        Where another fault has befallen buyer, seller or network meanwhile the figure would be of
        both: it is left out.
        """
        for found in self.happened:
            here, abroad = ways(found.act)
            if found.act.lane == "clients" and here is not None and found.here_s is not None:
                done_s = found.restored_s + found.here_s
                if self._is_disturbed(found, here, done_s):
                    found.here_s = None
            if abroad is None:
                continue
            done_s = self._answers.first_after(*abroad, found.undone_s)
            if done_s is None or self._is_disturbed(found, abroad, done_s):
                found.abroad_s = None
            else:
                found.abroad_s = max(0.0, done_s - found.restored_s)

    def _is_disturbed(self, found: Happened, way: tuple[str, str], done_s: float) -> bool:
        return any(
            other is not found
            and (other.act.lane in way or other.act.lane == "network")
            and other.begun_s < done_s
            and other.restored_s > found.begun_s
            for other in self.happened
        )


def _told(found: Happened) -> str:
    act = found.act
    here = "" if found.here_s is None else f", {found.here_s:.1f} s to the next task"
    return (
        f"{act.kind} at {act.target}: {act.hold_s:.1f} s, undone in {found.restart_s:.1f} s{here}"
    )


class Say:
    """Reports progress to a person."""

    def __call__(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
