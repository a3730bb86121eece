"""The market-risk job on a federation of three sites, one of which is killed half way.

    london   1 slot    0.20 USD a slot-hour    small and near: the client's own gateway
    dublin   2 slots   0.04 USD                large and cheap
    zurich   1 slot    0.80 USD                dear

The client knows only london. It wants the job done fast, and london's gateway spreads it: tasks
that do not run there go to the others under contracts, and come back with their cost. Half way
dublin is killed, with all its processes. Its tasks wait for its lease to end, and are placed
elsewhere; the figures are those of a plain loop, bit for bit. In the end a window of london's
closes on work of zurich's (closing_window.py).

    python examples/federated_risk.py              # make demo
    python examples/federated_risk.py --nobody-dies
"""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from closing_window import close_window
from local_federation import LEASE_S, LocalSite, LocalSitePlan, local_federation
from market_risk import OPTIONS, Figures, Map, Move, Revaluation, run, show

from federation import Client
from federation.money import format_money

PLANS = (
    LocalSitePlan("london", 1, "0.20 USD"),
    LocalSitePlan("dublin", 2, "0.04 USD"),
    LocalSitePlan("zurich", 1, "0.80 USD"),
)
SETTLE_S = 30.0


def run_on(
    sites: Sequence[LocalSite], *, kills: bool, options: int = OPTIONS, days: int | None = None
) -> tuple[Figures, dict[str, Any]]:
    """Run the job through the first site's gateway; print where it ran and its cost.

    Args:
        sites: near first, then the one that may be killed.
        kills: whether it is, half way.
        options, days: see market_risk.run.
    """
    near, victim = sites[0], sites[1]
    with Client(near.address) as client:
        show_pools(client.ask("pools"))
        view = client.options(name="market-risk", project="demo", objective="fastest")
        jobs: list[str] = []

        def using(task: Revaluation, moves: Sequence[Move]) -> Iterator[float]:
            with contextlib.closing(view.map(task, moves, progress=True)) as results:
                jobs.append(results.job)
                for done, outcome in enumerate(results, 1):
                    if kills and done == len(moves) // 2:
                        victim.kill()
                        print(f"\n  {victim.name} is killed, with all its processes\n", flush=True)
                    yield outcome

        mapped: Map = using  # type: ignore[assignment]
        started_s = time.perf_counter()
        figures = run(mapped, options, days)
        elapsed_s = time.perf_counter() - started_s
        job = client.job(jobs[0])
        job.wait(30)
        bill = job.details()
        rows = client.ask("report", kind="usage", by=["pool"])
        costs = client.ask("report", kind="cost", by=["pool"])
    show(figures)
    show_places(table(rows), table(costs), near.name)
    print(f"\n  {bill['done']:,} tasks in {elapsed_s:.2f} s, {bill['cost']} in total")
    print(f"  billed to {bill['user']}, project {bill['project']} (job {bill['id']})")
    return figures, bill


def table(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a report's rows as maps."""
    return [dict(zip(report["columns"], row, strict=True)) for row in report["rows"]]


def show_pools(pools: Sequence[dict[str, Any]]) -> None:
    """Print the near gateway's view of the federation."""
    for pool in pools:
        slots = f"{pool['slots_total']} slot{'s' if pool['slots_total'] > 1 else ''}"
        if pool["slots_cold"]:  # they would have to be started
            slots = f"up to {slots}"
        print(f"  {pool['site']:<10}{slots:<14}{pool['price']:>10} a slot-hour")
    print()


def show_places(
    usage: Sequence[dict[str, Any]], costs: Sequence[dict[str, Any]], near: str
) -> None:
    """Print where tasks ran, and each site's earnings from them."""
    earned = {row["pool"]: row for row in costs}
    print(f"\n  {'ran at':<14}{'tasks':>8}{'slot-seconds':>15}{'earned':>22}")
    for row in usage:
        pool = row["pool"]
        site = pool.partition("/")[0] if "/" in pool else near
        cost = format_money(earned[pool]["cost_nanos"], earned[pool]["currency"])
        print(f"  {site:<14}{row['tasks']:>8,}{row['wall_ns'] / 1e9:>15,.2f}{cost:>22}")


def show_books(sites: Sequence[LocalSite]) -> None:
    """Print the bookings between the live sites; exit if both sides differ."""
    near, *others = sites
    alive = [near, *(each for each in others if is_alive(each))]
    until_s = time.monotonic() + SETTLE_S
    while any(map(pending, alive)) and time.monotonic() < until_s:
        time.sleep(0.1)
    print("\n  the books of both sides (gridfed report statement)")
    for other in others:
        if not is_alive(other):
            print(
                f"  {near.name} owes {other.name:<10}{told(owed(near, other)):>18}   (site killed)"
            )
            continue
        ours, theirs = owed(near, other), owed(other, near)
        print(
            f"  {near.name} owes {other.name:<10}{told(ours):>18}   "
            f"{other.name} is owed {told(negated(theirs)):>18}"
        )
        if ours != negated(theirs):
            sys.exit(f"the books of {near.name} and {other.name} differ")


def is_alive(site: LocalSite) -> bool:
    """Whether its gateway runs."""
    return site.process is not None and site.process.poll() is None


def pending(site: LocalSite) -> bool:
    """Whether any purchase or sale is not settled yet."""
    return any(row["state"] == "pending" for row in site.ask("deals"))


def owed(site: LocalSite, other: LocalSite) -> dict[str, int]:
    """Return a site's debt to another by its statement: nano-units by currency."""
    found = site.ask("statement")
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    return {row["currency"]: -row["balance_nanos"] for row in rows if row["site"] == other.name}


def negated(amounts: dict[str, int]) -> dict[str, int]:
    """Return the same, seen from the other side."""
    return {currency: -nanos for currency, nanos in amounts.items()}


def told(amounts: dict[str, int]) -> str:
    """Format amounts for people."""
    return ", ".join(format_money(n, currency) for currency, n in amounts.items()) or "nothing"


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--nobody-dies", action="store_true", help="do not kill a site")
    given = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):  # so that the gateways are stopped then, too
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    print("creating three sites and connecting them …")
    with local_federation(PLANS) as sites:
        figures, _ = run_on(sites, kills=not given.nobody_dies)
        show_books(sites)
        close_window(near=sites[2], far=sites[0])
    if figures != run(map):
        sys.exit("the figures differ from those of a plain loop")
    print("\n  identical to a plain loop, bit for bit")
    if not given.nobody_dies:
        print(
            f"  ({PLANS[1].name}'s tasks waited {LEASE_S:g} s, until its lease expired, before "
            "they ran elsewhere)"
        )


if __name__ == "__main__":
    main()
