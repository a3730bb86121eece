"""Double entry: the transfers between accounts that a record stands for. Pure.

A transfer takes an amount from one account and gives it to another, so that debits and credits are
equal by construction, in each currency. Transfers are never changed; a mistake is reversed by
another transfer. An amount that is not certain yet is *held*, and the hold is posted or voided,
once.

| event | debit | credit |
|---|---|---|
| a task of our user ran in our pool | user | pool |
| a task of our user ran elsewhere | user | bought from the site |
| the seller states its cost to us | bought from the site | site |
| a task of another site ran in our pool | sold to the site | pool |
| its results were delivered | site | sold to the site |
| a dispute was accepted | the same, with debit and credit swapped |
| we paid a site | site | bank, exchange or loss |
| a site paid us | bank, exchange or loss | site |
| a payment was undone | the same, with debit and credit swapped |

The account of a site is the balance between us: the mirror of our account in its books. `bought`
and `sold` are in between: the remainder on them after settlement is our margin, or our loss (work
that ran twice, or came too late to be paid).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from federation.clocks import UtcS
from gateway.ledger.db.contracts.records import Posted, PostingSettled
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import DisputeSettled, Payment, PaymentUndone
from gateway.ledger.db.usage.records import UsageRecord

AccountKind = Literal["user", "pool", "bought", "sold", "site", "bank", "exchange", "loss"]
TransferKind = Literal["entry", "hold", "post", "void", "reversal"]

# The sign with which each kind counts towards the held and the final amounts.
_HELD: Final = {"hold": 1, "post": -1, "void": -1}
_DONE: Final = {"entry": 1, "post": 1, "reversal": 1}


@dataclass(frozen=True, slots=True, order=True)
class LedgerAccount:
    """A source and destination of amounts in one currency.

    `name` is the user, the pool or the site; `project` is that of a user's account.
    """

    kind: AccountKind
    name: str
    project: str
    currency: str

    def __str__(self) -> str:
        project = f"/{self.project}" if self.project else ""
        return f"{self.kind}:{self.name}{project} {self.currency}"


@dataclass(frozen=True, slots=True)
class Transfer:
    """An amount that leaves `credit` and comes to `debit`.

    Attributes:
        key: identifies the transfer; unique.
        kind: "entry" at once; "hold" until a "post" or a "void" of the same amount resolves it;
            "reversal" of an entry or a post.
        amount_nanos: more than zero.
        resolves: the key of the hold, or of the transfer that is reversed; nothing is resolved
            twice.
    """

    key: str
    kind: TransferKind
    debit: LedgerAccount
    credit: LedgerAccount
    amount_nanos: int
    at_s: UtcS
    resolves: str | None = None


@dataclass(slots=True)
class Balance:
    """The debits and credits of an account: final ones, and unresolved holds."""

    debits_nanos: int = 0
    credits_nanos: int = 0
    held_debits_nanos: int = 0
    held_credits_nanos: int = 0

    def add(self, side: str, kind: str, amount_nanos: int) -> None:
        """Count an amount of transfers of a kind, on the "debit" or the "credit" side."""
        held_nanos = amount_nanos * _HELD.get(kind, 0)
        done_nanos = amount_nanos * _DONE.get(kind, 0)
        if side == "debit":
            self.held_debits_nanos += held_nanos
            self.debits_nanos += done_nanos
        else:
            self.held_credits_nanos += held_nanos
            self.credits_nanos += done_nanos

    @property
    def net_nanos(self) -> int:
        """Debits less credits, holds excluded: above zero the account owes, as a user does."""
        return self.debits_nanos - self.credits_nanos

    @property
    def held_nanos(self) -> int:
        """The same for holds."""
        return self.held_debits_nanos - self.held_credits_nanos


def transfers_of(record: Record) -> tuple[Transfer, ...]:
    """Return the transfers that a record stands for: none, for most records."""
    match record:
        case UsageRecord() if record.cost_nanos:
            return (_used(record),)
        case Posted() if record.cost_nanos:
            return (_delivered(record),)
        case PostingSettled() if record.cost_nanos:
            return (_settled(record),)
        case DisputeSettled(state="accepted") if record.cost_nanos:
            return (_reversed(record),)
        case Payment() if record.amount_nanos:
            return (_paid(record),)
        case PaymentUndone() if record.amount_nanos:
            return (_unpaid(record),)
        case _:
            return ()


def balances(transfers: Iterable[Transfer]) -> dict[LedgerAccount, Balance]:
    """Return the sums of transfers, by account."""
    found: dict[LedgerAccount, Balance] = {}
    for each in transfers:
        add_to(found, each)
    return found


def add_to(found: dict[LedgerAccount, Balance], transfer: Transfer) -> None:
    """Add one transfer to the sums."""
    for account, side in ((transfer.debit, "debit"), (transfer.credit, "credit")):
        balance = found.setdefault(account, Balance())
        balance.add(side, transfer.kind, transfer.amount_nanos)


def _used(record: UsageRecord) -> Transfer:
    return Transfer(
        f"use/{record.job}/{record.first}/{record.attempt}",
        "entry",
        *used_sides(record),
        record.cost_nanos,
        record.ended_at_s,
    )


def used_sides(record: Any) -> tuple[LedgerAccount, LedgerAccount]:
    """Return the debit and the credit of usage, from a record or any row with its columns."""
    user = LedgerAccount("user", record.user, record.project, record.currency)
    return (
        _account("sold", record.origin, record) if record.origin else user,
        _account("bought", record.site, record)
        if record.site
        else _account("pool", record.pool, record),
    )


def _delivered(record: Posted) -> Transfer:
    return Transfer(
        _key(record), "hold", *delivered_sides(record), record.cost_nanos, record.posted_at_s
    )


def _settled(record: PostingSettled) -> Transfer:
    return Transfer(
        f"settle/{_key(record)}",
        "post" if record.state == "post" else "void",
        *delivered_sides(record),
        record.cost_nanos,
        record.settled_at_s,
        _key(record),
    )


def _reversed(record: DisputeSettled) -> Transfer:
    debit, credit = delivered_sides(record)
    return Transfer(
        f"reverse/{_key(record)}",
        "reversal",
        credit,
        debit,
        record.cost_nanos,
        record.settled_at_s,
        f"settle/{_key(record)}",
    )


def _paid(record: Payment) -> Transfer:
    return Transfer(
        _payment_key(record),
        "entry",
        *paid_sides(record),
        record.amount_nanos,
        record.paid_at_s,
    )


def _unpaid(record: PaymentUndone) -> Transfer:
    debit, credit = paid_sides(record)
    return Transfer(
        f"undo/{_payment_key(record)}",
        "reversal",
        credit,
        debit,
        record.amount_nanos,
        record.undone_at_s,
        _payment_key(record),
    )


def _payment_key(record: Payment | PaymentUndone) -> str:
    # The first attempt is not named: keys from before there were attempts do not name it.
    pay = f"pay-{record.attempt}" if record.attempt else "pay"
    return f"{pay}/{record.site}/{record.currency}/{record.reference}"


def paid_sides(record: Any) -> tuple[LedgerAccount, LedgerAccount]:
    """Return the debit and the credit of a payment; as `used_sides`."""
    site, through = _account("site", record.site, record), _account(record.through, "", record)
    return (site, through) if record.direction == "paid" else (through, site)


def _key(record: Posted | PostingSettled | DisputeSettled) -> str:
    return f"{record.side}/{record.contract}/{record.epoch}/{record.first}"


def delivered_sides(record: Any) -> tuple[LedgerAccount, LedgerAccount]:
    """Return the debit and the credit of a delivery under a contract; as `used_sides`."""
    site = _account("site", record.site, record)
    if record.side == "sell":
        return site, _account("sold", record.site, record)
    return _account("bought", record.site, record), site


def _account(kind: AccountKind, name: str, record: Any) -> LedgerAccount:
    return LedgerAccount(kind, name, "", record.currency)
