"""A site's identity and trust on disk: keys, trust book, invitations, tokens; changed in one place.

One process at a time owns the folder (`gateway.trust.keys.hold`): the gateway while it runs, else a
command that changes something. So there is one writer: while the gateway runs, it makes the changes
that a command asks for. A decision is on disk before anyone is told.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages.messages import SignedDeclarations
from federation.messages.wire import pack, unpack
from federation.signed.declarations import DeclarationOrder, SiteCard, parse
from federation.signed.envelopes import Sealer, Verifier
from federation.signed.identity import SiteKey, TrustRefusal, Untrusted
from gateway.base.clocks import utc_now
from gateway.config.federation import AWAIT_S, OVERLAP_S, SPREAD_S, Follow
from gateway.trust import book_file, token_register
from gateway.trust.book import BookError, TrustBook
from gateway.trust.card_rates import CardPaces
from gateway.trust.hearsay import PER_SOURCE_MAX
from gateway.trust.keys import (
    Generation,
    KeyRing,
    Rotation,
    add_next,
    drop_retired,
    load_keys,
    make_generation,
    next_boot,
    promote_next,
    rotation,
    switch,
    switched_at_s,
    write_leaf,
    write_pins,
)
from gateway.trust.standing import LINEAGE_MAX, TrustLevel
from gateway.trust.token_register import TOKENS_FILE

TRUST_FILE: Final = "trust.json"
HEARSAY_FILE: Final = "hearsay.json"

# A declaration to pass on: its kind and its bytes, as TrustBook.note takes them.
Word = tuple[str, bytes]
WORDS_MAX: Final = 20_000  # in one message
SUCCESSION_BYTES_MAX: Final = 48 << 10  # of cards in a challenge
_FIELDS: Final = {
    "card": "cards",
    "expulsion": "expulsions",
    "farewell": "farewells",
    "revocations": "revocations",
}


class Registry:
    """A site's keys, trust book and invitations. Hold the folder while you have one.

    Args:
        folder: of the keys and trust.json.
        follow: the sites whose expulsions count here.
        spread_s: how long new keys are on this site's card before they are used.
        overlap_s: how long the old ones stay on it after that.
        await_s: how long to wait for members that have not acknowledged the new keys.
        clock: UTC epoch seconds.

    The code that opens the ports fills in `addresses`, `contact` and `join_address`; until then the
    card keeps the addresses and contact that it has.

    Raises:
        KeyFileError, TrustFileError: there are no keys, or a file can't be used.
    """

    def __init__(
        self,
        folder: Path,
        *,
        follow: Follow = Follow.TWO,
        spread_s: float = SPREAD_S,
        overlap_s: float = OVERLAP_S,
        await_s: float = AWAIT_S,
        clock: Callable[[], UtcS] = utc_now,
    ) -> None:
        self.folder = folder
        self._spread_s = spread_s
        self._overlap_s = overlap_s
        self._await_s = await_s
        self.clock = clock
        self.ring: KeyRing = load_keys(folder)
        self._switched_at_s = switched_at_s(folder)
        self.book, self.invitations = book_file.load(folder / TRUST_FILE, follow)
        book_file.load_hearsay(folder / HEARSAY_FILE, self.book)
        self.tokens = token_register.load(folder)
        self._tokens_saved = self.tokens.changes
        self._writer = TrustWriter(folder)
        self._is_noted = False  # whether the book has changes that are not on disk
        self._words: set[Word] | None = None  # all known declarations, cached until they change
        self._hearsay_saved = 0
        self.boot = 0
        own = self.book.own.card.content
        self.addresses: tuple[str, ...] = own.addresses
        self.contact = own.contact
        self.join_address = ""
        self.news: list[Word] = []  # declarations to pass on to others
        self._card_paces = CardPaces()
        self._shown: tuple[object, ...] = ()
        self._start()

    def _start(self) -> None:
        self.verifier = Verifier(self.book)
        self.sealer = Sealer(self.book.federation, self.book.site, self.boot, self.signing_key)

    def begin_life(self) -> None:
        """Count a start of the gateway, and finish what a crash left half done."""
        self.boot = next_boot(self.folder, self.clock())
        self._start()
        self.renew()

    # --- identity; see gateway.trust.introduction.Introducer --------------------------------------

    @property
    def federation(self) -> str:
        """The name of this site's federation."""
        return self.book.federation

    @property
    def site(self) -> str:
        """The name of this site."""
        return self.book.site

    @property
    def has_left(self) -> bool:
        """Whether this site has said farewell, and has not come back since."""
        return self.book.has_left

    @property
    def rotation(self) -> Rotation:
        """The progress of this site's key rotation."""
        card = self.book.own.card.content
        return rotation(card, self._switched_at_s, self.clock(), self._overlap_s)

    @property
    def awaited(self) -> list[str]:
        """The approved sites that are not known to hold a card with this site's newest keys.

        A site that never acknowledged any key is not among them: it has never been here.
        """
        newest = self.book.own.card.content.keys[-1]
        found = []
        for site in self.approved:
            acknowledged = self.book.members[site].acknowledged
            if acknowledged and newest not in acknowledged:
                found.append(site)
        return found

    def generations_for(self, site: str) -> tuple[Generation, ...]:
        """Return the keys to dial a site with, in turn: the active ones, and ones it may know."""
        member = self.book.members.get(site)
        known = member.acknowledged if member else frozenset()
        return self.ring.for_member(self.rotation, known)

    @property
    def active(self) -> Generation:
        """The keys to sign with and to present in TLS now."""
        return self.ring.active(self.rotation)

    @property
    def signing_key(self) -> SiteKey:
        """The key to sign with now."""
        return self.active.key

    def level(self, site: str) -> TrustLevel | None:
        """Return how far a site is trusted."""
        return self.book.level(site)

    def keys_of(self, site: str) -> tuple[bytes, ...]:
        """Return the keys that a site signs with."""
        return self.book.keys_of(site)

    def meet(self, site: str, boot: int) -> None:
        """Record that a site has proved that it lives in this boot; raise Untrusted OLD_BOOT."""
        self.verifier.meet(site, boot)

    def succession(self) -> bytes:
        """Return this site's cards that lead from any that a member may hold to the newest.

        The newest is among them even if no card leads to it: a member's operator may have accepted
        its keys (TrustBook.await_keys). See Introducer.
        """
        cards = self.book.cards_since(self.site, -1)
        while sum(map(len, cards)) > SUCCESSION_BYTES_MAX:
            del cards[0]
        return pack(cards)

    def succeed(self, site: str, cards: bytes) -> None:
        """Take a site's own cards; a card that is not believed changes nothing. See Introducer."""
        plain = unpack(cards, 2 * SUCCESSION_BYTES_MAX)
        if type(plain) is not list or not all(type(raw) is bytes for raw in plain):
            raise ProtocolError("the cards of the challenge are not a list of bytes")
        known = self.book.members.get(site)
        for raw in plain[: LINEAGE_MAX + 1]:
            if known is not None and parse(SiteCard, raw).content.site == site:
                self.note([("card", raw)], site)

    @property
    def approved(self) -> list[str]:
        """The sites that may connect to this one, and that it may connect to."""
        return sorted(self.book.pins().keys() - {self.site}) if not self.has_left else []

    @property
    def expelled_by(self) -> dict[str, str]:
        """The sites that have expelled this one, and the reason of each."""
        return self.book.expulsions.against_us

    # --- changes -------------------------------------------------------------------------------

    def save(self, *news: Word) -> None:
        """Write decisions to disk; `news` is the declarations to pass on about them."""
        self._words = None
        self.news += news
        self._is_noted = True
        write = self.take_noted()
        if write is not None:
            write()

    def _hearsay(self) -> dict[str, Any] | None:
        """Return the contents for the hearsay file; None if they have not changed."""
        hearsay = self.book.hearsay
        if hearsay.changes == self._hearsay_saved:
            return None
        self._hearsay_saved = hearsay.changes
        return book_file.hearsay_to_plain(hearsay)

    @property
    def is_noted(self) -> bool:
        """Whether accepted declarations of others, or uses of tokens, are not on disk yet."""
        return self._is_noted or self.tokens.changes != self._tokens_saved

    def take_noted(self) -> Callable[[], None] | None:
        """Return a callable that writes noted changes to disk, in any thread; None: all is written.

        Declarations of others that are not written are not lost: their senders repeat them.
        """
        if not self.is_noted:
            return None
        book = book_file.to_plain(self.book, self.invitations) if self._is_noted else None
        self._is_noted = False
        return self._writer.later(book, self._hearsay(), self._issued())

    def _issued(self) -> dict[str, Any] | None:
        """Return the contents for the file of tokens; None if they have not changed."""
        if self.tokens.changes == self._tokens_saved:
            return None
        self._tokens_saved = self.tokens.changes
        return self.tokens.to_plain()

    def take_news(self) -> list[Word]:
        """Return the declarations that others have not been told yet."""
        news, self.news = self.news, []
        return news

    def note(self, words: Iterable[Word], source: str = "") -> list[ProtocolError]:
        """Take declarations that `source` has passed on; pass new ones on.

        Return the errors of declarations that were not believed. A site's cards must be in order of
        succession; those beyond the site's rate wait for `take_due`. The declarations are on disk
        after the next `save`, or after a call of the result of `take_noted`.
        """
        utc_s = self.clock()
        refused: list[ProtocolError] = []
        for kind, raw in words:
            if kind == "card" and source and raw == self.book.own.card.raw:
                self._acknowledged(source)
            if (kind, raw) in self._held():
                continue
            try:
                member = self._renewed(raw) if kind == "card" else ""
                if member and not self._card_paces.allows(member, utc_s):
                    self._card_paces.put_off(member, source, raw)
                    continue
                if self.book.note(kind, raw, utc_s, source) is DeclarationOrder.NEWER:
                    if member:
                        self._card_paces.note(member, utc_s)
                    self._is_noted = True
                    self._held().add((kind, raw))
                    self.news += [(kind, raw)] if self._is_for_others(kind) else []
            except ProtocolError as error:
                refused.append(error)
                self._is_noted |= _is_evidence(error)
        return refused

    def _renewed(self, raw: bytes) -> str:
        """Return the member of whom a card is newer than the one here; empty for any other card."""
        card = parse(SiteCard, raw).content
        member = self.book.members.get(card.site)
        is_newer = member is not None and card.serial > member.card.content.serial
        return card.site if is_newer else ""

    def take_due(self) -> list[ProtocolError]:
        """Take the cards that came above their site's rate and may be taken now; as `note`."""
        refused: list[ProtocolError] = []
        for source, raw in self._card_paces.due(self.clock()):
            refused += self.note([("card", raw)], source)
        return refused

    def _acknowledged(self, site: str) -> None:
        """Note that a site has sent this site's newest card: it knows the keys on it."""
        member, keys = self.book.members.get(site), self.book.own.card.content.keys
        if member is not None and member.acknowledged != frozenset(keys):
            member.acknowledged = frozenset(keys)
            self._is_noted = True

    def _is_for_others(self, kind: str) -> bool:
        """Whether to pass on a new declaration; of hearsay, no more than a receiver would take."""
        return kind != "card" or len(self.book.hearsay) <= PER_SOURCE_MAX

    def _held(self) -> set[Word]:
        """Return all known declarations: most that arrive are known and need no signature check."""
        if self._words is None:
            self._words = set(self.words(self.book.hearsay.sites))
        return self._words

    def words(self, hearsay: Iterable[str] | None = None) -> list[Word]:
        """Return the declarations for a site that was away; cards in order of succession.

        Hearsay is limited to the sites in `hearsay`; None: to the part that is passed on.
        """
        heard = self.book.hearsay.to_pass_on() if hearsay is None else hearsay
        sites = [self.site, *sorted(self.book.members), *heard]
        cards = [("card", raw) for site in sites for raw in self.book.cards_since(site, -1)]
        return [*cards, *self.book.declarations()]

    def adopt(self, book: TrustBook) -> None:
        """Move to another federation, with the book that gateway.trust.joining.enter gave."""
        if book is not self.book:
            self.book = book
            self._hearsay_saved = -1
            before = self.sealer
            self._start()
            self.sealer.go_on_from(before)  # same run: its numbers are not used again

    def renew(self, *, compromised: bool = False) -> bool:
        """Reissue this site's card if addresses, contact or keys changed; return whether it did."""
        if self.has_left:
            return False
        utc_s = self.clock()
        card = self.ring.card(self.federation, self.site, self.addresses, self.contact, utc_s)
        is_new = self.book.renew(card, self.ring.current.key, compromised=compromised)
        if is_new:
            self.save(("card", self.book.own.card.raw))
        self.sealer.key = self.signing_key
        return is_new

    def rotate(
        self, hosts: Iterable[str], *, compromised: bool = False, force: bool = False
    ) -> list[str]:
        """Begin to rotate this site's keys; if they are compromised, also complete it at once.

        Args:
            hosts: the hosts of the TLS leaf certificate.
            compromised: the old keys are no longer valid.
            force: use the new keys at once, even during a rotation and before every member has
                acknowledged them.

        Returns:
            The sites that are not known to hold the new keys. With `compromised` they are cut off,
            with `force` this site meets them with the old keys, else it waits for them.

        Raises:
            BookError: a rotation is under way already.
        """
        if self.rotation is not Rotation.NONE and not compromised and not force:
            raise BookError(
                "a rotation of the keys is in progress already"
                + (f", waiting for {', '.join(self.awaited)}" if self.awaited else "")
            )
        if self.ring.next is None:
            add_next(self.folder, make_generation(self.site, list(hosts), self.clock()))
            self.ring = load_keys(self.folder)
            self.renew()
        awaited = self.awaited
        if compromised:
            self._promote(compromised=True)
        elif force:
            self._switch()
        return awaited

    def turn(self) -> str:
        """Take the step of a rotation that is due; return a description of it, empty if none is."""
        self.sealer.key = self.signing_key
        match self.rotation:
            case Rotation.SPREADING if self._may_switch():
                awaited = self.awaited
                self._switch()
                return f"the new keys are in use{_without(awaited)}"
            case Rotation.DUE:
                self._promote(compromised=False)
                return "the new keys have replaced the old ones"
            case Rotation.NONE if self.ring.retired and not self.awaited:
                drop_retired(self.folder)
                self.ring = load_keys(self.folder)
                return "all members have acknowledged the new keys: the old ones are deleted"
        return ""

    def _may_switch(self) -> bool:
        """Whether to use the next keys: all members know them, or the wait has timed out."""
        age_s = self.clock() - self.book.own.card.content.issued_s
        return age_s >= self._spread_s and (age_s >= self._await_s or not self.awaited)

    def _switch(self) -> None:
        if self.rotation is Rotation.SPREADING:
            switch(self.folder, self.clock())
            self._switched_at_s = switched_at_s(self.folder)
        self.sealer.key = self.signing_key

    def _promote(self, *, compromised: bool) -> None:
        promote_next(self.folder, retire=not compromised)
        self.ring = load_keys(self.folder)
        self._switched_at_s = None
        self.renew(compromised=compromised)

    def write_tls(self) -> bool:
        """Write the TLS leaf and pins that nng uses; return whether they have changed.

        A listener that is open goes on with the files that it has read.
        """
        active, pins = self.active, self.book.pins()
        shown = (active.leaf, tuple(sorted(pins.items())))
        if shown == self._shown:
            return False
        write_leaf(self.folder, active)
        write_pins(self.folder, pins)
        self._shown = shown
        return True


