"""What gateways say to each other about a budget that several of them spend from.

    holder                                         owner
      AskSlice ─────────────────────────────────────►     so much I spent; I'd like so much more
      ◄──────────────────────────────────────── Slice     so much you have been given, in all

One site owns a budget, and is the only one that knows what is left of it. Others *hold* slices:
parts that count as spent until their holder has said otherwise. Every number counts from when the
holder's account was opened and only grows: what it was given, what of that it gave back, what it
spent. So a message that is lost, comes twice or late changes nothing that the next does not put
right, and nothing is given out twice.

Amounts are decimal texts: they may be more than an integer of the wire holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from federation.errors import ProtocolError
from federation.wire import Count, Number, Text

DIGITS_MAX: Final = 38


@dataclass(frozen=True, slots=True)
class AskSlice:
    """Where my part of your budget stands, and what I want of it.

    Attributes:
        account: when I opened it, in milliseconds since 1970; another one is counted by itself.
        life: which life of mine this is; `number` counts its questions. An older one is of no use.
        unit, span, zone: of the budget, as I have it: a currency or "slot-s"; "day", "week",
            "month", "quarter", "year" or "ever"; an IANA name.
        returned: of what I was given, what I gave back, in all.
        spent: in all; `before` of it before the period began that I am in, at `since_ms` (0: ever).
        held: what of it is held for what runs, and is spent or comes back.
        want: what I want to have besides; 0: nothing. `least`: less is of no use to me, as one task
            may take so much.
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
class Slice:
    """What you have: `granted` in all, less `returned`, for `lasts_s` from when you asked.

    Attributes:
        account, life, number: of the question.
        since_ms: when the period began that I am in. Whose clock is behind, and is in the one
            before, must not spend yet what is new: it is of this period's amount.
        left: what of the budget nobody has spent in it; what takes more can't be paid.
        code: why it is not as much as you want; empty: it is.
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


SEALED: Final = (AskSlice, Slice)

SliceMessage = AskSlice | Slice


def amount(text: str) -> int:
    """Read an amount; ProtocolError when it is none."""
    if not (0 < len(text) <= DIGITS_MAX and text.isascii() and text.isdecimal()):
        raise ProtocolError("an amount that is no number")
    return int(text)
