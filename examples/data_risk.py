"""A graph over data that stays where the law wants it: value at risk of options on many names.

    frankfurt   EU   1 slot     0.20 USD a slot-hour   the client's own gateway; it holds the data
    dublin      EU   2 slots    0.04 USD               cheap; killed half way
    madrid      EU   1 slot     0.06 USD
    newyork     US   4 slots    0.01 USD               the cheapest, where the data may not go

The market data (20 years of daily moves of 200 names) is put once, as an object. The graph: curves,
then volatility surfaces by desk, then the book of each desk revalued under blocks of scenario days,
then the profit and loss of each desk, then the value at risk. A call begins when its inputs have
ended, and goes where it is cheap; the object goes to each site once, by a port of its own.

The moves of the two indices are real (examples/data); those of the names are made from them by
betas and noise from a seed, as the volatilities, strikes and quantities are.

    python examples/data_risk.py                    # make demo-data
    python examples/data_risk.py --nobody-dies
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from federated_risk import is_alive, show_books, show_pools, table
from local_federation import ACCEPTED, LocalSite, LocalSitePlan, local_federation
from market_risk import CONFIDENCE_PERCENT, read_scenarios

from federation import Client, as_completed
from federation.money import format_money

Numbers = npt.NDArray[np.float64]

NAMES, DESKS, OPTIONS, DAYS_IN_BLOCK = 200, 5, 40, 503  # names, desks, options a name, days
EXPIRIES = np.array([1, 3, 6, 12, 24]) / 12  # of a surface, in years
SEED = 20181231
HOLD = "0.03 USD/GB-month"


def pool(slots: int, price: str, jurisdiction: str) -> str:
    """Return the table of a site's pool, and what holding data there costs."""
    lines = [f'name = "local"\nkind = "local"\nslots = {slots}\nprice = "{price}"']
    lines += [f'jurisdiction = "{jurisdiction}"\n{ACCEPTED}']
    return f'\n[objects]\nhold = "{HOLD}"\n\n[[pool]]\n' + "\n".join(lines)


PLANS = (
    LocalSitePlan("frankfurt", 0, "", pool(1, "0.20 USD", "EU")),
    LocalSitePlan("dublin", 0, "", pool(2, "0.04 USD", "EU")),
    LocalSitePlan("madrid", 0, "", pool(1, "0.06 USD", "EU")),
    LocalSitePlan("newyork", 0, "", pool(4, "0.01 USD", "US")),
)


@dataclass(frozen=True)
class MarketData:
    """The market data.

    Attributes:
        moves: the log return of each name on each day, days by names.
        spots: the last price of each name.
        rates: a flat rate for each of EXPIRIES.
    """

    moves: Numbers
    spots: Numbers
    rates: Numbers


def make_market() -> MarketData:
    """Make the moves of all names: betas to the two indices' real moves, and noise."""
    scenarios, _ = read_scenarios()
    indices = np.array([each.move for each in scenarios])
    chance = np.random.default_rng(SEED)
    betas = chance.uniform(0.2, 0.9, (2, NAMES))
    noise = chance.normal(0.0, 0.01, (len(indices), NAMES))
    rates = 0.02 + 0.005 * np.sqrt(EXPIRIES)
    return MarketData(indices @ betas + noise, chance.uniform(20.0, 400.0, NAMES), rates)


# --- the tasks: each is a plain function ---------------------------------------------------------


def discount_curve(market: MarketData) -> Numbers:
    """Return the discount factor of each expiry."""
    factors: Numbers = np.exp(-market.rates * EXPIRIES)
    return factors


def fit_surface(market: MarketData, curve: Numbers, names: range) -> Numbers:
    """Return the volatilities of a desk's names, names by expiries.

    The volatility of a year is that of the history; a term structure pulls short ones up.
    """
    yearly = market.moves[:, names.start : names.stop].std(axis=0) * np.sqrt(252.0)
    steepness = 1.0 + 0.2 * (curve[-1] / curve)
    surface: Numbers = yearly[:, None] * steepness[None, :]
    return surface


def revalue(
    market: MarketData, curve: Numbers, surface: Numbers, names: range, days: range
) -> Numbers:
    """Return a desk's profit or loss on each of these days, by full revaluation of its book."""
    chance = np.random.default_rng(SEED + names.start)
    shape = len(names), OPTIONS
    expiry = chance.integers(0, len(EXPIRIES), shape)
    quantity = chance.integers(-20, 21, shape).astype(float)
    spots = market.spots[names.start : names.stop, None]
    strikes = spots * np.exp(chance.uniform(-0.25, 0.25, shape))
    years, factor = EXPIRIES[expiry], curve[expiry]
    volatility = np.take_along_axis(surface, expiry, axis=1)
    today = call_values(spots, strikes, years, factor, volatility)
    outcomes = np.empty(len(days))
    for at, day in enumerate(days):
        moved = spots * np.exp(market.moves[day, names.start : names.stop, None])
        values = call_values(moved, strikes, years, factor, volatility)
        outcomes[at] = (quantity * (values - today)).sum()
    return outcomes


def call_values(
    spots: Numbers, strikes: Numbers, years: Numbers, factors: Numbers, volatilities: Numbers
) -> Numbers:
    """Return the values of European calls (Black 1976)."""
    deviation = volatilities * np.sqrt(years)
    d1 = np.log(spots / (strikes * factors)) / deviation + 0.5 * deviation
    values: Numbers = spots * normal(d1) - strikes * factors * normal(d1 - deviation)
    return values


