"""One object on its way to a host, block by block, from one holder or several. Pure.

    meet ─► want ─► blocks asked of a holder ─► is_good ─┬─► arrived   written, and counted
                          ▲                              └─► bad       the holder gives no more
                          └──────── lost: its blocks are asked of others

The manifest of an object proves itself by the object's digest, and each block by the manifest: a
holder can be slow or silent, but it can't lie. Blocks that are here already, as after a transfer
that was cut off, are not asked for, and equal blocks of an object are asked for once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from federation.objects.manifests import (
    BLOCK_BYTES,
    ObjectManifest,
    digest_text,
    place,
    read_manifest,
)
from federation.ranges import Range, RangeSet

MANIFEST_BYTES_MAX: Final = 16 << 20  # that of an object of 2 TiB
HOLDERS_MAX: Final = 16
ASKED_MAX: Final = 1_000  # blocks in one question


class BadManifest(Exception):
    """A holder has sent a manifest that is not that of the object; the text is for people."""


@dataclass(slots=True)
class _Holder:
    """A holder: the blocks that it was asked for, the good bytes that it sent, and why it left."""

    asked: RangeSet = field(default_factory=RangeSet)
    sent_bytes: int = 0
    left: str = ""
    has_lied: bool = False


class BlockMap:
    """Where the blocks of an object lie in its file.

    Raises:
        ValueError: a file of `size` bytes does not have these parts.
    """

    def __init__(self, manifest: ObjectManifest, size: int) -> None:
        offsets, whole = place(manifest.sizes[0], manifest.sizes[1:]) if manifest.sizes else ((), 0)
        if whole != size or not size:
            raise ValueError(f"its parts have {whole:,} bytes and not {size:,}")
        self._blocks = [
            (offset + at, min(BLOCK_BYTES, part - at))
            for offset, part in zip((0, *offsets), manifest.sizes, strict=True)
            for at in range(0, part, BLOCK_BYTES)
        ]

    def __len__(self) -> int:
        return len(self._blocks)

    def where(self, number: int) -> tuple[int, int]:
        """Return the offset and the length of a block. Raises IndexError."""
        return self._blocks[number]


class BlockPull:
    """The transfer of one object to here.

    Args:
        digest: of the object.
        size: its bytes, as its site says.
    """

    def __init__(self, digest: bytes, size: int) -> None:
        self.digest = digest
        self.size = size
        self.manifest: ObjectManifest | None = None
        self._map: BlockMap | None = None
        self._missing = RangeSet()  # neither here nor asked for
        self._left_bytes = size
        self._arrived: set[int] = set()
        self._twins: dict[int, list[int]] = {}  # by the first of equal blocks: the others
        self._holders: dict[str, _Holder] = {}

    # --- holders ---------------------------------------------------------------------------------

    def meet(self, holder: str, manifest: bytes) -> None:
        """Take the manifest that a holder has sent; from then on it may be asked for blocks.

        One that was lost may come back, unless it has sent a bad block.

        Raises:
            BadManifest: it is not that of the object. The holder is not asked for anything.
        """
        known = self._holders.setdefault(holder, _Holder())
        try:
            if len(self._holders) > HOLDERS_MAX:
                raise ValueError(f"there are more than {HOLDERS_MAX} holders")
            found = self.manifest or read_manifest(manifest, self.digest)
            if self.manifest is not None and manifest != self.manifest.to_bytes():
                raise ValueError("the manifest is not that of the object")
            if known.has_lied:
                raise ValueError("it has sent a bad block before")
            if self._map is None:
                self._begin(found, BlockMap(found, self.size))
            known.left = ""
        except ValueError as error:
            known.left = known.left or f"{holder}: {error}"
            raise BadManifest(f"{digest_text(self.digest)} from {holder}: {error}") from None

    def _begin(self, manifest: ObjectManifest, where: BlockMap) -> None:
        self.manifest, self._map = manifest, where
        first: dict[tuple[bytes, int], int] = {}
        for number, block in enumerate(manifest.blocks):
            known = first.setdefault((block, where.where(number)[1]), number)
            if known == number:
                self._missing.add(number, number + 1)
            else:
                self._twins.setdefault(known, []).append(number)
        self._left_bytes = sum(where.where(number)[1] for number in range(len(where)))

    def have(self, numbers: Iterable[int]) -> list[Range]:
        """Note blocks that are here and were checked, as of a transfer that was cut off.

        Return, for each block that is equal to one of them, that one and the block: to be copied.
        """
        given = set(numbers)
        for number in given:
            self._missing.remove(number, number + 1)
            self._note(number)
        copies = [
            (first, twin)
            for first in given
            for twin in self._twins.get(first, ())
            if twin not in self._arrived
        ]
        for _, twin in copies:
            self._note(twin)
        return copies

    def lost(self, holder: str, reason: str) -> None:
        """Note that a holder gives no more; what it was asked for is asked of others."""
        known = self._holders.setdefault(holder, _Holder())
        known.left = known.left or f"{holder}: {reason}"
        for first, stop in known.asked:
            self._missing.add(first, stop)
        known.asked = RangeSet()

    def sent_bytes(self, holder: str) -> int:
        """Return the bytes of good blocks that a holder has sent: those of its receipt."""
        known = self._holders.get(holder)
        return 0 if known is None else known.sent_bytes

    # --- blocks ----------------------------------------------------------------------------------

    def want(self, holder: str, bytes_max: int) -> list[Range]:
        """Return the next blocks to ask of a holder, so that it owes at most so many bytes.

        At least one, if any is missing and it owes none; none of a holder that has left.
        """
        known = self._holders.get(holder)
        if known is None or known.left or self._map is None:
            return []
        owed = sum(self._length(n) for low, high in known.asked for n in range(low, high))
        found, left = RangeSet(), ASKED_MAX
        for first, stop in list(self._missing):
            for number in range(first, stop):
                length = self._length(number)
                if (owed and owed + length > bytes_max) or not left:
                    return self._ask(known, found)
                owed, left = owed + length, left - 1
                found.add(number, number + 1)
        return self._ask(known, found)

    def _ask(self, holder: _Holder, found: RangeSet) -> list[Range]:
        for first, stop in found:
            self._missing.remove(first, stop)
            holder.asked.add(first, stop)
        return list(found)

    def is_asked(self, holder: str, number: int, length: int) -> bool:
        """Whether a holder was asked for this block, and it has this length."""
        known = self._holders.get(holder)
        if known is None or known.left or not known.asked.within(number, number + 1):
            return False
        return length == self._length(number)

    def where(self, number: int) -> tuple[int, int]:
        """Return the offset and the length of a block in the object's file."""
        assert self._map is not None
        return self._map.where(number)

    def _length(self, number: int) -> int:
        return self.where(number)[1]

    def is_good(self, number: int, data: Any) -> bool:
        """Whether these bytes are that block; it hashes them, in any thread."""
        return self.manifest is not None and self.manifest.is_block(number, data)

    def arrived(self, holder: str, number: int) -> list[int]:
        """Note a good block of a holder; return the blocks that are equal to it, to be copied."""
        known = self._holders[holder]
        known.asked.remove(number, number + 1)
        known.sent_bytes += self._length(number)
        self._note(number)
        twins = [each for each in self._twins.get(number, ()) if each not in self._arrived]
        for each in twins:
            self._note(each)
        return twins

    def bad(self, holder: str, number: int) -> str:
        """Note a block that is not what it should be: its sender gives no more; return why."""
        reason = f"block {number:,} is not that of object {digest_text(self.digest)}"
        self.lost(holder, reason)
        self._holders[holder].has_lied = True
        return f"{holder}: {reason}"

    def _note(self, number: int) -> None:
        if number not in self._arrived:
            self._arrived.add(number)
            self._left_bytes -= self._length(number)

    # --- the whole -------------------------------------------------------------------------------

    @property
    def left_bytes(self) -> int:
        """The bytes of blocks that are not here."""
        return self._left_bytes

    @property
    def is_done(self) -> bool:
        """Whether all blocks are here."""
        return self._map is not None and len(self._arrived) == len(self._map)

    def why_stuck(self) -> str:
        """Return why nothing more can come: every holder has left; empty while one is there."""
        if self.is_done or not self._holders or any(not h.left for h in self._holders.values()):
            return ""
        return "; ".join(each.left for each in self._holders.values())
