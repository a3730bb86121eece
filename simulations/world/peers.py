"""A simulated site among others: a replacement of gateway.peering.peers, over the simulated
network.

The listener, the proofs of identity and the signatures are the real ones. Keys are derived from the
sites' names; the trust of a site is in its plan, and does not change.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any, Final

from federation.clocks import MonoS
from federation.messages.messages import Hello
from federation.sessions.handshake import Credentials
from federation.signed.envelopes import Sealer, Verifier
from federation.signed.identity import SiteKey
from federation.transport import Link
from gateway.config.limits import ListenerLimits
from gateway.sessions.links import LinkDown, LinkLimits, LinkNews, LinkSilent, LinkUp, PeerLinks
from gateway.sessions.listener import (
    News,
    PeerCameIn,
    PeerLeft,
    PeerSession,
    PeerTurnedAway,
    SessionListener,
)
from gateway.sessions.peer_sessions import TICK_S
from gateway.trust import introduction
from gateway.trust.introduction import SiteCredentials
from gateway.trust.standing import TrustLevel
from policies.tariffs import Tariff
from simulations.world.driving import HostDriver
from simulations.world.host import SimHost
from simulations.world.plan import SitePlan

FEDERATION: Final = "pretended"
LIMITS: Final = LinkLimits()
SERVICE: Final = "peers"  # the port at which gateways meet


@cache
def key_of(site: str) -> SiteKey:
    """Return the key of a site, the same in every world."""
    return SiteKey(sha256(site.encode()).digest())


class SimRoll:
    """The identities and permits of others in one run of a site, for gateway.trust.identity_store
    and its book.

    Approved sites may run and send everything, except those that may not run (`runs_not`) or send
    (`takes_not`) anything.
    """

    federation: str = FEDERATION

    def __init__(
        self,
        site: str,
        others: Iterable[str],
        boot: int,
        *,
        runs_not: Iterable[str] = (),
        takes_not: Iterable[str] = (),
        beyond: Iterable[str] = (),
    ) -> None:
        self.site: str = site
        self._beyond = frozenset(beyond)
        self._runs_not, self._takes_not = frozenset(runs_not), frozenset(takes_not)
        self.boot: int = boot
        self.approved = sorted(others)
        self.expelled_by: dict[str, str] = {}
        self.signing_key = key_of(site)
        self.verifier = Verifier(self)
        self.sealer = Sealer(FEDERATION, site, boot, self.signing_key)

    def level(self, site: str) -> TrustLevel | None:
        """Return the trust level of a site."""
        return TrustLevel.APPROVED if site in self.approved else None

    def keys_of(self, site: str) -> tuple[bytes, ...]:
        """Return the keys that a site signs with."""
        known = {self.site, *self.approved, *self._beyond}
        return (key_of(site).public,) if site in known else ()

    lasting_keys_of = keys_of  # keys do not rotate here

    def welcomes(self, _site: str) -> bool:
        """Return False: there are no tokens here."""
        return False

    def revoked_by(self, _site: str) -> tuple[str, ...]:
        """See Trust."""
        return ()

    def meet(self, site: str, boot: int) -> None:
        """Note that a site has proved that it lives, in this boot."""
        self.verifier.meet(site, boot)

    def succession(self) -> bytes:
        """Return nothing: keys do not rotate here."""
        return b""

    def succeed(self, _site: str, _cards: bytes) -> None:
        """See Introducer."""

    def may_dial(self, site: str) -> bool:
        """Whether this gateway talks to a site."""
        return site in self.approved

    def addresses_of(self, site: str) -> tuple[str, ...]:
        """See Reachable."""
        return ()

    @property
    def book(self) -> "SimRoll":
        """The book of identities for a grant signer: this roll."""
        return self

    def readable(self) -> frozenset[str]:
        """See Permits."""
        return self.runners("") | self._beyond

    def runners(self, _project: str) -> frozenset[str]:
        """See Permits."""
        return frozenset(self.approved) - self._runs_not

    def barred(self, _project: str) -> frozenset[str]:
        """See Permits."""
        return frozenset()

    def reach(self, target: str, _project: str) -> frozenset[str]:
        """See Permits."""
        return self.readable() | {target}

    def may_send(
        self, site: str, origin: str, _pool: str, _project: str, _slots: int, _price: Tariff
    ) -> str:
        """See Permits."""
        may = site in self.approved and not {site, origin} & self._takes_not
        return "" if may else "it may not send anything here"


def roll_of(plan: SitePlan, boot: int) -> SimRoll:
    """Return the roll of one run of a site."""
    return SimRoll(
        plan.name,
        plan.others,
        boot,
        runs_not=plan.runs_not,
        takes_not=plan.takes_not,
        beyond=plan.beyond,
    )


class PlannedDirectory:
    """How sites are dialled in the simulated network; see gateway.sessions.links.Directory."""

    def __init__(self, host: SimHost, roll: SimRoll) -> None:
        self._host = host
        self._roll = roll

    def may_dial(self, site: str) -> bool:
        """Whether this gateway talks to a site."""
        return self._roll.may_dial(site)

    def addresses_of(self, site: str) -> tuple[str, ...]:
        """See Reachable."""
        return ()

    def hello(self) -> Hello:
        """Return this gateway's introduction."""
        return introduction.hello(self._roll)

    def credentials(self, site: str) -> Credentials:
        """Return the mutual proof of identity with a site."""
        return SiteCredentials(self._roll, site)

    def dial(self, site: str, _attempt: int, on_change: Callable[[], None]) -> Link:
        """Return a new link."""
        return self._host.ground.network.dial(self._host.name, site, on_change, SERVICE)


