"""What a configuration file says, and what the command line makes of it."""

import re

import pytest

from gateway.cli.serve import with_local
from gateway.config import ConfigError, PoolConfig, SiteConfig, exposure, load, read_secret
from policies.disclosure import Disclosure


@pytest.fixture
def write(tmp_path):
    """Write a configuration file; its path."""

    def write_(text):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return str(path)

    return write_


def test_a_whole_number_may_be_written_with_an_exponent(write):
    rules = load(write("[limits]\nclient_tasks = 2e5\nheartbeat_s = 1\n")).rules
    assert rules.tasks_max == 200_000
    assert type(rules.tasks_max) is int


def test_a_fraction_of_a_task_is_refused(write):
    path = write("[limits]\nclient_tasks = 2.5\n")
    with pytest.raises(ConfigError, match=r"client_tasks is 2\.5: it must be a whole number"):
        load(path)


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "true"])
def test_a_limit_that_is_no_number_is_refused(write, value):
    path = write(f"[limits]\nclient_tasks = {value}\n")
    with pytest.raises(ConfigError, match="client_tasks"):
        load(path)


def test_up_keeps_what_the_file_says_of_the_local_pool(write):
    text = """
[[pool]]
name = "other"
[[pool]]
name = "local"
slots = 3
price = "2 EUR"
memory_bytes = 1000000000
tags = { gpu = 2 }
"""
    pools = with_local(load(write(text)).pools, {"kind": "local", "slots": 1})
    file_local = PoolConfig("local", "local", 1, 1_000_000_000, "2 EUR", {"gpu": 2})
    assert pools == (file_local, PoolConfig("other"))


def test_up_adds_a_local_pool_where_there_is_none():
    assert with_local((), {"kind": "local"}) == (PoolConfig("local", "local"),)


def test_an_empty_secret_file_is_no_secret_but_a_mistake(tmp_path):
    path = tmp_path / "secret"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="it is empty"):
        read_secret(str(path))


def test_a_secret_that_others_can_read_is_warned_of(tmp_path):
    path = tmp_path / "secret"
    path.write_text("hush")
    path.chmod(0o640)
    assert f"chmod 600 {path}" in exposure(str(path))
    path.chmod(0o600)
    assert not exposure(str(path))


def test_a_home_in_an_address_to_listen_at_is_found(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    config = SiteConfig(listen=("ipc://~/gw.sock", "tcp://127.0.0.1:0"))
    assert config.addresses == ("ipc:///home/ann/gw.sock", "tcp://127.0.0.1:0")


def test_what_is_shown_is_read_in_order(write):
    path = write('[[show]]\nreaders = ["paris"]\nmembers = true\n[[show]]\ncoarse = true\n')
    friend, rest = load(path).shows
    assert friend == Disclosure(readers=frozenset({"paris"}), members=True)
    assert rest == Disclosure(coarse=True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('to = ["paris"]', "has no key 'to'"),
        ('readers = "paris"', "readers must be a list of names"),
        ("coarse = 1", "coarse must be true or false"),
    ],
)
def test_a_rule_of_what_is_shown_that_cannot_be_read_is_refused(write, line, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(write(f"[[show]]\n{line}\n"))


def test_show_is_an_array_of_tables(write):
    with pytest.raises(ConfigError, match="two brackets"):
        load(write("[show]\ncoarse = true\n"))


def test_how_long_records_are_kept_one_by_one(write):
    assert load(write("[books]\ndetail_days = 7\n")).detail_days == 7
    assert load(None).detail_days == 90


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("detail_days = -1", r"\[books\] detail_days is -1: it must be 0 to"),
        ('detail_days = "x"', r"\[books\] detail_days must be a number"),
        ("days = 1", r"\[books\]: unknown key 'days'; there are detail_days"),
    ],
)
def test_a_wrong_knob_of_the_books_is_refused(write, text, complaint):
    path = write(f"[books]\n{text}\n")
    with pytest.raises(ConfigError, match=complaint):
        load(path)
