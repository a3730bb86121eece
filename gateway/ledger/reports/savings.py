"""Savings: the amount paid, beside the cost of the same work in two other ways. Pure.

*Dearest pool*: all the charged work, at the price of the dearest pool in the books that ran such
work in the period, in the same currency:

    price of a pool  = sum of its records' list cost / sum of their slot time
    dearest          = slot time of the work * price of the dearest pool

Each record's cost is rounded: where the quotient differs from the list price of a pool of ours only
by rounding, the list price is used. Where all work ran in one pool, `dearest` is its cost at list
price. The list cost of runs that ended with their worker counts and their time does not: the time
of the next runs does, which cost so much less.

*Static grid*: machines of one's own, as many as the busiest hour needed, running all the time:

    slots            = slot time of the busiest hour / 1 h, rounded up (parts of hours: _peak)
    static           = slots * hours of the period * price per slot-hour

at the requested price, or else the lowest list price of our own pools. The period is as requested,
without its future part; without a bound it begins with the first hour in which work ended, or ends
with the last. Work counts in the hour in which it ended: where tasks run for hours the busiest hour
looks busier than it was.

Both cover charged work, not repeats, nor what made room for other work and was free: as with other
reports, that of our own users unless the report is of all work. Both are computed for all of it,
and divided over the rows by their slot time, so that rows add up to the nano-unit whatever the keys
of the report.

Runs that ended with their worker, fees for reserved time that was not used, data that was held or
moved, and overhead of this site have rows of their own: neither alternative has them, so their cost
reduces the savings. With them the costs sum up to those of all other reports, less what other sites
do not pay: deliveries that they voided, or were refunded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import ceil, floor
from types import MappingProxyType
from typing import Any, Final

from federation.clocks import UtcS
from federation.money import format_money
from federation.words import count
from gateway.ledger.db.usage.records import TRIED, Dimension, UsageTotal, is_for_its_user
from gateway.ledger.reports.question import HOUR_S, UsageQuestion, merged, order
from gateway.ledger.reports.report import HOUR_NS, Cell, ReportTable, key_names, money, spread
from policies.tariffs import Tariff

# The site tells repeats that were paid for from those that ran here, for nothing.
BY_HOUR: Final = (Dimension.SITE, Dimension.PRICE_CLASS, Dimension.STATE)
# The name tells fees for reserved time from the tasks that ran in it, the kind tells data.
EXTRA: Final = (Dimension.KIND, Dimension.NAME, *BY_HOUR)
CHARGED: Final = ("ok", *TRIED)
WORK: Final = ("charged", "wasted", "reserved", "data", "overhead")
NO_PRICES: Final[Mapping[str, Tariff]] = MappingProxyType({})

_COLUMNS: Final = (
    *("tasks", "wall_ns", "cost_nanos", "cost"),
    *("dearest_nanos", "dearest", "dearest_saved_nanos", "dearest_saved"),
    *("static_nanos", "static", "static_saved_nanos", "static_saved"),
)


@dataclass(frozen=True, slots=True)
class Dearest:
    """The dearest pool of a currency, and its price: nano-units per nanosecond of a slot.

    `is_only`: no other pool ran anything that was billed in this currency.
    """

    pool: str
    price: Fraction
    is_only: bool

    @property
    def hour_nanos(self) -> int:
        """Its price per slot-hour, rounded."""
        return _rounded(self.price * HOUR_NS)


@dataclass(frozen=True, slots=True)
class StaticGrid:
    """A grid for the busiest hour; `price_nanos` is per slot-hour, the period in nanoseconds."""

    slots: int
    busiest_hour: int
    period_ns: int
    price_nanos: int

    @property
    def cost_nanos(self) -> int:
        """The cost for the period."""
        return _rounded(Fraction(self.slots * self.period_ns * self.price_nanos, HOUR_NS))


def check_price(work: Iterable[UsageTotal], currency: str) -> None:
    """Raise ValueError for a static price in a currency in which none of this work was billed."""
    billed = sorted({each.currency for each in _charged(work)})
    if billed and currency not in billed:
        raise ValueError(
            f"the static price is in {currency}, but the work was billed in "
            f"{', '.join(billed)}: use a price in one of these currencies, as amounts are "
            "never converted"
        )


def find_dearest(
    pools: Iterable[UsageTotal], listed: Mapping[str, Tariff] = NO_PRICES
) -> dict[str, Dearest]:
    """Return the dearest pool by currency that charged work ran in.

    From totals by pool and `EXTRA`, and our pools' prices.
    """
    groups: dict[str, dict[str, list[UsageTotal]]] = {}
    for each in pools:
        if _work_of(each) in ("charged", "wasted"):
            groups.setdefault(each.currency, {}).setdefault(str(each.key[0]), []).append(each)
    dearest: dict[str, Dearest] = {}
    for currency, of_currency in groups.items():
        prices = {
            pool: _price(found, listed.get(pool))
            for pool, found in of_currency.items()
            if any(_charged(found))
        }
        if prices:
            pool = min(prices, key=lambda each: (-prices[each], each))
            dearest[currency] = Dearest(pool, prices[pool], len(of_currency) == 1)
    return dearest


def _price(found: Sequence[UsageTotal], listed: Tariff | None) -> Fraction:
    """Return a pool's price for a nanosecond of a slot, by its charged and wasted runs."""
    total, wall_ns = merged(found), sum(each.wall_ns for each in _charged(found))
    if not wall_ns:
        return Fraction(0)
    if listed is not None and listed.currency == total.currency:
        exact = Fraction(listed.price_nanos, HOUR_NS)
        if abs(exact * wall_ns - total.list_cost_nanos) <= total.records:
            return exact
    return Fraction(total.list_cost_nanos, wall_ns)


