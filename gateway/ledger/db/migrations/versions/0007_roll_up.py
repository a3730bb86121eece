"""Rolling up what is old: checkpoints instead of transfers, one row instead of many."""

import sqlalchemy as sa
from alembic import op

from gateway.ledger.db.schema import TEXT

revision = "0007"
down_revision = "0006"

BALANCED = ("debits", "credits", "held_debits", "held_credits")
PAST = "(SELECT coalesce(max(number), 0) FROM checkpoints)"
TRIGGERS = {
    "sqlite": [
        "DROP TRIGGER transfers_no_delete",
        f"CREATE TRIGGER transfers_no_delete BEFORE DELETE ON transfers WHEN OLD.number > {PAST} "
        "BEGIN SELECT RAISE(ABORT, 'transfers are never changed'); END",
        *(
            f"CREATE TRIGGER checkpoints_no_{verb.lower()} BEFORE {verb} ON checkpoints "
            "BEGIN SELECT RAISE(ABORT, 'checkpoints are never changed'); END"
            for verb in ("UPDATE", "DELETE")
        ),
    ],
    "postgresql": [
        "DROP TRIGGER transfers_no_change ON transfers",
        "CREATE TRIGGER transfers_no_change BEFORE UPDATE OR TRUNCATE ON transfers "
        "FOR EACH STATEMENT EXECUTE FUNCTION transfers_refuse()",
        "CREATE FUNCTION transfers_refuse_young() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF EXISTS (SELECT FROM gone WHERE number > {PAST}) THEN "
        "RAISE EXCEPTION 'transfers are never changed'; END IF; RETURN NULL; END $$",
        "CREATE TRIGGER transfers_no_delete AFTER DELETE ON transfers "
        "REFERENCING OLD TABLE AS gone "
        "FOR EACH STATEMENT EXECUTE FUNCTION transfers_refuse_young()",
        "CREATE FUNCTION checkpoints_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'checkpoints are never changed'; END $$",
        "CREATE TRIGGER checkpoints_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON checkpoints "
        "FOR EACH STATEMENT EXECUTE FUNCTION checkpoints_refuse()",
    ],
}


def upgrade() -> None:
    """Create the tables, and let go what a checkpoint stands for."""
    op.create_table(
        "usage_ranges",
        sa.Column("job", TEXT, primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True),
        sa.Column("is_charge", sa.Boolean, primary_key=True),
        sa.Column("first", sa.BigInteger, primary_key=True),
        sa.Column("tasks", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "roll_ups",
        sa.Column("id", sa.Integer, primary_key=True),
        *(
            sa.Column(name, sa.Double, nullable=False)
            for name in ("before_s", "jobs_to_s", "others_to_s", "contracts_to_s")
        ),
    )
    op.create_table(
        "checkpoints",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_s", sa.Double, nullable=False),
        *(
            sa.Column(name, sa.LargeBinary, nullable=False)
            for name in ("hash", "contents", "digest")
        ),
    )
    op.create_table(
        "checkpoint_balances",
        sa.Column(
            "account",
            sa.Integer,
            sa.ForeignKey("accounts.id"),
            primary_key=True,
            autoincrement=False,
        ),
        *(
            sa.Column(f"{name}_{half}", sa.BigInteger, nullable=False)
            for name in BALANCED
            for half in ("high", "low")
        ),
    )
    op.add_column(
        "postings", sa.Column("records", sa.BigInteger, nullable=False, server_default="1")
    )
    for statement in TRIGGERS[op.get_context().dialect.name]:
        op.execute(statement)
