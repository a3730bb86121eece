"""The identity of an object: a digest of its parts, block by block. Pure.

An object is a few parts of bytes: the pickle, and the large buffers beside it. Its manifest lists
the size of each part and a digest of each block of a part; its digest is the digest of the
manifest. So equal objects have equal digests, one block can be checked without the others, and
equal buffers of different objects have equal blocks.

Blocks are hashed by BLAKE3 where the package `blake3` is installed, else by SHA-256. A digest says
which: its first byte, or the first letters of its text. The two never compare equal.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

BLOCK_BYTES: Final = 4 << 20  # no block spans two parts
BLAKE3, SHA256 = 3, 2  # the first byte of a digest
DIGEST_BYTES: Final = 33
ALIGN: Final = 64  # where parts begin in an object's bytes
_HASH_BYTES: Final = DIGEST_BYTES - 1
_NAMES: Final = {BLAKE3: "b3", SHA256: "s2"}
_START: Final = struct.Struct("!4sBQQ")  # the layout's name, the hash, parts, blocks
_LAYOUT: Final = b"gfm1"

try:
    import blake3 as _package
except ImportError:
    _blake3: Any = None
else:
    _blake3 = _package.blake3

HAS_BLAKE3: Final = _blake3 is not None


Spread = Callable[[Callable[[memoryview], bytes], Iterable[memoryview]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class ObjectManifest:
    """The parts and blocks of an object.

    Attributes:
        algorithm: BLAKE3 or SHA256.
        sizes: the bytes of each part.
        blocks: the digest of each block (32 bytes), part after part.
    """

    algorithm: int
    sizes: tuple[int, ...]
    blocks: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """Return it for the wire; the digest is that of these bytes."""
        start = _START.pack(_LAYOUT, self.algorithm, len(self.sizes), len(self.blocks))
        sizes = struct.pack(f"!{len(self.sizes)}Q", *self.sizes)
        return b"".join((start, sizes, *self.blocks))

    @property
    def digest(self) -> bytes:
        """The object's digest: one byte for the algorithm, and 32."""
        return bytes([self.algorithm]) + _hash(self.algorithm, self.to_bytes())

    def is_block(self, number: int, data: Any) -> bool:
        """Whether these bytes are the block of this number; in any thread."""
        return self.blocks[number] == _hash(self.algorithm, data)

    def differing(self, parts: Sequence[memoryview]) -> list[int]:
        """Return the numbers of the blocks that are not as the manifest says.

        Raises:
            ValueError: the parts have other sizes, so that blocks do not compare.
        """
        if tuple(map(len, parts)) != self.sizes:
            raise ValueError("the parts have other sizes than the manifest")
        pairs = enumerate(zip(self.blocks, blocks_of(parts), strict=True))
        return [at for at, (known, block) in pairs if _hash(self.algorithm, block) != known]


def make_manifest(
    parts: Sequence[memoryview], algorithm: int | None = None, spread: Spread = map
) -> ObjectManifest:
    """Hash the parts of an object (contiguous bytes); by default with the quickest hash here.

    `spread` is `map`, or that of a pool of threads: hashing a block needs no interpreter lock.

    Raises:
        ValueError: the algorithm is unknown, or its package is not installed.
    """
    if algorithm is None:
        algorithm = BLAKE3 if HAS_BLAKE3 else SHA256
    blocks = tuple(spread(partial(_hash, algorithm), blocks_of(parts)))
    return ObjectManifest(algorithm, tuple(map(len, parts)), blocks)


def read_manifest(data: bytes, digest: bytes) -> ObjectManifest:
    """Read the manifest of the object with this digest, as `to_bytes` writes it.

    Raises:
        ValueError: it is of another object, or not well formed; the text says which.
    """
    if not is_digest(digest) or bytes([digest[0]]) + _hash(digest[0], data) != digest:
        raise ValueError("the manifest is not that of the object")
    try:
        layout, algorithm, parts, blocks = _START.unpack_from(data)
        sizes = struct.unpack_from(f"!{parts}Q", data, _START.size)
    except (struct.error, OverflowError, MemoryError):
        raise ValueError("the manifest is cut short") from None
    at = _START.size + 8 * parts
    expected = sum(-(-size // BLOCK_BYTES) for size in sizes)
    is_whole = len(data) == at + _HASH_BYTES * blocks
    if layout != _LAYOUT or algorithm != digest[0] or blocks != expected or not is_whole:
        raise ValueError("the manifest does not agree with itself")
    found = tuple(data[start : start + _HASH_BYTES] for start in range(at, len(data), _HASH_BYTES))
    return ObjectManifest(algorithm, sizes, found)


def place(start: int, sizes: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the offset of each part behind the first one, of `start` bytes, and the whole size.

    Each begins at a multiple of ALIGN bytes.
    """
    offsets, at = [], start
    for size in sizes:
        at += -at % ALIGN
        offsets.append(at)
        at += size
    return tuple(offsets), at


def blocks_of(parts: Sequence[memoryview]) -> Iterator[memoryview]:
    """Yield the blocks of each part; an empty part has none."""
    for part in parts:
        for at in range(0, len(part), BLOCK_BYTES):
            yield part[at : at + BLOCK_BYTES]


def _hash(algorithm: int, data: Any) -> bytes:
    if algorithm == SHA256:
        return hashlib.sha256(data).digest()
    if algorithm == BLAKE3 and _blake3 is not None:
        found: bytes = _blake3(data).digest()
        return found
    raise ValueError(f"objects can't be hashed by algorithm {algorithm} here")


def digest_text(digest: bytes) -> str:
    """Return a digest for people: `b3:` or `s2:`, and 64 hexadecimal digits."""
    return f"{_NAMES.get(digest[0], '??') if digest else '??'}:{digest[1:].hex()}"


def read_digest(text: str) -> bytes:
    """Return the digest of a text that `digest_text` made. Raises ValueError."""
    name, _, digits = text.partition(":")
    for algorithm, known in _NAMES.items():
        if known == name and len(digits) == 2 * (DIGEST_BYTES - 1):
            return bytes([algorithm]) + bytes.fromhex(digits)
    raise ValueError(f"{text!r:.100} is not the digest of an object")


def is_digest(value: object) -> bool:
    """Whether a value of a message is a digest."""
    return type(value) is bytes and len(value) == DIGEST_BYTES and value[0] in _NAMES
