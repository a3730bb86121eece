"""How a pipe becomes a session: HELLO → CHALLENGE → PROOF → WELCOME, or REFUSED.

Pure on both sides. `Greeting` is the gateway's side of one pipe. `Dialogue` is the whole life of
the dialler's side: greet, open, lose the pipe, greet again, resume. Each side proves to the other,
over both nonces, that it is entitled to the session; its `Credentials` define how. Clients and
workers have a shared secret, which never travels; gateways have keys (gateway.trust.introduction).
"""

import hmac
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Protocol, runtime_checkable

from federation.clocks import MonoS
from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import (
    HANDSHAKE,
    MESSAGES,
    Challenge,
    Hello,
    Proof,
    Refused,
    Unknown,
    Welcome,
)
from federation.messages.wire import VERSIONS, UnknownMessage
from federation.sessions.hearing import Hearing
from federation.sessions.patience import Patience
from federation.sessions.session import DIALLER_WINDOW, Session
from federation.users import check_user

NONCE_BYTES: Final = 16
# The most that a dialler accepts in one message, regardless of the other side's announcement: the
# highest value that a gateway can be set to.
MESSAGE_BYTES_MAX: Final = 1 << 31
HANDSHAKE_BYTES_MAX: Final = 1 << 16
NAME_CHARS_MAX: Final = 200
UNKNOWN_BEAT_S: Final = 2.5  # until the other side has announced its heartbeat interval

_UPGRADE: Final = "upgrade gridfed on the older side"

# Refusals that may be over a moment later: retry.
PASSING_REFUSALS: Final = frozenset({"busy", "late"})


def _named(versions: Iterable[int]) -> str:
    known = list(versions)[:8]
    return f"version{'s' * (len(known) > 1)} {', '.join(map(str, known)) or 'none'}"


class Prover(StrEnum):
    """The end of a pipe that gives a proof. The value is covered by the shared secret's proof."""

    DIALLER = "dialler"
    LISTENER = "gateway"


class Credentials(Protocol):
    """How one end of a pipe proves its identity, and what it requires of the other end. Pure."""

    @property
    def roles(self) -> frozenset[str]:
        """The roles that a listener with these credentials admits."""

    def hear(self, hello: Hello) -> Hello:
        """Check a hello before it is answered; return the parts believed, or to be proved.

        Raises SessionRefused.
        """

    def prove(self, prover: Prover, hello: Hello, challenge: Challenge) -> bytes:
        """Return our proof, as this end of the pipe; SessionRefused if we would not give it."""

    def check(self, prover: Prover, hello: Hello, challenge: Challenge, proof: bytes) -> None:
        """Check the proof of the other end, which is `prover`; SessionRefused."""


@runtime_checkable
class Carded(Protocol):
    """Credentials of a site that has cards to show."""

    def cards(self) -> bytes:
        """Return the cards by which a dialler may know us, for the Challenge; empty if none."""


class SharedSecret:
    """Credentials from a secret: HMAC-SHA-256 over the proving end and both nonces.

    An empty secret admits every peer.
    """

    roles: Final = frozenset({"client", "worker"})

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def hear(self, hello: Hello) -> Hello:
        """Accept any valid user name; workers need none."""
        if hello.role == "client" or hello.user:
            try:
                check_user(hello.user)
            except ValueError as error:
                raise SessionRefused(
                    f"{error}; specify a name with Client(user=...)", "name"
                ) from None
        return hello

    def prove(self, prover: Prover, hello: Hello, challenge: Challenge) -> bytes:
        """Return our proof; empty when there is no secret."""
        if not self._secret:
            return b""
        return hmac.digest(self._secret, prover.encode() + hello.nonce + challenge.nonce, "sha256")

    def check(self, prover: Prover, hello: Hello, challenge: Challenge, proof: bytes) -> None:
        """Check that the other end knows the secret too."""
        if not self._secret or hmac.compare_digest(self.prove(prover, hello, challenge), proof):
            return
        if prover is Prover.LISTENER:
            raise SessionRefused(
                "the gateway does not know the secret of this client: either the gateway "
                "was started without a secret (unset $GRIDFED_SECRET here, or give the "
                "gateway the secret), or it is another gateway",
                "impostor",
            )
        why = f"the secret is not the secret of site {challenge.site!r}"
        if not proof:
            why = f"site {challenge.site!r} needs a secret, and none was given"
        raise SessionRefused(
            f"{why}: pass the gateway's secret by $GRIDFED_SECRET, --secret-file, or "
            "Client(secret=...) in Python",
            "secret",
        )


