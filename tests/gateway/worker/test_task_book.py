"""The agent's books: bundle sizes, recalls, no task lost or doubled, in any course of events."""

from itertools import islice

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from federation.ranges import RangeSet
from gateway.worker.pieces import AssignmentTerms, Freeze
from gateway.worker.task_book import BUNDLE_S, BUNDLE_TASKS_MAX, TaskBook

F = b"f"


def make(slots=1, *, function=F):
    task_book = TaskBook(slots)
    task_book.known.add(function)
    for slot in task_book.slots:
        slot.is_ready = True
    return task_book


def assign(task_book, number, tasks, *, function=F, first=0):
    task_book.assign(AssignmentTerms(number, "job", function, None, False), first, [b"x"] * tasks)


def learn(task_book, task_s, *, function=F):
    """Have a slot report so many tasks that the estimate is the wanted one."""
    assign(task_book, 10_000, 1, function=function)
    slot, bundle = next(task_book.feed())
    task_book.report(slot, bundle.number, 1, round(task_s * 1e9))
    task_book.finish(slot)


def sizes(task_book):
    return [(slot.index, len(bundle.piece.arguments)) for slot, bundle in task_book.feed()]


def test_an_unknown_function_goes_one_by_one():
    task_book = make(2)
    assign(task_book, 1, 10)
    assert sizes(task_book) == [(0, 1), (1, 1)]


def test_bundles_are_worth_a_certain_time_and_one_waits_behind():
    task_book = make()
    learn(task_book, BUNDLE_S / 10)
    assign(task_book, 1, 100)
    assert sizes(task_book) == [(0, 10), (0, 10)]


def test_bundles_are_bounded():
    task_book = make()
    learn(task_book, 1e-7)
    assign(task_book, 1, 5000)
    assert sizes(task_book) == [(0, BUNDLE_TASKS_MAX)] * 2


def test_the_last_tasks_are_spread_over_the_slots():
    task_book = make(4)
    learn(task_book, 0.001)
    assign(task_book, 1, 12)
    assert [size for _, size in sizes(task_book)] == [3, 2, 1, 1, 1, 1, 1, 1]


def test_nothing_waits_behind_a_long_task():
    task_book = make(2)
    learn(task_book, 0.5)
    assign(task_book, 1, 10)
    assert sizes(task_book) == [(0, 1), (1, 1)]


def test_slots_that_are_not_ready_or_being_stopped_get_nothing():
    task_book = make(3)
    task_book.slots[0].is_ready = False
    task_book.slots[1].freeze = Freeze(0)
    assign(task_book, 1, 10)
    assert sizes(task_book) == [(2, 1)]


def test_a_function_that_is_not_here_holds_up_nobody():
    task_book = make()
    assign(task_book, 1, 10, function=b"unknown")
    assign(task_book, 2, 10)
    [(_, bundle)] = task_book.feed()
    assert bundle.piece.terms.assignment == 2


def test_suspects_of_a_crash_go_out_one_by_one():
    task_book = make()
    learn(task_book, 1e-6)
    assign(task_book, 1, 10)
    slot, bundle = next(task_book.feed())
    task_book.died(slot, bundle.number + 4, is_at_fault=True)
    task_book.slots[0].is_ready = True
    sent = []
    while not task_book.is_idle:
        slot, bundle = next(task_book.feed())
        sent.append((bundle.piece.first, len(bundle.piece.arguments)))
        assert next(task_book.feed(), None) is None or len(sent) > 4
        task_book.report(slot, bundle.number, len(bundle.piece.arguments), 1)
        task_book.finish(slot)
    assert sent[:5] == [(0, 1), (1, 1), (2, 1), (3, 1), (5, 5)]


def test_reports_of_what_a_slot_does_not_have_are_refused():
    task_book = make()
    slot = task_book.slots[0]
    assert task_book.report(slot, 0, 1, 1) is None
    assign(task_book, 1, 1)
    _, bundle = next(task_book.feed())
    assert task_book.report(slot, bundle.number, 2, 1) is None
    assert task_book.report(slot, bundle.number + 1, 1, 1) is None
    assert task_book.report(slot, bundle.number, 1, 1) is not None


def test_the_donor_is_who_would_need_longest():
    task_book = make(3)
    learn(task_book, 0.004)
    assign(task_book, 1, 12)
    given = list(task_book.feed())
    assert {slot.index for slot, _ in given} == {0, 1, 2}
    task_book.withdraw(1, 0, 100)
    for slot, bundle in given:
        if slot.index == 2:
            task_book.report(slot, bundle.number, len(bundle.piece.arguments), 4_000_000)
            task_book.finish(slot)
    started = [0, 1, 99]
    assert task_book.is_uneven(started)
    assert task_book.donor(started, [0.0, 0.0, 0.0]) is not None
    assert task_book.donor(started, [0.0, 0.3, 0.0]) is task_book.slots[1]
    assert task_book.donor([99, 99, 99], [9.0, 9.0, 0.0]) is None


