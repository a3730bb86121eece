"""A whole run: the sites are set up, faults happen, all is reconciled, and nothing is left."""

import contextlib
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.members import HERE
from support.processes import unpack
from support.programs.namespaces import Network, Refused
from support.programs.postgres import Postgres

from tests.chaos import collecting, kills, operations, outages, processes, restoring
from tests.chaos.faults import Fault, Stage
from tests.chaos.reconciliation import reconcile
from tests.chaos.report import Summary, as_json, markdown
from tests.chaos.sites import NAMES, ChaosSite, Federation, ProcessSetup, Times
from tests.chaos.storm import Say, Storm
from tests.chaos.work.clients import Clients

KINDS: list[Fault] = [*kills.KINDS, *outages.KINDS, *operations.KINDS, *restoring.KINDS]
PREFIX = "gridfed-chaos-"
ROOT = Path(__file__).resolve().parents[2]
DISK_BYTES = 256 << 20
OURS = ("federation", "gateway", "policies")


@dataclass(frozen=True)
class ChaosSettings:
    """The options of the command line; see __main__.py."""

    seed: int
    minutes: float
    kinds: Sequence[Fault]
    times: Times
    pace_s: float
    quiet_s: float
    tasks: int
    crowd: int
    old_version: str
    database: bool
    keep: bool
    command: str


class Load:
    """Samples the load of the host while a run lasts."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self.values: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(5.0):
            self.values.append(os.getloadavg()[0])

    def __str__(self) -> str:
        self._over.set()
        values = self.values or [os.getloadavg()[0]]
        return f"{min(values):.1f} to {max(values):.1f}, {sum(values) / len(values):.1f} on average"


def sweep() -> None:
    """Remove the leftovers of killed runs: processes, mounts, folders. Reports are kept."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        is_kept = (path / "report.json").exists()
        if owner.isdigit() and not is_kept and not Path("/proc", owner).exists():
            clean(path)


def clean(folder: Path, *, keep: bool = False) -> None:
    """End all processes of a run, and remove its folder and its mounts."""
    while left := list(processes.marked(folder.name)):
        processes.end(left)
    for name in NAMES:
        state = folder / name / "state"
        if os.path.ismount(state):
            if keep:
                shutil.copytree(state, folder / name / "state-kept", dirs_exist_ok=True)
            subprocess.run(["umount", "--lazy", str(state)], check=False)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGTERM end the run as Ctrl-C does, so that all is taken down."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def perform(settings: ChaosSettings) -> bool:
    """Do a run and print its result; return whether there was no violation."""
    sweep()
    say = Say()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    folder.chmod(0o711)  # PostgreSQL runs as another user, in a folder below
    processes.mark(folder.name)
    say(f"seed {settings.seed}, in {folder}")
    is_clean = is_kept = False
    with interruptible():
        try:
            summary = _perform(settings, folder, say)
            is_clean = summary.is_clean
            is_kept = settings.keep or not is_clean
            (folder / "report.md").write_text(markdown(summary))
            (folder / "report.json").write_text(as_json(summary))
            print(markdown(summary), flush=True)
            if not is_clean:
                say(f"violations: the logs, the books and report.json are kept in {folder}")
        except Exception:
            is_kept = True
            say(f"the run itself failed: its logs are kept in {folder}")
            raise
        finally:
            clean(folder, keep=is_kept)
    return is_clean


