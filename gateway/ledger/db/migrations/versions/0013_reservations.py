"""Reservations."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Make the table of reservations."""
    op.create_table(
        "reservations",
        sa.Column("side", TEXT, primary_key=True),
        sa.Column("reservation", TEXT, primary_key=True),
        sa.Column("site", TEXT, nullable=False),
        sa.Column("whole", TEXT, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("pool", TEXT, nullable=False),
        sa.Column("who", TEXT, nullable=False),
        sa.Column("slots", sa.BigInteger, nullable=False),
        sa.Column("from_s", sa.Double, nullable=False),
        sa.Column("until_s", sa.Double, nullable=False),
        sa.Column("price_nanos", sa.BigInteger, nullable=False),
        sa.Column("currency", TEXT, nullable=False),
        sa.Column("unused_factor", sa.BigInteger, nullable=False),
        sa.Column("cancel_factor", sa.BigInteger, nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("group", TEXT, nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("made_at_s", sa.Double, nullable=False),
        sa.Column("lease_s", sa.Double, nullable=False),
        sa.Column("left_at_s", sa.Double),
        sa.Column("used_ns", sa.BigInteger, nullable=False),
        sa.Column("billed_nanos", sa.BigInteger, nullable=False),
        sa.Column("billed_at_s", sa.Double, nullable=False),
    )
    op.create_index("reservations_by_end", "reservations", ["until_s"])
