"""Which tasks make room for guaranteed work, so that this work can use the room. Pure objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.scheduler.quotas.room_making import (
    GROWTH,
    RoomChoice,
    RoomHeld,
    RoomWanted,
    WorkerRoom,
    choose,
)

GPU = {"gpu": 2.0}


def task(name, place, claim=9, tasks=1, counted=None):
    return RoomHeld(name, claim, place, tasks, counted or {})


def wanting(tasks=1, counted=None, places=(1, 2), claim=0):
    return RoomWanted(claim, tasks, counted or {}, places)


def stopped(wants, rooms, held, surplus=None, free=0):
    found, _ = choose(wants, rooms, held, surplus or {9: 100}, free)
    return {each.what: each.tasks for each in found}


def test_a_task_is_stopped_where_the_tags_are_free_and_not_the_youngest_anywhere():
    rooms = {1: WorkerRoom(0, {"gpu": 0.0}), 2: WorkerRoom(0, {"gpu": 2.0})}
    held = [task("young", 1), task("old", 2)]
    assert stopped([wanting(counted=GPU)], rooms, held) == {"old": 1}


def test_a_task_is_stopped_only_where_the_work_can_run():
    rooms = {1: WorkerRoom(0), 2: WorkerRoom(0)}
    held = [task("young", 1), task("old", 2)]
    assert stopped([wanting(places=(2,))], rooms, held) == {"old": 1}
    assert stopped([wanting(places=())], {1: WorkerRoom(0)}, held) == {}


def test_room_that_is_free_is_used_first_unless_it_has_not_the_tags():
    held = [task("young", 1), task("old", 2)]
    rooms = {1: WorkerRoom(1, {"gpu": 0.0}), 2: WorkerRoom(0, {"gpu": 2.0})}
    assert stopped([wanting(counted=GPU)], rooms, held, free=1) == {"old": 1}
    rooms = {1: WorkerRoom(1, {"gpu": 2.0}), 2: WorkerRoom(0, {"gpu": 2.0})}
    assert stopped([wanting(counted=GPU)], rooms, held, free=1) == {}
    rooms = {1: WorkerRoom(0), GROWTH: WorkerRoom(1, is_any=True)}
    assert stopped([wanting(counted=GPU, places=(1,))], rooms, held, free=1) == {}


def test_nothing_is_stopped_for_tags_that_no_stop_frees():
    rooms = {1: WorkerRoom(0, {"gpu": 1.0}), 2: WorkerRoom(1, {"gpu": 0.0})}
    assert stopped([wanting(counted=GPU)], rooms, [task("a", 1), task("b", 2)], free=1) == {}


def test_tasks_are_stopped_together_if_one_alone_makes_no_room():
    one = {"gpu": 1.0}
    rooms = {1: WorkerRoom(0, {"gpu": 0.0}), 2: WorkerRoom(0, {"gpu": 0.0})}
    held = [
        task("useless", 2),
        task("plain", 1),
        task("first", 1, counted=one),
        task("second", 1, counted=one),
    ]
    found = stopped([wanting(counted=GPU)], rooms, held)
    assert found == {"first": 1, "second": 1}


def test_slots_that_are_idle_while_more_are_in_use_than_there_are_need_any_task_to_end():
    """As when a draining worker still has tasks."""
    assert stopped([wanting(places=(1,))], {1: WorkerRoom(1)}, [task("draining", 7)]) == {
        "draining": 1
    }


def test_free_slots_of_the_pool_are_counted_once():
    """Two workers have room, and the pool has one slot that no claim uses."""
    rooms = {1: WorkerRoom(1), 2: WorkerRoom(1)}
    assert stopped([wanting(2)], rooms, [task("a", 1, tasks=5)], free=1) == {"a": 1}


def test_no_claim_gives_more_than_it_has_beyond_its_guarantee():
    held = [task("most", 1, claim=8, tasks=5), task("less", 2, claim=9, tasks=5)]
    found, _ = choose([wanting(9)], {1: WorkerRoom(0), 2: WorkerRoom(0)}, held, {8: 2, 9: 1}, 0)
    assert found == [RoomChoice("most", 2, 0), RoomChoice("less", 1, 0)]


@pytest.mark.parametrize(("coming", "stops"), [(0, 3), (2, 1), (3, 0), (9, 0)])
def test_for_slots_that_are_coming_nothing_more_is_stopped(coming, stops):
    """Also where the tasks have stopped, and others have taken their room."""
    wants = [wanting(2, places=(1,)), wanting(1, places=(1,))]
    held = [task("a", 1, tasks=9)]
    for slots in range(min(coming, 3) + 1):
        found, _ = choose(wants, {1: WorkerRoom(slots)}, held, {9: 9}, slots, {0: coming})
        assert sum(each.tasks for each in found) == stops


def test_each_want_has_its_own_room():
    rooms = {1: WorkerRoom(0, {"gpu": 2.0}), 2: WorkerRoom(0)}
    held = [task("one", 1, tasks=2), task("two", 2)]
    found, _ = choose(
        [wanting(2, GPU, (1,), claim=0), wanting(1, None, (1, 2), claim=1)], rooms, held, {9: 9}, 0
    )
    assert found == [RoomChoice("one", 1, 0), RoomChoice("one", 1, 1)]


@pytest.mark.parametrize("tasks", [1, 3])
def test_several_tasks_of_one_assignment_are_chosen_as_they_are_needed(tasks):
    held = [task("a", 1, tasks=3)]
    assert stopped([wanting(tasks, places=(1,))], {1: WorkerRoom(0)}, held) == {"a": tasks}


@given(
    rooms=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=4),
    held=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 2), st.integers(8, 9)),
        max_size=8,
    ),
    wants=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3),
    over=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_what_is_stopped_is_used_and_within_its_bounds(rooms, held, wants, over):
    """A replay: after the stops more of the work has room, and no claim has given too much."""
    places = range(len(rooms))

    def made():
        return {at: WorkerRoom(slots, {"gpu": float(gpu)}) for at, (slots, gpu) in enumerate(rooms)}

    holding = [
        task(at, place % len(rooms), claim, tasks, {"gpu": float(gpu)})
        for at, (place, tasks, gpu, claim) in enumerate(held)
    ]
    wanted = [wanting(tasks, {"gpu": float(gpu)}, tuple(places)) for tasks, gpu in wants]
    free = sum(slots for slots, _ in rooms)
    found, _ = choose(wanted, made(), holding, {8: over[0], 9: over[1]}, free)
    given = {8: 0, 9: 0}
    for each in found:
        given[holding[each.what].claim] += each.tasks
    assert given[8] <= over[0]
    assert given[9] <= over[1]
    for at, each in enumerate(holding):
        assert sum(one.tasks for one in found if one.what == at) <= each.tasks
    after = made()
    for each in found:
        held_by = holding[each.what]
        after[held_by.place].change(held_by.counted, each.tasks)
    if found and len(wanted) == 1:  # of several, one may take the room that was made for another
        assert placed(wanted, after) > placed(wanted, made())


def placed(wants, rooms):
    """How many tasks have room, each want in its order and worker by worker."""
    count = 0
    for want in wants:
        left = want.tasks
        for place in want.places:
            tasks = min(left, rooms[place].fits(want.counted))
            rooms[place].change(want.counted, -tasks)
            left -= tasks
            count += tasks
    return count
