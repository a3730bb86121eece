"""The declarations of sites about the expulsion of others, and which of them count here.

Our own declaration decides, both ways. Without one, the declarations of others count as the
operator configured (`Follow`), one for each approved site. The declarations held decide, not the
order of their arrival: of two sites that expel each other, the first gains nothing.
"""

from collections.abc import Callable, Iterator
from typing import Final

from federation.clocks import UtcS
from federation.signed.declarations import Expulsion, Signed, next_serial, sign
from federation.signed.identity import SiteKey, TrustRefusal, Untrusted
from gateway.config.federation import Follow

SPOKEN_OF_MAX: Final = 1024  # the most sites that one site may make declarations about


_ACCUSERS: Final = {Follow.ANY: 1, Follow.TWO: 2}


class Expulsions:
    """The newest declaration of each site about each other.

    Args:
        federation: ours.
        site: ours.
        follow: the declarations that count.
        is_approved: whether a site is approved by our operator, expulsions aside.
    """

    def __init__(
        self, federation: str, site: str, follow: Follow, is_approved: Callable[[str], bool]
    ) -> None:
        self._federation = federation
        self._site = site
        self.follow = follow
        self._is_approved = is_approved
        self._words: dict[str, dict[str, Signed[Expulsion]]] = {}  # by subject, then by author

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
        """Whether a site's declaration counts: we approved the site, and have not expelled it."""
        ours = self.word(self._site, by)
        expelled = ours is not None and ours.content.stands
        return by == self._site or (self._is_approved(by) and not expelled)

    def word(self, by: str, of: str) -> Signed[Expulsion] | None:
        """The declaration of one site about another."""
        return self._words.get(of, {}).get(by)

    @property
    def against_us(self) -> dict[str, str]:
        """The sites that have expelled ours, by their own word, and the reason of each."""
        words = self._words.get(self._site, {})
        return {by: each.content.reason for by, each in words.items() if each.content.stands}

    def put(self, word: Signed[Expulsion]) -> None:
        """Store a verified declaration that is newer than the stored one; Untrusted FULL."""
        by, of = word.content.by, word.content.site
        spoken_of = sum(by in words for words in self._words.values())
        if self.word(by, of) is None and spoken_of >= SPOKEN_OF_MAX:
            raise Untrusted(
                TrustRefusal.FULL, f"{by!r} has expelled or kept {SPOKEN_OF_MAX} sites already"
            )
        self._words.setdefault(of, {})[by] = word

    def say(
        self, of: str, reason: str, key: SiteKey, utc_s: UtcS, *, stands: bool
    ) -> Signed[Expulsion]:
        """Make a declaration of our own; return it for other sites."""
        last = self.word(self._site, of)
        serial = next_serial(last.content.serial if last else 0, utc_s)
        word = sign(Expulsion(self._federation, self._site, of, stands, reason, serial, utc_s), key)
        self.put(word)
        return word
