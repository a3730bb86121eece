"""Faults below the processes: of the network, the disk, the clock, limits of the system."""

import contextlib
import os
import shutil

from tests.chaos.faults import Act, Fault, Stage
from tests.chaos.sites import NAMES

FILES = 64
MEMORY_BYTES = 1 << 30
CLOCK_STEPS_S = (-3600, -40, 40, 3600)
FAKETIME = ("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",)
FILLED_BY = "filled"


def faketime_library() -> str:
    """The library that steps a process's clock; empty where it is not installed."""
    found = [path for path in FAKETIME if os.path.exists(path)]
    return found[0] if found else ""


class _Cut(Fault):
    """Packets between two sites are lost."""

    lanes = ("network",)
    hold_leases = (0.1, 2.0)
    waits_for_lease = True
    both = True

    def missing(self, stage: Stage) -> str:
        return "" if stage.network is not None else "no network namespaces (root, ip, nft)"

    def do(self, stage: Stage, act: Act) -> None:
        assert stage.network is not None
        near, _, far = act.target.partition(">")
        if not self.both and act.number < 0.5:
            near, far = far, near
        stage.network.cut(near, far)
        if self.both:
            stage.network.cut(far, near)

    def undo(self, stage: Stage, act: Act) -> None:
        assert stage.network is not None
        stage.network.heal()


class Partition(_Cut):
    """Buyer and seller don't reach each other."""

    name, weight = "partition", 2.0


class OneWay(_Cut):
    """Messages between buyer and seller are lost in one direction."""

    name, both = "one-way", False


class DiskFull(Fault):
    """The file system of a site's database is full."""

    name, lanes, weight = "disk-full", NAMES, 1.0
    hold_leases = (0.1, 1.0)

    def missing(self, stage: Stage) -> str:
        return "" if stage.disks else "no file system of its own (root mounts a tmpfs)"

    def unfit(self, stage: Stage, act: Act) -> str:
        is_old = bool(stage.site(act.target).around.gateway_source)
        return "the other version refuses work as soon as its disk is full" if is_old else ""

    def do(self, stage: Stage, act: Act) -> None:
        disk = stage.disks.get(act.target)
        if disk is None:
            return
        with contextlib.suppress(OSError), (disk / FILLED_BY).open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 65536)

    def undo(self, stage: Stage, act: Act) -> None:
        disk = stage.disks.get(act.target)
        if disk is not None:
            (disk / FILLED_BY).unlink(missing_ok=True)


class ClockStep(Fault):
    """The time of day steps at Tokyo's gateway, by up to an hour, and back."""

    name, lanes, weight = "clock-step", ("tokyo",), 1.0
    hold_leases = (0.2, 1.5)

    def missing(self, stage: Stage) -> str:
        return "" if stage.clock_files else "no libfaketime (Debian package faketime)"

    def do(self, stage: Stage, act: Act) -> None:
        step_s = CLOCK_STEPS_S[int(act.number * len(CLOCK_STEPS_S))]
        self._set(stage, act, step_s)

    def undo(self, stage: Stage, act: Act) -> None:
        self._set(stage, act, 0)

    def _set(self, stage: Stage, act: Act, step_s: int) -> None:
        path = stage.clock_files[act.target]
        made = path.with_suffix(".new")
        made.write_text(f"{step_s:+d}")
        made.replace(path)


class _Limit(Fault):
    """The gateway is ended, and started under a limit; then again without."""

    lanes = NAMES
    hold_leases = (0.5, 1.5)
    weight = 0.5
    limit: tuple[str, ...] = ()

    def missing(self, stage: Stage) -> str:
        return "" if shutil.which("prlimit") else "no prlimit (Debian package util-linux)"

    def do(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        site.gateway.stop()
        usual = site.around.gateway_prefix
        # `env` takes settings and then a command: the limit comes after those of the usual.
        site.around.gateway_prefix = [*usual, *self.limit]
        try:
            # It may end at once: then it says why, and there is no gateway until it is undone.
            site.gateway = site.launch_gateway()
            site.limited.add(site.gateway.log)
        finally:
            site.around.gateway_prefix = usual

    def undo(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        if site.gateway.process.poll() is None:
            site.gateway.stop()
        else:
            site.kill_gateway()
        site.start()


class FewFiles(_Limit):
    """The gateway runs with 64 file descriptors for a while (ulimit -n 64)."""

    name, limit = "few-files", ("prlimit", f"--nofile={FILES}")


class LittleMemory(_Limit):
    """The gateway runs with 1 GiB of address space for a while."""

    name, limit = "little-memory", ("prlimit", f"--as={MEMORY_BYTES}")


KINDS: list[Fault] = [
    Partition(),
    OneWay(),
    DiskFull(),
    ClockStep(),
    FewFiles(),
    LittleMemory(),
]
