"""An index for the contracts of a job: `gridfed explain` of an ended job read those of all jobs."""

from alembic import op

revision = "0019"
down_revision = "0017"


def upgrade() -> None:
    """Make the index."""
    op.create_index("contracts_by_job", "contracts", ["side", "job"])
