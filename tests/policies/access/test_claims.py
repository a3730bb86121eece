"""The slots that each party may use: tables, and properties for any claims and usage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.access.claims import (
    EVERYTHING,
    NOTHING,
    Amount,
    Claim,
    Claims,
    excess,
    more,
    read_amount,
    surplus,
)
from policies.parties import OTHERS, Owner, read_party

RISK, ADA = Owner("bo", "", "risk"), Owner("ada", "", "pricing")
PARIS = Owner("cy@paris", "", "risk", "paris")
REST = 2  # the number of the claim of all others below
OWNED = Claims(
    (Claim(OTHERS, borrows=NOTHING), Claim(read_party("project:risk"), guaranteed=Amount(6)))
)


@pytest.mark.parametrize(
    ("value", "of_200"), [(0, 0), (40, 40), (500, 200), ("25%", 50), ("33.34 %", 66), ("100%", 200)]
)
def test_amounts_are_slots_or_a_part_of_them(value, of_200):
    assert read_amount(value).of(200) == of_200


@pytest.mark.parametrize("value", [-1, 1.5, True, "40", "101%", "%", "1.234%", None, 10**9])
def test_what_is_no_amount_is_said(value):
    with pytest.raises(ValueError, match="is not a number of slots"):
        read_amount(value)


def test_work_belongs_to_the_first_claim_that_includes_it():
    assert [OWNED.of(each) for each in (PARIS, RISK, ADA)] == [0, 1, REST]


@pytest.mark.parametrize(
    ("claims", "used", "claim", "slots"),
    [
        # There is no claim.
        (Claims(), {}, 0, 10),
        (Claims(), {0: 10}, 0, 0),
        # Others may have nothing; the guaranteed slots are lent, all of them.
        (OWNED, {}, 0, 0),
        (OWNED, {}, 1, 10),
        (OWNED, {}, REST, 10),
        (OWNED, {1: 6}, REST, 4),
        # Slots that are not lent are kept.
        (Claims((Claim(read_party("project:risk"), Amount(6), lends=NOTHING),)), {}, 1, 4),
        (Claims((Claim(read_party("project:risk"), Amount(6), lends=NOTHING),)), {0: 6}, 1, 4),
        (Claims((Claim(read_party("project:risk"), Amount(6), lends=Amount(2)),)), {0: 1}, 1, 6),
        # A bound on borrowed slots.
        (Claims((Claim(read_party("all"), borrows=Amount(part=5_000)),)), {0: 2}, 0, 3),
        (Claims((Claim(read_party("all"), Amount(2), borrows=Amount(1)),)), {}, 0, 3),
        # Over its claim already.
        (OWNED, {0: 3}, 0, 0),
    ],
)
def test_how_many_more_slots_a_claim_may_take(claims, used, claim, slots):
    assert more(claims.levels(10), used, 10, claim) == slots


def test_slots_beyond_a_guarantee_are_found_the_most_first():
    levels = OWNED.levels(10)
    assert list(surplus(levels, {REST: 10}).items()) == [(REST, 10 - levels[REST].guaranteed)]
    assert surplus(levels, {1: 6, REST: 0}) == {}
    assert list(surplus(levels, {0: 3, REST: 7})) == [REST, 0]
    assert list(surplus(levels, {0: 7, REST: 3})) == [0, REST]


def test_what_is_over_its_claim_is_found():
    assert excess(OWNED.levels(10), {0: 3, 1: 7, REST: 0}) == {0: 3}


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ([Claim(OTHERS), Claim(OTHERS)], "others is listed twice"),
        (
            [Claim(OTHERS, Amount(part=6_000)), Claim(read_party("ours"), Amount(part=5_000))],
            "the guarantees add up to 110 % of the slots",
        ),
        ([Claim(read_party(f"user:u{n}")) for n in range(65)], "more than 64"),
    ],
)
def test_what_can_not_be_claimed_is_said(claims, why):
    with pytest.raises(ValueError, match=why):
        Claims(tuple(claims))


amounts = st.integers(0, 20).map(Amount) | st.integers(0, 2_500).map(lambda part: Amount(part=part))
claims = st.lists(st.tuples(amounts, amounts | st.just(EVERYTHING), amounts), max_size=4).map(
    lambda rows: Claims(
        tuple(Claim(read_party(f"user:u{at}"), *row) for at, row in enumerate(rows))
    )
)


@given(claims=claims, total=st.integers(0, 30), takers=st.lists(st.integers(0, 4), max_size=200))
def test_nobody_takes_more_than_there_is_nor_what_is_kept_for_others(claims, total, takers):
    """Each party that asks takes one slot as long as it may."""
    levels = claims.levels(total)
    used = {}
    for taker in takers:
        claim = taker % len(levels)
        if more(levels, used, total, claim):
            used[claim] = used.get(claim, 0) + 1
        assert sum(used.values()) <= total
        assert all(slots <= levels[at].most for at, slots in used.items())
        for at, each in enumerate(levels):
            kept = max(0, each.kept - used.get(at, 0))
            assert more(levels, used, total, at) >= min(kept, each.most - used.get(at, 0))
    assert excess(levels, used) == {}


@given(claims=claims, total=st.integers(0, 30))
def test_levels_never_guarantee_more_than_there_is(claims, total):
    levels = claims.levels(total)
    assert sum(each.guaranteed for each in levels) <= total
    assert all(0 <= each.kept <= each.guaranteed <= each.most <= total for each in levels)
