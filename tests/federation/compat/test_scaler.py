"""The client of openGRIS Scaler, on a real gateway."""

import asyncio
import concurrent.futures
import graphlib
import math
import os
import pickle
import time

import numpy as np
import psutil
import pytest

from federation import ObjectRefused
from federation.compat import scaler
from federation.compat.scaler import (
    Client,
    ClientQuitException,
    MissingObjects,
    ProcessorDiedError,
    SchedulerClusterCombo,
    Serializer,
    positional,
)
from federation.compat.scaler_futures import ProfileResult

pytestmark = pytest.mark.real
LIMIT_S = 300.0


def inc(x):
    return x + 1


def add(x, y=10):
    return x + y


def keyword_only(a, *, b):
    return a + b


def boom(x):
    raise LookupError(f"no {x}")


def die(_x):
    os._exit(3)


def wait_for(path):
    (path.parent / f"{path.name}.begun").touch()
    while not path.exists():
        time.sleep(0.01)
    return path.name


def fibonacci(client, n):
    if n < 2:
        return n
    first = client.submit(fibonacci, client, n - 1)
    second = client.submit(fibonacci, client, n - 2)
    return first.result() + second.result()


def failing_child(client, n):
    with Client() as own:
        children = [own.submit(boom, n) for _ in range(4)]
        return [type(each.exception()).__name__ for each in children]


def inner_graph(_x):
    with Client() as own:
        graph = {"a": 1, "b": (inc, "a"), "c": (inc, "b"), "d": (add, "b", "c"), "e": (boom, "d")}
        found = own.get(graph, ["d", "e", "a"], block=False)
        return found["d"].result(), type(found["e"].exception()).__name__, found["a"].result()


class Reversing(Serializer):
    """Pickles backwards: a default unpickler can't read them."""

    @staticmethod
    def serialize(obj):
        import cloudpickle

        return cloudpickle.dumps(obj)[::-1]

    @staticmethod
    def deserialize(payload):
        return pickle.loads(payload[::-1])


@pytest.fixture
def grid(shared_site):
    with Client(address=shared_site.address) as client:
        yield client


def test_calls_run_and_their_futures_are_of_the_standard_library(grid):
    future = grid.submit(inc, 1)
    assert isinstance(future, concurrent.futures.Future)
    assert future.running() or future.done()
    assert future.result() == 2
    assert future.exception() is None
    assert b":" in future.task_id
    futures = [grid.submit(inc, x) for x in range(5)]
    assert {each.result() for each in concurrent.futures.as_completed(futures)} == {1, 2, 3, 4, 5}
    assert grid.map(math.sqrt, range(3)) == [0.0, 1.0, math.sqrt(2)]
    assert grid.map(add, [1, 2], [3, 4]) == [4, 6]
    assert grid.starmap(add, [(1, 4), (2,)]) == [5, 12]
    with pytest.raises(TypeError, match="at least one iterable"):
        grid.map(inc)
    assert grid.identity.startswith(b"Client|")


def test_keyword_arguments_are_as_in_scaler(grid):
    assert grid.submit(add, x=1).result() == 11
    assert grid.submit(add, 1, y=2, profiling=True).result() == 3  # a name that it does not have
    with pytest.raises(TypeError, match=r"missing 1 arguments: \('x',\)"):
        grid.submit(add)
    with pytest.raises(TypeError, match="keyword-only"):
        grid.submit(keyword_only, 1, b=2).result()
    assert positional(max, (1, 2), {}) == [1, 2]


def test_a_graph_gives_a_map_of_its_keys(grid):
    graph = {"a": 1, "b": 2, "c": (inc, "a"), "d": (inc, "b"), "e": (add, "c", "d")}
    assert grid.get(graph, ["e", "a", "c"]) == {"e": 5, "a": 1, "c": 2}
    assert list(grid.get(graph, ["e", "a"])) == ["e", "a"]
    futures = grid.get(graph, ["e", "a"], block=False)
    assert {key: each.result() for key, each in futures.items()} == {"e": 5, "a": 1}
    unneeded = graph | {"z": (boom, 1)}
    assert grid.get(unneeded, ["c"]) == {"c": 2}


