"""The shared tools of the modules that keep the books with other sites."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from federation.clocks import UtcS
from federation.errors import GridError
from federation.messages.deals import Sealed
from gateway.config.books import BookRules
from gateway.ledger.accounting.older_books import OlderBooks
from gateway.ledger.db.contracts.records import ContractRow
from gateway.ledger.store.store import Store
from gateway.scheduler.model.effects import PeerSide

AHEAD_MAX_MS: Final = 3_600_000  # how far another site's clock may be ahead of ours in its bookings


class Post(Protocol):
    """Sends our messages to other sites."""

    def seal(self, site: str, message: Any) -> Sealed:
        """Sign a message for a site."""

    def carry(self, site: str, side: PeerSide, message: Any) -> None:
        """Queue a message for a site that is our buyer or seller in this matter."""

    def reach(self, site: str, message: Any) -> None:
        """Queue a message for a site, by any session; on a new one if there is none."""

    def flush(self) -> None:
        """Send the queued messages."""


class NoSuchEntry(GridError):
    """The books have no such entry; the text lists those that exist."""


@dataclass(frozen=True, slots=True)
class SettlementContext:
    """The books, the post and the clock.

    Attributes:
        read: asks the store something that takes time: Site.read.
        write: returns when records are on disk, with all earlier bookings: Site.harden.
        is_live: whether a contract that we buy is active, and so takes care of itself.
        is_partner: whether a site is one that we talk to.
        note_settled: notes the moment before which nothing of a side and site is booked any more,
            in ms.
        settled_ms: returns that moment.
        note_paid: notes that a site tells other payments than before.
        say: tells people.
        older: the sites whose books show that ours are an older copy.
    """

    rules: BookRules
    store: Store
    read: Callable[..., Awaitable[Any]]
    write: Callable[..., Awaitable[None]]
    post: Post
    is_live: Callable[[str], bool]
    is_partner: Callable[[str], bool]
    note_settled: Callable[[str, str, int], None]
    settled_ms: Callable[[str, str], int]
    utc_s: Callable[[], UtcS]
    say: Callable[[str], None]
    older: OlderBooks = field(default_factory=OlderBooks)
    note_paid: Callable[[str], None] = lambda _site: None

    @property
    def now_ms(self) -> int:
        """The time, in milliseconds since 1970."""
        return int(self.utc_s() * 1000)

    def tell(self, site: str, side: PeerSide, message: Any) -> bytes:
        """Send a signed message to a site, and return its envelope."""
        sealed = self.post.seal(site, message)
        self.post.carry(site, side, sealed)
        return sealed.envelope

    def reach(self, site: str, message: Any) -> None:
        """Send a signed message to a site, whether it is our buyer, our seller or both."""
        self.post.reach(site, self.post.seal(site, message))

    async def contract(self, side: str, contract: str, site: str = "") -> ContractRow | None:
        """Return a contract from the books, if it is with this site."""
        row: ContractRow | None = await self.read(self.store.contracts.get, side, contract)
        return row if row is not None and site in ("", row.site) else None
