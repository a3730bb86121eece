"""The journal: numbers transfers, chains each to the one before, and writes each only once.

Each transfer carries a SHA-256 digest over its own fields and the digest of the transfer before: a
holder of the last digest can detect any earlier change. The writer asks for the statements of a
transaction and reports how it ended; between transactions the journal holds the end of the chain,
and every account, in memory.
"""

import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from typing import Final

import msgpack
from sqlalchemy import ColumnElement, Connection, select

from federation.clocks import UtcS
from gateway.ledger.accounting.postings import Balance, LedgerAccount, Transfer, transfers_of
from gateway.ledger.db.contracts.records import Posted, PostingSettled
from gateway.ledger.db.contracts.tables import OF_CONTRACT, contracts, postings
from gateway.ledger.db.database import PAGE_ROWS, streamed, transaction
from gateway.ledger.db.exact import HALF, exact_sums, joined
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.queries import read_disputes, read_payments
from gateway.ledger.db.settlement.records import DisputeSettled, Payment
from gateway.ledger.db.sql import RowInserts, Statement
from gateway.ledger.db.tables import BALANCED, accounts, checkpoint_balances, checkpoints, transfers
from gateway.ledger.db.usage.records import UsageRecord
from gateway.ledger.db.usage.tables import usage

GENESIS: Final = bytes(32)  # the first transfer is chained to it
_ROWS: Final = (256, 32, 8, 4, 2, 1)  # a delivery alone is two
_KEYS_AT_ONCE: Final = 500
ACCOUNT_FIELDS: Final = ("kind", "name", "project", "currency")
_account_of: Final = attrgetter(*ACCOUNT_FIELDS)


