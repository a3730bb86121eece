"""Renewals of the leases of sold contracts: their buyers are asked, and grant some. Pure.

A lease is renewed from the time of the request, not of the response. The buyer counts from its
response, so it never takes a lease for expired while something runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from federation.clocks import MonoS
from federation.messages import deals
from gateway.contracts.model.dealing import Consequences
from gateway.contracts.model.sale import Sale
from gateway.scheduler.model.effects import PeerSide


@dataclass(frozen=True, slots=True)
class Renewal:
    """A request to renew contracts. At `until_s` all their leases have expired."""

    buyer: str
    asked_at_s: MonoS
    until_s: MonoS
    contracts: list[str]


class Renewals:
    """The open renewal requests, in `asked` by their stamp.

    Args:
        outcome: takes the messages to buyers.
    """

    def __init__(self, outcome: Consequences) -> None:
        self._outcome = outcome
        self._stamps = 0
        self.asked: dict[int, Renewal] = {}

    def ask(self, buyer: str, sales: list[Sale], mono_s: MonoS) -> None:
        """Ask a buyer whether to renew these."""
        self._stamps += 1
        contracts = [sale.contract for sale in sales]
        for sale in sales:
            sale.asked_at_s = mono_s
        until_s = max(sale.lease.until_s for sale in sales)
        self.asked[self._stamps] = Renewal(buyer, mono_s, until_s, contracts)
        self._outcome.say(buyer, PeerSide.BUYER, deals.Renew(self._stamps, contracts))

    def granted(
        self,
        buyer: str,
        message: deals.Granted,
        sales: Mapping[tuple[str, str], Sale],
        mono_s: MonoS,
    ) -> list[Sale]:
        """Renew the contracts that a buyer grants; return those refused or granted too late."""
        asked = self.asked.get(message.stamp)
        if asked is None or asked.buyer != buyer:
            return []
        del self.asked[message.stamp]
        granted = set(message.contracts)
        over = []
        for contract in asked.contracts:
            sale = sales.get((buyer, contract))
            if sale is None or not sale.is_live:
                continue
            if contract not in granted or not sale.lease.renewed(asked.asked_at_s, mono_s):
                over.append(sale)
        return over

    def tidy(self, mono_s: MonoS) -> None:
        """Forget requests whose leases have expired."""
        for stamp in [each for each, asked in self.asked.items() if mono_s >= asked.until_s]:
            del self.asked[stamp]
