"""Messages of the process that keeps the bytes of objects at a site: docs/protocol.md, "Objects".

Clients and agents of its host talk to it by a Unix socket, its gateway by a socket pair. Each
message is MessagePack after its length (4 bytes). Bytes of objects are in none of them: messages
with `with_file` come with one descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from federation.messages.wire import Catalogue, Count, Number, Text


@dataclass(frozen=True, slots=True)
class OpenHost:
    """First on a connection: the ticket of the gateway says who this is. Answered by HostOpen."""

    kind: ClassVar[str] = "open-host"
    ticket: bytes


@dataclass(frozen=True, slots=True)
class HostOpen:
    """Answer to OpenHost: the ticket is good. `bytes_max` is the room for all objects."""

    kind: ClassVar[str] = "host-open"
    bytes_max: Count


@dataclass(frozen=True, slots=True)
class PutObject:
    """Client → host: keep this file. Answered by ObjectKept or ObjectMissing.

    With a name (else empty) it stays for `for_s` seconds, also without the client.
    """

    kind: ClassVar[str] = "put-object"
    with_file: ClassVar[bool] = True
    request: Count
    size: Count
    name: Text
    for_s: Number | None


@dataclass(frozen=True, slots=True)
class ObjectKept:
    """Host → client: the object is held for the client's session, under this digest."""

    kind: ClassVar[str] = "object-kept"
    request: Count
    digest: bytes


@dataclass(frozen=True, slots=True)
class GetObject:
    """Client or agent → host: hand me this object. Answered by ObjectHere or ObjectMissing."""

    kind: ClassVar[str] = "get-object"
    request: Count
    scope: Text  # the project
    digest: bytes


@dataclass(frozen=True, slots=True)
class ObjectHere:
    """Host → client or agent: the file of an object, sealed."""

    kind: ClassVar[str] = "object-here"
    with_file: ClassVar[bool] = True
    request: Count
    size: Count


@dataclass(frozen=True, slots=True)
class ObjectMissing:
    """Host → client or agent: the object is not here, or was not taken; the reason for people."""

    kind: ClassVar[str] = "object-missing"
    request: Count
    reason: Text


@dataclass(frozen=True, slots=True)
class DropObject:
    """Gateway → host, host → agents that have it: nothing holds this object any more."""

    kind: ClassVar[str] = "drop-object"
    scope: Text
    digest: bytes


@dataclass(frozen=True, slots=True)
class SetUpHost:
    """Gateway → host, first: the key of tickets, and the room for all objects."""

    kind: ClassVar[str] = "set-up-host"
    key: bytes
    bytes_max: Count


@dataclass(frozen=True, slots=True)
class HostReady:
    """Host → gateway: it listens."""

    kind: ClassVar[str] = "host-ready"
    pid: Count


@dataclass(frozen=True, slots=True)
class SealedObject:
    """Host → gateway: an object was put. Answered by SettleObject."""

    kind: ClassVar[str] = "sealed-object"
    request: Count
    holder: Count  # the session, by the gateway's own number
    user: Text
    scope: Text
    digest: bytes
    size: Count
    name: Text
    for_s: Number | None


@dataclass(frozen=True, slots=True)
class SettleObject:
    """Gateway → host: keep the object; or do not, for this reason."""

    kind: ClassVar[str] = "settle-object"
    request: Count
    reason: Text


OBJECT_MESSAGES = Catalogue(
    [
        *(OpenHost, HostOpen, PutObject, ObjectKept, GetObject, ObjectHere, ObjectMissing),
        *(DropObject, SetUpHost, HostReady, SealedObject, SettleObject),
    ]
)
