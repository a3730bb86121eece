"""Objects that an agent has fetched from the object host of its site, for its slots.

The agent maps nothing and reads nothing: it holds descriptors, and hands them on. What the host
drops is dropped here at once, and in the slots before their next tasks.
"""

import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

import trio

from federation.errors import ProtocolError
from federation.messages.objects import (
    DropObject,
    GetManifest,
    GetObject,
    HostOpen,
    ManifestPart,
    ObjectHere,
    ObjectKept,
    ObjectMissing,
    ObjectMoved,
    OpenHost,
    PutObject,
)
from federation.objects.segments import Segment
from federation.sessions.credentials import peer_credentials
from gateway.worker.object_pipe import ObjectPipe


class HeldObjects:
    """Files of objects, by project and digest.

    Args:
        address: of the object host; empty: there is none.
        ticket: this agent's.
        on_drop: is called with the digests of objects that are held no more.
    """

    def __init__(self, address: str, ticket: str, on_drop: Callable[[list[bytes]], None]) -> None:
        self._address = address
        self._ticket = bytes.fromhex(ticket)
        self._on_drop = on_drop
        self._files: dict[tuple[str, bytes], Segment] = {}
        self._pipe: ObjectPipe | None = None
        self._request = 0
        self._asked: dict[int, tuple[tuple[str, bytes], trio.Event]] = {}
        self._left: dict[int, trio.Event] = {}
        self._answers: dict[int, bytes | str | ManifestPart] = {}
        self._opening = trio.Lock()

    def find(self, scope: str, digest: bytes) -> Segment | None:
        """Return the file of an object, if it is here."""
        return self._files.get((scope, digest))

    def lacks(self, scope: str, digests: Iterable[bytes]) -> list[bytes]:
        """Return those of the digests whose objects are not here."""
        return [each for each in digests if (scope, each) not in self._files]

    def release(self, scope: str, digest: bytes) -> None:
        """Close the file of an object, if it is here; it can be fetched again."""
        segment = self._files.pop((scope, digest), None)
        if segment is not None:
            segment.close()

    async def fetch(self, scope: str, digests: Iterable[bytes], nursery: trio.Nursery) -> None:
        """Fetch objects, as far as the host has them. `nursery` runs the connection."""
        waiting = []
        try:
            pipe = await self._open(nursery)
            for digest in digests:
                self._request += 1
                arrived = trio.Event()
                self._asked[self._request] = (scope, digest), arrived
                waiting.append(arrived)
                await pipe.send(GetObject(self._request, scope, digest))
        except (OSError, ProtocolError):
            return  # the host is gone, and its objects with it
        for each in waiting:
            await each.wait()

    async def manifest(self, scope: str, digest: bytes, nursery: trio.Nursery) -> bytes | str:
        """Return the manifest of an object, or why there is none."""
        found = b""
        try:
            pipe = await self._open(nursery)
            while True:
                self._request += 1
                request, arrived = self._request, trio.Event()
                self._left[request] = arrived
                await pipe.send(GetManifest(request, scope, digest, len(found)))
                await arrived.wait()
                answer = self._answers.pop(request, "the object host is gone")
                if not isinstance(answer, ManifestPart):
                    return str(answer)
                found += answer.data
                if len(found) >= answer.size or not answer.data:
                    return found
        except (OSError, ProtocolError) as error:
            return f"the object host is gone: {error}"

    async def leave(
        self,
        scope: str,
        job: str,
        segment: Segment,
        nursery: trio.Nursery,
        *,
        is_input: bool = False,
    ) -> bytes | str:
        """Have the host keep a result of a job, or an input of its calls that came from another
        site; return its digest, or why it does not."""
        try:
            pipe = await self._open(nursery)
            self._request += 1
            request, arrived = self._request, trio.Event()
            self._left[request] = arrived
            await pipe.send(
                PutObject(request, segment.size, "", None, job, scope, is_input),
                segment.descriptor,
            )
        except (OSError, ProtocolError) as error:
            return f"the object host is gone: {error}"
        await arrived.wait()
        answer = self._answers.pop(request, "the object host is gone")
        return answer if isinstance(answer, bytes) else str(answer)

    async def _open(self, nursery: trio.Nursery) -> ObjectPipe:
        async with self._opening:
            if self._pipe is None:
                connection = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                pipe = ObjectPipe(connection)
                try:
                    await connection.connect("\0" + self._address.removeprefix("@"))
                    if peer_credentials(connection).uid != os.getuid():
                        raise ProtocolError("the object host belongs to another user")
                    await pipe.send(OpenHost(self._ticket))
                    messages = await pipe.receive()
                    if not messages or not isinstance(messages[0][0], HostOpen):
                        raise ProtocolError("the object host refuses this agent")
                except BaseException:
                    pipe.close()
                    raise
                self._pipe = pipe
                nursery.start_soon(self._listen, pipe)
            return self._pipe

    async def _listen(self, pipe: ObjectPipe) -> None:
        try:
            while messages := await pipe.receive():
                for message, file in messages:
                    self._hear(message, file)
        except (OSError, ProtocolError):
            pass  # as at its end
        finally:
            pipe.close()
            self._pipe = None
            self.close()

    def _hear(self, message: Any, file: int) -> None:
        match message:
            case ObjectHere(request, size) if request in self._asked:
                key, arrived = self._asked.pop(request)
                self._files[key] = Segment(file, size, is_sealed=True)
                arrived.set()
            case ObjectMissing(request, _) if request in self._asked:
                self._asked.pop(request)[1].set()
            case ManifestPart(request) if request in self._left:
                self._answers[request] = message
                self._left.pop(request).set()
            case ObjectKept(request, digest) if request in self._left:
                self._answers[request] = digest
                self._left.pop(request).set()
            case ObjectMissing(request, reason) if request in self._left:
                self._answers[request] = reason
                self._left.pop(request).set()
            case ObjectMoved(scope, digest, size):
                before = self._files.get((scope, digest))
                if before is None:
                    os.close(file)
                else:
                    self._files[scope, digest] = Segment(file, size, is_sealed=True)
                    before.close()
                    self._on_drop([digest])  # slots get the new file with their next calls
            case DropObject(scope, digest):
                segment = self._files.pop((scope, digest), None)
                if segment is not None:
                    segment.close()
                    self._on_drop([digest])
            case _:
                if file >= 0:
                    os.close(file)

    def close(self) -> None:
        """Release all files."""
        files, self._files = self._files, {}
        for segment in files.values():
            segment.close()
        for arrived in (*(each for _, each in self._asked.values()), *self._left.values()):
            arrived.set()
        self._asked.clear()
        self._left.clear()
        if files:
            self._on_drop([digest for _, digest in files])
