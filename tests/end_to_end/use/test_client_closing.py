"""Work after its client closes, or its process ends: it runs, or is counted."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from support.processes import wait_until

pytestmark = pytest.mark.real

LIMIT_S = 300.0  # half as long as a task runs
START = """
import itertools, os, signal, sys, threading, time
from pathlib import Path
from federation import Client
from federation.engine import mapping

folder = Path(sys.argv[1])
paths = [folder / str(at) for at in range(40)]

def touch(path):
    path.touch()

def begin(path):
    path.touch()
    time.sleep(600)

client = Client()
"""


@pytest.fixture
def start(shared_site, tmp_path):
    """Start a script that makes a client of the shared site."""
    started = []

    def begin(script, address=shared_site.address):
        code = START + textwrap.dedent(script)
        process = subprocess.Popen(  # in a session of its own: what it forks ends with it
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "GRIDFED_GATEWAY": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def end_of(process):
    """The stderr of a script that ended with code 0."""
    out, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, out + errors
    return errors


def files(tmp_path):
    return sorted(int(path.name) for path in tmp_path.iterdir() if path.name.isdigit())


@pytest.mark.parametrize(
    "script",
    [
        "with client: client.map(touch, paths)",
        "with client: results = client.map(touch, paths)",
        "with client: client.map(touch, iter(paths))",
        "client.map(touch, paths)",
        "kept = client.map(touch, paths)",
        "for path in paths: client.submit(touch, path)",
        "for path in paths: client.submit(touch, path)\nclient.shutdown(wait=False)",
        "client.map(touch, paths)\nclient.shutdown(wait=False)",
        "with client:\n    mapping.AHEAD_CALLS = 5\n    client.map(touch, paths)",
        "mapping.AHEAD_CALLS = 5\nclient.map(touch, paths)",
        "mapping.AHEAD_CALLS = 5\nkept = client.map(touch, paths)\nnext(kept)",
        "if os.fork(): os.wait()\nfor path in paths: touch(path)",
        "import signal\nsys.last_type = ValueError\nclient.map(touch, paths)",
    ],
)
def test_what_was_submitted_runs_before_the_script_ends(start, tmp_path, script):
    assert end_of(start(script)) == ""
    assert files(tmp_path) == list(range(40))


def test_results_that_fit_can_be_read_after_the_client_has_closed(start, tmp_path):
    script = """
    with client:
        results = client.map(abs, range(-100, 0))
    assert list(results) == list(range(100, 0, -1))
    """
    assert end_of(start(script)) == ""


def test_a_map_without_a_length_is_cancelled_and_its_tasks_counted(start):
    errors = end_of(start("with client: client.map(time.sleep, itertools.repeat(0.05))"))
    assert "tasks of a map cancelled before they started" in errors
    assert int(errors.split()[0].replace(",", "")) > 1000


def test_futures_that_shutdown_cancels_are_counted(start, tmp_path):
    script = """
    futures = [client.submit(begin, path) for path in paths]
    while not any(path.exists() for path in paths): time.sleep(0.01)
    client.shutdown(wait=False, cancel_futures=True)
    cancelled = sum(future.cancelled() for future in futures)
    print(cancelled)
    os.kill(os.getpid(), signal.SIGINT)
    """
    process = start(script)
    out, errors = process.communicate(timeout=LIMIT_S)
    cancelled = int(out)
    assert f"{cancelled} tasks cancelled by shutdown(cancel_futures=True)" in errors
    # And after a Ctrl-C the exit does not wait for those that run.
    assert f"{40 - cancelled} task" in errors
    assert "dropped: interrupted" in errors


def test_a_ctrl_c_while_the_exit_waits_drops_the_rest_and_counts_it(start, tmp_path):
    script = """
    def say_when_it_waits():
        main, names = threading.main_thread().ident, []
        while "_run_out" not in names:
            time.sleep(0.01)
            frame, names = sys._current_frames().get(main), []
            while frame is not None:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
        print("waits", flush=True)

    threading.Thread(target=say_when_it_waits, daemon=True).start()
    for path in paths: client.submit(begin, path)
    """
    process = start(script)
    assert process.stdout.readline() == "waits\n"
    wait_until(lambda: files(tmp_path), "a task that runs")
    begun_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert "40 tasks dropped: interrupted while the interpreter waited" in errors
    assert time.monotonic() - begun_s < LIMIT_S / 2


def test_leaving_the_block_by_ctrl_c_counts_what_is_dropped(start, tmp_path):
    script = """
    try:
        with client:
            results = client.map(begin, paths)
            next(results)
    except KeyboardInterrupt:
        print("left")
    """
    process = start(script)
    wait_until(lambda: files(tmp_path), "a task that runs")
    process.send_signal(signal.SIGINT)
    assert "40 tasks dropped: interrupted" in end_of(process)


def test_the_exit_does_not_wait_for_ever_for_a_gateway_that_is_gone(make_site, start, tmp_path):
    site = make_site(0)
    script = """
    client.shutdown()
    client = Client(failover_s=0.5)
    for path in paths: client.submit(touch, path)
    (folder / "sent").touch()
    while not (folder / "gone").exists(): time.sleep(0.01)
    """
    process = start(script, site.address)
    wait_until((tmp_path / "sent").exists, "the tasks")
    site.kill()
    (tmp_path / "gone").touch()
    errors = end_of(process)
    assert "40 tasks dropped: no gateway was reached" in errors


@pytest.mark.parametrize(
    "waits", ["client.submit(begin, path).result()", "next(client.map(begin, [path] * 9))"]
)
def test_an_interrupted_cell_leaves_no_task_in_a_slot(start, tmp_path, waits):
    script = f"""
    def cell(path):
        threading.Thread(target=interrupt, args=(path,)).start()
        {waits}

    def is_waiting():
        frame, names = sys._current_frames()[threading.main_thread().ident], set()
        while frame is not None:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        return bool(names & {{"_wait", "__next__"}})

    def interrupt(path):
        # An interrupt between submit and result finds nobody who waits.
        while not (path.exists() and is_waiting()): time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    for path in paths[:4]:  # more than there are slots
        try:
            cell(path)
        except KeyboardInterrupt as error:
            sys.last_value = error  # as a notebook does
        assert path.exists()
    """
    assert end_of(start(script)) == ""


@pytest.mark.parametrize(
    "waits", ["client.submit(begin, path).result()", "next(client.map(begin, [path] * 9))"]
)
@pytest.mark.parametrize("calls", ["[interrupt, real]", "[real, interrupt]"])
def test_an_interrupt_amid_a_message_leaves_no_task_in_a_slot(start, waits, calls):
    """The client connects anew then, and the gateway has what it ran for the last session."""
    script = f"""
    real, awaited = client._engine._exchange, []

    def interrupt(mono_s):
        is_here = threading.current_thread() is threading.main_thread()
        if is_here and awaited and awaited[0].exists():
            awaited.clear()
            raise KeyboardInterrupt

    calls = {calls}
    client._engine._exchange = lambda mono_s: [call(mono_s) for call in calls][calls.index(real)]

    def cell(path):
        awaited.append(path)
        {waits}

    for path in paths[:4]:  # more than there are slots
        try:
            cell(path)
        except KeyboardInterrupt as error:
            sys.last_value = error
        assert path.exists() and not awaited
    """
    assert end_of(start(script)) == ""
