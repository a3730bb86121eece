"""Changes of a site's rules: what is written, and what is read back."""

from dataclasses import dataclass
from typing import Final

from federation.clocks import UtcS
from gateway.ledger.db.checks import check_numbers, check_texts, check_times

CONTENT_CHARS_MAX: Final = 1 << 20  # of one rule, as JSON


@dataclass(frozen=True, slots=True)
class RuleChangeKept:
    """A change of the site's rules; unique by number. Written with its edits, before it counts.

    Attributes:
        number: from 1, in the order in which changes were made.
        from_s: when it takes effect, UTC.
        until_s: when it ends by itself; None: it does not.
        ends: the number of the change whose end this one marks; 0: it marks none.
        author: the user who made it.
        source: where it came from: "file", "command", or an import of that name.
        reason: why, in the author's words.
    """

    number: int
    from_s: UtcS
    until_s: UtcS | None
    ends: int
    made_at_s: UtcS
    author: str
    source: str
    reason: str

    def __post_init__(self) -> None:
        check_numbers(self.number, self.ends)
        check_times(self.from_s, self.made_at_s)
        if self.until_s is not None:
            check_times(self.until_s)
        check_texts(self.author, self.source, self.reason)


@dataclass(frozen=True, slots=True)
class RuleEditKept:
    """A rule in a change; unique by number, kind, pool and name.

    Attributes:
        number: of its change.
        place: its place among the edits of the change, from 0.
        pool: the pool that it is about; empty: the site.
        content: the rule as JSON; None: it is removed.
    """

    number: int
    place: int
    kind: str
    pool: str
    name: str
    content: str | None

    def __post_init__(self) -> None:
        check_numbers(self.number, self.place)
        check_texts(self.kind, self.pool, self.name, self.content or "")
        if len(self.content or "") > CONTENT_CHARS_MAX:
            raise ValueError(f"a rule has more than {CONTENT_CHARS_MAX:,} characters")


@dataclass(frozen=True, slots=True)
class RuleChangeCancelled:
    """A planned change was cancelled before it took effect."""

    number: int
    cancelled_at_s: UtcS

    def __post_init__(self) -> None:
        check_numbers(self.number)
        check_times(self.cancelled_at_s)


@dataclass(frozen=True, slots=True)
class RuleChangeRow:
    """A change as it is in the books, with its edits in order."""

    kept: RuleChangeKept
    cancelled_at_s: UtcS | None
    edits: tuple[RuleEditKept, ...]
