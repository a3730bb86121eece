"""The bookings of two sites between them: read, told and compared."""

from dataclasses import replace

import pytest

from federation.errors import ProtocolError
from federation.messages.messages import MESSAGES
from federation.messages.payments import (
    APART_MS,
    LINES_MAX,
    Line,
    Payments,
    PaymentStanding,
    digest_of,
    lines_of,
    match,
    told,
)
from federation.messages.wire import pack

PAID = Line("wire-1", "USD", "paid", 100, 5_000)
RECEIVED = Line("wire-1", "USD", "received", 100, 7_000)


@pytest.mark.parametrize(
    ("ours", "theirs", "standing"),
    [
        ([PAID], [RECEIVED], PaymentStanding.CONFIRMED),
        ([RECEIVED], [PAID], PaymentStanding.CONFIRMED),
        ([PAID], [replace(RECEIVED, amount_nanos=101)], PaymentStanding.DIFFERS),
        ([PAID], [PAID], PaymentStanding.DIFFERS),  # who paid whom?
        ([PAID], [], PaymentStanding.HERE_ALONE),
        ([PAID], None, PaymentStanding.UNTOLD),
        ([], [RECEIVED], PaymentStanding.THERE_ALONE),
    ],
)
def test_a_payment_is_confirmed_when_both_have_it_each_from_its_side(ours, theirs, standing):
    [found] = match(ours, theirs)
    assert found.standing is standing
    assert found.is_even is (standing is PaymentStanding.CONFIRMED)
    assert (found.ours, found.theirs) == (*ours, None)[:1] + (*(theirs or ()), None)[:1]


def test_currencies_of_one_reference_are_payments_of_their_own():
    euros = replace(PAID, currency="EUR", direction="received")
    found = match([PAID, euros], [RECEIVED])
    standings = {each.line.currency: each.standing for each in found}
    assert standings == {"USD": PaymentStanding.CONFIRMED, "EUR": PaymentStanding.HERE_ALONE}


def test_of_what_is_older_than_what_the_other_tells_nothing_is_said():
    since_ms = 10 * APART_MS
    old = replace(PAID, at_ms=since_ms + APART_MS - 1)
    new = replace(PAID, reference="wire-2", at_ms=since_ms + APART_MS)
    found = match([old, new], [], since_ms)
    assert [each.standing for each in found] == [
        PaymentStanding.TOO_OLD,
        PaymentStanding.HERE_ALONE,
    ]
    assert [each.is_even for each in found] == [True, False]


def test_what_is_told_travels_and_is_known_by_its_digest():
    message = told([PAID, replace(PAID, reference="wire-0", at_ms=4_000)], b"heard")
    arrived = MESSAGES.decode(MESSAGES.encode(message), 1 << 20)
    assert arrived == message
    assert [each.reference for each in lines_of(arrived.lines)] == ["wire-1", "wire-0"]
    assert arrived.digest == message.digest == digest_of(pack(arrived.lines), 0)
    assert arrived.since_ms == 0
    assert told([], b"").digest != message.digest
    assert replace(message, since_ms=1).digest != message.digest


def test_only_the_newest_are_told_and_since_when_they_are_all():
    many = [replace(PAID, reference=f"wire-{n}", at_ms=n // 2) for n in range(LINES_MAX + 3)]
    message = told(many, b"")
    assert len(lines_of(message.lines)) == LINES_MAX
    whole = {each.reference for each in many if each.at_ms >= message.since_ms}
    assert whole <= {each.reference for each in lines_of(message.lines)}
    assert message.since_ms == 2


@pytest.mark.parametrize(
    "row",
    [
        [],
        ["wire", "USD", "paid", 1],
        ["wire", "USD", "paid", 1, 5, 5],
        ["", "USD", "paid", 1, 5],
        ["x" * 101, "USD", "paid", 1, 5],
        ["\x1b[2J", "USD", "paid", 1, 5],
        ["wire", "usd", "paid", 1, 5],
        ["wire", "USD", "stole", 1, 5],
        ["wire", "USD", "paid", 0, 5],
        ["wire", "USD", "paid", -1, 5],
        ["wire", "USD", "paid", 1 << 63, 5],
        ["wire", "USD", "paid", True, 5],
        ["wire", "USD", "paid", 1, 1 << 62],
        ["wire", "USD", "paid", 1, "now"],
        [1, "USD", "paid", 1, 5],
    ],
)
def test_what_is_no_payment_is_refused(row):
    with pytest.raises(ProtocolError):
        lines_of([row])


@pytest.mark.parametrize("rows", [-1, None, "wire", {"wire": 1}, [1], [None], ["abcde"]])
def test_what_is_no_list_of_payments_is_refused(rows):
    with pytest.raises(ProtocolError):
        lines_of(rows)


def test_too_many_and_the_same_twice_are_refused():
    with pytest.raises(ProtocolError, match="too many payments"):
        lines_of([[f"wire-{n}", "USD", "paid", 1, 5] for n in range(LINES_MAX + 1)])
    with pytest.raises(ProtocolError, match="two payments"):
        lines_of([PAID.row, RECEIVED.row])


@pytest.mark.parametrize("lines", ["x", [1], [[None]], [[[]]], [{}], [[1.5]], [["x", -1]]])
def test_a_list_that_is_none_is_refused_when_it_arrives(lines):
    with pytest.raises(ProtocolError, match="lines"):
        MESSAGES.decode(MESSAGES.encode(Payments(lines, 0, b"")), 1 << 20)
