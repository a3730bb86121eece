"""The trust book: the sites that this one knows, its trust in each, and the reasons.

Trust is not passed on. A declaration that other sites pass on makes a site *known*, no more, and is
kept apart (gateway.trust.hearsay) until the operator decides something about that site. An
invitation makes it *pending*; the operator (or one of the operator's rules) makes it *approved*.
Rules (gateway.trust.permissions) say what an approved site may do, both ways; by default nothing.

Declarations arrive in any order and more than once, so the book's answers depend on which
declarations it has, never on when they came: levels are worked out, not stored.

    pending ──approve──► approved        expelled: by this site's word, or, as `Follow` says, by
       ▲                    │            that of others; this site's word wins, both ways
    known ◄──── left ◄──────┘ (farewell) a card newer than the farewell begins anew, as known

Pure: the clock is passed in. gateway.trust.book_file keeps it on disk.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from federation.clocks import UtcS
from federation.errors import GridError
from federation.signed.declarations import (
    PAST_MAX,
    REVOKED_MAX,
    DeclarationOrder,
    Expulsion,
    Farewell,
    Revocations,
    S,
    Signed,
    SiteCard,
    follows,
    next_serial,
    order,
    parse,
    read,
    read_card,
    sign,
)
from federation.signed.identity import (
    SiteKey,
    TrustRefusal,
    Untrusted,
    read_fingerprint,
    same_fingerprint,
)
from gateway.base.values import suggest
from gateway.config.federation import Follow
from gateway.trust.certificates import check_leaf
from gateway.trust.expulsions import Expulsions
from gateway.trust.hearsay import Hearsay
from gateway.trust.permissions import (
    ANY,
    PermissionAnswer,
    PermissionReason,
    PermissionRequest,
    PermissionRule,
    decide,
)
from gateway.trust.standing import TrustedMember, TrustLevel

SHOWN_CHARS: Final = 9  # of a fingerprint in a refusal: two groups
MEMBERS_MAX: Final = 4096  # that the operator has decided something about


class BookError(GridError):
    """An order of the operator that can't be carried out; the text says why."""


