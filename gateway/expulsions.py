"""Who is expelled: what each site has said of each other, and whose word counts here.

Our own word settles it, both ways. Where we have said nothing, the words of others count as the
operator wants (`Follow`), each approved site having one. What is held decides, not the order in
which it came: of two sites that expel each other neither gains by being first.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

from federation.identity import Refusal, SiteKey, Untrusted
from federation.statements import Expulsion, Signed, next_serial, sign

SPOKEN_OF_MAX: Final = 1024  # sites that one site may speak of


class Follow(StrEnum):
    """Whose word expels a site here, when we have said nothing of it ourselves."""

    ANY = "any"  # that of one approved site
    TWO = "two"  # that of two
    OURS = "ours"  # ours alone


_ACCUSERS: Final = {Follow.ANY: 1, Follow.TWO: 2}


class Expulsions:
    """The newest word of each site on each other.

    Args:
        federation: ours.
        site: ours.
        follow: whose word counts.
        is_approved: whether a site is approved by our operator, expulsions aside.
    """

    def __init__(
        self, federation: str, site: str, follow: Follow, is_approved: Callable[[str], bool]
    ) -> None:
        self._federation = federation
        self._site = site
        self.follow = follow
        self._is_approved = is_approved
        self._words: dict[str, dict[str, Signed[Expulsion]]] = {}  # of whom, by whom

    def __iter__(self) -> Iterator[Signed[Expulsion]]:
        for words in self._words.values():
            yield from words.values()

    def is_expelled(self, site: str) -> bool:
        """Whether a site is expelled here."""
        if site == self._site:
            return False
        ours = self.word(self._site, site)
        if ours is not None:
            return ours.content.stands
        accusers = sum(
            word.content.stands and by != site and self.is_heard(by)
            for by, word in self._words.get(site, {}).items()
        )
        needed = _ACCUSERS.get(self.follow)
        return needed is not None and accusers >= needed

    def is_heard(self, by: str) -> bool:
        """Whether a site's word counts: we approved it, and have not expelled it ourselves."""
        ours = self.word(self._site, by)
        expelled = ours is not None and ours.content.stands
        return by == self._site or (self._is_approved(by) and not expelled)

    def word(self, by: str, of: str) -> Signed[Expulsion] | None:
        """What one site says of another."""
        return self._words.get(of, {}).get(by)

    def put(self, word: Signed[Expulsion]) -> None:
        """Hold a word that was checked, and is newer than the one held; Untrusted FULL."""
        by, of = word.content.by, word.content.site
        spoken_of = sum(by in words for words in self._words.values())
        if self.word(by, of) is None and spoken_of >= SPOKEN_OF_MAX:
            raise Untrusted(Refusal.FULL, f"{by!r} speaks of {SPOKEN_OF_MAX} sites already")
        self._words.setdefault(of, {})[by] = word

    def say(
        self, of: str, reason: str, key: SiteKey, now_s: float, *, stands: bool
    ) -> Signed[Expulsion]:
        """Say it ourselves; returns what to tell others."""
        last = self.word(self._site, of)
        serial = next_serial(last.content.serial if last else 0, now_s)
        word = sign(Expulsion(self._federation, self._site, of, stands, reason, serial, now_s), key)
        self.put(word)
        return word
