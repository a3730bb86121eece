"""A delegate with an engine in this process: the views of a client, a broker and an engine."""

import random

import pytest
from fakes.engine import Farm, InnerDelegate, KeepingEngine, ReferenceEngine, gate, ran
from support.processes import wait_until

from federation import Client
from federation.errors import TaskCrashed
from gateway.config.limits import ListenerLimits
from gateway.ledger.db.usage.records import Dimension

pytestmark = pytest.mark.real


def square(x):
    from fakes import engine as engine_support

    engine_support.ran[x] += 1
    return x * x


def waits(x):
    from fakes import engine as engine_support

    engine_support.ran[x] += 1
    engine_support.gate.wait(200)
    return x


def fails(x):
    raise ValueError(f"no {x}")


@pytest.fixture(autouse=True)
def fresh():
    ran.clear()
    gate.clear()
    yield
    gate.set()


@pytest.fixture
def make_grid(make_inner):
    made = []

    def make(**how):
        rules = how.pop("rules", ListenerLimits())
        inner = make_inner(rules=rules)
        engine = ReferenceEngine(**how)
        made.append(InnerDelegate(inner.address, engine))
        made[-1].inner = inner
        return made[-1]

    yield make
    for each in made:
        gate.set()
        each.stop()
        assert each.engine.closed


def workers(grid):
    found = grid.inner.call(
        lambda: [each.slots for each in grid.inner.site.broker.workers.values()]
    )
    return sorted(found)


@pytest.mark.parametrize("how", [{}, {"early": True}, {"echoes": True}])
def test_results_come_once_and_failures_travel(make_grid, how):
    grid = make_grid(slots=3, **how)
    with Client(grid.inner.address) as client:
        assert list(client.map(square, range(300))) == [n * n for n in range(300)]
        with pytest.raises(Exception, match="no 5"):
            client.submit(fails, 5).result(200)
    assert set(ran.values()) == {1}
    assert len(grid.engine.bodies) == 2, "a function's body is given once"
    totals = grid.inner.site.store.usage.totals((Dimension.POOL, Dimension.STATE))
    tasks = {each.key: each.tasks for each in totals}
    assert tasks == {("workers", "ok"): 300, ("workers", "failed"): 1}


def test_what_is_reclaimed_runs_again_and_no_try_is_used_up(make_grid):
    seed = 7
    print("seed", seed)
    grid = make_grid(slots=2)
    with Client(grid.inner.address) as client:
        futures = [client.submit(waits, n) for n in range(4)]
        for _ in range(6):
            wait_until(lambda: len(grid.engine._running) == 2)
            grid.call(grid.engine.reclaim, random.Random(seed))
        gate.set()
        assert sorted(future.result(200) for future in futures) == [0, 1, 2, 3]


def test_what_takes_its_host_down_twice_is_poison(make_grid):
    grid = make_grid(slots=1)
    with Client(grid.inner.address) as client:
        future = client.submit(waits, 1)
        for _ in range(2):
            wait_until(lambda: grid.engine._running)
            grid.call(lambda: grid.engine.crash(next(iter(grid.engine._running))))
        with pytest.raises(TaskCrashed, match="its host went down"):
            future.result(200)


def test_a_parcel_that_the_engine_forgets_is_not_lost(make_grid, monkeypatch):
    monkeypatch.setattr("gateway.grids.delegation.delegate.GONE_S", 0.2)
    grid = make_grid(slots=1)
    with Client(grid.inner.address) as client:
        future = client.submit(waits, 1)
        wait_until(lambda: grid.engine._running)
        grid.call(lambda: grid.engine.vanish(next(iter(grid.engine._running))))
        wait_until(lambda: len(grid.engine.sent) == 2)
        gate.set()
        assert future.result(200) == 1


def test_cancel_ends_what_runs_and_what_waits(make_grid):
    grid = make_grid(slots=1)
    with Client(grid.inner.address) as client:
        running, waiting = client.submit(waits, 1), client.submit(waits, 2)
        wait_until(lambda: grid.engine._running)
        assert waiting.cancel()
        assert running.cancel(stop=True)
        wait_until(lambda: not grid.engine._running)
        assert client.submit(square, 3).result(200) == 9
    assert ran[2] == 0


