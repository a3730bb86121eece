"""Answers bills from the books: only deliveries that are posted there are paid.

The contracts are over, or are open and these deliveries were settled long ago. A contract may have
any number of deliveries, and its seller may bill it row by row. The books are read in the
background, one contract at a time, and each read answers all bills of the contract that wait by
then.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from federation.messages.contracts import BILL_FIELDS, Delivery, Verdict
from federation.messages.deals import Settle
from gateway.base.store_lookup import StoreLookup
from gateway.ledger.db.contracts.records import settled
from gateway.ledger.db.contracts.store import ContractStore
from gateway.scheduler.model.effects import AnswerBill, Effect, PeerSide, SendToSite, Write

WAITING_MAX: Final = 50  # bills of one site; further bills are dropped and sent again

_Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Books:
    """The currency of a contract, and its posted rows: the state of each row of a bill."""

    currency: str
    posted: dict[_Row, str]


class LateBills:
    """The waiting bills, and the queue that answers them.

    Args:
        perform: carries out the effects of an answer, and sends it.
    """

    def __init__(
        self,
        contracts: ContractStore,
        recall: StoreLookup,
        perform: Callable[[Iterable[Effect]], None],
    ) -> None:
        self._contracts = contracts
        self._recall = recall
        self._perform = perform
        self._waiting: dict[tuple[str, str], list[AnswerBill]] = {}  # by site and contract
        self._count: Counter[str] = Counter()
        self._is_reading = False

    def take(self, answer: AnswerBill) -> None:
        """Queue a bill to be answered."""
        if self._count[answer.site] < WAITING_MAX:
            self._count[answer.site] += 1
            self._waiting.setdefault((answer.site, answer.bill.contract), []).append(answer)
            self._read_next()

    def _read_next(self) -> None:
        if self._waiting and not self._is_reading:
            self._is_reading = True
            site, contract = next(iter(self._waiting))
            self._recall(
                lambda: self._read(site, contract), lambda found: self._found(site, contract, found)
            )

    def _read(self, site: str, contract: str) -> _Books:
        bought = self._contracts.get("buy", contract)
        if bought is None or bought.site != site:
            return _Books("", {})
        rows = self._contracts.postings("buy", contract)
        posted = {tuple(row.delivery.row): row.state for row in rows if row.state != "void"}
        return _Books(bought.currency, posted)

    def _found(self, site: str, contract: str, found: _Books | str) -> None:
        self._is_reading = False
        answers = self._waiting.pop((site, contract))
        self._count[site] -= len(answers)
        if isinstance(found, _Books):  # otherwise the seller bills again
            for each in answers:
                self._perform(_effects(each, found))
        self._read_next()


def _effects(answer: AnswerBill, books: _Books) -> list[Effect]:
    """Return the effects that answer a bill; mark the rows that it pays in `books`."""
    contract = answer.bill.contract
    verdicts, effects = [], list[Effect]()
    for row in answer.bill.deliveries:
        if len(row) != BILL_FIELDS:
            continue
        state = books.posted.get(tuple(row))
        verdicts.append([row[0], row[1], int(state is not None)])
        if state == "pending":
            books.posted[tuple(row)] = "post"
            paid = settled(
                contract,
                "buy",
                answer.site,
                Delivery.of(row),
                Verdict.POST,
                books.currency,
                answer.utc_s,
            )
            effects.append(Write(paid, durable=True))
    return [*effects, SendToSite(answer.site, PeerSide.SELLER, Settle(contract, verdicts))]
