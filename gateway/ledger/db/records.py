"""Everything that can be written: a closed union of frozen facts, by subject.

Writes are idempotent: writing a record twice changes nothing. A gateway that was killed can
therefore repeat every write that it is not sure of, and nothing is charged or stored twice.

Modules that name records of many subjects import this module, and write `records.JobEnded`.
"""

from gateway.ledger.db.alerts.records import AlertEnded, AlertFired
from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from gateway.ledger.db.contracts.records import (
    ContractEnded,
    ContractOpened,
    MoveProved,
    Posted,
    PostingSettled,
    posted,
    settled,
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
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.rules.records import RuleChangeCancelled, RuleChangeKept, RuleEditKept
from gateway.ledger.db.settlement.records import (
    Disputed,
    DisputeSettled,
    Payment,
    PaymentsTold,
    PaymentUndone,
    StatementKept,
)
from gateway.ledger.db.usage.records import CapacityRecord, UsageRecord

__all__ = [
    "AlertEnded",
    "AlertFired",
    "AttachedLost",
    "BundleKept",
    "CapacityRecord",
    "ContractEnded",
    "ContractOpened",
    "DisputeSettled",
    "Disputed",
    "DrainEnded",
    "DrainKept",
    "EndOrdered",
    "FunctionKept",
    "JobClosedRecord",
    "JobEnded",
    "JobForgotten",
    "JobOpenedRecord",
    "LeftJobCancelled",
    "LeftTermsKept",
    "MoveProved",
    "OutcomeKept",
    "Payment",
    "PaymentUndone",
    "PaymentsTold",
    "Posted",
    "PostingSettled",
    "Record",
    "ReservationKept",
    "RuleChangeCancelled",
    "RuleChangeKept",
    "RuleEditKept",
    "SliceHeld",
    "SliceLent",
    "StatementKept",
    "UsageRecord",
    "posted",
    "settled",
]

Record = (
    FunctionKept
    | JobOpenedRecord
    | BundleKept
    | JobClosedRecord
    | OutcomeKept
    | EndOrdered
    | LeftJobCancelled
    | LeftTermsKept
    | JobEnded
    | UsageRecord
    | CapacityRecord
    | AttachedLost
    | JobForgotten
    | ContractOpened
    | Posted
    | MoveProved
    | PostingSettled
    | ContractEnded
    | Disputed
    | DisputeSettled
    | StatementKept
    | Payment
    | PaymentUndone
    | PaymentsTold
    | AlertFired
    | AlertEnded
    | ReservationKept
    | SliceLent
    | SliceHeld
    | RuleChangeKept
    | RuleEditKept
    | RuleChangeCancelled
    | DrainKept
    | DrainEnded
)
