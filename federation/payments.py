"""Whether two sites have booked the same payments between them, and what if not. Pure.

    either site                                    the other
      Payments ─────────────────────────────────────►     this I have booked with you
      ◄───────────────────────────────────── Payments     this I have

Money moves outside, and each site books it by the word of its own people. So neither books what the
other says: it is kept beside the books, and compared by reference. Everything that a site has
booked is one message, which stands for all those before it. Each says which of the other's it
heard last; who has not heard the newest is told, and who is told something new answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

from federation.errors import ProtocolError
from federation.money import NANOS_LIMIT, check_currency, format_money
from federation.reconciliation import DAY_MS
from federation.wire import Count, Lines, pack

LINES_MAX: Final = 1_000  # in one message: the newest
DIGEST_BYTES: Final = hashlib.sha256().digest_size
REFERENCE_CHARS_MAX: Final = 100
TIME_MS_MAX: Final = 253_402_300_799_000  # the end of the year 9999
# How far apart two sites may book the same payment: nobody can tell of what is older than a list.
APART_MS: Final = 31 * DAY_MS
_OTHER: Final = {"paid": "received", "received": "paid"}


@dataclass(frozen=True, slots=True)
class Line:
    """What one site has booked: that it "paid" or "received" an amount, under a reference."""

    reference: str
    currency: str
    direction: str
    amount_nanos: int
    at_ms: int

    @property
    def row(self) -> list[Any]:
        """As it travels."""
        return [self.reference, self.currency, self.direction, self.amount_nanos, self.at_ms]

    @property
    def effect_nanos(self) -> int:
        """What it adds to what is owed to the site that has booked it."""
        return self.amount_nanos if self.direction == "paid" else -self.amount_nanos

    def is_same(self, other: Line) -> bool:
        """Whether both sites have booked the same payment, each from its side."""
        same = self.amount_nanos == other.amount_nanos and self.currency == other.currency
        return same and self.direction == _OTHER[other.direction]

    def __str__(self) -> str:
        return f"{self.direction} {format_money(self.amount_nanos, self.currency)}"


@dataclass(frozen=True, slots=True)
class Payments:
    """What I have booked with you since `since_ms` (0: ever), each as Line.row, the newest first.

    `heard` is the digest of the last such list that I have of you; empty: tell me.
    """

    kind: ClassVar[str] = "payments"
    lines: Lines
    since_ms: Count
    heard: bytes

    @property
    def digest(self) -> bytes:
        """By which the other says that it has heard this."""
        return digest_of(pack(self.lines), self.since_ms)


def digest_of(packed: bytes, since_ms: int) -> bytes:
    """The digest of lines as they travel, and from when on they are all."""
    return hashlib.sha256(pack(since_ms) + packed).digest()


def check(message: Payments) -> None:
    """Raise ProtocolError for a list that nobody may tell."""
    lines_of(message.lines)
    if len(message.heard) not in (0, DIGEST_BYTES):
        raise ProtocolError("what was heard of payments is a digest, or empty")


def told(lines: Iterable[Line], heard: bytes) -> Payments:
    """Say what is booked: all, or the newest of it."""
    newest = sorted(lines, key=lambda each: (-each.at_ms, each.reference, each.currency))
    rows, rest = newest[:LINES_MAX], newest[LINES_MAX:]
    # Of the time of the first that is left out there may be others: only what is later is whole.
    since_ms = rest[0].at_ms + 1 if rest else 0
    return Payments([each.row for each in rows], since_ms, heard)


def lines_of(rows: Any) -> list[Line]:
    """Read lines that came from another site. Raises ProtocolError, whatever it is given."""
    if type(rows) is not list:
        raise ProtocolError("payments that are none")
    if len(rows) > LINES_MAX:
        raise ProtocolError("more payments than one message holds")
    found: dict[tuple[str, str], Line] = {}
    for row in rows:
        if type(row) is not list or list(map(type, row)) != [str, str, str, int, int]:
            raise ProtocolError("a payment is [reference, currency, direction, amount, at]")
        line = Line(*row)
        _check(line)
        if (line.reference, line.currency) in found:
            raise ProtocolError("two payments under one reference")
        found[line.reference, line.currency] = line
    return list(found.values())


def _check(line: Line) -> None:
    is_name = 0 < len(line.reference) <= REFERENCE_CHARS_MAX and line.reference.isprintable()
    if not is_name or line.direction not in _OTHER:
        raise ProtocolError("a payment under no reference, or that was neither paid nor received")
    if not 0 < line.amount_nanos <= NANOS_LIMIT or not 0 <= line.at_ms <= TIME_MS_MAX:
        raise ProtocolError("a payment of nothing, or never")
    try:
        check_currency(line.currency)
    except ValueError as error:
        raise ProtocolError(f"a payment of no money: {error}") from None


# --- what both have ------------------------------------------------------------------------------


class Standing(StrEnum):
    """What two sites have of one payment."""

    CONFIRMED = "confirmed"  # both have it
    DIFFERS = "differs"  # both have the reference, of something else
    HERE_ALONE = "here alone"
    THERE_ALONE = "to be confirmed"
    UNTOLD = "not told"  # the other has never said what it has
    TOO_OLD = "not compared"  # it tells of the newest alone


@dataclass(frozen=True, slots=True)
class Match:
    """What two sites have under one reference, in one currency: one of them at least."""

    ours: Line | None
    theirs: Line | None
    standing: Standing

    @property
    def is_even(self) -> bool:
        """Whether nothing is open: both have it, or it is too old to be compared."""
        return self.standing in (Standing.CONFIRMED, Standing.TOO_OLD)

    @property
    def line(self) -> Line:
        """Ours, if there is one."""
        found = self.ours or self.theirs
        assert found is not None
        return found


def match(ours: Iterable[Line], theirs: Iterable[Line] | None, since_ms: int = 0) -> list[Match]:
    """Compare what we have booked with what the other site told last, the oldest first.

    Args:
        ours: all of it; no reference and currency twice.
        theirs: None: it never told.
        since_ms: from when on that is all of it.
    """
    left = {(each.reference, each.currency): each for each in theirs or ()}
    found = []
    for each in ours:
        other = left.pop((each.reference, each.currency), None)
        if other is not None:
            standing = Standing.CONFIRMED if each.is_same(other) else Standing.DIFFERS
        elif theirs is None:
            standing = Standing.UNTOLD
        elif since_ms and each.at_ms < since_ms + APART_MS:
            standing = Standing.TOO_OLD
        else:
            standing = Standing.HERE_ALONE
        found.append(Match(each, other, standing))
    found += (Match(None, each, Standing.THERE_ALONE) for each in left.values())
    return sorted(found, key=lambda each: (each.line.at_ms, each.line.reference))
