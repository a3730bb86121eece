"""This site among others: its port and lobby for their gateways, its links to them, its trust.

    Peers.run
    ├── Links.run        the sessions that we dial                     (gateway.links)
    ├── _receive         frames of the sessions that others dialled    (gateway.lobby)
    ├── _watch_pipes
    ├── Entrance.run     who was invited                               (gateway.entrance)
    └── _tick            heartbeats, rotation of keys, a port to be opened anew

Between two sites there may be a session each way, each by itself: who wants something dials, and
is answered where it asked. What sites have signed for good (cards, expulsions, farewells,
revocations) is exchanged when a session opens, and passed on when it is news; the rest of what
gateways say to each other is for the site: `heard` for what comes in by our port, `link_news` for
what comes back on our links.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import trio

from federation.errors import GridError
from federation.messages import Statements
from federation.nng import NngPort
from federation.transport import TlsSettings
from gateway import orders
from gateway.config import SiteConfig
from gateway.directory import SiteDirectory
from gateway.doorkeeper import Doorkeeper
from gateway.entrance import Entrance
from gateway.federation_config import FederationConfig, shown
from gateway.introduction import SiteCredentials
from gateway.keys import hold
from gateway.links import LinkDown, LinkLimits, LinkNews, Links, LinkSaid, LinkUp
from gateway.lobby import GREETING_MAX_S, CameIn, Guest, Left, Lobby, News, Said, TurnedAway
from gateway.pace import Pace
from gateway.registry import Registry, Word, pack_words, unpack_words

TICK_S: Final = 0.05
SLOW_TICKS: Final = 20
FAREWELL_S: Final = 2.0  # sessions stay so long after our farewell, that it gets out
LINES_PER_S: Final = 10.0  # for the log, of what strangers can cause


class Peers:
    """What a site does as a member of a federation.

    Args:
        config: of the site; it has a [federation].
        handles: where the numbers of guests come from, shared with the clients' lobby.
        heard: takes news of the sessions that others dialled, guests of role "gateway".
        link_news: takes news of ours.
        heard_all: called when all news of what has come in on our sessions together was told.
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
        self._knobs: FederationConfig = config.federation
        self._handles = handles
        self._heard = heard
        self._link_news = link_news
        self._heard_all = heard_all
        self._say = say
        self._is_stale = False  # the ports show or believe what is not so any more
        self._said_farewell_s = -math.inf
        self._wanted: tuple[str, ...] = ()
        self._ordering = trio.Lock()
        self._pipes_changed = trio.Event()

    @staticmethod
    def exists(config: SiteConfig) -> bool:
        """Whether the site is a member of a federation, or single."""
        return config.federation is not None and (config.trust_path / "current.pem").exists()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Hold the folder of keys, open the ports, and talk to others until cancelled.

        Raises:
            GridError: folder, keys or trust book can't be used, or an address.
        """
        knobs = self._knobs
        self._token = trio.lowlevel.current_trio_token()
        self._lines = Pace(LINES_PER_S, trio.current_time())
        with hold(self._config.trust_path):
            self.registry = Registry(
                self._config.trust_path,
                follow=knobs.follow,
                spread_s=knobs.rotation_spread_s,
                overlap_s=knobs.rotation_overlap_s,
            )
            if self.registry.site != self._config.name:
                raise GridError(
                    f"the configuration says site {self._config.name!r}, and its keys are those "
                    f"of {self.registry.site!r}"
                )
            self.registry.write_tls()
            port = self._port = NngPort(self._listen, self._on_pipe_change, self._tls)
            entrance: Entrance | None = None
            try:
                entrance = self._open_entrance() if knobs.join_listen else None
                self._entrance = entrance
                self._doorkeeper = self._make_doorkeeper()
                self._begin_life()
                await self._serve(task_status)
            finally:
                port.close()
                if entrance is not None:
                    entrance.port.close()

    @property
    def _listen(self) -> list[str]:
        return [self._knobs.listen] if self._knobs.listen else []

    @property
    def _tls(self) -> TlsSettings:
        folder = self.registry.folder
        return TlsSettings(str(folder / "leaf.pem"), str(folder / "pins.pem"))

    def _open_entrance(self) -> Entrance:
        entrance = Entrance(
            self._knobs.join_listen,
            self.registry,
            strangers_max=self._knobs.strangers,
            handshakes_per_s=self._knobs.handshakes_per_s,
            changed=self.trust_changed,
            say=self._say_often,
        )
        named = (self._knobs.join_advertise,) if self._knobs.join_advertise else ()
        (self.registry.join_address,) = shown(named, entrance.port.addresses)
        return entrance

    def _begin_life(self) -> None:
        registry, knobs = self.registry, self._knobs
        registry.addresses = shown(knobs.advertise, self._port.addresses)
        registry.contact = knobs.contact
        registry.begin_life()
        rules = replace(
            self._config.rules,
            site=registry.site,
            boot=registry.boot,
            secret="",
            guests_max=knobs.connections,
            strangers_max=knobs.strangers,
            handshakes_per_s=knobs.handshakes_per_s,
            frames_per_s=knobs.frames_per_s,
        )
        self.lobby = Lobby(
            self._port, rules, credentials=SiteCredentials(registry), handles=self._handles
        )
        self.directory = SiteDirectory(registry)
        limits = LinkLimits(knobs.queue_bytes, knobs.give_up_s, knobs.idle_s)
        self.links = Links(self.directory, limits, self._take_link, self._heard_all)

    def _make_doorkeeper(self) -> Doorkeeper:
        ports = [self._port, *([self._entrance.port] if self._entrance else [])]
        addresses = [address for port in ports for address in port.addresses]
        return Doorkeeper(
            [int(address.rpartition(":")[2]) for address in addresses],
            lambda: [remote for port in ports for remote in port.remotes()],
            patience_s=GREETING_MAX_S,
            most=self._knobs.strangers,
        )

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.links.run)
            nursery.start_soon(self._receive)
            nursery.start_soon(self._watch_pipes)
            nursery.start_soon(self._tick)
            if self._entrance is not None:
                nursery.start_soon(self._entrance.run)
            self.trust_changed()
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self.lobby.goodbye("the gateway stops", trio.current_time())
                with trio.CancelScope(shield=True):  # it has an end of its own
                    await self.links.goodbye("the gateway stops")

    # --- what the site asks for ----------------------------------------------------------------

    @property
    def addresses(self) -> list[str]:
        """Where other gateways come in."""
        return self._port.addresses

    async def order(self, verb: str, details: Mapping[str, Any]) -> Any:
        """Carry out an order of our operator's, one at a time; GridError when it can't be done."""
        async with self._ordering:
            found = await orders.perform(self.registry, verb, details)
        self.trust_changed()
        return found

    def answer(self, guest: Guest, message: Any, *, urgent: bool = False) -> None:
        """Queue a message on the session by which a site has dialled us."""
        if guest.handle in self.lobby.guests:
            self.lobby.post(guest, message, urgent=urgent)

    def expel(self, guest: Guest, reason: str) -> None:
        """End a session that another site dialled: it broke the protocol."""
        self._say_often(f"{guest.name}: {reason}")
        self._take(self.lobby.expel(guest, reason, trio.current_time()))

    def flush(self, now_s: float) -> None:
        """Send what may go now, both ways."""
        self.lobby.flush(now_s)
        self.links.flush(now_s)

    def trust_changed(self) -> None:
        """The trust book says something new: act on it, and tell the others what they may know.

        To be called after whatever was done to the registry.
        """
        news = self.registry.take_news()
        if news:
            self.tell_all(news)
        if self.registry.write_tls():
            self._is_stale = True
        now_s = trio.current_time()
        self.flush(now_s)
        if self.registry.has_left and news:
            self._said_farewell_s = now_s
        if now_s - self._said_farewell_s > FAREWELL_S:
            self._part()
            self.links.keep(self._neighbours())
        self.flush(now_s)

    def _part(self) -> None:
        """End the sessions with sites that are not approved any more."""
        registry = self.registry
        approved = set(registry.approved)
        for guest in list(self.lobby.guests.values()):
            if guest.name not in approved:
                reason = f"site {guest.name!r} is {registry.level(guest.name)} here"
                if registry.has_left:
                    reason = f"site {registry.site!r} has left"
                self._take(self.lobby.expel(guest, reason, trio.current_time()))
        for site in self.links.sites:
            if site not in approved:
                self.links.drop(site, f"the site is {registry.level(site)} here")
            elif self.directory.has_moved(site):
                self.links.hurry(site)

    def tell_all(self, words: Iterable[Word]) -> None:
        """Pass statements on to every site with a session."""
        message = pack_words(words)
        for guest in self.lobby.guests.values():
            self.lobby.post(guest, message)
        for site in self.links.up:
            self.links.post(site, message)

    def keep(self, sites: Iterable[str]) -> None:
        """Stay connected to these, as long as they may be dialled."""
        self._wanted = tuple(sites)
        self.links.keep(self._neighbours())

    def _neighbours(self) -> list[str]:
        return [site for site in self._wanted if self.directory.may_dial(site)]

    # --- news ----------------------------------------------------------------------------------

    def _take_link(self, news: LinkNews) -> None:
        match news:
            case LinkSaid(site, Statements() as said):
                self._learn(site, said)
                return
            case LinkUp(site, resumed):
                if not resumed:
                    self.links.post(site, pack_words(self.registry.words()))
                    self._say(f"link to {site} is up")
            case LinkDown(site, reason):
                self._say_often(f"link to {site} is down: {reason}")
        self._link_news(news)

    def _take(self, news: Iterable[News]) -> None:
        rest: list[News] = []
        for item in news:
            match item:
                case Said(guest, Statements() as said):
                    self._learn(guest.name, said)
                case TurnedAway(role, name, code, reason):
                    who = f"{role} {name!r}" if role else "a stranger"
                    self._say_often(f"{who} was turned away: {code}: {reason}")
                case CameIn(guest):
                    rest += self._meet(guest)
                    rest.append(item)
                case Left(guest, reason):
                    self._say_often(f"{guest.name} has gone: {reason}")
                    rest.append(item)
                case _:
                    rest.append(item)
        if rest:
            self._heard(rest)

    def _meet(self, guest: Guest) -> list[News]:
        """A site has come in: its last session, if it had one, is over."""
        gone: list[News] = []
        for other in list(self.lobby.guests.values()):
            if other.name == guest.name and other is not guest:
                gone += self.lobby.expel(other, "it has begun a new session", trio.current_time())
        self.lobby.post(guest, pack_words(self.registry.words()))
        self._say(f"{guest.name} has come in")
        return gone

    def _learn(self, source: str, said: Statements) -> None:
        for error in self.registry.note(unpack_words(said)):
            self._say_often(f"{source} passed on what is not believed: {error}")
        if self.registry.news:
            self.trust_changed()

    def _say_often(self, line: str) -> None:
        """Tell people of what others can cause as often as they like: not all of it."""
        now_s = trio.current_time()
        if self._lines.allows(now_s):
            self._lines.note(now_s)
            self._say(line)

    # --- the loops -----------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._port.fileno())
            now_s = trio.current_time()
            news: list[News] = []
            for pipe, frame in self._port.receive():
                news += self.lobby.receive(pipe, frame, now_s)
            self._take(news)
            self.flush(now_s)

    async def _watch_pipes(self) -> None:
        while True:
            await self._pipes_changed.wait()
            self._pipes_changed = trio.Event()
            now_s = trio.current_time()
            self._take(self.lobby.pipes_came(self._port.came(), now_s))
            self.lobby.pipes_gone(self._port.gone(), now_s)

    def _on_pipe_change(self) -> None:
        try:
            self._token.run_sync_soon(lambda: self._pipes_changed.set(), idempotent=True)
        except trio.RunFinishedError:
            return

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await trio.sleep(TICK_S)
            ticks += 1
            self._take(self.lobby.tick(trio.current_time()))
            if ticks % SLOW_TICKS == 0:
                if self.registry.turn():
                    self._say("the new keys have taken the place of the old")
                self.trust_changed()
                shut = self._doorkeeper.look(trio.current_time())
                if shut:
                    self._say_often(f"{shut} connections that did not prove who they are were shut")
            if self._is_stale:
                self._reopen()
            self.flush(trio.current_time())

    def _reopen(self) -> None:
        """Listen anew, for new pins or a new leaf; sessions go on over new pipes."""
        try:
            if self._listen:
                self._port.reopen(self._tls)
            if self._entrance is not None:
                self._entrance.port.reopen(self._entrance.tls)
        except GridError as error:
            self._say_often(f"the port could not be opened anew, and is tried again: {error}")
            return
        self._is_stale = False
