"""Refused jobs are remembered for a while, and nobody can fill the memory with them."""

from dataclasses import replace

from gateway.scheduler.lifecycle.refusals import (
    AGE_S_MAX,
    OF_ALL_MAX,
    OF_USER_MAX,
    TEXT_CHARS_MAX,
    Refusals,
    RefusedJob,
)

ONE = RefusedJob("j", "f", "ann", "risk", False, 3, "not-entitled", "no rule allows it", 100.0)


def ids(refusals: Refusals, now_s: float = 100.0) -> list[str]:
    return [each.job for each in refusals.latest(now_s)]


def test_a_user_that_is_refused_in_a_loop_loses_the_oldest_and_no_other_user_any() -> None:
    refusals = Refusals()
    refusals.note(replace(ONE, job="b", user="bob"))
    for at in range(OF_USER_MAX + 5):
        refusals.note(replace(ONE, job=f"j{at}"))
    found = ids(refusals)
    assert len(found) == OF_USER_MAX + 1
    assert (found[0], found[-2:]) == (f"j{OF_USER_MAX + 4}", ["j5", "b"])


def test_many_users_have_so_many_together() -> None:
    refusals = Refusals()
    for at in range(OF_ALL_MAX + 5):
        refusals.note(replace(ONE, job=f"j{at}", user=f"u{at}"))
    assert (len(ids(refusals)), refusals.get("j4", 100.0)) == (OF_ALL_MAX, None)
    assert refusals.get("j5", 100.0) is not None


def test_they_are_forgotten_by_age() -> None:
    refusals = Refusals()
    refusals.note(ONE)
    refusals.note(replace(ONE, job="k", refused_at_s=200.0))
    assert ids(refusals, 100.0 + AGE_S_MAX) == ["k", "j"]
    assert ids(refusals, 101.0 + AGE_S_MAX) == ["k"]
    assert refusals.get("j", 101.0 + AGE_S_MAX) is None


def test_the_last_refusal_of_a_job_counts() -> None:
    refusals = Refusals()
    refusals.note(ONE)
    refusals.note(replace(ONE, job="k"))
    refusals.note(replace(ONE, code="budget-exhausted"))
    assert ids(refusals) == ["j", "k"]
    found = refusals.get("j", 100.0)
    assert found is not None
    assert found.code == "budget-exhausted"


def test_an_id_is_not_taken_over_by_another_user() -> None:
    refusals = Refusals()
    refusals.note(ONE)
    refusals.note(replace(ONE, user="eve"))
    refusals.accepted("j", "eve")
    found = refusals.get("j", 100.0)
    assert found is not None
    assert found.user == "ann"
    refusals.accepted("j", "ann")
    assert refusals.get("j", 100.0) is None


def test_texts_of_a_client_are_cut_and_cleaned() -> None:
    refusals = Refusals()
    refusals.note(replace(ONE, name="\x1b[2J" + "n" * 300, reason="r" * 3000))
    found = refusals.get("j", 100.0)
    assert found is not None
    assert found.name.startswith("[2Jn")
    assert len(found.name) <= 200
    assert len(found.reason) == TEXT_CHARS_MAX
    refusals.note(replace(ONE, job="x" * 65))
    refusals.note(replace(ONE, job=""))
    assert ids(refusals) == ["j"]
