"""Compares the books of two sites on purchases between them, and finds differences. Pure.

    buyer                                          seller
      Reconcile ────────────────────────────────────►     so much, and this digest, in this time
      ◄──────────────────────────────────── Reconciled     agreed; or not, and what differs
      AskEntries ───────────────────────────────────►     of one that differs
      ◄─────────────────────────────────────── Entries
      Dispute ──────────────────────────────────────►     this should not have been charged
      ◄───────────────────────────────── DisputeAnswer     so be it, or no
      ◄────────────────────────────────── AskReconcile     compare this time with me now

Counts and sums are sent first, and records only where those differ. The comparison covers the
entries that both sites book with the same time (Deliver.at_ms): deliveries that are wanted or have
no verdict yet, and reversals after a dispute. Void deliveries are left out: a buyer need not know
of deliveries that came too late. An answer that agrees is the buyer's acknowledgement and the
seller's at once: both keep both envelopes, whose digests stand for every record in that time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Final

from federation.errors import ProtocolError
from federation.messages.contracts import BILL_FIELDS, Delivery
from federation.messages.registry import FromBuyer, FromSeller, Receiver
from federation.messages.wire import Count, Pairs, Plain, Rows, Text, pack
from federation.money import check_currency, format_amount, format_money
from federation.words import count

DAY_MS: Final = 86_400_000
CONTRACTS_MAX: Final = 2_000  # reported as different at a time
ENTRIES_MAX: Final = 5_000  # in one message
REASON_CHARS_MAX: Final = 300
CURRENCIES_MAX: Final = 200


class EntryState(IntEnum):
    """The state of an entry."""

    PENDING = 0  # delivered, and without a verdict
    POSTED = 1  # delivered, and paid
    REVERSAL = 2  # of a delivery that was paid
    VOID = 3  # delivered, and not wanted: in no comparison, so it never travels

    @property
    def word(self) -> str:
        """The name for people and in answers: a posted entry is settled, as in `gridfed deals`."""
        return "settled" if self is EntryState.POSTED else self.name.lower()


STATE_WORDS: Final = tuple(each.word for each in EntryState)
OLD_WORDS: Final = {"posted": "settled"}  # of earlier versions, which are understood


@dataclass(frozen=True, slots=True)
class BookEntry:
    """One line of the books of a contract. A reversal has the time when it was agreed to."""

    contract: str
    currency: str
    delivery: Delivery
    state: EntryState

    @property
    def row(self) -> list[int]:
        """Its wire form."""
        return [*self.delivery.row, int(self.state)]


@dataclass(slots=True)
class Sums:
    """The totals of entries in one currency."""

    deliveries: int = 0
    tasks: int = 0
    wall_ns: int = 0
    cost_nanos: int = 0
    pending: int = 0
    pending_nanos: int = 0
    reversals: int = 0
    reversed_nanos: int = 0

    def add(self, entry: BookEntry) -> None:
        """Count one more entry."""
        delivery = entry.delivery
        if entry.state is EntryState.REVERSAL:
            self.reversals += 1
            self.reversed_nanos += delivery.cost_nanos
            return
        if entry.state is EntryState.PENDING:
            self.pending += 1
            self.pending_nanos += delivery.cost_nanos
            return
        self.deliveries += 1
        self.tasks += delivery.stop - delivery.first
        self.wall_ns += delivery.wall_ns
        self.cost_nanos += delivery.cost_nanos

    @property
    def due_nanos(self) -> int:
        """The buyer's debt to the seller for these entries."""
        return self.cost_nanos - self.reversed_nanos


@dataclass(slots=True)
class Tally:
    """The totals of entries, by currency, and the digest of all entries."""

    sums: dict[str, Sums] = field(default_factory=dict)
    digest: bytes = b""

    @property
    def plain(self) -> dict[str, list[str]]:
        """The wire form: amounts may exceed the wire's integers."""
        return {
            currency: [str(getattr(sums, name)) for name in Sums.__dataclass_fields__]
            for currency, sums in sorted(self.sums.items())
        }

    @property
    def is_pending(self) -> bool:
        """Whether there are deliveries without a verdict."""
        return any(each.pending for each in self.sums.values())


