"""Slurm's commands, where they are not in a usual place: this one is ours."""

import os
from datetime import UTC, datetime

import pytest

from gateway.grids.contract import FailureClass, GridFault, Launch, Order, Shape
from gateway.grids.slurm.asking import request_of
from gateway.grids.slurm.commands import Commands
from gateway.grids.slurm.settings import SlurmSettings

pytestmark = pytest.mark.real

SBATCH = """\
#!/bin/sh
env > {said}
echo "sbatch: Job 7 to start at 2026-11-23T10:00:00 using 1 processors" >&2
"""


async def test_sbatch_is_found_where_the_others_are_and_its_job_has_a_plain_path(
    tmp_path, monkeypatch
):
    (tmp_path / "sbatch").write_text(SBATCH.format(said=tmp_path / "said"))
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("OURS_ALONE", "x")
    settings = SlurmSettings("main", "/opt/gridfed/bin/python")
    launch = Launch("s", "p", "m", "tcp://10.0.0.1:1", {"GRIDFED_SECRET": "s"}, tmp_path, print)
    request = request_of(settings, launch, Order("o", 1, Shape()))
    found = await Commands(settings).expect(request)
    assert found == datetime(2026, 11, 23, 10, tzinfo=UTC).timestamp()
    given = dict(line.split("=", 1) for line in (tmp_path / "said").read_text().splitlines())
    assert given["PATH"] == request.environment["PATH"]
    assert given["GRIDFED_SECRET"] == "s"
    assert "OURS_ALONE" not in given


NO_CONTROLLER = """\
#!/bin/sh
cat <<EOF
{"errors": [{"description": "Failed while looking for jobs", "error_number": -1,
             "error": "Unspecified error", "source": "slurm_load_jobs"}], "jobs": [], "nodes": []}
EOF
"""


@pytest.mark.parametrize("command", ["squeue", "scontrol"])
async def test_a_command_that_ends_well_with_an_error_in_its_answer_is_a_fault(
    command, tmp_path, monkeypatch
):
    # As 22.05 does without a slurmctld: an empty list would mean that all pilots are gone.
    (tmp_path / command).write_text(NO_CONTROLLER)
    (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    commands = Commands(SlurmSettings("main", "/opt/gridfed/bin/python"))
    commands._release = (24, 11)  # `sinfo --json` before 23.02
    asked = commands.jobs if command == "squeue" else commands.nodes
    with pytest.raises(GridFault, match=f"{command}: slurmctld gave no list: check") as found:
        await asked()
    assert found.value.failure_class is FailureClass.AGAIN
