"""Orders in the log: one plain line names the action and its object."""

import pytest

from gateway.api.views.order_words import in_words
from gateway.peering.directory import expelled_by
from gateway.peering.order_lines import VALUE_CHARS_MAX, order_words
from gateway.peering.orders import VERBS

SEND = {"rule": "permit", "verb": "send"}


@pytest.mark.parametrize(
    ("verb", "details", "text"),
    [
        ("expel", {"site": "paris", "reason": "loud"}, "expulsion of site paris: loud"),
        ("expel", {"site": "paris", "keep": True}, "end of the expulsion of site paris: no reason"),
        ("approve", {"site": "paris", "fingerprint": "AB"}, "approval of site paris, fingerprint"),
        ("approve", {"site": "paris"}, ""),
        ("invite", {"expires_s": 86_400.0, "approve": False}, "invitation, valid for 1 d"),
        ("trust", {"site": "paris", "may_send": [SEND]}, "rules for site paris: may send all"),
        (
            "trust",
            {"site": "*", "never_run": [SEND | {"projects": ["eod", "fx"]}], "pickles": True},
            "rules for all sites: never run projects=eod, fx; its results are trusted",
        ),
        ("trust", {"site": "paris", "may_run": []}, "rules for site paris: may run none"),
        (
            "token",
            {"user": "ann", "scopes": ["submit"], "expires_s": 3600, "token": "gft1_x"},
            "token for user ann: scopes submit, valid for 1 h",
        ),
        ("revoke", {"user": "ann"}, "revocation of all tokens of user ann"),
        ("revoke", {"token": "gft1_secret"}, "revocation of a token"),
        ("rotate", {"compromised": True}, "rotation of the keys: the old ones are compromised"),
        ("leave", {}, "leave the federation"),
        ("join", {"invitation": "secret"}, "join a federation with an invitation"),
        ("known", {"from": "rome", "forget": True}, "forget the sites that rome has reported"),
        ("known", {}, ""),
        ("tokens", {}, ""),
    ],
)
def test_an_order_about_trust_says_what_is_done_to_which_site(verb, details, text):
    said = order_words(verb, details)
    assert said.startswith(text) if text else said == ""
    assert not set("{}") & set(said)
    assert "secret" not in said
    assert "gft1" not in said


@pytest.mark.parametrize(
    ("verb", "details", "text"),
    [
        ("drain", {"worker": ""}, "drain of the whole site"),
        ("drain", {"worker": "w-1", "on": False}, "end of the drain of worker w-1"),
        ("drain_host", {"host": "h7"}, "drain of host h7"),
        ("hold", {"job": "06f2"}, "hold of job 06f2"),
        ("prioritise", {"job": "06f2", "priority": 5}, "priority 5 of job 06f2"),
        ("job", {"job": "06f2", "for_order": True}, "order about job 06f2"),
        ("reload", {}, "reload of the configuration"),
        (
            "change_rules",
            {"edits": [{"kind": "window", "pool": "cloud", "name": "lunch"}], "reason": "why"},
            "change of the rules (window cloud lunch): why",
        ),
        ("reserve", {"slots": 4, "lasts_s": 3600, "pool": "hpc"}, "reservation of 4 slots for 1 h"),
        ("reserve", {"slots": 1, "lasts_s": float("inf")}, "reservation of 1 slot"),
        ("unreserve", {"reservation": "a1"}, "cancel of reservation a1"),
        ("write_off", {"name": "risk", "site": "rome"}, "write-off of the slice of budget risk"),
        (
            "settle",
            {"site": "rome", "amount_nanos": 5 * 10**9, "currency": "USD", "direction": "paid"},
            "payment paid of 5 USD, site rome",
        ),
        ("dispute", {"contract": "c1", "reason": "no"}, "dispute of contract c1: no"),
        ("answer_dispute", {"contract": "c1", "accept": True}, "acceptance of the dispute of"),
        ("reconcile", {"site": "rome"}, "reconciliation with site rome"),
        ("undo_payment", {"site": "rome", "reference": "r"}, "undo of the payment of site rome"),
    ],
)
def test_any_other_order_is_one_plain_line_too(verb, details, text):
    said = in_words(verb, details)
    assert said.startswith(text)
    assert not set("{}") & set(said)


@pytest.mark.parametrize("value", [None, 7, [], {"a": 1}, "x" * 10_000, [["y"]], float("nan")])
@pytest.mark.parametrize("verb", sorted({*VERBS, "drain", "reserve", "settle", "change_rules"}))
def test_whatever_an_order_has_is_written_within_a_bound(verb, value):
    keys = ("site", "user", "worker", "edits", "lasts_s", "expires_s", "may_send", "amount_nanos")
    for key in (*keys, "token", "scopes", "reason", "fingerprint", "currency", "slots"):
        assert len(in_words(verb, {key: value})) < 5 * VALUE_CHARS_MAX


def test_a_reservation_without_an_end_or_a_place_says_no_more():
    assert in_words("reserve", {"slots": 1, "lasts_s": float("inf")}) == "reservation of 1 slot"
    assert in_words("reserve", {"slots": 2, "lasts_s": 60}) == "reservation of 2 slots for 1 min"


def test_an_answer_that_tells_the_order_is_taken():
    assert in_words("hold", {"job": "x"}, {"text": "job x of ann: held"}) == "job x of ann: held"
    assert in_words("drain", {"worker": "w"}, {"workers": 2}) == "drain of worker w (2 workers)"


def test_an_expelled_site_is_told_by_whom_and_what_to_do():
    assert expelled_by("london", "paris", "too loud").startswith(
        "this site is expelled by london: too loud. london takes no work of ours"
    )
    assert "`gridfed keep paris`" in expelled_by("london", "paris", "")
