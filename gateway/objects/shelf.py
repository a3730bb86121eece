"""The files of the object host and their readers: the decisions of that process. Pure.

A file that was put is *offered* until the gateway has settled whether it is kept; then it is
*held*. The shelf counts the bytes of all, remembers the readers of each object, and notes
with each object the facts for a gateway that is started again (`HeldRecord`): the names and their
ends, the user that put it, its label, and since when each user holds it. Sessions and jobs are not
noted: their clients and the books know them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from federation.clocks import UtcS
from federation.objects.manifests import digest_text
from federation.objects.room import no_room
from gateway.objects.catalogue import OBJECTS_MAX, ObjectKey
from gateway.objects.tickets import AGENT, ObjectTicket


class ObjectFile(Protocol):
    """A file of `size` bytes."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    def close(self) -> None:
        """Release it."""


FileT = TypeVar("FileT", bound=ObjectFile)
ReaderT = TypeVar("ReaderT")


@dataclass(slots=True)
class HeldRecord:
    """The facts that are noted with an object.

    `names` has, by user and name, when the name ends; `holders` since when each user holds it.
    """

    user: str
    put_at_s: UtcS
    names: dict[tuple[str, str], UtcS] = field(default_factory=dict)
    holders: dict[str, UtcS] = field(default_factory=dict)
    is_spilled: bool = False  # its file is on disk
    label: tuple[str, ...] = ()  # its words


@dataclass(frozen=True, slots=True)
class OfferedObject(Generic[FileT, ReaderT]):
    """An object that was put, until the gateway has settled whether it is kept.

    Attributes:
        by, request: the connection that put it, and its number there.
        user, name, for_s: of the one that put it; see PutObject.
    """

    by: ReaderT
    request: int
    key: ObjectKey
    file: FileT
    user: str
    name: str = ""
    for_s: float | None = None


