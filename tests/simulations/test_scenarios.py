"""Every scenario ends well, on the heap; and those with a lost gateway or site under trio too."""

import pytest

from simulations.scenarios import SCENARIOS
from simulations.world.trioclock import run_under_trio
from simulations.world.world import World


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_well(name: str) -> None:
    assert World(SCENARIOS[name](7), 7).run().broken is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lost_gateway", "power_cut", "slow_store", "pause", "lost_site", "partitioned_sites"]
)
def test_a_scenario_ends_well_with_real_sites(name: str) -> None:
    assert run_under_trio(SCENARIOS[name](7), 7).broken is None


def test_every_scenario_says_what_it_is() -> None:
    assert all(scenario.__doc__ for scenario in SCENARIOS.values())
