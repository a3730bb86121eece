"""Nothing is sold under a name that something else was sold under before."""

from collections import Counter
from dataclasses import replace

import pytest
import trio
from support.desk import NOON_S, counter_of
from support.pure.town import UTC_S, dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.reserving import Reserve, Reserved
from federation.reasons import Reason
from gateway.base.store_lookup import recall_now
from gateway.config.site import PoolConfig, SiteConfig
from gateway.contracts.selling.names import Names
from gateway.ledger.db.contracts.records import ContractEnded, ContractOpened, Posted
from gateway.reservations.bookings import Bookings
from gateway.reservations.reserving import OPEN_MAX, Selling
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import SendToSite
from policies.access.claims import Amount
from policies.placement.asks import Wishes
from policies.reservations.reservations import ReservationRules
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

RULES = ReservationRules(Amount(part=10_000), unused_factor=500_000)
PRICE_NANOS = 10**9
POOLS = (PoolConfig("local", price="1 USD"),)
CONFIG = SiteConfig(name="paris", pools=POOLS, reservations=RULES)


class Permits:
    def may_send(self, *_):
        return ""


class Seller:
    """Paris, with all that it sells to London: contracts and reservations, and its books."""

    def __init__(self):
        self.town = dear_and_cheap()
        self.site = self.town.sites["paris"]
        self.town.sites["london"].submit(4, wishes=Wishes(allowed_sites=frozenset({"paris"})))
        self.question = next(
            each for _, _, _, _, each in self.town.mail if isinstance(each, deals.AskQuote)
        )
        self.town.mail.clear()
        self.disk = Disk()
        self.stored = 0
        self.said = []
        self.looked_up = []  # questions to the books that are not answered yet; None: at once
        self.begin()

    @property
    def utc_s(self):
        return UTC_S + self.town.now_s

    @property
    def sales(self):
        return self.site.exchange.sales

    def begin(self):
        self.store = MemoryStore(self.disk)
        self.waiting = None
        self.bookings = Bookings(
            CONFIG,
            self.site.broker,
            self.store,
            random_bytes=lambda count: b"\7" * count,
            recall=self.recall,
            perform=self.perform,
        )
        kept = self.store.reservations.latest(10_000)
        self.bookings.recover(kept)
        self.selling = Selling(
            "paris", self.bookings, Permits(), self.sales.names, lambda: self.utc_s
        )

    def recall(self, find, then):
        if self.waiting is None:
            recall_now(find, then)
        else:
            self.waiting.append((find, then))

    def perform(self, effects):
        for effect in effects:
            if isinstance(effect, SendToSite):
                self.said.append(effect.message)
            else:
                self.site._perform([effect])
        self.store_all()

    def store_all(self):
        news, self.stored = self.site.books[self.stored :], len(self.site.books)
        self.store.write(news, True, lambda: None)

    def restart(self):
        """Another life, from the books alone, as the gateway server begins it."""
        self.store_all()
        self.site.start(self.site.boot + 1)
        self.site.join(8)
        store = MemoryStore(self.disk)
        rows = store.contracts.open()
        self.site.exchange.recover(
            [(row, store.contracts.postings(row.side, row.contract)) for row in rows],
            store.contracts.newest("sell"),
            self.town.now_s,
            store.reservations.names("sell"),
        )
        self.begin()

    def pass_time(self, by_s):
        self.town.now_s += by_s
        self.sales.tick(self.town.now_s, self.utc_s)
        self.site.do()
        self.perform(self.bookings.tick(self.utc_s))
        self.town.mail.clear()

    def tell(self, *messages, buyer="london"):
        """The answers of Paris to a buyer's message."""
        before = len(self.town.said)
        self.said.clear()
        for each in messages:
            if isinstance(each, Reserve):
                self.perform(self.selling.hear(buyer, each, self.utc_s))
            else:
                self.sales.hear(buyer, each, self.town.now_s, self.utc_s)
        self.site.do()
        self.town.mail.clear()
        self.store_all()
        return [*(each for _, _, each in self.town.said[before:]), *self.said]

    def ask(self, contract, **changes):
        signer = self.town.sites["london"].signer
        given = self.site.signer.check("london", self.question.grant, UTC_S).grant_terms
        self.site.signer._shown.clear()
        grant_terms = replace(given, contract=contract, expires_s=self.utc_s + 600.0)
        return replace(self.question, contract=contract, grant=signer.issue(grant_terms), **changes)

    def reserve(self, name, step="hold", from_h=1):
        from_ms = round((self.utc_s + 3600 * from_h) * 1000)
        return Reserve(name, step, "", 1, from_ms, from_ms + 3_600_000, "ada", "risk")

    def sell(self, name):
        """A contract that runs; its first delivery is in the books."""
        [quote] = self.tell(self.ask(name))
        assert isinstance(quote, deals.Quote)
        price = quote.price_nanos, quote.currency, 8.0, quote.tariff
        commit = deals.Commit(name, quote.pool, *price, quote.minimum_nanos, quote.step_ns)
        answers = self.tell(deals.Hold(name), commit, deals.Forward(name, 1, 0, [b"x"]))
        assert [type(each) for each in answers[:2]] == [deals.Held, deals.Committed]
        self.site.work(task_s=60.0)
        self.store_all()

    def end(self, name):
        self.tell(deals.Settle(name, [[1, 0, 1]]), deals.CloseContract(name))
        self.pass_time(1.0)
        self.store_all()
        assert not self.sales.sales
        assert ContractEnded in [type(each) for each in self.site.books]

    def book(self, name):
        steps = [self.reserve(name, step) for step in ("hold", "book", "keep")]
        states = [each.state for each in self.tell(*steps)]
        assert states == ["held", "booking", "booked"]

    def bill(self, name):
        """Let its hour pass; nothing of it was used."""
        self.pass_time(3 * 3600.0)
        assert self.bookings.find(name).billed_nanos == PRICE_NANOS // 2

    def clean(self):
        """No two rows of the books have one key, so that each is booked."""
        rows = Counter(
            (each.contract, each.epoch, each.first)
            for each in self.site.books
            if isinstance(each, Posted)
        )
        opened = Counter(
            each.contract for each in self.site.books if isinstance(each, ContractOpened)
        )
        return not any(count > 1 for count in (*rows.values(), *opened.values()))


