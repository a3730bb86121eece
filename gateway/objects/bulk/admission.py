"""Who may use the bulk port, and how much: connections, streams, bytes. Pure.

A connection is a *stranger* until it has shown a ticket. Strangers have a share of the connections:
when that is full, the oldest gives way, so that idle ones shut nobody out. Of those with a ticket
no site and no user of one has more than a share.
"""

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from federation.clocks import UtcS
from federation.signed.transfers import TransferTicket

STRANGERS_MAX: Final = 32
STREAMS_MAX: Final = 64
SITE_STREAMS_MAX: Final = 32  # of one site …
USER_STREAMS_MAX: Final = 16  # … and of one of its users
TICKET_STREAMS_MAX: Final = 8
TIMES_MAX: Final = 4  # how often one ticket may fetch its object, as after a loss

PULLS_MAX: Final = 16
SITE_PULLS_MAX: Final = 8  # from one site …
USER_PULLS_MAX: Final = 4  # … and for one user of its objects

StreamT = TypeVar("StreamT", bound=Hashable)
PullT = TypeVar("PullT")


class StreamAdmission(Generic[StreamT]):
    """The connections to the bulk port."""

    def __init__(self) -> None:
        self._strangers: dict[StreamT, None] = {}  # the oldest first
        self._tickets: dict[StreamT, TransferTicket] = {}
        self._sent_bytes: Counter[str] = Counter()  # by ticket
        self._expires: deque[tuple[UtcS, str]] = deque()
        self._cut: dict[str, tuple[str, UtcS]] = {}

    def arrived(self, stream: StreamT) -> StreamT | None:
        """Take a connection; return the one that is to be closed for it, or None."""
        self._strangers[stream] = None
        if len(self._strangers) <= STRANGERS_MAX:
            return None
        oldest = next(iter(self._strangers))
        del self._strangers[oldest]
        return oldest

    def why_not(self, stream: StreamT, ticket: TransferTicket) -> str:
        """Take a stream with a good ticket; return why not, or an empty text."""
        if stream not in self._strangers:
            return "too many connections wait to show their ticket"
        reason, cut_at_s = self._cut.get(ticket.to, ("", UtcS(0.0)))
        if reason and ticket.issued_s <= cut_at_s:
            return reason
        known = self._tickets.values()
        counts = (
            ("the bulk port", len(self._tickets), STREAMS_MAX),
            (f"site {ticket.to}", sum(e.to == ticket.to for e in known), SITE_STREAMS_MAX),
            (f"user {ticket.user}", sum(_who(e) == _who(ticket) for e in known), USER_STREAMS_MAX),
            ("this ticket", sum(e.id == ticket.id for e in known), TICKET_STREAMS_MAX),
        )
        for whose, number, most in counts:
            if number >= most:
                return f"{whose} has {number} streams already, the limit is {most}: try again later"
        if self._sent_bytes[ticket.id] >= TIMES_MAX * ticket.size:
            return f"the ticket has fetched its object {TIMES_MAX} times: ask for another one"
        del self._strangers[stream]
        self._tickets[stream] = ticket
        return ""

    def sent(self, stream: StreamT, sent_bytes: int) -> bool:
        """Count the bytes of a block; return whether its ticket may have more."""
        ticket = self._tickets.get(stream)
        if ticket is None:
            return False
        if ticket.id not in self._sent_bytes:
            self._expires.append((ticket.expires_s, ticket.id))
        self._sent_bytes[ticket.id] += sent_bytes
        return self._sent_bytes[ticket.id] <= TIMES_MAX * ticket.size

    def left(self, stream: StreamT) -> None:
        """Forget a connection."""
        self._strangers.pop(stream, None)
        self._tickets.pop(stream, None)

    def cut(self, site: str, reason: str, at_s: UtcS) -> list[StreamT]:
        """Take no ticket of a site that was given before; return the streams to be closed."""
        self._cut[site] = reason, at_s
        return [stream for stream, ticket in self._tickets.items() if ticket.to == site]

    def tidy(self, utc_s: UtcS) -> None:
        """Forget what tickets have fetched that have expired, unless a stream goes on."""
        open_ones = {each.id for each in self._tickets.values()}
        for _ in range(len(self._expires)):
            expires_s, ticket = self._expires.popleft()
            if expires_s <= utc_s and ticket not in open_ones:
                del self._sent_bytes[ticket]
            else:
                self._expires.append((expires_s, ticket))


def _who(ticket: TransferTicket) -> tuple[str, str]:
    return ticket.to, ticket.user


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[PullT]):
    site: str
    user: str
    size: int
    pull: PullT


class PullQueue(Generic[PullT]):
    """The order in which objects are fetched: a site or a user with many leaves room for others.

    Users are told apart within their site alone, as each site names its own. An object has its
    whole size in memory from its first byte on, and that of all under way together is bounded. What
    one site sends has half of that, or is one object.

    Args:
        bytes_max: the memory for all; an object larger than that comes alone.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes: Counter[str] = Counter()  # under way, by site
        self._waiting: deque[_Waiting[PullT]] = deque()
        self._of_site: Counter[str] = Counter()  # under way
        self._of_user: Counter[tuple[str, str]] = Counter()  # likewise, by site and user

    def add(self, site: str, user: str, size: int, pull: PullT) -> None:
        """Queue one, of an object of so many bytes that comes from this site."""
        self._waiting.append(_Waiting(site, user, size, pull))

    def begin(self) -> list[PullT]:
        """Return those that are to begin now."""
        found: list[PullT] = []
        wait_for_memory: set[str] = set()  # sites: what comes after would shut the first out
        for each in list(self._waiting):
            if self._of_site.total() >= PULLS_MAX:
                break
            who = each.site, each.user
            has_share = (
                self._of_site[each.site] < SITE_PULLS_MAX and self._of_user[who] < USER_PULLS_MAX
            )
            if not has_share or each.site in wait_for_memory:
                continue
            if not self._has_memory(each.site, each.size):
                wait_for_memory.add(each.site)
                continue
            self._waiting.remove(each)
            self._of_site[each.site] += 1
            self._of_user[who] += 1
            self._bytes[each.site] += each.size
            found.append(each.pull)
        return found

    def _has_memory(self, site: str, size: int) -> bool:
        all_bytes, site_bytes = self._bytes.total(), self._bytes[site]
        return (not all_bytes or all_bytes + size <= self._bytes_max) and (
            not site_bytes or site_bytes + size <= self._bytes_max // 2
        )

    def ended(self, site: str, user: str, size: int) -> None:
        """Note the end of one that has begun."""
        self._bytes[site] -= size
        if not self._bytes[site]:
            del self._bytes[site]
        self._of_site[site] -= 1
        self._of_user[site, user] -= 1
        if not self._of_site[site]:
            del self._of_site[site]
        if not self._of_user[site, user]:
            del self._of_user[site, user]
