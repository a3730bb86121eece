"""Money: exact in, exact out, and never a float between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.money import (
    NANOS_LIMIT,
    format_amount,
    format_money,
    parse_money,
    rounded_amount,
    rounded_money,
)


@pytest.mark.parametrize(
    ("text", "nanos", "currency"),
    [
        ("0.04 USD", 40_000_000, "USD"),
        ("  5   EUR ", 5_000_000_000, "EUR"),
        ("0 USD", 0, "USD"),
        ("0.000000001 JPY", 1, "JPY"),
        ("9223372036.854775807 USD", NANOS_LIMIT, "USD"),
    ],
)
def test_parse_money_reads_exactly(text: str, nanos: int, currency: str) -> None:
    assert parse_money(text) == (nanos, currency)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not an amount"),
        ("0.04", "not an amount"),
        ("USD 0.04", "not a number"),
        ("0,04 USD", "not a number"),
        ("0.04 USD/h now", "not an amount"),
        ("NaN USD", "not a finite"),
        ("sNaN USD", "not a finite"),
        ("Infinity USD", "not a finite"),
        ("-0.04 USD", "negative"),
        ("-0 USD", "negative"),
        ("0.0000000001 USD", "more than 9 decimals"),
        ("1e-10 USD", "more than 9 decimals"),
        ("9223372036.854775808 USD", "too large"),
        ("1e999999 USD", "too large"),
        ("0.04 usd", "three capital letters"),
        ("0.04 US", "three capital letters"),
        ("0.04 DOLLAR", "three capital letters"),
        ("0.04 ÜSD", "three capital letters"),
    ],
)
def test_parse_money_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_money(text)


@given(st.integers(0, NANOS_LIMIT))
def test_format_money_is_read_back_exactly(nanos: int) -> None:
    assert parse_money(format_money(nanos, "CHF")) == (nanos, "CHF")


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0"),
        (12_345_678, "0.012345678"),
        (40_000_000, "0.04"),
        (10_000_000_000, "10"),
        (-500_000_000, "-0.5"),
        (10**30 + 1, "1000000000000000000000.000000001"),
    ],
)
def test_format_amount_drops_only_needless_zeros(nanos: int, text: str) -> None:
    assert format_amount(nanos) == text


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        ("12.345678901", "USD", "12.35"),
        ("4", "USD", "4.00"),
        ("-0.125", "EUR", "-0.12"),
        ("1200.4", "JPY", "1200"),
        ("1.0005", "KWD", "1.000"),
        ("0", "USD", "0.00"),
        ("0.000308", "USD", "0.00031"),
        ("0.000000001", "USD", "0.000000001"),
        ("-0.0000456", "USD", "-0.000046"),
    ],
)
def test_people_see_the_digits_of_a_currency_and_never_nothing_for_something(
    amount: str, currency: str, shown: str
) -> None:
    assert rounded_amount(amount, currency) == shown


def test_amounts_within_a_text_are_rounded_and_nothing_else() -> None:
    text = "job-1.123456 ABCD: 0.012345678 USD and 3.5 JPY, 2.123456 hours"
    assert rounded_money(text) == "job-1.123456 ABCD: 0.01 USD and 4 JPY, 2.123456 hours"
