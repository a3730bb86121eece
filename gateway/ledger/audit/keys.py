"""Keys of transfers, as SQL expressions on documents, and a way to read rows."""

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, String, case, cast, literal_column

from gateway.ledger.accounting.merging import DELIVERY_KEY
from gateway.ledger.db.database import streamed
from gateway.ledger.db.settlement.tables import payments

_SLASH: Final = literal_column("'/'", String)
REVERSAL_KEY: Final = literal_column("'reverse/'", String) + DELIVERY_KEY
PAYMENT_KEY: Final = (
    case(
        (payments.c.attempt == 0, literal_column("'pay/'", String)),
        else_=literal_column("'pay-'", String) + cast(payments.c.attempt, String) + _SLASH,
    )
    + payments.c.site
    + _SLASH
    + payments.c.currency
    + _SLASH
    + payments.c.reference
)
UNDOING_KEY: Final = literal_column("'undo/'", String) + PAYMENT_KEY


def rows_of(connection: Connection, query: Any) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a query as tuples, one after the other."""
    return map(tuple, streamed(connection, query))
