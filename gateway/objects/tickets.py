"""Tickets: with one a process of this host may use the object host, as its gateway says.

The gateway and its object host share a key; the ticket is signed by it, so the host asks nobody.
A client's ticket is for its session: the gateway says when that is over, and the host then ends its
connections and takes its tickets no more. A ticket is to be shown soon, so the host need not
remember sessions that are over for longer than that.
"""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from federation.clocks import MonoS
from federation.errors import ProtocolError
from federation.messages.wire import pack, unpack

KEY_BYTES: Final = 32
_MAC_BYTES: Final = 32
_TICKET_BYTES_MAX: Final = 2048
SHOW_S: Final = 60.0  # within which a client shows its ticket
CLIENT: Final = "client"
AGENT: Final = "agent"
GATEWAY: Final = "gateway"


@dataclass(frozen=True, slots=True)
class ObjectTicket:
    """Who may use the object host.

    Attributes:
        role: CLIENT puts and gets in one project; AGENT gets in all; GATEWAY adopts the host.
        holder: of a client, its session by the gateway's number.
        scope: of a client, the project.
        show_by_s: the last moment to show it, by the monotonic clock of the computer, which both
            processes read; None: at any time, as by a gateway of before.
    """

    role: str
    holder: int = 0
    user: str = ""
    scope: str = ""
    show_by_s: MonoS | None = None

    def sign(self, key: bytes) -> bytes:
        """Return the ticket for the wire."""
        until = () if self.show_by_s is None else (float(self.show_by_s),)
        body = pack([self.role, self.holder, self.user, self.scope, *until])
        return hmac.digest(key, body, hashlib.sha256) + body

    def may_read(self, scope: str) -> bool:
        """Whether its holder may read the objects of a project."""
        return self.role == AGENT or self.scope == scope


def read_ticket(data: bytes, key: bytes) -> ObjectTicket:
    """Check a ticket, and return it. Raises ProtocolError."""
    mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
    if not hmac.compare_digest(hmac.digest(key, body, hashlib.sha256), mac):
        raise ProtocolError("the ticket is not of this gateway")
    role, holder, user, scope, *until = unpack(body, _TICKET_BYTES_MAX)
    return ObjectTicket(role, holder, user, scope, MonoS(until[0]) if until else None)


class EndedSessions:
    """The sessions that were over a short time ago, for as long as a ticket of theirs may be shown.

    Pure; times are monotonic.
    """

    def __init__(self) -> None:
        self._ended: dict[int, MonoS] = {}  # the earliest first

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, holder: int, mono_s: MonoS) -> None:
        """Note that a session is over."""
        while self._ended:
            first, at_s = next(iter(self._ended.items()))
            if mono_s - at_s <= SHOW_S:
                break
            del self._ended[first]
        self._ended.setdefault(holder, mono_s)

    def recent(self, mono_s: MonoS) -> list[int]:
        """Return the sessions of which a ticket may still be shown, the first to end first."""
        return [each for each, at_s in self._ended.items() if mono_s - at_s <= SHOW_S]

    def clear(self) -> None:
        """Forget all: another gateway numbers its sessions anew, and signs by another key."""
        self._ended.clear()

    def why_not(self, ticket: ObjectTicket, mono_s: MonoS) -> str:
        """Return why a good ticket is taken no more; empty if it is."""
        if ticket.show_by_s is not None and mono_s > ticket.show_by_s:
            return f"the ticket was to be shown within {SHOW_S:g} s"
        if ticket.role == CLIENT and ticket.holder in self._ended:
            return "the session of the ticket is over"
        return ""
