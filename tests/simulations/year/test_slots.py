"""Slots run tasks and stop them as told, and account for all of it."""

from federation.messages.messages import Assign, Notice, Recall
from gateway.scheduler.model import events
from policies.placement.asks import FASTEST
from simulations.world.clock import Clock
from simulations.year.slots import YearSlots
from simulations.year.work import YearJob

DIGEST = b"f" * 32


class Bench:
    """Four slots, and their reports."""

    def __init__(self, until_s: float = 1e6) -> None:
        self.clock = Clock()
        self.said: list[tuple[float, events.Event]] = []
        self.work = YearJob(0, "nasa", "u1", 0.0, 100.0, 9, 100.0, FASTEST, 900.0, DIGEST)
        works = {self.work.payload: self.work}
        self.slots = YearSlots(self.clock, 1, 4, works, self.hear, until_s)

    def hear(self, event: events.Event) -> None:
        self.said.append((self.clock.now_s, event))

    def assign(self, number: int, first: int, count: int) -> None:
        arguments = [self.work.payload] * count
        self.slots.order(Assign(number, "j", DIGEST, first, arguments, None, False))

    def pass_until(self, at_s: float) -> None:
        self.clock.run(at_s, lambda: False)

    def reports(self) -> list[tuple[float, int, int, str]]:
        """When, from which task on, how many, and how they ended."""
        return [
            (at_s, each.first, len(each.values), each.failures[0][1] if each.failures else "ok")
            for at_s, each in self.said
            if isinstance(each, events.Reported)
        ]


def test_tasks_that_begin_together_are_reported_together():
    bench = Bench()
    bench.assign(7, 0, 3)
    bench.pass_until(1_000)
    assert bench.reports() == [(100.0, 0, 3, "ok")]
    assert bench.said[0][1].wall_ns == 300 * 10**9
    assert bench.slots.used.done_s == 300.0


def test_what_has_no_slot_waits_for_one():
    bench = Bench()
    bench.assign(7, 0, 6)
    bench.pass_until(1_000)
    assert bench.reports() == [(100.0, 0, 4, "ok"), (200.0, 4, 2, "ok")]


def test_what_is_told_to_stop_stops_then_and_the_rest_goes_on():
    bench = Bench()
    bench.assign(7, 0, 4)
    bench.pass_until(10)
    bench.slots.order(Notice(7, 2, 4, 30.0))
    bench.pass_until(1_000)
    assert bench.reports() == [(40.0, 2, 2, "preempted"), (100.0, 0, 2, "ok")]
    used = bench.slots.used
    assert (used.done_s, used.lost_s, used.stopped) == (200.0, 80.0, 2)


def test_a_notice_that_is_taken_back_counts_no_more_for_whom_it_is_taken_back():
    bench = Bench()
    bench.assign(7, 0, 4)
    bench.slots.order(Notice(7, 0, 4, 30.0))
    bench.slots.order(Notice(7, 1, 3, None))
    bench.pass_until(1_000)
    assert sorted(bench.reports()) == [
        (30.0, 0, 1, "preempted"),
        (30.0, 3, 1, "preempted"),
        (100.0, 1, 2, "ok"),
    ]


def test_what_has_not_begun_is_handed_back_and_what_runs_only_ends_if_it_must():
    bench = Bench()
    bench.assign(7, 0, 9)
    bench.slots.order(Recall(7, 2, 8, False))
    assert bench.said == [(0.0, events.HandedBack(1, 7, ((4, 8),)))]
    bench.pass_until(50)
    bench.slots.order(Recall(7, 0, 2, True))
    bench.pass_until(1_000)
    # The ninth had waited, and began when the first two were stopped.
    assert bench.reports() == [
        (50.0, 0, 2, "cancelled"),
        (100.0, 2, 2, "ok"),
        (150.0, 8, 1, "ok"),
    ]


def test_use_is_counted_by_the_day_and_not_beyond_the_end():
    bench = Bench(until_s=86_450.0)
    bench.pass_until(86_360.0)
    bench.clock.at(86_360.0, lambda: bench.assign(7, 0, 2))
    bench.pass_until(90_000.0)
    assert bench.slots.used.done_s == 180.0
    assert bench.slots.days == [80.0, 100.0]
