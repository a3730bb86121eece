"""Grids for tests: processes of this host, with the troubles of larger grids."""

import os
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.grids import checks
from gateway.grids.contract import FailureClass, GridFault, PilotState
from gateway.grids.processes import ProcessesConfig, ProcessGrid
from gateway.worker.isolation.secrecy import PILOT_VARIABLE


@dataclass
class Engine:
    """The state that all objects of a troubled grid share, as they do a real grid's service.

    Attributes:
        delay_s: a host is made ready for so long before a pilot runs.
        slots: for pilots.
    """

    delay_s: float = 0.0
    slots: int = 8
    is_full: bool = False
    is_down: bool = False

    @asynccontextmanager
    async def full(self):
        self.is_full = True
        yield
        self.is_full = False

    @asynccontextmanager
    async def down(self):
        self.is_down = True
        yield
        self.is_down = False


class TroubledGrid(ProcessGrid):
    """Processes that begin late, by an engine that may be in trouble."""

    def __init__(self, engine, launch, *, is_denied=False):
        super().__init__(ProcessesConfig(engine.slots), launch)
        self._engine = engine
        self._is_denied = is_denied

    def _ask(self):
        """As a call of a service."""
        if self._engine.is_down:
            raise GridFault(FailureClass.AGAIN, "the engine does not answer: is it running?")
        if self._is_denied:
            raise GridFault(FailureClass.NEVER, "the engine refuses the token of token_file")

    async def check(self):
        self._ask()
        return await super().check()

    async def pilots(self):
        self._ask()
        return await super().pilots()

    async def start(self, order):
        self._ask()
        await super().start(order)

    async def stop(self, names):
        self._ask()
        await super().stop(names)

    def _used(self):
        return self._slots_max if self._engine.is_full else super()._used()

    def _command(self, name, shape):
        script = f'sleep {self._engine.delay_s}; exec "$@"'
        return ["/bin/sh", "-c", script, "sh", *super()._command(name, shape)]

    def _pilots(self):
        return [_as_it_is(each) for each in super()._pilots()]


def _as_it_is(sighting):
    """One that only sleeps yet is starting."""
    is_asleep = sighting.state is PilotState.RUNNING and _program(sighting) == b"/bin/sh"
    return replace(sighting, state=PilotState.STARTING) if is_asleep else sighting


def _program(sighting):
    try:
        return Path("/proc", _pid(sighting), "cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""  # it has ended since


def _pid(sighting):
    return sighting.grid_id.removeprefix("pid ")


class ProcessesBench(checks.Bench):
    """Processes of this host, as they are."""

    called = "processes"
    wait_s = 60.0
    look_s = 0.05

    def open(self, launch):
        return ProcessGrid(ProcessesConfig(8), launch)

    async def left(self, mark):
        return [pid for pid in os.listdir("/proc") if pid.isdecimal() and _is_of(mark, pid)]

    async def take(self, pilot):
        os.kill(int(_pid(pilot)), signal.SIGKILL)


def _is_of(mark, pid):
    """Whether a process, or its parent, was a pilot of that mark."""
    try:
        return f"{PILOT_VARIABLE}={mark}/".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # it has ended


class TroubledBench(ProcessesBench):
    """Processes that begin late, with all the troubles there are."""

    def __init__(self, delay_s=0.3):
        self.engine = Engine(delay_s)
        self.full = self.engine.full
        self.down = self.engine.down

    def open(self, launch):
        return TroubledGrid(self.engine, launch)

    def denied(self, launch):
        return TroubledGrid(self.engine, launch, is_denied=True)
