"""Until when a reservation is held, an instant, is named so; `lease_s` read as a duration."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Rename the column: both SQLite and PostgreSQL do that in place."""
    op.execute("ALTER TABLE reservations RENAME COLUMN lease_s TO held_until_s")
