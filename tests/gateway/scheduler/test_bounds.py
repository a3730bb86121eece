"""The usage that a worker or a seller claims counts as far as it is possible."""

from dataclasses import replace

import pytest
from support.pure.windows import PRICE, WindowsWorld, orders

from federation.errors import ProtocolError
from federation.messages import deals
from gateway.contracts.model.purchase import SLACK_S, Purchase, check_time
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Charge, SendToClient, Write


def used(effects):
    found = [e.record for e in effects if isinstance(e, Write)]
    return [each for each in found if isinstance(each, records.UsageRecord)]


def report(world, order, tasks=1, wall_s=0.0, **claims):
    wall_ns = round(wall_s * 1e9)
    return world.do(
        events.Reported(1, order.assignment, order.first, [b""] * tasks, wall_ns=wall_ns, **claims)
    )


def test_one_task_at_a_worker_of_thousands_of_slots_took_no_longer_than_since_it_was_given():
    world = WindowsWorld(slots=(4096,))
    given_s = world.now_s
    [order] = orders(world.submit("j", 1))
    world.now_s += 1.0
    effects = report(world, order, wall_s=4_122.0, cpu_ns=2**62)
    [record] = used(effects)
    assert record.wall_ns == pytest.approx(1e9, rel=0.01)
    assert record.started_at_s >= given_s
    assert record.cpu_ns < 1100 * 10**9
    [charge] = [
        e.charge for e in effects if isinstance(e, SendToClient) and isinstance(e.charge, Charge)
    ]
    assert charge.wall_ns == record.wall_ns, "its owner is told what is charged"
    assert world.broker.durations.of(b"pricing" * 8) < 1.01


def test_many_tasks_run_no_more_at_a_time_than_there_are_slots():
    world = WindowsWorld(slots=(2,))
    world.learn(0.001)
    [order, *_] = orders(world.submit("j", 50))
    tasks = len(order.arguments)
    assert tasks > 2
    world.now_s += 1.0
    [record] = used(report(world, order, tasks, wall_s=1_000.0))
    assert record.wall_ns == pytest.approx(2e9, rel=0.01)


def test_an_honest_report_is_taken_as_it_is():
    world = WindowsWorld(slots=(2,))
    [order, *_] = orders(world.submit("j", 1))
    world.now_s += 100.0
    [record] = used(report(world, order, wall_s=100.0, cpu_ns=250 * 10**9, peak_memory_bytes=2**30))
    assert (record.wall_ns, record.cpu_ns) == (100 * 10**9, 250 * 10**9)
    assert record.peak_memory_bytes == 2**30


def test_no_task_used_more_memory_than_its_host_has():
    world = WindowsWorld(slots=())
    joined = events.WorkerJoined(1, "w", "fast", 1, {}, "3.11")
    world.do(replace(joined, memory_bytes=2**34))
    [order] = orders(world.submit("j", 1))
    world.now_s += 1
    [record] = used(report(world, order, peak_memory_bytes=2**63 - 1))
    assert record.peak_memory_bytes == 2**34


@pytest.mark.parametrize("back_s", [1.0, 10_000.0])
def test_where_the_clock_was_set_back_what_was_expected_counts(back_s):
    world = WindowsWorld(slots=(1,))
    world.learn(2.0)
    [order] = orders(world.submit("j", 1))
    world.now_s -= back_s
    [record] = used(report(world, order, wall_s=1e6))
    assert record.wall_ns == pytest.approx(2e9, rel=0.01)
    assert record.started_at_s <= record.ended_at_s


def purchase():
    quote = deals.Quote("london.1", "fast", 1, 1, 0.0, 0.0, 0.0, 30.0, 1, "USD", PRICE.version)
    return Purchase("london.1", "j", "paris", "fast", 0, 0.0, None, quote)


def deliver(wall_s, tasks=1):
    return deals.Deliver(
        "london.1", 1, 0, [b""] * tasks, [], [], round(wall_s * 1e9), 0, 0, 0, [], 0
    )


def test_a_seller_has_one_second_beyond_what_has_passed_for_a_whole_contract():
    bought = purchase()
    for _ in range(9):
        check_time(bought, deliver(0.1 + 0.1 * SLACK_S), 0.1)
    with pytest.raises(ProtocolError, match="more time than has passed"):
        check_time(bought, deliver(0.1 + 0.2 * SLACK_S), 0.1)


def test_a_seller_whose_clock_runs_a_little_fast_uses_none_of_it():
    bought = purchase()
    for _ in range(1_000):
        check_time(bought, deliver(100.05), 100.0)
        check_time(bought, deliver(500.0, tasks=5), 100.0)
    assert bought.beyond_ns == 0
