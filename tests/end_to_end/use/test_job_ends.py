"""However a job ends, the futures of its client end, and the next submit opens a new job."""

import concurrent.futures
import json
import os
import time

import pytest
from support.command import quick as run
from support.processes import wait_until

from federation.errors import TaskStopped
from federation.messages.messages import Cancel

pytestmark = pytest.mark.real


def begin_and_await(begun, go):
    begun.touch()
    while not os.path.exists(go):
        time.sleep(0.01)
    return "went"


def double(x):
    return 2 * x


def await_file(go):
    while not os.path.exists(go):
        time.sleep(0.01)
    return "went"


def all_done(futures):
    return not concurrent.futures.wait(futures, timeout=300).not_done


@pytest.mark.parametrize("stop", [False, True])
def test_cancelling_a_job_by_its_handle_ends_this_clients_futures(client, tmp_path, stop):
    go = tmp_path / "go"
    futures = [client.submit(begin_and_await, tmp_path / "begun", go) for _ in range(6)]
    wait_until((tmp_path / "begun").exists, "a task that runs")
    taken = client.job(futures[0].job).cancel(stop=stop)
    go.touch()
    assert all_done(futures)
    cancelled = [future for future in futures if future.cancelled()]
    assert len(cancelled) == taken == (6 if stop else len(cancelled))
    assert all(each.result() == "went" for each in futures if each not in cancelled)
    assert len(cancelled) >= 4
    again = client.submit(begin_and_await, tmp_path / "begun", go)
    assert again.result(timeout=300) == "went"
    assert again.job != futures[0].job


def test_cancelling_by_another_client_ends_futures_and_the_next_submit_opens_a_job(
    shared_site, tmp_path
):
    go = tmp_path / "go"
    with shared_site.client() as client, shared_site.client() as other:
        futures = [client.submit(await_file, go) for _ in range(6)]
        wait_until(lambda: client.job(futures[0].job).progress().done == 0, "the job")
        other.job(futures[0].job).cancel(stop=True)
        assert all_done(futures)
        assert all(future.cancelled() for future in futures)
        go.touch()
        again = client.submit(await_file, go)
        assert again.result(timeout=300) == "went"
        assert again.job != futures[0].job


def test_a_submit_that_crosses_the_end_of_its_job_goes_to_a_new_job(shared_site, tmp_path):
    go = tmp_path / "go"
    with shared_site.client() as client, shared_site.client() as other:
        first = [client.submit(begin_and_await, tmp_path / "begun", go) for _ in range(4)]
        job = first[0].job
        wait_until((tmp_path / "begun").exists, "a task that runs")
        with client._engine._leading.lock:  # it hears nothing meanwhile
            other.job(job).cancel()
            crossing = [client.submit(begin_and_await, tmp_path / "begun", go) for _ in range(3)]
            assert {future.job for future in crossing} == {job}
        go.touch()
        assert [future.result(timeout=300) for future in crossing] == ["went"] * 3
        assert all_done(first)
        assert all(future.cancelled() or future.result() == "went" for future in first)
        assert job not in {future.job for future in crossing}
        assert client.submit(double, 4).result(timeout=300) == 8


def test_a_cancel_that_nobody_waits_for_still_ends_its_future(client, tmp_path, monkeypatch):
    go = tmp_path / "go"
    running = [client.submit(await_file, go) for _ in range(2)]
    waiting = [client.submit(await_file, tmp_path / "never") for _ in range(2)]
    monkeypatch.setattr("federation.engine.futures.ANSWER_S", 0.0)  # it gives up before the answer
    for future in waiting:
        future.cancel()
    assert all_done(waiting)
    assert all(future.cancelled() for future in waiting)
    go.touch()
    assert [future.result(timeout=300) for future in running] == ["went"] * 2
    assert not any(isinstance(each, Cancel) for each in client._engine._table.questions)


def test_a_map_whose_job_another_cancels_raises(shared_site, tmp_path):
    with shared_site.client() as client, shared_site.client() as other:
        results = client.map(await_file, [tmp_path / "never"] * 8)
        other.job(results.job).cancel(stop=True)
        with pytest.raises(TaskStopped):
            next(results)


def test_what_waits_in_the_client_is_cancelled_with_the_job(shared_site, tmp_path):
    go = tmp_path / "go"
    with shared_site.client() as client, shared_site.client() as other:
        first = client.submit(await_file, go)
        sender = client._engine._jobs.sender
        sender._calls_out += 1 << 40  # the window is full: what follows waits here
        behind = client.submit(await_file, go)
        other.job(first.job).cancel()
        assert all_done([behind])
        assert behind.cancelled()
        sender._calls_out -= 1 << 40
        go.touch()
        assert client.submit(await_file, go).result(timeout=300) == "went"
        assert all_done([first])


def test_a_client_that_lets_go_leaves_no_future_pending(shared_site):
    client = shared_site.client()
    future = client.submit(time.sleep, 60)
    client._engine.let_go()
    assert all_done([future])
    assert future.cancelled()
    client._engine._release()


def test_a_cancelled_job_has_ended_when_its_last_begun_task_has(client, local_gateway, tmp_path):
    begun, go = tmp_path / "begun", tmp_path / "go"
    job = client.submit_job(begin_and_await, [(begun, go)], star=True)
    wait_until(begun.exists, "a task that runs")
    where = "--gateway", local_gateway
    said = run("cancel", job.id, *where)
    assert "it is cancelling: 1 task had begun and may end" in said
    try:
        assert job.state == "cancelling"
        with pytest.raises(TimeoutError, match="is still cancelling"):
            job.wait(0.1)
        shown = json.loads(run("jobs", "--state", "cancelling", *where, "--json"))
        assert [each["id"] for each in shown["rows"]] == [job.id]
        said = run("forget", job.id, *where, code=1)
        assert "is cancelling: 1 task of it still runs" in said
    finally:
        go.touch()
    assert job.wait(300) == "cancelled"
    assert (job.progress().done, job.cost().wall_ns > 0) == (1, True)
    job.forget()
