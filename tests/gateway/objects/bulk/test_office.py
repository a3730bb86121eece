"""Tickets that were given out, and what their receipts prove (gateway.objects.bulk.office)."""

from dataclasses import replace

import pytest

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed.transfers import TICKET_S, TransferReceipt
from gateway.objects.bulk.office import LATE_S, TicketOffice, moved, moved_record, why_not_fetch
from gateway.objects.catalogue import HeldObject, ObjectKey

DIGEST = b"\x02" + bytes(32)
HELD = HeldObject(ObjectKey("risk", DIGEST), 1_000, "ada", UtcS(0.0))
EU = frozenset({"EU"})


def give(office, number=1, at_s=0.0, regions=None):
    return office.give(f"{number:032x}", "paris", HELD, "ada", "c-1", regions, UtcS(at_s))


def receipt(ticket, moved_bytes=900):
    return TransferReceipt(
        ticket.id, ticket.source, ticket.to, ticket.digest, moved_bytes, 1_000_000
    )


@pytest.fixture
def office():
    return TicketOffice("london", "f" * 32)


def test_both_sides_have_the_same_fact_and_it_counts_once(office):
    ticket = give(office)
    found = office.take(receipt(ticket))
    assert found == moved(ticket, receipt(ticket))
    assert (found.source, found.to, found.moved_bytes, found.user) == (
        "london",
        "paris",
        900,
        "ada",
    )
    assert (found.scope, found.contract) == ("risk", "c-1")
    assert office.take(receipt(ticket)) is None


def test_a_receipt_claims_no_more_than_the_object_and_no_other_site(office):
    ticket = give(office)
    with pytest.raises(ProtocolError, match="does not fit"):
        office.take(receipt(ticket, 1_001))
    with pytest.raises(ProtocolError, match="does not fit"):
        office.take(replace(receipt(ticket), to="rome"))
    assert office.take(receipt(ticket)) is not None


def test_old_tickets_are_forgotten(office):
    ticket = give(office)
    give(office, 2, TICKET_S + LATE_S + 1)
    assert office.take(receipt(ticket)) is None


def test_many_tickets_of_one_site_let_none_of_another_be_forgotten(office, monkeypatch):
    monkeypatch.setattr("gateway.objects.bulk.office.GIVEN_MAX", 3)
    first = give(office)
    others = [
        office.give(f"{number:032x}", "rome", HELD, "ada", "c-1", None, UtcS(0.0))
        for number in range(2, 6)
    ]
    assert office.take(receipt(others[0])) is None
    assert office.take(receipt(others[1])) is not None
    assert office.take(receipt(first)) is not None


def test_a_receiver_checks_the_ticket_against_its_own_place(office):
    ticket = give(office, regions=EU)
    assert why_not_fetch(ticket, "paris", DIGEST, "c-1", "EU") == ""
    assert "another site" in why_not_fetch(ticket, "rome", DIGEST, "c-1", "EU")
    assert "another site" in why_not_fetch(ticket, "paris", DIGEST, "c-2", "EU")
    why = why_not_fetch(ticket, "paris", DIGEST, "c-1", "US")
    assert "may lie in EU" in why
    assert "jurisdiction US" in why
    assert "unknown" in why_not_fetch(ticket, "paris", DIGEST, "c-1", "")
    assert why_not_fetch(give(office, 3), "paris", DIGEST, "c-1", "") == ""
    empty = replace(ticket, size=0)
    assert "without bytes" in why_not_fetch(empty, "paris", DIGEST, "c-1", "EU")


def test_what_came_is_one_record_of_the_user_and_project_of_its_job(office):
    ticket = give(office)
    fact = replace(moved(ticket, receipt(ticket)), user="ada@london", scope="risk\u00a0@london")
    found = moved_record(fact, UtcS(3_600.0), "EUR", "quants")
    assert (found.kind, found.moved_bytes, found.cost_nanos) == ("moved", 900, 0)
    assert (found.user, found.project, found.group) == ("ada@london", "risk", "quants")
    assert (found.job, found.tasks, found.origin) == ("london:moved/1970-01-01T01", 0, "london")
    own = moved_record(replace(fact, scope="risk"), UtcS(0.0), "EUR", "")
    assert (own.job, own.project, own.origin) == ("moved/1970-01-01T00", "risk", "")
    assert found.started_at_s == found.ended_at_s == 3_600.0
    other = replace(fact, ticket="f" * 32)
    assert moved_record(other, UtcS(3_600.0), "EUR", "").first < 1 << 63
    assert moved_record(other, UtcS(3_600.0), "EUR", "").first != found.first
