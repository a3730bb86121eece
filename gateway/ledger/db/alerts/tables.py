"""The table of alerts."""

from sqlalchemy import BigInteger, Column, Double, Table

from gateway.ledger.db.schema import TEXT, metadata

# Alerts that were sent to operators, so that they are not sent again.
alerts = Table(
    "alerts",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("key", TEXT, primary_key=True),
    Column("level", BigInteger, primary_key=True, autoincrement=False),
    Column("at_s", Double, nullable=False),
    Column("ended_at_s", Double),
    sqlite_with_rowid=False,
)
