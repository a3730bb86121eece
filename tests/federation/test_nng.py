"""What is nng's own, and no other transport's: its threads."""

import subprocess
import sys

COUNT = """
import os, sys
from pathlib import Path
from federation.nng import NngPort
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
