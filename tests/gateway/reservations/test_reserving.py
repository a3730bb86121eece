"""Slots reserved between sites: questions, answers, bookings; and forbidden messages."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import ProtocolError
from federation.messages.reserving import Reserve, Reserved
from gateway.base.store_lookup import recall_now
from gateway.config.site import PoolConfig, SiteConfig
from gateway.contracts.selling.names import Names
from gateway.ledger.db.contracts.records import (
    ContractEnded,
    ContractOpened,
    Posted,
    PostingSettled,
)
from gateway.ledger.db.reservations.records import ReservationKept
from gateway.ledger.db.usage.records import UsageRecord
from gateway.reservations.bookings import OVER_MAX, Bookings
from gateway.reservations.reserving import OPEN_MAX, Buying, Selling
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.budget_accounts import BudgetAccounts
from gateway.scheduler.model.effects import Remark, SendToSite, Write
from policies.access.claims import Amount
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.costs.budgets import Budget
from policies.parties import Owner, read_party
from policies.placement.autoscaling import PoolGrowth
from policies.reservations.coallocation import FORGET_S, KEEP_S, BookingPhase
from policies.reservations.reservations import (
    ONES_MAX,
    CantReserve,
    Reservation,
    ReservationRules,
    ReservationState,
)
from policies.tariffs import Tariff
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore

NOON = 43_200.0
RULES = ReservationRules(Amount(part=10_000), unused_factor=500_000)
ADA = Owner("ada", "", "risk")


class Permits:
    """Lets a site have so many slots."""

    def __init__(self, most=100):
        self.most = most

    def may_send(self, _site, _origin, _pool, _project, slots, _price):
        return "over-slots" if slots > self.most else ""


class Site:
    """A gateway's reservations, its store, and its messages to others."""

    def __init__(self, name, slots, rules=RULES, most=100):
        self.name, self.slots = name, slots
        self.config = SiteConfig(
            name=name, pools=(PoolConfig("fast", price="1 USD"),), reservations=rules
        )
        self.permits = Permits(most)
        self.budgets, self.credit = (), {}
        self.rows, self.records, self.remarks = {}, [], []
        self.out = []
        self.lives = 0
        self.disk = Disk()
        self.sold = set()  # contracts that there are, by buyer and name
        self.now = lambda: NOON
        self.start(NOON)

    def start(self, now_s):
        """Begin a life, from the state on disk."""
        self.lives += 1
        self.numbers = 0
        broker = Broker(
            {"fast": Tariff(10**9, "USD", "1")},
            budget_accounts=BudgetAccounts(self.budgets, self.credit),
        )
        broker.handle(events.WorkerJoined(1, "w", "fast", self.slots, {}, "3.11"), now_s)
        self.broker = broker
        self.store = MemoryStore(self.disk)
        self.names = Names(self.sold)
        self.names.recover(
            self.store.contracts.newest("sell"), self.store.reservations.names("sell")
        )
        self.bookings = Bookings(
            self.config,
            broker,
            self.store,
            random_bytes=lambda count: bytes([self.lives % 256]) * count,
            recall=lambda find, then: self.recall(find, then),
            perform=self.do,
        )
        self.recall = recall_now
        self.selling = Selling(
            self.name, self.bookings, self.permits, self.names, lambda: self.now()
        )
        self.buying = Buying(self.name, self.bookings, self.selling, self.new_name)
        rows = list(self.rows.values())
        self.bookings.recover(rows)
        is_open = [
            each for each in rows if each.state in ("held", "booking", "booked", "releasing")
        ]
        self.do(self.buying.recover(is_open, now_s))

    def new_name(self):
        self.numbers += 1
        return f"{self.name}-{self.lives}-{self.numbers}"

    def do(self, effects):
        for effect in effects:
            if isinstance(effect, Write):
                self.store.write([effect.record], effect.durable, lambda: None)
            match effect:
                case Write(ReservationKept() as row):
                    key = row.side, row.reservation
                    if key not in self.rows or self.rows[key].step < row.step:
                        self.rows[key] = row
                case Write(record):
                    self.records.append(record)
                case SendToSite(site, _, message):
                    self.out.append((site, message))
                case Remark(text):
                    self.remarks.append(text)


