"""Fetches one object from its holders into a file, each stream in a thread of its own.

`federation.bulk.pull` decides what to ask of which holder; here are the sockets and the file. A
block is received, hashed and written by the thread of its stream, so streams share the cores.
"""

import contextlib
import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from federation.bulk.frames import FrameKind, frame, pack_ranges
from federation.bulk.pull import BadManifest, BlockPull
from federation.errors import ProtocolError
from federation.objects.manifests import BLOCK_BYTES
from federation.sessions.bulk_socket import BulkSocket, StreamRefused, dial_bulk

OWED_BYTES: Final = 4 * BLOCK_BYTES  # that a holder owes one stream at a time
IDLE_S: Final = 0.5  # a stream looks again so often whether blocks of another one came free


@dataclass(frozen=True, slots=True)
class BulkSource:
    """Where an object may be fetched.

    Attributes:
        holder: for people: the site, and the number of the stream if there are several.
        ticket: that site's.
        context: the pins of that site; None for plain TCP.
        server_name: that site, which is a name of its leaf.
    """

    holder: str
    address: str
    ticket: bytes
    context: ssl.SSLContext | None = None
    server_name: str = ""


class BlockFetch:
    """The transfer of one object into a file, which may be cut off and go on.

    Args:
        plan: what is here, and what is missing.
        file: the descriptor of a file of the object's size.
    """

    def __init__(
        self,
        plan: BlockPull,
        file: int,
        dial: Callable[[str, ssl.SSLContext | None, str], BulkSocket] = dial_bulk,
    ) -> None:
        self.plan = plan
        self._file = file
        self._dial = dial
        self._changed = threading.Condition()
        self._streams: set[BulkSocket] = set()
        self._is_stopped = False
        self.refused: set[str] = set()  # holders that have said why they give nothing

    def run(self, source: BulkSource) -> None:
        """Fetch from one holder until the object is whole, or this holder gives no more.

        In a thread for each source; `plan` has the outcome.
        """
        try:
            stream = self._dial(source.address, source.context, source.server_name)
        except (OSError, ProtocolError, ValueError) as error:
            self._lost(source.holder, f"{source.address} can't be reached: {error}")
            return
        try:
            with self._changed:
                self._streams.add(stream)
                if self._is_stopped:
                    raise ConnectionAbortedError("the transfer was stopped")
            self._fetch(source, stream)
        except StreamRefused as error:
            self.refused.add(source.holder)
            self._lost(source.holder, str(error))
        except BadManifest:
            self.refused.add(source.holder)
            self._wake()
        except (OSError, ProtocolError) as error:
            self._lost(source.holder, f"the stream has failed: {error or type(error).__name__}")
        finally:
            with self._changed:
                self._streams.discard(stream)
            with contextlib.suppress(OSError):
                stream.close()

    def _fetch(self, source: BulkSource, stream: BulkSocket) -> None:
        holder = source.holder
        manifest = stream.open(source.ticket)
        with self._changed:
            self.plan.meet(holder, manifest)
        owed = 0
        buffer = memoryview(bytearray(min(BLOCK_BYTES, max(1, self.plan.size))))
        while True:
            with self._changed:
                ranges = self.plan.want(holder, OWED_BYTES)
                if not ranges and not owed:
                    if self.plan.is_done or self._is_stopped:
                        return
                    self._changed.wait(IDLE_S)
                    continue
            if ranges:
                owed += sum(stop - first for first, stop in ranges)
                stream.send(frame(FrameKind.WANT, pack_ranges(ranges)))
            self._take(holder, stream, buffer)
            owed -= 1

    def _take(self, holder: str, stream: BulkSocket, buffer: memoryview) -> None:
        head = stream.answer(FrameKind.BLOCK)
        with self._changed:
            if not self.plan.is_asked(holder, head.number, head.length):
                raise ProtocolError(f"block {head.number:,} was not asked for")
        block = buffer[: head.length]
        stream.into(block)
        if not self.plan.is_good(head.number, block):
            with self._changed:
                raise ProtocolError(self.plan.bad(holder, head.number))
        self._write(head.number, block)
        with self._changed:
            copies = self.plan.arrived(holder, head.number)
        for each in copies:
            self._write(each, block)
        if copies or self.plan.is_done:
            self._wake()

    def _write(self, number: int, block: memoryview) -> None:
        offset, _ = self.plan.where(number)
        done = 0
        while done < len(block):
            done += os.pwrite(self._file, block[done:], offset + done)

    def _lost(self, holder: str, reason: str) -> None:
        with self._changed:
            self.plan.lost(holder, reason)
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """End all streams, from any thread; what is here stays."""
        with self._changed:
            self._is_stopped = True
            for each in self._streams:
                each.stop()
            self._changed.notify_all()
