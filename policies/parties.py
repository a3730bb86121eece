"""Owners of work, and parties that rules name: users, groups, projects, sites. Pure.

A rule names a party as `user:ada`, `group:quants`, `project:risk`, `site:paris`, `ours` (all users
of this gateway), `others` (all work from other sites), `all`.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NAME_CHARS_MAX: Final = 200
SEPARATORS: Final = frozenset("=%,")  # between the settings of a rule: no name in a rule has one
_SEPARATED: Final = re.compile(r"\s*,|\s+\w+\s*=|\s*[=%]")


class PartyKind(StrEnum):
    """The kind of a party."""

    USER = "user"
    GROUP = "group"
    PROJECT = "project"
    SITE = "site"
    OURS = "ours"
    OTHERS = "others"
    ALL = "all"


NAMED: Final = frozenset({PartyKind.USER, PartyKind.GROUP, PartyKind.PROJECT, PartyKind.SITE})


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of work.

    Attributes:
        user: as known here; users of other sites are `ada@paris`.
        group: the user's first, as configured here; empty when there is none. Books and shares
            count the work for this one alone.
        project: of the work, according to its user's token.
        site: the site that sent it here; empty for this site's own work.
        more_groups: the further groups of the user, whose rights the work has as well.
    """

    user: str
    group: str = ""
    project: str = ""
    site: str = ""
    more_groups: frozenset[str] = frozenset()

    def is_in(self, group: str) -> bool:
        """Whether the user is in a group of this site."""
        return not self.site and (self.group == group or group in self.more_groups)


@dataclass(frozen=True, slots=True)
class Party:
    """A principal or a set of principals that a rule applies to."""

    kind: PartyKind
    name: str = ""

    def includes(self, whose: Owner) -> bool:
        """Whether an owner's work has the rights of this party: any group of the user counts."""
        match self.kind:
            case PartyKind.ALL:
                return True
            case PartyKind.OURS:
                return not whose.site
            case PartyKind.OTHERS:
                return bool(whose.site)
            case PartyKind.USER:
                return whose.user == self.name
            case PartyKind.GROUP:
                return whose.is_in(self.name)
            case PartyKind.PROJECT:
                return whose.project == self.name
            case PartyKind.SITE:
                return whose.site == self.name

    def counts(self, whose: Owner) -> bool:
        """Whether an owner's work counts for this party: the user's first group alone does.

        So slot time and money of a user in several groups are counted once.
        """
        if self.kind is PartyKind.GROUP:
            return not whose.site and whose.group == self.name
        return self.includes(whose)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind in NAMED else str(self.kind)


NOBODY_KNOWN: Final = Owner("")  # a user of this site
ANOTHER_SITE: Final = Owner("", site="?")  # unknown work from another site: no site has this name

ALL: Final = Party(PartyKind.ALL)
OURS: Final = Party(PartyKind.OURS)
OTHERS: Final = Party(PartyKind.OTHERS)


# Names that `read_party` would refuse, of rules that were stored before it did.
_kept: Final[ContextVar[frozenset[str]]] = ContextVar("kept parties", default=frozenset())


@contextmanager
def keeping(texts: Iterable[str]) -> Iterator[None]:
    """Read these parties as they are meanwhile: rules that are in force already have them."""
    token = _kept.set(frozenset(texts))
    try:
        yield
    finally:
        _kept.reset(token)


def is_odd(text: object) -> bool:
    """Whether a text is a party with a name that no new rule may have."""
    if not isinstance(text, str) or not SEPARATORS.intersection(text):
        return False
    try:
        known_party(text)
    except ValueError:
        return False
    return True


def read_party(text: str) -> Party:
    """Parse a party that a person wrote in a rule or an order. Raise ValueError.

    A name with a sign that separates settings is refused: a claim with a forgotten comma would be
    one of a party that nobody is, and its guarantee would be lost without a word.
    """
    found = known_party(text)
    if text in _kept.get():
        return found
    if sign := next((each for each in found.name if each in SEPARATORS), ""):
        alone = _SEPARATED.split(text, maxsplit=1)[0]
        raise ValueError(
            f"{text[:60]!r} is not a party: its name contains {sign!r}; write the party alone "
            f"({alone[:60]!r}), and each setting or further party apart from it, as in "
            'who = "project:risk", guaranteed = "80%"'
        )
    return found


def known_party(text: str) -> Party:
    """Parse a party as `str` shows it, from books or another process. Raise ValueError.

    Names of users that tokens have may contain any visible sign.
    """
    kind, colon, name = text.partition(":")
    if kind in NAMED and colon:
        if 0 < len(name) <= NAME_CHARS_MAX and name.isprintable():
            return Party(PartyKind(kind), name)
    elif not colon and kind in set(PartyKind) - NAMED:
        return Party(PartyKind(kind))
    ways = "user:NAME, group:NAME, project:NAME, site:NAME, ours, others, all"
    raise ValueError(f"{text[:60]!r} is not a party: use one of {ways}")
