"""The configuration file, and the command line's changes to it."""

import re

import pytest

from gateway.base.secret_files import exposure, read_secret
from gateway.base.values import ConfigError
from gateway.config.groups import names_of, owner_of
from gateway.config.site import PoolConfig, SiteConfig, load, with_local
from policies.access.shares import FairShare, Share
from policies.disclosure import Disclosure
from policies.parties import Owner, Party, PartyKind


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[groups]\n[groups]\n", "the table [groups] is there twice: put all its keys into one"),
        ("[a.b]\n[a]\n[a.b]\n", "the table [a.b] is there twice: put all its keys into one"),
        ("a = 1\na = 2\n", "the key a is there already: remove one of the two"),
        (
            "[b]\nslots = 1\nslots = 2\nc = 1\n",
            "the key slots is there already: remove one of the two",
        ),
    ],
)
def test_what_is_there_twice_is_told_in_the_words_of_the_file(write, text, said):
    with pytest.raises(ConfigError, match=re.escape(said) + r" \(at line [23], column [0-9]+\)"):
        load(write(text))


@pytest.mark.parametrize("rate", ["0", "0.0"])
def test_a_rate_of_zero_is_refused(write, rate):
    path = write(f"[placement]\nrates = {{ GBP = 1.2, EUR = {rate} }}\n")
    with pytest.raises(ConfigError, match=r"line 2: .*rates\.EUR is 0.*: it must be above zero"):
        load(path)


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "true"])
def test_a_limit_that_is_no_number_is_refused(write, value):
    path = write(f"[limits]\nclient_tasks = {value}\n")
    with pytest.raises(ConfigError, match="client_tasks"):
        load(path)


def test_a_user_is_in_groups_in_the_order_of_the_table(write):
    text = '[groups]\n"equity desk" = ["ann", "bob", "ann"]\nops = ["eve", "ann"]\n'
    groups = load(write(text)).groups
    assert groups == {"ann": ("equity desk", "ops"), "bob": ("equity desk",), "eve": ("ops",)}
    assert names_of(groups) == {"equity desk", "ops"}
    assert owner_of(groups, "ann", "risk") == Owner(
        "ann", "equity desk", "risk", more_groups=frozenset({"ops"})
    )
    assert owner_of(groups, "bob") == Owner("bob", "equity desk")
    assert owner_of(groups, "zoe") == Owner("zoe")
    assert load(write("")).groups == {}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (
            "\n".join(f'g{at} = ["ann"]' for at in range(65)),
            "'g64': user 'ann' is in more than 64 groups",
        ),
        ('a = "ann"', "'a' must be a list of users"),
        ("a = [7]", "7 is not a user name"),
        ('a = [""]', "'' is not a user name"),
        ('a = ["an\\nn"]', "is not a user name"),
        ('"" = ["ann"]', "the name of a group must be 1 to 200 printable characters"),
    ],
)
def test_groups_that_can_not_be_are_refused(write, table, complaint):
    with pytest.raises(ConfigError, match=rf"\[groups\] .*{re.escape(complaint)}"):
        load(write(f"[groups]\n{table}\n"))


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
    with pytest.raises(ConfigError, match="the file is empty"):
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
        ('to = ["paris"]', "unknown key 'to'"),
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
    assert load(write("[books]\ndetail_days = 7\ndispute_days = 6\n")).books.detail_days == 7
    assert load(None).books.detail_days == 90


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("detail_days = -1", r"\[books\] detail_days is -1: it must be 0 to"),
        ("void_share_max = 1.5", r"\[books\] void_share_max is 1.5: it must be 0 to 1"),
        ('detail_days = "x"', r"\[books\] detail_days: 'x' is not a length of time"),
        ("days = 1", r"\[books\] unknown key 'days'; known keys: detail_days"),
    ],
)
def test_a_wrong_setting_of_the_books_is_refused(write, text, complaint):
    path = write(f"[books]\n{text}\n")
    with pytest.raises(ConfigError, match=complaint):
        load(path)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('period = "year"', "period must be one of day, week, month, not 'year'"),
        ("reconcile_s = 0", "reconcile_s is 0: it must be 0.01s to"),
        ("dispute_days = 400", "dispute_days is 400: it must be 0.01 to 366 days"),
        ("dispute_days = 91", r"detail_days is 90: it must be 0, or at least one"),
        ("detail_days = 7", r"detail_days is 7: it must be 0, or at least one"),
        ('settle_s = "x"', "settle_s: 'x' is not a length of time"),
    ],
)
def test_a_wrong_setting_of_the_books_between_sites_is_refused(write, table, complaint):
    with pytest.raises(ConfigError, match=rf"\[books\] {complaint}"):
        load(write(f"[books]\n{table}\n"))


def test_a_pool_can_not_have_the_name_of_another_sites(write):
    with pytest.raises(ConfigError, match="a name with a slash is that of another site's pool"):
        load(write('[[pool]]\nname = "paris/fast"\n'))


FAIR = """
[fair_share]
half_life = "36h"
max_wait = "90m"
each = "project"
[[fair_share.share]]
name = "trading"
shares = 3
[[fair_share.share]]
name = "risk"
parent = "trading"
who = "project:risk"
each = "user"
"""