class World:
    """Some sites, and the messages between them."""

    def __init__(self, *sites):
        self.sites = {each.name: each for each in sites}
        self.now_s = NOON
        for each in sites:
            each.now = lambda: self.now_s
        self.wire = []
        self.begun = 0  # bookings: names are chance in truth, and none comes twice

    def collect(self):
        for name, site in self.sites.items():
            self.wire += [(name, to, message) for to, message in site.out]
            site.out.clear()

    def deliver(self, at=0):
        sender, to, message = self.wire.pop(at % len(self.wire))
        site = self.sites[to]
        if isinstance(message, Reserve):
            site.do(site.selling.hear(sender, message, self.now_s))
        else:
            site.do(site.buying.hear(sender, message, self.now_s, self.now_s))
        self.collect()

    def run(self):
        self.collect()
        while self.wire:
            self.deliver()

    def tick(self, by_s=2.0):
        self.now_s += by_s
        for site in self.sites.values():
            site.do(site.bookings.tick(self.now_s))
            site.do(site.buying.tick(self.now_s, self.now_s))
        self.collect()

    def begin(self, sites, slots=4, at="london", from_h=1, **changes):
        from_s = self.now_s + from_h * 3600.0
        self.begun += 1
        wanted = Reservation(
            f"whole-{self.begun}", "", read_party("user:ada"),
            slots, from_s, from_s + 3600.0, 0, "", ADA, self.now_s, **changes,
        )  # fmt: skip
        whole, effects = self.sites[at].buying.begin(sites, wanted, self.now_s, self.now_s)
        self.sites[at].do(effects)
        self.collect()
        return whole

    def states(self, site):
        found = self.sites[site].rows
        return sorted((side, row.state) for (side, _), row in found.items())

    def taken(self, site):
        bookings = self.sites[site].bookings
        return sum(each.slots for each in bookings.open.values() if each.takes_slots(self.now_s))


@pytest.fixture
def world():
    return World(Site("london", 4), Site("paris", 8), Site("rome", 8))


def test_all_sites_book_and_both_sides_have_it_on_disk(world):
    whole = world.begin(["paris", "london", "rome"])
    world.run()
    assert whole.machine.phase is BookingPhase.BOOKED
    assert world.states("london") == [("buy", "booked"), ("buy", "booked"), ("sell", "booked")]
    assert world.states("paris") == world.states("rome") == [("sell", "booked")]
    [part] = world.sites["paris"].bookings.open.values()
    assert (str(part.who), part.by) == (
        "user:ada@london",
        Owner("ada@london", "", "risk", "london"),
    )


def test_who_refuses_says_why_and_nothing_is_left(world):
    whole = world.begin(["london", "paris"], slots=5)
    world.run()
    assert whole.machine.phase is BookingPhase.RELEASED
    assert whole.machine.reason == ("london: pool fast: 5 slots exceed the pool's total of 4")
    assert world.states("paris") == []
    whole = world.begin(["paris", "rome"], slots=9)
    world.run()
    assert whole.machine.reason == "paris: pool fast: 9 slots exceed the pool's total of 8"
    world.tick()
    assert world.sites["london"].buying.wholes == {}


def test_rules_of_a_site_bound_what_another_has_in_all(world):
    world.sites["paris"].permits.most = 6
    world.begin(["paris"])
    world.run()
    whole = world.begin(["paris"])
    world.run()
    assert whole.machine.reason == "paris: the rules of paris do not permit london 8 slots of fast"
    other = world.begin(["paris"], from_h=5)
    world.run()
    assert other.machine.phase is BookingPhase.BOOKED


