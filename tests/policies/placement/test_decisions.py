"""The view of a decision for people: all that counts, and bounded."""

import json

import pytest
from support.pure.market import (
    CENT,
    NOW_S,
    make_ask,
    make_market,
    make_pool,
    make_preferences,
    make_terms,
    seeded,
)

from policies.placement.asks import FASTEST
from policies.placement.brokering import place
from policies.placement.decisions import EXAMPLES, SHOWN


def plain(ask, preferences=None, **pools):
    decision = place(ask, make_market(**pools), preferences or make_preferences(), NOW_S, seeded())
    return decision.to_plain()


def test_a_dry_run_says_where_when_and_for_how_much() -> None:
    shown = plain(
        make_ask(),
        a=make_pool(slot_watts=10.0, carbon_g_per_kwh=360.0),
        b=make_pool(pythons=("3.9",)),
    )
    (share,) = shown["shares"]
    assert (share["site"], share["pool"], share["tasks"]) == ("a", "main", 100)
    assert share["finish_s"] == shown["finish_s"] == NOW_S + 10
    assert shown["cost"] == {"USD": share["cost_nanos"]} == {"USD": 11_111_111}
    assert share["cost"] == "0.011111111 USD"
    assert shown["carbon_g"] == pytest.approx(1.0)
    assert shown["quotes_from"] == [["a", "main"]]
    assert (shown["short"], shown["short_reason"]) == (0, "")


def test_every_candidate_is_shown_with_its_figures() -> None:
    shown = plain(
        make_ask(), a=make_pool(price_nanos=CENT), b=make_pool(), c=make_pool(pythons=("3.9",))
    )
    first, second = shown["candidates"]
    assert (first["site"], second["site"]) == ("a", "b")
    assert first["price"] == "0.01 USD"
    assert set(first["parts"]) == {"money", "time", "carbon"}
    assert {"wait_s", "begin_s", "finish_s", "cost", "carbon_g", "age_s", "fits"} <= set(first)
    (refused,) = shown["refused"]
    assert (refused["reason"], refused["never"], refused["count"]) == ("python-differs", True, 1)
    assert refused["examples"][0]["text"] == "runs Python 3.9, the job requires 3.11"


def test_it_is_bounded_however_many_candidates_there_are() -> None:
    pools = {f"s{n}": make_pool() for n in range(100)}
    pools |= {f"t{n}": make_pool() for n in range(500)}
    shown = plain(make_ask(), **pools)
    assert len(shown["candidates"]) == SHOWN
    assert shown["candidates_left_off"] == 80
    (refused,) = shown["refused"]
    assert (refused["reason"], refused["count"]) == ("site-not-trusted", 500)
    assert len(refused["examples"]) == EXAMPLES
    assert len(json.dumps(shown)) < 20_000


def test_costs_in_two_currencies_are_not_added() -> None:
    preferences = make_preferences(rates={"EUR": 1.0})
    ask = make_ask(FASTEST, tasks=1000)
    shown = plain(ask, preferences, a=make_pool(), b=make_pool(currency="EUR"))
    assert set(shown["cost"]) == {"USD", "EUR"}


@pytest.mark.parametrize(
    ("pools", "changes", "preferences", "why", "text"),
    [
        ({}, {}, {}, "nobody", "no pool is known"),
        ({"a": make_pool(slots_total=0)}, {}, {}, "nobody", "the only known pool can't run it now"),
        (
            {"a": make_pool(), "b": make_pool(pythons=("3.9",))},
            {"terms": make_terms(currency="GBP")},
            {},
            "nobody",
            "none of the 2 known pools can ever run it, and none charges in GBP, the currency of",
        ),
        ({"a": make_pool()}, {}, {}, "best", "the only pool that can run it"),
        (
            {"a": make_pool(), "b": make_pool()},
            {},
            {},
            "drawn",
            "drawn at random from 2 pools within",
        ),
        (
            {"home": make_pool()},
            {"terms": make_terms(trusted=frozenset())},
            {"prefer_own_s": 30.0},
            "home-first",
            "at home, as it starts there within 30 s",
        ),
    ],
)
def test_what_settled_it_is_said_in_words(pools, changes, preferences, why, text) -> None:
    shown = plain(make_ask(**changes), make_preferences(**preferences), **pools)
    assert shown["why"] == why
    assert text in shown["text"]


def test_a_shortfall_is_shown() -> None:
    shown = plain(make_ask(deadline_s=NOW_S + 10), a=make_pool(slots_total=30))
    assert (shown["short"], shown["short_reason"]) == (70, "deadline")
