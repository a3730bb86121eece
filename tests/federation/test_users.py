"""Names of users, and those that could be taken for another user's."""

import pytest

from federation.errors import SessionRefused
from federation.messages.messages import Hello
from federation.sessions.handshake import SharedSecret
from federation.users import check_project, check_user, site_of

GOOD = ["ada", "Ada Lovelace", "ada@bank.example", "BANK\\\\ada", "größe", "svc-eod", "x" * 200]
BAD = {
    "": "is empty",
    "eve@paris": "users of other sites",
    "eve@bank.example@paris": "users of other sites",
    "group:quants": "a party of a rule",
    "user:ada": "a party of a rule",
    "project:": "a party of a rule",
    "site:paris": "a party of a rule",
    "ada\x1b[2J": "invisible",
    "ada\n": "invisible",
    "a\u202eda": "invisible",
    " ada": "invisible",
    "ada ": "invisible",
    "x" * 201: "the limit is 200",
}


def hello(user, role="client"):
    return Hello([], role, "name", user, b"", "", 0, {})


@pytest.mark.parametrize("name", GOOD)
def test_names_of_users(name):
    assert check_user(name) == name
    assert SharedSecret("s").hear(hello(name)).user == name


@pytest.mark.parametrize(("name", "reason"), BAD.items())
def test_names_that_are_none(name, reason):
    with pytest.raises(ValueError, match=reason):
        check_user(name)
    with pytest.raises(SessionRefused, match=reason) as caught:
        SharedSecret("s").hear(hello(name))
    assert caught.value.code == "name"


@pytest.mark.parametrize("name", ["risk", "Risk & FX", "größe", "group:quants", "x" * 200])
def test_names_of_projects(name):
    assert check_project(name) == name


@pytest.mark.parametrize("name", ["", "ri\nsk", "a\u202eda", " risk", "risk ", "x" * 201])
def test_names_that_no_project_has(name):
    with pytest.raises(ValueError, match="the project name"):
        check_project(name)


def test_a_worker_needs_no_user():
    assert SharedSecret("s").hear(hello("", "worker")).user == ""


@pytest.mark.parametrize(
    ("user", "site"),
    [
        ("ada", ""),
        ("ada@paris", "paris"),
        ("ada@rome@paris", "paris"),
        ("ada@bank.example", ""),
        ("ada@PARIS", ""),
        ("@paris", "paris"),
        ("ada@", ""),
    ],
)
def test_the_site_that_vouches_for_a_user(user, site):
    assert site_of(user) == site
