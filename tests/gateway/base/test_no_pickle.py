"""A gateway that is asked to unpickle fails, loudly; its other work goes on."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.real

SCRIPT = """
import json, pickle, sys
from gateway.base.no_pickle import UnpicklingForbidden, forbid_unpickling
said = []
bomb = pickle.dumps(print)
pickle.loads(bomb)
forbid_unpickling(said.append)
forbid_unpickling(said.append)
for loads in (pickle.loads, pickle._loads):
    try:
        loads(bomb)
    except UnpicklingForbidden as error:
        assert "builtins.print" in str(error)
    else:
        raise AssertionError("it unpickled")
assert pickle.loads(pickle.dumps([1, "two", {"three": 3.0}])) == [1, "two", {"three": 3.0}]
import alembic, click, cryptography, msgpack, pynng, rich, sqlalchemy, trio  # all still import
print(json.dumps(said))
"""


def test_a_process_that_forbade_it_can_not_unpickle():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = "attempt to unpickle builtins.print in a gateway"
    assert done.stdout.strip() == f'["{said}", "{said}"]'
