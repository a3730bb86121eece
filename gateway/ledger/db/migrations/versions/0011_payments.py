"""Payments that were undone and may be booked again, and what other sites say of them."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Make the table of payments anew, as its key is longer: SQLite can't change one."""
    op.execute("CREATE TABLE payments_before AS SELECT * FROM payments")
    op.drop_table("payments")
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
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("undone_at_s", sa.Double),
        sa.Column("undone_why", TEXT, nullable=False, server_default=""),
    )
    op.execute(
        "INSERT INTO payments (site, reference, currency, direction, through, amount_nanos, note, "
        "paid_at_s, attempt) SELECT site, reference, currency, direction, through, amount_nanos, "
        "note, paid_at_s, 0 FROM payments_before"
    )
    op.execute("DROP TABLE payments_before")
    op.create_index("contracts_by_site", "contracts", ["side", "site"])
    op.create_table(
        "payments_told",
        sa.Column("site", TEXT, primary_key=True),
        sa.Column("lines", sa.LargeBinary, nullable=False),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column("heard", sa.LargeBinary, nullable=False),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("told_at_s", sa.Double, nullable=False),
    )
