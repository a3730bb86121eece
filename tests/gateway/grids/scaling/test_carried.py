"""The tags of pilots go before the promises of their table, for demand, plans and refusals."""

import pytest

from federation.messages.messages import RejectJob
from gateway.config.pools import PoolFacts
from gateway.contracts.selling.advertising import show_site, take_stock
from gateway.grids.scaling.carried import Carried
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import SendToClient
from gateway.scheduler.model.jobs import Worker
from gateway.scheduler.model.terms import JobSpec
from policies.access.entitlements import Work
from policies.parties import ANOTHER_SITE
from policies.placement.autoscaling import PoolGrowth
from policies.placement.placement import CapacityOffer
from policies.tariffs import Tariff

PROMISED = CapacityOffer("pool hpc", "hpc", {"linux": True, "gpu": 2}, "3.11", "USD")


def worker(handle, **tags):
    offer = CapacityOffer(f"worker {handle}", "hpc", tags, "3.11", "USD")
    return Worker(handle, str(handle), offer, 1, None, {})


@pytest.mark.parametrize(
    ("seen", "kept"),
    [
        ([], None),
        ([({"linux": True, "gpu": 2, "more": True}, True)], None),
        ([({}, False)], None),
        ([({}, True)], {}),
        ([({"linux": True, "gpu": 1}, True)], {"linux": True, "gpu": 1}),
        ([({"linux": True, "gpu": True}, True)], {"linux": True}),
        ([({"linux": True}, True), ({"gpu": 4}, True)], None),
    ],
    ids=["none", "all", "of an earlier run", "nothing", "less", "not counted", "hosts differ"],
)
def test_of_a_promise_is_kept_what_pilots_of_this_life_carry(seen, kept):
    carried = Carried()
    carried.see((worker(at, **tags), is_tried) for at, (tags, is_tried) in enumerate(seen))
    assert carried.kept(PROMISED.tags) == kept
    carried.see(())
    assert carried.kept(PROMISED.tags) == kept, "also when they are gone"
    carried.forgive()
    assert carried.kept(PROMISED.tags) is None
    assert carried.offers(PROMISED) == [PROMISED]


def test_thousands_that_are_alike_are_one_offer():
    carried = Carried()
    for _ in range(2):
        carried.see((worker(at, linux=True), True) for at in range(3_000))
        [found] = carried.offers(PROMISED)
        assert found.tags == {"linux": True}


def test_what_pilots_lack_is_neither_shown_nor_waited_for():
    broker = Broker({"hpc": Tariff(0, "USD", "1")}, {PROMISED.name: PROMISED})
    facts = {"hpc": PoolFacts(PROMISED.tags)}

    def shown():
        stock = take_stock(broker, facts, {}, 0.0)
        [pool] = show_site("here", broker, stock, version=1, work=Work(ANOTHER_SITE)).pools
        return pool.tags

    def refused(job):
        spec = JobSpec(
            *("f", b"f" * 32, False, "ann", "risk", 0.0, {"gpu": 1}, None, 0, None, None),
            *("3.11", False),
        )
        effects = broker.handle(events.JobOpened(1, job, spec), 0.0)
        messages = [each.message for each in effects if isinstance(each, SendToClient)]
        return [each.reason for each in messages if isinstance(each, RejectJob)]

    broker.handle(events.ClientJoined(1, "ann"), 0.0)
    growth = PoolGrowth(4, 30.0, 600.0)
    broker.handle(events.PoolGrows("hpc", growth), 0.0)
    assert (shown(), refused("a")) == (PROMISED.tags, [])
    broker.handle(events.PoolGrows("hpc", growth, {"linux": True}), 0.0)
    assert shown() == {"linux": True}
    [text] = refused("b")
    assert "has no tag gpu=1" in text
    broker.handle(events.PoolGrows("hpc", growth), 0.0)
    assert (shown(), refused("c")) == (PROMISED.tags, [])
