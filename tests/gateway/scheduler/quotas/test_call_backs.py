"""Slots that are kept for the work that others made room for, and stops that did not help."""

from gateway.scheduler.quotas.call_backs import USE_S, WAIT_MIN_S, CallBacks

CLAIM = 1


def called(level=2, before=1):
    """A call for two slots whose tasks have stopped by now, if `gone` is emptied."""
    made, gone = CallBacks(), [True]
    made.called(CLAIM, level, before, lambda: bool(gone))
    return made, gone


def test_slots_are_kept_while_tasks_stop_and_while_there_is_work():
    made, gone = called()
    assert made.levels == {CLAIM: 2}
    assert (made.coming(CLAIM, 0), made.coming(CLAIM, 2), made.coming(0, 0)) == (2, 0, 0)
    assert made.look({}, {CLAIM}, 1_000.0) == []  # still to stop
    gone.clear()
    assert made.look({CLAIM: 1}, {CLAIM}, 1_001.0) == []
    assert made.coming(CLAIM, 1) == 1
    assert made.look({CLAIM: 2}, {CLAIM}, 1_001.5) == []  # it has them
    assert made.coming(CLAIM, 1) == 0  # what it gave up since is taken back at once
    for later in (10.0, 1_000.0):
        assert made.look({CLAIM: 1}, {CLAIM}, 1_001.5 + later) == []
        assert made.levels == {CLAIM: 2}
    assert made.look({CLAIM: 2}, (), 3_000.0) == []
    assert made.levels == {}
    assert made.may_call(CLAIM, 3_000.0)


def test_stops_that_did_not_help_are_not_repeated_for_longer_each_time():
    made, now_s = CallBacks(), 1_000.0
    for failures in range(4):
        assert made.may_call(CLAIM, now_s)
        made.called(CLAIM, 2, 1, lambda: False)
        assert made.look({CLAIM: 1}, {CLAIM}, now_s) == []
        now_s += USE_S
        assert made.look({CLAIM: 1}, {CLAIM}, now_s) == [CLAIM]
        assert made.levels == {}
        wait_s = WAIT_MIN_S * 2**failures
        assert not made.may_call(CLAIM, now_s + wait_s - 0.001)
        now_s += wait_s
    made.called(CLAIM, 2, 1, lambda: False)
    made.look({CLAIM: 2}, {CLAIM}, now_s)  # this one helps
    made.called(CLAIM, 3, 2, lambda: False)
    made.look({CLAIM: 2}, {CLAIM}, now_s)
    assert made.look({CLAIM: 2}, {CLAIM}, now_s + USE_S) == [CLAIM]
    assert made.may_call(CLAIM, now_s + USE_S + WAIT_MIN_S)  # counted from the first again


def test_a_further_call_is_judged_once_its_own_tasks_have_stopped():
    made, gone = called()
    more = [True]
    made.called(CLAIM, 3, 1, lambda: bool(more))
    assert made.levels == {CLAIM: 3}
    gone.clear()
    assert made.look({}, {CLAIM}, 1_000.0) == []
    assert made.look({}, {CLAIM}, 1_000.0 + 2 * USE_S) == []
    more.clear()
    assert made.look({}, {CLAIM}, 1_010.0) == []
    assert made.look({}, {CLAIM}, 1_010.0 + USE_S) == [CLAIM]


def test_a_call_for_a_claim_without_work_ends_and_counts_as_no_failure():
    made, _ = called()
    assert made.look({}, (), 1_000.0) == []
    assert made.levels == {}
    assert made.may_call(CLAIM, 1_000.0)


def test_a_call_after_the_first_tasks_have_stopped_has_its_own_time():
    made, gone = called()
    gone.clear()
    assert made.look({}, {CLAIM}, 1_000.0) == []
    more = [True]
    made.called(CLAIM, 3, 1, lambda: bool(more))
    assert made.look({}, {CLAIM}, 1_000.0 + 2 * USE_S) == []
