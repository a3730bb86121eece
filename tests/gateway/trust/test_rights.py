"""The callers of each question, and the rows they see: verb by verb."""

from types import SimpleNamespace

import pytest

from federation.reasons import Reason
from federation.signed.tokens import Scope
from federation.transport import Origin
from gateway.api import books_desk
from gateway.api.desk import TAKES, Desk
from gateway.peering import orders
from gateway.trust.rights import (
    ALL_USERS,
    RIGHTS,
    Asker,
    Denied,
    Right,
    RowScope,
    asker_of,
    is_operator,
    right_to,
    title_of,
)
from policies.parties import Owner, read_party

# What a token of one scope alone may ask, verb by verb.
ANY = {"status", "sites", "pools", "scale", "jobs", "reservations", "workers", "shares", "job"} | {
    *("results", "explain", "running", "logs", "object", "objects")
}
ADMIN = {
    "drain",
    "consequences",
    "drain_host",
    "drains",
    "reload",
    "change_rules",
    "cancel_change",
    "can",
    "probe_pool",
    "test_alert",
    "write_off",
} | {*(*books_desk.ORDERS, *orders.VERBS)}
CONTROL = {"hold", "release", "prioritise", "drop_object"}
OF_SCOPE = {
    Scope.SUBMIT: ANY
    | CONTROL
    | {"forget", "unreserve", "reserve"}
    | {"object_host", "hold_objects", "large_arguments"},
    Scope.CANCEL: ANY | CONTROL | {"forget", "unreserve"},
    Scope.REPORT: ANY | {"report", "budgets"},
    Scope.AUDIT: ANY
    | {"report", "budgets", "page", "statement", "margin", "deals", "deliveries"}
    | {"disputes", "payments", "alerts", "rules", "rule_history"},
    Scope.ADMIN: ANY | ADMIN | CONTROL,
}
# Whose rows: these verbs name users, their jobs, and what is theirs.
OWN = {"jobs", "job", "results", "explain", "forget", "reservations", "reserve", "unreserve"} | {
    *("workers", "shares", "report", "budgets", "running", "logs", *CONTROL),
    *("object_host", "hold_objects", "object", "objects", "drop_object"),
}


def token(*scopes, projects=None):
    return SimpleNamespace(
        projects=projects, allows=lambda scope, project=None: scope.value in set(scopes)
    )


def peer(user="ann", *, is_local=False, origin=Origin()):  # noqa: B008 - it is frozen
    return SimpleNamespace(handle=1, user=user, is_local=is_local, origin=origin)


def ask(verb, held, who=None, **details):
    return asker_of(who or peer(), held, right_to(verb), details)


def is_denied(verb, held, who=None, **details):
    try:
        ask(verb, held, who, **details)
    except Denied as denied:
        return denied.code
    return ""


def test_every_verb_has_a_right_and_every_right_a_verb():
    assert set(RIGHTS) == {
        *Desk(None, None)._verbs,
        *(*books_desk.QUESTIONS, *books_desk.ORDERS, *orders.VERBS),
    }


def test_a_verb_that_is_not_in_the_table_takes_an_administrator_at_our_own_socket():
    assert right_to("new") == Right(RowScope.SITE, (Scope.ADMIN,), at_home=True)


@pytest.mark.parametrize("detail", ["user", "group", "site"])
def test_any_token_may_ask_what_its_own_user_can_do_and_an_operator_about_others(detail):
    assert right_to("can", {"project": "fx", "pool": "local"}) == Right(RowScope.OWN)
    assert right_to("can", {detail: "ann"}) == RIGHTS["can"]
    assert right_to("report", {}) == RIGHTS["report"]


def test_lists_that_can_be_asked_of_all_users_take_that_word():
    for verb, right in RIGHTS.items():
        assert right.takes_all_users == (ALL_USERS in TAKES.get(verb, ())), verb


@pytest.mark.parametrize("verb", RIGHTS)
@pytest.mark.parametrize("scope", OF_SCOPE)
def test_what_each_scope_is_good_for(verb, scope):
    expected = "" if verb in OF_SCOPE[scope] else Reason.SCOPE_MISSING
    assert is_denied(verb, token(scope)) == expected