def test_what_was_not_used_is_booked_by_both_and_paid(world):
    world.begin(["paris"])
    world.run()
    world.now_s += 7200.0
    world.tick()
    world.run()
    world.tick(40.0)
    world.run()
    [part] = world.sites["london"].rows.values()
    assert (part.state, part.billed_nanos) == ("ended", 2 * 10**9)  # 4 slot-hours, at half
    for name, side in (("london", "buy"), ("paris", "sell")):
        records = world.sites[name].records
        kinds = {type(each) for each in records}
        wanted = {UsageRecord, ContractOpened, Posted, PostingSettled, ContractEnded}
        assert kinds == wanted
        [delivery] = {each.delivery for each in records if isinstance(each, Posted)}
        assert delivery.cost_nanos == 2 * 10**9
        assert {each.side for each in records if isinstance(each, Posted)} == {side}
        assert {each.state for each in records if isinstance(each, PostingSettled)} == {"post"}
    world.tick()
    assert world.sites["london"].buying.wholes == {}


def test_a_bill_that_was_not_ready_at_the_end_is_asked_for_again_a_moment_later(world):
    """Its seller makes it once the last task has ended, which may be seconds after the end."""
    world.begin(["paris"])
    world.run()
    world.now_s += 7200.0
    for by_s in (0.0, 1.0, 2.0):  # when it is over, and 1 s and 3 s after that
        paris = world.sites["paris"]
        held, paris.bookings._look_at_end = paris.bookings._look_at_end, lambda *_: None
        world.tick(by_s)
        world.run()
        paris.bookings._look_at_end = held
        assert [row.state for row in world.sites["london"].rows.values()] == ["booked"]
    world.tick(4.0)
    world.run()
    assert [row.state for row in world.sites["london"].rows.values()] == ["ended"]


def test_what_its_user_gives_back_is_billed_by_each_sites_rule(world):
    whole = world.begin(["paris", "london"])
    world.run()
    london = world.sites["london"]
    london.do(london.buying.cancel(whole, world.now_s, world.now_s))
    world.run()
    for _ in range(20):
        world.tick()
        world.run()
    assert world.states("london") == [("buy", "cancelled"), ("sell", "cancelled")]
    [row] = world.sites["paris"].rows.values()
    assert (row.state, row.billed_nanos) == ("cancelled", 4 * 10**8)
    assert world.taken("paris") == world.taken("london") == 0


def test_a_seller_that_bills_too_much_is_not_booked(world):
    world.begin(["paris"])
    world.run()
    world.now_s += 7200.0
    world.tick()
    [(_, _, message)] = [each for each in world.wire if isinstance(each[2], Reserve)]
    world.wire.clear()
    london = world.sites["london"]
    said = Reserved(
        message.reservation, "ended", "", "fast", 10**9, "USD", 0, 0, 0, 0, 4 * 10**9 + 1, 1
    )
    london.do(london.buying.hear("paris", said, world.now_s, world.now_s))
    assert london.records == []
    assert "the bill is not booked" in london.remarks[0]
    late = replace(said, billed_nanos=1, at_ms=round((world.now_s + 7200) * 1000))
    london.do(london.buying.hear("paris", late, world.now_s, world.now_s))
    assert london.records == []


def test_another_site_can_not_speak_of_a_part_that_is_not_its_own(world):
    world.begin(["paris"])
    [(_, _, hold)] = world.wire
    said = Reserved(hold.reservation, "refused", "no", "", 0, "", 0, 0, 0, 0, 0, 0)
    london = world.sites["london"]
    london.do(london.buying.hear("rome", said, world.now_s, world.now_s))
    world.run()
    assert world.states("london") == [("buy", "booked")]


HOLD = Reserve("london-1-1", "hold", "", 1, 46_800_000, 50_400_000, "ada", "risk")


@pytest.mark.parametrize(
    "changes",
    [
        {"reservation": "rome-1-1"},
        {"reservation": "london-" + "1" * 300},
        {"reservation": "london-\n"},
        {"reservation": "london-eye"},  # would keep us from starting again, once it is billed
        {"reservation": "london-eye-1-1"},  # that is another site's
        {"step": "steal"},
        {"slots": -1},
        {"slots": 10**9},
        {"from_ms": -1},
        {"until_ms": 10**18},
        {"user": "a\0"},
        {"pool": "x" * 300},
    ],
)
def test_what_a_buyer_may_not_say(world, changes):
    with pytest.raises(ProtocolError):
        list(world.sites["paris"].selling.hear("london", replace(HOLD, **changes), NOON))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"slots": 0}, "at least one slot"),
        ({"until_ms": HOLD.from_ms}, "must end after it begins"),
        ({"from_ms": 1_000_000}, "which is past"),
        ({"pool": "slow"}, "pool 'slow' not found at paris"),
        ({"user": "a" * 200}, "the user's name is too long, 207 characters"),
    ],
)
def test_what_a_buyer_can_not_have(world, changes, text):
    [said] = world.sites["paris"].selling.hear("london", replace(HOLD, **changes), NOON)
    assert said.message.state == "refused"
    assert text in said.message.reason


