"""Commands cite a rule by its line in the file, or by the change that made it."""

import pytest

from gateway.cli.inspect import can
from gateway.cli.shared.rule_changes import say_change

BY_ROOT = "change 15, by root"


@pytest.mark.parametrize(
    ("rule", "cited"),
    [
        ({"line": 12}, "gateway.toml:12"),
        ({"line": 12, "change": BY_ROOT}, "gateway.toml:12"),
        ({"line": 0, "change": BY_ROOT}, BY_ROOT),
        ({"line": 0}, "gateway.toml:0"),  # of a gateway that does not tell the change
    ],
)
def test_a_rule_is_cited_by_its_line_or_its_change(rule, cited):
    assert can._place(rule, "gateway.toml") == cited


@pytest.mark.parametrize(
    ("row", "cited"),
    [
        ({"line": 12, "change": ""}, "entitlement, new, line 12: denies user:bob"),
        ({"line": 0, "change": BY_ROOT}, f"entitlement, new, {BY_ROOT}: denies user:bob"),
        ({"line": 0}, "entitlement, new: denies user:bob"),
    ],
)
def test_a_change_of_the_rules_tells_entitlements_with_their_place(row, cited, capsys):
    entitlements = {"gone": [], "new": [row | {"rule": "denies user:bob"}]}
    say_change({"windows": [], "prices": [], "entitlements": entitlements, "later": []})
    assert cited in capsys.readouterr().out.splitlines()