def size_grid(
    hours: Iterable[UsageTotal],
    prices_nanos: Mapping[str, int],
    question: UsageQuestion,
    utc_s: UtcS,
) -> dict[str, StaticGrid]:
    """Return a grid for each currency with a price, from totals by hour and `EXTRA`."""
    busy: dict[str, dict[int, int]] = {}
    for each in _charged(hours):
        of_currency = busy.setdefault(each.currency, {})
        hour = int(each.key[0])
        of_currency[hour] = of_currency.get(hour, 0) + each.wall_ns
    grids = {}
    for currency, used in busy.items():
        if currency not in prices_nanos:
            continue
        start_at_s = (
            UtcS(min(used) * HOUR_S) if question.start_at_s is None else question.start_at_s
        )
        end_at_s = (
            UtcS((max(used) + 1) * HOUR_S) if question.end_at_s is None else question.end_at_s
        )
        end_at_s = min(
            end_at_s, max(utc_s, UtcS(max(used) * HOUR_S))
        )  # a clock may have been set back
        slots, busiest = _peak(used, start_at_s, end_at_s)
        period_ns = max(0, round((end_at_s - start_at_s) * 10**9))
        grids[currency] = StaticGrid(slots, busiest, period_ns, prices_nanos[currency])
    return grids


def _peak(used: Mapping[int, int], start_at_s: UtcS, end_at_s: UtcS) -> tuple[int, int]:
    """Return the number of slots that the busiest hour needed, and which hour it is.

    A part of an hour at either end of the period counts with the full hour beside it: work is
    booked in the hour in which it ends, and hours of it may end in a few minutes. A period without
    a full hour is taken as a whole.
    """
    first, stop = ceil(start_at_s / HOUR_S), floor(end_at_s / HOUR_S)
    if first >= stop:
        first, stop = floor(start_at_s / HOUR_S), floor(start_at_s / HOUR_S) + 1
    busy: dict[int, int] = {}
    for hour, wall_ns in used.items():
        at = min(max(hour, first), stop - 1)
        busy[at] = busy.get(at, 0) + wall_ns

    def slots(at: int) -> int:
        from_s = start_at_s if at == first else UtcS(at * HOUR_S)
        until_s = end_at_s if at == stop - 1 else UtcS((at + 1) * HOUR_S)
        length_ns = round((until_s - from_s) * 10**9)
        return -(-busy[at] // length_ns) if length_ns > 0 else 0

    busiest = max(busy, key=lambda at: (slots(at), busy[at], -at))
    return slots(busiest), busiest


def savings_report(
    question: UsageQuestion,
    found: Iterable[UsageTotal],
    dearest: Mapping[str, Dearest],
    grids: Mapping[str, StaticGrid],
) -> ReportTable:
    """Return the amounts paid and saved; `found` is by the keys and `EXTRA`, as the rows are."""
    groups: dict[str, dict[tuple[Any, ...], list[UsageTotal]]] = {}
    for each in found:
        work = _work_of(each)
        if work is not None:
            of_currency = groups.setdefault(each.currency, {})
            of_currency.setdefault((*each.key[: len(question.by)], work), []).append(each)
    rows: list[tuple[tuple[Any, ...], tuple[Cell, ...]]] = []
    totals: list[tuple[Cell, ...]] = []
    for currency in sorted(groups):
        sums = {key: merged(each) for key, each in groups[currency].items()}
        dears = _at_dearest(sums, dearest.get(currency))
        statics = _at_static(sums, grids.get(currency))
        for key, each in sums.items():
            at = (order(question.by, key[:-1]), currency, WORK.index(key[-1]))
            rows.append((at, (*key, *_row(each, dears[key], statics[key]))))
        whole = merged(list(sums.values()))
        others = (_sum(each.values()) for each in (dears, statics))
        totals.append((*(None for _ in question.by), None, *_row(whole, *others)))
    rows.sort(key=lambda row: row[0])
    return ReportTable(
        (*key_names(question.by), "work", "currency", *_COLUMNS),
        tuple(row for _, row in rows),
        tuple(totals),
        {
            "dearest": {
                currency: {"pool": each.pool, "price_nanos": each.hour_nanos}
                for currency, each in dearest.items()
            },
            "static": {
                currency: {
                    "slots": each.slots,
                    "period_s": each.period_ns / 1e9,
                    "price_nanos": each.price_nanos,
                    "busiest_hour_s": each.busiest_hour * HOUR_S,
                }
                for currency, each in grids.items()
            },
        },
        tuple(_notes(dearest, grids)),
    )


def _at_dearest(
    sums: Mapping[tuple[Any, ...], UsageTotal], dearest: Dearest | None
) -> dict[tuple[Any, ...], int | None]:
    """The cost of each in the dearest pool of its currency; None: no pool did such work."""
    if dearest is None:
        return dict.fromkeys(sums)
    if dearest.is_only:
        return {
            key: each.list_cost_nanos if key[-1] in ("charged", "wasted") else 0
            for key, each in sums.items()
        }
    wall_ns = sum(each.wall_ns for key, each in sums.items() if key[-1] == "charged")
    return _parts(_rounded(dearest.price * wall_ns), sums)


def _at_static(
    sums: Mapping[tuple[Any, ...], UsageTotal], grid: StaticGrid | None
) -> dict[tuple[Any, ...], int | None]:
    """The cost of each in a static grid; None: there is no price for one."""
    return dict.fromkeys(sums) if grid is None else _parts(grid.cost_nanos, sums)


def _notes(dearest: Mapping[str, Dearest], grids: Mapping[str, StaticGrid]) -> Iterable[str]:
    for currency in sorted(dearest):
        each = dearest[currency]
        price = format_money(each.hour_nanos, currency)
        rate = f"{price} per slot-hour, including minimum charges"
        yield f"dearest: if all work had run in {each.pool}, at {rate}"
        grid = grids.get(currency)
        if grid is None:
            yield (
                f"static: no pool of this site has a price in {currency}; set one with "
                "--static-price"
            )
            continue
        price = format_money(grid.price_nanos, currency)
        hours = f"{grid.period_ns / HOUR_NS:,.2f} h"
        slots = count(grid.slots, "slot")
        yield (
            f"static: a grid of {slots}, the use of the busiest hour, for {hours} at {price} each"
        )


def _charged(found: Iterable[UsageTotal]) -> Iterator[UsageTotal]:
    return (each for each in found if _work_of(each) == "charged")


def _work_of(total: UsageTotal) -> str | None:
    """In which rows totals by `EXTRA` count; None: in none, as they cost nothing."""
    price_class, state = map(str, total.key[-2:])
    if total.held_byte_s or total.moved_bytes:
        return "data" if total.cost_nanos > 0 else None
    if state == "wasted":
        return "wasted"
    if not total.tasks:
        return "reserved"
    if state in CHARGED and is_for_its_user(state, price_class):
        return "charged"
    return "overhead" if total.cost_nanos > 0 else None


def _row(total: UsageTotal, dearest: int | None, static: int | None) -> tuple[Cell, ...]:
    others = (
        (*money(nanos), *money(None if nanos is None else nanos - total.cost_nanos))
        for nanos in (dearest, static)
    )
    return (
        *(total.currency, total.tasks, total.wall_ns, *money(total.cost_nanos)),
        *chain.from_iterable(others),
    )


def _parts(
    amount: int, sums: Mapping[tuple[Any, ...], UsageTotal]
) -> dict[tuple[Any, ...], int | None]:
    """Divide an amount over the charged work; the rest has none of it."""
    keys = [key for key in sums if key[-1] == "charged"]
    weights = [sums[key].wall_ns for key in keys]
    # Work without slot time costs nothing anywhere: then all weights are equal.
    shares = spread(amount, weights if any(weights) else [1] * len(keys))
    return {**dict.fromkeys(sums, 0), **dict(zip(keys, shares, strict=True))}


def _sum(parts: Iterable[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _rounded(exact: Fraction) -> int:
    return floor(exact + Fraction(1, 2))
