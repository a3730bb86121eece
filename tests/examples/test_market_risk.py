"""The demo's job: its figures are those of a plain loop, to the last bit."""

import importlib.util
import math
import sys
from pathlib import Path

import pytest

from federation import Client

PATH = Path(__file__).parent.parent.parent / "examples" / "market_risk.py"


@pytest.fixture(scope="module")
def risk():
    spec = importlib.util.spec_from_file_location("market_risk", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["market_risk"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["market_risk"]


def test_the_data_is_whole(risk):
    for name in ("sp500", "nasdaq"):
        closes = risk.read_closes(name)
        assert (len(closes), closes[0][0], closes[-1][0]) == (5031, "1999-01-04", "2018-12-31")
    assert len(risk.read_scenarios()[0]) == 5030


def test_put_call_parity(risk):
    spot, strike, years, vol, dividends = 100.0, 95.0, 0.75, 0.3, 0.02
    call = risk.black_scholes(True, spot, strike, years, vol, dividends)
    put = risk.black_scholes(False, spot, strike, years, vol, dividends)
    forward = spot * math.exp(-dividends * years) - strike * math.exp(-risk.RATE * years)
    assert call - put == pytest.approx(forward, abs=1e-12)


def test_the_estimator_on_known_outcomes(risk):
    days = [risk.Scenario(f"day {at:03}", (0.0, 0.0)) for at in range(200)]
    figures = risk.measure([float(at) - 100 for at in range(200)], days)
    assert figures.value_at_risk == 99.0  # the second largest of 200 losses
    assert figures.expected_shortfall == 99.5
    assert [outcome for outcome, _ in figures.worst[:2]] == [-100.0, -99.0]


def test_a_day_without_a_move_changes_nothing(risk):
    _, spots = risk.read_scenarios()
    revalue = risk.Revaluation(risk.make_book(spots, 50), spots)
    assert revalue(risk.Scenario("still", (0.0, 0.0))) == pytest.approx(0.0, abs=1e-9)


def test_the_grids_figures_are_those_of_a_plain_loop(risk, local_gateway):
    plain = risk.run(map, options=100, days=600)
    with Client(local_gateway) as client:
        assert risk.run(client.map, options=100, days=600) == plain
