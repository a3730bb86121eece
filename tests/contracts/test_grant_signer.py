"""The contract of grant signers: grants are whole, ours, in time, only narrowed, shown once."""

from dataclasses import replace

import pytest
from support.pure.site_keys import NOW_S, KnownSites, key
from support.pure.town import PlainGrantSigner

from federation.messages.deals import AskQuote
from gateway.scheduler.model.job_grants import GrantTerms, NotGranted, check_ask
from gateway.trust.grant_signer import KeyGrantSigner

SITES = ("london", "paris", "lyon", "nice")
GRANT_TERMS = GrantTerms(
    target="paris",
    contract="london-1-1",
    job="job-1",
    user="ann",
    project="risk",
    function=b"f" * 32,
    max_cost_nanos=1000,
    currency="USD",
    expires_s=NOW_S + 3600,
    hops_left=2,
    regions=frozenset({"EU", "UK"}),
    sites=frozenset(SITES),
)


class Keeper:
    """The part of a registry that a grant signer needs."""

    def __init__(self, site):
        self.book = KnownSites(site, *SITES)
        self.signing_key = key(site)


@pytest.fixture(params=["signing", "plain"])
def grant_signers(request):
    """One of each site."""
    if request.param == "plain":
        return {site: PlainGrantSigner(site) for site in SITES}
    return {site: KeyGrantSigner(Keeper(site)) for site in SITES}


def to(target, **changes):
    return replace(GRANT_TERMS, target=target, contract=f"to-{target}", hops_left=1, **changes)


def code(call, *args):
    with pytest.raises(NotGranted) as caught:
        call(*args)
    return caught.value.code


def test_a_grant_says_what_was_granted_and_by_whom(grant_signers):
    given = grant_signers["paris"].check(
        "london", grant_signers["london"].issue(GRANT_TERMS), NOW_S
    )
    assert (given.grant_terms, given.path) == (GRANT_TERMS, ("london",))


def test_a_grant_without_a_limit_has_none(grant_signers):
    free = replace(GRANT_TERMS, max_cost_nanos=None, currency="", regions=None, sites=None)
    given = grant_signers["paris"].check("london", grant_signers["london"].issue(free), NOW_S)
    assert given.grant_terms == free


def test_a_hop_narrows_and_what_only_the_origin_says_stays(grant_signers):
    given = grant_signers["paris"].check(
        "london", grant_signers["london"].issue(GRANT_TERMS), NOW_S
    )
    narrower = to("lyon", max_cost_nanos=10, expires_s=NOW_S + 9e9, regions=frozenset({"EU"}))
    posing = replace(narrower, user="mallory", project="other", job="other")
    raw = grant_signers["paris"].narrow(given, posing, NOW_S)
    found = grant_signers["lyon"].check("paris", raw, NOW_S)
    assert found.path == ("london", "paris")
    assert found.grant_terms == replace(narrower, expires_s=GRANT_TERMS.expires_s, job="job-1")


@pytest.mark.parametrize(
    "changes",
    [
        {"max_cost_nanos": 1001},
        {"max_cost_nanos": None},
        {"hops_left": 2},
        {"regions": frozenset({"EU", "US"})},
        {"sites": frozenset({*SITES, "oslo"})},
        {"sites": frozenset({"nice"})},
    ],
    ids=["dearer", "without limit", "no hop less", "more regions", "more sites", "not the next"],
)
def test_nobody_on_the_way_widens(grant_signers, changes):
    given = grant_signers["paris"].check(
        "london", grant_signers["london"].issue(GRANT_TERMS), NOW_S
    )
    wider = replace(to("lyon"), **changes)
    assert code(grant_signers["paris"].narrow, given, wider, NOW_S) == "widened"


def test_a_grant_goes_nowhere_twice(grant_signers):
    given = grant_signers["paris"].check(
        "london", grant_signers["london"].issue(GRANT_TERMS), NOW_S
    )
    assert code(grant_signers["paris"].narrow, given, to("london"), NOW_S) == "loop"


def test_a_grant_for_another_site_is_refused(grant_signers):
    raw = grant_signers["london"].issue(GRANT_TERMS)
    assert code(grant_signers["lyon"].check, "london", raw, NOW_S) == "wrong-destination"


def test_a_grant_of_another_than_who_shows_it_is_refused(grant_signers):
    raw = grant_signers["london"].issue(GRANT_TERMS)
    assert code(grant_signers["paris"].check, "lyon", raw, NOW_S) == "wrong-site"


def test_a_grant_has_its_time(grant_signers):
    raw = grant_signers["london"].issue(GRANT_TERMS)
    assert code(grant_signers["paris"].check, "london", raw, GRANT_TERMS.expires_s) == "expired"


