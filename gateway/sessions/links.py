"""The sessions by which this site dials others: one per site, on demand, in each direction. Pure.

    post ──► queue ──► session ──► the other site's listener
             LinkUp · LinkSaid · LinkDown ◄── results, in order

The guarantee: between two LinkDowns (or the beginning and the first), messages posted to a site
arrive there in order (within their lane) and exactly once, and so do its messages to us. At a
LinkDown all messages in flight or queued may be lost; the sender must send them again if needed. A
LinkUp that `resumed` continues after a lost pipe, and nothing was lost.

A link is dialled when a message is posted, or for as long as `keep` names its site. It ends with a
LinkDown when the site is out of reach for `give_up_s`, refuses us, breaks the protocol, says
goodbye, has begun a new life, or may no longer be dialled; when its queue is too large; and when it
was idle for `idle_s` and is not kept. A kept site is dialled again without end; one that breaks the
protocol is dialled with exponential back-off (gateway.sessions.penalties).

The `Driver` lends clock and chance, and drives the conversations: gateway.sessions.driving under
trio, simulations.world.driving in virtual time.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Protocol

from federation.clocks import MonoS
from federation.errors import GridError, ProtocolError, SessionRefused
from federation.messages.messages import MESSAGES, Bye, Hello, Unknown
from federation.sessions.handshake import PASSING_REFUSALS, Credentials, Dialogue, Opened
from federation.transport import Link
from federation.words import duration_text
from gateway.sessions.conversation import Conversation, Lapsed
from gateway.sessions.penalties import Penalties

TICK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A session with a site is open. Unless it `resumed`, the site has no earlier messages."""

    site: str
    resumed: bool


@dataclass(frozen=True, slots=True)
class LinkSaid:
    """A message from a site on the session by which we dialled it."""

    site: str
    message: Any


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The session with a site ended or failed to open; queued messages are dropped."""

    site: str
    reason: str
    is_idle: bool = False  # closed by us for lack of use: nothing was lost


@dataclass(frozen=True, slots=True)
class LinkSilent:
    """A site has not answered for `give_up_s`; repeated each time, for diagnosis."""

    site: str


@dataclass(frozen=True, slots=True)
class ApprovalEnded:
    """A site is approved no more: expelled, or it has left. Its sessions are about to end."""

    site: str
    reason: str


LinkNews = LinkUp | LinkSaid | LinkDown | LinkSilent | ApprovalEnded


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Limits that gateway.config.federation reads as settings."""

    queue_bytes: int = 64 << 20
    give_up_s: float = 30.0
    idle_s: float = 60.0
    message_bytes_max: int = 64 << 20


class Directory(Protocol):
    """How sites are dialled; gateway.peering.peers implements it by the trust book, and tests
    otherwise."""

    def may_dial(self, site: str) -> bool:
        """Whether that site may be dialled at all."""

    def hello(self) -> Hello:
        """Return the hello that identifies us."""

    def credentials(self, site: str) -> Credentials:
        """Return the credentials by which we and that site authenticate each other."""

    def dial(self, site: str, attempt: int, on_change: Callable[[], None]) -> Link:
        """Open a link to one of the site's addresses, another at each attempt; GridError."""


class Driver(Protocol):
    """What links need of the world outside: time, chance, and steps of their conversations."""

    def mono_s(self) -> MonoS:
        """Return the time of a monotonic clock."""

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes."""

    def start(self, conversation: Conversation) -> None:
        """Call the conversation's `step` from now on, as it asks for, until it is over."""


