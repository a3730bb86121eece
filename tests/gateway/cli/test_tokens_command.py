"""Which gateway `gridfed tokens list` asks, and how a token is asked for."""

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.operate.client import _token
from gateway.cli.operate.trust import ordering


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The gateways that were asked, by address; None: by the environment."""
    found = []
    monkeypatch.setattr(
        ordering, "ask", lambda reach, verb, **details: found.append((reach.address, verb)) or []
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("GRIDFED_CONFIG_DIR", raising=False)
    monkeypatch.delenv("GRIDFED_GATEWAY", raising=False)
    return found


def test_the_gateway_of_the_environment_is_asked(asked, monkeypatch):
    monkeypatch.setenv("GRIDFED_GATEWAY", "ipc:///run/x.sock")
    done = CliRunner().invoke(cli, ["tokens", "list"])
    assert done.exit_code == 0, done.output
    assert asked == [(None, "tokens")]


def test_a_named_gateway_or_configuration_counts_before_it(asked, monkeypatch, tmp_path):
    monkeypatch.setenv("GRIDFED_GATEWAY", "ipc:///run/x.sock")
    CliRunner().invoke(cli, ["tokens", "list", "--gateway", "ipc:///run/y.sock"])
    assert asked == [("ipc:///run/y.sock", "tokens")]
    done = CliRunner().invoke(cli, ["tokens", "list", "--config-dir", str(tmp_path)])
    assert "gateway.toml" in done.output
    assert len(asked) == 1


def test_known_asks_the_gateway_of_the_environment_and_to_forget_needs_a_named_site(
    asked, monkeypatch
):
    monkeypatch.setenv("GRIDFED_GATEWAY", "ipc:///run/x.sock")
    CliRunner().invoke(cli, ["known"])
    assert asked == [(None, "known")]
    done = CliRunner().invoke(cli, ["known", "--from", "paris", "--forget"])
    assert (done.exit_code, len(asked)) == (1, 1)


def test_an_order_about_trust_still_needs_a_named_site(asked, monkeypatch):
    monkeypatch.setenv("GRIDFED_GATEWAY", "ipc:///run/x.sock")
    done = CliRunner().invoke(cli, ["tokens", "revoke", "0011"])
    assert done.exit_code == 1
    assert asked == []


def test_a_token_is_not_asked_for_where_there_is_no_terminal(monkeypatch):
    with (
        CliRunner().isolation(),
        pytest.raises(Exception, match="no terminal to ask for the token"),
    ):
        _token(None, is_asked=True)
    assert _token(None, is_asked=False) == ""
