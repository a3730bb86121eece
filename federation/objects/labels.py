"""Labels of objects: where the data may lie, in words, and what remains of two of them. Pure.

    EU, DE           in these jurisdictions alone (of the pools of a site)
    site:paris       at these sites alone
    not-site:tokyo   not at these
    home             at the site that the object is put at

The words are those of [[residency]] rules, and mean the same: jurisdictions and sites hold
together. A result has the label of all that its task has read: labels only ever narrow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from federation.errors import ProtocolError

WORDS_MAX: Final = 64
WORD_CHARS_MAX: Final = 60  # of a name, as in [[residency]]
SOURCES_MAX: Final = 8  # names of what a label is of, for people
SITE: Final = "site:"
NOT_SITE: Final = "not-site:"
HOME: Final = "home"
NOWHERE: Final = "nowhere"  # two labels left no place; older versions read a jurisdiction of none
ANY_OF: Final = (
    '"EU" for a jurisdiction, "site:paris", "not-site:tokyo", or "home" for the site that it is '
    "put at"
)

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class DataLabel:
    """The places where data may lie; None: any.

    Attributes:
        jurisdictions: the only ones.
        sites, not_sites: the only sites; those that are excluded.
        of: what it is of, for people: objects and jobs, at most SOURCES_MAX.
    """

    jurisdictions: Names | None = None
    sites: Names | None = None
    not_sites: Names = frozenset()
    of: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether it forbids any place: all of them, where it allows none."""
        return bool(self.words)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that say it, in order; empty: anywhere."""
        if self.is_nowhere:
            return (NOWHERE,)
        return (
            *sorted(self.jurisdictions or ()),
            *(SITE + each for each in sorted(self.sites or ())),
            *(NOT_SITE + each for each in sorted(self.not_sites)),
        )

    @property
    def is_nowhere(self) -> bool:
        """Whether it allows no place at all."""
        no_site = self.sites is not None and not self.sites - self.not_sites
        return no_site or (self.jurisdictions is not None and not self.jurisdictions)

    def within(self, other: "DataLabel") -> "DataLabel":
        """Return the places that both allow."""
        sources = self.of if not other else other.of if not self else (*self.of, *other.of)
        return DataLabel(
            _both(self.jurisdictions, other.jurisdictions),
            _both(self.sites, other.sites),
            self.not_sites | other.not_sites,
            tuple(dict.fromkeys(sources))[:SOURCES_MAX],
        )

    def is_within(self, other: "DataLabel") -> bool:
        """Whether it allows no place that the other forbids."""
        return self.within(other).words == self.words

    def named(self, *sources: str) -> "DataLabel":
        """Return it as that of these, for people."""
        return replace(self, of=sources[:SOURCES_MAX])

    def why_not(self, site: str, jurisdiction: str) -> str:
        """Return why data with it may not lie at a site, in words; empty if it may.

        `jurisdiction` is that of the pool or host there; empty: unknown.
        """
        allowed = self.sites is None or site in self.sites
        where = jurisdiction or "an unknown jurisdiction"
        if self.jurisdictions is not None and jurisdiction not in self.jurisdictions:
            allowed = False
        if allowed and site not in self.not_sites:
            return ""
        return f"{self.title}, and site {site} is in {where}"

    @property
    def title(self) -> str:
        """What it is of and where that may lie: `object "book" may lie only in EU`."""
        what = ", ".join(self.of) or "the data"
        if self.is_nowhere:
            return f"{what} may lie nowhere"
        if self.not_sites and self.jurisdictions is None and self.sites is None:
            return f"{what} may not lie {str(self).removeprefix('not ')}"
        return f"{what} may lie only {self}"

    def __str__(self) -> str:
        """Say where, in words."""
        if self.is_nowhere:
            return NOWHERE
        parts = []
        if self.jurisdictions is not None:
            parts.append(f"in {', '.join(sorted(self.jurisdictions))}")
        if self.sites is not None:
            parts.append(f"at {', '.join(sorted(self.sites - self.not_sites))}")
        elif self.not_sites:
            parts.append(f"not at {', '.join(sorted(self.not_sites))}")
        return ", ".join(parts) or "anywhere"


UNLABELLED: Final = DataLabel()


def _both(some: Names | None, others: Names | None) -> Names | None:
    if some is None or others is None:
        return others if some is None else some
    return some & others


def meet(labels: Iterable[DataLabel]) -> DataLabel:
    """Return the places that all labels allow."""
    return reduce(DataLabel.within, labels, UNLABELLED)


def conflict(labels: Iterable[DataLabel]) -> str:
    """Return why no place is allowed by all labels, naming the two that exclude each other.

    Empty where a place may be left. A label of more words than a message may have is refused, too.
    """
    found = list(dict.fromkeys(each for each in labels if each))
    whole = meet(found)
    if not whole.is_nowhere:
        words = len(whole.words)
        if words <= WORDS_MAX:
            return ""
        what = ", ".join(whole.of) or "the data"
        return (
            f"the labels of {what} have {words:,} words together, the limit is {WORDS_MAX}: read "
            "less in one task, or name the places that are allowed"
        )
    for at, one in enumerate(found):
        for other in found[:at]:
            if one.within(other).is_nowhere:
                return f"{other.title}, and {one.title}: no place is left for a task of both"
    return f"no place is left for a task of all: {'; '.join(each.title for each in found[:8])}"


def told_label(words: Iterable[str]) -> DataLabel:
    """Read the words of a label in a message. Raises ProtocolError."""
    try:
        return read_label(words)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"the label of data is not valid: {error}") from None


def read_label(words: Any, home: str = "") -> DataLabel:
    """Read the words of a label; `home` is the site that "home" stands for.

    Raises:
        TypeError, ValueError: what is wrong, in words.
    """
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise TypeError(f"residency is {words!r:.80}; it must be a list of {ANY_OF}")
    found = list(words)
    if len(found) > WORDS_MAX:
        raise ValueError(f"residency has {len(found):,} words, the limit is {WORDS_MAX}")
    if NOWHERE in found:
        return DataLabel(jurisdictions=frozenset())
    jurisdictions, sites, not_sites = set[str](), set[str](), set[str]()
    for word in found:
        if not isinstance(word, str):
            raise TypeError(f"residency has {word!r:.80}; it must be a list of {ANY_OF}")
        text = f"{SITE}{home}" if word == HOME and home else word
        names = jurisdictions
        for mark, others in ((NOT_SITE, not_sites), (SITE, sites)):
            if text.startswith(mark):
                text, names = text.removeprefix(mark), others
                break
        is_name = 0 < len(text) <= WORD_CHARS_MAX and text.isprintable() and text == text.strip()
        if not is_name or text == HOME or any(each in text for each in ":,/"):
            raise ValueError(f"residency has {word!r:.80}; it must be {ANY_OF}")
        names.add(text)
    label = DataLabel(
        frozenset(jurisdictions) if jurisdictions else None,
        frozenset(sites) if sites else None,
        frozenset(not_sites),
    )
    if label.is_nowhere:
        raise ValueError("residency excludes each site that it allows: no place is left")
    return label
