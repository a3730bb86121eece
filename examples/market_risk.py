"""Historical-simulation risk of an options portfolio: the job that `make demo` runs.

A book of three thousand European options on the S&P 500 and the Nasdaq Composite is revalued in
full under each day's real move from 1999 to 2018, applied to the last close. One task is one
scenario day; the answers are the 1-day 99 % value at risk and expected shortfall.

The pricing is plain Python on purpose: it installs nowhere, costs a few milliseconds a task, and
gives the same bits on every machine, so that the figures can be compared exactly with those of a
plain loop. Workers need not have this file: the client sends what the tasks use.

    python examples/market_risk.py                     # starts a gateway and workers, ends them
    python examples/market_risk.py --gateway ADDRESS   # a gateway that is there
    python examples/market_risk.py --plain             # no grid at all
    python examples/market_risk.py --compare           # both, and they must be equal
"""

import argparse
import contextlib
import csv
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation import Client

DATA = Path(__file__).parent / "data"
OPTIONS = 3000
SEED = 20181231
CONFIDENCE = 0.99

# Assumptions: a flat rate; per index a dividend yield, an at-the-money volatility and a skew.
RATE = 0.025
DIVIDEND_YIELD = (0.020, 0.010)
VOLATILITY = (0.20, 0.25)
SKEW = (-0.10, -0.12)  # volatility per unit of log-moneyness


@dataclass(frozen=True)
class Scenario:
    """One historical day: its date, and the log return of each index on it."""

    date: str
    returns: tuple[float, float]


@dataclass(frozen=True)
class Option:
    """A position in a European option. `index` is 0 for the S&P 500, 1 for the Nasdaq."""

    index: int
    is_call: bool
    strike: float
    years: float
    volatility: float
    quantity: int
    value: float  # today's, per unit


@dataclass(frozen=True)
class Figures:
    """The answers, in index points times quantity: losses are positive."""

    value_at_risk: float
    expected_shortfall: float
    worst: tuple[tuple[float, Scenario], ...]  # (profit or loss, day), worst first


# --- input ---------------------------------------------------------------------------------------


def read_closes(name: str) -> list[tuple[str, float]]:
    """(date, close) of an index, oldest first."""
    with open(DATA / f"{name}.csv", newline="") as file:
        return [(row["date"], float(row["close"])) for row in csv.DictReader(file)]


def read_scenarios() -> tuple[list[Scenario], tuple[float, float]]:
    """Every day's real move, and the last closes."""
    indices = [read_closes("sp500"), read_closes("nasdaq")]
    scenarios = []
    for yesterday, today in zip(
        zip(*indices, strict=True), list(zip(*indices, strict=True))[1:], strict=False
    ):
        assert today[0][0] == today[1][0], "the indices have different trading days"
        moves = [math.log(now[1] / before[1]) for before, now in zip(yesterday, today, strict=True)]
        scenarios.append(Scenario(today[0][0], (moves[0], moves[1])))
    return scenarios, (indices[0][-1][1], indices[1][-1][1])


# --- pricing -------------------------------------------------------------------------------------


def black_scholes(
    is_call: bool, spot: float, strike: float, years: float, volatility: float, dividends: float
) -> float:
    """The value of a European option (Black and Scholes 1973, with Merton's dividend yield)."""
    deviation = volatility * math.sqrt(years)
    d1 = (
        math.log(spot / strike) + (RATE - dividends + 0.5 * volatility * volatility) * years
    ) / deviation
    d2 = d1 - deviation
    forward = spot * math.exp(-dividends * years)
    discounted = strike * math.exp(-RATE * years)
    if is_call:
        return forward * normal_cdf(d1) - discounted * normal_cdf(d2)
    return discounted * normal_cdf(-d2) - forward * normal_cdf(-d1)


