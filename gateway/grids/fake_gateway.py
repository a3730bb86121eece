"""A gateway for checks: it admits pilots, records their Hellos, and has them run a call.

It has the sessions of a real one (gateway.sessions.listener over nng) and nothing behind them: a
worker that came in has proved that it knows the secret, and stays for as long as its session is
kept alive.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import trio

from federation.clocks import MonoS
from federation.messages.messages import Assign, NeedFunction, PutFunction, Report
from federation.sessions.nng import NngPort
from gateway.base.clocks import mono_now
from gateway.config.limits import ListenerLimits
from gateway.sessions.listener import (
    News,
    PeerCameIn,
    PeerLeft,
    PeerSaid,
    PeerSession,
    PeerTurnedAway,
    SessionListener,
)

TURN_S: Final = 0.05  # the interval of checks for opened and closed pipes
# os.getenv, pickled by hand: a gateway can't pickle, and this one need not.
GETENV: Final = b"cos\ngetenv\n."


@dataclass(frozen=True, slots=True)
class Arrival:
    """A worker that came in, with the fields of its Hello."""

    name: str
    host: str
    pid: int
    slots: int
    pool: str
    tags: dict[str, Any]
    token: str


class FakeGateway:
    """A gateway that pilots dial.

    Args:
        listen: the address; port 0 takes a free one.
        secret: lets its holders in.

    Attributes:
        address: as pilots dial it, once it runs.
        arrivals: all that ever came in, in order; one that resumes its session counts once.
        refusals: workers that were not let in, with reasons.
    """

    def __init__(self, listen: str, secret: str) -> None:
        self.address = ""
        self.arrivals: list[Arrival] = []
        self.refusals: list[PeerTurnedAway] = []
        self._listen = listen
        self._secret = secret
        self._peers: dict[int, PeerSession] = {}
        self._functions: dict[bytes, bytes] = {}
        self._reports: dict[int, Report] = {}
        self._numbers = itertools.count(1)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled; started when it can be dialled. Raises AddressError."""
        port = NngPort([self._listen], _nothing)
        try:
            self.address = port.addresses[0]
            rules = ListenerLimits(
                site="checks", secret=self._secret, heartbeat_s=0.5, grace_s=30.0
            )
            self._listener = SessionListener(port, rules)
            task_status.started()
            while True:
                with trio.move_on_after(TURN_S):
                    await trio.lowlevel.wait_readable(port.fileno())
                self._turn(port, mono_now())
        finally:
            port.close()

    def names(self) -> set[str]:
        """Return the workers that are in now."""
        return {peer.name for peer in self._peers.values() if peer.pipe is not None}

    async def getenv(self, name: str, variable: str) -> bytes:
        """Return a variable of a task's environment on a worker, pickled: no payload is opened."""
        peer = next(each for each in self._peers.values() if each.name == name)
        digest, number = sha256(GETENV).digest(), next(self._numbers)
        self._functions[digest] = GETENV
        call = b"(V" + variable.encode("ascii") + b"\nt."  # a tuple of one text, pickled
        self._listener.post(peer, Assign(number, "checks", digest, 0, [call], None, False))
        while number not in self._reports:  # noqa: ASYNC110 - not for long
            await trio.sleep(TURN_S)
        report = self._reports.pop(number)
        assert not report.failures, f"a task failed on pilot {name}: {report.failures}"
        return report.values[0]

    def _turn(self, port: NngPort, mono_s: MonoS) -> None:
        """Receive and answer messages."""
        listener = self._listener
        self._hear(listener.pipes_came(port.came(), mono_s))
        for pipe, frame in port.receive():
            self._hear(listener.receive(pipe, frame, mono_s))
        listener.pipes_gone(port.gone(), mono_s)
        self._hear(listener.tick(mono_s))
        listener.flush(mono_s)

    def _hear(self, happened: Any) -> None:
        news: News
        for news in happened:
            match news:
                case PeerCameIn(peer):
                    self._peers[peer.handle] = peer
                    self.arrivals.append(_arrival(peer))
                case PeerLeft(peer):
                    self._peers.pop(peer.handle, None)
                case PeerTurnedAway():
                    self.refusals.append(news)
                case PeerSaid(peer, NeedFunction(digest)):
                    self._listener.post(peer, PutFunction(digest, self._functions[digest]))
                case PeerSaid(_, Report() as report):
                    self._reports[report.assignment] = report


def _arrival(peer: PeerSession) -> Arrival:
    about: Callable[..., Any] = peer.about.get
    return Arrival(
        name=peer.name,
        host=about("host", ""),
        pid=about("pid", 0),
        slots=about("slots", 0),
        pool=about("pool", ""),
        tags=dict(about("tags", {})),
        token=about("token", ""),
    )


def _nothing() -> None:
    """Do nothing: opened and closed pipes are polled."""
