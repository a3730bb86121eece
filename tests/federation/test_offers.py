"""Offers as they travel: valid ones are read back, and invalid ones are left out."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.clocks import CALENDAR_END_S
from federation.engine.books.streams import Ended
from federation.engine.failures import exception_of
from federation.errors import GridError, JobRefused, LimitsUnmet
from federation.messages.messages import MESSAGES, RejectJob
from federation.money import NANOS_LIMIT, parse_money
from federation.offers import OFFERS_MAX, PLACES_MAX, Offer, read_offers

DEARER = Offer("dearer", 2e9, 31 * 10**9, "EUR", 1.9e9, 29 * 10**9, (("paris", "spot", 40),))
LATER = Offer("later", 2.1e9, 20 * 10**9, "EUR", 2.05e9, 19 * 10**9, (("london", "own", 40),))

amounts = st.none() | st.integers(0, NANOS_LIMIT)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
times = st.floats(0, CALENDAR_END_S, exclude_max=True)
offers = st.builds(
    Offer,
    st.sampled_from(["later", "dearer"]),
    st.none() | times,
    amounts,
    st.sampled_from(["EUR", "USD"]),
    times,
    amounts,
    st.lists(st.tuples(names, names, st.integers(0, 1 << 40)), max_size=PLACES_MAX).map(tuple),
)


@given(st.lists(offers, max_size=OFFERS_MAX))
def test_what_is_said_is_read_again(some):
    rejection = RejectJob("j", "limits-unmet", "no", {"offers": [each.to_plain() for each in some]})
    heard = MESSAGES.decode(MESSAGES.encode(rejection), 1 << 20)
    assert read_offers(heard.details) == tuple(some)


@given(offers)
def test_its_options_ask_for_just_that(offer):
    options = offer.options
    assert options.get("deadline_s") == offer.deadline_s
    if offer.max_cost_nanos is None:
        assert "max_cost" not in options
    else:
        assert parse_money(options["max_cost"]) == (offer.max_cost_nanos, offer.currency)


def test_in_words():
    assert DEARER.text == "for 31 EUR, at paris/spot"
    assert LATER.text == "by 2036-07-18 13:20:00 UTC, at london/own"
    twice = Offer("dearer", None, 5, "EUR", 0.0, 5, (("a", "x", 3), ("a", "x", 1), ("b", "y", 1)))
    assert twice.text == "for 0.000000005 EUR, at a/x, b/y"


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "greener"},  # of a newer gateway
        {"deadline_s": "soon"},
        {"deadline_s": True},
        {"deadline_s": float("nan")},
        {"deadline_s": -1.0},
        {"finish_s": None},
        {"finish_s": CALENDAR_END_S},
        {"max_cost_nanos": 1.5},
        {"max_cost_nanos": -1},
        {"cost_nanos": NANOS_LIMIT + 1},
        {"currency": ""},
        {"currency": "euro"},
        {"currency": 5},
        {"places": None},
        {"places": [{"site": "paris"}]},
        {"places": [{"site": "paris", "pool": "spot", "tasks": "40"}]},
        {"places": ["paris"]},
    ],
)
def test_what_is_no_offer_is_left_out(change):
    plain = [DEARER.to_plain() | change, LATER.to_plain()]
    assert read_offers({"offers": plain}) == (LATER,)


@pytest.mark.parametrize("found", [[], None, {}, "later", [1, [], None]])
def test_where_there_are_none_there_are_none(found):
    assert read_offers({"offers": found}) == read_offers({}) == ()


def test_there_are_bounds_to_what_is_read():
    crowd = LATER.to_plain() | {"places": LATER.to_plain()["places"] * 100}
    found = read_offers({"offers": [crowd] * 100})
    assert len(found) == OFFERS_MAX
    assert len(found[0].places) == PLACES_MAX


def test_a_refusal_for_its_limits_is_an_error_of_its_own():
    error = exception_of(Ended("refused:limits-unmet", "it can't", offers=(LATER, DEARER)))
    assert isinstance(error, LimitsUnmet)
    assert isinstance(error, JobRefused)
    assert isinstance(error, GridError)
    assert (str(error), error.code) == ("it can't", "limits-unmet")
    assert (error.later, error.dearer, error.offers) == (LATER, DEARER, (LATER, DEARER))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.offers) == (str(error), error.code, error.offers)
    assert LimitsUnmet("it can't").later is None
    other = exception_of(Ended("refused:draining", "not now"))
    assert type(other) is JobRefused
