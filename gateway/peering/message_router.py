"""Carries messages of the exchange and of gossip to other gateways, and their messages back.

The buyer dials: messages to our sellers use our links, messages to our buyers the sessions that
they dialled, and gossip uses either. Messages about money are sealed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, assert_never

from federation.errors import ProtocolError
from federation.messages.deals import Deliver, Sealed
from federation.messages.messages import MESSAGES, PutFunction, Unknown
from federation.messages.registry import FromEither, GatewayMessage, Receiver
from federation.messages.transferring import Receipts
from gateway.base.faults import describe_fault
from gateway.base.handlers import MessageHandler, handles
from gateway.config.federation import FederationConfig
from gateway.peering.fetch_order import FetchOrder
from gateway.peering.gossip_loop import GossipLoop
from gateway.peering.neighbours import Neighbours
from gateway.runtime.environment import RuntimeEnvironment
from gateway.runtime.server import GatewayServer
from gateway.scheduler.model.effects import PeerSide
from gateway.scheduler.model.events import Event
from gateway.sessions.links import ApprovalEnded, LinkDown, LinkNews, LinkSaid, LinkUp
from gateway.sessions.listener import News, PeerCameIn, PeerLeft, PeerSaid, PeerSession

KIND: Final = "deal"
SEALED_BYTES_MAX: Final = 1 << 20


class ObjectMover(Protocol):
    """The objects that move between this site and others."""

    @property
    def address(self) -> str:
        """The bulk port of this site, for its advert; empty: none."""

    def hear(self, sender: str, message: GatewayMessage) -> None:
        """Handle a message about them; ProtocolError when it breaks the rules."""

    def fetch_results(self, seller: str, delivery: Deliver) -> None:
        """Fetch results that a seller has kept, and pass the delivery on by `hear_later`."""


class ComparedBooks(Protocol):
    """The comparison of our books with other sites'."""

    def hear(self, site: str, message: GatewayMessage, envelope: bytes) -> None:
        """Handle a site's message about the books; ProtocolError when it breaks the rules."""

    def met(self, site: str) -> None:
        """Note that a new session with a site is open."""


