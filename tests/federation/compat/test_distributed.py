"""The interface of dask.distributed, on a real gateway."""

import asyncio
import time
from typing import Any, NamedTuple

import anyio
import dask
import dask.array as da
import numpy as np
import pytest

from federation import JobRefused, ObjectRefused
from federation.compat.distributed import (
    Client,
    Future,
    as_completed,
    fire_and_forget,
    get_client,
    rejoin,
    secede,
    wait,
)

pytestmark = pytest.mark.real
LIMIT_S = 300.0


class Greeks(NamedTuple):
    delta: Any
    vega: Any


def inc(x, by=1):
    return x + by


def boom(x):
    raise LookupError(f"no {x}")


def flaky(path):
    if not path.exists():
        path.touch()
        raise LookupError("not yet")
    return "at last"


def wait_for(path):
    (path.parent / f"{path.name}.begun").touch()
    while not path.exists():
        time.sleep(0.01)
    return path.name


def of_its_own(x):
    secede()
    found = get_client() is get_client() and get_client().submit(inc, x).result()
    rejoin()
    return found


@pytest.fixture
def cluster(shared_site):
    with Client(shared_site.address) as client:
        yield client
    assert dask.config.get("scheduler", None) is None


def test_calls_and_futures_among_their_arguments(cluster):
    first = cluster.submit(inc, 1)
    assert cluster.submit(sum, [first, cluster.submit(inc, first, by=10)]).result() == 14
    assert (first.status, first.done(), first.cancelled()) == ("finished", True, False)
    assert "inc-" in first.key
    assert first.exception() is first.traceback() is None
    futures = cluster.map(inc, range(4), by=2)
    assert cluster.gather(futures) == [2, 3, 4, 5]
    assert cluster.gather({"desk": (futures[0], 7), "all": set(futures[:2])}) == {
        "desk": (2, 7),
        "all": {2, 3},
    }
    assert cluster.gather(each for each in futures[:1]) == [2]
    assert cluster.gather(first) == 2


def test_named_tuples_are_gathered_as_such(cluster):
    pair = Greeks(cluster.submit(inc, 1), [cluster.submit(boom, 3), 7])
    assert cluster.gather(Greeks(pair.delta, 5)) == Greeks(2, 5)
    assert cluster.gather(pair, errors="skip") == Greeks(2, [7])
    assert cluster.gather(Greeks(cluster.submit(boom, 3), 7), errors="skip") == Greeks(None, 7)
    with pytest.raises(LookupError, match="no 3"):
        cluster.gather(pair)


def test_a_key_stands_for_one_value_while_its_future_lives(cluster):
    first = cluster.submit(inc, 1, key="spot")
    assert cluster.submit(inc, 5, key="spot") is first
    del first
    assert cluster.submit(inc, 5, key="spot").result() == 6
    assert [each.key[:6] for each in cluster.map(inc, [1], key="prices")] == ["prices"]


def test_failures_reach_what_needs_them(cluster):
    bad = cluster.submit(boom, 3)
    after = cluster.submit(inc, bad)
    with pytest.raises(LookupError, match="no 3"):
        after.result()
    assert isinstance(bad.exception(), LookupError)
    assert isinstance(after.exception(), LookupError)
    assert after.status == bad.status == "error"
    good = cluster.submit(inc, 1)
    assert cluster.gather([bad, good, after], errors="skip") == [2]
    with pytest.raises(LookupError):
        cluster.gather([good, bad])
    with pytest.raises(ValueError, match="'raise' or 'skip'"):
        cluster.gather([good], errors="ignore")


def test_a_failed_call_is_tried_again(cluster, tmp_path):
    future = cluster.submit(flaky, tmp_path / "there")
    assert isinstance(future.exception(), LookupError)
    cluster.retry([future])
    assert future.result() == "at last"
    future.retry()  # nothing to do
    assert cluster.submit(flaky, tmp_path / "two", retries=2).result() == "at last"


