"""Many members under one clock and one seed: the cost, speed and reliability of gossip.

The members are federation.membership.membership's real ones; the network is simulated. It consists
only of a heap of coming events, so that a thousand members fit into one process. Messages are
passed as objects, and encoded only while bytes are counted.

The bytes are: the message as MessagePack, `frame_bytes` for each (frame, TLS record, TCP and IP
headers and the acknowledgements that it causes), and `handshake_bytes` for each side of a new
connection. The heartbeats of sessions are not counted.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from federation.clocks import MonoS
from federation.membership.events import (
    Admitted,
    Announce,
    Changed,
    Effect,
    Event,
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
    MemberState,
    MemberUpdate,
    Message,
    Topic,
    to_plain,
)
from federation.membership.membership import BOOT_SHIFT, Membership
from federation.membership.probing import GossipSettings, refresh_every_s
from federation.messages.wire import pack

TICK: Final = Tick()
# An advert of a site with two pools, nearly all their fields in use, in its envelope.
BULLETIN_BYTES: Final = 1000
PRUNE_S: Final = 60.0
BOOTS_AHEAD: Final = 3600


@dataclass(frozen=True, slots=True)
class GossipNetwork:
    """The simulated network. Each pair of sites has its own latency, drawn once."""

    latency_min_s: float = 0.005
    latency_max_s: float = 0.080
    frame_bytes: int = 110
    handshake_bytes: int = 4000  # of each side: two certificates, and the hello on top
    round_trips: int = 3  # before a new connection carries a message: TCP, TLS, hello
    idle_s: float = 10.0  # after which an unneeded connection is closed
    dial_s: float = 3.0  # after which an unanswered dial times out
    loss: float = 0.0  # the share of lost messages; each loses its connection, too
    notice_s: float = 3.0  # both sides notice the loss within this time
    cut: float = 0.0  # the share of the pairs of sites that can't connect at all
    cut_s: float = 60.0  # how long these pairs stay the same


class GossipWorld:
    """A federation of `members` sites, all of which know each other at the start.

    Set `on_changed` and `on_learned` to observe: (site, effect) → None.
    """

    def __init__(
        self,
        members: int,
        seed: int,
        settings: GossipSettings | None = None,
        network: GossipNetwork | None = None,
        *,
        start: bool = True,
    ) -> None:
        self.now = 0.0
        self.settings = settings or GossipSettings()
        self.network = network or GossipNetwork()
        self.rng = Random(seed)
        self.sites = [f"site-{number:04}" for number in range(members)]
        self.numbers = {site: number for number, site in enumerate(self.sites)}
        self.down: set[int] = set()
        self.side: list[int] = [0] * members  # of a partition
        self.cores: list[Membership] = []
        self.on_changed: Callable[[int, Changed], None] = lambda _number, _effect: None
        self.on_learned: Callable[[int, Learned], None] = lambda _number, _effect: None
        self.counting = False
        self.sent_bytes: Counter[int] = Counter()
        self.received_bytes: Counter[int] = Counter()
        self.kinds: Counter[str] = Counter()
        self.kind_bytes: Counter[str] = Counter()
        self.handshakes = 0
        self.events = 0
        self.overtaken = 0
        self.boots = [1] * members
        self.versions = [0] * members
        self._body = bytes(BULLETIN_BYTES)
        self._seed = seed
        self._heap: list[tuple[float, int, int, Event | Callable[[], None]]] = []
        self._order = 0
        self._wake: list[float] = [-1.0] * members
        self._keeps: list[tuple[str, ...]] = [()] * members
        self._open: dict[tuple[int, int], tuple[float, float]] = {}  # ready from, last used
        self.cores = [self._make(number) for number in range(members)]
        self._incarnation = 1 << BOOT_SHIFT
        self.at(PRUNE_S, self._prune)
        if start:
            self._start_all()

    def _make(self, number: int) -> Membership:
        return Membership(
            self.sites[number],
            self.boots[number] << BOOT_SHIFT,
            self.settings,
            Random(self._seed * 1_000_003 + number * 101 + self.boots[number]),
            self.boot_max,
        )

    def boot_max(self) -> float:
        """Return the highest possible run number of a site; it rises with time.

        It is like an epoch second.
        """
        return BOOTS_AHEAD + self.now

    def _start_all(self) -> None:
        known = tuple(
            MemberUpdate(site, MemberState.ALIVE, self._incarnation) for site in self.sites
        )
        everybody = tuple(self.sites)
        for number in range(len(self.sites)):
            self.feed(number, Admitted(everybody))
            self.feed(number, Started(known))

    # --- the clock -----------------------------------------------------------------------------

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        self._push(at_s, -1, action)

    def run(self, until_s: float) -> None:
        """Process all events up to a time."""
        heap = self._heap
        wake = self._wake
        while heap and heap[0][0] <= until_s:
            at_s, _, number, what = heapq.heappop(heap)
            self.now = at_s
            if number < 0:
                what()  # type: ignore[operator]
                continue
            if what is TICK and wake[number] != at_s:
                continue
            self.feed(number, what)  # type: ignore[arg-type]
        self.now = until_s

    def run_until(self, is_done: Callable[[], bool], until_s: float, step_s: float = 0.1) -> bool:
        """Run until a condition holds; return False if it does not in time."""
        while not is_done():
            if self.now >= until_s:
                return False
            self.run(min(self.now + step_s, until_s))
        return True

    def feed(self, number: int, event: Event) -> None:
        """Pass an event to a member, and perform its effects."""
        if number in self.down:
            return
        self.events += 1
        for effect in self.cores[number].handle(event, MonoS(self.now)):
            self._perform(number, effect)

    def _perform(self, number: int, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                self._transmit(number, self.numbers[peer], message)
            case WakeAt(at_s):
                self._wake[number] = float(at_s)
                self._push(float(at_s), number, TICK)
            case Changed():
                self.on_changed(number, effect)
            case Learned():
                self.on_learned(number, effect)
            case Keep(peers):
                self._keeps[number] = peers
            case Overtaken():
                self.overtaken += 1

    def _push(self, at_s: float, number: int, what: Event | Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at_s, self._order, number, what))

    # --- the network ---------------------------------------------------------------------------

    def latency_s(self, a: int, b: int) -> float:
        """Return the one-way latency, equal both ways."""
        mixed = (min(a, b) * 7_919 + max(a, b) * 104_729 + self._seed) * 2_654_435_761
        share = (mixed >> 8 & 0xFFFF) / 0xFFFF
        return self.network.latency_min_s + share * (
            self.network.latency_max_s - self.network.latency_min_s
        )

    def can_talk(self, a: int, b: int) -> bool:
        """Whether two sites can connect now."""
        if self.side[a] != self.side[b]:
            return False
        if not self.network.cut:
            return True
        epoch = int(self.now / self.network.cut_s)
        mixed = (min(a, b) * 7_919 + max(a, b) * 104_729 + epoch * 1_299_709) * 2_654_435_761
        return ((mixed + self._seed * 40_503) >> 9 & 0xFFFF) >= self.network.cut * 0x10000

    def _transmit(self, source: int, target: int, message: Message) -> None:
        network = self.network
        pair = (source, target) if source < target else (target, source)
        latency_s = self.latency_s(source, target)
        ready_s = self._ready_s(pair, latency_s)
        self._count(source, target, message)
        if target in self.down or not self.can_talk(source, target):
            self._open.pop(pair, None)
            self._push(self.now + network.dial_s, source, Unreachable(self.sites[target]))
            return
        if network.loss and self.rng.random() < network.loss:
            self._open.pop(pair, None)
            for one, other in (pair, pair[::-1]):
                heard_s = self.now + self.rng.random() * network.notice_s
                self._push(heard_s, one, Unreachable(self.sites[other]))
            return
        self._open[pair] = (ready_s, self.now)
        self._push(ready_s + latency_s, target, Heard(self.sites[source], message))

    def _ready_s(self, pair: tuple[int, int], latency_s: float) -> float:
        found = self._open.get(pair)
        if found is not None and (
            self.now - found[1] <= self.network.idle_s or self._is_kept(pair)
        ):
            return max(found[0], self.now)
        self.handshakes += 1
        if self.counting:
            for one in pair:
                self.sent_bytes[one] += self.network.handshake_bytes
                self.received_bytes[one] += self.network.handshake_bytes
            self.kind_bytes["handshake"] += 2 * self.network.handshake_bytes
            self.kinds["handshake"] += 1
        return self.now + 2 * self.network.round_trips * latency_s

    def _is_kept(self, pair: tuple[int, int]) -> bool:
        one, other = pair
        return self.sites[other] in self._keeps[one] or self.sites[one] in self._keeps[other]

    def _count(self, source: int, target: int, message: Message) -> None:
        if not self.counting:
            return
        size = len(pack(to_plain(message))) + self.network.frame_bytes
        self.sent_bytes[source] += size
        self.received_bytes[target] += size
        self.kinds[message.kind] += 1
        self.kind_bytes[message.kind] += size

    def _prune(self) -> None:
        """Close idle connections."""
        self._open = {
            pair: times
            for pair, times in self._open.items()
            if self.now - times[1] <= self.network.idle_s or self._is_kept(pair)
        }
        self.at(self.now + PRUNE_S, self._prune)

    def connections(self) -> list[int]:
        """Return the number of open connections of each member."""
        self._prune()
        ends = Counter(end for pair in self._open for end in pair)
        return [ends[number] for number in range(len(self.sites))]

    # --- faults and changes of members ---------------------------------------------------------

    def announce(self, number: int) -> BulletinNotice:
        """Change a site's capacity; return the notice to look for."""
        self.versions[number] += 1
        notice = BulletinNotice(
            Topic(self.sites[number], "advert"), self.boots[number], self.versions[number]
        )
        self.feed(number, Announce(Bulletin(notice, self._body)))
        return notice

    def refresh_all(self) -> float:
        """Start the periodic refresh of all adverts; return its interval."""
        every_s = refresh_every_s(self.settings, len(self.sites), BULLETIN_BYTES)

        def again(number: int) -> None:
            if number not in self.down:
                self.announce(number)
            self.at(self.now + every_s * (0.9 + 0.2 * self.rng.random()), lambda: again(number))

        for number in range(len(self.sites)):
            self.at(self.now + every_s * self.rng.random(), lambda n=number: again(n))  # type: ignore[misc]
        return every_s

    def crash(self, number: int) -> None:
        """Crash a host, without a message."""
        self.down.add(number)

    def pause(self, number: int) -> None:
        """Stop a process: it misses messages, and keeps its state."""
        self.down.add(number)

    def resume(self, number: int) -> None:
        """Resume a process, which does not know that time has passed."""
        self.down.discard(number)
        self.feed(number, TICK)

    def restart(self, number: int, seeds: tuple[str, ...]) -> None:
        """Restart a member without knowledge of others; it joins through some seeds."""
        self.down.discard(number)
        self.boots[number] += 1
        self.versions[number] = 0
        self.cores[number] = self._make(number)
        self.feed(number, Admitted(tuple(self.sites)))
        self.feed(number, Started())
        self.feed(number, Join(seeds))

    def leave(self, number: int) -> None:
        """Let a member leave on purpose."""
        self.feed(number, Leave())
        self.down.add(number)

    def believed(self, about: int, state: MemberState | None) -> int:
        """Return how many of the others that are up believe it to be in a state."""
        site = self.sites[about]
        return sum(
            core.state(site) is state
            for number, core in enumerate(self.cores)
            if number != about and number not in self.down
        )
