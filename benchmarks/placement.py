"""The CPU time of a broker: placing a job of a million tasks among thousands of pools.

The floor is one pass over as many dataclasses that computes price times seconds: no filter, no
order, no reason, no split. `kept` places a job of a known kind, `new` one of an unknown kind.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness import BenchSeries, alternate, machine, save
from federation.clocks import UtcS
from federation.messages.adverts import PoolAdvert, SiteAdvert
from policies.placement.asks import CHEAPEST, FASTEST, Demand, Preferences
from policies.placement.brokering import place
from policies.placement.feasibility import PlacementTerms
from policies.placement.market import Market
from policies.placement.placement import Need
from policies.placement.ranking import tie_break

Row = tuple[str, str, str, float]

NOW_S = UtcS(1_000_000.0)
POOLS = 4
TASKS = 1_000_000
CALLS = 9  # the median of them counts


class Tags(dict[str, bool | int | float]):
    """Tags that are part of a job's terms."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@dataclass(frozen=True, slots=True)
class PricedCandidate:
    """The minimal candidate."""

    price_nanos: int
    task_s: float


def make_pool(name: str, chance: random.Random) -> PoolAdvert:
    """Return a pool that varies like real ones: size, price, load, tags, place."""
    slots = chance.choice([50, 100, 400, 2000])
    is_busy = chance.random() < 0.5
    return PoolAdvert(
        name,
        slots,
        chance.randrange(10**7, 10**8),
        "USD",
        slots_free=0 if is_busy else slots // 2,
        tasks_queued=1000 * is_busy,
        load_slot_s=1000.0 * chance.random() * is_busy,
        work_rate=0.7 * slots,
        tags={"linux": True, "gpu": chance.choice([1, 2, 4])},
        pythons=("3.11", "3.12"),
        region="region",
        jurisdiction=chance.choice(["DE", "GB", "US", "FR"]),
        carbon_g_per_kwh=chance.uniform(10, 700),
        slot_watts=4.0,
    )


def make_adverts(sites: int, version: int = 1) -> list[SiteAdvert]:
    """Return so many sites, of four pools each; always the same ones."""
    chance = random.Random(1)
    return [
        SiteAdvert(
            f"site{n}",
            version,
            NOW_S,
            60.0,
            tuple(make_pool(f"pool{p}", chance) for p in range(POOLS)),
        )
        for n in range(sites)
    ]


def make_terms(sites: int, project: str) -> PlacementTerms:
    """Return a job's terms, which three in four pools meet."""
    return PlacementTerms(
        Need(Tags(linux=True, gpu=1), "3.11", "USD"),
        project,
        trusted=frozenset(f"site{n}" for n in range(sites)),
        jurisdictions=frozenset({"DE", "GB", "FR"}),
    )


def timed(call: Callable[[int], object]) -> float:
    """Return the median of a few calls, in milliseconds."""
    found = []
    for n in range(CALLS):
        started_s = time.perf_counter()
        call(n)
        found.append((time.perf_counter() - started_s) * 1e3)
    return statistics.median(found)


def placing(sites: int) -> list[Row]:
    """Time the floor and placements among so many sites."""
    market, preferences = Market("site0"), Preferences()
    for advert in make_adverts(sites):
        market.learn(advert, NOW_S)
    priced = [PricedCandidate(each.advert.price_nanos, 0.1) for each in market.candidates]
    kept = [make_terms(sites, "kept")] * CALLS
    new = [make_terms(sites, f"new {n}") for n in range(CALLS)]
    limits: dict[str, object] = {"deadline_s": NOW_S + 100.0, "budget_nanos": 10**12}
    free: dict[str, float] = {}

    def decide(
        terms: list[PlacementTerms], limits: Mapping[str, object]
    ) -> Callable[[int], object]:
        objective = FASTEST if limits else CHEAPEST

        def call(n: int) -> object:
            ask = Demand(terms[n], objective, TASKS, 0.1, task_bytes=200, **limits)  # type: ignore[arg-type]
            return place(ask, market, preferences, NOW_S + 3, tie_break(str(n)))

        return call

    measure = f"{sites:,} sites x {POOLS} pools"
    decision = place(
        Demand(new[0], FASTEST, TASKS, 0.1), market, preferences, NOW_S, tie_break("1")
    )
    calls = {
        "floor": lambda n: sum(each.price_nanos * each.task_s for each in priced),
        "kept": decide(kept, free),
        "kept, with limits": decide(kept, limits),
        "new, with limits": decide(new, limits),
        "explain": lambda n: decision.to_plain(),
    }
    market.verdicts(kept[0])
    return [(name, measure, "ms", timed(call)) for name, call in calls.items()]


def learning() -> list[Row]:
    """Return the adverts per second that a market takes in, of known sites."""
    market = Market("site0")
    market.verdicts(make_terms(1000, "kept"))
    for advert in make_adverts(1000):
        market.learn(advert, NOW_S)
    renewed = make_adverts(1000, version=2)
    started_s = time.perf_counter()
    for advert in renewed:
        market.learn(advert, NOW_S + 1)
    rate = len(renewed) / (time.perf_counter() - started_s)
    return [("market", "adverts of 4 pools learnt", "adverts/s", rate)]


def placement(repeats: int, quick: bool) -> None:
    """Place a job of a million tasks among 10 to 3,000 sites."""
    facts = machine()
    sizes = (10, 100) if quick else (10, 100, 1000, 3000)

    def run() -> list[Row]:
        return [row for size in sizes for row in placing(size)] + learning()

    found: list[BenchSeries] = alternate([run], repeats)
    notes = [
        "The goal is 20 ms for 1,000 sites of 4 pools. Each figure is the median of "
        f"{CALLS} calls, with the garbage collector on."
    ]
    save("placement", facts, found, notes)
