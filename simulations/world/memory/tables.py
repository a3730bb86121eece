"""The tables of a site in memory, and what each record changes in them."""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace

from federation.clocks import UtcS
from gateway.base.job_states import ENDS_ORDERED
from gateway.ledger.accounting.journal import GENESIS, Booked, digest
from gateway.ledger.accounting.postings import Balance, LedgerAccount, Transfer, add_to
from gateway.ledger.db.alerts.records import AlertEnded, AlertFired, AlertRow
from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from gateway.ledger.db.contracts.records import (
    ContractEnded,
    ContractOpened,
    MoveProved,
    Posted,
    PostingSettled,
)
from gateway.ledger.db.drains.records import DrainEnded, DrainKept
from gateway.ledger.db.jobs.records import (
    AttachedLost,
    BundleKept,
    EndOrdered,
    FunctionKept,
    JobClosedRecord,
    JobEnded,
    JobForgotten,
    JobOpenedRecord,
    LeftJobCancelled,
    LeftTermsKept,
    OutcomeKept,
)
from gateway.ledger.db.records import Record
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.rules.records import (
    RuleChangeCancelled,
    RuleChangeKept,
    RuleChangeRow,
    RuleEditKept,
)
from gateway.ledger.db.settlement.records import (
    Disputed,
    DisputeSettled,
    Payment,
    PaymentRow,
    PaymentsTold,
    PaymentUndone,
    StatementKept,
)
from gateway.ledger.db.usage.records import CapacityRecord, UsageRecord

Kept = dict[str, dict[int, tuple[int, bytes]]]  # by job and first task: count and body
DeliveryId = tuple[str, str, int, int]  # side, contract, epoch, first


@dataclass(slots=True)
class KeptJob:
    """A row of the table of jobs, without its usage."""

    opened: JobOpenedRecord
    total: int | None = None
    state: str = "open"
    reason: str = ""
    ended_at_s: UtcS | None = None
    counts: tuple[int, int, int] = (0, 0, 0)
    forgotten: bool = False


Dealt = ContractOpened | Posted | MoveProved | PostingSettled | ContractEnded


