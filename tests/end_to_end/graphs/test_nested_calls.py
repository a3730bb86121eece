"""Tasks that wait for calls of their own, where such tasks have all slots. Real processes."""

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
import time

import cloudpickle
import pytest
from support.processes import wait_until

from federation import Client, as_completed

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])

TIMEOUT_S = 120.0


def descend(depth):
    """A call that waits for one like it, `depth` times."""
    if not depth:
        return 0
    with Client() as client:
        return 1 + client.submit(descend, depth - 1).result()


def fibonacci(n):
    if n < 2:
        return n
    with Client() as client:
        one, other = client.submit(fibonacci, n - 1), client.submit(fibonacci, n - 2)
        return one.result() + other.result()


@contextlib.contextmanager
def meeting(folder, others=2):
    """Begin when so many tasks like this one run, and end when all of them have got here."""
    for name in ("begun", "done"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / str(os.getpid())).touch()
        while len(list((folder / name).iterdir())) < others:
            time.sleep(0.01)
        if name == "begun":
            yield


def squares(folder, count):
    """A parent that maps once all slots have parents."""
    with meeting(folder), Client() as client:
        return list(client.map(pow, range(count), [2] * count))


def starred(folder, pairs):
    with meeting(folder), Client() as client:
        return list(client.starmap(pow, pairs))


def in_dask(folder):
    from federation.compat.distributed import Client as DaskClient

    with meeting(folder), DaskClient() as client:
        return client.gather(client.map(abs, [-1, -2]))


def told(folder, function, *args):
    """The error of a call that its waiting task runs: its type, text, notes and remote text."""
    with meeting(folder), Client() as client:
        error = client.submit(function, *args).exception()
        notes = getattr(error, "__notes__", [])
        return type(error).__name__, str(error), notes, str(error.__cause__)


def fails(x):
    raise ValueError(f"told you {x}")


def unpicklable():
    return threading.Lock()


def shares(folder):
    """Whether a call that runs in its waiting task gets copies, and returns copies."""
    mine = [1]
    with meeting(folder), Client() as client:
        found = client.submit(grow, mine).result()
    return mine, found


def grow(values):
    values.append(2)
    return values


def hold(until):
    """Keep the slot with the tag until a file is there."""
    until.touch()
    while until.exists():
        time.sleep(0.01)


def waits_for_tagged(held):
    """A parent whose call may not run in it, and waits long enough to be asked back."""
    with Client() as client:
        tagged = client.options(tags={"inner": True}).submit(os.getpid)
        threading.Timer(0.5, held.unlink).start()
        return tagged.result(), os.getpid()


@pytest.fixture
def site(make_site):
    return make_site(2)


def test_calls_in_calls_end_whatever_their_depth(site):
    with site.client() as client:
        assert client.submit(descend, 6).result(TIMEOUT_S) == 6


def test_a_recursion_over_submit_ends(site):
    with site.client() as client:
        assert client.submit(fibonacci, 8).result(TIMEOUT_S) == 21


@pytest.mark.parametrize("parent", [squares, starred])
def test_parents_with_all_slots_run_their_maps(site, tmp_path, parent):
    given = 20 if parent is squares else [(x, 2) for x in range(20)]
    with site.client() as client:
        futures = [client.submit(parent, tmp_path, given) for _ in range(2)]
        expected = [x * x for x in range(20)]
        assert [each.result(TIMEOUT_S) for each in futures] == [expected, expected]


def test_parents_with_all_slots_run_their_calls_of_dask(site, tmp_path):
    with site.client() as client:
        futures = [client.submit(in_dask, tmp_path) for _ in range(2)]
        assert [each.result(TIMEOUT_S) for each in futures] == [[1, 2], [1, 2]]


def test_a_call_that_fails_in_its_waiting_task_says_so_as_at_a_worker(site, tmp_path):
    with site.client() as client:
        futures = [client.submit(told, tmp_path, fails, 7) for _ in range(2)]
        for future in futures:
            kind, text, notes, remote = future.result(TIMEOUT_S)
            assert (kind, text) == ("ValueError", "told you 7")
            [note] = notes
            assert note.endswith(", in the task that waits for it: fails(7)")
            assert "in fails" in remote
            assert "running.py" not in remote


