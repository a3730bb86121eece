"""Reservations: their bounds, their cost, and their effect on windows: tables, properties."""

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.access.claims import Amount, Claim, Claims
from policies.access.windows import NO_WINDOWS, Window, WindowPlan, closings, rules_at
from policies.calendar.hours import Hours
from policies.costs.pricelist import Adjustment, PriceList
from policies.parties import ALL, OTHERS, Owner, Party, PartyKind, read_party
from policies.reservations.reservations import (
    CantReserve,
    Reservation,
    ReservationBook,
    ReservationRules,
    ReservationState,
    ReservationUse,
    check_span,
    check_who,
    overlay,
    price_over,
)
from policies.tariffs import HOUR_S

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
ADA = Owner("ada", "quants", "risk")
BOB = Owner("bob")
FOR_ADA = read_party("user:ada")
RULES = ReservationRules(Amount(part=10_000))


def made(name="r1", slots=4, from_h=1.0, until_h=3.0, **changes):
    about = {
        "who": FOR_ADA,
        "price_nanos": 10**9,
        "currency": "USD",
        "by": ADA,
        "made_at_s": NOON,
        "state": ReservationState.BOOKED,
    } | changes
    from_s, until_s = NOON + from_h * HOUR_S, NOON + until_h * HOUR_S
    return Reservation(name, "fast", slots=slots, from_s=from_s, until_s=until_s, **about)


def free(book, from_h, until_h, whose=BOB):
    return book.free(whose, NOON + from_h * HOUR_S, NOON + until_h * HOUR_S, NOON)


@pytest.mark.parametrize(
    ("from_h", "until_h", "left"),
    [
        (0, 1, 10),  # half-open: it begins when this ends
        (0, 1.001, 6),
        (1, 2, 6),
        (2.5, 4, 6),
        (3, 4, 10),
        (0, 5, 6),
    ],
)
def test_what_is_left_beside_another(from_h, until_h, left):
    assert free(ReservationBook(NO_WINDOWS, 10, RULES, [made()]), from_h, until_h) == left


def test_what_does_not_stand_takes_nothing():
    over = [
        made(state=ReservationState.ENDED),
        made(state=ReservationState.CANCELLED),
        made(left_at_s=NOON),
        made(state=ReservationState.HELD, held_until_s=NOON),
        made(state=ReservationState.EXPIRED),
    ]
    assert free(ReservationBook(NO_WINDOWS, 10, RULES, over), 0, 5) == 10
    held = made(state=ReservationState.HELD, held_until_s=NOON + 1)
    assert free(ReservationBook(NO_WINDOWS, 10, RULES, [held]), 0, 5) == 6


def test_what_is_guaranteed_or_closed_to_somebody_can_not_be_reserved():
    risk_run = Window(
        "risk run",
        Hours(14 * HOUR_S, 16 * HOUR_S),
        Claims((Claim(read_party("project:pnl"), Amount(7)), Claim(OTHERS, borrows=Amount(0)))),
    )
    book = ReservationBook(WindowPlan((risk_run,)), 10, RULES)
    assert free(book, 0, 2) == 10
    assert free(book, 0, 2.1) == 3
    assert free(book, 2, 3, Owner("eve@paris", site="paris")) == 0
    assert free(book, 4, 5) == 10


def test_an_owner_says_how_much_is_reserved_at_most():
    book = ReservationBook(NO_WINDOWS, 10, ReservationRules(Amount(part=5_000)), [made()])
    assert free(book, 0, 1) == 5
    assert free(book, 0, 2) == 1


def test_what_somebody_may_use_he_may_reserve_and_no_more():
    claims = Claims((Claim(FOR_ADA, borrows=Amount(5)),))
    book = ReservationBook(WindowPlan((), claims), 10, RULES, [made(slots=2)])
    assert free(book, 0, 4, ADA) == 3
    assert free(book, 0, 4, BOB) == 8


def test_what_does_not_fit_is_refused_with_figures_and_what_does():
    book = ReservationBook(NO_WINDOWS, 10, RULES, [made()])
    book.check(BOB, 6, NOON, NOON + HOUR_S * 2, NOON)
    with pytest.raises(CantReserve) as error:
        book.check(BOB, 7, NOON, NOON + HOUR_S * 2, NOON)
    assert str(error.value) == (
        "7 of 10 slots can't be reserved from 2026-11-23 12:00:00 UTC to 2026-11-23 14:00:00 UTC: "
        "6 slots are available then; 7 are available from 2026-11-23 15:00:00 UTC on (the others "
        "are reserved, guaranteed, or can't be reserved by bob)"
    )
    with pytest.raises(CantReserve, match="11 slots exceed the pool's total of 10"):
        book.check(BOB, 11, NOON, NOON + HOUR_S, NOON)


