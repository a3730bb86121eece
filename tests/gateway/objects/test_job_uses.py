"""What a job holds for its calls (gateway.objects.job_uses, and the catalogue)."""

from types import SimpleNamespace

import pytest

from federation.ranges import RangeSet
from gateway.config.limits import ObjectRoom
from gateway.objects.catalogue import ObjectCatalogue, ObjectKey
from gateway.objects.job_uses import JobUses

MANY = 1_000


def released(uses, *ended, waits=False, looks_max=MANY):
    return uses.release(RangeSet(ended), waits=waits, looks_max=looks_max)[0]


def test_an_object_is_held_until_the_last_call_that_refers_to_it_has_ended():
    uses = JobUses()
    uses.hold(["a", "b"], (0, 2))
    uses.hold(["b"], (2, 3))
    assert released(uses, (0, 1)) == []
    assert released(uses, (0, 2)) == ["a"]
    assert "b" in uses
    assert released(uses, (0, 3)) == ["b"]
    assert "b" not in uses


def test_results_of_others_are_held_while_calls_wait_and_some_things_until_the_job_ends():
    uses = JobUses()
    uses.hold_waited(["a", "b"])
    uses.hold_whole(["b"])
    uses.hold(["a"], (4, 5))
    assert released(uses, waits=True) == []
    assert released(uses) == []
    assert released(uses, (4, 5)) == ["a"]
    assert "b" in uses


def test_no_more_is_looked_at_than_allowed_and_the_others_come_next():
    uses = JobUses()
    for task in range(10):
        uses.hold([task], (task, task + 1))
    found = []
    for _ in range(4):
        keys, looks = uses.release(RangeSet([(5, 10)]), waits=False, looks_max=3)
        assert looks <= 3
        found += keys
    assert sorted(found) == [5, 6, 7, 8, 9]


@pytest.fixture
def catalogue():
    found = ObjectCatalogue(ObjectRoom(1_000))
    assert found.put(ObjectKey("p", b"1"), 6, "ann", 1, 0.0) == ""
    return found


def progress(*ended, blocked=0):
    return {"j": SimpleNamespace(ended=RangeSet(ended), blocked=blocked)}


def test_an_open_job_lets_go_of_what_its_ended_calls_referred_to(catalogue):
    key = ObjectKey("p", b"1")
    catalogue.hold("j", "ann", "p", [b"1"], (0, 1))
    assert catalogue.let_go(1, "p", b"1") == []
    assert catalogue.calls_ended(progress()) == []
    assert catalogue.calls_ended(progress((0, 1))) == [key]
    assert not len(catalogue)
    assert catalogue.sweep(set(), 1.0) == []


def test_a_result_of_the_same_job_is_held_on_until_it_was_sent(catalogue):
    key = ObjectKey("p", b"1")
    catalogue.hold("j", "ann", "p", [b"1"], (0, 1))
    catalogue.put_result(key, 6, "ann", "j", 0.0)
    catalogue.let_go(1, "p", b"1")
    assert catalogue.calls_ended(progress((0, 1))) == []
    assert catalogue.deliver(key, "j", None) == [key]


def test_the_end_of_the_job_lets_go_of_the_rest(catalogue):
    catalogue.hold("j", "ann", "p", [b"1"], (0, 1))
    catalogue.hold("j", "ann", "p", [b"1"], waited=True)
    catalogue.let_go(1, "p", b"1")
    assert catalogue.calls_ended({}) == []
    assert catalogue.sweep(set(), 1.0) == [ObjectKey("p", b"1")]
    assert catalogue.calls_ended({}) == []


def test_jobs_whose_calls_have_ended_are_looked_at_no_more_and_a_turn_is_bounded(
    catalogue, monkeypatch
):
    looks = []
    release = JobUses.release

    def counted(self, *given, **how):
        looks.append(self)
        return release(self, *given, **how)

    monkeypatch.setattr(JobUses, "release", counted)
    monkeypatch.setattr("gateway.objects.catalogue.LOOKS_MAX", 10)
    jobs = {}
    for number in range(25):
        catalogue.hold(f"j{number}", "ann", "p", [b"1"], (0, 1))
        jobs[f"j{number}"] = SimpleNamespace(ended=RangeSet([(0, 1)]), blocked=0)
    for expected in (10, 10, 5, 0):
        looks.clear()
        catalogue.calls_ended(jobs)
        assert len(looks) == expected
    assert catalogue.let_go(1, "p", b"1") == [ObjectKey("p", b"1")]
