"""The rules of a site over time: what is in force at a moment, and by which version. Pure.

A *rule* is one part of the configuration that changes while a site runs: a window, a calendar, the
price of a pool, a budget. A *change* sets or removes rules from a moment on, for ever or until
another moment. Changes are numbered in the order in which they were made. None takes effect before
it was made, and none is altered later, so that the rules of a past moment never change:

    in force at t  =  of each rule, the content of the latest change that counts at t

A change counts in [from_s, until_s) unless it was cancelled. The latest is the one with the latest
`from_s`; of equal ones, the one with the highest number. The *version* in force is the number of
the last change that has begun, or whose end has been reached: each change that ends by itself has
a second number, for its end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from federation.clocks import NEVER_S, UtcS
from policies.calendar.validity import ALWAYS_S

# How a change is refused that was made of another version of the rules.
CHANGED_SINCE: Final = "the rules have changed since this change was made"
EDITS_MAX: Final = 10_000  # of one change


class RuleKind(StrEnum):
    """The kinds of rules; docs/rules.md has the table of each."""

    CALENDAR = "calendar"
    WINDOW = "window"
    CLAIMS = "claims"
    PRICE = "price"
    TARIFF = "tariff"
    SCALE = "scale"
    GROUPS = "groups"
    FAIR_SHARE = "fair_share"
    ENTITLEMENTS = "entitlements"
    RESIDENCY = "residency"
    RESERVATIONS = "reservations"
    BUDGET = "budget"
    CREDIT = "credit"


class RuleKey(NamedTuple):
    """The identity of a rule: its kind, its pool (empty: the site), its name where it has one."""

    kind: RuleKind
    pool: str = ""
    name: str = ""

    def __str__(self) -> str:
        named = f" {self.name!r}" if self.name else ""
        return f"{self.kind}{named}" + (f" of {self.pool}" if self.pool else "")


Content = Any  # of a rule: types of both JSON and TOML
Rules = Mapping[RuleKey, Content]


@dataclass(frozen=True, slots=True)
class RuleEdit:
    """One rule in a change; `content` None removes it."""

    key: RuleKey
    content: Content


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A change of a site's rules. See RuleChangeKept for the attributes."""

    number: int
    from_s: UtcS
    made_at_s: UtcS
    author: str
    source: str
    edits: tuple[RuleEdit, ...] = ()
    until_s: UtcS = NEVER_S
    reason: str = ""
    ends: int = 0
    cancelled_at_s: UtcS | None = None

    @property
    def title(self) -> str:
        """Its number and its author, for messages: "change 15, by root"."""
        return f"change {self.number}, by {self.author or f'the {self.source}'}"

    def counts_at(self, utc_s: UtcS) -> bool:
        """Whether its edits apply at a time."""
        return self.cancelled_at_s is None and self.from_s <= utc_s < self.until_s


class RuleSpan(NamedTuple):
    """The content of a rule in [from_s, until_s); None: there is no such rule then."""

    from_s: UtcS
    until_s: UtcS
    content: Content


