"""A computer of the simulated world: its clocks, its timers, its crashes and its pauses."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from federation.clocks import MonoS, UtcS
from simulations.world.clock import EPOCH_S, Clock
from simulations.world.network import Network
from simulations.world.trace import Trace


@dataclass(frozen=True, slots=True)
class Ground:
    """The common environment of all hosts."""

    clock: Clock
    dice: Random
    trace: Trace
    network: Network


class SimHost:
    """One process on one host.

    Timers die with the process. Timers that come due while it is paused run when it resumes, in
    order. `skew_s` is the error of its calendar, `drift` the fraction by which its clocks run fast.
    """

    def __init__(
        self, ground: Ground, name: str, *, skew_s: float = 0.0, drift: float = 0.0
    ) -> None:
        self.ground = ground
        self.clock, self.dice, self.trace = ground.clock, ground.dice, ground.trace
        self.name = name
        self.skew_s = skew_s
        self.drift = drift
        self.is_up = False
        self.is_paused = False
        self.resumed_s = 0.0
        self.life = 0
        self._deferred: list[Callable[[], None]] = []

    def mono_s(self) -> MonoS:
        """Return its monotonic clock."""
        return MonoS(self.clock.now_s * (1 + self.drift))

    def utc_s(self) -> UtcS:
        """Return its calendar time."""
        return EPOCH_S + float(self.mono_s()) + self.skew_s

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes, from this world's seed."""
        return self.dice.randbytes(count)

    def after(self, wait_s: float, call: Callable[[], None]) -> None:
        """Run a callback after a time by its own clock, if it still lives then."""
        life = self.life

        def due() -> None:
            if self.life == life and self.is_up:
                self.do(call)

        self.clock.after(wait_s / (1 + self.drift), due)

    def do(self, call: Callable[[], None]) -> None:
        """Run a callback now, or as soon as it is not paused any more."""
        if self.is_paused:
            life = self.life
            self._deferred.append(lambda: call() if self.life == life else None)
        else:
            call()

    def start(self) -> None:
        """Start the process."""
        if not self.is_up:
            self.life += 1
            self.is_up, self.is_paused = True, False
            self._deferred.clear()
            self.note("starts")
            self.boot()

    def crash(self, *, power: bool = False) -> None:
        """Crash. With `power`, the machine: peers get no notice, unsynced writes are lost."""
        if self.is_up:
            self.note("loses power" if power else "crashes")
            self.is_up, self.is_paused = False, False
            self.life += 1
            self.ground.network.host_died(self.name, is_silent=power)
            self.die(power=power)

    def pause(self) -> None:
        """Stop as by SIGSTOP."""
        if self.is_up and not self.is_paused:
            self.note("is paused")
            self.is_paused = True
            self.halt()

    def resume(self) -> None:
        """Resume as by SIGCONT."""
        if self.is_paused:
            self.note("goes on")
            self.is_paused = False
            self.resumed_s = self.clock.now_s
            deferred, self._deferred = self._deferred, []
            for call in deferred:
                call()

    def note(self, what: str, note: str = "") -> None:
        """Trace an event of no single task."""
        self.trace.add(self.name, what, note=note)

    def boot(self) -> None:
        """Start up."""

    def die(self, *, power: bool) -> None:
        """Clean up after a crash."""

    def halt(self) -> None:
        """Apply further effects of a pause, beside the timers."""
