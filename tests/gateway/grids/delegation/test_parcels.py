"""The books of a lot: every task is settled once, in any behaviour of an engine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.ranges import RangeSet
from gateway.grids.delegating import Done
from gateway.grids.delegation.parcels import AHEAD, RECALL_S, ParcelBook, regroup
from gateway.worker.pieces import AssignmentTerms

DIGEST = b"f" * 32


def opened(slots=2, tasks=4, timeout_s=None):
    book = ParcelBook("p-1", slots)
    book.known.add(DIGEST)
    book.assign(
        AssignmentTerms(7, "job", DIGEST, timeout_s, False), 10, [b"%d" % n for n in range(tasks)]
    )
    return book


def done(parcel, count=None, **more):
    values = [b"v"] * (len(parcel.arguments) if count is None else count)
    return Done(parcel.name, **{"values": values, "wall_ns": 1_000_000, **more})


def test_nothing_goes_out_before_its_function_is_there():
    book = opened()
    book.known.clear()
    assert list(book.feed()) == []
    book.known.add(DIGEST)
    assert len(list(book.feed())) == 4


def test_who_waits_for_a_function_keeps_its_place_and_holds_up_nobody():
    book = ParcelBook("p-1", 1)
    for number, digest in enumerate((b"u" * 32, DIGEST, b"u" * 32, DIGEST)):
        book.assign(AssignmentTerms(number, "job", digest, None, False), 0, [b"%d" % number])
    book.known.add(DIGEST)
    one, three = book.feed()
    assert [one.arguments, three.arguments] == [[b"1"], [b"3"]]
    book.known.add(b"u" * 32)
    for parcel in (one, three):
        book.done(done(parcel), 0.0)
    assert [parcel.arguments for parcel in book.feed()] == [[b"0"], [b"2"]]


def test_unknown_durations_go_one_by_one_and_known_ones_together():
    book = opened(slots=1, tasks=12)
    first, second = book.feed()
    assert [first.arguments, second.arguments] == [[b"0"], [b"1"]]
    (report,) = book.done(done(first), 0.0)
    assert (report.first, report.values, report.wall_ns) == (10, [b"v"], 1_000_000)
    book.done(done(second), 0.0)
    (rest,) = book.feed()
    assert len(rest.arguments) == 10


def test_an_outcome_counts_once():
    book = opened()
    parcel, *_ = book.feed()
    assert len(book.done(done(parcel), 0.0)) == 1
    assert book.done(done(parcel), 0.0) == []
    assert book.lost(parcel.name, "late") == []
    assert book.done(Done("nobody-1-9", [b"v"]), 0.0) == []


def test_what_is_lost_is_preempted_and_what_breaks_is_tried_alone():
    book = opened(slots=1, tasks=14)
    first, second = book.feed()
    (report,) = book.lost(first.name, "reclaimed")
    assert report.failures == [[0, "preempted", "reclaimed", b""]]
    assert report.wall_ns == 0
    book.done(done(second), 0.0)
    (many,) = book.feed()
    assert book.broken(many.name, "bang", 0.0) == []
    one, other = book.feed()
    assert [len(one.arguments), len(other.arguments)] == [1, 1]
    (report,) = book.broken(one.name, "bang", 0.0)
    assert report.failures == [[0, "crash", "bang", b""]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": [[5, "error", "text", b""]]},
        {"failures": [[0, "lost", "text", b""]]},
        {"failures": [["0", "error", "text", b""]]},
        {"prints": [[9, "text"]]},
        {"cpu_ns": -1},
        {"count": 3},
        {"values": 5},
        {"values": ["text"]},
        {"failures": 5},
        {"failures": [5]},
        {"failures": [[0, [], "text", b""]]},
        {"prints": None},
        {"wall_ns": "long"},
    ],
)
def test_nonsense_is_no_outcome(wrong):
    book = opened()
    parcel, *_ = book.feed()
    (report,) = book.done(done(parcel, **wrong), 0.0)
    assert report.failures[0][1] == "crash"


def test_a_result_that_no_message_holds_is_a_crash_that_says_so():
    book = opened()
    book.result_bytes_max = 100
    one, two, *_ = book.feed()
    (report,) = book.done(done(one, values=[b"v" * 151]), 0.0)
    assert report.failures[0][1] == "crash"
    assert "exceeds 100 bytes" in report.failures[0][2]
    (report,) = book.done(done(two, values=[b"v" * 100], prints=[[0, "p" * 50]]), 0.0)
    assert not report.failures


def test_what_a_parcel_has_not_come_to_waits_again():
    book = opened(slots=1, tasks=12)
    for parcel in list(book.feed()):
        book.done(done(parcel), 0.0)
    (many,) = book.feed()
    (report,) = book.done(done(many, 4), 0.0)
    assert (report.first, len(report.values)) == (12, 4)
    (rest,) = book.feed()
    assert rest.arguments == [b"6", b"7", b"8", b"9", b"10", b"11"]


def test_a_recall_is_answered_when_the_engine_has_spoken():
    book = opened(slots=1, tasks=4)
    first, second = book.feed()
    asked = book.recall(7, 10, 14, 0.0, kill=False)
    assert asked == sorted([first.name, second.name])
    assert book.answers(0.1) == []
    book.begun(first.name, 0.1)
    assert book.cancelled(second.name, 0.1) == []
    (answer,) = book.answers(0.1)
    assert answer.ranges == [[11, 14]]
    assert len(book.done(done(first), 0.2)) == 1
    assert book.is_idle


def test_a_recall_is_answered_in_time_and_what_comes_back_later_waits_again():
    book = opened(slots=1, tasks=2)
    first, _ = book.feed()
    book.recall(7, 10, 12, 0.0, kill=False)
    (answer,) = book.answers(RECALL_S)
    assert answer.ranges == []
    book.cancelled(first.name, 3.0)
    assert [each.arguments for each in book.feed()] == [[b"0"]]
    assert not book.is_idle


def test_what_is_killed_is_reported_as_cancelled():
    book = opened(slots=1, tasks=2)
    first, second = book.feed()
    book.begun(first.name, 0.0)
    assert book.recall(7, 10, 12, 0.0, kill=True) == sorted([first.name, second.name])
    (report,) = book.cancelled(first.name, 0.1)
    assert report.failures == [[0, "cancelled", "stopped on request", b""]]
    assert book.cancelled(second.name, 0.1) == []
    (answer,) = book.answers(0.1)
    assert answer.ranges == [[11, 12]]
    assert book.is_idle


def test_a_notice_stops_what_is_out_when_its_time_has_come():
    book = opened(slots=1, tasks=2)
    first, _ = book.feed()
    book.note_stop(7, 10, 11, 5.0)
    assert book.due(4.9) == []
    assert book.due(5.0) == [first.name]
    (report,) = book.cancelled(first.name, 5.1)
    assert report.failures[0][1] == "preempted"
    book.note_stop(7, 11, 12, 6.0)
    book.note_stop(7, 11, 12, None)
    assert book.due(9.0) == []


def test_what_hangs_beyond_its_limits_times_out():
    book = opened(tasks=1, timeout_s=1.0)
    (parcel,) = book.feed()
    book.begun(parcel.name, 0.0)
    assert book.due(30.0) == []
    assert book.due(31.5) == [parcel.name]
    (report,) = book.cancelled(parcel.name, 31.6)
    assert report.failures[0][1] == "timeout"


@pytest.mark.parametrize(
    ("lots", "slots", "verdict"),
    [
        ([], 0, ([], 0)),
        ([], 5, ([], 5)),
        ([(1, 5)], 5, ([], 0)),
        ([(1, 5)], 8, ([], 3)),
        ([(1, 5), (2, 3)], 5, ([2], 0)),
        ([(1, 5), (2, 3)], 4, ([2, 1], 4)),
        ([(1, 5), (2, 3)], 0, ([2, 1], 0)),
        ([(1, 5), (2, 1), (3, 1)], 8, ([2], 2)),
    ],
)
def test_lots_become_as_many_slots_as_there_are(lots, slots, verdict):
    assert regroup(lots, slots, 3) == verdict


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_each_task_is_settled_once_whatever_the_engine_does(data):  # noqa: C901 - a story
    book = ParcelBook("p-1", data.draw(st.integers(1, 3)))
    book.known.add(DIGEST)
    settled: dict[int, RangeSet] = {}
    given_: dict[int, tuple[int, int]] = {}
    gone = ["p-1-77"]
    now_s = 0.0

    def settle(assignment, first, stop):
        low, high = given_[assignment]
        assert low <= first < stop <= high
        done_ = settled.setdefault(assignment, RangeSet())
        assert not done_.within(first, stop), "settled twice"
        done_.add(first, stop)

    def hear(reports):
        for report in reports:
            settle(report.assignment, report.first, report.first + len(report.values))

    def answer():
        for returned in book.answers(now_s):
            for first, stop in returned.ranges:
                settle(returned.assignment, first, stop)

    steps = ["assign", "feed", "begun", "done", "short", "lost", "broken", "cancelled"]
    for step in data.draw(
        st.lists(st.sampled_from([*steps, "recall", "kill", "notice", "due", "late"]), max_size=60)
    ):
        now_s += 0.3
        names = sorted(book.sent) + gone
        name = data.draw(st.sampled_from(names))
        tasks = len(book.sent[name].piece.arguments) if name in book.sent else 1
        if step == "assign":
            number, first = len(given_) + 1, data.draw(st.integers(0, 9))
            count = data.draw(st.integers(1, 8))
            given_[number] = (first, first + count)
            book.assign(AssignmentTerms(number, "j", DIGEST, 1.0, False), first, [b"a"] * count)
        elif step == "feed":
            list(book.feed())
            assert len(book.sent) <= AHEAD * book.slots
        elif step == "begun":
            book.begun(name, now_s)
        elif step in ("done", "short"):
            count = tasks if step == "done" else data.draw(st.integers(0, tasks))
            hear(book.done(Done(name, [b"v"] * count, wall_ns=10), now_s))
        elif step == "lost":
            hear(book.lost(name, "why"))
        elif step == "broken":
            hear(book.broken(name, "why", now_s))
        elif step == "cancelled":
            hear(book.cancelled(name, now_s))
        elif step in ("recall", "kill", "notice") and given_:
            number = data.draw(st.sampled_from(sorted(given_)))
            first = data.draw(st.integers(0, 12))
            span = (number, first, first + data.draw(st.integers(1, 9)))
            if step == "notice":
                book.note_stop(*span, now_s + data.draw(st.sampled_from([0.1, 5.0])))
            else:
                book.recall(*span, now_s, kill=step == "kill")
        elif step == "due":
            book.due(now_s)
        elif step == "late":
            now_s += RECALL_S
        if name not in book.sent:
            gone.append(name)
        answer()
    # An engine that works from here on comes to an end with everything.
    for _ in range(500):
        now_s += RECALL_S
        list(book.feed())
        for name in list(book.sent):
            count = len(book.sent[name].piece.arguments)
            hear(book.done(Done(name, [b"v"] * count, wall_ns=10), now_s))
        answer()
    assert book.is_idle
    assert {number: list(spans) for number, spans in settled.items()} == {
        number: [span] for number, span in given_.items()
    }


def test_what_was_to_be_stopped_and_is_lost_was_stopped():
    book = opened(slots=1, tasks=12)
    for parcel in list(book.feed()):
        book.done(done(parcel), 0.0)
    (many,) = book.feed()
    book.begun(many.name, 0.0)
    book.recall(7, 14, 17, 0.0, kill=True)
    told = {r.first: (len(r.values), r.failures[0][1]) for r in book.lost(many.name, "gone")}
    assert told == {12: (2, "preempted"), 14: (3, "cancelled"), 17: (5, "preempted")}


def test_large_results_are_told_in_parts():
    book = opened(slots=1, tasks=12)
    for parcel in list(book.feed()):
        book.done(done(parcel), 0.0)
    (many,) = book.feed()
    values = [b"", b"x" * 200_000, b"y" * 200_000, *[b"z"] * 6, b"w" * 10**6]
    failures, prints = [[0, "error", "no", b""], [5, "error", "no", b""]], [[2, "two"], [9, "nine"]]
    values[5] = b""
    reports = book.done(Done(many.name, values, failures, prints, 1000, 100, 7), 0.0)
    assert [(each.first, len(each.values)) for each in reports] == [(12, 2), (14, 7), (21, 1)]
    assert [value for each in reports for value in each.values] == values
    assert [each.failures for each in reports] == [[failures[0]], [[3, "error", "no", b""]], []]
    assert [each.prints for each in reports] == [[], [[0, "two"]], [[0, "nine"]]]
    assert sum(each.wall_ns for each in reports) == 1000
    assert sum(each.cpu_ns for each in reports) == 100
    assert book.is_idle