@pytest.mark.parametrize(
    ("slots", "from_s", "lasts_s", "text"),
    [
        (0, 0, 60, "at least one slot"),
        (-5, 0, 60, "at least one slot"),
        (1, 0, 0, "must end after it begins"),
        (1, 0, -1, "must end after it begins"),
        (1, -61, 3600, "which is past"),
        (1, -30, 30, "which is past"),
        (1, 0, 86_401, "exceeds the longest reservation here, 1 d"),
        (1, 14 * 86_400 - 60, 61, "after the latest end here, 2026-12-07 12:00:00 UTC"),
        (1, 10**12, 61, "the reservation would end at 9999-12-31 23:59:59 UTC"),
    ],
)
def test_what_nobody_can_have(slots, from_s, lasts_s, text):
    with pytest.raises(CantReserve, match=text):
        check_span(RULES, slots, NOON + from_s, NOON + from_s + lasts_s, NOON)


def test_the_bounds_themselves_are_allowed():
    check_span(RULES, 1, NOON - 60, NOON - 60 + 86_400, NOON)
    check_span(RULES, 1, NOON + 13 * 86_400, NOON + 14 * 86_400, NOON)


def test_one_reserves_for_oneself_ones_group_and_project():
    for text in ("user:ada", "group:quants", "project:risk"):
        check_who(read_party(text), ADA)
    for who in (read_party("user:bob"), read_party("project:pnl"), ALL, Party(PartyKind.GROUP, "")):
        with pytest.raises(CantReserve, match=r"only for user:ada, group:quants, project:risk"):
            check_who(who, ADA)


@pytest.mark.parametrize(
    ("state", "at_h", "word"),
    [
        (ReservationState.BOOKED, 0, "booked"),
        (ReservationState.BOOKED, 1, "running"),
        (ReservationState.BOOKED, 3, "ending"),
        (ReservationState.BOOKING, 0.5, "booking"),
        (ReservationState.BOOKING, 1, "expired"),
        (ReservationState.BOOKING, 3, "expired"),
        (ReservationState.HELD, 0, "held"),
        (ReservationState.HELD, 0.1, "expired"),
        (ReservationState.CANCELLED, 1, "cancelled"),
        (ReservationState.ENDED, 9, "ended"),
    ],
)
def test_its_state_in_a_word(state, at_h, word):
    assert made(state=state, held_until_s=NOON + 30).standing(NOON + at_h * HOUR_S) == word


# --- money ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used_h", "left_h", "unused", "cancel", "bill"),
    [
        (0, None, 1.0, 0.1, 8.0),  # 4 slots for 2 hours at 1 USD
        (8, None, 1.0, 0.1, 0.0),
        (9, None, 1.0, 0.1, 0.0),
        (6, None, 0.5, 0.1, 1.0),
        (0, None, 0.0, 0.1, 0.0),
        (0, 0, 1.0, 0.1, 0.8),  # before it begins: the fee alone
        (0, 2, 1.0, 0.1, 4.4),  # half way: the half that was not used, and the fee for the rest
        (4, 2, 1.0, 0.1, 0.4),
        (0, 9, 1.0, 0.1, 8.0),
    ],
)
def test_what_is_billed_at_its_end(used_h, left_h, unused, cancel, bill):
    left_s = None if left_h is None else NOON + left_h * HOUR_S
    each = made(
        unused_factor=round(unused * 10**6), cancel_factor=round(cancel * 10**6), left_at_s=left_s
    )
    assert each.bill_nanos(ReservationUse(round(used_h * HOUR_S * 1e9))) == round(bill * 10**9)


def test_what_records_were_rounded_up_by_is_taken_off_the_bill():
    each, hour_ns = made(), round(HOUR_S * 1e9)
    bill = each.bill_nanos(ReservationUse(hour_ns, 10**9, 2))
    assert each.bill_nanos(ReservationUse(hour_ns, 10**9 + 2, 2)) == bill - 2 > 0
    # More than a nano for each record is no rounding, but an addition to the price.
    assert each.bill_nanos(ReservationUse(hour_ns, 10**9 + 3, 2)) == bill


