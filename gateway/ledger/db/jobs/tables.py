"""The tables of jobs."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, LargeBinary, Table, false

from gateway.ledger.db.schema import TEXT, metadata

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
