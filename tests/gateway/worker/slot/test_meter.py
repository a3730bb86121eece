"""The charge of a slot's tasks: its word, within the time that the agent has seen pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.worker.slot.meter import BUNDLE_NS, GAP_NS, SHARE, SPARE_NS, Attention, Meter, Moment

MS = 10**6
S = 10**9


class Clock:
    """A meter's slot, and an agent that looks at it often."""

    def __init__(self):
        self.now_ns = 1000 * S
        self.attention = Attention(self.now_ns)
        self.meter = Meter()

    def passes(self, ns):
        for _ in range(ns // (50 * MS)):
            self.now_ns += 50 * MS
            self.attention.at(self.now_ns)
        self.now_ns += ns % (50 * MS)

    @property
    def moment(self):
        return self.attention.at(self.now_ns)

    def hand(self):
        self.meter.hand(self.moment)

    def bundle(self, took_ns, said_ns, tasks=1):
        """A bundle goes to the idle slot, and its report comes back."""
        self.hand()
        self.passes(took_ns)
        charged_ns = self.meter.charge(said_ns, tasks, self.moment)
        self.meter.rest()
        return charged_ns


def test_a_slot_that_tells_the_time_is_charged_by_its_word():
    clock = Clock()
    for _ in range(1000):
        assert clock.bundle(50 * MS + 800_000, 50 * MS) == 50 * MS


def test_short_tasks_one_by_one_are_not_charged_for_their_way():
    clock = Clock()
    assert sum(clock.bundle(600_000, 20_000) for _ in range(10_000)) == 10_000 * 20_000


def test_a_slot_that_tells_of_nothing_is_charged_all_the_same():
    clock = Clock()
    assert clock.bundle(5 * S, 1) >= 5 * S - SPARE_NS - 5 * S // SHARE
    assert clock.bundle(5 * S, 1) >= 5 * S - BUNDLE_NS - 5 * S // SHARE


def test_lies_about_short_tasks_add_up():
    clock = Clock()
    clock.hand()
    charged_ns = 0
    for _ in range(1000):
        clock.passes(5 * MS)
        charged_ns += clock.meter.charge(0, 1, clock.moment)
    assert charged_ns >= 5 * S - SPARE_NS - BUNDLE_NS - 5 * S // SHARE


def test_nobody_is_charged_more_than_has_passed():
    clock = Clock()
    assert clock.bundle(1 * S, 100 * S) <= 1 * S
    assert clock.bundle(1 * S, 100 * S) <= 1 * S + SPARE_NS


def test_the_time_in_which_a_slot_has_no_work_is_nobodys():
    clock = Clock()
    clock.bundle(1 * S, 1 * S)
    clock.passes(1000 * S)
    assert clock.bundle(1 * S, 1 * S) == 1 * S


def test_an_agent_that_stood_still_charges_nobody_for_that():
    clock = Clock()
    clock.hand()
    clock.now_ns += 60 * S
    assert clock.meter.charge(10 * MS, 1, clock.moment) == 10 * MS


def test_a_task_that_ran_while_the_agent_stood_still_is_charged_by_the_slots_word():
    clock = Clock()
    clock.hand()
    clock.now_ns += 60 * S
    assert clock.meter.charge(50 * S, 1, clock.moment) == 50 * S


@pytest.mark.parametrize("apart_ns", [0, 100_000])
def test_reports_that_are_read_together_are_each_charged_by_the_slots_word(apart_ns):
    """An agent that stood still reads all that its slot has told meanwhile, some at a time."""
    clock = Clock()
    clock.hand()
    clock.now_ns += 60 * S
    charged_ns = []
    for _ in range(1200):
        charged_ns.append(clock.meter.charge(50 * MS, 1, clock.moment))
        clock.now_ns += apart_ns
    assert charged_ns == [50 * MS] * 1200


@pytest.mark.parametrize("rests", [False, True])
def test_what_passed_while_the_agent_stood_still_is_no_room_for_later_tasks(rests):
    clock = Clock()
    clock.hand()
    clock.now_ns += 60 * S
    clock.meter.charge(10 * MS, 1, clock.moment)
    if rests:
        clock.meter.rest()
        clock.hand()
    else:
        clock.passes(GAP_NS)
    assert clock.meter.charge(60 * S, 1, clock.moment) <= GAP_NS + SPARE_NS


def test_what_a_report_without_tasks_leaves_open_is_charged_with_the_next():
    clock = Clock()
    clock.hand()
    clock.passes(5 * S)
    assert clock.meter.charge(0, 0, clock.moment) == 0
    assert clock.meter.charge(0, 1, clock.moment) >= 5 * S - SPARE_NS - BUNDLE_NS - 5 * S // SHARE


@pytest.mark.parametrize("late_ns", [1 * MS, 40 * MS, 150 * MS])
def test_reports_that_are_read_late_by_turns_cost_no_more(late_ns):
    """The slot goes on meanwhile: time that one report seems to take more, the next takes less."""
    clock = Clock()
    clock.hand()
    charged_ns = 0
    for number in range(200):
        clock.passes(50 * MS + (late_ns if number % 2 == 0 else 0))
        if number % 2:
            clock.now_ns -= min(late_ns, 49 * MS)
        charged_ns += clock.meter.charge(50 * MS, 1, Moment(clock.now_ns, clock.now_ns))
    assert charged_ns <= clock.now_ns - 1000 * S


@given(
    st.lists(
        st.tuples(st.integers(0, 10 * S), st.integers(0, 20 * S), st.integers(0, 3), st.booleans())
    )
)
def test_the_sum_is_within_what_has_passed_and_what_was_seen(reports):
    now_ns = seen_ns = charged_ns = 0
    meter, open_ns = Meter(), 0
    attention = Attention(0)
    meter.hand(attention.at(0))
    for took_ns, said_ns, tasks, is_stopped in reports:
        step_ns = took_ns if is_stopped else min(took_ns, GAP_NS)
        now_ns += step_ns
        seen_ns += min(step_ns, GAP_NS)
        open_ns = 0 if tasks else open_ns + min(step_ns, GAP_NS)
        part_ns = meter.charge(said_ns, tasks, attention.at(now_ns))
        assert part_ns >= 0
        assert tasks or not part_ns
        charged_ns += part_ns
    assert charged_ns <= now_ns
    assert charged_ns >= seen_ns - open_ns - SPARE_NS - BUNDLE_NS - seen_ns // SHARE - len(reports)
