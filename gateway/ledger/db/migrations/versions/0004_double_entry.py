"""Accounts and transfers; the journal fills them with what was charged before when it opens."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0004"
down_revision = "0003"

APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER transfers_no_{verb.lower()} BEFORE {verb} ON transfers "
        "BEGIN SELECT RAISE(ABORT, 'transfers are never changed'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION transfers_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'transfers are never changed'; END $$",
        "CREATE TRIGGER transfers_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON transfers "
        "FOR EACH STATEMENT EXECUTE FUNCTION transfers_refuse()",
    ],
}


def upgrade() -> None:
    """Create the tables, and what keeps anybody from changing what is booked."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("currency", TEXT, nullable=False),
        sa.UniqueConstraint("kind", "name", "project", "currency", name="accounts_are_distinct"),
    )
    op.create_table(
        "transfers",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("debit", sa.Integer, sa.ForeignKey("accounts.id"), nullable=False),
        sa.Column("credit", sa.Integer, sa.ForeignKey("accounts.id"), nullable=False),
        sa.Column("amount_nanos", sa.BigInteger, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("resolves", TEXT),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("key", name="transfers_have_one_key"),
        sa.CheckConstraint("amount_nanos > 0", name="transfers_move_something"),
        sa.CheckConstraint("debit <> credit", name="transfers_go_elsewhere"),
        sa.CheckConstraint(
            "(kind IN ('entry', 'hold') AND resolves IS NULL) OR "
            "(kind IN ('post', 'void', 'reversal') AND resolves IS NOT NULL)",
            name="transfers_are_of_a_kind",
        ),
    )
    resolving = sa.text("resolves IS NOT NULL")
    op.create_index(
        "transfers_are_resolved_once",
        "transfers",
        ["resolves"],
        unique=True,
        sqlite_where=resolving,
        postgresql_where=resolving,
    )
    for statement in APPEND_ONLY[op.get_context().dialect.name]:
        op.execute(statement)
