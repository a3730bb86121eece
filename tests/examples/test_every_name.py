"""The script that type checkers read also runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "examples/every_name.py"


def test_the_script_of_every_public_name_runs(site_of_two, tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT],
        cwd=tmp_path,
        env=site_of_two,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "task 0 stderr: spot 90.0" in done.stdout
    assert "ValueError: a spot price must be positive" in done.stdout
    assert float(done.stdout.splitlines()[-1]) > 0


@pytest.fixture
def site_of_two(make_site):
    """The environment of a client of a site with two slots."""
    site = make_site(2)
    return {**os.environ, "GRIDFED_GATEWAY": site.address}
