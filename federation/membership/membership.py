"""One member's view of the federation: its live members, and their own declarations. Pure.

SWIM with Lifeguard's corrections, over links instead of datagrams:

    Tick ──► probe one neighbour: Ping ──► Ack
               no answer ──► PingRequest to its other neighbours ──► Ack, or Nack
                 none ──► suspect it, tell all ──► it objects (a higher incarnation), or is dead
               others claim that it is dead, or has left ──► suspect it
    Gossip: updates go to every neighbour at once, notices too; members fetch bulletins they lack
    Exchange: now and then all is compared with one member, which repairs losses

Each member is probed by its neighbours only (federation.membership.rings): neither a site's cost
nor the time to detect a failure grows with the number of members. Probes of members drawn from all,
as in SWIM, would need a new TLS session each.

`handle` takes an event and returns the effects to perform. The caller authenticates peers, keeps
connections, verifies each bulletin before it enters (`is_news` tells which are worth that), and
decides which sites may be members. The conclusions here steer routing and nothing else: no lease
and no charge may depend on them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, assert_never

from federation.chance import Chance
from federation.clocks import MonoS
from federation.membership.bulletins import Board
from federation.membership.events import (
    Admitted,
    Announce,
    Changed,
    Connected,
    Disconnected,
    Effect,
    Event,
    Expelled,
    Heard,
    Join,
    Leave,
    OfPeer,
    Overtaken,
    Started,
    Tick,
    Unreachable,
    WakeAt,
)
from federation.membership.exchanging import answer_exchange, tell_everything
from federation.membership.gossip import (
    INCARNATION_MAX,
    PRESENT,
    Ack,
    Bulletin,
    BulletinNotice,
    Bulletins,
    Gossip,
    GossipExchange,
    MemberState,
    MemberUpdate,
    Message,
    Nack,
    News,
    Ping,
    PingRequest,
    Topic,
    Want,
)
from federation.membership.prober import Prober
from federation.membership.probing import GossipSettings, exchange_every_s, probe_every_s
from federation.membership.roster import MemberRoster
from federation.membership.spreading import Spreading
from federation.membership.timetable import TimerKind, TimerTable

# An incarnation is a boot and, in its low bits, how often the member had to object in that run.
BOOT_SHIFT: Final = 20
BOOT_MAX: Final = (INCARNATION_MAX >> BOOT_SHIFT) - 1
SEEDS_ASKED: Final = 3
REAP_EVERY_S: Final = 600.0


class Membership:
    """One member's view of the federation.

    Args:
        me: our site.
        incarnation: the first one; above any of an earlier run: `boot << BOOT_SHIFT`.
        settings: see federation.membership.probing.
        rng: for order and drawing; equal seeds give equal runs.
        boot_max: returns the highest boot that a site can have now; updates by others about a later
            one are not believed.
    """

    def __init__(
        self,
        me: str,
        incarnation: int,
        settings: GossipSettings,
        rng: Chance,
        boot_max: Callable[[], float] = lambda: BOOT_MAX,
    ) -> None:
        self.me = me
        self.incarnation = incarnation
        self._boot_max = boot_max
        self._connected: set[str] = set()
        self._settings = settings
        self._rng = rng
        self._timetable = timetable = TimerTable()
        self._roster = roster = MemberRoster(me, settings)
        self._spreading = spreading = Spreading(roster, settings, timetable)
        self._board = Board(roster, spreading, timetable, settings)
        self._prober = Prober(roster, spreading, timetable, settings, rng)
        self._seeds: tuple[str, ...] = ()
        self._left = False
        self._woken_at_s: MonoS | None = None
        self._due: Final[dict[TimerKind, Callable[[MonoS, object], None]]] = {
            TimerKind.PROBE: self._on_probe,
            TimerKind.ANSWER: lambda _, number: self._prober.seek_help(number),
            TimerKind.RELAY: lambda _, number: self._prober.give_up(number),
            TimerKind.SUSPICION: self._on_suspicion,
            TimerKind.GOSSIP: lambda _now, _: self._spreading.begin_round(),
            TimerKind.FETCH: lambda now, _: self._board.fetch_again(now),
            TimerKind.EXCHANGE: self._on_exchange,
            TimerKind.RECONNECT: self._on_reconnect,
            TimerKind.JOIN: self._on_join,
            TimerKind.REAP: self._on_reap,
        }

    # --- state ---------------------------------------------------------------------------------

    @property
    def members(self) -> int:
        """The number of members that are alive or suspect, including this one."""
        return self._roster.present

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The members that we keep a connection with, probe, and send news to."""
        return self._spreading.neighbours

    @property
    def health(self) -> int:
        """The local health: 0 is well; each step up stretches our probes: we may be at fault."""
        return self._prober.health

    def state(self, site: str) -> MemberState | None:
        """Return the state of another member; None if it is not known."""
        member = self._roster.members.get(site)
        return member.state if member else None

    def updates(self) -> tuple[MemberUpdate, ...]:
        """Return all updates about the other members: for lists, and to keep for the next start."""
        return tuple(self._roster.updates())

    def bulletin(self, topic: Topic) -> Bulletin | None:
        """Return the newest bulletin held of a topic."""
        return self._board.get(topic)

    def is_news(self, notice: BulletinNotice) -> bool:
        """Whether a bulletin that arrived would be accepted: verify only those."""
        return self._board.is_news(notice)

    # --- events --------------------------------------------------------------------------------

    def handle(self, event: Event, now: MonoS) -> list[Effect]:
        """Take an event; `now` is seconds by a clock that never goes back."""
        if self._left:
            return []
        match event:
            case Heard() | Connected() | Disconnected() | Unreachable():
                self._handle_peer(event, now)
            case Tick():
                self._wake(now)
            case Announce(bulletin):
                self._board.announce(bulletin)
            case Admitted(sites, direct):
                self._roster.admit(sites, direct=direct)
            case Expelled(site):
                self._forget(site, was_known=self._roster.expel(site))
            case Started() | Join() | Leave():
                self._come_or_go(event, now)
            case _:
                assert_never(event)
        if not self._left:
            self._spreading.steer()
            self._spreading.flush(now)
            next_at_s = self._timetable.next_at_s
            if next_at_s is not None and next_at_s != self._woken_at_s:
                self._woken_at_s = next_at_s
                self._spreading.effects.append(WakeAt(next_at_s))
        effects, self._spreading.effects = self._spreading.effects, []
        return effects

    def _handle_peer(self, event: OfPeer, now: MonoS) -> None:
        match event:
            case Heard(peer, message):
                if peer in self._roster.admitted:
                    self._hear(peer, message, now)
            case Connected(peer):
                self._connected.add(peer)
            case Disconnected(peer):
                self._connected.discard(peer)
            case Unreachable(peer):
                self._connected.discard(peer)
                self._miss(peer, now)

    def _come_or_go(self, event: Started | Join | Leave, now: MonoS) -> None:
        match event:
            case Started(updates):
                self._start(updates, now)
            case Join(seeds):
                self._seeds = seeds
                self._on_join(now, None)
            case Leave():
                gone = Gossip(News((MemberUpdate(self.me, MemberState.LEFT, self.incarnation),)))
                for peer in self.neighbours:
                    self._spreading.send(peer, gone)
                self._left = True

    def _start(self, updates: tuple[MemberUpdate, ...], now: MonoS) -> None:
        self._roster.load(updates, now)
        for site, member in self._roster.members.items():
            self._spreading.effects.append(Changed(site, None, member.state))
        draw = self._rng.random
        self._timetable.at(now + draw() * self._settings.probe_s, TimerKind.PROBE)
        self._timetable.at(
            now + draw() * exchange_every_s(self._settings, self.members), TimerKind.EXCHANGE
        )
        self._timetable.at(now + draw() * self._settings.reconnect_s, TimerKind.RECONNECT)
        self._timetable.at(now + REAP_EVERY_S, TimerKind.REAP)

    def _forget(self, site: str, *, was_known: bool) -> None:
        self._spreading.updates.drop((site, ""))
        self._board.forget(site)
        if was_known:
            self._spreading.effects.append(Changed(site, None, None))

    def _wake(self, now: MonoS) -> None:
        if self._woken_at_s is not None and now - self._woken_at_s > self._settings.late_s:
            self._excuse(now)
        self._woken_at_s = None
        for timer, key in self._timetable.due(now):
            self._due[timer](now, key)

    def _excuse(self, now: MonoS) -> None:
        """Reset timers after we were stopped or starved: silence in that time accuses no member."""
        self._prober.excuse()
        for site, suspicion in self._roster.suspicions.items():
            suspicion.since_s = now
            self._watch(site)

    # --- messages of a peer --------------------------------------------------------------------

    def _hear(self, peer: str, message: Message, now: MonoS) -> None:
        match message:
            case Ping(number, news):
                self._take(peer, news, now)
                self._spreading.send(peer, Ack(number, self._spreading.news(peer)))
                if peer not in self._roster.members:
                    self._spreading.send(peer, self._everything())
            case Ack(number, news):
                self._take(peer, news, now)
                self._prober.hear_ack(peer, number)
            case Gossip(news):
                self._take(peer, news, now)
            case Bulletins(items):
                for bulletin in items:
                    self._board.learn(bulletin, peer)
            case Want(topics):
                self._board.answer(peer, topics)
            case GossipExchange(is_answer, news):
                self._on_exchanged(peer, news, now, is_answer=is_answer)
            case PingRequest(number, target, news):
                self._take(peer, news, now)
                self._prober.relay(peer, number, target, now)
            case Nack(number, news):
                self._take(peer, news, now)
                self._prober.hear_nack(peer, number)
            case _:
                assert_never(message)

    def _take(self, peer: str, news: News, now: MonoS) -> None:
        for update in news.updates:
            self._merge(update, peer, now)
        for notice in news.notices:
            self._board.note(notice, peer, now)

    def _merge(
        self, update: MemberUpdate, source: str | None, now: MonoS, *, quiet: bool = False
    ) -> None:
        """Take an update into account, and pass it on if it is news.

        Args:
            update: the update.
            source: the peer that sent it; None when it is our own conclusion.
            now: the time.
            quiet: do not pass it on if it is about a member that we did not know.
        """
        site = update.site
        if site == self.me:
            self._object(update, source)
            return
        if site not in self._roster.admitted or not self._is_believable(update, source):
            return
        if (
            update.state is MemberState.SUSPECT
            and source is not None
            and not self._may_accuse(update)
        ):
            update = replace(update, by=source)
        has_left = update.state is MemberState.LEFT
        if source is not None and self._buries(update, source):
            update = replace(update, state=MemberState.SUSPECT, by=source)
        self._weigh(update, source, now, quiet=quiet)
        suspicion = self._roster.suspicions.get(site)
        if has_left and suspicion and update.incarnation == self._roster.members[site].incarnation:
            suspicion.verdict = MemberState.LEFT

    def _buries(self, update: MemberUpdate, source: str) -> bool:
        """Whether hearsay reports as gone a member that is present as far as we know.

        It counts only as a suspicion. Otherwise both sides of a partition would bury each other,
        and a liar any member it likes. A member that is wrongly suspected objects.
        """
        is_hearsay = source != update.site
        return is_hearsay and update.state not in PRESENT and self.state(update.site) in PRESENT

    def _is_believable(self, update: MemberUpdate, source: str | None) -> bool:
        """Whether a member can be in the run that an update is about.

        Otherwise one lie could spread an incarnation that nobody can surpass. A site's own update
        counts, and so does a run in which it has signed something.
        """
        if source is None or source == update.site:
            return True
        member = self._roster.members.get(update.site)
        boot = update.incarnation >> BOOT_SHIFT
        return boot <= self._boot_max() or (member is not None and boot <= member.boot)

    def _weigh(self, update: MemberUpdate, source: str | None, now: MonoS, *, quiet: bool) -> None:
        """Compare a believable update about another member with the one that we hold."""
        site = update.site
        member = self._roster.members.get(site)
        rank = (update.incarnation, update.state)
        if member is None or rank > member.rank:
            self._apply(update, source, now, quiet=quiet and member is None)
        elif rank < member.rank:
            if source is not None:
                self._spreading.updates.tell(source, (site, ""), self._roster.update_of(site))
        else:
            if source is not None:
                self._spreading.updates.heard(source, _key(update, member.accuser))
            if update.state is MemberState.SUSPECT and self._roster.confirm(site, update.by):
                self._spreading.updates.put(_key(update, member.accuser), update, source)
                self._watch(site)

    def _may_accuse(self, update: MemberUpdate) -> bool:
        return update.by == self.me or (
            update.by in self._roster.admitted and update.by != update.site
        )

    def _apply(self, update: MemberUpdate, source: str | None, now: MonoS, *, quiet: bool) -> None:
        site = update.site
        if suspicion := self._roster.suspicions.get(site):
            for accuser in suspicion.accusers:
                self._spreading.updates.drop((site, accuser))
        old = self._roster.apply(update, now)
        if update.state is MemberState.SUSPECT:
            self._watch(site)
            self._prober.hurry(site)
            if source is not None and site in self._connected and site not in self.neighbours:
                self._spreading.send(site, Gossip(News((update,))))  # it objects, if it is there
        if old is not update.state and not (old is None and update.state not in PRESENT):
            self._spreading.effects.append(Changed(site, old, update.state))
        if not quiet:
            self._spreading.updates.put((site, ""), update, source)

    def _object(self, update: MemberUpdate, source: str | None) -> None:
        """Answer an update about ourselves: object to a false one, with a higher incarnation.

        An update about a run that we can't be in needs no objection: others do not believe it
        either.
        """
        if (update.incarnation, update.state) <= (self.incarnation, MemberState.ALIVE):
            if update.incarnation < self.incarnation and source is not None:
                self._spreading.updates.tell(source, (self.me, ""), self._own_update())
            return
        boot, own = update.incarnation >> BOOT_SHIFT, self.incarnation >> BOOT_SHIFT
        if boot > max(own, self._boot_max()):
            if source is not None:
                self._spreading.send(source, Gossip(News((self._own_update(),))))
            return
        if boot > own:
            self._spreading.effects.append(Overtaken(update.incarnation, source or self.me))
        elif update.state is not MemberState.ALIVE:
            self._prober.feel(1)
        self.incarnation = update.incarnation + 1
        self._spreading.updates.put((self.me, ""), self._own_update(), None)
        if source is not None and source not in self.neighbours:
            self._spreading.send(source, Gossip(News((self._own_update(),))))

    def _own_update(self) -> MemberUpdate:
        return MemberUpdate(self.me, MemberState.ALIVE, self.incarnation)

    def _everything(self) -> GossipExchange:
        return tell_everything(self._own_update(), self._roster, self._board, self._rng)

    def _on_exchanged(self, peer: str, news: News, now: MonoS, *, is_answer: bool) -> None:
        """Compare all. Updates in an answer about members new to us are not passed on.

        Other members know them.
        """
        if is_answer:
            self._seeds = ()
        else:
            self._spreading.send(
                peer, answer_exchange(self._own_update(), self._roster, self._board, news)
            )
        for update in news.updates:
            self._merge(update, peer, now, quiet=is_answer)
        for notice in news.notices:
            self._board.note(notice, peer, now)

    # --- timers --------------------------------------------------------------------------------

    def _on_probe(self, now: MonoS, _: object) -> None:
        silent = self._prober.conclude()
        member = self._roster.members.get(silent) if silent else None
        if silent and member and member.state in PRESENT:
            update = MemberUpdate(silent, MemberState.SUSPECT, member.incarnation, self.me)
            self._merge(update, None, now)
            self._roster.suspicions[silent].is_ours = True
        self._timetable.at(now + probe_every_s(self._settings, self.health), TimerKind.PROBE)
        self._prober.begin(now)

    def _watch(self, site: str) -> None:
        """Set the timer for the end of a suspicion."""
        until_s = self._roster.suspicions[site].until_s(self._settings, self.members)
        self._timetable.at(until_s, TimerKind.SUSPICION, site)

    def _on_suspicion(self, now: MonoS, key: object) -> None:
        site = str(key)
        suspicion = self._roster.suspicions.get(site)
        if suspicion is None:
            return
        if suspicion.until_s(self._settings, self.members) > now:
            self._watch(site)  # there are more members by now, or it is another suspicion
            return
        update = self._roster.update_of(site)
        if site in self._connected and not suspicion.is_ours:
            # An open session outweighs hearsay: if the member is gone, the session ends, too.
            suspicion.since_s = now
            self._watch(site)
            self._spreading.send(site, Gossip(News((update,))))
            return
        self._merge(replace(update, state=suspicion.verdict, by=self.me), None, now)

    def _miss(self, peer: str, now: MonoS) -> None:
        """Handle a missing connection with a peer: messages in flight to it count as lost."""
        self._spreading.lost(peer)
        self._prober.miss(peer)
        self._board.miss(peer, now)

    def _on_exchange(self, now: MonoS, _: object) -> None:
        every_s = exchange_every_s(self._settings, self.members)
        self._timetable.at(now + every_s * self._jitter(), TimerKind.EXCHANGE)
        rings = self._roster.rings
        site = rings.site_at(self._rng.randrange(len(rings)))
        if site != self.me:
            self._spreading.send(site, self._everything())

    def _on_reconnect(self, now: MonoS, _: object) -> None:
        """Contact a site that is absent: no other check detects that it can be reached again."""
        self._timetable.at(now + self._settings.reconnect_s * self._jitter(), TimerKind.RECONNECT)
        if absent := self._roster.absent():
            self._spreading.send(self._rng.choice(absent), self._everything())

    def _on_join(self, now: MonoS, _: object) -> None:
        if self._seeds:
            for seed in self._rng.sample(self._seeds, min(SEEDS_ASKED, len(self._seeds))):
                self._spreading.send(seed, self._everything())
            self._timetable.at(now + self._settings.join_s, TimerKind.JOIN)

    def _on_reap(self, now: MonoS, _: object) -> None:
        self._timetable.at(now + REAP_EVERY_S, TimerKind.REAP)
        for site in self._roster.past(now):
            self._roster.forget(site)
            self._forget(site, was_known=True)

    def _jitter(self) -> float:
        return 0.9 + 0.2 * self._rng.random()


def _key(update: MemberUpdate, first_accuser: str) -> tuple[str, str]:
    """Return the key for spreading an update: each confirming accusation has its own."""
    return (update.site, "" if update.by == first_accuser else update.by)