class PeerLinks:
    """The sessions that we dial.

    Args:
        directory: how sites are dialled.
        limits: see LinkLimits.
        driver: see Driver.
        tell: receives news; it may call `post`, and `flush` after that.
        heard_all: called after all the news of data that arrived together.
    """

    def __init__(
        self,
        directory: Directory,
        limits: LinkLimits,
        driver: Driver,
        tell: Callable[[LinkNews], None],
        heard_all: Callable[[], None] = lambda: None,
    ) -> None:
        self.directory: Final = directory
        self.limits: Final = limits
        self.driver: Final = driver
        self.tell: Final = tell
        self.heard_all: Final = heard_all
        self.kept: frozenset[str] = frozenset()
        self.penalties: Final = Penalties()
        self._lines: dict[str, _Line] = {}
        self._dirty: dict[str, None] = {}  # ordered, so that a seed decides everything

    def post(self, site: str, message: Any, *, urgent: bool = False) -> None:
        """Queue a message for a site, and dial it if necessary; `flush` sends it.

        Urgent messages (leases, settlements) overtake the others that wait.
        """
        self._line(site).add(MESSAGES.encode(message), urgent=urgent)
        self._dirty[site] = None

    def flush(self, mono_s: MonoS) -> None:
        """Send as much as possible of the messages posted since the last flush."""
        dirty, self._dirty = self._dirty, {}
        for site in dirty:
            line = self._lines.get(site)
            if line is not None:
                line.used_s = mono_s
                line.flush(mono_s)

    def tick(self, mono_s: MonoS) -> None:
        """Send heartbeats, and end the links that are idle, overfull or no longer allowed.

        Call it every TICK_S.
        """
        for line in list(self._lines.values()):
            line.tick(mono_s)

    def keep(self, sites: Collection[str]) -> None:
        """Stay connected to these sites; other links are closed when idle."""
        self.kept = frozenset(sites)
        for site in sorted(self.kept):
            self._line(site)

    def drop(self, site: str, reason: str) -> None:
        """End the link to a site now; only a new message to the site opens another."""
        self.kept -= {site}
        line = self._lines.get(site)
        if line is not None:
            line.end(reason, self.driver.mono_s())

    def punish(self, site: str, reason: str) -> None:
        """End the link to a site that broke the protocol, and start its back-off."""
        wait_s = self.penalties.note(site, reason, self.driver.mono_s())
        self.drop(site, f"{reason}; in back-off for {duration_text(wait_s)}")

    def hurry(self, site: str) -> None:
        """Redial a site now unless it is connected: where or how to dial it has changed."""
        line = self._lines.get(site)
        if line is not None:
            line.conversation.hurry()

    @property
    def sites(self) -> list[str]:
        """The sites to which there is a link, up or not."""
        return sorted(self._lines)

    @property
    def up(self) -> list[str]:
        """The sites with an open session, also while its pipe is lost."""
        return sorted(site for site, line in self._lines.items() if line.is_up)

    def say_goodbye(self, reason: str) -> list[Conversation]:
        """Announce to all open sessions that they end; return the conversations to settle."""
        lines = [line for line in self._lines.values() if line.is_up]
        for line in lines:
            line.add(MESSAGES.encode(Bye(reason)), urgent=False)
        return [line.conversation for line in lines]

    def _line(self, site: str) -> "_Line":
        line = self._lines.get(site)
        if line is None:
            line = self._lines[site] = _Line(self, site)
        return line

    def forget(self, line: "_Line") -> None:
        """Remove a line that is over: the next message to its site needs a new one."""
        if self._lines.get(line.site) is line:
            del self._lines[line.site]


