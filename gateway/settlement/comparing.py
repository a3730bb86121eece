"""The rules, results and texts of a comparison of books. Pure.

The buyer names a span, a ComparisonSpan, and the sums of its own books; the seller answers with the
sums of its books. `check` validates messages; `state_of` and `difference` compare the two books.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from federation.errors import ProtocolError
from federation.messages.payments import Payments
from federation.messages.reconciliation import (
    DAY_MS,
    ENTRIES_MAX,
    AskEntries,
    AskReconcile,
    Dispute,
    DisputeAnswer,
    Entries,
    Reconcile,
    Reconciled,
    Sums,
    Tally,
    sums_of,
)
from federation.money import format_amount, format_money
from federation.words import count
from gateway.config.books import PERIODS, period_of
from gateway.settlement import payments
from gateway.settlement.context import AHEAD_MAX_MS

SKEW_MS: Final = 60_000
ENVELOPE_BYTES_MAX: Final = 1 << 15  # of a stored envelope: sums in two hundred currencies
DETAILS_CHARS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class ComparisonSpan:
    """A span for which books are compared: [first_ms, stop_ms)."""

    first_ms: int
    stop_ms: int
    is_final: bool = False

    def is_kept(self, day_ms: int = DAY_MS) -> bool:
        """Whether the result of its comparison is stored: only that of whole days."""
        return self.first_ms % day_ms == 0 and self.stop_ms % day_ms == 0

    def is_period(self, day_ms: int) -> bool:
        """Whether it is a day, a week or a month."""
        whole = (self.first_ms, self.stop_ms)
        return any(period_of(self.first_ms, each, day_ms) == whole for each in PERIODS)


def check(message: Any, envelope: bytes, now_ms: int, day_ms: int) -> None:
    """Raise ProtocolError for a message about the books that breaks the rules."""
    match message:
        case Reconcile():
            sums_of(message.sums)
            _check_window(window_of(message), now_ms, day_ms)
            if len(envelope) > ENVELOPE_BYTES_MAX:
                raise ProtocolError("the comparison is too long")
        case Reconciled():
            sums_of(message.sums)
            # Only an agreeing answer is stored, and it says no more than the question.
            if message.state == "agreed" and len(envelope) > ENVELOPE_BYTES_MAX:
                raise ProtocolError("the comparison is too long")
        case AskEntries() | AskReconcile():
            _check_window(window_of(message), now_ms, day_ms)
        case Payments():
            payments.check(message, envelope)
        case _:
            _check_rows(message)


def _check_window(window: ComparisonSpan, now_ms: int, day_ms: int) -> None:
    if window.first_ms >= window.stop_ms or window.stop_ms > now_ms + AHEAD_MAX_MS:
        raise ProtocolError("the compared period is empty, or in the future")
    if window.is_final and (not window.is_kept(day_ms) or window.stop_ms > now_ms + SKEW_MS):
        raise ProtocolError("only whole days in the past can be closed")


def _check_rows(message: Any) -> None:
    """Raise ProtocolError for too many rows, or malformed ones."""
    match message:
        case Entries():
            if len(message.rows) > ENTRIES_MAX or any(len(row) > 8 for row in message.rows):
                raise ProtocolError("a row or the list of entries is too long")
        case Dispute():
            if not 0 < len(message.deliveries) <= ENTRIES_MAX:
                raise ProtocolError(f"a dispute must name 1 to {ENTRIES_MAX:,} deliveries")
        case DisputeAnswer():
            is_short = len(message.answers) <= ENTRIES_MAX
            if not is_short or any(len(row) != 4 for row in message.answers):
                raise ProtocolError("an answer must be [epoch, first, at, 1 or 0]")


def window_of(message: Reconcile | Reconciled | AskEntries | AskReconcile) -> ComparisonSpan:
    """The span that a message is about."""
    is_final = isinstance(message, Reconcile | Reconciled) and message.is_final
    return ComparisonSpan(message.first_ms, message.stop_ms, is_final)


def subject_of(message: Any) -> Hashable:
    """The key by which a newer message replaces a queued one; None if it replaces none."""
    match message:
        case Reconcile() | Reconciled():
            return message.kind, message.first_ms, message.stop_ms, message.is_final
        case AskEntries() | Entries():
            return message.kind, message.contract, message.first_ms, message.stop_ms
        case Payments() | AskReconcile():
            return message.kind
        case _:
            return None  # disputes: each is about other deliveries


def question_of(site: str, message: Entries) -> tuple[str, str, int, int]:
    """The key of our question for entries that a message of a site answers."""
    return site, message.contract, message.first_ms, message.stop_ms


def named(window: ComparisonSpan) -> str:
    """Format a window for people: a day, or a span."""
    first, stop = (
        datetime.fromtimestamp(each / 1000, UTC) for each in (window.first_ms, window.stop_ms)
    )
    if not window.is_kept():
        return f"{first:%Y-%m-%d %H:%M:%S} to {stop:%Y-%m-%d %H:%M:%S}"
    last = stop - timedelta(days=1)
    return f"{first:%Y-%m-%d}" if first == last else f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def told_sums(tally: Tally) -> str:
    """Format the sums of books for people, by currency."""
    return ", ".join(
        f"{format_money(each.due_nanos, currency)} for {count(each.tasks, 'task')}"
        + _taken_back(each.reversed_nanos, currency)
        for currency, each in sorted(tally.sums.items())
    )


def _taken_back(nanos: int, currency: str) -> str:
    return f" ({format_money(nanos, currency)} of them reversed)" if nanos else ""


def state_of(tally: Tally, message: Reconcile | Reconciled) -> str:
    """Compare our books with another's: both the stated sums and the signed digest must match."""
    if message.digest != tally.digest or message.sums != tally.plain:
        return "differs"
    return "pending" if tally.is_pending else "agreed"


def _plain(number: int, _currency: str) -> str:
    return f"{number:,}"


def _seconds(nanoseconds: int, _currency: str) -> str:
    return f"{format_amount(nanoseconds)} s"


# Sums that are no plain numbers: the word for each, and its form.
_SHOWN: Final[Mapping[str, tuple[str, Callable[[int, str], str]]]] = {
    "wall_ns": ("wall time", _seconds),
    "cost_nanos": ("cost", format_money),
    "pending_nanos": ("cost of pending", format_money),
    "reversed_nanos": ("cost of reversals", format_money),
}


def difference(tally: Tally, message: Reconcile | Reconciled) -> str:
    """Describe where the sums differ."""
    ours, theirs = tally.sums, sums_of(message.sums)
    told = []
    for currency in sorted(ours.keys() | theirs.keys()):
        mine, yours = ours.get(currency, Sums()), theirs.get(currency, Sums())
        for name in Sums.__dataclass_fields__:
            here, there = getattr(mine, name), getattr(yours, name)
            if here != there:
                word, show = _SHOWN.get(name, (name, _plain))
                told.append(
                    f"{currency} {word}: {show(here, currency)} here, {show(there, currency)} there"
                )
    if not told and tally.is_pending:
        told.append("some deliveries have no verdict yet")
    return "; ".join(told)[:DETAILS_CHARS_MAX] or "the sums agree, but entries differ"
