"""Keys of transfers as SQL makes them of documents, and which rows belong together."""

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, String, and_, case, cast, literal_column

from gateway.ledger.database import streamed
from gateway.ledger.merging import DELIVERY_KEY
from gateway.ledger.tables import contracts, disputes, payments, postings

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
OF_CONTRACT: Final = and_(
    contracts.c.side == postings.c.side, contracts.c.contract == postings.c.contract
)
OF_DISPUTE: Final = and_(
    *(disputes.c[name] == postings.c[name] for name in ("side", "contract", "epoch", "first"))
)


def rows_of(connection: Connection, query: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, one after the other."""
    return map(tuple, streamed(connection, query))
