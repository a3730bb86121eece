"""A member that sells: the gateway dials it, and more seldom after each breach."""

import random
import select
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from federation.sessions.nng import NngPort
from gateway.config.limits import ListenerLimits
from gateway.sessions.listener import (
    News,
    PeerCameIn,
    PeerLeft,
    PeerSaid,
    PeerSession,
    SessionListener,
)
from gateway.trust.identity_store import Registry
from gateway.trust.introduction import SiteCredentials
from tests.fuzz.members import SellerRole
from tests.fuzz.tally import Tally
from tests.fuzz.values import Level

MESSAGES_AT_ONCE: Final = (1, 20, 100, 300, 600)
ADVERT_EVERY_S: Final = 5.0
WAIT_S: Final = 0.01


class Stall:
    """Where the gateway comes to buy.

    Args:
        registry: our keys.
        site: the gateway's.
        port: the port at which it dials us.
        tally: the counters.
    """

    def __init__(self, registry: Registry, site: str, port: NngPort, tally: Tally) -> None:
        rules = ListenerLimits(site=registry.site, boot=registry.boot)
        self._listener = SessionListener(port, rules, credentials=SiteCredentials(registry))
        self._role = SellerRole(registry, site)
        self._port, self._tally = port, tally
        self._buyer: PeerSession | None = None
        self._under_way: deque[tuple[int, int]] = deque()  # frames, and their messages
        self._advert_s = -ADVERT_EVERY_S

    def go_on(self, chance: random.Random) -> None:
        """Read received messages, answer them, and send one more."""
        select.select([self._port.fileno()], [], [], WAIT_S)
        listener, now_s = self._listener, time.monotonic()
        self._take(listener.pipes_came(self._port.came(), now_s), chance)
        for pipe, frame in self._port.receive():
            self._take(listener.receive(pipe, frame, now_s), chance)
        listener.pipes_gone(self._port.gone(), now_s)
        self._take(listener.tick(now_s), chance)
        if self._buyer is not None:
            self._say(self._buyer, chance, now_s)
        listener.flush(now_s)

    def _say(self, buyer: PeerSession, chance: random.Random, now_s: float) -> None:
        while self._under_way and self._under_way[0][0] <= buyer.session.acknowledged:
            self._tally.heard += self._under_way.popleft()[1]
        if now_s - self._advert_s > ADVERT_EVERY_S:
            self._advert_s = now_s
            self._post([self._role.advert()])
        if buyer.session.has_room and not buyer.session.backlog_bytes:
            many = chance.choice(MESSAGES_AT_ONCE)
            self._post([self._role.say(chance, Level.TAME) for _ in range(many)])

    def _take(self, news: Iterable[News], chance: random.Random) -> None:
        for each in news:
            match each:
                case PeerCameIn(buyer):
                    self._buyer = buyer
                    self._tally.sessions += 1
                    self._under_way.clear()
                case PeerLeft(buyer, reason) if buyer is self._buyer:
                    self._tally.thrown_out[f"left: {reason[:40]}"] += 1
                    self._buyer = None
                case PeerSaid(_, message):
                    self._tally.answers[message.kind] += 1
                    for said in self._role.react(message, chance):
                        self._post([said])

    def _post(self, messages: list[bytes]) -> None:
        buyer = self._buyer
        if buyer is not None:
            for each in messages:
                buyer.session.post(each)
            self._tally.sent += len(messages)
            self._listener.release(buyer)
            self._under_way.append((buyer.session.sent + 1, len(messages)))