@pytest.mark.parametrize(
    ("graph", "keys", "error", "text"),
    [
        ({"a": (inc, "b"), "b": (inc, "a")}, ["a"], graphlib.CycleError, "cycle"),
        ({"a": 1}, ["x"], KeyError, "key x has to be in graph"),
        ({"a": 1}, ["a", "a"], KeyError, "duplicate key"),
        ({"a": (inc, "q")}, ["a"], KeyError, "q has to be in graph"),
        ({"a": (inc, 1)}, ["a"], TypeError, "must be a string"),
    ],
)
def test_a_wrong_graph_is_refused_and_the_client_goes_on(grid, graph, keys, error, text):
    with pytest.raises(error, match=text):
        grid.get(graph, keys)
    assert grid.submit(inc, 1).result() == 2


def test_a_failure_within_a_graph_is_the_exception_of_its_call(shared_site):
    client = Client(shared_site.address)
    futures = client.get({"a": 1, "b": (boom, "a"), "c": (inc, "b")}, ["c"], block=False)
    assert isinstance(futures["c"].exception(), LookupError)
    with pytest.raises(LookupError, match="no 1"):
        client.get({"a": 1, "b": (boom, "a"), "c": (inc, "b")}, ["c"])
    with pytest.raises(ClientQuitException):
        client.submit(inc, 1)


def test_cancelling_one_node_cancels_the_graph(grid, tmp_path):
    graph = {"p": tmp_path / "never", "w": (wait_for, "p"), "x": (str, "w"), "y": (str, "w")}
    futures = grid.get(graph, ["x", "y"], block=False)
    assert futures["x"].cancel()
    assert futures["x"].cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        futures["y"].result()


def test_objects_are_sent_once_and_invalid_after_clear(grid):
    array = np.ones(300_000)
    reference = grid.send_object(array, name="cube")
    assert reference.name == b"cube"
    assert reference.size > array.nbytes
    assert reference == reference
    assert reference != grid.send_object(array)
    assert len({reference, reference}) == 1
    assert grid.submit(np.sum, reference).result() == 3e5
    assert grid.map(len, [[reference, reference], [reference]]) == [2, 1]
    assert grid.get({"a": reference, "b": (np.sum, "a")}, ["b"]) == {"b": 3e5}
    assert "cube" in repr(reference)
    grid.clear()
    with pytest.raises(MissingObjects):
        grid.submit(np.sum, reference)
    assert grid.submit(inc, 1).result() == 2


def test_objects_travel_where_none_can_be_put(grid, monkeypatch):
    def refuse(_value):
        raise ObjectRefused("no room")

    monkeypatch.setattr(grid.grid, "put", refuse)
    numbers = [1, 2]
    reference = grid.send_object(numbers)
    numbers.append(3)  # what was sent stays as it was
    assert grid.submit(sum, reference).result() == 3
    assert grid.submit(sum, [1], start=5).result() == 6


def test_running_calls_are_cancelled(grid, tmp_path):
    future = grid.submit(wait_for, tmp_path / "never")
    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    assert future.cancel()
    assert future.cancelled()
    done = grid.submit(inc, 1)
    done.result()
    assert not done.cancel()


def test_an_error_of_a_map_disconnects_as_in_scaler(shared_site, tmp_path):
    client = Client(shared_site.address)
    pending = client.submit(wait_for, tmp_path / "never")
    with pytest.raises(LookupError, match="no 1"):
        client.map(boom, [1])
    assert pending.cancelled()
    with pytest.raises(ClientQuitException, match="already stopped"):
        client.send_object(1)
    client.disconnect()


def test_the_end_of_the_block_cancels_what_runs(shared_site, tmp_path):
    with Client(shared_site.address) as client:
        future = client.submit(wait_for, tmp_path / "never")
    assert future.cancelled()


def test_a_call_that_ends_its_process_fails_by_a_name_of_scaler(grid):
    with pytest.raises(ProcessorDiedError):
        grid.submit(die, 1).result()


def test_capabilities_are_names_of_tags(grid, make_site):
    site = make_site(1, "--tags", "gpu=1,linux")
    with Client(site.address) as client:
        assert client.submit_verbose(inc, (1,), {}, capabilities={"gpu": 8}).result() == 2
        assert client.map(inc, [1], capabilities={"linux": -1}) == [2]
        assert client.get({"a": 1, "b": (inc, "a")}, ["b"], capabilities={"gpu": 1}) == {"b": 2}
    refused = grid.submit_verbose(inc, (1,), {}, capabilities={"gpu": 1})
    assert "gpu" in str(refused.exception())


