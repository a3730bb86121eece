"""The debts of two sites, as both have them."""

from dataclasses import replace
from typing import Any

import pytest

from federation.messages.payments import PaymentStanding, told
from federation.messages.reconciliation import Sums
from federation.messages.wire import pack
from federation.money import format_amount
from gateway.cli.books.between import overpaid_lines, void_lines
from gateway.ledger.accounting.settlement import (
    ONLY_TOLD_MAX,
    agreed_until,
    lines,
    matches,
    moved,
    settled_until,
    statements_of,
    turnovers,
    void_share,
)
from gateway.ledger.db.settlement.records import PaymentRow, PaymentsTold, StatementKept
from gateway.ledger.reports import ReportTable, to_csv


def payment(reference: str, nanos: int, **others: Any) -> PaymentRow:
    made = PaymentRow("paris", reference, "USD", "paid", "bank", nanos, "", 10.0)
    return replace(made, **others)


def net(payments: list[PaymentRow], start_at_s: float, end_at_s: float) -> int:
    found = turnovers({}, {}, moved(payments, start_at_s, end_at_s))
    return found["USD"].net if found else 0


def agreed(first_ms: int, stop_ms: int, state: str = "agreed", final: bool = True) -> StatementKept:
    return StatementKept(
        "buy", "paris", first_ms, stop_ms, final, state, *(b"", b"", "", b"", b"", 0.0)
    )


@pytest.mark.parametrize(
    ("kept", "delivered_ms", "is_final", "until_ms"),
    [
        ([], None, False, 0),
        ([agreed(0, 10), agreed(10, 20)], None, False, 20),
        # Where nothing was delivered there is nothing to agree on.
        ([agreed(0, 10), agreed(15, 20)], None, False, 20),
        ([agreed(0, 10), agreed(15, 20)], 15, False, 20),
        ([agreed(0, 10), agreed(15, 20)], 14, False, 10),
        ([agreed(0, 10), agreed(15, 20), agreed(20, 30)], 14, False, 10),
        # What was not agreed on ends it only where something was delivered.
        ([agreed(0, 10), agreed(10, 20, "differs"), agreed(20, 30)], 12, False, 10),
        ([agreed(0, 10), agreed(10, 20, "pending"), agreed(20, 30)], None, False, 30),
        # A day within what is agreed on already says nothing new.
        ([agreed(0, 30), agreed(10, 20), agreed(30, 40)], None, False, 40),
        ([agreed(0, 10), agreed(10, 20, final=False)], None, False, 20),
        ([agreed(0, 10), agreed(10, 20, final=False)], 12, True, 10),
        ([agreed(0, 10), agreed(10, 20, final=False), agreed(20, 30)], None, True, 30),
    ],
)
def test_up_to_when_all_was_agreed_on(
    kept: list[StatementKept], delivered_ms: int | None, is_final: bool, until_ms: int
) -> None:
    assert agreed_until(kept, lambda _: delivered_ms, is_final=is_final) == until_ms


def test_nothing_is_booked_before_the_latest_day_that_was_agreed_on() -> None:
    assert settled_until([]) == 0
    assert settled_until([agreed(20, 30), agreed(0, 10), agreed(30, 40, "differs")]) == 30


def test_what_is_written_off_is_a_column_of_its_own() -> None:
    payments = [
        payment("wire", 100, direction="received"),
        payment("case-9", 30, direction="received", through="loss"),
        payment("case-10", 4, through="loss"),
    ]
    sold = {"USD": Sums(cost_nanos=126)}
    account = turnovers(sold, {}, moved(payments, 0.0, 20.0))["USD"]
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


@pytest.mark.parametrize(
    ("direction", "balance", "told"),
    [
        ("paid", 5, "paris owes us 0.000000005 USD now"),
        ("paid", 0, ""),
        ("paid", -5, ""),
        ("received", -5, "we owe paris 0.000000005 USD now"),
        ("received", 5, ""),
    ],
)
def test_who_books_more_than_was_owed_is_told_how_to_undo_it(
    direction: str, balance: int, told: str
) -> None:
    columns = ["site", "currency", "balance", "balance_nanos"]
    rows = [["paris", "USD", format_amount(balance), balance], ["paris", "EUR", "7", 7 * 10**9]]
    booked = {"direction": direction, "currency": "USD", "reference": "wire-1"}
    found = "".join(overpaid_lines({"columns": columns, "rows": rows}, booked))
    assert told in found
    assert ("gridfed settle paris --undo wire-1" in found) is bool(told)


