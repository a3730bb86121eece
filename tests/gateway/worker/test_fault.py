"""The task at fault when a slot ends: cells hold the writing of the tasks."""

import pytest

from gateway.worker.fault import DOUBT_NS, End, judge
from gateway.worker.oversight import WAY_NS, busy_s
from gateway.worker.pieces import AgentBundle, AssignmentTerms, SlotBook, SlotBundle
from gateway.worker.slot.meter import Moment
from gateway.worker.task_book import TaskBook

TERMS = AssignmentTerms(1, "job", b"f", None, False)
S = 10**9


def slot_with(*, reported=10, alone=False):
    """Its tasks 10 to 19, of which those before `reported` are, and 20 to 29 wait."""
    slot = SlotBook(0, is_ready=True)
    for first in (10, 20):
        slot.bundles.append(
            SlotBundle(first, AgentBundle(TERMS, first, [b""] * 10, alone), first, first + 10)
        )
    slot.bundles[0].reported = reported
    if alone:
        slot.bundles[0].live = reported + 1
        slot.bundles.pop()
    return slot


def end(started, *, at_work=True, doomed=None, breached=False, silent_ns=0, charged_ns=0):
    return End(started, at_work, doomed, breached, silent_ns, charged_ns)


def test_the_slots_word_decides_between_tasks_of_its_bundle():
    assert judge(slot_with(reported=12), end(14)) == (14, True)


@pytest.mark.parametrize("said", [-1, 9, 11, 20, 29, 1 << 61])
@pytest.mark.parametrize("at_work", [False, True])
def test_who_says_that_he_is_at_none_of_his_tasks_is_at_the_first(said, at_work):
    slot = slot_with(reported=12)
    assert judge(slot, end(said, at_work=at_work, charged_ns=S)) == (12, True)


def test_who_says_that_he_is_at_nothing_is_at_the_first():
    assert judge(slot_with(reported=12), end(14, at_work=False, charged_ns=S)) == (12, True)


def test_a_slot_that_ends_before_it_has_come_to_its_work_is_believed_once():
    assert judge(slot_with(), end(9, at_work=False)) == (11, False)
    assert judge(slot_with(alone=True), end(9, at_work=False)) == (10, True)


def test_a_slot_without_work_fails_nobody():
    assert judge(SlotBook(0), end(9))[1] is False
    assert judge(slot_with(reported=20), end(19))[1] is False


def test_the_task_that_the_agent_ended_a_slot_for_is_at_fault_whatever_the_slot_says():
    for said in (-1, 14, 15, 25):
        assert judge(slot_with(), end(said, doomed=14)) == (14, True)
    assert judge(slot_with(), end(22, doomed=22)) == (10, True)


def test_who_comes_after_the_task_that_a_slot_was_ended_for_is_innocent():
    assert judge(slot_with(reported=14), end(15, doomed=13)) == (15, False)


def test_tasks_that_may_have_broken_their_channel_are_tried_one_by_one():
    assert judge(slot_with(), end(10, breached=True)) == (10, True)
    assert judge(slot_with(), end(14, breached=True)) == (15, False)
    assert judge(slot_with(), end(14, at_work=False, breached=True)) == (15, False)


def test_who_worked_for_long_before_his_channel_broke_is_not_tried_again():
    assert judge(slot_with(), end(14, breached=True, silent_ns=DOUBT_NS)) == (14, True)
    assert judge(slot_with(alone=True), end(14, breached=True)) == (10, True)


# --- what a slot is at, while it lives -----------------------------------------------------------


class Process:
    """Of a slot whose task writes to its cells."""

    def __init__(self, at_s=0.0, *, is_sending=False):
        self.at_s, self.is_sending = at_s, is_sending

    def busy_s(self, _now_ns):
        return self.at_s


def test_a_slot_is_at_its_task_for_as_long_as_it_has_told_of_none():
    slot = slot_with()
    slot.meter.hand(Moment(0, 0))
    later = Moment(60 * S, WAY_NS + 20 * S)
    assert busy_s(slot, Process(0.0), later) == 20.0
    assert busy_s(slot, Process(30.0), later) == 30.0
    slot.meter.charge(0, 0, later)
    assert busy_s(slot, Process(0.0), later) == 20.0, "a report of no task tells of none"
    slot.meter.charge(0, 1, later)
    assert busy_s(slot, Process(0.0), later) <= 0.0


def test_a_bundle_that_is_on_its_way_for_long_is_not_at_work():
    slot = slot_with(alone=True)
    slot.meter.hand(Moment(0, 0))
    assert busy_s(slot, Process(is_sending=True), Moment(60 * S, 60 * S)) == 0.0


def book_with(tasks):
    task_book = TaskBook(2)
    task_book.known.add(b"f")
    for slot in task_book.slots:
        slot.is_ready = True
    for _ in range(20):  # so that a bundle has several tasks
        task_book._durations.learn(b"f", 1, 1_000_000)
    task_book.assign(TERMS, 0, [b""] * tasks)
    given = list(task_book.feed())
    return task_book, *given[0]


@pytest.mark.parametrize("said", [-1, 1 << 61])
def test_what_a_slot_is_at_is_not_taken_back_from_it(said):
    task_book, slot, bundle = book_with(20)
    freeze = task_book.freeze(slot, said)
    task_book.reclaim(slot, freeze, said)
    assert bundle.live > bundle.reported
    assert task_book.at(slot, said) == bundle.number
    assert all(low > 0 for low, _ in task_book.withdraw(1, 0, 1))


def test_a_task_that_waits_for_nothing_is_no_gift():
    task_book, slot, bundle = book_with(2)
    assert bundle.live - bundle.number == 1
    assert slot.unstarted(-1) == 0
    assert task_book.holders(1, 0, 1, [-1, -1]) == []


def test_a_slot_that_must_stop_is_through_when_it_has_told_of_what_it_had_come_to():
    task_book, slot, bundle = book_with(20)
    task_book.freeze(slot, bundle.number + 1)
    assert not task_book.may_finish(slot)
    task_book.report(slot, bundle.number, 2, 1)
    assert task_book.may_finish(slot)


def test_what_a_slots_process_left_unexplained_its_next_one_may_not():
    task_book, slot, _ = book_with(2)
    slot.meter.hand(Moment(0, 0))
    assert slot.meter.charge(0, 1, Moment(S // 5, S // 5)) == 0
    task_book.died(slot, 0, is_at_fault=True)
    slot.meter.rest()
    heir = task_book.slots[slot.index].meter
    heir.hand(Moment(S, S))
    assert heir.charge(0, 1, Moment(S + S // 5, S + S // 5)) > 0
