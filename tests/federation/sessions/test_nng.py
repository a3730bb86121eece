"""The properties of nng alone: its threads, and the effect of forks on it."""

import gc
import os
import subprocess
import sys

import pytest

from federation.sessions.nng import NngLink

pytestmark = pytest.mark.real

COUNT = """
import os, sys
from pathlib import Path
from federation.sessions.nng import NngPort
port = NngPort([sys.argv[1]], lambda: None)
others = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
while not all((task / "comm").read_text().startswith("nng") for task in others):
    pass  # a thread names itself once it runs
print([(task / "comm").read_text().strip() for task in others])
port.close()
"""


def test_nng_has_few_threads_however_many_cores_there_are(tmp_path):
    command = [sys.executable, "-c", COUNT, f"ipc://{tmp_path}/sock"]
    names = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert names.count("nng:task") == 2


def test_a_forked_child_may_collect_what_its_parent_opened(tmp_path):
    link = NngLink(f"ipc://{tmp_path / 'nobody'}", lambda: None)
    cycle = [link]
    cycle.append(cycle)
    pid = os.fork()
    if pid == 0:
        del link, cycle
        gc.collect()
        os._exit(7)
    _, status = os.waitpid(pid, 0)
    link.close()
    assert os.waitstatus_to_exitcode(status) == 7
