"""`[[entitlement]]` of a file, mistakes with their line, and the output of `gridfed can`."""

import json

import pytest
from click.testing import CliRunner
from support.answers import answer
from support.reloading import read_again

from gateway.api import can
from gateway.base.values import ConfigError
from gateway.cli.main import cli
from gateway.cli.shared.codes import WRONG
from gateway.config.site import check, load
from gateway.trust import book_file
from gateway.trust.identity_store import TRUST_FILE
from gateway.trust.permissions import Verb, forbid, permit
from policies.access.entitlements import EntitlementRule
from policies.parties import read_party

FILE = """\
[site]
name = "london"

[groups]
quants = ["ann", "bob"]

[[entitlement]]
allow = "group:quants"
pools = ["fast", "elsewhere"]
slots_max = 40
user_slots_max = 10
queued_max = 1000
user_queued_max = 100
priority_max = 5
classes = ["preemptible"]

[[entitlement]]
allow = ["user:dan", "site:paris"]
windows = ["night"]

[[entitlement]]
deny = "user:bob"
windows = ["night"]

[[pool]]
name = "fast"

[[pool.window]]
name = "night"
from = "20:00"
to = "06:00"

[[pool]]
name = "slow"
"""
NOON_S = 1_795_608_000.0  # 2026-11-25 12:00 UTC
NOON, EVENING = "2026-11-25T12:00", "2026-11-25T21:00"


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "site.toml"
    made.write_text(FILE)
    return made


def told(path, *arguments, code=0):
    done = CliRunner().invoke(cli, ["can", *arguments, "--config", str(path)])
    assert done.exit_code == code, done.output
    return done.output


def asked(path, *arguments, at=NOON):
    found = answer(told(path, *arguments, "--at", at, "--json"))
    return {row["pool"]: row for row in found["pools"]}


# --- the file ------------------------------------------------------------------------------------


