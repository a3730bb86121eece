"""Jobs and what is kept for detached ones, and usage."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    hardenings = op.create_table(
        "hardenings",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(hardenings, [{"id": 1, "count": 0}])
    op.create_table(
        "functions",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("job", TEXT, primary_key=True),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("detached", sa.Boolean, nullable=False),
        sa.Column("spec", sa.LargeBinary, nullable=False),
        sa.Column("function", sa.LargeBinary),
        sa.Column("submitted_at_s", sa.Double, nullable=False),
        sa.Column("total", sa.BigInteger),
        sa.Column("state", TEXT, nullable=False, server_default="open"),
        sa.Column("reason", TEXT, nullable=False, server_default=""),
        sa.Column("ended_at_s", sa.Double),
        sa.Column("done", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("failed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("cancelled", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("forgotten", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_index("jobs_by_submission", "jobs", ["submitted_at_s"])
    op.create_index("jobs_by_function", "jobs", ["function"])
    op.create_index("jobs_by_end", "jobs", ["ended_at_s"])
    for name in ("bundles", "outcomes"):
        op.create_table(
            name,
            sa.Column("job", TEXT, primary_key=True),
            sa.Column("first", sa.BigInteger, primary_key=True),
            sa.Column("count", sa.BigInteger, nullable=False),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
    _create_usage()


def _create_usage() -> None:
    op.create_table(
        "usage",
        sa.Column("job", TEXT, primary_key=True),
        sa.Column("first", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True),
        sa.Column("tasks", sa.BigInteger, nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("pool", TEXT, nullable=False),
        sa.Column("worker", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("started_at_s", sa.Double, nullable=False),
        sa.Column("ended_at_s", sa.Double, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("wall_ns", sa.BigInteger, nullable=False),
        sa.Column("cpu_ns", sa.BigInteger, nullable=False),
        sa.Column("peak_memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("price_nanos", sa.BigInteger, nullable=False),
        sa.Column("currency", TEXT, nullable=False),
        sa.Column("tariff", TEXT, nullable=False),
        sa.Column("cost_nanos", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_by_end", "usage", ["ended_at_s"])
