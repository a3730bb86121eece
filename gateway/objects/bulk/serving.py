"""The holder's end of a bulk stream: shows the manifest, and sends the blocks that are asked for.

It blocks, and runs in a thread of the carrier. The ticket is judged by the carrier.
"""

from collections.abc import Callable
from dataclasses import dataclass

from federation.bulk.frames import FrameKind, frame, read_ranges, refused
from federation.bulk.pull import BlockMap
from federation.errors import ProtocolError
from federation.objects.manifests import read_manifest
from federation.sessions.bulk_socket import BulkSocket


class NotServed(Exception):
    """A ticket is not taken, or no more of its object is given; the text goes to the other end."""


@dataclass(frozen=True, slots=True)
class OpenedObject:
    """An object that a ticket has opened.

    Attributes:
        file: a descriptor of it, which belongs to the stream.
        manifest: as it travels.
    """

    file: int
    size: int
    digest: bytes
    manifest: bytes


def serve_stream(
    stream: BulkSocket,
    admit: Callable[[bytes, bytes], OpenedObject],
    may_send: Callable[[int], bool],
    close: Callable[[int], None],
) -> int:
    """Serve one stream until its puller has closed it; return the bytes of blocks that were sent.

    Args:
        admit: takes the ticket and the leaf that the puller has shown; raises NotServed.
        may_send: whether so many bytes more may be sent.
        close: releases the file.

    Raises:
        ProtocolError, OSError: the stream has failed.
    """
    ticket = stream.hello()
    try:
        opened = admit(ticket, stream.leaf)
    except NotServed as error:
        stream.send(refused(str(error)))
        return 0
    try:
        return _send_blocks(stream, opened, may_send)
    finally:
        close(opened.file)


def _send_blocks(stream: BulkSocket, opened: OpenedObject, may_send: Callable[[int], bool]) -> int:
    try:
        where = BlockMap(read_manifest(opened.manifest, opened.digest), opened.size)
    except ValueError as error:
        raise ProtocolError(f"the object host's manifest is not good: {error}") from None
    stream.send(frame(FrameKind.MANIFEST, opened.manifest))
    sent_bytes = 0
    while (wanted := stream.wanted()) is not None:
        for first, stop in read_ranges(wanted, len(where)):
            for number in range(first, stop):
                offset, length = where.where(number)
                if not may_send(length):
                    stream.send(refused("the ticket has fetched its object too often"))
                    return sent_bytes
                stream.send_block(number, opened.file, offset, length)
                sent_bytes += length
    return sent_bytes
