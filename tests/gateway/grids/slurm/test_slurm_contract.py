"""The contract suite on real Slurm clusters: by commands and by slurmrestd, of both generations."""

from contextlib import asynccontextmanager

import pytest
import trio
from support.programs.slurm import Cluster, running

from gateway.grids import checks
from gateway.grids.contract import FailureClass, Shape
from gateway.grids.slurm import KIND

pytestmark = pytest.mark.real

# What is tried by commands in `make test`; the rest by `make thorough`,
# and of a newer Slurm all but its life by `make stress`.
QUICK = {
    checks.check_names_itself,
    checks.check_life,
    checks.check_stop_at_once,
    checks.check_started_once,
    checks.check_found_again,
    checks.check_too_large,
    checks.check_hostile_names,
    checks.check_leaving,
}


class SlurmBench(checks.Bench):
    """A cluster of ours, by one way."""

    called = "slurm"
    shape = Shape(slots=1, memory_bytes=256 << 20, tags={"checked": True, "weight": 2.5})
    denied_blame = FailureClass.AGAIN  # a token that is over is refused by the same words

    def __init__(self, cluster: Cluster, table: dict[str, object]) -> None:
        self.cluster, self.table = cluster, table

    def open(self, launch):
        return KIND.open(KIND.read(self.table), launch)

    async def left(self, mark):
        states = "PD,R,S,CG,CF"
        said = await self._run("squeue", "-h", "-r", "-t", states, "-o", "%j %i %T")
        return [line for line in said.splitlines() if mark in line]

    async def texts(self):
        shown = await self._run("scontrol", "show", "job")
        files = [each for each in self.cluster.folder.glob("*.log") if each.is_file()]
        return [shown, await self._run("squeue", "-o", "%all"), *(map(_text, files))]

    async def take(self, pilot):
        await self._run("scancel", "--signal=KILL", "--full", pilot.grid_id)

    @asynccontextmanager
    async def withdrawn(self, pilot):
        node = (await self._run("squeue", "-h", "-j", pilot.grid_id, "-o", "%N")).strip()
        told = f"nodename={node}"
        await self._run("scontrol", "update", told, "state=drain", "reason=a fan is broken")
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await self._run("scontrol", "update", told, "state=resume")

    @asynccontextmanager
    async def _full(self):
        job = ["sbatch", "--parsable", "--exclusive", f"-N{len(self.cluster.nodes)}"]
        job += ["-o/dev/null", "--wrap", "exec sleep 600"]
        number = (await self._run(*job)).strip()
        while "RUNNING" not in await self._run(  # noqa: ASYNC110 - another process
            "squeue", "-h", "-j", number, "-o", "%T"
        ):
            await trio.sleep(0.05)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await self._run("scancel", number)

    def full(self):
        return self._full()

    @asynccontextmanager
    async def _down(self):
        with self.cluster.controller_down():
            yield

    def down(self):
        return self._down()

    def denied(self, launch):
        if "token_file" not in self.table:
            raise checks.NotChecked("this way needs no token")
        wrong = self.cluster.folder / "wrong-token"
        wrong.write_text("a.b.c")
        return KIND.open(KIND.read(self.table | {"token_file": str(wrong)}), launch)

    async def _run(self, *command):
        return await trio.to_thread.run_sync(self.cluster.run, *command)


def _text(path):
    return path.read_text(errors="replace")


@pytest.fixture(scope="module")
def cluster():
    with running(name="gc", rest="unix") as found:
        yield found


@pytest.fixture(scope="module")
def newer():
    with running(name="gn", rest="tcp", other=True) as found:
        yield found


def trials():
    for check in checks.CHECKS:
        marks = pytest.mark.slow if check in QUICK else pytest.mark.thorough
        yield pytest.param(check, "commands", id=f"commands-{checks.name_of(check)}", marks=marks)
        named = f"slurmrestd-{checks.name_of(check)}"
        is_quick = check is checks.check_life
        marks = pytest.mark.slow if is_quick else pytest.mark.thorough
        yield pytest.param(check, "slurmrestd", id=named, marks=marks)


async def keeps(check, cluster, way):
    table = cluster.table if way == "commands" else cluster.rest_table
    # Only where nobody answers is that time sat out; elsewhere it is what a busy machine may take.
    limit = "5s" if check is checks.check_down else "25s"
    try:
        await checks.run(check, SlurmBench(cluster, table | {"timeout": limit}))
    except checks.NotChecked as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("check", "way"), list(trials()))
async def test_slurm_keeps_its_promises(check, way, cluster):
    await keeps(check, cluster, way)


def newer_trials():
    for check in checks.CHECKS:
        marks = pytest.mark.thorough if check is checks.check_life else pytest.mark.stress
        yield pytest.param(check, id=checks.name_of(check), marks=marks)


@pytest.mark.parametrize("way", ["commands", "slurmrestd"])
@pytest.mark.parametrize("check", list(newer_trials()))
async def test_a_newer_slurm_keeps_them_too(check, way, newer):
    await keeps(check, newer, way)
