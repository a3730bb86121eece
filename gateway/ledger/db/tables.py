"""All tables, as they are now; migrations/ brings a database to them.

Here are those of no subject: double entry, roll-up, hardening. Importing this module registers the
others in `metadata`, too.

References to a job have no foreign key: the only writer writes them after the job, and a late or
repeated write must never fail the transaction that it shares with others. Double entry is strict:
the journal knows the booked transfers before it writes (journal.py).
"""

from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    UniqueConstraint,
    event,
)

import gateway.ledger.db.alerts.tables
import gateway.ledger.db.budgets.tables
import gateway.ledger.db.contracts.tables
import gateway.ledger.db.drains.tables
import gateway.ledger.db.jobs.tables
import gateway.ledger.db.reservations.tables
import gateway.ledger.db.rules.tables
import gateway.ledger.db.settlement.tables
import gateway.ledger.db.usage.tables  # noqa: F401 - registers them
from gateway.ledger.db.schema import TEXT, metadata

# One row, changed by every durable transaction: a commit without changes does not sync the
# database, and a power cut could then lose earlier transactions.
hardenings = Table(
    "hardenings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

# The progress of the roll-up: one row, or none yet.
roll_ups = Table(
    "roll_ups",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("before_s", Double, nullable=False),  # later usage is as written
    Column("jobs_to_s", Double, nullable=False),
    Column("others_to_s", Double, nullable=False),
    Column("contracts_to_s", Double, nullable=False),
)

# Double entry; gateway.ledger.accounting.postings defines the transfers and their reasons.
accounts = Table(
    "accounts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("kind", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("project", TEXT, nullable=False),
    Column("currency", TEXT, nullable=False),
    UniqueConstraint("kind", "name", "project", "currency", name="accounts_are_distinct"),
)

transfers = Table(
    "transfers",
    metadata,
    # From 1, without a gap.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("key", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("debit", Integer, ForeignKey("accounts.id"), nullable=False),
    Column("credit", Integer, ForeignKey("accounts.id"), nullable=False),
    Column("amount_nanos", BigInteger, nullable=False),
    Column("at_s", Double, nullable=False),
    Column("resolves", TEXT),
    Column("hash", LargeBinary, nullable=False),
    UniqueConstraint("key", name="transfers_have_one_key"),
    CheckConstraint("amount_nanos > 0", name="transfers_move_something"),
    CheckConstraint("debit <> credit", name="transfers_go_elsewhere"),
    CheckConstraint(
        "(kind IN ('entry', 'hold') AND resolves IS NULL) OR "
        "(kind IN ('post', 'void', 'reversal') AND resolves IS NOT NULL)",
        name="transfers_are_of_a_kind",
    ),
)

_RESOLVING: Final = transfers.c.resolves.is_not(None)

Index(  # most transfers resolve nothing, and are left out
    "transfers_are_resolved_once",
    transfers.c.resolves,
    unique=True,
    sqlite_where=_RESOLVING,
    postgresql_where=_RESOLVING,
)

# The sums of all transfers up to one of them, which allow those to be dropped (checkpoints.py).
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # of that transfer
    Column("at_s", Double, nullable=False),
    Column("hash", LargeBinary, nullable=False),  # of that transfer
    Column("contents", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
)

# The balances as of the newest checkpoint, in halves as in `exact`.
BALANCED: Final = ("debits", "credits", "held_debits", "held_credits")

checkpoint_balances = Table(
    "checkpoint_balances",
    metadata,
    Column("account", Integer, ForeignKey("accounts.id"), primary_key=True, autoincrement=False),
    *(
        Column(f"{name}_{half}", BigInteger, nullable=False)
        for name in BALANCED
        for half in ("high", "low")
    ),
)

# Booked rows are never changed: corrections are transfers, too. Only transfers that a checkpoint
# stands for may be deleted.
_REFUSE: Final = "BEGIN SELECT RAISE(ABORT, '{} are never changed'); END"

_PAST: Final = "(SELECT coalesce(max(number), 0) FROM checkpoints)"

APPEND_ONLY: Final = {
    ("sqlite", transfers): [
        "CREATE TRIGGER transfers_no_update BEFORE UPDATE ON transfers "
        + _REFUSE.format("transfers"),
        f"CREATE TRIGGER transfers_no_delete BEFORE DELETE ON transfers WHEN OLD.number > {_PAST} "
        + _REFUSE.format("transfers"),
    ],
    ("sqlite", checkpoints): [
        f"CREATE TRIGGER checkpoints_no_{verb.lower()} BEFORE {verb} ON checkpoints "
        + _REFUSE.format("checkpoints")
        for verb in ("UPDATE", "DELETE")
    ],
    ("postgresql", transfers): [
        "CREATE FUNCTION transfers_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'transfers are never changed'; END $$",
        "CREATE TRIGGER transfers_no_change BEFORE UPDATE OR TRUNCATE ON transfers "
        "FOR EACH STATEMENT EXECUTE FUNCTION transfers_refuse()",
        "CREATE FUNCTION transfers_refuse_young() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF EXISTS (SELECT FROM gone WHERE number > {_PAST}) THEN "
        "RAISE EXCEPTION 'transfers are never changed'; END IF; RETURN NULL; END $$",
        "CREATE TRIGGER transfers_no_delete AFTER DELETE ON transfers "
        "REFERENCING OLD TABLE AS gone "
        "FOR EACH STATEMENT EXECUTE FUNCTION transfers_refuse_young()",
    ],
    ("postgresql", checkpoints): [
        "CREATE FUNCTION checkpoints_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'checkpoints are never changed'; END $$",
        "CREATE TRIGGER checkpoints_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON checkpoints "
        "FOR EACH STATEMENT EXECUTE FUNCTION checkpoints_refuse()",
    ],
}

for (_dialect, _table), _statements in APPEND_ONLY.items():
    for _statement in _statements:
        _trigger = DDL(_statement)  # type: ignore[no-untyped-call]
        event.listen(_table, "after_create", _trigger.execute_if(dialect=_dialect))
