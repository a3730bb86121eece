"""Orders about keys and trust: their refusals, and their changes."""

import pytest
from support.pure.site_keys import NOW_S, folder_of_london

from federation.errors import GridError
from federation.signed.declarations import REVOKED_MAX
from federation.signed.tokens import Scope, check_token, read_token
from gateway.peering.orders import RULES_MAX, VALID_MAX_S, perform, shown
from gateway.trust.identity_store import TRUST_FILE, Registry
from gateway.trust.permissions import ANY
from gateway.trust.standing import TrustLevel
from gateway.trust.token_register import TOKENS_FILE

SEND = {"rule": "permit", "verb": "send"}
RUN = {"rule": "permit", "verb": "run"}
NO_SEND = {"rule": "forbid", "verb": "send"}
REFUSED = [
    ("invite", {}, "has no address where invited sites can join"),
    ("join", {}, "invitation is missing"),
    ("join", {"invitation": "x", "approve": "yes"}, "approve must be true or false"),
    ("approve", {}, "invalid site name"),
    ("approve", {"site": "rome"}, "site 'rome' not found in the trust book"),
    ("approve", {"site": "paris", "fingerprint": "00:11"}, "is not the fingerprint"),
    ("approve", {"site": "paris", "fingerprint": 7}, "fingerprint must be 1 to"),
    ("expel", {"site": "rome"}, "site 'rome' not found in the trust book"),
    ("expel", {"site": "paris", "reason": "two\nlines"}, "the reason "),
    ("expel", {"site": "paris", "keep": 1}, "keep must be true or false"),
    ("trust", {"site": "rome"}, "site 'rome' not found in the trust book"),
    ("trust", {"site": "paris", "may_send": SEND}, "rules must be a list of at most"),
    (
        "trust",
        {"site": "paris", "may_send": [SEND] * (RULES_MAX + 1)},
        "rules must be a list of at",
    ),
    ("trust", {"site": "paris", "may_send": [RUN]}, "is for the other direction"),
    ("trust", {"site": "paris", "may_send": [NO_SEND]}, "may_send has a rule that forbids"),
    ("trust", {"site": "paris", "never_send": [SEND]}, "never_send has a rule that permits"),
    ("trust", {"site": "paris", "may_send": [{"rule": "maybe"}]}, "invalid rule"),
    ("trust", {"site": "paris", "may_send": [SEND | {"classes": ["pii"]}]}, "has no effect yet"),
    (
        "trust",
        {"site": "paris", "may_run": [RUN | {"slots_max": 3}]},
        "slots= and budget= are only",
    ),
    ("trust", {"site": "paris", "pickles": 1}, "pickles must be true or false"),
    ("trust", {"site": ANY, "pickles": True}, "are set for one site at a time"),
    ("token", {}, "user is missing"),
    ("token", {"user": "eve@paris"}, ""),
    ("token", {"user": "ann", "scopes": ["root"]}, "unknown scope 'root'; known scopes:"),
    ("token", {"user": "ann", "scopes": "admin"}, "scopes must be a list of names"),
    ("token", {"user": "ann", "projects": [1]}, "projects must be a list of names"),
    ("token", {"user": "ann", "sites": "paris"}, "sites must be a list of names"),
    ("token", {"user": "ann", "expires_s": 0}, "expires_s must be above zero, and at most"),
    (
        "token",
        {"user": "ann", "expires_s": VALID_MAX_S + 1},
        "expires_s must be above zero, and at most",
    ),
    ("token", {"user": "ann", "expires_s": True}, "expires_s must be above zero, and at most"),
    ("revoke", {}, "token is missing"),
    ("revoke", {"token": "no token"}, "no token with the id 'no token' found here, and nothing"),
    ("revoke", {"token": "00dead"}, "`gridfed tokens list --all` shows the ids"),
    ("revoke", {"token": "00112233aabbccdd"}, "no token with the id '00112233aabbccdd' found here"),
    ("revoke", {"token": "gft1.x"}, ""),
    ("token", {"user": "bad\nname"}, "user must be 1 to 1,000 printable characters"),
    ("token", {"user": "eve@paris"}, "the form NAME@SITE is for users of other sites"),
    ("token", {"user": "ann", "projects": ["risk", " fx"]}, "the project name ' fx' has invisible"),
    ("revoke", {"user": ""}, "user must be 1 to"),
    ("revoke", {"user": "ann", "token": "00112233aabbccdd"}, "a token or a user, not both"),
    ("tokens", {"user": 7}, "user must be a name"),
    ("tokens", {"all": "yes"}, "all must be true or false"),
    ("rotate", {"compromised": "yes"}, "compromised must be true or false"),
    ("rotate", {"force": 1}, "force must be true or false"),
    ("known", {"forget": "yes"}, "forget must be true or false"),
]


