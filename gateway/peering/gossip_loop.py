"""This site's place in the federation's gossip: the liveness of sites, and their pool adverts.

Membership (federation.membership.membership, pure) decides. This module carries its messages over
the existing links and sessions, seals adverts and checks their seals, and passes news to the
exchange.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import inf
from random import Random
from typing import Final

from federation.clocks import MonoS
from federation.errors import ProtocolError
from federation.membership.events import (
    Admitted,
    Announce,
    Changed,
    Connected,
    Disconnected,
    Event,
    Expelled,
    Heard,
    Join,
    Keep,
    Learned,
    Leave,
    Overtaken,
    Send,
    Started,
    Tick,
    Unreachable,
    WakeAt,
)
from federation.membership.gossip import (
    Bulletin,
    BulletinNotice,
    Bulletins,
    MemberState,
    Message,
    Topic,
    from_plain,
    to_plain,
)
from federation.membership.membership import BOOT_SHIFT, Membership
from federation.membership.probing import GossipSettings, refresh_every_s
from federation.messages.adverts import ADVERT_BYTES_MAX, PoolAdvert, SiteAdvert
from federation.messages.messages import Advert, GossipMessage
from federation.messages.registry import Receiver
from federation.messages.wire import pack, unpack
from federation.signed.envelopes import ALL
from federation.signed.identity import TrustRefusal, Untrusted
from gateway.base.handlers import MessageHandler, handles
from gateway.contracts.exchange import Exchange
from gateway.peering.neighbours import Neighbours
from gateway.runtime.environment import RuntimeEnvironment
from policies.disclosure import SHOW_ALL, Disclosure, readers, redact
from policies.placement.outlook import differs

ADVERT: Final = "advert"  # the topic's name, and the kind of the envelope
GOSSIP_BYTES_MAX: Final = 4 << 20
# Reasons to ignore a bulletin here that its forwarder rightly accepted: the forwarder did not know
# the site's next boot yet, its clock differs, or the bulletin is of before its site joined us.
_INNOCENT: Final = frozenset(
    {
        *(TrustRefusal.OLD_BOOT, TrustRefusal.STALE, TrustRefusal.REPLAYED, TrustRefusal.AHEAD),
        TrustRefusal.WRONG_FEDERATION,
    }
)
# An advert is sent when one of its figures has changed by CHANGE: a few adverts at once, then at a
# rate that would cost each member CHANGES_BYTES_S if all sites were as busy as ours. Unchanged
# adverts are refreshed, as they are valid for VALID_REFRESHES refresh periods only.
CHANGE: Final = 0.1
ADVERTS_AT_ONCE: Final = 4
ADVERT_MIN_S: Final = 0.25
CHANGES_BYTES_S: Final = 16_000.0
VALID_REFRESHES: Final = 3
COMPLAINTS_MAX: Final = 1000
# Boots are numbered by the second in which they begin: how far a site's clock may be ahead.
BOOT_AHEAD_S: Final = 3600.0


class GossipLoop(MessageHandler[[], None], receiver=Receiver.GOSSIP):
    """The federation as this site sees it.

    Args:
        peers: the network side; open by now.
        exchange: takes the adverts of other sites, and has ours.
        carry: sends a message to a site, over any existing session.
        say: logs a line for people.
        shows: the parts of our pools that are shown, and to which readers.
        doors: addresses where users of other sites may connect.
        bulk: returns the address of our bulk port; empty: none.
    """

    def __init__(
        self,
        peers: Neighbours,
        exchange: Exchange,
        runtime: RuntimeEnvironment,
        *,
        carry: Callable[[str, GossipMessage | Advert], None],
        say: Callable[[str], None],
        shows: Sequence[Disclosure] = SHOW_ALL,
        doors: Sequence[str] = (),
        bulk: Callable[[], str] = str,
    ) -> None:
        registry = peers.registry
        self._peers = peers
        self._exchange = exchange
        self._clock = runtime
        self._carry = carry
        self._say = say
        self._complaints: set[tuple[str, str]] = set()  # (forwarder, origin), reported once
        self._shows = shows
        self._doors = tuple(doors)
        self._bulk = bulk
        self._admitted: frozenset[str] = frozenset()
        self._wake_at_s = MonoS(0.0)
        self.neighbours: tuple[str, ...] = ()  # the sites to stay connected to
        self._shown: SiteAdvert | None = None
        self._shown_at_s = MonoS(-inf)
        self._shown_in = ""  # the federation that our advert was signed for
        self._size = 512  # approximate bytes of our advert
        self._allowance = float(ADVERTS_AT_ONCE)
        self._looked_at_s = runtime.mono_s() - ADVERT_MIN_S
        self._settings = GossipSettings()
        seed = int.from_bytes(runtime.random_bytes(8), "big")
        self.membership = Membership(
            registry.site,
            registry.boot << BOOT_SHIFT,
            self._settings,
            Random(seed),  # noqa: S311 - order and drawing, no secrets
            lambda: float(runtime.utc_s()) + BOOT_AHEAD_S,
        )
        self._admit()
        self._handle(Started(()))
        self._handle(Join(tuple(sorted(self._admitted))))

    # --- events --------------------------------------------------------------------------------

    @handles(GossipMessage)
    def _gossip(self, site: str, gossip: GossipMessage) -> None:
        """Handle a site's gossip; ProtocolError if it is malformed."""
        message = from_plain(unpack(gossip.body, GOSSIP_BYTES_MAX))
        if isinstance(message, Bulletins):
            message = self._verified(message, site)
        self._handle(Heard(site, message))

    @handles(Advert)
    def _advert(self, site: str, message: Advert) -> None:
        """Handle an advert addressed to us alone; ProtocolError or Untrusted if it is not valid."""
        try:
            opened = self._peers.registry.verifier.open(message.envelope, self._clock.utc_s())
        except Untrusted as error:
            if error.refusal not in _INNOCENT:
                raise
            return
        header = opened.header
        if (header.source, header.kind, header.to) != (site, ADVERT, self._peers.registry.site):
            raise ProtocolError("the advert is from or for another site, or of another kind")
        advert = _read(opened.body)
        if (advert.site, advert.audience) != (site, header.to):
            raise ProtocolError("the advert does not match its envelope")
        self._learn(advert)

    def unreachable(self, site: str) -> None:
        """Note that the session with a site was lost, or could not be opened."""
        self._handle(Unreachable(site))

    def parted(self, site: str) -> None:
        """Note that the session with a site was closed because it was not needed."""
        self._handle(Disconnected(site))

    def tick(self) -> None:
        """Act on the passing of time: probes, suspicions, our own advert."""
        self._admit()
        if self._clock.mono_s() >= self._wake_at_s:
            self._wake_at_s = MonoS(inf)
            self._handle(Tick())
        self._show()

    def met(self, site: str) -> None:
        """Note a new session with a site, and repeat the advert made for that site alone."""
        self._handle(Connected(site))
        self._show_anew(site)

    def _show_anew(self, site: str) -> None:
        if site in readers(self._shows):
            self._shown = None

    def leave(self) -> None:
        """Announce that this site leaves on purpose."""
        self._handle(Leave())

    def state(self, site: str) -> MemberState | None:
        """The membership state of another site."""
        return self.membership.state(site)

    @property
    def doors(self) -> list[str]:
        """Addresses where our users may connect elsewhere: one of each site, then more.

        Only sites that are up and trusted with our users' work and with results that they open.
        """
        trusted = self._exchange.reach.trusted()
        up = [
            site for site in self.known if site in trusted and self.state(site) is MemberState.ALIVE
        ]
        adverts = map(self._exchange.market.advert, up)
        doors = [advert.doors for advert in adverts if advert is not None]
        return [door for row in zip_longest(*doors) for door in row if door is not None]

    @property
    def known(self) -> list[str]:
        """The sites that may be members, ourselves excluded."""
        return sorted(self._admitted)

    def word(self, site: str) -> str:
        """The state of a site as a word for people: up, suspect, gone, or unknown."""
        match self.state(site):
            case MemberState.ALIVE:
                return "up"
            case MemberState.SUSPECT:
                return "suspect"
            case MemberState.DEAD | MemberState.LEFT:
                return "gone"
            case _:
                return "unknown"

    def _admit(self) -> None:
        approved = frozenset(self._peers.registry.approved)
        if approved == self._admitted:
            return
        came, gone = approved - self._admitted, self._admitted - approved
        self._admitted = approved
        if came:
            self._handle(Admitted(tuple(sorted(came))))
            self._handle(Join(tuple(sorted(came))))
        for site in sorted(gone):
            self._handle(Expelled(site))

    def _verified(self, message: Bulletins, teller: str) -> Bulletins:
        """Select the bulletins that are news, and authentic.

        A site that forwards a bulletin that we can't verify may be right: it may know newer keys.
        """
        kept: list[Bulletin] = []
        for each in message.items:
            notice = each.notice
            if notice.topic.name != ADVERT or not self.membership.is_news(notice):
                continue
            try:
                opened = self._peers.registry.verifier.open(each.body, self._clock.utc_s())
            except Untrusted as error:
                origin = notice.topic.site
                if error.refusal in _INNOCENT:
                    continue
                if origin == teller:
                    raise
                self._complain(teller, origin, f"{teller} passed on an invalid bulletin: {error}")
                continue
            header = opened.header
            said = (header.source, header.kind, header.boot)
            if said != (notice.topic.site, ADVERT, notice.boot):
                raise ProtocolError("the bulletin does not match its notice")
            advert = _read(opened.body)
            said_of = (advert.site, advert.version, advert.audience)
            if said_of != (notice.topic.site, notice.version, ""):
                raise ProtocolError("the advert does not match its notice")
            kept.append(each)
        return Bulletins(tuple(kept))

    def _complain(self, teller: str, origin: str, line: str) -> None:
        """Log each pair once only: other sites can cause it as often as they like."""
        pair = teller, origin
        if pair not in self._complaints and len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.add(pair)
            self._say(line)

    # --- effects -------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        mono_s = self._clock.mono_s()
        for effect in self.membership.handle(event, mono_s):
            match effect:
                case Send(peer, message):
                    self._send(peer, message)
                case Changed(site, old, new):
                    self._note(site, old, new)
                case Learned(bulletin):
                    self._learn(_advert_of(bulletin))
                case Keep(peers):
                    self.neighbours = tuple(peers)
                case WakeAt(at_s):
                    self._wake_at_s = at_s
                case Overtaken(by=site):
                    self._complain(
                        site,
                        self._peers.registry.site,
                        f"{site} reports a later incarnation of this site: either our disk "
                        "was set back, or another gateway uses our keys, or the report is "
                        "false",
                    )

    def _send(self, peer: str, message: Message) -> None:
        self._carry(peer, GossipMessage(pack(to_plain(message))))

    def _note(self, site: str, old: MemberState | None, new: MemberState | None) -> None:
        if new is None or new in (MemberState.DEAD, MemberState.LEFT):
            self._exchange.market.forget(site)
        elif old in (MemberState.DEAD, MemberState.LEFT):
            # The board does not count its last advert as news, so no other site would send it
            # again.
            held = self.membership.bulletin(Topic(site, ADVERT))
            if held is not None:
                self._learn(_advert_of(held))
        if new is MemberState.ALIVE:
            self._show_anew(site)
        if old is not new:
            self._say(f"site {site} is {new.name.lower() if new is not None else 'forgotten'}")

    def _learn(self, advert: SiteAdvert) -> None:
        try:
            self._exchange.learn(advert, self._clock.utc_s())
        except ProtocolError as error:
            # The forwarder did nothing wrong, and membership has accepted it; the exchange ignores
            # it.
            self._say(str(error))

    # --- our own advert ------------------------------------------------------------------------

    def _show(self) -> None:
        mono_s = self._clock.mono_s()
        if mono_s - self._looked_at_s < ADVERT_MIN_S:
            return
        waited_s = mono_s - self._shown_at_s
        members = self.membership.members
        every_s = max(ADVERT_MIN_S, members * self._size / CHANGES_BYTES_S)
        self._allowance = min(
            ADVERTS_AT_ONCE, self._allowance + (mono_s - self._looked_at_s) / every_s
        )
        self._looked_at_s = mono_s
        if self._allowance < 1:
            return
        refresh_s = refresh_every_s(self._settings, members, self._size)
        utc_s = self._clock.utc_s()
        whole = replace(
            self._exchange.show(utc_s, for_others=True),
            valid_s=VALID_REFRESHES * refresh_s,
            doors=self._doors,
            bulk=self._bulk(),
        )
        # A site that has joined another federation signs its advert anew, for that one.
        is_due = waited_s >= refresh_s or self._shown_in != self._peers.registry.sealer.federation
        if not is_due and self._shown is not None and not _differs(self._shown, whole):
            return
        registry = self._peers.registry
        self._shown, self._shown_at_s, self._shown_in = whole, mono_s, registry.sealer.federation
        self._allowance -= 1
        advert = redact(whole, self._shows)
        body = registry.sealer.seal(ADVERT, ALL, pack(advert.to_plain()), utc_s)
        self._size = len(body)
        notice = BulletinNotice(Topic(registry.site, ADVERT), registry.boot, advert.version)
        self._handle(Announce(Bulletin(notice, body)))
        booked = self._exchange.booked_by()  # these sites see the slots reserved for them
        for reader in sorted((readers(self._shows) | booked.keys()) & set(registry.approved)):
            own = whole
            if reader in booked:
                seen = self._exchange.show(utc_s, whose=booked[reader], for_others=True)
                own = replace(whole, pools=seen.pools)
            special = redact(own, self._shows, reader)
            if special.pools != advert.pools:
                body = registry.sealer.seal(ADVERT, reader, pack(special.to_plain()), utc_s)
                self._carry(reader, Advert(body))


