"""Every scenario ends well, on the heap; and those with a lost gateway or site under trio too."""

import pytest

from simulations.scenarios import SCENARIOS
from simulations.world.trioclock import run_under_trio
from simulations.world.world import World

LONG = {
    "flapping_link",
    "lost_site",
    "partitioned_sites",
    "paused_site",
    "restarted_buyer",
    "slow_site",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=pytest.mark.thorough) if each in LONG else each
        for each in SCENARIOS
    ],
)
def test_a_scenario_ends_well(name: str) -> None:
    assert World(SCENARIOS[name](7), 7).run().broken is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lost_gateway", "power_cut", "slow_store", "pause", "lost_site", "partitioned_sites"]
)
@pytest.mark.thorough
def test_a_scenario_ends_well_with_real_sites(name: str) -> None:
    assert run_under_trio(SCENARIOS[name](7), 7).broken is None


def test_every_scenario_says_what_it_is() -> None:
    assert all(scenario.__doc__ for scenario in SCENARIOS.values())


@pytest.mark.thorough
def test_a_split_corrects_itself_when_a_site_turns_out_to_be_slow() -> None:
    run = World(SCENARIOS["slow_site"](7), 7).run()
    assert run.broken is None
    told = [each for each in run.trace.entries if each.what == "learns (results)"]
    assert len(told) == 2000
    # Halves would take 1000 x 20 x 0.05 / 4 = 250 s, the best split 2000 x 0.05 / 4.2 = 24 s.
    assert told[-1].at_s < 36
