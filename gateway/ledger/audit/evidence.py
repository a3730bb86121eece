"""The records of other sites' signed envelopes agree with the envelopes, and with the books.

The envelopes are read, and their signatures are not checked: the keys of that time are not in the
books.
"""

from collections.abc import Generator, Iterator
from typing import Any, Final

from sqlalchemy import Connection, select

from federation.errors import ProtocolError
from federation.messages.messages import MESSAGES
from federation.messages.payments import Payments, lines_of
from federation.messages.reconciliation import Reconcile, Reconciled, Sums, sums_of, tally_of
from federation.messages.wire import pack, unpack
from federation.signed.envelopes import body_of
from gateway.ledger.db.checks import NO_RECORD
from gateway.ledger.db.database import streamed
from gateway.ledger.db.settlement.queries import entries, is_whole, sums
from gateway.ledger.db.settlement.records import PaymentsTold, StatementKept
from gateway.ledger.db.settlement.tables import payments_told, statements

_UNREADABLE: Final = (ProtocolError, *NO_RECORD)


def disagreed(connection: Connection) -> Generator[str]:
    """Yield reconciled times that differ from the recorded result, or from the envelopes."""
    order = (statements.c[name] for name in ("site", "side", "first_ms", "stop_ms"))
    for row in map(tuple, streamed(connection, select(statements).order_by(*order))):
        name = f"{row[0]} of {row[1]} in [{row[2]}, {row[3]})"
        try:
            each = StatementKept(*row)
            if each.state == "accepted":
                continue  # set by an operator: there are no sums, and no signature
            said = sums_of(unpack(each.sums, len(each.sums)))
        except _UNREADABLE as error:
            yield f"the findings of {name} can't be read: {error}"
            continue
        if each.state == "agreed" and not _holds(connection, each, said):
            yield f"{name} differs from the agreed sums"
        for problem in _unsaid(each, said):
            yield f"{name}: {problem}"


def _holds(connection: Connection, each: StatementKept, said: dict[str, Sums]) -> bool:
    """Whether the bookings of that time are unchanged, by their sums where they are rolled up."""
    span = each.side, each.site, each.first_ms, each.stop_ms
    if not is_whole(connection, *span):
        return sums(connection, *span) == said
    now = tally_of(entries(connection, *span))
    return (now.sums, now.digest) == (said, each.digest)


def _unsaid(each: StatementKept, said: dict[str, Sums]) -> Iterator[str]:
    """Yield differences from the envelopes: the buyer's request and the seller's response.

    A buyer keeps a response only when it agrees; the other site's sums may differ only where its
    digest does, too.
    """
    envelopes = (("our", each.ours), ("their", each.theirs))
    kinds: Any = (Reconcile, Reconciled) if each.side == "buy" else (Reconciled, Reconcile)
    for (whose, raw), kind in zip(envelopes, kinds, strict=True):
        if (whose, each.side, raw) == ("their", "buy", b"") and each.state != "agreed":
            continue
        try:
            message: Any = MESSAGES.decode(body_of(raw), len(raw))
            span = message.first_ms, message.stop_ms, message.is_final
            is_same = whose == "their" or sums_of(message.sums) == said
        except (AttributeError, *_UNREADABLE) as error:
            yield f"{whose} envelope can't be read: {error}"
            continue
        if not isinstance(message, kind) or span != (each.first_ms, each.stop_ms, each.is_final):
            yield f"{whose} envelope belongs to another statement"
        elif isinstance(message, Reconciled) and message.state != each.state:
            yield (
                f"{whose} envelope has the state {message.state!r}, the books have {each.state!r}"
            )
        elif not is_same or (
            message.digest != each.digest and (whose == "our" or each.state == "agreed")
        ):
            yield f"{whose} envelope has other sums"


def mistold(connection: Connection) -> Generator[str]:
    """Yield reports of other sites' booked payments that differ from their envelopes."""
    query = select(payments_told).order_by(payments_told.c.site)
    for row in map(tuple, streamed(connection, query)):
        name = f"the report of payments by {row[0]}"
        try:
            each = PaymentsTold(*row)
            lines_of(unpack(each.lines, len(each.lines)))
        except _UNREADABLE as error:
            yield f"{name} can't be read: {error}"
            continue
        try:
            message = MESSAGES.decode(body_of(each.envelope), len(each.envelope))
        except _UNREADABLE as error:
            yield f"{name}: its envelope can't be read: {error}"
            continue
        if not isinstance(message, Payments):
            yield f"{name}: its envelope belongs to another report"
        elif (pack(message.lines), message.since_ms, message.heard) != row[1:4]:
            yield f"{name} differs from its envelope"
