"""Empty tasks through a second gateway, against the same at home: both in one run.

Two sites: `near` has no slots, `far` has two. Jobs of a client at near are forwarded; jobs of a
client at far run there. The same workers do both, so the ratio is the cost of a hop between
gateways: mutual TLS, a contract, and books on both sides.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import ours
from benchmarks.floor import empty
from benchmarks.harness import BenchSeries, alternate, machine, quantile, save
from federation import Client

EXAMPLES = Path(__file__).parent.parent / "examples"


@contextmanager
def pair() -> Iterator[tuple[str, str]]:
    """Start both sites; yield the addresses of near and far."""
    sys.path.insert(0, str(EXAMPLES))
    from local_federation import LocalSitePlan, local_federation

    plans = [LocalSitePlan("near", 0, "0.04 USD"), LocalSitePlan("far", 2, "0.04 USD")]
    with local_federation(plans) as (near, far):
        yield near.address, far.address


def forwarded(repeats: int, quick: bool) -> None:
    """Time a map of a million and a lone task: forwarded, and local."""
    facts = machine()
    tasks, lone = (100_000, 300) if quick else (1_000_000, 2000)
    with pair() as (near, far), Client(near) as afar, Client(far) as home:
        clients = {"forwarded": afar, "local": home}

        def measure(name: str) -> list[ours.Row]:
            client = clients[name]
            sum(1 for _ in client.map(empty, range(2000)))
            rate = ours.map_rate(client, tasks)
            times = ours.lone_times(client, lone)
            return [
                (name, "map", "tasks/s", rate),
                (name, "lone task, p50", "µs", quantile(times, 0.5) * 1e6),
                (name, "lone task, p99", "µs", quantile(times, 0.99) * 1e6),
            ]

        series = alternate([partial(measure, name) for name in ("local", "forwarded")], repeats)
    save("forwarded", facts, series, _ratios(series))


def _ratios(series: list[BenchSeries]) -> list[str]:
    values = {(each.contestant, each.measure): quantile(each.values, 0.5) for each in series}
    return [
        f"{measure}: forwarded is {values['forwarded', measure] / values['local', measure]:.2f} of "
        "local.  "
        for measure in ("map", "lone task, p50", "lone task, p99")
    ]


def lost_site(repeats: int, quick: bool) -> None:
    """Time a job of 100,000 tasks whose site is killed half way, against the same undisturbed."""
    facts = machine()
    tasks = 10_000 if quick else 100_000
    sys.path.insert(0, str(EXAMPLES))
    from local_federation import LEASE_S, LocalSitePlan, local_federation

    plans = [
        LocalSitePlan("near", 0, "1 USD"),
        LocalSitePlan("far", 2, "0.04 USD"),
        LocalSitePlan("spare", 2, "0.08 USD"),
    ]

    def run(*, kills: bool) -> float:
        with local_federation(plans) as (near, far, _), Client(near.address) as client:
            sum(1 for _ in client.map(ours.wait, [0.0005] * 500))
            started_s = time.perf_counter()
            seen = 0
            for _ in client.map(ours.wait, [0.0005] * tasks):
                seen += 1
                if kills and seen == tasks // 2:
                    far.kill()
            assert seen == tasks
            return time.perf_counter() - started_s

    def measure(name: str) -> list[ours.Row]:
        return [(name, f"{tasks:,} tasks", "s", run(kills=name == "killed half way"))]

    runs = [partial(measure, name) for name in ("undisturbed", "killed half way")]
    series = alternate(runs, repeats)
    calm, hurt = (quantile(each.values, 0.5) for each in series)
    notes = [
        f"Later by {hurt - calm:.2f} s; the lease is {LEASE_S:g} s, and 10 % of the undisturbed "
        f"time {0.1 * calm:.2f} s.  "
    ]
    save("lost_site", facts, series, notes)
