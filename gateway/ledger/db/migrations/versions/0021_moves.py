"""Prices of moved bytes, among the terms of contracts, and the receipts of what was paid."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add the columns and the table; under the contracts so far, moves are free."""
    for name in ("receive_nanos", "send_nanos"):
        op.add_column(
            "contracts", sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        )
    op.create_table(
        "move_receipts",
        sa.Column("side", TEXT, primary_key=True),
        sa.Column("contract", TEXT, primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ticket", sa.LargeBinary, nullable=False),
        sa.Column("receipt", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
