"""The objects of the object host, and their owners (gateway.objects.shelf)."""

from dataclasses import dataclass, field

import pytest

from federation.clocks import UtcS
from federation.objects.manifests import SHA256
from gateway.objects.catalogue import ObjectKey
from gateway.objects.shelf import HeldRecord, ObjectShelf, OfferedObject
from gateway.objects.tickets import AGENT, CLIENT, ObjectTicket

NOW = UtcS(1000.0)
ANN = ObjectTicket(CLIENT, 1, "ann", "risk")
EVE = ObjectTicket(CLIENT, 2, "eve", "rates")


@dataclass
class File:
    size: int
    closed: list[int] = field(default_factory=list)

    def close(self):
        self.closed.append(1)


def key(number, scope="risk"):
    return ObjectKey(scope, bytes([SHA256]) + bytes([number]) * 32)


def put(
    shelf, number, size=10, *, by="ann's", reason="", name="", for_s=None, at_s=NOW, user="ann"
):
    """Put an object, and have it settled; return its file."""
    assert shelf.reserve(size, user) == ""
    file = File(size)
    offered = shelf.offer(OfferedObject(by, 7, key(number), file, user, name, for_s))
    assert shelf.settle(offered, reason, at_s).file is file
    return file


@pytest.fixture
def shelf():
    return ObjectShelf(100)


def test_there_is_room_for_so_many_bytes_also_of_files_that_are_still_read(shelf):
    assert shelf.reserve(60) == ""
    assert "room for 100 bytes" in shelf.reserve(41)
    assert shelf.reserve(40) == ""
    shelf.give_back(60)
    assert shelf.reserve(60) == ""


def test_there_is_room_for_so_many_files_also_of_those_that_are_still_read():
    shelf = ObjectShelf(100, files_max=2)
    put(shelf, 1, user="")
    assert shelf.reserve(1) == ""
    assert "descriptors for 2 objects" in shelf.reserve(1)
    shelf.give_back(1)
    put(shelf, 1, user="")  # equal bytes: the second file is closed
    put(shelf, 2, user="")
    assert "descriptors for 2 objects" in shelf.reserve(1)
    shelf.drop(key(1))
    assert shelf.reserve(1) == ""


def test_an_object_is_handed_out_once_it_is_settled(shelf):
    assert shelf.reserve(10) == ""
    file = File(10)
    offered = shelf.offer(OfferedObject("ann's", 7, key(1), file, "ann"))
    assert "has no object" in shelf.take(ANN, key(1), "ann's")
    assert shelf.settle(offered, "", NOW).request == 7
    assert shelf.take(ANN, key(1), "ann's") is file
    assert shelf.settle(offered, "", NOW) is None  # said twice


def test_what_the_gateway_refuses_takes_no_room(shelf):
    file = put(shelf, 1, reason="the session is over")
    assert (file.closed, shelf.bytes, len(shelf)) == ([1], 0, 0)


def test_equal_objects_are_one(shelf):
    first, second = put(shelf, 1), put(shelf, 1)
    assert (first.closed, second.closed) == ([], [1])
    assert (shelf.bytes, len(shelf)) == (10, 1)


def test_a_client_reads_in_its_project_alone_and_an_agent_everywhere(shelf):
    file = put(shelf, 1)
    assert "rates" not in shelf.take(EVE, key(1), "eve's")
    assert isinstance(shelf.take(EVE, key(1), "eve's"), str)
    assert shelf.take(ObjectTicket(AGENT), key(1), "agent") is file


def test_a_drop_closes_the_file_and_names_its_readers_but_those_that_left(shelf):
    file = put(shelf, 1)
    for reader in ("one", "two"):
        shelf.take(ObjectTicket(AGENT), key(1), reader)
    shelf.take(ANN, key(1), "a client, which reads answers alone")
    shelf.leave("two")
    assert shelf.drop(key(1)) == {"one"}
    assert (file.closed, shelf.bytes) == ([1], 0)
    assert shelf.drop(key(1)) == set()
    assert shelf.take(ANN, key(1), "one") != file


def test_a_lost_gateway_leaves_what_it_has_settled_and_nothing_else(shelf):
    kept = put(shelf, 1, name="book", for_s=60)
    assert shelf.reserve(20) == ""
    offered = File(20)
    number = shelf.offer(OfferedObject("ann's", 7, key(2), offered, "ann"))
    shelf.forget_offers()
    assert (offered.closed, kept.closed, shelf.bytes) == ([1], [], 10)
    assert shelf.settle(number, "", NOW) is None
    record = HeldRecord("ann", NOW, {("ann", "book"): UtcS(1060.0)}, {"ann": NOW})
    assert list(shelf.records()) == [(key(1), 10, record)]


def test_since_when_each_user_holds_an_object_is_noted(shelf):
    put(shelf, 1)
    shelf.note_holder(key(1), "eve", UtcS(1005.0))
    shelf.note_holder(key(2), "eve", UtcS(1005.0))  # it is dropped meanwhile
    [(_, _, record)] = shelf.records()
    assert record.holders == {"ann": NOW, "eve": UtcS(1005.0)}
    shelf.note_holder(key(1), "ann", None)
    assert record.holders == {"eve": UtcS(1005.0)}


