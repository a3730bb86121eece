"""Members of a federation in one process: real keys, real sockets over tls+tcp, no command line."""

import contextlib
import itertools
import secrets
import time
from dataclasses import replace

import trio

from federation.errors import SessionRefused
from federation.sessions.handshake import Dialogue
from federation.sessions.nng import NngLink
from federation.signed.declarations import sign
from gateway.config.federation import FederationConfig
from gateway.config.limits import ListenerLimits
from gateway.config.site import SiteConfig
from gateway.peering.peers import Peers
from gateway.sessions.links import LinkDown, LinkSaid, LinkUp
from gateway.sessions.listener import PeerCameIn, PeerLeft, PeerSaid
from gateway.trust import book_file, introduction
from gateway.trust.book import TrustBook
from gateway.trust.identity_store import TRUST_FILE
from gateway.trust.introduction import SiteCredentials
from gateway.trust.invitations import Invitations
from gateway.trust.keys import KeyRing, create_keys, dialler_tls, make_generation

HERE = "tls+tcp://127.0.0.1:0"
SITES = ("london", "paris", "lyon", "essex")
RULES = ListenerLimits(heartbeat_s=0.5, grace_s=5.0)


async def until(condition, what="the condition"):
    """Wait until it holds."""
    with trio.move_on_after(200):
        while not condition():  # noqa: ASYNC110 - it may be anything
            await trio.sleep(0.005)
        return
    raise AssertionError(f"{what} did not come about")


class PeerSite:
    """A site with its peers, and the messages that it received."""

    def __init__(self, folder, site, **settings):
        self.site, self.folder = site, folder / site
        trust = self.folder / "federation"
        now_s = time.time()
        generation = make_generation(site, ["127.0.0.1"], now_s)
        card = KeyRing(generation).card(f"{site}-0a1b", site, (), "ops", now_s)
        book = TrustBook(sign(card, generation.key))
        trust.mkdir(parents=True, mode=0o700)
        book_file.save(trust / TRUST_FILE, book, Invitations())
        create_keys(trust, generation)
        table = FederationConfig(
            folder=str(trust), **{"listen": HERE, "join_listen": HERE, "idle_s": 3600.0, **settings}
        )
        self.config = SiteConfig(name=site, rules=RULES, state=str(self.folder), federation=table)
        self.news, self.link_news, self.lines = [], [], []
        self.peers = None

    @property
    def registry(self):
        return self.peers.registry

    async def stop(self):
        """The end of its life."""
        self._scope.cancel()
        await self._ended.wait()

    def settle_down(self):
        """Come back at the same addresses after a restart."""
        table = self.config.federation
        (listen,), join = self.peers.addresses, self.registry.join_address
        table = replace(table, listen=listen, join_listen=join)
        self.config = replace(self.config, federation=table)

    async def start(self, nursery):
        """A life of its gateway."""
        self.peers = Peers(
            self.config, itertools.count(1), self.news.extend, self.link_news.append, lambda: None,
            self.lines.append,
        )  # fmt: skip
        self._scope, self._ended = trio.CancelScope(), trio.Event()

        async def live(task_status):
            with self._scope:
                await self.peers.run(task_status=task_status)
            self._ended.set()

        await nursery.start(live)
        self.peers.keep(SITES)  # whoever of them may be dialled

    async def order(self, verb, **details):
        """As the operator's command would."""
        return await self.peers.order(verb, details)

    async def join(self, other):
        """Come in with an invitation of another."""
        invitation = (await other.order("invite"))["invitation"]
        return await self.order("join", invitation=invitation)

    async def approve(self, other):
        await self.order(
            "approve", site=other.site, fingerprint=other.registry.book.own.fingerprint
        )

    def level(self, other):
        return self.registry.level(other.site)

    def said_by(self, other):
        """The messages of a peer on the session that it dialled."""
        return [
            each.message
            for each in self.news
            if isinstance(each, PeerSaid) and each.peer.name == other.site
        ]

    def peer(self, other):
        """The session that another dialled."""
        return next(g for g in self.peers.listener.peers.values() if g.name == other.site)

    def meets(self, other):
        """Whether there is a session each way."""
        return other.site in self.peers.links.up and self.site in other.peers.links.up

    def told(self, text):
        return any(text in line for line in self.lines)

    def of(self, kind):
        news = self.link_news if kind in (LinkUp, LinkDown, LinkSaid) else self.news
        return [each for each in news if isinstance(each, kind)]


async def meet(*members):
    """All of them join the first, all approve each other, and have sessions each way."""
    first, *others = members
    for other in others:
        await other.join(first)
    for one, other in itertools.permutations(members, 2):
        await until(lambda: one.level(other) is not None, "the other's card")  # noqa: B023
        await one.approve(other)
    for one, other in itertools.combinations(members, 2):
        await until(lambda: one.meets(other), f"{one.site} and {other.site}")  # noqa: B023


@contextlib.asynccontextmanager
async def federation(folder, *sites, **settings):
    """Members that have not met."""
    members = [PeerSite(folder, site, **settings) for site in sites]
    async with trio.open_nursery() as nursery:
        for member in members:
            await member.start(nursery)
        yield members
        nursery.cancel_scope.cancel()


async def try_to_come_in(victim, attacker, hello=None, own=None):
    """Dial a site's port with an attacker's TLS leaf and any hello; the code of the refusal.

    None when the pipe never came up; else the opened content.
    """
    own = own or attacker.registry
    tls = dialler_tls(attacker.registry.folder, victim.site)
    link = NngLink(victim.peers.addresses[0], lambda: None, tls)
    try:
        dialogue = Dialogue(
            hello=hello or introduction.hello(own),
            credentials=SiteCredentials(own, victim.site),
            random_bytes=secrets.token_bytes,
        )
        with trio.move_on_after(100):
            while not link.is_up:
                if link.is_lost:
                    return None
                await trio.sleep(0.005)
            dialogue.connected(trio.current_time())
            while not link.is_lost:
                dialogue.flush(link.send, trio.current_time())
                await trio.sleep(0.005)
                for frame in link.receive():
                    opened = dialogue.receive(frame, trio.current_time())
                    if opened:
                        return opened[0]
    except SessionRefused as refusal:
        return refusal.code
    finally:
        link.close()
    return None


__all__ = ["LinkDown", "LinkSaid", "LinkUp", "PeerCameIn", "PeerLeft", "PeerSaid", "PeerSite"]
