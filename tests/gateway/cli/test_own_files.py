"""Commands that read files take those of the gateway that other commands would ask."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from federation.address import default_address
from gateway.cli.main import cli
from gateway.cli.operate.own_files import configuration_here

COMMANDS = (
    *(["audit"], ["tariff", "show"], ["db", "upgrade"], ["db", "roll-up", "--days", "1"]),
    *(["db", "backup", "copy.db"], ["db", "restore", "copy.db"], ["db", "move", "sqlite:///x"]),
    *(["export", "focus"], ["export", "car"]),
)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRIDFED_CONFIG_DIR", raising=False)
    monkeypatch.delenv("GRIDFED_GATEWAY", raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def written(path: Path, listen: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[site]\nname = "london"\nlisten = ["{listen}"]\n')
    return path


def test_without_a_name_the_default_is_taken_and_it_is_known_that_nothing_named_it() -> None:
    config, is_named = configuration_here(None, None)
    assert (config.addresses, is_named) == ((default_address(),), False)


def test_the_configuration_at_the_usual_place_is_taken_if_its_gateway_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "XDG_CONFIG_HOME" / "gridfed" / "gateway.toml", "ipc:///run/a.sock")
    monkeypatch.setenv("GRIDFED_GATEWAY", "ipc:///run/a.sock")
    config, is_named = configuration_here(None, None)
    assert (config.name, is_named) == ("london", True)
    monkeypatch.setenv("GRIDFED_GATEWAY", default_address())
    config, is_named = configuration_here(None, None)
    assert (config.addresses, is_named) == ((default_address(),), True)


def test_options_come_before_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDFED_GATEWAY", "ipc:///run/other.sock")
    path = written(tmp_path / "mine.toml", "ipc:///run/a.sock")
    assert configuration_here(str(path), None)[0].name == "london"
    assert configuration_here(None, str(tmp_path))[0].state_path == tmp_path
    with pytest.raises(click.UsageError, match=r"names ipc:///run/other\.sock"):
        configuration_here(None, None)


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_touches_the_books_of_another_gateway_than_the_one_that_is_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDFED_GATEWAY", "ipc:///run/other.sock")
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert "$GRIDFED_GATEWAY names ipc:///run/other.sock" in result.output
    assert "--config FILE" in result.output


def test_a_roll_up_names_its_database(tmp_path: Path) -> None:
    where = ["--state", str(tmp_path)]
    name = f"the database sqlite:///{tmp_path}/gridfed.db"
    (tmp_path / "gridfed.db").touch()
    assert name in CliRunner().invoke(cli, ["db", "upgrade", *where]).output
    asked = CliRunner().invoke(cli, ["db", "roll-up", "--days", "30", *where])
    assert (asked.exit_code, f"older than 30 days in {name}" in asked.output) == (2, True)
    done = CliRunner().invoke(cli, ["db", "roll-up", "--days", "30", "--yes", *where])
    assert f"{name}:" in done.output