def test_rules_are_read_whole(path):
    rules = check(load(str(path)), NOON_S).entitlements
    assert rules.file == "site.toml"
    assert [rules.place(each) for each in rules.rules] == [
        f"site.toml:{line}" for line in (7, 17, 21)
    ]
    assert rules.rules[0] == EntitlementRule(
        True,
        (read_party("group:quants"),),
        frozenset({"fast", "elsewhere"}),
        slots_max=40,
        user_slots_max=10,
        queued_max=1000,
        user_queued_max=100,
        priority_max=5.0,
        classes=frozenset({"preemptible"}),
    )
    assert rules.rules[1].who == (read_party("user:dan"), read_party("site:paris"))
    assert not rules.rules[2].allows


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"group:quants"', '"group:quant"', "line 8: [[entitlement]]: allow: group 'quant' "
         "not found in [groups]; known groups: quants"),
        ('"group:quants"', '"quants"', "line 8: [[entitlement]]: allow: 'quants' is not a party"),
        ('"group:quants"', "3", "line 8: [[entitlement]]: allow: it must be a party, or a list"),
        ('"group:quants"', "[]", "line 8: [[entitlement]]: allow: it must be a party, or a list"),
        ('["fast", ', '["fst", ', "line 9: [[entitlement]]: pools: pool 'fst' not found here (did "
         "you mean 'fast'?); known pools: fast, slow, elsewhere"),
        ('["night"]', '["nigth"]', "line 19: [[entitlement]]: windows: no window 'nigth' in the "
         "pools of this rule; their windows: night"),
        ("slots_max = 40", "slots_max = -1", "line 10: [[entitlement]]: slots_max is -1: it must"),
        ("slots_max = 40", "slots_max = 1.5", "slots_max is 1.5: it must be a whole number"),
        ("queued_max = 1000", 'queued_max = "x"', "queued_max must be a number"),
        ("priority_max = 5", "priority_max = inf", "priority_max is inf: it must be"),
        ('["preemptible"]', '["cheap"]', "classes: unknown class 'cheap'; known classes: gua"),
        ("slots_max = 40", "slot_max = 40", "line 10: [[entitlement]]: unknown key 'slot_max'"),
        ('deny = "user:bob"', "", "line 21: [[entitlement]]: it needs either allow or deny"),
        (
            'deny = "user:bob"',
            'deny = "user:bob"\nslots_max = 3',
            "line 21: [[entitlement]]: a rule that denies can't have limits",
        ),
        ('deny = "user:bob"', 'deny = "user:bob"\nallow = "all"', "it needs either allow or deny"),
        ('name = "slow"', 'name = "elsewhere"', "means the pools of other sites"),
        ("[[entitlement]]", "[entitlement]", "entitlement must be an array of tables"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line_and_changes_nothing(path, old, new, text):
    before = check(load(str(path)), NOON_S)
    if new == "[entitlement]":
        path.write_text('[site]\nname = "london"\n[entitlement]\nallow = "ours"\n')
    else:
        path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        read_again(before, NOON_S)
    assert text in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_reload_tells_rules_that_are_gone_and_new_and_takes_them_in(path):
    before = check(load(str(path)), NOON_S)
    path.write_text(FILE.replace("slots_max = 40", "slots_max = 30", 1))
    change = read_again(before, NOON_S)
    plain = change.to_plain()
    assert [each["line"] for each in plain["entitlements"]["gone"]] == [7]
    [new] = plain["entitlements"]["new"]
    assert "slots_max 30" in new["rule"]
    assert change.config.entitlements.rules[0].slots_max == 30
    assert change.later == []


def test_rules_that_only_moved_are_no_change_and_have_their_new_lines(path):
    before = check(load(str(path)), NOON_S)
    path.write_text("# a comment\n" + FILE)
    change = read_again(before, NOON_S)
    assert change.entitlements == ([], [])
    assert [each.line for each in change.config.entitlements.rules] == [8, 18, 22]


def test_users_of_whom_nobody_has_heard_are_named(path):
    rules = load(str(path)).entitlements
    assert can.unknown_users(rules, frozenset({"bob", "dan"})) == []
    [text] = can.unknown_users(rules, frozenset({"bob"}))
    assert text.startswith("site.toml:17: user 'dan' is in no group")


# --- what is answered ----------------------------------------------------------------------------


def test_a_member_of_a_group_may_what_its_rule_gives(path):
    found = asked(path, "ann")
    fast = found["fast"]
    assert (fast["may"], fast["slots_max"], fast["user_slots_max"]) == (True, 40, 10)
    assert (fast["queued_max"], fast["user_queued_max"]) == (1000, 100)
    assert (fast["priority_max"], fast["classes"]) == (5.0, ["preemptible"])
    assert (fast["rule"]["file"], fast["rule"]["line"]) == (str(path), 7)
    assert fast["next"] is None
    assert (found["slow"]["may"], found["slow"]["why"]) == (False, "not-allowed")


def test_a_window_changes_it_and_the_change_is_told(path):
    noon, evening = asked(path, "dan")["fast"], asked(path, "dan", at=EVENING)["fast"]
    assert (noon["may"], noon["why"], noon["rule"]["line"]) == (False, "not-now", 17)
    assert noon["next"] == {
        "at_s": NOON_S + 8 * 3600, "window": "night", "may": True, "slots_max": None,
    }  # fmt: skip
    assert (evening["may"], evening["window"]) == (True, "night")
    assert evening["next"]["at_s"] == NOON_S + 18 * 3600


def test_who_is_denied_is_told_by_which_line(path):
    row = asked(path, "bob", at=EVENING)["fast"]
    assert (row["may"], row["why"], row["rule"]["line"]) == (False, "denied", 21)
    text = told(path, "bob", "--at", EVENING, "--pool", "fast")
    assert "site.toml:21" in text
    assert "fast: the work of bob is denied (site.toml:21: denies user:bob; windows night)" in text


def test_a_group_may_be_tried_and_must_be_one(path):
    assert asked(path, "zoe")["fast"]["may"] is False
    assert asked(path, "zoe", "--group", "quants")["fast"]["may"] is True
    assert "group 'x'" in told(path, "zoe", "--group", "x", code=1)


def test_a_file_without_rules_says_so(path):
    path.write_text('[site]\nname = "london"\n')
    text = told(path, "ann")
    assert "no [[entitlement]] allows our own users anything by name" in text
    assert asked(path, "ann")["workers"]["why"] == "open"


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["ann", "--pool", "x"], "no pool 'x' here; known pools: fast, slow", 1),
        (["ann", "--pool", "fasst"], "no pool 'fasst' here (did you mean 'fast'?); known", 1),
        (["ann", "--at", "noon"], "write 2026-11-20", WRONG),
        (["ann", "--site", "a b"], "site: ", 1),
        (["ann", "--site", "paris", "--group", "quants"], "groups are of our own users", 1),
        (["x" * 300], "user must be a name of 1 to", 1),
    ],
)
def test_what_can_not_be_asked(path, arguments, text, code):
    assert text in told(path, *arguments, code=code)


