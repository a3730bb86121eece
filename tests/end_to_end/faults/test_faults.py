"""Faults on real processes: each ends in a clear error, and harms no other user."""

import ctypes
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from support.processes import wait_until, written

from federation import Client
from federation.errors import GridError, MemoryLimitExceeded, TaskCrashed, TaskTimeout

pytestmark = pytest.mark.real


def square(x):
    return x * x


def slot_of(client, future):
    """The process that is at a task of this future's job, once there is one."""
    found = []

    def look():
        # Of another job, a slot may be said to be running that has long come to its end.
        for worker in client.ask("workers"):
            found.extend(each for each in worker["slot_details"] if each["job"] == future.job)
        return bool(found)

    wait_until(look, "a slot that runs the task")
    return found[0]["pid"]


def segfault():
    ctypes.string_at(0)


def close_everything():
    os.closerange(3, 1024)


def fork_and_return():
    # The child comes back from the task as well; it must not go on as a second slot.
    return os.fork() and "parent"


def leave_a_child():
    subprocess.Popen(["sleep", "300"])
    os._exit(1)


def print_a_lot():
    line = "x" * 1_000_000
    for _ in range(100):
        print(line)
    return "done"


def eat_memory():
    data = []
    while True:
        data.append(bytearray(10_000_000))
        time.sleep(0.005)  # who looks after it is to see it grow


def mark_and_wait(path):
    """Say that it has started; wait the first time, return the second."""
    with open(path, "a") as file:
        file.write("x")
    with open(path) as file:
        if len(file.read()) == 1:
            time.sleep(300)
    return "second"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (segfault, "SIGSEGV"),
        (lambda: os._exit(3), "exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (close_everything, "slot"),
        (leave_a_child, "exit code 1"),
    ],
    ids=["segfault", "exit", "kill", "close", "orphan"],
)
def test_a_task_that_takes_its_slot_down_twice_fails_with_the_reason(client, task, words):
    neighbours = client.map(square, range(500))
    with pytest.raises(TaskCrashed, match="2 times") as caught:
        client.submit(task).result()
    assert words in str(caught.value)
    assert list(neighbours) == [x * x for x in range(500)]


def test_nothing_that_a_slot_started_outlives_it(client):
    before = {process.pid for process in psutil.process_iter()}
    with pytest.raises(TaskCrashed):
        client.submit(leave_a_child).result()
    wait_until(
        lambda: (
            not [
                process
                for process in psutil.process_iter(["pid", "cmdline"])
                if process.pid not in before and process.info["cmdline"] == ["sleep", "300"]
            ]
        ),
        what="the end of the child",
    )


def test_a_task_that_forks_gives_one_result(client):
    assert client.submit(fork_and_return).result() == "parent"
    assert client.submit(square, 2).result() == 4


def test_printing_100_megabytes_hurts_nobody(client):
    assert client.submit(print_a_lot).result() == "done"


def test_a_hung_task_is_killed_at_its_time_limit(client):
    def hang():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass

    with pytest.raises(TaskTimeout):
        client.options(timeout_s=0.5).submit(hang).result()
    assert client.submit(square, 2).result() == 4


def test_arguments_that_cannot_be_unpickled_fail_that_task(client):
    class Trap:
        def __reduce__(self):
            return int, ("no number",)

    with pytest.raises(GridError, match="can't be unpickled"):
        client.submit(square, Trap()).result()
    assert client.submit(square, 2).result() == 4


def test_a_task_that_outgrows_its_memory_is_stopped(make_site):
    site = make_site(1, "--memory", "200M")
    with site.client() as client:
        with pytest.raises(MemoryLimitExceeded, match=r"limit is 200 MiB"):
            client.submit(eat_memory).result()
        with pytest.raises(MemoryError):
            client.submit(bytearray, 50 << 30).result()
        assert client.submit(square, 2).result() == 4


def test_kill_9_of_a_slot(client, tmp_path):
    mark = tmp_path / "mark"
    future = client.submit(mark_and_wait, str(mark))
    wait_until(lambda: written(mark), "its mark")
    os.kill(slot_of(client, future), signal.SIGKILL)
    assert future.result(timeout=300) == "second"


