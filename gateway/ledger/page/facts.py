"""The facts of a page: sums of one period, as plain data for transfer. Pure.

All sums come from the same rows, each of which is read once: an amount in one figure equals, to the
nano-unit, the same amount in another. Amounts of different currencies are never added.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import add, attrgetter
from typing import Any, Final

from federation.clocks import UtcS
from gateway.ledger.accounting.settlement import Statement
from gateway.ledger.db.usage.records import CapacityTotal, Dimension, UsageTotal

# The dimensions of the rows from which facts are made.
BY: Final = (
    Dimension.HOUR,
    Dimension.SITE,
    Dimension.ORIGIN,
    Dimension.PROJECT,
    Dimension.STATE,
    Dimension.FOOTPRINT,
    Dimension.NAME,  # it tells the charge for unused reserved time from work
    Dimension.KIND,  # it tells data from work
)
FEE: Final = "fee"  # in place of the state of such a charge: it has neither tasks nor slot time
DATA: Final = "data"  # the same for bytes that were held or moved
SITES_MAX: Final = 8  # listed separately; the rest are summed up as others
PROJECTS_MAX: Final = 15  # of a currency

_AMOUNTS: Final = (
    *("tasks", "wall_ns", "cost_nanos", "list_cost_nanos"),
    *("energy_uj", "carbon_ng", "embodied_ng"),
)
_RATED: Final = ("measured_ns", "rated_ns", "rated_uj")
_DATA: Final = ("held_byte_s", "moved_bytes")
_of_row: Final = attrgetter(*_AMOUNTS)
_of_sum: Final = attrgetter(*_AMOUNTS, *_RATED, *_DATA)
_FIRST_WEEKDAY: Final = 3  # 1970-01-01 was a Thursday; Monday is 0

Key = tuple[str | int | None, ...]
_Sums = dict[tuple[Key, str], list[int]]


@dataclass(frozen=True, slots=True)
class Sum:
    """The sums of the usage of one key and one currency; a name of None is all the others.

    Emissions may be known only in part. `measured_ns` is the slot time whose energy is known;
    `rated_ns` and `rated_uj` are the slot time and the energy whose carbon is known.
    """

    key: Key
    currency: str
    tasks: int
    wall_ns: int
    cost_nanos: int
    list_cost_nanos: int
    energy_uj: int
    carbon_ng: int
    embodied_ng: int
    measured_ns: int
    rated_ns: int
    rated_uj: int
    held_byte_s: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SlotHours:
    """Slot time of our own pools in one hour (UTC) of one weekday, Monday being 0.

    Usage counts in the hour in which it ended: an hour may have more usage than slots.
    """

    weekday: int
    hour: int
    used_ns: int
    capacity_ns: int


@dataclass(frozen=True, slots=True)
class Deal:
    """The statement of account with a site over the period: see
    gateway.ledger.accounting.settlement.

    Above zero the site owes us; held and void amounts are in no balance. Unconfirmed amounts are in
    our balance, and not in the site's; amounts to confirm are in the site's, and not in ours; both
    as of now.
    """

    site: str
    currency: str
    opening_nanos: int
    sold_nanos: int
    refunded_nanos: int
    bought_nanos: int
    credited_nanos: int
    paid_nanos: int
    received_nanos: int
    written_off_nanos: int
    balance_nanos: int
    held_sold_nanos: int
    held_bought_nanos: int
    void_sold_nanos: int
    void_bought_nanos: int
    unconfirmed_nanos: int
    to_confirm_nanos: int


@dataclass(frozen=True, slots=True)
class UnsettledCost:
    """Our users' cost at one site that is not final, or was reversed; None is all other sites.

    Attributes:
        held_nanos: of the booked amount: delivered by the site, and not settled by us.
        reversed_nanos: of the settled amount: reversed by the site since.
        estimated_nanos: not booked yet: the expected cost of the tasks that run now.
    """

    site: str | None
    currency: str
    held_nanos: int
    reversed_nanos: int
    estimated_nanos: int


@dataclass(frozen=True, slots=True)
class PageFacts:
    """The facts of one page. Sites are named, our own too; times are UTC.

    Attributes:
        days: our users' work, by (day, site); a day counts from 1970-01-01, a site is the one that
            ran it.
        projects: the same, by (project,).
        hours: the same, by (hour of the day, site, state); FEE is the state of charges without
            work, DATA that of bytes held or moved.
        flows: all work, by (origin, site): the site that sent it, and the site that ran it.
        work: all work, by (site, state).
        slots: our own pools, for each hour of the week with any.
        deals: with each site, and in each currency.
        unsettled: likewise, of our users' work, as of `as_of_s`.
    """

    site: str
    start_at_s: UtcS
    end_at_s: UtcS
    as_of_s: UtcS
    days: tuple[Sum, ...]
    projects: tuple[Sum, ...]
    hours: tuple[Sum, ...]
    flows: tuple[Sum, ...]
    work: tuple[Sum, ...]
    slots: tuple[SlotHours, ...]
    deals: tuple[Deal, ...]
    unsettled: tuple[UnsettledCost, ...]


_SUMS: Final = ("days", "projects", "hours", "flows", "work")


def facts_from(
    site: str,
    period_s: tuple[UtcS, UtcS],
    as_of_s: UtcS,
    usage: Iterable[UsageTotal],
    capacity: Iterable[CapacityTotal],
    statements: Iterable[Statement] = (),
    unsettled: Iterable[UnsettledCost] = (),
) -> PageFacts:
    """Make the facts of a period at a site; `usage` is summed by `BY`, and read once.

    `unsettled` may hold several entries for a site and currency; an empty site is our own.
    """
    days: _Sums = {}
    projects: _Sums = {}
    hours: _Sums = {}
    flows: _Sums = {}
    work: _Sums = {}
    used: dict[tuple[int, int], int] = {}
    for row in usage:
        hour, ran_at, origin, project, state, footprint, _, kind = row.key
        if kind != "time":
            state = DATA
        elif not row.tasks and not row.wall_ns and row.cost_nanos:
            state = FEE
        day, hour_of_day = divmod(int(hour), 24)
        ran_at, origin = ran_at or site, origin or site
        is_rated = footprint == "carbon"
        amounts = (
            *_of_row(row),
            row.wall_ns if footprint else 0,
            *((row.wall_ns, row.energy_uj) if is_rated else (0, 0)),
            *(row.held_byte_s, row.moved_bytes),
        )
        _add(flows, ((origin, ran_at), row.currency), amounts)
        _add(work, ((ran_at, state), row.currency), amounts)
        if origin == site:
            _add(days, ((day, ran_at), row.currency), amounts)
            _add(projects, ((project,), row.currency), amounts)
            _add(hours, ((hour_of_day, ran_at, state), row.currency), amounts)
        if ran_at == site:
            at = _weekday(day), hour_of_day
            used[at] = used.get(at, 0) + row.wall_ns
    there: dict[tuple[int, int], int] = {}
    for each in capacity:
        day, hour_of_day = divmod(each.hour, 24)
        at = _weekday(day), hour_of_day
        there[at] = there.get(at, 0) + each.slot_ns
    sites, origins = _busiest(flows, 1, site), _busiest(flows, 0, site)
    return PageFacts(
        site=site,
        start_at_s=period_s[0],
        end_at_s=period_s[1],
        as_of_s=as_of_s,
        days=_listed(_bounded(days, 1, sites)),
        projects=_listed(_bounded(projects, 0, _dearest(projects))),
        hours=_listed(_bounded(hours, 1, sites)),
        flows=_listed(_bounded(_bounded(flows, 0, origins), 1, sites)),
        work=_listed(_bounded(work, 0, sites)),
        slots=tuple(
            SlotHours(*at, used.get(at, 0), there.get(at, 0)) for at in sorted({*used, *there})
        ),
        deals=tuple(map(_deal, statements)),
        unsettled=tuple(_summed_up(unsettled, site, sites)),
    )


def to_plain(facts: PageFacts) -> dict[str, Any]:
    """Convert facts to maps, lists and texts, for the wire: an amount may exceed 64 bits."""
    return {
        "site": facts.site,
        "start_s": facts.start_at_s,
        "end_s": facts.end_at_s,
        "as_of_s": facts.as_of_s,
        **{
            name: [
                [list(each.key), each.currency, *map(str, _of_sum(each))]
                for each in getattr(facts, name)
            ]
            for name in _SUMS
        },
        "slots": [
            [each.weekday, each.hour, str(each.used_ns), str(each.capacity_ns)]
            for each in facts.slots
        ],
        **{
            name: [
                [each.site, each.currency, *map(str, astuple(each)[2:])]
                for each in getattr(facts, name)
            ]
            for name in ("deals", "unsettled")
        },
    }


def from_plain(plain: Mapping[str, Any]) -> PageFacts:
    """Read the output of `to_plain`. Raises ValueError for anything else."""
    try:
        return PageFacts(
            site=_typed(str, plain["site"]),
            start_at_s=UtcS(plain["start_s"]),
            end_at_s=UtcS(plain["end_s"]),
            as_of_s=UtcS(plain["as_of_s"]),
            **{
                name: tuple(
                    Sum(tuple(key), _typed(str, currency), *map(int, amounts))
                    for key, currency, *amounts in plain[name]
                )
                for name in _SUMS
            },
            slots=tuple(SlotHours(*map(int, each)) for each in plain["slots"]),
            deals=tuple(
                Deal(*(_typed(str, text) for text in each[:2]), *map(int, each[2:]))
                for each in plain["deals"]
            ),
            unsettled=tuple(
                UnsettledCost(
                    None if site is None else _typed(str, site),
                    _typed(str, currency),
                    *map(int, amounts),
                )
                for site, currency, *amounts in plain["unsettled"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the facts of a page are invalid: {error!r}") from None


def total(sums: Iterable[Sum]) -> Sum:
    """Add up sums of one currency, or for amounts whose unit is the same in all currencies."""
    found = list(sums)
    amounts = [sum(each) for each in zip(*map(_of_sum, found), strict=True)]
    currency = found[0].currency if found else ""
    return Sum((), currency, *(amounts or [0] * len((*_AMOUNTS, *_RATED, *_DATA))))


def currencies(facts: PageFacts) -> list[str]:
    """Return the currencies of all work, by slot time, largest first: amounts can't be compared."""
    wall_ns = dict.fromkeys((each.currency for each in facts.unsettled), 0)
    for each in facts.flows:
        wall_ns[each.currency] = wall_ns.get(each.currency, 0) + each.wall_ns
    return sorted(wall_ns, key=lambda currency: (-wall_ns[currency], currency))


