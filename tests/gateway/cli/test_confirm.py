"""Grave orders ask first at a terminal, and need --yes without one."""

import sys

import click
import pytest
from click.testing import CliRunner

from federation.errors import GridError
from gateway.cli.main import cli
from gateway.cli.shared.common import confirm, told_by

LINES = ["paris is expelled here at once"]


@click.command()
@click.option("--yes", "is_sure", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
def expel(is_sure, as_json):
    confirm("Expel paris?", lambda: LINES, is_sure=is_sure)
    click.echo("{}" if as_json else "done")


def run(*arguments, monkeypatch=None, answer=""):
    if monkeypatch is not None:
        monkeypatch.setattr("gateway.cli.shared.common.at_terminal", lambda: True)
    return CliRunner().invoke(expel, arguments, input=answer)


def test_without_a_terminal_it_says_what_follows_and_names_the_option():
    result = run()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert LINES[0] in result.stderr
    assert "Expel paris? There is no terminal to ask at" in result.stderr
    assert "--yes" in result.stderr


def test_who_is_sure_is_not_asked():
    result = run("--yes")
    assert (result.exit_code, result.output) == (0, "done\n")


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_at_a_terminal_the_answer_decides(monkeypatch, answer, code):
    result = run("--json", monkeypatch=monkeypatch, answer=answer)
    assert result.exit_code == code
    assert result.stdout.endswith("{}\n") is (code == 0)
    assert LINES[0] in result.stderr
    assert "Expel paris? [y/N]" in result.stderr


def test_an_older_gateway_does_not_know_what_follows():
    def old():
        raise GridError("no question 'consequences'; known questions: status")

    def other():
        raise GridError("no contracts with site 'rome'")

    assert "older version" in told_by(old)[0]
    with pytest.raises(GridError, match="rome"):
        told_by(other)


def test_whether_there_is_a_terminal_is_asked_of_stdin(monkeypatch):
    from gateway.cli.shared.common import at_terminal

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert at_terminal()


ORDERS = [
    ["expel", "london"],
    ["rotate", "--compromised"],
]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_orders_about_trust_need_it(order, tmp_path):
    where = ["--config-dir", str(tmp_path)]
    made = CliRunner().invoke(cli, ["init", "--site", "london", "--host", "localhost", *where])
    assert made.exit_code == 0, made.output
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    result = CliRunner().invoke(cli, [*order, *where])
    assert result.exit_code == 2
    assert "--yes" in result.output
    assert {each: each.read_bytes() for each in before} == before


def test_an_unknown_site_is_refused_before_the_question(tmp_path):
    where = ["--config-dir", str(tmp_path)]
    made = CliRunner().invoke(cli, ["init", "--site", "london", "--host", "localhost", *where])
    assert made.exit_code == 0, made.output
    result = CliRunner().invoke(cli, ["expel", "pariss", *where])
    assert (result.exit_code, "site 'pariss' not found" in result.output) == (1, True)


def test_a_stopped_site_can_not_leave_and_is_not_asked_whether_it_should(tmp_path):
    where = ["--config-dir", str(tmp_path)]
    made = CliRunner().invoke(cli, ["init", "--site", "london", "--host", "localhost", *where])
    assert made.exit_code == 0, made.output
    result = CliRunner().invoke(cli, ["leave", *where])
    assert (result.exit_code, "needs a running gateway" in result.output) == (1, True)
    assert "Leave the federation?" not in result.output


def test_the_consequences_are_those_at_the_gateway_that_gets_the_order(monkeypatch):
    asked = []

    def ask(reach, verb, **details):
        asked.append((reach.address, verb, details))
        return {"lines": ["3 tasks of it are stopped"]}

    monkeypatch.setattr("gateway.cli.operate.trust.ordering.ask", ask)
    result = CliRunner().invoke(cli, ["leave", "--gateway", "tcp://far:7461"])
    assert (result.exit_code, "3 tasks of it are stopped" in result.output) == (2, True)
    assert asked == [
        ("tcp://far:7461", "consequences", {"order": "leave", "details": {}}),
    ]


def test_help_says_that_trust_commands_do_not_follow_the_clients_gateway():
    for name in ("expel", "rotate", "token"):
        told = " ".join(CliRunner().invoke(cli, [name, "--help"]).output.split())
        assert "Give the order to that gateway" in told
        assert "GRIDFED_GATEWAY" not in told


def test_compromised_keys_take_so_many_tokens_with_them(tmp_path):
    where = ["--config-dir", str(tmp_path)]
    for arguments in (["init", "--site", "london", "--host", "localhost"], ["token", "--user=ann"]):
        assert CliRunner().invoke(cli, [*arguments, *where]).exit_code == 0
    result = CliRunner().invoke(cli, ["rotate", "--compromised", *where])
    assert "1 valid token of 1 user and all grants" in result.output
    done = CliRunner().invoke(cli, ["rotate", "--compromised", "--yes", *where])
    assert done.exit_code == 0, done.output
    listed = CliRunner().invoke(cli, ["tokens", "list", *where])
    assert "no valid token" in listed.output


def test_a_restore_says_how_old_the_backup_is(tmp_path):
    there, copy = ["--state", str(tmp_path / "old")], tmp_path / "copy.db"
    new = ["--state", str(tmp_path / "new")]
    runner = CliRunner()
    assert runner.invoke(cli, ["db", "upgrade", *there]).exit_code in (0, 1)
    (tmp_path / "old").mkdir(exist_ok=True)
    from gateway.ledger.db.jobs.records import JobOpenedRecord
    from gateway.ledger.store.store import SqlStore

    store = SqlStore(f"sqlite:///{tmp_path / 'old' / 'gridfed.db'}")
    store.write(
        [JobOpenedRecord("j", "f", "ann", "risk", True, b"", 1_793_700_000.0, None)],
        True,
        lambda: None,
    )
    store.close()
    assert runner.invoke(cli, ["db", "backup", str(copy), *there]).exit_code == 0
    result = runner.invoke(cli, ["db", "restore", str(copy), *new])
    assert result.exit_code == 2, result.output
    assert "has 1 job; its last record is of 2026-11-03" in result.output
    assert "the books will lack " in result.output
    assert not (tmp_path / "new").exists()
    done = runner.invoke(cli, ["db", "restore", "--yes", str(copy), *new])
    assert done.exit_code == 0, done.output
    (tmp_path / "wrong.db").write_text("no database")
    wrong = runner.invoke(cli, ["db", "restore", str(tmp_path / "wrong.db"), *new])
    assert (wrong.exit_code, "is not a backup" in wrong.output) == (1, True)
    assert "SELECT" not in wrong.output
