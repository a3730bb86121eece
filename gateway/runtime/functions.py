"""Functions by content: kept while a job needs them, with a record of their recipients. Pure."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from federation.errors import ProtocolError

DIGEST_BYTES: Final = 32
WANTED_MAX: Final = 10_000  # functions that workers wait for and that were never sent
Recipient = int | str  # a worker, by its handle, or another site, by its name


class FunctionStore:
    """The pickled functions of the site's jobs, addressed by SHA-256.

    Args:
        bytes_max: the limit for one sender's functions that jobs need, together.
        used: returns the functions that jobs need.
    """

    def __init__(self, bytes_max: int, used: Callable[[], set[bytes]]) -> None:
        self._bytes_max = bytes_max
        self._used = used
        self._bodies: dict[bytes, bytes] = {}  # in order of arrival
        self._senders: dict[bytes, set[int]] = {}
        self._bytes: dict[int, int] = {}  # by sender
        self._sent: dict[Recipient, set[bytes]] = {}
        # Functions that each recipient was sent again since the last sweep.
        self._again: dict[Recipient, set[bytes]] = {}
        self._wanted: dict[bytes, dict[Recipient, None]] = {}  # in the order of the requests

    def put(self, digest: bytes, body: bytes, sender: int) -> Iterable[Recipient]:
        """Keep a function while a job needs it, or its sender is connected and within its limit.

        Functions that no job needs make room for new ones: their sender is asked again when needed.
        Sender 0 is our own store, which has no limit.

        Return the recipients that have been waiting for it.

        Raises:
            ProtocolError: the digest is not the body's, or the sender's are too large together.
        """
        if hashlib.sha256(body).digest() != digest:
            raise ProtocolError("the digest does not match the function")
        self._bodies[digest] = body
        senders = self._senders.setdefault(digest, set())
        if sender not in senders:
            senders.add(sender)
            self._bytes[sender] = self._bytes.get(sender, 0) + len(body)
        if sender and self._bytes[sender] > self._bytes_max:
            self._make_place(sender, digest)
        return self._wanted.pop(digest, {}).keys()

    def _make_place(self, sender: int, new: bytes) -> None:
        used = self._used() | {new}
        for digest in [each for each, senders in self._senders.items() if sender in senders]:
            if self._bytes[sender] <= self._bytes_max // 2:
                return  # enough for some time
            if digest not in used:
                self._forsake(digest, sender)
        if self._bytes[sender] > self._bytes_max:
            raise ProtocolError(f"more than {self._bytes_max:,} bytes of functions in use")

    def _forsake(self, digest: bytes, sender: int) -> None:
        """Release a sender's hold on a function that no job needs."""
        senders = self._senders[digest]
        senders.discard(sender)
        self._bytes[sender] -= len(self._bodies[digest])
        if not senders:
            del self._bodies[digest], self._senders[digest]

    def body(self, digest: bytes) -> bytes | None:
        """Return the function, or None when it was never sent."""
        return self._bodies.get(digest)

    def to_send(self, recipient: Recipient, digest: bytes) -> bytes | None:
        """Return the function, and note it as sent, unless it has been sent there before."""
        sent = self._sent.setdefault(recipient, set())
        body = self._bodies.get(digest)
        if body is None or digest in sent:
            return None
        sent.add(digest)
        return body

    def want(self, recipient: Recipient, digest: bytes) -> bytes | None:
        """Return a function that was asked for; if it is not here, remember the request.

        If it was just sent again, return None, as it is in transit: a question costs the recipient
        fifty bytes, and us the whole body each time.
        """
        body = self._bodies.get(digest)
        if body is None:
            if len(digest) == DIGEST_BYTES and len(self._wanted) < WANTED_MAX:
                self._wanted.setdefault(digest, {})[recipient] = None
            return None
        sent = self._sent.setdefault(recipient, set())
        again = self._again.setdefault(recipient, set())
        if digest in again:
            return None
        if digest in sent:
            again.add(digest)
        sent.add(digest)
        return body

    def forget(self, recipient: Recipient) -> None:
        """Forget a worker that left, or what a site was sent."""
        self._sent.pop(recipient, None)
        self._again.pop(recipient, None)
        for digest, waiting in list(self._wanted.items()):
            waiting.pop(recipient, None)
            if not waiting:
                del self._wanted[digest]

    def sweep(self, peers: set[int]) -> None:
        """Drop functions that no job uses and whose senders have all left; called occasionally."""
        self._again.clear()
        gone = self._bytes.keys() - peers
        if not gone:
            return
        used = self._used()
        for digest, senders in list(self._senders.items()):
            if digest not in used and not senders & peers:
                for sender in list(senders):
                    self._forsake(digest, sender)
        # Departed senders no longer count for functions in use.
        for sender in gone:
            if not any(sender in senders for senders in self._senders.values()):
                del self._bytes[sender]
