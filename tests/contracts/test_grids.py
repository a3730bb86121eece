"""What every provisioning grid keeps, for each adapter here; see gateway.grids.checks."""

import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.grids import checks
from gateway.grids.processes import ProcessesConfig, ProcessGrid


class Fillable(ProcessGrid):
    """Its host can be full of others' processes."""

    is_full = False

    def _used(self):
        return self._slots_max if type(self).is_full else super()._used()


def is_of(mark, pid):
    """Whether a process, or what started it, was a pilot of that mark."""
    try:
        return f"GRIDFED_PILOT={mark}/".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # it has ended


class Processes(checks.Bench):
    """Processes of this host."""

    called = "processes"
    wait_s = 60.0
    look_s = 0.05

    def open(self, launch):
        return Fillable(ProcessesConfig(8), launch)

    async def left(self, mark):
        return [pid for pid in os.listdir("/proc") if pid.isdecimal() and is_of(mark, pid)]

    async def take(self, pilot):
        os.kill(int(pilot.grid_id.removeprefix("pid ")), signal.SIGKILL)

    @asynccontextmanager
    async def full(self):
        Fillable.is_full = True
        yield
        Fillable.is_full = False


@asynccontextmanager
async def processes():
    yield Processes()


@pytest.mark.slow
@pytest.mark.parametrize("check", checks.CHECKS, ids=checks.name_of)
@pytest.mark.parametrize("make", [processes], ids=lambda make: make.__name__)
async def test_a_grid_keeps_its_promises(make, check):
    async with make() as bench:
        try:
            await checks.run(check, bench)
        except checks.NotChecked as reason:
            pytest.skip(str(reason))
