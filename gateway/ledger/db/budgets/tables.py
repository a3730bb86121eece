"""The tables of shares of budgets."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Table

from gateway.ledger.db.schema import TEXT, metadata

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
