"""A client's caches: jobs that take more calls, functions that may be sent again. Pure.

Both are bounded, so that a loop over `submit(partial(f, i))`, a different function each time,
leaves neither open jobs at the gateway nor bodies in memory.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from federation.engine.books.streams import Stream
from federation.payload import SealedFunction

STREAMS_MAX: Final = 128  # jobs that submit keeps open
FUNCTIONS_MAX: Final = 256  # functions that no job needs now
FUNCTION_BYTES_MAX: Final = 64 << 20  # and the bytes of their bodies


class StreamShelf:
    """The jobs that submit fills: one for each function and set of options.

    The caller closes a job that leaves the shelf; its calls still end, and the next call of its
    function opens another. Jobs with a cost limit stay: another job would begin a new count.
    """

    def __init__(self) -> None:
        self._streams: OrderedDict[Hashable, Stream] = OrderedDict()
        self._limited: dict[Hashable, Stream] = {}
        self._totals: dict[str, int] = {}  # calls at the last sweep

    def find(self, key: Hashable) -> Stream | None:
        """Return the job for calls of this kind, if it is open; mark it as most recently used."""
        stream = self._streams.get(key)
        if stream is not None:
            self._streams.move_to_end(key)
        else:
            stream = self._limited.get(key)
        return stream if stream is not None and stream.is_open else None

    def add(self, key: Hashable, stream: Stream) -> list[Stream]:
        """Put a job on the shelf; return the least recently used ones that must go."""
        if stream.opening.max_cost_nanos is not None:
            self._limited[key] = stream
            return []
        self._streams[key] = stream
        self._streams.move_to_end(key)
        gone = []
        while len(self._streams) > STREAMS_MAX:
            gone.append(self._streams.popitem(last=False)[1])
        return gone

    def sweep(self) -> list[Stream]:
        """Remove and return the jobs without unfinished calls or new ones since the last sweep."""
        gone = []
        totals: dict[str, int] = {}
        for key, stream in list(self._streams.items()):
            if not stream.unfinished and self._totals.get(stream.id) == stream.total:
                del self._streams[key]
                gone.append(stream)
            else:
                totals[stream.id] = stream.total
        self._totals = totals
        return gone


class FunctionShelf:
    """The bodies of functions: all that jobs need, and the latest of the others."""

    def __init__(self) -> None:
        self._bodies: dict[bytes, bytes] = {}
        self._uses: dict[bytes, int] = {}
        self._unused: OrderedDict[bytes, None] = OrderedDict()
        self._unused_bytes = 0

    def use(self, function: SealedFunction) -> None:
        """Keep a function for a job, until `release`."""
        digest = function.digest
        self._bodies[digest] = function.body
        self._uses[digest] = self._uses.get(digest, 0) + 1
        if digest in self._unused:
            del self._unused[digest]
            self._unused_bytes -= len(function.body)

    def release(self, digest: bytes) -> list[bytes]:
        """Release a function from a job; return the functions that are now forgotten."""
        self._uses[digest] -= 1
        if self._uses[digest]:
            return []
        del self._uses[digest]
        self._unused[digest] = None
        self._unused_bytes += len(self._bodies[digest])
        gone = []
        while len(self._unused) > FUNCTIONS_MAX or self._unused_bytes > FUNCTION_BYTES_MAX:
            oldest, _ = self._unused.popitem(last=False)
            self._unused_bytes -= len(self._bodies.pop(oldest))
            gone.append(oldest)
        return gone

    def body(self, digest: bytes) -> bytes | None:
        """Return a function's body, if it is kept."""
        return self._bodies.get(digest)