@pytest.fixture
def folder(tmp_path):
    return folder_of_london(tmp_path / "federation")


def opened(folder):
    return Registry(folder, clock=lambda: NOW_S)


async def test_what_makes_no_sense_is_refused_with_a_reason_and_changes_nothing(folder):
    registry, before, wrong = opened(folder), (folder / TRUST_FILE).read_bytes(), []
    for verb, details, text in REFUSED:
        try:
            found = await perform(registry, verb, details)
        except GridError as error:
            if text not in str(error):
                wrong.append((verb, details, str(error)))
        else:
            wrong.append((verb, details, found))
    assert not wrong
    assert (folder / TRUST_FILE).read_bytes() == before


async def test_a_site_is_shown_before_its_fingerprint_is_compared_and_approved_after(folder):
    registry = opened(folder)
    await perform(registry, "expel", {"site": "paris", "reason": "audit"})
    assert opened(folder).level("paris") is TrustLevel.EXPELLED
    await perform(registry, "expel", {"site": "paris", "keep": True})
    view = await perform(registry, "approve", {"site": "paris"})
    before = view["level"]
    again = await perform(registry, "approve", {"site": "paris"})
    assert again["level"] == before
    approved = await perform(
        registry, "approve", {"site": "paris", "fingerprint": view["fingerprint"]}
    )
    assert approved["level"] == "approved"
    assert opened(folder).level("paris") is TrustLevel.APPROVED


async def test_rules_of_a_kind_take_the_place_of_those_and_of_no_others(folder):
    registry = opened(folder)
    told = {"site": "paris", "never_send": [NO_SEND | {"projects": ["fx"]}], "may_run": [RUN]}
    await perform(registry, "trust", told)
    view = await perform(registry, "trust", {"site": "paris", "may_send": [SEND], "may_run": []})
    again = opened(folder).book.members["paris"].rules
    found = {(each["verb"], each["rule"]) for each in view["rules"]}
    assert found == {("send", "permit"), ("send", "forbid")}
    assert {(rule.verb.value, rule.permits) for rule in again} == {("send", True), ("send", False)}
    every = await perform(registry, "trust", {"site": ANY, "may_run": [RUN]})
    assert every == {"site": ANY, "rules": [RUN]}


async def test_a_token_is_good_until_it_is_revoked(folder):
    registry = opened(folder)
    made = await perform(registry, "token", {"user": "ann", "expires_s": 60})
    assert made["scopes"] == sorted([Scope.SUBMIT, Scope.CANCEL])
    assert (made["sites"], made["projects"], made["expires_s"]) == (["london"], None, NOW_S + 60)
    assert check_token(made["token"], registry.book, NOW_S).user == "ann"
    told = await perform(registry, "revoke", {"token": made["token"]})
    assert told == {"id": made["id"], "user": "ann", "tokens": [made["id"]]}
    with pytest.raises(GridError):
        check_token(made["token"], opened(folder).book, NOW_S)
    other = await perform(registry, "token", {"user": "bob", "scopes": ["report"]})
    assert await perform(registry, "revoke", {"token": other["id"]}) == {
        "id": other["id"],
        "user": "bob",
        "tokens": [other["id"]],
    }
    with pytest.raises(GridError):
        check_token(other["token"], opened(folder).book, NOW_S)


async def listed(folder, **details):
    return {each["id"]: each for each in await perform(opened(folder), "tokens", details)}


