"""Large values among the arguments of a call, which travel as objects by themselves.

    call ─► dump_large ─► pickle with holes · each large array or bytes is put ─► input of the call

The task gets what it would have got in a message: an array of its own, which it may change. So it
copies the object, by `numpy.array` in the pickle. Found are arrays of NumPy anywhere among the
arguments, in tables too, and bytes that are arguments themselves. Others travel in the message.

An argument keeps its bytes mapped, as a call in a message keeps them. Where a call is sent again
and the site has no such object (another gateway, or one that has lost its objects), they go along
in the message.
"""

import io
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from federation.objects.labels import DataLabel
from federation.objects.left import INLINE_BYTES, WHOLE, left_value
from federation.objects.open_calls import InputValue
from federation.objects.references import reduced_input
from federation.sources import FilePickler

LARGE_BYTES: Final = INLINE_BYTES  # smaller values, and calls, travel in messages


class ArgumentLease(Protocol):
    """What an argument uses of the hold on its object."""

    digest: bytes
    size: int
    session: int
    view: memoryview | None
    label: DataLabel


class LargeArgument:
    """A value that was put for one call: an input of it that is there from the beginning.

    Args:
        lease: on its object; its bytes are mapped.
        session: returns the number of the client's session now.
    """

    is_detached = False

    def __init__(self, lease: ArgumentLease, session: Callable[[], int]) -> None:
        self.lease = lease
        self._session = session

    @property
    def label(self) -> DataLabel:
        """Where it may lie: equal bytes may have been put with a label."""
        return self.lease.label

    @property
    def node(self) -> tuple[str, int]:
        """Never asked for: it stands for no task."""
        raise AttributeError("a large argument is no task")

    def as_input(self) -> InputValue:
        """Return the object if this session holds it, else its bytes."""
        lease = self.lease
        if lease.session == self._session():
            return InputValue(left_value(lease.digest, lease.size), lease)
        assert lease.view is not None
        return InputValue(WHOLE + bytes(lease.view))

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced_input(self)


Put = Callable[[Any], LargeArgument | None]


def has_large(values: "list[Any] | tuple[Any, ...]") -> bool:
    """Whether one of the arguments themselves is large: then they are not pickled in vain."""
    return any(_size(each) > LARGE_BYTES for each in values)


def _size(value: Any) -> int:
    if type(value) in (bytes, bytearray):
        return len(value)
    return int(value.nbytes) if _is_array(value) else 0


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


class _Putter(FilePickler):
    """Pickles a call, and puts large arrays as it meets them."""

    def __init__(self, file: io.BytesIO, protocol: int, put: Put) -> None:
        super().__init__(file, protocol=protocol)
        self._put = put

    def reducer_override(self, obj: Any) -> Any:
        """Put a large array; it is copied in the task."""
        if _is_array(obj) and obj.nbytes > LARGE_BYTES and not obj.dtype.hasobject:
            held = self._put(obj)
            if held is not None:
                return sys.modules["numpy"].array, (held,)
        return super().reducer_override(obj)


class _Copied:
    """Bytes that were put: in the task they are of their own type."""

    def __init__(self, kind: type, held: LargeArgument) -> None:
        self._reduced = kind, (held,)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def replaced(value: Any, put: Put) -> Any:
    """Return what stands for an argument: large bytes are put."""
    if type(value) in (bytes, bytearray) and len(value) > LARGE_BYTES:
        held = put(value)
        if held is not None:
            return held if type(value) is bytes else _Copied(bytearray, held)
    return value


def dump_large(call: Any, protocol: int, put: Put) -> bytes:
    """Pickle a call, with holes for its large arrays. Raises as cloudpickle does."""
    with io.BytesIO() as file:
        _Putter(file, protocol, put).dump(call)
        return file.getvalue()


__all__ = ["LARGE_BYTES", "LargeArgument", "dump_large", "has_large", "replaced"]
