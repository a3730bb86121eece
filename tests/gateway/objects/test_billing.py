"""The bytes that users hold, as records (gateway.objects.billing, gateway.objects.holdings)."""

from dataclasses import replace
from itertools import pairwise

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.clocks import UtcS
from federation.messages.objects import NoteHolder
from federation.objects.manifests import SHA256
from gateway.base.scopes import ObjectScope
from gateway.config.limits import ObjectRoom
from gateway.ledger.db.errors import StoreError
from gateway.objects import holdings
from gateway.objects.billing import CLOSED_AT_ONCE, HoldingBooks, HoldTerms, number_of
from gateway.objects.bulk.office import MovedObject, moved_record
from gateway.objects.catalogue import HoldingChange, ObjectCatalogue, ObjectKey
from gateway.objects.holdings import Holdings
from policies.costs.holding import HoldPrice, byte_seconds

TERMS = HoldTerms(HoldPrice(30_000_000, "USD"), lambda user: f"group of {user}")
HOUR = UtcS(1_764_342_000.0)  # 2025-11-28T15
SIZE = 10**8


def key(number=1, scope="risk"):
    return ObjectKey(scope, bytes([SHA256]) + bytes([number]) * 32)


def begins(user="ann", number=1, size=SIZE):
    return HoldingChange(key(number), user, size, is_held=True)


def ends(user="ann", number=1, size=SIZE):
    return HoldingChange(key(number), user, size, is_held=False)


