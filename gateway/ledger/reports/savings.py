"""Savings: what was paid, beside what the same work would have cost in two other ways. Pure.

*Dearest pool*: all the work that was charged, at the price of the dearest pool in the books that
ran such work in the period, in the same currency:

    price of a pool  = sum of its records' list cost / sum of their slot time
    dearest          = slot time of the work * price of the dearest pool

Each record's cost is rounded: where that alone tells the quotient from the list price of a pool of
ours, it is the list price. Where all ran in one pool, `dearest` is what it cost by its list.

*Static grid*: machines of one's own, as many as the busiest hour took, that stand there all the
time:

    slots            = slot time of the busiest hour / 1 h, rounded up (parts of hours: _peak)
    static           = slots * hours of the period * price per slot-hour

at the price that was asked for, or else the lowest list price of our own pools. The period is as
asked, less what is still to come; without a bound it begins with the first hour in which work
ended, or ends with the last. Work counts in the hour in which it ended: where tasks run for hours
the busiest hour looks busier than it was.

Both are of work that was charged, not of what ran again for nothing: as with other reports, of
that of our own users unless all is asked for. Both are worked out for all of it, and divided over
the rows by their slot time, so that rows add up to the nano-unit whatever the report is by.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from types import MappingProxyType
from typing import Any, Final

from federation.money import format_money
from federation.words import count
from gateway.ledger.rows import Dimension, UsageTotal
from policies.tariffs import Tariff

from .question import HOUR_S, Question, merged, order
from .report import HOUR_NS, Cell, Report, key_names, money, spread

EXTRA: Final = (Dimension.STATE,)
CHARGED: Final = ("ok", "failed", "preempted")
NO_PRICES: Final[Mapping[str, Tariff]] = MappingProxyType({})

_COLUMNS: Final = (
    *("tasks", "wall_ns", "cost_nanos", "cost"),
    *("dearest_nanos", "dearest", "dearest_saved_nanos", "dearest_saved"),
    *("static_nanos", "static", "static_saved_nanos", "static_saved"),
)


@dataclass(frozen=True, slots=True)
class Dearest:
    """The dearest pool of a currency, and its price: nano-units per nanosecond of a slot.

    `is_only`: no other pool ran work that was billed in this currency.
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
        """What it costs for the period."""
        return _rounded(Fraction(self.slots * self.period_ns * self.price_nanos, HOUR_NS))


def check_price(work: Iterable[UsageTotal], currency: str) -> None:
    """Raise ValueError for a price of a static grid that none of this work compares with."""
    billed = sorted({each.currency for each in _charged(work)})
    if billed and currency not in billed:
        raise ValueError(
            f"the static price is in {currency}, and the work was billed in {', '.join(billed)}: "
            "give a price in such a currency, as amounts are never converted"
        )


def find_dearest(
    pools: Iterable[UsageTotal], listed: Mapping[str, Tariff] = NO_PRICES
) -> dict[str, Dearest]:
    """The dearest pool of each currency, from totals by pool and state, and our pools' prices."""
    groups: dict[str, dict[str, list[UsageTotal]]] = {}
    for each in _charged(pools):
        groups.setdefault(each.currency, {}).setdefault(str(each.key[0]), []).append(each)
    dearest: dict[str, Dearest] = {}
    for currency, of_currency in groups.items():
        prices = {pool: _price(merged(of_currency[pool]), listed.get(pool)) for pool in of_currency}
        pool = min(prices, key=lambda each: (-prices[each], each))
        dearest[currency] = Dearest(pool, prices[pool], len(prices) == 1)
    return dearest


def _price(total: UsageTotal, listed: Tariff | None) -> Fraction:
    """What a pool took for a nanosecond of a slot."""
    if not total.wall_ns:
        return Fraction(0)
    if listed is not None and listed.currency == total.currency:
        exact = Fraction(listed.price_nanos, HOUR_NS)
        if abs(exact * total.wall_ns - total.list_cost_nanos) <= total.records:
            return exact
    return Fraction(total.list_cost_nanos, total.wall_ns)


def size_grid(
    hours: Iterable[UsageTotal],
    prices_nanos: Mapping[str, int],
    question: Question,
    now_s: float,
) -> dict[str, StaticGrid]:
    """A grid for each currency that there is a price in, from totals by hour and state."""
    busy: dict[str, dict[int, int]] = {}
    for each in _charged(hours):
        of_currency = busy.setdefault(each.currency, {})
        hour = int(each.key[0])
        of_currency[hour] = of_currency.get(hour, 0) + each.wall_ns
    grids = {}
    for currency, used in busy.items():
        if currency not in prices_nanos:
            continue
        start_s = min(used) * HOUR_S if question.start_s is None else question.start_s
        end_s = (max(used) + 1) * HOUR_S if question.end_s is None else question.end_s
        end_s = min(end_s, max(now_s, max(used) * HOUR_S))  # a clock may have been set back
        slots, busiest = _peak(used, start_s, end_s)
        period_ns = max(0, round((end_s - start_s) * 10**9))
        grids[currency] = StaticGrid(slots, busiest, period_ns, prices_nanos[currency])
    return grids


