"""The next peer to be heard, of peers that have sent more than one turn can take."""

import pytest

from gateway.sessions.inbox import Lanes


def make_lanes(**sent):
    """Peers "a", "b" and so on with the messages of each, which came by pipes 1, 2 and so on."""
    lanes = Lanes()
    for pipe, (peer, items) in enumerate(sent.items(), 1):
        lanes.add(pipe, ord(peer), iter([f"{peer}{item}" for item in items]))
    return lanes


def take(lanes, most, most_each=99, weights=None):
    found = []
    for item in lanes.take(most, most_each):
        found.append(item)
        lanes.spend((weights or {}).get(item, 1) - 1)
    return found


def test_lanes_take_turns_and_each_keeps_its_order():
    lanes = make_lanes(a=range(5), b=range(1), c=range(3))
    assert take(lanes, 99, most_each=2) == ["a0", "a1", "b0", "c0", "c1", "a2", "a3", "c2", "a4"]
    assert not lanes


def test_a_turn_ends_in_the_middle_of_a_frame_and_the_next_goes_on_with_the_next_lane():
    lanes = make_lanes(a=range(5), b=range(5))
    assert take(lanes, 3) == ["a0", "a1", "a2"]
    assert take(lanes, 3) == ["b0", "b1", "b2"]
    assert take(lanes, 99) == ["a3", "a4", "b3", "b4"]


def test_the_last_item_of_a_turn_may_exceed_it_and_nothing_comes_after_it():
    lanes = make_lanes(a=range(3), b=range(3))
    assert take(lanes, 10, weights={"a1": 50}) == ["a0", "a1"]


def test_a_heavy_item_ends_the_turn_of_its_lane_alone():
    lanes = make_lanes(a=range(2), b=range(2))
    assert take(lanes, 99, most_each=2, weights={"a0": 5}) == ["a0", "b0", "b1", "a1"]


def test_what_is_spent_counts_for_the_item_at_hand_alone():
    lanes = make_lanes(a=range(9))
    found = []
    for item in lanes.take(6, 99):
        found.append(item)
        for _ in range(2 if item == "a1" else 0):
            lanes.spend(1)
    assert found == ["a0", "a1", "a2", "a3"]


def test_frames_that_say_nothing_count_so_that_no_flood_of_them_is_one_turn():
    lanes = Lanes()
    for _ in range(10):
        lanes.add(1, 7, iter([]))
    lanes.add(2, 8, iter(["b0"]))
    assert take(lanes, 5) == []
    assert lanes.has(1, 7)
    assert take(lanes, 99) == ["b0"]
    assert not lanes


def test_what_was_held_comes_before_what_waits_in_the_same_lane():
    lanes = make_lanes(a=range(2))
    lanes.add(1, ord("a"), iter(["held"]), ahead=True)
    assert take(lanes, 99) == ["held", "a0", "a1"]


def test_a_frame_is_begun_when_its_turn_comes():
    begun = []

    def frame(name):
        begun.append(name)
        yield name

    lanes = Lanes()
    lanes.add(1, 7, frame("first"))
    lanes.add(1, 7, frame("second"))
    assert take(lanes, 1) == ["first"]
    assert begun == ["first"]


@pytest.mark.parametrize("peer", [None, 7])
def test_what_came_before_its_peer_was_known_is_heard_before_what_came_after(peer):
    lanes = Lanes()
    lanes.add(1, None, iter(["hello"]))
    lanes.add(1, peer, iter(["first"]))
    assert lanes.has(1, peer)
    assert len(lanes) == 1
    assert take(lanes, 99) == ["hello", "first"]


def test_a_peer_that_comes_back_by_another_pipe_has_one_lane():
    lanes = Lanes()
    lanes.add(1, 7, iter(["by the first"]))
    lanes.add(2, 7, iter(["by the second"]))
    assert len(lanes) == 1
    assert lanes.has(2, 7)
    assert not lanes.has(2, None)
    assert take(lanes, 99) == ["by the first", "by the second"]
