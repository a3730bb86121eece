"""A disk in memory: the committed and hardened records of a gateway."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

from gateway.ledger.accounting.journal import Booked
from gateway.ledger.accounting.postings import transfers_of
from gateway.ledger.db.records import Record
from gateway.ledger.db.usage.records import UsageRecord
from simulations.world.memory.tables import Tables


class Auditor(Protocol):
    """An observer of each commit."""

    def __call__(
        self, records: Sequence[Record], booked: Sequence[Booked], *, is_anew: bool
    ) -> None:
        """Examine records, and their bookings.

        `is_anew`: they are the whole contents, at first and after a power cut.
        """


class Disk:
    """The state that survives a gateway; `hardened` counts the records that survive a power cut."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.hardened = 0
        self.power_cuts = 0
        self.boot = 0  # a file beside the database, synced before it counts
        self.auditors: list[Auditor] = []
        self._log: list[Record] = []

    def commit(self, records: Sequence[Record], *, durable: bool) -> None:
        """Apply records; durable ones harden everything before them."""
        is_anew = not self._log
        booked = []
        for record in records:
            self.tables.apply(record)
            for transfer in transfers_of(record):
                entry = self.tables.book(transfer)
                if entry is not None:
                    booked.append(entry)
        self._log.extend(records)
        if durable:
            self.hardened = len(self._log)
        for audit in self.auditors:
            audit(records, booked, is_anew=is_anew)

    def cut_power(self) -> None:
        """Lose the records that were not hardened."""
        self.power_cuts += 1
        kept, self._log = self._log[: self.hardened], []
        self.tables = Tables()
        self.commit(kept, durable=True)

    @property
    def written(self) -> int:
        """The number of records that were committed, and not lost."""
        return len(self._log)

    def charges(self) -> Iterator[UsageRecord]:
        """Yield the usage records that are charges."""
        for records in self.tables.usage.values():
            yield from (each for each in records.values() if each.state not in ("repeat", "lost"))

    def overhead_nanos(self) -> int:
        """Return the amount that the site pays for its users' tasks that ran again elsewhere."""
        records = chain.from_iterable(map(dict.values, self.tables.usage.values()))
        return sum(each.cost_nanos - each.charged_nanos for each in records)

    def charged(self, job: str) -> Counter[int]:
        """Return how often each task of a job was charged."""
        counts = self.tables.charged.setdefault(job, Counter())
        for tasks in self.tables.uncounted.pop(job, ()):
            counts.update(tasks)
        return counts
