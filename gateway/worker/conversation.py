"""The agent's end of its conversation with a gateway: dial, greet, resume, and keep the lease.

The lease: tasks are this worker's only while the gateway can count on it. When nothing has been
heard for the session's `grace_s` the gateway places them elsewhere, so by then the agent must
have stopped them by itself. It counts from the last frame that arrived, which is never later
than where the gateway counts from. A session whose lease is over is never resumed.
"""

import math
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import trio

from federation.errors import GatewayUnreachable, ProtocolError, SessionRefused
from federation.handshake import ACKNOWLEDGE_S, Dialogue
from federation.messages import Bye, Hello, Report
from federation.nng import NngLink, explain_silence
from federation.transport import TlsSettings
from gateway.worker.outbox import Outbox

REDIAL_MIN_S: Final = 0.1
REDIAL_MAX_S: Final = 5.0
CHECK_S: Final = 0.25
UNHEARD_S: Final = 5.0  # after so long without a gateway people are told
SETTLE_MAX_S: Final = 2.0
# Refusals that will be the same tomorrow; the others are tried again.
FINAL_REFUSALS: Final = frozenset({"version", "secret", "role", "name", "nonce", "impostor"})
MESSAGE_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Lapsed:
    """The session is over, whatever its other side thinks: its tasks are not ours any more."""

    reason: str


