"""The errors of orders about trust for words that they do not take; without a gateway."""

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.operate.trust import rights


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("projets=risk", "a rule has no 'projets' (did you mean 'projects'?): write \"all\""),
        ("pools=cpu klass=x", "a rule has no 'klass': write"),
        ("slots=many", "'slots=many' has no value that fits: write"),
        ("all=yes", "'all=yes' has no value that fits: write"),
        ("pools=cpu,slots=100", "'pools=cpu,slots=100' has two settings: write a blank between"),
    ],
)
def test_the_wrong_word_of_a_rule_is_named(rule, said):
    done = CliRunner().invoke(cli, ["trust", "paris", "--may-run", rule])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize(("level", "is_told"), [("pending", True), ("approved", False)])
def test_rules_of_a_site_that_is_not_approved_say_when_they_count(monkeypatch, level, is_told):
    rule = {"rule": "permit", "verb": "run"}
    view = {"level": level, "fingerprint": "F", "pickles": False, "users": False, "rules": [rule]}
    monkeypatch.setattr(rights, "order", lambda *_, **__: view)
    done = CliRunner().invoke(cli, ["trust", "paris", "--may-run", "all"])
    assert done.exit_code == 0, done.output
    said = "have an effect once the site is approved: `gridfed approve paris FINGERPRINT`"
    assert (said in done.output) is is_told


@pytest.mark.parametrize("command", [["token", "--user", "ann"], ["invite"]])
@pytest.mark.parametrize("text", ["3000d", "0s"])
def test_a_validity_out_of_bounds_names_the_option(command, text):
    done = CliRunner().invoke(cli, [*command, "--expires", text])
    assert done.exit_code == 2
    said = f"Invalid value for --expires: '{text}': it must be above zero, and at most 366d"
    assert said in done.output
