"""Orders have their lines in the log; repeated ones of a job share one, and users have a pace."""

from gateway.runtime.order_log import REPEATS_S, OrderLog
from gateway.runtime.user_pace import BURST, ORDERS_PER_S, WAIT_MAX_S, OrderPace


class Clock:
    def __init__(self):
        self.mono_s = 100.0

    def __call__(self):
        return self.mono_s


def test_repeated_orders_about_one_job_share_a_line_with_their_number():
    said, clock = [], Clock()
    log = OrderLog(said.append, clock)
    for at in range(1_000):
        verb, text = ("release", "released") if at % 2 else ("hold", "held")
        log.done("ann", f"job j: {text}", "j", verb)
    log.done("ann", "job k: held", "k", "hold")
    log.done("bob", "job j: held", "j", "hold")
    log.tick()
    assert said == [
        "order by ann: job j: held",
        "order by ann: job j: released",
        "order by ann: job k: held",
        "order by bob: job j: held",
    ]
    clock.mono_s += REPEATS_S
    log.tick()
    assert said[4:] == [
        "order by ann: job j: held (the last of 499 more within 5 s)",
        "order by ann: job j: released (the last of 499 more within 5 s)",
    ]
    clock.mono_s += REPEATS_S
    log.done("ann", "job j: held", "j", "hold")
    assert said[6:] == ["order by ann: job j: held"]


def test_repeated_orders_are_told_at_a_stop():
    said = []
    log = OrderLog(said.append, Clock())
    for priority in (1, 2):
        log.done("ann", f"job j: priority {priority}", "j", "prioritise")
    log.flush()
    log.flush()
    assert said == [
        "order by ann: job j: priority 1",
        "order by ann: job j: priority 2 (the last of 1 more within 5 s)",
    ]


def test_orders_about_nothing_in_particular_have_a_line_each():
    said = []
    log = OrderLog(said.append, Clock())
    log.done("root", "reload {}")
    log.done("root", "reload {}")
    assert len(said) == 2


def test_a_user_has_a_store_of_orders_and_then_a_pace():
    pace = OrderPace()
    assert [pace.wait_s("ann", 0.0) for _ in range(BURST)] == [0.0] * BURST
    waits = [pace.wait_s("ann", 0.0) for _ in range(5)]
    assert [round(each * ORDERS_PER_S) for each in waits] == [1, 2, 3, 4, 5]
    assert pace.wait_s("bob", 0.0) == 0.0
    assert pace.wait_s("ann", 1000.0) == 0.0


def test_more_orders_than_can_wait_are_refused_and_do_not_lengthen_the_wait():
    pace = OrderPace()
    taken = [pace.wait_s("ann", 0.0) for _ in range(10_000)]
    assert taken[-1] is None
    assert sum(each is not None for each in taken) <= BURST + WAIT_MAX_S * ORDERS_PER_S + 1
    assert pace.wait_s("ann", 1.0) is not None
