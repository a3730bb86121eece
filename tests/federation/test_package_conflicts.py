"""Another distribution that owns one of our package names is found, by its name or by its files."""

import pytest

from federation.package_conflicts import find_collisions


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Have a distribution found, which says that its packages are these."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(name, top_level=""):
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "top_level.txt").write_text(top_level)

    return add


@pytest.mark.parametrize(
    ("name", "top_level", "found"),
    [
        ("federation", "", ["package 'federation' also belongs to federation"]),
        ("acme-grid", "acme\npolicies\n", ["package 'policies' also belongs to acme-grid"]),
        ("gateway", "gateway\n", ["package 'gateway' also belongs to gateway"]),
        ("gateway-tools", "gateway_tools\n", []),
    ],
)
def test_another_distribution_of_our_names(install, name, top_level, found):
    install(name, top_level)
    assert find_collisions() == found


def test_nobody_else():
    assert find_collisions() == []
