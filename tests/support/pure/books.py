"""The messages between sites about their books, as they are kept."""

from typing import Any

from federation.messages.messages import MESSAGES
from federation.messages.reconciliation import Reconcile, Reconciled, Tally
from federation.messages.wire import pack
from gateway.ledger.db.contracts.records import ContractSide
from gateway.ledger.db.settlement.records import StatementKept


def envelope(message: Any) -> bytes:
    """An envelope without a signature."""
    return pack([b"", MESSAGES.encode(message), b""])


def agreed_on(
    side: ContractSide, site: str, span: tuple[int, int], tally: Tally, *, is_final: bool = False
) -> StatementKept:
    """The record of a time in which the books of both sites agree."""
    sums, digest = tally.plain, tally.digest
    question = envelope(Reconcile(*span, is_final, sums, digest))
    answer = envelope(Reconciled(*span, is_final, "agreed", sums, digest, {}))
    ours, theirs = (question, answer) if side == "buy" else (answer, question)
    return StatementKept(
        *(side, site, *span, is_final, "agreed", pack(sums), digest, "", ours, theirs, 1.7e9)
    )
