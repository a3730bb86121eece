"""A cancelled job begins nothing after its gateway was killed and started again."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import pytest
from support.members import MemberSite, federate, settled
from support.processes import wait_until

from federation.errors import GridError, TaskStopped

pytestmark = pytest.mark.real


def mark_and_await(folder, go, number):
    """Leave a mark for this run, and end once there is a file at `go`."""
    path = os.path.join(folder, f"{number}-{time.time_ns()}")
    with open(path, "x"):
        pass
    while not os.path.exists(go):
        time.sleep(0.01)
    return number


def runs(folder):
    return len(os.listdir(folder))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "marks"
    made.mkdir()
    return made


@pytest.mark.parametrize("stop", [False, True])
def test_a_cancelled_detached_job_begins_nothing_after_kill_9_of_its_gateway(
    make_site, tmp_path, folder, stop
):
    site, go = make_site(2), tmp_path / "go"
    with site.client() as client:
        job = client.submit_job(partial(mark_and_await, folder, go), range(6))
        wait_until(lambda: runs(folder) == 2, "two tasks that run")
        job.cancel(stop=stop)
        site.kill()
    site.start()
    go.touch()
    with site.client() as client:
        again = client.job(job.id)
        assert again.wait(300) == "cancelled"
        assert runs(folder) == 2
        assert again.progress().total == 6
        assert {type(each).__name__ for each in again.results(return_exceptions=True)} == {
            "TaskStopped"
        }
        # The slots take other work, so those tasks had their chance.
        assert client.submit(len, [1]).result(timeout=300) == 1
        assert runs(folder) == 2


def test_an_attached_job_that_an_operator_cancelled_is_not_taken_up_again(
    make_site, tmp_path, folder
):
    site, go = make_site(1), tmp_path / "go"
    with site.client() as client:
        futures = [client.submit(mark_and_await, folder, go, number) for number in range(3)]
        wait_until(lambda: runs(folder) == 1, "a task that runs")
        with site.client() as other:
            other.job(futures[0].job).cancel()
        site.kill()
        site.start()
        go.touch()
        for future in futures:
            with pytest.raises((TaskStopped, CancelledError, GridError)):
                future.result(timeout=300)
        assert client.submit(len, [1]).result(timeout=300) == 1
        assert runs(folder) == 1
        assert client.job(futures[0].job).state == "cancelled"


AWAY = """
import sys
from functools import partial
sys.path[:0] = [sys.argv[2], f'{sys.argv[2]}/../..']
from test_cancel_over_restart import mark_and_await
from federation import Client
with Client(sys.argv[1]) as client:
    futures = [client.submit(partial(mark_and_await, *sys.argv[3:5]), n) for n in range(3)]
    print(futures[0].job, flush=True)
    for future in futures:
        try:
            print(future.result(timeout=300), flush=True)
        except BaseException as error:
            print(f"{type(error).__name__}: {error} {getattr(future, 'end_text', '')}", flush=True)
"""


@pytest.mark.parametrize("order", ["cancel", "hold"])
def test_an_order_about_a_lost_job_holds_when_its_client_returns(
    make_site, tmp_path, folder, order
):
    """The client's process stands still while its gateway is killed and started again."""
    site, go = make_site(1), tmp_path / "go"
    here = str(Path(__file__).parent)
    program = [sys.executable, "-c", AWAY, site.address, here, str(folder), str(go)]
    child = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        name = child.stdout.readline().strip()
        wait_until(lambda: runs(folder) == 1, "a task that runs")
        child.send_signal(signal.SIGSTOP)
        site.kill()
        site.start()
        go.touch()
        with site.client() as other:
            job = other.job(name)
            assert job.state == "lost"
            getattr(job, order)()
            assert job.state == {"cancel": "cancelled", "hold": "lost"}[order]
            child.send_signal(signal.SIGCONT)
            if order == "hold":
                wait_until(lambda: job.details()["ended_at_s"] is None, "the client's return")
                assert other.submit(len, [1]).result(timeout=300) == 1  # a slot is free
                assert job.details()["held_by"]
                assert runs(folder) == 1
                job.release()
        lines = child.stdout.read().split("\n")[:-1]
        assert child.wait(300) == 0
        assert len(lines) == 3
        if order == "hold":
            assert lines == ["0", "1", "2"]
        else:
            assert all("cancelled" in each.lower() for each in lines), lines
            assert runs(folder) == 1
    finally:
        child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()
        child.stdout.close()


def test_tasks_at_a_seller_are_stopped_that_was_away_when_its_buyer_was_killed(tmp_path, folder):
    go = tmp_path / "go"
    buyer = MemberSite(tmp_path, "london", 1, "4 USD")
    seller = MemberSite(tmp_path, "paris", 2, "0.04 USD")
    try:
        federate(buyer, seller)
        buyer.keep_port()
        with buyer.client() as client:
            view = client.options(sites=["paris"])
            job = view.submit_job(partial(mark_and_await, folder, go), range(4))
            wait_until(lambda: runs(folder) == 2, "two tasks that run at the seller")
            os.kill(seller.gateway.process.pid, signal.SIGSTOP)  # it hears nothing of the cancel
            job.cancel(stop=True)
            buyer.gateway.kill()
        os.kill(seller.gateway.process.pid, signal.SIGCONT)
        buyer.start()
        with buyer.client() as client:
            assert client.job(job.id).wait(300) == "cancelled"
        wait_until(
            lambda: not any(each["in_flight"] for each in seller.ask("jobs")),
            "the end of the tasks at the seller",
        )
        assert not go.exists()  # they did not end by themselves
        assert runs(folder) == 2
        wait_until(lambda: settled(buyer, seller), "both sites charge the time until the stop")
    finally:
        go.touch()
        for member in (buyer, seller):
            member.gateway.stop()
