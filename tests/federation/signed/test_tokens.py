"""User tokens: believed when whole, signed, for us, in time and not revoked."""

import dataclasses

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pure.site_keys import FEDERATION, NOW_S, KnownSites, key

from federation.errors import ProtocolError
from federation.signed.identity import TrustRefusal, Untrusted, from_text, to_text
from federation.signed.tokens import PREFIX, Scope, UserToken, check_token, read_token, write_token

TOKEN = UserToken(
    federation=FEDERATION,
    issuer="london",
    id="00112233aabbccdd",
    user="ada",
    projects=frozenset({"risk", "pricing"}),
    scopes=frozenset({"submit", "cancel"}),
    sites=frozenset({"london"}),
    issued_s=NOW_S,
    expires_s=NOW_S + 3600,
)
LONDON = KnownSites("london", "paris")
LONDON.welcome.add("paris")


def text(**changes):
    return write_token(dataclasses.replace(TOKEN, **changes), key("london"))


def refusal(shown, trust=LONDON, now_s=NOW_S):
    with pytest.raises(Untrusted) as caught:
        check_token(shown, trust, now_s)
    return caught.value.refusal


def test_a_token_is_believed_where_it_was_issued():
    assert check_token(text(), LONDON, NOW_S) == TOKEN
    assert len(text()) < 500


def test_a_token_is_good_elsewhere_only_when_it_says_so():
    paris, both = KnownSites("paris", "london"), frozenset({"london", "paris"})
    assert refusal(text(), paris) is TrustRefusal.WRONG_SITE
    assert refusal(text(sites=both), paris) is TrustRefusal.UNKNOWN_SITE
    paris.welcome.add("london")
    assert check_token(text(sites=both), paris, NOW_S).user == "ada"


def test_another_sites_token_makes_nobody_an_administrator_or_a_worker():
    paris = KnownSites("paris", "london")
    paris.welcome.add("london")
    shown = text(sites=frozenset({"paris"}), scopes=frozenset(each.value for each in Scope))
    assert check_token(shown, paris, NOW_S).scopes == {"submit", "cancel", "report"}


def test_a_token_has_its_time():
    assert refusal(text(), now_s=NOW_S + 3600) is TrustRefusal.EXPIRED
    assert refusal(text(), now_s=NOW_S - 31) is TrustRefusal.AHEAD
    assert check_token(text(), LONDON, NOW_S - 29) == TOKEN


def test_a_revoked_token_is_refused():
    trust = KnownSites("london")
    trust.revoked["london"] = {TOKEN.id}
    assert refusal(text(), trust) is TrustRefusal.REVOKED


def test_strangers_forgers_and_foreigners_are_refused():
    assert refusal(text(issuer="lyon")) is TrustRefusal.UNKNOWN_SITE
    assert refusal(write_token(TOKEN, key("paris"))) is TrustRefusal.BAD_SIGNATURE
    assert refusal(text(issuer="paris")) is TrustRefusal.BAD_SIGNATURE
    assert refusal(text(federation="others-1")) is TrustRefusal.WRONG_FEDERATION


def test_a_token_outlives_the_rotation_of_keys_but_not_their_theft():
    trust = KnownSites("london")
    trust.keys["london"], trust.past["london"] = (key("new").public,), (key("london").public,)
    assert check_token(text(), trust, NOW_S) == TOKEN
    trust.past["london"] = ()
    assert refusal(text(), trust) is TrustRefusal.BAD_SIGNATURE


FIELDS = {
    "issuer": "paris",
    "id": "ffffffffffffffff",
    "user": "eve",
    "projects": None,
    "scopes": ["admin"],
    "sites": ["london", "lyon"],
    "issued_s": NOW_S - 1,
    "expires_s": NOW_S + 1e9,
}


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_no_field_can_be_changed(field):
    body, signature = msgpack.unpackb(from_text(PREFIX, text(), 9999))
    changed = msgpack.packb({**msgpack.unpackb(body), field: FIELDS[field]})
    assert (
        refusal(to_text(PREFIX, msgpack.packb([changed, signature]))) is TrustRefusal.BAD_SIGNATURE
    )


def test_a_token_that_is_cut_or_spoilt_is_told_as_such():
    for shown in (text()[:-3], text().replace("_", "_a"), "", "gfi1_abc", "hello"):
        assert refusal(shown) is TrustRefusal.ALTERED


def test_a_limit_that_is_not_understood_is_not_ignored():
    body, _ = msgpack.unpackb(from_text(PREFIX, text(), 9999))
    body = msgpack.packb({**msgpack.unpackb(body), "mondays_only": True})
    raw = msgpack.packb([body, key("london").sign("token", body)])
    with pytest.raises(ProtocolError, match="unknown field 'mondays_only'"):
        check_token(to_text(PREFIX, raw), LONDON, NOW_S)


@given(st.binary(max_size=100), st.text(max_size=50))
def test_noise_is_no_token(payload, other):
    for shown in (to_text(PREFIX, payload), other):
        with pytest.raises(ProtocolError):
            check_token(shown, LONDON, NOW_S)


def test_what_a_token_allows():
    assert TOKEN.allows(Scope.SUBMIT)
    assert TOKEN.allows(Scope.SUBMIT, "risk")
    assert not TOKEN.allows(Scope.SUBMIT, "treasury")
    assert not TOKEN.allows(Scope.ADMIN)
    assert dataclasses.replace(TOKEN, projects=None).allows(Scope.CANCEL, "treasury")


def test_a_token_without_user_scope_or_site_is_not_made():
    for wrong in ({"user": ""}, {"scopes": frozenset()}, {"sites": frozenset()}, {"id": "x"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            text(**wrong)


def test_a_token_can_be_read_without_being_believed():
    assert read_token(write_token(TOKEN, key("paris")))[0] == TOKEN
