"""After a storm: Paris, a buyer and a seller, gets its books of yesterday back.

The copy is made in the middle of the storm, beside all that goes on. When everything has been
reconciled, the books of Paris are replaced by it, and the sites start again. The others alone have
the newer records: Paris must notice it, and a comparison of books must report it from either side,
for the sales of Paris and for its purchases; the books of the others stay as they are; each site's
own books are right.
"""

import shutil
import threading
import time
from pathlib import Path

from tests.chaos.books import ChaosBooks, read_books
from tests.chaos.collecting import compared
from tests.chaos.faults import Act, Fault, Stage
from tests.chaos.processes import START_S
from tests.chaos.reconciliation import ChaosFacts
from tests.chaos.sites import ChaosSite

SITE, BUYER, SELLER = "paris", "london", "tokyo"


class OldBooks(Fault):
    """Afterwards Paris is started on a copy of its books from the middle of the run."""

    name, lanes, weight = "old-books", (), 0.0

    def do(self, stage: Stage, act: Act) -> None:
        raise NotImplementedError("it is no part of the storm: see restoring.py")


class Copy:
    """A copy of the books, made after some time, and again until it succeeds."""

    def __init__(self, stage: Stage, after_s: float) -> None:
        self._site = stage.site(SITE)
        self.path = stage.folder / "yesterday.sqlite"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._make, args=(after_s,), daemon=True)
        self._thread.start()

    def _make(self, after_s: float) -> None:
        wait_s = after_s
        while not self._over.wait(wait_s) and not self.path.exists():
            self._backup()
            wait_s = 1.0

    def _backup(self) -> None:
        made = self.path.with_suffix(".part")
        made.unlink(missing_ok=True)
        where = ("--config", str(self._site.config))
        if not self._site.command("db", "backup", *where, str(made)).returncode:
            made.rename(self.path)

    def finish(self) -> bool:
        """Make no further attempt; whether there is a copy."""
        self._over.set()
        self._thread.join()
        return self.path.exists()


def try_old_books(stage: Stage, facts: ChaosFacts, copy: Path) -> list[str]:
    """Start the sites with the copy as the books of Paris; return the violations."""
    site = stage.site(SITE)
    old = read_books(SITE, f"sqlite:///{copy}")
    for path in site.state.iterdir():
        if path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path)
    done = site.command("db", "restore", "--yes", "--config", str(site.config), str(copy))
    if done.returncode:
        return [f"the copy can't be restored: {done.stderr.strip()}"]
    for each in stage.federation.sites.values():
        each.around.gateway_source = ""  # the books are of this version's schema by now
        each.start()
    wrong = []
    try:
        for other in (BUYER, SELLER):
            wrong += _compared(stage, facts, old, other)
    finally:
        for each in stage.federation.sites.values():
            each.gateway.stop()
    for name, each in stage.federation.sites.items():
        audit = each.command("audit", "--config", str(each.config))
        if audit.returncode and not facts.answers.get((name, "audit")):  # else it is no news
            wrong.append(f"audit at {name} with old books at {SITE}: {audit.stdout[-500:]}")
        if name != SITE:
            wrong += _changed(facts.books[name], read_books(name, each.books_url))
    return wrong


def _compared(stage: Stage, facts: ChaosFacts, old: ChaosBooks, other: str) -> list[str]:
    """Whether missing records are noticed, and, if there are any, reported from either side."""
    has, had = (
        {(row.side, row.key) for row in books.deliveries if row.site == other and row.is_paid}
        for books in (facts.books[SITE], old)
    )
    if not has:
        return []
    missing, wrong = len(has - had), []
    if missing and not _is_noticed(stage.site(SITE), other):
        wrong.append(f"{SITE} lacks {missing} deliveries, and `status` does not name {other}")
    for asked, here in ((SITE, other), (other, SITE)):
        code, text = compared(stage.site(here), asked)
        if "has not answered" in text or bool(missing) != bool(code):
            wrong.append(
                f"{SITE} lacks {missing} deliveries, and `reconcile {asked}` at {here} ends "
                f"{code}: {text}"
            )
    return wrong


def _is_noticed(site: ChaosSite, other: str) -> bool:
    """Whether a gateway says within some time that its books are older than another's."""
    until_s = time.monotonic() + START_S
    while not any(other in each for each in site.ask("status")["older_books"]):
        if time.monotonic() > until_s:
            return False
        time.sleep(1.0)
    return True


def _changed(before: ChaosBooks, now: ChaosBooks) -> list[str]:
    """Deliveries of a site that changed when another site had its old books back."""
    is_now = {(row.side, row.key): row for row in now.deliveries}
    return [
        f"at {before.site} a delivery changed with old books at {SITE}: {row}"
        for row in before.deliveries
        if is_now.get((row.side, row.key)) != row
    ]


KINDS: list[Fault] = [OldBooks()]
