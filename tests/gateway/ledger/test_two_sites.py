"""After any events between two sites, and at either, their books are right, and agree.

Holds, charges, disputes, payments, days, comparisons, rolling up, and crashes, in any order.
Messages about a contract keep their order while a session lasts, and are lost with it, as between
gateways; those about books are lost, doubled and delayed one by one. The power of either may fail.
"""

import contextlib
import copy
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.exports import stated
from support.pure.two_sites import DAY_S, RULES, TwoSitesWorld, copies

from federation.messages import deals
from federation.messages.deals import Sealed
from federation.messages.messages import MESSAGES
from federation.messages.payments import PaymentStanding
from federation.messages.reconciliation import EntryState
from federation.messages.registry import Receiver
from federation.signed.envelopes import body_of
from gateway.contracts.buying import deliveries
from gateway.contracts.model.moved import MOVE_EPOCH, delivery_of
from gateway.contracts.selling import sales
from gateway.ledger.store.store import SqlStore
from gateway.settlement.context import NoSuchEntry

SITES = st.sampled_from(["london", "paris"])
TOO_LATE = "the delivery is older than 3 days, and counts as accepted"
PICK = st.integers(0, 99)
COSTS = st.lists(st.integers(0, 5_000), min_size=1, max_size=4)  # of tasks


def pick(items, number):
    return items[number % len(items)]


def nonzero(sums):
    return {key: each for key, each in sums.items() if each}


def is_about_books(message):
    if isinstance(message, Sealed):
        message = MESSAGES.decode(body_of(message.envelope), 1 << 20)
    return message.row.to is Receiver.BOOKS


