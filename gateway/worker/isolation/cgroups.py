"""Control groups: hold a slot and all its processes to its memory, cores and process count.

Version 2 is used where its controllers are available, else version 1; hosts with both (systemd's
"hybrid") have the controllers in one of them. A slot's group is made below ours, or below the root
where that fails. The slot joins it before it runs anything (gateway.worker.isolation.launch). The
group ends with the slot: all processes in it are killed, including those that started a session of
their own.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Final

from gateway.worker.isolation.strays import lives, owner_of

CONTROLLERS: Final = ("memory", "cpu", "pids")
PREFIX: Final = "gridfed-"
PERIOD_US: Final = 100_000
# The agent kills a slot that is over its memory limit, and reports it. The kernel, which may kill
# only one process of several, acts one part in this many above it, on growth too fast for the
# agent.
SLACK: Final = 4
QUOTA_MIN_US: Final = 1_000  # the kernel refuses less
ROOT: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc/self")
REMOVE_TRIES: Final = 50
REMOVE_WAIT_S: Final = 0.002


class CgroupsUnavailable(Exception):
    """No usable control groups; the text says why."""


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """The limits of one slot; 0 is no limit."""

    memory_bytes: int = 0
    cpus: float = 0.0
    pids_max: int = 0

    def __bool__(self) -> bool:
        return bool(self.memory_bytes or self.cpus or self.pids_max)

    def within(self, other: "CgroupLimits") -> "CgroupLimits":
        """Return the lower of each pair of limits, ignoring absent ones."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return CgroupLimits(*(min(filter(None, pair), default=0) for pair in pairs))

    def files(self, version: int) -> dict[str, dict[str, str]]:
        """Return the file contents by controller; names that a kernel may lack end with "?"."""
        quota = str(max(QUOTA_MIN_US, round(self.cpus * PERIOD_US)))
        memory = str(self.memory_bytes + self.memory_bytes // SLACK)
        pids = str(self.pids_max)
        found: dict[str, dict[str, str]] = {name: {} for name in CONTROLLERS}
        if version == 2:
            if self.memory_bytes:
                found["memory"] = {
                    "memory.max": memory,
                    "memory.swap.max?": "0",
                    "memory.oom.group?": "1",
                }
            if self.cpus:
                found["cpu"] = {"cpu.max": f"{quota} {PERIOD_US}"}
        else:
            if self.memory_bytes:
                found["memory"] = {
                    "memory.limit_in_bytes": memory,
                    "memory.memsw.limit_in_bytes?": memory,
                }
            if self.cpus:
                found["cpu"] = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": quota}
        if self.pids_max:
            found["pids"] = {"pids.max": pids}
        return found


@dataclass(frozen=True, slots=True)
class SlotCgroup:
    """The group of one slot: one folder, or one per controller with version 1."""

    folders: tuple[Path, ...]
    memory: Path  # the folder of the memory controller

    @property
    def entrances(self) -> tuple[Path, ...]:
        """The files by which a process joins it."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def oom_kills(self) -> int:
        """Return how often the kernel has killed a process in it for its memory."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                for line in (self.memory / name).read_text().splitlines():
                    key, _, value = line.partition(" ")
                    if key == "oom_kill":
                        return int(value)
        return 0

    def close(self) -> None:
        """Kill all processes in it, and remove it."""
        for folder in self.folders:
            _remove(folder)


@dataclass(slots=True)
class Cgroups:
    """The place where groups are made: our `folders` by controller, all equal with version 2."""

    version: int
    folders: dict[str, Path]
    _made: int = field(default=0)

    def make(self, limits: CgroupLimits) -> SlotCgroup:
        """Make a group with these limits. Raises CgroupsUnavailable."""
        self._made += 1
        folders: dict[Path, None] = {}
        try:
            for controller, files in limits.files(self.version).items():
                folder = self.folders[controller] / f"slot-{self._made}"
                folder.mkdir(exist_ok=True)
                folders[folder] = None
                for name, text in files.items():
                    path = folder / name.removesuffix("?")
                    if name == path.name or path.exists():
                        path.write_text(text)
        except OSError as error:
            raise CgroupsUnavailable(f"{error.filename}: {error.strerror}") from None
        return SlotCgroup(tuple(folders), self.folders["memory"] / f"slot-{self._made}")

    def close(self) -> None:
        """Remove our folders; the slots have ended."""
        for folder in set(self.folders.values()):
            _remove_tree(folder)


def open_cgroups(pid: int, root: Path = ROOT, proc: Path = PROC) -> Cgroups:
    """Find where we may make groups, and remove those of dead agents.

    Raises:
        CgroupsUnavailable: there is no such place; the text says why.
    """
    told = (proc / "cgroup").read_text().splitlines()
    ours = {}
    for line in told:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if controllers else [""]:
            ours[controller] = path
    name = f"{PREFIX}{owner_of(pid)}"
    is_second = (root / "cgroup.controllers").exists()
    return _open_second(root, ours, name) if is_second else _open_first(root, ours, name)


def _open_second(root: Path, ours: dict[str, str], name: str) -> Cgroups:
    has = (root / "cgroup.controllers").read_text().split()
    missing = set(CONTROLLERS) - set(has)
    if missing:
        raise CgroupsUnavailable(f"cgroup v2 has no controller {', '.join(sorted(missing))} here")
    why = ""
    for parent in _parents(root, ours.get("", "/")):
        try:
            _enable(parent)
            folder = _make_ours(parent, name)
            _enable(folder)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            continue
        return Cgroups(2, dict.fromkeys(CONTROLLERS, folder))
    raise CgroupsUnavailable(
        f"cgroup v2 does not allow new groups ({why}): delegate a group to this user"
    )


def _open_first(root: Path, ours: dict[str, str], name: str) -> Cgroups:
    folders: dict[str, Path] = {}
    for controller in CONTROLLERS:
        mount = root / controller
        if controller not in ours or not (mount / "cgroup.procs").exists():
            raise CgroupsUnavailable(f"no control group for {controller} was found at {mount}")
        why = ""
        for parent in _parents(mount, ours[controller]):
            try:
                folders[controller] = _make_ours(parent, name)
                break
            except OSError as error:
                why = f"{error.filename}: {error.strerror}"
        else:
            Cgroups(1, folders).close()  # removes those of other controllers
            raise CgroupsUnavailable(why)
    return Cgroups(1, folders)


def _parents(root: Path, path: str) -> Iterator[Path]:
    """Yield our own group, then the root: within a container our own may not be below the mount.

    Remove the leftovers of dead agents from both first.
    """
    own = root / path.lstrip("/")
    found = [own, root] if own != root and own.is_dir() else [root]
    for each in found:
        _remove_strays(each)
    yield from found


def _enable(folder: Path) -> None:
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))


def _make_ours(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


def _remove_strays(parent: Path) -> None:
    for stray in parent.glob(f"{PREFIX}*"):
        if stray.is_dir() and not lives(stray.name.removeprefix(PREFIX)):
            _remove_tree(stray)


def _remove_tree(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for each in folder.iterdir():
            if each.is_dir():
                _remove(each)
        _remove(folder)


def _remove(folder: Path) -> None:
    """Kill the processes in a group until it is empty, and remove it."""
    for _ in range(REMOVE_TRIES):
        inside: list[str] = []
        with contextlib.suppress(OSError):
            inside = (folder / "cgroup.procs").read_text().split()
        for number in inside:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(number), signal.SIGKILL)
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(REMOVE_WAIT_S)  # the killed processes are still ending
        else:
            return
