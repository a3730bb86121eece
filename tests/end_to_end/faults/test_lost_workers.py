"""Workers that are lost, on real processes: by chance, by malice, and through a task."""

import functools
import os
import signal
import sys
import threading
import time

import pytest
from support.processes import wait_until
from support.vandal import Vandal

from federation.errors import WorkerLost
from federation.messages import messages

pytestmark = pytest.mark.real

CONFIG = """
[limits]
grace_s = 1.0
heartbeat_s = 0.2
task_losses = 2

[[pool]]
name = "workers"
kind = "remote"
price = "3.60 USD"
"""
WORKS_S = 3.0


def slow_square(x):
    time.sleep(0.2)
    return x * x


def work_and_kill_agent(folder):
    """Compute, keep the result, and end the agent before it can report."""
    time.sleep(WORKS_S)
    (folder / f"{time.time_ns()}").touch()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


def flap(address, is_over, taken):
    """Join with 64 slots, take tasks, say that they have begun, and be gone; again and again."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    about = {"slots": 64, "pool": "", "python": python, "begun": True}
    while not is_over.is_set():
        vandal = Vandal(address)
        vandal.come_in("worker", about)
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s and not is_over.is_set():
            frames = vandal.link.receive()
            if not frames:
                time.sleep(0.01)
            said = [each for frame in frames for each in vandal.dialogue.receive(frame, 0.0)]
            rows = [
                [each.assignment, each.first + at, 0]
                for each in said
                if isinstance(each, messages.Assign)
                for at in range(len(each.arguments))
            ]
            if rows:
                taken.append(len(rows))
                vandal.dialogue.post(messages.BegunTasks(rows))
            vandal.dialogue.flush(vandal.link.send, 0.0)
        vandal.link.close()


def test_a_worker_that_joins_takes_tasks_and_leaves_fails_nobodys_tasks(make_site):
    site = make_site(0, config=CONFIG)
    site.add_worker(2)
    is_over, taken = threading.Event(), []
    with site.client() as client:
        assert client.submit(slow_square, 1).result(timeout=300) == 1
        flapper = threading.Thread(target=flap, args=(site.address, is_over, taken))
        flapper.start()
        try:
            wait_until(lambda: "worker vandal joined" in site.text(), "the worker that flaps")
            assert list(client.map(slow_square, range(40), timeout=300)) == [
                x * x for x in range(40)
            ]
        finally:
            is_over.set()
            flapper.join()
    assert taken, "it was given tasks"


def test_three_workers_that_are_killed_as_they_join_fail_no_task(make_site):
    site = make_site(0, config=CONFIG)
    with site.client() as client:
        futures = [client.options(retries=0).submit(slow_square, x) for x in range(6)]
        for number in range(3):
            worker = site.add_worker(8)
            joined = number + 1
            wait_until(lambda n=joined: site.text().count(" joined with ") >= n, "a worker")
            worker.kill()
        wait_until(lambda: not client.ask("workers"), "their loss")
        site.add_worker(8)
        assert [each.result(timeout=300) for each in futures] == [x * x for x in range(6)]


def test_a_task_that_ends_its_agent_is_charged_for_what_it_ran_and_given_up(make_site, tmp_path):
    site = make_site(0, config=CONFIG)
    marks = tmp_path / "marks"
    marks.mkdir()
    with site.client() as client:
        future = client.options(retries=5).submit(work_and_kill_agent, marks)
        for number in (1, 2):
            site.add_worker(1)
            wait_until(lambda n=number: len(list(marks.iterdir())) == n, "the end of an agent")
        error = future.exception(timeout=300)
        assert isinstance(error, WorkerLost)
        assert "lost 2 times while it ran" in str(error)
        report = client.ask("report", kind="usage", by=["state"])
        rows = [dict(zip(report["columns"], row, strict=True)) for row in report["rows"]]
        found = {row["state"]: row for row in rows}
        # Alone on its worker, it is taken to have ended it: both runs are charged.
        assert set(found) == {"wasted", "failed"}
        for row in found.values():
            assert row["wall_ns"] == pytest.approx(WORKS_S * 1e9, abs=3e9)
            # A slot-hour costs 3.60, and so a second a thousandth of a unit.
            assert row["cost_nanos"] == pytest.approx(row["wall_ns"] / 1e9 * 1_000_000, rel=1e-6)
        assert len(list(marks.iterdir())) == 2


def mark_and_await(folder, go):
    (folder / f"{time.time_ns()}").touch()
    while not go.exists():
        time.sleep(0.01)
    return "went"


def test_a_gateway_that_is_stopped_again_and_again_uses_up_no_losses_of_a_task(make_site, tmp_path):
    site = make_site(0, config=CONFIG)
    site.add_worker(1)
    marks, go = tmp_path / "marks", tmp_path / "go"
    marks.mkdir()
    with site.client() as client:
        job = client.submit_job(functools.partial(mark_and_await, marks), [go])
    for number in (1, 2, 3):  # one more than task_losses
        wait_until(lambda n=number: len(list(marks.iterdir())) >= n, "a run")
        with site.client() as client:
            wait_until(lambda: client.ask("running", job=job.id)["running"], "word of it")
        os.kill(site.gateway.pid, signal.SIGSTOP)
        time.sleep(3.0)  # longer than a lease: its worker ends the task
        os.kill(site.gateway.pid, signal.SIGCONT)
    wait_until(lambda: len(list(marks.iterdir())) >= 4, "the last run")
    go.touch()
    with site.client() as client:
        assert list(client.job(job.id).results()) == ["went"]