class TwoSites(RuleBasedStateMachine):
    """London and Paris; `new_urls` names two empty databases."""

    new_urls = staticmethod(lambda: ())

    def __init__(self):
        super().__init__()
        self.world = TwoSitesWorld(self.new_urls())
        self.payments = 0  # that there are between them, under the references R0, R1, …

    def teardown(self):
        try:
            self.come_to_rest()
        finally:
            self.world.close()

    def site(self, name):
        return getattr(self.world, name)

    # --- work --------------------------------------------------------------------------------

    def contract(self, number):
        """A contract that goes on; a new one when none does."""
        if not self.world.open_contracts or number % 10 == 0:
            self.world.open()
        return pick(self.world.open_contracts, number)

    @rule(number=PICK, costs_nanos=COSTS)
    def deliver(self, number, costs_nanos):
        """London gives out a bundle, and Paris does it part by part."""
        contract = self.contract(number)
        epoch, first = self.world.forward(contract)
        for at, cost_nanos in enumerate(costs_nanos):
            if contract in self.world.open_contracts:
                self.world.do(contract, epoch, first + at, 1, cost_nanos)

    @rule(number=PICK, costs_nanos=COSTS)
    def deliver_too_late(self, number, costs_nanos):
        """And meanwhile London has given it to another site."""
        self.world.carry_all()
        contract = self.contract(number)
        epoch, first = self.world.forward(contract)
        self.world.recall(contract, epoch)
        self.world.do(contract, epoch, first, len(costs_nanos), sum(costs_nanos))

    @rule(number=PICK, costs_nanos=COSTS)
    def deliver_and_pay(self, number, costs_nanos):
        self.deliver(number, costs_nanos)
        self.world.carry_all()
        self.world.bill()
        self.world.carry_all()

    @rule()
    def bill(self):
        self.world.bill()

    @precondition(lambda self: self.world.london.purchases.purchases)
    @rule(number=PICK, lapses=st.booleans())
    def end(self, number, lapses):
        if lapses:
            self.world.lapse()
        else:
            self.world.close_contract(pick(sorted(self.world.london.purchases.purchases), number))

    @rule(number=PICK, costs_nanos=COSTS)
    def deliver_whole(self, number, costs_nanos):
        contract = self.contract(number)
        epoch, first = self.world.forward(contract)
        self.world.do(contract, epoch, first, len(costs_nanos), sum(costs_nanos))

    @rule(number=PICK, name=st.sampled_from("abc"), is_result=st.booleans())
    def move(self, number, name, is_result):
        """An object moves between them under a contract, perhaps again, and costs something."""
        contract = self.contract(number)
        size = {"a": 10**9, "b": 10**8, "c": 7}[name]
        self.world.move(contract, name, size, is_result=is_result)

    @rule(number=PICK, cost_nanos=st.integers(1, 5_000), is_delivered=st.booleans())
    def bill_twice(self, number, cost_nanos, is_delivered):
        """A person at Paris bills a part of a run once more, and perhaps delivers it again."""
        self.world.carry_all()
        came = {
            (each.contract, each.delivery.epoch, each.delivery.first)
            for each in self.world.london.store.settlement.entries("buy", "paris", 0, 10**15)
        }
        parts = [key for key in sorted(came) if self.world.delivered[key][0] > 1]
        if not parts:
            return
        contract, epoch, first = pick(parts, number)
        again = self.world.delivery(contract, epoch, first + 1, 1, cost_nanos)
        self.world.mail["paris"] += [again] if is_delivered else []
        self.world.mail["paris"].append(deals.Bill(contract, [again.delivery.row]))

    # --- the post ----------------------------------------------------------------------------

    @rule(sender=SITES, most=st.integers(1, 4))
    def carry(self, sender, most):
        for _ in range(most):
            if self.world.mail[sender]:
                self.world.carry(sender)

    @rule()
    def carry_all(self):
        self.world.carry_all()

    @rule()
    def break_session(self):
        self.world.cut()
        self.world.meet()

    def about_books(self, sender):
        queue = self.world.mail[sender]
        return [at for at, message in enumerate(queue) if is_about_books(message)]

    @rule(sender=SITES, number=PICK, what=st.sampled_from(["lost", "doubled", "early"]))
    def disturb(self, sender, number, what):
        queue = self.world.mail[sender]
        found = self.about_books(sender)
        if not found:
            return
        at = pick(found, number)
        if what == "lost":
            del queue[at]
        elif what == "doubled":
            queue.append(copy.copy(queue[at]))
        else:
            self.world.carry(sender, at)

    # --- the books ---------------------------------------------------------------------------

    @rule(number=PICK, whole=st.booleans())
    def dispute(self, number, whole):
        site = self.world.london
        paid = [
            (contract, (each.epoch, each.first))
            for contract in (f"london-1-{n + 1}" for n in range(self.world.opened))
            for each in site.store.contracts.postings("buy", contract)
            if each.state == "post"
        ]
        if not paid:
            return
        contract, delivery = pick(paid, number)
        chosen = None if whole else [delivery]
        with site.alive(), contextlib.suppress(NoSuchEntry):
            site.ask(lambda: site.reconciler.disputes.dispute(contract, chosen, "too dear"))

    @rule(number=PICK, accept=st.booleans())
    def answer(self, number, accept):
        found = [
            each for each in self.world.paris.store.settlement.disputes() if each.state == "open"
        ]
        if found:
            self.world.answer(pick(found, number).contract, accept=accept)

    @rule(number=PICK, costs_nanos=COSTS, accept=st.booleans(), is_heard=st.booleans())
    def quarrel(self, number, costs_nanos, accept, is_heard):
        """Something is paid, disputed, and answered, which may be lost on its way."""
        self.deliver_and_pay(number, costs_nanos)
        self.dispute(number, whole=True)
        self.world.carry_all()
        self.answer(number, accept)
        if is_heard:
            self.world.carry_all()
        else:
            self.world.cut()

    @precondition(lambda self: self.world.opened)
    @rule(name=SITES)
    def pay(self, name):
        """London pays; Paris books it later, or first. An undone payment is booked again."""
        [reference, *_] = self.unbooked(name, self.payments + 1)
        self.book(name, reference)

    @rule(name=SITES, number=PICK)
    def undo(self, name, number):
        """A person takes back a booking at one of the two."""
        standing = sorted(self.booked(name))
        if standing:
            site = self.site(name)
            with site.alive():
                site.order("undo_payment", reference=pick(standing, number), note="by mistake")

    def booked(self, name):
        """The references under which a payment stands."""
        return {
            each.reference for each in self.site(name).store.settlement.payments() if each.stands
        }

    def unbooked(self, name, stop):
        booked = self.booked(name)
        return [each for each in range(stop) if f"R{each}" not in booked]

    def book(self, name, reference):
        site = self.site(name)
        direction = "paid" if name == "london" else "received"
        amount = {"amount_nanos": 100 + reference, "currency": "USD"}
        with site.alive():
            site.order("settle", reference=f"R{reference}", direction=direction, **amount)
        self.payments = max(self.payments, reference + 1)

    @rule(days=st.sampled_from([0.3, 1.0, 2.0, 6.0]))
    def time_passes(self, days):
        self.world.utc_s += days * DAY_S

    @rule()
    def compare(self):
        self.world.look()

    @rule(name=SITES, pieces=st.sampled_from([1, 3, 100]))
    def roll_up(self, name, pieces):
        """A week later, old records get smaller; perhaps not to the end of it."""
        self.world.utc_s += 7 * DAY_S
        site = self.site(name)
        self.audit(site)
        for _ in range(pieces):
            if not site.store.roll_up(self.world.utc_s, RULES.detail_days * DAY_S):
                break
        self.audit(site)

    # --- crashes -----------------------------------------------------------------------------

    @rule(name=SITES)
    def crash(self, name):
        self.site(name).crash()
        self.audit(self.site(name))

    @rule(name=SITES, number=PICK, costs_nanos=COSTS)
    def cut_power(self, name, number, costs_nanos):
        """When something was just billed and paid, or just before."""
        if number % 3:
            self.deliver_and_pay(number, costs_nanos)
        self.site(name).crash(power=True)
        self.audit(self.site(name))

    @rule(name=SITES, writes=st.integers(0, 2), is_committed=st.booleans())
    def crash_soon(self, name, writes, is_committed):
        """In the middle of something: before one of its next writes, or right after."""
        self.site(name).fuse = writes, is_committed

    # --- what always holds -------------------------------------------------------------------

    @invariant()
    def debits_are_credits_and_nothing_less_than_nothing_is_held(self):
        for site in self.world.sites:
            nets = Counter()
            for account, balance in site.store.journal.balances().items():
                assert balance.held_debits_nanos >= 0
                assert balance.held_credits_nanos >= 0
                nets[account.currency, "done"] += balance.net_nanos
                nets[account.currency, "held"] += balance.held_nanos
            assert not any(nets.values())

    def audit(self, site):
        found = site.audit()
        assert found.is_clean, (site.name, [each for each in found.checks if each.problems])
        exported, booked = site.exported(), stated(site.store, site.other)
        # The formats of runs have no words for bytes that have moved.
        moved = site.moved()
        for name, sums in exported.items():
            whole = Counter(sums)
            if name != "focus":
                whole.update(moved)
            assert nonzero(whole) == nonzero(booked), (site.name, name, exported, booked, moved)

    @invariant()
    def nothing_is_bought_that_was_not_delivered_or_at_another_price(self):
        for each in self.world.london.store.settlement.entries("buy", "paris", 0, 10**15):
            if each.state is not EntryState.REVERSAL:
                key = each.contract, each.delivery.epoch, each.delivery.first
                _, cost_nanos = self.world.delivered[key]
                assert each.delivery.cost_nanos == cost_nanos

    @invariant()
    def an_object_is_paid_once_in_each_direction_under_a_contract(self):
        most = Counter()
        for (contract, *_), cost_nanos in self.world.moves.items():
            most[contract] += cost_nanos
        for site in self.world.sites:
            billed = Counter()
            for each in site.store.settlement.entries(site.side, site.other, 0, 10**15):
                if each.delivery.epoch == MOVE_EPOCH and each.state is not EntryState.REVERSAL:
                    billed[each.contract] += each.delivery.cost_nanos
            assert billed <= most, (site.name, "moved bytes are billed twice")

    # --- what holds in the end ---------------------------------------------------------------

    def come_to_rest(self):
        world = self.world
        world.come_to_rest()
        self.they_agree()
        world.utc_s += 30 * DAY_S
        for site in world.sites:
            while site.store.roll_up(world.utc_s, RULES.detail_days * DAY_S):
                pass
        self.they_agree()

    def they_agree(self):
        world = self.world
        london, paris = world.sites
        for site in world.sites:
            for reference in self.unbooked(site.name, self.payments):
                self.book(site.name, reference)
        world.cut()  # what was told of it is lost
        world.look()
        world.carry_all()
        for site in world.sites:
            standings = [each.standing for each in site.paid()]
            assert standings == [PaymentStanding.CONFIRMED] * self.payments
            for each in site.statement().values():
                assert each.unconfirmed_nanos == each.to_confirm_nanos == 0
        assert london.days() == paris.days()
        assert not any(each.pending for each in london.days().values())
        assert {each.state for each in london.store.settlement.statements()} <= {"agreed"}
        # What is void at its seller may be unknown to its buyer: one may have a line of nothing.
        ours, theirs = (
            {
                currency: each.balance_nanos
                for currency, each in site.statement().items()
                if each.balance_nanos
            }
            for site in world.sites
        )
        assert ours == {currency: -nanos for currency, nanos in theirs.items()}
        # One that comes too late for its seller is answered, and not kept there.
        told = {
            (each.contract, each.epoch, each.first): (each.state, each.settled_at_s)
            for each in london.store.settlement.disputes()
        }
        assert not any(state == "open" for state, _ in told.values())
        assert {each.answer for each in london.store.settlement.disputes()} <= {"so", TOO_LATE}
        for each in paris.store.settlement.disputes():
            assert told[each.contract, each.epoch, each.first] == (each.state, each.settled_at_s)
        mirrored = [
            {
                account.currency: balance.net_nanos
                for account, balance in site.store.journal.balances().items()
                if account.kind == "site" and balance.net_nanos
            }
            for site in world.sites
        ]
        assert mirrored[0] == {key: -nanos for key, nanos in mirrored[1].items()}
        assert ours == mirrored[0]
        for site in world.sites:
            self.audit(site)