def test_calls_are_cancelled_also_while_they_run(cluster, tmp_path):
    future = cluster.submit(wait_for, tmp_path / "never")
    with pytest.raises(TimeoutError, match="1 of 1 futures are not done"):
        wait(future, timeout=0.05)
    cluster.cancel({"a": [future]})
    assert wait([future], timeout=LIMIT_S).done == {future}
    assert future.status == "cancelled"
    other = cluster.submit(wait_for, tmp_path / "never")
    other.cancel()
    assert wait(other).done == {other}


def test_the_first_of_several(cluster, tmp_path):
    slow, quick = cluster.submit(wait_for, tmp_path / "end"), cluster.submit(inc, 1)
    found = wait([slow, quick], return_when="FIRST_COMPLETED")
    assert found.done == {quick}
    assert found.not_done == {slow}
    (tmp_path / "end").touch()
    assert slow.result() == "end"


def test_values_are_scattered(cluster):
    array = np.ones(300_000)
    future = cluster.scatter(array, broadcast=True)
    assert cluster.submit(lambda x: (x.sum(), x.flags.writeable), future).result() == (3e5, False)
    assert future.status == "finished"
    assert future.result().sum() == 3e5
    named = cluster.scatter({"spot": 1.0})
    assert named["spot"].key == "spot"
    assert cluster.submit(inc, named["spot"]).result() == 2.0
    assert cluster.gather(cluster.scatter([1, 2])) == [1, 2]
    future.release()


def test_scattered_values_travel_where_none_can_be_put(cluster, monkeypatch):
    def refuse(_value):
        raise ObjectRefused("no room")

    monkeypatch.setattr(cluster.grid, "put", refuse)
    future = cluster.scatter(5)
    assert future.result() == 5
    assert cluster.submit(inc, future).result() == 6
    assert wait([future]).done == {future}
    seen = []
    future.add_done_callback(seen.append)
    future.cancel()
    assert seen == [future]


def test_futures_as_they_are_done_and_more_meanwhile(cluster):
    loop = as_completed([cluster.submit(inc, 0)])
    seen = []
    for future in loop:
        seen.append(future.result())
        if len(seen) < 4:
            loop.add(cluster.submit(inc, future))
    assert seen == [1, 2, 3, 4]
    assert loop.is_empty()
    futures = cluster.map(inc, range(5))
    found = {result for _, result in as_completed(futures, with_results=True)}
    assert found == {1, 2, 3, 4, 5}
    assert sum(map(len, as_completed(futures).batches())) == 5
    wait(futures)
    loop = as_completed(futures)
    assert loop.has_ready()
    assert len(loop.next_batch(block=False)) == 5
    loop.update(futures)
    loop.clear()
    assert list(loop) == []


def test_failures_and_late_futures_as_they_are_done(cluster, tmp_path):
    bad = cluster.submit(boom, 1)
    ((_, error),) = as_completed([bad], with_results=True, raise_errors=False)
    assert isinstance(error, LookupError)
    with pytest.raises(LookupError):
        list(as_completed([bad], with_results=True))
    with pytest.raises(TimeoutError, match="1 futures are not done"):
        list(as_completed([cluster.submit(wait_for, tmp_path / "end")], timeout=0.05))
    (tmp_path / "end").touch()


def test_jobs_of_nodes_have_the_names_of_their_layers(cluster):
    assert da.ones(8, chunks=2).sum().compute() == 8
    names = [job["name"] for job in cluster.grid.ask("jobs", limit=20)]
    assert any(name.startswith("dask: sum-aggregate") for name in names), names


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_event_loops(cluster, library):
    async def main():
        assert await cluster.submit(inc, 1) == 2
        assert await cluster.scatter(5) == 5
        found = [await each async for each in as_completed(cluster.map(inc, range(3)))]
        assert sorted(found) == [1, 2, 3]
        if library == "asyncio":
            calls = {cluster.submit(inc, 1), cluster.scatter(5)}
            assert (await asyncio.wait(calls))[0] == calls

    anyio.run(main, backend=library)
    with pytest.raises(ValueError, match=r"federation\.AsyncClient"):
        Client(asynchronous=True)


