"""Utilisation and showback: the use of slots, and the division of idle time among users. Pure.

    idle = capacity - used      of each pool and hour

Capacity is what the gateway recorded of its slots (records.Capacity); used is the slot time of all
work that ran here, for any user or site, including failed and repeated work. Work counts in the
hour in which it ended, so that after tasks of several hours the idle time of one hour can be below
zero; over longer periods that evens out, and nothing is cut off, so that sums are equal however
they are grouped. An hour without recorded capacity, from before such records existed, has no idle
time.

Idle time costs the pool's current list price per slot-hour, rounded for each pool and hour.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from gateway.ledger.db.usage.records import CapacityTotal, Dimension, UsageState, UsageTotal
from gateway.ledger.reports.keys import Key
from gateway.ledger.reports.question import UsageQuestion, merged, order
from gateway.ledger.reports.report import (
    HOUR_NS,
    Cell,
    ReportTable,
    key_names,
    money,
    ratio,
    spread,
)
from policies.tariffs import Tariff

# Slot time that was used here: data uses no slots.
HERE: Final[Mapping[Dimension, str | int]] = {Dimension.SITE: "", Dimension.KIND: "time"}
# The dimensions of each report, beside its keys.
UTILISATION_EXTRA: Final = (Dimension.STATE,)
SHOWBACK_EXTRA: Final = (Dimension.SITE, Dimension.ORIGIN, Dimension.POOL)
USED_BY: Final = (Dimension.POOL, Dimension.HOUR)

_UTILISATION: Final = ("use", "tasks", "slot_ns", "slot_h", "share")
_SHOWBACK: Final = (
    *("tasks", "wall_ns", "cost_nanos", "cost"),
    *("idle_ns", "idle_cost_nanos", "idle_cost", "full_cost_nanos", "full_cost"),
)
_USES: Final = (*get_args(UsageState), "idle")


@dataclass(frozen=True, slots=True)
class Idle:
    """The unused slot time of one pool and hour."""

    pool: str
    hour: int
    idle_ns: int

    def cell(self, key: Key, site: str) -> str | None:
        """Return its cell for this key; None for keys that idle time lacks."""
        if key.is_time:
            return key.show(self.hour, site)
        if key.dimension is Dimension.POOL:
            return self.pool
        return site if key.dimension is Dimension.SITE else None


def idle_hours(capacity: Iterable[CapacityTotal], used: Iterable[UsageTotal]) -> list[Idle]:
    """Return the idle time, from the capacity and from totals of local usage by pool and hour."""
    busy_ns: Counter[tuple[str, int]] = Counter()
    for each in used:
        busy_ns[str(each.key[0]), int(each.key[1])] += each.wall_ns
    return [
        Idle(each.pool, each.hour, each.slot_ns - busy_ns[each.pool, each.hour])
        for each in capacity
    ]


def check_utilisation(question: UsageQuestion) -> None:
    """Raise ValueError for keys that capacity lacks."""
    _check_hours(question, "utilisation")
    for key in (*question.by, *question.where):
        if not (key.is_time or key.dimension is Dimension.POOL):
            raise ValueError(
                f"utilisation can't be reported by {key.name!r}, as slots belong to a pool: "
                "choose from pool, hour, day, week, month, year, weekday, hour-of-day"
            )


def check_showback(question: UsageQuestion) -> None:
    """Raise ValueError for keys by which idle time can't be divided."""
    _check_hours(question, "showback")
    for key in question.where:
        if key.name not in key_names(question.by):
            raise ValueError(
                f"showback divides idle time among all rows: to filter by {key.name!r}, add "
                "it to --by"
            )


