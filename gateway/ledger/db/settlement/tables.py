"""The tables of disputes, statements and payments."""

from sqlalchemy import BigInteger, Boolean, Column, Double, LargeBinary, Table

from gateway.ledger.db.schema import TEXT, metadata

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
