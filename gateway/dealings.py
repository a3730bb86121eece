"""Carries what the exchange and the circle say to other gateways, and back what those say.

The buyer dials: what we say to our sellers goes over our links, what we say to our buyers over the
sessions by which they dialled us; gossip goes over either. What is about money travels sealed.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from federation import deals, payments, reconciliation, reserving, slices
from federation.errors import ProtocolError
from federation.messages import MESSAGES, Advert, GossipMessage, NeedFunction, PutFunction, Unknown
from gateway.circle import Circle
from gateway.effects import Side
from gateway.events import Event
from gateway.faults import describe_fault
from gateway.federation_config import FederationConfig
from gateway.links import LinkDown, LinkNews, LinkSaid, LinkUp
from gateway.lobby import CameIn, Guest, Left, News, Said
from gateway.neighbours import Neighbours
from gateway.reception import Reception
from gateway.surroundings import Surroundings

SEALED: Final = (
    *(*deals.SEALED, *reconciliation.SEALED, *reserving.SEALED),
    *(payments.Payments, *slices.SEALED),
)
# What a site may say of the books, by what it is to us.
ABOUT_BOOKS: Final = {
    Side.BUYER: (*reconciliation.FROM_BUYER, payments.Payments),
    Side.SELLER: (*reconciliation.FROM_SELLER, payments.Payments),
}
FOR_EXCHANGE: Final = (*deals.FROM_BUYER, *deals.FROM_SELLER, NeedFunction, *slices.SEALED)
# These overtake what waits: a lease that is renewed too late costs all that runs under it.
URGENT: Final = (deals.Renew, deals.Granted, deals.Settle)
KIND: Final = "deal"
SEALED_BYTES_MAX: Final = 1 << 20


class Books(Protocol):
    """Who compares our books with other sites'."""

    def hear(self, site: str, message: Any, envelope: bytes) -> None:
        """Take what a site says about them; ProtocolError when it breaks the rules."""

    def met(self, site: str) -> None:
        """A new session with a site is open."""