class Greeting:
    """The gateway's side of one pipe until it is a session, or refused.

    Args:
        site: our name, shown to the dialler.
        boot: the number of this run of the site; 0 if it is not needed.
        credentials: our credentials.
        nonce: fresh random bytes.
        versions: the versions of the protocol that we speak; the highest that both speak is chosen.
    """

    def __init__(
        self,
        site: str,
        boot: int,
        credentials: Credentials,
        nonce: bytes,
        versions: Sequence[int] = VERSIONS,
    ) -> None:
        self._versions = versions
        self._challenge = Challenge(max(versions), site, boot, nonce)
        self._credentials = credentials
        self.claim: Hello | None = None  # the dialler's own word, proved or not
        self.hello: Hello | None = None

    def receive(self, frame: bytes) -> bytes | Hello:
        """Take a frame of the handshake; return the bytes to answer with, or the proved hello.

        Raises:
            SessionRefused: the dialler is not admitted; tell it, and drop the pipe.
            ProtocolError: it does not speak our handshake at all; drop the pipe.
        """
        message = HANDSHAKE.decode(frame, HANDSHAKE_BYTES_MAX)
        match message:
            case Hello() if self.claim is None:
                self.claim = message
                return self._answer(message)
            case Proof() if self.hello is not None:
                self._credentials.check(Prover.DIALLER, self.hello, self._challenge, message.proof)
                return self.hello
            case _:
                raise ProtocolError(f"unexpected message {message.kind!r} in the handshake")

    def _answer(self, hello: Hello) -> bytes:
        common = set(self._versions).intersection(hello.versions)
        if not common:
            raise SessionRefused(
                f"this gateway speaks protocol {_named(self._versions)}, the peer offers "
                f"{_named(hello.versions)}: {_UPGRADE}",
                "version",
            )
        self._challenge = replace(self._challenge, version=max(common))
        roles = self._credentials.roles
        if hello.role not in roles:
            raise SessionRefused(
                f"role {hello.role[:40]!r} is not accepted here, only {' or '.join(sorted(roles))}",
                "role",
            )
        if len(hello.name) > NAME_CHARS_MAX or len(hello.user) > NAME_CHARS_MAX:
            raise SessionRefused(f"the name has more than {NAME_CHARS_MAX} characters", "name")
        if not (hello.name + hello.user).isprintable():
            raise SessionRefused("the name has unprintable characters", "name")
        if not NONCE_BYTES <= len(hello.nonce) <= 4 * NONCE_BYTES:
            raise SessionRefused("the nonce is too short or too long", "nonce")
        self.hello = self._credentials.hear(hello)
        if isinstance(self._credentials, Carded):
            self._challenge = replace(self._challenge, cards=self._credentials.cards())
        return HANDSHAKE.encode(self._challenge)

    def proof(self) -> bytes:
        """Return our own proof, for the Welcome."""
        assert self.hello is not None
        return self._credentials.prove(Prover.LISTENER, self.hello, self._challenge)


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is open. Unless it was resumed, the gateway knows no earlier messages."""

    resumed: bool
    site: str


class Dialogue:
    """The dialler's side of a session, over as many pipes as it takes. Pure.

    The shell dials, calls `connected`, passes frames to `receive`, and calls `flush` with a
    function that sends. `mono_s` is any monotonic clock. A message over `message_bytes_max` is
    refused, whatever limit the gateway announces. `versions` are those of the protocol that it
    offers; the gateway chooses one.
    """

    def __init__(
        self,
        *,
        hello: Hello,
        credentials: Credentials,
        random_bytes: Callable[[int], bytes],
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        versions: Sequence[int] = VERSIONS,
    ) -> None:
        self._versions = versions
        self._message_bytes_max = message_bytes_max
        self._hello = hello  # the one in flight, or its template
        self._credentials = credentials
        self._random_bytes = random_bytes
        self._challenge: Challenge | None = None
        self._bare: list[bytes] = []
        self._stuck: bytes | None = None
        self._hearing = Hearing(MonoS(0.0))
        self._patience = Patience()
        self._sent_at_s = MonoS(0.0)
        self._session_id = ""
        self._greeted_at_s = MonoS(0.0)
        self._made: deque[tuple[int, MonoS]] = deque()  # unacknowledged frames, with their times
        # The gateway has heard from us since then: leases count from here. A frame that *arrives*
        # proves less, for it may have been in flight while nothing of ours gets there.
        self.granted_at_s = MonoS(0.0)
        self.session: Session | None = None
        self.welcome: Welcome | None = None
        self.is_open = False

    def connected(self, mono_s: MonoS) -> None:
        """Greet on a new pipe that is up."""
        self._challenge = None
        self._stuck = None
        self._greeted_at_s = mono_s
        self._hearing.restarted(mono_s)
        self._hello = replace(
            self._hello,
            versions=list(self._versions),
            nonce=self._random_bytes(NONCE_BYTES),
            resume=self._session_id,
            received=self.session.received if self.session else 0,
        )
        self._bare = [HANDSHAKE.encode(self._hello)]

    def lost(self) -> None:
        """Note that the pipe is gone; unacknowledged messages wait for the next one."""
        self.is_open = False
        self._bare = []
        self._stuck = None

    def start_over(self) -> None:
        """Forget the session: the next pipe begins a new one."""
        self.lost()
        self.session = None
        self._session_id = ""

    def post(self, message: Any) -> None:
        """Queue a message. Before the first Opened it is dropped: there is no session yet."""
        self.post_encoded(MESSAGES.encode(message))

    def post_encoded(self, message: bytes, *, urgent: bool = False) -> None:
        """Queue an encoded message; an urgent one goes ahead of the queue."""
        if self.session is not None:
            self.session.post(message, urgent=urgent)

    def receive(self, frame: bytes, mono_s: MonoS) -> list[Any]:
        """Take a frame; return the messages in it, with Opened where the session opens.

        Raises:
            SessionRefused: the gateway refused, or could not give the required proof.
            ProtocolError: the gateway broke the protocol.
        """
        self._hearing.heard(mono_s)
        if not self.owes:
            self._patience.owed(mono_s)
        # A frame is an array, a bare message a map: a gateway that expels us sends it bare.
        is_bare = frame[:1] >= b"\x80" and frame[:1] < b"\x90"
        if self.is_open and self.session is not None and not is_bare:
            messages = self.session.accept(frame)
            self._note_grants(self.session)
            return self._decode(messages)
        message = HANDSHAKE.decode(frame, HANDSHAKE_BYTES_MAX)
        match message:
            case Challenge() if self._challenge is None:
                if message.version not in self._hello.versions:
                    raise SessionRefused(
                        f"the gateway chose protocol version {message.version}, this side offered "
                        f"{_named(self._hello.versions)}: {_UPGRADE}",
                        "version",
                    )
                self._challenge = message
                proof = self._credentials.prove(Prover.DIALLER, self._hello, message)
                self._bare.append(HANDSHAKE.encode(Proof(proof)))
                return []
            case Welcome() if self._challenge is not None:
                return [self._open(message, self._challenge)]
            case Refused():
                raise SessionRefused(message.reason, message.code)
            case _:
                raise ProtocolError(f"unexpected message {message.kind!r} in the handshake")

    def _open(self, welcome: Welcome, challenge: Challenge) -> Opened:
        self._credentials.check(Prover.LISTENER, self._hello, challenge, welcome.proof)
        resumed = welcome.resumed and self.session is not None
        if resumed and self.session is not None:
            self.session.rewind(welcome.received)
        else:
            self.session = Session(
                window=max(1, min(welcome.window, DIALLER_WINDOW)),
                peer_window=1,
                numbers_acks=False,
                message_bytes_max=min(welcome.message_bytes_max, self._message_bytes_max),
            )
            self._made.clear()
        self.granted_at_s = self._greeted_at_s
        self._session_id = welcome.session
        self.welcome = welcome
        self.is_open = True
        return Opened(resumed, challenge.site)

    def _note_grants(self, session: Session) -> None:
        while self._made and self._made[0][0] <= session.acknowledged:
            self.granted_at_s = max(self.granted_at_s, self._made.popleft()[1])

    def _decode(self, messages: list[bytes]) -> list[Any]:
        assert self.welcome is not None
        assert self.session is not None
        decoded: list[Any] = []
        for data in messages:
            try:
                decoded.append(MESSAGES.decode(data, self.welcome.message_bytes_max))
            except UnknownMessage as unknown:
                self.session.post(MESSAGES.encode(Unknown(unknown.kind[:64])))
        return decoded

    @property
    def owes(self) -> bool:
        """Whether an acknowledgement is owed: call `flush` again in `acknowledge_s`."""
        return self.is_open and self.session is not None and self.session.owes > 0

    @property
    def acknowledge_s(self) -> float:
        """The seconds until an acknowledgement goes without a message; inf with none owed."""
        return self._patience.wait_s if self.owes else math.inf

    def flush(self, send: Callable[[bytes], bool], mono_s: MonoS) -> bool:
        """Send the frames that may go now; return False when the pipe would not take them all."""
        while True:
            frame = self._stuck or self._next(mono_s)
            if frame is None:
                return True
            self._stuck = frame
            if not send(frame):
                return False
            self._stuck = None
            self._sent_at_s = mono_s

    def _next(self, mono_s: MonoS) -> bytes | None:
        if self._bare:
            return self._bare.pop(0)
        if not self.is_open or self.session is None or self.welcome is None:
            return None
        owed = self.owes and self._patience.is_over(mono_s)
        beat = mono_s - self._sent_at_s >= self.welcome.heartbeat_s
        before = self.session.sent
        frame = self.session.next_frame(acknowledge=owed, beat=beat)
        is_numbered = self.session.sent > before
        if is_numbered:
            self._made.append((self.session.sent, mono_s))
        if frame is not None:
            self._patience.went(mono_s, alone=not is_numbered)
        return frame

    @property
    def heard_at_s(self) -> MonoS:
        """The time of the last frame."""
        return self._hearing.heard_at_s

    def is_silent(self, mono_s: MonoS) -> bool:
        """Whether the other end has been silent for so long that the pipe must be given up."""
        if self.welcome is None:
            return self._hearing.is_silent(mono_s, UNKNOWN_BEAT_S, 0.0)
        return self._hearing.is_silent(mono_s, self.welcome.heartbeat_s, self.welcome.grace_s)
