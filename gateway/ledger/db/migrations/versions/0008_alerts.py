"""What operators were told, and an index of the deliveries that have no verdict."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the table and the index."""
    op.create_table(
        "alerts",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("key", TEXT, primary_key=True),
        sa.Column("level", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("ended_at_s", sa.Double),
        sqlite_with_rowid=False,
    )
    is_pending = sa.text("state = 'pending'")
    op.create_index(
        "postings_pending",
        "postings",
        ["posted_at_s"],
        sqlite_where=is_pending,
        postgresql_where=is_pending,
    )