class Conversation:
    """One worker's session after the other with one gateway.

    Args:
        address: the gateway's.
        tls: files for tls+tcp.
        secret: the shared secret; empty without one.
        hello: who we are.
        give_up_s: how long to look for a gateway; 0 for ever.
        hear: takes messages, Opened and Lapsed among them, in order.
        say: tells people.
    """

    def __init__(
        self,
        *,
        address: str,
        tls: TlsSettings,
        secret: str,
        hello: Hello,
        give_up_s: float,
        hear: Callable[[list[Any]], None],
        say: Callable[[str], None],
    ) -> None:
        self._address = address
        self._tls = tls
        self._secret = secret
        self._hello = hello
        self._give_up_s = give_up_s
        self._hear = hear
        self._say = say
        self._outbox = Outbox()
        self._link: NngLink | None = None
        self._dialogue = self._new_dialogue()
        self._heard_s = time.monotonic()
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self._was_told = False
        self._last_refusal = ""

    def _new_dialogue(self) -> Dialogue:
        return Dialogue(hello=self._hello, secret=self._secret, random_bytes=secrets.token_bytes)

    @property
    def is_open(self) -> bool:
        """Whether there is a session on a pipe now."""
        return self._dialogue.is_open

    @property
    def message_bytes_max(self) -> int:
        """The largest message that the gateway takes."""
        welcome = self._dialogue.welcome
        return welcome.message_bytes_max if welcome else MESSAGE_BYTES_MAX

    # --- what goes out -------------------------------------------------------------------------

    def post(self, message: Any) -> None:
        """Queue a message for the gateway; `flush` sends it."""
        self._outbox.add(message)

    def post_report(self, report: Report) -> None:
        """Queue a report; one that waits may take it in."""
        self._outbox.add_report(report)

    def forget(self) -> None:
        """What has not been sent is of no interest any more."""
        self._outbox.take()

    def flush(self) -> None:
        """Send what the session takes now."""
        dialogue, link = self._dialogue, self._link
        if link is None or link.is_lost:
            return
        session = dialogue.session
        if dialogue.is_open and session is not None and not session.backlog_bytes:
            for message in self._outbox.take():
                dialogue.post(message)
        dialogue.flush(link.send, time.monotonic())

    async def settle(self) -> None:
        """Wait, not for long, until the gateway has had everything."""
        with trio.move_on_after(SETTLE_MAX_S):
            while self.is_open and not self._is_settled():
                self.flush()
                await trio.sleep(0.005)

    def _is_settled(self) -> bool:
        session = self._dialogue.session
        return not self._outbox and (session is None or session.is_idle)

    # --- the lease -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Keep the lease, and send heartbeats."""
        self._check_lease(time.monotonic())
        self.flush()

    def _check_lease(self, now_s: float) -> bool:
        """Whether the session's lease holds; otherwise the session is over."""
        welcome = self._dialogue.welcome
        if welcome is None or now_s - self._heard_s <= welcome.grace_s:
            return True
        self._lapse(f"nothing was heard from the gateway for {welcome.grace_s:g} s")
        return False

    def _lapse(self, reason: str) -> None:
        self._dialogue = self._new_dialogue()
        self._scope.cancel()
        self._hear([Lapsed(reason)])

    # --- pipes ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Talk to the gateway for ever.

        Raises:
            GatewayUnreachable: there is none for `give_up_s`.
            SessionRefused: it will never let us in.
            AddressError: nobody can dial that address.
        """
        self._token = trio.lowlevel.current_trio_token()
        wait_s = REDIAL_MIN_S
        while True:
            try:
                with trio.CancelScope() as self._scope:
                    await self._talk()
            except SessionRefused as refusal:
                if refusal.code in FINAL_REFUSALS:
                    raise
                if str(refusal) != self._last_refusal:
                    self._last_refusal = str(refusal)
                    self._say(f"is refused, and goes on trying: {refusal}")
                self._dialogue.lost()  # we were in for a moment: no reason to hurry
            except ProtocolError as error:
                self._say(f"hangs up: {error}")
            finally:
                is_fresh = self._dialogue.is_open
                self._hang_up()
            wait_s = REDIAL_MIN_S if is_fresh else min(2 * wait_s, REDIAL_MAX_S)
            await trio.sleep(wait_s * random.uniform(0.5, 1.5))  # noqa: S311 - jitter

    async def _talk(self) -> None:
        """Hold one pipe for as long as it lasts."""
        self._link = link = NngLink(self._address, self._on_change, self._tls)
        while not link.is_up:
            if link.is_lost:
                return
            await self._give_up_in_time()
            await self._wait_for_change()
        self._dialogue.connected(time.monotonic())
        self.flush()
        failures: list[Exception] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, link, nursery.cancel_scope, failures)
            while not (link.is_lost or self._dialogue.is_silent(time.monotonic())):
                await self._wait_for_change()
            nursery.cancel_scope.cancel()
        for failure in failures:
            raise failure

    async def _receive(
        self, link: NngLink, scope: trio.CancelScope, failures: list[Exception]
    ) -> None:
        """Take frames until the pipe is given up; why, if it is the gateway's doing.

        What went wrong is handed over, for a nursery would wrap it up in a group.
        """
        try:
            await self._take_frames(link)
        except (SessionRefused, ProtocolError) as error:
            failures.append(error)
        scope.cancel()

    async def _take_frames(self, link: NngLink) -> None:
        while True:
            # An acknowledgement waits a moment for a report to ride on, and goes alone then.
            with trio.move_on_after(ACKNOWLEDGE_S if self._dialogue.owes else math.inf):
                await trio.lowlevel.wait_readable(link.fileno())
            frames = link.receive()
            now_s = time.monotonic()
            if frames:
                if not self._check_lease(now_s):
                    return
                self._heard_s = now_s
                self._was_told = False
            for frame in frames:
                messages = self._dialogue.receive(frame, now_s)
                self._hear(messages)
                if any(isinstance(message, Bye) for message in messages):
                    self._dialogue = self._new_dialogue()
                    return
            self.flush()

    async def _give_up_in_time(self) -> None:
        lonely_s = time.monotonic() - self._heard_s
        if self._give_up_s and lonely_s > self._give_up_s:
            raise GatewayUnreachable(
                f"no gateway answered at {self._address} for {self._give_up_s:g} s"
            )
        if lonely_s > UNHEARD_S and not self._was_told:
            self._was_told = True
            why = await trio.to_thread.run_sync(explain_silence, self._address)
            self._say(f"finds no gateway at {self._address}, and goes on trying: {why}")

    async def _wait_for_change(self) -> None:
        with trio.move_on_after(CHECK_S):
            await self._changed.wait()
        self._changed = trio.Event()

    def _on_change(self) -> None:
        """From a thread of nng's: a pipe came up, or is gone."""
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