def normal(x: Numbers) -> Numbers:
    """Return the standard normal distribution function.

    To 1e-7: Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.2.17.
    """
    t = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    poly = 1.330274429
    for each in (-1.821255978, 1.781477937, -0.356563782, 0.319381530):
        poly = each + t * poly
    tail = np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi) * poly * t
    found: Numbers = np.where(x > 0.0, 1.0 - tail, tail)
    return found


def of_desk(blocks: Sequence[Numbers]) -> Numbers:
    """Return the outcomes of a desk on all days."""
    return np.concatenate(blocks)


def at_risk(desks: Sequence[Numbers]) -> tuple[float, list[float]]:
    """Return the value at risk of the firm and of each desk: losses are positive."""
    level = 100 - CONFIDENCE_PERCENT
    alone = [-float(np.percentile(each, level)) for each in desks]
    return -float(np.percentile(np.sum(desks, axis=0), level)), alone


# --- the graph -----------------------------------------------------------------------------------

Submit = Callable[..., Any]


def build(submit: Submit, market: Any, days: int) -> tuple[Any, list[Any]]:
    """Submit all calls; return that of the value at risk, and those that revalue.

    Args:
        submit: of a client, whose calls may have futures and references among their arguments; or
            one that calls at once.
        market: the market data, or a reference to it.
        days: how many scenario days to use.
    """
    curve = submit(discount_curve, market)
    desks, blocks = [], []
    width = NAMES // DESKS
    for first in range(0, NAMES, width):
        names = range(first, first + width)
        surface = submit(fit_surface, market, curve, names)
        parts = [
            submit(
                revalue, market, curve, surface, names, range(low, min(low + DAYS_IN_BLOCK, days))
            )
            for low in range(0, days, DAYS_IN_BLOCK)
        ]
        blocks += parts
        desks.append(submit(of_desk, parts))
    return submit(at_risk, desks), blocks


def plain(market: MarketData, days: int) -> tuple[float, list[float]]:
    """Run all of it in this process."""
    found: tuple[float, list[float]] = build(lambda task, *given: task(*given), market, days)[0]
    return found


def run_on(
    sites: Sequence[LocalSite], market: MarketData, days: int, *, kills: bool
) -> tuple[float, list[float]]:
    """Run the graph through the first site's gateway; the second is killed half way if asked."""
    near, victim = sites[0], sites[1]
    with Client(near.address) as client:
        show_pools(client.ask("pools"))
        view = client.options(
            name="desk-risk", project="demo", objective="fastest", jurisdictions=["EU"]
        )
        started_s = time.perf_counter()
        data = view.put(market, name="market/2018-12-31")
        put_s = time.perf_counter() - started_s
        print(
            f"  {data.name}: {data.size / 1e6:,.1f} MB put in {put_s * 1e3:,.0f} ms at {near.name}"
        )
        answer, blocks = build(view.submit, data, days)
        for done, _ in enumerate(as_completed(blocks), 1):
            if kills and done == len(blocks) // 2:
                victim.kill()
                print(f"  {victim.name} is killed, with all its processes", flush=True)
        found: tuple[float, list[float]] = answer.result()
        elapsed_s = time.perf_counter() - started_s
        print(f"  {len(blocks) + 2 * DESKS + 2:,} calls in {elapsed_s:.2f} s")
        show_bill(client, sites)
    return found


def show_bill(client: Client, sites: Sequence[LocalSite]) -> None:
    """Print where calls ran, the bytes that went to other sites, and the cost of all of it."""
    near, *others = sites
    print(f"\n  {'ran at':<22}{'tasks':>7}{'cost':>22}")
    for row in table(client.ask("report", kind="cost", by=["pool"])):
        site = row["pool"].partition("/")[0] if "/" in row["pool"] else near.name
        cost = format_money(row["cost_nanos"], row["currency"])
        print(f"  {site:<22}{row['tasks']:>7,}{cost:>22}")
    print()
    for other in others:
        if not is_alive(other):
            print(f"  bytes fetched by {other.name:<12}{'(site killed)':>16}")
            continue
        print(f"  bytes fetched by {other.name:<12}{moved_bytes(other):>16,}")
    for row in client.ask("objects"):
        cost = format_money(row.get("cost_nanos", 0), row.get("currency") or "USD")
        print(f"  held at {near.name}: {row['bytes']:,} bytes for {HOLD}: {cost} so far")


def moved_bytes(site: LocalSite) -> int:
    """Return the bytes that came to a site from others, by its books."""
    with Client(site.address) as client:
        found = client.ask("report", kind="cost", by=["kind"], whose="all")
    return sum(row["moved_bytes"] for row in table(found))


def show(found: tuple[float, list[float]]) -> None:
    """Print the figures."""
    whole, desks = found
    print(f"\n  1-day {CONFIDENCE_PERCENT} % value at risk{whole:>18,.2f}")
    for number, each in enumerate(desks):
        print(f"    desk {number} alone{each:>30,.2f}")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--nobody-dies", action="store_true", help="do not kill a site")
    given = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):  # so that the gateways are stopped then, too
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    market = make_market()
    days = len(market.moves)
    print("creating four sites and connecting them …")
    with local_federation(PLANS) as sites:
        found = run_on(sites, market, days, kills=not given.nobody_dies)
        show_books(sites)
        if moved_bytes(sites[3]):
            sys.exit(f"{sites[3].name}, outside of the EU, has fetched some of the data")
    show(found)
    if found != plain(market, days):
        sys.exit("the figures differ from those of a plain loop")
    print(
        "\n  identical to a plain loop, bit for bit; newyork, outside of the EU, got no byte of it"
    )


if __name__ == "__main__":
    main()
