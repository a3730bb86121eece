"""The messages between gateways about a budget that several of them spend from.

    holder                                         owner
      AskSlice ─────────────────────────────────────►     spent so far, and the amount wanted
      ◄──────────────────────────────────────── Slice     granted so far, in all

One site owns a budget, and only it knows the rest of it. Other sites *hold* slices: parts that
count as spent until their holder reports otherwise. Every number counts from when the holder's
account was opened and only grows: the amounts granted, returned of those, and spent. So the next
message corrects the effect of any that is lost, late or repeated, and no amount is given out twice.

Amounts are decimal texts: they may exceed the wire's integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from federation.errors import ProtocolError
from federation.messages.registry import FromEither, Receiver
from federation.messages.wire import Count, Number, Text

DIGITS_MAX: Final = 38


@dataclass(frozen=True, slots=True)
class AskSlice(FromEither, to=Receiver.LENDING, sealed=True):
    """Report a holder's part of a budget, and request more.

    Attributes:
        account: when the holder opened it, in milliseconds since 1970; another one is counted by
            itself.
        life: the number of this run of the holder; `number` counts its requests. An older one is
            ignored.
        unit, span, zone: of the budget, as the holder has it: a currency or "slot-s"; "day",
            "week", "month", "quarter", "year" or "ever"; an IANA name.
        returned: the total returned of the granted amounts.
        spent: the total; `before` of it before the holder's current period began, at `since_ms` (0:
            ever).
        held: the part of it that is held for running work, and will be spent or returned.
        want: the additional amount wanted; 0: none. `least`: a smaller amount is of no use, as one
            task may take this much.
    """

    kind: ClassVar[str] = "ask-slice"
    budget: Text
    account: Count
    life: Count
    number: Count
    unit: Text
    span: Text
    zone: Text
    returned: Text
    spent: Text
    before: Text
    since_ms: Count
    held: Text
    want: Text
    least: Text


@dataclass(frozen=True, slots=True)
class Slice(FromEither, to=Receiver.BORROWING, sealed=True):
    """A holder's part: `granted` in all, less `returned`, for `lasts_s` from the request.

    Attributes:
        account, life, number: of the request.
        since_ms: when the current period began. A holder whose clock is behind, and is in the
            period before, must not spend newly granted amounts yet: they belong to this period.
        left: the unspent rest of the budget in this period; work that needs more can't be paid.
        code: why it is less than was wanted; empty: it is not.
        reason: in words.
    """

    kind: ClassVar[str] = "slice"
    budget: Text
    account: Count
    life: Count
    number: Count
    granted: Text
    returned: Text
    lasts_s: Number
    since_ms: Count
    left: Text
    code: Text
    reason: Text


def amount(text: str) -> int:
    """Read an amount; ProtocolError if it is none."""
    if not (0 < len(text) <= DIGITS_MAX and text.isascii() and text.isdecimal()):
        raise ProtocolError("an amount is not a number")
    return int(text)
