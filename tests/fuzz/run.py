"""A whole run: the sites are set up, fuzzed while honest work goes on, and judged."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos import processes

from tests.fuzz.honest import ENDS_S, GIVE_UP_S, Stream
from tests.fuzz.judging import FuzzFacts, judge
from tests.fuzz.report import markdown
from tests.fuzz.tally import Tally
from tests.fuzz.town import BUYERS, SELLERS, FuzzTown
from tests.fuzz.watching import Watch

ROOT: Final = Path(__file__).resolve().parents[2]
PREFIX: Final = "gridfed-fuzz-"
WARM: Final = 0.25  # the share of the messages that are the warm-up
END_S: Final = 60.0
LOOK_S: Final = 0.25
AFTERWARDS: Final = 3  # honest tasks of each way, after the last message
# How many processes speak for each role, and how many sessions each has at a time.
CROWD: Final = {"client": (1, 6), "worker": (1, 2), "stranger": (1, 3)}


@dataclass(frozen=True)
class FuzzSettings:
    """The options of the command line; see __main__.py."""

    seed: int
    messages: int
    minutes: float
    roles: Sequence[str]
    every_s: float = 2.0
    keep: bool = False


class Attacker:
    """A process of attack.py, and the last tally that it told."""

    def __init__(self, name: str, settings: dict[str, object], folder: Path) -> None:
        self.role = str(settings["role"])
        self.tally = Tally()
        self._has_begun = threading.Event()
        self._errors = folder / f"{name}.log"
        path = folder / f"{name}.json"
        path.write_text(json.dumps(settings))
        with self._errors.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.attack", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                cwd=ROOT,
            )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.tally = Tally.from_plain(json.loads(line))
            self._has_begun.set()
        self._has_begun.set()

    def wait(self) -> None:
        """Return when it has begun."""
        self._has_begun.wait()

    def check(self) -> None:
        """Raise AssertionError when it has ended by itself: the run proves nothing then."""
        if self.process.poll() is not None:
            raise AssertionError(f"{self.role} broke: {self._errors.read_text()[-3_000:]}")

    def stop(self) -> None:
        """End it, and hear its last tally. Idempotent."""
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join(END_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def own_folder(*, keep: bool) -> Iterator[Path]:
    """A folder of this run's, and all processes that it starts: both are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    before = os.environ.get(processes.MARK)
    processes.mark(folder.name)
    is_kept = True
    try:
        yield folder
        is_kept = keep
    finally:
        processes.end(list(processes.marked(folder.name)))
        if before is None:
            del os.environ[processes.MARK]
        else:
            os.environ[processes.MARK] = before
        if is_kept:
            print(f"logs and books are kept in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def attackers(settings: FuzzSettings, town: FuzzTown, folder: Path) -> list[Attacker]:
    """All processes that fuzz."""
    told = [
        (f"{role}{number}", {**town.settings(role), "threads": threads})
        for role, (many, threads) in CROWD.items()
        for number in range(many)
        if role in settings.roles
    ]
    for role, names in (("buyer", BUYERS), ("seller", SELLERS)):
        told += [(name, town.member_settings(name)) for name in names if role in settings.roles]
    return [
        Attacker(name, {**each, "seed": f"{settings.seed}-{name}"}, folder) for name, each in told
    ]


def perform(settings: FuzzSettings) -> tuple[FuzzFacts, dict[str, list[str]]]:
    """Do a run, print its result, and return its facts and its violations."""
    with own_folder(keep=settings.keep) as folder:
        town = FuzzTown(folder)
        try:
            town.start()
            facts, lasted_s = _fuzz(settings, town, folder)
        finally:
            codes = town.stop()
        facts.codes = codes
        facts.logs = {each.name: each.gateway.text() for each in (town.london, town.paris)}
        facts.audits = {each.name: _audit(each.config) for each in (town.london, town.paris)}
        violations = judge(facts)
        about = f"seed {settings.seed}, commit {_commit()}, load {os.getloadavg()[0]:.1f}"
        print(markdown(facts, violations, lasted_s, about), flush=True)
        if any(violations.values()) and not settings.keep:
            kept = Path(tempfile.mkdtemp(prefix=f"{PREFIX}found-"))
            shutil.copytree(folder, kept, dirs_exist_ok=True, ignore=_sockets)
            print(f"violations: logs and books are kept in {kept}", file=sys.stderr)
    return facts, violations


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_socket()]


def _fuzz(settings: FuzzSettings, town: FuzzTown, folder: Path) -> tuple[FuzzFacts, float]:
    """Run all attackers and users; return the results, and the seconds they took."""
    streams = [
        Stream("at London", town.london.address, "london"),
        Stream("London to Paris", town.london.address, "paris"),
        Stream("Paris to London", town.paris.address, "london"),
    ]
    crowd: list[Attacker] = []
    watch = Watch([town.london, town.paris], settings.every_s)
    try:
        for stream in streams:
            stream.start()
        crowd = attackers(settings, town, folder)
        for each in crowd:
            each.wait()
        begun_s = time.monotonic()
        warm_s = _look_on(settings, crowd, watch)
        for each in crowd:
            each.stop()
        lasted_s = time.monotonic() - begun_s
        before = [len(each.done) for each in streams]
        if not watch.ended:
            _wait_for_more(streams, [count + 1 + AFTERWARDS for count in before])
        watch.stop()
    finally:
        for each in crowd:
            each.stop()
        for stream in streams:
            stream.stop(0.0 if watch.ended else GIVE_UP_S + ENDS_S)
    tallies: dict[str, Tally] = {}
    for each in crowd:
        tallies[each.role] = tallies.get(each.role, Tally()) + each.tally
    facts = FuzzFacts(
        tallies=tallies,
        done=[done for each in streams for done in each.done],
        # One of each was under way when the last message was sent.
        after=[
            done
            for each, count in zip(streams, before, strict=True)
            for done in each.done[count + 1 :]
        ],
        ways=[each.name for each in streams],
        hanging=[f"{each.name}: {what}" for each in streams for what in each.hanging],
        ended=watch.ended,
        samples=watch.samples,
        warm_s=warm_s,
    )
    return facts, lasted_s


def _look_on(settings: FuzzSettings, crowd: Sequence[Attacker], watch: Watch) -> float:
    """Return when all is said, or time is over; when the warm-up was over."""
    begun_s = warm_s = time.monotonic()
    until_s = begun_s + settings.minutes * 60.0
    is_warm = False
    while (now_s := time.monotonic()) < until_s and not watch.ended:
        sent = sum(each.tally.sent for each in crowd)
        if sent >= settings.messages:
            break
        if not is_warm and (
            sent >= WARM * settings.messages or now_s - begun_s > WARM * (until_s - begun_s)
        ):
            is_warm, warm_s = True, now_s
        for each in crowd:
            each.check()
        time.sleep(LOOK_S)
    return warm_s


def _wait_for_more(streams: Sequence[Stream], wanted: Sequence[int]) -> None:
    until_s = time.monotonic() + 2 * END_S
    while time.monotonic() < until_s and any(
        len(each.done) < count for each, count in zip(streams, wanted, strict=True)
    ):
        time.sleep(LOOK_S)


def _audit(config: Path) -> str:
    """The errors in a site's books; empty: none."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "audit", "--config", str(config)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-500:]


def _commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"