def said(ours: list[PaymentRow]) -> PaymentsTold:
    message = told(lines(ours), b"")
    return PaymentsTold("paris", pack(message.lines), message.since_ms, b"", b"", 50.0)


def test_what_is_undone_or_written_off_needs_no_counterpart() -> None:
    ours = [payment("a", 1, undone_at_s=20.0), payment("b", 2, through="loss"), payment("c", 3)]
    assert [each.reference for each in lines(ours)] == ["c"]
    assert [each.standing for each in matches(ours, None)] == [PaymentStanding.UNTOLD]


@pytest.mark.parametrize("packed", [b"\xff", b"", pack(5), pack([5]), pack({"a": 1})])
def test_a_list_that_cant_be_read_any_more_was_never_told(packed: bytes) -> None:
    unread = PaymentsTold("paris", packed, 0, b"", b"", 50.0)
    assert [each.standing for each in matches([payment("a", 1)], unread)] == [
        PaymentStanding.UNTOLD
    ]


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
    euros, dollars = statements_of("paris", {}, turnovers({}, {}, moved(ours, 0.0, 20.0)), paid)
    assert (euros.currency, euros.unconfirmed_nanos, euros.to_confirm_nanos) == ("EUR", 0, -900)
    assert dollars.unconfirmed_nanos == 50 + 7 - 3
    assert dollars.to_confirm_nanos == 40 + 5
    # Theirs is ours with the sign changed, but for what one side alone has.
    mirrored = turnovers({}, {}, moved(theirs, 0.0, 20.0))["USD"].net
    assert -mirrored == dollars.balance_nanos - dollars.unconfirmed_nanos + dollars.to_confirm_nanos


def test_a_site_that_names_many_currencies_makes_few_statements() -> None:
    ours = [payment("a", 1, currency="ZZZ")]
    names = [f"{a}{b}A" for a in "ABCDEFGHIJ" for b in "ABCDEFGHIJ"]
    theirs = [payment(each, 7, currency=each) for each in [*names, "ZZZ"]]
    found = statements_of("paris", {}, {}, matches(ours, said(theirs)))
    assert [each.currency for each in found] == [*names[:ONLY_TOLD_MAX], "ZZZ"]
    assert (found[-1].unconfirmed_nanos, found[-1].to_confirm_nanos) == (1, -7)


def test_what_a_buyer_voids_is_in_its_statement_and_in_no_balance() -> None:
    paid, void = Sums(1, 10, 300, 50), Sums(3, 30, 700, 90)
    found = turnovers({"USD": paid}, {}, (), {"USD": void}, {"EUR": void})
    assert found["USD"].net == 50
    assert (found["USD"].void_sold, found["USD"].void_sold_tasks) == (90, 30)
    assert (found["EUR"].net, found["EUR"].void_bought, found["EUR"].void_bought_tasks) == (
        0,
        90,
        30,
    )
    assert void_share({"USD": paid}, {"USD": void, "EUR": Sums(1, 1, 0, 0)}) == 0.7
    assert void_share({}, {"USD": void}) == 1.0
    assert void_share({}, {}) == 0.0


def test_it_is_said_in_words() -> None:
    columns = ("site", "currency", "void_sold", "void_sold_tasks", "sold_tasks")
    columns += ("void_bought", "void_bought_tasks", "bought_tasks")
    rows = [["paris", "USD", "0.5", 1_000, 3_000, "0", 0, 7], ["rome", "EUR", "0", 0, 1, "2", 3, 0]]
    assert void_lines({"columns": columns, "rows": rows}) == [
        "paris has voided 1,000 of 4,000 tasks delivered: 0.5 USD",
        "we have voided 3 of 3 tasks delivered: 2 EUR",
    ]


def test_amounts_of_a_statement_are_numbers_in_csv_and_names_are_no_formulas() -> None:
    columns = ("site", "balance", "to_confirm", "note")
    made = to_csv(ReportTable(columns, (("=1+1", "-0.5", "-2", "-x"),), ()))
    assert made.splitlines()[1] == "'=1+1,-0.5,-2,'-x"
