"""Which slots run in what, and who moves: the task book's decisions, by tables and at random."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.worker.isolation.homes import BARE, SlotHome
from gateway.worker.pieces import AssignmentTerms
from gateway.worker.task_book import MOVE_S, TaskBook

IMAGE = "image:a|3.11"
OTHER = "image:b|3.11"


class House:
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
        """Feed, and say who moves; they end and begin anew at once."""
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
    house = House(2)
    house.assign("", 10)
    assert house.feed() == (2, [])
    assert house.homes == [BARE, BARE]


def test_a_home_without_a_slot_gets_one_though_others_have_work():
    house = House(1)
    house.assign("", 1)
    house.feed()
    house.assign(IMAGE, 1)
    house.assign("", 5)
    assert house.feed() == (0, [])  # its slot is at work
    house.end(0)
    assert house.feed() == (0, [0])  # and goes first to who came first
    assert house.homes == [SlotHome(IMAGE)]
    assert house.feed()[0] == 1


@pytest.mark.parametrize("other", [OTHER, ""])
def test_homes_by_turns_do_not_keep_a_slot_moving(other):
    house = House(1)
    for _ in range(100):
        house.assign(IMAGE, 1)
        house.assign(other, 1)
    moves = 0
    while not house.task_book.is_idle:
        moves += len(house.feed()[1])
        if house.task_book.slots[0].bundles:
            house.end(0, MOVE_S / 10)
    assert moves <= 2 + 200 // 10


def test_slots_with_nothing_to_do_move_for_work_that_is_worth_it():
    house = House(4)
    house.learn(IMAGE, 0.001)
    house.assign(IMAGE, 100)  # a tenth of a second: for one slot
    assert house.feed()[1] == [0]
    house = House(4)
    house.learn(IMAGE, 1.0)
    house.assign(IMAGE, 3)
    assert house.feed()[1] == [0, 1, 2]
    house = House(4)
    house.assign(IMAGE, 100)  # nobody knows: as many as there are
    assert house.feed()[1] == [0, 1, 2, 3]


def test_a_warm_slot_is_left_where_its_own_work_waits_and_bare_ones_go_first():
    house = House(2)
    house.learn(IMAGE, 0.001)
    house.assign(IMAGE, 1)
    house.feed()
    assert house.homes == [SlotHome(IMAGE), BARE]
    house.feed()
    house.end(0)
    house.learn(OTHER, 0.001)
    house.assign(OTHER, 1)
    assert house.feed()[1] == [1]


def test_what_waits_behind_a_long_task_gets_a_slot_of_its_own():
    house = House(2)
    house.learn(IMAGE, 0.001)
    house.assign(IMAGE, 1)
    house.feed()
    house.feed()
    house.assign(IMAGE, 1)
    assert house.feed()[1] == []  # it is short, as it seems
    at = [house.task_book.slots[0].next_number - 2, -1]
    busy_s = [2 * MOVE_S, 0.0]
    stuck = house.task_book.stuck(at, busy_s)
    assert [slot.index for slot in stuck] == [0]
    freeze = house.task_book.freeze(stuck[0], at[0])
    house.task_book.reclaim(stuck[0], freeze, at[0])
    assert house.feed(busy_s)[1] == [1]
    assert house.task_book.stuck(at, busy_s) == []


def test_other_sites_are_kept_apart_if_their_work_is_shut_in():
    house = House(2, keeps_apart=True, usual=OTHER)
    house.assign("", 1, origin="paris")
    house.assign(IMAGE, 1, origin="rome")
    house.feed()
    assert set(house.homes) == {SlotHome(OTHER, "paris"), SlotHome(IMAGE, "rome")}
    house = House(1)
    house.assign("", 1, origin="paris")
    assert house.feed() == (1, [])


def test_gpus_are_taken_from_those_that_wait_and_never_from_those_that_work():
    house = House(3, gpus=2)
    house.assign("", 1, gpus=1)
    house.assign("", 1, gpus=1)
    house.feed()
    assert sorted(home.gpus for home in house.homes) == [0, 1, 1]
    house.feed()
    house.assign("", 1, gpus=2)
    assert house.feed() == (0, [])
    house.end(0)
    assert house.feed() == (0, [])
    house.end(1)
    moved = house.feed()[1]
    assert len(moved) == 2
    assert sorted(home.gpus for home in house.homes) == [0, 0, 2]
    assert house.feed()[0] == 1


def test_tasks_of_what_can_t_be_made_are_given_up_and_others_stay():
    house = House(1)
    house.assign(IMAGE, 3)
    house.assign("", 2)
    gone = house.task_book.evict(house.functions[IMAGE])
    assert sum(len(piece.arguments) for piece in gone) == 3
    assert list(house.task_book.held) == [2]
    house.assign(OTHER, 2)
    gone = house.task_book.evict_home(SlotHome(OTHER))
    assert sum(len(piece.arguments) for piece in gone) == 2
    assert house.feed() == (1, [])


PIECES = st.tuples(
    st.sampled_from(["", IMAGE, OTHER]), st.integers(1, 30), st.sampled_from(["", "paris"])
)


@given(data=st.data())
def test_whatever_comes_all_of_it_is_run(data):
    """Any work in any homes on few slots: nothing is stuck, and no GPU is held twice."""
    gpus = data.draw(st.sampled_from([0, 2]))
    house = House(data.draw(st.integers(1, 4)), gpus, keeps_apart=data.draw(st.booleans()))
    took_s = st.none() | st.sampled_from([1e-4, 0.01, 1.0])
    for environment in (IMAGE, OTHER, ""):
        if (known_s := data.draw(took_s)) is not None:
            house.learn(environment, known_s)
    for piece in data.draw(st.lists(PIECES, min_size=1, max_size=12)):
        house.assign(*piece, data.draw(st.integers(0, gpus)))
    chance = data.draw(st.randoms(use_true_random=False))
    for _ in range(3000):
        house.feed()
        assert sum(home.gpus for home in house.homes) <= gpus or not gpus
        busy = [slot.index for slot in house.task_book.slots if slot.bundles]
        if not busy and house.task_book.is_idle:
            return
        if busy:
            house.end(chance.choice(busy))
    pytest.fail(f"work was left: {house.homes}")
