"""Tickets and receipts of the bulk transfer (federation.signed.transfers)."""

from dataclasses import replace

import pytest

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed.identity import SiteKey, Untrusted
from federation.signed.transfers import (
    TICKET_S,
    TransferReceipt,
    TransferTicket,
    fits,
    open_given,
    open_receipt,
    open_ticket,
    seal_receipt,
    seal_ticket,
)

LONDON, PARIS = SiteKey(b"l" * 32), SiteKey(b"p" * 32)
NOW = UtcS(1_000_000.0)
TICKET = TransferTicket(
    id="0" * 32,
    federation="f" * 32,
    source="london",
    to="paris",
    digest=b"\x02" + b"d" * 32,
    size=1_000,
    scope="risk",
    user="ada",
    contract="c-1",
    issued_s=NOW,
    expires_s=UtcS(NOW + TICKET_S),
    regions=frozenset({"EU"}),
)
RECEIPT = TransferReceipt("0" * 32, "london", "paris", TICKET.digest, 900, 1_000_000_000)


def test_a_ticket_is_the_word_of_its_source():
    raw = seal_ticket(TICKET, LONDON)
    assert open_ticket(raw, [LONDON.public], NOW) == TICKET
    with pytest.raises(Untrusted, match="not signed by its site"):
        open_ticket(raw, [PARIS.public], NOW)


def test_a_ticket_ends():
    raw = seal_ticket(TICKET, LONDON)
    with pytest.raises(Untrusted, match="has expired"):
        open_ticket(raw, [LONDON.public], TICKET.expires_s)
    with pytest.raises(Untrusted, match="not valid yet"):
        open_ticket(raw, [LONDON.public], UtcS(NOW - 3600))


def test_its_own_site_takes_a_ticket_back_after_its_time():
    raw = seal_ticket(TICKET, LONDON)
    assert open_given(raw, [LONDON.public]) == TICKET
    with pytest.raises(Untrusted, match="not signed by its site"):
        open_given(raw, [PARIS.public])


def test_every_altered_byte_is_found():
    raw = seal_ticket(TICKET, LONDON)
    for at in range(len(raw)):
        altered = bytearray(raw)
        altered[at] ^= 1
        with pytest.raises(ProtocolError):
            open_ticket(bytes(altered), [LONDON.public], NOW)


def test_a_receipt_is_the_word_of_the_receiver_and_no_ticket():
    raw = seal_receipt(RECEIPT, PARIS)
    assert open_receipt(raw, [PARIS.public]) == RECEIPT
    with pytest.raises(Untrusted):
        open_receipt(raw, [LONDON.public])
    with pytest.raises(ProtocolError):
        open_ticket(raw, [PARIS.public], NOW)


def test_a_receipt_fits_its_ticket_alone():
    assert fits(RECEIPT, TICKET)
    assert not fits(replace(RECEIPT, moved_bytes=1_001), TICKET)
    assert not fits(replace(RECEIPT, ticket="1" * 32), TICKET)
    assert not fits(replace(RECEIPT, to="rome"), TICKET)


def test_the_project_of_another_sites_job_may_stand_in_a_ticket():
    there = replace(TICKET, scope="risk\u00a0@rome", user="ada@rome")
    assert open_ticket(seal_ticket(there, LONDON), [LONDON.public], NOW) == there
    with pytest.raises(ValueError, match="scope"):
        seal_ticket(replace(TICKET, scope="risk\n"), LONDON)
