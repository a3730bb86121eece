"""The facts that two sites must share, on every store."""

from collections.abc import Callable
from dataclasses import asdict

from federation.messages.contracts import Delivery, Verdict
from federation.messages.reconciliation import BookEntry, EntryState, Sums, tally_of
from gateway.ledger.accounting.postings import LedgerAccount
from gateway.ledger.db.contracts.records import ContractOpened, posted, settled
from gateway.ledger.db.settlement.records import (
    Disputed,
    DisputeSettled,
    Payment,
    PaymentRow,
    PaymentsTold,
    StatementKept,
)
from gateway.ledger.store.store import Store

Commit = Callable[..., None]
AT_MS = 1_700_000_000_123


def opened(side: str, contract: str, site: str = "paris") -> ContractOpened:
    return ContractOpened(
        contract,
        side,
        site,
        "job",
        "pool",
        4,
        10**9,
        "EUR",
        30.0,
        1_700_000_000.0,  # type: ignore[arg-type]
    )


def delivery(first: int, epoch: int = 1, cost_nanos: int = 500, at_ms: int = AT_MS) -> Delivery:
    return Delivery(epoch, first, first + 10, cost_nanos, 7, at_ms)


def fill(store: Store, commit: Commit, side: str = "buy") -> None:
    deliveries = [delivery(10 * n, epoch=n // 2, at_ms=AT_MS + n) for n in range(6)]
    commit(store, opened(side, "b-1"), opened(side, "a-1"), opened(side, "a-2", "york"))
    for contract in ("b-1", "a-1", "a-2"):
        site = "york" if contract == "a-2" else "paris"
        commit(store, *(posted(contract, side, site, each, "EUR") for each in deliveries))
        for each, verdict in zip(deliveries[1:4], [Verdict.POST, Verdict.VOID, Verdict.POST],
                                 strict=True):  # fmt: skip
            commit(store, settled(contract, side, site, each, verdict, "EUR", 1_700_000_002.0))


def test_entries_are_what_both_sides_must_have(store: Store, commit: Commit) -> None:
    fill(store, commit)
    found = list(store.settlement.entries("buy", "paris", AT_MS, AT_MS + 5))
    states = {0: EntryState.PENDING, 1: EntryState.POSTED, 3: EntryState.POSTED}
    expected = [
        BookEntry(contract, "EUR", delivery(10 * n, n // 2, at_ms=AT_MS + n),
              states.get(n, EntryState.PENDING))
        for contract in ("a-1", "b-1")
        for n in (0, 1, 3, 4)
    ]  # fmt: skip
    assert found == expected
    assert list(store.settlement.entries("sell", "paris", 0, 2 * AT_MS)) == []
    assert list(store.settlement.entries("buy", "paris", 0, 2 * AT_MS, "b-1")) == [
        *expected[4:],
        BookEntry("b-1", "EUR", delivery(50, 2, at_ms=AT_MS + 5), EntryState.PENDING),
    ]
    for start_ms, stop_ms in ((AT_MS, AT_MS + 5), (0, 2 * AT_MS), (0, 1)):
        entries = store.settlement.entries("buy", "paris", start_ms, stop_ms)
        assert (
            store.settlement.entry_sums("buy", "paris", start_ms, stop_ms) == tally_of(entries).sums
        )
    sums = tally_of(found).sums["EUR"]
    assert (sums.deliveries, sums.cost_nanos, sums.pending_nanos) == (4, 2000, 2000)
    assert store.settlement.next_delivery_ms("buy", "paris", AT_MS + 1) == AT_MS + 1
    assert store.settlement.next_delivery_ms("buy", "paris", AT_MS + 6) is None


def test_what_is_void_is_told_apart(store: Store, commit: Commit) -> None:
    fill(store, commit)
    void = [
        BookEntry(contract, "EUR", delivery(20, 1, at_ms=AT_MS + 2), EntryState.VOID)
        for contract in ("a-1", "b-1")
    ]
    assert list(store.settlement.voids("buy", "paris", AT_MS, AT_MS + 5)) == void
    assert list(store.settlement.voids("buy", "paris", AT_MS, AT_MS + 5, "b-1")) == void[1:]
    assert list(store.settlement.voids("buy", "paris", AT_MS + 3, AT_MS + 5)) == []
    assert list(store.settlement.voids("sell", "paris", AT_MS, AT_MS + 5)) == []
    sums = Sums(deliveries=2, tasks=20, wall_ns=14, cost_nanos=1000)
    entries = store.settlement.entry_sums("buy", "paris", AT_MS, AT_MS + 5)
    assert store.settlement.verdict_sums("buy", "paris", AT_MS, AT_MS + 5) == (
        entries,
        {"EUR": sums},
    )
    for span in ((0, AT_MS), (AT_MS, AT_MS), (AT_MS + 5, AT_MS)):
        assert store.settlement.verdict_sums("buy", "paris", *span) == ({}, {})


def test_a_dispute_is_settled_once_and_reverses_what_was_paid(store: Store, commit: Commit) -> None:
    fill(store, commit, "sell")
    commit(store, Disputed("sell", "a-1", 0, 10, "paris", "wrong", 1_700_000_003.0))
    commit(store, Disputed("sell", "a-1", 0, 10, "paris", "again", 1_700_000_004.0))
    [row] = store.settlement.disputes()
    assert (
        store.settlement.disputes("a-1")
        == store.settlement.disputes("a-1", True)
        == store.settlement.disputes("", True)
        == [row]
    )
    assert store.settlement.disputes("b-1") == []
    assert (row.state, row.reason, row.cost_nanos, row.tasks) == ("open", "wrong", 500, 10)
    before = store.journal.balances()[LedgerAccount("site", "paris", "", "EUR")].net_nanos
    answer = DisputeSettled(
        "sell", "a-1", 0, 10, "paris", "accepted", "so be it", 1_700_000_005.5, 500, "EUR"
    )
    commit(store, answer)
    commit(store, answer)
    assert store.settlement.disputes("a-1", True) == []
    [row] = store.settlement.disputes("a-1")
    assert (row.state, row.answer, row.settled_at_s) == ("accepted", "so be it", 1_700_000_005.5)
    assert (
        store.journal.balances()[LedgerAccount("site", "paris", "", "EUR")].net_nanos
        == before - 500
    )
    at_ms = 1_700_000_005_500
    [entry] = store.settlement.entries("sell", "paris", at_ms, at_ms + 1)
    assert entry == BookEntry("a-1", "EUR", delivery(10, 0, at_ms=at_ms), EntryState.REVERSAL)
    entries = list(store.settlement.entries("sell", "paris", 0, 2 * AT_MS))
    assert store.settlement.entry_sums("sell", "paris", 0, 2 * AT_MS) == tally_of(entries).sums
    whole = [each.state for each in store.settlement.entries("sell", "paris", 0, 2 * AT_MS, "a-1")]
    assert whole == [0, 1, 2, 1, 0, 0]


def test_a_final_statement_that_is_agreed_stays(store: Store, commit: Commit) -> None:
    def kept(state: str, is_final: bool, details: str) -> StatementKept:
        return StatementKept(
            "buy", "paris", 0, 10, is_final, state, b"s", b"d", details, b"o", b"t", 5.0
        )

    for each in (kept("differs", True, "1"), kept("agreed", False, "2"), kept("agreed", True, "3")):
        commit(store, each)
        assert (
            store.settlement.statements() == store.settlement.statements("buy", "paris") == [each]
        )
    assert (
        store.settlement.statements("sell", "paris")
        == store.settlement.statements("buy", "york")
        == []
    )
    commit(store, kept("differs", True, "4"))
    assert store.settlement.statements() == [kept("agreed", True, "3")]


def test_payments_are_booked_once_by_their_reference(store: Store, commit: Commit) -> None:
    paid = Payment("paris", "ref-1", "EUR", "paid", "bank", 700, "", 5.0)
    loss = Payment("paris", "ref-2", "EUR", "received", "loss", 100, "gone", 6.0)
    commit(store, paid)
    commit(store, loss)
    commit(store, Payment("paris", "ref-1", "EUR", "paid", "bank", 700, "", 9.0))
    assert store.settlement.payments() == [PaymentRow(**asdict(each)) for each in (paid, loss)]
    assert store.settlement.payments("paris") == store.settlement.payments()
    assert store.settlement.payments("york") == []
    balances = store.journal.balances()
    assert balances[LedgerAccount("site", "paris", "", "EUR")].net_nanos == 600
    assert balances[LedgerAccount("bank", "", "", "EUR")].net_nanos == -700
    assert balances[LedgerAccount("loss", "", "", "EUR")].net_nanos == 100


def test_a_payment_is_undone_once_and_booked_again(store: Store, commit: Commit) -> None:
    wrong = Payment("paris", "ref/1", "EUR", "paid", "bank", 700, "", 5.0)
    right = Payment("paris", "ref/1", "EUR", "paid", "bank", 70, "", 8.0, attempt=1)
    commit(store, wrong)
    [row] = store.settlement.payments()
    commit(store, row.undone("a digit too many", 7.0))
    commit(store, row.undone("again", 9.0))
    commit(store, right)
    undone, booked = store.settlement.payments()
    assert (undone.stands, undone.undone_why, undone.undone_at_s) == (
        False,
        "a digit too many",
        7.0,
    )
    assert booked == PaymentRow(**asdict(right))
    balance = store.journal.balances()[LedgerAccount("site", "paris", "", "EUR")]
    assert (balance.debits_nanos, balance.credits_nanos) == (770, 700)


def test_of_what_another_site_says_it_paid_the_newest_stands(store: Store, commit: Commit) -> None:
    first, second = (
        PaymentsTold("paris", bytes(n), n, b"heard", b"envelope", float(n)) for n in (1, 2)
    )
    other = PaymentsTold("york", b"", 0, b"", b"e", 3.0)
    commit(store, first, other)
    commit(store, second)
    assert store.settlement.payments_told() == [second, other]
    assert store.settlement.payments_told("paris") == [second]
    assert store.settlement.payments_told("rome") == []
    assert second.digest != first.digest
    assert store.journal.balances() == {}
