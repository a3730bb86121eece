"""Historical-simulation risk of an options portfolio: the job that `make demo` runs.

A book of eight thousand European options on the S&P 500 and the Nasdaq Composite is revalued in
full under each day's real move from 1999 to 2018, applied to the last close. One task is one
scenario day; the answers are the 1-day 99 % value at risk and expected shortfall.

The pricing is plain Python on purpose: it needs no package, costs a few milliseconds a task, and
gives the same bits in every process of a machine, so that the figures can be compared exactly with
those of a plain loop. Workers need not have this file: the client sends all that the tasks use, the
book once with the function, and with each task no more than two floats.

    python examples/market_risk.py                     # starts a gateway and workers, ends them
    python examples/market_risk.py --gateway ADDRESS   # an existing gateway
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
from itertools import pairwise
from pathlib import Path
from typing import Any

from federation import Client
from federation.money import format_money

DATA = Path(__file__).parent / "data"
OPTIONS = 8000
SEED = 20181231
CONFIDENCE_PERCENT = 99  # an integer, so that the size of the tail is exact
WORST_DAYS = 10
STOP_S = 20.0
PRICE = "0.04 USD"  # per slot-hour, of the gateway that the demo starts

# Assumptions, per index where there are two: S&P 500, Nasdaq. The rate is flat. At the money the
# volatility goes from a short to a long level as exp(-years); across strikes it is a parabola in
# m = log(strike / spot). A scenario moves the levels only: each option keeps its volatility
# ("sticky strike") and its time to expiry.
RATE = 0.025
DIVIDEND_YIELD = (0.020, 0.010)
VOLATILITY_SHORT = (0.25, 0.30)
VOLATILITY_LONG = (0.20, 0.24)
SKEW = (-0.20, -0.18)  # per unit of m
SMILE = (0.30, 0.25)  # per unit of m squared

Move = tuple[float, float]  # a log return of each index


@dataclass(frozen=True)
class Scenario:
    """One historical day: its date, and the log return of each index on it."""

    date: str
    move: Move


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


def read_closes(name: str) -> list[tuple[str, float]]:
    """Read an index: (date, close), oldest first."""
    with open(DATA / f"{name}.csv", newline="") as file:
        return [(row["date"], float(row["close"])) for row in csv.DictReader(file)]


def read_scenarios() -> tuple[list[Scenario], tuple[float, float]]:
    """Return every day's real move, oldest first, and the last closes."""
    sp500, nasdaq = read_closes("sp500"), read_closes("nasdaq")
    days = list(zip(sp500, nasdaq, strict=True))
    scenarios = []
    for before, ((date, s), (other_date, n)) in pairwise(days):
        assert date == other_date, "the indices have different trading days"
        (_, s_before), (_, n_before) = before
        scenarios.append(Scenario(date, (math.log(s / s_before), math.log(n / n_before))))
    return scenarios, (sp500[-1][1], nasdaq[-1][1])


def black_scholes(
    is_call: bool, spot: float, strike: float, years: float, volatility: float, dividends: float
) -> float:
    """Return the value of a European option (Black and Scholes 1973, with Merton's dividends)."""
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
    """Return the standard normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def implied_volatility(index: int, moneyness: float, years: float) -> float:
    """Return the assumed volatility: a term structure at the money, and a smile across strikes."""
    short, long = VOLATILITY_SHORT[index], VOLATILITY_LONG[index]
    at_the_money = long + (short - long) * math.exp(-years)
    return at_the_money + SKEW[index] * moneyness + SMILE[index] * moneyness * moneyness


def make_book(spots: tuple[float, float], options: int = OPTIONS) -> tuple[Option, ...]:
    """Make a book of options around today's levels, the same for the same seed."""
    chance = random.Random(SEED)
    book = []
    for _ in range(options):
        index = chance.randrange(2)
        spot = spots[index]
        moneyness = chance.uniform(-0.25, 0.25)
        years = chance.choice((1, 2, 3, 6, 9, 12, 18, 24)) / 12
        strike = spot * math.exp(moneyness)
        volatility = implied_volatility(index, moneyness, years)
        is_call = chance.random() < 0.5
        quantity = chance.choice((-20, -10, -5, 5, 10, 20))
        value = black_scholes(is_call, spot, strike, years, volatility, DIVIDEND_YIELD[index])
        book.append(Option(index, is_call, strike, years, volatility, quantity, value))
    return tuple(book)


class Revaluation:
    """The task: the book's profit or loss on a day like the scenario's."""

    def __init__(self, book: tuple[Option, ...], spots: tuple[float, float]) -> None:
        self.book = book
        self.spots = spots

    def __call__(self, move: Move) -> float:
        """Return the profit or loss under one move of the indices, by full revaluation."""
        levels = [spot * math.exp(change) for spot, change in zip(self.spots, move, strict=True)]
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


