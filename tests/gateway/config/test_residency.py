"""The tables [[residency]] of a configuration."""

import pytest

from gateway.base.values import ConfigError
from gateway.config.site import load
from policies.access.residency import ResidencyRule
from policies.parties import read_party


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "site.toml"

    def read_(text):
        path.write_text('[site]\nname = "london"\n\n' + text)
        return load(str(path)).residency

    return read_


def test_rules_are_read_in_order(read):
    found = read(
        '[[residency]]\nwho = "project:risk"\nhome = true\n\n'
        '[[residency]]\nwho = ["ours"]\ndata = ["personal"]\njurisdictions = ["EU"]\n'
    )
    assert found == (
        ResidencyRule((read_party("project:risk"),), sites=frozenset({"london"})),
        ResidencyRule(
            (read_party("ours"),),
            data=frozenset({"personal"}),
            jurisdictions=frozenset({"EU"}),
        ),
    )
    assert [each.line for each in found] == [4, 8]
    assert str(found[1]) == "ours; data personal; jurisdictions EU"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("home = true", 4, "it needs who"),
        ('who = "ours"', 4, "it needs home = true, or one of sites, not_sites, jurisdictions"),
        ('who = "ours"\nhome = true\nsites = ["a"]', 6, "home and sites exclude each other"),
        ('who = "site:paris"\nhome = true', 5, "the places of other sites' work"),
        ('who = "group:none"\nhome = true', 5, "group 'none' not found in"),
        ('who = "ours"\nsites = [1]', 6, "sites: 1 must be 1 to 60 characters"),
        ('who = "ours"\nsite = "a"', 6, "unknown key 'site'"),
        ('who = "ours"\ndata = []\nhome = true', 6, "data: the list is empty"),
    ],
)
def test_a_mistake_has_its_line_and_says_what_to_write(read, text, line, why):
    with pytest.raises(ConfigError, match=rf"line {line}: \[\[residency\]\]") as caught:
        read("[[residency]]\n" + text)
    assert why in str(caught.value)
