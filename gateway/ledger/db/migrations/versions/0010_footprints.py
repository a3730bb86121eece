"""What is known of the energy and carbon of usage: what is not known is not zero."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0010"
down_revision = "0009"

SUMMED = (
    *("tasks", "wall_ns", "cpu_ns", "cost_nanos", "list_cost_nanos"),
    *("energy_uj", "carbon_ng", "embodied_ng"),
)
SUMMED_BY = (
    *("hour", "user", "group", "project", "name", "site", "origin", "pool", "window", "tags"),
    *("price_class", "state", "tariff", "currency", "footprint"),
)


def upgrade() -> None:
    """Say it of each record, and sum them up by it: the key of the sums has a column more."""
    op.add_column("usage", sa.Column("footprint", TEXT, nullable=False, server_default=""))
    op.execute(
        "UPDATE usage SET footprint = CASE WHEN carbon_source <> '' THEN 'carbon' ELSE 'energy' END"
        " WHERE carbon_source <> '' OR energy_uj > 0 OR embodied_ng > 0"
    )
    op.drop_table("usage_hours")
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
        *(
            sa.Column(f"{name}_{half}", sa.BigInteger, nullable=False)
            for name in SUMMED
            for half in ("high", "low")
        ),
        sqlite_with_rowid=False,
    )
    sums = {"records": "sum(records)", "peak_memory_bytes": "max(peak_memory_bytes)"}
    for name in SUMMED:
        sums[f"{name}_high"] = f"sum({name} / 1000000000)"
        sums[f"{name}_low"] = f"sum({name} % 1000000000)"
    keys = ", ".join(f'"{name}"' for name in SUMMED_BY)
    values = ", ".join(f"CAST({each} AS BIGINT)" for each in sums.values())
    op.execute(
        f"INSERT INTO usage_hours ({keys}, {', '.join(sums)}) "  # noqa: S608 - our own words
        f"SELECT {keys}, {values} FROM usage GROUP BY {keys}"
    )
