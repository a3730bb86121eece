"""Rules for the users of pools, and their hours: tables, and properties of all of them."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.access.entitlements import (
    ELSEWHERE,
    NO_WINDOW,
    EntitlementReason,
    EntitlementRule,
    Entitlements,
    Work,
    next_change,
    room,
)
from policies.access.windows import Window, WindowPlan
from policies.calendar.hours import Hours
from policies.parties import ANOTHER_SITE, Owner, read_party

ANN = Owner("ann", "quants", "risk")
BOB = Owner("bob", "quants", "pricing")
DAN = Owner("dan", "", "risk")
ZOE = Owner("zoe@paris", "", "risk", "paris")
TOM = Owner("tom@tokyo", "", "pricing", "tokyo")


def rule(allows, who, pools="", windows="", **limits):
    return EntitlementRule(
        allows,
        tuple(map(read_party, who.split())),
        frozenset(pools.split()),
        frozenset(windows.split()),
        **limits,
    )


def allow(who, pools="", windows="", **limits):
    return rule(True, who, pools, windows, **limits)


def deny(who, pools="", windows=""):
    return rule(False, who, pools, windows)


QUANTS = allow("group:quants", "fast")
NIGHT = allow("user:dan", "fast", "night")

TABLE = [
    # rules, whose, pool, window, why
    ([], ANN, "fast", "", EntitlementReason.OPEN),
    ([], ZOE, "fast", "", EntitlementReason.OPEN),  # as far as the trust book goes
    ([QUANTS], ANN, "fast", "", EntitlementReason.ALLOWED),
    ([QUANTS], ANN, "slow", "", EntitlementReason.NOT_ALLOWED),
    ([QUANTS], DAN, "fast", "", EntitlementReason.NOT_ALLOWED),
    ([QUANTS], ANN, ELSEWHERE, "", EntitlementReason.NOT_ALLOWED),
    ([allow("group:quants")], ANN, ELSEWHERE, "", EntitlementReason.ALLOWED),
    ([allow("ours", "elsewhere")], ANN, ELSEWHERE, "", EntitlementReason.ALLOWED),
    ([QUANTS], ZOE, "fast", "", EntitlementReason.OPEN),  # it is about our own people
    ([allow("project:risk")], TOM, "fast", "", EntitlementReason.OPEN),
    ([allow("site:paris", "fast")], ANN, "slow", "", EntitlementReason.OPEN),
    ([allow("site:paris", "fast")], ZOE, "fast", "", EntitlementReason.ALLOWED),
    ([allow("site:paris", "fast")], TOM, "fast", "", EntitlementReason.NOT_ALLOWED),
    ([allow("user:zoe@paris")], TOM, "fast", "", EntitlementReason.NOT_ALLOWED),
    ([allow("user:zoe@paris")], ANN, "fast", "", EntitlementReason.OPEN),
    ([allow("site:tokyo"), allow("project:risk")], ZOE, "fast", "", EntitlementReason.ALLOWED),
    ([allow("all")], TOM, "fast", "", EntitlementReason.ALLOWED),
    ([deny("user:bob")], BOB, "fast", "", EntitlementReason.DENIED),
    ([deny("user:bob")], ANN, "fast", "", EntitlementReason.OPEN),  # who only denies makes no list
    ([QUANTS, deny("user:bob")], BOB, "fast", "", EntitlementReason.DENIED),
    ([deny("user:bob"), QUANTS], ANN, "fast", "", EntitlementReason.ALLOWED),
    ([deny("project:risk")], ZOE, "fast", "", EntitlementReason.DENIED),
    ([QUANTS, deny("ours", "fast", "night")], ANN, "fast", "night", EntitlementReason.DENIED),
    ([QUANTS, deny("ours", "fast", "night")], ANN, "fast", "", EntitlementReason.ALLOWED),
    ([NIGHT], DAN, "fast", "night", EntitlementReason.ALLOWED),
    ([NIGHT], DAN, "fast", "", EntitlementReason.NOT_NOW),
    ([NIGHT], DAN, "fast", "day", EntitlementReason.NOT_NOW),
    ([NIGHT], ANN, "fast", "night", EntitlementReason.NOT_ALLOWED),
    ([allow("user:ann user:dan")], DAN, "slow", "", EntitlementReason.ALLOWED),
]


@pytest.mark.parametrize(("rules", "whose", "pool", "window", "why"), TABLE)
def test_verdicts(rules, whose, pool, window, why):
    found = Entitlements(tuple(rules)).verdict(Work(whose), pool, window)
    assert found.why is why
    assert found.is_yes is (why in (EntitlementReason.OPEN, EntitlementReason.ALLOWED))


@pytest.mark.parametrize(
    ("limits", "work", "why"),
    [
        ({"priority_max": 5}, {"priority": 5.0}, EntitlementReason.ALLOWED),
        ({"priority_max": 5}, {"priority": 5.1}, EntitlementReason.OVER_PRIORITY),
        ({}, {"priority": 1e9}, EntitlementReason.ALLOWED),
        ({"classes": {"preemptible"}}, {"price_class": "preemptible"}, EntitlementReason.ALLOWED),
        (
            {"classes": {"preemptible"}},
            {"price_class": "guaranteed"},
            EntitlementReason.OTHER_CLASS,
        ),
        ({"classes": {"preemptible"}}, {}, EntitlementReason.ALLOWED),
    ],
)
def test_priority_and_class_must_fit(limits, work, why):
    rules = Entitlements((allow("ours", **limits),))
    assert rules.verdict(Work(ANN, **work), "fast", "").why is why


def test_a_job_fits_into_one_rule_whole():
    low, few = allow("ours", priority_max=0, slots_max=100), allow("ours", slots_max=2)
    rules = Entitlements((low, few))
    assert rules.verdict(Work(ANN, 0.0), "fast", "").slots_max == 100
    assert rules.verdict(Work(ANN, 1.0), "fast", "").slots_max == 2


def test_limits_of_different_rules_are_not_added_up():
    rules = Entitlements((allow("group:quants", slots_max=10), allow("user:ann", slots_max=5)))
    verdict = rules.verdict(Work(ANN), "fast", "")
    assert room(verdict, "ann", lambda _rule, _user: 0) == 10
    assert room(verdict, "ann", lambda each, _user: 8 if each.slots_max == 10 else 1) == 4


@pytest.mark.parametrize(
    ("together", "each", "used", "left"),
    [
        (None, None, (9, 9), inf),
        (10, None, (4, 4), 6),
        (10, 3, (4, 1), 2),
        (10, 3, (9, 1), 1),
        (10, 3, (12, 1), 0),  # since the rule was changed
        (0, None, (0, 0), 0),
    ],
)
def test_what_is_left_of_a_rule(together, each, used, left):
    def has(_rule, user):
        return used[bool(user)]

    slots = Entitlements((allow("ours", slots_max=together, user_slots_max=each),))
    queue = Entitlements((allow("ours", queued_max=together, user_queued_max=each),))
    assert room(slots.verdict(Work(ANN), "fast", ""), "ann", has) == left
    assert room(queue.fitting(Work(ANN)), "ann", has, of_queue=True) == left


def test_who_may_nothing_has_no_room():
    verdict = Entitlements((QUANTS,)).verdict(Work(DAN), "fast", "")
    assert (verdict.slots_max, room(verdict, "dan", lambda _rule, _user: 0)) == (0, 0)


def test_what_denies_has_no_limits():
    with pytest.raises(ValueError, match="can't have limits"):
        rule(False, "ours", slots_max=1)


@pytest.mark.parametrize(
    ("rules", "window", "slots"),
    [
        ([], "", inf),
        ([allow("group:quants", slots_max=3)], "", inf),
        ([allow("site:paris", slots_max=3), allow("site:tokyo", slots_max=7)], "", 7),
        ([allow("site:paris", slots_max=3), allow("group:quants", slots_max=7)], "", 3),
        ([allow("site:paris", slots_max=3), deny("site:tokyo")], "", 3),
        ([allow("site:paris", windows="night")], "", 0),
        ([allow("site:paris", windows="night")], "night", inf),
        ([allow("site:paris"), deny("others", windows="night")], "night", 0),
        ([deny("site:paris")], "", inf),
    ],
)
def test_what_some_other_site_may_have_is_shown(rules, window, slots):
    assert Entitlements(tuple(rules)).most_of_others("fast", window) == slots


def test_the_next_change_is_where_the_verdict_is_another():
    day = Window("day", Hours(8 * 3600, 20 * 3600))
    night = Window("night", Hours(20 * 3600, 6 * 3600))
    plan, rules = WindowPlan((day, night)), Entitlements((NIGHT,))
    span, then = next_change(rules, Work(DAN), "fast", plan, 7 * 3600.0, 86_400.0)
    assert (span.from_s, then.why) == (20 * 3600.0, EntitlementReason.ALLOWED)
    span, then = next_change(rules, Work(DAN), "fast", plan, 21 * 3600.0, 2 * 86_400.0)
    assert (span.from_s, then.why) == (30 * 3600.0, EntitlementReason.NOT_NOW)
    assert next_change(rules, Work(ANN), "fast", plan, 0.0, 86_400.0) is None


def test_a_rule_and_a_verdict_in_words():
    night = replace(allow("user:dan", "fast", "night", slots_max=40), line=12)
    rules = Entitlements((night,), "site.toml")
    work = Work(DAN)
    text = rules.explain(rules.verdict(work, "fast", ""), work)
    assert text == (
        "the work of dan is allowed only in window night (site.toml:12: allows user:dan; "
        "pools fast; windows night; slots_max 40)"
    )
    work = Work(ANN)
    text = rules.explain(rules.verdict(work, "fast", ""), work)
    assert text == "no [[entitlement]] of site.toml allows the work of ann"


# --- what holds for all rules --------------------------------------------------------------------

PEOPLE = (ANN, BOB, DAN, ZOE, TOM, ANOTHER_SITE)
POOLS = ("fast", "slow", ELSEWHERE)
WINDOWS = (NO_WINDOW, "day", "night")
NAMED = (
    *("user:ann", "user:bob", "user:zoe@paris", "group:quants", "project:risk", "site:paris"),
    *("ours", "others", "all"),
)
parties = st.sampled_from(NAMED)
names = st.sampled_from(("", "fast", "slow", "fast elsewhere"))
windows = st.sampled_from(("", "night", "day night"))
limits = st.fixed_dictionaries(
    {},
    optional={
        "slots_max": st.integers(0, 5),
        "user_slots_max": st.integers(0, 5),
        "priority_max": st.integers(-1, 1),
    },
)
allows = st.builds(
    lambda who, pools, times, more: allow(who, pools, times, **more),
    parties,
    names,
    windows,
    limits,
)
denies = st.builds(deny, parties, names, windows)
some_rules = st.lists(st.one_of(allows, allows, denies), max_size=6)
works = st.builds(Work, st.sampled_from(PEOPLE), st.sampled_from((-1.0, 0.0, 1.0)))
asked = st.tuples(works, st.sampled_from(POOLS), st.sampled_from(WINDOWS))


def used_of(seed):
    return lambda rule, user: (len(str(rule)) * 7 + len(user) + seed) % 6


@given(some_rules, denies, asked)
def test_what_is_denied_nothing_allows(rules, denied, question):
    work, pool, window = question
    found = Entitlements((*rules, denied)).verdict(*question)
    if denied.covers(pool) and denied.includes(work.whose) and denied.holds_in(window):
        assert found.why is EntitlementReason.DENIED
        assert room(found, work.whose.user, lambda _rule, _user: 0) == 0


@given(some_rules, allows, asked, st.integers(0, 100))
def test_to_allow_more_takes_nothing_away(rules, more, question, seed):
    work, used = question[0], used_of(seed)
    before, after = Entitlements(tuple(rules)), Entitlements((*rules, more))
    if not before.is_closed(work.whose) and after.is_closed(work.whose):
        return  # the first makes a list of those who may
    one, other = before.verdict(*question), after.verdict(*question)
    assert other.is_yes or not one.is_yes
    assert room(other, work.whose.user, used) >= room(one, work.whose.user, used)


@given(some_rules, asked, st.randoms(use_true_random=False), st.integers(0, 100))
def test_the_order_of_rules_does_not_matter(rules, question, dice, seed):
    work, used = question[0], used_of(seed)
    mixed = dice.sample(rules, len(rules))
    one = Entitlements(tuple(rules)).verdict(*question)
    other = Entitlements(tuple(mixed)).verdict(*question)
    assert one == other
    assert room(one, work.whose.user, used) == room(other, work.whose.user, used)


@given(some_rules, asked)
def test_where_there_is_a_list_only_who_is_on_it_may(rules, question):
    work, pool, window = question
    found = Entitlements(tuple(rules))
    if not found.is_closed(work.whose):
        return
    on_it = any(
        each.allows and each.includes(work.whose) and each.covers(pool) and each.holds_in(window)
        for each in rules
    )
    assert on_it or not found.verdict(*question).is_yes


@given(
    st.lists(st.tuples(st.integers(0, 23), st.integers(1, 23), st.integers(0, 3)), max_size=4),
    st.integers(0, 2 * 86_400),
)
def test_no_gap_or_overlap_of_windows_lets_anyone_through(drawn, at_s):
    """A party that one window alone admits is admitted while that window holds, to the second."""
    made = tuple(
        Window(
            "night" if at == 0 else f"w{at}",
            Hours(begins * 3600, (begins + hours) % 24 * 3600 or 86_400),
            priority=10 * priority + at,
        )
        for at, (begins, hours, priority) in enumerate(drawn)
    )
    open_now = [
        each
        for each, (begins, hours, _) in zip(made, drawn, strict=True)
        if (at_s - begins * 3600) % 86_400 < hours * 3600
    ]
    best = max(open_now, key=lambda each: each.priority, default=None)
    span = next(WindowPlan(made).spans(at_s, at_s + 1.0))
    found = Entitlements((NIGHT,)).verdict(Work(DAN), "fast", span.named)
    assert found.is_yes is (best is not None and best.name == "night")


def test_one_rule_may_name_other_sites_and_our_own():
    rules = Entitlements((allow("group:quants site:paris"),))
    assert [rules.is_closed(each) for each in (ANN, ZOE)] == [True, True]
    assert rules.verdict(Work(TOM), "fast", "").why is EntitlementReason.NOT_ALLOWED


def test_a_foreign_user_of_our_gateway_is_one_of_ours():
    foreign = Owner("zoe@paris", "", "risk")
    assert (
        Entitlements((allow("ours"),)).verdict(Work(foreign), "fast", "").why
        is EntitlementReason.ALLOWED
    )
    assert (
        Entitlements((QUANTS,)).verdict(Work(foreign), "fast", "").why
        is EntitlementReason.NOT_ALLOWED
    )
    named = Entitlements((QUANTS, allow("user:zoe@paris")))
    assert named.verdict(Work(foreign), "fast", "").why is EntitlementReason.ALLOWED


def test_no_rule_binds_what_the_operator_orders_for_the_site():
    nobody = Entitlements((EntitlementRule(False, (read_party("all"),)),))
    ordered = Work(Owner("root"), is_operators=True)
    assert nobody.verdict(ordered, "local", NO_WINDOW).is_yes
    assert nobody.fitting(ordered).is_yes
    assert not nobody.verdict(Work(Owner("root")), "local", NO_WINDOW).is_yes


def test_a_user_of_several_groups_has_the_rights_and_the_bans_of_each():
    both = Owner("ann", "quants", "risk", more_groups=frozenset({"prod"}))
    for rules, why in (
        ([allow("group:prod")], EntitlementReason.ALLOWED),
        ([allow("group:quants")], EntitlementReason.ALLOWED),
        ([allow("group:quants"), deny("group:prod")], EntitlementReason.DENIED),
        ([allow("group:ops")], EntitlementReason.NOT_ALLOWED),
    ):
        assert Entitlements(tuple(rules)).verdict(Work(both), "fast", "").why is why
