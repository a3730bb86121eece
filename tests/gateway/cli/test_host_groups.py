"""`gridfed rules take-groups`: the members of groups from the host's name service."""

import grp
import pwd

import pytest
from click.testing import CliRunner

from federation.errors import GridError
from gateway.base.values import SettingError
from gateway.cli.main import cli
from gateway.cli.operate.rules import changes, rules
from gateway.cli.operate.rules.host_groups import members, read_pairs, with_members
from gateway.rules.history import CHANGED_SINCE


def answer_by(monkeypatch, ask):
    """Answer the questions and orders of the command by a function."""
    for module in (rules, changes):
        monkeypatch.setattr(module, "ask", ask)


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
    """The requests of the command to a gateway that has two groups."""
    found = []

    def ask(reach, verb, **details):
        found.append((verb, details))
        if verb == "rules":
            return {"rules": [{"content": {"quants": ["ann", "eve"], "eod": ["svc"]}}]}
        groups = [{"user": "eve", "before": ["quants"], "after": []}]
        empty = {each: [] for each in ("windows", "prices", "gone", "new", "later", "unknown")}
        return {**empty, "change": 7, "groups": groups}

    answer_by(monkeypatch, ask)
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


def test_a_change_made_in_between_is_not_overwritten(monkeypatch, directory):
    """The first order is refused, as the rules have changed; the groups are read again."""
    asked = []
    versions = iter([4, 5])

    def ask(reach, verb, **details):
        asked.append((verb, details.get("version")))
        if verb == "rules":
            content = {"quants": ["ann", "eve"], "eod": ["svc"]}
            return {"rules": [{"content": content}], "version": next(versions)}
        if details["version"] == 4:
            raise GridError(f"{CHANGED_SINCE}: it was made of version 4, and 5 counts")
        empty = {each: [] for each in ("windows", "prices", "gone", "new", "later", "unknown")}
        return {**empty, "change": 7, "groups": []}

    answer_by(monkeypatch, ask)
    done = take("quants=ldn-quants")
    assert done.exit_code == 0, done.output
    orders = [("rules", None), ("change_rules", 4), ("rules", None), ("change_rules", 5)]
    assert asked == orders


def test_a_gateway_of_an_older_version_is_asked_without_the_version(monkeypatch, directory):
    asked = []

    def ask(reach, verb, **details):
        if verb == "rules":
            return {"rules": [{"content": {"quants": ["eve"]}}], "version": 4}
        asked.append("version" in details)
        if "version" in details:
            raise GridError("change_rules has no detail 'version'; its details: edits")
        empty = {each: [] for each in ("windows", "prices", "gone", "new", "later", "unknown")}
        return {**empty, "change": 7, "groups": []}

    answer_by(monkeypatch, ask)
    assert take("quants=ldn-quants").exit_code == 0
    assert asked == [True, False]
