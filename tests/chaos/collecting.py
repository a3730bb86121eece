"""Gathers the facts after a storm: asks the running gateways, then reads their files."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from federation import Client
from federation.errors import GridError
from federation.money import parse_money
from tests.chaos import processes
from tests.chaos.books import read_books
from tests.chaos.evidence import read_evidence
from tests.chaos.faults import Stage
from tests.chaos.journal import read_journal
from tests.chaos.reconciliation import ChaosFacts, HeardOutcome, Promise, read_promises
from tests.chaos.sites import NAMES, ChaosSite
from tests.chaos.storm import Say
from tests.chaos.work.clients import Answers, Clients
from tests.chaos.work.reaching import connected

LOOK_S = 1.0
DAY_S = 86_400.0
TOLD_CHARS = 600


class Quiet:
    """The time after a storm, in which everything is to come to its end."""

    def __init__(self, stage: Stage, seconds: float, say: Say) -> None:
        self._stage, self._say = stage, say
        self._until_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """The remaining time, at least a moment."""
        return max(1.0, self._until_s - time.monotonic())

    def wait(self, what: str, is_done: Any) -> bool:
        """Wait for something to come about; False when there is no more time."""
        begun_s = time.monotonic()
        while not is_done():
            if time.monotonic() > self._until_s:
                self._say(f"quiet time is over, and not all is done: {what}")
                return False
            time.sleep(LOOK_S)
        self._say(f"{what}: after {time.monotonic() - begun_s:.0f} s")
        return True


def collect(stage: Stage, clients: Clients, quiet_s: float, say: Say) -> ChaosFacts:
    """Wait until all work has ended, stop the sites, and gather the facts."""
    facts = ChaosFacts(others_until_s=dict(stage.upgraded))
    for name in NAMES:
        if stage.site(name).around.gateway_source:
            facts.others_until_s[name] = inf
    quiet = Quiet(stage, quiet_s, say)
    clients.tell_to_stop()
    quiet.wait("all clients have ended", lambda: not clients.left())
    facts.left_clients = clients.left()
    clients.end_probes()
    for name, path in clients.journals():
        entries = list(read_journal(path))
        read_promises(entries, facts.promises)
        facts.refusals += [
            f"{name}: a job ({each['kind']}) is refused: {each['text']}"
            for each in entries
            if each["what"] == "refused"
        ]
    _fetch_detached(stage, facts, quiet, say)
    quiet.wait("nothing is pending between sites", lambda: not _pending(stage))
    facts.problems += [*stage.problems, *clients.failed()]
    for name in NAMES:
        facts.failed_probes[name] = Answers(stage.folder).failures(name)
    answers = {name: _ask(stage.site(name), facts) for name in NAMES}
    say("stopping the sites")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: stage.site(name).stop(), NAMES))
    for name in NAMES:
        site = stage.site(name)
        facts.killed_slots |= site.killed_slots
        facts.problems += _tracebacks(site)
        site.command("db", "upgrade", "--config", str(site.config))
        facts.answers[name, "audit"] = _wrong(site, "audit", "--config", str(site.config))
        facts.books[name] = read_books(name, site.books_url)
        facts.books[name].reported_nanos, facts.books[name].stated_nanos = answers[name]
    facts.runs = read_evidence(stage.folder)
    facts.leftovers = _leftovers(stage)
    return facts


def _tracebacks(site: ChaosSite) -> list[str]:
    """Unexplained errors in the logs of gateways, except of those that ran under a limit."""
    return [
        f"{path} has a traceback: {text[text.index('Traceback') :][-TOLD_CHARS:]}"
        for path in sorted(site.folder.glob("gateway*.log"))
        if path not in site.limited
        and "Traceback" in (text := path.read_text(errors="replace"))
        and "KeyboardInterrupt" not in text  # stopped while it began
    ]


def _fetch_detached(stage: Stage, facts: ChaosFacts, quiet: Quiet, say: Say) -> None:
    by_site: dict[str, list[Promise]] = {name: [] for name in NAMES}
    for promise in facts.promises.values():
        if promise.is_accepted:
            by_site[promise.site].append(promise)
    for name, promises in by_site.items():
        with connected(stage.site(name).socket, name) as client:
            for promise in promises:
                try:
                    _fetch(client, promise, quiet.left_s)
                except (GridError, TimeoutError) as error:
                    promise.state = f"{type(error).__name__}: {error}"
        say(f"{len(promises)} detached jobs of {name} are fetched")


def _fetch(client: Client, promise: Promise, wait_s: float) -> None:
    job = client.job(promise.job)
    promise.state = job.wait(wait_s)
    for task, found in enumerate(job.results(return_exceptions=True)):
        if isinstance(found, BaseException):
            outcome = HeardOutcome(task, error=type(found).__name__, text=str(found)[:300])
        else:
            outcome = HeardOutcome(task, value=found[0])
        promise.outcomes.append(outcome)


def _pending(stage: Stage) -> bool:
    for name in NAMES:
        try:
            if any(row["state"] == "pending" for row in stage.site(name).ask("deals")):
                return True
        except GridError:
            return True
    return False


def _ask(site: ChaosSite, facts: ChaosFacts) -> tuple[dict[str, int], dict[str, int]]:
    """The purchases in reports and statements, and whether `reconcile` finds a difference."""
    reported: dict[str, int] = {}
    stated: dict[str, int] = {}
    found = site.ask("report", kind="cost", by=["site"], whose="all")
    at, cost = found["columns"].index("site"), found["columns"].index("cost_nanos")
    for row in found["rows"]:
        if row[at] and row[at] != site.name:
            reported[row[at]] = reported.get(row[at], 0) + int(row[cost])
    # A clock that was set forward has dated some of it in the future.
    found = site.ask("statement", start_s=0.0, end_s=time.time() + DAY_S)
    named = {name: found["columns"].index(name) for name in ("site", "currency", "bought")}
    for row in found["rows"]:
        amount = f"{row[named['bought']]} {row[named['currency']]}"
        nanos, _ = parse_money(amount)
        other = row[named["site"]]
        stated[other] = nanos
        if nanos:  # it is the buyer who compares
            code, text = compared(site, other)
            facts.answers[site.name, f"reconcile {other}"] = text if code else ""
    return reported, stated


def compared(site: ChaosSite, seller: str) -> tuple[int, str]:
    """The exit code and output of `gridfed reconcile`, with a seller that answers or is silent."""
    until_s = time.monotonic() + processes.START_S
    while True:
        done = site.command("reconcile", seller)
        text = (done.stdout + done.stderr).strip()[-800:]
        if "has not answered" not in text or time.monotonic() > until_s:
            return done.returncode, text
        time.sleep(LOOK_S)


def _wrong(site: ChaosSite, *arguments: str) -> str:
    done = site.command(*arguments, timeout_s=300.0)
    if done.returncode == 0:
        return ""
    return f"exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-800:]}"


def _leftovers(stage: Stage) -> list[str]:
    found = []
    server = stage.federation.database
    ours = (
        {each.pid for each in processes.family(server.process.pid)}
        if server and server.process
        else set()
    )
    ours |= {each.pid for each in clients_left(stage)}
    for process in processes.marked(stage.folder.name):
        if process.pid not in ours:
            found.append(f"process {process.pid} is left: {' '.join(process.cmdline())[:200]}")
    for name in NAMES:
        site = stage.site(name)
        found += [f"{path} is left" for path in site.temporary.iterdir()]
        sockets = [path for path in site.folder.rglob("*") if path.is_socket()]
        found += [f"the socket {path} is left" for path in sockets]
    return found


def clients_left(stage: Stage) -> list[Any]:
    """Clients that had not ended: they are named by themselves."""
    return [each for script in stage.clients.all() for each in processes.family(script.pid)]


def keep(facts: ChaosFacts, folder: Path) -> None:
    """Write the outcome of each promise and the books, for the reader of a violation."""
    promises = {
        key: {name: getattr(each, name) for name in ("site", "kind", "job", "state")}
        for key, each in facts.promises.items()
    }
    (folder / "promises.json").write_text(json.dumps(promises, indent=1))
    for site, books in facts.books.items():
        with (folder / f"books-{site}.jsonl").open("w") as file:
            for row in (*books.jobs, *books.usage, *books.deliveries):
                print(json.dumps({"is": type(row).__name__, **asdict(row)}), file=file)
