"""The pool grows and is gone again, small; random fates; the command names its limits."""

import json

import pytest

from simulations.growth import command
from simulations.growth.days import Day, run_day
from simulations.growth.fates import draw_fate, run_fate
from simulations.growth.report import report
from simulations.growth.runs import Climb, run_climb


@pytest.mark.slow
def test_up_and_down():
    found = run_climb(Climb(200, work_s=100.0))
    assert found.working_s <= 1.15 * found.needed_s  # of 50 s, one round is 0.02
    assert found.done == found.booked == found.tasks
    assert found.left == 0
    assert found.launched == 50


@pytest.mark.thorough
@pytest.mark.parametrize("step_s", [0.0, 3_600.0])
def test_a_day_costs_little_more_than_who_had_known_it_would_have_paid(step_s):
    found = run_day(Day("nasa", 9, step_s))
    assert 1.0 <= found.ratio <= 1.1
    assert found.done == found.booked == found.tasks
    assert found.left == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_whatever_happens(seed):
    run_fate(draw_fate(seed))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(100, 120))
def test_whatever_happens_many_times(seed):
    run_fate(draw_fate(seed))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--slots", "3"], "--slots 3: must be from 40"),
        (["--days", "9"], "--days 9: must be from 0"),
        (["--seeds", "0"], "--seeds 0: must be from 1"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words, capsys):
    with pytest.raises(SystemExit):
        command.read(arguments)
    assert words in capsys.readouterr().err


def test_the_figures_that_are_kept_are_those_that_the_report_tells():
    figures = json.loads((command.RESULTS / "growth.json").read_text())
    told = (command.RESULTS / "growth.md").read_text()
    assert told.startswith(report(figures)), "beside it may stand what was done by hand"
