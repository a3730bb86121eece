"""The table of drains."""

from sqlalchemy import Column, Double, Table

from gateway.ledger.db.schema import TEXT, metadata

# Hosts and workers that operators have drained, and not resumed yet.
drains = Table(
    "drains",
    metadata,
    Column("kind", TEXT, primary_key=True),
    Column("name", TEXT, primary_key=True),
    Column("by", TEXT, nullable=False),
    Column("at_s", Double, nullable=False),
    sqlite_with_rowid=False,
)