def tally_of(entries: Iterable[BookEntry]) -> Tally:
    """Sum up and digest entries, ordered by contract, epoch, first and state."""
    tally, digest = Tally(), hashlib.sha256()
    for entry in entries:
        tally.sums.setdefault(entry.currency, Sums()).add(entry)
        digest.update(pack([entry.contract, entry.currency, *entry.row]))
    tally.digest = digest.digest()
    return tally


def by_contract(entries: Iterable[BookEntry]) -> dict[str, bytes]:
    """Return the digest of each contract's entries."""
    found: dict[str, Any] = {}
    for entry in entries:
        digest = found.setdefault(entry.contract, hashlib.sha256())
        digest.update(pack([entry.contract, entry.currency, *entry.row]))
    return {contract: digest.digest() for contract, digest in found.items()}


def sums_of(plain: Any) -> dict[str, Sums]:
    """Read the output of Tally.plain. Raises ProtocolError for any invalid input."""
    if type(plain) is not dict:
        raise ProtocolError("the sums are invalid")
    if len(plain) > CURRENCIES_MAX:
        raise ProtocolError("the sums have too many currencies")
    found = {}
    for currency, texts in plain.items():
        try:
            check_currency(currency)
        except (ValueError, TypeError) as error:
            raise ProtocolError(f"the sums have an invalid currency: {error}") from None
        if type(texts) is not list or len(texts) != len(Sums.__dataclass_fields__):
            raise ProtocolError("the sums are invalid")
        if not all(type(each) is str and len(each) < 40 and each.isdecimal() for each in texts):
            raise ProtocolError("a sum is not a number")
        found[currency] = Sums(*map(int, texts))
    return found


# --- the records of a contract that differs ------------------------------------------------------


@dataclass(slots=True)
class Findings:
    """A buyer's findings from comparing a contract's entries with its seller's.

    Every verdict is the buyer's: entries that differ only in the verdict are corrected.

    Attributes:
        say: [epoch, first, 1 or 0]: the verdicts that the seller lacks.
        post: deliveries to be paid: the seller has them as posted, or no longer bills them.
        void: deliveries that the seller does not know, and will never bill.
        unclear: differences that only people can settle.
    """

    say: list[list[int]] = field(default_factory=list)
    post: list[Delivery] = field(default_factory=list)
    void: list[Delivery] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)


def compare(ours: Iterable[BookEntry], theirs: Iterable[list[int]]) -> Findings:
    """Compare a buyer's entries of a contract with the seller's rows. Raises ProtocolError."""
    found = Findings()
    mine = {_key(each.row): each for each in ours}
    currency = next((each.currency for each in mine.values()), "")  # a contract has only one
    for row in theirs:
        if len(row) != BILL_FIELDS + 1 or row[-1] not in (0, 1, 2):
            raise ProtocolError("an entry must be [epoch, first, tasks, cost, wall, at, state]")
        entry = mine.pop(_key(row), None)
        if entry is None:
            _only_theirs(found, row, currency)
        elif entry.delivery.row != row[:-1]:
            here, there = _terms(entry.delivery.row, currency), _terms(row, currency)
            found.unclear.append(f"{_name(row)}: {here} here; {there} there")
        else:
            _both(found, entry, EntryState(row[-1]))
    for entry in mine.values():
        if entry.state is EntryState.PENDING:
            found.void.append(entry.delivery)
        else:
            cost = format_money(entry.delivery.cost_nanos, currency)
            found.unclear.append(f"{_name(entry.row)}: {cost} here only")
    return found


def _both(found: Findings, entry: BookEntry, theirs: EntryState) -> None:
    epoch, first = entry.delivery.epoch, entry.delivery.first
    if theirs is EntryState.PENDING:
        found.say.append([epoch, first, 1])
    if entry.state is EntryState.PENDING:
        found.post.append(entry.delivery)