class TrustBook:
    """Everything that one site holds of the others. Implements federation.signed.identity.Trust.

    Args:
        card: this site's newest card, with its site and federation.
        follow: the rule for expulsions by other sites.

    `changes` is incremented with each order and declaration that may change an answer.
    """

    def __init__(self, card: Signed[SiteCard], follow: Follow = Follow.TWO) -> None:
        own = TrustedMember(card)
        own.decide(TrustLevel.APPROVED)
        self.own = own
        self.federation: Final = card.content.federation
        self.site: Final = card.content.site
        self.members: dict[str, TrustedMember] = {}  # that the operator has decided something about
        self.hearsay = Hearsay()
        self.expulsions = Expulsions(self.federation, self.site, follow, self._is_approved)
        self.rules: frozenset[PermissionRule] = frozenset()  # for every approved site
        self.revoked: dict[str, UtcS] = {}  # tokens of this site, and when each expires
        self.changes = 0

    # --- answers -------------------------------------------------------------------------------

    def level(self, site: str) -> TrustLevel | None:
        """Return the level of trust in a site; None if it was never heard of."""
        if site == self.site:
            return TrustLevel.APPROVED
        if self.expulsions.is_expelled(site):
            return TrustLevel.EXPELLED
        member = self.find(site)
        return member.standing if member else None

    def find(self, site: str) -> TrustedMember | None:
        """Return the entry of a site, be it hearsay alone."""
        if site == self.site:
            return self.own
        return self.members.get(site) or self.hearsay.member(site)

    @property
    def has_left(self) -> bool:
        """Whether this site has said farewell, and has not come back since."""
        return self.own.standing is TrustLevel.LEFT

    def keys_of(self, site: str) -> tuple[bytes, ...]:
        """Return the keys that a site signs with; see federation.signed.identity.Trust."""
        if self.level(site) in (None, TrustLevel.EXPELLED, TrustLevel.LEFT):
            return ()
        return self._member(site).card.content.keys

    def lasting_keys_of(self, site: str) -> tuple[bytes, ...]:
        """Return those, and the retired ones that still count; see
        federation.signed.identity.Trust."""
        return self._keys_ever(site) if self.keys_of(site) else ()

    def welcomes(self, site: str) -> bool:
        """Whether users may come here with a token of that site."""
        return self.level(site) is TrustLevel.APPROVED and self._member(site).users

    def revoked_by(self, site: str) -> Collection[str]:
        """Return the ids of the tokens that a site has revoked."""
        if site == self.site:
            return self.revoked.keys()
        member = self.members.get(site)
        return member.revocations.content.tokens if member and member.revocations else ()

    def pins(self) -> dict[str, tuple[bytes, ...]]:
        """Return the leaves that may connect or be dialled: own ones and approved sites'."""
        found = {self.site: self.own.card.content.leaves}
        for site, member in self.members.items():
            if self.level(site) is TrustLevel.APPROVED:
                found[site] = member.card.content.leaves
        return found

    def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """Whether a site may send work here, or may be sent work."""
        level = self.level(request.site)
        if level is not TrustLevel.APPROVED:
            return PermissionAnswer(
                PermissionReason.EXPELLED
                if level is TrustLevel.EXPELLED
                else PermissionReason.NOT_APPROVED
            )
        if request.other != request.site:
            level = self.level(request.other)
            if level in (None, TrustLevel.LEFT):
                return PermissionAnswer(PermissionReason.ORIGIN_UNKNOWN)
            if level is TrustLevel.EXPELLED:
                return PermissionAnswer(PermissionReason.EXPELLED)
            # A site can't bring in work that is forbidden to its origin.
            its_own = decide(self.rules_of(request.other), replace(request, site=request.other))
            if its_own.why is PermissionReason.FORBIDDEN:
                return its_own
        return decide(self.rules_of(request.site), request)

    def accepts_pickles(self, path: Iterable[str]) -> bool:
        """Whether users here take pickled results that ran at, or came through, all these sites."""
        return all(
            site == self.site
            or (self.level(site) is TrustLevel.APPROVED and self._member(site).pickles)
            for site in path
        )

    def cards_since(self, site: str, serial: int) -> list[bytes]:
        """Return the cards that lead a member from a site's card of this serial to the newest."""
        member = self._member(site)
        cards = [*member.lineage, member.card]
        return [card.raw for card in cards if card.content.serial > serial]

    def declarations(self) -> Iterator[tuple[str, bytes]]:
        """Yield the declarations to pass on beside cards, each with its kind as `note` takes it."""
        for word in self.expulsions:
            yield "expulsion", word.raw
        for member in (self.own, *self.members.values()):
            if member.farewell:
                yield "farewell", member.farewell.raw
            if member.revocations:
                yield "revocations", member.revocations.raw

    # --- signed declarations of other sites ------------------------------------------------------

    def note(self, kind: str, raw: bytes, utc_s: UtcS, source: str = "") -> DeclarationOrder:
        """Take a declaration that `source` passed on; any result but NEWER changed nothing.

        Raises:
            ProtocolError: it is no declaration of a known kind.
            Untrusted: it is not to be believed. EQUIVOCATION has been noted as evidence.
        """
        self.changes += 1
        match kind:
            case "card":
                return self._note_card(raw, utc_s, source)
            case "expulsion":
                return self._note_expulsion(raw, utc_s)
            case "farewell":
                return self._note_farewell(raw, utc_s)
            case "revocations":
                return self._note_revocations(raw, utc_s)
            case _:
                raise Untrusted(
                    TrustRefusal.ALTERED, f"unknown kind of signed notice: {kind[:40]!r}"
                )

    def _note_card(self, raw: bytes, utc_s: UtcS, source: str) -> DeclarationOrder:
        site = parse(SiteCard, raw).content.site
        member = self.own if site == self.site else self.members.get(site)
        if member is None:
            self.hearsay.check_room(source, site)  # before the work of checking it
            return self.hearsay.note(source, self._checked(read_card(raw)), utc_s)
        card = self._checked(read_card(raw))
        if not follows(member.card, card) and member.is_awaited(card):
            found = order(None, card, utc_s)
            member.replace(card)
            return found
        found = self._order(member, member.card, card, utc_s)
        if found is DeclarationOrder.NEWER and member is self.own:
            raise Untrusted(
                TrustRefusal.EQUIVOCATION,
                (
                    "a card of ours that we did not issue: our disk was set back, or our keys "
                    "were copied"
                ),
            )
        if found is DeclarationOrder.NEWER:
            member.follow(card)
        return found

    def _note_farewell(self, raw: bytes, utc_s: UtcS) -> DeclarationOrder:
        member, farewell = self._read(Farewell, raw)
        if farewell.content.site in self.hearsay:
            if member.last_serial <= farewell.content.serial:
                self.hearsay.drop_signed(farewell.content.site, member.card.content.keys[0])
            return DeclarationOrder.OLDER
        found = self._order(member, member.farewell, farewell, utc_s)
        if found is DeclarationOrder.NEWER:
            member.farewell = farewell
            if member is not self.own:  # should it come back, it is trusted with nothing
                member.rules, member.pickles, member.users = frozenset(), False, False
        return found

    def _note_revocations(self, raw: bytes, utc_s: UtcS) -> DeclarationOrder:
        member, revocations = self._read(Revocations, raw)
        if revocations.content.site in self.hearsay:
            return DeclarationOrder.OLDER  # no user comes here with its tokens
        found = self._order(member, member.revocations, revocations, utc_s)
        if found is DeclarationOrder.NEWER:
            member.revocations = revocations
        return found

    def _note_expulsion(self, raw: bytes, utc_s: UtcS) -> DeclarationOrder:
        member, word = self._read(Expulsion, raw)
        by, of = word.content.by, word.content.site
        if not self.expulsions.is_heard(by):
            raise Untrusted(
                TrustRefusal.UNKNOWN_SITE, f"{by!r} is not approved here, but expels {of!r}"
            )
        found = self._order(member, self.expulsions.word(by, of), word, utc_s)
        if found is DeclarationOrder.NEWER:
            self.expulsions.put(word)
        return found

    def _checked(self, card: Signed[SiteCard]) -> Signed[SiteCard]:
        if card.content.federation != self.federation:
            raise Untrusted(
                TrustRefusal.WRONG_FEDERATION,
                f"the card is for federation {card.content.federation!r}",
            )
        for leaf in card.content.leaves:
            check_leaf(leaf, card.content.site)
        return card

    def _read(self, kind: type[S], raw: bytes) -> tuple[TrustedMember, Signed[S]]:
        """Read a declaration by a member, or by this site. A retired key can't say farewell."""
        by, found = read(kind, raw, self._card_keys if kind is Farewell else self._keys_ever)
        if found.content.federation != self.federation:
            raise Untrusted(TrustRefusal.WRONG_FEDERATION, f"for {found.content.federation!r}")
        return self._member(by), found

    def _card_keys(self, site: str) -> tuple[bytes, ...]:
        """Return the keys on a site's card at any level: its declarations are still its own."""
        member = self.find(site)
        return member.card.content.keys if member else ()

    def _keys_ever(self, site: str) -> tuple[bytes, ...]:
        keys = self._card_keys(site)
        return (*keys, *self._member(site).card.content.past) if keys else ()

    def _order(
        self, member: TrustedMember, old: Signed[S] | None, new: Signed[S], utc_s: UtcS
    ) -> DeclarationOrder:
        try:
            return order(old, new, utc_s)
        except Untrusted as error:
            if error.refusal is TrustRefusal.EQUIVOCATION and old is not None:
                member.accuse(old, new)
            raise

    # --- orders of the operator ----------------------------------------------------------------

    def admit(self, card: Signed[SiteCard], utc_s: UtcS, *, approve: bool) -> TrustLevel:
        """Take a site that came by an invitation: pending, or approved if the invitation says so.

        It takes the place of a site of its name that is only known by hearsay, or that has left.

        Raises:
            Untrusted: its card is not fit; or its name belongs to another here; or it is expelled.
        """
        self.changes += 1
        site = self._checked(card).content.site
        if site == self.site:
            raise Untrusted(TrustRefusal.WRONG_SITE, f"it has our own name, {site!r}")
        if self.expulsions.is_expelled(site):
            raise Untrusted(
                TrustRefusal.EXPELLED,
                f"site {site!r} is expelled: its expulsion must be taken back first",
            )
        member = self.members.get(site)
        hearsay = member is not None and member.standing in (TrustLevel.KNOWN, TrustLevel.LEFT)
        if member is None or (hearsay and not follows(member.card, card)):
            order(None, card, utc_s)
            if member is None:
                self._make_room()
            member = self.members[site] = TrustedMember(card)
            self.hearsay.drop(site)
        elif not follows(member.card, card) and member.is_awaited(card):
            order(None, card, utc_s)
            member.replace(card)
        elif self._order(member, member.card, card, utc_s) is DeclarationOrder.NEWER:
            member.follow(card)
        if member.standing is TrustLevel.LEFT:
            raise Untrusted(
                TrustRefusal.STALE,
                f"site {site!r} has left the federation since it issued this card",
            )
        if member.standing is not TrustLevel.APPROVED:
            member.decide(TrustLevel.APPROVED if approve else TrustLevel.PENDING)
        return member.standing

    def approve(self, site: str, shown: str) -> None:
        """Approve a site whose fingerprint the operator has compared; BookError when it differs."""
        self.changes += 1
        member = self.members.get(site) or self.hearsay.find(site, shown) or self._member(site)
        if not same_fingerprint(member.fingerprint, shown):
            # Not the whole of it: it would be copied without a comparison.
            begin = member.fingerprint[:SHOWN_CHARS]
            raise BookError(
                f"{shown[:SHOWN_CHARS]}… is not the fingerprint of site {site!r}, which begins "
                f"with {begin}… here. Do not approve the site until its operator has read you, "
                "over the telephone or another channel, the fingerprint that its gateway shows "
                "(`gridfed known` there)"
            )
        if self.expulsions.is_expelled(site):
            raise BookError(
                f"site {site!r} is expelled: end the expulsion first (gridfed keep {site})"
            )
        if member.standing is TrustLevel.LEFT:
            raise BookError(f"site {site!r} has left the federation, and has not returned")
        self._enter(member)
        member.decide(TrustLevel.APPROVED)

    def await_keys(self, site: str, shown: str) -> None:
        """Accept new keys of an approved site, of this fingerprint, to which no cards lead.

        They replace the known ones when the site shows a card with them; its level and its rules
        stay. BookError when the site is not approved, or `shown` is no fingerprint.
        """
        member = self.members.get(site)
        if member is None or self.level(site) is not TrustLevel.APPROVED:
            raise BookError(
                f"site {site!r} is not approved here: it joins with an invitation (gridfed invite)"
            )
        if same_fingerprint(member.fingerprint, shown):
            raise BookError(f"the keys of site {site!r} with this fingerprint are in use already")
        given = read_fingerprint(shown)
        if given is None:
            raise BookError(f"{shown!r} is not a fingerprint, such as {member.fingerprint}")
        member.awaits = given

    def trust(self, site: str, rules: Iterable[PermissionRule]) -> None:
        """Replace a site's rules, or with ANY those for every approved site."""
        self.changes += 1
        if site == ANY:
            self.rules = frozenset(rules)
        else:
            self._entered(site).rules = frozenset(rules)

    def trust_results(self, site: str, *, pickles: bool) -> None:
        """Set whether users here accept pickled results that ran at a site or came through it."""
        self.changes += 1
        self._entered(site).pickles = pickles

    def welcome(self, site: str, *, users: bool) -> None:
        """Set whether users may come here with a token of that site."""
        self._entered(site).users = users

    def expel(self, site: str, reason: str, key: SiteKey, utc_s: UtcS) -> Signed[Expulsion]:
        """Expel a site, void its rules, and return the declaration for others.

        The declarations of other sites about it do not change that.
        """
        self.changes += 1
        if site == self.site:
            raise BookError("a site can't expel itself: use gridfed leave")
        self.hearsay.drop_source(site)
        member = self.members.get(site)
        if member is not None:
            member.decide(TrustLevel.KNOWN)
            member.rules, member.pickles, member.users = frozenset(), False, False
        return self.expulsions.say(site, reason, key, utc_s, stands=True)

    def keep(self, site: str, reason: str, key: SiteKey, utc_s: UtcS) -> Signed[Expulsion]:
        """Revoke an expulsion, or overrule those of others; return the declaration for others.

        A site that this one had expelled is known again, no more: approve it anew.
        """
        self.changes += 1
        return self.expulsions.say(site, reason, key, utc_s, stands=False)

    def forget(self, site: str) -> None:
        """Drop a site with all that is held of it; it may come again as a stranger."""
        self.changes += 1
        self._member(site)
        self.members.pop(site, None)
        self.hearsay.drop(site)

    def revoke(self, tokens: Mapping[str, UtcS], key: SiteKey, utc_s: UtcS) -> Signed[Revocations]:
        """Revoke tokens of this site, by id with the end of each; return the declaration.

        It is without expired tokens. Raises BookError, and changes nothing, if there are too many.
        """
        revoked = {
            each: until_s
            for each, until_s in (*self.revoked.items(), *tokens.items())
            if until_s > utc_s
        }
        if len(revoked) > REVOKED_MAX:
            raise BookError(
                f"{len(revoked):,} tokens would be revoked, the limit is {REVOKED_MAX:,}: rotate "
                "the keys with --compromised, which voids all"
            )
        self.revoked = revoked
        last = self.own.revocations.content.serial if self.own.revocations else 0
        content = Revocations(
            self.federation,
            self.site,
            tuple(sorted(self.revoked)),
            next_serial(last, utc_s),
            utc_s,
        )
        self.own.revocations = sign(content, key)
        return self.own.revocations

    def renew(self, card: SiteCard, key: SiteKey, *, compromised: bool = False) -> bool:
        """Reissue this site's card if its content has changed; return whether it did.

        Keys that it no longer names go among the past ones, unless they are `compromised`. Its
        `past` and `serial` need not be filled in. Call it at every start, and when addresses or
        keys have changed: it also finishes what a crash left half done.
        """
        was = self.own.card.content
        retired = tuple(each for each in was.keys if each not in card.keys)
        past = () if compromised else (*retired, *was.past)[:PAST_MAX]
        new = replace(card, past=past, serial=next_serial(self.own.last_serial, card.issued_s))
        if new == replace(was, serial=new.serial, issued_s=new.issued_s):
            return False
        signed = self._checked(sign(new, key))
        order(self.own.card, signed, card.issued_s)
        self.own.follow(signed)
        return True

    def leave(self, key: SiteKey, utc_s: UtcS) -> Signed[Farewell]:
        """Say farewell; return the declaration for every site. Coming back takes an invitation."""
        self.changes += 1
        serial = next_serial(self.own.last_serial, utc_s)
        self.own.farewell = sign(Farewell(self.federation, self.site, serial, utc_s), key)
        return self.own.farewell

    # --- internals -----------------------------------------------------------------------------

    def _is_approved(self, site: str) -> bool:
        member = self.members.get(site)
        return member is not None and member.standing is TrustLevel.APPROVED

    def rules_of(self, site: str) -> frozenset[PermissionRule]:
        """Return the rules that hold for a site: those for all, and its own."""
        member = self.members.get(site)
        return self.rules | (member.rules if member else frozenset())

    def _member(self, site: str) -> TrustedMember:
        member = self.find(site)
        if member is None:
            raise BookError(
                f"site {site!r} not found in the trust book{suggest(site, self.members)}"
            )
        return member

    def _entered(self, site: str) -> TrustedMember:
        """Return a site that the operator decides something about now: it is hearsay no more."""
        member = self._member(site)
        if member is not self.own:
            self._enter(member)
        return member

    def _enter(self, member: TrustedMember) -> None:
        site = member.card.content.site
        if site not in self.members:
            self._make_room()
            self.members[site] = member
            self.hearsay.drop(site)

    def _make_room(self) -> None:
        if len(self.members) < MEMBERS_MAX:
            return
        undecided = [
            site for site, each in self.members.items() if each.standing is TrustLevel.KNOWN
        ]
        if not undecided:
            raise Untrusted(TrustRefusal.FULL, f"the trust book is full: {MEMBERS_MAX} sites")
        del self.members[undecided[0]]
