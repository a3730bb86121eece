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

    The time in which its worker was stopped counts as run time: its client sees no difference. Work
    from another site has other names at its seller, and is not checked.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._since: dict[Key, float] = {}
        self._longest_s: dict[Key, float] = {}

    def see(self, entry: TraceEntry) -> None:
        """Note how long each task ran at each worker, and check charges."""
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
        self._longest_s[key] = max(self._longest_s.get(key, 0.0), at_s - since_s)

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
