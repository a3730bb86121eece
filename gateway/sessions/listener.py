"""The sessions behind a port: pipes become peers, and peers outlive their pipes.

The listener greets each new pipe (federation.sessions.handshake), keeps a numbered session for each
admitted peer, decodes the peers' frames into messages, and sends the messages posted to them,
with one unacknowledged frame per pipe. It makes no decision about jobs.
"""

import itertools
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from federation.address import check_others
from federation.clocks import MonoS
from federation.errors import ProtocolError, SessionRefused
from federation.messages.contracts import grantor_until_s
from federation.messages.messages import (
    HANDSHAKE,
    MESSAGES,
    Bye,
    Gateways,
    Hello,
    Refused,
    Unknown,
    Welcome,
)
from federation.messages.wire import UnknownMessage
from federation.sessions.credentials import place_of_this_process
from federation.sessions.handshake import NAME_CHARS_MAX, Credentials, Greeting, SharedSecret
from federation.sessions.hearing import Hearing
from federation.sessions.session import DIALLER_WINDOW, Session
from federation.sessions.task_passes import ABOUT
from federation.transport import Origin, Port
from federation.words import duration_text
from gateway.config.limits import ListenerLimits
from gateway.sessions.half_open import GREETING_MAX_S, HalfOpen
from gateway.sessions.token_bucket import HostTokenBuckets, TokenBucket

LAST_WORD_S: Final = 1.0  # a refused pipe stays open this long, or nng drops the reason
NONCE_BYTES: Final = 16
# A bare acknowledgement uses up the one frame that may be in flight to a peer. It is therefore
# sent only to a peer that was quiet for this long: for others a frame that can carry it follows
# soon.
QUIET_S: Final = 0.02
# A tick does not check all of thousands of peers, but all are checked within this time, or a
# fraction of a heartbeat if that is shorter; each tick checks at least LOOKED_AT_MIN.
ROUND_S: Final = 0.5
ROUNDS_A_BEAT: Final = 4
LOOKED_AT_MIN: Final = 64
# This process was late if it was not run for this share of the grace. The leases of its peers may
# have ended for want of its acknowledgements then: until after LATE_GRACES graces the ends of
# sessions are put down to it. A dialler drops its session within one, and its end is noted a grace
# after its pipe is lost.
LATE_SHARE: Final = 0.25
LATE_GRACES: Final = 2.5
# The acknowledgements that one tick handles at most.
OWED_LOOKS_MAX: Final = 512


@dataclass(slots=True)
class PeerSession:
    """A peer with a session: a client, a worker, or the gateway of another site.

    Its statements about itself are proved as its role requires: a gateway's `name` is the site that
    it has proved to be. `is_local` is whether it connected by a socket of this host as our own
    user, and not from a slot (gateway.base.callers).
    """

    handle: int
    role: str
    name: str
    user: str
    about: dict[str, Any]
    session_id: str
    session: Session
    pipe: int | None
    hearing: Hearing
    sent_at_s: MonoS
    since_s: MonoS
    pace: TokenBucket
    is_local: bool = False
    origin: Origin = field(default_factory=Origin)  # of the pipe by which it came first


@dataclass(frozen=True, slots=True)
class PeerCameIn:
    """A new session opened."""

    peer: PeerSession


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """A session ended: by a goodbye, by expulsion, or because the grace ran out.

    `was_late` is whether the grace ran out after this process itself had not been run for a while.
    """

    peer: PeerSession
    reason: str
    said_goodbye: bool = False
    was_late: bool = False


@dataclass(frozen=True, slots=True)
class PeerSaid:
    """A peer sent a message."""

    peer: PeerSession
    message: Any


@dataclass(frozen=True, slots=True)
class PeerTurnedAway:
    """A pipe was not admitted; role and name are its own claims, if it made any."""

    role: str
    name: str
    code: str
    reason: str


News = PeerCameIn | PeerLeft | PeerSaid | PeerTurnedAway


