"""The port for invited sites, which asks for no certificate, and the way through another site's.

Visitors here are unknown, so their number, rate and duration are limited. All that a visitor can
gain here with the right secret is to be pending, or approved if the invitation says so.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from federation.clocks import MonoS
from federation.errors import GatewayUnreachable, GridError, ProtocolError
from federation.sessions.nng import NngLink, NngPort
from federation.signed.identity import NONCE_BYTES
from federation.transport import TlsSettings
from federation.words import duration_text
from gateway.base.clocks import mono_now
from gateway.sessions.half_open import GREETING_MAX_S, HalfOpen
from gateway.sessions.listener import LAST_WORD_S
from gateway.sessions.token_bucket import HostTokenBuckets
from gateway.trust.book import TrustBook
from gateway.trust.certificates import fetch_leaf, to_pem
from gateway.trust.identity_store import Registry
from gateway.trust.invitations import read_invitation
from gateway.trust.joining import JoinApplicant, Joined, JoinReception, enter, reject
from gateway.trust.keys import write_private

AGAIN_S: Final = 0.2
REOPENED_S: Final = 2.0  # a reopened port is up again by then
FIRST_WORD_S: Final = 3.0  # a dial may hang while the port is being reopened
JOIN_MAX_S: Final = 20.0
TICK_S: Final = 0.25


@dataclass(slots=True)
class _Visit:
    reception: JoinReception
    book: TrustBook
    until_s: MonoS
    is_over: bool = False


class JoinServer:
    """The inviter's port.

    Args:
        address: where to listen, tls+tcp.
        registry: ours.
        strangers_max: visitors at a time, …
        host_strangers_max: … and of one host.
        handshakes_per_s: new connections of one host.
        changed: called when a site was admitted; it is on disk by then.
        say: logs a line for people.
    """

    def __init__(
        self,
        address: str,
        registry: Registry,
        *,
        strangers_max: int,
        host_strangers_max: int,
        handshakes_per_s: float,
        changed: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._half_open: HalfOpen[int] = HalfOpen(strangers_max, host_strangers_max)
        self._paces = HostTokenBuckets(handshakes_per_s)
        self._changed = changed
        self._say = say
        self._visits: dict[int, _Visit] = {}
        self._leaf = registry.active.leaf
        self.port = NngPort([address], lambda: None, self._tls)

    @property
    def _tls(self) -> TlsSettings:
        """TLS settings that show our leaf and ask for none."""
        return TlsSettings(str(self._registry.folder / "leaf.pem"))

    def renew(self) -> None:
        """Show our current leaf; visitors are cut off only if it has changed.

        Admitting a site changes our pins, but that site may not have our answer yet: cut off, it
        would not know, and its invitation is used.

        Raises:
            AddressError: as `NngPort.reopen`; to be retried.
        """
        leaf = self._registry.active.leaf
        if leaf != self._leaf:
            self.port.reopen(self._tls)
            self._leaf = leaf

    async def run(self) -> None:
        """Receive visitors for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive)
            while True:
                await trio.sleep(TICK_S)
                self._look(mono_now())

    async def _receive(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self.port.fileno())
            mono_s = mono_now()
            self._look(mono_s)
            for pipe, frame in self.port.receive():
                visit = self._visits.get(pipe) or self._begin(pipe, mono_s)
                if visit is not None and not visit.is_over:
                    self._half_open.heard(pipe)
                    self._answer(pipe, visit, frame, mono_s)

    def _look(self, mono_s: MonoS) -> None:
        """Process new and closed connections, and close overdue ones."""
        for pipe in self.port.came():
            if pipe not in self._visits:
                self._begin(pipe, mono_s)
        for pipe in self.port.gone():
            self._visits.pop(pipe, None)
            self._half_open.remove(pipe)
        for pipe, visit in list(self._visits.items()):
            if mono_s > visit.until_s:
                self.port.drop(pipe)

    def _begin(self, pipe: int, mono_s: MonoS) -> _Visit | None:
        host = self.port.origin(pipe).host
        if not self._paces.take(host, mono_s):
            self.port.drop(pipe)
            return None
        for older in self._half_open.add(pipe, host, mono_s):
            self._visits[older].is_over = True  # `gone` removes it
            self.port.drop(older)
        registry = self._registry
        reception = JoinReception(
            registry.book, registry.invitations, secrets.token_bytes(NONCE_BYTES)
        )
        visit = self._visits[pipe] = _Visit(reception, registry.book, mono_s + GREETING_MAX_S)
        return visit

    def _answer(self, pipe: int, visit: _Visit, frame: bytes, mono_s: MonoS) -> None:
        registry, reception = self._registry, visit.reception
        if visit.book is not registry.book:
            self.port.drop(pipe)  # we have moved to another federation meanwhile
            return
        try:
            answer = reception.receive(frame, registry.clock())
        except ProtocolError as error:
            self._say(f"a request to join was refused: {error}")
            answer = reject(error)
            visit.is_over = True
        if reception.admitted is not None and not visit.is_over:
            visit.is_over = True
            site = reception.admitted
            registry.save(("card", registry.book.members[site].card.raw))
            level = registry.level(site)
            self._say(f"site {site} has joined with an invitation of ours; its level is {level}")
            self._changed()
        if visit.is_over:
            visit.until_s = mono_s + LAST_WORD_S
        self.port.send(pipe, answer)