def measure(outcomes: Sequence[float], scenarios: Sequence[Scenario]) -> Figures:
    """Return value at risk and expected shortfall of simulated outcomes, each day equally likely.

    Both are those of the empirical distribution. Of n losses, sorted from the largest, and the tail
    t = n (100 - CONFIDENCE_PERCENT) / 100, not rounded: the value at risk is the loss of rank
    floor(t) + 1, the smallest loss that at least 99 % of the days do not exceed. The expected
    shortfall is the mean of the worst t days, the day at the edge counting with the fraction of it
    that belongs to the tail: (the floor(t) largest + (t - floor(t)) value at risk) / t.

    Source: Acerbi and Tasche, "On the coherence of expected shortfall", Journal of Banking and
    Finance 26 (2002), 1487-1503, whose definition stays coherent for discrete distributions. Days
    of equal outcome rank by date. Raises ValueError when there are no outcomes.
    """
    if not outcomes:
        raise ValueError("there are no outcomes to measure: simulate at least one day")
    ranked = sorted(zip(outcomes, scenarios, strict=True), key=lambda pair: (pair[0], pair[1].date))
    tail_percent = len(outcomes) * (100 - CONFIDENCE_PERCENT)
    whole, part_percent = divmod(tail_percent, 100)
    losses = [-outcome for outcome, _ in ranked[: whole + 1]]
    value_at_risk = losses[whole]
    in_tail = math.fsum([*losses[:whole], value_at_risk * (part_percent / 100)])
    return Figures(value_at_risk, in_tail / (tail_percent / 100), tuple(ranked[:WORST_DAYS]))


Map = Callable[[Callable[[Move], float], Sequence[Move]], Iterable[float]]


def run(using: Map, options: int = OPTIONS, days: int | None = None) -> Figures:
    """Run the whole job, with any function that maps: the builtin, or a grid's.

    Args:
        using: called once, with the task and every scenario's move.
        options: the size of the book.
        days: use only the last so many scenario days; None for all.
    """
    scenarios, spots = read_scenarios()
    scenarios = scenarios[-days:] if days else scenarios
    moves = [scenario.move for scenario in scenarios]
    return measure(list(using(Revaluation(make_book(spots, options), spots), moves)), scenarios)


@contextlib.contextmanager
def local_gateway() -> Iterator[str]:
    """Run a gateway with workers on every core; yield its address, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="gridfed-demo-") as folder:
        command = [sys.executable, "-P", "-m", "gateway", "up", "--json", "--price", PRICE]
        command += ["--listen", f"ipc://{folder}/gateway.sock", "--state", f"{folder}/state"]
        log = Path(folder) / "gateway.log"
        # A separate process group: Ctrl-C reaches only this process, which stops the gateway once.
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0
            ) as process,
        ):
            try:
                yield wait_ready(process, log)
            finally:
                stop(process)


def wait_ready(process: subprocess.Popen[str], log: Path) -> str:
    """Return the address that a starting gateway prints; exit with its log if it ends instead."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            return str(json.loads("".join(lines))["data"]["addresses"][0])
    sys.exit(f"the gateway did not start (exit code {process.wait()}):\n{log.read_text()}")


def stop(process: subprocess.Popen[str]) -> None:
    """End a gateway politely, or by force when it takes too long."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def run_on_grid(address: str, options: int = OPTIONS, days: int | None = None) -> Figures:
    """Run the job through a gateway; print the figures, and the gateway's record of the work."""
    with Client(address) as client:
        slots = sum(worker["slots"] for worker in client.ask("workers"))
        print(f"{options:,} options on {slots} slots at {address}")
        view = client.options(name="market-risk", project="demo")
        jobs: list[str] = []

        def using(task: Callable[[Move], float], moves: Sequence[Move]) -> Iterator[float]:
            # Always closed: after Ctrl-C the rest is cancelled, not waited for.
            with contextlib.closing(view.map(task, moves, progress=True)) as results:
                jobs.append(results.job)
                yield from results

        started_s = time.perf_counter()
        figures = run(using, options, days)
        elapsed_s = time.perf_counter() - started_s
        job = client.job(jobs[0])
        job.wait(30)
        show(figures)
        show_bill(job.details(), elapsed_s)
    return figures


def show(figures: Figures) -> None:
    """Print the risk figures."""
    level = f"1-day {CONFIDENCE_PERCENT} %"
    print(f"\n  {level + ' value at risk':<28} {figures.value_at_risk:>16,.2f}")
    print(f"  {level + ' expected shortfall':<28} {figures.expected_shortfall:>16,.2f}")
    print(f"\n  {'the worst days':<16}{'S&P 500':>9}{'Nasdaq':>10}{'profit or loss':>20}")
    for outcome, day in figures.worst:
        sp500, nasdaq = (math.expm1(change) for change in day.move)
        print(f"  {day.date:<16}{sp500:>9.2%}{nasdaq:>10.2%}{outcome:>20,.2f}")


def show_bill(job: dict[str, Any], elapsed_s: float) -> None:
    """Print a job's use, cost and billing, as its gateway booked it."""
    tasks, price = job["done"], format_money(job["price_nanos"], job["currency"])
    print(f"\n  tasks          {tasks:,} in {elapsed_s:.2f} s: {tasks / elapsed_s:,.0f} tasks/s")
    print(f"  slot-seconds   {job['wall_ns'] / 1e9:,.2f}")
    print(f"  cost           {job['cost']} at {price} per slot-hour")
    print(f"  billed to      {job['user']}, project {job['project']} (job {job['id']})")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--gateway", help="the address of a running gateway")
    parser.add_argument("--plain", action="store_true", help="a plain loop, without a grid")
    parser.add_argument("--compare", action="store_true", help="run both, and compare")
    given = parser.parse_args()
    if given.plain:
        show(run(map))
        return
    for ending in (signal.SIGTERM, signal.SIGHUP):  # so that the gateway is stopped then, too
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    with contextlib.nullcontext(given.gateway) if given.gateway else local_gateway() as address:
        figures = run_on_grid(address)
    if given.compare:
        if figures != run(map):
            sys.exit("the figures differ from those of the plain loop")
        print("\n  identical to the plain loop, bit for bit")


if __name__ == "__main__":
    main()
