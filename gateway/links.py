"""The sessions by which this site dials others: one a site, on demand, each way by itself.

    post ──► queue ──► session ──► the other site's lobby
             LinkUp · LinkSaid · LinkDown ◄── what came of it, in order, in the site's thread

What a user of this may rely on: from a LinkDown (or the beginning) to the next LinkDown, what is
posted to a site arrives there in order (of its lane), once, and so does what it says to us. At a
LinkDown all that was on the way or waiting may be lost: who needs it said says it again. A LinkUp
that `resumed` went on after a lost pipe, and nothing was lost.

A link is dialled when something is posted, or for as long as `keep` names its site. It ends, with
a LinkDown, when the site is out of reach for `give_up_s`, refuses us, breaks the protocol, says
goodbye, has begun a new life, or is no longer to be dialled; when too much waits for it; and when
nothing has been said for `idle_s` and nobody keeps it. A site that is kept is dialled again, for
ever; one that breaks the protocol, each time after twice as long (gateway.penalties).
"""

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from federation.errors import GridError, ProtocolError, SessionRefused
from federation.handshake import PASSING_REFUSALS, Credentials, Dialogue, Opened
from federation.messages import MESSAGES, Bye, Hello, Unknown
from federation.transport import Link
from gateway.conversation import Conversation, Lapsed
from gateway.penalties import Penalties

TICK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A session with a site is open. Unless it `resumed`, nothing said before is known there."""

    site: str
    resumed: bool


@dataclass(frozen=True, slots=True)
class LinkSaid:
    """A site said something on the session by which we dialled it."""

    site: str
    message: Any


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The session with a site is over, or could not be had; what waited for it is dropped."""

    site: str
    reason: str
    is_idle: bool = False  # we closed it, for nobody needed it: nothing was lost


@dataclass(frozen=True, slots=True)
class LinkSilent:
    """Nobody has answered for `give_up_s`; said again each time, for who wants to know why."""

    site: str


LinkNews = LinkUp | LinkSaid | LinkDown | LinkSilent


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """See gateway.federation_config, whose knobs they are."""

    queue_bytes: int = 64 << 20
    give_up_s: float = 30.0
    idle_s: float = 60.0
    message_bytes_max: int = 64 << 20


class Directory(Protocol):
    """How sites are dialled; gateway.peers has one by the trust book, tests have others."""

    def may_dial(self, site: str) -> bool:
        """Whether we would talk to that site at all."""

    def hello(self) -> Hello:
        """Who we are."""

    def credentials(self, site: str) -> Credentials:
        """How we prove it to that site, and it to us."""

    def dial(self, site: str, attempt: int, on_change: Callable[[], None]) -> Link:
        """A new link to one of its addresses, another one at each attempt; GridError."""


class _Ended(Exception):
    """A line is over, and nobody keeps it."""


