"""Slurm's commands, where they are not in a usual place: this one is ours."""

import os
from datetime import UTC, datetime

import pytest

from gateway.grids.contract import Launch, Order, Shape
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
