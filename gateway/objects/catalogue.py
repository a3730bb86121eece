"""Who holds which object of a site, and which are dropped. Pure.

An object lives as long as something holds it that has a life of its own: the session of the client
that put it, an unfinished job whose calls refer to it, or a name until it expires. There is no
count of references in processes: when a holder ends, all that it held is let go at once.

An object counts, towards the limit of a user, for each user that holds it: else others could keep
that limit full by holding an object that its first user has let go of.

Objects are known by project and digest. Equal bytes in two projects are two objects: otherwise the
answer to one project would tell what another has.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

from federation.clocks import UtcS
from federation.objects.labels import UNLABELLED, DataLabel, conflict
from federation.objects.manifests import digest_text
from federation.objects.room import no_room
from federation.ranges import Range, RangeSet
from gateway.config.limits import ObjectRoom
from gateway.objects.job_uses import JobUses

OBJECTS_MAX: Final = 100_000  # of a site
LOST_MAX: Final = 1_000  # that are remembered
LOOKS_MAX: Final = 1_000  # at calls that may have ended, in one turn
USER_OBJECTS_MAX: Final = OBJECTS_MAX * 3 // 4  # that one user holds: the rest is for others


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """The identity of an object at a site: its project, and its digest."""

    scope: str
    digest: bytes


class JobProgress(Protocol):
    """What the catalogue needs to know of an unfinished job."""

    @property
    def ended(self) -> RangeSet:
        """Its calls that have ended."""

    @property
    def blocked(self) -> int:
        """The number of its calls that wait for others."""


@dataclass(frozen=True, slots=True)
class HoldingChange:
    """A user begins to hold an object, or holds it no more."""

    key: ObjectKey
    user: str
    size: int
    is_held: bool


@dataclass(slots=True)
class HeldObject:
    """An object, and who holds it."""

    key: ObjectKey
    size: int
    user: str  # the one that put it first
    put_at_s: UtcS
    sessions: Counter[int] = field(default_factory=Counter)
    jobs: set[str] = field(default_factory=set)
    # By job, how many of its results it is that have not been sent to its client.
    results: Counter[str] = field(default_factory=Counter)
    # By the user that gave it, and the name: when it ends.
    names: dict[tuple[str, str], UtcS] = field(default_factory=dict)
    # For the clients of a gateway that was lost: of these users, until then.
    waits_until_s: UtcS | None = None
    waits_for: set[str] = field(default_factory=set)
    holders: Counter[str] = field(default_factory=Counter)  # by user, the holders that are theirs
    label: DataLabel = UNLABELLED  # where it may lie

    @property
    def title(self) -> str:
        """Its name, or else the beginning of its digest, for people."""
        name = next((name for _, name in self.names), "")
        return f"object {name}" if name else f"object {digest_text(self.key.digest)[:15]}…"

    @property
    def is_held(self) -> bool:
        """Whether anything holds it."""
        return bool(self.holders)

    def to_plain(self) -> dict[str, Any]:
        """Return it for people and programs."""
        return {
            "digest": digest_text(self.key.digest),
            "project": self.key.scope,
            "user": self.user,
            "bytes": self.size,
            "put_at_s": float(self.put_at_s),
            "residency": list(self.label.words),
            "sessions": len(self.sessions),
            "jobs": sorted(self.jobs | set(self.results)),
            "names": [
                {"name": name, "user": user, "ends_at_s": float(end_at_s)}
                for (user, name), end_at_s in sorted(self.names.items())
            ],
        }


@dataclass(frozen=True, slots=True)
class LostObject:
    """An object whose bytes were lost while it was held."""

    held: HeldObject
    lost_at_s: UtcS

    def to_plain(self) -> dict[str, Any]:
        """Return it for people and programs: what held it then, and since when it is lost."""
        return {**self.held.to_plain(), "lost_at_s": float(self.lost_at_s)}


def sums(
    objects: Iterable[HeldObject],
    by: str,
    shows: Callable[[str, str], bool] = lambda _user, _project: True,
) -> list[dict[str, Any]]:
    """Return the objects of each project, or of each user that holds them, the most bytes first.

    An object that several users hold counts for each. `shows` tells whether a user of a project
    may be shown.
    """
    found: dict[str, dict[str, Any]] = {}
    for held in objects:
        users = [user for user in sorted(held.holders) if shows(user, held.key.scope)]
        for name in (held.key.scope,) if by == "project" else users:
            row = found.setdefault(name, {by: name, "objects": 0, "bytes": 0, "named": 0})
            row["objects"] += 1
            row["bytes"] += held.size
            row["named"] += bool(held.names)
    return sorted(found.values(), key=lambda row: (-row["bytes"], row[by]))


class ObjectCatalogue:
    """The objects of a site.

    Attributes:
        lost: the latest LOST_MAX objects that were lost, the last one last.
        changes: of holdings, in order, since they were taken.
        labelled: objects whose label has become narrower, since they were taken.

    Args:
        room: for all objects together, those of one user and those of one project.
    """

    def __init__(self, room: ObjectRoom) -> None:
        self._room = room
        self._by_owner: Counter[tuple[str, str]] = Counter()  # bytes of users, of projects
        self._objects_of: Counter[str] = Counter()  # by user
        self._held: dict[ObjectKey, HeldObject] = {}
        self._by_session: dict[int, set[ObjectKey]] = {}
        self._user_of: dict[int | str, str] = {}  # of sessions and jobs that hold something
        self._by_job: dict[str, set[ObjectKey]] = {}
        self._uses: dict[str, JobUses[ObjectKey]] = {}  # by job
        self._names: dict[tuple[str, str, str], ObjectKey] = {}  # by project, user and name
        self._waiting: set[ObjectKey] = set()
        self.bytes = 0
        self.lost: deque[LostObject] = deque(maxlen=LOST_MAX)
        self.changes: list[HoldingChange] = []
        self.labelled: list[HeldObject] = []

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldObject]:
        return iter(self._held.values())

    def find(self, scope: str, digest: bytes) -> HeldObject | None:
        """Return an object of a project."""
        return self._held.get(ObjectKey(scope, digest))

    def named(self, scope: str, user: str, name: str) -> HeldObject | None:
        """Return the object to which a user gave a name in a project."""
        key = self._names.get((scope, user, name))
        return None if key is None else self._held[key]

    def bytes_for(self, job: str) -> int:
        """Return the bytes of the objects that a job holds for its calls, each counted once."""
        held = (self._held[key] for key in self._by_job.get(job, ()))
        return sum(each.size for each in held if job in each.jobs)

    # --- holders ---------------------------------------------------------------------------------

    def put(
        self,
        key: ObjectKey,
        size: int,
        user: str,
        session: int,
        utc_s: UtcS,
        label: DataLabel = UNLABELLED,
    ) -> str:
        """Let a session hold an object that has been sealed; return why not, or an empty text."""
        reason = self._enter(key, size, user, utc_s, label)
        if not reason:
            self.take(key, session, user)
        return reason

    def _enter(self, key: ObjectKey, size: int, user: str, utc_s: UtcS, label: DataLabel) -> str:
        reason = self.refuses(key, size, user) or self._clash(key, label)
        if reason:
            return reason
        if key not in self._held:
            self._add(HeldObject(key, size, user, utc_s))
        self._narrow(self._held[key], label)
        return ""

    def _clash(self, key: ObjectKey, label: DataLabel) -> str:
        """Return why equal bytes can't have one more label, or an empty text."""
        known = self._held.get(key)
        if known is None or not label:
            return ""
        return conflict([known.label.named(f"{known.title}, which is here,"), label])

    def _narrow(self, held: HeldObject, label: DataLabel) -> None:
        """Let a label hold for an object, beside that which it has."""
        if not held.label.is_within(label):
            held.label = held.label.within(label).named()
            self.labelled.append(held)

    def of_job(self, job: str) -> list[HeldObject]:
        """Return the objects that an unfinished job holds, for its calls or as results of it."""
        return [self._held[key] for key in self._by_job.get(job, ())]

    def labels_of(self, scope: str, digests: Iterable[bytes]) -> list[DataLabel]:
        """Return the labels of objects of a project that have any, with their names."""
        found = (self.find(scope, digest) for digest in digests)
        return [each.label.named(each.title) for each in found if each is not None and each.label]

    def refuses(self, key: ObjectKey, size: int, user: str, coming: int = 0) -> str:
        """Return why a user may not hold an object of this size, or an empty text.

        `coming` are the bytes of others that are on their way to here.
        """
        known = self._held.get(key)
        if known is not None:
            return self.why_not(known, user)
        if len(self._held) >= OBJECTS_MAX:
            return f"the site holds {OBJECTS_MAX:,} objects already"
        # It arrives in memory, also where others go to disk for it.
        reason = no_room(self._room.memory, 0, size, "in memory" if self._room.spill else "")
        reason = reason or no_room(self._room.whole, self.bytes + coming, size)
        reason = reason or self._over_user(user, size)
        in_project = self._by_owner["project", key.scope]
        return reason or no_room(self._room.project, in_project, size, f"of project {key.scope}")

    def why_not(self, held: HeldObject, user: str) -> str:
        """Return why a user may not hold an object that is here too, or an empty text."""
        return "" if user in held.holders else self._over_user(user, held.size)

    def _over_user(self, user: str, size: int) -> str:
        """Return why a user may hold nothing of this size more, or an empty text."""
        if self._objects_of[user] >= USER_OBJECTS_MAX:
            return f"user {user} holds {USER_OBJECTS_MAX:,} objects already: release others first"
        held = self._by_owner["user", user]
        return no_room(self._room.user, held, size, f"of user {user}")

    def _add(self, held: HeldObject) -> None:
        self._held[held.key] = held
        self.bytes += held.size
        self._count(("project", held.key.scope), held.size)

    def _count(self, owner: tuple[str, str], size: int) -> None:
        self._by_owner[owner] += size
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def _gain(self, held: HeldObject, user: str) -> None:
        """Count a holder of a user; the first one counts the object for them."""
        held.holders[user] += 1
        if held.holders[user] == 1:
            self.changes.append(HoldingChange(held.key, user, held.size, is_held=True))
            self._count(("user", user), held.size)
            self._objects_of[user] += 1

    def _lose(self, held: HeldObject, user: str) -> None:
        held.holders[user] -= 1
        if not held.holders[user]:
            del held.holders[user]
            self.changes.append(HoldingChange(held.key, user, held.size, is_held=False))
            self._count(("user", user), -held.size)
            self._objects_of[user] -= 1
            if not self._objects_of[user]:
                del self._objects_of[user]

    def put_result(
        self,
        key: ObjectKey,
        size: int,
        user: str,
        job: str,
        utc_s: UtcS,
        label: DataLabel = UNLABELLED,
    ) -> str:
        """Let a job hold a result of it until that is sent; return why not, or an empty text."""
        reason = self._enter(key, size, user, utc_s, label)
        if not reason:
            held = self._held[key]
            self._user_of[job] = user
            if not held.results[job]:
                self._gain(held, user)
            held.results[job] += 1
            self._by_job.setdefault(job, set()).add(key)
        return reason

    def put_input(
        self,
        key: ObjectKey,
        size: int,
        user: str,
        job: str,
        utc_s: UtcS,
        label: DataLabel = UNLABELLED,
    ) -> str:
        """Let a job hold an object that was fetched for its calls; return why not, or empty."""
        reason = self._enter(key, size, user, utc_s, label)
        if not reason:
            self.hold(job, user, key.scope, [key.digest])
        return reason

    def deliver(self, key: ObjectKey, job: str, session: int | None) -> list[ObjectKey]:
        """Hand a result of a job over to the session of its client; None: it is over."""
        held = self._held.get(key)
        if held is None:
            return []
        if session is not None and job in held.results:
            self.take(key, session, self._user_of[job])
        if held.results[job] > 1:
            held.results[job] -= 1
        elif held.results.pop(job, 0):
            self._lose(held, self._user_of[job])
            if job not in held.jobs:
                self._by_job[job].discard(key)
        return self._gone([key])

    def adopt(
        self,
        key: ObjectKey,
        size: int,
        user: str,
        put_at_s: UtcS,
        until_s: UtcS,
        label: DataLabel = UNLABELLED,
    ) -> None:
        """Enter an object of a gateway that was lost; it waits for its holders until then."""
        if key not in self._held:
            held = HeldObject(key, size, user, put_at_s, waits_until_s=until_s, label=label)
            self._add(held)
            self._waiting.add(key)
            self.expect(key, user)

    def expect(self, key: ObjectKey, user: str) -> None:
        """Let an object that was adopted wait for the clients of this user, too."""
        held = self._held.get(key)
        if held is not None and key in self._waiting and user not in held.waits_for:
            held.waits_for.add(user)
            self._gain(held, user)

    def expect_no_more(self, key: ObjectKey, user: str) -> None:
        """Let an object that was adopted not wait for a user that had let go of it."""
        held = self._held.get(key)
        if held is not None and user in held.waits_for:
            held.waits_for.discard(user)
            self._lose(held, user)

    def name(self, key: ObjectKey, user: str, name: str, until_s: UtcS) -> list[ObjectKey]:
        """Give an object a name of this user until then.

        Return the object that had the name, if nothing holds that any more. A name is its user's
        own: who reads an object by it runs the pickle of the one that put it.
        """
        before = self._names.get((key.scope, user, name))
        self._names[key.scope, user, name] = key
        if (user, name) not in self._held[key].names:
            self._gain(self._held[key], user)
        self._held[key].names[user, name] = until_s
        if before is None or before == key:
            return []
        del self._held[before].names[user, name]
        self._lose(self._held[before], user)
        return self._gone([before])

    def take(self, key: ObjectKey, session: int, user: str) -> bool:
        """Let the session of a user hold an object that is here; return whether it is."""
        held = self._held.get(key)
        if held is None:
            return False
        self._user_of[session] = user
        if not held.sessions[session]:
            self._gain(held, user)
        held.sessions[session] += 1
        self._by_session.setdefault(session, set()).add(key)
        return True

    def hold(
        self,
        job: str,
        user: str,
        scope: str,
        digests: Iterable[bytes],
        calls: Range | None = None,
        *,
        waited: bool = False,
    ) -> None:
        """Let an unfinished job of a user hold the objects that its calls refer to.

        Args:
            job, user: the job, and its user.
            scope, digests: the objects.
            calls: until these have ended; None: until the job ends, or,
            waited: while calls of it wait for others.
        """
        keys = []
        for digest in digests:
            held = self.find(scope, digest)
            if held is not None:
                keys.append(held.key)
                self._user_of[job] = user
                if job not in held.jobs:
                    self._gain(held, user)
                held.jobs.add(job)
                self._by_job.setdefault(job, set()).add(held.key)
        if not keys:
            return
        uses = self._uses.setdefault(job, JobUses())
        if calls is not None:
            uses.hold(keys, calls)
        elif waited:
            uses.hold_waited(keys)
        else:
            uses.hold_whole(keys)

    # --- ends of holders: each returns the objects that nothing holds any more
    # ---------------------

    def let_go(self, session: int, scope: str, digest: bytes) -> list[ObjectKey]:
        """Take back one `put` or `take` of a session."""
        held = self.find(scope, digest)
        if held is None or session not in held.sessions:
            return []
        held.sessions[session] -= 1
        if held.sessions[session] > 0:
            return []
        del held.sessions[session]
        self._lose(held, self._user_of[session])
        self._by_session[session].discard(held.key)
        return self._gone([held.key])

    def unname(self, scope: str, user: str, name: str) -> list[ObjectKey]:
        """Take a name back before it expires."""
        key = self._names.pop((scope, user, name), None)
        if key is None:
            return []
        del self._held[key].names[user, name]
        self._lose(self._held[key], user)
        return self._gone([key])

    def session_ended(self, session: int) -> list[ObjectKey]:
        """Let go of all that a session held."""
        keys = self._by_session.pop(session, set())
        user = self._user_of.pop(session, "")
        for key in keys:
            del self._held[key].sessions[session]
            self._lose(self._held[key], user)
        return self._gone(keys)

    def calls_ended(self, jobs: Mapping[str, JobProgress]) -> list[ObjectKey]:
        """Let go of what jobs held for calls that have ended: of some, at most LOOKS_MAX.

        Jobs that hold nothing for calls are not looked at: there may be tens of thousands, and this
        is asked each tick.
        """
        touched: list[ObjectKey] = []
        left = LOOKS_MAX
        for job in list(islice(self._uses, LOOKS_MAX)):
            if left <= 0:
                break
            uses = self._uses.pop(job)
            self._uses[job] = uses  # the last one the next time
            progress = jobs.get(job)
            if progress is None:
                continue  # it has ended: `sweep` lets go of all that it held
            keys, looks = uses.release(progress.ended, waits=progress.blocked > 0, looks_max=left)
            left -= max(1, looks)
            if not uses:
                del self._uses[job]
            for key in keys:
                held = self._held.get(key)
                if held is not None and job in held.jobs:
                    held.jobs.discard(job)
                    self._lose(held, self._user_of[job])
                    if job not in held.results:
                        self._by_job[job].discard(key)
                    touched.append(key)
        return self._gone(touched)

    def sweep(self, jobs: Set[str], utc_s: UtcS) -> list[ObjectKey]:
        """Let go of what was held by old names, by jobs that are not among the unfinished, and for
        clients that did not come back in time."""
        touched: list[ObjectKey] = []
        for key in list(self._waiting):
            held = self._held[key]
            if held.waits_until_s is None or held.waits_until_s <= utc_s:
                held.waits_until_s = None
                for user in sorted(held.waits_for):
                    self._lose(held, user)
                held.waits_for.clear()
                self._waiting.discard(key)
                touched.append(key)
        for job in [each for each in self._by_job if each not in jobs]:
            user = self._user_of.pop(job)
            self._uses.pop(job, None)
            for key in self._by_job.pop(job):
                held = self._held[key]
                if job in held.jobs:
                    held.jobs.discard(job)
                    self._lose(held, user)
                if held.results.pop(job, 0):
                    self._lose(held, user)
                touched.append(key)
        for (scope, user, name), key in list(self._names.items()):
            if self._held[key].names[user, name] <= utc_s:
                del self._names[scope, user, name], self._held[key].names[user, name]
                self._lose(self._held[key], user)
                touched.append(key)
        return self._gone(touched)

    def clear(self, utc_s: UtcS) -> None:
        """Take everything for lost: the process that kept the bytes has ended."""
        self.lost.extend(LostObject(held, utc_s) for held in self._held.values())
        self.changes += [
            HoldingChange(held.key, user, held.size, is_held=False)
            for held in self._held.values()
            for user in held.holders
        ]
        self._held.clear()
        self._by_session.clear()
        self._by_job.clear()
        self._uses.clear()
        self._names.clear()
        self._waiting.clear()
        self._by_owner.clear()
        self._objects_of.clear()
        self._user_of.clear()
        self.bytes = 0

    def _gone(self, keys: Iterable[ObjectKey]) -> list[ObjectKey]:
        gone = []
        for key in dict.fromkeys(keys):
            held = self._held.get(key)
            if held is not None and not held.is_held:
                del self._held[key]
                self.bytes -= held.size
                self._count(("project", key.scope), -held.size)
                gone.append(key)
        return gone