class SimPeers:
    """The network side of one run of a site; see gateway.peering.neighbours.Neighbours.

    Args:
        host: its host.
        registry: the identities of others.
        rules: the listener's rules.
        handles: the source of handles for peers.
        heard, link_news, heard_all: take news, as from gateway.peering.peers.
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
        self._heard = heard
        self._link_news = link_news
        self.registry = self.directory = registry
        self._is_looking = False
        self._port = host.ground.network.listen(host.name, self._changed, SERVICE)
        self.listener = SessionListener(
            self._port,
            replace(rules, site=registry.site, boot=registry.boot, secret=""),
            host.random_bytes,
            SiteCredentials(registry),
            handles,
        )
        self._driver = HostDriver(host)
        directory = PlannedDirectory(host, registry)
        self.links = PeerLinks(directory, LIMITS, self._driver, self._take_link, heard_all)
        self._driver.maintain(self.links)
        host.after(TICK_S, self._tick)

    def answer(self, peer: PeerSession, message: Any, *, urgent: bool = False) -> None:
        """Queue a message on a session that another site dialled."""
        if peer.handle in self.listener.peers:
            self.listener.post(peer, message, urgent=urgent)

    def expel(self, peer: PeerSession, reason: str) -> None:
        """End a session that another site dialled, and log the reason."""
        self._host.note("expels", f"{peer.name}: {reason}")
        self._take(self.listener.expel(peer, reason, self._host.mono_s()))

    def keep(self, sites: Iterable[str]) -> None:
        """Stay connected to these."""
        self.links.keep([site for site in sites if self.registry.may_dial(site)])

    def flush(self, mono_s: MonoS) -> None:
        """Send queued messages that may go now, both ways."""
        self.listener.flush(mono_s)
        self.links.flush(mono_s)

    def die(self) -> None:
        """End all links: the process died."""
        self._driver.die()

    # --- news ----------------------------------------------------------------------------------

    def _take_link(self, news: LinkNews) -> None:
        match news:
            case LinkUp(site, resumed):
                self._host.note("has a link", f"to {site}, {'resumed' if resumed else 'new'}")
            case LinkDown(site, reason):
                what = "hangs up" if "protocol error" in reason else "loses a link"
                self._host.note(what, f"to {site}: {reason}")
            case LinkSilent():
                return
        self._link_news(news)

    def _take(self, news: Iterable[News]) -> None:
        rest: list[News] = []
        for item in news:
            match item:
                case PeerTurnedAway(_, name, code, reason):
                    self._host.note("turns away", f"{name}: {code}: {reason}")
                    continue
                case PeerCameIn(peer):
                    self._host.note("is dialled", f"by {peer.name}")
                    rest += self.listener.expel_older(peer, self._host.mono_s())
                case PeerLeft(peer, reason):
                    what = "expels" if "protocol error" in reason else "is left"
                    self._host.note(what, f"by {peer.name}: {reason}")
            rest.append(item)
        if rest:
            self._heard(rest)

    # --- the loops -----------------------------------------------------------------------------

    def _changed(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._host.after(0.0, self._look)

    def _look(self) -> None:
        self._is_looking = False
        mono_s = self._host.mono_s()
        came = self._port.came()
        if came:
            self._take(self.listener.pipes_came(came, mono_s))
        gone = self._port.gone()
        if gone:
            self.listener.pipes_gone(gone, mono_s)
        for pipe, frame in self._port.receive():
            self._take(self.listener.receive(pipe, frame, mono_s))
        self.flush(mono_s)

    def _tick(self) -> None:
        self._host.after(TICK_S, self._tick)
        mono_s = self._host.mono_s()
        self._take(self.listener.tick(mono_s))
        self.flush(mono_s)