@pytest.mark.parametrize("verb", RIGHTS)
def test_whose_rows_a_verb_shows(verb):
    right = RIGHTS[verb]
    assert (right.rows is RowScope.OWN) == (verb in OWN)
    every = token(*Scope)
    row = ("bob", "risk")
    if right.rows is not RowScope.OWN:
        return
    assert not ask(verb, token(*(set(Scope) - {Scope.AUDIT}))).may_see(*row)
    assert ask(verb, every).sees(*row)
    assert ask(verb, None, peer(is_local=True)).sees(*row)
    assert not ask(verb, None).sees(*row)
    assert ask(verb, None).sees("ann", "risk")
    assert ask(verb, None, **{ALL_USERS: True}).sees(*row)
    for held in (token(*(set(Scope) - {Scope.AUDIT})), every):
        narrow = SimpleNamespace(allows=held.allows, projects=frozenset({"fx"}))
        assert ask(verb, narrow).sees("ann", "fx")
        assert not ask(verb, narrow).sees("ann", "risk")
        assert not ask(verb, narrow).may_see("ann", "risk")


@pytest.mark.parametrize("verb", [verb for verb, right in RIGHTS.items() if right.takes_all_users])
def test_all_users_are_not_for_everybody(verb):
    held = token(Scope.SUBMIT, Scope.REPORT)
    assert is_denied(verb, held, **{ALL_USERS: True}) == Reason.SCOPE_MISSING
    assert is_denied(verb, held, **{ALL_USERS: "yes"}) == Reason.BAD_REQUEST


def test_a_token_of_one_project_tells_nothing_of_the_whole_site():
    held = token(Scope.AUDIT, projects=frozenset({"fx"}))
    for verb in OF_SCOPE[Scope.AUDIT] - ANY - {"report", "budgets"}:
        assert is_denied(verb, held) == Reason.PROJECT_NOT_ALLOWED, verb


def test_work_that_another_site_sent_is_no_users_here():
    assert not Asker(1, "ada").sees("ada", "risk", "paris")
    assert Asker(1, "ada", sees_all=True).sees("ada", "risk", "paris")


@pytest.mark.parametrize(
    ("party", "is_shown"),
    [
        ("user:ann", True),
        ("user:bob", False),
        ("group:quants", True),
        ("group:prod", False),
        ("project:risk", True),
        ("ours", True),
        ("all", True),
        ("others", False),
        ("site:paris", False),
    ],
)
def test_a_rule_is_shown_to_those_for_whom_it_counts(party, is_shown):
    assert Asker(1, "ann").concerns(read_party(party), Owner("ann", "quants")) is is_shown
    assert Asker(1, "ann", sees_all=True).concerns(read_party(party), Owner("ann", "quants"))
    if is_shown and party not in ("project:risk",):
        assert read_party(party).includes(Owner("ann", "quants"))


def test_a_token_of_some_projects_shows_the_rules_of_no_other():
    asker = Asker(1, "ann", projects=frozenset({"fx"}))
    assert asker.concerns(read_party("project:fx"), Owner("ann"))
    assert not asker.concerns(read_party("project:risk"), Owner("ann"))
    assert asker.concerns(read_party("user:ann"), Owner("ann"))


@pytest.mark.parametrize(
    ("is_local", "held", "may_all"),
    [
        (True, None, True),
        (False, None, False),  # by the shared secret, which proves no name
        (False, token(Scope.ADMIN), True),
        (True, token(Scope.SUBMIT, Scope.CANCEL), False),
        (False, token(Scope.ADMIN, projects={"risk"}), False),
    ],
)
def test_who_may_cancel_the_jobs_of_all_users(is_local, held, may_all):
    assert is_operator(SimpleNamespace(is_local=is_local), held) is may_all
    assert asker_of(peer(is_local=is_local), held, Right(RowScope.OWN), {}).is_operator is may_all


ABROAD = peer("ops", origin=Origin("10.1.2.3"))
NEARBY = peer("ann", origin=Origin(uid=1001))


@pytest.mark.parametrize(
    ("who", "held", "title"),
    [
        (
            peer("root", is_local=True, origin=Origin(uid=0)),
            None,
            "root (uid 0, the gateway's own socket)",
        ),
        (ABROAD, SimpleNamespace(id="64a3"), "ops (from 10.1.2.3, token 64a3)"),
        (ABROAD, None, "ops (from 10.1.2.3, no token)"),
        (NEARBY, SimpleNamespace(id=""), "ann (uid 1001, the pass of a task)"),
        (peer("e\x1bve"), None, "e\\x1bve (no token)"),
    ],
)
def test_the_log_says_who_ordered_and_by_what_they_came(who, held, title):
    assert title_of(who, held) == title
