"""Results that a slot has left at its site as objects: the value that goes in their place. Pure.

    1 (1 byte) · size (8) · digest (33)      the object is held for the job's client
    2 (1 byte) · bytes of the object         the site had no room: see bodies.py

A pickle begins with 0x80, so other results cost nothing more. Only jobs that were opened with
`results` have these.
"""

import struct
from collections.abc import Iterable
from typing import Final

from federation.objects.manifests import DIGEST_BYTES, is_digest

AUTO, VALUE, REF = "auto", "value", "ref"
CHOICES: Final = (AUTO, VALUE, REF)
INLINE_BYTES: Final = 1 << 20  # larger results are left, where `results` is AUTO
LEFT: Final = b"\x01"
WHOLE: Final = b"\x02"
_LAYOUT: Final = struct.Struct(f"!cQ{DIGEST_BYTES}s")


def left_value(digest: bytes, size: int) -> bytes:
    """Return the value that stands for an object of `size` bytes."""
    return _LAYOUT.pack(LEFT, size, digest)


def read_left(value: bytes) -> tuple[bytes, int] | None:
    """Return the digest and the size of an object that a value stands for; None for others."""
    if value[:1] != LEFT or len(value) != _LAYOUT.size:
        return None
    _, size, digest = _LAYOUT.unpack(value)
    return (digest, size) if is_digest(digest) else None


def left_in(values: Iterable[bytes]) -> list[bytes]:
    """Return the digests of the objects that values stand for, as often as they do."""
    found = (read_left(value) for value in values if value[:1] == LEFT)
    return [each[0] for each in found if each is not None]
