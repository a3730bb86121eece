"""A site among others under trio: the real sessions and links, over the pretended network.

Who is who comes from the plan, as in simulations.world.peers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import trio

from federation.errors import GridError
from federation.handshake import Credentials
from federation.messages import Hello
from federation.transport import Link
from gateway import introduction
from gateway.introduction import SiteCredentials
from gateway.links import LinkNews, Links
from gateway.lobby import Guest, HouseRules, Lobby, News
from gateway.notary import SigningNotary
from gateway.older_books import OlderBooks
from gateway.reception import Seat
from gateway.sessions import PipeWatch, Sessions
from simulations.world.host import Host
from simulations.world.links import SERVICE
from simulations.world.peers import LIMITS, Roll


class _Directory:
    """How sites are dialled; see gateway.links.Directory."""

    def __init__(self, host: Host, roll: Roll) -> None:
        self._host = host
        self._roll = roll

    def may_dial(self, site: str) -> bool:
        """Whether a site is one that we would talk to."""
        return self._roll.may_dial(site)

    def hello(self) -> Hello:
        """Who we are."""
        return introduction.hello(self._roll)

    def credentials(self, site: str) -> Credentials:
        """How we prove it to that site, and it to us."""
        return SiteCredentials(self._roll, site)

    def dial(self, site: str, _attempt: int, on_change: Callable[[], None]) -> Link:
        """A new link."""
        return self._host.ground.network.dial(self._host.name, site, on_change, SERVICE)


class TrioPeers:
    """See gateway.neighbours.Society.

    Args:
        host: whose it is.
        registry: who is who, in this life of the site.
        rules: what the lobby tells and demands.
        handles, heard, link_news, heard_all: as gateway.peers.Peers takes them.
    """

    def __init__(
        self,
        host: Host,
        registry: Roll,
        rules: HouseRules,
        handles: Iterator[int],
        heard: Callable[[list[News]], None],
        link_news: Callable[[LinkNews], None],
        heard_all: Callable[[], None],
    ) -> None:
        self._host = host
        self.registry = registry
        self.older_books = OlderBooks()
        self.directory = _Directory(host, registry)
        self._rules = replace(rules, site=registry.site, boot=registry.boot, secret="")
        self._handles = handles
        self._heard = heard
        self.links = Links(self.directory, LIMITS, link_news, heard_all, host.random_bytes)
        self.addresses: list[str] = []

    @property
    def seat(self) -> Seat:
        """Its place among others."""
        notary = SigningNotary(self.registry)
        return Seat(self.registry.boot, self.registry, self._handles, notary=notary)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Talk to others until cancelled."""
        watch = PipeWatch()
        host = self._host
        port = host.ground.network.listen(host.name, watch.note, SERVICE)
        credentials = SiteCredentials(self.registry)
        lobby = Lobby(port, self._rules, host.random_bytes, credentials, self._handles)
        self._sessions = Sessions(
            port,
            watch,
            lobby,
            self.links,
            heard=self._heard,
            came_in=lambda guest: host.note("is dialled", f"by {guest.name}"),
            stated=lambda *_: None,
            say=lambda line: host.note("says", line),
        )
        await self._sessions.run(task_status=task_status)

    def answer(self, guest: Guest, message: Any, *, urgent: bool = False) -> None:
        """Queue a message on the session by which a site has dialled us."""
        self._sessions.answer(guest, message, urgent=urgent)

    def expel(self, guest: Guest, reason: str) -> None:
        """End a session that another site dialled, and tell people why."""
        self._host.note("expels", f"{guest.name}: {reason}")
        self._sessions.expel(guest, reason)

    def keep(self, sites: Iterable[str]) -> None:
        """Stay connected to these."""
        self.links.keep([site for site in sites if self.registry.may_dial(site)])

    def flush(self, now_s: float) -> None:
        """Send what may go now, both ways."""
        self._sessions.flush(now_s)

    async def order(self, verb: str, _details: Mapping[str, Any]) -> Any:
        """Nobody gives any here."""
        raise GridError(f"{verb}: keys and trust are as they were planned")
