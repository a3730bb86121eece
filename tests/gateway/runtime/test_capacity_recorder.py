"""The slots of a running site in its books, across restarts and for any steps of its clock."""

import itertools

import pytest
from support.processes import wait_until

from gateway.ledger.db.checks import HOUR_S
from gateway.runtime.environment import RuntimeEnvironment

pytestmark = pytest.mark.real

NOON_S = 1_700_000_000.0 // HOUR_S * HOUR_S


@pytest.fixture
def live(make_inner):
    """Run a site of two slots for a time, as its clock has it; its books and its report.

    It looks itself, once a second, at the same clock.
    """

    def live_(start_s, seconds):
        clock = [start_s]
        inner = make_inner(2, runtime=RuntimeEnvironment(utc_s=lambda: clock[0]))
        site = inner.site
        wait_until(lambda: site.broker.workers, "the worker")
        inner.call(site.recorder.look)
        for at in range(30, seconds + 1, 30):
            clock[0] = start_s + at
            inner.call(site.recorder.look)
        wait_until(lambda: not site.recorder._waiting, "the store")
        seen = sum(each.slot_ns for each in site.recorder.unwritten())
        inner.stop()
        return seen

    return live_


def books(make_inner):
    inner = make_inner()
    hours = range(int(NOON_S // HOUR_S) - 1, int(NOON_S // HOUR_S) + 3)
    found = [each for hour in hours for each in inner.site.store.usage.capacity_of("local", hour)]
    inner.stop()
    return found


def check(found, slot_s):
    assert sum(each.slot_ns for each in found) == slot_s * 10**9
    ordered = sorted((each.since_s, each.until_s) for each in found)
    assert all(low[1] <= high[0] for low, high in itertools.pairwise(ordered))
    assert all(each.until_s <= (each.hour + 1) * HOUR_S for each in found)


def test_slots_are_counted_across_restarts(make_inner, live):
    live(NOON_S + 600, 1200)
    live(NOON_S + 2400, 2400)  # into the next hour
    check(books(make_inner), 2 * (1200 + 2400))


def test_a_clock_that_was_set_back_while_the_site_was_down_counts_nothing_twice(make_inner, live):
    live(NOON_S + 600, 1200)
    live(NOON_S, 2100)  # over all that it has seen before, and more
    check(books(make_inner), 2 * 2100)


def test_what_is_not_written_yet_is_in_the_report(make_inner, live):
    seen = live(NOON_S, 300)
    assert seen == 600 * 10**9
    check(books(make_inner), 600)
