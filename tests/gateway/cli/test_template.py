"""The configuration that `gridfed init` writes has every setting, with its default."""

import re
import tomllib
from dataclasses import fields

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.config.alerts import AlertPace
from gateway.config.books import BookRules
from gateway.config.contracts import DealRules
from gateway.config.federation import FederationConfig
from gateway.config.limits import LIMITS
from gateway.config.log import LogConfig
from gateway.config.site import ConfigError, check, load
from gateway.grids.kinds import Installed, examples
from policies.placement.asks import Preferences

# What follows stands for nothing by default.
EXAMPLES = re.compile(r"^# \[(\[[\w.]+\]|groups|credit|fair_share|reservations)\]")
TABLES = (
    *("[site]", '[[pool]]\nname = "p"', "[[show]]\nhidden = true"),
    *("[reservations]", "[fair_share]", '[[fair_share.share]]\nname = "p"'),
    '[[entitlement]]\nallow = "ours"',
    '[[budget]]\nname = "b"\namount = "1 USD"',
)


@pytest.fixture
def written(tmp_path):
    """The file that `gridfed init` wrote."""
    folder = tmp_path / "london"
    arguments = ["init", "--site", "london", "--host", "localhost", "--config-dir", str(folder)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return folder / "gateway.toml"


def settings(text):
    """[section] → its lines; those of examples are left out."""
    found, lines = {}, []
    for line in text.splitlines():
        if EXAMPLES.match(line):
            lines = []
        elif heading := re.match(r"(?:# )?\[(\w+)\]$", line):
            lines = found[heading[1]] = []
        elif re.match(r"(# )?\w+ = ", line):
            lines.append(line)
    return found


def test_what_is_commented_out_is_what_holds_anyway(written):
    text = written.read_text()
    before = load(str(written), Installed())
    said = "\n".join(
        f"[{section}]\n" + "\n".join(each.removeprefix("# ") for each in lines)
        for section, lines in settings(text).items()
    )
    written.write_text(said)
    assert load(str(written), Installed()) == before


def known(tmp_path, table):
    """The keys that a table may have, as a wrong one is answered."""
    path = tmp_path / "wrong.toml"
    path.write_text(f"{table}\nnonsense = 1\n")
    with pytest.raises(ConfigError) as caught:
        load(str(path), Installed())
    return set(str(caught.value).partition("known keys: ")[2].split(", "))


@pytest.mark.parametrize("table", TABLES)
def test_every_key_of_other_tables_is_there(written, tmp_path, table):
    text = written.read_text()
    for name in known(tmp_path, table):
        ways = rf"{name} = |\[\[?pool\.{name}\]|\[\[fair_share\.{name}\]\]"
        assert re.search(rf"^(# )?({ways})", text, re.MULTILINE), name


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("log", {each.name for each in fields(LogConfig)}),
        ("limits", set(LIMITS)),
        ("federation", {each.name for each in fields(FederationConfig)}),
        ("contracts", {each.name for each in fields(DealRules)} - {"grace_s"}),
        ("placement", {each.name for each in fields(Preferences)}),
        ("books", {each.name for each in fields(BookRules)} - {"day_ms"}),
        ("alerts", {each.name for each in fields(AlertPace)}),
    ],
)
def test_every_setting_is_there(written, section, names):
    lines = settings(written.read_text())[section]
    assert {re.match(r"(?:# )?(\w+) = ", each)[1] for each in lines} == names


def test_the_examples_are_good_ones(written):
    text = written.read_text()
    start = text.index("# Alert rules")
    shown = re.sub(r"^# (?=[\[\w\"]+.*( =|\]))", "", text[start:], flags=re.MULTILINE)
    # Either one figure for carbon, or the table.
    either = r"^(carbon_g_per_kwh|slot_watts|cloud|series) .*"
    shown = re.sub(either, "", shown, flags=re.M)
    written.write_text(text[:start] + shown)
    found = load(str(written), Installed())
    assert [each.rule.name for each in found.alerts.watched] == ["risk this month"]
    assert found.groups["ann"] == ("equity desk",)
    assert [each.owner for each in found.budgets] == ["", "paris"]
    assert found.credit == {"paris": ((500 * 10**9, "USD"),)}
    assert [each.name for each in found.fair_share.shares] == ["trading desk", "risk"]
    assert [each.allows for each in found.entitlements.rules] == [True, False]
    check(found, 0.0)
    of_kinds = [each["name"] for text in examples() for each in tomllib.loads(text)["pool"]]
    assert [each.name for each in found.pools] == ["local", "burst", *of_kinds]