def test_kill_9_of_an_agent_ends_its_slots_and_its_tasks_run_elsewhere(make_site, tmp_path):
    site = make_site(0, config="[limits]\ngrace_s = 2.0\nheartbeat_s = 0.2\n")
    first = site.add_worker()
    with site.client() as client:
        mark = tmp_path / "mark"
        future = client.submit(mark_and_wait, str(mark))
        wait_until(lambda: written(mark), "its mark")
        slot = slot_of(client, future)
        site.add_worker()
        first.kill()
        assert future.result(timeout=300) == "second"
        wait_until(lambda: not psutil.pid_exists(slot), "the end of the slot")
        assert client.job(future.job).details()["failed"] == 0


@pytest.mark.thorough
def test_a_worker_that_was_paused_comes_back(make_site):
    site = make_site(0, config="[limits]\ngrace_s = 1.0\nheartbeat_s = 0.2\n")
    worker = site.add_worker()
    with site.client() as client:
        assert client.submit(square, 1).result(timeout=300) == 1
        worker.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: not client.ask("workers"), "the loss of the worker")
        future = client.submit(square, 3)
        worker.process.send_signal(signal.SIGCONT)
        assert future.result(timeout=300) == 9


def gated_square(gate, x):
    """Square; the one in the middle only once there is a file at `gate`."""
    while x == 2_500 and not os.path.exists(gate):
        time.sleep(0.01)
    return x * x


def test_kill_9_of_the_gateway_every_future_resolves_once_and_is_charged_once(make_site, tmp_path):
    site = make_site(2)
    gate = tmp_path / "gate"
    task = functools.partial(gated_square, str(gate))
    with site.client() as client:
        resolved = []
        futures = [client.submit(task, x) for x in range(5_000)]
        for future in futures:
            future.add_done_callback(resolved.append)
        results = client.options(name="mapped").map(task, range(5_000))
        assert next(results) == 0
        wait_until(lambda: futures[0].done(), "the first result")
        site.kill()
        assert not futures[2_500].done()
        assert 0 < len(resolved) < len(futures)
        gate.touch()
        site.start()
        assert [0, *results] == [x * x for x in range(5_000)]
        assert [future.result(timeout=300) for future in futures] == [x * x for x in range(5_000)]
        assert len(resolved) == len(futures)
        for job in (futures[0].job, results.job):
            assert tasks_charged(site, job) == 5_000
        rows = client.ask("report", kind="cost", by=["job"])
        column = rows["columns"].index("cost_nanos")
        costs = {row[0]: row[column] for row in rows["rows"]}
        for row in client.jobs(limit=10):
            assert row["cost_nanos"] == costs[row["id"]]


def tasks_charged(site, job):
    """How many tasks of a job have a charge; fails when one has two."""
    import sqlite3

    connection = sqlite3.connect(f"file:{site.state}/gridfed.db?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT first, tasks FROM usage WHERE job = ? AND state = 'ok' ORDER BY first", (job,)
        ).fetchall()
    finally:
        connection.close()
    end = 0
    for first, tasks in rows:
        assert first >= end, f"task {first} was charged twice"
        end = first + tasks
    return sum(tasks for _, tasks in rows)


def test_a_detached_job_goes_on_after_kill_9_of_the_gateway(make_site):
    def slow(x):
        time.sleep(0.002)
        return x

    site = make_site(2)
    with site.client() as client:
        job = client.submit_job(slow, range(1000))
        wait_until(lambda: job.progress().done > 50)
    site.kill()
    site.start()
    with site.client() as client:
        job = client.job(job.id)
        assert list(job.results()) == list(range(1000))
        assert job.wait(200) == "done"
        assert tasks_charged(site, job.id) == 1000