class SessionListener:
    """The sessions behind one port. `mono_s` is any monotonic clock.

    Args:
        port: the port that accepts pipes.
        rules: see ListenerLimits.
        random_bytes: the source of randomness.
        credentials: authenticate peers; by the secret of the rules, if None.
        handles: the source of peer numbers, for listeners that share one.
        at_home: credentials for sockets of this host as our own user; `credentials`, if None.
        nearby: credentials for such sockets of other users or slots; `credentials`, if None.
        in_the_clear: credentials for plain tcp from other hosts; `credentials`, if None.
    """

    def __init__(
        self,
        port: Port,
        rules: ListenerLimits,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        credentials: Credentials | None = None,
        handles: Iterator[int] | None = None,
        at_home: Credentials | None = None,
        nearby: Credentials | None = None,
        in_the_clear: Callable[[Origin], Credentials] | None = None,
    ) -> None:
        self._port = port
        self._random_bytes = random_bytes
        self.rules = rules
        self._credentials = credentials or SharedSecret(rules.secret)
        self._at_home = at_home or self._credentials
        self._nearby = nearby or self._credentials
        self._in_the_clear = in_the_clear or (lambda _origin: self._credentials)
        self._handles = handles or itertools.count(1)
        self._handshakes = HostTokenBuckets(rules.handshakes_per_s)
        self._half_open: HalfOpen[int] = HalfOpen(rules.strangers_max, rules.host_strangers_max)
        self.others: list[str] = []  # gateways that our clients could use instead
        self.peers: dict[int, PeerSession] = {}
        self._by_pipe: dict[int, PeerSession] = {}
        self._by_session: dict[str, PeerSession] = {}
        self._strangers: dict[int, Greeting] = {}  # half-open ones, by pipe
        self._closing: dict[int, MonoS] = {}  # refused pipes, and the times when they are closed
        self._dirty: dict[int, PeerSession] = {}
        self._owed: dict[int, PeerSession] = {}  # peers with unacknowledged frames, in order
        self._round: deque[int] = deque()  # peers that `tick` has not checked in this round
        self._ticked_at_s = self._ticked_before_s = MonoS(-math.inf)
        self._late_until_s = MonoS(-math.inf)

    # --- incoming ------------------------------------------------------------------------------

    def receive(
        self, pipe: int, frame: bytes, mono_s: MonoS, came_at_s: MonoS | None = None
    ) -> Iterator[News]:
        """Process a frame from a pipe. A protocol error costs the peer its pipe or session.

        `came_at_s` is its `earliest_at_s`, if it has waited since it was read.
        """
        peer = self._by_pipe.get(pipe)
        if pipe in self._closing:
            return  # it has been refused already
        try:
            if peer is None:
                yield from self._greet(pipe, frame, mono_s)
            else:
                peer.hearing.heard(mono_s)
                peer.pace.note(mono_s)
                self._dirty[peer.handle] = self._owed[peer.handle] = peer
                earliest_at_s = self.earliest_at_s(mono_s) if came_at_s is None else came_at_s
                yield from self._listen(peer, frame, earliest_at_s)
        except SessionRefused as refusal:
            yield self._turn_away(pipe, refusal, mono_s)
        except ProtocolError as error:
            yield from self.send_away(pipe, str(error), mono_s)

    def note_heard(self, pipe: int, mono_s: MonoS) -> PeerSession | None:
        """Note that a frame arrived that is processed later; return the pipe's peer, if any.

        The peer counts as heard from now on, however long the frame waits.
        """
        peer = self.peer_on(pipe)
        if peer is not None:
            peer.hearing.heard(mono_s)
        return peer

    def earliest_at_s(self, mono_s: MonoS) -> MonoS:
        """Return the earliest time at which a frame can have arrived that is read now.

        That is the tick before the last: if this process was stopped, the frame may have arrived at
        any time since then, and the last tick may have been the first event after the stop.
        """
        return min(mono_s, self._ticked_before_s)

    def peer_on(self, pipe: int) -> PeerSession | None:
        """Return the peer of a pipe; None if it isn't admitted yet, or no longer uses the pipe."""
        return self._by_pipe.get(pipe)

    def is_leaving(self, pipe: int) -> bool:
        """Whether a pipe was refused: its frames are ignored from then on."""
        return pipe in self._closing

    def send_away(self, pipe: int, reason: str, mono_s: MonoS) -> Iterator[News]:
        """End the session of a pipe that breaks the protocol, or its attempt to open one."""
        peer = self._by_pipe.get(pipe)
        if peer is not None:
            yield from self.expel(peer, f"protocol error: {reason}", mono_s)
        elif pipe not in self._closing:
            yield self._turn_away(pipe, SessionRefused(reason, "protocol"), mono_s)

    def pipes_came(self, pipes: list[int], mono_s: MonoS) -> Iterator[News]:
        """Start the handshakes of new pipes, which have GREETING_MAX_S to complete them."""
        for pipe in pipes:
            if pipe in self._by_pipe or pipe in self._strangers or pipe in self._closing:
                continue  # one of its frames arrived first
            try:
                yield from self._expect(pipe, mono_s)
            except SessionRefused as refusal:
                yield self._turn_away(pipe, refusal, mono_s)

    def _expect(self, pipe: int, mono_s: MonoS) -> Iterator[News]:
        rules, host = self.rules, self._port.origin(pipe).host
        if not self._handshakes.take(host, mono_s):
            raise SessionRefused("too many connections from your host in a short time", "busy")
        nonce = self._random_bytes(NONCE_BYTES)
        greeting = Greeting(rules.site, rules.boot, self._credentials_for(pipe), nonce)
        self._strangers[pipe] = greeting
        for older in self._half_open.add(pipe, host, mono_s):
            refusal = SessionRefused("too many unfinished handshakes", "busy")
            yield self._turn_away(older, refusal, mono_s)

    def _credentials_for(self, pipe: int) -> Credentials:
        if self._port.is_local(pipe):
            return self._at_home
        if self._port.is_near(pipe):
            return self._nearby
        origin = self._port.origin(pipe)
        return self._credentials if origin.is_private else self._in_the_clear(origin)

    def _greet(self, pipe: int, frame: bytes, mono_s: MonoS) -> Iterator[News]:
        if pipe not in self._strangers:
            yield from self._expect(pipe, mono_s)
        greeting = self._strangers.get(pipe)
        if greeting is None:
            return  # it was closed meanwhile, possibly in favour of another pipe
        self._half_open.heard(pipe)
        answer = greeting.receive(frame)
        if isinstance(answer, bytes):
            self._port.send(pipe, answer)
            return
        self._forget_stranger(pipe)
        yield from self._let_in(pipe, answer, greeting, mono_s)

    def _forget_stranger(self, pipe: int) -> Greeting | None:
        self._half_open.remove(pipe)
        return self._strangers.pop(pipe, None)

    def _let_in(self, pipe: int, hello: Hello, greeting: Greeting, mono_s: MonoS) -> Iterator[News]:
        peer = self._by_session.get(hello.resume)
        is_local = self._port.is_local(pipe)
        resumed = (
            peer is not None
            and _identity(peer) == _identity(hello)
            and peer.is_local == is_local  # a slot's task can't resume its user's session
        )
        if peer is None or not resumed:
            if len(self.peers) >= self.rules.sessions_max:
                raise SessionRefused(f"{self.rules.sessions_max} sessions are open already", "busy")
            peer = self._new_peer(hello, mono_s, is_local=is_local)
            peer.origin = self._port.origin(pipe)
        else:
            if peer.pipe is not None:
                self._forget_pipe(peer)
            peer.session.rewind(hello.received)
            # No word: the ends of tasks from before it resumed come after this.
            peer.hearing.restarted(mono_s)
        peer.pipe = pipe
        self._by_pipe[pipe] = peer
        if not resumed:
            yield PeerCameIn(peer)
            if peer.handle not in self.peers:
                return  # the site refused it, and has told it the reason
        rules = self.rules
        welcome = Welcome(
            session=peer.session_id,
            resumed=resumed,
            received=peer.session.admitted,
            proof=greeting.proof(),
            window=DIALLER_WINDOW,
            heartbeat_s=rules.heartbeat_s,
            grace_s=rules.grace_s,
            tasks_max=rules.tasks_max,
            bytes_max=rules.bytes_max,
            message_bytes_max=rules.message_bytes_max,
            others=self.others,
            place=place_of_this_process(),
            graphs=True,
        )
        # The welcome has no acknowledgement of its own. The peer's next frame acknowledges it, and
        # until then the session's window limits us to one more frame: two in all, as many as nng
        # holds.
        self._port.send(pipe, HANDSHAKE.encode(welcome))
        self._dirty[peer.handle] = peer

    def _new_peer(self, hello: Hello, mono_s: MonoS, *, is_local: bool) -> PeerSession:
        session = Session(
            window=1,
            peer_window=DIALLER_WINDOW,
            numbers_acks=True,
            message_bytes_max=self.rules.message_bytes_max,
        )
        peer = PeerSession(
            handle=next(self._handles),
            role=hello.role,
            name=hello.name,
            user=hello.user,
            about=hello.about,
            session_id=self._random_bytes(16).hex(),
            session=session,
            pipe=None,
            hearing=Hearing(mono_s),
            sent_at_s=mono_s,
            since_s=mono_s,
            pace=TokenBucket(self.rules.frames_per_s, mono_s),
            is_local=is_local,
        )
        self.peers[peer.handle] = peer
        self._by_session[peer.session_id] = peer
        return peer

    def _listen(self, peer: PeerSession, frame: bytes, came_at_s: MonoS) -> Iterator[News]:
        received = peer.session.accept(frame)
        if peer.session.is_current:
            peer.hearing.spoke(came_at_s)
        for data in received:
            try:
                message = MESSAGES.decode(data, self.rules.message_bytes_max)
            except UnknownMessage as unknown:
                self.post(peer, Unknown(unknown.kind[:64]))
                continue
            if isinstance(message, Bye):
                yield from self._leave(peer, message.reason[:200] or "goodbye", True)
                return
            yield PeerSaid(peer, message)
            if peer.handle not in self.peers:
                return  # expelled because of the message

    def _turn_away(self, pipe: int, refusal: SessionRefused, mono_s: MonoS) -> PeerTurnedAway:
        greeting = self._forget_stranger(pipe)
        if len(self._closing) < self.rules.strangers_max:
            self._port.send(pipe, HANDSHAKE.encode(Refused(refusal.code, str(refusal))))
            self._closing[pipe] = mono_s + LAST_WORD_S
        else:  # they arrive faster than they can be refused politely
            self._port.drop(pipe)
        claim = greeting.claim if greeting else None
        role, name = (claim.role[:40], claim.name[:NAME_CHARS_MAX]) if claim else ("", "")
        return PeerTurnedAway(role, name, refusal.code, str(refusal))

    # --- sessions ------------------------------------------------------------------------------

    def pipes_gone(self, pipes: list[int], mono_s: MonoS) -> None:
        """Note that pipes were closed; their peers may resume within the grace."""
        for pipe in pipes:
            self._forget_stranger(pipe)
            self._closing.pop(pipe, None)
            peer = self._by_pipe.pop(pipe, None)
            if peer is not None and peer.pipe == pipe:
                peer.pipe = None
                peer.hearing.restarted(mono_s)

    def tick(self, mono_s: MonoS) -> Iterator[News]:
        """Drop silent pipes, end sessions whose grace ran out, send heartbeats."""
        rules = self.rules
        if LATE_SHARE * rules.grace_s < mono_s - self._ticked_at_s < math.inf:
            self._late_until_s = mono_s + LATE_GRACES * rules.grace_s
        for pipe in self._half_open.older_than(GREETING_MAX_S, mono_s):
            late = SessionRefused("the handshake timed out", "late")
            yield self._turn_away(pipe, late, mono_s)
        for pipe, until_s in list(self._closing.items()):
            if mono_s > until_s:
                del self._closing[pipe]
                self._port.drop(pipe)
        for peer in self._next_of_round(mono_s):
            hearing, beat_s = peer.hearing, rules.heartbeat_s
            # The lease holder's own timer ends earlier, so its work can be done elsewhere from now
            # on.
            if peer.pipe is None and mono_s > grantor_until_s(hearing.heard_at_s, rules.grace_s):
                reason = f"did not reconnect within {duration_text(rules.grace_s)}"
                yield from self._leave(peer, reason, was_late=mono_s < self._late_until_s)
            elif peer.pipe is not None and hearing.is_silent(mono_s, beat_s, rules.grace_s):
                self._forget_pipe(peer)
            elif mono_s - peer.sent_at_s >= rules.heartbeat_s:
                self._flush(peer, mono_s, acknowledge=True)
        self._acknowledge_quiet(mono_s)

    def _next_of_round(self, mono_s: MonoS) -> Iterator[PeerSession]:
        """Yield the peers to check now: all within a round, however far apart the ticks are."""
        if not self._round:
            self._round.extend(self.peers)
        round_s = min(ROUND_S, self.rules.heartbeat_s / ROUNDS_A_BEAT)
        share = min(1.0, (mono_s - self._ticked_at_s) / round_s)
        self._ticked_before_s, self._ticked_at_s = self._ticked_at_s, mono_s
        for _ in range(max(LOOKED_AT_MIN, math.ceil(len(self.peers) * share))):
            if not self._round:
                return
            peer = self.peers.get(self._round.popleft())
            if peer is not None:
                yield peer

    def _acknowledge_quiet(self, mono_s: MonoS) -> None:
        """Acknowledge the frames of peers that have become quiet."""
        for handle in [*itertools.islice(self._owed, OWED_LOOKS_MAX)]:
            peer = self._owed.pop(handle)
            if peer.session.owes and mono_s - peer.hearing.heard_at_s >= QUIET_S:
                self._flush(peer, mono_s, acknowledge=True)
            if peer.session.owes and handle in self.peers:
                self._owed[handle] = peer

    def expel(
        self, peer: PeerSession, reason: str, mono_s: MonoS, code: str = "expelled"
    ) -> Iterator[News]:
        """End a session now; the peer is told if its pipe takes one more frame."""
        if peer.handle not in self.peers:
            return
        pipe = peer.pipe
        if pipe is not None:
            self._by_pipe.pop(pipe, None)
            peer.pipe = None
            self._turn_away(pipe, SessionRefused(reason, code), mono_s)
        yield from self._leave(peer, reason)

    def expel_older(self, peer: PeerSession, mono_s: MonoS) -> Iterator[News]:
        """End other sessions of the same name: the peer has begun a new one."""
        for other in list(self.peers.values()):
            if other.name == peer.name and other is not peer:
                yield from self.expel(other, "it opened a new session", mono_s)

    def _leave(
        self,
        peer: PeerSession,
        reason: str,
        said_goodbye: bool = False,
        *,
        was_late: bool = False,
    ) -> Iterator[News]:
        if peer.pipe is not None:
            self._forget_pipe(peer)
        del self.peers[peer.handle]
        del self._by_session[peer.session_id]
        self._dirty.pop(peer.handle, None)
        self._owed.pop(peer.handle, None)
        yield PeerLeft(peer, reason, said_goodbye, was_late)

    def _forget_pipe(self, peer: PeerSession) -> None:
        assert peer.pipe is not None
        self._by_pipe.pop(peer.pipe, None)
        self._port.drop(peer.pipe)
        peer.pipe = None

    # --- outgoing ------------------------------------------------------------------------------

    def post(self, peer: PeerSession, message: Any, *, urgent: bool = False) -> None:
        """Queue a message for a peer; `flush` sends it, an urgent one ahead of the others."""
        peer.session.post(MESSAGES.encode(message), urgent=urgent)
        self._dirty[peer.handle] = peer

    def hold(self, peer: PeerSession) -> None:
        """Stop acknowledging a peer's frames, so that it sends no more than its window."""
        peer.session.is_held = True

    def release(self, peer: PeerSession) -> None:
        """Resume acknowledging, and acknowledge the frames sent meanwhile."""
        peer.session.is_held = False
        if peer.handle in self.peers:
            self._dirty[peer.handle] = self._owed[peer.handle] = peer

    def set_others(self, addresses: list[str]) -> None:
        """Set the gateways that clients could use if this one is lost; best first.

        New peers learn them from the Welcome, connected clients by a message when they have
        changed; `flush` sends it. Raises AddressError, and changes nothing, if there are too many
        or one is invalid.
        """
        others = check_others(addresses)
        if others == self.others:
            return
        self.others = others
        for peer in self.peers.values():
            if peer.role == "client":
                self.post(peer, Gateways(others))

    def flush(self, mono_s: MonoS) -> None:
        """Send as much as possible to peers with new messages or frames since the last flush."""
        dirty, self._dirty = self._dirty, {}
        for peer in dirty.values():
            # A bare acknowledgement is sent before the peer's window is full; earlier than that,
            # an answer usually carries it.
            due = peer.session.owes * 2 >= DIALLER_WINDOW
            self._flush(peer, mono_s, acknowledge=due)

    def _flush(self, peer: PeerSession, mono_s: MonoS, *, acknowledge: bool) -> None:
        if peer.pipe is None:
            return
        if not peer.pace.allows(mono_s):
            self._dirty[peer.handle] = peer  # it is answered once it is within its rate again
            return
        frame = peer.session.next_frame(acknowledge=acknowledge)
        if frame is None:
            return
        peer.sent_at_s = mono_s
        if not self._port.send(peer.pipe, frame):
            # The pipe is closing or stuck: the session sends the frame again on the next one.
            self._forget_pipe(peer)
            peer.hearing.restarted(mono_s)

    def goodbye(self, reason: str, mono_s: MonoS) -> None:
        """Tell all peers that the gateway stops."""
        for peer in self.peers.values():
            self.post(peer, Bye(reason))
        self.flush(mono_s)


def _identity(who: PeerSession | Hello) -> tuple[object, ...]:
    """Return the values that must be equal for a peer to resume a session."""
    return who.role, who.name, who.user, who.about.get("token"), who.about.get(ABOUT)
