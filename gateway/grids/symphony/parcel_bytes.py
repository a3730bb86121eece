"""The payloads that travel through Symphony: common data, task inputs, outputs. Pure.

They are MessagePack, opaque to Symphony and to the scripts that use its API: a session's common
data is one function, a task's input one parcel of its calls, the output their outcome.
"""

from typing import Any, Final

import msgpack

from gateway.grids.delegating import Broken, Done, Parcel
from gateway.worker.slot.lone import LoneCalls, Ran

VERSION: Final = 1


def pack_common(digest: bytes, body: bytes) -> bytes:
    """Pack a function, for the hosts that work for a session."""
    return _pack([VERSION, digest, body])


def unpack_common(data: bytes) -> tuple[bytes, bytes]:
    """Return its digest and body. Raises ValueError."""
    version, digest, body = _unpack(data, 3)
    _check(version, digest, body)
    return digest, body


def pack_input(parcel: Parcel) -> bytes:
    """Pack a parcel."""
    terms = (parcel.prints, parcel.timeout_s, parcel.result_bytes_max)
    return _pack([VERSION, parcel.function, parcel.job, parcel.arguments, *terms])


def unpack_input(data: bytes) -> LoneCalls:
    """Return the calls of a parcel. Raises ValueError."""
    version, digest, job, arguments, prints, timeout_s, bytes_max = _unpack(data, 7)
    _check(version, digest, *arguments)
    return LoneCalls(digest, job, arguments, prints, timeout_s, bytes_max)


def pack_output(ran: Ran) -> bytes:
    """Pack the outcome of a parcel's calls."""
    used = (ran.wall_ns, ran.cpu_ns, ran.peak_memory_bytes)
    return _pack([VERSION, ran.values, ran.failures, ran.prints, *used])


def unpack_output(parcel: str, data: bytes) -> Done | Broken:
    """Return the outcome of a parcel, unchecked: the books check it."""
    try:
        version, *rest = _unpack(data, 7)
        _check(version)
        return Done(parcel, *rest)
    except (ValueError, TypeError) as error:
        return Broken(parcel, f"the answer of the host is invalid: {error}"[:500])


def _pack(fields: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(fields, use_bin_type=True)
    return packed


def _unpack(data: bytes, count: int) -> list[Any]:
    try:
        fields = msgpack.unpackb(data, raw=False, max_bin_len=len(data), max_str_len=len(data))
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ValueError(f"not MessagePack: {type(error).__name__}") from None
    if type(fields) is not list or len(fields) != count:
        raise ValueError("the fields are wrong")
    return fields


def _check(version: Any, *data: Any) -> None:
    if version != VERSION:
        raise ValueError(f"the version is {version!r:.20}, expected {VERSION}")
    if any(type(each) is not bytes for each in data):
        raise ValueError("a value must be bytes")
