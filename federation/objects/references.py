"""References among the arguments of a call: holes in its pickle, and their digests beside it.

A reference is replaced, while a call is sealed, by a hole that names the object's digest. The
sealed call then begins with a head that lists the digests of its holes as plain data, so that a
gateway and an agent know what the call needs and never open a pickle:

    0 (1 byte) · number of digests (2) · digests (33 each) · pickle

A pickle begins with 0x80, so a call without references has no head and costs nothing more. The
head of a call that has inputs is that of federation.objects.inputs.

A slot fills the holes (`set_source`). Elsewhere a reference can't be pickled: it would name an
object that nobody holds for the reader.
"""

import operator
import struct
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final

from federation.errors import ProtocolError, SerializationError
from federation.objects.inputs import given, has_inputs, read_head
from federation.objects.manifests import DIGEST_BYTES, digest_text, is_digest
from federation.objects.open_calls import OpenCall, SealedCall

MARK: Final = 0
REFERENCES_MAX: Final = 10_000  # of one call
_HEAD: Final = struct.Struct("!BH")
_FIRST_BYTE: Final = operator.itemgetter(0)
OUTSIDE: Final = (
    "a reference to an object can be pickled only among the arguments of a call: pass it as an "
    "argument, and do not capture it in a function, put it into another object or save it"
)

OUTSIDE_INPUT: Final = (
    "a future can be pickled only among the arguments of a call of its own client: pass it as an "
    "argument, and do not capture it in a function, return it or save it"
)
FUTURES_MAX: Final = 100_000  # of one call


class _Sealing(threading.local):
    """What was met in the call that this thread seals now; None: it seals none."""

    found: dict[bytes, None] | None = None
    inputs: dict[int, tuple[int, Any]] | None = None  # by identity: number, and the future


_now = _Sealing()


class Sealing:
    """The sealing of one call: `with Sealing() as found`, and `found` has its digests in order.

    A `__reduce__` that seals another call in the meantime has a list of its own.
    """

    __slots__ = ("_before", "_found", "_inputs")

    def __enter__(self) -> dict[bytes, None]:
        self._before = _now.found, _now.inputs
        self._found: dict[bytes, None] = {}
        self._inputs: dict[int, tuple[int, Any]] = {}
        _now.found, _now.inputs = self._found, self._inputs
        return self._found

    @property
    def inputs(self) -> list[Any]:
        """The futures among the arguments, in the order of their holes."""
        return [future for _, future in self._inputs.values()]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _now.found, _now.inputs = self._before


def reduced(digest: bytes) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
    """Return what a reference is pickled as, and note its digest. Raises SerializationError."""
    if _now.found is None:
        raise SerializationError(OUTSIDE)
    _now.found[digest] = None
    if len(_now.found) > REFERENCES_MAX:
        raise SerializationError(f"a call has over {REFERENCES_MAX:,} references to objects")
    return fill, (digest,)


def reduced_input(future: Any) -> tuple[Callable[[int], Any], tuple[int]]:
    """Return what a future is pickled as, and note it. Raises SerializationError."""
    if _now.inputs is None:
        raise SerializationError(OUTSIDE_INPUT)
    number, _ = _now.inputs.setdefault(id(future), (len(_now.inputs), future))
    if number >= FUTURES_MAX:
        raise SerializationError(f"a call has over {FUTURES_MAX:,} futures among its arguments")
    return given, (number,)


def with_head(pickled: bytes, digests: Iterable[bytes]) -> bytes:
    """Return a sealed call with the digests of its holes in front."""
    known = list(digests)
    return b"".join((_HEAD.pack(MARK, len(known)), *known, pickled)) if known else pickled


def has_references(call: bytes) -> bool:
    """Whether a sealed call has a head."""
    return call[:1] == b"\0"


def any_has_references(calls: Iterable[SealedCall]) -> bool:
    """Whether one of many sealed calls has a head; none of them is empty."""
    return not all(map(_FIRST_BYTE, calls))


def references_of(call: SealedCall) -> list[bytes]:
    """Return the digests of a sealed call's holes. Raises ProtocolError where its head is wrong."""
    if isinstance(call, OpenCall):
        return [*call.digests, *call.leases]
    return [] if not has_references(call) else _read(call)[0]


def objects_of(calls: Iterable[bytes]) -> list[bytes]:
    """Return the digests of the objects that calls refer to, each once, in order."""
    found: dict[bytes, None] = {}
    for call in calls:
        try:
            found.update(dict.fromkeys(references_of(call)))
        except ProtocolError:
            continue  # the slot reports the error
    return list(found)


def pickle_of(call: bytes) -> memoryview:
    """Return the pickle of a sealed call. Raises ProtocolError where its head is wrong."""
    return memoryview(call)[_read(call)[1] if has_references(call) else 0 :]


def _read(call: bytes) -> tuple[list[bytes], int]:
    if has_inputs(call):
        head = read_head(call)
        return list(head.digests), head.start
    if len(call) < _HEAD.size:
        raise ProtocolError("the head of a call with references is cut off")
    _, number = _HEAD.unpack_from(call)
    stop = _HEAD.size + number * DIGEST_BYTES
    digests = [call[at : at + DIGEST_BYTES] for at in range(_HEAD.size, stop, DIGEST_BYTES)]
    if number > REFERENCES_MAX or len(call) < stop or not all(map(is_digest, digests)):
        raise ProtocolError("the head of a call with references is not valid")
    return digests, stop


def _no_source(digest: bytes) -> Any:
    raise SerializationError(f"object {digest_text(digest)} can be loaded only by a task")


_source: Callable[[bytes], Any] = _no_source


def set_source(source: Callable[[bytes], Any]) -> None:
    """Let `source` load the objects of holes in this process: it is a slot."""
    global _source
    _source = source


def fill(digest: bytes) -> Any:
    """Return the value of an object; pickles of calls name this function."""
    return _source(digest)
