"""Objects of a client: puts values at the object host of its gateway's host, and refers to them.

    put ─► body ─► segment ══ descriptor ══► object host ─► gateway: held by this session
    reference ─► lease ◄─ calls that use it, until they have ended
    object host ══ descriptor ══► mapping: no descriptor is kept, and the memory is ours meanwhile

A lease is one hold of this session on an object. The reference that the user has, and every call
that uses it, share it; when the last of them is gone, the gateway is told to let go.
"""

import contextlib
import errno
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

from federation.errors import (
    GatewayUnreachable,
    GridError,
    ObjectLost,
    ObjectRefused,
    ProtocolError,
    ResidencyRefused,
)
from federation.messages.messages import OpenJob
from federation.messages.objects import (
    GetObject,
    HostOpen,
    ObjectHere,
    ObjectKept,
    OpenHost,
    PutObject,
)
from federation.objects.bodies import load, make_body
from federation.objects.labels import UNLABELLED, DataLabel, conflict, meet, read_label
from federation.objects.large_arguments import LargeArgument
from federation.objects.left import WHOLE, left_value, read_left
from federation.objects.manifests import digest_text, read_digest
from federation.objects.mappings import has_room
from federation.objects.open_calls import InputValue, OpenCall, SealedCall
from federation.objects.references import reduced, references_of
from federation.objects.room import no_room
from federation.objects.segments import Segment, create
from federation.sessions.object_socket import BlockingObjectSocket

HOST_S: Final = 60.0  # time for the object host to answer
NAMED_S: Final = 86_400.0  # how long a name lasts if nothing is said
WRITERS: Final = min(4, os.cpu_count() or 1)  # threads that write a large object
HELD_AT_ONCE: Final = 1_000  # objects in one question
CALL_MAX: Final = 256  # references of one call: each costs the slot a descriptor


ValueT = TypeVar("ValueT", covariant=True)


class ObjectGateway(Protocol):
    """What objects use of an engine."""

    @property
    def session_number(self) -> int:
        """The number of sessions so far: the objects of earlier ones are let go."""

    @property
    def site(self) -> str:
        """The site of the gateway."""

    def ask(self, verb: str, details: dict[str, Any], *, late: bool = False) -> Any:
        """Ask the gateway; with `late` also where the client takes no new work."""


class NotThere(ObjectLost):
    """The object host does not have an object, by its own word."""


class ObjectLease:
    """One hold of a session on an object; let go of when nothing refers to it.

    `view` has its bytes, if they are mapped here, and may be None. `label` says where they may lie.
    """

    __slots__ = (
        "__weakref__",
        "digest",
        "is_argument",
        "label",
        "project",
        "session",
        "size",
        "view",
    )

    def __init__(
        self, digest: bytes, size: int, project: str, session: int, view: memoryview | None = None
    ) -> None:
        self.digest = digest
        self.size = size
        self.project = project
        self.session = session
        self.view = view
        self.label = UNLABELLED  # as far as this client knows; the gateway knows more
        self.is_argument = False  # its calls can be sent with its bytes in its place


