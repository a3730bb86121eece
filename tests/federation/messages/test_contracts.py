"""Contracts: the table, the lease, the books, and both sides over a network that misbehaves."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import ProtocolError
from federation.messages.contracts import (
    ENDED,
    MOVES,
    ContractPhase,
    Delivery,
    Lease,
    Move,
    Out,
    Tab,
    Verdict,
    WrongMoveError,
    grantor_until_s,
    holder_until_s,
    move,
)

# --- the table ---


def test_what_the_table_does_not_have_is_refused():
    with pytest.raises(WrongMoveError, match="a contract in phase quoted can't commit"):
        move(ContractPhase.QUOTED, Move.COMMIT)


def test_every_contract_comes_to_an_end_and_none_leaves_it():
    reaches = set(ENDED)
    while grown := {before for (before, _), after in MOVES.items() if after in reaches} - reaches:
        reaches |= grown
    assert reaches == set(ContractPhase)
    assert not [before for before, _ in MOVES if before in ENDED]


def test_tasks_go_out_only_after_a_commit():
    assert [before for (before, what), _ in MOVES.items() if what is Move.COMMIT] == [
        ContractPhase.HELD
    ]
    assert [what for (_, what), after in MOVES.items() if after is ContractPhase.OPEN] == [
        Move.COMMIT
    ]


# --- the lease ---


def test_a_late_answer_does_not_revive_a_lease():
    lease = Lease(10.0, until_s=100.0)
    assert not lease.renewed(asked_at_s=99.0, mono_s=100.0)
    assert lease.is_over(100.0)


def test_an_old_answer_does_not_shorten_a_lease():
    lease = Lease(10.0, until_s=100.0)
    assert lease.renewed(asked_at_s=95.0, mono_s=96.0)
    assert lease.renewed(asked_at_s=91.0, mono_s=97.0)
    assert lease.until_s == 105.0


@given(
    lease_s=st.floats(1.0, 1000.0),
    under_way_s=st.floats(0.0, 100.0),
    drift=st.floats(-0.02, 0.02),
)
def test_the_seller_has_stopped_before_the_buyer_places_again(lease_s, under_way_s, drift):
    # In true time: asked at 0 by the seller's clock, which runs at 1 + drift; granted later.
    seller_stops_s = holder_until_s(0.0, lease_s) / (1 + drift)
    for buyer_drift in (-0.02, 0.02):
        buyer_waits_s = (grantor_until_s(0.0, lease_s)) / (1 + buyer_drift) + under_way_s
        assert seller_stops_s <= buyer_waits_s + 0.001 * lease_s


# --- the books ---


def test_a_forward_counts_once_and_an_old_epoch_not_at_all():
    out = Out()
    assert out.send(2, 0, 10)
    assert not out.send(2, 0, 10)
    assert not out.send(1, 20, 30)
    with pytest.raises(ProtocolError, match="other tasks"):
        out.send(2, 0, 11)
    with pytest.raises(ProtocolError, match="already assigned"):
        out.send(3, 9, 12)


def test_results_of_another_epoch_are_fenced():
    out = Out()
    out.send(1, 0, 10)
    assert out.take_all() == [(0, 10)]
    out.send(2, 0, 10)
    assert not out.take(1, 0, 10)
    assert out.take(2, 0, 4)
    assert not out.take(2, 3, 6)
    assert len(out) == 6


def posted_nanos(tab):
    """The amount to be paid under a contract."""
    return sum(
        each.cost_nanos for each, verdict in tab.verdicts.values() if verdict is Verdict.POST
    )


def test_each_delivery_gets_one_verdict():
    tab = Tab()
    delivery = Delivery(1, 0, 10, 30)
    assert tab.deliver(delivery) is None
    assert tab.deliver(delivery) is None
    assert list(tab.pending.values()) == [delivery]
    assert tab.settle(1, 0, Verdict.POST)
    assert not tab.settle(1, 0, Verdict.POST)
    assert tab.deliver(delivery) is Verdict.POST
    assert (tab.pending, tab.verdicts) == ({}, {(1, 0): (delivery, Verdict.POST)})
    with pytest.raises(ProtocolError, match="the verdict was post, and is now void"):
        tab.settle(1, 0, Verdict.VOID)
    with pytest.raises(ProtocolError, match="with other content"):
        tab.deliver(Delivery(1, 0, 10, 31))
    with pytest.raises(ProtocolError, match="not delivered"):
        tab.settle(9, 0, Verdict.POST)


# --- both sides, and a network that loses, doubles, delays and reorders ---


class Buyer:
    """Has tasks, forwards them, and pays for accepted results. Epochs are never used twice."""

    def __init__(self, tasks):
        self.results = Counter()
        self.waiting = list(range(tasks))
        self.epoch = 0
        self.contracts = {}
        self.open = []

    def forward(self, contract, chance):
        out, _ = self.contracts.setdefault(contract, (Out(), Tab()))
        if contract not in self.open:
            self.open.append(contract)
        self.waiting.sort()
        first = self.waiting[0]
        count = 1
        most = chance.randrange(1, 5)
        while count < min(most, len(self.waiting)) and self.waiting[count] == first + count:
            count += 1
        del self.waiting[:count]
        self.epoch += 1
        assert out.send(self.epoch, first, first + count)
        return ("forward", contract, self.epoch, first, first + count)

    def delivered(self, contract, delivery):
        out, tab = self.contracts[contract]
        verdict = tab.deliver(delivery)
        if verdict is None:
            took = out.take(delivery.epoch, delivery.first, delivery.stop)
            verdict = Verdict.POST if took else Verdict.VOID
            tab.settle(delivery.epoch, delivery.first, verdict)
            if took:
                self.results.update(range(delivery.first, delivery.stop))
        return ("settle", contract, delivery.epoch, delivery.first, verdict)

    def lapse(self, contract):
        """The lease has ended: outstanding tasks are ours to place again."""
        out, _ = self.contracts[contract]
        self.open.remove(contract)
        for first, stop in out.take_all():
            self.waiting.extend(range(first, stop))


class Seller:
    """Runs forwarded tasks, and delivers until it has a verdict."""

    def __init__(self):
        self.contracts = {}
        self.running = []

    def forwarded(self, contract, epoch, first, stop):
        out, _ = self.contracts.setdefault(contract, (Out(), Tab()))
        if out.send(epoch, first, stop):
            self.running.append((contract, epoch, first, stop))

    def run(self, at):
        contract, epoch, first, stop = self.running.pop(at)
        out, tab = self.contracts[contract]
        assert out.take(epoch, first, stop)
        tab.deliver(Delivery(epoch, first, stop, 7 * (stop - first)))

    def undelivered(self):
        for contract, (_, tab) in self.contracts.items():
            for delivery in tab.pending.values():
                yield ("deliver", contract, delivery)


class World:
    """Both sides and the messages between them."""

    def __init__(self, seed, tasks):
        self.chance = random.Random(seed)
        self.buyer, self.seller = Buyer(tasks), Seller()
        self.tasks = tasks
        self.network = []
        self.is_calm = False
        self.contract = 0

    def send(self, message):
        """Lost, or there once or twice, some time; there once when all is calm."""
        copies = 1 if self.is_calm else self.chance.choice((0, 1, 1, 1, 2))
        self.network.extend([message] * copies)

    def arrive(self):
        kind, of, *rest = self.network.pop(self.chance.randrange(len(self.network)))
        if kind == "forward":
            self.seller.forwarded(of, *rest)
        elif kind == "deliver":
            self.send(self.buyer.delivered(of, *rest))
        else:
            self.seller.contracts[of][1].settle(*rest)

    def forward(self):
        if self.chance.random() < 0.2:
            self.contract += 1
        self.send(self.buyer.forward(self.contract, self.chance))

    def lapse(self):
        lapsed = self.chance.choice(self.buyer.open)
        self.buyer.lapse(lapsed)
        self.contract = max(self.contract, lapsed + 1)  # and is never used again

    def step(self):
        what = self.chance.randrange(8)
        if what == 0 and self.buyer.waiting:
            self.forward()
        elif what == 1 and self.seller.running:
            self.seller.run(self.chance.randrange(len(self.seller.running)))
        elif what == 2:
            for message in self.seller.undelivered():
                self.send(message)
        elif what == 3 and self.buyer.open and self.chance.random() < 0.1:
            self.lapse()
        elif self.network:
            self.arrive()

    def finish(self):
        """Nothing is lost any more: place, run and deliver until nothing is left."""
        self.is_calm = True
        while len(self.buyer.results) < self.tasks or any(self.seller.undelivered()):
            while self.buyer.open:
                self.lapse()
            while self.buyer.waiting:
                self.forward()
            while self.network:
                self.arrive()
            while self.seller.running:
                self.seller.run(0)
            for message in self.seller.undelivered():
                self.send(message)
            while self.network:
                self.arrive()


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), tasks=st.integers(1, 40))
def test_every_task_has_one_result_one_payer_and_both_books_agree(seed, tasks):
    world = World(seed, tasks)
    for _ in range(1000):
        world.step()
    world.finish()
    buyer, seller = world.buyer, world.seller
    assert buyer.results == Counter(range(tasks)), "each task has exactly one result"
    owed = {of: posted_nanos(tab) for of, (_, tab) in buyer.contracts.items()}
    earned = {of: posted_nanos(tab) for of, (_, tab) in seller.contracts.items()}
    assert earned == {of: owed[of] for of in earned}, "the books of both sites agree"
    assert sum(earned.values()) == sum(owed.values()) == 7 * tasks, "and each task is paid once"
