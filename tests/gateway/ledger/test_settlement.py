"""What two sites owe each other, as both have it."""

from dataclasses import replace
from typing import Any

from federation.payments import Standing, told
from federation.reconciliation import Sums
from federation.wire import pack
from gateway.ledger.records import PaymentRow, PaymentsTold
from gateway.ledger.settlement import accounts, lines, matches, moved, statements_of


def payment(reference: str, nanos: int, **others: Any) -> PaymentRow:
    made = PaymentRow("paris", reference, "USD", "paid", "bank", nanos, "", 10.0)
    return replace(made, **others)


def net(payments: list[PaymentRow], start_s: float, end_s: float) -> int:
    found = accounts({}, {}, moved(payments, start_s, end_s))
    return found["USD"].net if found else 0


def test_what_is_written_off_is_a_column_of_its_own() -> None:
    payments = [
        payment("wire", 100, direction="received"),
        payment("case-9", 30, direction="received", through="loss"),
        payment("case-10", 4, through="loss"),
    ]
    sold = {"USD": Sums(cost_nanos=126)}
    account = accounts(sold, {}, moved(payments, 0.0, 20.0))["USD"]
    assert (account.received, account.paid, account.written_off) == (100, 0, 26)
    assert account.net == 0


def test_what_was_undone_counts_until_then() -> None:
    payments = [payment("slip", 900, undone_at_s=30.0), payment("slip", 90, paid_at_s=40.0)]
    assert net(payments, 0.0, 20.0) == 900
    assert net(payments, 20.0, 35.0) == -900
    assert net(payments, 0.0, 50.0) == 90
    lost = payment("case", 5, direction="received", through="loss", undone_at_s=30.0)
    assert net([lost], 0.0, 20.0) == -5
    assert net([lost], 0.0, 31.0) == 0


def said(ours: list[PaymentRow]) -> PaymentsTold:
    message = told(lines(ours), b"")
    return PaymentsTold("paris", pack(message.lines), message.since_ms, b"", b"", 50.0)


def test_what_is_undone_or_written_off_needs_no_counterpart() -> None:
    ours = [payment("a", 1, undone_at_s=20.0), payment("b", 2, through="loss"), payment("c", 3)]
    assert [each.reference for each in lines(ours)] == ["c"]
    assert [each.standing for each in matches(ours, None)] == [Standing.UNTOLD]


def test_a_statement_says_what_one_side_alone_has() -> None:
    ours = [payment("same", 100), payment("more", 50), payment("ours", 7), payment("back", 3,
            direction="received")]  # fmt: skip
    theirs = [
        payment("same", 100, direction="received"),
        payment("more", 40, direction="received"),
        payment("theirs", 5, direction="received"),
        payment("theirs too", 900, currency="EUR"),
    ]
    paid = matches(ours, said(theirs))
    euros, dollars = statements_of("paris", {}, accounts({}, {}, moved(ours, 0.0, 20.0)), paid)
    assert (euros.currency, euros.unconfirmed_nanos, euros.to_confirm_nanos) == ("EUR", 0, -900)
    assert dollars.unconfirmed_nanos == 50 + 7 - 3
    assert dollars.to_confirm_nanos == 40 + 5
    # Theirs is ours with the sign changed, but for what one side alone has.
    mirrored = accounts({}, {}, moved(theirs, 0.0, 20.0))["USD"].net
    assert -mirrored == dollars.balance_nanos - dollars.unconfirmed_nanos + dollars.to_confirm_nanos