def _perform(settings: ChaosSettings, folder: Path, say: Say) -> Summary:
    with contextlib.ExitStack() as stack:
        network = _network(stack, say)
        database = None
        if settings.database:
            before, tempfile.tempdir = tempfile.tempdir, str(folder)
            try:
                database = Postgres()
            finally:
                tempfile.tempdir = before
            stack.callback(database.stop)
        made = _make_sites(settings, folder, network)
        if database is not None:
            made["london"].use_database(database.new_database())
        federation = Federation(made, database)
        clients = Clients(folder, made, settings.seed)
        stage = Stage(
            folder=folder,
            times=settings.times,
            federation=federation,
            clients=clients,
            network=network,
            disks=_mount_disks(settings, made),
            clock_files=_step_clocks(settings, folder, made),
            old_source=_old_source(settings, folder, say),
            crowd=settings.crowd,
        )
        missing = {each.name: why for each in settings.kinds if (why := each.missing(stage))}
        for name, why in missing.items():
            say(f"no {name}: {why}")
        kinds = [each for each in settings.kinds if each.name not in missing]
        if any(each.name == "upgrade" for each in kinds):
            made["tokyo"].around.gateway_source = stage.old_source
        say("starting three sites")
        federation.start()
        clients.start(settings.tasks)
        load = Load()
        storm = Storm(stage, kinds, settings.seed, settings.pace_s, say)
        say(f"faults for {settings.minutes:g} minutes")
        began_s = time.monotonic()
        copy = None
        if _wants(settings, "old-books"):
            copy = restoring.Copy(stage, settings.minutes * 30.0)
        storm.run(settings.minutes * 60.0)
        lasted_s = time.monotonic() - began_s
        federation.resume()
        say(f"{len(storm.happened)} faults have happened, {stage.killed} kills; now it is quiet")
        facts = collecting.collect(stage, clients, settings.quiet_s, say)
        storm.measure_abroad()
        violations, of_other_version = reconcile(facts)
        if copy is not None:
            is_there = copy.finish()
            say("starting the sites with a copy of the books of Paris")
            violations["old_books_are_noticed"] = (
                restoring.try_old_books(stage, facts, copy.path)
                if is_there
                else ["no copy of the books of Paris could be made"]
            )
        collecting.keep(facts, folder)
        about = {
            "command": settings.command,
            "seed": settings.seed,
            "commit": _commit(),
            "other version": settings.old_version if stage.old_source else "none",
            "times": str(settings.times),
            "network": "hosts of their own" if network else "one host: no partitions",
            "books of London": "PostgreSQL" if database else "SQLite",
            "faults": f"{len(storm.happened)} in {lasted_s / 60:.1f} minutes, "
            f"{stage.killed} processes killed",
            "load of the host": f"{load} ({os.cpu_count()} cores)",
        }
        return Summary(
            about, storm.happened, missing, facts, violations, of_other_version, settings.kinds,
            settings.times.lease_s,
        )  # fmt: skip


def _network(stack: contextlib.ExitStack, say: Say) -> Network | None:
    try:
        network = Network(NAMES)
    except Refused as error:
        say(f"all sites are on one host, without partitions: {error}")
        return None
    stack.callback(network.close)
    return network


def _make_sites(
    settings: ChaosSettings, folder: Path, network: Network | None
) -> dict[str, ChaosSite]:
    made = {}
    for name in NAMES:
        around = ProcessSetup(prefix=network.inside(name) if network is not None else ())
        host = network.addresses[name] if network is not None else HERE
        made[name] = ChaosSite(folder, name, settings.times, host, around)
    return made


def _wants(settings: ChaosSettings, name: str) -> bool:
    return any(each.name == name for each in settings.kinds)


def _mount_disks(settings: ChaosSettings, made: dict[str, ChaosSite]) -> dict[str, Path]:
    """Give sites on SQLite a file system for their state, where that may be done."""
    disks: dict[str, Path] = {}
    if os.geteuid() != 0 or not _wants(settings, "disk-full"):
        return disks
    for name, site in made.items():
        if site.database:
            continue
        site.state.mkdir(mode=0o700)
        size = f"size={DISK_BYTES},mode=0700"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "gridfed-chaos", str(site.state)], check=False
        )
        if done.returncode == 0:
            disks[name] = site.state
    return disks


def _step_clocks(
    settings: ChaosSettings, folder: Path, made: dict[str, ChaosSite]
) -> dict[str, Path]:
    """Have Tokyo's gateway take its clock from a file, where there is a library for that."""
    library = outages.faketime_library()
    if not library or not _wants(settings, "clock-step"):
        return {}
    path = folder / "clock"
    path.write_text("+0")
    made["tokyo"].around.gateway_prefix = [
        f"LD_PRELOAD={library}",
        f"FAKETIME_TIMESTAMP_FILE={path}",
        "FAKETIME_CACHE_DURATION=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "DONT_FAKE_MONOTONIC=1",
    ]
    return {"tokyo": path}


def _old_source(settings: ChaosSettings, folder: Path, say: Say) -> str:
    """Unpack another version's source from the repository; empty where that can't be done."""
    wanted = any(_wants(settings, name) for name in ("old-agent", "upgrade"))
    if settings.old_version == "none" or not wanted:
        return ""
    old = folder / "old"
    old.mkdir()
    archive = folder / "old.tar"
    command = ["git", "-C", str(ROOT), "archive", "-o", str(archive), settings.old_version, *OURS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        say(f"no source of {settings.old_version}: {done.stderr.strip()}")
        return ""
    with tarfile.open(archive) as tar:
        unpack(tar, old)
    archive.unlink()
    return str(old)


def _commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"
