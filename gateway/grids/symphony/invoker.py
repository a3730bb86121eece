"""Runs calls on Symphony's hosts, under the Python that they were pickled for.

The service container (soam/service.py) runs under the Python that `soamapi` was built for, which
may differ from that of the calls. It starts this process beside itself, and passes bytes both ways:

    service ── F common data ─► invoker ── channel, cells ── slot (gateway.worker.slot.slot)
            ── I task input  ─►
            ◄─ O task output ──
            ◄─ E text ────────     this host can't run it

A frame is a letter, a length of four bytes and that many bytes. This process ends with the service,
which closes its input.
"""

import os
import select
import struct
import sys
from collections import OrderedDict
from typing import BinaryIO, Final

from gateway.grids.symphony.parcel_bytes import pack_output, unpack_common, unpack_input
from gateway.worker.slot.lone import LoneSlot, SlotUnfitError

HEADER: Final = struct.Struct("!cI")
FUNCTIONS_MAX: Final = 64
MEMORY_VARIABLE: Final = "GRIDFED_SLOT_MEMORY"  # bytes; none: no limit


class CallInvoker:
    """Takes frames, answers frames."""

    def __init__(self, frames_in: BinaryIO, frames_out: BinaryIO, memory_bytes: int) -> None:
        self._in = frames_in
        self._out = frames_out
        self._bodies: OrderedDict[bytes, bytes] = OrderedDict()
        self._poll = select.poll()
        self._poll.register(frames_in.fileno(), 0)  # polls only for its end
        self._slot = LoneSlot(memory_bytes, self._look)

    def serve(self) -> None:
        """Answer until the service is gone."""
        try:
            while (frame := self._read()) is not None:
                kind, data = frame
                try:
                    self._take(kind, data)
                except (ValueError, SlotUnfitError, OSError) as error:
                    self._write(b"E", f"{type(error).__name__}: {error}".encode())
        finally:
            self._slot.close()

    def _take(self, kind: bytes, data: bytes) -> None:
        if kind == b"F":
            digest, body = unpack_common(data)
            self._bodies[digest] = body
            self._bodies.move_to_end(digest)
            if len(self._bodies) > FUNCTIONS_MAX:
                self._bodies.popitem(last=False)
            self._write(b"O", b"")
        elif kind == b"I":
            calls = unpack_input(data)
            if calls.digest not in self._bodies:
                raise ValueError("the session's common data belongs to another function")
            self._write(b"O", pack_output(self._slot.run(calls, self._bodies)))
        else:
            raise ValueError(f"unknown frame kind {kind!r}")

    def _look(self) -> None:
        if self._poll.poll(0):
            self._slot.close()
            os._exit(0)

    def _read(self) -> tuple[bytes, bytes] | None:
        head = self._in.read(HEADER.size)
        if len(head) < HEADER.size:
            return None
        kind, size = HEADER.unpack(head)
        data = self._in.read(size)
        return (kind, data) if len(data) == size else None

    def _write(self, kind: bytes, data: bytes) -> None:
        self._out.write(HEADER.pack(kind, len(data)) + data)
        self._out.flush()


def main() -> None:
    """Serve on standard input and output; other output goes to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    CallInvoker(sys.stdin.buffer, out, int(os.environ.get(MEMORY_VARIABLE, "0"))).serve()


if __name__ == "__main__":
    main()
