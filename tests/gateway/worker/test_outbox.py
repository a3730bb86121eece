"""Reports that wait are merged where they touch; the order of everything else is kept."""

from federation.messages.messages import NeedFunction, Report
from gateway.worker.outbox import MERGED_BYTES_MAX, WorkerOutbox


def report(assignment, first, values, failures=(), prints=()):
    return Report(assignment, first, values, list(failures), list(prints), 10, 5, 100 + first)


def test_reports_that_touch_become_one():
    outbox = WorkerOutbox()
    outbox.add_report(report(1, 0, [b"a", b""], [[1, "error", "text", b"p"]], [[0, "said"]]))
    outbox.add_report(report(1, 2, [b"", b"d"], [[0, "crash", "t", b""]], [[1, "more"]]))
    assert outbox.take() == [
        Report(
            assignment=1,
            first=0,
            values=[b"a", b"", b"", b"d"],
            failures=[[1, "error", "text", b"p"], [2, "crash", "t", b""]],
            prints=[[0, "said"], [3, "more"]],
            wall_ns=20,
            cpu_ns=10,
            peak_memory_bytes=102,
        )
    ]
    assert not outbox.take()


def test_reports_of_two_assignments_merge_in_their_own_places():
    outbox = WorkerOutbox()
    for first in range(3):
        outbox.add_report(report(1, first, [b"a"]))
        outbox.add_report(report(2, first, [b"b"]))
    assert [(each.assignment, len(each.values)) for each in outbox.take()] == [(1, 3), (2, 3)]


def test_reports_with_a_gap_stay_apart():
    outbox = WorkerOutbox()
    outbox.add_report(report(1, 0, [b"a"]))
    outbox.add_report(report(1, 2, [b"c"]))
    outbox.add_report(report(1, 3, [b"d"]))
    assert [(each.first, len(each.values)) for each in outbox.take()] == [(0, 1), (2, 2)]


def test_reports_are_not_merged_beyond_a_bound():
    outbox = WorkerOutbox()
    outbox.add_report(report(1, 0, [b"x" * MERGED_BYTES_MAX]))
    outbox.add_report(report(1, 1, [b"x"]))
    assert len(outbox) == 2


def test_nothing_grows_after_it_was_taken():
    outbox = WorkerOutbox()
    outbox.add_report(report(1, 0, [b"a"]))
    outbox.add(NeedFunction(b"f"))
    assert len(outbox.take()) == 2
    outbox.add_report(report(1, 1, [b"b"]))
    assert [each.first for each in outbox.take()] == [1]
