"""Where the work of some parties, and the data of some classes, may run. Pure.

All rules that match a job bind it together: it may run only where each of them allows it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

from policies.parties import Owner, Party

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class ResidencyRule:
    """A rule about places.

    Attributes:
        who: the parties whose work it binds.
        data: the classes of data that it is about; empty: all work of these parties.
        sites: the only sites; None: any.
        not_sites: sites that are excluded.
        jurisdictions: the only jurisdictions; None: any.
        line: in its file, for messages; 0: the file does not have it.
        change: the change that made a rule without a line, as "change 15, by root".
    """

    who: tuple[Party, ...]
    data: Names = frozenset()
    sites: Names | None = None
    not_sites: Names = frozenset()
    jurisdictions: Names | None = None
    line: int = field(default=0, compare=False)
    change: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        """Where it was written: its line, or the change that made it; empty if neither is known."""
        return f"line {self.line}" if self.line else self.change

    def binds(self, whose: Owner, data: Names) -> bool:
        """Whether it is about an owner's work with data of these classes."""
        is_data = not self.data or bool(self.data & data)
        return is_data and any(party.includes(whose) for party in self.who)

    def __str__(self) -> str:
        """Format as its owner might have written it, in a line."""
        words = [", ".join(map(str, self.who))]
        for name in ("data", "sites", "not_sites", "jurisdictions"):
            names = getattr(self, name)
            if names or (names is not None and name in ("sites", "jurisdictions")):
                words.append(f"{name} {', '.join(sorted(names)) or 'none'}")
        return "; ".join(words)


@dataclass(frozen=True, slots=True)
class Residence:
    """The places where one job may run; None: any.

    Attributes:
        rules: those that bind it.
    """

    sites: Names | None = None
    not_sites: Names = frozenset()
    jurisdictions: Names | None = None
    rules: tuple[ResidencyRule, ...] = ()

    def within(self, rule: ResidencyRule) -> "Residence":
        """Return the part of these places that a rule allows as well."""
        return Residence(
            both(self.sites, rule.sites),
            self.not_sites | rule.not_sites,
            both(self.jurisdictions, rule.jurisdictions),
            (*self.rules, rule),
        )


ANYWHERE: Final = Residence()


def both(some: Names | None, others: Names | None) -> Names | None:
    """Return the names that are in both sets; None stands for all names."""
    if some is None or others is None:
        return others if some is None else some
    return some & others


def residence_of(rules: Iterable[ResidencyRule], whose: Owner, data: Names) -> Residence:
    """Return where an owner's work with data of these classes may run."""
    binding = (rule for rule in rules if rule.binds(whose, data))
    return reduce(Residence.within, binding, ANYWHERE)


def at_home(rule: ResidencyRule, site: str) -> ResidencyRule:
    """Return a rule that allows this site alone."""
    return replace(rule, sites=frozenset({site}))
