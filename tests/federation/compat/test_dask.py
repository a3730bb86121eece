"""Dask's collections on a real gateway, by two versions of Dask: one has nodes, one only tuples."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import dask
import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("dask_collections.py")
OLDER = ROOT / ".venv" / "dask-2024.8.0"  # made by the Makefile


def older_environment(monkeypatch):
    """Let an older Dask be found first, as one that is installed: not as a user's own module."""
    if not OLDER.exists():
        pytest.skip(f"{OLDER.name} is not installed; make does it")
    packages = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    monkeypatch.setenv("PYTHONUSERBASE", str(OLDER))
    monkeypatch.setenv("PYTHONPATH", str(OLDER / packages))


@pytest.mark.parametrize("version", [dask.__version__, "2024.8.0"])
def test_collections_are_those_of_dask_itself(version, make_site, tmp_path, monkeypatch):
    if version != dask.__version__:
        older_environment(monkeypatch)
    site = make_site(2)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), version],
        cwd=tmp_path,
        env={**os.environ, "GRIDFED_GATEWAY": site.address},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal, on" in done.stdout