class RuleHistory:
    """All changes of a site's rules, in any order.

    Args:
        changes: each number once.
    """

    def __init__(self, changes: Iterable[RuleChange] = ()) -> None:
        self.changes: Sequence[RuleChange] = sorted(changes, key=lambda each: each.number)
        self._in_turn = sorted(self.changes, key=lambda each: (each.from_s, each.number))

    @property
    def next_number(self) -> int:
        """The number of the next change."""
        return self.changes[-1].number + 1 if self.changes else 1

    def at(self, utc_s: UtcS) -> dict[RuleKey, Content]:
        """Return the rules in force at a time, in the order in which they were first made."""
        return _applied(each for each in self._in_turn if each.counts_at(utc_s))

    def version_at(self, utc_s: UtcS) -> int:
        """Return the version in force at a time; 0 before the first change."""
        begun = [
            each.number
            for each in self._in_turn
            if each.cancelled_at_s is None and each.from_s <= utc_s
        ]
        return begun[-1] if begun else 0

    def of(self, version: int) -> dict[RuleKey, Content] | None:
        """Return the rules of a version; None if it never was in force, or there is none."""
        for each in self.changes:
            if each.number == version and each.cancelled_at_s is None:
                return self.at(each.from_s) if self.version_at(each.from_s) == version else None
        return None

    def next_edge(self, utc_s: UtcS) -> UtcS | None:
        """Return the next time at which a planned change begins or ends; None: none is planned."""
        ahead = [each.from_s for each in self.planned(utc_s)]
        return min(ahead) if ahead else None

    def planned(self, utc_s: UtcS) -> list[RuleChange]:
        """Return the changes that are still to take effect, in the order in which they will."""
        return [
            each for each in self._in_turn if each.cancelled_at_s is None and each.from_s > utc_s
        ]

    def spans(self, key: RuleKey, utc_s: UtcS) -> list[RuleSpan]:
        """Return what a rule is from a time on, for all planned changes; without gaps.

        The first span begins at the beginning of time, the last ends never.
        """
        touching = [
            each
            for each in self._in_turn
            if each.cancelled_at_s is None and any(edit.key == key for edit in each.edits)
        ]
        edges = {edge for each in touching for edge in (each.from_s, each.until_s)}
        turns = [utc_s, *sorted(edge for edge in edges if utc_s < edge < NEVER_S)]
        found: list[RuleSpan] = []
        for from_s, until_s in zip(turns, [*turns[1:], NEVER_S], strict=True):
            rules = _applied(each for each in touching if each.counts_at(from_s))
            content = rules.get(key)
            if found and found[-1].content == content:
                found[-1] = found[-1]._replace(until_s=until_s)
            else:
                found.append(RuleSpan(from_s if found else ALWAYS_S, until_s, content))
        return found

    def ahead(self, utc_s: UtcS, kind: RuleKind) -> dict[RuleKey, list[RuleSpan]]:
        """Return the spans of all rules of a kind that are in force, or planned."""
        keys = dict.fromkeys(key for key in self.at(utc_s) if key.kind is kind)
        for change in self.planned(utc_s):
            keys |= dict.fromkeys(each.key for each in change.edits if each.key.kind is kind)
        return {key: self.spans(key, utc_s) for key in keys}

    def of_source(self, source: str) -> dict[RuleKey, Content]:
        """Return what the changes of one source alone add up to, one on the other."""
        return _applied(each for each in self.changes if each.source == source)

    def last_change(self, key: RuleKey, utc_s: UtcS) -> RuleChange | None:
        """Return the change by which a rule is as it is at a time."""
        return next(
            (
                each
                for each in reversed(self._in_turn)
                if each.counts_at(utc_s) and any(edit.key == key for edit in each.edits)
            ),
            None,
        )

    def with_change(self, *changes: RuleChange) -> "RuleHistory":
        """Return a history with more changes; one with a known number replaces it."""
        mine = {each.number: each for each in (*self.changes, *changes)}
        return RuleHistory(mine.values())


def _applied(changes: Iterable[RuleChange]) -> dict[RuleKey, Content]:
    found: dict[RuleKey, Content] = {}
    for change in changes:
        for edit in change.edits:
            if edit.content is None:
                found.pop(edit.key, None)
            else:
                found[edit.key] = edit.content
    return found


def difference(before: Rules, after: Rules) -> tuple[RuleEdit, ...]:
    """Return the edits that lead from some rules to others: the removed ones first."""
    return (
        *(RuleEdit(key, None) for key in before if key not in after),
        *(RuleEdit(key, each) for key, each in after.items() if not _is_same(key, before, each)),
    )


def _is_same(key: RuleKey, before: Rules, content: Content) -> bool:
    """Whether a rule is as before; the order of [groups] counts, as the first group does."""
    known = before.get(key)
    if key.kind is RuleKind.GROUPS and isinstance(known, dict) and isinstance(content, dict):
        return list(known.items()) == list(content.items())
    return key in before and known == content


def overridden(history: RuleHistory, edits: Iterable[RuleEdit], utc_s: UtcS) -> Iterator[RuleEdit]:
    """Yield the edits of a file that change rules set by a command, for a message."""
    present = history.at(utc_s)
    for edit in edits:
        last = history.last_change(edit.key, utc_s)
        is_other = present.get(edit.key) != edit.content
        if is_other and last is not None and last.source != "file":
            yield edit
