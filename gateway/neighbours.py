"""What a site asks of the network to other sites: so little that a simulation can give it.

gateway.peers has it over nng, simulations.world.peers in memory.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

import trio

from federation.envelopes import Sealer, Verifier
from gateway.lobby import Guest
from gateway.older_books import OlderBooks
from gateway.reception import Seat


class Outgoing(Protocol):
    """The sessions by which we dialled others; gateway.links says what may be relied on."""

    @property
    def up(self) -> Collection[str]:
        """The sites with an open session, also while its pipe is lost."""

    def post(self, site: str, message: Any, *, urgent: bool = False) -> None:
        """Queue a message for a site, and dial it if need be."""

    def punish(self, site: str, reason: str) -> None:
        """End the link to a site that broke the protocol; it is not dialled again for a while."""


class Roll(Protocol):
    """Who we are, and whom we have approved."""

    @property
    def site(self) -> str:
        """Ours."""

    @property
    def boot(self) -> int:
        """Which of our lives this is."""

    @property
    def approved(self) -> Collection[str]:
        """The sites that may connect to us, and we to them."""

    @property
    def sealer(self) -> Sealer:
        """Signs what we say for good."""

    @property
    def verifier(self) -> Verifier:
        """Checks what others have signed."""


class Reachable(Protocol):
    """Whom we can dial."""

    def may_dial(self, site: str) -> bool:
        """Whether we would, and know where."""


class Neighbours(Protocol):
    """The network side of a site's life among others; open by the time that anybody asks."""

    @property
    def links(self) -> Outgoing:
        """The sessions that we dialled."""

    @property
    def registry(self) -> Roll:
        """Who is who."""

    @property
    def directory(self) -> Reachable:
        """Who can be dialled."""

    def answer(self, guest: Guest, message: Any, *, urgent: bool = False) -> None:
        """Queue a message on the session by which a site has dialled us."""

    def expel(self, guest: Guest, reason: str) -> None:
        """End a session that another site dialled, and tell people why."""

    def keep(self, sites: Iterable[str]) -> None:
        """Stay connected to these, as long as they may be dialled."""

    def flush(self, now_s: float) -> None:
        """Send what may go now, both ways."""


class Society(Neighbours, Protocol):
    """All that a running site is among others."""

    @property
    def addresses(self) -> list[str]:
        """Where other gateways come in."""

    @property
    def older_books(self) -> OlderBooks:
        """The sites whose books show that ours are an older copy."""

    @property
    def seat(self) -> Seat:
        """Its place there."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Talk to others until cancelled; started once `seat` and the rest can be asked for."""

    async def order(self, verb: str, details: Mapping[str, Any]) -> Any:
        """Carry out an order about keys and trust; GridError when it can't be done."""
