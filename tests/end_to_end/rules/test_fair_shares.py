"""A saturated gateway whose slots are shared out: the views of its operator and its users."""

import json
import time

import pytest
from support.answers import answer
from support.command import quick
from support.processes import SiteProcess, wait_until

from gateway.cli.shared.codes import WRONG

pytestmark = pytest.mark.real

CONFIG = """
[fair_share]
half_life = "7d"

[[fair_share.share]]
name = "risk"
who = "project:risk"
shares = 3

[[fair_share.share]]
name = "pricing"
who = "project:pricing"
"""
SLOTS = 2
USED_S = 8.0


def nap(_):
    time.sleep(0.02)


@pytest.fixture
def site(tmp_path, monkeypatch):
    made = SiteProcess(tmp_path, SLOTS, config=CONFIG)
    monkeypatch.setenv("GRIDFED_GATEWAY", made.address)
    yield made
    made.stop()


def shown():
    return {row["share"]: row for row in answer(quick("shares", "--json"))["rows"]}


def used_s():
    return sum(row["used_slot_s"] for row in shown().values())


@pytest.mark.slow
def test_two_projects_with_three_shares_and_one_get_slots_as_three_to_one(site):
    with site.client() as client:
        jobs = {
            project: client.options(project=project).submit_job(nap, range(4000))
            for project in ("risk", "pricing")  # the first has all slots until the second comes
        }
        wait_until(lambda: used_s() > USED_S, "some work is done")
        rows = shown()
        # Both want more all the time, and so nothing but their shares decides.
        assert all(row["waiting"] for row in rows.values()), rows
        assert any(row["under_way_slot_s"] for row in rows.values()), rows
        assert {name: row["target"] for name, row in rows.items()} == {
            "risk": 0.75,
            "pricing": 0.25,
        }
        assert rows["risk"]["part"] == pytest.approx(0.75, abs=0.05)
        assert sorted(row["place"] for row in rows.values()) == [1, 2]
        # The books say the same.
        report = answer(quick("report", "usage", "--by", "project", "--json"))
        wall_ns = {row["project"]: int(row["wall_ns"]) for row in report["rows"]}
        assert wall_ns["risk"] / sum(wall_ns.values()) == pytest.approx(0.75, abs=0.05)

        table = quick("shares")
        assert "project:risk" in table
        assert "75.0 %" in table
        text = quick("explain", jobs["risk"].id)
        assert "share risk: " in text
        assert "its target under full demand is 75.0 %" in text
        found = answer(quick("explain", jobs["risk"].id, "--json"))["fair_share"]
        assert (found["share"], found["places"]) == ("risk", 2)

        for job in jobs.values():
            job.cancel(stop=True)
        wait_until(lambda: not any(row["jobs"] for row in shown().values()), "all has ended")
        for job in jobs.values():
            assert job.wait(200) == "cancelled"  # as the books say
        before = shown()
        assert not any(row["waiting"] or row["under_way_slot_s"] for row in before.values())
    site.kill()
    site.start()  # which forgives nobody; when in an hour something was used the books don't say
    for name, row in shown().items():
        assert row["used_slot_s"] == pytest.approx(before[name]["used_slot_s"], rel=0.005), name

    # Nor do other shares, which a running gateway takes in.
    path = site.folder / "site.toml"
    path.write_text(CONFIG.replace("shares = 3", "shares = 0"))
    assert "[fair_share] share 'risk': shares is 0" in quick("reload", code=1)
    path.write_text(CONFIG.replace("shares = 3", "shares = 1"))
    assert "the rules of fair share have changed" in quick("reload", "--dry-run")
    assert shown()["risk"]["target"] == 0.75
    assert "the configuration is applied" in quick("reload")
    for name, row in shown().items():
        assert row["target"] == 0.5
        assert row["used_slot_s"] == pytest.approx(before[name]["used_slot_s"], rel=0.005), name
    assert "the rules of fair share have changed" not in quick("reload")


def test_where_nothing_is_shared_out_it_is_said(shared_site, monkeypatch):
    monkeypatch.setenv("GRIDFED_GATEWAY", shared_site.address)
    assert "the configuration has no [fair_share]" in quick("shares")
    found = json.loads(quick("shares", "--json"))
    assert found["rows"] == []
    assert "the configuration has no [fair_share]" in found["data"]["note"]


def test_a_gateway_with_shares_that_can_not_be_does_not_start(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(CONFIG + 'parent = "nobody"\n')
    said = quick("gateway", "--config", str(path), "--state", str(tmp_path), code=WRONG)
    assert f"{path}: line 13: [fair_share] share 'pricing': parent is 'nobody'" in said
