"""Disputes, statements and payments between sites."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables."""
    op.create_index("postings_by_time", "postings", ["posted_at_s"])
    op.create_table(
        "disputes",
        sa.Column("side", TEXT, primary_key=True),
        sa.Column("contract", TEXT, primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("first", sa.BigInteger, primary_key=True),
        sa.Column("site", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("disputed_at_s", sa.Double, nullable=False),
        sa.Column("state", TEXT, nullable=False, server_default="open"),
        sa.Column("answer", TEXT, nullable=False, server_default=""),
        sa.Column("settled_at_s", sa.Double),
    )
    op.create_table(
        "statements",
        sa.Column("side", TEXT, primary_key=True),
        sa.Column("site", TEXT, primary_key=True),
        sa.Column("first_ms", sa.BigInteger, primary_key=True),
        sa.Column("stop_ms", sa.BigInteger, primary_key=True),
        sa.Column("is_final", sa.Boolean, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("sums", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("details", TEXT, nullable=False),
        sa.Column("ours", sa.LargeBinary, nullable=False),
        sa.Column("theirs", sa.LargeBinary, nullable=False),
        sa.Column("kept_at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "payments",
        sa.Column("site", TEXT, primary_key=True),
        sa.Column("reference", TEXT, primary_key=True),
        sa.Column("currency", TEXT, primary_key=True),
        sa.Column("direction", TEXT, nullable=False),
        sa.Column("through", TEXT, nullable=False),
        sa.Column("amount_nanos", sa.BigInteger, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("paid_at_s", sa.Double, nullable=False),
    )