class MessageRouter(MessageHandler[[int], None], receiver=Receiver.FUNCTIONS):
    """A site's conversations with other sites about contracts.

    Args:
        peers: the network side; open by now.
        server: decides on messages, and carries out effects.
        say: logs a line for people.
        open_books: makes the comparison of books, which sends by the router.
    """

    def __init__(
        self,
        peers: Neighbours,
        server: GatewayServer,
        runtime: RuntimeEnvironment,
        say: Callable[[str], None],
        open_books: Callable[["MessageRouter"], ComparedBooks],
    ) -> None:
        self._peers = peers
        self._say = say
        self._server = server
        self._clock = runtime
        self._buyers: dict[str, PeerSession] = {}  # our buyers, by site
        self._kept: tuple[str, ...] = ()
        self.transfers: ObjectMover | None = None  # set by the site
        self._fetched = FetchOrder()
        self._arrived: list[Event] = []  # functions, since the last call of `act`
        server.outbox.attach_peers(self)
        federation = server.config.federation or FederationConfig()
        self._queue_bytes = federation.queue_bytes
        self.gossip = GossipLoop(
            peers,
            server.exchange,
            runtime,
            carry=self.reach,
            say=say,
            shows=server.config.shows,
            doors=federation.doors,
            bulk=lambda: "" if self.transfers is None else self.transfers.address,
        )
        self._books = open_books(self)

    # --- sending -------------------------------------------------------------------------------

    def carry(self, site: str, side: PeerSide, message: GatewayMessage | Sealed) -> None:
        """See gateway.runtime.outbox.PeerSender."""
        row = message.row if isinstance(message, GatewayMessage) else None
        is_urgent = row is not None and row.urgent
        posted = self.seal(site, message) if row is not None and row.sealed else message
        # Receipts come ahead of the bill or the verdict that depends on them: on its session.
        if isinstance(message, FromEither) and not isinstance(message, Receipts):
            self.reach(site, posted)
        elif side is PeerSide.SELLER:
            self._peers.links.post(site, posted, urgent=is_urgent)
        elif site in self._buyers:  # else important messages are repeated when the buyer is back
            self._peers.answer(self._buyers[site], posted, urgent=is_urgent)

    def reach(self, site: str, message: Any) -> None:
        """Queue a message on any session with a site; on a new one only if there is none."""
        buyer = self._buyers.get(site)
        if site not in self._peers.links.up and buyer is not None:
            self._peers.answer(buyer, message)
        elif self._peers.directory.may_dial(site):
            self._peers.links.post(site, message)

    def tick(self) -> None:
        """Act on the passing of time."""
        self._watch_readers()
        self.gossip.tick()
        self._keep()
        self.flush()

    def _watch_readers(self) -> None:
        """End the sessions of buyers that leave too many messages of ours unread.

        Results have a limit of their own (gateway.contracts.selling.unsettled): a new session gets
        them all again.
        """
        for buyer in list(self._buyers.values()):
            unread = buyer.session.backlog_bytes
            results = self._server.exchange.sales.unsettled_bytes(buyer.name)
            if unread > self._queue_bytes + results:
                limit = f"{self._queue_bytes:,}" + (f" and {results:,} of results" * bool(results))
                self._peers.expel(
                    buyer, f"{unread:,} unread bytes are queued for it, over the limit of {limit}"
                )

    def _keep(self) -> None:
        """Stay connected to gossip neighbours, sellers and the owners of budgets that we use.

        Sellers send their results over our links.
        """
        exchange = self._server.exchange
        partners = {*exchange.purchases.sellers, *exchange.borrowing.owners}
        wanted = tuple(sorted({*self.gossip.neighbours, *partners}))
        if wanted != self._kept:
            self._kept = wanted
            self._peers.keep(wanted)

    def seal(self, site: str, message: Any) -> Sealed:
        """Sign a message for a site."""
        body = MESSAGES.encode(message)
        sealer = self._peers.registry.sealer
        return Sealed(sealer.seal(KIND, site, body, self._clock.utc_s()))

    def flush(self) -> None:
        """Send the queued messages."""
        self._peers.flush(self._clock.mono_s())

    # --- receiving -----------------------------------------------------------------------------

    def hear_peers(self, news: list[News]) -> None:
        """Handle news of the sessions that other sites dialled."""
        for item in news:
            match item:
                case PeerCameIn(buyer):
                    self._buyers[buyer.name] = buyer
                    self._server.exchange.buyer_came(buyer.name)
                    self._books.met(buyer.name)
                    self.gossip.met(buyer.name)
                case PeerSaid(buyer, message) if buyer.name in self._buyers:
                    self._hear_buyer(buyer, message)
                case PeerLeft(buyer, _) if self._buyers.get(buyer.name) is buyer:
                    del self._buyers[buyer.name]
                    if buyer.name not in self._peers.links.up:
                        self.gossip.unreachable(buyer.name)
        arrived, self._arrived = self._arrived, []
        self._server.act(arrived)  # once for all of them, as acting means planning

    def _hear_buyer(self, buyer: PeerSession, message: Any) -> None:
        try:
            self._hear(buyer.name, PeerSide.BUYER, message, buyer.handle)
        except ProtocolError as error:
            self._peers.expel(buyer, f"protocol error: {error}")
        except Exception as error:  # noqa: BLE001 - no other site may end ours
            self._peers.expel(buyer, self._fault(message, error))

    def hear_link(self, news: LinkNews) -> None:
        """Handle news of the sessions that we dialled."""
        match news:
            case LinkUp(site, resumed):
                if not resumed:
                    self._server.outbox.forget_site(site)
                    self._server.exchange.reached(site)
                    self._books.met(site)
                    self.gossip.met(site)
            case LinkSaid(site, message):
                try:
                    self._hear(site, PeerSide.SELLER, message, 0)
                except ProtocolError as error:
                    self._peers.links.punish(site, f"protocol error: {error}")
                except Exception as error:  # noqa: BLE001 - no other site may end ours
                    self._peers.links.punish(site, self._fault(message, error))
            case ApprovalEnded(site, reason):
                mono_s, utc_s = self._clock.mono_s(), self._clock.utc_s()
                self._server.exchange.approval_ended(site, reason, mono_s, utc_s)
                self._server.act([])
            case LinkDown(site, is_idle=True):
                if site not in self._buyers:
                    self.gossip.parted(site)
            case LinkDown(site, reason):
                self._server.exchange.unreachable(site, self._clock.utc_s(), reason)
                if site not in self._buyers:
                    self.gossip.unreachable(site)

    def _fault(self, message: Any, error: Exception) -> str:
        """Report a fault of ours over a message; the caller ends the session of its sender."""
        self._say(describe_fault(f"{message.kind!r} from another site", error))
        return (
            f"protocol error: {message.kind!r} that this gateway failed to handle: "
            f"{type(error).__name__}"
        )

    def heard_all(self) -> None:
        """Act, after all news that arrived together on our links has been handled."""
        self._server.act([])

    def _hear(  # noqa: C901 - one match
        self, site: str, side: PeerSide, message: Any, sender: int
    ) -> None:
        """Handle a message of a site, which is our buyer or our seller on this session."""
        envelope = b""
        if isinstance(message, Unknown):
            return
        if isinstance(message, Sealed):
            envelope, message = message.envelope, self._open(site, message)
        elif isinstance(message, GatewayMessage) and message.row.sealed:
            raise ProtocolError(f"{message.kind!r} must be signed")
        side.check(message)
        to: Receiver = message.row.to
        match to:
            case Receiver.GOSSIP:
                self.gossip.hear(site, message)
            case Receiver.FUNCTIONS:
                self.hear(site, message, sender)
            case Receiver.PURCHASES if self._waits(site, message):
                return
            case Receiver.SALES | Receiver.PURCHASES | Receiver.LENDING | Receiver.BORROWING:
                mono_s, utc_s = self._clock.mono_s(), self._clock.utc_s()
                self._server.kernel.hear(site, side, message, mono_s, utc_s)
            case Receiver.RESERVED_HERE:
                self._server.hear_reserve(site, message)
            case Receiver.RESERVED_THERE:
                self._server.hear_reserved(site, message)
            case Receiver.BOOKS:
                self._books.hear(site, message, envelope)
            case Receiver.OBJECTS:
                if self.transfers is not None:  # else this site moves none
                    self.transfers.hear(site, message)
            case Receiver.TRUST:  # peers take it
                raise ProtocolError(f"{message.kind!r} is not a message for this port")
            case _:
                assert_never(to)

    def _waits(self, site: str, message: GatewayMessage) -> bool:
        """Whether a delivery waits for the results that it has left at its seller.

        So does the end of a contract behind such a delivery.
        """
        if self.transfers is None:
            return False
        if not isinstance(message, Deliver) or not message.left:
            return self._fetched.waits(site, message)
        if not self._server.exchange.purchases.is_due(site, message):
            return False  # it is handled at once, and counts for nothing
        if self._fetched.begin(site, message):
            self._server.exchange.purchases.fetching(site, message, on=True)
            self.transfers.fetch_results(site, message)
        return True

    def hear_later(self, site: str, delivery: Deliver) -> None:
        """Handle a delivery that has waited, as if its seller had sent it now.

        What waited for it comes after it: the end of its contract, and the bill.
        """
        self._waited(site, delivery, partial(self._hear_late, site, delivery))

    def refuse_later(self, site: str, delivery: Deliver, why: str) -> None:
        """Refuse a delivery that has waited for results that its seller does not give."""
        self._waited(site, delivery, partial(self._refuse, site, delivery, why))

    def _waited(self, site: str, delivery: Deliver, end: Callable[[], None]) -> None:
        self._guarded(site, delivery, end)
        self._server.exchange.purchases.fetching(site, delivery, on=False)
        self._server.act([])  # the broker counts the delivery before the contract may end
        due = self._fetched.end(site, delivery)
        for message in due:
            self._guarded(site, message, partial(self._hear_late, site, message))
        if due:
            self._server.act([])

    def _hear_late(self, site: str, message: GatewayMessage) -> None:
        mono_s, utc_s = self._clock.mono_s(), self._clock.utc_s()
        self._server.kernel.hear(site, PeerSide.SELLER, message, mono_s, utc_s)

    def _refuse(self, site: str, delivery: Deliver, why: str) -> None:
        mono_s, utc_s = self._clock.mono_s(), self._clock.utc_s()
        self._server.exchange.purchases.refuse(site, delivery, why, mono_s, utc_s)

    def _guarded(self, site: str, message: GatewayMessage, handle: Callable[[], None]) -> None:
        """Handle a message of a seller that has waited."""
        try:
            handle()
        except ProtocolError as error:
            self._peers.links.punish(site, f"protocol error: {error}")
        except Exception as error:  # noqa: BLE001 - no other site may end ours
            self._peers.links.punish(site, self._fault(message, error))

    @handles(PutFunction)
    def _put_function(self, _: str, message: PutFunction, sender: int) -> None:
        self._arrived.append(self._server.put_function(message, sender))

    def _open(self, site: str, sealed: Sealed) -> GatewayMessage:
        opened = self._peers.registry.verifier.open(sealed.envelope, self._clock.utc_s())
        if opened.header.source != site or opened.header.kind != KIND:
            raise ProtocolError("the envelope is of another site, or of another kind")
        message = MESSAGES.decode(opened.body, SEALED_BYTES_MAX)
        if not isinstance(message, GatewayMessage) or not message.row.sealed:
            raise ProtocolError(f"{message.kind!r} must not be sealed")
        return message