class Dealings:
    """A site's conversations with other sites about contracts.

    Args:
        peers: the network side of them; open by now.
        reception: who decides, and performs.
        say: tells people.
    """

    def __init__(
        self,
        peers: Neighbours,
        reception: Reception,
        surroundings: Surroundings,
        say: Callable[[str], None],
    ) -> None:
        self._peers = peers
        self._say = say
        self._reception = reception
        self._clock = surroundings
        self._guests: dict[str, Guest] = {}  # our buyers, by site
        self.books: Books | None = None
        self._kept: tuple[str, ...] = ()
        self._arrived: list[Event] = []  # functions, since we acted last
        reception.outbox.carrier = self
        federation = reception.config.federation or FederationConfig()
        self._queue_bytes = federation.queue_bytes
        self.circle = Circle(
            peers,
            reception.exchange,
            surroundings,
            carry=self.reach,
            say=say,
            shows=reception.config.shows,
            doors=federation.doors,
        )

    # --- what goes out -------------------------------------------------------------------------

    def carry(self, site: str, side: Side, message: Any) -> None:
        """See gateway.outbox.Carrier."""
        is_urgent = isinstance(message, URGENT)
        if isinstance(message, slices.SEALED):  # whoever dialled whom
            self.reach(site, self.seal(site, message))
            return
        if isinstance(message, (*deals.SEALED, *reserving.SEALED)):
            message = self.seal(site, message)
        if side is Side.SELLER:
            self._peers.links.post(site, message, urgent=is_urgent)
            return
        guest = self._guests.get(site)
        if guest is not None:  # otherwise what matters is said again when the buyer is back
            self._peers.answer(guest, message, urgent=is_urgent)

    def reach(self, site: str, message: Any) -> None:
        """Queue a message by whatever session there is; on a new one only if there is none."""
        guest = self._guests.get(site)
        if site not in self._peers.links.up and guest is not None:
            self._peers.answer(guest, message)
        elif self._peers.directory.may_dial(site):
            self._peers.links.post(site, message)

    def tick(self) -> None:
        """Time has passed."""
        self._watch_readers()
        self.circle.tick()
        self._keep()
        self.flush()

    def _watch_readers(self) -> None:
        """End the sessions of those who dialled us and leave too much of what we say unread.

        Results have a limit of their own (gateway.unsettled): a new session gets them all again.
        """
        for guest in list(self._guests.values()):
            unread = guest.session.backlog_bytes
            results = self._reception.exchange.sales.unsettled_bytes(guest.name)
            if unread > self._queue_bytes + results:
                limit = f"{self._queue_bytes:,}" + (f" and {results:,} of results" * bool(results))
                self._peers.expel(guest, f"{unread:,} bytes wait for it, over {limit}")

    def _keep(self) -> None:
        """Stay connected to whom we gossip with, to sellers, whose results come on our link, and to
        the owners of budgets that we spend from.
        """
        exchange = self._reception.exchange
        partners = {*exchange.purchases.sellers, *exchange.borrowing.owners}
        wanted = tuple(sorted({*self.circle.neighbours, *partners}))
        if wanted != self._kept:
            self._kept = wanted
            self._peers.keep(wanted)

    def seal(self, site: str, message: Any) -> deals.Sealed:
        """Sign a message for a site."""
        body = MESSAGES.encode(message)
        sealer = self._peers.registry.sealer
        return deals.Sealed(sealer.seal(KIND, site, body, self._clock.utc_s()))

    def flush(self) -> None:
        """Send what was said."""
        self._peers.flush(self._clock.now_s())

    # --- what comes in -------------------------------------------------------------------------

    def hear_peers(self, news: list[News]) -> None:
        """News of the sessions by which others dialled us."""
        for item in news:
            match item:
                case CameIn(guest):
                    self._guests[guest.name] = guest
                    self._reception.exchange.buyer_came(guest.name)
                    self._met(guest.name)
                    self.circle.met(guest.name)
                case Said(guest, message) if guest.name in self._guests:
                    self._hear_guest(guest, message)
                case Left(guest, _) if self._guests.get(guest.name) is guest:
                    del self._guests[guest.name]
                    if guest.name not in self._peers.links.up:
                        self.circle.unreachable(guest.name)
        arrived, self._arrived = self._arrived, []
        self._reception.act(arrived)  # once for them all: to act is to plan

    def _hear_guest(self, guest: Guest, message: Any) -> None:
        try:
            self._hear(guest.name, Side.BUYER, message, guest.handle)
        except ProtocolError as error:
            self._peers.expel(guest, f"protocol error: {error}")
        except Exception as error:  # noqa: BLE001 - no other site may end ours
            self._peers.expel(guest, self._fault(message, error))

    def hear_link(self, news: LinkNews) -> None:
        """News of the sessions by which we dialled others."""
        match news:
            case LinkUp(site, resumed):
                if not resumed:
                    self._reception.outbox.forget_site(site)
                    self._reception.exchange.reached(site)
                    self._met(site)
                    self.circle.met(site)
            case LinkSaid(site, message):
                try:
                    self._hear(site, Side.SELLER, message, 0)
                except ProtocolError as error:
                    self._peers.links.punish(site, f"protocol error: {error}")
                except Exception as error:  # noqa: BLE001 - no other site may end ours
                    self._peers.links.punish(site, self._fault(message, error))
            case LinkDown(site, is_idle=True):
                if site not in self._guests:
                    self.circle.parted(site)
            case LinkDown(site, reason):
                self._reception.exchange.unreachable(site, self._clock.utc_s(), reason)
                if site not in self._guests:
                    self.circle.unreachable(site)

    def _met(self, site: str) -> None:
        if self.books is not None:
            self.books.met(site)

    def _fault(self, message: Any, error: Exception) -> str:
        """Something of ours broke over a message: who sent it is not talked to any more."""
        self._say(describe_fault(f"{message.kind!r} of another site", error))
        return f"protocol error: {message.kind!r} that we can't take: {type(error).__name__}"

    def heard_all(self) -> None:
        """All news of what has come in on our sessions together was heard."""
        self._reception.act([])

    def _hear(self, site: str, side: Side, message: Any, sender: int) -> None:
        """Take what a site says, which is our buyer or our seller on this session."""
        envelope = b""
        if isinstance(message, deals.Sealed):
            envelope, message = message.envelope, self._open(site, message)
        elif isinstance(message, SEALED):
            raise ProtocolError(f"{message.kind!r} that nobody signed")
        match message:
            case Unknown():
                return
            case GossipMessage():
                self.circle.hear(site, message.body)
            case Advert():
                self.circle.hear_advert(site, message.envelope)
            case PutFunction() if side is Side.BUYER:
                self._arrived.append(self._reception.put_function(message, sender))
            case _ if isinstance(message, FOR_EXCHANGE):
                now_s, utc_s = self._clock.now_s(), self._clock.utc_s()
                self._reception.exchange.hear(site, side, message, now_s, utc_s)
            case reserving.Reserve() if side is Side.BUYER:
                self._reception.hear_reserve(site, message)
            case reserving.Reserved() if side is Side.SELLER:
                self._reception.hear_reserved(site, message)
            case _ if self.books is not None and isinstance(message, ABOUT_BOOKS[side]):
                self.books.hear(site, message, envelope)
            case _:
                raise ProtocolError(f"a gateway may not say {message.kind!r}")

    def _open(self, site: str, sealed: deals.Sealed) -> Any:
        opened = self._peers.registry.verifier.open(sealed.envelope, self._clock.utc_s())
        if opened.header.source != site or opened.header.kind != KIND:
            raise ProtocolError("sealed by another site, or as something else")
        message = MESSAGES.decode(opened.body, SEALED_BYTES_MAX)
        if not isinstance(message, SEALED):
            raise ProtocolError(f"{message.kind!r} does not travel sealed")
        return message
