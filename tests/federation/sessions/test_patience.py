"""How long an acknowledgement waits for a message to ride on."""

import pytest

from federation.sessions.patience import WAIT_MAX_S, WAIT_MIN_S, Patience


def exchange(patience, now_s, answer_s):
    """A frame arrives, and ours follows so much later; whether the acknowledgement went alone."""
    patience.owed(now_s)
    is_alone = answer_s >= patience.wait_s
    if is_alone:
        assert patience.is_over(now_s + patience.wait_s)
        patience.went(now_s + patience.wait_s, alone=True)
    else:
        assert not patience.is_over(now_s + answer_s)
    patience.went(now_s + answer_s, alone=False)
    return is_alone


def test_where_answers_take_longer_than_the_shortest_wait_only_the_first_goes_alone():
    patience = Patience()
    alone = [exchange(patience, at, answer_s=0.002) for at in range(5)]
    assert alone == [True, False, False, False, False]


def test_where_nothing_follows_it_waits_no_longer_than_the_shortest():
    patience = Patience()
    exchange(patience, 0.0, answer_s=0.002)
    assert patience.wait_s == pytest.approx(0.003)
    patience.owed(1.0)
    patience.went(1.0 + patience.wait_s, alone=True)
    assert patience.wait_s == WAIT_MIN_S


def test_an_answer_that_takes_too_long_is_not_waited_for():
    patience = Patience()
    alone = [exchange(patience, at, answer_s=WAIT_MAX_S) for at in range(3)]
    assert alone == [True, True, True]
    assert patience.wait_s == WAIT_MIN_S


def test_what_goes_when_nothing_is_owed_says_nothing_about_answers():
    patience = Patience()
    exchange(patience, 0.0, answer_s=0.002)
    waited_s = patience.wait_s
    patience.went(0.5, alone=False)
    assert patience.wait_s == waited_s