def test_a_buyer_has_so_many_open_and_no_more(world):
    paris = world.sites["paris"]
    for number in range(OPEN_MAX):
        part = replace(
            HOLD,
            reservation=f"london-1-{number}",
            from_ms=HOLD.from_ms + number * 10**6,
            until_ms=HOLD.from_ms + (number + 1) * 10**6,
        )
        paris.do(paris.selling.hear("london", part, NOON))
    paris.out.clear()
    paris.do(paris.selling.hear("london", replace(HOLD, reservation="london-1-999"), NOON))
    [(_, said)] = paris.out
    assert said.reason == f"too many open reservations of london here: {OPEN_MAX} is the limit"


@pytest.mark.parametrize(
    "changes",
    [
        {"pool": ""},
        {"currency": ""},
        {"currency": "gold"},
        {"unused_factor": 10**6 + 1},
        {"price_nanos": -1},
        {"price_nanos": 10**17},
        {"state": "mine"},
        {"used_ns": 2**63},
        {"at_ms": 10**18},
    ],
)
def test_what_a_seller_may_not_offer(world, changes):
    world.begin(["paris"])
    [(_, _, hold)] = world.wire
    offer = Reserved(hold.reservation, "held", "", "fast", 1, "USD", 0, 0, 30_000, 0, 0, 0)
    london = world.sites["london"]
    with pytest.raises(ProtocolError):
        list(london.buying.hear("paris", replace(offer, **changes), NOON, NOON))


def test_what_nobody_knows_any_more_is_given_back(world):
    said = Reserved("london-9-9", "booking", "", "fast", 1, "USD", 0, 0, 30_000, 0, 0, 0)
    london = world.sites["london"]
    [told] = london.buying.hear("paris", said, NOON, NOON)
    assert (told.message.reservation, told.message.step) == ("london-9-9", "release")


def test_one_user_does_not_take_all_that_may_be_open(world):
    bookings = world.sites["paris"].bookings
    for number in range(ONES_MAX):
        from_s = NOON + number
        found = bookings.ask(1, from_s, from_s + 1, "user:ada", ADA, NOON)
        bookings.keep(replace(found, id=f"r{number}", state=ReservationState.BOOKED))
    with pytest.raises(CantReserve, match="too many open reservations of ada here: 250"):
        bookings.ask(1, NOON, NOON + 1, "user:ada", ADA, NOON)
    bookings.ask(1, NOON, NOON + 1, "user:bob", Owner("bob"), NOON)


@pytest.mark.parametrize("state", ["ended", "cancelled", "expired"])
def test_a_seller_that_bills_before_the_end_is_not_booked(world, state):
    whole = world.begin(["paris"])
    world.run()
    [part] = world.sites["paris"].bookings.open.values()
    london = world.sites["london"]
    said = Reserved(
        part.id, state, "", "fast", 10**9, "USD", 0, 0, 0, 0, 1, round(world.now_s * 1000)
    )
    london.do(london.buying.hear("paris", said, world.now_s, world.now_s))
    assert london.records == []
    assert "the bill is not booked" in london.remarks[-1]
    # At its end at half of its price, by its terms, and no more.
    world.now_s = whole.parts["paris"].until_s
    for billed_nanos, is_booked in ((2 * 10**9 + 1, False), (2 * 10**9, True)):
        late = replace(said, billed_nanos=billed_nanos)
        london.do(london.buying.hear("paris", late, world.now_s, world.now_s))
        assert bool(london.records) is is_booked


