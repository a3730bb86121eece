"""Tickets: with one a process of this host may use the object host, as its gateway says.

The gateway and its object host share a key; the ticket is signed by it, so the host asks nobody.
"""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from federation.errors import ProtocolError
from federation.messages.wire import pack, unpack

KEY_BYTES: Final = 32
_MAC_BYTES: Final = 32
_TICKET_BYTES_MAX: Final = 2048
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
    """

    role: str
    holder: int = 0
    user: str = ""
    scope: str = ""

    def sign(self, key: bytes) -> bytes:
        """Return the ticket for the wire."""
        body = pack([self.role, self.holder, self.user, self.scope])
        return hmac.digest(key, body, hashlib.sha256) + body

    def may_read(self, scope: str) -> bool:
        """Whether its holder may read the objects of a project."""
        return self.role == AGENT or self.scope == scope


def read_ticket(data: bytes, key: bytes) -> ObjectTicket:
    """Check a ticket, and return it. Raises ProtocolError."""
    mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
    if not hmac.compare_digest(hmac.digest(key, body, hashlib.sha256), mac):
        raise ProtocolError("the ticket is not of this gateway")
    role, holder, user, scope = unpack(body, _TICKET_BYTES_MAX)
    return ObjectTicket(role, holder, user, scope)
