"""A gateway with a Symphony pool, over the stand-in: the results and faults that its users see."""

import contextlib
import os
import signal
import time

import psutil
import pytest
from click.testing import CliRunner
from fakes.symphony import WAYS, StandIn
from support.processes import wait_until

from gateway.cli.main import cli

pytestmark = [pytest.mark.slow, pytest.mark.real]
THOROUGH = pytest.mark.thorough


def square(x):
    return x * x


def fails(x):
    raise ValueError(f"no {x}")


def sleeps(folder, name, until):
    (folder / name).touch()
    while not (folder / until).exists():
        time.sleep(0.01)
    return name


def config(stand_in, way, **more):
    lines = ["[[pool]]", 'name = "grid"', 'kind = "symphony"', "[pool.symphony]"]
    table = stand_in.table(way, **more)
    return "\n".join([*lines, *(f"{key} = {_toml(value)}" for key, value in table.items())])


def _toml(value):
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.fixture
def stand_in(tmp_path):
    made = StandIn(tmp_path)
    yield made
    made.close()


def side_of(site, what="soam/side.py"):
    """The side process of its pool, or another of its family."""
    for child in psutil.Process(site.gateway.pid).children(recursive=True):
        try:
            if any(part.endswith(what) for part in child.cmdline()):
                return child
        except psutil.NoSuchProcess:
            continue
    return None


@pytest.mark.parametrize("way", ["soamapi", pytest.param("rest", marks=THOROUGH)])
def test_two_thousand_squares_and_a_failure(make_site, stand_in, way):
    site = make_site(0, config=config(stand_in, way))
    with site.client() as client:
        assert list(client.map(square, range(2_000))) == [n * n for n in range(2_000)]
        with pytest.raises(ValueError, match="no 7") as caught:
            client.submit(fails, 7).result(300)
        assert "in fails" in str(caught.value.__cause__)
    assert len(stand_in.cluster.open_sessions) == 2, "a session for each function"
    tested = CliRunner().invoke(cli, ["pool", "test", "grid", "--gateway", site.address])
    assert "ok      check: application gridfed by" in tested.output
    assert "ok      slots: 2 available" in tested.output
    stand_in.cluster.users["Guest"] = "other"
    tested = CliRunner().invoke(cli, ["pool", "test", "grid", "--gateway", site.address])
    assert tested.exit_code != 0
    assert "password" in tested.output
    site.stop()
    wait_until(lambda: not stand_in.cluster.open_sessions)


@THOROUGH
@pytest.mark.parametrize("way", WAYS)
def test_a_reclaim_loses_no_task_and_no_retry_and_cancel_ends_what_runs(
    make_site, stand_in, tmp_path, way
):
    site = make_site(0, config=config(stand_in, way))
    with site.client() as client:
        futures = [client.submit(sleeps, tmp_path, f"t{n}", "go") for n in range(4)]
        wait_until(lambda: len(stand_in.cluster.running) == 2)
        stand_in.cluster.reclaim(1)
        wait_until(lambda: len(stand_in.cluster.running) == 1)
        stand_in.cluster.lend(1)
        (tmp_path / "go").touch()
        assert [future.result(300) for future in futures] == ["t0", "t1", "t2", "t3"]
        endless = client.submit(sleeps, tmp_path, "endless", "never")
        wait_until((tmp_path / "endless").exists)
        endless.cancel(stop=True)
        wait_until(lambda: not stand_in.cluster.running)
        assert client.submit(square, 3).result(300) == 9


@THOROUGH
@pytest.mark.parametrize(
    ("way", "what", "is_kept"),
    [
        ("soamapi", "soam/side.py", True),
        ("soamapi", "soam/side.py", False),
        ("soamapi", "gateway.grids.delegation.delegate", True),
        ("rest", "gateway.grids.delegation.delegate", True),
    ],
)
def test_a_process_that_dies_is_replaced(make_site, stand_in, tmp_path, way, what, is_kept):
    """Tasks continue where Symphony keeps the sessions of a client that it has lost."""
    stand_in.cluster.aborts_orphans = not is_kept
    site = make_site(0, config=config(stand_in, way))
    with site.client() as client:
        future = client.submit(sleeps, tmp_path, "t", "go")
        wait_until((tmp_path / "t").exists)
        wait_until(lambda: is_noted(tmp_path))
        (before,) = stand_in.cluster.open_sessions
        os.kill(side_of(site, what).pid, signal.SIGKILL)
        if not is_kept:
            wait_until(lambda: before not in stand_in.cluster.open_sessions)
        (tmp_path / "go").touch()
        assert future.result(300) == "t"
        assert len(stand_in.cluster.started) == (1 if is_kept else 2)
        wait_until(lambda: before not in stand_in.cluster.open_sessions)


