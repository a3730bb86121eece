"""The agent's end of its conversation with a gateway: reports gather while the gateway is busy.

The lease (gateway.conversation): tasks are this worker's only while the gateway can count on it.
When it lapses the gateway places them elsewhere, so the agent stops them by itself.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

import trio

from federation.address import check_bearer
from federation.errors import GatewayUnreachable, ProtocolError, SessionRefused
from federation.handshake import Credentials, Dialogue
from federation.messages import Hello, Report
from federation.nng import NngLink, explain_silence
from federation.transport import TlsSettings
from gateway.conversation import Conversation
from gateway.worker.outbox import Outbox

UNHEARD_S: Final = 5.0  # after so long without a gateway people are told
STAYS_S: Final = 5.0  # who is let in for so long is not put out again at once
# Refusals that will be the same tomorrow; the others are tried again.
FINAL_REFUSALS: Final = frozenset(
    {
        *("version", "secret", "role", "name", "nonce", "impostor"),
        *("token", "scope", "altered", "bad-signature", "expired", "revoked"),
        *("pass", "wrong-federation", "wrong-site", "unknown-site"),
    }
)
MESSAGE_BYTES_MAX: Final = 64 << 20
# A report holds a few small results, texts and prints beside the largest result there can be.
REPORT_SLACK_BYTES: Final = 512 << 10
REPORT_FIELDS_BYTES: Final = 1024  # of a report, beside what is in it
PULSE_S: Final = 2.0


class WorkerConversation:
    """One worker's sessions with one gateway; see gateway.conversation.Correspondent.

    Args:
        address: the gateway's.
        tls: files for tls+tcp.
        credentials: how we prove that we may come in.
        hello: who we are.
        give_up_s: how long to look for a gateway that lets us in; 0 for ever.
        hear: takes messages, Opened and Lapsed among them, in order.
        say: tells people.
    """

    def __init__(
        self,
        *,
        address: str,
        tls: TlsSettings,
        credentials: Credentials,
        hello: Hello,
        give_up_s: float,
        hear: Callable[[list[Any]], None],
        say: Callable[[str], None],
    ) -> None:
        self._address = address
        self._bears_token = "token" in hello.about
        self._tls = tls
        self._give_up_s = give_up_s
        self._say = say
        self._outbox = Outbox()
        self._was_told = False
        self._conversation = Conversation(self, hello, credentials)
        self.hear = hear
        self.run = self._conversation.run
        self.flush = self._conversation.flush
        self.settle = self._conversation.settle
        self._last_refusal = ""
        self._refused_s: float | None = None  # since when it is refused again and again
        self._closed_s = 0.0  # when there was last no session

    def tick(self) -> None:
        """Keep the lease, and send heartbeats."""
        now_s = trio.current_time()
        if not self.is_open:
            self._closed_s = now_s
        elif now_s - self._closed_s > STAYS_S:
            self._refused_s = None
        self._conversation.tick()

    @property
    def is_open(self) -> bool:
        """Whether there is a session on a pipe now."""
        return self._conversation.is_open

    @property
    def result_bytes_max(self) -> int:
        """The largest result that a report to the gateway has room for."""
        bytes_max = self._conversation.message_bytes_max or MESSAGE_BYTES_MAX
        return max(bytes_max - REPORT_SLACK_BYTES, bytes_max // 2)

    @property
    def part_bytes_max(self) -> int:
        """The largest report of a slot that one to the gateway has room for, with its fields."""
        return (self._conversation.message_bytes_max or MESSAGE_BYTES_MAX) - REPORT_FIELDS_BYTES

    @property
    def pulse_s(self) -> float:
        """How often to say something that is acknowledged: the lease counts from that."""
        return min(PULSE_S, self._conversation.heartbeat_s)

    def post(self, message: Any) -> None:
        """Queue a message for the gateway; `flush` sends it."""
        self._outbox.add(message)

    def post_report(self, report: Report) -> None:
        """Queue a report; one that waits may take it in."""
        self._outbox.add_report(report)

    def forget(self) -> None:
        """What has not been sent is of no interest any more."""
        self._outbox.take()

    # --- what the conversation asks ------------------------------------------------------------

    def heard_all(self) -> None:
        """Nothing is put off until then."""

    def dial(self, on_change: Callable[[], None]) -> NngLink:
        """A new link; AddressError when nobody can dial that address, or not with a token."""
        if self._bears_token:
            check_bearer(self._address)
        return NngLink(self._address, on_change, self._tls)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._outbox

    def fill(self, dialogue: Dialogue) -> None:
        """Post what waits."""
        for message in self._outbox.take():
            dialogue.post(message)

    def refused(self, error: SessionRefused | ProtocolError) -> None:
        """Tell people; raise what will be the same tomorrow, or has been for long enough."""
        now_s = trio.current_time()
        if self._refused_s is None:
            self._refused_s = now_s
        if self._give_up_s and now_s - self._refused_s > self._give_up_s:
            raise error
        if isinstance(error, ProtocolError):
            self._say(f"hangs up: {error}")
        elif error.code in FINAL_REFUSALS:
            raise error
        else:
            self._say_once(f"is refused, and goes on trying: {error}")

    def _say_once(self, refusal: str) -> None:
        if refusal != self._last_refusal:
            self._last_refusal = refusal
            self._say(refusal)

    def unanswered(self, for_s: float) -> None:
        """Tell people after a while; GatewayUnreachable when it has been long enough."""
        if self._give_up_s and for_s > self._give_up_s:
            raise GatewayUnreachable(
                f"no gateway answered at {self._address} for {self._give_up_s:g} s"
            )
        if for_s <= UNHEARD_S:
            self._was_told = False
        elif not self._was_told:
            self._was_told = True
            # To look takes a moment, in which the agent must not stand still.
            threading.Thread(target=self._explain, name="gridfed-explain", daemon=True).start()

    def _explain(self) -> None:
        why = explain_silence(self._address)
        self._say(f"finds no gateway at {self._address}, and goes on trying: {why}")