@pytest.fixture
def new_files():
    """Name two empty SQLite databases, each time anew."""
    with tempfile.TemporaryDirectory(prefix="gridfed-two-sites-") as folder:
        template = Path(folder) / "template.db"
        SqlStore(f"sqlite:///{template}").close()
        yield lambda: tuple(copies(template, Path(folder), ("paris", "london")))


def run(new_urls, examples, steps, *left_out):
    machine = type("TwoSitesHere", (TwoSites,), {"new_urls": staticmethod(new_urls)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            phases=[each for each in Phase if each not in left_out],
            suppress_health_check=list(HealthCheck),
        ),
    )


def booked_at_each_time(fact, tariff, seller):
    """A planted bug: a receipt that is signed again, a moment later, is another delivery."""
    found = delivery_of(fact, tariff, seller)
    return found and replace(found, first=found.first ^ fact.at_ms, stop=found.first ^ fact.at_ms)


@pytest.mark.parametrize("is_result", [False, True])
def test_a_receipt_that_is_booked_twice_is_found(new_files, monkeypatch, is_result):
    for is_planted in (False, True):
        if is_planted:
            for module in (sales, deliveries):
                monkeypatch.setattr(module, "delivery_of", booked_at_each_time)
        machine = type("Planted", (TwoSites,), {"new_urls": staticmethod(new_files)})()
        try:
            for _ in range(2):
                machine.move(1, "a", is_result)
                machine.world.utc_s += 1.0
                machine.carry_all()
                machine.bill()
                machine.carry_all()
            if is_planted:
                with pytest.raises(AssertionError, match="moved bytes are billed twice"):
                    machine.an_object_is_paid_once_in_each_direction_under_a_contract()
            else:
                machine.an_object_is_paid_once_in_each_direction_under_a_contract()
        finally:
            machine.world.close()


@pytest.mark.slow
def test_two_sites_agree_whatever_happens(new_files):
    run(new_files, 6, 20, Phase.shrink)  # which takes minutes: that is for `make stress`


@pytest.mark.slow
def test_two_sites_agree_on_postgresql(postgres):
    run(lambda: (postgres.new_database(), postgres.new_database()), 1, 15, Phase.shrink)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_two_sites_agree_whatever_happens_for_long(new_files):
    run(new_files, 200, 40)