async def join(registry: Registry, text: str, *, approve: bool) -> Joined:
    """Join at the address of an invitation; our trust book then has the inviter.

    Args:
        registry: ours.
        text: the invitation.
        approve: approve the inviter at once: the invitation names its key, and its bearer is
            trusted.

    Raises:
        GridError: the invitation is not valid, the inviter does not answer, or it refused us.
    """
    utc_s = registry.clock()
    invitation = read_invitation(text, utc_s)
    was = registry.book
    book = enter(was, invitation, registry.ring.current.key, utc_s)
    applicant = JoinApplicant(invitation, book.own.card, secrets.token_bytes(NONCE_BYTES))
    host, _, port = invitation.address.removeprefix("tls+tcp://").rpartition(":")
    leaf = await _fetch_leaf(invitation.address, host.strip("[]"), int(port))
    applicant.check_leaf(leaf)
    pin = registry.folder / "inviter.pem"
    write_private(pin, to_pem([leaf]).encode())
    try:
        tls = TlsSettings(ca_file=str(pin), server_name=invitation.site)
        joined = await _apply(applicant, invitation.address, tls)
    finally:
        pin.unlink()
    if registry.book is not was:
        raise GridError(
            "this site has joined another federation in the meantime: repeat the command"
        )
    book.admit(joined.card, registry.clock(), approve=approve)
    registry.adopt(book)
    registry.save(("card", joined.card.raw))
    return joined


async def _fetch_leaf(address: str, host: str, port: int) -> bytes:
    """Fetch the leaf of a port; retry while the port may be reopening."""
    until_s = mono_now() + REOPENED_S
    while True:
        try:
            return await trio.to_thread.run_sync(fetch_leaf, host, port, JOIN_MAX_S)
        except OSError as error:
            if mono_now() >= until_s:
                raise GatewayUnreachable(f"no answer at {address}: {error}") from None
        await trio.sleep(AGAIN_S)


async def _apply(applicant: JoinApplicant, address: str, tls: TlsSettings) -> Joined:
    token, changed = trio.lowlevel.current_trio_token(), trio.Event()

    def on_change() -> None:
        token.run_sync_soon(lambda: changed.set())

    with trio.move_on_after(JOIN_MAX_S):
        while True:
            link = NngLink(address, on_change, tls)
            try:
                joined, is_begun = await _talk(applicant, link, changed)
            finally:
                link.close()
            if joined is not None:
                return joined
            if is_begun:
                break  # it knows of us: a second request would find the invitation used
            await trio.sleep(AGAIN_S)  # its port is reopening, with a new leaf
            changed = trio.Event()
    raise GridError(
        f"{address} closed the connection, or did not answer within {duration_text(JOIN_MAX_S)}"
    )


async def _talk(
    applicant: JoinApplicant, link: NngLink, changed: trio.Event
) -> tuple[Joined | None, bool]:
    """Use one pipe; return its result, and whether the other side has answered at all."""
    is_begun = False
    until_s = mono_now() + FIRST_WORD_S
    with trio.move_on_after(FIRST_WORD_S):
        await changed.wait()
    link.send(applicant.apply())
    while is_begun or mono_now() < until_s:
        was_lost = link.is_lost
        with trio.move_on_after(TICK_S):
            await trio.lowlevel.wait_readable(link.fileno())
        for frame in link.receive():
            is_begun = True
            answer = applicant.receive(frame)
            if isinstance(answer, Joined):
                return answer, True
            link.send(answer)
        if was_lost:
            break
    return None, is_begun
