"""The dialling end of a session, as a task: dial, greet, resume, keep the lease, redial.

A session is only useful while its other side counts on it. After `grace_s` without a frame the
gateway has dropped the session, so this side must drop it by then as well. This side counts from
when it sent the last frame that the gateway has acknowledged, which is never later than the
gateway's start: *receiving* frames does not prove that ours arrive. A session whose lease is over
is never resumed.

The `Correspondent` decides on the messages, and on how to react to silence: a worker's
(gateway.worker.conversation), or that of a gateway that dials another (gateway.sessions.links).
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import Bye, Hello
from federation.sessions.handshake import MESSAGE_BYTES_MAX, Credentials, Dialogue
from federation.sessions.session import Session
from federation.transport import Link

REDIAL_MIN_S: Final = 0.1
REDIAL_MAX_S: Final = 5.0
# A pipe that is not up by then is dialled again, perhaps at another address; the limit doubles each
# time. A listener that is reopened (NngPort.reopen) leaves pipes hanging in mid-handshake.
DIAL_MIN_S: Final = 1.0
DIAL_MAX_S: Final = 10.0
CHECK_S: Final = 0.25
SETTLE_MAX_S: Final = 2.0
PART_MAX: Final = 64  # messages that are handled before other tasks have their turn
_SETTLE_CHECK_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Lapsed:
    """The session is over, even if its other side disagrees; messages in flight are lost."""

    reason: str


class Correspondent(Protocol):
    """The owner of a conversation. All of it is called in the conversation's own thread."""

    def dial(self, on_change: Callable[[], None]) -> Link:
        """Return a new link to the gateway; an exception ends the conversation."""

    def fill(self, dialogue: Dialogue) -> None:
        """Post queued messages; the session has nothing left to send."""

    @property
    def is_empty(self) -> bool:
        """Whether no messages are queued."""

    def hear(self, messages: list[Any]) -> None:
        """Handle messages, Opened and Lapsed among them, in order."""

    def heard_all(self) -> None:
        """Act on the messages: all of those that arrived together have been handled."""

    def refused(self, error: SessionRefused | ProtocolError) -> None:
        """Handle a refusal or malformed answer of the gateway; retry unless this raises."""

    def unanswered(self, for_s: float) -> None:
        """Handle a silence of `for_s` seconds; called again and again, until it raises."""


