"""Compares the payments between two sites in their books, and reports differences. Pure.

    either site                                    the other
      Payments ─────────────────────────────────────►     this I have booked with you
      ◄───────────────────────────────────── Payments     this I have

Money moves outside the federation, and each site books it as its own operators report. So neither
site books the other's lines: they are kept beside the books, and compared by reference. All lines
that a site has booked are one message, which replaces all those before it. Each message names the
other's last message that was heard. A site that has not heard the newest is sent it, and a site
that is told something new answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

from federation.clocks import CALENDAR_END_S
from federation.errors import ProtocolError
from federation.messages.reconciliation import DAY_MS
from federation.messages.registry import FromEither, Receiver
from federation.messages.wire import Count, Lines, pack
from federation.money import NANOS_LIMIT, check_currency, format_money

LINES_MAX: Final = 1_000  # in one message: the newest
DIGEST_BYTES: Final = hashlib.sha256().digest_size
REFERENCE_CHARS_MAX: Final = 100
TIME_MS_MAX: Final = int(CALENDAR_END_S - 1) * 1000
# How far apart in time two sites may book the same payment: a list tells nothing of older ones.
APART_MS: Final = 31 * DAY_MS
_OTHER: Final = {"paid": "received", "received": "paid"}


@dataclass(frozen=True, slots=True)
class Line:
    """A payment that one site has booked: "paid" or "received", an amount, under a reference."""

    reference: str
    currency: str
    direction: str
    amount_nanos: int
    at_ms: int

    @property
    def row(self) -> list[Any]:
        """Its wire form."""
        return [self.reference, self.currency, self.direction, self.amount_nanos, self.at_ms]

    @property
    def effect_nanos(self) -> int:
        """The amount that it adds to the debt to the site that has booked it."""
        return self.amount_nanos if self.direction == "paid" else -self.amount_nanos

    def is_same(self, other: Line) -> bool:
        """Whether both sites have booked the same payment, each from its side."""
        same = self.amount_nanos == other.amount_nanos and self.currency == other.currency
        return same and self.direction == _OTHER[other.direction]

    def __str__(self) -> str:
        return f"{self.direction} {format_money(self.amount_nanos, self.currency)}"


@dataclass(frozen=True, slots=True)
class Payments(FromEither, to=Receiver.BOOKS, sealed=True):
    """The payments booked with the receiver since `since_ms` (0: ever), as Line.row, newest first.

    `heard` is the digest of the last such list that came from the receiver; empty: send yours.
    """

    kind: ClassVar[str] = "payments"
    lines: Lines
    since_ms: Count
    heard: bytes

    @property
    def digest(self) -> bytes:
        """The digest by which the other site acknowledges this list."""
        return digest_of(pack(self.lines), self.since_ms)


def digest_of(packed: bytes, since_ms: int) -> bytes:
    """Return the digest of lines in wire form and of the time since which they are complete."""
    return hashlib.sha256(pack(since_ms) + packed).digest()


def check(message: Payments) -> None:
    """Raise ProtocolError for an invalid list."""
    lines_of(message.lines)
    if len(message.heard) not in (0, DIGEST_BYTES):
        raise ProtocolError("the digest of payments is invalid: it must be a digest, or empty")


def told(lines: Iterable[Line], heard: bytes) -> Payments:
    """Make the message with the booked lines: all, or the newest ones."""
    newest = sorted(lines, key=lambda each: (-each.at_ms, each.reference, each.currency))
    rows, rest = newest[:LINES_MAX], newest[LINES_MAX:]
    # There may be others at the time of the first that is left out: only later lines are complete.
    since_ms = rest[0].at_ms + 1 if rest else 0
    return Payments([each.row for each in rows], since_ms, heard)


def lines_of(rows: Any) -> list[Line]:
    """Read lines that came from another site. Raises ProtocolError for any invalid input."""
    if type(rows) is not list:
        raise ProtocolError("the list of payments is invalid")
    if len(rows) > LINES_MAX:
        raise ProtocolError("the message holds too many payments")
    found: dict[tuple[str, str], Line] = {}
    for row in rows:
        if type(row) is not list or list(map(type, row)) != [str, str, str, int, int]:
            raise ProtocolError("a payment must be [reference, currency, direction, amount, at]")
        line = Line(*row)
        _check(line)
        if (line.reference, line.currency) in found:
            raise ProtocolError("two payments have the same reference")
        found[line.reference, line.currency] = line
    return list(found.values())


def _check(line: Line) -> None:
    is_name = 0 < len(line.reference) <= REFERENCE_CHARS_MAX and line.reference.isprintable()
    if not is_name or line.direction not in _OTHER:
        raise ProtocolError("a payment has no valid reference, or an unknown direction")
    if not 0 < line.amount_nanos <= NANOS_LIMIT or not 0 <= line.at_ms <= TIME_MS_MAX:
        raise ProtocolError("a payment has an amount or a time that is out of range")
    try:
        check_currency(line.currency)
    except ValueError as error:
        raise ProtocolError(f"a payment has an invalid currency: {error}") from None


# --- comparison ----------------------------------------------------------------------------------


class PaymentStanding(StrEnum):
    """The standing of one payment at two sites."""

    CONFIRMED = "confirmed"  # both have it
    DIFFERS = "differs"  # both have the reference, for different payments
    HERE_ALONE = "here alone"
    THERE_ALONE = "to be confirmed"
    UNTOLD = "not told"  # the other site has never sent its list
    TOO_OLD = "not compared"  # the other site sends only the newest


@dataclass(frozen=True, slots=True)
class Match:
    """The lines of two sites under one reference, in one currency: at least one of them exists."""

    ours: Line | None
    theirs: Line | None
    standing: PaymentStanding

    @property
    def is_even(self) -> bool:
        """Whether nothing is open: both have it, or it is too old to be compared."""
        return self.standing in (PaymentStanding.CONFIRMED, PaymentStanding.TOO_OLD)

    @property
    def line(self) -> Line:
        """Our line, if there is one, else theirs."""
        found = self.ours or self.theirs
        assert found is not None
        return found


def match(ours: Iterable[Line], theirs: Iterable[Line] | None, since_ms: int = 0) -> list[Match]:
    """Compare the lines that we have booked with the other site's last list, oldest first.

    Args:
        ours: all our lines; no reference and currency twice.
        theirs: their lines; None: the site never sent a list.
        since_ms: the time since which their list is complete.
    """
    left = {(each.reference, each.currency): each for each in theirs or ()}
    found = []
    for each in ours:
        other = left.pop((each.reference, each.currency), None)
        if other is not None:
            standing = PaymentStanding.CONFIRMED if each.is_same(other) else PaymentStanding.DIFFERS
        elif theirs is None:
            standing = PaymentStanding.UNTOLD
        elif since_ms and each.at_ms < since_ms + APART_MS:
            standing = PaymentStanding.TOO_OLD
        else:
            standing = PaymentStanding.HERE_ALONE
        found.append(Match(each, other, standing))
    found += (Match(None, each, PaymentStanding.THERE_ALONE) for each in left.values())
    return sorted(found, key=lambda each: (each.line.at_ms, each.line.reference))
