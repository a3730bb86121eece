"""Equal seeds give equal runs, byte for byte: in one process, in others, on either driver."""

import os
import subprocess
import sys

import pytest

from simulations.draw import draw_plan
from simulations.scenarios import SCENARIOS
from simulations.swarm import run_seed
from simulations.world.trioclock import determined, run_under_trio
from simulations.world.world import World


def test_equal_seeds_give_equal_runs() -> None:
    one, other = run_seed(7), run_seed(7)
    assert [entry.line for entry in one.trace.entries] == [e.line for e in other.trace.entries]
    assert one.digest == other.digest


def test_another_seed_gives_another_run() -> None:
    plan = SCENARIOS["lost_worker"](1)
    assert World(plan, 1).run().digest != World(plan, 2).run().digest


@pytest.mark.real
@pytest.mark.thorough
@pytest.mark.parametrize("driver", [[], ["--trio"]], ids=["heap", "trio"])
def test_other_processes_with_other_hash_seeds_do_the_same(driver: list[str]) -> None:
    command = [sys.executable, "-m", "simulations", "run", "random", "--seed", "3", "--trace"]

    def lines(hash_seed: str) -> list[bytes]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [*command, *driver], env=environment, capture_output=True, timeout=400, check=True
        )
        return done.stdout.splitlines()[:-1]  # the last one says how long it took

    first = lines("1")
    assert len(first) > 100
    assert first == lines("2")


@pytest.mark.slow
@pytest.mark.thorough
def test_equal_seeds_give_equal_runs_under_trio() -> None:
    plan = draw_plan(8)
    assert any(site.others for site in plan.sites)
    one, other = run_under_trio(plan, 7), run_under_trio(plan, 7)
    assert one.broken is None
    assert one.digest == other.digest


def test_trio_is_as_it_was_after_a_determined_run() -> None:
    import trio._core._run as run

    before = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()
    with determined(5):
        assert run._ALLOW_DETERMINISTIC_SCHEDULING
    assert (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()) == before
