"""Random worlds keep their invariants, and the checker finds planted bugs."""

import os

import pytest

from simulations.bugs import BUGS, TREATY_BUGS, planted
from simulations.scenarios import SCENARIOS
from simulations.swarm import find, judge, swarm
from simulations.world.world import World

SEEDS = 4  # make swarm has hundreds
BUG_SEEDS = 120  # each planted bug is found within so many


def _broken(seeds: range) -> list[tuple[int, str]]:
    processes = min(2, os.cpu_count() or 1)
    return [(each.seed, each.broken) for each in swarm(seeds, processes) if each.broken]


@pytest.mark.thorough
def test_no_invariant_breaks_in_random_worlds() -> None:
    assert _broken(range(SEEDS)) == []


@pytest.mark.stress
def test_no_invariant_breaks_in_hundreds_of_random_worlds() -> None:
    assert _broken(range(300)) == []


# The first world from seed 0 on that shows each; a draw that changes only makes the search longer.
FIRST = {
    "lost-ack": 30,
    "double-charge": 71,
    "leaked-hold": 118,
    "endless-lease": 118,
    "unheeded-entitlements": 6,
    "forgotten-slots": 6,
    "no-epoch": 67,
    "paid-after-failover": 67,
    "endless-hold": 97,
    "ignored-refutation": 1,
    "open-door": 13,
    "endless-deadline": 41,
    "deep-pockets": 14,
    "one-sided-books": 1,
    "half-a-transfer": 16,
    "one-sided-reversal": 16,
    "lost-verdict": 1,
    "soft-bill": 3,
    "unheard-answer": 7,
    "unheard-payments": 1,
    "blind-agreement": 67,
    "hasty-agreement": 615,
    "backdated-reversal": 16,
    "unheeded-windows": 39,
    "overbooked-slots": 7,
    "unheld-tasks": 12,
    "unheld-contracts": 460,
    "forgotten-slices": 47,
    "overtaking-tells": 1,
    "bytes-released-twice": 0,
    "forgotten-cancels": 136,
    "charged-silence": 22,
    "one-more-crash": 2,
    "free-crashes": 3,
    "restless-recalls": 36,
    "forgotten-stops": 28,
    "forgotten-holds": 89,
    "hoarded-contracts": 16,
    "swapped-inputs": 9,
    "unheard-failures": 9,
    "endless-rides": 9,
    "unheeded-labels": 8,
    "unstored-labels": 25,
    "half-read-labels": 25,
}


QUICK = {
    "charged-silence",
    "one-more-crash",
    "open-door",
    "unheld-tasks",
    "overbooked-slots",
    "overtaking-tells",
    "bytes-released-twice",
    "forgotten-holds",
    "swapped-inputs",
    "endless-rides",
}


def test_every_planted_bug_has_its_first_world() -> None:
    assert FIRST.keys() == (BUGS | TREATY_BUGS).keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=[] if bug in QUICK else pytest.mark.thorough)
        for bug in BUGS | TREATY_BUGS
    ],
)
def test_the_swarm_finds_a_planted_bug_and_the_clean_world_survives_its_seed(bug: str) -> None:
    found = find(bug, BUG_SEEDS, FIRST[bug])
    assert found is not None
    assert not judge(found.seed).broken


@pytest.mark.stress
@pytest.mark.parametrize("bug", BUGS | TREATY_BUGS)
def test_the_swarm_finds_each_planted_bug_from_its_first_seed(bug: str) -> None:
    found = find(bug, 4 * BUG_SEEDS)
    assert found is not None
    assert not judge(found.seed).broken


@pytest.mark.thorough
def test_a_lease_without_an_epoch_is_found_where_a_buyer_restarts() -> None:
    plan = SCENARIOS["restarted_buyer"](7)
    with planted("no-epoch"):
        assert World(plan, 7).run().broken is not None
    assert World(plan, 7).run().broken is None


@pytest.mark.thorough
def test_a_day_is_agreed_on_by_a_comparison_of_more_days_after_a_restart() -> None:
    """Paris compares seven days at once after its restart, the day of a reversal among them."""
    assert not judge(7319).broken


@pytest.mark.thorough
def test_a_run_lost_behind_a_cut_counts_until_its_last_frame_arrives() -> None:
    """Its agent ends in a cut, whose end brings the agent's last heartbeats to the gateway."""
    assert not judge(8769).broken
