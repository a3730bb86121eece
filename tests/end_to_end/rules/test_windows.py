"""A window that begins while a gateway runs, by a clock that the test sets."""

import contextlib
import time
from datetime import UTC, datetime

import pytest
from support.answers import answer
from support.members import dear_and_cheap, run, settled
from support.processes import InnerSite, SetClock, wait_until

from federation import Client, deadline
from gateway.config.site import PoolConfig
from gateway.ledger.db.usage.records import Dimension
from gateway.runtime.environment import RuntimeEnvironment
from policies.access.claims import NOTHING, Claim, Claims
from policies.access.windows import Window, WindowPlan
from policies.calendar.hours import Hours
from policies.parties import OURS, read_party

pytestmark = pytest.mark.real

NOON_S = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
RISK_RUN = Window(
    "risk run",
    Hours(17 * 3600, 23 * 3600),
    Claims((Claim(OURS, borrows=NOTHING),)),
    price_factor=2 * 10**6,
    drain_lead_s=600.0,
    grace_s=1.0,
)


def work_until_told(folder):
    """Work until the deadline, and save progress; saved work is not done again."""
    saved = folder / "saved"
    if saved.exists():
        return f"went on from {saved.read_text()}"
    (folder / "begun").touch()
    while deadline() is None:
        time.sleep(0.01)
    saved.write_text("page 7")
    while True:
        time.sleep(0.01)


@pytest.fixture
def site(tmp_path):
    clock = SetClock(NOON_S)
    pools = (PoolConfig("local", "local", 1, price="0.04 USD", plan=WindowPlan((RISK_RUN,))),)
    made = InnerSite(tmp_path, RuntimeEnvironment(utc_s=clock), pools=pools)
    made.clock = clock
    yield made
    made.stop()


def used(site):
    by = (Dimension.STATE, Dimension.WINDOW)
    return {each.key: each for each in site.site.store.usage.totals(by)}


@pytest.mark.slow
def test_work_makes_room_for_a_window_and_goes_on_after_it(site, tmp_path):
    with Client(site.address) as client:
        task = client.submit(work_until_told, tmp_path)
        wait_until((tmp_path / "begun").exists, "the task runs")
        [job] = client.ask("jobs")
        site.clock.set(NOON_S + 5 * 3600.0 - 590.0)
        wait_until((tmp_path / "saved").exists, "the task is told, and saves itself")
        site.clock.set(NOON_S + 5 * 3600.0)
        wait_until(lambda: ("preempted", "") in used(site), "it is stopped")
        assert not task.done()

        why = client.ask("job", job=job["id"])["why_waiting"]
        assert why[0]["reason"] == "window-closed"
        assert why[0]["text"] == (
            "gives ours no slot in window 'risk run', until 2026-11-23 23:00:00 UTC"
        )
        texts = [each["text"] for each in client.ask("explain", job=job["id"])["notes"]]
        assert texts[0] == (
            "local stops 1 of its tasks by 2026-11-23 17:00:01 UTC: window 'risk run' "
            "begins at 2026-11-23 17:00:00 UTC"
        )
        assert texts[-1] == "local stopped 1 of its tasks, to make room"
        [pool] = client.ask("status")["pools"]
        assert (pool["window"], pool["price"]) == ("risk run", "0.08 USD per slot-hour")

        site.clock.set(NOON_S + 11 * 3600.0)
        assert task.result(200) == "went on from page 7"
    wait_until(lambda: ("ok", "") in used(site), "the second run is in the books")
    assert used(site)["preempted", ""].cost_nanos == 0
    assert used(site)["preempted", ""].wall_ns > 0


@pytest.mark.slow
def test_a_clock_that_is_set_back_opens_what_it_had_closed(site):
    site.clock.set(NOON_S + 6 * 3600.0)
    with Client(site.address) as client:
        task = client.submit(abs, -1)
        wait_until(
            lambda: any(each["why_waiting"] for each in map(detail(client), client.ask("jobs"))),
            "the task waits",
        )
        assert not task.done()
        site.clock.set(NOON_S)
        assert task.result(200) == 1


def test_a_job_that_is_only_asked_about_is_judged_by_whose_it_would_be(tmp_path):
    claims = Claims((Claim(read_party("project:risk")), Claim(OURS, borrows=NOTHING)))
    pools = (PoolConfig("local", "local", 1, price="0.04 USD", plan=WindowPlan((), claims)),)
    site = InnerSite(tmp_path, pools=pools)
    try:
        with Client(site.address) as client:
            wait_until(lambda: client.ask("status")["pools"][0]["slots"], "its worker is there")
            for project, places in (("risk", ["local"]), ("desk", [])):
                found = client.ask("explain", tasks=1, project=project)
                assert [each["pool"] for each in found["shares"]] == places
    finally:
        site.stop()