class Slot:
    """A slot as it is, to be set against how the books have it."""

    def __init__(self):
        self.bundles = []  # [next number, end, first task, assignment, session]
        self.started = -1
        self.limit = self.old_limit = 1 << 62
        self.done = []  # started and ended, not reported
        self.is_running = False

    @property
    def next(self):
        return self.bundles[0][0]


class Worker(RuleBasedStateMachine):
    """An agent with two slots; the gateway, the slots and their ends as Hypothesis likes."""

    def __init__(self):
        super().__init__()
        self.task_book = make(2)
        learn(self.task_book, 1e-6)  # so that bundles are as large as can be
        for book in self.task_book.slots:
            book.next_number = 0
        self.slots = [Slot(), Slot()]
        self.assigned = 0
        self.session = 0
        self.outcome = {}  # task → what became of it, in this session
        self.waiting = set()
        self.freezes = []

    # --- the gateway ---

    @rule(tasks=st.integers(1, 12), is_known=st.booleans())
    def assign(self, tasks, is_known):
        self.assigned += 1
        function = F if is_known else b"later"
        assign(self.task_book, self.assigned, tasks, function=function, first=self.assigned * 100)
        self.waiting.update(range(self.assigned * 100, self.assigned * 100 + tasks))

    @rule()
    def learn_function(self):
        self.task_book.known.add(b"later")

    @precondition(lambda self: self.assigned)
    @rule(data=st.data(), cancel=st.booleans())
    def recall(self, data, cancel):
        number = data.draw(st.integers(1, self.assigned))
        low = number * 100 + data.draw(st.integers(0, 10))
        high = low + data.draw(st.integers(1, 10))
        for first, stop in self.task_book.withdraw(number, low, high):
            self.settle(range(first, stop), "returned")
        if cancel:
            self.task_book.cancel(number, low, high)

    @rule()
    def drop(self):
        """The session is over; the next one uses the same numbers again."""
        self.session += 1
        for slot in self.task_book.drop_all():
            self.slots[slot.index] = Slot()  # it is being killed, and tells nobody anything
        self.outcome, self.waiting, self.assigned = {}, set(), 0

    # --- the agent ---

    @rule(most=st.integers(1, 4))
    def feed(self, most):
        for book, bundle in islice(self.task_book.feed(), most):
            assert not book.is_forsaken
            slot = self.slots[book.index]
            end = bundle.number + len(bundle.piece.arguments)
            number = bundle.piece.terms.assignment
            slot.bundles.append([bundle.number, end, bundle.piece.first, number, self.session])

    @rule(index=st.integers(0, 1))
    def freeze(self, index):
        book, slot = self.task_book.slots[index], self.slots[index]
        if book.bundles:
            freeze = self.task_book.freeze(book, slot.started)
            slot.limit = freeze.bound
            self.freezes.append((book, slot, freeze))

    @precondition(lambda self: self.freezes)
    @rule(data=st.data())
    def reclaim(self, data):
        at = data.draw(st.integers(0, len(self.freezes) - 1))
        book, slot, freeze = self.freezes.pop(at)
        if slot.limit == freeze.bound:
            slot.old_limit = slot.limit  # by now it is sure to be seen
        self.cancelled(self.task_book.reclaim(book, freeze, slot.started))

    # --- the slots ---

    @precondition(lambda self: any(slot.bundles for slot in self.slots))
    @rule(data=st.data(), sees_limit=st.booleans())
    def start(self, data, sees_limit):
        index = data.draw(st.sampled_from([i for i in (0, 1) if self.slots[i].bundles]))
        slot = self.slots[index]
        if slot.is_running:
            return
        number, end, *_ = slot.bundles[0]
        limit = slot.limit if sees_limit else slot.old_limit
        if number < end:
            slot.started = number
        if number < end and number < limit:
            slot.is_running = True
            task = self.task(slot)
            assert self.outcome.get(task) is None, f"{task} runs although {self.outcome[task]}"
            return
        self.report(index)
        slot.bundles.pop(0)
        book = self.task_book.slots[index]
        self.cancelled(self.task_book.finish(book))
        if book.freeze is None:
            slot.limit = slot.old_limit = 1 << 62

    @rule(index=st.integers(0, 1), tells=st.booleans())
    def end_task(self, index, tells):
        slot = self.slots[index]
        if slot.is_running:
            slot.is_running = False
            slot.done.append(slot.next)
            slot.bundles[0][0] += 1
            slot.bundles[0][2] += 1
            if tells:
                self.report(index)

    @rule(index=st.integers(0, 1), fault=st.booleans())
    def die(self, index, fault):
        self.bury(index, fault=fault)

    # --- what it comes to ---

    def task(self, slot):
        return slot.bundles[0][2]

    def report(self, index):
        slot, book = self.slots[index], self.task_book.slots[index]
        if not slot.done:
            return
        found = self.task_book.report(book, slot.done[0], len(slot.done), 1000 * len(slot.done))
        assert found is not None, "the books do not know what the slot did"
        first = found[1]
        self.settle(range(first, first + len(slot.done)), "reported")
        slot.done = []

    def bury(self, index, *, fault=False):
        slot, book = self.slots[index], self.task_book.slots[index]
        running = self.task_book.running(book, slot.started)
        is_at_fault = fault and running is not None
        cancelled = self.task_book.died(book, slot.started, is_at_fault=is_at_fault)
        if is_at_fault:
            self.settle([running[1]], "failed")
        self.cancelled(cancelled)
        self.slots[index] = Slot()
        self.task_book.slots[index].is_ready = True

    def cancelled(self, pieces):
        for piece in pieces:
            self.settle(range(piece.first, piece.stop), "cancelled")

    def settle(self, tasks, how):
        for task in tasks:
            assert task in self.waiting, f"{task} is {how}, but was {self.outcome.get(task)}"
            self.waiting.discard(task)
            self.outcome[task] = how

    @invariant()
    def the_books_hold_what_is_waited_for(self):
        left = RangeSet(pair for held in self.task_book.held.values() for pair in held.left)
        assert {n for first, stop in left for n in range(first, stop)} == self.waiting

    def teardown(self):
        """Let it run to the end: everything must come out."""
        self.task_book.known.add(b"later")
        for book in list(self.task_book.slots):
            if book.is_forsaken:
                self.bury(book.index)
        for _ in range(5000):
            if not self.waiting:
                break
            while self.freezes:
                book, slot, freeze = self.freezes.pop()
                self.cancelled(self.task_book.reclaim(book, freeze, slot.started))
            self.feed(9)
            for index in (0, 1):
                self.end_task(index, False)
                slot = self.slots[index]
                if slot.bundles and not slot.is_running:
                    self.step(index)
        assert not self.waiting, "tasks that never came out"
        assert self.task_book.is_idle

    def step(self, index):
        others, self.slots[1 - index].bundles = self.slots[1 - index].bundles, []

        class Draw:
            def draw(self, _):
                return index

        try:
            self.start(Draw(), True)
        finally:
            self.slots[1 - index].bundles = others


