"""A site's links to others: the ones that it keeps, and the meaning of a closed one."""

import pytest
from support.pure.lone_router import LoneRouter

from federation.membership.events import Connected, Disconnected, Unreachable
from federation.messages import deals
from federation.messages.messages import PutFunction
from federation.messages.slices import AskSlice
from federation.messages.transferring import Receipts
from gateway.contracts.slices.borrowing import Borrowing
from gateway.scheduler.model.effects import PeerSide
from gateway.scheduler.model.events import FunctionArrived
from gateway.sessions.links import LinkDown, LinkUp
from gateway.sessions.listener import PeerSaid
from policies.placement.asks import Wishes

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))


@pytest.fixture
def alone():
    return LoneRouter()


def test_what_was_heard_together_is_acted_on_once(alone):
    """To act is to plan: a site may send one function after the other."""
    peer = alone.meet("paris")
    alone.acted.clear()
    digests = [bytes([number]) * 32 for number in range(9)]
    alone.router.hear_peers([PeerSaid(peer, PutFunction(each, b"")) for each in digests])
    assert alone.acted == [[FunctionArrived(each) for each in digests]]


def test_the_links_to_sellers_are_kept_as_long_as_there_is_a_contract(alone):
    alone.router.tick()
    assert "paris" not in alone.kept
    alone.london.submit(8, wishes=ABROAD)
    alone.town.deliver()
    alone.router.tick()
    assert "paris" in alone.kept
    alone.town.run(lambda: len(alone.london.answers()) == 8)
    alone.town.pass_time(30.0)
    assert alone.london.exchange.purchases.sellers == set()
    alone.router.tick()
    assert "paris" not in alone.kept


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_site_whose_idle_link_we_closed_is_asked_all_the_same(alone, is_idle):
    alone.router.hear_link(LinkDown("paris", "it is over", is_idle))
    alone.london.submit(8, wishes=ABROAD)
    alone.town.deliver()
    asked = [m for *_, m in alone.town.said if isinstance(m, deals.AskQuote)]
    assert bool(asked) == is_idle


def test_a_site_that_reads_nothing_of_what_we_say_loses_its_session(alone):
    rome, oslo = alone.meet("rome"), alone.meet("oslo")
    for peer in (rome, oslo):
        peer.session.post(bytes(10_000))
    alone.router.tick()
    assert alone.expelled == []
    rome.session.post(b"x")
    for _ in range(2):
        alone.router.tick()
    assert alone.expelled == [
        "rome: 10,001 unread bytes are queued for it, over the limit of 10,000"
    ]


def test_results_that_are_not_settled_may_wait_besides(alone):
    rome = alone.meet("rome")
    for _ in range(100):
        alone.london.exchange.sales._unsettled.owe("rome")
    rome.session.post(bytes(40_000))
    alone.router.tick()
    assert alone.expelled == []
    rome.session.post(b"x")
    alone.router.tick()
    [line] = alone.expelled
    assert line.endswith("over the limit of 10,000 and 30,000 of results")


def test_the_links_to_owners_of_budgets_that_we_spend_from_are_kept(alone, monkeypatch):
    monkeypatch.setattr(Borrowing, "owners", {"rome"})
    alone.router.tick()
    assert "rome" in alone.kept


def test_a_slice_goes_signed_by_whatever_session_there_is(alone):
    asked = AskSlice("b", 1, 1, 1, "USD", "ever", "UTC", "0", "0", "0", 0, "0", "1", "1")
    alone.router.carry("paris", PeerSide.SELLER, asked)
    alone.meet("rome")
    alone.router.carry("rome", PeerSide.SELLER, asked)
    sealed = [to for to, each in alone.said if isinstance(each, deals.Sealed)]
    assert sealed == ["paris", "rome"]
    peer = alone.meet("paris")
    alone.router.hear_peers([PeerSaid(peer, asked)])
    assert alone.expelled == ["paris: protocol error: 'ask-slice' must be signed"]


def test_gossip_is_told_with_whom_a_session_is_open(alone):
    membership, told = alone.router.gossip.membership, []
    handle = membership.handle
    membership.handle = lambda event, now: told.append(event) or handle(event, now)
    peer = alone.meet("paris")
    assert told.pop() == Connected("paris")
    alone._expel(peer, "enough")
    assert told.pop() == Unreachable("paris")
    alone.router.hear_link(LinkUp("paris", resumed=False))
    assert told.pop() == Connected("paris")
    alone.router.hear_link(LinkDown("paris", "it is over", is_idle=True))
    assert told.pop() == Disconnected("paris")


def test_gossip_is_told_of_no_end_while_the_other_session_is_open(alone):
    membership, told = alone.router.gossip.membership, []
    alone.meet("paris")
    handle = membership.handle
    membership.handle = lambda event, now: told.append(event) or handle(event, now)
    for is_idle in (True, False):
        alone.router.hear_link(LinkDown("paris", "it is over", is_idle))
    assert told == []


def test_receipts_go_by_the_session_of_the_bill_that_depends_on_them(alone):
    receipts = Receipts([b"receipt"], [b"ticket"])
    alone.router.carry("rome", PeerSide.BUYER, receipts)  # it has no session with us as a buyer
    assert not [each for _, each in alone.said if isinstance(each, deals.Sealed)]
    alone.meet("rome")
    alone.router.carry("rome", PeerSide.BUYER, receipts)
    alone.router.carry("paris", PeerSide.SELLER, receipts)
    assert [to for to, each in alone.said if isinstance(each, deals.Sealed)] == ["rome", "paris"]
