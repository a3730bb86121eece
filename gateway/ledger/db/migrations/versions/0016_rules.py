"""The rules of a site over time, and the version of them that contracts and usage ran under."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Make the tables. What is there already ran under rules that no version names: 0."""
    op.create_table(
        "rule_changes",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("from_s", sa.Double, nullable=False),
        sa.Column("until_s", sa.Double),
        sa.Column("ends", sa.BigInteger, nullable=False),
        sa.Column("made_at_s", sa.Double, nullable=False),
        sa.Column("author", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("cancelled_at_s", sa.Double),
    )
    op.create_table(
        "rule_edits",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", TEXT, primary_key=True),
        sa.Column("pool", TEXT, primary_key=True),
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.Column("content", TEXT),
    )
    for table in ("usage", "contracts"):
        op.add_column(table, sa.Column("rules", sa.BigInteger, nullable=False, server_default="0"))
