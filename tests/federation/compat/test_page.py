"""The programs of docs/dropins.md run as they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "dropins.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(program, local_gateway, tmp_path):
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "GRIDFED_GATEWAY": local_gateway, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, program + done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
