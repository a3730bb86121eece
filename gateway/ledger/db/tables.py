"""The current tables of the ledger; migrations/ brings a database to this schema.

References to a job have no foreign key: the only writer writes them after the job, and a late or
repeated write must never fail the transaction that it shares with others. Double entry is strict:
the journal knows the booked transfers before it writes (journal.py).
"""

from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    case,
    event,
    false,
    func,
    literal_column,
)

# The newest migration. A database at this version is opened without loading Alembic.
SCHEMA_VERSION: Final = "0014"

# Ordered by code points, in PostgreSQL as in SQLite, whatever the locale: reports must not differ.
TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")

metadata = MetaData()

# One row, changed by every durable transaction: a commit without changes does not sync the
# database, and a power cut could then lose earlier transactions.
hardenings = Table(
    "hardenings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

functions = Table(
    "functions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("job", TEXT, primary_key=True),
    Column("name", TEXT, nullable=False),
    Column("user", TEXT, nullable=False),
    Column("project", TEXT, nullable=False),
    Column("detached", Boolean, nullable=False),
    Column("spec", LargeBinary, nullable=False),
    Column("function", LargeBinary),
    Column("submitted_at_s", Double, nullable=False),
    Column("total", BigInteger),
    Column("state", TEXT, nullable=False, server_default="open"),
    Column("reason", TEXT, nullable=False, server_default=""),
    Column("ended_at_s", Double),
    Column("done", BigInteger, nullable=False, server_default="0"),
    Column("failed", BigInteger, nullable=False, server_default="0"),
    Column("cancelled", BigInteger, nullable=False, server_default="0"),
    Column("forgotten", Boolean, nullable=False, server_default=false()),
)
Index("jobs_by_submission", jobs.c.submitted_at_s)
Index("jobs_by_function", jobs.c.function)
# Open jobs are looked up at every start; without the index that reads every job ever opened.
Index("jobs_by_end", jobs.c.ended_at_s)

bundles = Table(
    "bundles",
    metadata,
    Column("job", TEXT, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("job", TEXT, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

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
)
SUMMED_BY: Final = (
    *("hour", "user", "group", "project", "name", "site", "origin", "pool", "window", "tags"),
    *("price_class", "state", "tariff", "currency", "footprint"),
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

# Contracts with other sites, and the deliveries under each: the same rows on both sides.
contracts = Table(
    "contracts",
    metadata,
    Column("side", TEXT, primary_key=True),
    Column("contract", TEXT, primary_key=True),
    Column("site", TEXT, nullable=False),
    Column("job", TEXT, nullable=False),
    Column("pool", TEXT, nullable=False),
    Column("slots", BigInteger, nullable=False),
    Column("price_nanos", BigInteger, nullable=False),
    Column("currency", TEXT, nullable=False),
    Column("lease_s", Double, nullable=False),
    Column("opened_at_s", Double, nullable=False),
    Column("state", TEXT, nullable=False, server_default="open"),
    Column("ended_at_s", Double),
    Column("max_cost_nanos", BigInteger),  # of its grant
    # With price and currency, all the terms of its charges.
    Column("minimum_nanos", BigInteger, nullable=False, server_default="0"),
    Column("step_ns", BigInteger, nullable=False, server_default="0"),
    Column("tariff", TEXT, nullable=False, server_default=""),
    Column("window", TEXT, nullable=False, server_default=""),
    Column("price_class", TEXT, nullable=False, server_default="guaranteed"),
    Column("list_nanos", BigInteger, nullable=False, server_default="0"),
)
Index("contracts_by_end", contracts.c.ended_at_s)
# For the deliveries of one site: without the index all deliveries are read for each site.
Index("contracts_by_site", contracts.c.side, contracts.c.site)

postings = Table(
    "postings",
    metadata,
    Column("side", TEXT, primary_key=True),
    Column("contract", TEXT, primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("tasks", BigInteger, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("cost_nanos", BigInteger, nullable=False),
    Column("posted_at_s", Double, nullable=False),
    Column("state", TEXT, nullable=False, server_default="pending"),
    Column("records", BigInteger, nullable=False, server_default="1"),
    sqlite_with_rowid=False,
)

Index("postings_by_time", postings.c.posted_at_s)

# The sites' disputes and statements on the deliveries between them.
disputes = Table(
    "disputes",
    metadata,
    Column("side", TEXT, primary_key=True),
    Column("contract", TEXT, primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("site", TEXT, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("disputed_at_s", Double, nullable=False),
    Column("state", TEXT, nullable=False, server_default="open"),
    Column("answer", TEXT, nullable=False, server_default=""),
    Column("settled_at_s", Double),
)
statements = Table(
    "statements",
    metadata,
    Column("side", TEXT, primary_key=True),
    Column("site", TEXT, primary_key=True),
    Column("first_ms", BigInteger, primary_key=True),
    Column("stop_ms", BigInteger, primary_key=True),
    Column("is_final", Boolean, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("sums", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("details", TEXT, nullable=False),
    Column("ours", LargeBinary, nullable=False),
    Column("theirs", LargeBinary, nullable=False),
    Column("kept_at_s", Double, nullable=False),
)
payments = Table(
    "payments",
    metadata,
    Column("site", TEXT, primary_key=True),
    Column("reference", TEXT, primary_key=True),
    Column("currency", TEXT, primary_key=True),
    Column("direction", TEXT, nullable=False),
    Column("through", TEXT, nullable=False),
    Column("amount_nanos", BigInteger, nullable=False),
    Column("note", TEXT, nullable=False),
    Column("paid_at_s", Double, nullable=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("undone_at_s", Double),
    Column("undone_why", TEXT, nullable=False, server_default=""),
)
# The newest list of each other site's booked payments.
payments_told = Table(
    "payments_told",
    metadata,
    Column("site", TEXT, primary_key=True),
    Column("lines", LargeBinary, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
    Column("heard", LargeBinary, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    Column("told_at_s", Double, nullable=False),
)
# Deliveries without a verdict are few, and are read each minute: the index spares a read of all
# deliveries. The literal stands in the SQL of both, because a partial index is only used for an
# equal condition.
IS_PENDING: Final = postings.c.state == literal_column("'pending'", Text)
Index(
    "postings_pending",
    postings.c.posted_at_s,
    sqlite_where=IS_PENDING,
    postgresql_where=IS_PENDING,
)

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
    Column("lease_s", Double, nullable=False),
    Column("left_at_s", Double),
    Column("used_ns", BigInteger, nullable=False),
    Column("billed_nanos", BigInteger, nullable=False),
    Column("billed_at_s", Double, nullable=False),
)
Index("reservations_by_end", reservations.c.until_s)

# Shares of budgets: of ours, held by other sites, and of theirs, held by us. Amounts that only grow
# exceed an integer.
slices_lent = Table(
    "slices_lent",
    metadata,
    Column("budget", TEXT, primary_key=True),
    Column("unit", TEXT, primary_key=True),
    Column("site", TEXT, primary_key=True),
    Column("account", BigInteger, primary_key=True, autoincrement=False),
    *(
        Column(name, TEXT, nullable=False)
        for name in ("granted", "returned", "spent", "before", "base")
    ),
    *(
        Column(name, BigInteger, nullable=False)
        for name in ("since_ms", "period_ms", "life", "number")
    ),
    Column("heard_at_s", Double, nullable=False),
)
slices_held = Table(
    "slices_held",
    metadata,
    Column("owner", TEXT, primary_key=True),
    Column("budget", TEXT, primary_key=True),
    Column("account", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, TEXT, nullable=False) for name in ("unit", "party", "span", "zone")),
    Column("is_closed", Boolean, nullable=False),
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
# Joins a delivery to its contract.
OF_CONTRACT: Final = and_(
    contracts.c.side == postings.c.side, contracts.c.contract == postings.c.contract
)
_SENDER: Final = contracts.c.site + literal_column("':'", String)
# The job id under which sold work ran here. The bill of a reservation has a job id without its
# buyer.
SOLD_JOB: Final = case(
    (func.substr(contracts.c.job, 1, func.length(_SENDER)) == _SENDER, contracts.c.job),
    else_=_SENDER + contracts.c.job,
)
for (_dialect, _table), _statements in APPEND_ONLY.items():
    for _statement in _statements:
        _trigger = DDL(_statement)  # type: ignore[no-untyped-call]
        event.listen(_table, "after_create", _trigger.execute_if(dialect=_dialect))
