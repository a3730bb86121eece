"""`gridfed rules take-groups`: the members of groups from the host's name service."""

import grp
import pwd

import pytest
from click.testing import CliRunner

from gateway.base.values import SettingError
from gateway.cli.main import cli
from gateway.cli.operate import rules
from gateway.cli.operate.host_groups import members, read_pairs, with_members


def account(name, gid):
    return pwd.struct_passwd((name, "x", 1000, gid, "", "/", "/bin/sh"))


@pytest.fixture
def directory(monkeypatch):
    """A host with one group: two listed members, one of which has it as primary group too."""
    group = grp.struct_group(("ldn-quants", "x", 70, ["bob", "ann"]))

    def find(name):
        if name != "ldn-quants":
            raise KeyError(name)
        return group

    monkeypatch.setattr(grp, "getgrnam", find)
    accounts = [account("ann", 70), account("cyd", 70), account("dan", 71)]
    monkeypatch.setattr(pwd, "getpwall", lambda: accounts)


@pytest.fixture
def asked(monkeypatch, directory):
    """What the command asks of a gateway that has two groups."""
    found = []

    def ask(reach, verb, **details):
        found.append((verb, details))
        if verb == "rules":
            return {"rules": [{"content": {"quants": ["ann", "eve"], "eod": ["svc"]}}]}
        groups = [{"user": "eve", "before": ["quants"], "after": []}]
        empty = {each: [] for each in ("windows", "prices", "gone", "new", "later", "unknown")}
        return {**empty, "change": 7, "groups": groups}

    monkeypatch.setattr(rules, "ask", ask)
    return found


def take(*arguments):
    return CliRunner().invoke(cli, ["rules", "take-groups", *arguments])


def test_the_hosts_group_is_named_like_ours_unless_said():
    assert read_pairs(["eod", "quants=ldn-quants"]) == {"eod": "eod", "quants": "ldn-quants"}
    assert read_pairs(["a=b=c"]) == {"a": "b=c"}


@pytest.mark.parametrize("texts", [["="], ["=x"], ["x="], [""], ["x", "x=y"]])
def test_pairs_that_say_nothing_are_refused(texts):
    with pytest.raises(SettingError):
        read_pairs(texts)


def test_members_are_the_listed_ones_and_those_of_whom_it_is_the_primary_group(directory):
    assert members("ldn-quants") == ["ann", "bob", "cyd"]


def test_a_group_that_the_host_does_not_have_is_an_error_with_the_way_to_look(directory):
    with pytest.raises(SettingError, match="getent group quants"):
        members("quants")


def test_other_groups_and_the_order_stay():
    present = {"quants": ["bob", "ann"], "eod": ["svc"]}
    found = {"new": ["zoe"], "eod": ["svc", "tim"], "quants": ["ann", "bob"]}
    got = with_members(present, found)
    assert list(got.items()) == [
        ("quants", ["bob", "ann"]),
        ("eod", ["svc", "tim"]),
        ("new", ["zoe"]),
    ]
    assert present == {"quants": ["bob", "ann"], "eod": ["svc"]}


def test_a_group_loses_its_last_member_only_where_that_is_meant():
    with pytest.raises(SettingError, match="'eod' would have no member"):
        with_members({"eod": ["svc"]}, {"eod": []})
    assert with_members({"eod": ["svc"]}, {"eod": []}, may_be_empty=True) == {"eod": []}


def test_the_change_has_all_groups_and_says_where_they_are_from(asked):
    done = take("quants=ldn-quants", "--reason", "directory")
    assert done.exit_code == 0, done.output
    [(_, about), (verb, details)] = asked
    assert about == {"kind": "groups"}
    assert verb == "change_rules"
    [edit] = details["edits"]
    assert edit["content"] == {"quants": ["ann", "bob", "cyd"], "eod": ["svc"]}
    assert (edit["kind"], details["source"], details["reason"]) == (
        *("groups", "host groups"),
        "directory",
    )
    assert "groups of eve: quants → none" in done.output


def test_without_a_difference_nothing_is_changed(asked, monkeypatch):
    monkeypatch.setattr(rules, "members", lambda _: ["ann", "eve"])
    done = take("quants")
    assert (done.exit_code, [verb for verb, _ in asked]) == (0, ["rules"])
    assert "nothing was changed" in done.output


def test_a_missing_group_changes_nothing(asked):
    done = take("quants=ldn-quants", "eod=ldn-eod")
    assert (done.exit_code, asked) == (1, [])
    assert "group 'ldn-eod' not found on this host" in done.output
