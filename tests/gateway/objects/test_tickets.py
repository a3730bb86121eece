"""Tickets for the object host (gateway.objects.tickets)."""

import pytest

from federation.errors import ProtocolError
from gateway.objects.tickets import AGENT, CLIENT, ObjectTicket, read_ticket

KEY, OTHER = b"k" * 32, b"o" * 32


def test_a_ticket_is_read_back_and_a_changed_or_foreign_one_is_not():
    ticket = ObjectTicket(CLIENT, 7, "ann", "risk")
    data = ticket.sign(KEY)
    assert read_ticket(data, KEY) == ticket
    for wrong in (data[:-1], data + b"x", bytes([data[0] ^ 1]) + data[1:], b"", b"x" * 40):
        with pytest.raises(ProtocolError):
            read_ticket(wrong, KEY)
    with pytest.raises(ProtocolError):
        read_ticket(data, OTHER)


def test_a_client_reads_its_project_and_an_agent_all():
    assert ObjectTicket(CLIENT, 7, "ann", "risk").may_read("risk")
    assert not ObjectTicket(CLIENT, 7, "ann", "risk").may_read("fx")
    assert ObjectTicket(AGENT).may_read("fx")
