"""The tables of a site's rules over time."""

from sqlalchemy import BigInteger, Column, Double, Table

from gateway.ledger.db.schema import TEXT, metadata

rule_changes = Table(
    "rule_changes",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("from_s", Double, nullable=False),
    Column("until_s", Double),
    Column("ends", BigInteger, nullable=False),
    Column("made_at_s", Double, nullable=False),
    Column("author", TEXT, nullable=False),
    Column("source", TEXT, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("cancelled_at_s", Double),
)

rule_edits = Table(
    "rule_edits",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", TEXT, primary_key=True),
    Column("pool", TEXT, primary_key=True),
    Column("name", TEXT, primary_key=True),
    Column("place", BigInteger, nullable=False),
    Column("content", TEXT),  # null: the rule is removed
)