def test_a_broken_file_is_told_with_its_line(path):
    path.write_text(FILE.replace('["fast", ', '["fst", ', 1))
    assert "line 9: [[entitlement]]: pools: pool 'fst' not found" in told(path, "ann", code=WRONG)


# --- with a trust book ---------------------------------------------------------------------------


@pytest.fixture
def member(tmp_path):
    """The file of a site that `gridfed init` made, with our rules."""
    folder = tmp_path / "london"
    done = CliRunner().invoke(
        cli, ["init", "--site", "london", "--host", "localhost", "--config-dir", str(folder)]
    )
    assert done.exit_code == 0, done.output
    made = folder / "gateway.toml"
    made.write_text(made.read_text() + FILE.partition("[groups]")[2].join(("[groups]", "")))
    return made


def trust_of(path):
    config = load(str(path))
    return config, can.load_trust(config)


def test_a_site_that_is_not_approved_may_nothing(member):
    row = asked(member, "zoe", "--site", "paris", at=EVENING)["fast"]
    assert (row["may"], row["why"], row["rule"]) == (False, "not-approved", None)


def test_our_own_users_may_elsewhere_what_a_rule_says(member):
    assert asked(member, "ann")["elsewhere"]["may"] is True
    assert asked(member, "zoe")["elsewhere"]["why"] == "not-allowed"


@pytest.mark.parametrize("own", [True, False])
def test_the_line_of_a_rule_of_the_trust_book_is_that_of_the_file(member, own):
    config, trust = trust_of(member)
    rules = [permit(Verb.SEND, projects=frozenset({"risk"})), forbid(Verb.RUN), permit(Verb.RUN)]
    site = "london"
    if own:
        trust.book.own.rules = frozenset(rules)
        trust.book.members[site] = trust.book.own
    else:
        trust.book.rules = frozenset(rules)
    for rule in rules:
        text = json.dumps(
            book_file.to_plain(trust.book, trust.invitations), indent=1, ensure_ascii=False
        )
        line = book_file.line_of(trust.book, trust.invitations, site, rule)
        lines = text.splitlines()
        body = "\n".join(lines[line - 1 : line + 8])
        assert lines[line - 1].strip() == "{"
        found, _ = json.JSONDecoder().raw_decode(body.strip()) if body.count("}") else ({}, 0)
        assert (found["rule"], found["verb"]) == (
            "permit" if rule.permits else "forbid",
            rule.verb.value,
        )
    assert (config.trust_path / TRUST_FILE).exists()


def test_a_file_is_asked_about_a_user_by_name(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text(FILE)
    done = CliRunner().invoke(cli, ["can", "--config", str(path)])
    assert done.exit_code == 2
    assert "give the USER to ask about: --config, --group and --site need one" in done.output
