"""A store on a disk in memory, under the contract tests of `Store` (tests/gateway/ledger).

Commits take time when there is a clock: records that queue meanwhile go into the next one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from federation.clocks import UtcS
from gateway.ledger.db.errors import StoreClosed
from gateway.ledger.db.jobs.records import AttachedLost
from gateway.ledger.db.records import Record
from gateway.ledger.store.writer import AT_ONCE_RECORDS
from simulations.world.memory.alerts import MemoryAlerts
from simulations.world.memory.budgets import MemoryBudgets
from simulations.world.memory.contracts import MemoryContracts
from simulations.world.memory.disk import Disk
from simulations.world.memory.drains import MemoryDrains
from simulations.world.memory.jobs import MemoryJobs
from simulations.world.memory.journal import MemoryJournal
from simulations.world.memory.reservations import MemoryReservations
from simulations.world.memory.rules import MemoryRules
from simulations.world.memory.settlement import MemorySettlement
from simulations.world.memory.tables import Tables
from simulations.world.memory.usage import MemoryUsage

Later = Callable[[float, Callable[[], None]], None]


@dataclass(slots=True)
class _Queued:
    records: Sequence[Record]
    durable: bool
    done: Callable[[], None]


class MemoryStore:
    """A Store on a Disk.

    Args:
        later: `later(wait_s, call)` calls after that time; None commits at once, always.
        commit_s: the duration of a commit that syncs, and of one that does not.
        settled: called after each group of acknowledgements.
    """

    def __init__(
        self,
        disk: Disk,
        later: Later | None = None,
        commit_s: Callable[[bool], float] = lambda _: 0.0,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        self._later = later
        self._commit_s = commit_s
        self._settled = settled
        self._queue: list[_Queued] = []
        self._committing: list[_Queued] = []
        self._closed = False
        self.jobs = MemoryJobs(self._tables)
        self.usage = MemoryUsage(self._tables)
        self.contracts = MemoryContracts(self._tables)
        self.settlement = MemorySettlement(self._tables)
        self.reservations = MemoryReservations(self._tables)
        self.budgets = MemoryBudgets(self._tables)
        self.alerts = MemoryAlerts(self._tables)
        self.drains = MemoryDrains(self._tables)
        self.rules = MemoryRules(self._tables)
        self.journal = MemoryJournal(self._tables)

    @property
    def backlog(self) -> int:
        """See Store."""
        return sum(len(each.records) for each in self._committing + self._queue)

    @property
    def backlog_bytes(self) -> int:
        """See Store."""
        queued = (record for each in self._committing + self._queue for record in each.records)
        return sum(len(getattr(record, "body", b"")) for record in queued)

    def write(self, records: Sequence[Record], durable: bool, done: Callable[[], None]) -> None:
        """See Store."""
        if self._closed:
            raise StoreClosed("the store is closed")
        is_quick = not durable and 0 < len(records) <= AT_ONCE_RECORDS and not self._is_busy
        if self._later is None or (is_quick and self._commit_s(False) == 0.0):
            self._disk.commit(records, durable=durable)
            done()
            return
        self._queue.append(_Queued(records, durable, done))
        self._begin()

    @property
    def _is_busy(self) -> bool:
        return bool(self._queue or self._committing)

    def _begin(self) -> None:
        if self._committing or not self._queue or self._later is None:
            return
        self._committing, self._queue = self._queue, []
        durable = any(each.durable for each in self._committing)
        self._later(self._commit_s(durable), self._commit)

    def _commit(self) -> None:
        if self._closed:
            return  # the process died before the commit
        committed, self._committing = self._committing, []
        records = [record for each in committed for record in each.records]
        self._disk.commit(records, durable=any(each.durable for each in committed))
        for each in committed:
            each.done()
        self._settled()
        self._begin()

    def kill(self) -> None:
        """Kill the process: queued records were never acknowledged, and are lost."""
        self._closed = True
        self._queue, self._committing = [], []

    def close(self) -> None:
        """See Store."""
        while self._is_busy:
            queued, self._queue = self._committing + self._queue, []
            self._committing = []
            for each in queued:
                self._disk.commit(each.records, durable=each.durable)
                each.done()
        self._closed = True

    def mark_lost(self, now_s: UtcS) -> None:
        """See Store."""
        self.write([AttachedLost(now_s)], durable=False, done=lambda: None)

    def roll_up(self, utc_s: UtcS, keep_s: float) -> bool:
        """See Store: no world lasts long enough."""
        return False

    def _tables(self) -> Tables:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._disk.tables