class ObjectRef(Generic[ValueT]):
    """A reference to a value that stays at its site.

    Pass it anywhere among the arguments of a call, also inside lists, dicts and dataclasses: the
    task gets the value, whose buffers (arrays) it reads where they lie, without a copy. They are
    read-only there. `client.put` makes one.
    """

    __slots__ = ("_lease", "_objects", "name")

    def __init__(self, objects: "ClientObjects", lease: ObjectLease, name: str) -> None:
        self._objects = objects
        self._lease: ObjectLease | None = lease
        self.name = name

    @property
    def objects(self) -> "ClientObjects":
        """The objects of its client."""
        return self._objects

    @property
    def lease(self) -> ObjectLease:
        """The hold on the object. Raises ObjectLost after `release`."""
        if self._lease is None:
            raise ObjectLost("the reference was released: put the value again")
        return self._lease

    @property
    def size(self) -> int:
        """The bytes of the object."""
        return self.lease.size

    @property
    def digest(self) -> str:
        """The identity of the object, by its content: `b3:…` or `s2:…`."""
        return digest_text(self.lease.digest)

    @property
    def project(self) -> str:
        """The project whose calls may refer to it."""
        return self.lease.project

    @property
    def residency(self) -> list[str]:
        """Where it may lie, in the words of `put`; empty: anywhere."""
        return list(self.lease.label.words)

    def result(self) -> ValueT:
        """Return the value; its buffers are read-only views of the object.

        Raises ObjectLost when nothing holds the object any more.
        """
        found: ValueT = load(self._objects.view_of(self.lease))
        return found

    def where(self) -> list[dict[str, Any]]:
        """Return where it is held: `site`, `host`, `bytes` and `residency` of each copy.

        `residency` says where it may lie, as `put` takes it. Moves no bytes.
        """
        found = self._objects.describe(self.lease)
        named = {key: found[key] for key in ("site", "host", "bytes")}
        return [{**named, "residency": found.get("residency", [])}]

    def release(self) -> None:
        """Let go of the object, once the calls that refer to it have ended. Idempotent.

        Dropping the last reference does the same. A name keeps the object until it expires.
        """
        self._lease = None

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self._objects.note(self.lease))

    def __copy__(self) -> "ObjectRef[ValueT]":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "ObjectRef[ValueT]":
        return self

    def __repr__(self) -> str:
        if self._lease is None:
            return "<ObjectRef, released>"
        name = f" {self.name!r}" if self.name else ""
        return f"<ObjectRef{name} {self.digest[:15]}…, {self.size:,} bytes>"


class LeftResult:
    """A result that its site has kept: an object of this client, or its bytes as they came.

    It is let go of when nothing refers to this, or as soon as `own` has mapped it.
    """

    __slots__ = ("_lease", "_objects", "_view", "_whole")

    def __init__(
        self, objects: "ClientObjects", lease: ObjectLease | None, whole: bytes = b""
    ) -> None:
        self._objects = objects
        self._lease = lease
        self._whole = whole
        self._view: memoryview | None = None

    @property
    def is_away(self) -> bool:
        """Whether its bytes are at the object host alone."""
        return self._lease is not None and self._lease.view is None

    def own(self, *, as_reference: bool) -> None:
        """Map it, so that it is not lost with the object host, as far as mappings are left.

        A reference is still held at its site; any other result is this client's alone from then
        on. Raises NotThere, and other errors of GridError or OSError where it may be tried again.
        """
        lease = self._lease
        if lease is None:
            return
        view = self._objects.map_late(lease, is_private=not as_reference)
        if as_reference:
            lease.view = view
        elif view is not None:
            self._view, self._lease = view, None

    def open(self) -> Any:
        """Return the value; its buffers may be changed, and are copied where they are.

        Raises ObjectLost when nothing holds it any more, SerializationError.
        """
        if self._view is not None:
            return load(self._view)
        if self._lease is None:
            return load(memoryview(bytearray(self._whole)))
        return load(self._objects.view_of(self._lease, is_private=True))

    def as_input(self) -> InputValue:
        """Return what it is as an argument of another call."""
        if self._view is not None:  # this client's alone: it goes in the message
            return InputValue(WHOLE + bytes(self._view))
        if self._lease is None:
            return InputValue(WHOLE + self._whole)
        self._objects.note(self._lease)
        return InputValue(left_value(self._lease.digest, self._lease.size), self._lease)

    def reference(self) -> "ObjectRef[Any]":
        """Return a reference to it. ObjectLost where the site had no room for an object."""
        if self._lease is None:
            raise ObjectLost("the site had no room to keep this result as an object")
        return ObjectRef(self._objects, self._lease, "")