class Conversation:
    """One session after the other with one gateway.

    Args:
        correspondent: the owner.
        hello: our identity.
        credentials: the proof of it.
        random_bytes: the source of randomness.
        message_bytes_max: the largest message that we accept.
    """

    def __init__(
        self,
        correspondent: Correspondent,
        hello: Hello,
        credentials: Credentials,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._random_bytes = random_bytes
        self._message_bytes_max = message_bytes_max
        self._correspondent = correspondent
        self._hello = hello
        self._credentials = credentials
        self._link: Link | None = None
        self._dialogue = self._new_dialogue()
        self._heard_s = 0.0
        self._dial_s = DIAL_MIN_S
        self._changed = trio.Event()
        self._hurried = trio.Event()
        self._scope = trio.CancelScope()

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

    def flush(self) -> None:
        """Send as much as the session accepts now."""
        dialogue, link = self._dialogue, self._link
        if link is None or link.is_lost:
            return
        session = dialogue.session
        if dialogue.is_open and session is not None and not session.backlog_bytes:
            self._correspondent.fill(dialogue)
        dialogue.flush(link.send, trio.current_time())

    async def settle(self, at_most_s: float = SETTLE_MAX_S) -> None:
        """Wait, for a limited time, until the gateway has acknowledged everything."""
        with trio.move_on_after(at_most_s):
            while self.is_open and not self._is_settled():
                self.flush()
                await trio.sleep(_SETTLE_CHECK_S)

    def _is_settled(self) -> bool:
        session = self._dialogue.session
        return self._correspondent.is_empty and (session is None or session.is_idle)

    # --- the lease -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Check the lease, and send heartbeats."""
        self._check_lease(trio.current_time())
        self.flush()

    def _check_lease(self, now_s: float) -> bool:
        """Whether the session's lease holds; otherwise drop the session."""
        welcome = self._dialogue.welcome
        if welcome is None or now_s - self._dialogue.granted_s <= welcome.grace_s:
            return True
        self.lapse(f"the gateway has acknowledged nothing for {welcome.grace_s:g} s")
        return False

    def lapse(self, reason: str) -> None:
        """Drop the session, and begin a new one."""
        self.start_over()
        self._scope.cancel()
        self._correspondent.hear([Lapsed(reason)])

    def start_over(self) -> None:
        """Forget the session: the next pipe begins a new one."""
        self._dialogue = self._new_dialogue()

    # --- pipes ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Talk to the gateway for ever; raise the correspondent's exceptions."""
        self._token = trio.lowlevel.current_trio_token()
        self._heard_s = trio.current_time()
        wait_s = REDIAL_MIN_S
        while True:
            was_refused = False
            try:
                with trio.CancelScope() as self._scope:
                    await self._talk()
            except (SessionRefused, ProtocolError) as error:
                was_refused = True
                self._correspondent.refused(error)
            finally:
                is_fresh = self._dialogue.is_open
                self._hang_up()
            wait_s = REDIAL_MIN_S if is_fresh else min(2 * wait_s, REDIAL_MAX_S)
            jitter = 0.5 + int.from_bytes(self._random_bytes(4)) / (1 << 32)
            with trio.move_on_after(wait_s * jitter):
                await self._hurried.wait()
            self._hurried = trio.Event()
            if was_refused:  # it has answered: do not count the back-off as silence
                self._heard_s = trio.current_time()

    def hurry(self) -> None:
        """Redial now, unless a pipe is up: the address or the way to dial has changed."""
        if self._link is None or not self._link.is_up:
            self._dial_s = DIAL_MIN_S
            self._scope.cancel()
            self._hurried.set()

    async def _talk(self) -> None:
        """Use one pipe for as long as it lasts."""
        self._link = link = self._correspondent.dial(self._on_change)
        until_s = trio.current_time() + self._dial_s
        self._dial_s = min(2 * self._dial_s, DIAL_MAX_S)
        while not link.is_up:
            if link.is_lost or trio.current_time() > until_s:
                return
            self._correspondent.unanswered(trio.current_time() - self._heard_s)
            await self._wait_for_change()
        self._dial_s = DIAL_MIN_S
        self._dialogue.connected(trio.current_time())
        self.flush()
        failures: list[Exception] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, link, nursery.cancel_scope, failures)
            while not (link.is_lost or self._dialogue.is_silent(trio.current_time())):
                await self._wait_for_change()
            nursery.cancel_scope.cancel()
        for failure in failures:
            raise failure

    async def _receive(
        self, link: Link, scope: trio.CancelScope, failures: list[Exception]
    ) -> None:
        """Receive frames until the pipe is dropped; collect errors caused by the gateway.

        Errors are collected in `failures`, as a nursery would wrap them in a group.
        """
        try:
            await self._take_frames(link)
        except (SessionRefused, ProtocolError) as error:
            failures.append(error)
        scope.cancel()

    async def _take_frames(self, link: Link) -> None:
        while True:
            # An acknowledgement waits briefly for a message to carry it, then is sent alone.
            with trio.move_on_after(self._dialogue.acknowledge_s):
                await trio.lowlevel.wait_readable(link.fileno())
            frames = link.receive()
            now_s = trio.current_time()
            if frames:
                if not self._check_lease(now_s):
                    return
                self._heard_s = now_s
            dialogue = self._dialogue
            for frame in frames:
                messages = dialogue.receive(frame, now_s)
                await self._hear(messages)
                if self._dialogue is not dialogue:
                    return  # the session is over: ignore the rest of this pipe
                if any(isinstance(message, Bye) for message in messages):
                    self.start_over()
                    return
            if frames:
                self._correspondent.heard_all()
            self.flush()

    async def _hear(self, messages: list[Any]) -> None:
        """Handle the messages of one frame in parts, as there may be very many.

        Messages that were received are handled even if the pipe is lost meanwhile, but not if the
        session is over.
        """
        dialogue = self._dialogue
        for at in range(0, len(messages), PART_MAX):
            if at:
                self._correspondent.heard_all()
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
                if self._dialogue is not dialogue:
                    return
            self._correspondent.hear(messages[at : at + PART_MAX])

    async def _wait_for_change(self) -> None:
        with trio.move_on_after(CHECK_S):
            await self._changed.wait()
        self._changed = trio.Event()

    def _on_change(self) -> None:
        """Note that a pipe came up or was lost; called from a thread of nng's."""
        try:
            self._token.run_sync_soon(self._note_change)
        except trio.RunFinishedError:
            return

    def _note_change(self) -> None:
        self._changed.set()

    def _hang_up(self) -> None:
        self._dialogue.lost()
        if self._link is not None:
            self._link.close()
            self._link = None
