"""The interface of the network to other sites, small enough for a simulation to implement.

gateway.peering.peers implements it over nng, simulations.world.peers in memory.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import trio

from federation.clocks import MonoS
from federation.signed.envelopes import Sealer, Verifier
from gateway.ledger.accounting.older_books import OlderBooks
from gateway.runtime.making import Seat
from gateway.sessions.listener import PeerSession


class DialledSessions(Protocol):
    """The sessions that we dialled; gateway.sessions.links states their guarantees."""

    @property
    def up(self) -> Collection[str]:
        """The sites with an open session, also while its pipe is lost."""

    def post(self, site: str, message: Any, *, urgent: bool = False) -> None:
        """Queue a message for a site, and dial it if necessary."""

    def punish(self, site: str, reason: str) -> None:
        """End the link to a site that broke the protocol, and start its back-off."""


class ApprovedSites(Protocol):
    """Our own identity, and the sites that we have approved."""

    @property
    def site(self) -> str:
        """The id of our site."""

    @property
    def boot(self) -> int:
        """The number of our site's current life."""

    @property
    def approved(self) -> Collection[str]:
        """The sites that may connect to us, and we to them."""

    @property
    def expelled_by(self) -> Mapping[str, str]:
        """The sites that have expelled ours, and the reason of each."""

    @property
    def sealer(self) -> Sealer:
        """Signs our lasting declarations."""

    @property
    def verifier(self) -> Verifier:
        """Checks declarations that others have signed."""


class Reachable(Protocol):
    """The sites that we can dial."""

    def may_dial(self, site: str) -> bool:
        """Whether a site may be dialled and has a known address."""

    def addresses_of(self, site: str) -> Sequence[str]:
        """Return the addresses on a site's card; none of one that is not known."""


class Neighbours(Protocol):
    """The network side of a site's federation; open before its first use."""

    @property
    def links(self) -> DialledSessions:
        """The sessions that we dialled."""

    @property
    def registry(self) -> ApprovedSites:
        """The known sites."""

    @property
    def directory(self) -> Reachable:
        """The sites that can be dialled."""

    def answer(self, peer: PeerSession, message: Any, *, urgent: bool = False) -> None:
        """Queue a message on the session by which a site has dialled us."""

    def expel(self, peer: PeerSession, reason: str) -> None:
        """End a session that another site dialled, and tell people the reason."""

    def keep(self, sites: Iterable[str]) -> None:
        """Stay connected to these sites while they may be dialled."""

    def flush(self, mono_s: MonoS) -> None:
        """Send as much as possible, in both directions."""


class FederationSide(Neighbours, Protocol):
    """The full interface of a running site to its federation."""

    @property
    def addresses(self) -> list[str]:
        """The addresses at which other gateways connect."""

    @property
    def older_books(self) -> OlderBooks:
        """The sites whose books show that ours are an older copy."""

    def key_problems(self) -> dict[str, str]:
        """Return why sites can't be met that answer, but show or know other keys; by site."""

    @property
    def seat(self) -> Seat:
        """The seat of this site; see gateway.runtime.server."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Talk to other sites until cancelled; started once `seat` and the rest are available."""

    async def order(self, verb: str, details: Mapping[str, Any], by: str = "") -> Any:
        """Carry out an order about keys and trust; GridError when it can't be done.

        `by`: who gives it, for the log.
        """
