"""London's dealings with other sites, without a network."""

from types import SimpleNamespace

from support.pure.town import UTC_S, dear_and_cheap

from federation.sessions.session import Session
from gateway.config.federation import FederationConfig
from gateway.peering.message_router import MessageRouter
from gateway.runtime.environment import RuntimeEnvironment
from gateway.scheduler.model.events import FunctionArrived
from gateway.sessions.listener import PeerCameIn, PeerLeft, PeerSession
from gateway.sessions.token_bucket import TokenBucket
from simulations.world.peers import SimRoll


class LoneRouter:
    """London's message router; `kept` has the sites to which it keeps a link."""

    def __init__(self) -> None:
        self.town = dear_and_cheap()
        self.london = self.town.sites["london"]
        self.kept: list[str] = []
        self.expelled: list[str] = []
        self.said: list[tuple[str, object]] = []
        self.acted: list[object] = []
        peers = SimpleNamespace(
            registry=SimRoll("london", ["paris"], 1),
            links=SimpleNamespace(up=[], post=self._post),
            directory=SimpleNamespace(may_dial=lambda site: True),
            keep=lambda sites: setattr(self, "kept", list(sites)),
            flush=lambda now_s: None,
            answer=lambda peer, message, *, urgent=False: self._post(peer.name, message),
            expel=self._expel,
        )
        server = SimpleNamespace(
            kernel=self.london.kernel,
            exchange=self.london.exchange,
            outbox=SimpleNamespace(attach_peers=lambda peers: None, forget_site=lambda site: None),
            config=SimpleNamespace(federation=FederationConfig(queue_bytes=10_000), shows=()),
            act=self.acted.append,
            put_function=lambda message, sender: FunctionArrived(message.digest),
        )
        clock = RuntimeEnvironment(lambda: self.town.now_s, lambda: UTC_S + self.town.now_s, bytes)
        self.books = SimpleNamespace(hear=lambda *_: None, met=lambda _site: None)
        self.router = MessageRouter(peers, server, clock, print, lambda _router: self.books)  # type: ignore[arg-type]

    def _post(self, site: str, message: object, *, urgent: bool = False) -> None:
        self.said.append((site, message))

    def meet(self, site: str) -> PeerSession:
        """A site dials us, and reads nothing."""
        session = Session(window=1, peer_window=1, numbers_acks=True, message_bytes_max=1 << 20)
        peer = PeerSession(
            1, "gateway", site, "", {}, "1", session, 1, 0.0, 0.0, 0.0, TokenBucket(0, 0.0)
        )
        self.router.hear_peers([PeerCameIn(peer)])
        return peer

    def _expel(self, peer: PeerSession, reason: str) -> None:
        self.expelled.append(f"{peer.name}: {reason}")
        self.router.hear_peers([PeerLeft(peer, reason)])
