"""The three sites of a run: real gateways and workers, made by the commands of operators.

London sells little and dear, and buys from Paris; Paris buys from Tokyo, whose pools it alone is
shown: work of London for Tokyo goes through Paris. London's books may be in PostgreSQL.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from support.members import ACCEPTED, MemberSite, federate, relay_through
from support.processes import Process, wait_until
from support.programs.postgres import Postgres

from gateway.config.environments import RISK
from tests.chaos import processes

BUYERS = {"london": "paris", "paris": "tokyo"}  # who buys from whom
NAMES = ("london", "paris", "tokyo")
PRICES = {"london": "4 USD", "paris": "0.04 USD", "tokyo": "0.08 USD"}
WORKERS = 2  # slots of the agent that a site has beside the one of its gateway
TRIES_S = 180.0  # how long a gateway is started again when it ends before it is ready
ROTATION_S = 15.0
PROBES = "tags = { probe = true }\n"
PRODUCTION = """
[[pool.window]]
name = "day"
claims = [ { who = "project:production", guaranteed = 1 } ]
"""
HIDDEN = '[[show]]\nreaders = ["paris"]\n[[show]]\nhidden = true\n'
LEFT_OUT = "# not in the other version: "


@dataclass(frozen=True)
class Times:
    """The intervals that the sites run by, in seconds."""

    heartbeat_s: float
    grace_s: float
    lease_s: float

    def __str__(self) -> str:
        return (
            f"heartbeat {self.heartbeat_s:g} s, grace {self.grace_s:g} s, lease {self.lease_s:g} s"
        )


@dataclass
class ProcessSetup:
    """The environment in which the processes of one site start; faults change it.

    Attributes:
        prefix: commands that run another, for all of the site's: its network.
        gateway_prefix: and besides for its gateway: limits, another clock.
        variables: of all its processes.
        gateway_source, worker_source: where another version's source is; empty: this one.
    """

    prefix: Sequence[str] = ()
    gateway_prefix: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)
    gateway_source: str = ""
    worker_source: str = ""


def pools_of(name: str) -> str:
    """A site's pools: one slot that answers probes, and an agent's that do the work."""
    far = ", far = true" if name == "tokyo" else ""
    price = f'price = "{PRICES[name]}"\n'
    probe = f'[[pool]]\nname = "probe"\nkind = "local"\nslots = 1\n{price}{PROBES}{ACCEPTED}'
    work = f'[[pool]]\nname = "workers"\nkind = "remote"\n{price}tags = {{ work = true{far} }}\n'
    return f"{probe}{work}{PRODUCTION if name == 'paris' else ''}" + (
        HIDDEN if name == "tokyo" else ""
    )


class ChaosSite(MemberSite):
    """A site whose processes are killed, stopped and started again by several threads."""

    def __init__(
        self, folder: Path, name: str, times: Times, host: str, around: ProcessSetup
    ) -> None:
        self.around = around
        self.temporary = folder / f"tmp-{name}"
        self.temporary.mkdir()
        around.variables["TMPDIR"] = str(self.temporary)
        super().__init__(
            folder, name, 1, PRICES[name], host=host, start=False, pools=pools_of(name)
        )
        self.lock = threading.RLock()
        self.worker: Process | None = None
        self._lives = 0
        self.killed_slots: set[int] = set()
        self.limited: set[Path] = set()  # logs of gateways that ran under a limit
        self._set("heartbeat_s", times.heartbeat_s)
        self._set("grace_s", times.grace_s)
        self._set("lease_s", times.lease_s)
        self._set("rotation_spread_s", ROTATION_S)
        self._set("rotation_overlap_s", ROTATION_S)

    def _set(self, key: str, value: object) -> None:
        text = self.config.read_text()
        changed, count = re.subn(rf"(?m)^(# )?{key} = \S+", f"{key} = {value}", text, count=1)
        assert count, f"{self.config} has no {key}"
        self.config.write_text(changed)

    def use_database(self, url: str) -> None:
        """Keep the books in a database server; before the first start."""
        self._set("database", f'"{url}"')
        self.database = url

    database = ""

    @property
    def state(self) -> Path:
        """The folder of its database, and of nothing else."""
        return self.folder / "state"

    @property
    def books_url(self) -> str:
        """Where its books are."""
        return self.database or f"sqlite:///{self.state / 'gridfed.db'}"

    @property
    def socket(self) -> str:
        """The address that clients and workers of this host dial."""
        return f"ipc://{self.folder / 'gateway.sock'}"

    @property
    def address(self) -> str:
        return self.socket

    def _environment(self, source: str) -> dict[str, str]:
        return {**self.around.variables, **({"PYTHONPATH": source} if source else {})}

    def launch_gateway(self) -> Process:
        """Start the gateway's process, and don't wait for it."""
        self._lives += 1
        self._write_for(other_version=bool(self.around.gateway_source))
        prefix = [*self.around.prefix, "env", *self.around.gateway_prefix]
        return Process(
            ["gateway", "--config", str(self.config), "--json"],
            self.folder,
            f"gateway{self._lives}",
            prefix,
            **self._environment(self.around.gateway_source),
        )

    def _write_for(self, *, other_version: bool) -> None:
        """Leave out what the other version does not know: accepted risks, and the bulk port."""
        text = self.config.read_text().replace(f"{PROBES}{ACCEPTED}", PROBES)
        text = text.replace(f"{LEFT_OUT}bulk_", "bulk_")
        if other_version:
            text = text.replace("\nbulk_", f"\n{LEFT_OUT}bulk_")
        else:
            text = text.replace(PROBES, PROBES + ACCEPTED)
        self.config.write_text(text)

    def start(self) -> None:
        """Start the gateway as a supervisor does: again, while it ends before it is ready."""
        until_s = time.monotonic() + TRIES_S
        while True:
            self.gateway = self.launch_gateway()
            try:
                self.ready = processes.wait_ready(self.gateway)
                return
            except AssertionError:
                self.gateway.process.kill()
                self.gateway.process.wait()
                if time.monotonic() > until_s:
                    raise
                time.sleep(1.0)

    def start_worker(self) -> None:
        """Start the agent that does the work; it finds the gateway by itself."""
        self._lives += 1
        tags = "work,far" if self.name == "tokyo" else "work"
        rules = self.folder / "worker.toml"  # evidence is written outside of any sandbox
        rules.write_text(f'sandbox = "none"\naccept_risk = "{RISK}"\n')
        is_ours = not self.around.worker_source  # older workers know no such words
        self.worker = Process(
            [
                *("worker", "--gateway", self.socket, "--slots", str(WORKERS)),
                *("--pool", "workers", "--name", f"{self.name}-{self._lives}"),
                *("--tags", tags),
                *(("--environments", str(rules)) if is_ours else ()),
            ],
            self.folder,
            f"worker{self._lives}",
            [*self.around.prefix, "env"],
            **self._environment(self.around.worker_source),
        )

    def slots(self) -> list[int]:
        """The slots that do work, and the one that answers probes."""
        pids = [self.gateway.pid, *([self.worker.pid] if self.worker is not None else [])]
        return [slot for pid in pids for slot in processes.slots_below(pid)]

    def agents(self) -> list[int]:
        """The agents of both pools."""
        below = [each.pid for each in processes.family(self.gateway.pid)[1:]]
        found = [pid for pid in below if "gateway.worker.agent" in _command(pid)]
        return [*found, *([self.worker.pid] if self.worker is not None else [])]

    def kill_gateway(self) -> None:
        """As a power cut would end it."""
        self.gateway.kill()

    def kill_worker(self) -> None:
        """As a power cut would end it."""
        if self.worker is not None:
            self.worker.kill()

    def stop(self) -> None:
        """End everything as an operator would, the worker first."""
        if self.worker is not None:
            self.worker.stop()
        self.gateway.stop()

    def command(
        self, *arguments: str, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """A command of an operator, in a process of its own."""
        return subprocess.run(
            [*self.around.prefix, sys.executable, "-m", "gateway", *arguments],
            cwd=self.folder,
            env={**os.environ, **self._environment(""), "GRIDFED_GATEWAY": self.socket},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def order(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command to the gateway, again while that is too busy to answer."""
        until_s = time.monotonic() + processes.START_S
        while True:
            done = self.command(*arguments)
            if "no gateway answers" not in done.stderr or time.monotonic() > until_s:
                return done
            time.sleep(1.0)