@dataclass(slots=True)
class Tables:
    """The rows of every table, by their keys."""

    functions: dict[bytes, bytes] = field(default_factory=dict)
    jobs: dict[str, KeptJob] = field(default_factory=dict)
    bundles: Kept = field(default_factory=dict)
    outcomes: Kept = field(default_factory=dict)
    usage: dict[str, dict[tuple[int, int], UsageRecord]] = field(default_factory=dict)
    capacity: dict[tuple[str, UtcS], CapacityRecord] = field(default_factory=dict)
    charged: dict[str, Counter[int]] = field(default_factory=dict)
    uncounted: dict[str, list[range]] = field(default_factory=dict)  # for `charged`, by job
    contracts: dict[tuple[str, str], ContractOpened] = field(default_factory=dict)
    ended: dict[tuple[str, str], str] = field(default_factory=dict)
    postings: dict[DeliveryId, Posted] = field(default_factory=dict)
    verdicts: dict[DeliveryId, str] = field(default_factory=dict)
    proofs: dict[DeliveryId, tuple[bytes, bytes]] = field(default_factory=dict)  # of moved bytes
    disputes: dict[DeliveryId, Disputed] = field(default_factory=dict)
    answers: dict[DeliveryId, DisputeSettled] = field(default_factory=dict)
    statements: dict[DeliveryId, StatementKept] = field(default_factory=dict)
    payments: dict[tuple[str, str, str, int], PaymentRow] = field(default_factory=dict)
    payments_told: dict[str, PaymentsTold] = field(default_factory=dict)
    alerts: dict[tuple[str, str, int], AlertRow] = field(default_factory=dict)
    drains: dict[tuple[str, str], DrainKept] = field(default_factory=dict)
    reservations: dict[tuple[str, str], ReservationKept] = field(default_factory=dict)
    rule_changes: dict[int, RuleChangeRow] = field(default_factory=dict)
    slices_lent: dict[tuple[str, str, str, int], SliceLent] = field(default_factory=dict)
    slices_held: dict[tuple[str, str, int], SliceHeld] = field(default_factory=dict)
    booked: dict[str, Booked] = field(default_factory=dict)  # by key, in order
    balances: dict[LedgerAccount, Balance] = field(default_factory=dict)

    def apply(self, record: Record) -> None:  # noqa: C901 - one match
        """Write a record; writing it again changes nothing."""
        match record:
            case FunctionKept(digest, body):
                self.functions.setdefault(digest, body)
            case BundleKept(job, first, count, body):
                self.bundles.setdefault(job, {}).setdefault(first, (count, body))
            case OutcomeKept(job, first, count, body):
                self.outcomes.setdefault(job, {}).setdefault(first, (count, body))
            case UsageRecord():
                self._charge(record)
            case CapacityRecord():
                self.capacity.setdefault((record.pool, record.since_s), record)
            case JobOpenedRecord():
                row = self.jobs.setdefault(record.job, KeptJob(record))
                if row.state in ("open", "lost", "abandoned"):
                    row.state, row.reason, row.ended_at_s = "open", "", None
                    row.opened = replace(row.opened, spec=record.spec)
            case JobClosedRecord(job, total):
                if job in self.jobs:
                    self.jobs[job].total = total
            case EndOrdered():
                self._order_end(record)
            case JobEnded():
                self._end(record)
            case LeftJobCancelled(job, reason):
                if self._is_left(job):
                    self.jobs[job].state, self.jobs[job].reason = "cancelled", reason
            case LeftTermsKept(job, spec):
                if self._is_left(job):
                    self.jobs[job].opened = replace(self.jobs[job].opened, spec=spec)
            case AttachedLost(ended_at_s):
                for row in self.jobs.values():
                    if row.ended_at_s is None and not row.opened.detached:
                        if row.state not in ENDS_ORDERED:
                            row.reason = "its gateway stopped before it ended"
                        row.state = ENDS_ORDERED.get(row.state, "lost")
                        row.ended_at_s = ended_at_s
            case JobForgotten(job):
                self._forget(job)
            case ContractOpened() | Posted() | MoveProved() | PostingSettled() | ContractEnded():
                self._deal(record)
            case Disputed() | DisputeSettled() | StatementKept():
                self._agree(record)
            case Payment() | PaymentUndone() | PaymentsTold():
                self._pay(record)
            case DrainKept():
                self.drains.setdefault((record.kind, record.name), record)
            case DrainEnded():
                self.drains.pop((record.kind, record.name), None)
            case AlertFired() | AlertEnded():
                self._alert(record)
            case ReservationKept(side, reservation):
                known = self.reservations.get((side, reservation))
                if known is None or known.step < record.step:
                    self.reservations[side, reservation] = record
            case RuleChangeKept() | RuleEditKept() | RuleChangeCancelled():
                self._rule(record)
            case SliceLent(budget, unit, site, account):
                self.slices_lent[budget, unit, site, account] = record
            case SliceHeld(owner, budget, account):
                self.slices_held[owner, budget, account] = record

    def book(self, transfer: Transfer) -> Booked | None:
        """Book a transfer; None: it was booked before."""
        if transfer.key in self.booked:
            return None
        last = next(reversed(self.booked.values()), None)
        number = last.number + 1 if last is not None else 1
        chained = digest(last.hash if last is not None else GENESIS, number, transfer)
        entry = self.booked[transfer.key] = Booked(number, transfer, chained)
        add_to(self.balances, transfer)
        return entry

    def usage_of(self, job: str) -> list[UsageRecord]:
        """Return the usage of a job, in the order of writing."""
        return list(self.usage.get(job, {}).values())

    def _deal(self, record: Dealt) -> None:
        key = (record.side, record.contract)
        match record:
            case ContractOpened():
                self.contracts.setdefault(key, record)
            case ContractEnded():
                self.ended[key] = record.state
            case Posted():
                self.postings.setdefault((*key, record.epoch, record.first), record)
            case MoveProved():
                proof = record.ticket, record.receipt
                self.proofs.setdefault((*key, record.epoch, record.first), proof)
            case PostingSettled():
                self.verdicts.setdefault((*key, record.epoch, record.first), record.state)

    def _agree(self, record: Disputed | DisputeSettled | StatementKept) -> None:
        match record:
            case Disputed(side, contract, epoch, first):
                self.disputes.setdefault((side, contract, epoch, first), record)
            case DisputeSettled(side, contract, epoch, first):
                self.answers.setdefault((side, contract, epoch, first), record)
            case StatementKept(side, site, first_ms, stop_ms):
                before = self.statements.get((site, side, first_ms, stop_ms))
                if before is None or record.replaces(before):
                    self.statements[site, side, first_ms, stop_ms] = record

    def _pay(self, record: Payment | PaymentUndone | PaymentsTold) -> None:
        match record:
            case Payment():
                key = record.site, record.reference, record.currency, record.attempt
                self.payments.setdefault(key, PaymentRow(**asdict(record)))
            case PaymentUndone():
                key = record.site, record.reference, record.currency, record.attempt
                paid = self.payments.get(key)
                if paid is not None and paid.stands:
                    why, at_s = record.undone_why, record.undone_at_s
                    self.payments[key] = replace(paid, undone_at_s=at_s, undone_why=why)
            case PaymentsTold(site):
                self.payments_told[site] = record

    def _alert(self, record: AlertFired | AlertEnded) -> None:
        alerts, key = self.alerts, (record.name, record.key, record.level)
        row = alerts.get(key)
        if isinstance(record, AlertFired):
            if row is None or row.ended_at_s is not None:
                alerts[key] = AlertRow(*key, record.at_s, None)
        elif row is not None and row.ended_at_s is None:
            alerts[key] = replace(row, ended_at_s=record.ended_at_s)

    def _rule(self, record: RuleChangeKept | RuleEditKept | RuleChangeCancelled) -> None:
        changes, number = self.rule_changes, record.number
        match record:
            case RuleChangeKept():
                changes.setdefault(number, RuleChangeRow(record, None, ()))
            case RuleChangeCancelled() if number in changes:
                if changes[number].cancelled_at_s is None:
                    at_s = record.cancelled_at_s
                    changes[number] = replace(changes[number], cancelled_at_s=at_s)
            case RuleEditKept() if number in changes:
                edits = changes[number].edits
                key = (record.kind, record.pool, record.name)
                if key not in [(each.kind, each.pool, each.name) for each in edits]:
                    changes[number] = replace(changes[number], edits=(*edits, record))

    def _charge(self, record: UsageRecord) -> None:
        records = self.usage.setdefault(record.job, {})
        if records.setdefault((record.first, record.attempt), record) is not record:
            return
        if record.is_charge:
            tasks = range(record.first, record.first + record.tasks)
            self.uncounted.setdefault(record.job, []).append(tasks)

    def _order_end(self, record: EndOrdered) -> None:
        row = self.jobs.get(record.job)
        if row is not None and row.ended_at_s is None:
            row.state, row.reason = record.state, record.reason
        bundles = self.bundles.get(record.job, {})
        self.bundles[record.job] = {
            first: (count, record.arguments) for first, (count, _) in bundles.items()
        }

    def _is_left(self, job: str) -> bool:
        row = self.jobs.get(job)
        return row is not None and row.state in ("lost", "abandoned") and not row.opened.detached

    def _end(self, record: JobEnded) -> None:
        row = self.jobs.get(record.job)
        if row is not None and row.ended_at_s is None:
            row.state, row.reason, row.ended_at_s = record.state, record.reason, record.ended_at_s
            row.counts = (record.done, record.failed, record.cancelled)
        self.bundles.pop(record.job, None)

    def _forget(self, job: str) -> None:
        row = self.jobs.get(job)
        if row is None or row.ended_at_s is None:
            return
        row.forgotten = True
        self.outcomes.pop(job, None)
        function = row.opened.function
        needed = (
            other.opened.function == function and not other.forgotten
            for other in self.jobs.values()
        )
        if function is not None and not any(needed):
            self.functions.pop(function, None)