@pytest.fixture
def spilling():
    shelf = ObjectShelf(100)
    shelf.spill_max = 60
    return shelf


def spill(shelf, key):
    """Take a file on disk for an object; return that, and the readers of the one before."""
    file = File(shelf.take(ANN, key, "ann's").size)
    return file, shelf.spilled(key, shelf.take(ANN, key, "ann's"), file)


def test_the_object_that_was_not_asked_for_the_longest_goes_to_disk(spilling):
    first, second = put(spilling, 1, 40), put(spilling, 2, 40)
    assert spilling.to_spill(20) is None  # there is room
    assert spilling.to_spill(101) is None  # it would not help
    assert spilling.to_spill(30) == (key(1), first)
    spilling.take(ANN, key(1), "ann's")
    assert spilling.to_spill(30) == (key(2), second)
    spilling.take(ObjectTicket(AGENT), key(2), "agent's")
    file, readers = spill(spilling, key(2))
    assert readers == {"agent's"}
    assert (second.closed, file.closed) == ([1], [])
    assert (spilling.bytes, spilling.spilled_bytes) == (40, 40)
    assert spilling.reserve(60) == ""
    assert spilling.to_spill(30) is None  # the disk has room for 20 more
    assert spilling.drop(key(2)) == {"agent's"}
    assert (spilling.bytes, spilling.spilled_bytes, file.closed) == (100, 0, [1])


def test_what_was_dropped_while_it_was_written_to_disk_stays_dropped(spilling):
    put(spilling, 1, 40)
    _, before = spilling.to_spill(90)
    spilling.drop(key(1))
    put(spilling, 1, 40)  # again: another file
    assert spilling.spilled(key(1), before, File(40)) is None
    assert (spilling.bytes, spilling.spilled_bytes) == (40, 0)


def test_limits_of_users_and_descriptors_are_judged_before_memory():
    shelf = ObjectShelf(100, files_max=8, user_max=50)
    shelf.spill_max = 1000
    put(shelf, 1, 50, user="bob")
    put(shelf, 2, 40)
    assert "of user ann" in shelf.reserve(60, "ann")  # and not: release others first
    assert "room for 100 bytes of objects, holds 90" in shelf.reserve(20, "ann")
    assert "50 bytes of objects of user ann, holds 40" in shelf.why_not_spill(20, "ann")
    assert shelf.why_not_spill(20, "eve") == ""
    assert shelf.why_not_spill(20) == ""  # of a job: its user is not known here
    shelf.note_holder(key(2), "ann", None)  # ann has let go of it, and another holds it
    assert shelf.why_not_spill(20, "ann") == ""
    for number in range(3, 9):
        put(shelf, number, 1, user=f"user {number}")
    assert "descriptors for 8 objects" in shelf.why_not_spill(20, "eve")


def test_nothing_goes_to_disk_that_would_not_make_enough_room(spilling):
    put(spilling, 1, 40)
    put(spilling, 2, 40)
    assert spilling.to_spill(60) is not None
    assert spilling.to_spill(61) is None  # the disk takes one of the two
    spilling.spill_max = 80
    assert spilling.to_spill(61) is not None


def test_a_name_that_is_given_again_is_noted_with_the_new_object_alone(shelf):
    put(shelf, 1, name="book", for_s=60)
    put(shelf, 2, name="book", for_s=70)
    put(shelf, 2, name="book", for_s=80)
    names = {each.digest[1]: record.names for each, _, record in shelf.records()}
    assert names == {1: {}, 2: {("ann", "book"): UtcS(1080.0)}}
    shelf.drop(key(2))
    put(shelf, 1, name="book", for_s=90)
    assert [record.names for _, _, record in shelf.records()] == [{("ann", "book"): UtcS(1090.0)}]


def test_what_one_user_has_put_and_nobody_has_settled_is_bounded():
    shelf = ObjectShelf(1000, 100, user_max=30)
    assert shelf.reserve(20, "ann") == ""
    assert "30 bytes of objects of user ann, holds 20" in shelf.reserve(11, "ann")
    assert shelf.reserve(30, "bob") == ""
    shelf.give_back(20, "ann")
    assert shelf.reserve(30, "ann") == ""
    file = File(30)
    number = shelf.offer(OfferedObject("ann's", 1, key(1), file, "ann"))
    assert shelf.settle(number, "", NOW) is not None
    assert shelf.reserve(30, "ann") == ""  # the gateway counts what is settled


def test_a_result_is_noted_for_the_user_whose_job_it_is_of():
    shelf = ObjectShelf(1000, 100)
    shelf.reserve(10)
    number = shelf.offer(OfferedObject("an agent", 1, key(1), File(10), ""))
    shelf.settle(number, "", NOW, "ann")
    assert [record.user for _, _, record in shelf.records()] == ["ann"]
    shelf.drop(key(1))
    assert (shelf.bytes, shelf.files, dict(shelf._files_of), dict(shelf._making)) == (0, 0, {}, {})
