"""Which gateway `gridfed tokens list` asks, and how a token is asked for."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.operate.client import _token
from gateway.cli.operate.trust import ordering, tokens
from gateway.config.environments import OWN_USER
from gateway.config.pools import PoolConfig
from gateway.worker.isolation.users import UserUnavailable


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


@pytest.mark.parametrize(
    ("kind", "user", "unavailable", "is_root", "is_bare"),
    [
        ("local", "auto", "", True, False),
        ("local", "auto", "it can't read our Python", True, True),  # the log of the worker says so
        ("local", "auto", "", False, True),
        ("local", "none", "", True, True),
        ("local", "svc", "", True, False),
        ("local", "svc", "no such user", True, False),  # its worker does not start
        ("remote", "none", "", True, False),
    ],
)
def test_a_pool_counts_as_bare_by_what_its_worker_does_on_this_host(
    kind, user, unavailable, is_root, is_bare, monkeypatch
):
    def find(wanted):
        if wanted == OWN_USER:
            return None
        if unavailable:
            raise UserUnavailable(unavailable)
        return SimpleNamespace(name=wanted)

    monkeypatch.setattr(tokens, "find_user", find)
    monkeypatch.setattr(tokens, "_is_roots", lambda _: is_root)
    assert tokens._runs_bare(PoolConfig("p", kind, user=user), Path("/state")) is is_bare


def test_the_gateways_user_is_the_owner_of_its_state(tmp_path):
    assert tokens._is_roots(Path("/")) is True
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, 65534)
    assert tokens._is_roots(tmp_path) is False
