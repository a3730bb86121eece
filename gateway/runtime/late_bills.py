"""Answers bills from the books: only deliveries that are posted there are paid.

The contracts are over, or are open and these deliveries were settled long ago. A contract may have
any number of deliveries, and its seller may bill it row by row: only the billed rows are read, in
the background, for one contract at a time. Each read answers the bills of the contract that wait by
then, up to ROWS_AT_ONCE, and sites take turns: one that bills a lot delays the others by one read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Final

from federation.messages.contracts import BILL_FIELDS, Delivery, Verdict
from federation.messages.deals import Settle
from gateway.base.store_lookup import StoreLookup
from gateway.ledger.db.contracts.records import settled
from gateway.ledger.db.contracts.store import ContractStore
from gateway.scheduler.model.effects import AnswerBill, Effect, PeerSide, SendToSite, Write

WAITING_MAX: Final = 50  # bills of one site; further bills are dropped and sent again

ROWS_AT_ONCE: Final = 2_000  # the rows of bills that one read answers, or those of one bill

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
        # By site, the next one first, and by contract.
        self._waiting: dict[str, dict[str, list[AnswerBill]]] = {}
        self._count: Counter[str] = Counter()
        self._is_reading = False

    def take(self, answer: AnswerBill) -> None:
        """Queue a bill to be answered."""
        if self._count[answer.site] < WAITING_MAX:
            self._count[answer.site] += 1
            contracts = self._waiting.setdefault(answer.site, {})
            contracts.setdefault(answer.bill.contract, []).append(answer)
            self._read_next()

    def _read_next(self) -> None:
        if self._waiting and not self._is_reading:
            self._is_reading = True
            site, contract, answers = self._take_next()
            keys = _keys(answers)
            self._recall(
                lambda: self._read(site, contract, keys), lambda found: self._found(answers, found)
            )

    def _take_next(self) -> tuple[str, str, list[AnswerBill]]:
        """Take the bills that the next read answers; their site is the last in turn then."""
        site = next(iter(self._waiting))
        contracts = self._waiting.pop(site)
        contract = next(iter(contracts))
        answers = contracts.pop(contract)
        number, rows = 1, len(answers[0].bill.deliveries)
        for each in answers[1:]:
            rows += len(each.bill.deliveries)
            if rows > ROWS_AT_ONCE:
                break
            number += 1
        if answers[number:]:
            contracts[contract] = answers[number:]
        if contracts:
            self._waiting[site] = contracts
        return site, contract, answers[:number]

    def _read(self, site: str, contract: str, keys: Set[tuple[int, int]]) -> _Books:
        bought = self._contracts.get("buy", contract)
        if bought is None or bought.site != site:
            return _Books("", {})
        rows = self._contracts.postings_of("buy", contract, keys)
        posted = {tuple(row.delivery.row): row.state for row in rows if row.state != "void"}
        return _Books(bought.currency, posted)

    def _found(self, answers: list[AnswerBill], found: _Books | str) -> None:
        self._is_reading = False
        self._count[answers[0].site] -= len(answers)
        if isinstance(found, _Books):  # otherwise the seller bills again
            for each in answers:
                self._perform(_effects(each, found))
        self._read_next()


def _keys(answers: Iterable[AnswerBill]) -> Set[tuple[int, int]]:
    """Return the (epoch, first) keys of the billed rows."""
    rows = (row for each in answers for row in each.bill.deliveries)
    return {(row[0], row[1]) for row in rows if len(row) == BILL_FIELDS}


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