def _peak(used: Mapping[int, int], start_s: float, end_s: float) -> tuple[int, int]:
    """How many slots the busiest hour took, and which hour that is.

    What is less than an hour at either end of the period counts with the full hour beside it: work
    is booked in the hour in which it ends, and in a few minutes hours of it may end. A period
    without a full hour is taken as a whole.
    """
    first, stop = ceil(start_s / HOUR_S), floor(end_s / HOUR_S)
    if first >= stop:
        first, stop = floor(start_s / HOUR_S), floor(start_s / HOUR_S) + 1
    busy: dict[int, int] = {}
    for hour, wall_ns in used.items():
        at = min(max(hour, first), stop - 1)
        busy[at] = busy.get(at, 0) + wall_ns

    def slots(at: int) -> int:
        from_s = start_s if at == first else at * HOUR_S
        until_s = end_s if at == stop - 1 else (at + 1) * HOUR_S
        length_ns = round((until_s - from_s) * 10**9)
        return -(-busy[at] // length_ns) if length_ns > 0 else 0

    busiest = max(busy, key=lambda at: (slots(at), busy[at], -at))
    return slots(busiest), busiest


def savings_report(
    question: Question,
    found: Iterable[UsageTotal],
    dearest: Mapping[str, Dearest],
    grids: Mapping[str, StaticGrid],
) -> Report:
    """What was paid and what was saved, `found` by the keys and state."""
    width = len(question.by)
    groups: dict[str, dict[tuple[Any, ...], list[UsageTotal]]] = {}
    for each in _charged(found):
        of_currency = groups.setdefault(each.currency, {})
        of_currency.setdefault(each.key[:width], []).append(each)
    rows: list[tuple[tuple[Any, ...], tuple[Cell, ...]]] = []
    totals: list[tuple[Cell, ...]] = []
    for currency in sorted(groups):
        keys = sorted(groups[currency], key=lambda cells: order(question.by, cells))
        sums = [merged(groups[currency][key]) for key in keys]
        whole = merged(sums)
        if dearest[currency].is_only:
            dears = [each.list_cost_nanos for each in sums]
        else:
            dears = _parts(_rounded(dearest[currency].price * whole.wall_ns), sums)
        at_static = grids[currency].cost_nanos if currency in grids else None
        statics = [None] * len(sums) if at_static is None else _parts(at_static, sums)
        for key, each, dear, static in zip(keys, sums, dears, statics, strict=True):
            rows.append(((order(question.by, key), currency), (*key, *_row(each, dear, static))))
        totals.append((*(None for _ in question.by), *_row(whole, sum(dears), at_static)))
    rows.sort(key=lambda row: row[0])
    return Report(
        (*key_names(question.by), "currency", *_COLUMNS),
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
        tuple(_notes(groups, dearest, grids)),
    )


def _notes(
    currencies: Iterable[str], dearest: Mapping[str, Dearest], grids: Mapping[str, StaticGrid]
) -> Iterable[str]:
    for currency in sorted(currencies):
        each = dearest[currency]
        price = format_money(each.hour_nanos, currency)
        rate = f"{price} per slot-hour, minimum charges included"
        yield f"dearest: as if all had run in {each.pool}, at {rate}"
        grid = grids.get(currency)
        if grid is None:
            yield f"static: no price of our own is in {currency}; --static-price gives one"
            continue
        price = format_money(grid.price_nanos, currency)
        hours = f"{grid.period_ns / HOUR_NS:,.2f} h"
        slots = count(grid.slots, "slot")
        yield f"static: a grid of {slots}, as the busiest hour took, for {hours} at {price} each"


def _charged(found: Iterable[UsageTotal]) -> Iterable[UsageTotal]:
    return (each for each in found if each.key[-1] in CHARGED)


def _row(total: UsageTotal, dearest: int, static: int | None) -> tuple[Cell, ...]:
    return (
        total.currency,
        total.tasks,
        total.wall_ns,
        *money(total.cost_nanos),
        *money(dearest),
        *money(dearest - total.cost_nanos),
        *money(static),
        *money(None if static is None else static - total.cost_nanos),
    )


def _parts(amount: int, sums: Sequence[UsageTotal]) -> list[int]:
    weights = [each.wall_ns for each in sums]
    # Work that took no time at all costs nothing anywhere: then all are alike.
    return spread(amount, weights if any(weights) else [1] * len(sums))


def _rounded(exact: Fraction) -> int:
    return floor(exact + Fraction(1, 2))
