"""Functions by content: kept while a job needs them, and who has been sent which. Pure."""

import hashlib

from federation.errors import ProtocolError


class Functions:
    """The pickled functions of the site's jobs, addressed by SHA-256."""

    def __init__(self) -> None:
        self._bodies: dict[bytes, bytes] = {}
        self._senders: dict[bytes, set[int]] = {}
        self._sent: dict[int, set[bytes]] = {}
        self._wanted: dict[bytes, set[int]] = {}

    def put(self, digest: bytes, body: bytes, sender: int) -> set[int]:
        """Keep a function for as long as its sender is here or a job needs it.

        Returns the workers that have been waiting for it.

        Raises:
            ProtocolError: the digest is not the body's.
        """
        if hashlib.sha256(body).digest() != digest:
            raise ProtocolError("a function that is not what its digest says")
        self._bodies[digest] = body
        self._senders.setdefault(digest, set()).add(sender)
        return self._wanted.pop(digest, set())

    def body(self, digest: bytes) -> bytes | None:
        """The function, or None when nobody has sent it."""
        return self._bodies.get(digest)

    def to_send(self, worker: int, digest: bytes) -> bytes | None:
        """The function if this worker has not been sent it yet; noted as sent."""
        sent = self._sent.setdefault(worker, set())
        body = self._bodies.get(digest)
        if body is None or digest in sent:
            return None
        sent.add(digest)
        return body

    def want(self, worker: int, digest: bytes) -> bytes | None:
        """A worker asks for a function: the body, or None and it is remembered."""
        body = self._bodies.get(digest)
        if body is None:
            self._wanted.setdefault(digest, set()).add(worker)
        else:
            self._sent.setdefault(worker, set()).add(digest)
        return body

    def forget_worker(self, worker: int) -> None:
        """A worker is gone."""
        self._sent.pop(worker, None)
        for digest, workers in list(self._wanted.items()):
            workers.discard(worker)
            if not workers:
                del self._wanted[digest]

    def sweep(self, used: set[bytes], guests: set[int]) -> None:
        """Drop what no job uses and whose senders have all left."""
        for digest, senders in list(self._senders.items()):
            senders &= guests
            if not senders and digest not in used:
                del self._bodies[digest], self._senders[digest]
