"""Who is in the federation and alive, and what each says of itself: one member's part. Pure.

SWIM with Lifeguard's corrections, over links instead of datagrams:

    Tick ──► probe one neighbour: Ping ──► Ack
               no answer ──► PingRequest to its other neighbours ──► Ack, or Nack
                 none ──► suspect it, tell all ──► it objects (a higher incarnation), or is dead
    Gossip: claims go to every neighbour at once; notices too, and who lacks the bulletin fetches it
    Exchange: now and then all is compared with one member, which repairs what was lost

Each member is probed by its neighbours only (federation.rings): each site's cost does not grow
with their number, nor does the time to detect. Probes of members drawn from all, as SWIM has
them, would take a new TLS session each.

`handle` takes an event and says what to do. The caller authenticates peers, keeps connections,
verifies each bulletin before it enters (`is_news` says which are worth that), and says who may be
a member. What is concluded here steers routing and nothing else: no lease and no charge may hang
on it.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random
from typing import Final, assert_never

from federation.bulletins import Board
from federation.gossip import (
    BULLETINS_MAX,
    NOTICES_MAX,
    PRESENT,
    TOPICS_ASKED_MAX,
    Ack,
    Bulletin,
    Bulletins,
    Claim,
    Exchange,
    Gossip,
    Message,
    Nack,
    News,
    Notice,
    Ping,
    PingRequest,
    State,
    Topic,
    Want,
)
from federation.probing import (
    Knobs,
    answer_within_s,
    exchange_every_s,
    probe_every_s,
    retransmissions,
)
from federation.roster import Roster
from federation.rumours import Rumours

# A helper says that it got no answer while the asker still listens.
NACK_SHARE: Final = 0.8
# An incarnation is a boot and, below it, how often the member had to object in that life.
BOOT_SHIFT: Final = 20
SEEDS_ASKED: Final = 3
REAP_S: Final = 600.0


# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """Begin. What was known before a restart may be given; admit its sites first."""

    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that WakeAt named has come."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A peer, which is who it says, has sent this; its bulletins are verified."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No connection with a peer could be had, or the one there was is lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class Join:
    """Get to know the others through these, which are admitted."""

    seeds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """We go, on purpose; nothing more is done after the effects of this."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell everybody a bulletin of our own; of its topic it must be the newest."""

    bulletin: Bulletin


@dataclass(frozen=True, slots=True)
class Admitted:
    """These sites may be members; `direct` ones may be connected with as well."""

    sites: tuple[str, ...]
    direct: bool = True


@dataclass(frozen=True, slots=True)
class Expelled:
    """This site may not be a member any more."""

    site: str


Event = Started | Tick | Heard | Unreachable | Join | Leave | Announce | Admitted | Expelled


# --- effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send this to a peer, over the connection there is or a new one."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Changed:
    """A member is in another state; None stands for one that is not known (any more)."""

    site: str
    old: State | None
    new: State | None