@dataclass(frozen=True, slots=True)
class Booked:
    """A transfer in the books: `number` counts from 1, without a gap."""

    number: int
    transfer: Transfer
    hash: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain, or of the part of it that a checkpoint stands for."""

    number: int = 0
    hash: bytes = GENESIS


@dataclass(frozen=True, slots=True)
class _AccountRow:
    id: int
    kind: str
    name: str
    project: str
    currency: str


@dataclass(frozen=True, slots=True)
class _TransferRow:
    number: int
    key: str
    kind: str
    debit: int
    credit: int
    amount_nanos: int
    at_s: UtcS
    resolves: str | None
    hash: bytes


def digest(before: bytes, number: int, transfer: Transfer) -> bytes:
    """Return the digest of a transfer that follows the one with the digest `before`."""
    fields = (
        number,
        transfer.key,
        transfer.kind,
        _account_of(transfer.debit),
        _account_of(transfer.credit),
        transfer.amount_nanos,
        transfer.at_s,
        transfer.resolves,
    )
    return hashlib.sha256(before + msgpack.packb(fields)).digest()


class Journal:
    """Turns records into statements; for the thread that has the writing connection.

    The returned statements are written all or not at all: `committed` or `aborted` reports it.
    """

    def __init__(self, connection: Connection) -> None:
        dialect = connection.dialect
        self._insert_accounts = RowInserts(dialect, accounts, _ROWS, is_strict=True)
        self._insert_transfers = RowInserts(dialect, transfers, _ROWS, is_strict=True)
        self.read(connection)

    def read(self, connection: Connection) -> None:
        """Read the state of the books: at the start, and when the state in memory may be wrong."""
        self._connection = connection
        self._accounts = {account: number for number, account in _accounts(connection).items()}
        past = past_of(connection)
        last = select(transfers.c.number, transfers.c.hash).order_by(transfers.c.number.desc())
        row = connection.execute(last.where(transfers.c.number > past.number).limit(1)).first()
        self._head = self._next = Head(*row) if row is not None else past
        self._new: list[LedgerAccount] = []

    def catch_up(self) -> None:
        """Book all charges, deliveries and settlements, if nothing is booked yet.

        All or nothing, because a part would look complete.
        """
        if self._head.number:
            return
        documents = _documents(self._connection)
        with transaction(self._connection):
            while page := list(islice(documents, PAGE_ROWS)):
                for sql, parameters in self.statements(page):
                    self._connection.exec_driver_sql(sql, parameters)
                self.committed()

    def statements(self, records: Iterable[Record], *, careful: bool = False) -> list[Statement]:
        """Return the statements that book these records.

        Args:
            records: in their order.
            careful: look up the records that are booked already, as some may be. Otherwise a booked
                record fails the transaction, which is cheaper.
        """
        found: dict[str, Transfer] = {}
        for each in chain.from_iterable(map(transfers_of, records)):
            found.setdefault(each.key, each)
        if careful:
            for key in self._booked(list(found)):
                del found[key]
        if not found:
            return []
        rows = [self._chain(each) for each in found.values()]
        new = [_AccountRow(self._accounts[each], *_account_of(each)) for each in self._new]
        return self._insert_accounts.statements(new) + self._insert_transfers.statements(rows)

    def committed(self) -> None:
        """Note that the statements returned last are in the books."""
        self._head = self._next
        self._new.clear()

    def aborted(self) -> None:
        """Note that the statements returned last are not in the books."""
        self._next = self._head
        for account in self._new:
            del self._accounts[account]
        self._new.clear()

    def _chain(self, transfer: Transfer) -> _TransferRow:
        number = self._next.number + 1
        self._next = Head(number, digest(self._next.hash, number, transfer))
        return _TransferRow(
            number,
            transfer.key,
            transfer.kind,
            self._number_of(transfer.debit),
            self._number_of(transfer.credit),
            transfer.amount_nanos,
            transfer.at_s,
            transfer.resolves,
            self._next.hash,
        )

    def _number_of(self, account: LedgerAccount) -> int:
        number = self._accounts.get(account)
        if number is None:
            number = self._accounts[account] = len(self._accounts) + 1
            self._new.append(account)
        return number

    def _booked(self, keys: Sequence[str]) -> Iterator[str]:
        """Yield those of these keys that are in the books."""
        for at in range(0, len(keys), _KEYS_AT_ONCE):
            asked = keys[at : at + _KEYS_AT_ONCE]
            query = select(transfers.c.key).where(transfers.c.key.in_(asked))
            yield from self._connection.execute(query).scalars().all()


# --- reading --------------------------------------------------------------------------------------

_BOOKED: Final = select(
    *(transfers.c[name] for name in ("number", "key", "kind", "debit", "credit", "amount_nanos")),
    *(transfers.c[name] for name in ("at_s", "resolves", "hash")),
).order_by(transfers.c.number)


def booked(connection: Connection, after: int = 0, limit: int | None = None) -> Generator[Booked]:
    """Yield transfers in their order, from the one after number `after` on."""
    return booked_where(connection, transfers.c.number > after, limit)


def booked_where(
    connection: Connection, chosen: ColumnElement[bool], limit: int | None = None
) -> Generator[Booked]:
    """Yield the transfers that match a condition, in order; skip those with an unknown account."""
    by_id = _accounts(connection)
    with closing(streamed(connection, _BOOKED.where(chosen).limit(limit))) as rows:
        for row in map(tuple, rows):
            number, key, kind, debit, credit, *others, hash_ = row
            if debit in by_id and credit in by_id:
                transfer = Transfer(key, kind, by_id[debit], by_id[credit], *others)
                yield Booked(number, transfer, hash_)


def past_of(connection: Connection) -> Head:
    """Return the last transfer that a checkpoint stands for; number 0 when there is none."""
    newest = select(checkpoints.c.number, checkpoints.c.hash).order_by(checkpoints.c.number.desc())
    row = connection.execute(newest.limit(1)).first()
    return Head(*row) if row is not None else Head()


def balances(connection: Connection) -> dict[LedgerAccount, Balance]:
    """Sum up all transfers, by account; as postings.balances, in the database."""
    return balances_to(connection, None)


def balances_to(connection: Connection, number: int | None) -> dict[LedgerAccount, Balance]:
    """Return the balances after a transfer at or after the newest checkpoint; None: the last."""
    found = _accounts(connection)
    by_id = {id_: Balance() for id_ in found}
    for account, *halves in connection.execute(select(checkpoint_balances)):
        by_id[account] = Balance(*joined(halves))
    counted: list[ColumnElement[bool]] = [transfers.c.number > past_of(connection).number]
    if number is not None:
        counted.append(transfers.c.number <= number)
    for side in ("debit", "credit"):
        id_of = transfers.c[side]
        query = (
            select(id_of, transfers.c.kind)
            .add_columns(*exact_sums(transfers.c.amount_nanos))
            .where(*counted)
            .group_by(id_of, transfers.c.kind)
        )
        for row in connection.execute(query):
            [amount_nanos] = joined(row[2:])
            if row[0] in by_id:  # an audit finds transfers on unknown accounts
                by_id[row[0]].add(side, row[1], amount_nanos)
    return {account: by_id[id_] for id_, account in found.items()}


def checkpoint_rows(
    connection: Connection, sums: dict[LedgerAccount, Balance]
) -> list[dict[str, int]]:
    """Return balances as rows of `checkpoint_balances`."""
    rows = []
    for id_, account in _accounts(connection).items():
        row = {"account": id_}
        for name in BALANCED:
            amount_nanos = getattr(sums[account], f"{name}_nanos")
            row[f"{name}_high"], row[f"{name}_low"] = divmod(amount_nanos, HALF)
        rows.append(row)
    return rows


def _accounts(connection: Connection) -> dict[int, LedgerAccount]:
    return {row.id: LedgerAccount(*row[1:]) for row in connection.execute(select(accounts)).all()}


# --- records from before the journal existed ------------------------------------------------------


def _documents(connection: Connection) -> Iterator[Record]:
    """Yield the records of all charges, deliveries and settlements."""
    fields = [usage.c[name] for name in UsageRecord.__dataclass_fields__ if name in usage.c]
    order = (usage.c.ended_at_s, usage.c.job, usage.c.first, usage.c.attempt)
    for row in streamed(connection, select(*fields).order_by(*order)):
        yield UsageRecord(**row._mapping)
    query = (
        select(postings, contracts.c.site, contracts.c.currency)
        .join(contracts, OF_CONTRACT)
        .order_by(postings.c.posted_at_s, *postings.primary_key.columns)
    )
    for row in streamed(connection, query):
        yield Posted(
            contract=row.contract,
            side=row.side,
            site=row.site,
            epoch=row.epoch,
            first=row.first,
            tasks=row.tasks,
            wall_ns=row.wall_ns,
            cost_nanos=row.cost_nanos,
            currency=row.currency,
            posted_at_s=row.posted_at_s,
        )
        if row.state != "pending":
            yield PostingSettled(
                contract=row.contract,
                side=row.side,
                site=row.site,
                epoch=row.epoch,
                first=row.first,
                state=row.state,
                cost_nanos=row.cost_nanos,
                currency=row.currency,
                settled_at_s=row.posted_at_s,
            )
    for each in read_disputes(connection):
        if each.state == "accepted":
            yield DisputeSettled(
                side=each.side,  # type: ignore[arg-type]
                contract=each.contract,
                epoch=each.epoch,
                first=each.first,
                site=each.site,
                state="accepted",
                answer=each.answer,
                settled_at_s=each.settled_at_s or UtcS(0.0),
                cost_nanos=each.cost_nanos,
                currency=each.currency,
            )
    for payment in read_payments(connection):
        yield Payment(*(getattr(payment, name) for name in Payment.__dataclass_fields__))
        if payment.undone_at_s is not None:
            yield payment.undone(payment.undone_why, payment.undone_at_s)
