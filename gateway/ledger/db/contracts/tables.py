"""The tables of contracts and deliveries."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    LargeBinary,
    String,
    Table,
    Text,
    and_,
    case,
    func,
    literal_column,
)

from gateway.ledger.db.schema import TEXT, metadata

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
    Column("rules", BigInteger, nullable=False, server_default="0"),
    Column("receive_nanos", BigInteger, nullable=False, server_default="0"),
    Column("send_nanos", BigInteger, nullable=False, server_default="0"),
)
Index("contracts_by_end", contracts.c.ended_at_s)

# For the deliveries of one site: without the index all deliveries are read for each site.
Index("contracts_by_site", contracts.c.side, contracts.c.site)

# For an explanation of an ended job: without the index the contracts of all jobs are read.
Index("contracts_by_job", contracts.c.side, contracts.c.job)

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

# Joins a delivery to its contract.
OF_CONTRACT: Final = and_(
    contracts.c.side == postings.c.side, contracts.c.contract == postings.c.contract
)

# The proof of a delivery of moved bytes: the ticket and the receipt, as they were signed.
move_receipts = Table(
    "move_receipts",
    metadata,
    Column("side", TEXT, primary_key=True),
    Column("contract", TEXT, primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("ticket", LargeBinary, nullable=False),
    Column("receipt", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

_SENDER: Final = contracts.c.site + literal_column("':'", String)

# The job id under which sold work ran here. The bill of a reservation has a job id without its
# buyer.
SOLD_JOB: Final = case(
    (func.substr(contracts.c.job, 1, func.length(_SENDER)) == _SENDER, contracts.c.job),
    else_=_SENDER + contracts.c.job,
)
