"""A federation on this machine: sites as processes, each with its own keys, store and pool.

The commands are those that an operator runs at each site (docs/trust.md):

    gridfed init --site NAME …          keys, TLS leaf, trust book, gateway.toml
    gridfed invite --approve            at one site of each pair, and
    gridfed join TOKEN --approve        at the other
    gridfed trust OTHER --may-send …    the sites to deal with, and whose results to unpickle

Real sites approve each other by comparing fingerprints, and set narrower permissions.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation import Client

STOP_S = 20.0
READY_S = 60.0
# Short, so that a killed site holds its tasks for seconds: on a real network 2, 10, 30.
TIMES = {"heartbeat_s": 0.3, "grace_s": 1.5}
LEASE_S = 4.0
# All sites are yours here, so no work is sandboxed. A real site leaves this out: its slots then
# keep other sites' work in bubblewrap, or as another user, or take none (docs/environments.md).
ACCEPTED = """user = "none"
environments = { sandbox = "none", accept_risk = "tasks of others can act as this site" }
"""


@dataclass(frozen=True)
class LocalSitePlan:
    """A site to be made: its number of slots, possibly none, and the price of a slot-hour.

    `pools` are more of its pools, in TOML.
    """

    name: str
    slots: int
    price: str
    pools: str = ""


class LocalSite:
    """One site: its folder, and its gateway once it runs."""

    def __init__(self, folder: Path, plan: LocalSitePlan) -> None:
        self.plan = plan
        self.name = plan.name
        self.folder = folder / plan.name
        self.process: subprocess.Popen[str] | None = None
        self.address = ""

    def gridfed(self, *arguments: str) -> str:
        """Run a command of this site; return its output."""
        command = [
            sys.executable,
            "-P",
            "-m",
            "gateway",
            *arguments,
            "--config-dir",
            str(self.folder),
        ]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(
                f"gridfed {' '.join(arguments)}, at {self.name}:\n{done.stderr or done.stdout}"
            )
        return done.stdout

    def make(self) -> None:
        """Make its keys and its configuration, with one local pool."""
        where = ["--host", "127.0.0.1", "--port", "0"]
        self.gridfed("init", "--site", self.name, "--federation", "local-demo", *where)
        path = self.folder / "gateway.toml"
        text = path.read_text()
        times = "".join(f"{key} = {value}\n" for key, value in TIMES.items())
        text = text.replace("[limits]\n", f"[limits]\n{times}")
        text = text.replace("[contracts]\n", f"[contracts]\nlease_s = {LEASE_S}\n")
        if self.plan.slots:
            pool = f'name = "local"\nkind = "local"\nslots = {self.plan.slots}\n{ACCEPTED}'
            text += f'\n[[pool]]\n{pool}price = "{self.plan.price}"\n'
        path.write_text(text + self.plan.pools)

    def start(self) -> None:
        """Start its gateway, in its own process group: this process takes Ctrl-C, and stops it."""
        config = ["gateway", "--config", str(self.folder / "gateway.toml"), "--json"]
        log = (self.folder / "gateway.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gateway", *config],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            process_group=0,
        )
        log.close()

    def wait_ready(self) -> None:
        """Wait until it prints its address; exit with its log if it ends instead."""
        assert self.process is not None
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line == "}\n":
                self.address = str(json.loads("".join(lines))["data"]["addresses"][0])
                return
        sys.exit(f"{self.name} did not start:\n{(self.folder / 'gateway.log').read_text()}")

    def ask(self, verb: str) -> Any:
        """Ask its gateway."""
        with Client(self.address) as client:
            return client.ask(verb)

    def kill(self) -> None:
        """Kill it, as in a power failure."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._close()

    def stop(self) -> None:
        """End its gateway politely, or by force when it takes too long."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._close()

    def _close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def local_federation(plans: Sequence[LocalSitePlan]) -> Iterator[list[LocalSite]]:
    """Run sites that know and trust each other, and have seen each other's pools."""
    with tempfile.TemporaryDirectory(prefix="gridfed-demo-") as folder:
        sites = [LocalSite(Path(folder), plan) for plan in plans]
        try:
            for site in sites:
                site.make()
                site.start()
            for site in sites:
                site.wait_ready()
            for one, other in itertools.combinations(sites, 2):
                invitation = one.gridfed("invite", "--approve").split()[0]
                other.gridfed("join", invitation, "--approve")
            for one, other in itertools.permutations(sites, 2):
                rules = ["--may-send", "all", "--may-run", "all", "--pickles"]
                one.gridfed("trust", other.name, *rules)
            for site in sites:
                wait_for_pools(site, sum(plan.slots > 0 or bool(plan.pools) for plan in plans))
            yield sites
        finally:
            for site in sites:
                site.stop()


def wait_for_pools(site: LocalSite, count: int) -> None:
    """Wait until a site sees so many pools with slots."""
    until_s = time.monotonic() + READY_S
    with Client(site.address) as client:
        while sum(pool["slots_total"] > 0 for pool in client.ask("pools")) < count:
            if time.monotonic() > until_s:
                sys.exit(
                    f"{site.name} does not see all sites; its log:\n"
                    + (site.folder / "gateway.log").read_text()
                )
            time.sleep(0.05)
