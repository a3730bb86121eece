"""The demo of data and graphs: four sites, one killed half way, one where the data may not go."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES = ("local_federation", "market_risk", "federated_risk", "data_risk")
DAYS = 2_012


@pytest.fixture
def demo(monkeypatch):
    """The script, imported as it is run: its folder first on the path."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import data_risk

    yield data_risk
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_graph_over_data_gives_the_figures_of_a_loop_and_no_byte_leaves_its_law(demo, capsys):
    from federated_risk import owed

    market = demo.make_market()
    with demo.local_federation(demo.PLANS) as sites:
        found = demo.run_on(sites, market, DAYS, kills=True)
        demo.show_books(sites)
        assert demo.moved_bytes(sites[3]) == 0
        assert owed(sites[0], sites[3]) == {}
    assert found == demo.plain(market, DAYS)
    said = capsys.readouterr().out
    assert "dublin is killed" in said
    assert "frankfurt owes dublin" in said
    assert "madrid is owed" in said
