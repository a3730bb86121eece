"""The sessions that a simulated gateway dials: a replacement of gateway.sessions.links with its
contract.

Dialogues and sessions are the real ones. Callbacks replace the trio code of gateway.sessions.links
and gateway.sessions.conversation around them: a change there needs a change here.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import MESSAGES, Bye, Hello, Unknown
from federation.sessions.handshake import PASSING_REFUSALS, Credentials, Dialogue, Opened
from gateway.sessions.conversation import (
    CHECK_S,
    DIAL_MAX_S,
    DIAL_MIN_S,
    REDIAL_MAX_S,
    REDIAL_MIN_S,
    SETTLE_MAX_S,
)
from gateway.sessions.links import TICK_S, LinkDown, LinkLimits, LinkNews, LinkSaid, LinkUp
from gateway.sessions.penalties import Penalties
from simulations.world.host import Host
from simulations.world.network import MemoryLink

SERVICE: Final = "peers"  # the port at which gateways meet


class Links:
    """The sessions that one site dials; see gateway.sessions.links.Links.

    Args:
        host: their host.
        may_dial: whether this gateway dials a site.
        hello: returns its introduction.
        credentials: the mutual proof of identity with a site.
        limits: see LinkLimits.
        tell: takes news.
        heard_all: called after all the news of frames that arrived together.
    """

    def __init__(
        self,
        host: Host,
        may_dial: Callable[[str], bool],
        hello: Callable[[], Hello],
        credentials: Callable[[str], Credentials],
        limits: LinkLimits,
        tell: Callable[[LinkNews], None],
        heard_all: Callable[[], None],
    ) -> None:
        self.host = host
        self.may_dial = may_dial
        self.hello = hello
        self.credentials = credentials
        self.limits = limits
        self.tell = tell
        self.heard_all = heard_all
        self.kept: frozenset[str] = frozenset()
        self.penalties: Final = Penalties()
        self._lines: dict[str, _Line] = {}
        self._dirty: dict[str, None] = {}
        host.after(TICK_S, self._tick)

    def post(self, site: str, message: Any, *, urgent: bool = False) -> None:
        """Queue a message for a site, and dial it if need be; `flush` sends it."""
        self._line(site).add(MESSAGES.encode(message), urgent=urgent)
        self._dirty[site] = None

    def flush(self, now_s: float) -> None:
        """Send queued messages that may go now."""
        dirty, self._dirty = self._dirty, {}
        for site in dirty:
            line = self._lines.get(site)
            if line is not None:
                line.used_s = now_s
                line.flush()

    def keep(self, sites: Collection[str]) -> None:
        """Stay connected to these; others are closed when idle."""
        self.kept = frozenset(sites)
        for site in sorted(self.kept):
            self._line(site)

    def drop(self, site: str, reason: str) -> None:
        """End the link to a site now."""
        self.kept -= {site}
        line = self._lines.get(site)
        if line is not None:
            line.end(reason)

    def punish(self, site: str, reason: str) -> None:
        """End the link to a site that broke the protocol; it is not dialled again for a while."""
        wait_s = self.penalties.note(site, reason, self.host.now_s())
        self.drop(site, f"{reason}; it is not dialled again for {wait_s:g} s")

    @property
    def up(self) -> list[str]:
        """The sites with an open session, also while its pipe is lost."""
        return sorted(site for site, line in self._lines.items() if line.is_up)

    def die(self) -> None:
        """End all links: the process died."""
        for line in self._lines.values():
            line.die()

    def forget(self, line: "_Line") -> None:
        """Forget a line that is over: messages to its site need a new one."""
        if self._lines.get(line.site) is line:
            del self._lines[line.site]

    def _line(self, site: str) -> "_Line":
        line = self._lines.get(site)
        if line is None:
            line = self._lines[site] = _Line(self, site)
        return line

    def _tick(self) -> None:
        self.host.after(TICK_S, self._tick)
        for line in list(self._lines.values()):
            line.tick()


class _Line:
    """The link to one site: gateway.sessions.links._Line and
    gateway.sessions.conversation.Conversation in one."""

    def __init__(self, links: Links, site: str) -> None:
        self._links = links
        self._host = links.host
        self.site = site
        self._lanes: tuple[deque[bytes], deque[bytes]] = (deque(), deque())  # urgent ones, others
        self._queued_bytes = 0
        self.is_up = self.is_over = False
        self._told = ""  # why it is down, as last reported
        self.used_s = self._trouble_s = self._host.now_s()
        self._dialogue = self._new_dialogue()
        self._link: MemoryLink | None = None
        self._is_greeted = self._is_looking = False
        self._dial_s, self._wait_s = DIAL_MIN_S, REDIAL_MIN_S
        self._until_s = 0.0
        self._host.after(0.0, self._serve_penalty)
        self._host.after(CHECK_S, self._check)

    def _new_dialogue(self) -> Dialogue:
        return Dialogue(
            hello=self._links.hello(),
            credentials=self._links.credentials(self.site),
            random_bytes=self._host.random_bytes,
        )

    def add(self, message: bytes, *, urgent: bool) -> None:
        """Queue an encoded message."""
        self._lanes[not urgent].append(message)
        self._queued_bytes += len(message)

    # --- pipes ---------------------------------------------------------------------------------

    def _serve_penalty(self) -> None:
        """Dial for the first time when allowed: messages wait for that, and not for ever."""
        if self.is_over:
            return
        now_s = self._host.now_s()
        wait_s = self._links.penalties.until_s(self.site) - now_s
        if wait_s <= 0:
            self._dial()
            return
        self._host.after(min(TICK_S, wait_s), self._serve_penalty)
        if any(self._lanes) and now_s - self._trouble_s > self._links.limits.give_up_s:
            self._trouble_s = now_s
            reason = self._links.penalties.reason(self.site)
            self._fail(f"it is not dialled for {wait_s:.0f} s more: {reason}")

    def _dial(self) -> None:
        if self.is_over or self._link is not None:
            return
        if not self._links.may_dial(self.site):
            self._fail("the site is not one that we dial")
            return
        self._is_greeted = False
        self._until_s = self._host.now_s() + self._dial_s
        self._dial_s = min(2 * self._dial_s, DIAL_MAX_S)
        network = self._host.ground.network
        self._link = network.dial(self._host.name, self.site, self._changed, SERVICE)

    def _changed(self) -> None:
        """Schedule one look at arrived frames."""
        if not self._is_looking:
            self._is_looking = True
            self._host.after(0.0, self._look)

    def _look(self) -> None:
        self._is_looking = False
        link = self._link
        if link is None:
            return
        now_s = self._host.now_s()
        if link.is_up and not self._is_greeted:
            self._is_greeted = True
            self._dial_s = DIAL_MIN_S
            self._dialogue.connected(now_s)
        try:
            said_bye = self._receive(link, now_s)
        except (SessionRefused, ProtocolError) as error:
            self._refused(error)
            self._hang_up(link)
            return
        if said_bye or link.is_lost:
            self._hang_up(link)
            return
        self.flush()
        if self._dialogue.owes:
            self._host.after(self._dialogue.acknowledge_s, self.flush)

    def _receive(self, link: MemoryLink, now_s: float) -> bool:
        frames = link.receive()
        if frames and not self._check_lease(now_s):
            return True
        for frame in frames:
            messages = self._dialogue.receive(frame, now_s)
            self._hear(messages)
            if self._link is not link:
                return True
            if any(isinstance(message, Bye) for message in messages):
                self._dialogue = self._new_dialogue()
                return True
        if frames:
            self._links.heard_all()
        return False

    def _hang_up(self, link: MemoryLink) -> None:
        """Give up a pipe, and dial again later."""
        if self._link is not link:
            return
        is_fresh = self._dialogue.is_open
        link.close()
        self._link = None
        self._dialogue.lost()
        self._wait_s = REDIAL_MIN_S if is_fresh else min(2 * self._wait_s, REDIAL_MAX_S)
        self._host.after(self._wait_s * (0.5 + self._host.dice.random()), self._dial)

    def flush(self) -> None:
        """Send as much as the session takes."""
        link, dialogue = self._link, self._dialogue
        session = dialogue.session
        if session is not None and self.is_up:
            for message in self._take(0):  # these overtake messages that the session has not sent
                session.post(message, urgent=True)
        if link is None or link.is_lost:
            return
        if dialogue.is_open and session is not None and not session.backlog_bytes:
            for message in self._take(0):
                dialogue.post_encoded(message, urgent=True)
            for message in self._take(1):
                dialogue.post_encoded(message)
        dialogue.flush(link.send, self._host.now_s())

    # --- timers --------------------------------------------------------------------------------

    def _check(self) -> None:
        """Give up a pipe that does not connect, or has fallen silent."""
        if self.is_over:
            return
        self._host.after(CHECK_S, self._check)
        link, now_s = self._link, self._host.now_s()
        if link is None:
            return
        if not link.is_up:
            if not self.is_up and now_s - self._trouble_s > self._links.limits.give_up_s:
                self._trouble_s = now_s
                self._fail(f"no answer for {self._links.limits.give_up_s:g} s")
            if link.is_lost or now_s > self._until_s:
                self._hang_up(link)
        elif self._dialogue.is_silent(now_s):
            self._hang_up(link)

    def tick(self) -> None:
        """Send heartbeats, and check timeouts and the queue's size."""
        now_s = self._host.now_s()
        self._check_lease(now_s)
        self.flush()
        session = self._dialogue.session
        backlog = self._queued_bytes + (session.backlog_bytes if session else 0)
        if backlog > self._links.limits.queue_bytes:
            self._lapse(f"{backlog:,} bytes wait for it")
        elif self._is_idle(now_s):
            self.end("nobody needs it", is_idle=True)

    def _is_idle(self, now_s: float) -> bool:
        session = self._dialogue.session
        is_quiet = self.is_up and not any(self._lanes) and session is not None and session.is_idle
        is_kept = self.site in self._links.kept
        return is_quiet and not is_kept and now_s - self.used_s > self._links.limits.idle_s

    def _check_lease(self, now_s: float) -> bool:
        """Whether the session's lease holds; if not, end the session."""
        welcome = self._dialogue.welcome
        if welcome is None or now_s - self._dialogue.granted_s <= welcome.grace_s:
            return True
        self._lapse(f"nothing was acknowledged for {welcome.grace_s:g} s")
        return False

    def _lapse(self, reason: str) -> None:
        self._dialogue = self._new_dialogue()
        if self._link is not None:
            self._hang_up(self._link)
        self._trouble_s = self.used_s = self._host.now_s()
        self._down(reason)

    # --- ends ----------------------------------------------------------------------------------

    def end(self, reason: str, *, is_idle: bool = False) -> None:
        """End the line, even if it is kept."""
        if self.is_over:
            return
        self.is_over = True
        session = self._dialogue.session
        if session is not None and self.is_up:
            session.post(MESSAGES.encode(Bye(reason)))
        self._links.forget(self)
        self._down(reason, is_idle=is_idle)
        if self._link is not None:
            self._dialogue.flush(self._link.send, self._host.now_s())
            self._host.after(SETTLE_MAX_S, self._link.close)

    def _fail(self, reason: str) -> None:
        """Report a failure; unless the line is kept, it is over."""
        if self.site not in self._links.kept or not self._links.may_dial(self.site):
            self.is_over = True
            self._links.forget(self)
            if self._link is not None:  # or an unowned session could still come of it
                self._link.close()
                self._link = None
        self._down(reason)

    def _down(self, reason: str, *, is_idle: bool = False) -> None:
        waited = self.is_up or any(self._lanes) or reason != self._told
        self.is_up = False
        self._told = reason
        self._take(0)
        self._take(1)
        if waited:
            self._links.tell(LinkDown(self.site, reason, is_idle))

    def die(self) -> None:
        """End the line: the process died."""
        self.is_over = True
        if self._link is not None:
            self._link.is_closed = True

    def _take(self, lane: int) -> list[bytes]:
        messages = list(self._lanes[lane])
        self._lanes[lane].clear()
        self._queued_bytes -= sum(map(len, messages))
        return messages

    # --- input ---------------------------------------------------------------------------------

    def _hear(self, messages: list[Any]) -> None:
        if self.is_over or not messages:
            return
        self.used_s = self._host.now_s()
        for message in messages:
            match message:
                case Opened(resumed):
                    self._opened(resumed=resumed)
                case Bye(reason):
                    self._trouble_s = self.used_s
                    self._down(f"it says goodbye: {reason}")
                case Unknown():
                    continue
                case _:
                    self._links.tell(LinkSaid(self.site, message))

    def _opened(self, *, resumed: bool) -> None:
        if self.is_up and not resumed:
            self._down("it has begun a new session")
        self.is_up = True
        self._told = ""
        self._trouble_s = self.used_s
        self._links.tell(LinkUp(self.site, resumed))

    def _refused(self, error: SessionRefused | ProtocolError) -> None:
        """Take a refusal: final, unless it is temporary or the line is kept."""
        passing = isinstance(error, SessionRefused) and error.code in PASSING_REFUSALS
        lonely_s = self._host.now_s() - self._trouble_s
        if passing and lonely_s < self._links.limits.give_up_s:
            return
        self._dialogue = self._new_dialogue()
        if isinstance(error, SessionRefused):
            self._fail(str(error))
            return
        wait_s = self._links.penalties.note(self.site, str(error), self._host.now_s())
        self.is_over = True
        self._links.forget(self)  # a kept site, or a new message, gets a new line
        self._down(f"protocol error: {error}; it is not dialled again for {wait_s:g} s")
        self._links.keep(self._links.kept)
