"""When a silent session is given up, on hosts that are on time and on hosts that are not."""

import pytest

from federation.sessions.hearing import SILENT_BEATS, Hearing

BEAT_S, GRACE_S = 0.3, 2.0
LOOK_S = 0.05


def silence(hearing, from_s, *, most_s=GRACE_S):
    """Look again and again until it is given up; how long it was silent by then."""
    now_s = from_s
    while not hearing.is_silent(now_s, BEAT_S, most_s):
        now_s += LOOK_S
        assert now_s < from_s + 100.0, "it is never given up"
    return now_s - hearing.heard_at_s


def beats(hearing, pause_s, count=30):
    """Hear frames with this pause between them, and look in between; the time of the last."""
    now_s = hearing.heard_at_s
    for _ in range(count):
        until_s = now_s + pause_s
        while now_s < until_s:
            assert not hearing.is_silent(now_s, BEAT_S, GRACE_S)
            now_s += LOOK_S
        hearing.heard(now_s)
    return now_s


def test_an_end_that_is_on_time_is_given_up_after_the_usual_beats():
    hearing = Hearing(0.0)
    assert silence(hearing, beats(hearing, BEAT_S)) == pytest.approx(
        SILENT_BEATS * BEAT_S, abs=2 * LOOK_S
    )


def test_an_end_that_is_late_is_given_more_time_and_not_for_ever():
    hearing = Hearing(0.0)
    now_s = beats(hearing, 0.9)
    assert silence(hearing, now_s) == pytest.approx(1.8, abs=3 * LOOK_S)
    slow = Hearing(0.0)
    assert silence(slow, beats(slow, 1.1, count=3), most_s=1.5) == pytest.approx(
        1.5, abs=3 * LOOK_S
    )


def test_a_late_spell_is_forgotten():
    hearing = Hearing(0.0)
    beats(hearing, 1.0, count=2)
    assert silence(hearing, beats(hearing, BEAT_S, count=40)) == pytest.approx(
        SILENT_BEATS * BEAT_S, abs=2 * LOOK_S
    )


def test_time_in_which_this_end_was_not_run_is_no_silence():
    hearing = Hearing(0.0)
    now_s = beats(hearing, BEAT_S) + 50.0  # the process was stopped; frames wait to be read
    assert not hearing.is_silent(now_s, BEAT_S, GRACE_S)
    assert silence(hearing, now_s) == pytest.approx(50.0 + SILENT_BEATS * BEAT_S, abs=3 * LOOK_S)


def test_a_new_pipe_starts_anew():
    hearing = Hearing(0.0)
    hearing.restarted(1000.0)
    hearing.heard(1000.1)
    assert silence(hearing, 1000.1) == pytest.approx(SILENT_BEATS * BEAT_S, abs=2 * LOOK_S)


def test_a_lost_pipe_and_a_new_one_are_no_word_of_the_other_end():
    hearing = Hearing(0.0)
    hearing.heard(3.0)
    hearing.spoke(3.0)
    hearing.restarted(20.0)
    assert (hearing.heard_at_s, hearing.word_at_s) == (20.0, 3.0)


def test_the_other_end_was_there_until_its_last_frame_can_have_come_at_the_earliest():
    hearing = Hearing(0.0)
    hearing.heard(20.0)
    hearing.spoke(4.0)
    assert (hearing.heard_at_s, hearing.word_at_s) == (20.0, 4.0)
    hearing.spoke(3.0)
    assert hearing.word_at_s == 4.0, "it never moves back"


def test_an_end_that_looks_every_half_second_notices_a_short_silence():
    hearing = Hearing(0.0)
    assert [hearing.is_silent(at * 0.5, 0.1, 1.0) for at in range(1, 5)] == [True] * 4
