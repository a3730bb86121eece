"""The objects lent to a slot (gateway.worker.slot.lent_objects)."""

from gateway.worker.slot import lent_objects
from gateway.worker.slot.lent_objects import LentObjects


def test_each_object_is_sent_once_until_it_is_dropped():
    lent = LentObjects()
    assert lent.lend("risk", [b"1", b"2"]) == ([b"1", b"2"], None)
    assert lent.lend("risk", [b"2", b"3"]) == ([b"3"], None)
    assert lent.drop([b"2", b"9"]) == [b"2"]
    assert lent.lend("risk", [b"2"]) == ([b"2"], None)


def test_objects_of_another_project_leave_before_its_tasks_come():
    lent = LentObjects()
    lent.lend("risk", [b"1"])
    assert lent.lend("fx", [b"1"]) == ([b"1"], [])
    assert lent.lend("", []) == ([], [])
    assert lent.lend("fx", []) == ([], None)


def test_the_object_that_was_needed_longest_ago_makes_room(monkeypatch):
    monkeypatch.setattr(lent_objects, "LENT_MAX", 2)
    lent = LentObjects()
    lent.lend("risk", [b"1", b"2"])
    lent.lend("risk", [b"1"])
    assert lent.lend("risk", [b"3"]) == ([b"3"], [b"2"])
    assert lent.lend("risk", [b"4", b"5", b"6"]) == ([b"4", b"5", b"6"], [b"1", b"3"])
