"""What orders about trust say of words that they do not take; without a gateway."""

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("projets=risk", "a rule has no 'projets' (did you mean 'projects'?): write \"all\""),
        ("pools=cpu klass=x", "a rule has no 'klass': write"),
        ("slots=many", "'slots=many' has no value that fits: write"),
        ("all=yes", "'all=yes' has no value that fits: write"),
    ],
)
def test_the_wrong_word_of_a_rule_is_named(rule, said):
    done = CliRunner().invoke(cli, ["trust", "paris", "--may-run", rule])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("command", [["token", "--user", "ann"], ["invite"]])
@pytest.mark.parametrize("text", ["3000d", "0s"])
def test_a_validity_out_of_bounds_names_the_option(command, text):
    done = CliRunner().invoke(cli, [*command, "--expires", text])
    assert done.exit_code == 2
    said = f"Invalid value for --expires: '{text}': it must be above zero, and at most 366d"
    assert said in done.output