@given(
    used_s=st.integers(0, 40_000),
    left_s=st.none() | st.integers(-4_000, 20_000),
    unused=st.integers(0, 10**6),
    cancel=st.integers(0, 10**6),
)
def test_what_was_used_and_the_bill_are_never_more_than_its_price(used_s, left_s, unused, cancel):
    each = made(
        unused_factor=unused,
        cancel_factor=cancel,
        left_at_s=None if left_s is None else NOON + left_s,
        price_nanos=123_456_789,
    )
    bill = each.bill_nanos(ReservationUse(used_s * 10**9))
    inside_s = min(used_s, each.slot_ns(each.ends_at_s) // 10**9)
    used_nanos = Fraction(each.price_nanos * inside_s, HOUR_S)
    assert 0 <= bill <= each.total_nanos - used_nanos + 1


def test_the_price_is_the_mean_of_its_time():
    night = Window("night", Hours(14 * HOUR_S, 16 * HOUR_S), price_factor=500_000)
    prices = PriceList(2_000, "USD", "v", plan=WindowPlan((night,)))
    assert price_over(prices, 0, NOON, NOON + 2 * HOUR_S) == 2_000
    assert price_over(prices, 0, NOON, NOON + 4 * HOUR_S) == 1_500
    assert price_over(prices, 0, NOON, NOON + 72 * HOUR_S) == 2_000 - 1_000 * 2 // 24 + 0
    sold = replace(prices, contracts={"paris": Adjustment(factor=250_000)})
    assert price_over(sold, 0, NOON, NOON + 4 * HOUR_S, "paris") == 375
    assert price_over(sold, 0, NOON, NOON + 4 * HOUR_S, "rome") == 1_500


# --- in windows ----------------------------------------------------------------------------------


def test_spans_change_where_one_begins_and_ends():
    rules = overlay(rules_at(NO_WINDOWS, NOON), [made()], RULES, NOON)
    spans = [(each.from_s - NOON, [s.slots for s in each.claims.reserved]) for each in rules.spans]
    assert spans == [(0, []), (HOUR_S, [4]), (3 * HOUR_S, [])]
    assert [each.most(BOB, 10) for each in rules.spans] == [10, 6, 10]
    assert [each.reserved(ADA) for each in rules.spans] == [0, 4, 0]
    [closes] = closings(rules, BOB, 10)
    assert (closes.at_s, closes.stops_at_s, closes.slots, closes.room) == (
        NOON + HOUR_S, NOON + HOUR_S + 30, 6, 6,
    )  # fmt: skip
    assert closes.window == "reservation r1"


def test_a_window_that_is_open_says_how_what_makes_way_is_treated():
    day = Window("day", Hours(0, 86_400), grace_s=7.0, drain_lead_s=60.0, preempts=False)
    rules = overlay(rules_at(WindowPlan((day,)), NOON), [made()], RULES, NOON)
    window = rules.spans[1].window
    assert (window.name, window.grace_s, window.preempts) == ("day, reservation r1", 7.0, False)


def test_rules_began_when_the_last_reservation_did_that_has_begun():
    # One is over, one stands since half an hour, and one is to come.
    three = [
        made("r1", from_h=-3, until_h=-1), made("r2", from_h=-0.5), made("r3", from_h=1),
    ]  # fmt: skip
    noon = rules_at(NO_WINDOWS, NOON)
    rules = overlay(replace(noon, begun_at_s=NOON - HOUR_S), three, RULES, NOON)
    assert rules.begun_at_s == NOON - 0.5 * HOUR_S


def test_what_comes_after_is_seen_as_well():
    two = [made(slots=2), made("r2", slots=9, from_h=3, until_h=4)]
    rules = overlay(rules_at(NO_WINDOWS, NOON), two, RULES, NOON)
    assert [each.slots for each in closings(rules, BOB, 10)] == [8, 1]


def test_the_first_booked_has_its_slots_when_a_pool_has_become_smaller():
    two = [made("late", slots=3, made_at_s=NOON + 1), made("early", slots=3, by=BOB)]
    rules = overlay(rules_at(NO_WINDOWS, NOON), two, RULES, NOON)
    span = rules.spans[1]
    assert [each.reservation for each in span.claims.reserved] == ["early", "late"]
    assert [each.most for each in span.claims.levels(4)] == [0, 3, 1]


SPAN = st.tuples(st.integers(0, 20), st.integers(1, 10))


@given(
    asked=st.lists(st.tuples(st.integers(1, 9), SPAN, st.booleans()), max_size=25),
    guaranteed=st.integers(0, 6),
    most=st.integers(0, 10),
)
def test_no_more_is_ever_reserved_than_may_be(asked, guaranteed, most):
    window = Window(
        "w", Hours(16 * HOUR_S, 20 * HOUR_S), Claims((Claim(OTHERS, Amount(guaranteed)),))
    )
    book = ReservationBook(WindowPlan((window,)), 10, ReservationRules(Amount(most)))
    for number, (slots, (from_h, lasts_h), is_adas) in enumerate(asked):
        each = made(str(number), slots, from_h, from_h + lasts_h)
        try:
            book.check(ADA if is_adas else BOB, slots, each.from_s, each.until_s, NOON)
        except CantReserve:
            continue
        book = replace(book, made=(*book.made, each))
    for half in range(70):
        at_s = NOON + half * HOUR_S / 2
        there = sum(each.slots for each in book.made if each.from_s <= at_s < each.until_s)
        hour = (12 + half / 2) % 24
        assert there <= min(most, 10 - (guaranteed if 16 <= hour < 20 else 0))
    rules = overlay(rules_at(book.plan, NOON), book.made, book.rules, NOON)
    for span in rules.spans:
        levels = span.claims.levels(10)
        assert sum(each.guaranteed for each in levels) <= 10
        seats = levels[span.claims.first_reserved :]
        assert [each.most for each in seats] == [each.slots for each in span.claims.reserved]


@given(
    taken=st.lists(st.tuples(st.integers(1, 10), SPAN), max_size=12),
    slots=st.integers(1, 10),
    lasts_h=st.integers(1, 8),
)
def test_what_is_offered_instead_can_be_had(taken, slots, lasts_h):
    booked = []
    for number, (count, (from_h, long_h)) in enumerate(taken):
        each = made(str(number), count, from_h, from_h + long_h)
        if (
            ReservationBook(NO_WINDOWS, 10, RULES, booked).free(
                BOB, each.from_s, each.until_s, NOON
            )
            >= count
        ):
            booked.append(each)
    book = ReservationBook(NO_WINDOWS, 10, RULES, booked)
    found_s = book.first_fit(BOB, slots, lasts_h * HOUR_S, NOON, NOON)
    assert found_s is None or book.free(BOB, found_s, found_s + lasts_h * HOUR_S, NOON) >= slots


def test_nobody_makes_way_for_what_is_only_held():
    held = made(from_h=-0.01, state=ReservationState.HELD, held_until_s=NOON + 30)
    rules = rules_at(NO_WINDOWS, NOON, 14 * 86_400.0)
    before, during, _ = overlay(rules, [held], RULES, NOON).spans
    assert (before.until_s, before.claims.reserved) == (NOON + 30, ())
    assert [each.slots for each in during.claims.reserved] == [4]
    booked = overlay(rules, [replace(held, state=ReservationState.BOOKED)], RULES, NOON)
    assert [each.slots for each in booked.now.claims.reserved] == [4]


def test_a_refusal_looks_at_each_reservation_once():
    """Any user may ask, again and again: it took minutes for a thousand that overlap."""
    looks = 0

    class Counted(Party):
        def includes(self, whose):
            nonlocal looks
            looks += 1
            return super().includes(whose)

    who = Counted(PartyKind.USER, "ada")
    booked = [made(str(n), 1, 1 + n / 100, 50 + n / 100, who=who) for n in range(300)]
    book = ReservationBook(NO_WINDOWS, 310, RULES, booked)
    with pytest.raises(
        CantReserve, match="10 slots are available then; 300 are available from 2026-11-25 16:5"
    ):
        book.check(BOB, 300, NOON + 20 * HOUR_S, NOON + 30 * HOUR_S, NOON)
    assert looks <= 3 * len(booked)


def test_spans_with_the_same_reservations_have_the_same_claims_and_each_its_seats_once():
    booked = [made(str(n), 1, 1 + n / 100, 50 + n / 100) for n in range(100)]
    spans = overlay(rules_at(NO_WINDOWS, NOON, 14 * 86_400.0), booked, RULES, NOON).spans
    seats = {id(each) for span in spans for each in span.claims.reserved}
    assert len(spans) == 201
    assert len(seats) == len(booked)
