"""Bytes that are held or moved, beside slot time: in records, and in the sums of the hours."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0020"
down_revision = "0019"

SUMMED = (
    *("tasks", "wall_ns", "cpu_ns", "cost_nanos", "list_cost_nanos"),
    *("energy_uj", "carbon_ng", "embodied_ng", "held_byte_s", "moved_bytes"),
)
SUMMED_BY = (
    *("hour", "user", "group", "project", "name", "site", "origin", "pool", "window", "tags"),
    *("price_class", "state", "tariff", "currency", "footprint", "kind"),
)
NEW = ("held_byte_s", "moved_bytes")


def upgrade() -> None:
    """Add the columns; all that is there is slot time. The key of the sums has one more column."""
    op.add_column("usage", sa.Column("kind", TEXT, nullable=False, server_default="time"))
    for name in NEW:
        op.add_column("usage", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.rename_table("usage_hours", "usage_hours_before")
    if op.get_bind().dialect.name == "postgresql":  # there the key keeps its name, which is needed
        op.execute("ALTER INDEX usage_hours_pkey RENAME TO usage_hours_before_pkey")
    halves = [f"{name}_{half}" for name in SUMMED for half in ("high", "low")]
    op.create_table(
        "usage_hours",
        *(
            sa.Column(
                name,
                sa.BigInteger if name == "hour" else TEXT,
                primary_key=True,
                autoincrement=False,
            )
            for name in SUMMED_BY
        ),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.Column("peak_memory_bytes", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in halves),
        sqlite_with_rowid=False,
    )
    names = [*SUMMED_BY, "records", "peak_memory_bytes", *halves]
    values = {
        "kind": "'time'",
        **{f"{name}_{half}": "0" for name in NEW for half in ("high", "low")},
    }
    into = ", ".join(f'"{name}"' for name in names)
    read = ", ".join(values.get(name, f'"{name}"') for name in names)
    op.execute(
        f"INSERT INTO usage_hours ({into}) "  # noqa: S608 - our own words
        f"SELECT {read} FROM usage_hours_before"
    )
    op.drop_table("usage_hours_before")
