"""Contracts with other sites, and what was delivered under them."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables of contracts and postings."""
    op.create_table(
        "contracts",
        sa.Column("side", TEXT, primary_key=True),
        sa.Column("contract", TEXT, primary_key=True),
        sa.Column("site", TEXT, nullable=False),
        sa.Column("job", TEXT, nullable=False),
        sa.Column("pool", TEXT, nullable=False),
        sa.Column("slots", sa.BigInteger, nullable=False),
        sa.Column("price_nanos", sa.BigInteger, nullable=False),
        sa.Column("currency", TEXT, nullable=False),
        sa.Column("lease_s", sa.Double, nullable=False),
        sa.Column("opened_at_s", sa.Double, nullable=False),
        sa.Column("state", TEXT, nullable=False, server_default="open"),
        sa.Column("ended_at_s", sa.Double),
    )
    op.create_index("contracts_by_end", "contracts", ["ended_at_s"])
    op.create_table(
        "postings",
        sa.Column("side", TEXT, primary_key=True),
        sa.Column("contract", TEXT, primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("first", sa.BigInteger, primary_key=True),
        sa.Column("tasks", sa.BigInteger, nullable=False),
        sa.Column("wall_ns", sa.BigInteger, nullable=False),
        sa.Column("cost_nanos", sa.BigInteger, nullable=False),
        sa.Column("posted_at_s", sa.Double, nullable=False),
        sa.Column("state", TEXT, nullable=False, server_default="pending"),
        sqlite_with_rowid=False,
    )
