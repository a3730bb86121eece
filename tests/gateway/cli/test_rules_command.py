"""`gridfed rules`, without a gateway."""

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.operate.rules import rules


@pytest.mark.parametrize("named", [["desk"], ["--name", "desk"], ["desk", "--name", "desk"]])
def test_a_rule_is_removed_by_its_name(named, monkeypatch):
    edits = []
    monkeypatch.setattr(rules, "change_rules", lambda found, **_: edits.extend(found))
    done = CliRunner().invoke(cli, ["rules", "remove", "budget", *named])
    assert done.exit_code == 0, done.output
    assert edits == [{"kind": "budget", "pool": "", "name": "desk", "content": None}]


def test_two_names_of_a_rule_are_refused():
    done = CliRunner().invoke(cli, ["rules", "remove", "budget", "desk", "--name", "day"])
    assert done.exit_code == 2
    assert "two names are given, 'desk' and --name 'day'" in done.output


def test_a_claim_with_a_forgotten_comma_is_refused_before_the_gateway_is_asked():
    claim = ["--claim", "project:risk guaranteed=80%"]
    done = CliRunner().invoke(cli, ["window", "add", "risk", "w", "--from", "1:00", *claim])
    assert done.exit_code == 2
    assert 'write a comma between the party and each KEY=VALUE, as in "project:risk' in done.output
