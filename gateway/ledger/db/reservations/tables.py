"""The table of reservations."""

from sqlalchemy import BigInteger, Column, Double, Index, Table

from gateway.ledger.db.schema import TEXT, metadata

# Slots that are reserved for a principal for a span of time.
reservations = Table(
    "reservations",
    metadata,
    Column("side", TEXT, primary_key=True),
    Column("reservation", TEXT, primary_key=True),
    Column("site", TEXT, nullable=False),
    Column("whole", TEXT, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("pool", TEXT, nullable=False),
    Column("who", TEXT, nullable=False),
    Column("slots", BigInteger, nullable=False),
    Column("from_s", Double, nullable=False),
    Column("until_s", Double, nullable=False),
    Column("price_nanos", BigInteger, nullable=False),
    Column("currency", TEXT, nullable=False),
    Column("unused_factor", BigInteger, nullable=False),
    Column("cancel_factor", BigInteger, nullable=False),
    Column("user", TEXT, nullable=False),
    Column("group", TEXT, nullable=False),
    Column("project", TEXT, nullable=False),
    Column("made_at_s", Double, nullable=False),
    Column("held_until_s", Double, nullable=False),
    Column("left_at_s", Double),
    Column("used_ns", BigInteger, nullable=False),
    Column("billed_nanos", BigInteger, nullable=False),
    Column("billed_at_s", Double, nullable=False),
)
Index("reservations_by_end", reservations.c.until_s)
