"""The agent's books under any interleaving: no task lost, none doubled."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.worker.roster import Piece, Roster, Terms


class Books(RuleBasedStateMachine):
    """A roster with two slots, and slots that do what the cells and chunks make them do."""

    def __init__(self):
        super().__init__()
        self.roster = Roster(2)
        self.given = Counter()
        self.gone = Counter()
        self.number = 0
        self.positions = {}  # slot object → the number that its process is at
        self.limits = {}
        for slot in self.roster.slots:
            slot.ready = True

    @rule(tasks=st.integers(1, 30))
    def assign(self, tasks):
        self.number += 1
        terms = Terms(self.number, "j", b"f", None, False)
        self.roster.add(Piece(terms, 0, [b"%d" % at for at in range(tasks)]))
        self.given.update((self.number, at) for at in range(tasks))
        list(self.roster.feed())

    def busy(self):
        return [slot for slot in self.roster.slots if slot.chunks]

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), fast=st.booleans())
    def work(self, data, fast):
        slot = data.draw(st.sampled_from(self.busy()))
        chunk = slot.chunks[0]
        limit = self.limits.get(id(slot), 1 << 60)
        stop = min(chunk.end, limit)
        reached = data.draw(st.integers(chunk.reported, max(chunk.reported, stop)))
        if reached > chunk.reported:
            first, tasks = chunk.reported, reached - chunk.reported
            found = self.roster.reported(slot, first, tasks, tasks * (1000 if fast else 10**8))
            assert found is not None
            terms, at = found
            self.gone.update((terms.assignment, at + n) for n in range(tasks))
        self.positions[id(slot)] = reached - 1
        if reached == stop:
            assert self.roster.ended(slot, reached, chunk.end)
            if not slot.chunks:
                self.limits.pop(id(slot), None)
        list(self.roster.feed())

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def reclaim(self, data):
        slot = data.draw(st.sampled_from(self.busy()))
        if slot.limited:
            return
        slot.limited = True
        started = max(slot.chunks[0].reported, self.positions.get(id(slot), -1))
        started = min(started, slot.chunks[0].end - 1)
        self.limits[id(slot)] = started + 1
        self.roster.reclaim(slot, started + 1)
        list(self.roster.feed())

    @rule(data=st.data())
    def withdraw(self, data):
        if not self.number:
            return
        assignment = data.draw(st.integers(1, self.number))
        for first, stop in self.roster.withdraw(assignment, 0, 1 << 60):
            self.gone.update((assignment, at) for at in range(first, stop))

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def die(self, data):
        slot = data.draw(st.sampled_from(self.busy()))
        started = slot.chunks[0].reported
        at_work = data.draw(st.booleans())
        fault = self.roster.died(slot, started, at_work=at_work)
        if fault is not None:
            self.gone[fault[0].assignment, fault[1]] += 1
        self.limits.pop(id(slot), None)
        self.roster.slots[slot.index].ready = True
        list(self.roster.feed())

    @invariant()
    def every_task_is_in_one_place(self):
        held = Counter()
        for piece in self.roster.queue:
            held.update((piece.terms.assignment, at) for at in range(piece.first, piece.stop))
        for slot in self.roster.slots:
            for chunk in slot.chunks:
                number = chunk.piece.terms.assignment
                held.update((number, chunk.task(n)) for n in range(chunk.reported, chunk.live))
        assert held + self.gone == self.given


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
