"""Requests to renew leases: asked once, answered by the buyer alone, counted from the request."""

from types import SimpleNamespace

import pytest

from federation.messages import deals
from federation.messages.contracts import Lease, holder_until_s
from gateway.contracts.model.dealing import Consequences
from gateway.contracts.selling.renewals import Renewals
from gateway.scheduler.model.effects import PeerSide, SendToSite

LEASE_S = 10.0


def sold(contract, until_s=LEASE_S, *, is_live=True):
    lease = Lease(LEASE_S, until_s)
    return SimpleNamespace(contract=contract, lease=lease, is_live=is_live, asked_at_s=-1.0)


class Seller:
    """Renewals, and the contracts sold to London."""

    def __init__(self, *sales):
        self.outcome = Consequences()
        self.renewals = Renewals(self.outcome)
        self.sales = {("london", each.contract): each for each in sales}

    def ask(self, mono_s):
        self.renewals.ask("london", [*self.sales.values()], mono_s)
        (said,) = self.outcome.effects
        self.outcome.effects.clear()
        return said

    def granted(self, stamp, *contracts, mono_s, buyer="london"):
        message = deals.Granted(stamp, [*contracts])
        over = self.renewals.granted(buyer, message, self.sales, mono_s)
        return [each.contract for each in over]


@pytest.fixture
def seller():
    return Seller(sold("gone", is_live=False), sold("a"), sold("b"))


def test_each_request_has_a_stamp_of_its_own_and_is_noted_at_its_contracts(seller):
    contracts = ["gone", "a", "b"]
    for stamp, mono_s in ((1, 2.0), (2, 4.0)):
        renew = deals.Renew(stamp, contracts)
        assert seller.ask(mono_s) == SendToSite("london", PeerSide.BUYER, renew)
        assert {each.asked_at_s for each in seller.sales.values()} == {mono_s}


def test_what_is_granted_is_renewed_from_the_request_and_the_rest_is_over(seller):
    seller.ask(2.0)
    assert seller.granted(1, "a", "gone", mono_s=9.0) == ["b"], "one that has ended is over already"
    assert seller.sales["london", "a"].lease.until_s == holder_until_s(2.0, LEASE_S)
    assert seller.sales["london", "b"].lease.until_s == LEASE_S
    assert seller.granted(1, mono_s=9.0) == [], "a request is answered once"


def test_what_is_granted_after_the_lease_is_over(seller):
    seller.ask(2.0)
    assert seller.granted(1, "a", "b", mono_s=LEASE_S) == ["a", "b"]


def test_an_answer_of_another_site_or_to_no_request_changes_nothing(seller):
    seller.ask(2.0)
    assert seller.granted(1, mono_s=3.0, buyer="paris") == []
    assert seller.granted(2, mono_s=3.0) == []
    assert seller.granted(1, "a", "b", mono_s=3.0) == []
    assert seller.sales["london", "a"].lease.until_s > LEASE_S


def test_a_contract_that_is_not_there_any_more_is_left_out(seller):
    seller.ask(2.0)
    del seller.sales["london", "a"]
    assert seller.granted(1, "b", mono_s=3.0) == []


def test_a_request_is_forgotten_when_all_its_leases_have_expired(seller):
    seller.sales["london", "b"].lease.until_s = 15.0
    seller.ask(2.0)
    seller.renewals.tidy(14.9)
    assert seller.renewals.asked
    seller.renewals.tidy(15.0)
    assert not seller.renewals.asked
