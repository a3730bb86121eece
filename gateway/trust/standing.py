"""The standing of one site here: the trust book's entry, and the level that follows from it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from federation.signed.declarations import Farewell, Revocations, S, Signed, SiteCard
from federation.signed.identity import fingerprint, same_fingerprint
from gateway.trust.permissions import PermissionRule

# Cards of one site in which its key changed, kept for members that were away meanwhile.
LINEAGE_MAX: Final = 8
EVIDENCE_MAX: Final = 8


class TrustLevel(StrEnum):
    """The level of trust in a site."""

    KNOWN = "known"
    PENDING = "pending"
    APPROVED = "approved"
    LEFT = "left"
    EXPELLED = "expelled"


@dataclass(slots=True)
class TrustedMember:
    """The book's entry of one site; `TrustBook.level` gives the resulting level.

    `decided` is the local operator's decision (known, pending or approved), made when the site's
    card had the serial `decided_serial`: a later farewell voids it. `pickles` is whether pickled
    results that ran there are taken here, and `users` whether users with its tokens are.
    `acknowledged` are the keys on the newest card of this site that it is known to hold.
    `awaits` is the fingerprint of new keys that the operator accepts in place of the known ones.
    """

    card: Signed[SiteCard]
    decided: TrustLevel = TrustLevel.KNOWN
    decided_serial: int = 0
    rules: frozenset[PermissionRule] = frozenset()
    pickles: bool = False
    users: bool = False
    lineage: list[Signed[SiteCard]] = field(default_factory=list)
    farewell: Signed[Farewell] | None = None
    revocations: Signed[Revocations] | None = None
    evidence: list[bytes] = field(default_factory=list)
    acknowledged: frozenset[bytes] = frozenset()
    awaits: str = ""

    @property
    def standing(self) -> TrustLevel:
        """Its level, expulsions aside."""
        gone = self.farewell.content.serial if self.farewell else -1
        if self.card.content.serial <= gone:
            return TrustLevel.LEFT
        return self.decided if self.decided_serial > gone else TrustLevel.KNOWN

    @property
    def last_serial(self) -> int:
        """The highest serial that it has used for a card or a farewell."""
        gone = self.farewell.content.serial if self.farewell else 0
        return max(self.card.content.serial, gone)

    @property
    def fingerprint(self) -> str:
        """The fingerprint that operators compare."""
        return fingerprint(self.card.content.site, self.card.content.keys[0])

    def decide(self, level: TrustLevel) -> None:
        """Note the operator's decision on the site with its present card."""
        self.decided = level
        self.decided_serial = self.card.content.serial

    def follow(self, card: Signed[SiteCard]) -> None:
        """Take a newer card, which was checked to follow the present one."""
        if card.content.keys[0] != self.card.content.keys[0]:
            self.lineage = [*self.lineage, self.card][-LINEAGE_MAX:]
        self.card = card
        if self.awaits and same_fingerprint(self.fingerprint, self.awaits):
            self.awaits = ""

    def is_awaited(self, card: Signed[SiteCard]) -> bool:
        """Whether the operator has accepted the keys of a card that does not follow this one."""
        shown = fingerprint(card.content.site, card.content.keys[0])
        is_newer = card.content.serial > self.last_serial
        return bool(self.awaits) and is_newer and same_fingerprint(shown, self.awaits)

    def replace(self, card: Signed[SiteCard]) -> None:
        """Take a card whose keys the operator has accepted, and forget how the old ones came."""
        self.card, self.lineage, self.awaits = card, [], ""

    def accuse(self, *declarations: Signed[S]) -> None:
        """Keep the proof that the site contradicted itself; have the operator decide again."""
        new = [each.raw for each in declarations if each.raw not in self.evidence]
        self.evidence = (self.evidence + new)[:EVIDENCE_MAX]
        if self.decided is TrustLevel.APPROVED:
            self.decided = TrustLevel.PENDING
