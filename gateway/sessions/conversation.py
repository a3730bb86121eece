"""The dialling end of a session, as a state machine: dial, greet, resume, keep the lease, redial.

Pure: the driver calls `step` when something has happened or is due, and the `Correspondent` opens
the pipes. gateway.sessions.driving drives it under trio, simulations.world.driving in virtual time.

    link has frames, came up or was lost ─┐              ┌─► correspondent.dial · hear · refused
    wake() ───────────────────────────────┼─► step(now) ─┤
    the time that the last step returned ─┘              └─► the time of the next step

A session is only useful while its other side counts on it. After `grace_s` without a frame the
gateway has dropped the session, so this side must drop it by then as well. This side counts from
when it sent the last frame that the gateway has acknowledged, which is never later than the
gateway's start: *receiving* frames does not prove that ours arrive. A session whose lease is over
is never resumed.

The `Correspondent` decides on the messages, and on how to react to silence: a worker's
(gateway.worker.conversation), or that of a gateway that dials another (gateway.sessions.links).
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from federation.clocks import MonoS
from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import Bye, Hello
from federation.sessions.handshake import MESSAGE_BYTES_MAX, Credentials, Dialogue
from federation.sessions.session import Session
from federation.transport import Link
from federation.words import duration_text

REDIAL_MIN_S: Final = 0.1
REDIAL_MAX_S: Final = 5.0
# A pipe that is not up by then is dialled again, perhaps at another address; the limit doubles each
# time. A listener that is reopened (NngPort.reopen) leaves pipes hanging in mid-handshake.
DIAL_MIN_S: Final = 1.0
DIAL_MAX_S: Final = 10.0
CHECK_S: Final = 0.25
SETTLE_MAX_S: Final = 2.0
PART_MAX: Final = 64  # messages that one step handles


@dataclass(frozen=True, slots=True)
class Lapsed:
    """The session is over, even if its other side disagrees; messages in flight are lost."""

    reason: str


class Outgoing(Protocol):
    """The messages that wait until the session has room for them."""

    def fill(self, dialogue: Dialogue) -> None:
        """Post queued messages; the session has nothing left to send."""

    @property
    def is_empty(self) -> bool:
        """Whether no messages are queued."""


class Correspondent(Protocol):
    """The owner of a conversation. All of it is called by the conversation, in `step`."""

    def dial(self, on_change: Callable[[], None]) -> Link | None:
        """Return a new link to the gateway, or None after a `stop`.

        `on_change` may be called in any thread. SessionRefused counts as a refusal by the gateway;
        another exception ends the conversation.
        """

    def hear(self, messages: list[Any]) -> None:
        """Handle messages, Opened and Lapsed among them, in order."""

    def heard_all(self) -> None:
        """Act on the messages: all of those that arrived together have been handled."""

    def refused(self, error: SessionRefused | ProtocolError) -> None:
        """Handle a refusal or malformed answer of the gateway; retry unless this raises."""

    def unanswered(self, for_s: float) -> None:
        """Handle a silence of `for_s` seconds; called again and again, until it raises."""


class Conversation:
    """One session after the other with one gateway. Times are of any monotonic clock.

    Args:
        correspondent: the owner.
        outgoing: its messages; posted as the session has room for them.
        hello: our identity.
        credentials: the proof of it.
        random_bytes: the source of randomness.
        message_bytes_max: the largest message that we accept.

    Attributes:
        on_wake: asks the driver for a step soon; set by the driver. Called in any thread.
        is_over: nothing is left to do: `step` is not called any more.
    """

    def __init__(
        self,
        correspondent: Correspondent,
        outgoing: Outgoing,
        hello: Hello,
        credentials: Credentials,
        random_bytes: Callable[[int], bytes],
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._random_bytes = random_bytes
        self._message_bytes_max = message_bytes_max
        self._correspondent = correspondent
        self._outgoing = outgoing
        self._hello = hello
        self._credentials = credentials
        self.on_wake: Callable[[], None] = lambda: None
        self.is_over = False
        self.link: Link | None = None
        self._is_greeted = False
        self._is_stale = False  # the pipe belongs to a session that is over
        self._is_hurried = False
        self._dialogue = self._new_dialogue()
        self._frames: deque[bytes] = deque()  # taken from the pipe, and not opened yet
        self._messages: list[Any] = []  # of the last frame, not handled yet
        self._says_bye = False  # one of them ends the session
        self._heard_at_s: MonoS | None = None  # the last frame; the first step before any
        self._was_refused = False
        self._dial_s = DIAL_MIN_S
        self._until_s = MonoS(0.0)  # a pipe that is not up by then is given up
        self._wait_s = REDIAL_MIN_S
        self._redial_at_s = MonoS(-math.inf)
        self._not_before_s = MonoS(-math.inf)
        self._leaves_at_s = MonoS(math.inf)

    def _new_dialogue(self) -> Dialogue:
        return Dialogue(
            hello=self._hello,
            credentials=self._credentials,
            random_bytes=self._random_bytes,
            message_bytes_max=self._message_bytes_max,
        )

    @property
    def is_open(self) -> bool:
        """Whether there is a session on a pipe now."""
        return self._dialogue.is_open

    @property
    def session(self) -> Session | None:
        """The session, also while its pipe is lost."""
        return self._dialogue.session

    @property
    def message_bytes_max(self) -> int | None:
        """The largest message that the gateway accepts; None before its Welcome."""
        welcome = self._dialogue.welcome
        return welcome.message_bytes_max if welcome else None

    @property
    def heartbeat_s(self) -> float:
        """The interval at which the gateway expects heartbeats; inf before its Welcome."""
        welcome = self._dialogue.welcome
        return welcome.heartbeat_s if welcome else math.inf

    @property
    def is_settled(self) -> bool:
        """Whether the gateway has acknowledged everything, or can't any more."""
        session = self._dialogue.session
        is_idle = self._outgoing.is_empty and (session is None or session.is_idle)
        return is_idle or not self.is_open

    # --- requests ------------------------------------------------------------------------------

    def flush(self, mono_s: MonoS) -> None:
        """Send as much as the session accepts now."""
        dialogue, link = self._dialogue, self.link
        if link is None or link.is_lost:
            return
        session = dialogue.session
        if dialogue.is_open and session is not None and not session.backlog_bytes:
            self._outgoing.fill(dialogue)
        dialogue.flush(link.send, mono_s)

    def tick(self, mono_s: MonoS) -> None:
        """Check the lease, and send heartbeats."""
        self._check_lease(mono_s)
        self.flush(mono_s)

    def _check_lease(self, mono_s: MonoS) -> bool:
        """Whether the session's lease holds; otherwise drop the session."""
        welcome = self._dialogue.welcome
        if welcome is None or mono_s - self._dialogue.granted_at_s <= welcome.grace_s:
            return True
        self.lapse(f"no acknowledgement from the gateway for {duration_text(welcome.grace_s)}")
        return False

    def lapse(self, reason: str) -> None:
        """Drop the session, and begin a new one."""
        self.start_over()
        self._correspondent.hear([Lapsed(reason)])

    def start_over(self) -> None:
        """Forget the session and its pipe: the next pipe begins a new one."""
        self._dialogue = self._new_dialogue()
        self._frames.clear()
        self._messages = []
        if self.link is not None:
            self._is_stale = True
            self.on_wake()

    def hurry(self) -> None:
        """Redial now, unless a pipe is up: the address or the way to dial has changed."""
        if self.link is None or not self.link.is_up:
            self._dial_s = DIAL_MIN_S
            self._is_hurried = True
            self.on_wake()

    def put_off(self, until_s: MonoS) -> None:
        """Do not dial before that time, not even in a hurry."""
        self._not_before_s = until_s

    def leave(self, mono_s: MonoS) -> None:
        """Stop when the gateway has acknowledged everything, after SETTLE_MAX_S at the latest."""
        self._leaves_at_s = min(self._leaves_at_s, mono_s + SETTLE_MAX_S)
        self.flush(mono_s)
        self.on_wake()

    def stop(self) -> None:
        """Stop at the next step."""
        self._leaves_at_s = MonoS(-math.inf)
        self.on_wake()

    def close(self) -> None:
        """Stop now: close the pipe. Idempotent."""
        self.is_over = True
        self._close_link()

    # --- steps ---------------------------------------------------------------------------------

    def step(self, mono_s: MonoS) -> MonoS:
        """Do what is due; return when the next step is due at the latest, inf for never.

        Raises the correspondent's exceptions, which end the conversation.
        """
        if self._heard_at_s is None:
            self._heard_at_s = mono_s
        try:
            self._advance(mono_s)
        except (SessionRefused, ProtocolError) as error:
            self._was_refused = True
            self._correspondent.refused(error)
            self._hang_up(mono_s)
        if self._is_leaving(mono_s):
            self.close()
        return self._due_at_s(mono_s)

    def _advance(self, mono_s: MonoS) -> None:
        if self._is_leaving(mono_s):
            return
        if self._is_stale or self._is_hurried:
            self._hang_up(mono_s)
        if self._is_hurried:
            self._is_hurried = False
            self._redial_at_s = mono_s
        if self.link is None:
            self._dial(mono_s)
        link = self.link
        if link is None or not (self._is_greeted or self._greet(link, mono_s)):
            return
        self._receive(link, mono_s)
        if self._messages or self._frames:
            return  # the rest is handled by the next step, after other tasks had their turn
        self.flush(mono_s)
        if self._is_stale or link.is_lost or self._dialogue.is_silent(mono_s):
            self._hang_up(mono_s)

    def _is_leaving(self, mono_s: MonoS) -> bool:
        return mono_s >= self._leaves_at_s or (
            self._leaves_at_s < MonoS(math.inf) and self.is_settled
        )

    def _due_at_s(self, mono_s: MonoS) -> MonoS:
        if self.is_over:
            return MonoS(math.inf)
        if self._messages or self._frames or self._is_stale:
            return mono_s
        if self.link is None:
            return min(max(self._redial_at_s, self._not_before_s), self._leaves_at_s)
        # An acknowledgement waits briefly for a message to carry it, then is sent alone.
        return min(mono_s + min(CHECK_S, self._dialogue.acknowledge_s), self._leaves_at_s)

    # --- pipes ---------------------------------------------------------------------------------

    def _dial(self, mono_s: MonoS) -> None:
        if mono_s < max(self._redial_at_s, self._not_before_s):
            return
        if self._was_refused:  # it has answered: do not count the back-off as silence
            self._was_refused = False
            self._heard_at_s = mono_s
        self.link = self._correspondent.dial(lambda: self.on_wake())
        self._until_s = mono_s + self._dial_s
        self._dial_s = min(2 * self._dial_s, DIAL_MAX_S)

    def _greet(self, link: Link, mono_s: MonoS) -> bool:
        """Greet on a pipe that is up; False if it is not, and give it up after a while."""
        if link.is_up:
            self._is_greeted = True
            self._dial_s = DIAL_MIN_S
            self._dialogue.connected(mono_s)
            return True
        # Also of a dial that failed: where each one fails at once, nothing else would be told.
        self._correspondent.unanswered(mono_s - (self._heard_at_s or MonoS(0.0)))
        if self.link is link and (link.is_lost or mono_s > self._until_s):
            self._hang_up(mono_s)
        return False

    def _receive(self, link: Link, mono_s: MonoS) -> None:
        """Handle the messages that have arrived, as many as one step may.

        Messages that were received are handled even if the pipe is lost meanwhile, but not if the
        session is over.
        """
        arrived = link.receive()
        if arrived:
            if not self._check_lease(mono_s):
                return
            self._heard_at_s = mono_s
            self._frames.extend(arrived)
        if not (self._messages or self._frames):
            return
        room = PART_MAX
        while room > 0 and (self._messages or self._frames):
            if not self._messages:
                self._messages = self._dialogue.receive(self._frames.popleft(), mono_s)
                self._says_bye = any(isinstance(message, Bye) for message in self._messages)
            part, self._messages = self._messages[:room], self._messages[room:]
            room -= len(part)
            if part:
                self._correspondent.hear(part)
            if self._says_bye and not self._messages:
                self._says_bye = False
                self.start_over()
        self._correspondent.heard_all()

    def _hang_up(self, mono_s: MonoS) -> None:
        """Give up the pipe, and dial again later."""
        is_fresh = self._dialogue.is_open
        self._close_link()
        self._wait_s = REDIAL_MIN_S if is_fresh else min(2 * self._wait_s, REDIAL_MAX_S)
        jitter = 0.5 + int.from_bytes(self._random_bytes(4)) / (1 << 32)
        self._redial_at_s = mono_s + self._wait_s * jitter

    def _close_link(self) -> None:
        self._is_greeted = self._is_stale = False
        self._frames.clear()
        self._messages = []
        self._dialogue.lost()
        link, self.link = self.link, None
        if link is not None:
            link.close()