def test_what_was_billed_is_known_however_much_is_held_and_released(world):
    world.begin(["paris"])
    world.run()
    world.now_s += 7200.0
    world.tick()
    world.wire.clear()
    paris = world.sites["paris"]
    [name] = paris.bookings.over
    for number in range(OVER_MAX + 1):
        hold = replace(
            HOLD,
            reservation=f"rome-1-{number}",
            from_ms=HOLD.from_ms + 10**8,
            until_ms=HOLD.until_ms + 10**8,
        )
        paris.do(paris.selling.hear("rome", hold, world.now_s))
        paris.do(paris.selling.hear("rome", replace(hold, step="release"), world.now_s))
    assert len(paris.bookings.over) == OVER_MAX
    assert paris.bookings.find(name).billed_nanos == 2 * 10**9
    # What was forgotten and comes again is over, as the books have it.
    again = replace(hold, reservation="rome-1-0")
    assert paris.bookings.find("rome-1-0") is None
    paris.out.clear()
    paris.do(paris.selling.hear("rome", again, world.now_s + 1))
    [(_, said)] = paris.out
    assert said.state == paris.rows["sell", "rome-1-0"].state == "cancelled"


def test_a_site_that_never_answers_does_not_fill_the_list_of_bookings(world):
    world.begin(["paris"])
    for _ in range(2):
        world.wire.clear()
        world.tick(FORGET_S)
    assert world.sites["london"].buying.wholes == {}


def test_what_a_site_says_is_shown_without_its_control_characters(world):
    whole = world.begin(["paris"])
    [(_, _, hold)] = world.wire
    said = Reserved(hold.reservation, "refused", "no\x1b[2J", "", 0, "", 0, 0, 0, 0, 0, 0)
    london = world.sites["london"]
    london.do(london.buying.hear("paris", said, NOON, NOON))
    assert whole.machine.reason == "paris: no\\x1b[2J"


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (
            [EntitlementRule(False, (read_party("site:london"),))],
            "the work of ada@london is denied",
        ),
        (
            [EntitlementRule(True, (read_party("site:rome"),))],
            "no [[entitlement]] allows the work of ada@london",
        ),
        (
            [EntitlementRule(True, (read_party("site:london"),), slots_max=3)],
            "may have at most 3 slots",
        ),
        ([EntitlementRule(True, (read_party("site:london"),), slots_max=4)], ""),
    ],
)
def test_nobody_reserves_what_no_entitlement_lets_him_use(world, rules, text):
    paris = world.sites["paris"]
    known = events.EntitlementsKnown(Entitlements(tuple(rules)), {"fast": ()})
    paris.broker.handle(known, NOON)
    whole = world.begin(["paris"])
    world.run()
    assert text in whole.machine.reason
    assert (whole.machine.phase is BookingPhase.BOOKED) is (not text)


def paid_by(world, amount_usd, whose="user:ada", site="london", unit="USD"):
    """A budget at a site, which begins anew with it."""
    there = world.sites[site]
    party = read_party(whose)
    there.budgets = (Budget("desk", party, unit, amount_usd * 10**9, span=None),)
    there.start(world.now_s)
    return there.broker.budget_accounts.own["desk"]


def test_the_price_is_held_in_its_makers_budget_and_what_is_billed_is_spent(world):
    budget_account = paid_by(world, 10)
    world.begin(["london", "paris"])  # four slots for an hour each, at a dollar
    world.run()
    assert (budget_account.held_nanos, budget_account.spent_nanos) == (8 * 10**9, 0)
    for _ in range(3 * 60):
        world.tick(60.0)
        world.run()
    # Nothing of it was used, and half of that is billed.
    assert (budget_account.held_nanos, budget_account.spent_nanos) == (0, 4 * 10**9)