@pytest.mark.parametrize("serializer", [None, Reversing()])
def test_profiles_and_serializers(shared_site, serializer):
    with Client(shared_site.address, profiling=True, serializer=serializer) as client:
        future = client.submit(inc, 1)
        assert future.result() == 2
        profile = future.profiling_info()
        assert isinstance(profile, ProfileResult)
        assert profile.duration_s > 0
        assert profile.memory_peak > 1 << 20
        assert client.get({"a": 1, "b": (inc, "a"), "c": (add, "b", "a")}, ["c"]) == {"c": 3}
        reference = client.send_object([1, 2])
        assert client.submit(sum, reference).result() == 3
    with Client(shared_site.address, serializer=serializer) as client:
        with pytest.raises(ValueError, match="profiling=True"):
            client.submit(inc, 1).profiling_info()
        assert client.map(inc, [1, 2]) == [2, 3]


def test_calls_within_calls_end_with_two_slots(grid):
    """Tasks that wait fill both slots: each runs what it waits for, if it does not begin."""
    assert grid.submit(fibonacci, grid, 6).result(LIMIT_S) == 8
    found = grid.submit(failing_child, grid, 3).result(LIMIT_S)
    assert found == ["LookupError"] * 4
    assert grid.map(inner_graph, range(4)) == [(5, "LookupError", 1)] * 4


def descends_with_a_limit(client, depth):
    return 1 + client.submit(descends_with_a_limit, client, depth - 1).result(100) if depth else 0


def descends_in_a_loop(client, depth):
    async def below():
        return await client.submit(descends_in_a_loop, client, depth - 1)

    return 1 + asyncio.run(below()) if depth else 0


@pytest.mark.parametrize("descends", [descends_with_a_limit, descends_in_a_loop])
def test_calls_within_calls_end_in_whatever_way_they_wait(grid, descends):
    assert grid.submit(descends, grid, 5).result(LIMIT_S) == 5


def test_futures_can_be_awaited(grid, tmp_path):
    async def main():
        assert await grid.submit(inc, 1) == 2
        future = grid.submit(wait_for, tmp_path / "never")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.05)
        concurrent.futures.wait([future], LIMIT_S)
        assert future.cancelled()

    asyncio.run(main())


def test_a_cluster_of_ones_own_and_its_end():
    cluster = SchedulerClusterCombo(
        n_workers=1, per_worker_capabilities={"gpu": -1, "disk": 2}, event_loop="builtin"
    )
    gateway = psutil.Process(cluster._process.pid)
    family = [gateway, *gateway.children(recursive=True)]
    with Client(address=cluster.get_address()) as client:
        assert client.submit_verbose(inc, (1,), {}, {"gpu": 1, "disk": 1}).result() == 2
        with pytest.raises(ValueError, match="protected mode"):
            client.shutdown()
    cluster.shutdown()
    cluster.shutdown()
    assert not cluster._folder.exists()
    psutil.wait_procs(family, timeout=50.0)
    assert not any(each.is_running() for each in family)


def test_a_cluster_that_is_not_protected_is_ended_by_its_client():
    cluster = SchedulerClusterCombo(n_workers=1, protected=False)
    Client(cluster.get_address()).shutdown()
    assert cluster._process.poll() is not None


def test_a_cluster_that_can_not_start_says_why():
    with pytest.raises(RuntimeError, match="ended before it was ready"):
        SchedulerClusterCombo(n_workers=-1)


def test_a_cluster_without_slots_takes_calls_that_wait():
    cluster = SchedulerClusterCombo(n_workers=0, per_worker_capabilities={"gpu": 1})
    with Client(cluster.get_address()) as client:
        future = client.submit(inc, 1)
        assert future.running()
        assert future.cancel()
    cluster.shutdown()


def test_names_are_those_of_scaler():
    assert {"Client", "ScalerFuture", "Serializer", "SchedulerClusterCombo"} <= set(scaler.__all__)
