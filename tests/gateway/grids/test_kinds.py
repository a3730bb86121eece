"""Kinds of grids are found where they are installed, and faulty ones are reported."""

import sys

import pytest
from support.reloading import read_again

from gateway.base.values import ConfigError, SettingError
from gateway.config.site import check, load
from gateway.grids import kinds
from gateway.grids.kinds import Installed, find_kind, kind_names, open_grid, read_settings

GOOD = """
from gateway.grids.contract import GridKind
KIND = GridKind("{name}", dict, print, "{needs}")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution with one kind, as pip would."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(owner, kind, text, *, requires=(), value=""):
        module = f"{owner}_grid"
        (tmp_path / f"{module}.py").write_text(text.replace("{name}", kind).replace("{needs}", ""))
        info = tmp_path / f"{owner}-1.0.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {owner}", "Version: 1.0"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        entry = f"{kind} = {value or module + ':KIND'}"
        (info / "entry_points.txt").write_text(f"[gridfed.grids]\n{entry}\n")

    yield install
    for name in [each for each in sys.modules if each.endswith("_grid")]:
        del sys.modules[name]


def refusal(name):
    with pytest.raises(SettingError) as caught:
        find_kind(name)
    return str(caught.value)


def test_ours_is_an_entry_point_too():
    kind = find_kind("processes")
    assert kind.name == "processes"
    assert kind.read({"slots_max": 3}).slots_max == 3
    assert {"local", "remote", "processes"} <= set(kind_names())


def test_another_s_is_found_and_imported_only_when_asked_for(install):
    install("acme", "acme", GOOD)
    assert "acme" in kind_names()
    find_kind("processes")
    assert "acme_grid" not in sys.modules
    assert find_kind("acme").name == "acme"


def test_an_unknown_kind_is_told_which_there_are(install):
    install("acme", "acme", GOOD)
    text = refusal("slrum")
    assert "'slrum'" in text
    for name in ("acme", "local", "processes", "remote"):
        assert name in text


def test_two_of_one_name_are_none(install):
    install("acme", "same", GOOD)
    install("other", "same", GOOD)
    assert "acme 1.0 and other 1.0" in refusal("same")


def test_nobody_takes_a_built_in_name(install):
    install("acme", "local", GOOD)
    assert "acme 1.0 must not" in refusal("local")
    assert "reserved by gridfed" in refusal("remote")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("KIND = print", "is not a gateway.grids.contract.GridKind, but <built-in function print>"),
        ("1 / 0", "can't be loaded: ZeroDivisionError: division by zero"),
        ("KIN = 1", "can't be loaded: AttributeError"),
        ("import no_such_module", "needs module 'no_such_module', which is not installed"),
        (GOOD.replace("{name}", "else"), "has the name 'else'"),
    ],
)
def test_what_is_wrong_with_one_is_said_with_whose_it_is(install, text, said):
    install("acme", "acme", text)
    refused = refusal("acme")
    assert said in refused
    assert "acme 1.0" in refused
    assert "pip" not in refused


def test_a_library_that_is_missing_is_named_with_what_brings_it(install):
    requires = ["Bo_To.99>=1; extra == 'cloud'", "trio>=0.3", "cats; extra == 'pets'"]
    install("acme", "acme", "import bo_to_99", requires=requires)
    assert refusal("acme").endswith("not installed: pip install 'acme[cloud]'")


def test_the_entry_point_may_say_what_brings_its_libraries(install):
    install("acme", "acme", "import boto99", value="acme_grid:KIND [cloud]")
    assert refusal("acme").endswith("not installed: pip install 'acme[cloud]'")


def test_a_kind_that_imports_late_says_what_it_needs(install, monkeypatch):
    brought = {"gridfed": [("trio", "aws"), ("boto99", "aws"), ("pandas99", "other")]}
    monkeypatch.setattr(kinds, "_extras", lambda owner: brought[owner])
    install("acme", "acme", GOOD.replace("{needs}", "aws"))
    assert refusal("acme") == "kind 'acme' needs boto99: pip install 'gridfed[aws]'"


def test_the_extras_of_a_distribution_are_read():
    assert ("jinja2", "html") in list(kinds._extras("gridfed"))
    assert not list(kinds._extras("no-such-thing"))


BROKEN = """
from gateway.grids.contract import GridKind

def read(table):
    if table.get("hosts") == ["good"]:
        return table
    return table["hosts"] / 2

def open(settings, launch):
    return settings["region"]

KIND = GridKind("{name}", read, open)
"""
POOL = '[[pool]]\nname = "p"\nkind = "acme"\n[pool.scale]\nmax = 2\n[pool.acme]\nhosts = {}\n'


def test_a_reader_that_breaks_is_named_with_whose_it_is(install, tmp_path):
    install("acme", "acme", BROKEN)
    with pytest.raises(SettingError) as caught:
        read_settings(find_kind("acme"), {})
    text = "kind 'acme' of acme 1.0 failed while reading its table: KeyError: 'hosts' "
    assert text + "(acme_grid.py, line 7)" in str(caught.value)
    (tmp_path / "site.toml").write_text(POOL.format('"x"'))
    with pytest.raises(ConfigError, match=r"line 6: .*failed while reading.*TypeError"):
        load(str(tmp_path / "site.toml"), Installed())


def test_a_reader_that_breaks_on_reload_leaves_all_as_it_was(install, tmp_path):
    install("acme", "acme", BROKEN)
    path = tmp_path / "site.toml"
    path.write_text(POOL.format('["good"]'))
    config = check(load(str(path), Installed()), 0.0)
    path.write_text(POOL.format("[]").replace("max = 2", "max = 3"))
    with pytest.raises(ConfigError, match="failed while reading its table: TypeError"):
        read_again(config, 0.0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "kind 'acme' of acme 1.0 failed while opening the grid: KeyError: 'region'"),
        ({"region": 3}, "opened 3, which lacks check, limits, capacity, pilots, start, stop"),
    ],
)
def test_a_grid_that_can_not_be_opened_is_named_with_whose_it_is(install, settings, said):
    install("acme", "acme", BROKEN)
    with pytest.raises(SettingError) as caught:
        open_grid(find_kind("acme"), settings, None)
    assert said in str(caught.value)
