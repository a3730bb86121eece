"""A configuration that is read again: changes are listed first, and a mistake changes nothing."""

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from support.reloading import read_again

from gateway.base.values import ConfigError
from gateway.cli.main import cli
from gateway.cli.operate import control
from gateway.config.site import check, load
from gateway.grids.kinds import Installed
from policies.access.shares import FairShare
from policies.parties import PartyKind

NOON_S = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()  # a Monday
FILE = """\
[site]
name = "london"

[[pool]]
name = "fast"
kind = "local"
slots = 2
price = "0.04 USD"

[[pool.window]]
name = "risk run"
days = "mon"
from = "17:00"
to = "23:00"
"""


@pytest.fixture
def running(tmp_path):
    """A configuration that was read, and a way to write its file anew and read it again."""
    path = tmp_path / "site.toml"
    path.write_text(FILE)
    config = check(load(str(path), Installed()), NOON_S)

    def again(old="", new=""):
        assert old in FILE
        path.write_text(FILE.replace(old, new, 1) if old else FILE)
        return read_again(config, NOON_S)

    again.config = config
    return again


def windows(change):
    return [
        (
            datetime.fromtimestamp(each["from_s"], UTC).strftime("%d %H:%M"),
            datetime.fromtimestamp(each["until_s"], UTC).strftime("%d %H:%M"),
            each["before"],
            each["after"],
        )
        for each in change.to_plain()["windows"]
    ]


MONEY = """\
[[budget]]
name = "risk"
who = "project:risk"
amount = "10 USD"

[credit]
paris = "5 USD"

[site]
"""


def test_the_amounts_of_budgets_and_credit_are_taken_in(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(FILE.replace("[site]\n", MONEY))
    config = check(load(str(path), Installed()), NOON_S)
    path.write_text(path.read_text().replace("10 USD", "20 USD").replace("5 USD", "7 USD"))
    change = read_again(config, NOON_S)
    assert [tuple(each.values()) for each in change.to_plain()["budgets"]] == [
        ("risk", "amount", "10 USD", "20 USD"),
        ("credit of paris", "amount", "5 USD", "7 USD"),
    ]
    assert change.later == []
    assert change.config.budgets[0].amount_nanos == 20 * 10**9
    assert change.config.credit == {"paris": ((7 * 10**9, "USD"),)}


def test_the_same_file_changes_nothing(running):
    change = running()
    assert (windows(change), dict(change.prices), change.later) == ([], {}, [])
    assert change.config == running.config
    assert not change.shares


def test_other_shares_are_taken_in(running):
    change = running("[site]", '[fair_share]\neach = "project"\n[site]')
    assert (change.shares, change.later) == (True, [])
    assert change.config.fair_share == FairShare(each=PartyKind.PROJECT)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("17:00", "18:00", [("23 17:00", "23 18:00", "risk run", None),
                            ("30 17:00", "30 18:00", "risk run", None)]),
        ("23:00", "23:30", [("23 23:00", "23 23:30", None, "risk run"),
                            ("30 23:00", "30 23:30", None, "risk run")]),
        ('"risk run"', '"run"', [("23 17:00", "23 23:00", "risk run", "run"),
                                 ("30 17:00", "30 23:00", "risk run", "run")]),
        ('to = "23:00"', 'to = "23:00"\ngrace_s = 5', [
            ("23 17:00", "23 23:00", "risk run", "risk run"),
            ("30 17:00", "30 23:00", "risk run", "risk run")]),
        ('to = "23:00"', 'to = "23:00"\nclaims = [{ who = "others", borrows = 0 }]', [
            ("23 17:00", "23 23:00", "risk run", "risk run"),
            ("30 17:00", "30 23:00", "risk run", "risk run")]),
    ],
)  # fmt: skip
def test_what_other_windows_hold_when_is_said(running, old, new, changed):
    change = running(old, new)
    assert windows(change) == changed
    assert change.config.pools[0].plan != running.config.pools[0].plan
    assert change.later == []


def test_a_price_is_taken_in_with_its_new_name(running):
    change = running('"0.04 USD"', '"0.05 USD"')
    assert dict(change.prices) == {"fast": ("fast@0.04 USD", "fast@0.05 USD")}
    assert change.config.pools[0].price == "0.05 USD"


