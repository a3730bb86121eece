"""Checkpoints: the sums of transfers, so that the database need not keep the transfers themselves.

A checkpoint stands for all transfers up to a number. It states the balance of each account at that
number, and the holds that were not resolved yet: those stay, as do all later transfers. The chain
of transfers continues from the digest of the last one that it stands for, and checkpoints form a
chain of their own: each carries a SHA-256 digest over its contents and the digest of the one
before, so that a holder of the newest can detect a change to any of them.

Transfers up to a number never change, and neither do the holds that they leave open. All is
therefore computed beside the writer, which only has to store it.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import msgpack
from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, or_, select

from federation.clocks import UtcS
from gateway.ledger.accounting.journal import (
    GENESIS,
    Booked,
    balances_to,
    booked_where,
    checkpoint_rows,
    past_of,
)
from gateway.ledger.accounting.journal import digest as transfer_digest
from gateway.ledger.accounting.postings import Balance, LedgerAccount
from gateway.ledger.db.database import streamed
from gateway.ledger.db.tables import checkpoint_balances, checkpoints, transfers

# The most transfers that one checkpoint adds: their sums are computed in one query.
TRANSFERS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint for the transfers up to `number`.

    Attributes:
        at_s: when it was made.
        hash: the digest of the last of those transfers.
        contents: a digest of the balances and of the holds that were open.
        digest: over all of this, and the digest of the checkpoint before.
    """

    number: int
    at_s: UtcS
    hash: bytes
    contents: bytes
    digest: bytes


def chained(
    before: bytes, number: int, at_s: UtcS, last_hash: bytes, contents: bytes
) -> Checkpoint:
    """Return the checkpoint that follows the one with the digest `before`."""
    packed = msgpack.packb((number, at_s, last_hash, contents))
    return Checkpoint(number, at_s, last_hash, contents, hashlib.sha256(before + packed).digest())


def digest_of(balances: dict[LedgerAccount, Balance], held: Iterable[Booked]) -> bytes:
    """Return a digest of balances, without those that are zero, and of open holds."""
    found = hashlib.sha256()
    for account, each in sorted(balances.items()):
        amounts = (
            *(each.debits_nanos, each.credits_nanos),
            *(each.held_debits_nanos, each.held_credits_nanos),
        )
        if any(amounts):
            # As texts: they may exceed an integer of the wire format.
            texts = (account.kind, account.name, account.project, account.currency)
            found.update(msgpack.packb((texts, tuple(map(str, amounts)))))
    for hold in held:
        found.update(transfer_digest(GENESIS, hold.number, hold.transfer))
    return found.digest()


def all_checkpoints(connection: Connection) -> Iterator[Checkpoint]:
    """Yield every checkpoint, in order."""
    with closing(streamed(connection, select(checkpoints).order_by(checkpoints.c.number))) as rows:
        for row in rows:
            yield _checkpoint(row)


def _checkpoint(row: Row[Any]) -> Checkpoint:
    return Checkpoint(row.number, row.at_s, row.hash, row.contents, row.digest)


def newest(connection: Connection) -> Checkpoint | None:
    """Return the newest checkpoint, which is the one in force; None: there is none."""
    query = select(checkpoints).order_by(checkpoints.c.number.desc()).limit(1)
    row = connection.execute(query).first()
    return _checkpoint(row) if row is not None else None


def is_open_hold(number: int) -> ColumnElement[bool]:
    """Whether a transfer is a hold up to `number` that no transfer up to `number` resolves."""
    resolving = transfers.alias("resolving")
    resolved = select(resolving.c.number).where(
        resolving.c.resolves == transfers.c.key, resolving.c.number <= number
    )
    return and_(transfers.c.number <= number, transfers.c.kind == "hold", ~resolved.exists())


def is_live(number: int) -> ColumnElement[bool]:
    """Whether a transfer remains under a checkpoint for the transfers up to `number`."""
    return or_(transfers.c.number > number, is_open_hold(number))


def open_holds(connection: Connection, number: int) -> Iterator[Booked]:
    """Return the holds that remain under a checkpoint for the transfers up to `number`."""
    return booked_where(connection, is_open_hold(number))


def next_checkpoint(connection: Connection, utc_s: UtcS, keep_s: float) -> list[Any]:
    """Return statements that make a checkpoint of transfers older than `keep_s`, or none.

    The checkpoint ends before the first younger transfer. A transfer dated after `utc_s`, by a
    clock that was wrong, does not hold back the others.
    """
    last = newest(connection)
    past = past_of(connection)
    after = transfers.c.number > past.number
    is_young = and_(transfers.c.at_s >= utc_s - keep_s, transfers.c.at_s <= utc_s)
    query = select(transfers.c.number).where(after, is_young).order_by(transfers.c.number)
    young = connection.execute(query.limit(1)).scalar()
    if young is None:
        highest = connection.execute(select(func.max(transfers.c.number))).scalar()
        young = max(highest or 0, past.number) + 1
    number = min(young - 1, past.number + TRANSFERS_MAX)
    if number <= past.number:
        return []
    balances = balances_to(connection, number)
    last_hash = connection.execute(
        select(transfers.c.hash).where(transfers.c.number == number)
    ).scalar_one()
    made = chained(
        last.digest if last is not None else GENESIS,
        number,
        utc_s,
        last_hash,
        digest_of(balances, open_holds(connection, number)),
    )
    row = {name: getattr(made, name) for name in Checkpoint.__dataclass_fields__}
    return [
        insert(checkpoints).values(row),
        delete(checkpoint_balances),
        *_insert_balances(checkpoint_rows(connection, balances)),
    ]


def _insert_balances(rows: list[dict[str, int]], at_once: int = 200) -> Iterator[Any]:
    # Many rows per statement: a driver gives up the interpreter lock for each (sql.py).
    for at in range(0, len(rows), at_once):
        yield insert(checkpoint_balances).values(rows[at : at + at_once])


def dropping(number: int, limit: int) -> Any:
    """Return the deletion of the oldest `limit` transfers that a checkpoint stands for.

    They are deleted in order, so that no hold outlives the transfer that resolved it and looks
    open.
    """
    old = select(transfers.c.number).where(transfers.c.number <= number, ~is_open_hold(number))
    oldest = old.order_by(transfers.c.number).limit(limit).correlate(None)
    return delete(transfers).where(transfers.c.number.in_(oldest))
