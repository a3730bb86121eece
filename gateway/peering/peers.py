"""The site as a member of its federation: keys and trust, gateway ports, and sessions.

    Peers.run
    ├── Sessions.run     sessions dialled by others and by us       (gateway.sessions.peer_sessions)
    ├── JoinServer.run   invited sites                                 (gateway.peering.join_server)
    ├── _read, _write    declarations that others pass on: read in slices, written in batches
    └── _tick            key rotation, reopening of ports

Lasting signed declarations of sites (cards, expulsions, farewells, revocations) are exchanged when
a session opens, and passed on when they are news. All other messages are for the site: `heard` for
those that arrive at our port, `link_news` for those on our links.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import trio

from federation.clocks import MonoS
from federation.errors import GridError, ProtocolError
from federation.messages.messages import SignedDeclarations
from federation.messages.registry import GatewayMessage, Receiver
from federation.sessions.nng import NngPort
from federation.signed.declarations import Expulsion, parse
from federation.transport import TlsSettings
from gateway.base.clocks import mono_now, utc_now
from gateway.base.handlers import MessageHandler, handles
from gateway.config.federation import FederationConfig, shown
from gateway.config.site import SiteConfig
from gateway.ledger.accounting.older_books import OlderBooks
from gateway.peering import orders
from gateway.peering.directory import SiteDirectory, expelled_by
from gateway.peering.join_server import JoinServer
from gateway.runtime.making import Seat
from gateway.sessions.doorkeeper import Doorkeeper, keep_door
from gateway.sessions.driving import TrioLinks
from gateway.sessions.links import (
    ApprovalEnded,
    LinkDown,
    LinkLimits,
    LinkNews,
    LinkSaid,
    LinkSilent,
    LinkUp,
    PeerLinks,
)
from gateway.sessions.listener import News, PeerSession, SessionListener
from gateway.sessions.peer_sessions import TICK_S, PipeWatch, Sessions
from gateway.sessions.token_bucket import TokenBucket
from gateway.trust.card_rates import Reopening
from gateway.trust.dealing_partners import BookPermits
from gateway.trust.grant_signer import KeyGrantSigner
from gateway.trust.identity_store import WORDS_MAX, Registry, Word, pack_words, unpack_words
from gateway.trust.introduction import NO_CARDS, SiteCredentials
from gateway.trust.keys import hold
from gateway.trust.ticket_signer import TicketSigner
from gateway.trust.token_checker import TokenChecker

SLOW_TICKS: Final = 20
FAREWELL_S: Final = 2.0  # how long sessions stay open after our farewell, for delivery
UNREAD_MAX: Final = 2 * WORDS_MAX  # declarations of one site that wait to be read
SLICE_S: Final = 0.005  # how long declarations are read without a pause,
SLICE_EVERY_S: Final = 0.02  # and how long the pause is
WRITE_EVERY_S: Final = 1.0  # how often declarations signed by others are written to disk
LINES_PER_S: Final = 10.0  # for log lines that strangers can cause


class Peers(MessageHandler[[], None], receiver=Receiver.TRUST):
    """A site as a member of a federation.

    Args:
        config: the site's configuration; it has a [federation].
        handles: the source of peer numbers, shared with the clients' listener.
        heard: receives news of sessions that others dialled, peers of role "gateway".
        link_news: receives news of our links.
        heard_all: called after all news that arrived together on our sessions.
        say: tells people.
    """

    def __init__(
        self,
        config: SiteConfig,
        handles: Iterator[int],
        heard: Callable[[list[News]], None],
        link_news: Callable[[LinkNews], None],
        heard_all: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        assert config.federation is not None
        self._config = config
        self._settings: FederationConfig = config.federation
        self._handles = handles
        self._heard = heard
        self._link_news = link_news
        self._heard_all = heard_all
        self._say = say
        self.older_books = OlderBooks()
        self._reopening = Reopening()
        self._said_farewell_at_s = MonoS(-math.inf)
        self._wanted: tuple[str, ...] = ()
        self._approved: frozenset[str] = frozenset()  # when `_part` last looked
        self._ordering = trio.Lock()
        self._looked_at: set[str] = set()  # sites being probed
        self._judged: dict[str, str] = {}  # the last line about each probed site
        self._unread: dict[str, deque[Word]] = {}  # declarations that were passed on, by sender

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Lock the folder of keys, open the ports, and talk to others until cancelled.

        Raises:
            GridError: folder, keys or trust book can't be used, or an address.
        """
        settings = self._settings
        self._lines = TokenBucket(LINES_PER_S, mono_now())
        with hold(self._config.trust_path):
            self.registry = Registry(
                self._config.trust_path,
                follow=settings.follow,
                spread_s=settings.rotation_spread_s,
                overlap_s=settings.rotation_overlap_s,
                await_s=settings.rotation_await_s,
            )
            if self.registry.site != self._config.name:
                raise GridError(
                    f"the configuration names site {self._config.name!r}, but its keys are "
                    f"those of site {self.registry.site!r}"
                )
            self.registry.write_tls()
            self._watch = PipeWatch()
            port = self._port = NngPort(self._listen, self._watch.note, self._tls)
            join_server: JoinServer | None = None
            try:
                join_server = self._open_join_server() if settings.join_listen else None
                self._join_server = join_server
                self._doorkeeper = self._make_doorkeeper()
                self._begin_life()
                await self._serve(task_status)
            finally:
                port.close()
                write = self.registry.take_noted()
                if write is not None:
                    write()
                if join_server is not None:
                    join_server.port.close()

    @property
    def _listen(self) -> list[str]:
        return [self._settings.listen] if self._settings.listen else []

    @property
    def _tls(self) -> TlsSettings:
        folder = self.registry.folder
        return TlsSettings(str(folder / "leaf.pem"), str(folder / "pins.pem"))

    def _open_join_server(self) -> JoinServer:
        join_server = JoinServer(
            self._settings.join_listen,
            self.registry,
            strangers_max=self._settings.strangers,
            host_strangers_max=self._settings.host_strangers,
            handshakes_per_s=self._settings.handshakes_per_s,
            # A site can come again with its invitation, and a new card.
            changed=partial(self.trust_changed, by_others=True),
            say=self._say_often,
        )
        named = (self._settings.join_advertise,) if self._settings.join_advertise else ()
        (self.registry.join_address,) = shown(named, join_server.port.addresses)
        return join_server

    def _begin_life(self) -> None:
        registry, settings = self.registry, self._settings
        registry.addresses = shown(settings.advertise, self._port.addresses)
        registry.contact = settings.contact
        registry.begin_life()
        rules = replace(
            self._config.rules,
            site=registry.site,
            boot=registry.boot,
            secret="",
            sessions_max=settings.connections,
            strangers_max=settings.strangers,
            host_strangers_max=settings.host_strangers,
            handshakes_per_s=settings.handshakes_per_s,
            frames_per_s=settings.frames_per_s,
        )
        listener = SessionListener(
            self._port, rules, credentials=SiteCredentials(registry), handles=self._handles
        )
        self.directory = SiteDirectory(registry)
        limits = LinkLimits(
            settings.queue_bytes, settings.give_up_s, settings.idle_s, rules.message_bytes_max
        )
        dialled = TrioLinks(self.directory, limits, self._take_link, self._heard_all)
        self._sessions = Sessions(
            self._port,
            self._watch,
            listener,
            dialled,
            heard=self._heard,
            came_in=self._meet,
            stated=self.hear,
            say=self._say_often,
        )

    def _make_doorkeeper(self) -> Doorkeeper | None:
        ports = [self._port, *([self._join_server.port] if self._join_server else [])]
        settings = self._settings
        return keep_door(ports, most=settings.strangers, most_of_host=settings.host_strangers)

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._sessions.run)
            nursery.start_soon(self._tick)
            nursery.start_soon(self._read)
            nursery.start_soon(self._write)
            if self._join_server is not None:
                nursery.start_soon(self._join_server.run)
            self.trust_changed()
            task_status.started()

    # --- requests of the site ------------------------------------------------------------------

    @property
    def addresses(self) -> list[str]:
        """The addresses at which other gateways connect."""
        return self._port.addresses

    async def order(self, verb: str, details: Mapping[str, Any], by: str = "") -> Any:
        """Carry out an operator's order, one at a time; GridError when it can't be done.

        `by`: who gives it, for the log.
        """
        async with self._ordering:
            found = await orders.perform(self.registry, verb, details)
        line = orders.shown(verb, details, found, by)
        if line:
            self._say(line)
        self.trust_changed()
        return found

    @property
    def listener(self) -> SessionListener:
        """The sites that have dialled us."""
        return self._sessions.listener

    @property
    def links(self) -> PeerLinks:
        """The sessions that we dial."""
        return self._sessions.links

    @property
    def seat(self) -> Seat:
        """The site's seat in the federation."""
        registry = self.registry
        return Seat(
            registry.boot,
            BookPermits(registry, mono_now, self.older_books),
            self._handles,
            TokenChecker(
                lambda: registry.book,
                utc_now,
                lambda token: registry.tokens.is_cut_off(token),
                lambda token, host: registry.tokens.used(token, host, utc_now()),
            ),
            KeyGrantSigner(registry),
            TicketSigner(registry),
        )

    def answer(self, peer: PeerSession, message: Any, *, urgent: bool = False) -> None:
        """Queue a message on the session by which a site has dialled us."""
        self._sessions.answer(peer, message, urgent=urgent)

    def expel(self, peer: PeerSession, reason: str) -> None:
        """End a session that another site dialled, and tell people the reason."""
        self._say_often(f"{peer.name}: {reason}")
        self._sessions.expel(peer, reason)

    def flush(self, mono_s: MonoS) -> None:
        """Send as much as possible, in both directions."""
        self._sessions.flush(mono_s)

    def trust_changed(self, *, by_others: bool = False) -> None:
        """Act on changes of the trust book, and pass on the public ones to other sites.

        Call it after every change to the registry. For changes that other sites cause at will
        (`by_others`) the ports are opened anew at a limited rate.
        """
        news = self.registry.take_news()
        if news:
            self.tell_all(news)
        if self.registry.write_tls():
            self._reopening.want(urgent=not by_others)
        mono_s = mono_now()
        self.flush(mono_s)
        if self.registry.has_left and news:
            self._said_farewell_at_s = mono_s
        if mono_s - self._said_farewell_at_s > FAREWELL_S:
            self._part()
            self.links.keep(self._neighbours())
        self.flush(mono_s)

    def _part(self) -> None:
        """End the sessions with sites that are no longer approved."""
        registry = self.registry
        approved = frozenset(registry.approved)
        ended, self._approved = self._approved - approved, approved
        for site in sorted(ended):
            self._link_news(ApprovalEnded(site, self._why_not_approved(site)))
        if ended:
            self.flush(mono_now())  # the sites learn that contracts have ended, if they can
        for peer in list(self.listener.peers.values()):
            if peer.name not in approved:
                self._sessions.expel(peer, self._why_not_approved(peer.name))
        for site in self.links.sites:
            if site not in approved:
                self.links.drop(site, f"the site is {registry.level(site)} here")
            elif self.directory.has_moved(site):
                self.links.hurry(site)

    def _why_not_approved(self, site: str) -> str:
        if self.registry.has_left:
            return f"site {self.registry.site!r} has left"
        return f"site {site!r} is {self.registry.level(site) or 'unknown'} here"

    def tell_all(self, words: Iterable[Word]) -> None:
        """Pass declarations on to every site with a session."""
        message = pack_words(words)
        for peer in self.listener.peers.values():
            self.listener.post(peer, message)
        for site in self.links.up:
            self.links.post(site, message)

    def keep(self, sites: Iterable[str]) -> None:
        """Stay connected to these sites while they may be dialled."""
        self._wanted = tuple(sites)
        self.links.keep(self._neighbours())

    def _neighbours(self) -> list[str]:
        return [site for site in self._wanted if self.directory.may_dial(site)]

    # --- news ----------------------------------------------------------------------------------

    def _take_link(self, news: LinkNews) -> None:
        match news:
            case LinkSaid(site, GatewayMessage() as said) if said.row.to is Receiver.TRUST:
                self.hear(site, said)
                return
            case LinkUp(site, resumed):
                self._judged.pop(site, None)
                if not resumed:
                    self.links.post(site, pack_words(self.registry.words()))
                    self._say_often(f"link to {site} is up")
            case LinkDown(site, reason):
                if NO_CARDS in reason:
                    self._judged[site] = reason
                self._say_often(f"link to {site} is down: {reason}")
            case LinkSilent(site):
                self._look_at(site)
                return
        self._link_news(news)

    def key_problems(self) -> dict[str, str]:
        """Return why sites can't be met that answer, but show or know other keys; by site."""
        return {site: line for site, line in self._judged.items() if line}

    def _look_at(self, site: str) -> None:
        """Find out which keys a site's addresses show, with one probe of each site at a time."""
        if site not in self._looked_at and self.directory.may_dial(site):
            self._looked_at.add(site)
            self._nursery.start_soon(self._look, site)

    async def _look(self, site: str) -> None:
        leaf: bytes | None = None
        for look in self.directory.looks(site):
            leaf = await trio.to_thread.run_sync(look)
            if leaf is not None:
                break
        self._looked_at.discard(site)
        line = self.directory.judge(site, leaf)
        if line and line != self._judged.get(site):
            self._say_often(line)
        self._judged[site] = line
        if line:
            self.links.hurry(site)

    def _meet(self, peer: PeerSession) -> None:
        self.listener.post(peer, pack_words(self.registry.words()))
        self._say_often(f"site {peer.name} connected")

    @handles(SignedDeclarations)
    def _learn(self, source: str, said: SignedDeclarations) -> None:
        """Take the declarations that a site passes on: some at once, others later (`_read`)."""
        words = unpack_words(said)
        waiting = self._unread.setdefault(source, deque())
        if len(waiting) + len(words) > UNREAD_MAX:
            self._say_often(f"too many unread notices from {source}: {len(words):,} are dropped")
            return
        waiting += words
        if len(waiting) == len(
            words
        ):  # keeps the order: a card before the declarations signed with it
            self._read_slice(source)

    def _read_slice(self, source: str) -> None:
        """Read some of a site's declarations, for SLICE_S or to the end."""
        waiting = self._unread[source]
        until_s = time.monotonic() + SLICE_S
        refused: list[ProtocolError] = []
        while waiting:
            refused += self.registry.note([waiting.popleft()], source)
            if time.monotonic() >= until_s:
                break
        if not waiting:
            del self._unread[source]
        self._tell_refused(source, refused)
        for kind, raw in self.registry.news:
            if kind == "expulsion":
                self._tell_expulsion(raw)
        if self.registry.news:
            self.trust_changed(by_others=True)

    def _tell_refused(self, source: str, refused: Sequence[ProtocolError]) -> None:
        """Log the first of the declarations that were not believed."""
        if refused:
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            self._say_often(f"{source} passed on an invalid notice: {refused[0]}{more}")

    async def _read(self) -> None:
        """Read on, one site after another, and leave time for other work."""
        while True:
            await trio.sleep(SLICE_EVERY_S if self._unread else TICK_S)
            for source in list(self._unread):
                self._read_slice(source)
                await trio.sleep(SLICE_EVERY_S)

    async def _write(self) -> None:
        """Write declarations signed by others to disk, in batches and outside the loop."""
        while True:
            await trio.sleep(WRITE_EVERY_S)
            write = self.registry.take_noted()
            if write is not None:
                await trio.to_thread.run_sync(write)

    def _tell_expulsion(self, raw: bytes) -> None:
        """Report other sites' expulsions to our operator, who must judge them."""
        word = parse(Expulsion, raw).content
        us = self.registry.site
        if word.site == us and word.stands:
            self._say_often(expelled_by(word.by, us, word.reason))
            return
        site = "us" if word.site == us else word.site
        verb = "expels" if word.stands else "withdraws its expulsion of"
        self._say_often(f"{word.by} {verb} {site}: {word.reason or 'no reason given'}")

    def _say_often(self, line: str) -> None:
        """Tell people of events that others can cause at will, within a rate limit."""
        mono_s = mono_now()
        if self._lines.allows(mono_s):
            self._lines.note(mono_s)
            self._say(line)

    # --- periodic work -------------------------------------------------------------------------

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await trio.sleep(TICK_S)
            ticks += 1
            if ticks % SLOW_TICKS == 0:
                turned = self.registry.turn()
                if turned:
                    self._say(turned)
                    self.trust_changed()
                self._tell_refused("a site", self.registry.take_due())
                self.trust_changed(by_others=True)
                shut = await self._doorkeeper.look() if self._doorkeeper else 0
                if shut:
                    self._say_often(f"{shut} unauthenticated connections were closed")
            if self._reopening.is_due(mono_now()):
                self._reopen()

    def _reopen(self) -> None:
        """Listen anew, for new pins or a new leaf; sessions continue over new pipes."""
        try:
            if self._listen:
                self._port.reopen(self._tls)
            if self._join_server is not None:
                self._join_server.renew()
        except GridError as error:
            self._say_often(f"reopening the port failed and is retried: {error}")
            return
        self._reopening.opened(mono_now())


def open_federation(
    config: SiteConfig,
    handles: Iterator[int],
    heard: Callable[[list[News]], None],
    link_news: Callable[[LinkNews], None],
    heard_all: Callable[[], None],
    say: Callable[[str], None],
) -> Peers | None:
    """Return the federation side of a site that has keys; None for a single site. See Peers."""
    if config.federation is None:
        return None
    if not (config.trust_path / "current.pem").exists():
        say(
            f"site {config.name} is in no federation: no keys in {config.trust_path} (make "
            "them with gridfed init)"
        )
        return None
    return Peers(config, handles, heard, link_news, heard_all, say)
