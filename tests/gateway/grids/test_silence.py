"""When the agent of a local pool is given up that runs and answers no more."""

from gateway.grids.silence import JOIN_S, LOOK_S, Silence


def looks(silence, begin_s, seconds, *, is_here):
    """Look on; return when it was given up, or None."""
    at_s = begin_s
    while at_s < begin_s + seconds:
        at_s += LOOK_S
        if silence.look(at_s, is_here=is_here):
            return at_s
    return None


def test_an_agent_that_has_lost_its_session_is_given_up_after_the_grace():
    silence = Silence(0.0, 10.0)
    assert looks(silence, 0.0, 50.0, is_here=True) is None
    given_up_s = looks(silence, 50.0, 60.0, is_here=False)
    assert given_up_s is not None
    assert 60.0 < given_up_s <= 61.0
    assert silence.lived_s(given_up_s) == 50.0
    assert "runs and does not answer" in silence.text(7)


def test_an_agent_that_comes_back_is_not():
    silence = Silence(0.0, 10.0)
    looks(silence, 0.0, 5.0, is_here=True)
    assert looks(silence, 5.0, 9.0, is_here=False) is None
    assert looks(silence, 14.0, 1.0, is_here=True) is None
    assert looks(silence, 15.0, 9.0, is_here=False) is None


def test_a_new_agent_has_longer_to_join():
    silence = Silence(0.0, 10.0)
    assert looks(silence, 0.0, JOIN_S - 1.0, is_here=False) is None
    assert "has not connected yet; in 1 s it is killed" in silence.text(7)
    assert looks(silence, JOIN_S - 1.0, 3.0, is_here=False) is not None


def test_an_agent_is_not_blamed_for_a_gateway_that_stood_still():
    silence = Silence(0.0, 10.0)
    silence.look(0.5, is_here=True)
    assert not silence.look(3_600.0, is_here=False)