def _typed(kind: type[str], value: object) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not {kind.__name__}")
    return value


def _weekday(day: int) -> int:
    return (day + _FIRST_WEEKDAY) % 7


def _add(sums: _Sums, key: tuple[Key, str], amounts: Sequence[int]) -> None:
    found = sums.get(key)
    if found is None:
        sums[key] = list(amounts)
        return
    # Unrolled for speed: a year has a million of them.
    tasks, wall_ns, cost_nanos, list_cost_nanos, energy_uj, carbon_ng, embodied_ng, *rated = amounts
    measured_ns, rated_ns, rated_uj, held_byte_s, moved_bytes = rated
    found[0] += tasks
    found[1] += wall_ns
    found[2] += cost_nanos
    found[3] += list_cost_nanos
    found[4] += energy_uj
    found[5] += carbon_ng
    found[6] += embodied_ng
    found[7] += measured_ns
    found[8] += rated_ns
    found[9] += rated_uj
    found[10] += held_byte_s
    found[11] += moved_bytes


def _bounded(sums: _Sums, at: int, kept: Container[tuple[str, object]]) -> _Sums:
    """Merge the names that are not among the (currency, name) to keep, at one place of the key.

    They become None.
    """
    found: _Sums = {}
    for (key, currency), amounts in sums.items():
        if (currency, key[at]) not in kept:
            key = (*key[:at], None, *key[at + 1 :])
        _add(found, (key, currency), amounts)
    return found