def test_a_client_within_a_task_is_of_its_job(cluster):
    assert cluster.submit(of_its_own, 1).result() == 2
    other = Client(cluster.grid.address, name="another")
    assert other.submit(of_its_own, 2).result() == 3
    other.close()


def test_which_client_is_the_current_one(shared_site, cluster):
    assert get_client() is Client.current() is cluster
    second = Client(shared_site.address, set_as_default=False)
    assert get_client() is second
    assert dask.config.get("scheduler") is cluster
    assert get_client(shared_site.address) is not second
    get_client().close()
    second.close()
    assert get_client() is cluster
    cluster.close()
    cluster.close()
    with pytest.raises(ValueError, match="no client found"):
        get_client()


def test_collections_are_computed_and_kept(cluster):
    x = da.arange(1_000, chunks=100)
    assert x.sum().compute() == 499_500
    total = cluster.compute(x.sum())
    assert isinstance(total, Future)
    assert total.result() == 499_500
    assert cluster.compute([x.max(), 7], sync=True) == [999, 7]
    kept = cluster.persist(x + 1)
    assert kept.sum().compute() == 500_500
    assert cluster.persist([x + 2])[0].sum().compute() == 501_500
    assert cluster.persist(x + 3, optimize_graph=False).sum().compute() == 502_500
    delayed = dask.delayed(inc)(total)
    assert cluster.compute(delayed).result() == 499_501
    graph = {"x": 1, "y": (inc, "x")}
    assert cluster.get(graph, ["x", ["y"]]) == (1, (2,))
    futures = cluster.get(graph, ["x", ["y"]], sync=False)
    assert cluster.gather(futures) == [1, [2]]


def test_a_kept_collection_is_cancelled(cluster, tmp_path):
    kept = cluster.persist(dask.delayed(wait_for)(tmp_path / "never"))
    cluster.cancel(kept)
    (future,) = kept.__dask_graph__().values()
    assert wait(Future(future, "")).done
    assert future.cancelled()


def test_calls_that_are_left_alone_run_before_the_end(shared_site, tmp_path):
    client = Client(shared_site.address)
    never = client.submit(wait_for, tmp_path / "never")
    kept = client.submit(wait_for, tmp_path / "end")
    fire_and_forget([kept])
    while not (tmp_path / "end.begun").exists():
        time.sleep(0.01)
    (tmp_path / "end").touch()
    client.close()
    assert kept.result() == "end"
    assert never.status == "cancelled"


def test_calls_that_are_left_alone_and_done_are_not_kept(cluster):
    futures = cluster.map(inc, range(20))
    fire_and_forget(futures)
    wait(futures)
    deadline = time.monotonic() + LIMIT_S
    while cluster.lasting and time.monotonic() < deadline:
        time.sleep(0.01)  # a callback may be under way
    assert not cluster.lasting
    fire_and_forget(futures)
    assert not cluster.lasting


def test_an_end_that_takes_too_long_ends_the_client_all_the_same(shared_site, tmp_path):
    client = Client(shared_site.address)
    call = client.submit(wait_for, tmp_path / "never")
    fire_and_forget(call)
    with pytest.raises(TimeoutError, match="1 of 1 calls of fire_and_forget were not done"):
        client.close(timeout=0.1)
    assert client.grid._engines.own.closed
    assert call.status == "cancelled"
    client.close()


def test_what_is_not_here_says_so(cluster, shared_site, caplog):
    with pytest.raises(TypeError, match="workers: not here"):
        cluster.submit(inc, 1, workers=["tcp://host:1"])
    other = Client(shared_site.address, n_workers=4, set_as_default=False)
    assert "n_workers: no meaning here" in caplog.text
    assert sum(other.ncores().values()) == 2
    assert other.scheduler_info()["state"] == "up"
    assert "Client" in repr(other)
    other.close()


def test_resources_are_tags(cluster):
    future = cluster.submit(inc, 1, resources={"gpu": 1}, priority=3)
    with pytest.raises(JobRefused, match="gpu"):
        future.result()