def _advert_of(bulletin: Bulletin) -> SiteAdvert:
    """The advert in a bulletin; its seal was checked on arrival."""
    _, body, _ = unpack(bulletin.body, GOSSIP_BYTES_MAX)
    return _read(body)


def _read(body: bytes) -> SiteAdvert:
    return SiteAdvert.from_plain(unpack(body, ADVERT_BYTES_MAX))


def _differs(old: SiteAdvert, new: SiteAdvert) -> bool:
    """Whether the difference could change a decision of another site."""
    if (old.bulk, old.jurisdiction) != (new.bulk, new.jurisdiction):
        return True
    if [each.pool for each in old.pools] != [each.pool for each in new.pools]:
        return True
    for before, now in zip(old.pools, new.pools, strict=True):
        fixed = ("price_nanos", "currency", "next_price", "tags", "pythons")
        if any(getattr(before, name) != getattr(now, name) for name in fixed):
            return True
        if _has_other_slots(before, now):
            return True
        slots = max(1, now.slots_total)
        if abs(before.slots_free - now.slots_free) > CHANGE * slots:
            return True
        if abs(before.load_slot_s - now.load_slot_s) > CHANGE * max(slots, before.load_slot_s):
            return True
        figures = ("start_s", "carbon_g_per_kwh", "slot_watts")
        if any(_moved(getattr(before, name), getattr(now, name)) for name in figures):
            return True
        if differs(before.carbon_ahead, now.carbon_ahead, CHANGE):
            return True
    return False


def _has_other_slots(before: PoolAdvert, now: PoolAdvert) -> bool:
    """Whether the present or possible slots changed enough to tell other sites.

    In a pool that autoscales, one slot more is no news, but reaching or leaving its maximum is.
    """
    if bool(before.slots_cold) is not bool(now.slots_cold):
        return True
    much = CHANGE * now.slots_total if now.slots_cold else 0
    if abs(before.slots_cold - now.slots_cold) > much:
        return True
    return abs(before.slots_total - now.slots_total) > much


def _moved(before: float | None, now: float | None) -> bool:
    """Whether a figure changed by more than a tenth, became known, or became unknown."""
    if before is None or now is None:
        return before is not now
    return abs(before - now) > CHANGE * before
