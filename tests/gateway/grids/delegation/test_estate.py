"""The leftovers of a former life: recognised by their label alone, and given away once."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.grids.delegating import Done
from gateway.grids.delegation.estate import Estate, label_of
from gateway.grids.delegation.parcels import ParcelBook
from gateway.worker.pieces import AssignmentTerms

DIGEST = b"f" * 32
TERMS = AssignmentTerms(7, "job", DIGEST, None, False)


def calls(first, stop):
    return [b"%d" % n for n in range(first, stop)]


def left(*spans):
    estate = Estate()
    for number, (first, stop) in enumerate(spans):
        estate.add(f"old-1-{number}", label_of(TERMS, first, calls(first, stop)), float(number))
    return estate


def test_parcels_are_found_whole_in_order_and_no_task_twice():
    estate = left((4, 6), (0, 2), (1, 3), (5, 9), (8, 12))
    assert estate.find(TERMS, 0, calls(0, 10)) == [("old-1-1", 0, 2), ("old-1-0", 4, 6)]
    assert estate.find(TERMS, 5, calls(5, 12)) == [("old-1-3", 5, 9)]
    assert estate.find(TERMS, 20, calls(20, 30)) == []


def test_whoever_has_other_calls_under_the_same_numbers_gets_nothing():
    estate = left((0, 2))
    assert estate.find(TERMS, 0, [b"0", b"other"]) == []
    for other in (
        AssignmentTerms(7, "another", DIGEST, None, False),
        AssignmentTerms(7, "job", b"g" * 32, None, False),
        AssignmentTerms(7, "job", DIGEST, 1.0, False),
        AssignmentTerms(7, "job", DIGEST, None, True),
    ):
        assert estate.find(other, 0, calls(0, 2)) == []
    assert estate.find(TERMS, 0, calls(0, 2))


def test_the_border_between_two_arguments_counts():
    assert label_of(TERMS, 0, [b"ab", b"c"]) != label_of(TERMS, 0, [b"a", b"bc"])


def test_what_is_done_is_kept_for_whoever_claims_it_and_what_is_stale_is_named():
    estate = left((0, 1), (1, 2))
    done = Done("old-1-0", [b"v"])
    estate.keep(done)
    assert estate.drop("old-1-0") is done
    assert estate.drop("old-1-1") is None
    assert not estate
    assert estate.find(TERMS, 0, calls(0, 2)) == []
    estate = left((0, 1), (1, 2))
    assert estate.stale(0.5) == ["old-1-0"]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5))), st.integers(0, 10))
def test_a_book_sends_what_was_not_left_and_nothing_else(spans, first):
    """For any leftovers in any place: every task is under way or sent, once."""
    estate = left(*((low, low + size) for low, size in spans))
    book = ParcelBook("p-1", 40)
    book.known.add(DIGEST)
    arguments = calls(first, first + 12)
    found = estate.find(TERMS, first, arguments)
    book.assign(TERMS, first, arguments, found, 1.0)
    taken = [task for _, low, high in found for task in range(low, high)]
    sent = [int(each) for parcel in book.feed() for each in parcel.arguments]
    assert sorted(taken + sent) == list(range(first, first + 12))
    for name, low, high in found:
        book.done(Done(name, [b"v"] * (high - low), wall_ns=1), 2.0)
    assert (
        sum(stop - start for start, stop in book.held[7].left) == len(sent)
        if sent
        else (book.is_idle)
    )
