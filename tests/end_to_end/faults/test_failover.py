"""A client's gateway dies, and the client goes to another: real processes, two sites."""

import logging
import signal
import sqlite3
import time
from itertools import pairwise

import pytest
from support.command import run
from support.processes import SiteProcess, wait_until

from federation import Client
from federation.errors import GatewayUnreachable
from federation.ranges import RangeSet

pytestmark = pytest.mark.real

TASKS = 20_000
QUICK = "[limits]\nheartbeat_s = 0.2\ngrace_s = 2.0\n"
RIGHT = [x * x for x in range(TASKS)]
WEAK = "tcp://192.0.2.7:7461"


def square(x):
    return x * x


def square_slowly(x):
    if x % 8 == 0:
        time.sleep(0.0005)
    return x * x


def charged_ranges(site, job):
    """Which tasks of a job have a charge at a site; fails when one has two there."""
    connection = sqlite3.connect(f"file:{site.state}/gridfed.db?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT first, tasks FROM usage WHERE job = ? AND state = 'ok' ORDER BY first", (job,)
        ).fetchall()
    finally:
        connection.close()
    ranges = [(first, first + tasks) for first, tasks in rows]
    assert all(one[1] <= other[0] for one, other in pairwise(ranges))
    return ranges


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Two sites; the first advertises the second, and an address that must not be followed."""
    second = SiteProcess(tmp_path_factory.mktemp("second"), 1, config=QUICK)
    others = f"[site]\nothers = {[second.address, WEAK]}\n"
    first = SiteProcess(tmp_path_factory.mktemp("first"), 1, config=others + QUICK)
    yield first, second
    first.stop()
    second.stop()


@pytest.fixture
def pair(both):
    """Both sites, up."""
    for site in both:
        if site.gateway.process.poll() is not None:
            site.start()
    return both


def test_kill_9_in_a_map_and_every_result_comes_once_from_the_gateway_learnt(pair, caplog):
    first, second = pair
    with Client(first.address) as client, caplog.at_level(logging.WARNING, "gridfed"):
        resolved = []
        futures = [client.submit(square, x) for x in range(TASKS)]
        for future in futures:
            future.add_done_callback(resolved.append)
        results = client.map(square_slowly, range(TASKS))
        assert [next(results) for _ in range(100)] == RIGHT[:100]
        killed_s = time.monotonic()
        first.kill()
        client.ask("status")
        print(f"failover after kill -9: {time.monotonic() - killed_s:.3f} s")
        assert client.address == second.address
        assert [future.result(timeout=300) for future in futures] == RIGHT
        assert list(results) == RIGHT[100:]
        assert len(resolved) == len(set(map(id, resolved))) == TASKS
        job = client.job(results.job)
        assert job.wait(200) == "done"  # also at a gateway that never saw its first tasks
        assert job.progress().done < TASKS
        # What both charged is everything; what overlaps was charged twice, and ran twice.
        charged = [charged_ranges(site, results.job) for site in pair]
        assert list(RangeSet(charged[0] + charged[1])) == [(0, TASKS)]
        twice = sum(stop - start for start, stop in charged[0] + charged[1]) - TASKS
        print(f"charged twice: {twice} of {TASKS} tasks")
    said = [record.message for record in caplog.records]
    assert (
        f"switched from the gateway at {first.address} to the gateway at {second.address}" in said
    )


def test_a_gateway_that_is_paused_is_left_and_its_late_results_are_nobodys(pair):
    first, second = pair
    with Client([first.address, second.address], failover_s=3.0) as client:
        results = client.map(square, range(TASKS))
        assert next(results) == 0
        paused_s = time.monotonic()
        first.gateway.process.send_signal(signal.SIGSTOP)
        try:
            client.ask("status")
            print(f"failover after SIGSTOP: {time.monotonic() - paused_s:.3f} s")
            assert client.address == second.address
        finally:
            first.gateway.process.send_signal(signal.SIGCONT)
        assert [0, *results] == RIGHT
        assert client.address == second.address  # it stays, though the first is well again


def test_a_gateway_that_stops_on_purpose_is_left_at_once(pair):
    first, second = pair
    with Client(first.address, failover_s=600.0) as client:
        results = client.map(square, range(TASKS))
        assert next(results) == 0
        first.gateway.stop()
        assert [0, *results] == RIGHT
        assert client.address == second.address


@pytest.mark.thorough
def test_when_both_are_dead_the_first_to_come_back_gets_the_work(pair):
    first, second = pair
    with Client(f"{first.address},{second.address}") as client:
        results = client.map(square, range(TASKS))
        assert next(results) == 0
        second.kill()
        first.kill()
        second.start()
        assert [0, *results] == RIGHT
        assert client.address == second.address


def test_when_none_comes_back_everything_fails_once_give_up_s_is_over(pair):
    _, alone = pair
    client = Client(alone.address, give_up_s=0.5)
    resolved = []
    future = client.submit(time.sleep, 600)
    future.add_done_callback(resolved.append)
    alone.kill()
    with pytest.raises(GatewayUnreachable, match=r"0\.5 s"):
        future.result(timeout=300)
    with pytest.raises(GatewayUnreachable):
        client.submit(square, 1)
    client.shutdown()
    assert len(resolved) == 1


@pytest.mark.thorough
def test_a_detached_job_is_asked_for_at_its_own_gateway(pair):
    first, second = pair
    with Client(first.address, connect_timeout_s=4.0) as client:
        job = client.submit_job(square, range(100))
        assert job.wait(300) == "done"
        first.kill()
        client.ask("status")
        assert client.address == second.address
        for handle in (job, client.job(job.id)):
            with pytest.raises(GatewayUnreachable, match=first.address):
                handle.details()
        first.start()
        assert list(job.results()) == RIGHT[:100]
        assert client.job(job.id).state == "done"
        assert client.address == second.address
        other = client.submit_job(square, range(3))
        assert list(other.results()) == [0, 1, 4]
        assert other.gateway == second.address


def test_a_job_that_was_being_handed_over_is_not_handed_over_twice(pair):
    first, second = pair

    def items():
        yield from range(5000)
        first.kill()
        yield from range(5000)

    with Client(first.address) as client:
        with pytest.raises(GatewayUnreachable, match="was submitted") as caught:
            client.submit_job(square, items(), name="half")
        assert first.address in str(caught.value)
        assert client.address == second.address
        assert not [job for job in client.jobs() if job["name"] == "half"]
        assert client.submit(square, 3).result(timeout=300) == 9


def test_a_weaker_transport_is_not_followed(pair, caplog):
    first, second = pair
    with caplog.at_level(logging.WARNING, "gridfed"), Client(first.address) as client:
        assert client.submit(square, 2).result() == 4
        assert client._engine._line.itinerary.known == (first.address, second.address)
    (line,) = [record.message for record in caplog.records if WEAK in record.message]
    assert "weaker" in line


def test_the_first_connection_goes_to_the_first_that_is_there(pair, tmp_path):
    site, _ = pair
    with Client([f"ipc://{tmp_path}/nobody.sock", site.address]) as client:
        assert client.address == site.address
    with pytest.raises(GatewayUnreachable, match="nobody"):
        Client(f"ipc://{tmp_path}/nobody.sock,ipc://{tmp_path}/none.sock")


def test_a_held_job_is_held_at_the_gateway_to_which_its_client_goes(pair):
    first, second = pair
    with Client(first.address) as client:
        results = client.map(square, [1])
        assert list(results) == [1]
        slow = [client.options(name="slow").submit(time.sleep, 0.5) for _ in range(8)]
        name, site = slow[0].job, client.gateway["site"]
        run("hold", name, "--gateway", first.address)
        wait_until(lambda: client.job(name).details()["in_flight"] == 0)
        done = sum(future.done() for future in slow)
        assert done < len(slow)
        first.kill()
        client.ask("status")
        assert client.address == second.address
        found = client.job(name).details()
        assert f" site {site}," in found["held"]
        assert found["in_flight"] == found["done"] == 0
        run("release", name, "--gateway", second.address)
        assert [future.result(200) for future in slow] == [None] * len(slow)