def test_a_result_that_cannot_travel_fails_in_the_waiting_task_too(site, tmp_path):
    with site.client() as client:
        futures = [client.submit(told, tmp_path, unpicklable) for _ in range(2)]
        for future in futures:
            _, text, _, _ = future.result(TIMEOUT_S)
            assert "the result, of type _thread.lock, can't be pickled" in text


def test_a_call_in_its_waiting_task_has_copies(site, tmp_path):
    with site.client() as client:
        futures = [client.submit(shares, tmp_path) for _ in range(2)]
        assert [each.result(TIMEOUT_S) for each in futures] == [([1], [1, 2])] * 2


def test_calls_too_deep_in_one_another_fail_by_name(make_site):
    with (
        make_site(1).client() as client,
        pytest.raises(RecursionError, match="64 calls that wait for one another"),
    ):
        client.submit(descend, 70).result(TIMEOUT_S)


def test_a_call_with_tags_waits_for_a_slot_that_has_them(make_site, tmp_path):
    site, held = make_site(0), tmp_path / "held"
    site.add_worker(1, "--tags", "inner")
    with site.client() as client:
        holding = client.options(tags={"inner": True}).submit(hold, held)
        wait_until(held.exists, "the slot with the tag is taken")
        site.add_worker(1)
        ran_in, parent = client.submit(waits_for_tagged, held).result(TIMEOUT_S)
        holding.result(TIMEOUT_S)
    assert ran_in != parent


def waits_with_a_limit(client, calls):
    return [each.result(100) for each in calls]


def maps_with_a_limit(client, calls):
    return list(client.map(abs, [-1, -2], timeout=100))


def waits_as_they_are_done(client, calls):
    return sorted(each.result() for each in as_completed(calls))


def waits_by_the_standard_library(client, calls):
    done, _ = concurrent.futures.wait(calls)
    return sorted(each.result() for each in done)


def waits_at_the_end_of_the_block(client, calls):
    client.__exit__(None, None, None)
    return [each.result() for each in calls]


def waits_in_an_event_loop(client, calls):
    async def all_of_them():
        return [await each for each in calls]

    return asyncio.run(all_of_them())


def waits_as_dask_does(client, calls):
    from federation.compat.distributed import Client as DaskClient
    from federation.compat.distributed import as_completed as dask_as_completed

    with DaskClient() as dask:
        return sorted(each.result() for each in dask_as_completed(dask.map(abs, [-1, -2])))


def parent(folder, waits):
    """A task that waits in this way once such tasks have all slots."""
    with meeting(folder), Client() as client:
        return waits(client, [client.submit(abs, each) for each in (-1, -2)])


@pytest.mark.parametrize(
    "waits",
    [
        waits_with_a_limit,
        maps_with_a_limit,
        waits_as_they_are_done,
        waits_by_the_standard_library,
        waits_at_the_end_of_the_block,
        waits_in_an_event_loop,
        waits_as_dask_does,
    ],
)
def test_parents_with_all_slots_go_on_in_whatever_way_they_wait(site, tmp_path, waits):
    with site.client() as client:
        futures = [client.submit(parent, tmp_path, waits) for _ in range(2)]
        assert [each.result(TIMEOUT_S) for each in futures] == [[1, 2], [1, 2]]


def descends_with_a_limit(depth):
    if not depth:
        return 0
    with Client() as client:
        return 1 + client.submit(descends_with_a_limit, depth - 1).result(100)


def test_calls_too_deep_in_one_another_fail_by_name_where_waits_have_a_limit(make_site):
    with (
        make_site(1).client() as client,
        pytest.raises(RecursionError, match="64 calls that wait for one another"),
    ):
        client.submit(descends_with_a_limit, 70).result(TIMEOUT_S)


def is_late(seconds):
    """The time that a wait took which ends at its limit, while its call runs in this task."""
    with Client() as client:
        call = client.submit(time.sleep, seconds)
        begun_s = time.monotonic()
        try:
            call.result(0.5)
        except TimeoutError:
            return time.monotonic() - begun_s
        return None


def test_a_limit_holds_while_the_call_runs_in_its_waiting_task(make_site):
    with make_site(1).client() as client:
        took_s = client.submit(is_late, 5).result(TIMEOUT_S)
        assert took_s is not None
        assert took_s < 5