@pytest.fixture
def paris():
    return Seller()


def is_refused(answers):
    [answer] = answers
    assert isinstance(answer, Reserved)
    if answer.state == "refused":
        assert "is the name of a contract" in answer.reason
    return answer.state == "refused"


def is_declined(answers):
    [answer] = answers
    assert isinstance(answer, deals.Decline), answer
    assert answer.code == Reason.BAD_REQUEST
    assert "is used by a reservation of london" in answer.reason
    return True


# --- first a contract ----------------------------------------------------------------------------


def test_no_reservation_has_the_name_of_a_contract_that_is_quoted(paris):
    assert isinstance(paris.tell(paris.ask("london-1-5"))[0], deals.Quote)
    assert is_refused(paris.tell(paris.reserve("london-1-5")))
    assert not paris.bookings.open


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_no_reservation_has_the_name_of_a_contract(paris, ends, restarts):
    """It is under way, or has ended; in this life of the seller, or in a former one."""
    paris.sell("london-1-5")
    if ends:
        paris.end("london-1-5")
    if restarts:
        paris.restart()
    assert is_refused(paris.tell(paris.reserve("london-1-5")))
    assert not paris.bookings.open
    assert list(paris.store.reservations.names("sell")) == []
    assert paris.clean()


def test_no_reservation_has_the_name_of_a_contract_of_long_ago(paris):
    """Also of one before the last contracts, which are known without the books."""
    paris.sell("london-1-5")
    paris.end("london-1-5")
    for number in range(6, 9):
        paris.pass_time(2 * 3600.0)
        paris.sell(f"london-1-{number}")
        paris.end(f"london-1-{number}")
    paris.restart()
    assert is_refused(paris.tell(paris.reserve("london-1-5")))
    assert paris.clean()


def test_the_name_of_a_contract_that_never_came_about_is_free(paris):
    assert isinstance(paris.tell(paris.ask("london-1-5"))[0], deals.Quote)
    paris.pass_time(60.0)
    paris.book("london-1-5")
    [answer] = paris.tell(deals.Hold("london-1-5"))
    assert answer.code == Reason.JOB_NOT_FOUND
    paris.bill("london-1-5")
    assert paris.clean()


def test_a_reservation_that_is_heard_late_may_come_after_later_contracts(paris):
    """A lost message is sent again, under its old name."""
    paris.sell("london-1-9")
    paris.book("london-1-5")
    paris.bill("london-1-5")
    assert paris.clean()


# --- first a reservation -------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("bills", [False, True])
def test_no_contract_has_the_name_of_a_reservation(paris, bills, restarts):
    """It is booked, or was billed; in this life of the seller, or in a former one."""
    paris.book("london-1-5")
    if bills:
        paris.bill("london-1-5")
    if restarts:
        paris.restart()
    assert is_declined(paris.tell(paris.ask("london-1-5")))
    assert not paris.sales.sales
    paris.sell("london-1-6")  # what comes after it is sold
    assert paris.clean()


def test_no_contract_has_the_name_of_a_reservation_before_the_last(paris):
    paris.book("london-1-7")
    paris.tell(paris.reserve("london-1-5"))
    for restarts in (False, True):
        if restarts:
            paris.pass_time(2 * 3600.0)
            paris.tell(paris.reserve("london-1-4"))
            paris.restart()
        for name in ("london-1-6", "london-1-7"):
            paris.sales.names._contracts.clear()
            assert is_declined(paris.tell(paris.ask(name)))


def test_a_reservation_that_nobody_wanted_keeps_its_name(paris):
    paris.tell(paris.reserve("london-1-5"), paris.reserve("london-1-5", "release"))
    paris.restart()
    assert is_declined(paris.tell(paris.ask("london-1-5")))


def test_reservations_of_one_buyer_keep_no_other_from_buying(paris):
    paris.sales.names.reserve("oslo", "oslo-7-5")
    paris.sell("london-1-5")


