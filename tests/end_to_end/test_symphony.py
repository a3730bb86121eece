"""A gateway with a Symphony pool, over the stand-in: what its users see, and what befalls it."""

import contextlib
import os
import signal
import time

import psutil
import pytest
from click.testing import CliRunner
from symphony_support import WAYS, StandIn
from tests_support import wait_until

from gateway.cli.main import cli

pytestmark = pytest.mark.slow
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
            client.submit(fails, 7).result(30)
        assert "in fails" in str(caught.value.__cause__)
    assert len(stand_in.cluster.open_sessions) == 2, "a session for each function"
    tested = CliRunner().invoke(cli, ["pool", "test", "grid", "--gateway", site.address])
    assert "ok      check: application gridfed by" in tested.output
    assert "ok      slots: 2 are ours now" in tested.output
    stand_in.cluster.users["Guest"] = "other"
    tested = CliRunner().invoke(cli, ["pool", "test", "grid", "--gateway", site.address])
    assert tested.exit_code != 0
    assert "wrong name or password" in tested.output
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
        assert [future.result(30) for future in futures] == ["t0", "t1", "t2", "t3"]
        endless = client.submit(sleeps, tmp_path, "endless", "never")
        wait_until((tmp_path / "endless").exists)
        endless.cancel(stop=True)
        wait_until(lambda: not stand_in.cluster.running)
        assert client.submit(square, 3).result(30) == 9


@THOROUGH
@pytest.mark.parametrize(
    ("way", "what"),
    [
        ("soamapi", "soam/side.py"),
        ("soamapi", "gateway.grids.delegate"),
        ("rest", "gateway.grids.delegate"),
    ],
)
def test_a_process_that_dies_is_replaced(make_site, stand_in, tmp_path, way, what):
    site = make_site(0, config=config(stand_in, way))
    with site.client() as client:
        future = client.submit(sleeps, tmp_path, "t", "go")
        wait_until(lambda: stand_in.cluster.running)
        (before,) = stand_in.cluster.open_sessions
        os.kill(side_of(site, what).pid, signal.SIGKILL)
        wait_until(lambda: before not in stand_in.cluster.open_sessions)
        (tmp_path / "go").touch()
        assert future.result(30) == "t"


@pytest.mark.parametrize("way", ["rest", pytest.param("soamapi", marks=THOROUGH)])
def test_a_gateway_that_is_killed_leaves_no_session(make_site, stand_in, tmp_path, way):
    stand_in.cluster.aborts_orphans = False
    site = make_site(0, config=config(stand_in, way))
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
        assert other.submit(square, 3).result(30) == 9
