"""`kill -9` at random on the process that keeps the books: they stay clean, and nothing is lost."""

import random
import subprocess
import time
from pathlib import Path

import pytest
from sqlalchemy import make_url, select
from support.ledger_processes import BOOKING, start
from support.programs.postgres import Postgres

from gateway.ledger.audit.audit import audit
from gateway.ledger.db.database import snapshot
from gateway.ledger.db.usage.tables import usage

pytestmark = pytest.mark.real

BUNDLES = (200, 3_000)  # that are booked between two kills
REPEATED = 100


class Booked:
    """The bundles that a process has acknowledged, by its output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.count = 0

    def wait(self, more: int) -> None:
        """Read so many acknowledgements more."""
        assert self._process.stdout is not None
        for _ in range(more):
            assert self._process.stdout.readline().endswith(b"\n"), "it has ended"
            self.count += 1

    def kill(self) -> None:
        """Kill it, and count the bundles that it had acknowledged."""
        self._process.kill()
        assert self._process.stdout is not None
        self.count += sum(line.endswith(b"\n") for line in self._process.stdout)


def newest(server: Postgres, url: str) -> int:
    """The last task that a database knows of."""
    database = make_url(url).database
    assert database is not None
    [(first,)] = server.execute("SELECT coalesce(max(first), -1) FROM usage", database)
    return int(first)


def under_fire(url: str, kills: int, seed: int, server: Postgres | None) -> float:
    """Kill so often; return bundles a second while all were alive."""
    chance = random.Random(seed)
    done = booked = 0
    alive_s = 0.0
    for kill in range(kills):
        begin = max(0, done - REPEATED)
        with start(BOOKING, url, str(begin)) as process:
            acknowledged = Booked(process)
            acknowledged.wait(1)
            began_s = time.monotonic()
            acknowledged.wait(chance.randint(*BUNDLES))
            alive_s += time.monotonic() - began_s
            victim = chance.choice(["gateway", "database"] if server else ["gateway"])
            if victim == "database":
                assert server is not None
                server.kill()
                server.start()
                # It goes on, with all that was lost: not before that may it be killed as well.
                before = newest(server, url)
                while newest(server, url) == before:
                    acknowledged.wait(1)
            acknowledged.kill()
        booked += acknowledged.count
        done = max(done, begin + acknowledged.count)
        with snapshot(url) as connection:
            found = audit(connection)
            stored = {first // 10 for (first,) in connection.execute(select(usage.c.first))}
        print(f"kill {kill} ({victim}): {done} acknowledged, {len(stored)} stored")
        assert found.is_clean, found
        assert set(range(done)) - stored == set()
    return booked / alive_s


@pytest.mark.slow
def test_the_books_survive_a_few_kills(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    under_fire(f"sqlite:///{tmp_path / 'books.db'}", 3, seed, None)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_books_survive_fifty_kills(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    server = Postgres(fsync="on") if kind == "postgresql" else None
    try:
        url = server.new_database() if server else f"sqlite:///{tmp_path / 'books.db'}"
        print(f"{under_fire(url, 50, seed, server):,.0f} bundles a second, on {kind}")
    finally:
        if server is not None:
            server.stop()
