"""Bills for contracts that are over, the store being read when the test says so."""

import threading
from contextlib import closing

import pytest

from federation.messages.contracts import Delivery, Verdict
from federation.messages.deals import Bill, Settle
from gateway.ledger.db.contracts.records import ContractEnded, ContractOpened, posted, settled
from gateway.ledger.store.store import SqlStore
from gateway.runtime import late_bills
from gateway.runtime.late_bills import WAITING_MAX, LateBills
from gateway.scheduler.model.effects import AnswerBill, SendToSite, Write


def delivery(first):
    return Delivery(1, first, first + 10, 100, 7, 1_700_000_000_000)


class Books:
    """London's, who bought of Paris: 0 is paid, 10 pending, 20 void."""

    def __init__(self, store):
        self.store = store
        self.asked = []
        self.done = []
        self.bills = LateBills(store.contracts, self.recall, self.done.extend)
        for name in ("london-1-1", "london-1-2"):
            self.write(
                ContractOpened(name, "buy", "paris", "job", "fast", 2, 5, "USD", 30.0, 1.0),
                *(posted(name, "buy", "paris", delivery(first), "USD") for first in (0, 10, 20)),
                settled(name, "buy", "paris", delivery(0), Verdict.POST, "USD", 5.0),
                settled(name, "buy", "paris", delivery(20), Verdict.VOID, "USD", 5.0),
                ContractEnded(name, "buy", "settled", 9.0),
            )

    def write(self, *records):
        done = threading.Event()
        self.store.write(records, False, done.set)
        assert done.wait(200)

    def recall(self, find, then):
        self.asked.append((find, then))

    def read(self):
        find, then = self.asked.pop(0)
        then(find())

    def bill(self, *firsts, contract="london-1-1", site="paris"):
        rows = [delivery(first).row for first in firsts]
        self.bills.take(AnswerBill(site, Bill(contract, rows), 77.0))

    @property
    def verdicts(self):
        said = [each.message for each in self.done if isinstance(each, SendToSite)]
        assert all(isinstance(each, Settle) for each in said)
        return [{row[1]: row[2] for row in each.verdicts} for each in said]

    @property
    def written(self):
        return [each.record for each in self.done if isinstance(each, Write)]


@pytest.fixture
def books(tmp_path):
    with closing(SqlStore(f"sqlite:///{tmp_path}/london.db")) as store:
        yield Books(store)


def test_what_is_posted_is_paid_once_it_was_read_and_nothing_else(books):
    books.bill(0, 10, 20, 30)
    assert books.done == []
    books.read()
    assert books.verdicts == [{0: 1, 10: 1, 20: 0, 30: 0}]
    assert books.written == [
        settled("london-1-1", "buy", "paris", delivery(10), Verdict.POST, "USD", 77.0)
    ]
    assert all(each.durable for each in books.done if isinstance(each, Write))
    assert not books.asked


def test_bills_of_a_contract_that_wait_together_are_answered_by_one_reading(books):
    books.bill(0, contract="london-1-2")
    for first in (0, 10, 10):
        books.bill(first)
    assert len(books.asked) == 1
    books.read()
    assert books.verdicts == [{0: 1}]
    books.read()
    assert books.verdicts[1:] == [{0: 1}, {10: 1}, {10: 1}]
    assert len(books.written) == 1
    assert not books.asked


def test_a_reading_asks_for_the_billed_rows_alone(books, monkeypatch):
    asked = []

    def postings_of(side, contract, keys):
        asked.append((side, contract, sorted(keys)))
        return []

    monkeypatch.setattr(books.store.contracts, "postings_of", postings_of)
    monkeypatch.delattr(type(books.store.contracts), "postings")
    books.bill(0, 30)
    books.read()
    assert asked == [("buy", "london-1-1", [(1, 0), (1, 30)])]


def test_sites_take_turns_and_large_bills_take_several_readings(books, monkeypatch):
    monkeypatch.setattr(late_bills, "ROWS_AT_ONCE", 3)
    for _ in range(4):
        books.bill(0, 20)
    books.bill(0, contract="london-1-2")
    books.bill(0, site="rome")
    for _ in range(3):
        books.read()
    sites = [each.site for each in books.done if isinstance(each, SendToSite)]
    assert sites == ["paris", "paris", "rome"]
    while books.asked:
        books.read()
    assert len(books.verdicts) == 6


def test_a_number_that_no_database_holds_is_not_paid(books):
    row = [1 << 63, 0, 1, 1, 1, 1]
    books.bills.take(AnswerBill("paris", Bill("london-1-1", [row]), 77.0))
    books.read()
    assert books.verdicts == [{0: 0}]


def test_another_sites_contract_is_not_paid(books):
    books.bill(0, 10, site="rome")
    books.bill(0, contract="london-9-9")
    books.read()
    books.read()
    assert books.verdicts == [{0: 0, 10: 0}, {0: 0}]
    assert books.written == []


def test_what_the_store_can_not_say_now_is_billed_again(books):
    books.bill(0)
    books.bill(0, contract="london-1-2")
    _, then = books.asked.pop()
    then("the database can't be read")
    assert books.done == []
    books.read()
    assert books.verdicts == [{0: 1}]


def test_who_bills_on_and_on_waits(books):
    for n in range(WAITING_MAX + 30):
        books.bill(0, contract=f"london-1-{n}")
    books.bill(0, site="rome")
    for _ in range(WAITING_MAX + 1):
        books.read()
    assert len(books.verdicts) == WAITING_MAX + 1
    books.bill(10)
    books.read()
    assert books.verdicts[-1] == {10: 1}