@pytest.mark.parametrize(
    ("amount_usd", "unit", "text"),
    [
        (
            7,
            "USD",
            "has no room for 4 USD: 0 USD of 7 USD is spent, 4 USD is held for running work",
        ),
        (3, "USD", "has no room for 4 USD: 0 USD of 3 USD is spent"),
        (99, "EUR", "is in EUR, and can't pay for work in USD"),
    ],
)
def test_what_a_budget_does_not_pay_for_is_not_reserved_anywhere(world, amount_usd, unit, text):
    budget_account = paid_by(world, amount_usd, unit=unit)
    whole = world.begin(["london", "paris"])
    world.run()
    assert whole.machine.phase is BookingPhase.RELEASED
    assert text in whole.machine.reason
    for _ in range(10):
        world.tick(10.0)
    assert [world.taken(site) for site in ("london", "paris")] == [0, 0]
    assert budget_account.held_nanos == 0


def test_what_is_held_for_reservations_is_held_again_in_the_next_life(world):
    paid_by(world, 10)
    world.begin(["london", "paris"])
    world.run()
    london = world.sites["london"]
    london.start(world.now_s)
    assert london.broker.budget_accounts.own["desk"].held_nanos == 8 * 10**9


def test_what_its_tasks_take_is_not_held_twice(world):
    budget_account = paid_by(world, 10)
    world.begin(["london"])
    world.run()
    london = world.sites["london"]
    [made] = london.bookings.open.values()
    reserved = london.broker.reserved
    assert reserved.accounts_of("fast", made.tariff) == (budget_account,)
    assert reserved.accounts_of("fast", Tariff(1, "USD", "1")) == ()
    reserved.use("fast", made.tariff, 10**9)
    assert budget_account.held_nanos == 3 * 10**9
    reserved.use("fast", made.tariff, 5 * 10**9)
    assert (budget_account.held_nanos, reserved.accounts_of("fast", made.tariff)) == (0, ())


@pytest.mark.parametrize("lives", [1, 2])
def test_only_its_own_seller_charges_by_the_price_of_a_reservation(world, lives):
    budget_account = paid_by(world, 10)
    whole = world.begin(["london", "paris"])
    world.run()
    london = world.sites["london"]
    if lives == 2:
        london.start(world.now_s)
        world.run()
        budget_account = london.broker.budget_accounts.own["desk"]
        [whole] = london.buying.wholes.values()
    reserved, part = london.broker.reserved, whole.parts["paris"]
    price = part.tariff
    assert reserved.booked("paris/fast", price).id == part.id
    assert reserved.accounts_of("paris/fast", price) == (budget_account,)
    for other in ("fast", "rome/fast", "paris/slow"):
        reserved.use(other, price, 10**9)
        assert (reserved.booked(other, price), reserved.accounts_of(other, price)) == (None, ())
    own = whole.parts["london"].tariff
    assert reserved.accounts_of("fast", own) == (budget_account,)
    assert reserved.booked("paris/fast", own) is None
    assert budget_account.held_nanos == 8 * 10**9
    reserved.use("paris/fast", price, 10**9)
    assert budget_account.held_nanos == 7 * 10**9


def test_a_sellers_credit_pays_for_what_another_site_reserves(world):
    budget_account = paid_by(world, 3, "site:london", "paris")
    whole = world.begin(["paris"])
    world.run()
    assert "has no room for 4 USD" in whole.machine.reason
    assert budget_account.held_nanos == 0


def test_credit_in_another_currency_reserves_nothing(world):
    paris = world.sites["paris"]
    paris.credit = {"london": ((10**12, "EUR"),)}
    paris.start(world.now_s)
    whole = world.begin(["paris"])
    world.run()
    assert "london has credit in EUR at this site, not in USD" in whole.machine.reason
    assert world.taken("paris") == 0


def test_a_site_without_the_table_refuses():
    world = World(Site("london", 4), Site("paris", 8, rules=None))
    whole = world.begin(["london", "paris"])
    world.run()
    assert whole.machine.reason == (
        "paris: paris takes no reservations: its configuration has no [reservations]"
    )
    assert world.taken("london") == 0


def test_a_gateway_that_dies_after_its_decision_goes_on(world):
    world.begin(["paris", "rome"])
    while not any(m.step == "book" for _, _, m in world.wire if isinstance(m, Reserve)):
        world.deliver()
    world.wire.clear()
    world.sites["london"].start(world.now_s)
    world.run()
    assert world.states("paris") == world.states("rome") == [("sell", "booked")]


