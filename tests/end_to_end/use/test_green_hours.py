"""Jobs that wait for greener hours, with real gateways, sources and clocks that a test sets."""

import json
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.members import MemberSite, federate, run
from support.processes import InnerSite, SetClock, wait_until

from federation import Client
from gateway.config.carbon import CarbonConfig, SeriesConfig
from gateway.config.site import PoolConfig
from gateway.runtime.environment import RuntimeEnvironment
from policies.placement.asks import Preferences

pytestmark = pytest.mark.real

DAY = datetime(2026, 7, 1, tzinfo=UTC).timestamp()
HOUR_S = 3600.0


def moment(_):
    return time.time()


class Grid(ThreadingHTTPServer):
    """Reports carbon intensity as Electricity Maps does: now, and in steps of two seconds."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.now, self.ahead, self.from_s = 400.0, [400.0] * 60, time.time()
        self.asked = []

    @property
    def table(self):
        url = f"http://127.0.0.1:{self.server_port}"
        return f"""
[pool.carbon]
max_watts = 100
[pool.carbon.http]
url = "{url}/now"
value = "carbonIntensity"
every_s = 0.2
[pool.carbon.http.forecast]
url = "{url}/forecast?from={{now}}"
entries = "forecast"
value = "carbonIntensity"
time = "datetime"
"""


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        grid = self.server
        grid.asked.append(self.path)
        body = {"zone": "GB", "carbonIntensity": grid.now}
        if self.path.startswith("/forecast"):
            body = {"zone": "GB", "forecast": [entry(grid, at) for at in range(len(grid.ahead))]}
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def entry(grid, at):
    from_s = grid.from_s + 2.0 * at
    return {
        "carbonIntensity": grid.ahead[at],
        "datetime": datetime.fromtimestamp(from_s, UTC).isoformat(),
    }


@contextmanager
def serving():
    grid = Grid()
    thread = threading.Thread(target=grid.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield grid
    finally:
        grid.shutdown()
        thread.join()
        grid.server_close()


@pytest.mark.thorough
def test_a_job_waits_for_a_peer_s_greener_hour_and_is_done_by_its_deadline(tmp_path):
    with serving() as grid:
        london = MemberSite(tmp_path, "london", 1, "0.04 USD", CARBON_OF_LONDON, start=False)
        text = london.config.read_text()
        settings = "[placement]\nobjective = 'greenest'\ndefer_margin_s = 1\ndefer_margin = 0.2\n"
        london.config.write_text(text.replace("[placement]\n", settings))
        london.start()
        paris = MemberSite(tmp_path, "paris", 2, "0.04 USD", grid.table)
        try:
            federate(london, paris)
            see_it_wait(grid, london, paris)
        finally:
            for member in (london, paris):
                member.gateway.stop()


CARBON_OF_LONDON = "carbon_g_per_kwh = 300\nslot_watts = 100\n"


def see_it_wait(grid, london, paris):
    with london.client() as client:
        # So long does it take. Nobody is asked for a quote that comes when all is done: who holds
        # slots at Paris and commits to nothing waits, and the job after it would be done in London.
        assert len(list(client.options(sites=["london"]).map(moment, range(3)))) == 3
        hour_s = time.time() + 20.0
        grid.from_s, grid.ahead = hour_s - 30.0, [400.0] * 15 + [50.0] * 40

        def foresees():
            ahead = [row["carbon_ahead"] for row in london.ask("pools") if row["site"] == "paris"]
            return any(each is not None and min(each["g_per_kwh"]) == 50.0 for each in ahead)

        wait_until(foresees, "london knows of the greener hour at paris")
        table = run("pools", "--gateway", london.address)
        assert "lowest forecast" in table
        view = client.options(deferrable=True, deadline_s=hour_s + 20.0)
        job = view.submit_job(moment, range(4))
        deferral = job.explain()["deferral"]
        assert (deferral["waits"], job.state) == (4, "waiting")
        assert deferral["until_s"] == pytest.approx(hour_s, abs=2.0)
        assert deferral["carbon_g"] < 0.5 * deferral["at_once_carbon_g"]
        said = run("explain", job.id, "--gateway", london.address)
        assert "4 tasks deferred to greener or cheaper hours, the first until 20" in said
        assert "4 at paris/local from 20" in said
        assert "at once, and costs" in said
        dry = run(
            *("explain", "--gateway", london.address, "--deferrable", "--within-s", "30"),
            *("--tasks", "4", "--task-s", "1"),
        )
        assert "deferred to greener or cheaper hours" in dry
        begun = list(job.results())
    assert hour_s - 0.5 < min(begun)
    assert max(begun) < hour_s + 20.0
    wait_until(lambda: sum(paris.deals("sell").values()) >= 4, "paris has done it")
    assert any("from=20" in path for path in grid.asked)


@pytest.fixture
def series(tmp_path):
    """Dirty until 10 o'clock, and clean from then on."""
    path = tmp_path / "grid.csv"
    hours = [f"2026-07-01T{hour:02}:00Z,{400 if hour < 10 else 80}" for hour in range(24)]
    path.write_text("\n".join(["hour_utc,g_per_kwh", *hours, ""]))
    return str(path)


@pytest.fixture
def start(tmp_path, series):
    sites = []

    def start_(clock):
        carbon = CarbonConfig(max_watts=100.0, series=SeriesConfig(series))
        made = InnerSite(
            tmp_path,
            RuntimeEnvironment(utc_s=clock),
            pools=(PoolConfig("local", "local", 1, carbon=carbon),),
            preferences=Preferences(defer_margin_s=1.0),
        )
        sites.append(made)
        return made

    yield start_
    for each in sites:
        each.stop()


@pytest.mark.slow
def test_a_job_waits_for_the_next_hour_of_a_series_also_over_a_restart(start, monkeypatch):
    # The site lives on another day than its client, which would refuse a deadline of that day.
    monkeypatch.setattr("federation.engine.options.check_ahead", lambda *_: None)
    clock = SetClock(DAY + 9 * HOUR_S + 1_800.0)
    site = start(clock)
    with Client(site.address) as client:
        list(client.map(moment, range(2)))
        view = client.options(
            objective="greenest", deferrable=True, deadline_s=clock() + 2 * HOUR_S
        )
        name = view.submit_job(moment, range(2)).id
        assert client.job(name).explain()["deferral"]["until_s"] == DAY + 10 * HOUR_S
    site.stop()
    clock.ahead_s += 1_000.0
    again = start(clock)
    with Client(again.address) as client:
        job = client.job(name)
        # How long it takes is not known to this life: a round goes first, of one slot.
        wait_until(lambda: job.progress().done == 1, "the first is done")
        wait_until(lambda: job.explain()["deferral"]["waits"] == 1, "the other waits")
        clock.ahead_s += DAY + 10 * HOUR_S - clock() - 1.0
        begun = list(job.results())
    assert begun[1] + clock.ahead_s >= DAY + 10 * HOUR_S


def test_what_may_wait_needs_a_deadline(start):
    site = start(SetClock(DAY))
    with Client(site.address) as client, pytest.raises(ValueError, match="needs deadline_s"):
        client.options(deferrable=True)
    said = run("explain", "--gateway", site.address, "--deferrable", code=2)
    assert "--deferrable needs --deadline" in said
