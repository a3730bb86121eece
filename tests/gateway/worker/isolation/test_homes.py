"""Environments of slots, and slots that move: the task book's choices, by tables and at random."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.worker.isolation.homes import BARE, SlotHome
from gateway.worker.pieces import AssignmentTerms
from gateway.worker.task_book import MOVE_S, TaskBook

IMAGE = "image:a|3.11"
OTHER = "image:b|3.11"


class Harness:
    """A task book whose slots are ready, with functions for environments."""

    def __init__(self, slots, gpus=0, **more):
        self.task_book = TaskBook(slots, gpus, **more)
        self.functions = {"": b"bare", IMAGE: b"in a", OTHER: b"in b"}
        for environment, function in self.functions.items():
            self.task_book.known.add(function)
            if environment:
                self.task_book.settle_in(function, environment)
        self.numbers = 0
        for slot in self.task_book.slots:
            slot.is_ready = True

    def assign(self, environment, tasks, origin="", gpus=0):
        self.numbers += 1
        terms = AssignmentTerms(
            self.numbers, "job", self.functions[environment], None, False, origin, gpus
        )
        self.task_book.assign(terms, 0, [b""] * tasks)

    def learn(self, environment, task_s):
        function = self.functions[environment]
        self.task_book._durations.learn(function, 1000, round(task_s * 1000 * 1e9))

    def feed(self, busy_s=None):
        """Feed, and return the slots that move; they end and begin anew at once."""
        given = list(self.task_book.feed())
        for slot, bundle in given:
            assert self.task_book.home_of(bundle.piece.terms) == slot.home
        moved = self.task_book.moves(busy_s or [0.0] * len(self.task_book.slots))
        for slot in moved:
            assert not slot.bundles
            self.task_book.died(slot, -1, is_at_fault=False)
        for slot in self.task_book.slots:
            slot.is_ready = True
        return len(given), [slot.index for slot in moved]

    @property
    def homes(self):
        return [slot.home for slot in self.task_book.slots]

    def end(self, index, wall_s=MOVE_S):
        slot = self.task_book.slots[index]
        bundle = slot.bundles[0]
        self.task_book.report(slot, bundle.number, bundle.live - bundle.number, round(wall_s * 1e9))
        self.task_book.finish(slot)


def test_without_environments_nobody_ever_moves():
    harness = Harness(2)
    harness.assign("", 10)
    assert harness.feed() == (2, [])
    assert harness.homes == [BARE, BARE]


def test_a_home_without_a_slot_gets_one_though_others_have_work():
    harness = Harness(1)
    harness.assign("", 1)
    harness.feed()
    harness.assign(IMAGE, 1)
    harness.assign("", 5)
    assert harness.feed() == (0, [])  # its slot is at work
    harness.end(0)
    assert harness.feed() == (0, [0])  # and goes first to who came first
    assert harness.homes == [SlotHome(IMAGE)]
    assert harness.feed()[0] == 1


@pytest.mark.parametrize("other", [OTHER, ""])
def test_homes_by_turns_do_not_keep_a_slot_moving(other):
    harness = Harness(1)
    for _ in range(100):
        harness.assign(IMAGE, 1)
        harness.assign(other, 1)
    moves = 0
    while not harness.task_book.is_idle:
        moves += len(harness.feed()[1])
        if harness.task_book.slots[0].bundles:
            harness.end(0, MOVE_S / 10)
    assert moves <= 2 + 200 // 10


def test_slots_with_nothing_to_do_move_for_work_that_is_worth_it():
    harness = Harness(4)
    harness.learn(IMAGE, 0.001)
    harness.assign(IMAGE, 100)  # a tenth of a second: for one slot
    assert harness.feed()[1] == [0]
    harness = Harness(4)
    harness.learn(IMAGE, 1.0)
    harness.assign(IMAGE, 3)
    assert harness.feed()[1] == [0, 1, 2]
    harness = Harness(4)
    harness.assign(IMAGE, 100)  # nobody knows: as many as there are
    assert harness.feed()[1] == [0, 1, 2, 3]


def test_a_warm_slot_is_left_where_its_own_work_waits_and_bare_ones_go_first():
    harness = Harness(2)
    harness.learn(IMAGE, 0.001)
    harness.assign(IMAGE, 1)
    harness.feed()
    assert harness.homes == [SlotHome(IMAGE), BARE]
    harness.feed()
    harness.end(0)
    harness.learn(OTHER, 0.001)
    harness.assign(OTHER, 1)
    assert harness.feed()[1] == [1]


def test_what_waits_behind_a_long_task_gets_a_slot_of_its_own():
    harness = Harness(2)
    harness.learn(IMAGE, 0.001)
    harness.assign(IMAGE, 1)
    harness.feed()
    harness.feed()
    harness.assign(IMAGE, 1)
    assert harness.feed()[1] == []  # it is short, as it seems
    at = [harness.task_book.slots[0].next_number - 2, -1]
    busy_s = [2 * MOVE_S, 0.0]
    stuck = harness.task_book.stuck(at, busy_s)
    assert [slot.index for slot in stuck] == [0]
    freeze = harness.task_book.freeze(stuck[0], at[0])
    harness.task_book.reclaim(stuck[0], freeze, at[0])
    assert harness.feed(busy_s)[1] == [1]
    assert harness.task_book.stuck(at, busy_s) == []


def test_other_sites_are_kept_apart_if_their_work_is_shut_in():
    harness = Harness(2, keeps_apart=True, usual=OTHER)
    harness.assign("", 1, origin="paris")
    harness.assign(IMAGE, 1, origin="rome")
    harness.feed()
    assert set(harness.homes) == {SlotHome(OTHER, "paris"), SlotHome(IMAGE, "rome")}
    harness = Harness(1)
    harness.assign("", 1, origin="paris")
    assert harness.feed() == (1, [])


def test_gpus_are_taken_from_those_that_wait_and_never_from_those_that_work():
    harness = Harness(3, gpus=2)
    harness.assign("", 1, gpus=1)
    harness.assign("", 1, gpus=1)
    harness.feed()
    assert sorted(home.gpus for home in harness.homes) == [0, 1, 1]
    harness.feed()
    harness.assign("", 1, gpus=2)
    assert harness.feed() == (0, [])
    harness.end(0)
    assert harness.feed() == (0, [])
    harness.end(1)
    moved = harness.feed()[1]
    assert len(moved) == 2
    assert sorted(home.gpus for home in harness.homes) == [0, 0, 2]
    assert harness.feed()[0] == 1


def test_tasks_of_what_can_t_be_made_are_given_up_and_others_stay():
    harness = Harness(1)
    harness.assign(IMAGE, 3)
    harness.assign("", 2)
    gone = harness.task_book.evict(harness.functions[IMAGE])
    assert sum(len(piece.arguments) for piece in gone) == 3
    assert list(harness.task_book.held) == [2]
    harness.assign(OTHER, 2)
    gone = harness.task_book.evict_home(SlotHome(OTHER))
    assert sum(len(piece.arguments) for piece in gone) == 2
    assert harness.feed() == (1, [])


PIECES = st.tuples(
    st.sampled_from(["", IMAGE, OTHER]), st.integers(1, 30), st.sampled_from(["", "paris"])
)


@given(data=st.data())
def test_whatever_comes_all_of_it_is_run(data):
    """Any work in any homes on few slots: nothing is stuck, and no GPU is held twice."""
    gpus = data.draw(st.sampled_from([0, 2]))
    harness = Harness(data.draw(st.integers(1, 4)), gpus, keeps_apart=data.draw(st.booleans()))
    took_s = st.none() | st.sampled_from([1e-4, 0.01, 1.0])
    for environment in (IMAGE, OTHER, ""):
        if (known_s := data.draw(took_s)) is not None:
            harness.learn(environment, known_s)
    for piece in data.draw(st.lists(PIECES, min_size=1, max_size=12)):
        harness.assign(*piece, data.draw(st.integers(0, gpus)))
    chance = data.draw(st.randoms(use_true_random=False))
    for _ in range(3000):
        harness.feed()
        assert sum(home.gpus for home in harness.homes) <= gpus or not gpus
        busy = [slot.index for slot in harness.task_book.slots if slot.bundles]
        if not busy and harness.task_book.is_idle:
            return
        if busy:
            harness.end(chance.choice(busy))
    pytest.fail(f"work was left: {harness.homes}")