def test_of_reservations_that_had_other_names_once_none_is_in_the_way(paris):
    names = Names()
    names.recover([("london", "london-1-3")], [("london", "the first"), ("london", "london-1-4")])
    assert names.is_reserved("london", "london-1-4")
    assert not names.is_reserved("london", "london-1-5")
    with pytest.raises(ProtocolError):
        names.begin("london", "london-1-3")


async def test_a_gateway_that_starts_reads_the_names_of_reservations(tmp_path):
    from_ms = round((NOON_S + 3600) * 1000)
    hold = Reserve("oslo-1-5", "hold", "", 1, from_ms, from_ms + 3_600_000, "", "")
    pools = (PoolConfig("workers"),)
    async with counter_of(tmp_path, reservations=RULES, pools=pools) as counter:
        counter.tell(events.WorkerJoined(100, "w", "workers", 8, {}, "3.11"))
        server = counter.site.server
        server.selling._permits = Permits()
        server.hear_reserve("oslo", hold)
        with trio.fail_after(30):
            while not server.bookings.open:
                await counter.site.wait_for_progress(0.1)
        await counter.site.harden()
    async with counter_of(tmp_path, reservations=RULES, pools=pools) as counter:
        names = counter.site.server.exchange.sales.names
        assert names.is_reserved("oslo", "oslo-1-5")
        assert not names.is_reserved("oslo", "oslo-1-6")


# --- the same twice ------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("changes", [{}, {"tasks": 9, "name": "other", "project": "dreams"}])
def test_no_contract_has_the_name_of_another(paris, ends, restarts, changes):
    paris.sell("london-1-5")
    if ends:
        paris.end("london-1-5")
    if restarts:
        paris.restart()
    sold = dict(paris.sales.sales)
    with pytest.raises(ProtocolError, match="the name was used before"):
        paris.tell(paris.ask("london-1-5", **changes))
    assert paris.sales.sales == sold
    assert paris.clean()


def test_nobody_has_the_name_that_another_gave(paris):
    paris.sell("london-1-5")
    paris.book("london-1-6")
    for name in ("london-1-5", "london-1-6"):
        with pytest.raises(ProtocolError, match="does not begin with its buyer, oslo"):
            paris.tell(paris.ask(name), buyer="oslo")
        with pytest.raises(ProtocolError, match="does not begin with its buyer, oslo"):
            paris.tell(paris.reserve(name), buyer="oslo")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_reservation_that_is_over_is_never_made_again(paris, is_known):
    paris.book("london-1-5")
    paris.bill("london-1-5")
    paris.restart()
    if not is_known:
        paris.bookings.over.clear()  # as when there were very many since
    [answer] = paris.tell(paris.reserve("london-1-5", from_h=9))
    assert (answer.state, answer.billed_nanos) == ("ended", PRICE_NANOS // 2)
    assert not paris.bookings.open
    paris.pass_time(20 * 3600.0)
    assert paris.clean()


# --- while the books are asked -------------------------------------------------------------------


def looking_up(paris, *messages):
    """The immediate answer; the books take their time."""
    paris.waiting = []
    return paris.tell(*messages)


def found(paris, answer=None):
    """The answer when the books have answered, or can't be read."""
    waiting, paris.waiting = paris.waiting, None
    paris.said.clear()
    for find, then in waiting:
        then(answer or find())
    return [each.state for each in paris.said]


def test_a_contract_does_not_overtake_a_reservation_that_is_looked_up(paris):
    assert looking_up(paris, paris.reserve("london-1-5")) == []
    assert is_declined(paris.tell(paris.ask("london-1-5")))
    assert found(paris) == ["held"]


def test_each_of_those_who_ask_again_meanwhile_has_an_answer(paris):
    hold = paris.reserve("london-1-5")
    assert looking_up(paris, hold, hold, hold) == []
    assert len(paris.waiting) == 1
    assert found(paris) == ["held"] * 3
    assert [each.id for each in paris.bookings.open.values()] == ["london-1-5"]


def test_what_is_given_back_before_it_is_held_is_not_held(paris):
    steps = [paris.reserve("london-1-5", step) for step in ("hold", "release")]
    assert [each.state for each in looking_up(paris, *steps)] == ["expired"]
    assert found(paris) == ["expired"]
    assert not paris.bookings.open


def test_nothing_is_held_when_the_books_can_not_be_read(paris):
    looking_up(paris, paris.reserve("london-1-5"))
    assert found(paris, "the disk is full") == ["refused"]
    assert "can't be read: the disk is full" in paris.said[0].reason
    assert not paris.bookings.open
    assert [each.state for each in paris.tell(paris.reserve("london-1-5"))] == ["held"]


def test_what_is_looked_up_counts_as_open(paris):
    holds = [paris.reserve(f"london-1-{number}") for number in range(1, OPEN_MAX + 2)]
    [answer] = looking_up(paris, *holds)
    assert (answer.reservation, answer.state) == (holds[-1].reservation, "refused")
    assert len(paris.waiting) == OPEN_MAX
    states = Counter(found(paris))
    assert states["held"] == len(paris.bookings.open) > 0
    assert states.total() == OPEN_MAX
