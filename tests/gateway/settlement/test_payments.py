"""The payments that an operator may book, and undo."""

from dataclasses import asdict

import pytest

from federation.messages.payments import Line, match
from gateway.api.books_desk import BadBooksQuestion, _settle, _undo
from gateway.ledger.db.settlement.records import PaymentRow
from gateway.settlement.payments import told_of

DETAILS = {"site": "paris", "reference": "Q-17", "direction": "paid", "amount_nanos": 100,
           "currency": "EUR"}  # fmt: skip
CHANGED = {"through": "exchange", "into_nanos": 108, "into_currency": "USD"}


def rows(made):
    return [PaymentRow(**asdict(each)) for each in made]


def test_both_sides_of_a_conversion_are_undone_and_booked_again():
    paid = rows(_settle([], {**DETAILS, **CHANGED}, 5.0))
    assert [(each.currency, each.direction) for each in paid] == [
        ("EUR", "paid"),
        ("USD", "received"),
    ]
    with pytest.raises(BadBooksQuestion, match="booked already"):
        _settle(paid, DETAILS, 6.0)
    undone = _undo(paid, {**DETAILS, "note": "a slip"}, 7.0)
    assert [(each.currency, each.amount_nanos, each.undone_why) for each in undone] == [
        ("EUR", 100, "a slip"),
        ("USD", 108, "a slip"),
    ]
    gone = [PaymentRow(**{**asdict(each), "undone_at_s": 7.0}) for each in paid]
    with pytest.raises(BadBooksQuestion, match="no settlement with paris"):
        _undo(gone, DETAILS, 8.0)
    assert [each.attempt for each in _settle(gone, DETAILS, 9.0)] == [1]


def test_nothing_is_undone_before_it_was_booked():
    [undone] = _undo(rows(_settle([], DETAILS, 50.0)), DETAILS, 20.0)  # the clock was set back
    assert undone.undone_at_s == 50.0


@pytest.mark.parametrize("note", [7, "x" * 301, "two\nlines"])
def test_a_note_is_a_line(note):
    with pytest.raises(BadBooksQuestion, match="note"):
        _undo(rows(_settle([], DETAILS, 5.0)), {**DETAILS, "note": note}, 7.0)


def test_what_not_both_have_is_told_in_words():
    ours, theirs = Line("a", "EUR", "paid", 10**9, 5), Line("a", "EUR", "received", 10**8, 5)
    assert [
        told_of(*match(*each)) for each in (([ours], []), ([], [theirs]), ([ours], [theirs]))
    ] == [
        "'a': we paid 1 EUR, and it has not booked it",
        "'a': it received 0.1 EUR, and nothing is booked here",
        "'a': we paid 1 EUR, and it received 0.1 EUR",
    ]
