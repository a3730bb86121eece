"""A site among others under trio: the real sessions and links, over the simulated network.

Identities come from the plan, as in simulations.world.peers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import trio

from federation.clocks import MonoS
from federation.errors import GridError
from gateway.config.limits import ListenerLimits
from gateway.ledger.accounting.older_books import OlderBooks
from gateway.runtime.making import Seat
from gateway.sessions.driving import TrioLinks
from gateway.sessions.links import LinkNews
from gateway.sessions.listener import News, PeerSession, SessionListener
from gateway.sessions.peer_sessions import PipeWatch, Sessions
from gateway.trust.grant_signer import KeyGrantSigner
from gateway.trust.introduction import SiteCredentials
from simulations.world.host import SimHost
from simulations.world.peers import LIMITS, SERVICE, PlannedDirectory, SimRoll


class TrioPeers:
    """See gateway.peering.neighbours.FederationSide.

    Args:
        host: its host.
        registry: the identities of others, in this run of the site.
        rules: the listener's rules.
        handles, heard, link_news, heard_all: as in gateway.peering.peers.Peers.
    """

    def __init__(
        self,
        host: SimHost,
        registry: SimRoll,
        rules: ListenerLimits,
        handles: Iterator[int],
        heard: Callable[[list[News]], None],
        link_news: Callable[[LinkNews], None],
        heard_all: Callable[[], None],
    ) -> None:
        self._host = host
        self.registry = registry
        self.older_books = OlderBooks()
        self.directory = PlannedDirectory(host, registry)
        self._rules = replace(rules, site=registry.site, boot=registry.boot, secret="")
        self._handles = handles
        self._heard = heard
        self._dialled = TrioLinks(self.directory, LIMITS, link_news, heard_all, host.random_bytes)
        self.links = self._dialled.links
        self.addresses: list[str] = []

    def key_problems(self) -> dict[str, str]:
        """None: keys do not change in these worlds."""
        return {}

    @property
    def seat(self) -> Seat:
        """Its place among others."""
        signer = KeyGrantSigner(self.registry)
        return Seat(self.registry.boot, self.registry, self._handles, signer=signer)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Talk to others until cancelled."""
        watch = PipeWatch()
        host = self._host
        port = host.ground.network.listen(host.name, watch.note, SERVICE)
        credentials = SiteCredentials(self.registry)
        listener = SessionListener(port, self._rules, host.random_bytes, credentials, self._handles)
        self._sessions = Sessions(
            port,
            watch,
            listener,
            self._dialled,
            heard=self._heard,
            came_in=lambda peer: host.note("is dialled", f"by {peer.name}"),
            stated=lambda *_: None,
            say=lambda line: host.note("says", line),
        )
        await self._sessions.run(task_status=task_status)

    def answer(self, peer: PeerSession, message: Any, *, urgent: bool = False) -> None:
        """Queue a message on a session that another site dialled."""
        self._sessions.answer(peer, message, urgent=urgent)

    def expel(self, peer: PeerSession, reason: str) -> None:
        """End a session that another site dialled, and log the reason."""
        self._host.note("expels", f"{peer.name}: {reason}")
        self._sessions.expel(peer, reason)

    def keep(self, sites: Iterable[str]) -> None:
        """Stay connected to these."""
        self.links.keep([site for site in sites if self.registry.may_dial(site)])

    def flush(self, mono_s: MonoS) -> None:
        """Send queued messages that may go now, both ways."""
        self._sessions.flush(mono_s)

    async def order(self, verb: str, _details: Mapping[str, Any], by: str = "") -> Any:
        """Refuse all orders: keys and trust are fixed by the plan."""
        raise GridError(f"{verb}: keys and trust are fixed in the simulation")
