"""The demo's job: its input, its pricing, its estimators, and that a grid changes no bit of it."""

import importlib.util
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from federation import Client

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parents[2] / "examples" / "market_risk.py"
OPTIONS = 60
DAYS = 250


def load() -> ModuleType:
    """Import the script as any local module: not installed, and known by its name."""
    spec = importlib.util.spec_from_file_location("market_risk", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["market_risk"] = module
    spec.loader.exec_module(module)
    return module


market_risk = load()


@pytest.fixture(scope="module")
def plain():
    """The figures of a plain loop over a small book."""
    return market_risk.run(map, OPTIONS, DAYS)


def days(count):
    return [market_risk.Scenario(f"day {at:04}", (0.0, 0.0)) for at in range(count)]


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("sp500", 1228.099976, 2506.850098), ("nasdaq", 2208.050049, 6635.279785)],
)
def test_closes_are_whole(name, first, last):
    closes = market_risk.read_closes(name)
    dates = [date for date, _ in closes]
    assert len(closes) == 5031
    assert closes[0] == ("1999-01-04", first)
    assert closes[-1] == ("2018-12-31", last)
    assert dates == sorted(set(dates))
    assert all(close > 0 for _, close in closes)


def test_there_is_a_scenario_for_every_day_but_the_first():
    scenarios, spots = market_risk.read_scenarios()
    assert len(scenarios) == 5030
    assert (scenarios[0].date, scenarios[-1].date) == ("1999-01-05", "2018-12-31")
    assert scenarios[0].move[0] == math.log(1244.780029 / 1228.099976)
    assert spots == (2506.850098, 6635.279785)


def test_moves_lead_from_the_first_close_to_the_last():
    scenarios, spots = market_risk.read_scenarios()
    for index, name in enumerate(("sp500", "nasdaq")):
        first = market_risk.read_closes(name)[0][1]
        grown = first * math.exp(math.fsum(scenario.move[index] for scenario in scenarios))
        assert grown == pytest.approx(spots[index], rel=1e-12)


def test_a_price_agrees_with_the_textbook(monkeypatch):
    # Hull, Options, Futures and Other Derivatives, the chapter on Black-Scholes-Merton.
    monkeypatch.setattr(market_risk, "RATE", 0.10)
    assert market_risk.black_scholes(True, 42, 40, 0.5, 0.20, 0.0) == pytest.approx(4.76, abs=0.005)
    assert market_risk.black_scholes(False, 42, 40, 0.5, 0.2, 0.0) == pytest.approx(0.81, abs=0.005)


@pytest.mark.parametrize("strike", [60.0, 100.0, 150.0])
@pytest.mark.parametrize("years", [1 / 12, 2.0])
def test_puts_and_calls_are_at_parity(strike, years):
    call, put = (
        market_risk.black_scholes(is_call, 100.0, strike, years, 0.3, 0.02)
        for is_call in (True, False)
    )
    forward = 100.0 * math.exp(-0.02 * years) - strike * math.exp(-market_risk.RATE * years)
    assert call - put == pytest.approx(forward, abs=1e-10)


@pytest.mark.parametrize("is_call", [True, False])
def test_dividends_are_a_lower_spot(is_call):
    lower = 100.0 * math.exp(-0.04 * 1.5)
    with_dividends = market_risk.black_scholes(is_call, 100.0, 95.0, 1.5, 0.3, 0.04)
    without = market_risk.black_scholes(is_call, lower, 95.0, 1.5, 0.3, 0.0)
    assert with_dividends == pytest.approx(without, abs=1e-10)


def test_a_book_is_the_same_each_time_and_holds_every_kind():
    spots = (2500.0, 6600.0)
    book = market_risk.make_book(spots, 500)
    assert book == market_risk.make_book(spots, 500)
    assert {(o.index, o.is_call, o.quantity > 0) for o in book} == {
        (index, is_call, long)
        for index in (0, 1)
        for is_call in (True, False)
        for long in (True, False)
    }
    assert len({option.years for option in book}) == 8
    assert all(0.05 < option.volatility < 0.5 and option.value > 0 for option in book)


