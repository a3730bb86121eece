"""The contract suite of provisioning grids on EC2's stand-in: its instances run real workers."""

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from gateway.grids import checks

pytestmark = pytest.mark.real


@pytest.fixture
def bench(ec2, configure, monkeypatch):
    from gateway.grids.ec2 import grid
    from gateway.grids.ec2.grid import Ec2Grid

    monkeypatch.setattr(grid, "EVENTS_S", 0.0)

    class Instances(checks.Bench):
        called = "EC2"
        wait_s = 60.0
        look_s = 0.1

        def open(self, launch):
            return Ec2Grid(configure(), launch, attempts=2)

        async def left(self, mark):
            return [each["InstanceId"] for each in ec2.alive(mark)]

        async def take(self, pilot):
            ec2.take(pilot.grid_id, "Server.InternalError")

        @asynccontextmanager
        async def withdrawn(self, pilot):
            ec2.events[pilot.grid_id] = "system-reboot", "maintenance", 600.0
            yield
            ec2.events.clear()

        @asynccontextmanager
        async def down(self):
            ec2.is_down = True
            yield
            ec2.is_down = False

        def denied(self, launch):
            return Ec2Grid(replace(configure(), profile="bad"), launch, attempts=2)

    return Instances()


# One that starts instances holds most; the others are of seconds each, and tried by hand with
# instances that run nothing (test_ec2_grid).
FAST = {
    *(checks.check_life, checks.check_denied, checks.check_too_large),
    checks.check_hostile_names,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(each, marks=[] if each in FAST else [pytest.mark.thorough])
        for each in checks.CHECKS
    ],
    ids=checks.name_of,
)
async def test_ec2_keeps_its_promises(bench, check):
    try:
        await checks.run(check, bench)
    except checks.NotChecked as reason:
        pytest.skip(str(reason))