def normal_cdf(x: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def make_book(spots: tuple[float, float], options: int = OPTIONS) -> tuple[Option, ...]:
    """A book of options around today's levels, the same for the same seed."""
    chance = random.Random(SEED)
    book = []
    for _ in range(options):
        index = chance.randrange(2)
        spot = spots[index]
        moneyness = chance.uniform(-0.25, 0.25)
        years = chance.choice((1, 2, 3, 6, 9, 12, 18, 24)) / 12
        strike = spot * math.exp(moneyness)
        volatility = max(0.05, VOLATILITY[index] + SKEW[index] * moneyness)
        is_call = chance.random() < 0.5
        quantity = chance.choice((-20, -10, -5, 5, 10, 20))
        value = black_scholes(is_call, spot, strike, years, volatility, DIVIDEND_YIELD[index])
        book.append(Option(index, is_call, strike, years, volatility, quantity, value))
    return tuple(book)


class Revaluation:
    """The task: what the book gains or loses on a day like the scenario's."""

    def __init__(self, book: tuple[Option, ...], spots: tuple[float, float]) -> None:
        self.book = book
        self.spots = spots

    def __call__(self, scenario: Scenario) -> float:
        """Profit or loss under one scenario, by full revaluation."""
        levels = [
            spot * math.exp(move) for spot, move in zip(self.spots, scenario.returns, strict=True)
        ]
        total = 0.0
        for option in self.book:
            value = black_scholes(
                option.is_call,
                levels[option.index],
                option.strike,
                option.years,
                option.volatility,
                DIVIDEND_YIELD[option.index],
            )
            total += option.quantity * (value - option.value)
        return total


# --- the figures ---------------------------------------------------------------------------------


def measure(outcomes: Sequence[float], scenarios: Sequence[Scenario]) -> Figures:
    """Value at risk and expected shortfall of simulated outcomes.

    With n outcomes and k = ceil(n (1 - confidence)), the value at risk is the k-th largest loss
    and the expected shortfall the mean of the k largest (McNeil, Frey, Embrechts: Quantitative
    Risk Management, 2015, section 9.2.1).
    """
    tail = math.ceil(len(outcomes) * (1.0 - CONFIDENCE))
    ranked = sorted(zip(outcomes, scenarios, strict=True), key=lambda pair: (pair[0], pair[1].date))
    losses = [-outcome for outcome, _ in ranked[:tail]]
    return Figures(losses[-1], math.fsum(losses) / tail, tuple(ranked[:10]))


Map = Callable[[Callable[[Scenario], float], Iterable[Scenario]], Iterable[float]]


def run(using: Map, options: int = OPTIONS, days: int | None = None) -> Figures:
    """The whole job, with any function that maps: the builtin, or a grid's."""
    scenarios, spots = read_scenarios()
    scenarios = scenarios[-days:] if days else scenarios
    outcomes = list(using(Revaluation(make_book(spots, options), spots), scenarios))
    return measure(outcomes, scenarios)


# --- on a grid -----------------------------------------------------------------------------------


@contextlib.contextmanager
def local_gateway() -> Iterator[str]:
    """A gateway of our own with workers on every core; its address. Ended at the end."""
    with tempfile.TemporaryDirectory(prefix="gridfed-demo-") as folder:
        command = [sys.executable, "-m", "gateway", "up", "--json", "--price", "0.04 USD"]
        command += ["--listen", f"ipc://{folder}/gateway.sock", "--state", f"{folder}/state"]
        log = Path(folder) / "gateway.log"
        with log.open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            ready = "".join(iter(process.stdout.readline, "}\n"))
            if process.poll() is not None:
                sys.exit(f"the gateway did not start:\n{log.read_text()}")
            yield str(json.loads(ready + "}")["addresses"][0])
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def run_on_grid(address: str) -> Figures:
    """The job through a gateway, and what it says of the work."""
    scenarios, spots = read_scenarios()
    revaluation = Revaluation(make_book(spots), spots)
    with Client(address) as client:
        workers = client.ask("workers")
        slots = sum(worker["slots"] for worker in workers)
        print(f"{len(scenarios):,} scenario days × {OPTIONS:,} options, {slots} slots at {address}")
        started_s = time.perf_counter()
        view = client.options(name="market-risk", project="demo")
        results = view.map(revaluation, scenarios, progress=True)
        outcomes = list(results)
        elapsed_s = time.perf_counter() - started_s
        job = client.job(results.job)
        job.wait(30)
        figures = measure(outcomes, scenarios)
        show(figures)
        show_bill(job.details(), len(outcomes), elapsed_s)
    return figures


def show(figures: Figures) -> None:
    """Print the risk figures."""
    print(f"\n  1-day {CONFIDENCE:.0%} value at risk    {figures.value_at_risk:>16,.2f}")
    print(f"  1-day {CONFIDENCE:.0%} expected shortfall {figures.expected_shortfall:>14,.2f}")
    print("\n  the ten worst days      S&P 500    Nasdaq     profit or loss")
    for outcome, day in figures.worst:
        moves = "  ".join(f"{math.expm1(move):>8.2%}" for move in day.returns)
        print(f"  {day.date}          {moves}   {outcome:>16,.2f}")


def show_bill(job: dict[str, Any], tasks: int, elapsed_s: float) -> None:
    """Print what was used, what it cost, and who is billed."""
    price = job["price_nanos"] / 1e9
    print(f"\n  tasks          {tasks:,} in {elapsed_s:.2f} s: {tasks / elapsed_s:,.0f} tasks/s")
    print(f"  slot-seconds   {job['wall_ns'] / 1e9:,.2f}")
    print(f"  cost           {job['cost']} at {price:g} {job['currency']} per slot-hour")
    print(f"  billed to      {job['user']}, project {job['project']} (job {job['id']})")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--gateway", help="the address of a gateway that is there")
    parser.add_argument("--plain", action="store_true", help="a plain loop, without a grid")
    parser.add_argument("--compare", action="store_true", help="both, and compare")
    given = parser.parse_args()
    if given.plain:
        show(run(map))
        return
    with contextlib.nullcontext(given.gateway) if given.gateway else local_gateway() as address:
        figures = run_on_grid(address)
    if given.compare:
        if figures != run(map):
            sys.exit("the figures differ from those of the plain loop")
        print("\n  identical to the plain loop, bit for bit")


if __name__ == "__main__":
    main()
