"""The sessions between a site and others: those that others dialled, and those it dialled.

    Sessions.run
    ├── TrioLinks.run    the sessions that this site dials             (gateway.sessions.driving)
    ├── _receive         frames of the sessions that others dialled    (gateway.sessions.listener)
    ├── _go_on           the rest of them, part by part                (gateway.sessions.inbox)
    ├── _watch_pipes
    └── _tick            heartbeats, expired sessions

Two sites may have a session each way, independent of each other: a site dials to make a request,
and gets the response in the same session. gateway.peering.peers knows the keys of each site.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import trio

from federation.clocks import MonoS
from federation.messages.registry import GatewayMessage, Receiver
from federation.transport import Port
from gateway.base.clocks import mono_now
from gateway.sessions.driving import TrioLinks
from gateway.sessions.inbox import Inbox
from gateway.sessions.listener import (
    News,
    PeerCameIn,
    PeerLeft,
    PeerSaid,
    PeerSession,
    PeerTurnedAway,
    SessionListener,
)

TICK_S: Final = 0.05


class PipeWatch:
    """Wakes a task when pipes have come or gone; nng reports that in threads of its own."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._changed = trio.Event()

    def note(self) -> None:
        """Report a change. Safe in any thread."""
        try:
            self._token.run_sync_soon(lambda: self._changed.set(), idempotent=True)
        except trio.RunFinishedError:
            return

    async def wait(self) -> None:
        """Return when something has changed since the last time."""
        await self._changed.wait()
        self._changed = trio.Event()


class Sessions:
    """The network side of a site among others; made inside of trio.

    Args:
        port: the port that others dial.
        watch: is noted when pipes of the port come and go.
        listener: of that port; its peers are gateways.
        dialled: the sessions that this site dials.
        heard: takes news of the sessions that others dialled.
        came_in: takes a site that has begun a session here, before `heard` does.
        stated: takes a site's name and its messages about trust.
        say: logs events that others can cause as often as they like.
    """

    def __init__(
        self,
        port: Port,
        watch: PipeWatch,
        listener: SessionListener,
        dialled: TrioLinks,
        *,
        heard: Callable[[list[News]], None],
        came_in: Callable[[PeerSession], None],
        stated: Callable[[str, GatewayMessage], None],
        say: Callable[[str], None],
    ) -> None:
        self.listener: Final = listener
        self.links: Final = dialled.links
        self._dialled = dialled
        self._port = port
        self._watch = watch
        self._heard = heard
        self._came_in = came_in
        self._stated = stated
        self._say = say
        self._inbox = Inbox(listener)
        self._unfinished = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve all sessions until cancelled, then say goodbye."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._dialled.run)
            nursery.start_soon(self._receive)
            nursery.start_soon(self._go_on)
            nursery.start_soon(self._watch_pipes)
            nursery.start_soon(self._tick)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self.listener.goodbye("the gateway is shutting down", mono_now())
                with trio.CancelScope(shield=True):  # it times out by itself
                    await self._dialled.goodbye("the gateway is shutting down")

    # --- requests ------------------------------------------------------------------------------

    def answer(self, peer: PeerSession, message: Any, *, urgent: bool = False) -> None:
        """Queue a message on the session by which a site has dialled this one."""
        if peer.handle in self.listener.peers:
            self.listener.post(peer, message, urgent=urgent)

    def expel(self, peer: PeerSession, reason: str) -> None:
        """End a session that another site dialled."""
        self._take(self.listener.expel(peer, reason, mono_now()))

    def flush(self, mono_s: MonoS) -> None:
        """Send all messages that may go now, both ways."""
        self.listener.flush(mono_s)
        self.links.flush(mono_s)

    # --- news ----------------------------------------------------------------------------------

    def _take(self, news: Iterable[News]) -> None:
        rest: list[News] = []
        for item in news:
            match item:
                case PeerSaid(peer, GatewayMessage() as said) if said.row.to is Receiver.TRUST:
                    self._stated(peer.name, said)
                    continue
                case PeerTurnedAway(role, name, code, reason):
                    who = f"{role} {name!r}" if role else "an unidentified client"
                    self._say(f"{who} was refused: {code}: {reason}")
                    continue
                case PeerCameIn(peer):
                    rest += self.listener.expel_older(peer, mono_now())
                    self._came_in(peer)
                case PeerLeft(peer, reason):
                    self._say(f"site {peer.name} disconnected: {reason}")
            rest.append(item)
        if rest:
            self._heard(rest)

    # --- the loops -----------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._port.fileno())
            self._inbox.add_frames(self._port.receive(), mono_now())
            self._take_turn()

    async def _go_on(self) -> None:
        while True:
            await self._unfinished.wait()
            # A checkpoint lets all other tasks run: one site's flood delays none of them.
            await trio.lowlevel.checkpoint()
            self._unfinished = trio.Event()
            self._take_turn()

    def _take_turn(self) -> None:
        self._take(self._inbox.take())
        self.flush(mono_now())
        if self._inbox:
            self._unfinished.set()

    async def _watch_pipes(self) -> None:
        while True:
            await self._watch.wait()
            mono_s = mono_now()
            self._take(self.listener.pipes_came(self._port.came(), mono_s))
            self._inbox.pipes_gone(self._port.gone(), mono_s)
            self._take_turn()

    async def _tick(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            self._inbox.add_news(list(self.listener.tick(mono_now())))
            self._take_turn()
