"""All that a contract is charged by, which holds over restarts too."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0009"
down_revision = "0008"

NEW = (
    ("minimum_nanos", sa.BigInteger, "0"),
    ("step_ns", sa.BigInteger, "0"),
    ("tariff", TEXT, ""),
    ("window", TEXT, ""),
    ("price_class", TEXT, "guaranteed"),
    ("list_nanos", sa.BigInteger, "0"),
)


def upgrade() -> None:
    """Add the terms to contracts: of those that are there, nothing but the price is known."""
    for name, kind, default in NEW:
        column = sa.Column(name, kind, nullable=False, server_default=default)
        op.add_column("contracts", column)
    op.execute("UPDATE contracts SET list_nanos = price_nanos")