def test_a_gateway_that_dies_before_its_decision_leaves_holds_that_lapse(world):
    world.begin(["paris", "rome"])
    world.deliver()
    world.wire.clear()
    world.sites["london"].start(world.now_s)
    assert world.taken("paris") == 4
    world.tick(RULES.hold_s)
    assert world.taken("paris") == 0
    assert world.states("paris") == [("sell", "expired")]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["deliver"] * 8 + ["lose", "double", "die", "tick", "begin"]),
        st.integers(0, 40),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_is_lost_late_or_dies_all_is_booked_or_nothing(steps):
    world = World(Site("london", 6), Site("paris", 6), Site("rome", 6))
    wholes = [world.begin(["london", "paris", "rome"]), world.begin(["rome", "paris"], at="paris")]
    names = sorted(world.sites)
    for what, at in steps:
        if world.now_s > NOON + KEEP_S / 2:
            break
        match what:
            case "deliver" if world.wire:
                world.deliver(at)
            case "lose" if world.wire:
                world.wire.pop(at % len(world.wire))
            case "double" if world.wire:
                world.wire.append(world.wire[at % len(world.wire)])
            case "die":
                world.sites[names[at % 3]].start(world.now_s)
                world.collect()
            case "tick":
                world.tick(float(at % 8))
            case "begin" if len(wholes) < 5:
                wholes.append(world.begin(["paris", "rome"], at="rome", slots=1 + at % 6))
        for name in names:
            assert world.taken(name) <= 6
    for _ in range(60):
        world.run()
        world.tick()
    for whole in wholes:
        parts = [
            (row.reservation, row.state)
            for site in world.sites.values()
            for (side, _), row in site.rows.items()
            if side == "sell" and row.reservation in {each.id for each in whole.parts.values()}
        ]
        booked = [state == ReservationState.BOOKED for _, state in parts]
        assert (all(booked) and len(booked) in (0, len(whole.parts))) or not any(booked), parts


def test_nobody_reserves_more_than_he_is_entitled_to():
    site = Site("london", 10)
    rules = (
        EntitlementRule(True, (read_party("user:ada"),), slots_max=3),
        EntitlementRule(False, (read_party("site:paris"),)),
    )
    known = events.EntitlementsKnown(Entitlements(rules), {"fast": frozenset()})
    site.broker.handle(known, NOON)
    span = NOON + 60.0, NOON + 120.0
    assert site.bookings.ask(3, *span, "user:ada", ADA, NOON).slots == 3
    with pytest.raises(CantReserve, match="ada may have at most 3 slots"):
        site.bookings.ask(4, *span, "group:quants", ADA, NOON)
    for by, slots, why in (
        (ADA, 4, "ada may have at most 3 slots"),
        (Owner("bob"), 1, "allows the work of bob"),
        (Owner("eve@paris", site="paris"), 1, "the work of eve@paris is denied"),
    ):
        with pytest.raises(CantReserve, match=why):
            site.bookings.ask(slots, *span, f"user:{by.user}", by, NOON)
    for party in ("group:quants", "project:risk", "ours"):
        made = site.bookings.ask(4, *span, party, Owner("root"), NOON, is_operators=True)
        assert made.slots == 4
    assert site.bookings.ask(1, *span, "user:x@rome", Owner("x@rome", site="rome"), NOON)


def test_what_a_pool_can_grow_to_can_be_reserved():
    site = Site("london", 2)
    span = NOON + 3_600.0, NOON + 7_200.0
    with pytest.raises(CantReserve, match="8 slots exceed the pool's total of 2"):
        site.bookings.ask(8, *span, "user:ada", ADA, NOON)
    site.broker.handle(events.PoolGrows("fast", PoolGrowth(6, 60.0, 600.0)), NOON)
    assert site.bookings.ask(8, *span, "user:ada", ADA, NOON).slots == 8
    with pytest.raises(CantReserve, match="total of 8"):
        site.bookings.ask(9, *span, "user:ada", ADA, NOON)
