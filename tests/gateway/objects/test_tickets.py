"""Tickets for the object host (gateway.objects.tickets)."""

import pytest

from federation.errors import ProtocolError
from federation.messages.wire import pack, unpack
from gateway.objects.tickets import (
    AGENT,
    CLIENT,
    SHOW_S,
    EndedSessions,
    ObjectTicket,
    read_ticket,
)

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


def test_a_ticket_for_a_time_is_read_back_and_one_without_is_as_before():
    for until in (None, 12.5):
        ticket = ObjectTicket(CLIENT, 7, "ann", "risk", until)
        assert read_ticket(ticket.sign(KEY), KEY) == ticket
    body = ObjectTicket(CLIENT, 7, "ann", "risk").sign(KEY)[32:]
    assert unpack(body, 100) == [CLIENT, 7, "ann", "risk"]
    assert body == pack([CLIENT, 7, "ann", "risk"])


def test_a_ticket_is_taken_until_its_session_is_over_and_for_a_short_time():
    ended = EndedSessions()
    seven, eight = (ObjectTicket(CLIENT, n, "ann", "risk", 100.0) for n in (7, 8))
    assert not ended.why_not(seven, 90.0)
    assert "within 60 s" in ended.why_not(seven, 100.1)
    ended.add(7, 90.0)
    assert ended.why_not(seven, 95.0) == "the session of the ticket is over"
    assert not ended.why_not(eight, 95.0)
    assert not ended.why_not(ObjectTicket(AGENT, 7), 95.0)
    # It is remembered as long as a ticket of it may be shown, and no longer.
    ended.add(8, 90.0 + SHOW_S)
    assert len(ended) == 2
    ended.add(9, 90.1 + SHOW_S)
    assert len(ended) == 2
    assert ended.why_not(ObjectTicket(CLIENT, 8), 95.0)
    ended.clear()
    assert not ended.why_not(eight, 95.0)
