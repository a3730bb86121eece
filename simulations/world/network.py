"""The network: connections between hosts, in memory, with all their faults.

A connection (a *pipe*) delivers in order, with latency, and at a bandwidth; two of them overtake
each other. A cut holds back frames from one host to another until it heals, as TCP does. A reset
ends a pipe and drops its frames, and its two ends learn of that at different times. A pipe's queue
downwards holds two frames and drops further ones, as nng's does.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from federation.sessions.memory import Signal
from federation.transport import Origin
from simulations.world.clock import Clock

QUEUE_DOWN: Final = 2
DIAL_AGAIN_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Weather:
    """The quality of the network: seconds of latency, jitter on top, bytes a second."""

    latency_s: float = 0.0005
    jitter_s: float = 0.0005
    bytes_per_s: float = 1e9


@dataclass(slots=True)
class _Way:
    """One direction of a pipe: when it is free, its frames in flight, and how many are held back.

    The oldest frame in flight always arrives first: a pipe keeps one order, even across cuts.
    """

    source: str
    target: str
    take: Callable[[bytes], None]
    closed: Callable[[], None]
    free_s: float = 0.0
    under_way: deque[bytes | None] = field(default_factory=deque)
    held: int = 0
    is_open: bool = True


class Network:
    """All pipes, ports and cuts of a world."""

    def __init__(self, clock: Clock, dice: Random, weather: Weather) -> None:
        self.clock = clock
        self.weather = weather
        self.dropped = 0  # frames that found the queue downwards full
        self._dice = dice
        self._ports: dict[tuple[str, str], SimPort] = {}  # by host and service
        self._pipes: dict[int, tuple[_Way, _Way]] = {}
        self._number = 0
        self._cuts: dict[tuple[str, str], int] = {}
        self._alone: set[str] = set()

    # --- the two ends --------------------------------------------------------------------------

    def listen(self, host: str, changed: Callable[[], None], service: str = "") -> "SimPort":
        """Open a port of a host; `changed` is called when a frame or an end has arrived.

        A host has one port of each `service`, which the dialler names.
        """
        port = self._ports[host, service] = SimPort(self, host, changed)
        return port

    def dial(self, host: str, to: str, changed: Callable[[], None], service: str = "") -> "SimLink":
        """Dial a host's port, until it answers."""
        link = SimLink(self, host, to, changed, service)
        self._connect(link)
        return link

    def _connect(self, link: "SimLink") -> None:
        if link.is_closed:
            return
        port = self._ports.get((link.target, link.service))
        blocked = self.is_cut(link.host, link.target) or self.is_cut(link.target, link.host)
        if port is None or blocked:
            self.clock.after(DIAL_AGAIN_S, lambda: self._connect(link))
            return
        self._number += 1
        number = self._number
        up = _Way(link.host, link.target, lambda frame: port.take(number, frame), port.end(number))
        down = _Way(link.target, link.host, link.take, link.lose)
        self._pipes[number] = up, down
        port.meet(number)
        link.number = number
        self.clock.after(self._delay_s(), link.come_up)

    # --- frames --------------------------------------------------------------------------------

    def send_up(self, number: int, frame: bytes) -> bool:
        """Send a frame from the dialling end."""
        pipe = self._pipes.get(number)
        if pipe is None or not pipe[0].is_open:
            return False
        self._send(pipe[0], frame)
        return True

    def send_down(self, number: int, frame: bytes) -> bool:
        """Send a frame from the listening end; the third frame in flight is dropped silently."""
        pipe = self._pipes.get(number)
        if pipe is None or not pipe[1].is_open:
            return False
        if len(pipe[1].under_way) >= QUEUE_DOWN:
            self.dropped += 1
        else:
            self._send(pipe[1], frame)
        return True

    def _send(self, way: _Way, frame: bytes | None) -> None:
        """Send a frame, or with None the end of the pipe."""
        way.under_way.append(frame)
        if self.is_cut(way.source, way.target):
            way.held += 1
            return
        self._pass(way, len(frame) if frame is not None else 0)

    def _pass(self, way: _Way, size: int) -> None:
        arrives_s = max(self.clock.now_s + self._delay_s(), way.free_s)
        way.free_s = arrives_s + size / self.weather.bytes_per_s
        self.clock.at(way.free_s, lambda: self._arrive(way))

    def _arrive(self, way: _Way) -> None:
        if self.is_cut(way.source, way.target):
            way.held += 1
            return
        frame = way.under_way.popleft()
        if frame is None:
            way.is_open = False
            way.closed()
        elif way.is_open:
            way.take(frame)

    def _delay_s(self) -> float:
        return self.weather.latency_s + self._dice.random() * self.weather.jitter_s

    # --- faults --------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        """Whether frames from one host to another are held back now."""
        alone = source in self._alone or target in self._alone
        return alone or (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Hold back frames from one host to another; cuts add up."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """Undo one cut: send the frames that were held back."""
        left = self._cuts.pop((source, target), 1) - 1
        if left > 0:
            self._cuts[source, target] = left
            return
        self._send_held()

    def isolate(self, host: str) -> None:
        """Hold back all frames from and to a host."""
        self._alone.add(host)

    def rejoin(self, host: str) -> None:
        """Undo `isolate`."""
        self._alone.discard(host)
        self._send_held()

    def _send_held(self) -> None:
        """Send the frames that were held back, where possible."""
        for pipe in list(self._pipes.values()):
            for way in pipe:
                if way.held and not self.is_cut(way.source, way.target):
                    held, way.held = way.held, 0
                    for frame in list(way.under_way)[-held:]:
                        self._pass(way, len(frame) if frame is not None else 0)

    def reset(self, one: str, other: str) -> None:
        """End all pipes between two hosts; their ends learn of it up to a second apart."""
        for number, (up, down) in list(self._pipes.items()):
            if {up.source, up.target} == {one, other}:
                self._forget(number)
                for way in (up, down):
                    way.is_open = False
                    self.clock.after(self._dice.random(), way.closed)

    def close(self, number: int, *, by_dialler: bool) -> None:
        """Close one end: the other is told, after the earlier frames."""
        pipe = self._pipes.pop(number, None)
        if pipe is None:
            return
        ours, theirs = pipe if by_dialler else (pipe[1], pipe[0])
        theirs.is_open = False  # frames in flight to the closing end no longer matter
        if ours.is_open:
            # Still listed, so that a cut that heals finds it.
            self._pipes[-number] = pipe
            self._send(ours, None)

    def _forget(self, number: int) -> None:
        self._pipes.pop(number, None)

    def host_died(self, host: str, *, is_silent: bool) -> None:
        """Take a dead host's pipes down: its system closes them, unless the whole machine is dead.

        Peers of a dead machine notice its silence.
        """
        for key, port in list(self._ports.items()):
            if port.host == host:
                port.is_closed = True
                del self._ports[key]
        for number, (up, down) in list(self._pipes.items()):
            if host not in (up.source, up.target) or number < 0:
                continue
            if is_silent:
                self._pipes.pop(number)
                dead, alive = (up, down) if up.target == host else (down, up)
                dead.is_open, alive.is_open = True, False
                dead.take, dead.closed = _nobody_takes, _nobody_hears
                self._pipes[number] = up, down
            else:
                self.close(number, by_dialler=up.source == host)


def _nobody_takes(_: bytes) -> None:
    """PilotState for a dead machine."""


def _nobody_hears() -> None:
    """PilotState for a dead machine."""


class SimPort:
    """The listening end; see federation.transport.Port."""

    def __init__(self, network: Network, host: str, changed: Callable[[], None]) -> None:
        self.addresses = [f"memory://{host}"]
        self.host = host
        self.pipes: set[int] = set()
        self.is_closed = False
        self.signal: Signal | None = None  # for waiting by descriptor
        self._network = network
        self._changed = changed
        self._arrived: list[tuple[int, bytes]] = []
        self._gone: list[int] = []
        self._came: list[int] = []

    def meet(self, pipe: int) -> None:
        """Note a new pipe."""
        self.pipes.add(pipe)
        self._came.append(pipe)
        self._changed()

    def came(self) -> list[int]:
        """Return the pipes made since the last call."""
        came, self._came = self._came, []
        return came

    def is_local(self, pipe: int) -> bool:
        """Return False: no pipe is a socket of the host."""
        return False

    def is_near(self, pipe: int) -> bool:
        """Return False: no pipe is a socket of the host."""
        return False

    def origin(self, _pipe: int) -> Origin:
        """Return an origin without limits: the network is private, and hosts are not limited."""
        return Origin()

    def remotes(self) -> list[tuple[str, int]]:
        """Return nothing: no pipe is TCP."""
        return []

    def take(self, pipe: int, frame: bytes) -> None:
        """Take a frame from a pipe."""
        if pipe in self.pipes and not self.is_closed:
            self._arrived.append((pipe, frame))
            if self.signal is not None:
                self.signal.raise_()
            self._changed()

    def end(self, pipe: int) -> Callable[[], None]:
        """Return the callback for the end of a pipe."""

        def ended() -> None:
            if pipe in self.pipes and not self.is_closed:
                self.pipes.discard(pipe)
                self._gone.append(pipe)
                self._changed()

        return ended

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the frames that have arrived, each with its pipe."""
        arrived, self._arrived = self._arrived, []
        if self.signal is not None:
            self.signal.lower()
        return arrived

    def send(self, pipe: int, frame: bytes) -> bool:
        """Send a frame on a pipe."""
        return pipe in self.pipes and self._network.send_down(pipe, frame)

    def gone(self) -> list[int]:
        """Return the pipes closed since the last call."""
        gone, self._gone = self._gone, []
        return gone

    def drop(self, pipe: int) -> None:
        """Close a pipe."""
        if pipe in self.pipes:
            self.pipes.discard(pipe)
            self._gone.append(pipe)
            self._network.close(pipe, by_dialler=False)
            self._changed()

    def fileno(self) -> int:
        """Return the descriptor to poll, made on the first call."""
        if self.signal is None:
            self.signal = Signal()
            if self._arrived:
                self.signal.raise_()
        return self.signal.descriptor

    def close(self) -> None:
        """Close every pipe."""
        for pipe in sorted(self.pipes):
            self.drop(pipe)
        self.is_closed = True
        if self.signal is not None:
            self.signal.close()


class SimLink:
    """The dialling end; see federation.transport.Link."""

    def __init__(
        self,
        network: Network,
        host: str,
        target: str,
        changed: Callable[[], None],
        service: str = "",
    ) -> None:
        self.host = host
        self.target = target
        self.service = service
        self.number = 0
        self.is_up = self.is_lost = self.is_closed = False
        self._network = network
        self._changed = changed
        self._arrived: list[bytes] = []
        self._signal: Signal | None = None

    def come_up(self) -> None:
        """Note that the pipe is connected."""
        if not self.is_lost and not self.is_closed:
            self.is_up = True
            self._changed()

    def take(self, frame: bytes) -> None:
        """Take a frame from the port."""
        if not self.is_closed:
            self._arrived.append(frame)
            if self._signal is not None:
                self._signal.raise_()
            self._changed()

    def lose(self) -> None:
        """Note that the pipe is gone."""
        self.is_up, self.is_lost = False, True
        if not self.is_closed:
            self._changed()

    def receive(self) -> list[bytes]:
        """Return the frames that have arrived."""
        arrived, self._arrived = self._arrived, []
        if self._signal is not None:
            self._signal.lower()
        return arrived

    def send(self, frame: bytes) -> bool:
        """Send a frame on the pipe."""
        return self.is_up and self._network.send_up(self.number, frame)

    def fileno(self) -> int:
        """Return the descriptor to poll, made on the first call."""
        if self._signal is None:
            self._signal = Signal()
            if self._arrived:
                self._signal.raise_()
        return self._signal.descriptor

    def close(self) -> None:
        """Close the pipe."""
        if not self.is_closed:
            self.is_closed = True
            self.is_up = False
            self._network.close(self.number, by_dialler=True)
            if self._signal is not None:
                self._signal.close()