def _command(pid: int) -> Sequence[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return ()


class Federation:
    """The three sites, up and at work with each other."""

    def __init__(self, sites: dict[str, ChaosSite], database: Postgres | None) -> None:
        self.sites, self.database = sites, database

    def start(self) -> None:
        """Start all, and have them trust each other as BUYERS says."""
        london, paris, tokyo = (self.sites[name] for name in NAMES)
        for site in self.sites.values():
            site.start()
            if "127.0.0.1:0" in site.config.read_text():
                site.keep_port()
        federate(london, paris, tokyo, hidden=1)
        relay_through(paris, london, tokyo)
        for site in self.sites.values():
            site.start_worker()
        for buyer, seller in BUYERS.items():
            wait_until(
                lambda buyer=buyer, seller=seller: any(
                    row["site"] == seller and row["slots_total"] > 1
                    for row in self.sites[buyer].ask("pools")
                ),
                f"{buyer} sees the workers of {seller}",
                120.0,
            )

    def resume(self) -> None:
        """Let all that is stopped go on, so that it can be ended."""
        for site in self.sites.values():
            with site.lock:
                pids = [site.gateway.pid, *([site.worker.pid] if site.worker else [])]
                for pid in pids:
                    processes.send([each.pid for each in processes.family(pid)], signal.SIGCONT)
