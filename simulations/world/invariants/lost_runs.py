"""Bookings of runs that ended with their worker: never more time than they can have had."""

from typing import TYPE_CHECKING, Final

from gateway.ledger.db.usage.records import UsageRecord
from simulations.world.invariants.invariants import Invariant
from simulations.world.trace import TraceEntry

if TYPE_CHECKING:
    from simulations.world.world import World

# A worker reports run times in whole milliseconds, and clocks drift apart.
SLACK_S: Final = 0.02

# Worker, job, task.
Key = tuple[str, str, int]


class LostAsRun(Invariant):
    """A lost run is booked for no longer than its task ran, nor than its time limit.

    Two times beyond the end of a run are its time as well, as its gateway can't tell them from it:
    that in which its worker was stopped, and that in which the network held the worker's frames
    back. A frame counts when it arrives, and the system of a host sends on what a dead process
    wrote. Work from another site has other names at its seller, and is not checked.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._since: dict[Key, float] = {}
        self._longest_s: dict[Key, float] = {}
        # Starts of runs that have ended, whose worker's frames are still held back.
        self._held: dict[Key, list[float]] = {}

    def check(self) -> None:
        """Note which workers' frames are not held back any more."""
        self._deliver(self.world.clock.now_s)

    def see(self, entry: TraceEntry) -> None:
        """Note how long each task ran at each worker, and check charges."""
        self._deliver(entry.at_s)
        if entry.what == "charges" and isinstance(entry.data, UsageRecord):
            self._look(entry.data, entry)
        if entry.host not in self.world.workers:
            return
        key = entry.host, entry.job, entry.first
        if entry.what in ("crashes", "loses power"):
            for each in [each for each in self._since if each[0] == entry.host]:
                self._end(each, entry.at_s)
        elif entry.job and entry.data is not None:
            if entry.what == "starts":
                self._since[key] = entry.at_s
            else:
                self._end(key, entry.at_s)

    def _end(self, key: Key, at_s: float) -> None:
        since_s = self._since.pop(key, at_s)
        self._lasted(key, at_s - since_s)
        if self._is_held(key[0]):
            self._held.setdefault(key, []).append(since_s)

    def _deliver(self, at_s: float) -> None:
        """Count what ended behind a cut as having run until now, when the cut is over."""
        for key in [key for key in self._held if not self._is_held(key[0])]:
            for since_s in self._held.pop(key):
                self._lasted(key, at_s - since_s)

    def _is_held(self, worker: str) -> bool:
        return self.world.network.is_cut(worker, self.world.workers[worker].gateway)

    def _lasted(self, key: Key, ran_s: float) -> None:
        self._longest_s[key] = max(self._longest_s.get(key, 0.0), ran_s)

    def _look(self, record: UsageRecord, entry: TraceEntry) -> None:
        if record.state not in ("wasted", "lost") or record.worker not in self.world.workers:
            return
        job = next((each for each in self.jobs if each.id == record.job), None)
        if job is None:
            return
        key = record.worker, record.job, record.first
        at_work_s = entry.at_s - self._since.get(key, entry.at_s)
        ran_s = max(at_work_s, self._longest_s.get(key, 0.0))
        limit_s = job.plan.timeout_s
        most_s = ran_s + SLACK_S if limit_s is None else min(limit_s, ran_s + SLACK_S)
        if record.wall_ns > most_s * 1e9:
            text = f"{record.wall_ns / 1e9:.3f} s are {record.state} of a run of {ran_s:.3f} s"
            self.fail(f"{entry.host}: {text} at {record.worker}", record.job, record.first)
