"""The command names its limits; the report has the run's own figures."""

import json

import pytest

from simulations.year import command
from simulations.year.figures import compare, quantile
from simulations.year.scenario import YearScenario


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--days", "0"], "--days 0: must be from 1 to 365"),
        (["--days", "400"], "must be from 1 to 365"),
        (["--days", "30", "--from-day", "350"], "30 days from there go past the end of 2023"),
        (["--from-day", "-1"], "past the end of 2023"),
        (["--objective", "prettiest"], "invalid choice"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words, capsys):
    with pytest.raises(SystemExit):
        command.read(arguments)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50), (0.95, 95), (0.99, 99), (0.01, 1), (1.0, 100)]
)
def test_a_quantile_is_the_least_that_so_many_do_not_exceed(share, value):
    assert quantile(range(1, 101), share) == value
    assert quantile([], share) == 0


def test_what_is_worse_is_told_as_worse():
    alone = {"total": {"utilisation": 0.5, "wait_median_s": 1.0, "wait_p95_s": 9.0,
                       "spend_usd": 10.0, "carbon_kg": 4.0}}  # fmt: skip
    worse = {"total": {"utilisation": 0.4, "wait_median_s": 2.0, "wait_p95_s": 9.0,
                       "spend_usd": 5.0, "carbon_kg": 5.0}}  # fmt: skip
    found = compare(alone, worse)
    assert {name: each["is_better"] for name, each in found.items()} == {
        "utilisation": False,
        "wait, median": False,
        "wait, p95": False,
        "spend": True,
        "carbon": False,
    }
    assert found["spend"]["better_by"] == 0.5
    assert found["carbon"]["better_by"] == -0.25


@pytest.mark.thorough
def test_a_report_is_written_with_its_figures_and_pictures(tmp_path):
    told = []
    code = command.main(
        ["--days", "1", "--from-day", "50", "--processes", "1", "--out", str(tmp_path)],
        told.append,
    )
    found = json.loads((tmp_path / "year.json").read_text())
    text = (tmp_path / "year.md").read_text()
    assert told == [text]
    kept = all(each["is_better"] for each in found["better"].values())
    assert code == (0 if kept else 1)
    assert "`python -m simulations year --days 1 --seed 1 --from-day 50`" in text
    assert f"{found['better']['spend']['alone']:,.0f} USD" in text
    assert f"{found['federated']['total']['lost_slot_h']:,.0f} of their slot-hours" in text
    for name in ("year_use.svg", "year_waits.svg", "year_spend_carbon.svg"):
        assert f"({name})" in text
        assert (tmp_path / name).stat().st_size > 1_000


def test_the_sites_can_be_read_and_are_of_the_case():
    london, *departments = YearScenario().sites
    (pool,) = london.config().pools
    (window,) = pool.plan.windows
    assert (window.name, window.preempts) == ("risk run", True)
    for site in departments:
        assert [each.name for each in site.config().pools] == ["grid", "cloud"]
