"""A gateway's disk in memory: its committed, hardened and queued records.

`MemoryStore` implements the contract of gateway.ledger.store.store.Store (tests/gateway/ledger runs
over it too). Commits take time when there is a clock: records that queue meanwhile go into the next
one.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from itertools import chain, islice
from operator import attrgetter
from typing import Protocol

from federation.messages.reconciliation import Entry, EntryState, Sums, tally_of
from gateway.ledger.accounting.journal import GENESIS, Booked, digest
from gateway.ledger.accounting.postings import Account, Balance, Transfer, add_to, transfers_of
from gateway.ledger.db.errors import StoreClosed
from gateway.ledger.db.overhead import DeliveryKey, Part, apart, overhead
from gateway.ledger.db.queries import hours_between
from gateway.ledger.db.records import (
    AlertEnded,
    AlertFired,
    AttachedLost,
    BundleKept,
    Capacity,
    ContractEnded,
    ContractOpened,
    Disputed,
    DisputeSettled,
    FunctionKept,
    JobClosed,
    JobEnded,
    JobForgotten,
    JobOpened,
    OutcomeKept,
    Payment,
    PaymentsTold,
    PaymentUndone,
    Posted,
    PostingSettled,
    Record,
    ReservationKept,
    SliceHeld,
    SliceLent,
    StatementKept,
    UsageRecord,
)
from gateway.ledger.db.rows import (
    AlertRow,
    CapacityTotal,
    ContractRow,
    DealTotal,
    Dimension,
    DisputeRow,
    JobRow,
    KeptRange,
    PaymentRow,
    Pending,
    PostingRow,
    UsageTotal,
    UsedRun,
)
from gateway.ledger.db.tables import SUMMED
from gateway.ledger.store.store import NOTHING, OPEN_STATES
from gateway.ledger.store.writer import AT_ONCE_RECORDS

Kept = dict[str, dict[int, tuple[int, bytes]]]  # by job and first task: count and body
Later = Callable[[float, Callable[[], None]], None]
_Delivery = tuple[str, str, int, int]  # side, contract, epoch, first


class Auditor(Protocol):
    """An observer of each commit."""

    def __call__(
        self, records: Sequence[Record], booked: Sequence[Booked], *, is_anew: bool
    ) -> None:
        """Examine records, and their bookings.

        `is_anew`: they are the whole contents, at first and after a power cut.
        """


@dataclass(slots=True)
class _JobState:
    """A row of the table of jobs, without its usage."""

    opened: JobOpened
    total: int | None = None
    state: str = "open"
    reason: str = ""
    ended_at_s: float | None = None
    counts: tuple[int, int, int] = (0, 0, 0)
    forgotten: bool = False


@dataclass(slots=True)
class _Tables:
    functions: dict[bytes, bytes] = field(default_factory=dict)
    jobs: dict[str, _JobState] = field(default_factory=dict)
    bundles: Kept = field(default_factory=dict)
    outcomes: Kept = field(default_factory=dict)
    usage: dict[str, dict[tuple[int, int], UsageRecord]] = field(default_factory=dict)
    capacity: dict[tuple[str, float], Capacity] = field(default_factory=dict)
    charged: dict[str, Counter[int]] = field(default_factory=dict)
    uncounted: dict[str, list[range]] = field(default_factory=dict)  # for `charged`, by job
    contracts: dict[tuple[str, str], ContractOpened] = field(default_factory=dict)
    ended: set[tuple[str, str]] = field(default_factory=set)
    postings: dict[_Delivery, Posted] = field(default_factory=dict)
    verdicts: dict[_Delivery, str] = field(default_factory=dict)
    disputes: dict[_Delivery, Disputed] = field(default_factory=dict)
    answers: dict[_Delivery, DisputeSettled] = field(default_factory=dict)
    statements: dict[_Delivery, StatementKept] = field(default_factory=dict)
    payments: dict[tuple[str, str, str, int], PaymentRow] = field(default_factory=dict)
    payments_told: dict[str, PaymentsTold] = field(default_factory=dict)

    alerts: dict[tuple[str, str, int], AlertRow] = field(default_factory=dict)
    reservations: dict[tuple[str, str], ReservationKept] = field(default_factory=dict)
    slices_lent: dict[tuple[str, str, str, int], SliceLent] = field(default_factory=dict)
    slices_held: dict[tuple[str, str, int], SliceHeld] = field(default_factory=dict)
    booked: dict[str, Booked] = field(default_factory=dict)  # by key, in order
    balances: dict[Account, Balance] = field(default_factory=dict)


class Disk:
    """The state that survives a gateway; `hardened` counts the records that survive a power cut."""

    def __init__(self) -> None:
        self.tables = _Tables()
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
            self._apply(record)
            for transfer in transfers_of(record):
                entry = self._book(transfer)
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
        self.tables = _Tables()
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

    def _apply(self, record: Record) -> None:  # noqa: C901 - one match
        tables = self.tables
        match record:
            case FunctionKept(digest, body):
                tables.functions.setdefault(digest, body)
            case BundleKept(job, first, count, body):
                tables.bundles.setdefault(job, {}).setdefault(first, (count, body))
            case OutcomeKept(job, first, count, body):
                tables.outcomes.setdefault(job, {}).setdefault(first, (count, body))
            case UsageRecord():
                self._charge(record)
            case Capacity():
                tables.capacity.setdefault((record.pool, record.since_s), record)
            case JobOpened():
                row = tables.jobs.setdefault(record.job, _JobState(record))
                if row.state in ("lost", "abandoned"):
                    row.state, row.reason, row.ended_at_s = "open", "", None
            case JobClosed(job, total):
                if job in tables.jobs:
                    tables.jobs[job].total = total
            case JobEnded():
                self._end(record)
            case AttachedLost(ended_at_s):
                for row in tables.jobs.values():
                    if row.ended_at_s is None and not row.opened.detached:
                        row.state, row.ended_at_s = "lost", ended_at_s
                        row.reason = "its gateway stopped before it ended"
            case JobForgotten(job):
                self._forget(job)
            case ContractOpened() | Posted() | PostingSettled() | ContractEnded():
                self._deal(record)
            case Disputed() | DisputeSettled() | StatementKept():
                self._agree(record)
            case Payment() | PaymentUndone() | PaymentsTold():
                self._pay(record)

            case AlertFired() | AlertEnded():
                self._alert(record)
            case ReservationKept(side, reservation):
                known = tables.reservations.get((side, reservation))
                if known is None or known.step < record.step:
                    tables.reservations[side, reservation] = record
            case SliceLent(budget, unit, site, account):
                tables.slices_lent[budget, unit, site, account] = record
            case SliceHeld(owner, budget, account):
                tables.slices_held[owner, budget, account] = record

    def _book(self, transfer: Transfer) -> Booked | None:
        tables = self.tables
        if transfer.key in tables.booked:
            return None
        last = next(reversed(tables.booked.values()), None)
        number = last.number + 1 if last is not None else 1
        chained = digest(last.hash if last is not None else GENESIS, number, transfer)
        entry = tables.booked[transfer.key] = Booked(number, transfer, chained)
        add_to(tables.balances, transfer)
        return entry

    def _deal(self, record: ContractOpened | Posted | PostingSettled | ContractEnded) -> None:
        tables, key = self.tables, (record.side, record.contract)
        match record:
            case ContractOpened():
                tables.contracts.setdefault(key, record)
            case ContractEnded():
                tables.ended.add(key)
            case Posted():
                tables.postings.setdefault((*key, record.epoch, record.first), record)
            case PostingSettled():
                tables.verdicts.setdefault((*key, record.epoch, record.first), record.state)

    def _agree(self, record: Disputed | DisputeSettled | StatementKept) -> None:
        tables = self.tables
        match record:
            case Disputed(side, contract, epoch, first):
                tables.disputes.setdefault((side, contract, epoch, first), record)
            case DisputeSettled(side, contract, epoch, first):
                tables.answers.setdefault((side, contract, epoch, first), record)
            case StatementKept(side, site, first_ms, stop_ms):
                before = tables.statements.get((site, side, first_ms, stop_ms))
                if before is None or record.replaces(before):
                    tables.statements[site, side, first_ms, stop_ms] = record

    def _pay(self, record: Payment | PaymentUndone | PaymentsTold) -> None:
        tables = self.tables
        match record:
            case Payment():
                key = record.site, record.reference, record.currency, record.attempt
                tables.payments.setdefault(key, PaymentRow(**asdict(record)))
            case PaymentUndone():
                key = record.site, record.reference, record.currency, record.attempt
                paid = tables.payments.get(key)
                if paid is not None and paid.stands:
                    why, at_s = record.undone_why, record.undone_at_s
                    tables.payments[key] = replace(paid, undone_at_s=at_s, undone_why=why)
            case PaymentsTold(site):
                tables.payments_told[site] = record

    def _alert(self, record: AlertFired | AlertEnded) -> None:
        alerts, key = self.tables.alerts, (record.name, record.key, record.level)
        row = alerts.get(key)
        if isinstance(record, AlertFired):
            if row is None or row.ended_at_s is not None:
                alerts[key] = AlertRow(*key, record.at_s, None)
        elif row is not None and row.ended_at_s is None:
            alerts[key] = replace(row, ended_at_s=record.ended_at_s)

    def _charge(self, record: UsageRecord) -> None:
        records = self.tables.usage.setdefault(record.job, {})
        if records.setdefault((record.first, record.attempt), record) is not record:
            return
        if record.is_charge:
            tasks = range(record.first, record.first + record.tasks)
            self.tables.uncounted.setdefault(record.job, []).append(tasks)

    def _end(self, record: JobEnded) -> None:
        row = self.tables.jobs.get(record.job)
        if row is not None and row.ended_at_s is None:
            row.state, row.reason, row.ended_at_s = record.state, record.reason, record.ended_at_s
            row.counts = (record.done, record.failed, record.cancelled)
        self.tables.bundles.pop(record.job, None)

    def _forget(self, job: str) -> None:
        row = self.tables.jobs.get(job)
        if row is None or row.ended_at_s is None:
            return
        row.forgotten = True
        self.tables.outcomes.pop(job, None)
        function = row.opened.function
        needed = (
            other.opened.function == function and not other.forgotten
            for other in self.tables.jobs.values()
        )
        if function is not None and not any(needed):
            self.tables.functions.pop(function, None)


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

    def mark_lost(self, now_s: float) -> None:
        """See Store."""
        self.write([AttachedLost(now_s)], durable=False, done=lambda: None)

    # --- reading -------------------------------------------------------------------------------

    @property
    def _tables(self) -> _Tables:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._disk.tables

    def jobs(self, limit: int, user: str | None = None, project: str | None = None) -> list[JobRow]:
        """See Store."""
        rows = [
            row
            for row in self._tables.jobs.values()
            if user in (None, row.opened.user) and project in (None, row.opened.project)
        ]
        rows.sort(key=lambda row: (-row.opened.submitted_at_s, row.opened.job))
        return [self._row(row) for row in rows[:limit]]

    def job(self, job: str) -> JobRow | None:
        """See Store."""
        row = self._tables.jobs.get(job)
        return self._row(row) if row is not None else None

    def unfinished(self) -> list[JobRow]:
        """See Store."""
        rows = [
            row
            for row in self._tables.jobs.values()
            if row.opened.detached and row.ended_at_s is None
        ]
        rows.sort(key=lambda row: (row.opened.submitted_at_s, row.opened.job))
        return [self._row(row) for row in rows]

    def forgettable(self, start_s: float, end_s: float, limit: int) -> list[str]:
        """See Store."""
        found = [
            (row.ended_at_s, row.opened.job)
            for row in self._tables.jobs.values()
            if row.opened.detached and not row.forgotten and row.ended_at_s is not None
        ]
        return [job for at_s, job in sorted(found) if start_s <= at_s < end_s][:limit]

    def function(self, digest: bytes) -> bytes | None:
        """See Store."""
        return self._tables.functions.get(digest)

    def bundles(self, job: str) -> Iterator[KeptRange]:
        """See Store."""
        yield from _ranges(self._tables.bundles, job)

    def outcomes(self, job: str, start: int, limit: int) -> list[KeptRange]:
        """See Store."""
        kept = (each for each in _ranges(self._tables.outcomes, job) if each[0] + each[1] > start)
        return list(islice(kept, limit))

    def outcome_ranges(self, job: str) -> list[tuple[int, int]]:
        """See Store."""
        return [(first, count) for first, count, _ in _ranges(self._tables.outcomes, job)]

    def charged_ranges(self, job: str) -> list[tuple[int, int]]:
        """See Store."""
        found = [each for each in self._usage_of(job) if each.is_charge]
        found.sort(key=lambda each: (each.first, each.attempt))
        return [(each.first, each.tasks) for each in found]

    def runs_since_wasted(self, job: str) -> list[UsedRun]:
        """See Store."""
        found = sorted(self._usage_of(job), key=lambda each: (each.attempt, each.first))
        since = min((each.attempt for each in found if each.state == "wasted"), default=None)
        return [
            UsedRun(*(getattr(each, field.name) for field in fields(UsedRun)))
            for each in found
            if since is not None and each.attempt >= since
        ]

    def usage_totals(
        self,
        by: Sequence[Dimension],
        start_s: float | None = None,
        end_s: float | None = None,
        only: Mapping[Dimension, str | int] = NOTHING,
    ) -> list[UsageTotal]:
        """See Store."""
        totals: dict[tuple[tuple[str | int, ...], str], UsageTotal] = {}
        for each in chain.from_iterable(map(dict.values, self._tables.usage.values())):
            if start_s is not None and each.ended_at_s < start_s:
                continue
            if end_s is not None and each.ended_at_s >= end_s:
                continue
            if any(_value(each, dimension) != value for dimension, value in only.items()):
                continue
            key = tuple(_value(each, dimension) for dimension in by)
            total = totals.get((key, each.currency))
            total = total or UsageTotal(key, each.currency, 0, 0, 0, 0, 0, 0)
            peak = max(total.peak_memory_bytes, each.peak_memory_bytes)
            sums = {
                name: getattr(total, name) + getattr(each, name) for name in ("records", *SUMMED)
            }
            totals[key, each.currency] = replace(total, peak_memory_bytes=peak, **sums)
        return [totals[key] for key in sorted(totals)]

    def capacity_totals(self, start_s: float, end_s: float) -> list[CapacityTotal]:
        """See Store."""
        start, end = hours_between(start_s, end_s)
        found: Counter[tuple[str, int]] = Counter()
        for each in self._tables.capacity.values():
            if start <= each.hour < end:
                found[each.pool, each.hour] += each.slot_ns
        return [CapacityTotal(*key, slot_ns) for key, slot_ns in sorted(found.items())]

    def capacity_of(self, pool: str, hour: int) -> list[Capacity]:
        """See Store."""
        found = (each for each in self._tables.capacity.values() if each.hour == hour)
        return sorted((each for each in found if each.pool == pool), key=attrgetter("since_s"))

    def pending(self, start_s: float, end_s: float) -> list[Pending]:
        """See Store."""
        verdicts = self._tables.verdicts
        return self._by_contract(lambda key: key not in verdicts, start_s, end_s)

    def reversed(self, start_s: float, end_s: float) -> list[Pending]:
        """See Store."""
        answers = self._tables.answers
        return self._by_contract(
            lambda key: key in answers and answers[key].state == "accepted", start_s, end_s
        )

    def voided(self, start_s: float, end_s: float) -> list[Pending]:
        """See Store."""
        verdicts = self._tables.verdicts
        return self._by_contract(lambda key: verdicts.get(key) == "void", start_s, end_s)

    def unlike(self, site: str, limit: int) -> list[str]:
        """See Store."""
        charged, delivered = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        dealt = set()
        for each in chain.from_iterable(map(dict.values, self._tables.usage.values())):
            if site in (each.origin, each.site):
                charged["sell" if each.origin else "buy", each.job] += each.cost_nanos
        for (side, contract, *_), posted in self._tables.postings.items():
            opened = self._tables.contracts[side, contract]
            if opened.site == site:
                delivered[side, opened.job] += posted.cost_nanos
                dealt.add((side, opened.job))
        found = (each for each in sorted(dealt) if charged[each] != delivered[each])
        return [f"job {job} ({side})" for side, job in islice(found, limit)]

    def _by_contract(
        self, counts: Callable[[_Delivery], bool], start_s: float, end_s: float
    ) -> list[Pending]:
        found: dict[tuple[str, str], Pending] = {}
        parts: dict[tuple[str, str], dict[DeliveryKey, Part]] = {}
        tables = self._tables
        for key, posted in tables.postings.items():
            contract = tables.contracts.get(key[:2])
            if contract is None or not counts(key):
                continue
            if not start_s <= posted.posted_at_s < end_s:
                continue
            known = found.get(key[:2])
            if known is None:
                known = _nothing_pending(contract, tables.jobs.get(contract.job))
                used = tables.usage.get(contract.job, {}).values()
                groups = (each.group for each in used if not each.is_overhead)
                known = replace(known, group=min(groups, default=""))
            found[key[:2]] = replace(
                known,
                records=known.records + 1,
                oldest_s=min(known.oldest_s, posted.posted_at_s),
                tasks=known.tasks + posted.tasks,
                cost_nanos=known.cost_nanos + posted.cost_nanos,
            )
            parts.setdefault(key[:2], {})[key[1:]] = _part(posted)
        rows = chain.from_iterable(
            apart(each, parts[key], self._overhead(each)) for key, each in found.items()
        )
        return sorted(rows, key=astuple)

    def _overhead(self, pending: Pending) -> dict[DeliveryKey, tuple[int, int]]:
        """The overhead in all that its site delivered for its job, by delivery."""
        tables = self._tables
        used = [
            Part(each.first, each.tasks, each.cost_nanos, each.ended_at_s)
            for each in tables.usage.get(pending.job, {}).values()
            if each.is_overhead and each.site == pending.site and pending.side == "buy"
        ]
        theirs = {
            key: each
            for key, each in tables.contracts.items()
            if (each.side, each.site, each.job) == ("buy", pending.site, pending.job)
        }
        delivered = (each for each in tables.postings.items() if each[0][:2] in theirs)
        return overhead({key[1:]: _part(posted) for key, posted in delivered}, used) if used else {}

    def open_contracts(self) -> list[ContractRow]:
        """See Store."""
        tables = self._tables
        found = [each for key, each in tables.contracts.items() if key not in tables.ended]
        return [
            ContractRow(**asdict(each)) for each in sorted(found, key=lambda row: row.opened_at_s)
        ]

    def postings(self, side: str, contract: str) -> list[PostingRow]:
        """See Store."""
        tables = self._tables
        return [
            PostingRow(
                *key[2:],
                each.tasks,
                each.cost_nanos,
                tables.verdicts.get(key, "pending"),
                each.wall_ns,
                each.posted_at_s,
            )
            for key, each in sorted(tables.postings.items())
            if key[:2] == (side, contract)
        ]

    def contract(self, side: str, contract: str) -> ContractRow | None:
        """See Store."""
        row = self._tables.contracts.get((side, contract))
        return ContractRow(**asdict(row)) if row is not None else None

    def last_contracts(self, side: str) -> list[tuple[str, str]]:
        """See Store."""
        return [(row.site, row.contract) for key, row in self._tables.contracts.items()
                if key[0] == side]  # fmt: skip

    def partners(self, side: str | None = None) -> list[str]:
        """See Store."""
        found = self._tables.contracts.values()
        return sorted({each.site for each in found if side in (None, each.side)})

    def deal_totals(self) -> list[DealTotal]:
        """See Store."""
        tables = self._tables
        totals: dict[tuple[str, str, str, str], DealTotal] = {}
        for key, each in tables.postings.items():
            contract = tables.contracts[key[:2]]
            state = tables.verdicts.get(key, "pending")
            group = (contract.site, contract.side, contract.currency, state)
            total = totals.get(group) or DealTotal(*group, 0, 0, 0)
            totals[group] = replace(
                total,
                tasks=total.tasks + each.tasks,
                wall_ns=total.wall_ns + each.wall_ns,
                cost_nanos=total.cost_nanos + each.cost_nanos,
            )
        return [totals[group] for group in sorted(totals)]

    def entries(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[Entry]:
        """See Store."""
        tables, found = self._tables, []
        for key, each in tables.postings.items():
            if (each.side, each.site) != (side, site) or contract not in ("", each.contract):
                continue
            delivery, verdict = each.delivery, tables.verdicts.get(key, "pending")
            if verdict != "void" and first_ms <= delivery.at_ms < stop_ms:
                state = EntryState.POSTED if verdict == "post" else EntryState.PENDING
                found.append(Entry(each.contract, each.currency, delivery, state))
            answer = tables.answers.get(key)
            if answer is not None and answer.state == "accepted":
                at_ms = round(answer.settled_at_s * 1000)
                if first_ms <= at_ms < stop_ms:
                    back = replace(delivery, at_ms=at_ms)
                    found.append(Entry(each.contract, each.currency, back, EntryState.REVERSAL))
        yield from sorted(found, key=lambda each: (each.contract, each.row[:2], each.state))

    def entry_sums(self, side: str, site: str, first_ms: int, stop_ms: int) -> dict[str, Sums]:
        """See Store."""
        return tally_of(self.entries(side, site, first_ms, stop_ms)).sums

    def voids(
        self, side: str, site: str, first_ms: int, stop_ms: int, contract: str = ""
    ) -> Iterator[Entry]:
        """See Store."""
        tables = self._tables
        found = [
            Entry(each.contract, each.currency, each.delivery, EntryState.VOID)
            for key, each in tables.postings.items()
            if (each.side, each.site) == (side, site) and contract in ("", each.contract)
            if tables.verdicts.get(key) == "void" and first_ms <= each.delivery.at_ms < stop_ms
        ]
        yield from sorted(found, key=lambda each: (each.contract, each.row[:2]))

    def verdict_sums(
        self, side: str, site: str, first_ms: int, stop_ms: int
    ) -> tuple[dict[str, Sums], dict[str, Sums]]:
        """See Store."""
        void: dict[str, Sums] = {}
        for each in self.voids(side, site, first_ms, stop_ms):
            void.setdefault(each.currency, Sums()).add(replace(each, state=EntryState.POSTED))
        return self.entry_sums(side, site, first_ms, stop_ms), void

    def next_delivery_ms(self, side: str, site: str, since_ms: int) -> int | None:
        """See Store."""
        tables = self._tables
        times = [
            each.posted_at_s
            for each in tables.postings.values()
            if (each.side, each.site) == (side, site)
        ]
        times += [
            each.settled_at_s
            for each in tables.answers.values()
            if (each.side, each.site, each.state) == (side, site, "accepted")
        ]
        found = (round(at_s * 1000) for at_s in times)
        return min((at_ms for at_ms in found if at_ms >= since_ms), default=None)

    def disputes(self, contract: str = "", is_open: bool = False) -> list[DisputeRow]:
        """See Store."""
        tables, found = self._tables, []
        for key, each in tables.disputes.items():
            posted, answer = tables.postings[key], tables.answers.get(key)
            if contract not in ("", each.contract) or (is_open and answer is not None):
                continue
            found.append(
                DisputeRow(
                    **asdict(each),
                    job=tables.contracts[key[:2]].job,
                    state=answer.state if answer is not None else "open",
                    answer=answer.answer if answer is not None else "",
                    settled_at_s=answer.settled_at_s if answer is not None else None,
                    tasks=posted.tasks,
                    cost_nanos=posted.cost_nanos,
                    currency=posted.currency,
                )
            )
        return sorted(found, key=lambda each: (each.disputed_at_s, each.contract, each.epoch))

    def statements(self, side: str = "", site: str = "") -> list[StatementKept]:
        """See Store."""
        found = (each for _, each in sorted(self._tables.statements.items()))
        return [each for each in found if side in ("", each.side) and site in ("", each.site)]

    def payments(self, site: str = "") -> list[PaymentRow]:
        """See Store."""
        found = (each for each in self._tables.payments.values() if site in ("", each.site))
        return sorted(found, key=lambda each: each.paid_at_s)

    def payments_told(self, site: str = "") -> list[PaymentsTold]:
        """See Store."""
        found = sorted(self._tables.payments_told.items())
        return [each for name, each in found if site in ("", name)]

    def reservation(self, side: str, name: str) -> ReservationKept | None:
        """See Store."""
        return self._tables.reservations.get((side, name))

    def reservation_names(self, side: str) -> Iterator[tuple[str, str]]:
        """See Store."""
        for (of, name), row in self._tables.reservations.items():
            if of == side and row.site:
                yield row.site, name

    def reservations(
        self, limit: int, is_open: bool = False, start: int = 0
    ) -> list[ReservationKept]:
        """See Store."""
        kept = sorted(
            self._tables.reservations.values(),
            key=lambda each: (-each.until_s, each.side, each.reservation),
        )
        if is_open:
            return [each for each in kept if each.state in OPEN_STATES]
        return kept[start : start + limit]

    def alerts(self) -> list[AlertRow]:
        """See Store."""
        return [each for _, each in sorted(self._tables.alerts.items())]

    def slices_lent(self) -> list[SliceLent]:
        """See Store."""
        return [each for _, each in sorted(self._tables.slices_lent.items())]

    def slices_held(self) -> list[SliceHeld]:
        """See Store."""
        found = (each for _, each in sorted(self._tables.slices_held.items()))
        return [each for each in found if not each.is_closed]

    def balances(self) -> dict[Account, Balance]:
        """See Store."""
        return {account: replace(each) for account, each in self._tables.balances.items()}

    def booked(self, after: int, limit: int) -> list[Booked]:
        """See Store."""
        return list(islice(self._tables.booked.values(), after, after + limit))

    def roll_up(self, now_s: float, keep_s: float) -> bool:
        """See Store: no world lasts long enough."""
        return False

    def _usage_of(self, job: str) -> list[UsageRecord]:
        return list(self._tables.usage.get(job, {}).values())

    def _row(self, row: _JobState) -> JobRow:
        opened, usage = row.opened, self._usage_of(row.opened.job)
        costs_nanos: dict[str, int] = {}
        prices_nanos: dict[str, int] = {}
        for each in sorted(usage, key=lambda each: each.currency):
            costs_nanos[each.currency] = costs_nanos.get(each.currency, 0) + each.cost_nanos
            highest = prices_nanos.get(each.currency, 0)
            prices_nanos[each.currency] = max(highest, each.price_nanos)
        done, failed, cancelled = row.counts
        return JobRow(
            job=opened.job,
            name=opened.name,
            user=opened.user,
            project=opened.project,
            detached=opened.detached,
            spec=opened.spec,
            submitted_at_s=opened.submitted_at_s,
            total=row.total,
            state=row.state,
            reason=row.reason,
            ended_at_s=row.ended_at_s,
            done=done,
            failed=failed,
            cancelled=cancelled,
            forgotten=row.forgotten,
            wall_ns=sum(each.wall_ns for each in usage if each.state != "lost"),
            cpu_ns=sum(each.cpu_ns for each in usage if each.state != "lost"),
            costs_nanos=costs_nanos,
            prices_nanos=prices_nanos,
            attempt_max=max((each.attempt for each in usage), default=0),
            repeat_ns=sum(each.wall_ns for each in usage if each.state == "repeat"),
        )


def _ranges(kept: Kept, job: str) -> list[KeptRange]:
    return sorted((first, *value) for first, value in kept.get(job, {}).items())


def _nothing_pending(contract: ContractOpened, job: _JobState | None) -> Pending:
    who = (job.opened.user, job.opened.project, job.opened.name) if job else ("", "", "")
    where = (contract.side, contract.site, contract.pool, contract.job)
    return Pending(*where, *who, contract.currency, 0, math.inf, 0, 0)


def _part(posted: Posted) -> Part:
    return Part(posted.first, posted.tasks, posted.cost_nanos, posted.posted_at_s)


def _value(record: UsageRecord, dimension: Dimension) -> str | int:
    if dimension is Dimension.DAY:
        return record.hour // 24
    value: str | int = getattr(record, dimension.value)
    return value
