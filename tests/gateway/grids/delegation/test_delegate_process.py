"""The process of a delegating pool, started as the gateway does."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real

BREAKS = """
from gateway.grids.delegating import DelegatingKind

def opened(settings, home):
    return settings["no such key"]

KIND = DelegatingKind("feeble", dict, opened, "feeble_kind:KIND")
"""


def test_a_kind_that_breaks_is_told_in_one_line_with_its_place(tmp_path):
    (tmp_path / "feeble_kind.py").write_text(BREAKS)
    told = {
        "kind": "feeble_kind:KIND",
        "table": {},
        "gateway": "tcp://127.0.0.1:1",
        "pool": "grid",
        "name": "grid-1",
        "tags": {},
        "mark": "mark",
        "folder": str(tmp_path),
        "parent": os.getpid(),
    }
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "gateway.grids.delegation.delegate"],
        input=json.dumps(told) + "\n",
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "gives up: kind 'feeble'" in line
    assert "KeyError: 'no such key' (feeble_kind.py, line 5)" in line
