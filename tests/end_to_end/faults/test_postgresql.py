"""A site with its books in PostgreSQL: after any crash, each task has one result and one charge."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.answers import answer
from support.processes import SiteProcess, wait_until
from support.programs.postgres import Postgres

pytestmark = pytest.mark.real


@pytest.fixture
def server() -> Iterator[Postgres]:
    made = Postgres()
    yield made
    made.stop()


@pytest.fixture
def site(server: Postgres, make_site: Callable[..., SiteProcess]) -> SiteProcess:
    return make_site(2, config=f'[site]\ndatabase = "{server.new_database()}"\n')


def slow(x: int) -> int:
    time.sleep(0.001)
    return x


def charges(client) -> int:
    """How many runs of tasks are in the books."""
    found = client.ask("report", kind="usage", by=["job"])
    tasks = found["columns"].index("tasks")
    return sum(row[tasks] for row in found["rows"])


@pytest.mark.thorough
def test_a_database_that_is_killed_holds_results_back_and_loses_none(server, site):
    with site.client() as client:
        futures = [client.submit(slow, x) for x in range(10_000)]
        wait_until(lambda: sum(future.done() for future in futures) > 200, "some results")
        server.kill()
        wait_until(lambda: "can't be reached" in client.ask("status")["trouble"])
        server.start()
        wait_until(lambda: not client.ask("status")["trouble"])
        assert [future.result(timeout=300) for future in futures] == [*range(10_000)]
        assert charges(client) == 10_000


@pytest.mark.thorough
def test_a_detached_job_goes_on_after_both_were_killed(server, site):
    with site.client() as client:
        job = client.submit_job(slow, range(1000))
        wait_until(lambda: job.progress().done > 50)
    site.kill()
    server.kill()
    server.start()
    site.start()
    with site.client() as client:
        job = client.job(job.id)
        assert list(job.results()) == [*range(1000)]
        assert job.wait(200) == "done"
        # What it had not synced when both died ran twice and is charged once; see the ledger.
        assert charges(client) == 1000


@pytest.mark.thorough
def test_the_command_moves_a_site_from_sqlite_to_postgresql(server, make_site):
    site = make_site(1)
    with site.client() as client:
        assert client.submit(slow, 7).result(timeout=300) == 7
        job = client.submit_job(slow, range(10))
        assert list(job.results()) == [*range(10)]
    site.stop()
    url = server.new_database()
    (site.folder / "site.toml").write_text(f'[site]\ndatabase = "{url}"\n')

    def gridfed_db(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gateway", "db", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )

    moved = gridfed_db("move", url, "--state", str(site.state), "--json")
    assert moved.returncode == 0, moved.stderr
    assert {each["table"]: each["rows"] for each in answer(moved.stdout)}["jobs"] == 2
    again = gridfed_db("move", url, "--state", str(site.state))
    assert (again.returncode, again.stdout) == (1, "")
    assert "is not empty" in again.stderr
    site._extra = ["--config", str(site.folder / "site.toml")]
    site.start()
    with site.client() as client:
        assert list(client.job(job.id).results()) == [*range(10)]
        assert charges(client) == 11
    kept = gridfed_db("backup", str(site.folder / "kept"), "--config", site._extra[1])
    assert kept.returncode == 0, kept.stderr
    assert "written to" in kept.stdout
    assert gridfed_db("upgrade", "--config", site._extra[1]).returncode == 1  # it is in use


def test_a_gateway_that_starts_before_its_database_waits_for_it(server, site):
    site.kill()
    server.kill()
    with ThreadPoolExecutor(1) as starting:
        started = starting.submit(site.start)
        wait_until(lambda: "retrying for up to" in site.text(), "the gateway to wait")
        server.start()
        started.result()
    with site.client() as client:
        assert client.submit(slow, 7).result(timeout=300) == 7
