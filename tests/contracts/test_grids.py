"""The contract of provisioning grids, for each adapter here; see gateway.grids.checks."""

from contextlib import asynccontextmanager

import pytest
from fakes.grids import ProcessesBench, TroubledBench

from gateway.grids import checks

pytestmark = pytest.mark.real


@asynccontextmanager
async def processes():
    yield ProcessesBench()


@asynccontextmanager
async def troubled():
    yield TroubledBench()


# What `make test` tries; `make thorough` tries the others, which mostly try the same code again.
QUICK = {
    processes: set(checks.CHECKS)
    - {checks.check_calls_at_once, checks.check_taken_away, checks.check_leaving},
    troubled: {checks.check_no_capacity, checks.check_denied, checks.check_down},
}


def trials():
    """Each adapter with each check."""
    for make, quick in QUICK.items():
        for check in checks.CHECKS:
            marks = pytest.mark.slow if check in quick else pytest.mark.thorough
            named = f"{make.__name__}-{checks.name_of(check)}"
            yield pytest.param(make, check, id=named, marks=marks)


@pytest.mark.parametrize(("make", "check"), list(trials()))
async def test_a_grid_keeps_its_promises(make, check):
    async with make() as bench:
        try:
            await checks.run(check, bench)
        except checks.NotChecked as reason:
            pytest.skip(str(reason))