async def test_issued_tokens_are_listed_after_a_restart_without_their_text(folder):
    made = await perform(opened(folder), "token", {"user": "ann", "projects": ["risk", "fx"]})
    other = await perform(opened(folder), "token", {"user": "bob"})
    found = await listed(folder)
    assert set(found) == {made["id"], other["id"]}
    assert made["token"] not in (folder / TOKENS_FILE).read_text()
    assert found[made["id"]] == {
        "id": made["id"],
        "user": "ann",
        "scopes": ("cancel", "submit"),
        "projects": ("fx", "risk"),
        "sites": ("london",),
        "made_at_s": NOW_S,
        "expires_at_s": made["expires_s"],
        "revoked_at_s": None,
        "used_at_s": None,
        "used_from": "",
        "state": "valid",
    }
    assert set(await listed(folder, user="bob")) == {other["id"]}


async def test_all_tokens_of_a_user_are_revoked_with_or_without_a_register(folder):
    registry = opened(folder)
    ann = [await perform(registry, "token", {"user": "ann"}) for _ in range(2)]
    bob = await perform(registry, "token", {"user": "bob"})
    old = await perform(registry, "token", {"user": "ann"})
    (folder / TOKENS_FILE).unlink()  # as if an older version had made these
    registry = opened(folder)
    new = await perform(registry, "token", {"user": "ann"})
    told = await perform(registry, "revoke", {"user": "ann"})
    assert told == {"id": "", "user": "ann", "tokens": [new["id"]]}
    assert set(registry.book.own.revocations.content.tokens) == {new["id"]}
    again = opened(folder)
    for made in (*ann, old, new):
        token, *_ = read_token(made["token"])
        assert again.tokens.is_cut_off(token)
    assert not again.tokens.is_cut_off(read_token(bob["token"])[0])
    assert await listed(folder) == {}
    assert (await listed(folder, all=True))[new["id"]]["state"] == "revoked"
    later = Registry(folder, clock=lambda: NOW_S + 1)
    made = await perform(later, "token", {"user": "ann"})
    assert not later.tokens.is_cut_off(read_token(made["token"])[0])


async def test_too_many_revocations_change_nothing(folder):
    registry = opened(folder)
    made = await perform(registry, "token", {"user": "ann"})
    for each in range(REVOKED_MAX):
        registry.book.revoked[f"{each:016x}"] = NOW_S + 60
    for details in ({"user": "ann"}, {"token": made["id"]}):
        with pytest.raises(GridError, match="rotate the keys with --compromised"):
            await perform(registry, "revoke", details)
    token, *_ = read_token(made["token"])
    assert not registry.tokens.is_cut_off(token)
    assert made["id"] not in registry.book.revoked
    [row] = await perform(registry, "tokens", {})
    assert row["state"] == "valid"


async def test_keys_that_are_compromised_take_all_tokens_with_them(folder):
    registry = opened(folder)
    made = await perform(registry, "token", {"user": "ann"})
    await perform(registry, "rotate", {"compromised": True})
    assert (await listed(folder, all=True))[made["id"]]["state"] == "revoked"


def test_the_log_says_by_whom_and_which_token():
    who, found = "root (uid 0, the gateway's own socket)", {"id": "0011", "token": "gft1_x"}
    line = shown("token", {"user": "ann"}, found, who)
    assert line == f"order by {who}: token for user ann (token 0011)"
    told = {"id": "", "user": "ann", "tokens": ["0011", "0022"]}
    assert shown("revoke", {"user": "ann"}, told, who).endswith("(token 0011, 0022)")
    assert shown("tokens", {}, [], who) == ""


async def test_who_has_left_neither_leaves_again_nor_invites(folder):
    registry = opened(folder)
    registry.join_address = "tls+tcp://london.example:7463"
    invited = await perform(registry, "invite", {"expires_s": 60})
    assert (invited["site"], invited["expires_s"]) == ("london", NOW_S + 60)
    left = await perform(registry, "leave", {})
    assert sorted(left["told"]) == ["berlin", "paris"]
    for verb in ("leave", "invite"):
        with pytest.raises(GridError, match="has left"):
            await perform(registry, verb, {})
    own = (await perform(opened(folder), "known", {}))["sites"][0]
    assert (own["site"], own["level"]) == ("london", "left")


def test_the_log_has_what_was_ordered_without_secrets():
    assert shown("known", {"from": None}) == ""
    assert shown("known", {"from": "paris", "forget": True}) == (
        "order: forget the sites that paris has reported"
    )
    for verb, key in (("join", "invitation"), ("revoke", "token")):
        assert "secret" not in shown(verb, {key: "secret", "approve": None})
