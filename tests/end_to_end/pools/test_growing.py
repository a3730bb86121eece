"""A pool that is there only while there is work: real pilots, as processes of this host."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import quick
from support.members import ACCEPTED, MemberSite, federate
from support.processes import InnerSite, wait_until

from federation import Client
from gateway.config.scale import ScaleConfig
from gateway.config.site import PoolConfig
from gateway.grids.processes import ProcessesConfig
from gateway.ledger.db.usage.records import Dimension
from policies.access.claims import EVERYTHING
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.parties import read_party
from policies.placement.autoscaling import ScalingRules
from policies.reservations.reservations import ReservationRules

pytestmark = [pytest.mark.slow, pytest.mark.real]

SCALE = ScaleConfig(ScalingRules(slots_max=3, idle_s=0.3), start_s=1.0, look_s=1.0, dial_for_s=20.0)


def make_site(folder, scale=SCALE, *others, **config):
    pool = PoolConfig("burst", "processes", price="0.10 USD")
    pool = replace(pool, scale=scale, grid=ProcessesConfig(slots_max=3))
    return InnerSite(folder, pools=(pool, *others), **config)


@pytest.fixture
def site(tmp_path):
    made = make_site(tmp_path)
    yield made
    end(made)


def end(site):
    """Stop a site and the pilots that it would leave to its next life."""
    [controller] = site.site.controllers
    site.stop()
    kill_pilots(controller)


def kill_pilots(controller):
    """End the pilots of a pool; some may just have ended."""
    for pid in pilots_of(controller):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pilots_of(controller):
    """The processes of a pool's pilots."""
    mark = f"GRIDFED_PILOT={controller.grid._launch.mark}/".encode()
    found = []
    for each in Path("/proc").iterdir():
        try:
            is_agent = each.name.isdigit() and b"worker.agent" in (each / "cmdline").read_bytes()
            if is_agent and mark in (each / "environ").read_bytes():
                found.append(int(each.name))
        except (OSError, ValueError):
            continue
    return found


def scale(client):
    [found] = client.ask("scale")["pools"]
    return found


def slow_square(number):
    time.sleep(0.2)
    return number * number


def sleep_until(path):
    while not path.exists():
        time.sleep(0.05)


def test_a_pool_grows_for_work_and_is_gone_after_it(site):
    [controller] = site.site.controllers
    with Client(site.address) as client:
        assert scale(client)["pilots"] == 0
        assert pilots_of(controller) == []
        fast = client.options(objective="fastest")
        assert list(fast.map(slow_square, range(30))) == [n * n for n in range(30)]
        wait_until(lambda: scale(client)["pilots"] == 0, "all pilots are let go")
        wait_until(lambda: not pilots_of(controller), "and their processes are gone")
    [used] = site.site.store.usage.totals((Dimension.POOL,))
    assert (used.key, used.tasks) == (("burst",), 30)


def test_pilots_of_a_site_with_a_secret_do_their_work_without_it(tmp_path):
    file, secret = tmp_path / "secret", "s3cret" * 8
    file.write_text(secret)
    file.chmod(0o600)
    made = make_site(tmp_path, secret_file=str(file))
    [controller] = made.site.controllers
    try:
        with Client(made.address, secret=secret) as client:
            job = client.options(objective="fastest").map(slow_square, range(3))
            wait_until(lambda: pilots_of(controller), "a pilot")
            told = b"".join(
                Path(f"/proc/{each}/environ").read_bytes() for each in pilots_of(controller)
            )
            assert list(job) == [0, 1, 4]
        assert b"GRIDFED_PILOT=" in told
        assert secret.encode() not in told
    finally:
        end(made)


def test_what_a_former_life_had_started_is_taken_up_and_let_go(tmp_path):
    kept = replace(SCALE, rules=replace(SCALE.rules, slots_min=2))
    first = make_site(tmp_path, kept)
    [controller] = first.site.controllers
    with Client(first.address) as client:
        wait_until(lambda: scale(client)["slots"]["ready"] == 2, "two are kept")
    first.stop()
    left = set(pilots_of(controller))
    assert left
    second = make_site(tmp_path, kept)
    try:
        with Client(second.address) as client:
            wait_until(lambda: scale(client)["slots"]["ready"] == 2, "they are taken up")
            assert left == set(pilots_of(controller))
            [controller] = second.site.controllers
            second.call(controller.take_in, replace(controller.pool, scale=SCALE))
            wait_until(lambda: not pilots_of(controller), "and let go, for there is no work")
    finally:
        end(second)