def _only_theirs(found: Findings, row: list[int], currency: str) -> None:
    if row[-1] == EntryState.PENDING:
        found.say.append([row[0], row[1], 0])
    else:
        cost = format_money(row[3], currency).rstrip()
        found.unclear.append(f"{_name(row)}: {cost} there only")


def _key(row: list[int]) -> tuple[int, int, bool]:
    return row[0], row[1], row[-1] == EntryState.REVERSAL


def _terms(row: list[int], currency: str) -> str:
    """Return what a delivery's row says of it, for people: all that may differ."""
    _, _, tasks, cost_nanos, wall_ns, at_ms = row[:BILL_FIELDS]
    terms = count(tasks, "task"), format_money(cost_nanos, currency), f"{format_amount(wall_ns)} s"
    return f"{', '.join(terms)}, booked at {at_ms} ms since 1970"


def _name(row: list[int]) -> str:
    kind = "the reversal of " if row[-1] == EntryState.REVERSAL else ""
    return f"{kind}epoch {row[0]}, task {row[1]}"


# --- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reconcile(FromBuyer, to=Receiver.BOOKS, sealed=True):
    """The buyer's totals of deliveries to it in [first_ms, stop_ms), for comparison.

    With `is_final` the period is closed: no verdict in it changes any more.
    """

    kind: ClassVar[str] = "reconcile"
    first_ms: Count
    stop_ms: Count
    is_final: bool
    sums: Plain  # Tally.plain
    digest: bytes


@dataclass(frozen=True, slots=True)
class Reconciled(FromSeller, to=Receiver.BOOKS, sealed=True):
    """The answer: `state` is "agreed", "pending" (some delivery has no verdict yet) or "differs".

    If it differs, `contracts` has the digest of each contract's entries, the first CONTRACTS_MAX.
    """

    kind: ClassVar[str] = "reconciled"
    first_ms: Count
    stop_ms: Count
    is_final: bool
    state: Text
    sums: Plain
    digest: bytes
    contracts: Plain


@dataclass(frozen=True, slots=True)
class AskEntries(FromBuyer, to=Receiver.BOOKS):
    """Request the entries of this contract for deliveries in [first_ms, stop_ms)."""

    kind: ClassVar[str] = "ask-entries"
    contract: Text
    first_ms: Count
    stop_ms: Count


@dataclass(frozen=True, slots=True)
class Entries(FromSeller, to=Receiver.BOOKS):
    """The entries: [epoch, first, tasks, cost, wall, at, state]; all, unless there are too many."""

    kind: ClassVar[str] = "entries"
    contract: Text
    first_ms: Count
    stop_ms: Count
    rows: Rows
    is_all: bool


@dataclass(frozen=True, slots=True)
class Dispute(FromBuyer, to=Receiver.BOOKS, sealed=True):
    """Deliveries, [epoch, first], that should not have been charged, with the reason."""

    kind: ClassVar[str] = "dispute"
    contract: Text
    deliveries: Pairs
    reason: Text


@dataclass(frozen=True, slots=True)
class DisputeAnswer(FromSeller, to=Receiver.BOOKS, sealed=True):
    """The seller's decision on disputed deliveries: [epoch, first, at_ms, 1 or 0].

    Accepted ones (1) are reversed in both books, as of `at_ms`.
    """

    kind: ClassVar[str] = "dispute-answer"
    contract: Text
    answers: Rows
    reason: Text


@dataclass(frozen=True, slots=True)
class AskReconcile(FromSeller, to=Receiver.BOOKS):
    """Request a Reconcile of [first_ms, stop_ms): the seller wants to compare, too.

    A buyer that does not know this message answers Unknown, and the seller compares nothing.
    """

    kind: ClassVar[str] = "ask-reconcile"
    first_ms: Count
    stop_ms: Count
