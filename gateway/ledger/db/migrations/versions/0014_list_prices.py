"""The list price of a slot-hour, beside the price that was paid."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column; what is there already is not known to have had one price or several."""
    op.add_column("usage", sa.Column("list_price_nanos", sa.BigInteger))
