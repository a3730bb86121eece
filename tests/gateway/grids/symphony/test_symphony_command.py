"""`gridfed symphony` works on files alone, and has the options and the JSON of every command."""

import json

import click
import pytest
from click.testing import CliRunner
from support.answers import check_schema

from gateway.cli.main import cli
from gateway.cli.shared.envelope import SCHEMA
from gateway.grids.symphony.command import symphony

PLAN = "consumer,from,to,owned,lends,borrows\n/Risk,0:00,24:00,2,0,0\n"


def test_it_has_json_and_needs_no_site():
    for command in symphony.commands.values():
        options = {text for each in command.params for text in each.opts}
        assert "--json" in options
        assert options.isdisjoint({"--gateway", "--config", "--config-dir"})


@pytest.mark.parametrize(("name", "file"), [("package", "package.tar.gz"), ("windows", "plan.csv")])
def test_its_json_is_by_the_schema(tmp_path, name, file):
    (tmp_path / "plan.csv").write_text(PLAN)
    done = CliRunner().invoke(cli, ["symphony", name, str(tmp_path / file), "--json"])
    assert done.exit_code == 0, done.output
    whole = json.loads(done.stdout)
    check_schema(whole, SCHEMA)
    assert whole["command"] == f"symphony {name}"


def test_it_is_of_the_command_line():
    assert cli.get_command(click.Context(cli), "symphony") is symphony