def test_a_holding_has_a_record_for_each_hour():
    books = HoldingBooks(TERMS)
    assert books.change(begins(), HOUR - 60) == []
    found = books.change(ends(), HOUR + 3600 + 1)
    assert [each.job for each in found] == [f"held/2025-11-28T{hour}" for hour in (14, 15, 16)]
    assert [each.held_byte_s for each in found] == [SIZE * s for s in (60, 3600, 1)]
    assert [each.hour for each in found] == [HOUR // 3600 - 1, HOUR // 3600, HOUR // 3600 + 1]
    assert [each.cost_nanos for each in found] == [68, 4110, 1]
    one = found[0]
    assert (one.kind, one.user, one.project, one.group) == ("held", "ann", "risk", "group of ann")
    assert (one.pool, one.currency, one.price_nanos) == ("objects", "USD", 30_000_000)
    assert (one.tasks, one.wall_ns, one.worker) == (0, 0, "s2:" + "01" * 32)


def test_the_end_of_an_hour_is_booked_once_and_a_part_at_a_time():
    books = HoldingBooks(TERMS)
    number = CLOSED_AT_ONCE + 5
    for each in range(number):
        books.change(begins(f"user {each}"), HOUR + 1)
    assert books.close(HOUR + 3599) == []
    first, rest = books.close(HOUR + 3600), books.close(HOUR + 3601)
    assert (len(first), len(rest)) == (CLOSED_AT_ONCE, 5)
    assert {each.held_byte_s for each in (*first, *rest)} == {SIZE * 3599}
    assert books.close(HOUR + 3602) == []
    [last] = books.change(ends("user 3"), HOUR + 3602)
    assert last.held_byte_s == SIZE * 2


def test_a_new_price_is_taken_a_part_at_a_time_and_splits_what_ends_before_its_turn():
    books = HoldingBooks(TERMS)
    for each in range(CLOSED_AT_ONCE + 5):
        books.change(begins(f"user {each}"), HOUR)
    books.take_terms(HoldTerms(HoldPrice(0, "EUR")), UtcS(HOUR + 60))
    late = f"user {CLOSED_AT_ONCE + 4}"
    books.take_terms(HoldTerms(HoldPrice(10**9, "USD")), UtcS(HOUR + 90))
    assert len(books.close(UtcS(HOUR + 90))) == CLOSED_AT_ONCE
    shown = books.so_far(key(), [late], UtcS(HOUR + 100))
    found = books.change(ends(late), UtcS(HOUR + 100))
    assert [(each.held_byte_s, each.currency) for each in found] == [
        (SIZE * 60, "USD"),
        (SIZE * 30, "EUR"),
        (SIZE * 10, "USD"),
    ]
    assert [each.price_nanos for each in found] == [TERMS.price.nanos, 0, 10**9]
    assert shown.cost_nanos == sum(each.cost_nanos for each in found)
    rest = [*books.close(UtcS(HOUR + 101)), *books.close(UtcS(HOUR + 102))]
    assert len(rest) == 4 + CLOSED_AT_ONCE + 4
    last = books.stop(UtcS(HOUR + 110))
    assert {(each.held_byte_s, each.price_nanos) for each in last} == {(SIZE * 20, 10**9)}


def test_each_user_pays_for_an_object_in_full():
    books = HoldingBooks(TERMS)
    books.change(begins("ann"), HOUR)
    books.change(begins("bob"), HOUR + 10)
    [of_ann] = books.change(ends("ann"), HOUR + 20)
    [of_bob] = books.change(ends("bob"), HOUR + 20)
    assert (of_ann.held_byte_s, of_bob.held_byte_s) == (SIZE * 20, SIZE * 10)
    assert (of_ann.job, of_ann.first) != (of_bob.job, of_bob.first)


def test_what_was_held_so_far_is_what_is_booked_and_what_is_not():
    books = HoldingBooks(TERMS)
    books.change(begins(), HOUR)
    booked = books.close(HOUR + 3600)
    so_far = books.so_far(key(), ["ann", "eve"], HOUR + 5400)
    assert so_far.byte_s == SIZE * 5400
    rest = books.stop(HOUR + 5400)
    assert so_far.cost_nanos == sum(each.cost_nanos for each in (*booked, *rest))
    assert books.so_far(key(2), ["ann"], HOUR).byte_s == 0


def test_objects_are_free_and_counted_all_the_same():
    books = HoldingBooks(HoldTerms(HoldPrice(0, "EUR")))
    books.change(begins(), HOUR)
    [found] = books.change(ends(), HOUR + 1)
    assert (found.cost_nanos, found.currency, found.held_byte_s) == (0, "EUR", SIZE)


@settings(max_examples=200)
@given(
    st.lists(st.floats(0, 3 * 3600), min_size=1, max_size=6).map(sorted),
    st.floats(0, 3600),
    st.data(),
)
def test_a_gateway_that_is_lost_at_any_point_counts_nothing_twice_and_loses_no_tail(
    crashes, begun_s, data
):
    """It is killed and started again and again, and each time some of its writes are lost."""
    begun_at_s = UtcS(HOUR + begun_s)
    books, kept = HoldingBooks(TERMS), {}

    def write(records):
        for each in records:
            kept.setdefault((each.job, each.first, each.attempt), each)

    books.change(begins(), begun_at_s)
    now_s = begun_at_s
    for after_s in crashes:
        until_s = UtcS(max(now_s, begun_at_s + after_s))
        while now_s < until_s:
            write(books.close(now_s))
            now_s = UtcS(min(now_s + 1800, until_s))
        made = books.close(now_s)
        if data.draw(st.booleans()):
            made += books.stop(now_s)  # it ends in order
        # The writes that a crash loses are the latest ones.
        write(made[: data.draw(st.integers(0, len(made)))])
        now_s = UtcS(now_s + data.draw(st.floats(0, 60)))
        books = HoldingBooks(TERMS)
        booked = {each.first: each.ended_at_s for each in kept.values()}
        books.resume(begins(), begun_at_s, booked, now_s)
    end_s = UtcS(now_s + 100)
    whole = books.so_far(key(), ["ann"], end_s)
    write(books.change(ends(), end_s))
    found = sorted(kept.values(), key=lambda each: each.started_at_s)
    assert found[0].started_at_s == begun_at_s
    for one, other in pairwise(found):
        assert one.ended_at_s <= other.started_at_s  # nothing twice
        assert other.started_at_s - one.ended_at_s < 1e-5  # and no gap
    byte_s = byte_seconds(SIZE, begun_at_s, end_s)
    assert abs(sum(each.held_byte_s for each in found) - byte_s) <= SIZE * 1e-5 * len(found)
    assert abs(whole.byte_s - byte_s) <= SIZE * 1e-5 * len(found)


def test_what_is_held_for_another_sites_calls_is_theirs_and_costs_nothing():
    books = HoldingBooks(TERMS)
    theirs = ObjectScope("risk", "paris")
    foreign, own = key(scope=str(theirs)), key()
    for each in (foreign, own):
        books.change(HoldingChange(each, "ann@paris", SIZE, is_held=True), HOUR)
    so_far = books.so_far(foreign, ["ann@paris"], UtcS(HOUR + 60))
    assert (so_far.byte_s, so_far.cost_nanos) == (SIZE * 60, 0)
    found, ours = books.stop(UtcS(HOUR + 60))
    assert (found.job, found.project, found.origin) == ("paris:held/2025-11-28T15", "risk", "paris")
    assert (found.user, found.held_byte_s, found.cost_nanos) == ("ann@paris", SIZE * 60, 0)
    assert (found.price_nanos, found.currency) == (0, "USD")
    assert (ours.job, ours.project, ours.origin) == ("held/2025-11-28T15", "risk", "")
    assert ours.cost_nanos > 0
    assert ours.first != found.first
    # Bytes that have moved for the same calls are booked in the same way.
    fact = MovedObject("a" * 32, "paris", "london", b"\2" * 33, str(theirs), "ann@paris", "c", 9, 0)
    moved = moved_record(fact, HOUR, "USD", "")
    assert (moved.job, moved.project) == ("paris:moved/2025-11-28T15", "risk")


def test_numbers_fit_the_books_and_differ():
    numbers = {number_of(key(n), "ann", HOUR + n) for n in range(200)}
    assert len(numbers) == 200
    assert all(0 <= each < 2**63 for each in numbers)


# --- with a catalogue, and an object host of the last run ----------------------------------------


class Books:
    def __init__(self):
        self.records = []
        self.price = TERMS.price
        self.known = {}
        self.asked = trio.Event()
        self.go_on = trio.Event()

    def terms(self):
        return replace(TERMS, price=self.price)

    def book(self, records):
        self.records += records

    async def booked(self, start_at_s):
        self.start_at_s = start_at_s
        self.asked.set()
        await self.go_on.wait()
        if self.known is None:
            raise StoreError("no disk")
        return self.known

    def objection(self, user, scope):
        return ""


class World:
    def __init__(self, books=None):
        self.now_s = HOUR
        self.books = books or Books()
        self.orders, self.lines = [], []
        self.catalogue = ObjectCatalogue(ObjectRoom(1 << 40))
        self.holdings = Holdings(
            *(self.catalogue, self.books, lambda: self.now_s),
            *(self.lines.append, self.orders.append),
        )

    def put(self, user, session, number=1):
        assert not self.catalogue.put(key(number), SIZE, user, session, self.now_s)
        self.holdings.account(self.now_s)


@pytest.fixture
def world():
    world = World()
    world.holdings.host_ready(notes_holders=True)
    return world


def test_the_object_host_is_told_of_all_holders_but_the_first(world):
    world.put("ann", 1)
    assert world.orders == []
    world.now_s += 5
    world.put("bob", 2)
    assert world.orders == [NoteHolder("risk", key().digest, "bob", HOUR + 5)]
    world.put("bob", 3)  # another session of the same user
    world.now_s += 5
    world.catalogue.session_ended(1)
    world.holdings.account()
    assert world.orders[1:] == [NoteHolder("risk", key().digest, "ann", None)]
    [found] = world.books.records
    assert (found.user, found.held_byte_s) == ("ann", SIZE * 10)
    world.catalogue.session_ended(2)
    world.catalogue.session_ended(3)
    world.holdings.account()  # the object is dropped: the host hears of that
    assert len(world.orders) == 2
    assert world.books.records[-1].held_byte_s == SIZE * 5


def test_a_new_price_holds_from_now_on_and_not_for_the_time_before(world):
    world.put("ann", 1)
    world.now_s += 1800
    world.books.price = HoldPrice(0, "USD")
    world.holdings.close()
    [before] = world.books.records  # at once, so that a crash leaves none of it to the new price
    charge = TERMS.price.charge_nanos(SIZE * 1800)
    assert (before.held_byte_s, before.cost_nanos) == (SIZE * 1800, charge)
    assert (before.price_nanos, before.ended_at_s) == (TERMS.price.nanos, HOUR + 1800)
    world.now_s += 1800
    world.holdings.close()
    after = world.books.records[-1]
    assert (after.held_byte_s, after.cost_nanos, after.price_nanos) == (SIZE * 1800, 0, 0)
    assert (after.job, before.job) == (before.job, after.job)
    assert after.first != before.first
    assert len(world.books.records) == 2


async def test_a_lost_object_host_ends_all_holdings(world):
    world.put("ann", 1)
    world.now_s += 10
    world.catalogue.clear(world.now_s)
    world.holdings.host_ended()
    assert [each.held_byte_s for each in world.books.records] == [SIZE * 10]
    world.holdings.stop()
    assert len(world.books.records) == 1


async def taken_over(world, *, begun, notes=True):
    """Take over the object host of the last run with one object of ann, and read the books."""
    world.catalogue.adopt(key(), SIZE, "ann", HOUR - 7300, HOUR + 20)
    for user, since_s in begun.items():
        world.holdings.told(key(), user, since_s)
    world.holdings.host_ready(notes_holders=notes)
    ready = trio.Event()
    ready.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.holdings.resume, ready)
        await world.books.asked.wait()
        yield
        world.books.go_on.set()