def test_a_second_worker_of_one_name_waits_until_the_first_is_gone(site):
    command = [sys.executable, "-m", "gateway.worker.agent", "--gateway", site.address]
    command += ["--pool", "burst", "--slots", "1", "--name", "same"]
    command += ["--die-with-parent", str(os.getpid())]
    pipes = {"stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as first, subprocess.Popen(command, **pipes) as second:
        try:
            lines = {each: each.stderr.readline() for each in (first, second)}
            [inside] = [each for each, line in lines.items() if "works for site" in line]
            [outside] = {first, second} - {inside}
            assert "a worker named same is in pool burst already" in lines[outside]
            with Client(site.address) as client:
                assert [each["name"] for each in client.ask("workers")] == ["same"]
            inside.kill()
            assert "works for site" in outside.stderr.readline()
        finally:
            first.kill()
            second.kill()


def test_a_dry_run_starts_nothing_and_says_what_it_would(tmp_path):
    rules = ScalingRules(slots_max=3, slots_min=2, waste=1.0, idle_s=1.0)
    site = make_site(tmp_path, replace(SCALE, rules=rules, dry_run=True))
    try:
        with Client(site.address) as client:
            wait_until(lambda: scale(client)["start"] == 2, "it would start two")
            assert scale(client)["why"] == ["the minimum of 2 slots is kept"]
            waiting = [client.options(task_s=2.0).submit(slow_square, n) for n in range(20)]
            wanted = "waste 1 x 40 slot-s of work / 2 s for each start (1 to start, 1 idle)"

            def why():
                return quick("scale", "--why", "--gateway", site.address)

            wait_until(lambda: wanted in why(), "it has counted all of the work")
            assert "burst: would start 3 pilots, 3 slots" in why()
            assert scale(client)["start"] == 3
            assert scale(client)["pilots"] == 0
            assert not any(each.done() for each in waiting)
            for each in waiting:
                each.cancel()
    finally:
        end(site)


@pytest.mark.thorough
def test_a_pilot_that_is_killed_loses_no_task(site):
    [controller] = site.site.controllers
    with Client(site.address) as client:
        results = client.options(objective="fastest").map(slow_square, range(40))
        wait_until(lambda: scale(client)["busy"], "pilots work")
        [job] = client.ask("jobs")

        def named():
            found = client.ask("explain", job=job["id"])["places"]
            return {each["worker"].partition(" = ")[2] for each in found} - {""}

        wait_until(named, "they are known by the grid's names of them")
        assert " pid " in quick("workers", "--gateway", site.address)
        assert named() <= {f"pid {pid}" for pid in pilots_of(controller)}
        os.kill(pilots_of(controller)[0], signal.SIGKILL)
        assert list(results) == [n * n for n in range(40)]


def test_a_probe_runs_a_task_in_a_pool_that_lets_go_at_once(tmp_path):
    """A probe is the operator's: it runs regardless of entitlements."""
    only_bob = Entitlements((EntitlementRule(allows=True, who=(read_party("user:bob"),)),))
    at_once = replace(SCALE, rules=replace(SCALE.rules, idle_s=0.0))
    site = make_site(tmp_path, at_once, entitlements=only_bob)
    try:
        said = quick("pool", "test", "burst", "--gateway", site.address)
        assert [line.split()[:2] for line in said.splitlines()] == [
            ["ok", f"{step}:"]
            for step in ("check", "limits", "capacity", "pilots", "start", "dial", "task")
        ]
        assert "probe-" not in quick("pools", "--gateway", site.address)
    finally:
        end(site)


def test_a_probe_says_what_is_wrong_with_a_pool(tmp_path):
    """Of each pool by one site: none of these starts anything that is there for long."""
    scale = replace(SCALE, look_s=1.0, dial_for_s=1.0)
    lost = PoolConfig("lost", "processes", scale=replace(scale, dial=f"ipc://{tmp_path}/nowhere"))
    dry = PoolConfig("dry", "processes", scale=replace(scale, dry_run=True))
    pools = [replace(each, grid=ProcessesConfig(slots_max=3)) for each in (lost, dry)]
    listen = f"ipc://{tmp_path}/gw.sock", "tcp://127.0.0.1:0"
    site = InnerSite(tmp_path, pools=tuple(pools), listen=listen)

    def said(pool, *options, address=site.address):
        return quick("pool", "test", pool, *options, "--gateway", address, code=1)

    try:
        assert "its worker did not connect within 1 s: " in said("lost", "--wait", "1s")
        assert "start: dry_run is set in [pool.scale]" in said("dry")
        assert "pools that have: dry, lost" in said("other")
        by_tcp = said("dry", address=site.site.addresses[1])
        assert 'add one to listen in [site], as in "ipc:///run/' in by_tcp
    finally:
        for controller in site.site.controllers[:2]:
            kill_pilots(controller)
        site.stop()


def test_what_is_owned_and_idle_goes_first(tmp_path):
    site = make_site(tmp_path, SCALE, PoolConfig("local", "local", 1, price="0.10 USD"))
    try:
        with Client(site.address) as client:
            wait_until(lambda: client.ask("workers"), "its own worker has come")
            assert client.submit(abs, -3).result(200) == 3
            assert scale(client)["pilots"] == 0
    finally:
        end(site)


def test_what_is_reserved_is_started_ahead_kept_and_let_go(tmp_path):
    site = make_site(tmp_path, reservations=ReservationRules(EVERYTHING))
    try:
        with Client(site.address) as client:

            def ready():
                return scale(client)["slots"]["ready"]

            [made] = client.ask("reserve", slots=2, from_s=time.time() + 60.0, lasts_s=60.0)
            assert scale(client)["pilots"] == 0  # it begins long after a start would end
            client.ask("unreserve", reservation=made["id"])
            [made] = client.ask("reserve", slots=2, from_s=time.time() + 1.0, lasts_s=60.0)
            wait_until(lambda: ready() == 2, "two are started for nobody's work")
            wait_until(lambda: time.time() > made["from_s"], "it begins")
            wait_until(
                lambda: site.site.broker.occupancy.rules["burst"].now.claims.reserved, "told"
            )
            assert client.submit(abs, -3).result(300) == 3
            assert ready() == 2
            client.ask("unreserve", reservation=made["id"])
            wait_until(lambda: scale(client)["pilots"] == 0, "they are let go when it is over")
        used = site.site.store.usage.totals((Dimension.TARIFF,))
        assert {each.key[0]: each.tasks for each in used}[f"reservation {made['id']}"] == 1
    finally:
        end(site)


BURST = f"""
[[pool]]
name = "burst"
kind = "processes"
price = "0.04 USD"
{ACCEPTED}[pool.processes]
slots_max = 2
[pool.scale]
max = 2
start = "1s"
idle = "1s"
dial_for = "20s"
"""


@pytest.mark.thorough
def test_a_site_starts_slots_for_what_another_buys(tmp_path):
    london = MemberSite(tmp_path, "london", 1, "4 USD")
    paris = MemberSite(tmp_path, "paris", 0, "", pools=BURST)
    try:
        federate(london, paris)
        [shown] = [each for each in london.ask("pools") if each["site"] == "paris"]
        assert (shown["slots_free"], shown["slots_total"], shown["slots_cold"]) == (0, 2, 2)
        with london.client() as client:
            assert list(client.map(slow_square, range(30))) == [n * n for n in range(30)]
            usage = client.ask("report", kind="usage", by=["pool"])
        rows = [dict(zip(usage["columns"], row, strict=True)) for row in usage["rows"]]
        tasks = {row["pool"]: row["tasks"] for row in rows}
        assert tasks["paris/burst"] > 0
        wait_until(lambda: paris.ask("scale")["pools"][0]["pilots"] == 0, "Paris lets them go")
    finally:
        for each in (london, paris):
            each.gateway.stop()


OWNED = f"""
[[pool]]
name = "local"
kind = "local"
slots = 1
price = "0.01 USD"
{ACCEPTED}"""


@pytest.mark.thorough
def test_what_is_owned_and_idle_goes_first_then_an_idle_peer_and_then_what_is_rented(tmp_path):
    """Renting for work that a peer would do sooner is a bug."""
    london = MemberSite(tmp_path, "london", 1, "", pools=OWNED + BURST)
    paris = MemberSite(tmp_path, "paris", 1, "0.04 USD")
    try:
        federate(london, paris)
        with london.client() as client:

            def pilots():
                return client.ask("scale")["pools"][0]["pilots"]

            def tasks_by_pool():
                usage = client.ask("report", kind="usage", by=["pool"])
                rows = [dict(zip(usage["columns"], row, strict=True)) for row in usage["rows"]]
                return {row["pool"]: row["tasks"] for row in rows}

            def shown(site):
                pools = {(e["site"], e["pool"]): e for e in client.ask("pools")}
                return pools[site, "local"]

            def occupy(view, site):
                """Fill the slot that a site has there."""
                job = view.options(task_s=60.0).submit(sleep_until, tmp_path / "over")
                wait_until(lambda: client.explain(job)["in_flight"], "it has a slot")
                wait_until(lambda: shown(site)["load_slot_s"] > 20, f"{site} shows it is busy")

            def square(view, number):
                """In a job of its own: those submitted one by one share a job and its contract."""
                [found] = view.map(slow_square, [number], timeout=60)
                return found

            short = client.options(task_s=0.2)
            assert square(short, 2) == 4
            assert tasks_by_pool() == {"local": 1}
            occupy(client, "london")
            soon = short.options(objective="fastest")
            wait_until(lambda: shown("paris")["slots_free"], "paris shows that it is idle")
            assert square(soon, 3) == 9
            assert (tasks_by_pool(), pilots()) == ({"local": 1, "paris/local": 1}, 0)
            wait_until(lambda: shown("paris")["slots_free"], "paris shows that it is idle again")
            occupy(client.options(objective="fastest"), "paris")
            assert square(soon, 4) == 16
            assert tasks_by_pool() == {"local": 1, "paris/local": 1, "burst": 1}
            (tmp_path / "over").touch()
            wait_until(lambda: pilots() == 0, "what was rented is let go")
    finally:
        (tmp_path / "over").touch()
        for each in (london, paris):
            each.gateway.stop()
