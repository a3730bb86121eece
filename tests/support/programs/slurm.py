"""Real Slurm clusters for the tests: controller, nodes and keys in one folder, all on this host.

A cluster lives in a process namespace of its own, whose first process is ours: when that ends, or
the tests do, the kernel ends all of it, jobs included. Two generations can be had: the one that is
installed here, and one in a folder with another Debian (GRIDFED_SLURM_ROOT names it, see
`.ci/run`), with programs that see this host's root as /host.
"""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

READY_S, BOOKS_S = 120.0, 120.0  # for so long a cluster starts, and its slurmdbd more
OTHER_ROOT = Path(os.environ.get("GRIDFED_SLURM_ROOT", "/opt/gridfed-slurm"))
PROGRAMS = "slurmctld", "slurmd", "sbatch", "slurmrestd", "munged", "unshare"
BOOKS = "mariadbd", "mariadb-install-db", "mariadb"
DATABASE = "--no-defaults", "--user=root"

CONFIG = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
{auth}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters={counts}
JobAcctGatherType=jobacct_gather/none
MinJobAge=300
KillWait=5
SlurmctldTimeout=10
SlurmdTimeout=5
MessageTimeout=10
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode={preempt}
{books}
{extra}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=low Nodes=ALL MaxTime=60 State=UP PriorityTier=1 GraceTime={grace_s}
PartitionName=closed Nodes=ALL State=DOWN
PartitionName=theirs Nodes=ALL State=UP AllowAccounts=others
"""
MUNGE = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge"""
OWN_KEY = """\
AuthType=auth/slurm
AuthInfo=use_client_ids
CredType=cred/slurm"""
ACCOUNTED = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStorageEnforce=associations,limits,qos
{password}
PriorityType=priority/multifactor"""
SLURMDBD = """\
{auth}
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""


def lacking(*, other: bool = False) -> str:
    """Why no cluster can be started here; empty when one can."""
    for program in PROGRAMS:
        if shutil.which(program, path=_path()) is None:
            return f"{program} is not installed: see .ci/run"
    if os.geteuid() != 0:
        return "a Slurm cluster in a process namespace needs root"
    if other and not (OTHER_ROOT / "usr/sbin/slurmctld").exists():
        return f"there is no other Slurm in {OTHER_ROOT}: GRIDFED_SLURM_ROOT names one"
    return ""


def lacking_books(*, other: bool = False) -> str:
    """Why no cluster can keep books by slurmdbd here; empty when one can."""
    for program in BOOKS:
        if shutil.which(program, path=_path()) is None:
            return f"{program} is not installed: see .ci/run"
    root = OTHER_ROOT if other else Path("/")
    for name in "sbin/slurmdbd", "lib/x86_64-linux-gnu/slurm-wlm/accounting_storage_mysql.so":
        if not (root / "usr" / name).exists():
            return f"{root}/usr/{name} is not there: see .ci/run"
    return ""


def need_slurm(*, other: bool = False, books: bool = False) -> None:
    """Skip, saying why, where there is no Slurm to be had; with books: no slurmdbd."""
    missing = lacking(other=other) or (books and lacking_books(other=other))
    if missing:
        pytest.skip(missing)


@contextlib.contextmanager
def running(**options: Any) -> "Iterator[Cluster]":
    """A cluster with these options, or a test that is skipped."""
    need_slurm(other=options.get("other", False), books="books" in options)
    cluster = Cluster(**options)
    try:
        yield cluster
    finally:
        cluster.close()


