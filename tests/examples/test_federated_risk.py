"""The demo: three sites as processes, one of them killed half way, and the figures of a loop."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[2] / "examples"
OPTIONS = 200
DAYS = 400


@pytest.fixture
def demo(monkeypatch):
    """The script, imported as it is run: its folder first on the path."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in ("local_federation", "market_risk", "federated_risk"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import federated_risk

    yield federated_risk
    for name in ("local_federation", "market_risk", "federated_risk"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_site_killed_half_way_changes_no_bit_of_the_figures(demo, capsys):
    with demo.local_federation(demo.PLANS) as sites:
        figures, bill = demo.run_on(sites, kills=True, options=OPTIONS, days=DAYS)
        demo.show_books(sites)
    assert figures == demo.run(map, OPTIONS, DAYS)
    assert bill["done"] == DAYS
    said = capsys.readouterr().out
    assert "dublin is killed" in said
    assert "london owes dublin" in said
    assert "zurich is owed" in said