class _Line:
    """The link to one site, with its queue; see Correspondent and Outgoing of the conversation."""

    def __init__(self, links: PeerLinks, site: str) -> None:
        self._links = links
        self.site = site
        self._lanes: tuple[deque[bytes], deque[bytes]] = (deque(), deque())  # urgent, others
        self._queued_bytes = 0
        self._attempts = 0
        self.is_up = False
        self.is_over = False
        self._told = ""  # the reason for being down that was reported last
        self._mono_s = links.driver.mono_s
        self.used_s = self._trouble_at_s = self._mono_s()
        self.conversation = Conversation(
            self,
            self,
            links.directory.hello(),
            links.directory.credentials(site),
            links.driver.random_bytes,
            links.limits.message_bytes_max,
        )
        self._penalty_until_s = links.penalties.until_s(site)
        self.conversation.put_off(self._penalty_until_s)
        links.driver.start(self.conversation)

    @property
    def is_kept(self) -> bool:
        """Whether the site is dialled again and again."""
        return self.site in self._links.kept

    def add(self, message: bytes, *, urgent: bool) -> None:
        """Queue an encoded message."""
        self._lanes[not urgent].append(message)
        self._queued_bytes += len(message)

    def flush(self, mono_s: MonoS) -> None:
        """Send as much as the session accepts."""
        session = self.conversation.session
        if session is not None and self.is_up:
            for message in self._take(0):  # these overtake the session's unsent messages
                session.post(message, urgent=True)
        self.conversation.flush(mono_s)

    def tick(self, mono_s: MonoS) -> None:
        """Send heartbeats; end the line when it is idle, overfull or no longer allowed."""
        self.conversation.tick(mono_s)
        session = self.conversation.session
        backlog = self._queued_bytes + (session.backlog_bytes if session else 0)
        limits = self._links.limits
        if not self._links.directory.may_dial(self.site):
            self.end("the site is no longer one to dial", mono_s)
        elif backlog > limits.queue_bytes:
            self.conversation.lapse(
                f"{backlog:,} bytes are queued for it, over the limit of {limits.queue_bytes:,}"
            )
        elif self._is_idle(mono_s):
            self.end("idle", mono_s, is_idle=True)
        elif mono_s < self._penalty_until_s:
            self._wait_on(mono_s)

    def _is_idle(self, mono_s: MonoS) -> bool:
        session = self.conversation.session
        is_quiet = self.is_up and self.is_empty and session is not None and session.is_idle
        return is_quiet and not self.is_kept and mono_s - self.used_s > self._links.limits.idle_s

    def _wait_on(self, mono_s: MonoS) -> None:
        """Give up messages that wait for a site in back-off, as if it were out of reach."""
        if not self.is_empty and mono_s - self._trouble_at_s > self._links.limits.give_up_s:
            self._trouble_at_s = mono_s
            wait_s = self._penalty_until_s - mono_s
            reason = self._links.penalties.reason(self.site)
            self._fail(f"in back-off for {duration_text(wait_s)}: {reason}")

    def end(self, reason: str, mono_s: MonoS, *, is_idle: bool = False) -> None:
        """End the line, even if its site is kept."""
        if self.is_over:
            return
        self.is_over = True
        session = self.conversation.session
        if session is not None and self.is_up:
            session.post(MESSAGES.encode(Bye(reason)))
        self._links.forget(self)
        self._down(reason, is_idle=is_idle)
        self.conversation.leave(mono_s)

    def _fail(self, reason: str) -> None:
        """Handle a failure to connect: unless the site is kept, the line is over."""
        if not (self.is_kept and self._links.directory.may_dial(self.site)):
            self._stop()
        self._down(reason)

    def _stop(self) -> None:
        """End the line at once; the site, if it is kept, or a new message gets a new one."""
        self.is_over = True
        self._links.forget(self)
        self.conversation.stop()

    def _down(self, reason: str, *, is_idle: bool = False) -> None:
        waited = self.is_up or not self.is_empty or reason != self._told
        self.is_up = False
        self._told = reason
        self._take(0)
        self._take(1)
        if waited:
            self._links.tell(LinkDown(self.site, reason, is_idle))

    def _take(self, lane: int) -> list[bytes]:
        messages = list(self._lanes[lane])
        self._lanes[lane].clear()
        self._queued_bytes -= sum(map(len, messages))
        return messages

    # --- calls from the conversation -----------------------------------------------------------

    def dial(self, on_change: Callable[[], None]) -> Link | None:
        """Open a link to the site's next address."""
        if not self._links.directory.may_dial(self.site):
            self._fail("the site is not one to dial")
            return None
        self._attempts += 1
        try:
            return self._links.directory.dial(self.site, self._attempts - 1, on_change)
        except GridError as error:
            raise SessionRefused(f"dialling failed: {error}", "address") from None

    @property
    def is_empty(self) -> bool:
        """Whether no messages wait."""
        return not any(self._lanes)

    def fill(self, dialogue: Dialogue) -> None:
        """Post all waiting messages."""
        for message in self._take(0):
            dialogue.post_encoded(message, urgent=True)
        for message in self._take(1):
            dialogue.post_encoded(message)

    def hear(self, messages: list[Any]) -> None:
        """Convert messages to news."""
        if self.is_over:
            return
        self.used_s = self._mono_s()
        for message in messages:
            match message:
                case Opened(resumed):
                    self._opened(resumed)
                case Lapsed(reason):
                    self._trouble_at_s = self.used_s
                    self._down(reason)
                case Bye(reason):
                    self._trouble_at_s = self.used_s
                    self._down(f"closed by the site: {reason[:200]}")
                case Unknown():
                    continue
                case _:
                    self._links.tell(LinkSaid(self.site, message))

    def heard_all(self) -> None:
        """See Correspondent."""
        self._links.heard_all()

    def _opened(self, resumed: bool) -> None:
        if self.is_up and not resumed:
            self._down("it opened a new session")
        self.is_up = True
        self._told = ""
        self._trouble_at_s = self.used_s
        self._links.tell(LinkUp(self.site, resumed))

    def refused(self, error: SessionRefused | ProtocolError) -> None:
        """Handle a refusal: it is final unless it is transient or the site is kept."""
        mono_s = self._mono_s()
        passing = isinstance(error, SessionRefused) and error.code in PASSING_REFUSALS
        if self.is_over or (passing and mono_s - self._trouble_at_s < self._links.limits.give_up_s):
            return
        self.conversation.start_over()
        if isinstance(error, SessionRefused):
            self._fail(str(error))
            return
        wait_s = self._links.penalties.note(self.site, str(error), mono_s)
        self._stop()
        self._down(f"protocol error: {error}; in back-off for {duration_text(wait_s)}")
        self._links.keep(self._links.kept)

    def unanswered(self, _for_s: float) -> None:
        """Give up in time without a pipe. A session that was open lapses by itself."""
        mono_s = self._mono_s()
        if not self.is_up and mono_s - self._trouble_at_s > self._links.limits.give_up_s:
            self._trouble_at_s = mono_s
            self._links.tell(LinkSilent(self.site))
            self._fail(f"no answer for {duration_text(self._links.limits.give_up_s)}")