@dataclass(frozen=True, slots=True)
class Learned:
    """The newest bulletin of its topic has arrived."""

    bulletin: Bulletin


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep connections with these from now on; others may be closed when they are idle."""

    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The others know a later life of ours: our disk was set back, or somebody has our keys.

    Our incarnation is above it now; what else was lost with the disk is for others to say.
    """

    incarnation: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Tick at this time, and not at the one named before."""

    at_s: float


Effect = Send | Changed | Learned | Keep | Overtaken | WakeAt


class _Timer(Enum):
    PROBE = auto()
    ANSWER = auto()
    RELAY = auto()
    SUSPICION = auto()
    GOSSIP = auto()
    FETCH = auto()
    EXCHANGE = auto()
    RECONNECT = auto()
    JOIN = auto()
    REAP = auto()


@dataclass(slots=True)
class _Probe:
    """The probe under way: one at a time."""

    number: int
    target: str
    helpers: tuple[str, ...] = ()
    nacks: int = 0
    answered: bool = False


@dataclass(slots=True)
class _Relay:
    """A probe that we make for somebody else."""

    asker: str
    number: int
    target: str


class Membership:
    """One member's view of the federation.

    Args:
        me: our site.
        incarnation: to begin with; above any of an earlier life: `boot << BOOT_SHIFT`.
        knobs: see federation.probing.
        rng: for order and drawing; equal seeds give equal runs.
    """

    def __init__(self, me: str, incarnation: int, knobs: Knobs, rng: Random) -> None:
        self.me = me
        self.incarnation = incarnation
        self.health = 0  # Lifeguard's: 0 is well; each step stretches our probes
        self.neighbours: tuple[str, ...] = ()
        self._knobs = knobs
        self._rng = rng
        self._roster = Roster(me, knobs)
        self._board = Board()
        self._claims: Rumours[tuple[str, str], Claim] = Rumours()
        self._notices: Rumours[Topic, Notice] = Rumours()
        self._left = False
        self._number = 0
        self._order: list[str] = []  # of neighbours still to probe in this round, from the end
        self._urgent: dict[str, None] = {}  # to be probed before
        self._probe: _Probe | None = None
        self._relays: dict[int, _Relay] = {}
        self._asks: defaultdict[str, list[Topic]] = defaultdict(list)
        self._seeds: tuple[str, ...] = ()
        self._timers: list[tuple[float, int, _Timer, object]] = []
        self._set = 0
        self._woken_s: float | None = None
        self._gossip_s = 0.0  # before this no round to all neighbours
        self._gossip_set = False
        self._fetch_set = False
        self._effects: list[Effect] = []
        self._due: Final[dict[_Timer, Callable[[float, object], None]]] = {
            _Timer.PROBE: self._on_probe,
            _Timer.ANSWER: self._on_no_answer,
            _Timer.RELAY: self._on_relay_over,
            _Timer.SUSPICION: self._on_suspicion,
            _Timer.GOSSIP: self._on_gossip,
            _Timer.FETCH: self._on_fetch,
            _Timer.EXCHANGE: self._on_exchange,
            _Timer.RECONNECT: self._on_reconnect,
            _Timer.JOIN: self._on_join,
            _Timer.REAP: self._on_reap,
        }

    # --- what it says --------------------------------------------------------------------------

    @property
    def members(self) -> int:
        """How many are alive or suspect, ourselves included."""
        return self._roster.present

    def state(self, site: str) -> State | None:
        """The state of another member; None when it is not known."""
        member = self._roster.members.get(site)
        return member.state if member else None

    def claims(self) -> tuple[Claim, ...]:
        """All that is held of the others: for lists, and to keep for the next start."""
        return tuple(self._roster.claims())

    def bulletin(self, topic: Topic) -> Bulletin | None:
        """The newest bulletin of a topic that is held."""
        return self._board.get(topic)

    def is_news(self, notice: Notice) -> bool:
        """Whether a bulletin that arrived would be taken: verify only those."""
        member = self._roster.members.get(notice.topic.site)
        if member is None or notice.boot < member.boot or not self._board.is_news(notice):
            return False
        return notice.boot > member.boot or (
            self._board.get(notice.topic) is not None or member.topics < self._knobs.topics_max
        )

    # --- what happens --------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event; `now` is seconds by a clock that never goes back."""
        if self._left:
            return []
        match event:
            case Tick():
                self._run_timers(now)
            case Heard(peer, message):
                if peer in self._roster.admitted:
                    self._hear(peer, message, now)
            case Unreachable(peer):
                self._miss(peer, now)
            case Announce(bulletin):
                self._announce(bulletin)
            case Admitted(sites, direct):
                self._roster.admit(sites, direct=direct)
            case Expelled(site):
                self._forget(site, self._roster.expel(site) is not None)
            case Join(seeds):
                self._seeds = seeds
                self._on_join(now, None)
            case Started(claims):
                self._start(claims, now)
            case Leave():
                self._leave()
            case _:
                assert_never(event)
        self._steer()
        self._flush(now)
        self._name_wake()
        effects, self._effects = self._effects, []
        return effects

    def _start(self, claims: tuple[Claim, ...], now: float) -> None:
        self._roster.load(claims, now)
        for site, member in self._roster.members.items():
            self._effects.append(Changed(site, None, member.state))
        draw = self._rng.random
        self._at(now + draw() * self._knobs.probe_s, _Timer.PROBE)
        self._at(now + draw() * self._exchange_every_s(), _Timer.EXCHANGE)
        self._at(now + draw() * self._knobs.reconnect_s, _Timer.RECONNECT)
        self._at(now + REAP_S, _Timer.REAP)

    def _leave(self) -> None:
        self._left = True
        gone = Gossip(News((Claim(self.me, State.LEFT, self.incarnation),)))
        for peer in self.neighbours:
            self._send(peer, gone)

    def _announce(self, bulletin: Bulletin) -> None:
        if bulletin.notice.topic.site != self.me or not self._board.is_news(bulletin.notice):
            raise ValueError("a bulletin to announce must be of our own, and news")
        self._board.put(bulletin)
        self._notices.put(bulletin.notice.topic, bulletin.notice, None)

    def _forget(self, site: str, was_known: bool) -> None:
        topics = self._board.topics_of(site)
        self._board.forget(topics)
        for topic in topics:
            self._notices.drop(topic)
        self._claims.drop((site, ""))
        if was_known:
            self._effects.append(Changed(site, None, None))

    # --- what a peer says ----------------------------------------------------------------------

    def _hear(self, peer: str, message: Message, now: float) -> None:
        match message:
            case Ping(number, news):
                self._take(peer, news, now)
                self._send(peer, Ack(number, self._news(peer)))
                if peer not in self._roster.members:
                    self._send(peer, self._everything())
            case Ack(number, news):
                self._take(peer, news, now)
                self._on_ack(peer, number)
            case Gossip(news):
                self._take(peer, news, now)
            case Bulletins(items):
                for bulletin in items:
                    self._learn(bulletin, peer)
            case Want(topics):
                self._answer_want(peer, topics)
            case Exchange(is_answer, news):
                self._on_exchanged(peer, news, now, is_answer=is_answer)
            case PingRequest(number, target, news):
                self._take(peer, news, now)
                self._relay(peer, number, target, now)
            case Nack(number, news):
                self._take(peer, news, now)
                if self._probe and self._probe.number == number and peer in self._probe.helpers:
                    self._probe.nacks += 1
            case _:
                assert_never(message)

    def _take(self, peer: str, news: News, now: float) -> None:
        for claim in news.claims:
            self._merge(claim, peer, now)
        for notice in news.notices:
            self._note(notice, peer, now)

    def _merge(self, claim: Claim, source: str | None, now: float, *, quiet: bool = False) -> None:
        """Take a claim into account, and pass it on if it is news."""
        site = claim.site
        if site == self.me:
            self._answer(claim, source)
            return
        if site not in self._roster.admitted:
            return
        if claim.state is State.SUSPECT and source is not None and not self._may_accuse(claim):
            claim = replace(claim, by=source)
        member = self._roster.members.get(site)
        rank = (claim.incarnation, claim.state)
        if member is None or rank > member.rank:
            self._apply(claim, source, now, quiet=quiet and member is None)
        elif rank < member.rank:
            if source is not None:
                self._claims.tell(source, (site, ""), self._roster.claim_of(site))
        else:
            if source is not None:
                self._claims.heard(source, _key(claim, member.accuser))
            if claim.state is State.SUSPECT and self._roster.confirm(site, claim.by):
                self._claims.put(_key(claim, member.accuser), claim, source)
                self._watch(site)

    def _may_accuse(self, claim: Claim) -> bool:
        return claim.by == self.me or (claim.by in self._roster.admitted and claim.by != claim.site)

    def _apply(self, claim: Claim, source: str | None, now: float, *, quiet: bool) -> None:
        site = claim.site
        if suspicion := self._roster.suspicions.get(site):
            for accuser in suspicion.accusers:
                self._claims.drop((site, accuser))
        old = self._roster.apply(claim, now)
        if claim.state is State.SUSPECT:
            self._watch(site)
            if site in self.neighbours:
                self._urgent[site] = None
        if old is not claim.state and not (old is None and claim.state not in PRESENT):
            self._effects.append(Changed(site, old, claim.state))
        if not quiet:
            self._claims.put((site, ""), claim, source)

    def _answer(self, claim: Claim, source: str | None) -> None:
        """Somebody speaks of ourselves: object to what is wrong."""
        if (claim.incarnation, claim.state) <= (self.incarnation, State.ALIVE):
            if claim.incarnation < self.incarnation and source is not None:
                self._claims.tell(source, (self.me, ""), self._own_claim())
            return
        if claim.incarnation >> BOOT_SHIFT > self.incarnation >> BOOT_SHIFT:
            self._effects.append(Overtaken(claim.incarnation))
        elif claim.state is not State.ALIVE:
            self._feel(1)
        self.incarnation = claim.incarnation + 1
        self._claims.put((self.me, ""), self._own_claim(), None)
        if source is not None and source not in self.neighbours:
            self._send(source, Gossip(News((self._own_claim(),))))

    def _own_claim(self) -> Claim:
        return Claim(self.me, State.ALIVE, self.incarnation)

    # --- probes --------------------------------------------------------------------------------

    def _on_probe(self, now: float, _: object) -> None:
        self._conclude(now)
        self._at(now + probe_every_s(self._knobs, self.health), _Timer.PROBE)
        target = self._next_target()
        if target is None:
            return
        self._number += 1
        self._probe = _Probe(self._number, target)
        self._send(target, Ping(self._number, self._news(target)))
        self._at(now + answer_within_s(self._knobs, self.health), _Timer.ANSWER, self._number)

    def _next_target(self) -> str | None:
        """Suspects that others have named first, then neighbour after neighbour, shuffled anew."""
        while self._urgent:
            site = next(iter(self._urgent))
            del self._urgent[site]
            if site in self.neighbours:
                return site
        for _ in range(2):
            while self._order:
                site = self._order.pop()
                if site in self.neighbours:
                    return site
            self._order = list(self.neighbours)
            self._rng.shuffle(self._order)
        return None

    def _conclude(self, now: float) -> None:
        """The time for the probe under way is over."""
        probe, self._probe = self._probe, None
        if probe is None or probe.answered:
            return
        # Who hears nothing from the helpers either may itself be what is wrong.
        self._feel(len(probe.helpers) - probe.nacks if probe.helpers else 1)
        self._claims.lost(probe.target)
        self._notices.lost(probe.target)
        member = self._roster.members.get(probe.target)
        if member is not None and member.state in PRESENT:
            claim = Claim(probe.target, State.SUSPECT, member.incarnation, self.me)
            self._merge(claim, None, now)

    def _on_no_answer(self, now: float, number: object) -> None:
        probe = self._probe
        if probe is None or probe.number != number or probe.answered or probe.helpers:
            return
        # Its other neighbours have a connection with it.
        able = [
            site
            for site in sorted(self._roster.rings.neighbours(probe.target))
            if site != self.me and self._roster.members[site].state is State.ALIVE
        ]
        probe.helpers = tuple(self._rng.sample(able, min(self._knobs.helpers, len(able))))
        for helper in probe.helpers:
            request = PingRequest(probe.number, probe.target, self._news(helper))
            self._send(helper, request)

    def _on_ack(self, peer: str, number: int) -> None:
        probe = self._probe
        if probe and probe.number == number and peer in (probe.target, *probe.helpers):
            if not probe.answered:
                probe.answered = True
                self._feel(-1)
            if peer == probe.target:
                self._claims.arrived(peer)
                self._notices.arrived(peer)
            return
        relay = self._relays.get(number)
        if relay is not None and relay.target == peer:
            del self._relays[number]
            self._send(relay.asker, Ack(relay.number, self._news(relay.asker)))

    def _relay(self, asker: str, number: int, target: str, now: float) -> None:
        if len(self._relays) >= self._knobs.relays_max or not self._roster.can_ask(target):
            self._send(asker, Nack(number, self._news(asker)))
            return
        self._number += 1
        self._relays[self._number] = _Relay(asker, number, target)
        self._send(target, Ping(self._number, self._news(target)))
        self._at(now + NACK_SHARE * self._knobs.answer_s, _Timer.RELAY, self._number)

    def _on_relay_over(self, _now: float, number: object) -> None:
        relay = self._relays.pop(number, None)  # type: ignore[call-overload]
        if relay is not None:
            self._send(relay.asker, Nack(relay.number, self._news(relay.asker)))

    def _feel(self, change: int) -> None:
        self.health = min(max(self.health + change, 0), self._knobs.health_max)

    def _watch(self, site: str) -> None:
        """Come back to a suspect when its time is over."""
        until_s = self._roster.suspicions[site].until_s(self._knobs, self.members)
        self._at(until_s, _Timer.SUSPICION, site)

    def _on_suspicion(self, now: float, key: object) -> None:
        site = str(key)
        suspicion = self._roster.suspicions.get(site)
        if suspicion is None or suspicion.until_s(self._knobs, self.members) > now:
            return
        incarnation = self._roster.members[site].incarnation
        self._merge(Claim(site, State.DEAD, incarnation, self.me), None, now)

    def _miss(self, peer: str, now: float) -> None:
        """There is no connection with a peer: what was on its way there counts as lost."""
        self._claims.lost(peer)
        self._notices.lost(peer)
        if peer in self.neighbours:
            self._urgent[peer] = None
        if self._probe and self._probe.target == peer:
            self._on_no_answer(now, self._probe.number)
        for number in [n for n, relay in self._relays.items() if relay.target == peer]:
            self._on_relay_over(now, number)
        if self._board.lost(peer, now):
            self._ask_again(now)

    # --- bulletins -----------------------------------------------------------------------------

    def _note(self, notice: Notice, teller: str, now: float) -> None:
        if not self.is_news(notice):
            self._notices.heard(teller, notice.topic)
            return
        again_s = now + self._knobs.fetch_s
        if self._board.want(notice, teller, again_s, self._knobs.fetches_max):
            self._asks[teller].append(notice.topic)
            if not self._fetch_set:
                self._fetch_set = True
                self._at(again_s, _Timer.FETCH)

    def _learn(self, bulletin: Bulletin, source: str) -> None:
        notice = bulletin.notice
        if not self.is_news(notice):
            return
        member = self._roster.members[notice.topic.site]
        if notice.boot > member.boot:  # what its earlier lives said is over
            self._board.forget(
                [
                    topic
                    for topic in self._board.topics_of(notice.topic.site)
                    if (old := self._board.get(topic)) and old.notice.boot < notice.boot
                ]
                if member.topics
                else []
            )
            member.boot, member.topics = notice.boot, 0
        member.topics += self._board.get(notice.topic) is None
        self._board.put(bulletin)
        self._effects.append(Learned(bulletin))
        self._notices.put(notice.topic, notice, source)

    def _answer_want(self, peer: str, topics: tuple[Topic, ...]) -> None:
        """Send what there is of it, up to a limit; the rest is asked for again."""
        items: list[Bulletin] = []
        left = self._knobs.answer_bytes
        for topic in topics[:BULLETINS_MAX]:
            bulletin = self._board.get(topic)
            if bulletin is not None and bulletin.size_bytes <= left:
                items.append(bulletin)
                left -= bulletin.size_bytes
        if items:
            self._send(peer, Bulletins(tuple(items)))

    def _on_fetch(self, now: float, _: object) -> None:
        self._fetch_set = False
        self._ask_again(now)

    def _ask_again(self, now: float) -> None:
        for peer, topic in self._board.ask_again(now, now + self._knobs.fetch_s):
            self._asks[peer].append(topic)
        next_s = self._board.next_again_s()
        if next_s is not None and not self._fetch_set:
            self._fetch_set = True
            self._at(next_s, _Timer.FETCH)

    # --- exchanges -----------------------------------------------------------------------------

    def _everything(self) -> Exchange:
        notices = [bulletin.notice for bulletin in self._board]
        if len(notices) > NOTICES_MAX:
            notices = self._rng.sample(notices, NOTICES_MAX)
        claims = (self._own_claim(), *self._roster.claims())
        return Exchange(False, News(claims, tuple(notices)))

    def _on_exchanged(self, peer: str, news: News, now: float, *, is_answer: bool) -> None:
        """Compare all. That somebody is dead, and we have not heard it, counts as suspicion:

        after a partition both sides would bury each other otherwise. What nobody but the peer
        needed to tell us, others know: an answer's news of strangers is not passed on.
        """
        if is_answer:
            self._seeds = ()
        else:
            self._send(peer, self._what_is_better(news))
        for claim in news.claims:
            buries = claim.state is State.DEAD and self.state(claim.site) in PRESENT
            softer = replace(claim, state=State.SUSPECT, by=peer) if buries else claim
            self._merge(softer, peer, now, quiet=is_answer)
        for notice in news.notices:
            self._note(notice, peer, now)

    def _what_is_better(self, news: News) -> Exchange:
        ranks = {claim.site: (claim.incarnation, claim.state) for claim in news.claims}
        ages = {notice.topic: notice.age for notice in news.notices}
        unknown = (-1, State.ALIVE)
        claims = tuple(
            claim
            for claim in (self._own_claim(), *self._roster.claims())
            if (claim.incarnation, claim.state) > ranks.get(claim.site, unknown)
        )
        notices = [
            bulletin.notice
            for bulletin in self._board
            if bulletin.notice.age > ages.get(bulletin.notice.topic, unknown)
        ]
        return Exchange(True, News(claims, tuple(notices[:NOTICES_MAX])))

    def _exchange_every_s(self) -> float:
        return exchange_every_s(self._knobs, self.members)

    def _on_exchange(self, now: float, _: object) -> None:
        self._at(now + self._exchange_every_s() * (0.9 + 0.2 * self._rng.random()), _Timer.EXCHANGE)
        if len(self._roster.rings) > 1:
            site = self._roster.rings.site_at(self._rng.randrange(len(self._roster.rings)))
            if site != self.me:
                self._send(site, self._everything())

    def _on_reconnect(self, now: float, _: object) -> None:
        """Try one that is thought dead: nobody else would find out that a partition is over."""
        self._at(now + self._knobs.reconnect_s * (0.9 + 0.2 * self._rng.random()), _Timer.RECONNECT)
        if dead := self._roster.dead():
            self._send(self._rng.choice(dead), self._everything())

    def _on_join(self, now: float, _: object) -> None:
        if self._seeds:
            for seed in self._rng.sample(self._seeds, min(SEEDS_ASKED, len(self._seeds))):
                self._send(seed, self._everything())
            self._at(now + self._knobs.join_s, _Timer.JOIN)

    def _on_reap(self, now: float, _: object) -> None:
        self._at(now + REAP_S, _Timer.REAP)
        for site in self._roster.past(now):
            old = self._roster.forget(site)
            self._forget(site, old is not None)

    # --- sending and waking --------------------------------------------------------------------

    def _send(self, peer: str, message: Message) -> None:
        self._effects.append(Send(peer, message))

    def _news(self, peer: str) -> News:
        """What rides along to a peer; first of all, what is wrongly thought of it."""
        limit = retransmissions(self._knobs, self.members)
        member = self._roster.members.get(peer)
        left = self._knobs.news_bytes
        claims: list[Claim] = []
        if member is not None and member.state is not State.ALIVE:
            claims.append(self._roster.claim_of(peer))
            left -= claims[0].size_bytes
        more, size = self._claims.take(peer, left, limit)
        notices, _ = self._notices.take(peer, left - size, limit)
        if not claims and not more and not notices:
            return _NOTHING
        return News((*claims, *more), tuple(notices))

    def _steer(self) -> None:
        """Take as neighbours whom the rings say."""
        found = tuple(sorted(self._roster.rings.neighbours(self.me)))
        if found != self.neighbours:
            self.neighbours = found
            self._claims.steer(found)
            self._notices.steer(found)
            self._effects.append(Keep(found))

    def _flush(self, now: float) -> None:
        """Send what waits: at once, unless the last round to all neighbours was just now."""
        for peer, topics in self._asks.items():
            for first in range(0, len(topics), TOPICS_ASKED_MAX):
                self._send(peer, Want(tuple(topics[first : first + TOPICS_ASKED_MAX])))
        self._asks.clear()
        if self._left or not self._waiting():
            return
        if now >= self._gossip_s:
            for peer in self._waiting():
                news = self._news(peer)
                if news is not _NOTHING:
                    self._send(peer, Gossip(news))
            self._gossip_s = now + self._knobs.gossip_s
            if not self._waiting():
                return
        if not self._gossip_set:
            self._gossip_set = True
            self._at(self._gossip_s, _Timer.GOSSIP)

    def _waiting(self) -> list[str]:
        claims, notices = self._claims.waiting(), self._notices.waiting()
        return sorted({*claims, *notices}) if claims and notices else claims or notices

    def _on_gossip(self, _now: float, _key: object) -> None:
        self._gossip_set = False  # the round itself is _flush's, at the end of every event

    def _at(self, at_s: float, timer: _Timer, key: object = None) -> None:
        self._set += 1
        heapq.heappush(self._timers, (at_s, self._set, timer, key))

    def _run_timers(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, timer, key = heapq.heappop(self._timers)
            self._due[timer](now, key)

    def _name_wake(self) -> None:
        if self._timers and self._timers[0][0] != self._woken_s:
            self._woken_s = self._timers[0][0]
            self._effects.append(WakeAt(self._woken_s))


_NOTHING: Final = News()


def _key(claim: Claim, first_accuser: str) -> tuple[str, str]:
    """Under which a claim is told: accusations that confirm another apart from each other."""
    return (claim.site, "" if claim.by == first_accuser else claim.by)
