"""Messages of the process that keeps the bytes of objects at a site: docs/protocol.md, "Objects".

Clients and agents of its host talk to it by a Unix socket, its gateway by a socket pair. Each
message is MessagePack after its length (4 bytes). Bytes of objects are in none of them: messages
with `with_file` come with one descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from federation.messages.carrying import CARRIER_MESSAGES
from federation.messages.wire import Catalogue, Count, Names, Number, Text

NAMED_MAX_S: Final = 366 * 86_400.0  # how long a name may last


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
    spills: bool = False  # whether it writes objects to disk: then a client keeps no copy
    labels: bool = False  # whether it keeps labels: an older one would lose them


@dataclass(frozen=True, slots=True)
class PutObject:
    """Client or agent → host: keep this file. Answered by ObjectKept or ObjectMissing.

    With a name (else empty) it stays for `for_s` seconds, also without the client. An agent says of
    which job the result is, and of which project. `is_input`: it was fetched from another site for
    calls of that job.
    """

    kind: ClassVar[str] = "put-object"
    with_file: ClassVar[bool] = True
    request: Count
    size: Count
    name: Text
    for_s: Number | None
    job: Text = ""
    scope: Text = ""
    is_input: bool = False
    label: Names = field(default_factory=list)  # the words of its label; empty: it has none


@dataclass(frozen=True, slots=True)
class ObjectKept:
    """Host → client: the object is held for the client's session, under this digest."""

    kind: ClassVar[str] = "object-kept"
    request: Count
    digest: bytes
    label: Names = field(
        default_factory=list
    )  # its label here, which equal bytes may have narrowed


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
class GetManifest:
    """Agent → host: send me a part of the manifest of an object, from this byte on."""

    kind: ClassVar[str] = "get-manifest"
    request: Count
    scope: Text
    digest: bytes
    at: Count


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """Host → agent: a part of a manifest, which has so many bytes."""

    kind: ClassVar[str] = "manifest-part"
    request: Count
    size: Count
    data: bytes


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
class DropName:
    """Gateway → host: a user has taken this name back; the object is held by others still."""

    kind: ClassVar[str] = "drop-name"
    scope: Text
    user: Text
    name: Text


@dataclass(frozen=True, slots=True)
class HolderGone:
    """Gateway → host: this session is over: end its connections, and take its tickets no more."""

    kind: ClassVar[str] = "holder-gone"
    holder: Count


@dataclass(frozen=True, slots=True)
class ObjectMoved:
    """Host → agent: this file has the bytes of an object from now on; the other one is for memory
    that is needed."""

    kind: ClassVar[str] = "object-moved"
    with_file: ClassVar[bool] = True
    scope: Text
    digest: bytes
    size: Count


@dataclass(frozen=True, slots=True)
class SetUpHost:
    """Gateway → host, first: the key of tickets, and the room for all objects.

    `user_max` is that for the bytes of one user which are not settled yet; 0: no limit of its own.
    """

    kind: ClassVar[str] = "set-up-host"
    key: bytes
    bytes_max: Count
    user_max: Count = 0
    spill_dir: Text = ""  # for objects that have no room in memory; empty: nowhere
    spill_max: Count = 0


@dataclass(frozen=True, slots=True)
class AdoptHost:
    """Gateway → host whose gateway is gone, first on a connection: be mine.

    The ticket is by the key of the gateway that is gone; `key` is that of tickets from now on.
    Answered by HeldBefore for each object, NamedBefore for each name, HolderBefore for each user
    that holds one, and HostReady.
    """

    kind: ClassVar[str] = "adopt-host"
    ticket: bytes
    key: bytes
    bytes_max: Count
    user_max: Count = 0  # as in SetUpHost
    wants_holders: bool = False  # whether it knows HolderBefore
    spill_dir: Text = ""  # as in SetUpHost
    spill_max: Count = 0


@dataclass(frozen=True, slots=True)
class HeldBefore:
    """Host → gateway that has adopted it: this object is here."""

    kind: ClassVar[str] = "held-before"
    scope: Text
    digest: bytes
    size: Count
    user: Text
    put_at_s: Number
    label: Names = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NamedBefore:
    """Host → gateway that has adopted it: a user's name of an object that was told of."""

    kind: ClassVar[str] = "named-before"
    scope: Text
    digest: bytes
    user: Text
    name: Text
    ends_at_s: Number


@dataclass(frozen=True, slots=True)
class NoteHolder:
    """Gateway → host: a user holds an object since then, or (None) holds it no more.

    For the next gateway. The user of SettleObject is the first, and needs none.
    """

    kind: ClassVar[str] = "note-holder"
    scope: Text
    digest: bytes
    user: Text
    since_s: Number | None = None


@dataclass(frozen=True, slots=True)
class NoteLabel:
    """Gateway → host: the label of an object is narrower from now on. For the next gateway."""

    kind: ClassVar[str] = "note-label"
    scope: Text
    digest: bytes
    label: Names


@dataclass(frozen=True, slots=True)
class HolderBefore:
    """Host → gateway that has adopted it: since when a user holds an object that was told of."""

    kind: ClassVar[str] = "holder-before"
    scope: Text
    digest: bytes
    user: Text
    since_s: Number


@dataclass(frozen=True, slots=True)
class StopHost:
    """Gateway → host: end; objects are needed no more."""

    kind: ClassVar[str] = "stop-host"
    reason: Text


@dataclass(frozen=True, slots=True)
class HostReady:
    """Host → gateway: it listens, and all objects that it has were told."""

    kind: ClassVar[str] = "host-ready"
    pid: Count
    ends_sessions: bool = False  # whether it knows HolderGone, and tickets that are for a time
    notes_holders: bool = False  # whether it knows NoteHolder
    keeps_labels: bool = False  # whether it knows NoteLabel
    drops_names: bool = False  # whether it knows DropName


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
    job: Text = ""  # whose result it is; empty: a client has put it
    is_input: bool = False  # calls of the job refer to it, and it is no result
    label: Names = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SettleObject:
    """Gateway → host: keep the object, since `at_s`, for a user; or do not, for this reason."""

    kind: ClassVar[str] = "settle-object"
    request: Count
    reason: Text
    at_s: Number = 0.0
    user: Text = ""  # empty: the one of its ticket
    label: Names = field(default_factory=list)  # from now on


OBJECT_MESSAGES = Catalogue(
    [
        *CARRIER_MESSAGES,
        *(OpenHost, HostOpen, PutObject, ObjectKept, GetObject, ObjectHere, ObjectMissing),
        *(DropObject, SetUpHost, AdoptHost, HeldBefore, NamedBefore, HostReady, StopHost),
        *(SealedObject, SettleObject, HolderGone, GetManifest, ManifestPart),
        *(NoteHolder, HolderBefore, NoteLabel, ObjectMoved, DropName),
    ]
)