def utilisation_report(
    question: UsageQuestion, used: Iterable[UsageTotal], idle: Iterable[Idle]
) -> ReportTable:
    """Return a row for each key and use of the slots, including idle; `used` is by keys and state.

    `share` is the part of all slot time of that key.
    """
    tasks: Counter[tuple[tuple[Any, ...], str]] = Counter()
    slot_ns: Counter[tuple[tuple[Any, ...], str]] = Counter()
    for total in used:
        at = (total.key[:-1], str(total.key[-1]))
        tasks[at] += total.tasks
        slot_ns[at] += total.wall_ns
    for each in idle:
        cells = {key: str(each.cell(key, question.site)) for key in (*question.by, *question.where)}
        if question.admits(cells):
            slot_ns[tuple(cells[key] for key in question.by), "idle"] += each.idle_ns

    keys = sorted({key for key, _ in slot_ns}, key=lambda cells: order(question.by, cells))
    rows = [row for key in keys for row in _uses(key, tasks, slot_ns)]
    for key, use in list(slot_ns):
        tasks[(None,), use] += tasks[key, use]
        slot_ns[(None,), use] += slot_ns[key, use]
    nothing = (None,) * len(question.by)
    totals = [(*nothing, *row[1:]) for row in _uses((None,), tasks, slot_ns)]
    return ReportTable((*key_names(question.by), *_UTILISATION), tuple(rows), tuple(totals))


def _uses(
    key: tuple[Any, ...],
    tasks: Mapping[tuple[tuple[Any, ...], str], int],
    slot_ns: Mapping[tuple[tuple[Any, ...], str], int],
) -> list[tuple[Cell, ...]]:
    whole_ns = sum(slot_ns[key, use] for use in _USES if (key, use) in slot_ns)
    return [
        (
            *key,
            use,
            None if use == "idle" else tasks[key, use],
            slot_ns[key, use],
            ratio(slot_ns[key, use], HOUR_NS),
            ratio(slot_ns[key, use], whole_ns) if whole_ns > 0 else None,
        )
        for use in _USES
        if (key, use) in slot_ns
    ]


@dataclass(slots=True)
class _Borne:
    """The share of idle time in one row and one currency."""

    idle_ns: int = 0
    cost_nanos: int = 0


def showback_report(
    question: UsageQuestion,
    found: Sequence[UsageTotal],
    idle: Iterable[Idle],
    prices: Mapping[str, Tariff],
) -> ReportTable:
    """Return the charges of each row, and its share of idle time in separate columns.

    The idle time of a pool, and its cost, is divided among the work of our own users that ran in
    it, by slot time, within each calendar period of the report: other sites' work is paid for by
    contract, and bears no idle cost. Where no work of ours ran in a pool, its idle time has a row
    without a name, and is divided among no users.

    `found` is by the keys, site, origin and pool, whatever the question's `where`: excluded work
    bears its share as well. Pools without a price are named in a note, and their idle time is left
    out.
    """
    borne: dict[tuple[tuple[Any, ...], str], _Borne] = {}
    spare, unpriced = _by_pool_and_time(question, idle, prices)
    users = _users(question, found)
    for (pool, times), (idle_ns, cost_nanos) in spare.items():
        using = users.get((pool, times)) or {_nobody(question, pool, times): 1}
        keys, weights = list(using), list(using.values())
        shares = zip(keys, spread(idle_ns, weights), spread(cost_nanos, weights), strict=True)
        for key, ns, nanos in shares:
            part = borne.setdefault((key, prices[pool].currency), _Borne())
            part.idle_ns += ns
            part.cost_nanos += nanos
    return _showback(question, found, borne, unpriced)


def _by_pool_and_time(
    question: UsageQuestion, idle: Iterable[Idle], prices: Mapping[str, Tariff]
) -> tuple[dict[tuple[str, tuple[str, ...]], tuple[int, int]], Counter[str]]:
    times = [key for key in question.by if key.is_time]
    spare: dict[tuple[str, tuple[str, ...]], tuple[int, int]] = {}
    unpriced: Counter[str] = Counter()
    for each in idle:
        if each.pool not in prices:
            unpriced[each.pool] += each.idle_ns
            continue
        at = (each.pool, tuple(key.show(each.hour, question.site) for key in times))
        ns, nanos = spare.get(at, (0, 0))
        costs = _cost_nanos(prices[each.pool].price_nanos, each.idle_ns)
        spare[at] = (ns + each.idle_ns, nanos + costs)
    return spare, unpriced


