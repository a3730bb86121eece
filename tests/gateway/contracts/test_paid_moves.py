"""Objects that move under a contract are paid by their receipts, once, at both sites alike."""

from dataclasses import replace

import pytest
from support.pure.moves import proof_of
from support.pure.town import DEAR, UTC_S, dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.adverts import OBJECTS_TAG
from federation.messages.transferring import Receipts
from gateway.contracts.model.moved import MOVE_EPOCH, RECEIVE, MovedObject, number_of
from gateway.contracts.model.purchase import PLEDGE_S
from gateway.ledger.db import records
from policies.costs.budgets import Budget
from policies.costs.moving import MovePrices
from policies.parties import read_party
from policies.placement.asks import Wishes

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))
BOOK, CURVE = (b"\x02" + each * 32 for each in (b"b", b"c"))
PRICES = MovePrices(10_000_000, 90_000_000, "USD")
GB = 10**9


@pytest.fixture
def town():
    """London has a contract with Paris, which charges for moves, and tasks out under it."""
    found = dear_and_cheap()
    for site in found.sites.values():
        site.exchange.moves.fetches = True
        site.exchange.moves.why_ours_stay = lambda: ""
        site.exchange.moves.prices = lambda: PRICES
        site.join(2, **{OBJECTS_TAG: True})
    found.now_s += 1.0
    found.show()
    found.deliver()
    found.sites["london"].submit(4, wishes=ABROAD, objects=[BOOK])
    found.deliver()
    return found


def fact(town, digest=BOOK, size=GB, *, is_result=False, **changes):
    [sale] = town.sites["paris"].exchange.sales.sales.values()
    sites = ("paris", "london") if is_result else ("london", "paris")
    at_ms = int((UTC_S + town.now_s) * 1000)
    user, scope = ("ann", "risk") if is_result else ("ann@london", "risk\u00a0@london")
    found = MovedObject("t", *sites, digest, scope, user, sale.contract, size, at_ms)
    return replace(found, **changes)


def move(town, moved):
    """The receiver has fetched it, and signs for it."""
    site = town.sites[moved.to]
    is_paid = site.exchange.moved(moved, proof_of(moved), UTC_S + town.now_s)
    site.do()
    return is_paid


def moves(site):
    """Its paid moves: usage of objects that moved, and deliveries of them."""
    used = [each for each in site.books if isinstance(each, records.UsageRecord)]
    side = "buy" if site.name == "london" else "sell"
    posted = {key: row for key, row in site.postings(side).items() if key[1] == MOVE_EPOCH}
    return [each for each in used if each.kind == "moved"], posted


