"""The agent's end of its conversation with a gateway: dials it, and keeps the lease.

The lease (gateway.sessions.conversation): tasks belong to this worker only while the gateway can
count on it. When the lease lapses the gateway places the tasks elsewhere, so the agent stops them
by itself.
"""

import secrets
import threading
from collections.abc import Callable
from typing import Any, Final

from federation.address import check_bearer, resolve
from federation.clocks import MonoS
from federation.errors import GatewayUnreachable, ProtocolError, SessionRefused
from federation.messages.messages import Hello
from federation.sessions.handshake import Credentials
from federation.sessions.nng import NngLink, explain_silence
from federation.transport import TlsSettings
from federation.words import duration_text
from gateway.base.clocks import mono_now
from gateway.sessions.conversation import SETTLE_MAX_S, Conversation
from gateway.sessions.driving import drive, settle
from gateway.worker.outbox import WorkerOutbox

UNHEARD_S: Final = 5.0  # after this time without a gateway the user is told
STAYS_S: Final = 5.0  # after this time in a session, a refusal counts as a new one
# Permanent refusals; all others are retried.
FINAL_REFUSALS: Final = frozenset(
    {
        *("version", "secret", "role", "name", "nonce", "impostor"),
        *("token", "scope", "altered", "bad-signature", "expired", "revoked"),
        *("pass", "wrong-federation", "wrong-site", "unknown-site"),
    }
)
MESSAGE_BYTES_MAX: Final = 64 << 20
# A report holds a few small results, texts and prints beside the largest possible result.
REPORT_SLACK_BYTES: Final = 512 << 10
REPORT_FIELDS_BYTES: Final = 1024  # of a report, beside its contents
PULSE_S: Final = 2.0


class WorkerConversation:
    """The sessions of one worker with one gateway; see gateway.sessions.conversation.Correspondent.

    Args:
        address: the gateway's. Several, separated by commas, are gateways of one site, one of which
            works at a time: a dial that leads to no session is followed by one of the next.
        tls: files for tls+tcp.
        credentials: prove our identity to the gateway.
        hello: describes this worker.
        outbox: the agent's messages for the gateway; `flush` sends them.
        give_up_s: how long to try to get a session with a gateway; 0 for ever.
        hear: takes messages, Opened and Lapsed among them, in order.
        say: reports to the user.
    """

    def __init__(
        self,
        *,
        address: str,
        tls: TlsSettings,
        credentials: Credentials,
        hello: Hello,
        outbox: WorkerOutbox,
        give_up_s: float,
        hear: Callable[[list[Any]], None],
        say: Callable[[str], None],
    ) -> None:
        self._addresses, _ = resolve(address)
        self._tried = 0  # dials since a session that led to none
        self._bears_token = "token" in hello.about
        self._tls = tls
        self._give_up_s = give_up_s
        self._say = say
        self._was_told = False
        self._silent: set[str] = set()  # addresses dialled in vain since any answered
        self._conversation = Conversation(self, outbox, hello, credentials, secrets.token_bytes)
        self.hear = hear
        self._last_refusal = ""
        self._refused_at_s: MonoS | None = None  # start of the current run of refusals
        self._closed_at_s = MonoS(0.0)  # the last time without a session

    async def run(self) -> None:
        """Talk to the gateway for ever; raise the reason for giving up."""
        await drive(self._conversation)

    async def settle(self, at_most_s: float = SETTLE_MAX_S) -> None:
        """Wait, for a limited time, until the gateway has acknowledged everything."""
        await settle(self._conversation, at_most_s)

    def flush(self) -> None:
        """Send as much as the session accepts now."""
        self._conversation.flush(mono_now())

    def tick(self) -> None:
        """Keep the lease, and send heartbeats."""
        mono_s = mono_now()
        if not self.is_open:
            self._closed_at_s = mono_s
        else:
            if self._tried:  # the one that let us in is dialled first when this session is lost
                turn = self._addresses.index(self.address)
                self._addresses = self._addresses[turn:] + self._addresses[:turn]
                self._tried = 0
            self._silent.clear()
            if mono_s - self._closed_at_s > STAYS_S:
                self._refused_at_s = None
        self._conversation.tick(mono_s)

    @property
    def is_open(self) -> bool:
        """Whether there is a session on a pipe now."""
        return self._conversation.is_open

    @property
    def address(self) -> str:
        """The address of the last dial, where the session is."""
        return self._addresses[max(0, self._tried - 1) % len(self._addresses)]

    @property
    def result_bytes_max(self) -> int:
        """The largest result that a report to the gateway has room for."""
        bytes_max = self._conversation.message_bytes_max or MESSAGE_BYTES_MAX
        return max(bytes_max - REPORT_SLACK_BYTES, bytes_max // 2)

    @property
    def part_bytes_max(self) -> int:
        """The largest report of a slot that fits into one to the gateway, with its fields."""
        return (self._conversation.message_bytes_max or MESSAGE_BYTES_MAX) - REPORT_FIELDS_BYTES

    @property
    def pulse_s(self) -> float:
        """The interval of pulses: they are acknowledged, which renews the lease."""
        return min(PULSE_S, self._conversation.heartbeat_s)

    # --- callbacks of the conversation ---------------------------------------------------------

    def heard_all(self) -> None:
        """Do nothing: no message is deferred until all are received."""

    def dial(self, on_change: Callable[[], None]) -> NngLink:
        """Return a new link. Raises AddressError if it can't be dialled, or not with a token."""
        self._tried += 1
        address = self.address
        if self._bears_token:
            check_bearer(address)
        # Where nobody listens the next one is tried at once.
        return NngLink(address, on_change, self._tls, once=len(self._addresses) > 1)

    def refused(self, error: SessionRefused | ProtocolError) -> None:
        """Tell the user; raise a permanent refusal, or one that has lasted too long."""
        mono_s = mono_now()
        self._silent.clear()
        if self._refused_at_s is None:
            self._refused_at_s = mono_s
        if self._give_up_s and mono_s - self._refused_at_s > self._give_up_s:
            raise error
        if isinstance(error, ProtocolError):
            self._say(f"closed the connection: {error}")
        elif error.code in FINAL_REFUSALS:
            raise error
        else:
            self._say_once(f"was refused by the gateway, retrying: {error}")

    def _say_once(self, refusal: str) -> None:
        if refusal != self._last_refusal:
            self._last_refusal = refusal
            self._say(refusal)

    def unanswered(self, for_s: float) -> None:
        """Tell the user after a while; raise GatewayUnreachable after `give_up_s`."""
        if self._give_up_s and for_s > self._give_up_s:
            where = " or ".join(self._addresses)
            raise GatewayUnreachable(
                f"no gateway answered at {where} for {duration_text(self._give_up_s)}"
            )
        self._silent.add(self.address)
        if for_s <= UNHEARD_S:
            self._was_told = False
        elif not self._was_told:
            self._was_told = True
            silent = [each for each in self._addresses if each in self._silent]
            # The explanation takes a moment, and must not block the agent.
            threading.Thread(
                target=self._explain, args=(silent,), name="gridfed-explain", daemon=True
            ).start()

    def _explain(self, silent: list[str]) -> None:
        for address in silent:
            why = explain_silence(address)
            self._say(f"can't reach a gateway at {address}, retrying: {why}")