def detail(client):
    return lambda job: {"why_waiting": []} | client.ask("job", job=job["id"])


# --- two sites, real processes -------------------------------------------------------------------

CLOSED = """
[[pool.window]]
name = "risk run"
grace_s = 0.5
claims = [ {{ who = "others", borrows = 0 }} ]
from = "{:%H:%M:%S}"
to = "{:%H:%M:%S}"
"""


def hold_on(folder, number):
    """Take a slot until the test says so, and leave a trace of each run."""
    (folder / f"run-{number}-{time.monotonic_ns()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return number


def runs(folder):
    return sorted(int(each.name.split("-")[1]) for each in folder.glob("run-*"))


@contextlib.contextmanager
def released(folder):
    """No task keeps its slot for ever, on any outcome of the test."""
    try:
        yield
    finally:
        (folder / "go").touch()


def in_flight(client, pool):
    """How many tasks of the only job are with a pool."""
    [job] = client.ask("jobs")
    places = client.ask("explain", job=job["id"])["places"]
    return sum(each["in_flight"] for each in places if each["pool"] == pool)


def notes(client):
    """The notes in the only job's history."""
    [job] = client.ask("jobs")
    return [each["text"] for each in client.ask("explain", job=job["id"])["notes"]]


@pytest.mark.slow
def test_another_sites_work_moves_when_a_window_closes_on_it(tmp_path):
    with dear_and_cheap(tmp_path) as (london, paris), london.client() as client, released(tmp_path):
        view = client.options(name="night", objective="cheapest")
        task = view.submit(hold_on, tmp_path, 7)
        wait_until(lambda: in_flight(client, "paris/local"), "Paris has it")
        wait_until(lambda: runs(tmp_path) == [7], "it runs there")

        now = datetime.now(UTC)
        text = paris.config.read_text()
        paris.config.write_text(text + CLOSED.format(now, now.replace(hour=(now.hour + 2) % 24)))
        told = answer(run("reload", "--gateway", paris.address, "--json"))
        assert told["windows"][0]["after"] == "risk run"

        wait_until(lambda: not in_flight(client, "paris/local"), "Paris has it no more")
        ended = "paris/local ended the contract: paris gives others no slot in window 'risk run'"
        wait_until(lambda: any(each.startswith(ended) for each in notes(client)), "it is told why")
        assert "paris/local stopped 1 of its tasks, to make room" in notes(client)
        (tmp_path / "go").touch()
        assert task.result(300) == 7
        assert runs(tmp_path) == [7, 7]
        wait_until(lambda: settled(london, paris), "the books to agree")
        rows = client.ask("report", kind="usage", by=["pool", "state"])["rows"]
        assert ["paris/local", "preempted"] in [row[:2] for row in rows]
        for each in (london, paris):
            run("audit", "--config", str(each.config))  # which fails where anything is wrong


@pytest.mark.slow
def test_a_job_waits_for_another_sites_window_or_goes_elsewhere_by_its_wish(tmp_path):
    with dear_and_cheap(tmp_path) as (london, paris), london.client() as client:
        now, text = datetime.now(UTC), paris.config.read_text()
        paris.config.write_text(text + CLOSED.format(now, now.replace(hour=(now.hour + 2) % 24)))
        run("reload", "--gateway", paris.address)

        def shares(when_closed):
            asked = ["--gateway", london.address, "--when-closed", when_closed, "--json"]
            return answer(run("explain", "--tasks", "1", *asked))["shares"]

        wait_until(lambda: [each["opens_s"] for each in shares("wait")] != [None], "it is known")
        assert [each["site"] for each in shares("wait")] == ["paris"]
        assert [each["site"] for each in shares("elsewhere")] == ["london"]
        for choice, site in (("wait", "paris"), ("elsewhere", "london")):
            plan = client.options(when_closed=choice).explain(abs)
            assert [each["site"] for each in plan["shares"]] == [site]
            assert ("opens at " in str(plan)) is (choice == "wait")

        waits = client.options(name="waits", when_closed="wait").submit(abs, -1)
        assert client.options(name="goes", when_closed="elsewhere").submit(abs, -2).result(300) == 2
        explained = client.ask("explain", job=waits.job)
        assert [group["reason"] for group in explained["refused"]] == ["waits-for-window"]
        shown = run("explain", "--gateway", london.address, waits.job)
        assert "at paris/local: opens at " in shown
        assert "at paris/local: opens at " in str(client.explain(waits))
        assert not waits.done()

        paris.config.write_text(text)
        run("reload", "--gateway", paris.address)
        assert waits.result(300) == 1
        ran = {tuple(row[:2]) for row in usage(client, "job", "pool")}
        assert (waits.job, "paris/local") in ran
        assert not [each for each in ran if each[0] != waits.job and each[1] != "local"]


def usage(client, *keys):
    return client.ask("report", kind="usage", by=list(keys))["rows"]