def is_noted(folder, tasks=1):
    """Whether the pool's process has written down so many tasks."""
    texts = [each.read_text() for each in folder.rglob("sessions.jsonl")]
    return sum(text.count('"grid-') for text in texts) >= tasks


@pytest.mark.parametrize(
    ("way", "how"),
    [
        ("soamapi", "kill"),
        pytest.param("rest", "kill", marks=THOROUGH),
        pytest.param("rest", "stop", marks=THOROUGH),
        pytest.param("soamapi", "stop", marks=THOROUGH),
    ],
)
def test_a_gateway_that_comes_again_goes_on_with_what_runs(make_site, stand_in, tmp_path, way, how):
    """Ended work is fetched, running work is awaited, and no work runs or costs twice."""
    cluster = stand_in.cluster
    cluster.aborts_orphans = False
    site = make_site(0, config=config(stand_in, way, on_stop="detach"))
    with site.client() as client:
        calls = [(tmp_path, f"t{n}", f"go{n}") for n in range(3)]
        job = client.submit_job(sleeps_of, calls)
        wait_until(lambda: is_noted(tmp_path, 2))
        wait_until(lambda: (tmp_path / "t0").exists() and (tmp_path / "t1").exists())
    if how == "kill":
        site.kill()
    else:
        site.gateway.stop()
    (session,) = cluster.open_sessions
    (tmp_path / "go0").touch()
    wait_until(lambda: len(cluster.sessions[session].given) == 1)
    site.start()
    with site.client() as client:
        job = client.job(job.id)
        wait_until(lambda: job.progress().done == 1)
        (tmp_path / "go1").touch()
        (tmp_path / "go2").touch()
        assert list(job.results()) == ["t0", "t1", "t2"]
        assert job.wait(300) == "done"
        totals = client.ask("report", kind="cost", by=["job", "state"])
        tasks = totals["columns"].index("tasks")
        assert [row[tasks] for row in totals["rows"]] == [3]
    assert len(cluster.started) == 3, "none was begun twice"
    wait_until(lambda: session not in cluster.open_sessions)


@THOROUGH
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_submits_again_gets_what_runs_already(make_site, stand_in, tmp_path, way):
    stand_in.cluster.aborts_orphans = False
    site = make_site(0, config=config(stand_in, way))
    with site.client() as client:
        future = client.submit(sleeps, tmp_path, "t", "go")
        wait_until(lambda: is_noted(tmp_path))
        wait_until((tmp_path / "t").exists)
        site.kill()
        site.start()
        (tmp_path / "go").touch()
        assert future.result(300) == "t"
    assert len(stand_in.cluster.started) == 1


def sleeps_of(call):
    return sleeps(*call)


@pytest.mark.parametrize("way", ["rest", pytest.param("soamapi", marks=THOROUGH)])
def test_a_gateway_that_is_killed_leaves_no_session(make_site, stand_in, tmp_path, way):
    """Unwanted work does not run on either."""
    stand_in.cluster.aborts_orphans = False
    site = make_site(0, config=config(stand_in, way, take_up_s=1.0))
    with contextlib.suppress(KeyboardInterrupt), site.client() as client:
        client.submit(sleeps, tmp_path, "t", "never")
        wait_until(lambda: stand_in.cluster.running)
        side = side_of(site)
        if side is not None:
            side.send_signal(signal.SIGSTOP)  # it can't close anything
        site.kill()
        raise KeyboardInterrupt  # the client is gone for good, too
    if side is not None:
        side.kill()
    before = stand_in.cluster.open_sessions
    assert len(before) == 1
    site.start()
    wait_until(lambda: before[0] not in stand_in.cluster.open_sessions)
    with site.client() as other:
        assert other.submit(square, 3).result(300) == 9
