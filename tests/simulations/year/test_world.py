"""Days of the year in the simulated world: its promises hold, and breaches are seen."""

import json
import os
import subprocess
import sys

import pytest

from simulations.year.command import run_both, run_one
from simulations.year.scenario import YearScenario
from simulations.year.world import Year

# Tens of seconds where nobody else works.
pytestmark = [pytest.mark.timeout(1200), pytest.mark.thorough]

# Two working days of January: many programs are new to everybody, so work has to make room.
TWO_DAYS = YearScenario(days=2, begin_day=8)


@pytest.fixture(scope="module")
def found():
    """Both ways, once for all that is asked of it."""
    return run_both(TWO_DAYS)


def test_the_federation_is_better_at_all_that_is_promised(found):
    assert {name: each["is_better"] for name, each in found["better"].items()} == {
        "utilisation": True,
        "wait, median": True,
        "wait, p95": True,
        "spend": True,
        "carbon": True,
    }


def test_production_has_its_whole_grid_when_its_window_begins(found):
    for how in ("alone", "federated"):
        production = found[how]["production"]
        assert (production["runs"], production["late_starts"]) == (2, 0)
        assert production["unfinished"] == 0
    # And that was no accident: others were on it, and had to go.
    assert found["federated"]["sites"]["london"]["lent_slot_h"] > 0
    assert found["federated"]["sites"]["london"]["preempted_tasks"] > 0


def test_both_ways_all_of_the_same_work_is_done(found):
    alone, federated = found["alone"], found["federated"]
    assert alone["total"]["unfinished"] == federated["total"]["unfinished"] == 0
    for name, each in alone["departments"].items():
        assert each["tasks"] == federated["departments"][name]["tasks"]
        assert each["slot_h"] == federated["departments"][name]["slot_h"]


def test_what_sites_pay_each_other_is_what_they_earn(found):
    sites = found["federated"]["sites"].values()
    paid = sum(each["paid_usd"] for each in sites)
    assert paid == pytest.approx(sum(each["earned_usd"] for each in sites))
    assert paid > 0
    assert all(each["paid_usd"] == 0 for each in found["alone"]["sites"].values())


def test_without_preemption_production_comes_late():
    planted = YearScenario(days=1, begin_day=8, preempts=False)
    production = run_one(planted, True)["production"]
    assert production["runs"] == production["late_starts"] == 1
    assert production["latest_s"] > 10


def test_the_books_have_what_the_slots_did():
    outcome = Year(YearScenario(days=1, begin_day=8), is_federated=True).run()
    lost_s = sum(
        slots.used.lost_s for member in outcome.members.values() for slots in member.slots.values()
    )
    # Slots count until the day is over, the books for as long as anything runs.
    booked_s = sum(money.preempted_s for money in outcome.money.values())
    assert booked_s == pytest.approx(lost_s, rel=0.01)
    assert lost_s > 0


def test_equal_seeds_give_equal_figures():
    one, other = (run_one(YearScenario(days=1, begin_day=50), True) for _ in range(2))
    assert one == other


@pytest.mark.real
def test_equal_seeds_give_equal_reports_in_every_process(tmp_path):
    command = [sys.executable, "-m", "simulations", "year", "--days", "1", "--from-day", "8"]
    texts = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(
            [*command, "--processes", "1", "--out", str(folder)],
            env=environment,
            capture_output=True,
            timeout=100,
            check=False,  # a day is too short for all promises
        )
        texts.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert texts[0] == texts[1]
    assert json.loads(texts[0]["year.json"])["federated"]["production"]["runs"] == 1


def test_another_seed_is_another_year():
    one, other = (
        Year(YearScenario(days=3, seed=seed), is_federated=False).works for seed in (1, 2)
    )
    assert [work.at_s for work in one] != [work.at_s for work in other]
