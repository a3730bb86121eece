"""What the grant of a contract allows, which holds over restarts too."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the limit to contracts."""
    op.add_column("contracts", sa.Column("max_cost_nanos", sa.BigInteger))
