"""The tables of usage and capacity."""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Table, and_, or_

from gateway.ledger.db.schema import TEXT, metadata
from gateway.ledger.db.usage.records import TRIED

usage = Table(
    "usage",
    metadata,
    Column("job", TEXT, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("tasks", BigInteger, nullable=False),
    Column("user", TEXT, nullable=False),
    Column("project", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("pool", TEXT, nullable=False),
    Column("worker", TEXT, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("started_at_s", Double, nullable=False),
    Column("ended_at_s", Double, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("cpu_ns", BigInteger, nullable=False),
    Column("peak_memory_bytes", BigInteger, nullable=False),
    Column("price_nanos", BigInteger, nullable=False),
    Column("currency", TEXT, nullable=False),
    Column("tariff", TEXT, nullable=False),
    Column("cost_nanos", BigInteger, nullable=False),
    Column("group", TEXT, nullable=False),
    Column("tags", TEXT, nullable=False),
    Column("price_class", TEXT, nullable=False),
    Column("window", TEXT, nullable=False),
    Column("site", TEXT, nullable=False),
    Column("origin", TEXT, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("list_cost_nanos", BigInteger, nullable=False),
    Column("energy_uj", BigInteger, nullable=False),
    Column("carbon_ng", BigInteger, nullable=False),
    Column("embodied_ng", BigInteger, nullable=False),
    Column("intensity_mg_per_kwh", BigInteger, nullable=False),
    Column("carbon_source", TEXT, nullable=False),
    Column("footprint", TEXT, nullable=False, server_default=""),
    Column("list_price_nanos", BigInteger),  # null: written before this column existed
    Column("rules", BigInteger, nullable=False, server_default="0"),
    Column("kind", TEXT, nullable=False, server_default="time"),
    Column("held_byte_s", BigInteger, nullable=False, server_default="0"),
    Column("moved_bytes", BigInteger, nullable=False, server_default="0"),
    # One tree instead of two: rows are small, and a job's rows lie together.
    sqlite_with_rowid=False,
)
Index("usage_by_end", usage.c.ended_at_s)

# The task ranges of rolled-up usage (rollup.py), which its summed rows no longer show.
usage_ranges = Table(
    "usage_ranges",
    metadata,
    Column("job", TEXT, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("is_charge", Boolean, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("tasks", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# The sums of usage records by hour, from which reports are made. A sum is in two halves, as in
# `exact`: billions, and the remainder.
SUMMED: Final = (
    "tasks",
    "wall_ns",
    "cpu_ns",
    "cost_nanos",
    "list_cost_nanos",
    "energy_uj",
    "carbon_ng",
    "embodied_ng",
    "held_byte_s",
    "moved_bytes",
)

SUMMED_BY: Final = (
    *("hour", "user", "group", "project", "name", "site", "origin", "pool", "window", "tags"),
    *("price_class", "state", "tariff", "currency", "footprint"),
    "kind",
)

usage_hours = Table(
    "usage_hours",
    metadata,
    *(
        Column(name, BigInteger if name == "hour" else TEXT, primary_key=True, autoincrement=False)
        for name in SUMMED_BY
    ),
    Column("records", BigInteger, nullable=False),
    Column("peak_memory_bytes", BigInteger, nullable=False),
    *(
        Column(f"{name}_{half}", BigInteger, nullable=False)
        for name in SUMMED
        for half in ("high", "low")
    ),
    sqlite_with_rowid=False,
)

# The slots that pools offered: slot time that no usage accounts for was idle.
capacity = Table(
    "capacity",
    metadata,
    Column("pool", TEXT, primary_key=True),
    Column("since_s", Double, primary_key=True),
    Column("until_s", Double, nullable=False),
    Column("slots", BigInteger, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("slot_ns", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
Index("capacity_by_hour", capacity.c.hour)

# As UsageRecord.is_charge.
IS_CHARGE: Final = or_(usage.c.state == "ok", and_(usage.c.state.in_(TRIED), usage.c.wall_ns > 0))
# As UsageRecord.is_overhead.
IS_OVERHEAD: Final = and_(
    usage.c.cost_nanos > 0,
    or_(
        usage.c.state.in_(("repeat", "void", "lost")),
        and_(usage.c.state == "preempted", usage.c.price_class != "preemptible"),
    ),
)