def _busiest(flows: _Sums, at: int, own: str) -> set[tuple[str, object]]:
    """Return our site and those with most slot time: the same for all currencies, as colours
    are."""
    wall_ns: dict[Any, int] = {}
    for (key, _), (_, time_ns, *_) in flows.items():
        wall_ns[key[at]] = wall_ns.get(key[at], 0) + time_ns
    order = sorted(wall_ns, key=lambda site: (site != own, -wall_ns[site], site))
    return {(currency, site) for _, currency in flows for site in order[:SITES_MAX]}


def _dearest(sums: _Sums) -> set[tuple[str, object]]:
    """Return the projects with the highest cost, of each currency."""
    order = sorted(sums, key=lambda each: (-sums[each][2], -sums[each][1], each[0]))
    return {
        (currency, key[0])
        for currency in {currency for _, currency in sums}
        for key, _ in [each for each in order if each[1] == currency][:PROJECTS_MAX]
    }


def _listed(sums: _Sums) -> tuple[Sum, ...]:
    return tuple(
        Sum(key, currency, *amounts)
        for (key, currency), amounts in sorted(sums.items(), key=_in_order)
    )


def _summed_up(
    found: Iterable[UnsettledCost], own: str, kept: Container[tuple[str, object]]
) -> Iterator[UnsettledCost]:
    sums: dict[tuple[str, str | None], list[int]] = {}
    for each in found:
        name = each.site or own
        key = each.currency, name if name == own or (each.currency, name) in kept else None
        amounts = each.held_nanos, each.reversed_nanos, each.estimated_nanos
        sums[key] = [*map(add, sums.get(key, (0, 0, 0)), amounts)]
    for currency, site in sorted(sums, key=lambda key: (key[0], key[1] is None, key[1] or "")):
        yield UnsettledCost(site, currency, *sums[currency, site])


def _in_order(found: tuple[tuple[Key, str], list[int]]) -> Any:
    (key, currency), _ = found
    return currency, [(part is None, part if part is not None else 0) for part in key]


def _deal(each: Statement) -> Deal:
    moved = each.turnover
    return Deal(
        each.site,
        each.currency,
        each.opening_nanos,
        *(moved.sold, moved.refunded, moved.bought, moved.credited),
        *(moved.paid, moved.received, moved.written_off),
        each.balance_nanos,
        *(moved.held_sold, moved.held_bought, moved.void_sold, moved.void_bought),
        *(each.unconfirmed_nanos, each.to_confirm_nanos),
    )