async def test_a_gateway_goes_on_from_what_is_in_the_books():
    world = World()
    begun = {"ann": HOUR - 7300, "bob": HOUR - 30}
    world.books.known = {number_of(key(), "ann", UtcS(HOUR - 7200)): UtcS(HOUR - 3601)}
    async for _ in taken_over(world, begun=begun):
        assert set(world.catalogue.find("risk", key().digest).holders) == {"ann", "bob"}
        assert world.catalogue.take(key(), 1, "ann")  # she is back at once
        world.now_s += 20
        world.catalogue.sweep(set(), world.now_s)  # bob is not
        world.holdings.account()
        assert world.books.records == []
    assert world.books.start_at_s == HOUR - 7200
    [of_bob] = [each for each in world.books.records if each.user == "bob"][-1:]
    assert of_bob.held_byte_s == SIZE * 20
    assert sum(e.held_byte_s for e in world.books.records if e.user == "bob") == SIZE * 50
    world.holdings.stop()
    of_ann = [each for each in world.books.records if each.user == "ann"]
    assert of_ann[0].started_at_s == HOUR - 3601
    assert sum(each.held_byte_s for each in of_ann) == SIZE * 3621


async def test_many_holdings_of_the_last_run_are_taken_a_part_at_a_turn(monkeypatch):
    monkeypatch.setattr(holdings, "RESUMED_AT_ONCE", 3)
    world = World()
    for number in range(2, 22):
        world.catalogue.adopt(key(number), SIZE, "ann", HOUR, HOUR)
        world.holdings.told(key(number), "ann", UtcS(HOUR - 90 * 86_400))
    turn, turns = 0, []
    real = HoldingBooks.resume

    def resume(books, *args):
        turns.append(turn)
        real(books, *args)

    monkeypatch.setattr(HoldingBooks, "resume", resume)
    async for _ in taken_over(world, begun={"ann": HOUR - 90 * 86_400}):
        world.books.go_on.set()
        while len(turns) < 5:
            turn += 1
            await trio.lowlevel.checkpoint()
        world.catalogue.clear(world.now_s)  # in the middle of it
        world.holdings.account()
        while len(turns) < 21:
            turn += 1
            await trio.lowlevel.checkpoint()
    # Two parts may fall between two looks, as trio draws the order of tasks in each turn.
    assert max(turns.count(each) for each in turns) <= 6
    world.now_s += 100
    world.holdings.stop()
    # All that was held has ended when it was dropped, and nothing counts after that.
    ended = {}
    for each in world.books.records:
        ended[each.worker] = max(ended.get(each.worker, 0.0), each.ended_at_s)
    assert len(ended) == 21
    assert set(ended.values()) == {HOUR - 2**-22}


async def test_one_who_had_let_go_pays_no_more_after_a_restart():
    world = World()
    async for _ in taken_over(world, begun={"bob": HOUR - 30}):
        assert set(world.catalogue.find("risk", key().digest).holders) == {"bob"}
    world.holdings.stop()
    assert {each.user for each in world.books.records} == {"bob"}


async def test_an_object_host_of_before_knows_no_begins_and_nothing_is_made_up():
    world = World()
    async for _ in taken_over(world, begun={}, notes=False):
        pass
    world.now_s += 3
    world.holdings.stop()
    assert [each.held_byte_s for each in world.books.records] == [SIZE * 3]
    assert world.orders == []


async def test_books_that_cannot_be_read_are_told_of():
    world = World()
    world.books.known = None
    async for _ in taken_over(world, begun={"ann": HOUR - 10}):
        pass
    assert world.lines == ["the books of held objects can't be read: no disk"]
    world.holdings.stop()
    assert sum(each.held_byte_s for each in world.books.records) == SIZE * 10