class HostLine:
    """A client's connection to the object host of its gateway, one request at a time.

    Args:
        engine: its session with the gateway.
        late: whether it may be opened where the client takes no new work.
    """

    def __init__(self, engine: ObjectGateway, *, late: bool = False) -> None:
        self._engine = engine
        self._late = late
        self._lock = threading.RLock()  # a callback of a future may put, too
        self._sockets: dict[tuple[int, str], BlockingObjectSocket] = {}  # by session and project
        self._bytes_max = 0  # the room of the host that was opened last
        self.spills = False  # whether that one writes objects to disk
        self.keeps_labels = False  # whether that one keeps labels of objects

    def room(self, project: str) -> int:
        """Return the room for all objects. Raises ObjectRefused, OSError."""
        with self._lock:
            self._connected(self._engine.session_number, project)
            return self._bytes_max

    def ask(self, session: int, project: str, message: Any, file: int = -1) -> tuple[Any, int]:
        """Send a message, with a descriptor if there is one; return the answer, and its descriptor.

        Raises ObjectLost when the host is gone, ObjectRefused when it can't be reached, OSError.
        """
        with self._lock:
            known = self._sockets.get((session, project))
            if known is not None:
                with contextlib.suppress(ObjectLost):  # it may have ended since
                    return self._exchange(known, message, file)
            return self._exchange(self._connected(session, project), message, file)

    def _exchange(
        self, connection: BlockingObjectSocket, message: Any, file: int
    ) -> tuple[Any, int]:
        try:
            return connection.ask(message, file)
        except (OSError, ProtocolError) as error:
            self._close()
            raise ObjectLost(
                f"the object host of site {self._engine.site} is gone: {error}"
            ) from None
        except BaseException:  # Ctrl-C: an answer may come later
            self._close()
            raise

    def _connected(self, session: int, project: str) -> BlockingObjectSocket:
        """Return the connection for a project, opened if there is none. Under the lock."""
        if (session, project) not in self._sockets:
            self._close()
            self._sockets[session, project] = self._open(project)
        return self._sockets[session, project]

    def _open(self, project: str) -> BlockingObjectSocket:
        try:
            where = self._engine.ask("object_host", {"project": project}, late=self._late)
        except GridError as error:
            raise ObjectRefused(f"objects can't be put here: {error}") from None
        try:
            connection = BlockingObjectSocket(where["address"], HOST_S)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise ObjectRefused(f"the object host can't be reached: {error}") from None
            self._is_elsewhere(where["host"])
        try:
            if connection.peer_pid != where["pid"]:
                self._is_elsewhere(where["host"])
            answer, _ = connection.ask(OpenHost(where["ticket"]))
            if not isinstance(answer, HostOpen):
                raise ObjectRefused("the object host refuses this client")
            self._bytes_max, self.spills = answer.bytes_max, answer.spills
            self.keeps_labels = answer.labels
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_elsewhere(self, host: str) -> NoReturn:
        raise ObjectRefused(
            f"the objects of site {self._engine.site} are kept on host {host}, and this process, "
            f"on {socket.gethostname()}, is on another one, or in another network namespace. Only "
            "clients on that host can put objects so far: pass the value itself as an argument"
        )

    def _close(self) -> None:
        sockets, self._sockets = self._sockets, {}
        for each in sockets.values():
            each.close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._close()