def test_a_client_that_vanishes_takes_its_attached_tasks_along_but_no_detached_ones(make_site):
    site = make_site(2, config="[limits]\ngrace_s = 0.5\nheartbeat_s = 0.2\n")
    code = f"""
import os, time
from federation import Client
client = Client({site.address!r})
job = client.submit_job(time.sleep, [0.01] * 100)
futures = [client.submit(time.sleep, 300) for _ in range(20)]
client.ask("status")  # all of that has arrived
print(job.id, futures[0].job, flush=True)
time.sleep(300)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=site.folder
    )
    assert process.stdout is not None
    detached, attached = process.stdout.readline().split()
    process.kill()
    process.wait()
    process.stdout.close()
    with site.client() as client:
        wait_until(lambda: client.job(attached).state == "abandoned", "the end of the attached job")
        assert client.job(detached).wait(300) == "done"
        assert client.job(detached).progress().done == 100


def test_a_forked_child_is_told_and_harms_nobody(shared_site):
    with shared_site.client() as client:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                client.submit(square, 1)
            except GridError as error:
                os.write(writer, str(error).encode())
            try:
                Client(shared_site.address)
            except GridError as error:
                os.write(writer, b"|" + str(error).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(writer)
        text = b""
        while part := os.read(reader, 4096):
            text += part
        os.close(reader)
        assert text.count(b"spawn") == 2
        assert client.submit(square, 2).result() == 4


def _says(use):
    """The report of a forked child: its error, or that there was none. Empty if it died."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = "no error"
        try:
            use()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def test_a_forked_child_can_do_nothing_with_what_its_parent_opened(shared_site):
    with shared_site.client() as client:
        future = client.submit(time.sleep, 60)  # its job is open, and goes on taking calls
        results = client.map(square, iter(range(200_000)))
        assert "spawn" in _says(lambda: client.submit(time.sleep, 0))
        assert "spawn" in _says(lambda: future.cancel(stop=True))
        assert "spawn" in _says(lambda: list(results))
        assert _says(results.close) == "no error"
        assert _says(client.shutdown) == "no error"
        assert future.cancel(stop=True)
        assert next(results) == 0
        results.close()
        assert client.submit(square, 2).result() == 4


def _use_client(address, queue):
    with Client(address) as client:
        queue.put(sum(client.map(square, range(50))))


@pytest.mark.thorough
def test_many_clients_at_once(shared_site):
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    processes = [
        context.Process(target=_use_client, args=(shared_site.address, queue)) for _ in range(8)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [queue.get() for _ in processes] == [sum(x * x for x in range(50))] * 8


@pytest.mark.thorough
def test_200_clients_in_one_process(shared_site):
    clients = [shared_site.client() for _ in range(200)]
    try:
        futures = [client.submit(square, at) for at, client in enumerate(clients)]
        assert [future.result(timeout=300) for future in futures] == [x * x for x in range(200)]
    finally:
        for client in clients:
            client.shutdown()


def test_the_first_interrupt_stops_a_gateway_cleanly(make_site):
    site = make_site(1)
    with site.client() as client:
        assert client.submit(square, 2).result() == 4
    assert site.gateway.stop() == 0
    assert "stopping" in site.gateway.text()
    assert not os.path.exists(site.address.removeprefix("ipc://"))


def test_a_second_gateway_on_the_same_state_is_refused(make_site):
    site = make_site(1)
    other = subprocess.run(
        [
            sys.executable,
            "-m",
            "gateway",
            "gateway",
            "--state",
            str(site.state),
            "--listen",
            f"ipc://{site.folder}/other.sock",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert other.returncode == 1
    assert f"the gateway with process id {site.gateway.pid}:" in other.stderr


def stops_the_clock():
    time.monotonic_ns = lambda: 0
    return "stopped"


def test_a_task_that_stops_the_clock_harms_nobody(make_site):
    site = make_site(1)
    with site.client() as client:
        assert client.submit(stops_the_clock).result(timeout=300) == "stopped"
        squares = [client.submit(pow, at, 2).result(timeout=300) for at in range(5)]
        assert squares == [0, 1, 4, 9, 16]
    assert "left" not in site.gateway.text()


@pytest.mark.thorough
def test_without_a_gateway_nobody_waits_longer_than_asked(make_site):
    site = make_site(1)
    with site.client() as client:
        job = client.submit_job(time.sleep, [600])
        running_one = client.submit(time.sleep, 600)
        results = client.map(time.sleep, [600], timeout=0.3)
        site.kill()
        with pytest.raises(TimeoutError):
            next(results)
        with pytest.raises(TimeoutError):
            job.wait(timeout=0.3)
        assert not running_one.cancel()
        client._engine.close()


@pytest.mark.thorough
def test_failures_are_still_failures_after_a_restart(make_site):
    site = make_site(1)
    with site.client() as client:
        job = client.submit_job(divide_or_wait, [1, 0, 1, 0, 60])
        wait_until(lambda: job.progress().done + job.progress().failed == 4, "the first four")
        site.kill()
        site.start()
        wait_until(lambda: job.progress().done == 2, "the recovery")
        assert job.progress().failed == 2
        job.cancel(stop=True)


def divide_or_wait(by):
    time.sleep(by if by > 1 else 0.06)  # so long that each result leaves by itself
    return 1 / by