Worker.TestCase.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
test_whatever_happens_no_task_is_lost_or_doubled = Worker.TestCase


def test_tasks_are_stopped_by_the_last_notice_of_them():
    task_book = make()
    assign(task_book, 1, 10)
    task_book.note_stop(1, 0, 8, 100)
    task_book.note_stop(1, 4, 10, 50)
    task_book.note_stop(1, 6, 7, None)
    task_book.note_stop(2, 0, 10, 7)  # of another life
    stops = [task_book.stops_ns(1, task) for task in range(10)]
    assert stops == [100] * 4 + [50, 50, None, 50, 50, 50]
    assert task_book.stops_ns(2, 0) is None


# --- chains -------------------------------------------------------------------------------------


def a_chain(slots=2, tasks=6):
    task_book = make(slots)
    learn(task_book, 0.001)
    terms = AssignmentTerms(1, "job", F, None, False, chained=True)
    task_book.assign(terms, 10, [b"x"] * tasks)
    slot, bundle = next(task_book.feed())
    assert (bundle.piece.first, len(bundle.piece.arguments)) == (10, tasks)
    return task_book, slot, bundle


def test_a_chain_goes_to_one_slot_whole_and_no_other_slot_gets_a_part():
    task_book, slot, bundle = a_chain()
    started = [bundle.number if each is slot else -1 for each in task_book.slots]
    assert not task_book.is_uneven(started)
    assert task_book.donor(started, [9.0, 9.0]) is None


def test_a_slot_may_end_a_chain_early_and_the_rest_is_the_gateways():
    task_book, slot, bundle = a_chain()
    task_book.report(slot, bundle.number, 2, 1_000)
    assert task_book.may_finish(slot)
    assert task_book.finish(slot) == []
    assert list(task_book.feed()) == []
    assert task_book.take_returning() == [(1, (12, 16))]
    assert task_book.is_idle


def test_a_chain_of_a_dead_slot_is_the_gateways_but_for_the_task_at_fault():
    task_book, slot, bundle = a_chain()
    task_book.report(slot, bundle.number, 1, 1_000)
    task_book.died(slot, bundle.number + 3, is_at_fault=True)
    found = RangeSet(span for _, span in task_book.take_returning())
    assert list(found) == [(11, 13), (14, 16)]
    assert task_book.is_idle


def test_a_recall_takes_a_part_of_a_chain_that_came_back():
    task_book, slot, bundle = a_chain()
    freeze = task_book.freeze(slot, bundle.number)
    task_book.reclaim(slot, freeze, bundle.number)
    assert task_book.withdraw(1, 10, 14) == [(11, 14)]
    assert task_book.take_returning() == [(1, (14, 16))]