class Links:
    """The sessions that we dial.

    Args:
        directory: how sites are dialled.
        limits: see LinkLimits.
        tell: takes news, in the site's thread; it may call `post`, and `flush` after that.
        heard_all: called when all the news of what has arrived together was told.
        random_bytes: chance.
    """

    def __init__(
        self,
        directory: Directory,
        limits: LinkLimits,
        tell: Callable[[LinkNews], None],
        heard_all: Callable[[], None] = lambda: None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.random_bytes: Final = random_bytes
        self.directory: Final = directory
        self.limits: Final = limits
        self.tell: Final = tell
        self.heard_all: Final = heard_all
        self.kept: frozenset[str] = frozenset()
        self.penalties: Final = Penalties()
        self._lines: dict[str, _Line] = {}
        self._dirty: dict[str, None] = {}  # in order, as all that a seed must decide
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold links for ever."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for line in self._lines.values():
                nursery.start_soon(self._hold, line)
            task_status.started()
            while True:
                await trio.sleep(TICK_S)
                self._tick(trio.current_time())

    # --- what the site asks for ----------------------------------------------------------------

    def post(self, site: str, message: Any, *, urgent: bool = False) -> None:
        """Queue a message for a site, and dial it if need be; `flush` sends it.

        Urgent ones (leases, settlements) overtake what waits of the others.
        """
        self._line(site).add(MESSAGES.encode(message), urgent=urgent)
        self._dirty[site] = None

    def flush(self, now_s: float) -> None:
        """Send what may go now of what was posted since the last time."""
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
        """End the link to a site now, and for good, unless something is posted to it anew."""
        self.kept -= {site}
        line = self._lines.get(site)
        if line is not None:
            line.end(reason)

    def punish(self, site: str, reason: str) -> None:
        """End the link to a site that broke the protocol; it is not dialled again for a while."""
        wait_s = self.penalties.note(site, reason, trio.current_time())
        self.drop(site, f"{reason}; it is not dialled again for {wait_s:g} s")

    def hurry(self, site: str) -> None:
        """Dial a site anew now, unless it is connected: where or how to dial it has changed."""
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

    async def goodbye(self, reason: str) -> None:
        """Tell the sites with a session that it ends here, and wait for that, not for long."""
        async with trio.open_nursery() as nursery:
            for line in self._lines.values():
                if line.is_up:
                    line.add(MESSAGES.encode(Bye(reason)), urgent=False)
                    nursery.start_soon(line.conversation.settle)

    # --- the lines -----------------------------------------------------------------------------

    def _line(self, site: str) -> "_Line":
        line = self._lines.get(site)
        if line is None:
            line = self._lines[site] = _Line(self, site)
            if self._nursery is not None:
                self._nursery.start_soon(self._hold, line)
        return line

    async def _hold(self, line: "_Line") -> None:
        with line.scope, contextlib.suppress(_Ended):
            await self._serve_penalty(line)
            await line.conversation.run()
        self.forget(line)

    async def _serve_penalty(self, line: "_Line") -> None:
        until_s = self.penalties.until_s(line.site)
        while (now_s := trio.current_time()) < until_s:
            line.put_off(until_s - now_s)
            await trio.sleep(min(TICK_S, until_s - now_s))

    def forget(self, line: "_Line") -> None:
        """A line is over: what is posted to its site from now on needs a new one."""
        if self._lines.get(line.site) is line:
            del self._lines[line.site]

    def wind_up(self, line: "_Line") -> None:
        """Let a line that is over say its last word."""
        self.forget(line)
        if self._nursery is not None:
            self._nursery.start_soon(self._wind_up, line)

    async def _wind_up(self, line: "_Line") -> None:
        await line.conversation.settle()
        line.scope.cancel()

    def _tick(self, now_s: float) -> None:
        for line in list(self._lines.values()):
            line.tick(now_s)


class _Line:
    """The link to one site; see gateway.conversation.Correspondent."""

    def __init__(self, links: Links, site: str) -> None:
        self._links = links
        self.site = site
        self._lanes: tuple[deque[bytes], deque[bytes]] = (deque(), deque())  # urgent ones, others
        self._queued_bytes = 0
        self._attempts = 0
        self.is_up = False
        self.is_over = False
        self._told = ""  # why it is down, as it was told last
        self.used_s = self._trouble_s = trio.current_time()
        self.scope = trio.CancelScope()
        directory = links.directory
        self.conversation = Conversation(
            self,
            directory.hello(),
            directory.credentials(site),
            links.random_bytes,
            links.limits.message_bytes_max,
        )

    @property
    def is_kept(self) -> bool:
        """Whether it is to be dialled again and again."""
        return self.site in self._links.kept

    def add(self, message: bytes, *, urgent: bool) -> None:
        """Queue an encoded message."""
        self._lanes[not urgent].append(message)
        self._queued_bytes += len(message)

    def flush(self) -> None:
        """Send what the session takes."""
        session = self.conversation.session
        if session is not None and self.is_up:
            for message in self._take(0):  # these overtake what the session has not sent
                session.post(message, urgent=True)
        self.conversation.flush()

    def tick(self, now_s: float) -> None:
        """Heartbeats, and whether it has been too long, or too much."""
        self.conversation.tick()
        session = self.conversation.session
        backlog = self._queued_bytes + (session.backlog_bytes if session else 0)
        limits = self._links.limits
        if not self._links.directory.may_dial(self.site):
            self.end("the site is not to be dialled any more")
        elif backlog > limits.queue_bytes:
            self.conversation.lapse(f"{backlog:,} bytes wait for it, over {limits.queue_bytes:,}")
        elif self._is_idle(now_s):
            self.end("nobody needs it", is_idle=True)

    def _is_idle(self, now_s: float) -> bool:
        session = self.conversation.session
        is_quiet = self.is_up and self.is_empty and session is not None and session.is_idle
        return is_quiet and not self.is_kept and now_s - self.used_s > self._links.limits.idle_s

    def end(self, reason: str, *, is_idle: bool = False) -> None:
        """It is over, whoever keeps it."""
        if self.is_over:
            return
        self.is_over = True
        session = self.conversation.session
        if session is not None and self.is_up:
            session.post(MESSAGES.encode(Bye(reason)))
        self._links.wind_up(self)
        self._down(reason, is_idle=is_idle)

    def _fail(self, reason: str) -> None:
        """It can't be had; unless it is kept, it is over."""
        if self.is_kept and self._links.directory.may_dial(self.site):
            self._down(reason)
            return
        self._links.forget(self)
        self._down(reason)
        raise _Ended

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

    # --- what the conversation asks ------------------------------------------------------------

    def dial(self, on_change: Callable[[], None]) -> Link:
        """A new link, to the site's next address."""
        if self.is_over:
            raise _Ended
        if not self._links.directory.may_dial(self.site):
            self._fail("the site is not one that we dial")
        self._attempts += 1
        try:
            return self._links.directory.dial(self.site, self._attempts - 1, on_change)
        except GridError as error:
            raise SessionRefused(f"it can't be dialled: {error}", "address") from None

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not any(self._lanes)

    def fill(self, dialogue: Dialogue) -> None:
        """Post what waits."""
        for message in self._take(0):
            dialogue.post_encoded(message, urgent=True)
        for message in self._take(1):
            dialogue.post_encoded(message)

    def hear(self, messages: list[Any]) -> None:
        """Make news of messages."""
        if self.is_over or not messages:
            return
        self.used_s = trio.current_time()
        for message in messages:
            match message:
                case Opened(resumed):
                    self._opened(resumed)
                case Lapsed(reason):
                    self._trouble_s = self.used_s
                    self._down(reason)
                case Bye(reason):
                    self._trouble_s = self.used_s
                    self._down(f"it says goodbye: {reason[:200]}")
                case Unknown():
                    continue
                case _:
                    self._links.tell(LinkSaid(self.site, message))

    def heard_all(self) -> None:
        """See Correspondent."""
        self._links.heard_all()

    def _opened(self, resumed: bool) -> None:
        if self.is_up and not resumed:
            self._down("it has begun a new session")
        self.is_up = True
        self._told = ""
        self._trouble_s = self.used_s
        self._links.tell(LinkUp(self.site, resumed))

    def refused(self, error: SessionRefused | ProtocolError) -> None:
        """The site said no: for good, unless it may be over in a moment, or we keep trying."""
        passing = isinstance(error, SessionRefused) and error.code in PASSING_REFUSALS
        if passing and trio.current_time() - self._trouble_s < self._links.limits.give_up_s:
            return
        self.conversation.start_over()
        if isinstance(error, SessionRefused):
            self._fail(str(error))
            return
        wait_s = self._links.penalties.note(self.site, str(error), trio.current_time())
        self._links.forget(self)  # who keeps it, or posts to it, gets a new line
        self._down(f"protocol error: {error}; it is not dialled again for {wait_s:g} s")
        self._links.keep(self._links.kept)
        raise _Ended

    def put_off(self, for_s: float) -> None:
        """It may not be dialled yet: what is posted to it waits, as for one out of reach."""
        lonely_s = trio.current_time() - self._trouble_s
        if not self.is_empty and lonely_s > self._links.limits.give_up_s:
            self._trouble_s = trio.current_time()
            reason = self._links.penalties.reason(self.site)
            self._fail(f"it is not dialled for {for_s:.0f} s more: {reason}")

    def unanswered(self, for_s: float) -> None:
        """No pipe: give up in time. A session that was open lapses by itself."""
        lonely_s = trio.current_time() - self._trouble_s
        if not self.is_up and lonely_s > self._links.limits.give_up_s:
            self._trouble_s = trio.current_time()
            self._links.tell(LinkSilent(self.site))
            self._fail(f"no answer for {self._links.limits.give_up_s:g} s")