def test_shares_are_read(write):
    found = load(write(FAIR)).fair_share
    risk = Share("risk", 1, "trading", Party(PartyKind.PROJECT, "risk"), PartyKind.USER)
    assert found == FairShare(129_600.0, 5_400.0, PartyKind.PROJECT, (Share("trading", 3), risk))
    assert load(write("")).fair_share is None
    assert load(write('[fair_share]\neach = "user"\n')).fair_share == FairShare(each=PartyKind.USER)


RISK = '[[fair_share.share]]\nname = "risk"\n'
OF_RISK = "share 'risk'"


@pytest.mark.parametrize(
    ("table", "line", "complaint"),
    [
        ("", 1, " share is missing: write [[fair_share.share]] tables, or each"),
        ("half_life = 7", 2, ": half_life: 7 has no unit: write 7s for seconds, 7m for minutes"),
        (
            'half_life = "7y"',
            2,
            ": half_life: '7y' is not a length of time: write 30s, 30m, 24h or 7d, or 04:00:00",
        ),
        ('half_life = "30m"', 2, ": half_life is 30m: it must be 1h to 366d"),
        ('half_life = "367d"', 2, ": half_life is 367d: it must be 1h to 366d"),
        ('max_wait = "1s"', 2, ": max_wait is 1s: it must be 1m to 366d"),
        ('each = "ours"', 2, ": each is 'ours': it must be one of group, project, site, user"),
        ("each = 7", 2, ": each is 7: it must be one of"),
        ("halflife = 7", 2, ": unknown key 'halflife' (did you mean 'half_life'?); known keys:"),
        ("share = 7", 2, ": share must be an array of tables, written as [[fair_share.share]]"),
        ("[[fair_share.share]]\nwho = 'all'", 2, ": a [[fair_share.share]] needs a name"),
        (f"{RISK}", 2, f" {OF_RISK}: who is missing"),
        (f"{RISK}who = 'risk'", 4, f" {OF_RISK}: who: 'risk' is not a party: use one of user:NAME"),
        (f"{RISK}who = ['all']", 4, f" {OF_RISK}: who must be a party"),
        (
            f"{RISK}who = 'all'\nshares = 0",
            5,
            f" {OF_RISK}: shares is 0: it must be 1 to 1_000_000",
        ),
        (f"{RISK}who = 'all'\nshares = 1.5", 5, f" {OF_RISK}: shares is 1.5: it must be a whole"),
        (f"{RISK}who = 'all'\nshares = nan", 5, f" {OF_RISK}: shares is nan: it must be 1 to"),
        (f"{RISK}who = 'all'\nparent = 'x'", 5, f" {OF_RISK}: parent is 'x': no"),
        (f"{RISK}who = 'all'\nparent = 7", 5, f" {OF_RISK}: parent must be the name of a share"),
        (f"{RISK}who = 'all'\nparent = 'risk'", 5, f" {OF_RISK}: parent forms a cycle"),
        (f"{RISK}who = 'all'\neach = 'x'", 5, f" {OF_RISK}: each is 'x': it must be one of"),
        (f"{RISK}who = 'all'\nweight = 1", 5, f" {OF_RISK}: unknown key 'weight'; known keys:"),
        (
            f"{RISK}who = 'all'\n{RISK}who = 'ours'",
            6,
            f" {OF_RISK}: name is the name of another share",
        ),
        (
            f"{RISK}who = 'all'\n[[fair_share.share]]\nname = 'b'\nwho = 'ours'",
            7,
            " share 'b': who is 'ours', but 'risk' (all) comes first and covers all of it",
        ),
    ],
)
def test_shares_that_can_not_be_are_refused_by_line_and_key(write, table, line, complaint):
    path = write(f"[fair_share]\n{table}\n")
    text = re.escape(f"{path}: line {line}: [fair_share]{complaint}")
    with pytest.raises(ConfigError, match=text):
        load(path)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"a = " + b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b"a = " + b"{a = " * 50_000 + b"1" + b"}" * 50_000, "nested too deeply"),
        (b"[limits]\nsessions = " + b"9" * 5_000, "Exceeds the limit"),
        (b"#" * (4 << 20) + b"\n", "more than 4 MiB"),
        (b"# \xe9", "byte 3 is not UTF-8"),
    ],
    ids=["lists", "tables", "digits", "length", "latin"],
)
def test_a_file_that_nobody_can_read_is_named(tmp_path, body, complaint):
    path = tmp_path / "site.toml"
    path.write_bytes(body)
    with pytest.raises(ConfigError, match=rf"site.toml: .*{complaint}"):
        load(str(path))


def test_a_mark_of_the_byte_order_and_ends_of_lines_of_windows_are_no_mistake(tmp_path):
    path = tmp_path / "site.toml"
    path.write_bytes(b'\xef\xbb\xbf[site]\r\nname = "london"\r\n')
    assert load(str(path)).name == "london"


def test_a_relative_log_file_is_one_in_the_folder_of_the_configuration(tmp_path, monkeypatch):
    (tmp_path / "etc").mkdir()
    path = tmp_path / "etc" / "gateway.toml"
    monkeypatch.chdir(tmp_path)
    for file, there in (
        ("logs/gridfed.log", tmp_path / "etc" / "logs" / "gridfed.log"),
        (f"{tmp_path}/other.log", tmp_path / "other.log"),
    ):
        path.write_text(f'[log]\nfile = "{file}"\n')
        assert load("etc/gateway.toml").log.path == there
    path.write_text("[log]\n")
    assert load(str(path)).log.path is None
