"""A site on an old copy of its books learns it from its partners, and makes no new contracts."""

import pytest
import trio
import trio.testing
from support.pure.bookkeeper import BooksWorld, both, delivery

from federation.errors import ProtocolError
from federation.messages.contracts import Verdict
from federation.messages.reconciliation import AskReconcile, Sums
from gateway.ledger.accounting.older_books import OlderBooks
from gateway.trust.dealing_partners import BookPermits

WEEK_S = 7 * 86_400.0


@pytest.fixture
def world(tmp_path):
    made = BooksWorld(tmp_path)
    made.utc_s += 3600.0  # what was delivered in the morning has arrived
    yield made
    made.close()


def lose(world, books, *deliveries, verdict=Verdict.POST):
    """The other site has these, paid for; these books don't, as an old copy of them would not."""
    other = world.paris if books is world.london else world.london
    for each in deliveries:
        other.posted(each, verdict)


async def meet(world, *sites):
    """A new session opens, as these see it; all is said that follows."""
    for each in sites:
        each.reconciler.met(each.other)
    await world.work()
    await world.deliver()


def older(books):
    return books.reconciler._context.older


@pytest.mark.parametrize("side", ["buyer", "seller"])
async def test_the_first_session_tells_a_site_that_its_books_are_an_old_copy(world, side):
    restored = world.london if side == "buyer" else world.paris
    both(world, delivery(0))
    lose(world, restored, delivery(10), delivery(20))
    await meet(world, restored)
    why = older(restored).why_not(restored.other)
    assert "2 deliveries of 0.0000002 USD" in why
    assert ("purchases from it" if side == "buyer" else "sales to it") in why
    assert f"gridfed reconcile {restored.other} --accept" in why
    assert [each for each in restored.told if "newer books" in each]
    other = world.paris if restored is world.london else world.london
    assert not older(other).behind
    assert not [each for each in other.told if "newer books" in each]


async def test_books_that_agree_or_whose_rest_is_under_way_are_no_old_copy(world):
    both(world, delivery(0))
    world.paris.posted(delivery(10))  # the verdict is on its way
    world.london.posted(delivery(10))
    world.paris.posted(delivery(20))  # delivered, and lost on the way
    await meet(world, world.london, world.paris)
    assert not older(world.london).behind
    assert not older(world.paris).behind
    assert not [each for each in world.told() if "newer" in each or "pending with" in each]


async def test_what_is_delivered_and_paid_while_books_are_compared_is_no_sign(world):
    both(world, delivery(0))
    world.london.reconciler.met("paris")
    await world.work()  # london has looked at its books; this comes after that
    both(world, delivery(10))
    await world.deliver()
    assert not older(world.london).behind
    lose(world, world.paris, delivery(20))
    world.paris.reconciler.met("london")
    await world.work()
    await world.deliver(messages_max=2)
    world.paris.posted(delivery(20), Verdict.POST)
    await world.deliver()
    assert not older(world.paris).behind


async def test_it_is_looked_for_once_in_a_life_and_only_in_the_last_week(world):
    both(world, delivery(0))
    await meet(world, world.london, world.paris)
    lose(world, world.london, delivery(10))
    await meet(world, world.london)
    assert not older(world.london).behind
    world.utc_s += 2 * WEEK_S
    world.london.reconciler.age.compared.clear()
    await meet(world, world.london)
    assert not older(world.london).behind


async def test_an_operator_goes_on_and_is_not_asked_again(world):
    both(world, delivery(0))
    lose(world, world.london, delivery(10))
    await meet(world, world.london)
    assert older(world.london).behind
    await world.london.reconciler.in_turn(lambda: world.london.reconciler.accept("paris"))
    assert not older(world.london).behind
    world.utc_s += 3600.0
    world.london.reconciler.age.compared.clear()  # another life
    await meet(world, world.london)
    assert not older(world.london).behind
    assert world.london.clean()


async def test_a_seller_compares_when_its_operator_asks(world):
    both(world, delivery(0))
    lose(world, world.paris, delivery(10))
    found = []
    async with trio.open_nursery() as nursery:

        async def compare():
            found.append(await world.paris.reconciler.compare_sold("london", 0, 10**15))

        nursery.start_soon(compare)
        while not found:
            await trio.testing.wait_all_tasks_blocked()
            await world.deliver()
            await world.work()
    [(state, details)] = found
    assert state == "differs"
    assert "USD deliveries: 1 here, 2 there" in details


async def test_a_buyer_that_does_not_answer_is_not_waited_for_for_ever(world, autojump_clock):
    assert await world.paris.reconciler.compare_sold("london", 0, 10**15) == ("", "")


async def test_a_seller_can_not_have_a_buyer_compare_without_end(world):
    both(world, delivery(0))
    for first_ms in range(100):
        world.london.reconciler.hear("paris", AskReconcile(first_ms, 10**12), b"")
        await world.work()
    assert len(world.mail) == 20
    with pytest.raises(ProtocolError):
        world.london.reconciler.hear("paris", AskReconcile(10, 10), b"")


def test_nothing_new_is_bought_of_or_sold_to_a_site_with_newer_books():
    asked = []

    class Book:
        changes = 0

        def rules_of(self, site):
            return ()

        def decide(self, request):
            asked.append(request.site)
            return type("Yes", (), {"is_yes": True})

    registry = type("Registry", (), {"approved": {"paris", "rome"}, "book": Book()})
    books = OlderBooks()
    now_s = 0.0
    permits = BookPermits(registry, lambda: now_s, books)
    price = type("Price", (), {"price_nanos": 1, "currency": "USD"})
    assert permits.runners("risk") == {"paris", "rome"}
    assert books.judge("buy", "paris", {}, {"USD": Sums(deliveries=1)})
    assert not books.judge("buy", "paris", {}, {"USD": Sums(deliveries=2)})
    now_s = 10.0
    assert permits.runners("risk") == {"rome"}
    assert "newer books" in permits.may_send("paris", "paris", "fast", "risk", 1, price)
    assert permits.may_send("rome", "rome", "fast", "risk", 1, price) == ""
    books.forget("paris")
    now_s = 20.0
    assert permits.runners("risk") == {"paris", "rome"}