@pytest.mark.parametrize(
    ("old", "new", "later"),
    [
        ("slots = 2", "slots = 3", ["[[pool]] fast: slots"]),
        ('name = "london"', 'name = "paris"', ["[site] name"]),
        ("[site]", "[limits]\nclient_jobs = 7\n[site]", ["[limits]"]),
        ("[site]", '[objects]\nmemory = "1 GiB"\n[site]', ["[objects]"]),
        ("[site]", '[credit]\nparis = "7 USD"\n[site]', ["[credit]"]),
        ("[site]", '[[budget]]\nname = "b"\namount = "7 USD"\n[site]',
         ["[[budget]] b, which is new"]),
        ('name = "fast"', 'name = "quick"', ["[[pool]] fast, which is removed",
                                             "[[pool]] quick, which is new"]),
    ],
)  # fmt: skip
def test_what_counts_only_after_a_restart_is_named_and_left(running, old, new, later):
    change = running(old, new)
    assert change.later == later
    assert change.config == running.config


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("17:00", "27:00", "line 13: [[pool.window]] 'risk run' of fast: from is '27:00'"),
        ("[site]", "[site", "Expected"),
        ('days = "mon"', 'days = "mon"\n[[pool.window]]\nname = "b"', "raise the priority"),
    ],
)
def test_a_mistake_is_said(running, old, new, complaint):
    with pytest.raises(ConfigError) as caught:
        running(old, new)
    assert complaint in str(caught.value)


def test_people_see_where_the_same_window_has_other_rules(running, monkeypatch):
    def answer(change):
        found = change.to_plain() | {"applied": False}
        monkeypatch.setattr(control, "ask", lambda *_, **__: found)
        return CliRunner().invoke(cli, ["reload", "--dry-run"], catch_exceptions=False).stdout

    assert "risk run, with other rules" in answer(
        running('to = "23:00"', 'to = "23:00"\ngrace_s = 5')
    )
    text = answer(running("price =", 'claims = [{ who = "others" }]\nprice ='))
    assert "none, with other rules" in text
    assert "with other rules" not in answer(running("17:00", "18:00"))
    assert "no windows change in the next two weeks" in answer(running())


def test_what_is_said_can_travel(running):
    assert json.loads(json.dumps(running("17:00", "18:00").to_plain()))["later"] == []


GROWS = """
[[pool]]
name = "burst"
kind = "processes"

[pool.processes]
slots_max = 4

[pool.scale]
max = 4
"""


def test_it_says_how_a_pool_grows_otherwise_in_the_words_of_the_file(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(FILE + GROWS)
    config = check(load(str(path), Installed()), NOON_S)
    path.write_text(
        (FILE + GROWS).replace("slots_max = 4", "slots_max = 6")
        + 'idle = "2m"\nhourly_cost = "2 USD"\ndial_for = "1m"\nwaste = 0.5\n'
    )
    change = read_again(config, NOON_S)
    assert change.scales == [
        ("burst", "waste", "0.1", "0.5"),
        ("burst", "idle", "none", "120s"),
        ("burst", "hourly_cost", "none", "2 USD"),
    ]
    assert change.later == [
        "[[pool]] burst: [pool.scale] dial_for",
        "[[pool]] burst: [pool.processes]",
    ]
    taken = change.config.pools[-1].scale
    assert (taken.rules.hourly_nanos, taken.currency) == (2 * 10**9, "USD"), "both, or it is none"


def test_large_figures_and_another_currency_of_how_a_pool_grows_are_told(tmp_path):
    path = tmp_path / "site.toml"
    text = FILE + GROWS.replace('kind = "p', 'price = "1 USD"\nkind = "p')
    path.write_text(text + 'walltime = "8h"\nhourly_cost = "2 USD"\n')
    config = check(load(str(path), Installed()), NOON_S)
    path.write_text(
        text.replace("\nmax = 4\n", "\nmax = 1_000_000\n").replace("1 USD", "1 EUR")
        + 'walltime = "30d"\nhourly_cost = "2 EUR"\n'
    )
    assert read_again(config, NOON_S).scales == [
        ("burst", "max", "4", "1000000"),
        ("burst", "hourly_cost", "2 USD", "2 EUR"),
        ("burst", "walltime", "28800s", "2592000s"),
    ]


def test_groups_are_taken_in_for_jobs_from_then_on(running):
    change = running("[site]", '[groups]\nquants = ["ann", "bob"]\nprod = ["ann"]\n[site]')
    assert change.to_plain()["groups"] == [
        {"user": "ann", "before": [], "after": ["quants", "prod"]},
        {"user": "bob", "before": [], "after": ["quants"]},
    ]
    assert change.config.groups == {"ann": ("quants", "prod"), "bob": ("quants",)}
    assert change.later == []
