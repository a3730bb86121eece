"""Inputs of a call: futures among its arguments, as holes in its pickle that are filled later.

A future is replaced, while a call is sealed, by a hole with a number. The call then begins with a
head that says, as plain data, what fills the holes. So a gateway knows which tasks it needs, and
never opens a pickle:

    0 (1 byte) · 65535 (2) · length of the head (4) · head · pickle

The head is MessagePack: [digests of objects, inputs]. An input is a value, as bytes, for one hole;
or [job, first, stop], for a hole each: tasks whose values are not there yet. Such a call is *open*.
A gateway fills it: it puts values in the places of tasks. A value is a pickle, or of
federation.objects.left. The first byte is that of any call with references
(federation.objects.references), so that other calls cost nothing more.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from federation.errors import ProtocolError, SerializationError
from federation.objects.left import read_left
from federation.objects.manifests import is_digest

MARK: Final = b"\x00\xff\xff"
INPUTS_MAX: Final = 100_000  # of one call
JOB_CHARS_MAX: Final = 64
TASK_MAX: Final = 1 << 40
_HEAD: Final = struct.Struct("!3sI")

TaskRow = tuple[str, int, int]  # tasks [first, stop) of a job
Input = bytes | TaskRow


@dataclass(frozen=True, slots=True)
class CallHead:
    """The head of a call with inputs, and where its pickle begins."""

    digests: tuple[bytes, ...]
    inputs: tuple[Input, ...]
    start: int

    @property
    def rows(self) -> tuple[TaskRow, ...]:
        """The tasks that it waits for; empty when it is filled."""
        return tuple(each for each in self.inputs if not isinstance(each, bytes))


def has_inputs(call: bytes) -> bool:
    """Whether a sealed call has such a head."""
    return call[:3] == MARK


def with_inputs(
    pickled: bytes | memoryview, digests: Iterable[bytes], inputs: Sequence[Input]
) -> bytes:
    """Return a sealed call with its head in front."""
    head: bytes = msgpack.packb([list(digests), inputs])
    return b"".join((_HEAD.pack(MARK, len(head)), head, pickled))


def read_head(call: bytes) -> CallHead:
    """Return the head of a call with inputs. Raises ProtocolError where it is not valid."""
    if len(call) < _HEAD.size or not has_inputs(call):
        raise ProtocolError("the head of a call with inputs is cut off")
    _, length = _HEAD.unpack_from(call)
    start = _HEAD.size + length
    if start > len(call):
        raise ProtocolError("the head of a call with inputs is cut off")
    try:
        digests, inputs = msgpack.unpackb(memoryview(call)[_HEAD.size : start], use_list=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"the head of a call is not valid: {type(error).__name__}") from None
    is_sound = type(digests) is tuple and all(type(each) is bytes for each in digests)
    if not is_sound or not all(map(is_digest, digests)) or type(inputs) is not tuple:
        raise ProtocolError("the head of a call with inputs is not valid")
    number = 0
    for each in inputs:
        if type(each) is not bytes and not _is_row(each):
            raise ProtocolError("an input of a call is neither a value nor a range of tasks")
        number += 1 if type(each) is bytes else each[2] - each[1]
    if number > INPUTS_MAX:
        raise ProtocolError(f"a call has {number:,} inputs, the limit is {INPUTS_MAX:,}")
    return CallHead(digests, inputs, start)


def _is_row(row: Any) -> bool:
    if type(row) is not tuple or len(row) != 3:
        return False
    job, first, stop = row
    if type(job) is not str or type(first) is not int or type(stop) is not int:
        return False
    return 0 < len(job) <= JOB_CHARS_MAX and 0 <= first < stop <= TASK_MAX


def filled(call: bytes, values: Sequence[bytes]) -> bytes:
    """Return an open call with values in the places of its tasks, in their order."""
    head = read_head(call)
    found: list[Input] = []
    at = 0
    for each in head.inputs:
        if isinstance(each, bytes):
            found.append(each)
        else:
            width = each[2] - each[1]
            found += values[at : at + width]
            at += width
    digests = dict.fromkeys(head.digests)
    for value in values:
        left = read_left(value)
        if left is not None:
            digests[left[0]] = None
    return with_inputs(memoryview(call)[head.start :], digests, found)


def merged(inputs: Iterable[Input | tuple[str, int]]) -> list[Input]:
    """Return inputs with tasks that follow each other, (job, task) each, as ranges."""
    found: list[Any] = []
    for each in inputs:
        if isinstance(each, bytes):
            found.append(each)
            continue
        job, first = each[0], each[1]
        stop = each[2] if len(each) == 3 else first + 1
        last = found[-1] if found else None
        if type(last) is tuple and last[0] == job and last[2] == first:
            found[-1] = job, last[1], stop
        else:
            found.append((job, first, stop))
    return found


def _no_source(number: int) -> Any:
    raise SerializationError(f"input {number} of a call can be loaded only by its task")


_source: Callable[[int], Any] = _no_source


def set_source(source: Callable[[int], Any]) -> None:
    """Let `source` give the inputs of the call that is being opened: this process is a slot."""
    global _source
    _source = source


def given(number: int) -> Any:
    """Return the value of an input; pickles of calls name this function."""
    return _source(number)
