"""Hosts and workers that operators have drained, so that a restart of the gateway keeps that."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "drains",
        sa.Column("kind", TEXT, primary_key=True),
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