def test_both_sites_book_the_same_delivery_from_one_receipt(town):
    london, paris = town.sites["london"], town.sites["paris"]
    assert move(town, fact(town))
    assert move(town, fact(town, CURVE, GB // 2, is_result=True))
    town.pass_time(1.0)
    for site, job in ((london, "j"), (paris, None)):
        used, posted = moves(site)
        assert sorted(each.cost_nanos for each in used) == [10_000_000, 45_000_000]
        assert sorted(row[1:] for row in posted.values()) == [
            [10_000_000, "post"],
            [45_000_000, "post"],
        ]
        assert {each.job for each in used} == {job or next(iter(used)).job}
        assert {each.moved_bytes for each in used} == {GB, GB // 2}
        assert {each.worker.split(":")[0] for each in used}
    bought, sold = moves(london)[0], moves(paris)[0]
    assert {each.site for each in bought} == {"paris"}
    assert {each.origin for each in sold} == {"london"}
    assert {each.started_at_s for each in bought} == {each.started_at_s for each in sold}
    job = london.broker.jobs["j"]
    assert job.costs_nanos["USD"] == 55_000_000
    assert job.prices_nanos.get("USD") != 10_000_000  # which is of a GB, and of no slot-hour


def test_an_object_is_paid_once_however_often_it_is_fetched(town):
    for at in range(3):
        assert move(town, fact(town, at_ms=int((UTC_S + town.now_s) * 1000) + at))
    town.pass_time(1.0)
    for site in town.sites.values():
        assert [each.cost_nanos for each in moves(site)[0]] == [10_000_000]
        assert len(moves(site)[1]) == 1


def test_one_object_in_both_directions_is_paid_twice(town):
    numbers = {number_of(at, BOOK, way) for at in ("c-1", "c-2") for way in ("receive", "send")}
    assert len(numbers) == 4  # a job may have several contracts, each of which pays the way
    move(town, fact(town))
    move(town, fact(town, is_result=True))
    town.pass_time(1.0)
    for site in town.sites.values():
        assert len(moves(site)[1]) == 2


def test_a_receipt_of_no_contract_of_this_site_is_nothing(town):
    london = town.sites["london"]
    for wrong in (fact(town, contract="london-1-99"), fact(town, to="rome", source="london")):
        assert not london.exchange.moved(wrong, proof_of(wrong), UTC_S + town.now_s)
    london.do()
    assert moves(london) == ([], {})


@pytest.mark.parametrize("ahead_s", [-7_200, 7_200])
def test_a_receipt_of_another_time_is_refused(town, ahead_s):
    london = town.sites["london"]
    wrong = fact(town, at_ms=int((UTC_S + town.now_s + ahead_s) * 1000))
    with pytest.raises(ProtocolError, match="before its contract, or in the future"):
        london.exchange.moved(wrong, proof_of(wrong), UTC_S + town.now_s)
    assert moves(london) == ([], {})


def test_nothing_is_booked_in_agreed_time(town):
    until_ms = int((UTC_S + town.now_s + 60) * 1000)
    moved = fact(town)
    for site, side, other in (("london", "buy", "paris"), ("paris", "sell", "london")):
        exchange = town.sites[site].exchange
        exchange.note_settled(side, other, until_ms)
        with pytest.raises(ProtocolError, match="books are closed"):
            exchange.moved(moved, proof_of(moved), UTC_S + town.now_s)


def test_a_seller_that_bills_what_its_buyer_never_signed_is_not_paid(town):
    """A result that did not reach London: Paris has no receipt, and makes one up."""
    paris = town.sites["paris"]
    made_up = fact(town, is_result=True)
    paris.exchange.moved(made_up, proof_of(made_up), UTC_S + town.now_s)
    paris.do()
    town.pass_time(1.0)
    assert [row[2] for row in moves(paris)[1].values()] == ["void"]
    assert moves(town.sites["london"]) == ([], {})


def test_free_moves_are_no_deliveries(town):
    paris = town.sites["paris"]
    [sale] = paris.exchange.sales.sales.values()
    sale.price = replace(sale.price, receive_nanos=0)
    assert not move(town, fact(town))
    assert not move(town, fact(town, CURVE, 5, is_result=True))  # less than half a nano-unit
    assert moves(paris) == ([], {})


def test_a_proof_that_was_lost_comes_again_with_the_bill(town):
    move(town, fact(town))
    town.pass_time(0.3, until=lambda: any(isinstance(each[-1], Receipts) for each in town.mail))
    town.mail.clear()  # the session is gone, with proof and bill
    london, paris = town.sites["london"], town.sites["paris"]
    assert moves(london) == ([], {})
    paris.exchange.buyer_came("london")
    paris.do()
    town.pass_time(1.0)
    assert [row[2] for row in moves(london)[1].values()] == ["post"]
    assert [row[2] for row in moves(paris)[1].values()] == ["post"]


def test_a_bill_has_the_proofs_of_its_own_moves_alone(town, monkeypatch):
    """All open ones went with each bill, and with each answer: they grew with their square."""
    monkeypatch.setattr("gateway.contracts.selling.sales.BILL_ROWS_MAX", 1)
    for at in range(4):
        move(town, fact(town, b"\x02" + bytes([at]) * 32, is_result=at >= 2))
    town.said.clear()
    town.pass_time(1.0)
    assert [each for each in town.said if isinstance(each[-1], deals.Bill)]
    assert [len(each[-1].receipts) for each in town.said if isinstance(each[-1], Receipts)] == [
        1,
        1,
    ]
    assert {row[2] for row in moves(town.sites["paris"])[1].values()} == {"post"}


def test_a_proof_of_its_buyer_that_was_lost_comes_again_in_a_new_session(town):
    move(town, fact(town, is_result=True))
    town.mail.clear()  # the session is gone, with the proof
    london, paris = town.sites["london"], town.sites["paris"]
    town.pass_time(1.0)
    assert moves(paris) == ([], {})
    london.exchange.reached("rome")
    london.do()
    assert not town.mail
    london.exchange.reached("paris")
    london.do()
    town.pass_time(1.0)
    for site in (london, paris):
        assert [row[2] for row in moves(site)[1].values()] == ["post"]


@pytest.mark.parametrize("is_result", [False, True])
@pytest.mark.parametrize("killed", ["london", "paris"])
def test_a_site_that_is_killed_before_the_other_has_booked_loses_nothing(town, killed, is_result):
    move(town, fact(town, is_result=is_result))
    town.mail.clear()
    town.sites[killed].recover(2)
    for site in town.sites.values():
        site.exchange.buyer_came("london" if site.name == "paris" else "paris")
        site.do()
    town.pass_time(5.0)
    for site in town.sites.values():
        used, posted = moves(site)
        if is_result and killed == "paris":
            # The receipt was lost with the seller, which has ended the contract: that is its loss.
            assert {row[2] for row in posted.values()} <= {"void"}
            continue
        assert [row[2] for row in posted.values()] == ["post"], site.name
        assert len({(each.job, each.first, each.attempt) for each in used}) == 1


def test_the_money_of_a_contract_pays_for_its_moves(town):
    [purchase] = town.sites["london"].exchange.purchases.purchases.values()
    [sale] = town.sites["paris"].exchange.sales.sales.values()
    purchase.max_cost_nanos = 25_000_000
    move(town, fact(town))
    town.pass_time(1.0)
    assert purchase.left_nanos == 15_000_000
    assert sale.spent_nanos == 10_000_000


def bought(town):
    [purchase] = town.sites["london"].exchange.purchases.purchases.values()
    return purchase


def work(town, contract):
    """Paris has the object, and its worker runs all tasks."""
    paris = town.sites["paris"]
    paris.exchange.sales.objects_came("london", contract, "")
    paris.do()
    town.deliver()
    paris.work(task_s=0.4)
    town.deliver()


def test_tasks_are_not_paid_with_the_money_that_moves_have_taken(town):
    """Paris might take the grant twice: for moves, and for tasks."""
    purchase = bought(town)
    move(town, fact(town))
    town.pass_time(0.5)
    assert purchase.moves_nanos == 10_000_000
    purchase.max_cost_nanos = 10_000_001
    work(town, purchase.contract)
    assert (purchase.spent_nanos, purchase.is_void) == (0, True)


def test_moves_are_not_paid_with_the_money_that_tasks_have_taken(town):
    purchase = bought(town)
    town.now_s += 2.0
    work(town, purchase.contract)
    assert purchase.spent_nanos > 0
    purchase.max_cost_nanos = purchase.spent_nanos + 9_999_999
    assert move(town, fact(town))
    town.pass_time(1.0)
    assert moves(town.sites["london"]) == ([], {})
    assert [row[2] for row in moves(town.sites["paris"])[1].values()] == ["void"]


def test_a_result_leaves_the_money_of_the_delivery_that_it_is_fetched_for(town):
    purchases, purchase = town.sites["london"].exchange.purchases, bought(town)
    purchase.max_cost_nanos = 100_000_000
    rest = [b"r"], [], [], 1, 1, 1, 20_000_000, 1, []
    waiting = deals.Deliver(purchase.contract, 1, 0, *rest, left=True)
    purchases.fetching("paris", waiting, on=True)
    what = "paris", purchase.contract, BOOK, GB, "send", UTC_S
    assert "0.08 USD is left" in purchases.pledge(*what)
    purchases.fetching("paris", waiting, on=False)
    assert purchases.pledge(*what) == ""


def test_a_seller_that_stops_at_a_limit_which_moves_have_reached_is_believed(town):
    london, purchase = town.sites["london"], bought(town)
    rest = [b""], [[0, "budget", "stopped", b""]], [], 10**9, 1, 1, 0, 1, []
    message = deals.Deliver(purchase.contract, 1, 0, *rest)
    deliveries, utc_s = london.exchange.purchases.deliveries, UTC_S + town.now_s
    purchase.max_cost_nanos = 10**12
    assert not deliveries._may_be_spent(purchase, message, utc_s)
    purchase.moves_nanos = 10**12
    assert deliveries._may_be_spent(purchase, message, utc_s)


def test_money_is_kept_before_an_object_moves_and_paid_by_what_arrived(town):
    purchases = town.sites["london"].exchange.purchases
    [purchase] = purchases.purchases.values()
    purchase.max_cost_nanos = 25_000_000

    def pledge(digest, size):
        return purchases.pledge("paris", purchase.contract, digest, size, RECEIVE, UTC_S)

    assert pledge(BOOK, 2 * GB) == ""
    assert pledge(BOOK, 2 * GB) == ""  # asked again: the money is there
    why = pledge(CURVE, GB)
    assert why == "its way costs 0.01 USD, and of the money of the contract 0.005 USD is left"
    move(town, fact(town, BOOK, GB))  # equal blocks moved once
    town.pass_time(0.5)
    assert purchase.pledges == {}
    assert pledge(CURVE, GB) == ""
    assert purchases.pledge("rome", purchase.contract, CURVE, GB, RECEIVE, UTC_S) == ""
    assert purchases.pledge("paris", "london-1-99", CURVE, GB, RECEIVE, UTC_S) == ""


@pytest.mark.parametrize("size", [0, 5], ids=["all blocks were there", "under half a nano-unit"])
@pytest.mark.parametrize("is_result", [False, True])
def test_money_is_free_again_once_an_object_has_come_for_nothing(town, size, is_result):
    purchase = bought(town)
    purchase.max_cost_nanos = 10**9
    assert purchase.pledge(BOOK, GB, "send" if is_result else RECEIVE, UTC_S) == ""
    assert purchase.pledged_nanos
    london, moved = town.sites["london"], fact(town, size=size, is_result=is_result)
    assert not london.exchange.moved(moved, proof_of(moved), UTC_S + town.now_s)
    assert purchase.pledged_nanos == 0


def test_money_is_free_again_when_a_transfer_is_given_up(town):
    purchases, purchase = town.sites["london"].exchange.purchases, bought(town)
    purchase.max_cost_nanos = 10_000_000
    assert purchase.pledge(BOOK, GB, RECEIVE, UTC_S) == ""
    assert "0 USD is left" in purchase.pledge(CURVE, GB, RECEIVE, UTC_S)
    purchases.give_up("rome", purchase.contract, BOOK, RECEIVE)
    assert purchase.pledged_nanos
    purchases.give_up("paris", purchase.contract, BOOK, RECEIVE)
    assert purchase.pledge(CURVE, GB, RECEIVE, UTC_S) == ""


def test_money_is_free_again_when_no_receipt_is_to_be_expected(town):
    """The seller has failed to fetch it, and says nothing."""
    purchase = bought(town)
    purchase.max_cost_nanos = 10_000_000
    assert purchase.pledge(BOOK, GB, RECEIVE, UTC_S) == ""
    assert "left" in purchase.pledge(CURVE, GB, RECEIVE, UTC_S + PLEDGE_S - 1)
    assert purchase.pledge(BOOK, GB, RECEIVE, UTC_S + PLEDGE_S - 1) == ""  # asked for again
    assert "left" in purchase.pledge(CURVE, GB, RECEIVE, UTC_S + PLEDGE_S)
    assert purchase.pledge(CURVE, GB, RECEIVE, UTC_S + 2 * PLEDGE_S) == ""


def test_pledges_that_a_kill_took_are_not_paid_twice(town):
    """Tickets from before are valid still, and their money is pledged once more."""
    london = town.sites["london"]
    london.books = [
        replace(each, max_cost_nanos=15_000_000)
        if isinstance(each, records.ContractOpened)
        else each
        for each in london.books
    ]
    purchase = bought(town)
    purchase.max_cost_nanos = 15_000_000
    assert purchase.pledge(BOOK, GB, RECEIVE, UTC_S) == ""
    before = fact(town, BOOK)
    later = fact(town, CURVE)
    town.mail.clear()
    london.recover(2)
    purchase = bought(town)
    assert (purchase.max_cost_nanos, purchase.pledges) == (15_000_000, {})
    assert purchase.pledge(CURVE, GB, RECEIVE, UTC_S) == ""
    for moved in (later, before):
        assert london.exchange.moved(moved, proof_of(moved), UTC_S + town.now_s)
    assert (purchase.moves_nanos, len(purchase.moves)) == (10_000_000, 1)


def test_a_contract_without_a_limit_keeps_nothing(town):
    [purchase] = town.sites["london"].exchange.purchases.purchases.values()
    assert purchase.max_cost_nanos is None
    assert purchase.pledge(BOOK, 10**15, RECEIVE, UTC_S) == ""
    assert purchase.pledges == {}


def test_budgets_hold_the_money_of_moves_and_count_it_once():
    town = dear_and_cheap()
    budget = Budget("b", read_party("ours"), "USD", 10**9)
    london = town.build("london", DEAR, 1, budgets=[budget])
    for site in town.sites.values():
        site.exchange.moves.prices = lambda: PRICES
        site.exchange.moves.fetches = True
        site.join(2, **{OBJECTS_TAG: True})
    town.show()
    london.submit(4, wishes=ABROAD)
    town.deliver()
    [purchase] = london.exchange.purchases.purchases.values()
    [account] = london.broker.budget_accounts.own.values()
    held_nanos, before = account.held_nanos, purchase.earmark.left_nanos
    assert held_nanos >= before > 0
    move(town, fact(town))
    town.pass_time(0.5)
    assert account.spent_nanos == 10_000_000
    assert purchase.earmark.left_nanos == before - 10_000_000
    assert account.held_nanos == held_nanos - 10_000_000
