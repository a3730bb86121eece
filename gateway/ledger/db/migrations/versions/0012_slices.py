"""Parts of budgets that sites hold of each other's."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Make the two tables."""
    op.create_table(
        "slices_lent",
        sa.Column("budget", TEXT, primary_key=True),
        sa.Column("unit", TEXT, primary_key=True),
        sa.Column("site", TEXT, primary_key=True),
        sa.Column("account", sa.BigInteger, primary_key=True, autoincrement=False),
        *(
            sa.Column(name, TEXT, nullable=False)
            for name in ("granted", "returned", "spent", "before", "base")
        ),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("since_ms", "period_ms", "life", "number")
        ),
        sa.Column("heard_at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "slices_held",
        sa.Column("owner", TEXT, primary_key=True),
        sa.Column("budget", TEXT, primary_key=True),
        sa.Column("account", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(name, TEXT, nullable=False) for name in ("unit", "party", "span", "zone")),
        sa.Column("is_closed", sa.Boolean, nullable=False),
    )
