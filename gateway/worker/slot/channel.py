"""The protocol between an agent and its slot: length-prefixed MessagePack.

Agent to slot:

    ["function", digest, body]
    ["forget", digest]
    ["object", digest, size]   an object that later tasks refer to; its file, sealed, comes along
    ["lost", digest, text]     instead: it is not to be had, for this reason
    ["drop", [digest, …]]      these objects are needed no more; none: all of them
    ["pass", text]             the pass by which the next tasks may be clients; empty: none
    ["chunk", number, digest, [arguments, …], prints, job, result_bytes_max, timeout_s, first,
     worker, live, results]    tasks `number`, `number` + 1, …, which are the job's tasks `first`,
                               `first` + 1, … (None: not known); and the worker, its host and
                               its pool, for people. With `live` (optional) what the tasks print
                               is sent as `said` while they run; `results` (optional) tells
                               which results are left as objects (federation.objects.left)

Slot to agent:

    ["ready"]
    ["said", [[number, text, stream], …]]
                               what tasks of the current bundle have printed; before the part that
                               has their results
    ["left", size]             a result as an object; its file, sealed, comes along. In the next
                               part its value is LEFT of federation.objects.left; one in a part
    ["part", number, values, failures, prints, wall_ns, cpu_ns, peak_memory_bytes, is_over]
                               results of tasks `number`, `number` + 1, … of the current bundle,
                               and what they printed: [offset, text, stream];
                               with `is_over` the slot has finished the bundle, and has not started
                               its remaining tasks

A slot's tasks are numbered from 0 for as long as it lives. Both ends are ours, but a task can reach
the slot's end: the agent checks everything it reads, and kills a slot that sends nonsense.
"""

import contextlib
import io
import itertools
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgpack

from federation.messages.printed import STREAMS
from federation.messages.wire import CHECKS, TEXT_CHARS_MAX, pack
from federation.sessions.object_socket import ANCILLARY_BYTES, files_of

LARGE_BYTES: Final = 1 << 16  # byte strings of this size are sent without a copy
_BIN32: Final = struct.Struct("!BI")
HEADER: Final = struct.Struct("!I")
MESSAGE_BYTES_MAX: Final = 1 << 31
READ_BYTES: Final = 1 << 16
# The kinds of failures that a slot reports: a task failed, or its result can't be sent. The agent
# reports all others: a task that was stopped to make room, say, costs nothing, and runs again as
# often as that happens.
FAILED: Final = "error"
UNSENT: Final = "result"
# The limit of the nanoseconds and bytes in a report: reports are added up, and the sum must fit
# into a message as well.
FIGURE_MAX: Final = 1 << 53
CHANNEL_LOST: Final = 97  # the exit code of a slot that can't reach its agent


class ChannelClosedError(Exception):
    """The other end is gone."""


class NonsenseError(Exception):
    """The other end sent something that is not a message."""


def encode(message: list[Any]) -> bytes:
    """Encode a message with its length prefix."""
    body = pack(message)
    return HEADER.pack(len(body)) + body


def encode_parts(message: list[Any]) -> list[bytes]:
    """Encode in parts to be sent one after the other, so that large byte strings are not copied."""
    if not _has_large(message):
        return [encode(message)]
    parts: list[bytes] = [_pack_array_header(len(message))]
    for field in message:
        is_list = type(field) is list and _is_large(field)
        if is_list:
            parts.append(_pack_array_header(len(field)))
        for item in field if is_list else (field,):
            if type(item) is bytes and len(item) >= LARGE_BYTES:
                parts += [_BIN32.pack(0xC6, len(item)), item]
            else:
                parts.append(pack(item))
    parts.insert(0, HEADER.pack(sum(map(len, parts))))
    return parts


def _has_large(message: list[Any]) -> bool:
    # A plain loop: it runs for each task, and nearly all messages are small.
    for field in message:
        kind = type(field)
        if kind is bytes and len(field) >= LARGE_BYTES:
            return True
        if kind is list and _is_large(field):
            return True
    return False


def _is_large(items: list[Any]) -> bool:
    for item in items:  # noqa: SIM110 - as above
        if type(item) is bytes and len(item) >= LARGE_BYTES:
            return True
    return False


def _pack_array_header(items: int) -> bytes:
    header: bytes = msgpack.Packer().pack_array_header(items)
    return header


class SendQueue:
    """The send queue of a non-blocking socket: sends each byte from its place.

    The rest after a partial send is not copied: the kernel takes some 200 kB at a time, and a
    message may be a hundred megabytes.
    """

    def __init__(self) -> None:
        self._views: deque[memoryview] = deque()
        self._files: deque[tuple[memoryview, int]] = deque()  # descriptors, with their bytes

    def __bool__(self) -> bool:
        return bool(self._views)

    def add(self, parts: Iterable[bytes], file: int = -1) -> None:
        """Queue the parts of a message, and a descriptor that goes along with their first byte.

        The descriptor is duplicated: the caller may close its own.
        """
        views = [memoryview(part) for part in parts]
        if file >= 0:
            self._files.append((views[0], os.dup(file)))
        self._views.extend(views)

    def send(self, connection: socket.socket) -> None:
        """Send as much as the socket takes at once. Raises OSError when the other end is gone."""
        while self._views:
            view = self._views[0]
            try:
                if self._files and self._files[0][0] is view:
                    sent = socket.send_fds(connection, [view], [self._files[0][1]])
                    os.close(self._files.popleft()[1])
                else:
                    sent = connection.send(view)
            except BlockingIOError:
                return
            if sent < len(view):
                self._views[0] = view[sent:]
                return
            self._views.popleft()

    def clear(self) -> None:
        """Discard the queue."""
        self._views.clear()
        while self._files:
            os.close(self._files.popleft()[1])