def test_a_grant_that_has_expired_is_not_passed_on(grant_signers):
    given = grant_signers["paris"].check(
        "london", grant_signers["london"].issue(GRANT_TERMS), NOW_S
    )
    late_s = GRANT_TERMS.expires_s + 1
    assert code(grant_signers["paris"].narrow, given, to("lyon"), late_s) == "expired"


def test_a_grant_is_shown_once(grant_signers):
    raw = grant_signers["london"].issue(GRANT_TERMS)
    grant_signers["paris"].check("london", raw, NOW_S)
    assert code(grant_signers["paris"].check, "london", raw, NOW_S) == "replayed"


@pytest.mark.parametrize("raw", [b"", b"\x90", b"\xc0", b"nonsense", b"\x91\x93\x01\x02\x03"])
def test_what_is_no_grant_is_refused(grant_signers, raw):
    assert code(grant_signers["paris"].check, "london", raw, NOW_S) in ("altered", "bad-signature")


def test_a_grant_that_was_changed_is_refused(grant_signers):
    raw = bytearray(grant_signers["london"].issue(GRANT_TERMS))
    at = raw.index(b"risk")
    raw[at : at + 4] = b"fxxx"
    assert code(grant_signers["paris"].check, "london", bytes(raw), NOW_S) == "bad-signature"


def test_a_hop_that_is_cut_out_is_missed(grant_signers):
    given = grant_signers["paris"].check(
        "london", grant_signers["london"].issue(GRANT_TERMS), NOW_S
    )
    grant_signers["paris"].narrow(given, to("lyon"), NOW_S)
    assert code(grant_signers["lyon"].check, "london", given.raw, NOW_S) == "wrong-destination"


def test_the_real_one_refuses_what_another_key_has_signed():
    thief = Keeper("london")
    thief.signing_key = key("a thief's")
    raw = KeyGrantSigner(thief).issue(GRANT_TERMS)
    paris = KeyGrantSigner(Keeper("paris"))
    assert code(paris.check, "london", raw, NOW_S) == "bad-signature"


def test_the_real_one_forgets_what_has_expired():
    london, paris = KeyGrantSigner(Keeper("london")), KeyGrantSigner(Keeper("paris"))
    paris.check("london", london.issue(GRANT_TERMS), NOW_S)
    later = replace(GRANT_TERMS, contract="london-1-2", expires_s=NOW_S + 9000)
    paris.check("london", london.issue(later), NOW_S + 4000)
    assert len(paris._shown) == 1


# --- whether a question goes beyond its grant ----------------------------------------------------

ASK = AskQuote(
    contract="london-1-1",
    pool="",
    tasks=10,
    task_s=None,
    function=b"f" * 32,
    name="f",
    user="ann",
    project="risk",
    priority=0.0,
    tags={},
    timeout_s=None,
    python="3.11",
    prints=False,
    currency="USD",
    wishes={"jurisdictions": ["EU"]},
    path=["london"],
    hops_left=2,
    grant=b"",
)


@pytest.fixture
def given(grant_signers):
    return grant_signers["paris"].check("london", grant_signers["london"].issue(GRANT_TERMS), NOW_S)


def test_a_question_within_its_grant_is_fine(given):
    check_ask(ASK, given)
    check_ask(replace(ASK, hops_left=0), given)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"path": ["nice", "london"]}, "wrong-path"),
        ({"path": []}, "wrong-path"),
        ({"contract": "london-1-2"}, "wrong-purpose"),
        ({"user": "bob"}, "wrong-purpose"),
        ({"project": "fx"}, "wrong-purpose"),
        ({"function": b"g" * 32}, "wrong-purpose"),
        ({"currency": "EUR"}, "wrong-purpose"),
        ({"currency": ""}, "wrong-purpose"),
        ({"hops_left": 3}, "widened"),
        ({"wishes": {}}, "widened"),
        ({"wishes": {"jurisdictions": ["EU", "US"]}}, "widened"),
    ],
    ids=str,
)
def test_a_question_beyond_its_grant_is_refused_by_name(given, changes, refusal):
    assert code(check_ask, replace(ASK, **changes), given) == refusal


def test_who_passes_a_job_on_adds_whom_he_had_it_from_to_the_users_name(grant_signers, given):
    raw = grant_signers["paris"].narrow(given, to("lyon"), NOW_S)
    found = grant_signers["lyon"].check("paris", raw, NOW_S)
    ask = replace(ASK, contract="to-lyon", path=["london", "paris"], hops_left=1)
    check_ask(replace(ask, user="ann@london"), found)
    assert code(check_ask, ask, found) == "wrong-purpose"
