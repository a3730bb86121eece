"""Which tasks an agent tells to have begun."""

from dataclasses import dataclass

from gateway.worker.oversight import BEGUN_S, newly_begun
from gateway.worker.pieces import AssignmentTerms
from gateway.worker.slot.meter import Moment
from gateway.worker.task_book import TaskBook

NOW = Moment(0, 0)


@dataclass
class Process:
    """The part of a slot's process that is looked at."""

    started: int = -1
    at_work_s: float = 0.0
    is_sending: bool = False

    def busy_s(self, _now_ns):
        return self.at_work_s


def book_with(tasks, *, slots=2, wary=False):
    task_book = TaskBook(slots)
    for slot in task_book.slots:
        slot.is_ready = True
    terms = AssignmentTerms(7, "j", b"f", None, False, wary=wary)
    task_book.known.add(b"f")
    task_book.assign(terms, 10, [b""] * tasks)
    given = list(task_book.feed())
    return task_book, given


def test_a_task_that_runs_for_a_while_is_told_once():
    task_book, _ = book_with(2)
    processes = [Process(0, BEGUN_S / 2), Process()]
    assert newly_begun(task_book, processes, NOW) == []
    processes[0].at_work_s = 1.5
    assert newly_begun(task_book, processes, NOW) == [[7, 10, 1500]]
    assert newly_begun(task_book, processes, NOW) == []
    processes[1].started, processes[1].at_work_s = 0, BEGUN_S
    assert newly_begun(task_book, processes, NOW) == [[7, 11, 250]]


def test_short_tasks_cost_no_word():
    task_book, _ = book_with(2)
    assert newly_begun(task_book, [Process(0, 0.01), Process(0, 0.0)], NOW) == []


def test_what_a_slot_is_at_that_is_nobodys_any_more_is_not_told():
    task_book, _ = book_with(2)
    task_book.drop_all()
    assert newly_begun(task_book, [Process(0, 9.0), Process(0, 9.0)], NOW) == []


def test_wary_tasks_go_to_slots_one_by_one():
    task_book, given = book_with(50, wary=True)
    assert [len(bundle.piece.arguments) for _, bundle in given] == [1, 1]
    assert list(task_book.feed()) == [], "none waits behind another"
