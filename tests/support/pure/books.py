"""What sites say to each other of their books, as it is kept."""

from typing import Any

from federation.messages.messages import MESSAGES
from federation.messages.reconciliation import Reconcile, Reconciled, Tally
from federation.messages.wire import pack
from gateway.ledger.db.contracts.records import ContractSide
from gateway.ledger.db.settlement.records import StatementKept


def envelope(message: Any) -> bytes:
    """An envelope that nobody has signed."""
    return pack([b"", MESSAGES.encode(message), b""])


def agreed_on(
    side: ContractSide, site: str, span: tuple[int, int], tally: Tally, *, is_final: bool = False
) -> StatementKept:
    """What is kept of a time in which both sites have the same."""
    sums, digest = tally.plain, tally.digest
    question = envelope(Reconcile(*span, is_final, sums, digest))
    answer = envelope(Reconciled(*span, is_final, "agreed", sums, digest, {}))
    ours, theirs = (question, answer) if side == "buy" else (answer, question)
    return StatementKept(
        *(side, site, *span, is_final, "agreed", pack(sums), digest, "", ours, theirs, 1.7e9)
    )
