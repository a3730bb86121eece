"""Receipts outlive a rotation of their signer's key (gateway.trust.ticket_signer)."""

from types import SimpleNamespace

import pytest

from federation.clocks import UtcS
from federation.signed.identity import SiteKey, TrustRefusal, Untrusted
from federation.signed.transfers import TransferReceipt, TransferTicket, seal_receipt, seal_ticket
from gateway.trust.ticket_signer import TicketSigner

OLD, NEW = (SiteKey(each * 32) for each in (b"o", b"n"))
RECEIPT = TransferReceipt("ab" * 16, "london", "paris", b"\x02" * 33, 90, 1_000)


def signer(keys, lasting):
    book = SimpleNamespace(
        federation="f" * 32,
        keys_of=lambda _: tuple(each.public for each in keys),
        lasting_keys_of=lambda _: tuple(each.public for each in lasting),
    )
    return TicketSigner(SimpleNamespace(book=book))


def test_a_receipt_by_a_retired_key_counts_and_a_ticket_does_not():
    """The receipt of a paid move comes again with each bill, until it is settled."""
    found = signer([NEW], [NEW, OLD])
    for key in (NEW, OLD):
        assert found.open_receipt("paris", seal_receipt(RECEIPT, key)) == RECEIPT
    ticket = TransferTicket(
        *("ab" * 16, "f" * 32, "paris", "london", b"\x02" * 33, 100, "risk", "ann", "c"),
        *(UtcS(0.0), UtcS(900.0)),
    )
    assert found.open_ticket("paris", seal_ticket(ticket, NEW), UtcS(1.0)) == ticket
    with pytest.raises(Untrusted) as refused:
        found.open_ticket("paris", seal_ticket(ticket, OLD), UtcS(1.0))
    assert refused.value.refusal is TrustRefusal.BAD_SIGNATURE


def test_no_receipt_of_an_expelled_site_counts():
    with pytest.raises(Untrusted) as refused:
        signer([], []).open_receipt("paris", seal_receipt(RECEIPT, OLD))
    assert refused.value.refusal is TrustRefusal.UNKNOWN_SITE
