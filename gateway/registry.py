"""Everything that one site holds of who it is and whom it trusts, on disk, changed in one place.

One process at a time owns the folder (`gateway.keys.hold`): the gateway while it runs, else the
command that changes something. So there is one writer, and what a command decides while the
gateway runs is decided by the gateway. What was decided is on disk before anybody is told.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from federation.envelopes import Sealer, Verifier
from federation.errors import ProtocolError
from federation.identity import Refusal, SiteKey, Untrusted
from federation.messages import Statements
from federation.statements import Order, SiteCard, parse
from federation.wire import pack, unpack
from gateway import trust_file
from gateway.expulsions import Follow
from gateway.hearsay import PER_SOURCE_MAX
from gateway.keys import (
    AWAIT_S,
    OVERLAP_S,
    SPREAD_S,
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
    switched_s,
    write_leaf,
    write_pins,
)
from gateway.standing import LINEAGE_MAX, Level
from gateway.trust import BookError, TrustBook

TRUST_FILE: Final = "trust.json"
HEARSAY_FILE: Final = "hearsay.json"

# A statement to pass on: its kind and its bytes, as TrustBook.note takes them.
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
        follow: whose expulsions count here.
        spread_s: how long new keys are on our card before they are used.
        overlap_s: how long the old ones stay on it after that.
        await_s: how long members that have not acknowledged the new ones are waited for.
        clock: UTC epoch seconds.

    `addresses`, `contact` and `join_address` are for who opens the ports to fill in; until then
    the card keeps the addresses and contact that it has.

    Raises:
        KeyFileError, TrustFileError: there are no keys, or something can't be used.
    """

    def __init__(
        self,
        folder: Path,
        *,
        follow: Follow = Follow.TWO,
        spread_s: float = SPREAD_S,
        overlap_s: float = OVERLAP_S,
        await_s: float = AWAIT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._spread_s = spread_s
        self._overlap_s = overlap_s
        self._await_s = await_s
        self.clock = clock
        self.ring: KeyRing = load_keys(folder)
        self._switched_s = switched_s(folder)
        self.book, self.invitations = trust_file.load(folder / TRUST_FILE, follow)
        trust_file.load_hearsay(folder / HEARSAY_FILE, self.book)
        self._writer = Writer(folder)
        self._is_noted = False  # the book has what is not on disk yet
        self._words: set[Word] | None = None  # all that we know, until it changes
        self._hearsay_saved = 0
        self.boot = 0
        own = self.book.own.card.content
        self.addresses: tuple[str, ...] = own.addresses
        self.contact = own.contact
        self.join_address = ""
        self.news: list[Word] = []  # statements that others should hear of
        self._shown: tuple[object, ...] = ()
        self._start()

    def _start(self) -> None:
        self.verifier = Verifier(self.book)
        self.sealer = Sealer(self.book.federation, self.book.site, self.boot, self.signing_key)

    def begin_life(self) -> None:
        """A gateway starts: count it, and finish what a crash left half done."""
        self.boot = next_boot(self.folder, self.clock())
        self._start()
        self.renew()

    # --- who we are; see gateway.introduction.Introducer ---------------------------------------

    @property
    def federation(self) -> str:
        """Ours."""
        return self.book.federation

    @property
    def site(self) -> str:
        """Ours."""
        return self.book.site

    @property
    def has_left(self) -> bool:
        """Whether we have said farewell, and have not come back since."""
        return self.book.has_left

    @property
    def rotation(self) -> Rotation:
        """How far our keys' rotation is."""
        card = self.book.own.card.content
        return rotation(card, self._switched_s, self.clock(), self._overlap_s)

    @property
    def awaited(self) -> list[str]:
        """The approved sites that are not known to hold a card with our newest keys.

        One that never acknowledged anything is not among them: it has never been here.
        """
        newest = self.book.own.card.content.keys[-1]
        found = []
        for site in self.approved:
            acknowledged = self.book.members[site].acknowledged
            if acknowledged and newest not in acknowledged:
                found.append(site)
        return found

    def generations_for(self, site: str) -> tuple[Generation, ...]:
        """The keys to dial a site with, one after the other: ours, and those that it may know."""
        member = self.book.members.get(site)
        known = member.acknowledged if member else frozenset()
        return self.ring.for_member(self.rotation, known)

    @property
    def active(self) -> Generation:
        """What to sign with and to show in TLS now."""
        return self.ring.active(self.rotation)

    @property
    def signing_key(self) -> SiteKey:
        """The key to sign with now."""
        return self.active.key

    def level(self, site: str) -> Level | None:
        """How far we trust a site."""
        return self.book.level(site)

    def keys_of(self, site: str) -> tuple[bytes, ...]:
        """The keys that a site signs with."""
        return self.book.keys_of(site)

    def meet(self, site: str, boot: int) -> None:
        """A site has proved that it lives, in this boot; Untrusted OLD_BOOT."""
        self.verifier.meet(site, boot)

    def succession(self) -> bytes:
        """Our cards that lead to the newest from any that a member may hold; see Introducer.

        Empty if our keys have not changed, for then everybody has one that will do.
        """
        if not self.book.own.lineage:
            return b""
        cards = self.book.cards_since(self.site, -1)
        while sum(map(len, cards)) > SUCCESSION_BYTES_MAX:
            del cards[0]
        return pack(cards)

    def succeed(self, site: str, cards: bytes) -> None:
        """Take a site's own cards; what is not believed changes nothing. See Introducer."""
        plain = unpack(cards, 2 * SUCCESSION_BYTES_MAX)
        if type(plain) is not list or not all(type(raw) is bytes for raw in plain):
            raise ProtocolError("the cards of a challenge are no list of bytes")
        known = self.book.members.get(site)
        for raw in plain[: LINEAGE_MAX + 1]:
            if known is not None and parse(SiteCard, raw).content.site == site:
                self.note([("card", raw)], site)

    @property
    def approved(self) -> list[str]:
        """The sites that may connect to us, and we to them."""
        return sorted(self.book.pins().keys() - {self.site}) if not self.has_left else []

    # --- changes -------------------------------------------------------------------------------

    def save(self, *news: Word) -> None:
        """Put what was decided on disk; `news` is what others should hear of it."""
        self._words = None
        self.news += news
        self._is_noted = True
        write = self.take_noted()
        if write is not None:
            write()

    def _hearsay(self) -> dict[str, Any] | None:
        """What the file of hearsay is to hold, if that is another than the last time."""
        hearsay = self.book.hearsay
        if hearsay.changes == self._hearsay_saved:
            return None
        self._hearsay_saved = hearsay.changes
        return trust_file.hearsay_to_plain(hearsay)

    @property
    def is_noted(self) -> bool:
        """Whether what others have signed, and we have taken, waits to be put on disk."""
        return self._is_noted

    def take_noted(self) -> Callable[[], None] | None:
        """What puts on disk what was noted; to be called in any thread. None: it is there.

        Of what others have signed nothing is lost if it is not: they tell it again.
        """
        if not self._is_noted:
            return None
        self._is_noted = False
        return self._writer.later(trust_file.to_plain(self.book, self.invitations), self._hearsay())

    def take_news(self) -> list[Word]:
        """What others should hear of and have not been told."""
        news, self.news = self.news, []
        return news

    def note(self, words: Iterable[Word], source: str = "") -> list[ProtocolError]:
        """Take statements that `source` has passed on; those that are new are news.

        Returns what was not believed. A new card of a site comes after the ones that lead to it.
        They are on disk after the next `save`, or what `take_noted` gives.
        """
        now_s = self.clock()
        refused: list[ProtocolError] = []
        for kind, raw in words:
            if kind == "card" and source and raw == self.book.own.card.raw:
                self._acknowledged(source)
            if (kind, raw) in self._held():
                continue
            try:
                if self.book.note(kind, raw, now_s, source) is Order.NEWER:
                    self._is_noted = True
                    self._held().add((kind, raw))
                    self.news += [(kind, raw)] if self._is_for_others(kind) else []
            except ProtocolError as error:
                refused.append(error)
                self._is_noted |= _is_evidence(error)
        return refused

    def _acknowledged(self, site: str) -> None:
        """A site has told us our own newest card: it holds it, and knows the keys on it."""
        member, keys = self.book.members.get(site), self.book.own.card.content.keys
        if member is not None and member.acknowledged != frozenset(keys):
            member.acknowledged = frozenset(keys)
            self._is_noted = True

    def _is_for_others(self, kind: str) -> bool:
        """Whether a new statement is passed on: of hearsay no more than others would take."""
        return kind != "card" or len(self.book.hearsay) <= PER_SOURCE_MAX

    def _held(self) -> set[Word]:
        """All that we know: most of what comes is that, and no signature needs checking then."""
        if self._words is None:
            self._words = set(self.words(self.book.hearsay.sites))
        return self._words

    def words(self, hearsay: Iterable[str] | None = None) -> list[Word]:
        """What we tell somebody who was away: cards in the order in which they lead on.

        Of what we know by hearsay ourselves that is not all; or, if given, that of these sites.
        """
        heard = self.book.hearsay.to_pass_on() if hearsay is None else hearsay
        sites = [self.site, *sorted(self.book.members), *heard]
        cards = [("card", raw) for site in sites for raw in self.book.cards_since(site, -1)]
        return [*cards, *self.book.statements()]

    def adopt(self, book: TrustBook) -> None:
        """Move to another federation, with the book that gateway.joining.enter gave."""
        if book is not self.book:
            self.book = book
            self._hearsay_saved = -1
            before = self.sealer
            self._start()
            self.sealer.go_on_from(before)  # it is the same life: its numbers are not used again

    def renew(self, *, compromised: bool = False) -> bool:
        """Issue our card anew if addresses, contact or keys have changed; whether it did."""
        if self.has_left:
            return False
        now_s = self.clock()
        card = self.ring.card(self.federation, self.site, self.addresses, self.contact, now_s)
        is_new = self.book.renew(card, self.ring.current.key, compromised=compromised)
        if is_new:
            self.save(("card", self.book.own.card.raw))
        self.sealer.key = self.signing_key
        return is_new

    def rotate(
        self, hosts: Iterable[str], *, compromised: bool = False, force: bool = False
    ) -> list[str]:
        """Begin to rotate our keys; when they are compromised, also end it, at once.

        Args:
            hosts: what our TLS leaf is for.
            compromised: the old keys count no more.
            force: use the new keys at once, also where a rotation is under way, whoever has not
                acknowledged them.

        Returns:
            The sites that are not known to hold them: with `compromised` they are cut off, with
            `force` they are met with the old keys, else they are waited for.

        Raises:
            BookError: a rotation is under way already.
        """
        if self.rotation is not Rotation.NONE and not compromised and not force:
            raise BookError(
                "the keys are being rotated already"
                + (f", and {', '.join(self.awaited)} awaited" if self.awaited else "")
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
        """Do what is due of a rotation; what that was, for people, if anything."""
        self.sealer.key = self.signing_key
        match self.rotation:
            case Rotation.SPREADING if self._may_switch():
                awaited = self.awaited
                self._switch()
                return f"the new keys are used now{_without(awaited)}"
            case Rotation.DUE:
                self._promote(compromised=False)
                return "the new keys have taken the place of the old"
            case Rotation.NONE if self.ring.retired and not self.awaited:
                drop_retired(self.folder)
                self.ring = load_keys(self.folder)
                return "every member knows our new keys: the old ones are gone"
        return ""

    def _may_switch(self) -> bool:
        """Whether the next keys are to be used: all know them, or have been waited for long."""
        age_s = self.clock() - self.book.own.card.content.issued_s
        return age_s >= self._spread_s and (age_s >= self._await_s or not self.awaited)

    def _switch(self) -> None:
        if self.rotation is Rotation.SPREADING:
            switch(self.folder, self.clock())
            self._switched_s = switched_s(self.folder)
        self.sealer.key = self.signing_key

    def _promote(self, *, compromised: bool) -> None:
        promote_next(self.folder, retire=not compromised)
        self.ring = load_keys(self.folder)
        self._switched_s = None
        self.renew(compromised=compromised)

    def write_tls(self) -> bool:
        """Write what nng is to show and to believe; whether that has changed since the last time.

        A listener that is open goes on with what it has read.
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
    return f"; {', '.join(sites)} did not acknowledge them, and will be met with the old ones"


class Writer:
    """Puts book and hearsay on disk, from any thread, never an older state over a newer one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._made = 0
        self._written = {TRUST_FILE: 0, HEARSAY_FILE: 0}  # the number of what each holds

    def later(self, book: Any, hearsay: Any) -> Callable[[], None]:
        """What writes both, whole and as plain data, when called; None for what is to stay."""
        self._made += 1
        return partial(self._write, self._made, {TRUST_FILE: book, HEARSAY_FILE: hearsay})

    def _write(self, number: int, files: Mapping[str, Any]) -> None:
        with self._lock:
            for name, plain in files.items():
                if plain is not None and number > self._written[name]:
                    trust_file.save_plain(self._folder / name, plain)
                    self._written[name] = number


def _is_evidence(error: ProtocolError) -> bool:
    return isinstance(error, Untrusted) and error.refusal is Refusal.EQUIVOCATION


def pack_words(words: Iterable[Word]) -> Statements:
    """Statements as gateways send them to each other."""
    fields: dict[str, list[bytes]] = {name: [] for name in _FIELDS.values()}
    for kind, raw in words:
        fields[_FIELDS[kind]].append(raw)
    return Statements(**fields)


def unpack_words(said: Statements) -> list[Word]:
    """What came of them: cards first, for the others are read by their keys; no more than that."""
    words = [(kind, raw) for kind, name in _FIELDS.items() for raw in getattr(said, name)]
    return words[:WORDS_MAX]
