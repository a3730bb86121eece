"""The share of the loop that heavy questions of one user take (gateway.runtime.user_pace)."""

from gateway.runtime import user_pace
from gateway.runtime.user_pace import BURST_S, LEAST_S, SHARE, WAIT_MAX_S, QuestionPace

HEAVY_S = 0.1


def test_a_user_may_take_a_burst_and_then_a_share():
    pace, now_s, loop_s = QuestionPace(), 0.0, 0.0
    for _ in range(50):
        now_s += pace.wait_s("ann", now_s) + HEAVY_S
        pace.took("ann", HEAVY_S, now_s)
        loop_s += HEAVY_S
    assert loop_s <= BURST_S + SHARE * now_s + 2 * HEAVY_S
    assert loop_s >= SHARE * now_s  # nor is it less
    assert pace.wait_s("bob", now_s) == 0.0
    assert pace.wait_s("ann", now_s + 1000.0) == 0.0


def test_questions_that_wait_together_keep_their_distance():
    pace = QuestionPace()
    waits = [pace.wait_s("ann", 0.0) for _ in range(10_000)]
    assert waits[0] == 0.0
    assert waits[-1] is None
    kept = [each for each in waits if each is not None]
    assert max(kept) <= WAIT_MAX_S
    assert len(kept) <= (WAIT_MAX_S * SHARE + BURST_S) / LEAST_S + 1


def test_few_users_are_remembered(monkeypatch):
    monkeypatch.setattr(user_pace, "USERS_MAX", 3)
    pace = QuestionPace()
    for at in range(100):
        pace.wait_s(f"user-{at}", float(at))
    assert len(pace._full_at_s) <= 4


def test_a_refusal_says_what_was_taken_and_when_to_try_again():
    pace = QuestionPace()
    pace.took("ann", 3.0, 100.0)
    assert pace.wait_s("ann", 100.0) is None
    text = pace.refusal("ann", 100.0)
    assert text == "questions by ann took 3.0 s of this site lately: try again in 15 s"
    assert pace.wait_s("ann", 114.9) is None
    assert pace.wait_s("ann", 115.0) is not None
