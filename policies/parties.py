"""Whose work it is, and rules about that: users, groups, projects, sites. Pure.

A rule names a party as people write it: `user:ada`, `group:quants`, `project:risk`, `site:paris`,
`ours` (whoever works at our own gateway), `others` (all that other sites send), `all`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NAME_CHARS_MAX: Final = 200


class Kind(StrEnum):
    """What a rule names."""

    USER = "user"
    GROUP = "group"
    PROJECT = "project"
    SITE = "site"
    OURS = "ours"
    OTHERS = "others"
    ALL = "all"


NAMED: Final = frozenset({Kind.USER, Kind.GROUP, Kind.PROJECT, Kind.SITE})


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose work something is.

    Attributes:
        user: as we know them; those of other sites are `ada@paris`.
        group: the user's, as configured here; empty when there is none.
        project: that it is done for, as its user's token says.
        site: the one that sent it to us; empty for our own.
    """

    user: str
    group: str = ""
    project: str = ""
    site: str = ""


@dataclass(frozen=True, slots=True)
class Party:
    """Those whom a rule is about."""

    kind: Kind
    name: str = ""

    def includes(self, whose: Whose) -> bool:
        """Whether somebody's work is work of this party."""
        match self.kind:
            case Kind.ALL:
                return True
            case Kind.OURS:
                return not whose.site
            case Kind.OTHERS:
                return bool(whose.site)
            case Kind.USER:
                return whose.user == self.name
            case Kind.GROUP:
                return not whose.site and whose.group == self.name
            case Kind.PROJECT:
                return whose.project == self.name
            case Kind.SITE:
                return whose.site == self.name

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind in NAMED else str(self.kind)


NOBODY_KNOWN: Final = Whose("")  # a user of ours
ANOTHER_SITE: Final = Whose("", site="?")  # somebody's work at another site: a name of no site

ALL: Final = Party(Kind.ALL)
OURS: Final = Party(Kind.OURS)
OTHERS: Final = Party(Kind.OTHERS)


def read_party(text: str) -> Party:
    """Read a party as a rule names it. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if kind in NAMED and colon:
        if 0 < len(name) <= NAME_CHARS_MAX and name.isprintable():
            return Party(Kind(kind), name)
    elif not colon and kind in set(Kind) - NAMED:
        return Party(Kind(kind))
    ways = "user:NAME, group:NAME, project:NAME, site:NAME, ours, others, all"
    raise ValueError(f"{text[:60]!r} is nobody: write one of {ways}")