def _cost_nanos(price_nanos: int, idle_ns: int) -> int:
    """Return the cost of idle time, which may be below zero. Halves are rounded up."""
    return (2 * price_nanos * idle_ns + HOUR_NS) // (2 * HOUR_NS)


def _users(
    question: UsageQuestion, found: Iterable[UsageTotal]
) -> dict[tuple[str, tuple[str, ...]], dict[tuple[Any, ...], int]]:
    """Return the slot time of our own users' work, by pool and time, and then by row."""
    width = len(question.by)
    places = [at for at, key in enumerate(question.by) if key.is_time]
    users: dict[tuple[str, tuple[str, ...]], dict[tuple[Any, ...], int]] = {}
    for each in found:
        site, origin, pool = each.key[width:]
        if site or origin or not each.wall_ns:
            continue
        key = each.key[:width]
        rows = users.setdefault((str(pool), tuple(str(key[at]) for at in places)), {})
        rows[key] = rows.get(key, 0) + each.wall_ns
    return users


def _nobody(question: UsageQuestion, pool: str, times: Sequence[str]) -> tuple[Any, ...]:
    """Return the row of undivided idle time: only its pool, site and time are known."""
    known = iter(times)
    names = {Dimension.POOL: pool, Dimension.SITE: question.site}
    return tuple(next(known) if key.is_time else names.get(key.dimension) for key in question.by)


def _showback(
    question: UsageQuestion,
    found: Iterable[UsageTotal],
    borne: Mapping[tuple[tuple[Any, ...], str], _Borne],
    unpriced: Mapping[str, int],
) -> ReportTable:
    width = len(question.by)
    used: dict[tuple[tuple[Any, ...], str], list[UsageTotal]] = {}
    for each in found:
        used.setdefault((each.key[:width], each.currency), []).append(each)
    sums: dict[str, list[tuple[int, ...]]] = {}
    rows = []
    for key, currency in sorted({*used, *borne}, key=lambda each: _place(question, *each)):
        cells = dict(zip(key_names(question.by), key, strict=True))
        if not all(cells[chosen.name] in values for chosen, values in question.where.items()):
            continue
        total = merged(used[key, currency]) if (key, currency) in used else None
        part = borne.get((key, currency), _Borne())
        whole = (total.tasks, total.wall_ns, total.cost_nanos) if total else (0, 0, 0)
        amounts = (*whole, part.idle_ns, part.cost_nanos)
        sums.setdefault(currency, []).append(amounts)
        rows.append((*key, currency, *_costs(amounts)))
    totals = [
        (*((None,) * width), currency, *_costs(tuple(map(sum, zip(*sums[currency], strict=True)))))
        for currency in sorted(sums)
    ]
    notes = [
        f"pool {pool} has no price now: {ratio(ns, HOUR_NS)} idle slot-hours are left out"
        for pool, ns in sorted(unpriced.items())
    ]
    columns = (*key_names(question.by), "currency", *_SHOWBACK)
    facts = {"unpriced_idle_ns": dict(unpriced)} if unpriced else {}
    return ReportTable(columns, tuple(rows), tuple(totals), facts, tuple(notes))


def _place(question: UsageQuestion, key: tuple[Any, ...], currency: str) -> Any:
    """Return the sort key of a row; rows without a name come last."""
    is_nobody = any(cell is None for cell in key)
    return (is_nobody, order(question.by, ["" if cell is None else cell for cell in key]), currency)


def _costs(amounts: tuple[int, ...]) -> tuple[Cell, ...]:
    tasks, wall_ns, cost_nanos, idle_ns, idle_cost_nanos = amounts
    return (
        *(tasks, wall_ns, *money(cost_nanos)),
        *(idle_ns, *money(idle_cost_nanos), *money(cost_nanos + idle_cost_nanos)),
    )


def _check_hours(question: UsageQuestion, kind: str) -> None:
    if not question.is_whole_hours:
        raise ValueError(f"{kind} is reported by the hour: begin and end the period at a full hour")
