"""Entitlements of a running gateway, by a clock that the test sets; and of two sites' gateways."""

import time
from datetime import UTC, datetime

import pytest
from support.answers import answer
from support.members import dear_and_cheap, run
from support.processes import InnerSite, SetClock, wait_until

from federation import Client
from federation.errors import JobRefused, QueueLimitReached
from gateway.config.site import PoolConfig
from gateway.runtime.environment import RuntimeEnvironment
from policies.access.entitlements import EntitlementRule, Entitlements
from policies.access.windows import Window, WindowPlan
from policies.calendar.hours import Hours
from policies.parties import read_party

pytestmark = pytest.mark.real

NOON_S = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
NIGHT = Window("night", Hours(20 * 3600, 6 * 3600))
RULES = Entitlements(
    (
        EntitlementRule(True, (read_party("group:quants"),), slots_max=2, queued_max=6, line=7),
        EntitlementRule(True, (read_party("user:dan"),), windows=frozenset({"night"}), line=12),
    ),
    "site.toml",
)


def hold_on(folder, number):
    """Take a slot until the test says so."""
    (folder / f"run-{number}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    return number


def runs(folder):
    return sorted(int(each.name.split("-")[1]) for each in folder.glob("run-*"))


@pytest.fixture
def site(tmp_path):
    clock = SetClock(NOON_S)
    made = InnerSite(
        tmp_path,
        RuntimeEnvironment(utc_s=clock),
        pools=(PoolConfig("local", "local", 3, plan=WindowPlan((NIGHT,))),),
        groups={"ann": ("quants",), "bob": ("quants",)},
        entitlements=RULES,
    )
    made.clock = clock
    yield made
    (tmp_path / "go").touch()
    made.stop()


def can(site, user, *arguments):
    [row] = answer(run("can", user, *arguments, "--gateway", site.address, "--json"))["pools"]
    return row


def why(client):
    """Why the only job waits."""
    [job] = client.ask("jobs")
    found = client.ask("job", job=job["id"]).get("why_waiting", [])
    return {each["reason"]: each["text"] for each in found}


@pytest.mark.slow
def test_a_user_waits_for_a_window_and_is_told_so_until_it_begins(site, tmp_path):
    row = can(site, "dan")
    assert (row["may"], row["why"], row["rule"]["line"]) == (False, "not-now", 12)
    assert row["next"]["at_s"] == NOON_S + 8 * 3600.0
    with Client(site.address, user="dan") as client:
        task = client.submit(hold_on, tmp_path, 1)
        wait_until(lambda: client.ask("jobs"), "the job is there")
        wait_until(lambda: "window-closed" in why(client), "it is said why it waits")
        text = why(client)["window-closed"]
        assert "only in window night (site.toml:12: allows user:dan; windows night)" in text
        [job] = client.ask("jobs")
        [place] = client.ask("explain", job=job["id"])["places"]
        assert "(site.toml:12: " in place["why_not"]
        assert not task.done()

        site.clock.set(NOON_S + 8 * 3600.0)
        wait_until(lambda: runs(tmp_path) == [1], "it runs when its window begins")
        assert can(site, "dan")["may"] is True
        # It goes on when the window is over; what comes then waits.
        site.clock.set(NOON_S + 18 * 3600.0)
        wait_until(lambda: not can(site, "dan")["may"], "the window is over")
        later = client.submit(hold_on, tmp_path, 2)
        (tmp_path / "go").touch()
        assert task.result(200) == 1
        assert not later.done()
        assert runs(tmp_path) == [1]
        site.clock.set(NOON_S + 32 * 3600.0)
        assert later.result(200) == 2


@pytest.mark.slow
def test_a_group_has_its_slots_and_tasks_and_no_more(site, tmp_path):
    with Client(site.address, user="ann") as ann, Client(site.address, user="bob") as bob:
        hers = [ann.submit(hold_on, tmp_path, number) for number in (1, 2)]
        wait_until(lambda: len(runs(tmp_path)) == 2, "two of them run")
        his = [bob.submit(hold_on, tmp_path, number) for number in range(3, 7)]
        wait_until(lambda: can(site, "bob")["queued"] == 6, "the others wait")
        row = can(site, "bob")
        assert (row["slots"], row["slots_max"], row["queued_max"]) == (2, 2, 6)
        with pytest.raises((QueueLimitReached, JobRefused), match=r"has 6 of 6 tasks") as refused:
            bob.submit(hold_on, tmp_path, 7).result(200)
        assert "(site.toml:7: " in str(refused.value)
        assert runs(tmp_path) == [1, 2]
        (tmp_path / "go").touch()
        assert [each.result(200) for each in hers + his] == [1, 2, 3, 4, 5, 6]
        assert bob.submit(hold_on, tmp_path, 8).result(200) == 8
    with (
        Client(site.address, user="zoe") as zoe,
        pytest.raises(
            JobRefused, match=r"no \[\[entitlement\]\] of site.toml allows the work of zoe"
        ),
    ):
        zoe.submit(abs, -1).result(200)
    with Client(site.address, user="zoe") as zoe:
        refused_by = zoe.ask("explain", tasks=1)["refused_by_rule"]
    assert refused_by == "no [[entitlement]] of site.toml allows the work of zoe"
    with Client(site.address, user="ann") as ann:
        assert ann.ask("explain", tasks=1)["refused_by_rule"] == ""


# --- two sites, real processes -------------------------------------------------------------------

FEW = """
[[entitlement]]
allow = "site:london"
slots_max = 1
"""
NONE = """
[[entitlement]]
deny = "site:london"
"""


def in_flight(client, pool):
    jobs = [job for job in client.ask("jobs") if job["ended_at_s"] is None]
    found = [client.ask("explain", job=job["id"])["places"] for job in jobs]
    return sum(each["in_flight"] for places in found for each in places if each["pool"] == pool)


@pytest.mark.slow
def test_another_sites_work_has_what_its_rule_gives_and_goes_when_it_is_denied(tmp_path):
    go = tmp_path / "go"
    with dear_and_cheap(tmp_path) as (london, paris), london.client() as client:
        try:
            text = paris.config.read_text()
            paris.config.write_text(text + FEW)
            told = answer(run("reload", "--gateway", paris.address, "--json"))
            [new] = told["entitlements"]["new"]
            assert new["rule"] == "allows site:london; slots_max 1"

            view = client.options(objective="cheapest")
            tasks = [view.submit(hold_on, tmp_path, number) for number in range(4)]
            wait_until(lambda: in_flight(client, "paris/local") >= 1, "Paris has some of it")
            found = ask(paris)
            assert (found["may"], found["slots_max"]) == (True, 1)
            assert found["trust"]["rule"]["file"].endswith("trust.json")
            wait_until(lambda: ask(paris)["slots"] == 1, "1")

            paris.config.write_text(text + NONE)
            run("reload", "--gateway", paris.address)
            row = ask(paris)
            assert (row["may"], row["why"]) == (False, "denied")
            line = paris.config.read_text().splitlines().index("[[entitlement]]") + 1
            assert row["rule"]["line"] == line
        finally:
            go.touch()
        assert [each.result(300) for each in tasks] == [0, 1, 2, 3]
        wait_until(lambda: not in_flight(client, "paris/local"), "Paris has it no more")


def ask(paris):
    """The answer of Paris about a user of London."""
    found = run("can", "ada", "--site", "london", "--gateway", paris.address, "--json")
    [row] = answer(found)["pools"]
    return row
