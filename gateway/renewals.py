"""Whether the contracts that we sell may go on: their buyers are asked, and say which. Pure.

A lease is renewed from the moment of the question, not of the answer: so the buyer, who counts from
its answer, never believes it over while something runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from federation import deals
from gateway.dealing import Outcome
from gateway.effects import Side
from gateway.sale import Sale


@dataclass(frozen=True, slots=True)
class Renewal:
    """A question whether contracts may go on. At `until_s` all their leases are over."""

    buyer: str
    asked_s: float
    until_s: float
    contracts: list[str]


class Renewals:
    """The questions that are open, in `asked` by their stamp.

    Args:
        outcome: where questions are put.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._stamps = 0
        self.asked: dict[int, Renewal] = {}

    def ask(self, buyer: str, sales: list[Sale], now_s: float) -> None:
        """Ask a buyer whether these may go on."""
        self._stamps += 1
        contracts = [sale.contract for sale in sales]
        for sale in sales:
            sale.asked_s = now_s
        until_s = max(sale.lease.until_s for sale in sales)
        self.asked[self._stamps] = Renewal(buyer, now_s, until_s, contracts)
        renew = deals.Renew(self._stamps, contracts)
        self._outcome.say(buyer, Side.BUYER, renew, urgent=True)

    def granted(
        self,
        buyer: str,
        message: deals.Granted,
        sales: Mapping[tuple[str, str], Sale],
        now_s: float,
    ) -> list[Sale]:
        """Renew what a buyer grants; those of its contracts that end, as it said no or too late."""
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
            if contract not in granted or not sale.lease.renewed(asked.asked_s, now_s):
                over.append(sale)
        return over

    def tidy(self, now_s: float) -> None:
        """Forget questions about leases that are over."""
        for stamp in [each for each, asked in self.asked.items() if now_s >= asked.until_s]:
            del self.asked[stamp]