def test_slots_come_and_go_with_the_engines(make_grid, monkeypatch):
    monkeypatch.setattr("gateway.grids.delegation.delegate.SHRINK_S", 0.1)
    grid = make_grid(slots=2)
    wait_until(lambda: workers(grid) == [2])
    grid.call(grid.engine.resize, 5)
    wait_until(lambda: workers(grid) == [2, 3])
    grid.call(grid.engine.resize, 3)
    wait_until(lambda: workers(grid) == [3])
    grid.call(grid.engine.resize, 0)
    wait_until(lambda: workers(grid) == [])
    grid.call(grid.engine.resize, 1)
    with Client(grid.inner.address) as client:
        assert client.submit(square, 3).result(200) == 9


def test_a_lot_that_ends_lets_run_what_has_begun(make_grid, monkeypatch):
    monkeypatch.setattr("gateway.grids.delegation.delegate.SHRINK_S", 0.1)
    grid = make_grid(slots=1)
    with Client(grid.inner.address) as client:
        futures = [client.submit(waits, n) for n in range(3)]
        wait_until(lambda: grid.engine._running)
        grid.call(grid.engine.resize, 0)
        gate.set()
        wait_until(lambda: workers(grid) == [])
        grid.call(grid.engine.resize, 1)
        assert [future.result(200) for future in futures] == [0, 1, 2]
    assert set(ran.values()) == {1}


def test_a_gateway_that_ends_has_its_parcels_ended(make_grid):
    grid = make_grid(slots=1, rules=ListenerLimits(heartbeat_s=0.2, grace_s=1.0))
    client = Client(grid.inner.address)
    client.submit(waits, 1)
    wait_until(lambda: grid.engine._running)
    grid.inner.stop()
    wait_until(lambda: not grid.engine._running)
    client.shutdown(wait=False)


@pytest.fixture
def farm():
    made = Farm()
    yield made
    gate.set()
    made.pool.shutdown()


@pytest.fixture
def lives(make_inner, farm):
    """Makes one delegate after the other, over the same hosts."""
    inner = make_inner(rules=ListenerLimits(heartbeat_s=0.5, grace_s=4.0))
    made = []

    def make(**how):
        made.append(InnerDelegate(inner.address, KeepingEngine(farm, **how)))
        made[-1].inner = inner
        return made[-1]

    yield make
    gate.set()
    for each in made:
        each.stop()


def test_what_runs_outlives_its_delegate_and_runs_once(lives, farm):
    first = lives()
    with Client(first.inner.address) as client:
        futures = [client.submit(waits, n) for n in range(2)]
        wait_until(lambda: len(farm.tasks) == 2)
        first.stop_politely()
        assert len(farm.tasks) == 2
        second = lives()
        gate.set()
        assert [future.result(200) for future in futures] == [0, 1]
        assert not second.engine.sent, "it sent what was there"
    assert set(ran.values()) == {1}
    totals = first.inner.site.store.usage.totals((Dimension.STATE,))
    assert {each.key: each.tasks for each in totals} == {("ok",): 2}


def test_what_has_ended_before_anybody_asks_for_it_is_kept(lives, farm):
    first = lives()
    with Client(first.inner.address) as client:
        future = client.submit(waits, 5)
        wait_until(lambda: farm.tasks)
        first.stop()  # not a word to the gateway: it waits for the lease to end
        gate.set()
        wait_until(lambda: all(each.done() for _, each in farm.tasks.values()))
        second = lives()
        assert future.result(200) == 5
        assert not second.engine.sent
    assert ran[5] == 1


def test_what_nobody_asks_for_is_ended(lives, farm):
    first = lives()
    with Client(first.inner.address) as client:
        future = client.submit(waits, 5)
        wait_until(lambda: farm.tasks)
        first.stop_politely()
        wait_until(future.cancel)
        second = lives(take_up_s=0.3)
        wait_until(lambda: not farm.tasks)
        assert any("assigned elsewhere" in line for line in second.said)
        assert client.submit(square, 3).result(200) == 9


def test_a_delegate_that_does_not_detach_ends_what_runs(lives, farm, monkeypatch):
    monkeypatch.setattr("gateway.grids.delegation.delegate.STOP_S", 0.1)
    first = lives(detaches=False)
    with Client(first.inner.address) as client:
        future = client.submit(waits, 5)
        wait_until(lambda: farm.tasks)
        first.stop_politely()
        assert not farm.tasks
        second = lives(detaches=False)
        gate.set()
        assert future.result(200) == 5
        assert len(second.engine.sent) == 1