def _without(sites: list[str]) -> str:
    if not sites:
        return ""
    return f"; {', '.join(sites)} did not acknowledge them, and will be reached with the old ones"


class TrustWriter:
    """Writes the files to disk, from any thread, never an older state over a newer one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._made = 0
        # The number of the state in each file.
        self._written = {TRUST_FILE: 0, HEARSAY_FILE: 0, TOKENS_FILE: 0}

    def later(self, book: Any, hearsay: Any, tokens: Any = None) -> Callable[[], None]:
        """Return a callable that writes all, as whole plain data; None leaves a file as it is."""
        self._made += 1
        files = {TRUST_FILE: book, HEARSAY_FILE: hearsay, TOKENS_FILE: tokens}
        return partial(self._write, self._made, files)

    def _write(self, number: int, files: Mapping[str, Any]) -> None:
        with self._lock:
            for name, plain in files.items():
                if plain is not None and number > self._written[name]:
                    book_file.save_plain(self._folder / name, plain)
                    self._written[name] = number


def _is_evidence(error: ProtocolError) -> bool:
    return isinstance(error, Untrusted) and error.refusal is TrustRefusal.EQUIVOCATION


def pack_words(words: Iterable[Word]) -> SignedDeclarations:
    """Return declarations as gateways send them to each other."""
    fields: dict[str, list[bytes]] = {name: [] for name in _FIELDS.values()}
    for kind, raw in words:
        fields[_FIELDS[kind]].append(raw)
    return SignedDeclarations(**fields)


def unpack_words(said: SignedDeclarations) -> list[Word]:
    """Return a message's declarations, at most WORDS_MAX: cards first, whose keys the rest need."""
    words = [(kind, raw) for kind, name in _FIELDS.items() for raw in getattr(said, name)]
    return words[:WORDS_MAX]
