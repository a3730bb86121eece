"""Operators of the sites' books: they dispute, answer and pay according to their plans.

They read their site's books on its disk, and give the orders of gridfed's command line. They
outlive their gateways, and find the result of an order in the books: a payment that was lost in a
crash is ordered again, a dispute is not. An operator learns of another's payment by telephone.
"""

from random import Random
from typing import Any, Final

from federation.clocks import UtcS
from gateway.ledger.db.settlement.records import DisputeRow
from gateway.ledger.store import owed
from simulations.world.clock import Clock
from simulations.world.gateway import SimMember
from simulations.world.memory.store import MemoryStore

END_S: Final = UtcS(2.0**33)  # after everything
Key = tuple[str, int, int]  # contract, epoch, first


class Operator:
    """One site's operator.

    Args:
        site: the operator's site.
        others: the sites that it deals with.
        dice: determine the operator's choices.
    """

    def __init__(
        self, site: SimMember, others: list[SimMember], clock: Clock, dice: Random
    ) -> None:
        self._site = site
        self._others = others
        self._clock = clock
        self._dice = dice
        self._plan = site.plan.operator
        self._seen: set[Key] = set()  # deliveries, disputed or not
        self._answers: dict[Key, str] = {}
        self.is_backed_off = False  # no more disputes and payments

    def begin(self) -> None:
        """Start to look at the books from time to time."""
        self._clock.after(self._plan.every_s, self.begin)
        if self._site.is_up and not self._site.is_paused:
            self._answer()
            self._book_received()
            if not self.is_backed_off:
                self._dispute()
                self._pay()

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether all due answers are given, and all received payments are booked."""
        open_ = [key for key in map(_key, self._disputed()) if self._decide(key) != "leave"]
        return not open_ and not self._received()

    # --- disputes ------------------------------------------------------------------------------

    def _dispute(self) -> None:
        chosen: dict[str, list[list[int]]] = {}
        tables = self._site.disk.tables
        for key, verdict in tables.verdicts.items():
            if key[0] != "buy" or verdict != "post" or key[1:] in self._seen:
                continue
            self._seen.add(key[1:])
            if self._dice.random() < self._plan.disputes:
                chosen.setdefault(key[1], []).append([*key[2:]])
        for contract, deliveries in chosen.items():
            self._order("dispute", contract=contract, deliveries=deliveries, reason="too much")

    def _answer(self) -> None:
        wanted: dict[tuple[str, str], list[list[int]]] = {}
        for each in self._disputed():
            key = _key(each)
            wanted.setdefault((each.contract, self._decide(key)), []).append([*key[1:]])
        for (contract, word), deliveries in wanted.items():
            if word != "leave":
                details = {"contract": contract, "deliveries": deliveries, "reason": word}
                self._order("answer_dispute", accept=word == "accept", **details)

    def _disputed(self) -> list[DisputeRow]:
        """Return others' disputes that are not answered."""
        rows = MemoryStore(self._site.disk).settlement.disputes()
        return [each for each in rows if each.side == "sell" and each.state == "open"]

    def _decide(self, key: Key) -> str:
        """Return the final decision on a dispute: "accept", "reject", or "leave" it."""
        if key not in self._answers:
            is_answered = self._dice.random() < self._plan.answers
            word = "accept" if self._dice.random() < self._plan.accepts else "reject"
            self._answers[key] = word if is_answered else "leave"
        return self._answers[key]

    # --- payments ------------------------------------------------------------------------------

    def _pay(self) -> None:
        for other in self._others:
            if self._dice.random() >= self._plan.pays:
                continue
            store = MemoryStore(self._site.disk).settlement
            # The next number: a repeated order is refused.
            number = sum(each.direction == "paid" for each in store.payments(other.name))
            for each in owed.statements(store, other.name, UtcS(0.0), END_S):
                if each.balance_nanos < 0:
                    reference = f"{self._site.name}-{number}"
                    amount = {"amount_nanos": -each.balance_nanos, "currency": each.currency}
                    self._settle(other.name, reference, "paid", **amount)

    def _book_received(self) -> None:
        for site, reference, currency, amount_nanos in self._received():
            amount = {"amount_nanos": amount_nanos, "currency": currency}
            self._settle(site, reference, "received", **amount)

    def _received(self) -> list[tuple[str, str, str, int]]:
        """Return payments by others that are not booked here: site, reference, currency, amount."""
        ours = self._site.disk.tables.payments
        return [
            (other.name, each.reference, each.currency, each.amount_nanos)
            for other in self._others
            for each in other.disk.tables.payments.values()
            if each.site == self._site.name and each.direction == "paid"
            if (other.name, each.reference, each.currency, each.attempt) not in ours
        ]

    def _settle(self, site: str, reference: str, direction: str, **amount: Any) -> None:
        self._order("settle", site=site, reference=reference, direction=direction, **amount)

    def _order(self, verb: str, **details: Any) -> None:
        self._site.order(verb, details)


def _key(row: DisputeRow) -> Key:
    return row.contract, row.epoch, row.first
