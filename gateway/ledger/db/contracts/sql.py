"""The SQL that writes contracts and deliveries."""

from typing import Final

from sqlalchemy import Dialect, update

from gateway.ledger.db.contracts.records import (
    ContractEnded,
    ContractOpened,
    MoveProved,
    Posted,
    PostingSettled,
)
from gateway.ledger.db.contracts.tables import IS_PENDING, contracts, move_receipts, postings
from gateway.ledger.db.sql import BODY_ROWS, USAGE_ROWS, Changes, RowInserts, Writers, field

_POSTING: Final = ("side", "contract", "epoch", "first")


def writers(dialect: Dialect) -> Writers:
    """Return the SQL of each record."""
    return {
        ContractOpened: RowInserts(dialect, contracts, BODY_ROWS, ContractOpened),
        Posted: RowInserts(dialect, postings, USAGE_ROWS, Posted),
        MoveProved: RowInserts(dialect, move_receipts, BODY_ROWS, MoveProved),
        PostingSettled: Changes(
            dialect,
            [
                update(postings)
                .where(*(postings.c[name] == field(name) for name in _POSTING))
                .where(IS_PENDING)
                .values(state=field("state"))
            ],
        ),
        ContractEnded: Changes(
            dialect,
            [
                update(contracts)
                .where(*(contracts.c[name] == field(name) for name in ("side", "contract")))
                .values(state=field("state"), ended_at_s=field("ended_at_s"))
            ],
        ),
    }