def pool_config(slurm: Mapping[str, object], scale: Mapping[str, object], **pool: object) -> str:
    """A site's configuration of the pool "hpc": `[pool.slurm]`, `[pool.scale]`."""
    tables = {"[[pool]]": {"name": "hpc", "kind": "slurm"} | pool}
    tables |= {"[pool.slurm]": dict(slurm), "[pool.scale]": dict(scale)}
    lines: list[str] = []
    for head, table in tables.items():
        lines += [head, *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(["", *lines, ""])


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


class Cluster:
    """A cluster that runs; to be closed.

    Args:
        nodes: how many, each with `cpus` processors regardless of this host.
        other: the Slurm of the other root.
        extra: lines of slurm.conf.
        rest: also slurmrestd; "unix" or "tcp", the latter with tokens.
        counts: the resources that count, beside nodes: SelectTypeParameters.
        preempt: PreemptMode; `grace_s` is the partition low's.
        books: lines for sacctmgr before the cluster begins; then it has a slurmdbd,
            with a database of its own.
    """

    def __init__(
        self,
        name: str = "gridfed",
        *,
        nodes: int = 2,
        cpus: int = 4,
        other: bool = False,
        extra: str = "",
        rest: str = "",
        counts: str = "CR_Core_Memory",
        books: Sequence[str] = (),
        preempt: str = "CANCEL",
        grace_s: int = 8,
    ) -> None:
        where = os.environ.get("PYTEST_DEBUG_TEMPROOT")
        self.name, self.other = name, other
        self.nodes = [f"{name}{at}" for at in range(nodes)]
        self.folder = Path(tempfile.mkdtemp(prefix="gf-slurm-", dir=where))
        self._cpus, self._extra, self._rest = cpus, extra, rest
        self._counts, self._books = counts, tuple(books)
        self._preempt, self._grace_s = preempt, grace_s
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._become()
        except BaseException:
            self.close()
            raise

    def _become(self) -> None:
        said = ""
        for _ in range(3):  # a port that was free may be taken before it is ours
            self._configure()
            self._start()
            if self._becomes_ready():
                return
            said = self.logs()
            self._end()
        raise AssertionError(f"no cluster: {said}")

    # --- what tests use ------------------------------------------------------------------------

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def prefix(self) -> list[str]:
        """The prefix of each command."""
        return _in_other_root(self.folder / "run") if self.other else []

    @property
    def python(self) -> str:
        """An interpreter for jobs that has gridfed in it."""
        return str(self.folder / "python") if self.other else sys.executable

    @property
    def table(self) -> dict[str, object]:
        """`[pool.slurm]` for it, by commands."""
        found: dict[str, object] = {"conf": str(self.conf), "python": self.python}
        found["partition"] = "main"
        return found | ({"prefix": self.prefix} if self.other else {})

    @property
    def rest_table(self) -> dict[str, object]:
        """`[pool.slurm]` for it, by slurmrestd."""
        version = "v0.0.42" if self.other else "v0.0.38"
        found: dict[str, object] = {"python": self.python, "api": version, "url": self.url}
        found["partition"] = "main"
        if self._rest == "tcp":
            found |= {"token_file": str(self.folder / "token"), "user": "root"}
        return found

    def run(self, *command: str, text: str = "") -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(
            [*self.prefix, *command],
            input=text,
            capture_output=True,
            text=True,
            timeout=20,
            env={"PATH": _path(), "SLURM_CONF": str(self.conf), "TZ": "UTC"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill_node(self, name: str) -> None:
        """As a power cut would: its daemons and all of its jobs.

        The daemons first: one that lives sees its job killed, and reports a job that failed.
        """
        daemons, jobs = [], []
        for each in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, IndexError):
                if each.cmdline()[-2:] == ["-N", name]:
                    daemons.append(each)
                elif each.environ().get("SLURMD_NODENAME") == name:
                    jobs.append(each)
                    parent = each.parent()
                    if parent is not None and parent.name() == "slurmstepd":
                        daemons.append(parent)
        for each in daemons + jobs:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    @contextlib.contextmanager
    def controller_down(self) -> Iterator[None]:
        """Without a controller no job is scheduled for that time; nodes and jobs go on."""
        held = self.folder / "held"
        held.touch()
        doomed = []
        for each in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "slurmctld" in each.name():
                    each.terminate()  # killed, it would forget the last seconds
                    doomed.append(each)
        _, alive = psutil.wait_procs(doomed, timeout=READY_S)
        assert not alive
        with socket.socket() as kept:  # bound and not listening: it refuses, and nobody else has it
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(("127.0.0.1", self._port))
            try:
                yield
            finally:
                kept.close()
                held.unlink()

    def processes(self) -> list[psutil.Process]:
        """All that it runs."""
        tops = [psutil.Process(each.pid) for each in self._processes]
        return [each for top in tops for each in top.children(recursive=True)]

    def logs(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def close(self) -> None:
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- its start and end ---------------------------------------------------------------------

    def _configure(self) -> None:
        if self._books:
            self._make_database()
        ports = _free_ports(len(self.nodes) + 3)  # free for a moment only
        self._port = ports[-1]
        host = socket.gethostname()
        nodes = "\n".join(
            f"NodeName={each} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self._cpus} RealMemory=4000 Gres=gpu:1 State=UNKNOWN"
            for each, port in zip(self.nodes, ports, strict=False)
        )
        auth = OWN_KEY if self.other else MUNGE
        auth = auth.format(folder=self.folder)
        if self._rest == "tcp":
            (self.folder / "jwt.key").write_bytes(secrets.token_bytes(32))
            (self.folder / "jwt.key").chmod(0o600)
            auth += f"\nAuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={self.folder}/jwt.key"
        books = self._configure_books(auth, host, ports[-3]) if self._books else ""
        self.conf.write_text(
            CONFIG.format(
                name=self.name,
                host=host,
                port=ports[-1],
                auth=auth,
                folder=self.folder,
                extra=self._extra,
                counts=self._counts,
                preempt=self._preempt,
                grace_s=self._grace_s,
                books=books,
                nodes=nodes,
            )
        )
        key = self.folder / ("slurm.key" if self.other else "munge.key")
        key.write_bytes(secrets.token_bytes(1024 if self.other else 128))
        key.chmod(0o600)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n" if self.other else "")
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        self.url = f"unix:{self.folder}/rest"
        if self._rest == "tcp":
            self.url = f"http://127.0.0.1:{ports[-2]}"
        if self.other:
            wrapper = self.folder / "python"
            wrapper.write_text(f'#!/bin/sh\nexec chroot /host {sys.executable} "$@"\n')
            wrapper.chmod(0o755)
        for each in "state", "run":
            (self.folder / each).mkdir(exist_ok=True)
        for each in self.nodes:
            (self.folder / f"spool-{each}").mkdir(exist_ok=True)

    def _configure_books(self, auth: str, host: str, port: int) -> str:
        """The lines of slurm.conf about it."""
        auth = "\n".join(each for each in auth.splitlines() if not each.startswith("Cred"))
        conf = self.folder / "slurmdbd.conf"
        conf.write_text(SLURMDBD.format(auth=auth, host=host, port=port, folder=self.folder))
        conf.chmod(0o600)
        # Else it looks for munge's usual socket.
        password = "" if self.other else f"AccountingStoragePass={self.folder}/munge"
        return ACCOUNTED.format(port=port, password=password)

    def _make_database(self) -> None:
        data = self.folder / "mysql"
        if not data.exists():
            plain = "--auth-root-authentication-method=normal"
            more = [f"--datadir={data}", "--skip-test-db", plain]
            made = subprocess.run(
                ["mariadb-install-db", *DATABASE, *more], capture_output=True, text=True, timeout=60
            )
            assert made.returncode == 0, made.stdout + made.stderr

    def _start_database(self) -> None:
        data = self.folder / "mysql"
        files = [f"--socket={self.folder}/mysql.sock", f"--pid-file={self.folder}/mysql.pid"]
        files += [f"--datadir={data}", "--skip-networking", "--innodb-buffer-pool-size=64M"]
        files += ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"]
        self._processes.append(self._popen("mariadbd", *DATABASE, *files))

    def _start(self) -> None:
        lines = ["trap 'exit 0' TERM"]
        if not self.other:
            lines += [
                f"munged --force --foreground -S {self.folder}/munge "
                f"--key-file={self.folder}/munge.key --pid-file={self.folder}/munge.pid "
                f"--log-file={self.folder}/munged.log --seed-file={self.folder}/munge.seed "
                "--num-threads=2 &",
                f"while [ ! -S {self.folder}/munge ]; do sleep 0.01; done",
            ]
        if self._books:
            told = self.folder / "books"
            told.write_text("".join(f"{each}\n" for each in self._books))
            lines += [
                f"while [ ! -S {self.folder}/mysql.sock ]; do sleep 0.01; done",
                f"MYSQL_UNIX_PORT={self.folder}/mysql.sock slurmdbd -D &",
                f"until sacctmgr -iQ add cluster {self.name} >/dev/null 2>&1; do sleep 0.05; done",
                f"sacctmgr -iQ < {told}",
            ]
        held = self.folder / "held"
        lines += [f"(while :; do [ -e {held} ] || slurmctld -D; sleep 0.1; done) &"]
        lines += [f"slurmd -D -N {each} &" for each in self.nodes]
        lines += ["while :; do wait; sleep 1; done"]
        script = self.folder / "run.sh"
        script.write_text("\n".join(lines) + "\n")
        inside = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        if self._books:
            self._start_database()
        self._processes.append(self._popen(*inside, *self.prefix, "sh", str(script)))
        if self._rest:
            # Outside of that namespace, as it asks the kernel for the process that calls.
            security = {"SLURMRESTD_SECURITY": "disable_user_check"}
            security |= {"SLURM_JWT": "daemon"} if self._rest == "tcp" else {}
            self._processes.append(self._popen(*self.prefix, *self._rest_command(), **security))

    def _rest_command(self) -> list[str]:
        modules = ["-s", "openapi/v0.0.38"]
        if self.other:
            modules = ["-s", "openapi/slurmctld", "-d", "data_parser/v0.0.42"]
        way = "rest_auth/jwt" if self._rest == "tcp" else "rest_auth/local"
        return ["slurmrestd", "-a", way, *modules, self.url.removeprefix("http://")]

    def _popen(self, *command: str, **more: str) -> "subprocess.Popen[bytes]":
        environment = {"PATH": _path(), "SLURM_CONF": str(self.conf), "TZ": "UTC"} | more
        with (self.folder / "out.log").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
            )

    def _becomes_ready(self) -> bool:
        until_s = time.monotonic() + READY_S + (BOOKS_S if self._books else 0.0)
        while time.monotonic() < until_s and all(each.poll() is None for each in self._processes):
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                states = self.run("sinfo", "-h", "-p", "main", "-N", "-o", "%t").split()
                if states == ["idle"] * len(self.nodes) and self._is_rest_ready():
                    return True
            if "Address already in use" in self.logs():
                return False
            time.sleep(0.05)
        return False

    def _is_rest_ready(self) -> bool:
        if not self._rest:
            return True
        if self._rest == "tcp":
            token = self.run("scontrol", "token", "lifespan=3600").strip().partition("=")[2]
            (self.folder / "token").write_text(token)
            (self.folder / "token").chmod(0o600)
            host, _, port = self.url.removeprefix("http://").partition(":")
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return True
            return False
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(self.url.removeprefix("unix:"))
            return True
        return False

    def _end(self) -> None:
        ours = []
        with contextlib.suppress(psutil.NoSuchProcess):
            ours = self.processes()
        for each in self._processes:
            each.kill()
            each.wait()
        self._processes = []
        psutil.wait_procs(ours, timeout=READY_S)  # they write for a moment longer
        sockets = (self.folder / each for each in ("munge", "mysql.sock", "rest"))
        for path in (*self.folder.glob("*.log"), *sockets):  # another attempt looks for its own
            path.unlink(missing_ok=True)


def _in_other_root(run: Path) -> list[str]:
    """The prefix of a command of a cluster with this folder as its /run.

    Daemons of auth/slurm lend their key by a socket at a fixed place there: were it shared, the
    commands of one cluster would bring the token of another.
    """
    root = str(OTHER_ROOT)
    script = (
        'r=$1; run=$2; shift 2; mount --bind "$r" "$r" && mount -t proc proc "$r/proc" '
        '&& mount --bind "$run" "$r/run" '
        '&& mount --rbind /dev "$r/dev" && mount --rbind /sys "$r/sys" '
        '&& touch "$r/etc/hosts" && mount --bind /etc/hosts "$r/etc/hosts" '  # or it asks the net
        '&& mount --bind /tmp "$r/tmp" && mkdir -p "$r/host" && mount --rbind / "$r/host" '
        '&& exec chroot "$r" "$@"'
    )
    private = ["unshare", "--mount", "--propagation", "private"]
    return [*private, "sh", "-c", script, "sh", root, str(run)]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found.append(probe.getsockname()[1])
        return found