class ObjectShelf(Generic[FileT, ReaderT]):
    """Files of objects by project and digest, and the connections that have them.

    Args:
        bytes_max: the room for all objects together.
        files_max: how many there may be: each is a descriptor of the process. One user has three
            quarters of them at most.
        user_max: the room for objects of one user that the gateway has not settled yet; 0: as for
            all. Settled ones are counted by the gateway's catalogue.
    """

    def __init__(self, bytes_max: int, files_max: int = OBJECTS_MAX, user_max: int = 0) -> None:
        self.bytes_max = bytes_max
        self.user_max = user_max
        self._making: Counter[str] = Counter()  # bytes by user, about to be or offered
        self._files_of: Counter[str] = Counter()  # by user
        self.files_max = files_max
        self.spill_max = 0  # the room on disk
        self.bytes = 0  # in memory: held, offered, and about to be
        self.spilled_bytes = 0
        self.files = 0  # likewise
        self._held: dict[ObjectKey, tuple[FileT, HeldRecord]] = {}
        self._readers: dict[ObjectKey, set[ReaderT]] = {}
        self._offered: dict[int, OfferedObject[FileT, ReaderT]] = {}
        self._names: dict[tuple[str, str, str], ObjectKey] = {}  # by project, user and name
        self._offers = 0

    def __len__(self) -> int:
        return len(self._held)

    # --- puts ------------------------------------------------------------------------------------

    def reserve(self, size: int, user: str = "") -> str:
        """Count a file that a user is about to put; return why not, or an empty text.

        Without a user, as for results of tasks, only the limits of all hold. Those come last, as
        memory is the one limit that others can make room for.
        """
        reason = self._why_not_put(size, user) or no_room(self.bytes_max, self.bytes, size)
        if not reason:
            self.bytes += size
            self.files += 1
            self._count_making(user, size)
            self._count_file(user, 1)
        return reason

    def _why_not_put(self, size: int, user: str) -> str:
        """Return why no memory would let a user put a file, or an empty text."""
        if self.files >= self.files_max:
            return (
                f"the object host has descriptors for {self.files_max:,} objects, and holds as "
                "many: release others first, or put several values as one object"
            )
        if user and self._files_of[user] >= max(1, self.files_max * 3 // 4):
            return (
                f"user {user} has {self._files_of[user]:,} objects at the object host, three "
                "quarters of what it has descriptors for: release others first, or put several "
                "values as one"
            )
        return self._over_user(user, self._making[user], size)

    def _over_user(self, user: str, has: int, size: int) -> str:
        if not (user and self.user_max):
            return ""
        return no_room(self.user_max, has, size, f"of user {user}")

    def _count_making(self, user: str, size: int) -> None:
        self._making[user] += size
        if not self._making[user]:
            del self._making[user]

    def _count_file(self, user: str, number: int) -> None:
        self._files_of[user] += number
        if not self._files_of[user]:
            del self._files_of[user]

    def give_back(self, size: int, user: str = "") -> None:
        """Count a file that was reserved no more: it was not good, or is not kept."""
        self._count_making(user, -size)
        self._close(size, user)

    def _close(self, size: int, user: str) -> None:
        self.bytes -= size
        self._forget_file(user)

    def _forget_file(self, user: str) -> None:
        self.files -= 1
        self._count_file(user, -1)

    def offer(self, offered: OfferedObject[FileT, ReaderT]) -> int:
        """Keep a file, whose bytes were reserved, until the gateway has settled it.

        Return its number for the gateway.
        """
        self._offers += 1
        self._offered[self._offers] = offered
        return self._offers

    def settle(
        self, number: int, reason: str, at_s: UtcS, user: str = "", label: Iterable[str] = ()
    ) -> OfferedObject[FileT, ReaderT] | None:
        """Keep an offered object, or close its file for a reason.

        None: it is not offered any more. A second file of equal bytes is closed. `user` is the user
        that it is kept for, if that is not the one that put it; `label` has the words of its
        label from now on.
        """
        offered = self._offered.pop(number, None)
        if offered is None:
            return None
        key, file = offered.key, offered.file
        if reason or key in self._held:
            self.give_back(file.size, offered.user)
            file.close()
        else:
            self._count_making(offered.user, -file.size)
            owner = user or offered.user
            self._count_file(offered.user, -1)
            self._count_file(owner, 1)
            self._held[key] = file, HeldRecord(owner, at_s, holders={owner: at_s})
        if not reason:
            self.note_label(key, label)
        if not reason and offered.name:
            self._name(key, offered.user, offered.name, at_s + (offered.for_s or 0))
        return offered

    def _name(self, key: ObjectKey, user: str, name: str, until_s: UtcS) -> None:
        before = self._names.get((key.scope, user, name))
        if before is not None and before in self._held:
            self._held[before][1].names.pop((user, name), None)
        self._names[key.scope, user, name] = key
        self._held[key][1].names[user, name] = until_s

    def note_label(self, key: ObjectKey, label: Iterable[str]) -> None:
        """Note the words of the label that an object has from now on."""
        if key in self._held:
            self._held[key][1].label = tuple(label)

    def unname(self, scope: str, user: str, name: str) -> None:
        """Forget a user's name of an object."""
        key = self._names.pop((scope, user, name), None)
        if key is not None and key in self._held:
            self._held[key][1].names.pop((user, name), None)

    def note_holder(self, key: ObjectKey, user: str, since_s: UtcS | None) -> None:
        """Note that a user holds an object since then, or (None) holds it no more."""
        if key not in self._held:
            return
        holders = self._held[key][1].holders
        if since_s is None:
            holders.pop(user, None)
        else:
            holders[user] = since_s

    # --- readers ---------------------------------------------------------------------------------

    def take(self, ticket: ObjectTicket, key: ObjectKey, reader: ReaderT) -> FileT | str:
        """Return the file of an object for a reader, or why not.

        An agent is told when it is dropped; a client is not, as it reads answers alone.
        """
        if not ticket.may_read(key.scope) or key not in self._held:
            return f"project {key.scope} has no object {digest_text(key.digest)} here"
        if ticket.role == AGENT:
            self._readers.setdefault(key, set()).add(reader)
        self._held[key] = self._held.pop(key)  # used last
        return self._held[key][0]

    # --- the disk --------------------------------------------------------------------------------

    def why_not_spill(self, size: int, user: str = "") -> str:
        """Return why nothing is written to disk for a put of a user, or an empty text.

        The gateway refuses an object beyond the limit of its user only after it was put: then
        others' objects would have left memory for nothing. So all that the user holds counts here.
        Equal bytes that the user holds already are not known as such yet, and count as well.
        """
        if reason := self._why_not_put(size, user):
            return reason
        if not (user and self.user_max):
            return ""
        held = sum(file.size for file, record in self._held.values() if user in record.holders)
        return self._over_user(user, self._making[user] + held, size)

    def to_spill(self, size: int) -> tuple[ObjectKey, FileT] | None:
        """Return an object to write to disk, so that one of `size` bytes has room in memory.

        The one that was not asked for the longest; None: there is room, or all that the disk takes
        would not make enough.
        """
        lacking = self.bytes + size - self.bytes_max
        if size > self.bytes_max or lacking <= 0:
            return None
        first: tuple[ObjectKey, FileT] | None = None
        room = self.spill_max - self.spilled_bytes
        for key, (file, record) in self._held.items():
            if not record.is_spilled and file.size <= room:
                first = first or (key, file)
                room -= file.size
                lacking -= file.size
                if lacking <= 0:
                    return first
        return None

    def spilled(self, key: ObjectKey, before: FileT, file: FileT) -> set[ReaderT] | None:
        """Take the file on disk for that of an object; return the readers of the one before.

        None: it was dropped meanwhile.
        """
        if key not in self._held or self._held[key][0] is not before:
            return None
        record = self._held[key][1]
        record.is_spilled = True
        self._held[key] = file, record
        self.bytes -= before.size
        self.spilled_bytes += file.size
        before.close()
        return set(self._readers.get(key, ()))

    def drop(self, key: ObjectKey) -> set[ReaderT]:
        """Close the file of an object that nothing holds; return the readers to be told."""
        found = self._held.pop(key, None)
        if found is not None:
            file, record = found
            if record.is_spilled:
                self.spilled_bytes -= file.size
                self._forget_file(record.user)
            else:
                self._close(file.size, record.user)
            file.close()
            for user, name in record.names:
                self._names.pop((key.scope, user, name), None)
        return self._readers.pop(key, set())

    def leave(self, reader: ReaderT) -> None:
        """Forget a reader that has gone."""
        for key in [each for each, readers in self._readers.items() if reader in readers]:
            self._readers[key].discard(reader)
            if not self._readers[key]:
                del self._readers[key]

    # --- the loss of the gateway -----------------------------------------------------------------

    def forget_offers(self) -> None:
        """Close the files that no gateway has settled: those that put them, put them again."""
        offered, self._offered = self._offered, {}
        for each in offered.values():
            self.give_back(each.file.size, each.user)
            each.file.close()

    def records(self) -> Iterator[tuple[ObjectKey, int, HeldRecord]]:
        """Yield each object for a new gateway: its key, its size, and its record."""
        for key, (file, record) in self._held.items():
            yield key, file.size, record
