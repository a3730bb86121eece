"""Tickets of a site, and what their receipts prove (gateway.objects.bulk.office)."""

from dataclasses import replace

import pytest

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed.transfers import TICKET_S, TransferReceipt
from gateway.objects.bulk.office import moved, moved_record, proved, ticket_for, why_not_fetch
from gateway.objects.catalogue import HeldObject, ObjectKey

DIGEST = b"\x02" + bytes(32)
HELD = HeldObject(ObjectKey("risk", DIGEST), 1_000, "ada", UtcS(0.0))
EU = frozenset({"EU"})


def give(number=1, at_s=0.0, regions=None):
    sites = "london", "f" * 32, "paris"
    return ticket_for(f"{number:032x}", *sites, HELD, "ada", "c-1", regions, UtcS(at_s))


def receipt(ticket, moved_bytes=900):
    return TransferReceipt(
        ticket.id, ticket.source, ticket.to, ticket.digest, moved_bytes, 1_000_000
    )


def test_both_sides_have_the_same_fact():
    ticket = give()
    found = proved(ticket, receipt(ticket))
    assert found == moved(ticket, receipt(ticket))
    assert (found.source, found.to, found.moved_bytes, found.user) == (
        "london",
        "paris",
        900,
        "ada",
    )
    assert (found.scope, found.contract) == ("risk", "c-1")


def test_a_receipt_claims_no_more_than_the_object_and_no_other_site():
    ticket = give()
    assert ticket.expires_s == TICKET_S
    for wrong in (
        receipt(ticket, 1_001),
        replace(receipt(ticket), to="rome"),
        replace(receipt(ticket), ticket="0" * 32),
        replace(receipt(ticket), digest=b"\x02" + b"x" * 32),
    ):
        with pytest.raises(ProtocolError, match="does not fit"):
            proved(ticket, wrong)


def test_a_receiver_checks_the_ticket_against_its_own_place():
    ticket = give(regions=EU)
    assert why_not_fetch(ticket, "paris", DIGEST, "c-1", "EU") == ""
    assert "another site" in why_not_fetch(ticket, "rome", DIGEST, "c-1", "EU")
    assert "another site" in why_not_fetch(ticket, "paris", DIGEST, "c-2", "EU")
    why = why_not_fetch(ticket, "paris", DIGEST, "c-1", "US")
    assert "may lie in EU" in why
    assert "jurisdiction US" in why
    assert "unknown" in why_not_fetch(ticket, "paris", DIGEST, "c-1", "")
    assert why_not_fetch(give(3), "paris", DIGEST, "c-1", "") == ""
    empty = replace(ticket, size=0)
    assert "without bytes" in why_not_fetch(empty, "paris", DIGEST, "c-1", "EU")


def test_what_came_is_one_record_of_the_user_and_project_of_its_job():
    ticket = give()
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
