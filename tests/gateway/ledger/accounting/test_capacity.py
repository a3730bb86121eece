"""Slots over time become records: none twice, none lost, within an hour, and not too many."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ledger.accounting.capacity import CHANGE_S, GAP_S, RECORD_S, CapacityMeter, uncounted
from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.db.usage.records import CapacityRecord

NOON_S = 1_700_000_000.0 // HOUR_S * HOUR_S


def seen(looks, start_at_s=NOON_S):
    """A meter's records of looks, (seconds from the start, slots), and of its end."""
    meter = CapacityMeter()
    records = []
    for after_s, slots in looks:
        records += meter.look({"fast": slots}, start_at_s + after_s)
    return records + meter.close()


def every_second(slots, seconds, first=0):
    return [(first + second, slots) for second in range(seconds + 1)]


def slot_s(records):
    return round(sum(each.slot_ns for each in records) / 1e9, 3)


def test_slots_that_stay_are_written_every_quarter_of_an_hour():
    records = seen(every_second(4, 2000))
    assert [each.until_s - each.since_s for each in records] == [RECORD_S, RECORD_S, 200.0]
    assert {each.slots for each in records} == {4}


def test_a_record_ends_with_the_hour():
    records = seen(every_second(2, 100), NOON_S - 50.5)
    assert [(each.since_s, each.until_s) for each in records] == [
        (NOON_S - 50.5, NOON_S),
        (NOON_S, NOON_S + 49.5),
    ]


def test_a_change_is_written_and_changes_within_a_minute_come_to_the_same_slot_time():
    looks = [(second, 4 if second < 90 else 6) for second in range(121)]
    assert [(each.slots, each.until_s - each.since_s) for each in seen(looks)] == [(4, 90), (6, 30)]
    hectic = [(second, second % 7) for second in range(600)]
    records = seen(hectic)
    assert slot_s(records) == sum(slots for _, slots in hectic[:-1])
    assert len(records) <= 2 * 600 / CHANGE_S


def test_no_slots_have_no_record():
    assert seen(every_second(0, 5000)) == []


def test_a_pool_that_has_gone_has_no_slots():
    meter = CapacityMeter()
    meter.look({"fast": 3}, NOON_S)
    meter.look({}, NOON_S + 30)
    meter.look({}, NOON_S + 59)
    assert slot_s(meter.close()) == 90


def test_what_nobody_saw_is_not_counted():
    records = seen([*every_second(2, 10), *every_second(2, 10, first=10_000)])
    assert slot_s(records) == 40
    assert slot_s(seen([(0, 2), (GAP_S, 2)])) == 2 * GAP_S


def test_a_clock_that_is_set_back_begins_anew_and_counts_no_time_twice():
    records = seen([*every_second(2, 30), *every_second(2, 40, first=0)])
    assert [(each.since_s - NOON_S, each.until_s - NOON_S) for each in records] == [
        (0, 30),
        (0, 40),
    ]
    assert uncounted(records[1:], records[:1]) == [
        CapacityRecord("fast", NOON_S + 30, NOON_S + 40, 2)
    ]


@pytest.mark.parametrize("mad_s", [float("nan"), -1.0, 1e30])
def test_a_clock_that_is_mad_is_not_believed(mad_s):
    assert CapacityMeter().look({"fast": 1}, mad_s) == []


@given(
    st.lists(
        st.tuples(st.floats(0.01, 70.0) | st.floats(-5000, 5000), st.integers(0, 5)), max_size=60
    ),
    st.floats(0, 2 * HOUR_S),
)
def test_whatever_the_clock_does_no_moment_is_in_the_books_twice(steps, start_at_s):
    meter, books, now_s = CapacityMeter(), [], NOON_S + start_at_s

    def keep(records):
        for record in records:
            near = [each for each in books if each.hour == record.hour]
            books.extend(uncounted([record], near))

    for step_s, slots in steps:
        now_s += step_s
        keep(meter.look({"fast": slots}, now_s))
    keep(meter.close())
    assert all(each.since_s < each.until_s for each in books)
    assert all(each.until_s <= (each.hour + 1) * HOUR_S for each in books)
    assert all(each.slots > 0 for each in books)
    ordered = sorted((each.since_s, each.until_s) for each in books)
    assert all(low[1] <= high[0] for low, high in itertools.pairwise(ordered))
    assert len({each.since_s for each in books}) == len(books)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 30)), max_size=8),
    st.tuples(st.integers(0, 100), st.integers(1, 30)),
)
def test_only_what_is_not_in_the_books_is_left_of_a_record(kept, new):
    books = [CapacityRecord("fast", low, low + size, 1) for low, size in kept]
    record = CapacityRecord("fast", new[0], new[0] + new[1], 3)
    fresh = uncounted([record], books)
    covered = {second for low, size in kept for second in range(low, low + size)}
    wanted = set(range(new[0], new[0] + new[1])) - covered
    found = [second for each in fresh for second in range(int(each.since_s), int(each.until_s))]
    assert sorted(found) == sorted(wanted)
    assert {each.slots for each in fresh} <= {3}
