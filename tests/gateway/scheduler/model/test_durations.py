"""The duration of a function's tasks: events that teach it, and events that do not."""

from support.pure.town import CHEAP, UTC_S, Town, spec

from gateway.scheduler.model import events
from gateway.scheduler.model.durations import FAILED_SHARE_MAX, Durations

FUNCTION = b"f" * 32


def test_what_fails_says_nothing_of_how_long_success_takes():
    durations = Durations()
    durations.learn(FUNCTION, 200, 200 * 10**5, failed=200)
    assert durations.of(FUNCTION) is None
    durations.learn(FUNCTION, 1, 2 * 10**9)
    assert durations.of(FUNCTION) == 2.0
    durations.learn(FUNCTION, 100, 10**5, failed=50)
    assert durations.of(FUNCTION) == 2.0


def test_a_few_failures_among_many_successes_do_not_hide_them():
    durations = Durations()
    durations.learn(FUNCTION, 100, 10**9, failed=round(100 * FAILED_SHARE_MAX))
    assert durations.of(FUNCTION) == 0.01


def test_where_everything_fails_that_is_the_pace_to_hand_out_by():
    durations = Durations()
    durations.learn(FUNCTION, 10, 10**9, failed=10)
    assert durations.pace(FUNCTION) == 0.1
    durations.learn(FUNCTION, 1, 2 * 10**9)
    assert durations.pace(FUNCTION) == 2.0


def test_calls_that_raise_at_once_promise_nothing():
    town = Town()
    london = town.build("london", CHEAP, 2)
    london.submit(200)
    while any(london.at_work.values()):
        town.now_s += 0.1
        for order in list(london.at_work[1]):
            london.at_work[1].remove(order)
            count = len(order.arguments)
            raised = [[at, "error", "it raises", b""] for at in range(count)]
            used = ([b""] * count, raised, [], count * 10**5, 0)
            london.do(events.Reported(1, order.assignment, order.first, *used))
    assert not london.broker.jobs
    london.exchange.refresh(UTC_S + town.now_s)
    decision = london.exchange.deciding.decide(spec(), 100, UTC_S + town.now_s)
    assert decision.ask.task_s is None