class ClientObjects:
    """The objects of one engine.

    Args:
        engine: its session with the gateway.
        let_go: tells the gateway, soon, that this session needs an object of a project no more; in
            any thread, and in a finaliser.
    """

    def __init__(self, engine: ObjectGateway, let_go: Callable[[str, bytes], None]) -> None:
        self._engine = engine
        self._let_go = let_go
        self._line = HostLine(engine)
        self._late_line = HostLine(engine, late=True)  # results do not wait for puts
        self._leases: weakref.WeakValueDictionary[tuple[str, bytes], ObjectLease] = (
            weakref.WeakValueDictionary()
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held at this gateway."""
        return not self._leases

    def put(
        self, value: Any, project: str, name: str, for_s: float | None, residency: Any = ()
    ) -> ObjectRef[Any]:
        """Put a value; see federation.client.Client.put."""
        label = read_label(residency, self._engine.site)
        segment = self._written(value, project, label)
        return ObjectRef(self, self._send(segment, project, name, for_s, label), name)

    def put_argument(self, value: Any, project: str) -> LargeArgument | None:
        """Put a large argument of a call; None where this process can't keep it mapped, too.

        Raises as `put` does.
        """
        if not has_room():
            return None
        lease = self._send(self._written(value, project), project, is_kept=True)
        if lease.view is None:
            return None
        lease.is_argument = True
        return LargeArgument(lease, lambda: self._engine.session_number)

    def takes_arguments(self) -> bool:
        """Whether large arguments may be objects: all of the site's slots can read them.

        False at a gateway of an older version.
        """
        try:
            return self._engine.ask("large_arguments", {}) is True
        except GridError:
            return False

    def _written(self, value: Any, project: str, label: DataLabel = UNLABELLED) -> Segment:
        """Pickle a value into a sealed file. Raises SerializationError, ObjectRefused."""
        body = make_body(value)
        why = no_room(self._line.room(project), 0, body.size)
        if label and not self._line.keeps_labels:
            why = (
                f"site {self._engine.site} is of an older version, which keeps no labels of "
                "objects (residency): its operator must update it first"
            )
        if why:  # before it takes as much memory again
            raise ObjectRefused(why)
        try:
            segment = create(body.size)
            segment.write(body.pieces(), WRITERS)
        except OSError as error:
            raise ObjectRefused(
                f"this host has no memory, or this process no descriptor, for an object of "
                f"{body.size:,} bytes: {error}"
            ) from None
        segment.seal()
        return segment

    def arrived(self, outcomes: list[Any], project: str, label: DataLabel = UNLABELLED) -> None:
        """Put a LeftResult in the place of each outcome that stands for an object.

        `label` is that of the results.
        """
        session = self._engine.session_number
        for at, value in enumerate(outcomes):
            if type(value) is not bytes:
                continue
            found = read_left(value)
            if found is not None:
                lease = self._lease(found[0], found[1], project, session)
                lease.label = label
                outcomes[at] = LeftResult(self, lease)
            elif value[:1] == WHOLE:
                outcomes[at] = LeftResult(self, None, value[1:])

    def find(self, name: str, project: str, user: str | None = None) -> ObjectRef[Any]:
        """Return a reference to the object of a user's name, by default one's own. ObjectLost."""
        session = self._engine.session_number
        details = {"name": name, "project": project} | ({} if user is None else {"user": user})
        try:
            found = self._engine.ask("object", details)
        except GridError as error:
            raise ObjectLost(str(error)) from None
        digest = read_digest(found["digest"])
        lease = self._lease(digest, found["bytes"], project, session)
        lease.label = read_label(found.get("residency", ())).named(f"object {name}")
        return ObjectRef(self, lease, name)

    def label_of(self, call: SealedCall, project: str) -> DataLabel:
        """Return where the data that a call reads may lie, by its references and futures.

        Raises ResidencyRefused, which names the inputs, where no place is left.
        """
        leases = (self._leases.get((project, digest)) for digest in references_of(call))
        labels = [lease.label for lease in leases if lease is not None]
        if isinstance(call, OpenCall):
            labels += [each.label for each in call.inputs]
        why = conflict(labels)
        if why:
            raise ResidencyRefused(why)
        return meet(labels)

    def drop(self, name: str, project: str) -> str:
        """Take an own name of an object back; return what holds it still. Raises ObjectLost."""
        try:
            found = self._engine.ask("drop_object", {"name": name, "project": project})
        except GatewayUnreachable:
            raise
        except GridError as error:
            raise ObjectLost(str(error)) from None
        return "" if found["freed"] else str(found["text"])

    def _send(
        self,
        segment: Segment,
        project: str,
        name: str = "",
        for_s: float | None = None,
        label: DataLabel = UNLABELLED,
        *,
        is_kept: bool = False,
    ) -> ObjectLease:
        """Have the object host keep a file, which is mapped and closed then.

        `is_kept`: it is mapped also where the object host may write it to disk.
        """
        session = self._engine.session_number
        message = PutObject(1, segment.size, name, for_s, label=list(label.words))
        try:
            answer, _ = self._line.ask(session, project, message, segment.descriptor)
            if not isinstance(answer, ObjectKept):
                raise ObjectRefused(getattr(answer, "reason", "the object host does not answer"))
            known = self._leases.get((project, answer.digest))
            lease = self._lease(answer.digest, segment.size, project, session)
            title = f"object {name or digest_text(answer.digest)[:15] + '…'}"
            lease.label = read_label(answer.label).named(title)
            if known is not None and known.view is not None:
                lease.view = known.view  # equal bytes: one copy is enough
                return lease
            if self._line.spills and not is_kept:
                return lease  # a mapping would keep memory that the host is to free
            with contextlib.suppress(OSError):  # then it can't be put again if it is lost
                lease.view = segment.view() if has_room() else None
            return lease
        finally:
            segment.close()

    def _lease(
        self,
        digest: bytes,
        size: int,
        project: str,
        session: int,
    ) -> ObjectLease:
        lease = ObjectLease(digest, size, project, session)
        self._leases[project, digest] = lease
        self._hold(lease, session)
        return lease

    # --- uses ----------------------------------------------------------------------------------

    def note(self, lease: ObjectLease) -> bytes:
        """Make sure that this session holds an object that a call is going to use."""
        if lease.session != self._engine.session_number:
            self._put_again(lease)
        self._leases[lease.project, lease.digest] = lease
        return lease.digest

    def come_back(self, session: int, used: Iterable[ObjectLease]) -> dict[bytes, str]:
        """Hold the objects of the last session in this one: the gateway's next run may have them.

        Of those that it lacks, the ones that calls use are put again. Return those that are lost,
        by digest, each with a text for the user. Raises GridError where the session ends meanwhile.
        """
        needed = {id(lease): lease for lease in used}
        leases = {id(lease): lease for lease in list(self._leases.values())} | needed
        by_project: dict[str, list[ObjectLease]] = {}
        for lease in leases.values():
            if lease.session != session:
                by_project.setdefault(lease.project, []).append(lease)
        lost: dict[bytes, str] = {}
        for project, group in by_project.items():
            missing = self._not_there(project, {lease.digest for lease in group})
            for lease in group:
                if lease.digest not in missing:
                    missing.add(lease.digest)  # held once: others of it are put again if used
                    self._hold(lease, session)
                elif id(lease) in needed:
                    why = ""
                    try:
                        self._put_again(lease)
                    except (ObjectLost, ObjectRefused) as error:
                        why = str(error)
                    except GridError:
                        raise
                    except Exception as error:  # noqa: BLE001 - its calls would wait for ever
                        why = f"the object can't be put again: {error}"
                    if why and not lease.is_argument:
                        lost[lease.digest] = why
        return lost

    def _not_there(self, project: str, digests: set[bytes]) -> set[bytes]:
        """Have the gateway hold objects for this session; return those that it has not."""
        missing: set[bytes] = set()
        found = sorted(digests)
        for at in range(0, len(found), HELD_AT_ONCE):
            part = found[at : at + HELD_AT_ONCE]
            details = {"project": project, "digests": list(map(digest_text, part))}
            try:
                answer = self._engine.ask("hold_objects", details)
                missing.update(map(read_digest, answer["lost"]))
            except GatewayUnreachable:
                raise
            except (GridError, LookupError, TypeError, ValueError):
                # It keeps no objects, is older, or its answer is strange.
                missing.update(part)
        return missing

    def _put_again(self, lease: ObjectLease) -> None:
        """Put an object of an earlier session for this one. Raises ObjectLost, ObjectRefused."""
        if lease.view is None:
            raise ObjectLost(
                f"object {digest_text(lease.digest)} was held for an earlier session with "
                f"site {self._engine.site}, and is lost: ask for it again by its name, or put it "
                "again"
            )
        segment = create(lease.size)
        segment.write([(0, lease.view)], WRITERS)
        segment.seal()
        again = self._send(segment, lease.project, label=lease.label)
        lease.view = again.view
        # The new hold belongs to this lease: it lives as long as the user's reference.
        lease.session = again.session
        weakref.finalize(lease, _keep, again).atexit = False

    def _hold(self, lease: ObjectLease, session: int) -> None:
        """Note that a session holds an object for this lease, and let go of it at its end."""
        lease.session = session
        own = weakref.ref(self)
        end = weakref.finalize(lease, _let_go, own, session, lease.project, lease.digest)
        end.atexit = False

    def leases_for(self, calls: Iterable[SealedCall], opening: OpenJob) -> dict[bytes, ObjectLease]:
        """Return the leases of the objects that calls of a job refer to, by digest.

        Raises ObjectRefused where they can't.
        """
        return {
            lease.digest: lease
            for call in calls
            for lease in self._leases_of(call, opening.project)
        }

    def ended(self, session: int, project: str, digest: bytes) -> None:
        """Note that a lease is gone."""
        if session == self._engine.session_number:
            self._let_go(project, digest)

    def _leases_of(self, call: SealedCall, project: str) -> list[ObjectLease]:
        """Return the leases of the objects that a sealed call refers to.

        Raises ObjectRefused for objects of another project, and for too many.
        """
        digests = references_of(call)
        if len(digests) > CALL_MAX:
            raise ObjectRefused(
                f"a call has {len(digests):,} references to objects, the limit is {CALL_MAX}"
            )
        found = []
        for digest in digests:
            lease = self._leases.get((project, digest))
            if lease is None:
                raise ObjectRefused(
                    f"this client holds no object {digest_text(digest)} for project {project}, in "
                    "which the call is made. A reference is of its own client and project: put "
                    f"the value here (client.options(project={project!r}).put(…)), or name it "
                    "where it is and ask for it by client.object(name)"
                )
            found.append(lease)
        return found

    def view_of(self, lease: ObjectLease, *, is_private: bool = False) -> memoryview:
        """Return the bytes of an object; with `is_private` they may be written to.

        Raises ObjectLost, ObjectRefused where this process can't map it.
        """
        if lease.view is not None and not is_private:
            return lease.view
        line = self._line
        try:
            segment = self._fetch(line, lease)
            try:
                view = segment.view(is_private=is_private)
            finally:
                segment.close()
        except OSError as error:
            raise ObjectRefused(
                f"this process can't map object {digest_text(lease.digest)}, of {lease.size:,} "
                f"bytes: {error}"
            ) from None
        if has_room() and not is_private and not line.spills:
            lease.view = view
        return view

    def map_late(self, lease: ObjectLease, *, is_private: bool) -> memoryview | None:
        """Map an object, also where no new work is taken; None where mappings are short.

        Raises NotThere, other GridErrors, OSError.
        """
        segment = self._fetch(self._late_line, lease)
        try:
            return segment.view(is_private=is_private) if has_room() else None
        finally:
            segment.close()

    def _fetch(self, line: HostLine, lease: ObjectLease) -> Segment:
        message = GetObject(1, lease.project, lease.digest)
        answer, file = line.ask(lease.session, lease.project, message)
        if not isinstance(answer, ObjectHere):
            raise NotThere(f"site {self._engine.site}: {getattr(answer, 'reason', '')}")
        return Segment(file, answer.size, is_sealed=True)

    def describe(self, lease: ObjectLease) -> dict[str, Any]:
        """Return what the gateway knows of an object. Raises ObjectLost."""
        details = {"project": lease.project, "digest": digest_text(lease.digest)}
        try:
            return dict(self._engine.ask("object", details))
        except GridError as error:
            raise ObjectLost(f"site {self._engine.site}: {error}") from None

    def close(self) -> None:
        """Close the connections to the object host."""
        self._line.close()
        self._late_line.close()


def _keep(_lease: ObjectLease) -> None:
    """Refer to a lease until another is gone."""


def _let_go(
    objects: "weakref.ref[ClientObjects]", session: int, project: str, digest: bytes
) -> None:
    found = objects()
    if found is not None:
        found.ended(session, project, digest)
