"""Processes that have a store open, to be killed beside a test."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gateway

ROOT = Path(gateway.__file__).parents[1]

# Writes one range after the other, every fifth durably, and says which are acknowledged.
WRITING = """
import os, sys
from itertools import count
from threading import Semaphore
from gateway.ledger.db.records import BundleKept, UsageRecord
from gateway.ledger.store.store import SqlStore

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

# Books bundles as a seller does: what each cost, that it was delivered, and later the verdict.
# The first are those of the life before, as a gateway does again what it is not sure of.
BOOKING = """
import os, sys
from itertools import count
from threading import Semaphore
from gateway.ledger.db.records import ContractOpened, Posted, PostingSettled, UsageRecord
from gateway.ledger.store.store import SqlStore

store = SqlStore(sys.argv[1])
waiting = Semaphore(400)
contract = "london-1-1"

def acknowledge(n):
    os.write(1, b"%d\\n" % n)
    waiting.release()

def bundle(n):
    used = UsageRecord("london:" + contract, 10 * n, 10, 1, "ada", "risk", "var", "local", "w",
                       "ok", 1.0, 2.0, 5, 5, 1, 1, "EUR", "1", 1000 + n)
    yield used
    yield Posted(contract, "sell", "london", 1, 10 * n, 10, 5, 1000 + n, "EUR", 2.0)
    if n >= 50:
        m = n - 50
        state = "void" if m % 10 == 7 else "post"
        yield PostingSettled(contract, "sell", "london", 1, 10 * m, state, 1000 + m, "EUR", 3.0)

opened = ContractOpened(contract, "sell", "london", "j", "local", 1, 5, "EUR", 30.0, 1.0)
store.write([opened], True, lambda: None)
for n in count(int(sys.argv[2])):
    waiting.acquire()
    store.write(list(bundle(n)), n % 20 == 0, lambda n=n: acknowledge(n))
"""

# Rolls up all that there is, in small pieces, and says so after each.
ROLLING = """
import os, sys
from gateway.ledger.accounting import rollup
from gateway.ledger.store.store import SqlStore

rollup.PIECE_ROWS = 40
store = SqlStore(sys.argv[1])
while store.roll_up(1e10, 0.0):
    os.write(1, b"a piece\\n")
store.close()
"""

HOLDING = """
import sys
from gateway.ledger.store.store import SqlStore

store = SqlStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
store.close()
"""

# Says why its store can't be used any more, and ends.
HOLDING_UNTIL_LOST = """
import os, sys
from gateway.ledger.store.store import SqlStore

def lost(error):
    os.write(1, f"{type(error).__name__}\\n".encode())
    os._exit(0)

store = SqlStore(sys.argv[1], on_fatal=lost)
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def start(
    script: str, *arguments: str, inside: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a script beside the test; it never outlives the test. `inside`: before its command."""
    process = subprocess.Popen(
        [*inside, sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
