"""What usage was worth besides its cost, and what it sums up to hour by hour; capacity."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0005"
down_revision = "0004"

NEW_TEXTS = ("group", "tags", "price_class", "window", "site", "origin", "carbon_source")
NEW_NUMBERS = ("list_cost_nanos", "energy_uj", "carbon_ng", "embodied_ng", "intensity_mg_per_kwh")
SUMMED = (
    *("tasks", "wall_ns", "cpu_ns", "cost_nanos", "list_cost_nanos"),
    *("energy_uj", "carbon_ng", "embodied_ng"),
)
SUMMED_BY = (
    *("hour", "user", "group", "project", "name", "site", "origin", "pool", "window", "tags"),
    *("price_class", "state", "tariff", "currency"),
)


def upgrade() -> None:
    """Make the tables, and fill them with what there is."""
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
    op.create_table(
        "capacity",
        sa.Column("pool", TEXT, primary_key=True),
        sa.Column("since_s", sa.Double, primary_key=True),
        sa.Column("until_s", sa.Double, nullable=False),
        sa.Column("slots", sa.BigInteger, nullable=False),
        sa.Column("hour", sa.BigInteger, nullable=False),
        sa.Column("slot_ns", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("capacity_by_hour", "capacity", ["hour"])
    _widen()
    _sum_up()


def _widen() -> None:
    """Give usage its new columns: a table of the new shape in the place of the old one."""
    is_sqlite = op.get_context().dialect.name == "sqlite"
    op.drop_index("usage_by_end", "usage")
    op.rename_table("usage", "usage_before")
    old: list[sa.Column[Any]] = [
        sa.Column("job", TEXT, primary_key=True),
        sa.Column("first", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True),
        sa.Column("tasks", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, TEXT, nullable=False)
            for name in ("user", "project", "name", "pool", "worker", "state")
        ),
        sa.Column("started_at_s", sa.Double, nullable=False),
        sa.Column("ended_at_s", sa.Double, nullable=False),
        sa.Column("hour", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("wall_ns", "cpu_ns", "peak_memory_bytes", "price_nanos")
        ),
        sa.Column("currency", TEXT, nullable=False),
        sa.Column("tariff", TEXT, nullable=False),
        sa.Column("cost_nanos", sa.BigInteger, nullable=False),
    ]
    if not is_sqlite:  # there the name of the key's index goes with the table's
        op.execute("ALTER INDEX usage_pkey RENAME TO usage_before_pkey")
    op.create_table(
        "usage",
        *old,
        *(sa.Column(name, TEXT, nullable=False) for name in NEW_TEXTS[:-1]),
        sa.Column("records", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in NEW_NUMBERS),
        sa.Column(NEW_TEXTS[-1], TEXT, nullable=False),
        sqlite_with_rowid=False,
    )
    # A float becomes an integer by truncation in one database, by rounding in the other.
    hour = "CAST(ended_at_s / 3600 AS INTEGER)" if is_sqlite else "floor(ended_at_s / 3600)"
    at = "instr({0}, '{1}')" if is_sqlite else "strpos({0}, '{1}')"
    before = "CASE WHEN {at} > 0 THEN substr({0}, 1, {at} - 1) ELSE '' END"
    derived = {
        "hour": hour,
        "site": before.format("pool", at=at.format("pool", "/")),
        "origin": before.format("job", at=at.format("job", ":")),
        "price_class": "'guaranteed'",
        "records": "1",
        "list_cost_nanos": "cost_nanos",
        **dict.fromkeys(NEW_NUMBERS[1:], "0"),
        **dict.fromkeys(("group", "tags", "window", "carbon_source"), "''"),
    }
    names = [column.name for column in old]
    names += [name for name in derived if name not in names]
    values = ", ".join(derived.get(name, f'"{name}"') for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    op.execute(f"INSERT INTO usage ({columns}) SELECT {values} FROM usage_before")  # noqa: S608 - our own words
    op.drop_table("usage_before")
    op.create_index("usage_by_end", "usage", ["ended_at_s"])


def _sum_up() -> None:
    whole = "CAST({} AS BIGINT)"
    sums = {
        "records": "sum(records)",
        "peak_memory_bytes": "max(peak_memory_bytes)",
    }
    for name in SUMMED:
        sums[f"{name}_high"] = f"sum({name} / 1000000000)"
        sums[f"{name}_low"] = f"sum({name} % 1000000000)"
    keys = ", ".join(f'"{name}"' for name in SUMMED_BY)
    values = ", ".join(whole.format(each) for each in sums.values())
    op.execute(
        f"INSERT INTO usage_hours ({keys}, {', '.join(sums)}) "  # noqa: S608 - our own words
        f"SELECT {keys}, {values} FROM usage GROUP BY {keys}"
    )
