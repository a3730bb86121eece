"""Processes that have a store open, to be killed beside a test."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gateway

ROOT = Path(gateway.__file__).parents[1]

# Writes one range after the other, every fifth durably, and says which are acknowledged.
WRITING = """
import os, sys
from itertools import count
from threading import Semaphore
from gateway.ledger.records import BundleKept, UsageRecord
from gateway.ledger.store import SqlStore

store = SqlStore(sys.argv[1])
waiting = Semaphore(100)

def acknowledge(n):
    os.write(1, b"%d\\n" % n)
    waiting.release()

for n in count():
    usage = UsageRecord("job", n, 1, 0, "ada", "risk", "var", "local", "w", "ok", 1.0, 2.0, 1, 1,
                        1, 1, "USD", "1", 1)
    bundle = BundleKept("job", n, 1, b"%d" % n)
    waiting.acquire()
    store.write([usage, bundle], n % 5 == 0, lambda n=n: acknowledge(n))
"""

HOLDING = """
import sys
from gateway.ledger.store import SqlStore

store = SqlStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
store.close()
"""


@contextmanager
def start(script: str, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a script beside the test; whatever happens, it does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
