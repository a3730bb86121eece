"""What those who keep the books with other sites work with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from federation.deals import Sealed
from federation.errors import GridError
from gateway.books_rules import BookRules
from gateway.effects import Side
from gateway.ledger.rows import ContractRow
from gateway.ledger.store import Store
from gateway.older_books import OlderBooks

AHEAD_MAX_MS: Final = 3_600_000  # that another's clock may be ahead of ours in what it books


class Post(Protocol):
    """What takes what we say to other sites."""

    def seal(self, site: str, message: Any) -> Sealed:
        """Sign a message for a site."""

    def carry(self, site: str, side: Side, message: Any) -> None:
        """Queue a message for a site, which is our buyer or our seller in this."""

    def reach(self, site: str, message: Any) -> None:
        """Queue a message for a site, by whatever session there is; on a new one if none is."""

    def flush(self) -> None:
        """Send what was queued."""


class NoSuchEntry(GridError):
    """Nothing of that kind is in the books; the text says what there is."""


@dataclass(frozen=True, slots=True)
class Office:
    """The books, the post and the clock.

    Attributes:
        read: asks the store something that takes time: Site.read.
        write: returns when records are on the disk, and all that was booked before: Site.harden.
        is_live: whether a contract that we buy goes on, and so takes care of itself.
        is_partner: whether a site is one that we talk to.
        note_settled: nothing of a side and site is booked before a moment any more, in ms.
        settled_ms: that moment.
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
    utc_s: Callable[[], float]
    say: Callable[[str], None]
    older: OlderBooks = field(default_factory=OlderBooks)

    @property
    def now_ms(self) -> int:
        """The time, in milliseconds since 1970."""
        return int(self.utc_s() * 1000)

    def tell(self, site: str, side: Side, message: Any) -> bytes:
        """Say something signed; the envelope."""
        sealed = self.post.seal(site, message)
        self.post.carry(site, side, sealed)
        return sealed.envelope

    def reach(self, site: str, message: Any) -> None:
        """Say something signed to a site, whether it is our buyer, our seller or both."""
        self.post.reach(site, self.post.seal(site, message))

    async def contract(self, side: str, contract: str, site: str = "") -> ContractRow | None:
        """A contract of the books, if it is with this site."""
        row: ContractRow | None = await self.read(self.store.contract, side, contract)
        return row if row is not None and site in ("", row.site) else None
