"""A month at a site that buys of two others, and a site where every name is an attack."""

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.ledger.accounting.settlement import Statement, Turnover
from gateway.ledger.db.usage.records import CapacityTotal, UsageTotal
from gateway.ledger.page.facts import PageFacts, UnsettledCost, facts_from
from gateway.ledger.page.rendering import render

HOUR_NS = 3600 * 10**9
NOW_S = 1_795_324_200.0  # 2026-11-22T05:10Z

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=1">',
    "</style><script>alert(2)</script>",
    "</title></td></table><h1>free",
    "' onmouseover='alert(3)",
    '=HYPERLINK("https://evil.example")',
    "+1+1",
    "\u202eexe.fdp \u2066open",
    "_hidden",
    r"$\frac{1}{0}$",
    "]]>--><b>",
    "a\x00b\x1b[31m\ud800",
    "{{ 7*7 }}{% raw %}",
    "&lt;&amp;",
    "stroke: #1f2a36;",
    "שלום עולם",
    "東京グリッド",
    "x" * 5_000,
    "",
    " ",
)


def usage_of(
    key: tuple[str | int, ...], wall_ns: int, cost_nanos: int, **fields: Any
) -> UsageTotal:
    defaults: dict[str, Any] = {
        "currency": "USD",
        "records": 1,
        "peak_memory_bytes": 2**20,
        "tasks": max(1, wall_ns // 10**11),
        "cpu_ns": wall_ns,
        "list_cost_nanos": cost_nanos + cost_nanos // 10,
        "energy_uj": wall_ns // 10**9 * 11_000_000,
        "carbon_ng": wall_ns // 1000,
        "embodied_ng": wall_ns // 4000,
    }
    footprint = fields.pop("footprint", "carbon")
    key = (*key, footprint, "", fields.pop("kind", "time"))
    return UsageTotal(key=key, wall_ns=wall_ns, cost_nanos=cost_nanos, **defaults | fields)


def month() -> list[UsageTotal]:
    """Thirty days of work in London, which buys of two others, and sells to them."""
    return list(_month(random.Random(1)))


def _month(dice: random.Random) -> Iterator[UsageTotal]:
    prices = {"": 77_001, "frankfurt": 61_007, "virginia": 99_991}
    end = int(NOW_S // 3600) + 1
    for hour in range((end // 24 - 30) * 24, end):
        at, weekday = hour % 24, (hour // 24 + 3) % 7
        busy = (0.25 + 0.7 * math.exp(-((at - 22) ** 2) / 12)) * (0.4 if weekday > 4 else 1)
        for site, origin, part in (
            *(("", "", 0.7), ("frankfurt", "", 0.2), ("virginia", "", 0.1)),
            ("", "frankfurt", 0.05),
        ):
            for project, weight in (("xva", 0.5), ("market-risk", 0.3), ("frtb", 0.2)):
                for state, share in (("ok", 0.96), ("failed", 0.02), ("repeat", 0.02)):
                    wall_ns = round(96 * HOUR_NS * busy * part * weight * share * dice.random())
                    yield usage_of(
                        (hour, site, origin, project, state),
                        wall_ns,
                        0 if state == "repeat" else wall_ns // prices[site],
                        currency="EUR" if site == "frankfurt" else "USD",
                    )


@pytest.fixture(scope="session")
def london() -> PageFacts:
    end = int(NOW_S // 3600) + 1
    start = (end // 24 - 30) * 24
    return facts_from(
        "london",
        (start * 3600.0, end * 3600.0),
        NOW_S,
        month(),
        [CapacityTotal("local", hour, 96 * HOUR_NS) for hour in range(start, end)],
        [
            Statement(
                "frankfurt",
                "EUR",
                -5 * 10**9,
                Turnover(
                    bought=1_234_567_890_123, credited=7, paid=10**9, held_bought=23_400_000_001
                ),
            ),
            Statement("virginia", "USD", 1, Turnover(sold=10, refunded=3, received=2)),
        ],
        [
            UnsettledCost("frankfurt", "EUR", 23_400_000_001, 0, 0),
            UnsettledCost("virginia", "USD", 5_000_000_000, 250_000_000, 0),
            UnsettledCost("", "USD", 0, 0, 31_500_000_000),
        ],
    )


@pytest.fixture(scope="session")
def hostile() -> PageFacts:
    """Every name in every field, as many as a page tells apart."""
    start = 494_040
    usage = [
        usage_of((start + at, site, origin, name, state), HOUR_NS * (at + 1), 10**9 * (at + 1))
        for at, name in enumerate(HOSTILE)
        for site, origin, state in (
            *((name, "", "ok"), ("", "", name), ("", name, "failed")),
            (HOSTILE[at - 1], name, "repeat"),
        )
    ]
    return facts_from(
        HOSTILE[0],
        (start * 3600.0, (start + 24) * 3600.0),
        start * 3600.0 + 100,
        usage,
        [CapacityTotal(name, start + at, HOUR_NS * 50) for at, name in enumerate(HOSTILE)],
        [Statement(name, "USD", 0, Turnover(bought=10**9)) for name in HOSTILE],
        [UnsettledCost(name, "USD", 10**8, 10**7, 10**9) for name in HOSTILE],
    )


@pytest.fixture(scope="session")
def london_page(london: PageFacts) -> str:
    return render(london)


@pytest.fixture(scope="session")
def hostile_page(hostile: PageFacts) -> str:
    return render(hostile)