def test_a_day_without_moves_gains_nothing():
    spots = (2500.0, 6600.0)
    task = market_risk.Revaluation(market_risk.make_book(spots, OPTIONS), spots)
    assert task((0.0, 0.0)) == 0.0


def test_a_day_is_worth_what_its_options_are():
    option = market_risk.Option(1, True, 90.0, 1.0, 0.25, -10, 15.0)
    task = market_risk.Revaluation((option,), (50.0, 100.0))
    after = market_risk.black_scholes(True, 100.0 * math.exp(-0.05), 90.0, 1.0, 0.25, 0.010)
    assert task((0.3, -0.05)) == -10 * (after - 15.0)


@pytest.mark.parametrize(
    ("count", "value_at_risk", "expected_shortfall"),
    [
        (1, 1, 1),  # the tail is a hundredth of the only day
        (100, 99, 100),  # exactly one day
        (150, 149, (150 + 0.5 * 149) / 1.5),  # a day and half of another
        (1000, 990, 995.5),  # exactly ten days
        (5030, 4980, (sum(range(4981, 5031)) + 0.3 * 4980) / 50.3),
    ],
)
def test_risk_of_losses_from_one_to_n(count, value_at_risk, expected_shortfall):
    outcomes = [-float(1 + 7 * at % count) for at in range(count)]  # 7 is prime to each count
    figures = market_risk.measure(outcomes, days(count))
    assert sorted(outcomes) == [-float(loss) for loss in range(count, 0, -1)]
    assert figures.value_at_risk == value_at_risk
    assert figures.expected_shortfall == pytest.approx(expected_shortfall, rel=1e-14)


def test_the_worst_days_come_in_order_and_ties_by_date():
    given = [days(4)[at] for at in (0, 3, 2, 1)]
    figures = market_risk.measure([1.0, -2.0, -5.0, -2.0], given)
    assert [(outcome, day.date) for outcome, day in figures.worst] == [
        (-5.0, "day 0002"),
        (-2.0, "day 0001"),
        (-2.0, "day 0003"),
        (1.0, "day 0000"),
    ]


def test_nothing_can_be_said_of_no_outcomes():
    with pytest.raises(ValueError, match="no outcomes"):
        market_risk.measure([], [])


def test_threads_give_the_figures_of_a_plain_loop(plain):
    with ThreadPoolExecutor(2) as pool:
        assert market_risk.run(pool.map, OPTIONS, DAYS) == plain


def test_a_task_takes_two_floats():
    seen = []
    market_risk.run(lambda task, moves: [seen.append(move) or 0.0 for move in moves], 1, 3)
    assert [tuple(map(type, move)) for move in seen] == [(float, float)] * 3


def test_a_grid_gives_the_figures_of_a_plain_loop(local_gateway, plain):
    with Client(local_gateway) as client:
        assert market_risk.run(client.options(name="risk").map, OPTIONS, DAYS) == plain


def test_the_demo_says_what_it_cost_and_who_pays(local_gateway, plain, capsys):
    assert market_risk.run_on_grid(local_gateway, OPTIONS, DAYS) == plain
    with Client(local_gateway) as client:
        job = next(job for job in client.jobs() if job["name"] == "market-risk")
    said = capsys.readouterr().out
    assert f"{plain.value_at_risk:,.2f}" in said
    assert f"{plain.expected_shortfall:,.2f}" in said
    assert all(day.date in said for _, day in plain.worst)
    assert f"{DAYS:,} in " in said
    assert f"{job['cost']} at " in said
    assert f"{job['user']}, project demo (job {job['id']})" in said


@pytest.mark.slow
def test_the_demo_starts_a_gateway_and_ends_it():
    with market_risk.local_gateway() as address, Client(address) as client:
        results = client.map(abs, [-1])
        assert list(results) == [1]
        cost = client.job(results.job).cost()
        assert (cost.price_nanos, cost.currency) == (40_000_000, "USD")
        folder = Path(address.removeprefix("ipc://")).parent
    assert not folder.exists()


def test_a_gateway_that_does_not_start_shows_why(tmp_path, monkeypatch):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho the disk is full >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(broken))
    with (
        pytest.raises(SystemExit, match=r"exit code 3[\s\S]*the disk is full"),
        market_risk.local_gateway(),
    ):
        pytest.fail("it gave an address")
