"""A worker with two sessions has its slots once, wherever slots are counted. Pure objects."""

from types import SimpleNamespace

from support.pure.broker import BrokerWorld, orders

from gateway.api.views import work_views
from gateway.contracts.selling.advertising import take_stock
from gateway.runtime.capacity_recorder import CapacityRecorder
from gateway.runtime.prices import _load
from gateway.scheduler.model import events
from gateway.scheduler.model.present_slots import busy_slots, slots_once


def world_of(*workers):
    """A broker with these workers: name, host, slots and pool."""
    world = BrokerWorld(slots=0)
    for handle, (name, host, slots, *pool) in enumerate(workers, 2):
        world.do(
            events.WorkerJoined(handle, name, *(pool or ["local"]), slots, {}, "3.11", host=host)
        )
    return world


def counted(*workers):
    return slots_once(world_of(*workers).broker.workers.values())


def test_a_worker_that_has_come_back_counts_once():
    assert counted(("w", "h", 4), ("w", "h", 4)) == 4
    assert counted(("w", "h", 4), ("w", "h", 2)) == 4
    assert counted(("w", "h", 2), ("w", "h", 4)) == 4


def test_other_workers_count_each():
    assert counted(("w", "h", 4), ("v", "h", 4), ("w", "g", 4)) == 12
    assert counted(("w", "", 4), ("w", "", 4)) == 8  # older agents do not name their host


def test_in_two_pools_a_name_is_of_two_workers():
    world = BrokerWorld(slots=0)
    world.broker.tariffs["other"] = world.broker.tariffs["local"]
    for handle, pool in ((2, "local"), (3, "other")):
        world.do(events.WorkerJoined(handle, "w", pool, 4, {}, "3.11", host="h"))
    assert slots_once(world.broker.workers.values()) == 8


def test_no_more_slots_are_busy_than_there_are():
    world = world_of(("w", "h", 4), ("w", "h", 4))
    assert len(orders(world.submit(8))) >= 2
    assert sum(each.in_flight for each in world.broker.workers.values()) == 8
    assert busy_slots(world.broker.workers.values()) == (4, 4)


def test_the_books_prices_adverts_and_status_count_it_once():
    world = world_of(("w", "h", 4), ("w", "h", 4))
    broker = world.broker
    assert _load(broker, "local") == (0, 4)
    facts = {"local": SimpleNamespace(tags={}, region="", jurisdiction="", offers=())}
    (advert,) = take_stock(broker, facts, {}, world.now_s).pools
    assert (advert.slots_total, advert.slots_free) == (4, 4)
    (pool,) = work_views.status(broker, "london", [], 1)["pools"]
    assert (pool["slots"], pool["busy"]) == (4, 0)
    told = []
    recorder = CapacityRecorder(
        SimpleNamespace(broker=broker, runtime=SimpleNamespace(utc_s=lambda: world.now_s))
    )
    recorder._meter = SimpleNamespace(look=lambda slots, _: told.append(dict(slots)) or [])
    recorder.look()
    assert told == [{"local": 4}]
