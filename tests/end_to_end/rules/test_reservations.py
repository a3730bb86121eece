"""Reservations of a gateway that runs, by a clock that the test sets; at the command line."""

import time
from datetime import UTC, datetime

import pytest
from support.answers import answer
from support.command import run
from support.members import MemberSite, federate
from support.processes import InnerSite, SetClock, SiteProcess, wait_until

from federation import Client
from gateway.config.site import PoolConfig
from gateway.ledger.db.usage.records import Dimension
from gateway.runtime.environment import RuntimeEnvironment
from policies.access.claims import Amount
from policies.reservations.reservations import ReservationRules

pytestmark = pytest.mark.real

NOON_S = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
RULES = ReservationRules(Amount(part=10_000), grace_s=0.5)


@pytest.fixture
def site(tmp_path):
    clock = SetClock(NOON_S)
    pools = (PoolConfig("local", "local", 2, price="1 USD"),)
    made = InnerSite(tmp_path, RuntimeEnvironment(utc_s=clock), pools=pools, reservations=RULES)
    made.clock = clock
    wait_until(lambda: made.site.broker.workers, "its slots are there")
    yield made
    made.stop()


def hold_on(folder, name):
    """Take a slot until the test says so."""
    (folder / f"begun-{name}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return name


def costs(site):
    by = (Dimension.TARIFF, Dimension.STATE)
    return {each.key: each.cost_nanos for each in site.site.store.usage.totals(by)}


@pytest.mark.slow
def test_slots_are_kept_used_and_billed(site, tmp_path):
    with Client(site.address) as client:
        other, own = client.options(project="pnl"), client.options(project="risk")
        [made] = client.ask(
            "reserve", slots=1, from_s=NOON_S + 3600.0, lasts_s=3600.0, who="project:risk"
        )
        assert (made["state"], made["total_nanos"]) == ("booked", 10**9)
        theirs = [other.submit(hold_on, tmp_path, f"theirs-{at}") for at in range(2)]
        wait_until(lambda: len(list(tmp_path.glob("begun-theirs-*"))) == 2, "both run")

        site.clock.set(NOON_S + 3600.0)
        mine = own.submit(hold_on, tmp_path, "mine")
        wait_until((tmp_path / "begun-mine").exists, "one of theirs made way, and ours runs")
        assert sum(each.done() for each in theirs) == 0
        [each] = client.ask("reservations")
        assert each["state"] == "running"
        (tmp_path / "go").touch()
        assert mine.result(200) == "mine"
        assert [each.result(200) for each in theirs] == ["theirs-0", "theirs-1"]

        site.clock.set(NOON_S + 7200.0)
        wait_until(lambda: client.ask("reservations") == [], "it ends")
        [ended] = client.ask("reservations", all=True)
    assert ended["state"] == "ended"
    assert 0 < ended["used_ns"] < 60 * 10**9
    name = f"reservation {ended['id']}"
    assert costs(site)[name, "ok"] == pytest.approx(10**9, abs=2)  # what was used, and what was not
    assert ended["billed_nanos"] == 10**9 - round(ended["used_ns"] / 3600)


@pytest.mark.slow
def test_short_work_runs_in_the_gap_before_one_and_long_work_waits(site):
    with Client(site.address) as client:
        client.ask("reserve", slots=2, from_s=NOON_S + 60.0, lasts_s=3600.0, who="group:none")
        short, long = client.options(name="short"), client.options(name="long")
        assert short.submit(time.sleep, 0.01).result(200) is None
        tasks = [short.submit(abs, -at) for at in range(20)]
        assert [each.result(200) for each in tasks] == list(range(20))
        assert long.submit(nap, 1.0).result(200) == 1.0
        site.clock.set(NOON_S + 59.5, stands=True)
        late = long.submit(nap, 1.0)
        more = [short.submit(abs, -at) for at in range(5)]
        assert [each.result(200) for each in more] == list(range(5))
        [job] = [each for each in client.ask("jobs") if each["name"] == "long" and each["waiting"]]
        [why] = client.ask("job", job=job["id"])["why_waiting"]
        assert why["reason"] == "window-closed"
        assert not late.done()
        site.clock.set(NOON_S + 3700.0)
        assert late.result(200) == 1.0


def nap(seconds):
    time.sleep(seconds)
    return seconds


CONFIG = """
[site]
name = "london"

[[pool]]
name = "local"
kind = "local"
slots = 4
price = "1 USD"

[reservations]
cancel_factor = 0.25
"""


@pytest.mark.slow
def test_at_the_command_line_and_over_a_death(tmp_path):
    site = SiteProcess(tmp_path, 4, config=CONFIG)
    reach = ("--gateway", site.address)
    try:
        wait_until(lambda: answer(run("status", *reach, "--json"))["pools"][0]["slots"] == 4)
        text = run("reserve", *reach, "--slots", "2", "--for", "2h")
        assert "2 slots of london/local" in text
        assert "4.00 USD, 1 USD per slot-hour; unused time is billed at 100%" in text
        wrong = run("reserve", *reach, "--slots", "1", "--for", "1h", code=1)
        assert "1 of 4 slots can't be reserved" in wrong
        wrong = run("reserve", *reach, "--slots", "5", "--for", "1h", code=1)
        assert "5 slots exceed the pool's total of 4" in wrong
        wrong = run(
            "reserve", *reach, "--slots", "1", "--for", "1h", "--from", "2026-01-01", code=1
        )
        assert "which is past" in wrong
        assert "must end after it begins" in run(
            "reserve", *reach, "--slots", "1", "--for", "0s", code=1
        )
        wrong = run("reserve", *reach, "--slots", "1", "--for", "60d", code=1)
        assert "60 d exceeds the longest reservation here, 1 d" in wrong
        [pool] = answer(run("pools", *reach, "--json"))
        assert pool["slots_free"] == 2

        config = str(tmp_path / "site.toml")
        [told] = answer(run("windows", *reach, "--config", config, "--next", "1d", "--json"))[
            "rows"
        ]
        assert [each["window"] for each in told["holds"]][1:] == [None]
        assert told["holds"][0]["window"].startswith("reservation ")
        [now] = answer(run("windows", *reach, "--config", config, "--json"))["rows"][0]["holds"]
        assert now["claims"][0].endswith(": 2 reserved")

        site.kill()
        site.start()
        [kept] = answer(run("reservations", *reach, "--json"))
        assert (kept["state"], kept["slots"], kept["project"]) == ("running", 2, "default")
        assert "is cancelled" in run("reserve", *reach, "--cancel", kept["id"])
        gone = lambda: answer(run("reservations", *reach, "--json")) == []  # noqa: E731
        wait_until(gone, "it is billed")
        [over] = answer(run("reservations", *reach, "--all", "--json"))
        assert over["state"] == "cancelled"
        assert 10**9 <= over["billed_nanos"] < 1.1 * 10**9  # a quarter, and some seconds
        wrong = run("reserve", *reach, "--cancel", kept["id"], code=1)
        assert "of yours found here" in wrong
    finally:
        site.stop()
    run("audit", "--state", str(site.state))


# --- two sites, real processes -------------------------------------------------------------------

TABLE = "\n[reservations]\nslots = '100%'\ngrace_s = 0.5\n"


@pytest.fixture
def members(tmp_path):
    made = (
        MemberSite(tmp_path, "london", 1, "4 USD", TABLE),
        MemberSite(tmp_path, "paris", 2, "0.04 USD", TABLE),
    )
    try:
        federate(*made)
        yield made
    finally:
        for member in made:
            member.gateway.stop()


def held(member, **more):
    return {each["site"]: each for each in member.ask("reservations", **more)}


@pytest.mark.thorough
def test_several_sites_or_none_and_work_goes_where_it_is_reserved(members, tmp_path):
    london, paris = members
    reach = ("--gateway", london.address)
    both = ("--site", "london", "--site", "paris")
    wrong = run("reserve", *reach, "--slots", "2", "--for", "1h", *both, code=1)
    assert "nothing was reserved: london: pool local: 2 slots exceed the pool's total of 1" in wrong
    wrong = run("reserve", *reach, "--slots", "3", "--for", "1h", "--site", "paris", code=1)
    assert "nothing was reserved: paris: pool local: 3 slots exceed the pool's total of 2" in wrong
    wrong = run("reserve", *reach, "--slots", "3", "--for", "1h", "--site", "rome", code=1)
    assert "unknown site 'rome'; known sites: london, paris" in wrong
    assert held(london) == held(paris) == {}

    later = datetime.fromtimestamp(time.time() + 7200, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    text = run("reserve", *reach, "--slots", "1", "--for", "1h", "--from", later, *both)
    assert text.count("is booked") == 2
    assert {site: each["state"] for site, each in held(london).items()} == {
        "london": "booked",
        "paris": "booked",
    }
    wait_until(lambda: held(paris)["paris"]["state"] == "booked", "Paris is told to keep it")
    assert held(paris)["paris"]["buyer"] == "london"

    london.gateway.kill()
    london.start()
    wait_until(lambda: len(held(london)) == 2, "London still has it")
    name = held(london)["paris"]["whole"]
    text = run("reserve", *reach, "--cancel", name)
    assert text.count("is cancelled") == 2
    wait_until(lambda: held(london) == held(paris) == {}, "both have let go of it")
    over = held(london, all=True)
    assert {site: each["state"] for site, each in over.items()} == {
        "london": "cancelled",
        "paris": "cancelled",
    }
    assert over["paris"]["billed_nanos"] == 4_000_000  # a tenth of an hour at 0.04 USD
    assert held(paris, all=True)["paris"]["billed_nanos"] == 4_000_000

    text = run("reserve", *reach, "--slots", "2", "--for", "1h", "--site", "paris")
    assert "2 slots of paris/local" in text
    with london.client() as client, paris.client() as other:
        late = other.submit(abs, -3)  # Paris' own work has no slot there
        view = client.options(name="night", objective="cheapest")
        assert view.submit(abs, -7).result(300) == 7
        assert not late.done()
        rows = client.ask("report", kind="usage", by=["pool", "tariff"])["rows"]
        assert any(
            row[0] == "paris/local" and row[1].startswith("reservation london-") for row in rows
        )
        run("reserve", *reach, "--cancel", held(london)["paris"]["id"])
        assert late.result(300) == 3
    wait_until(  # on the task, and on what the two reservations came to
        lambda: london.deals("buy") == paris.deals("sell") == {"settled": 3}, "the books to agree"
    )
    for each in members:
        run("audit", "--config", str(each.config))  # which fails where anything is wrong