class Decoder:
    """Decodes a byte stream into messages.

    Args:
        bytes_max: the limit of one message; may be changed.
    """

    def __init__(self, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Take bytes; yield the messages that they complete. Raises NonsenseError."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._buffer)
            if size > self.bytes_max:
                raise NonsenseError("the message is too large")
            end = HEADER.size + size
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as whole, whole[HEADER.size : end] as body:
                message = _decode(body)
            del self._buffer[:end]
            yield message


def are_said(rows: object) -> bool:
    """Whether these are valid rows of `said`, and could go into a message to a gateway."""
    return (
        type(rows) is list
        and all(type(row) is list and len(row) == 3 for row in rows)
        and _is_printed(rows)
        and all(len(row[1].encode(errors="replace")) <= TEXT_CHARS_MAX for row in rows)
    )


def is_part(fields: list[Any]) -> bool:
    """Whether these are valid fields of a `part` after its number, and could go into a report.

    A task can reach the slot's end of the channel, and a gateway throws out a worker that sends
    nonsense: invalid fields must end the slot, not the worker.
    """
    if len(fields) != 7 or type(fields[6]) is not bool:
        return False
    values, failures, prints, *used = fields[:6]
    if not (CHECKS["Payloads"](values) and CHECKS["Failures"](failures) and _is_printed(prints)):
        return False
    if not all(CHECKS["Count"](figure) and figure < FIGURE_MAX for figure in used):
        return False
    if any(each[1] not in (FAILED, UNSENT) for each in failures):
        return False
    texts = (*(each[2] for each in failures), *(each[1] for each in prints))
    if any(len(text.encode()) > TEXT_CHARS_MAX for text in texts):
        return False
    offsets = [each[0] for each in failures]
    return all(0 <= each[0] < len(values) for each in (*failures, *prints)) and all(
        low < high for low, high in itertools.pairwise(offsets)
    )


def _is_printed(value: object) -> bool:
    """Whether this is [offset, text] or [offset, text, stream] for each piece of output."""
    return type(value) is list and all(
        type(row) is list
        and CHECKS["Prints"]([row[:2]])
        and (len(row) == 2 or (len(row) == 3 and type(row[2]) is int and row[2] in STREAMS))
        for row in value
    )


class _Reader(io.RawIOBase):
    """Reads a socket, and keeps the descriptors that come along, in order."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.files: deque[int] = deque()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read once."""
        size, ancillary, _, _ = self._socket.recvmsg_into(
            [buffer], ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
        if ancillary:
            self.files += files_of(ancillary)
        return size


class BlockingChannel:
    """The slot's end: one thread, blocking."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._raw = _Reader(connection)
        self._stream = io.BufferedReader(self._raw, READ_BYTES)
        self._sending = threading.Lock()

    def send(self, message: list[Any]) -> None:
        """Send a whole message."""
        with self._sending:
            for part in encode_parts(message):
                self._socket.sendall(part)

    def send_file(self, message: list[Any], file: int) -> None:
        """Send a small message, and a descriptor with it."""
        with self._sending:
            data = encode(message)
            sent = socket.send_fds(self._socket, [data], [file])
            self._socket.sendall(data[sent:])

    def send_said(self, take: Callable[[], list[list[Any]]]) -> bool:
        """Send the rows that `take` returns as `said`, unless another message is being sent.

        For any thread, and for signal handlers and finalizers, within `send` too. A broken channel
        is noticed at the next `send`.
        """
        if not self._sending.acquire(blocking=False):
            return False
        try:
            with contextlib.suppress(OSError):
                self._socket.sendall(encode(["said", take()]))
        finally:
            self._sending.release()
        return True

    def receive(self) -> list[Any]:
        """Wait for a message. Raises ChannelClosedError."""
        (size,) = HEADER.unpack(self._read(HEADER.size))
        return _decode(self._read(size))

    def take_file(self) -> int:
        """Return the descriptor of the message received last. Raises ChannelClosedError."""
        if not self._raw.files:
            raise ChannelClosedError
        return self._raw.files.popleft()

    def _read(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        if len(data) < size:
            raise ChannelClosedError
        return data

    def close(self) -> None:
        """Close this process's end."""
        self._stream.close()
        self._socket.close()


def _decode(body: memoryview | bytes) -> list[Any]:
    try:
        message = msgpack.unpackb(body, raw=False, max_bin_len=len(body), max_str_len=len(body))
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise NonsenseError(f"{type(error).__name__}: {error}"[:200]) from None
    if type(message) is not list or not message or type(message[0]) is not str:
        raise NonsenseError("the message is invalid")
    return message
