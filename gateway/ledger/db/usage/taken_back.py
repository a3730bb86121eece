"""Sums of the runs of sold work whose charge was taken back by its buyer. Pure.

Deliveries are matched with runs by gateway.ledger.db.contracts.voids. A run may be a row of the
database, or a UsageRecord: both have the same attributes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from federation.clocks import UtcS
from gateway.ledger.db.contracts.voids import taken_back
from gateway.ledger.db.usage.records import Dimension, UsageTotal
from gateway.ledger.db.usage.tables import SUMMED

TakenBack = tuple[Any, int]  # a run, and the part of its cost that was taken back
_MONEY: Final = ("cost_nanos", "list_cost_nanos")
_DAY_HOURS: Final = 24


def taken_off(runs: Iterable[Any], voids: Iterable[tuple[UtcS, int]]) -> Iterator[TakenBack]:
    """Yield the runs of a job of which anything was taken back.

    Args:
        runs: all runs of the job that cost anything.
        voids: (when it was delivered, its cost), by time.
    """
    ordered = sorted(runs, key=lambda run: (run.ended_at_s, run.first, run.attempt))
    found = taken_back(
        [(run.ended_at_s, (run.first, run.attempt), run.cost_nanos) for run in ordered], voids
    )
    for run in ordered:
        if (run.first, run.attempt) in found:
            yield run, found[run.first, run.attempt]


def totals_taken_back(
    found: Iterable[TakenBack],
    by: Sequence[Dimension],
    start_at_s: UtcS | None,
    end_at_s: UtcS | None,
    only: Mapping[Dimension, str | int],
) -> list[UsageTotal]:
    """Sum up what was taken back of runs that ended in [start, end), as `UsageStore.totals`."""
    totals: dict[tuple[tuple[str | int, ...], str], UsageTotal] = {}
    for run, back_nanos in found:
        if start_at_s is not None and run.ended_at_s < start_at_s:
            continue
        if end_at_s is not None and run.ended_at_s >= end_at_s:
            continue
        if any(_value(run, dimension) != value for dimension, value in only.items()):
            continue
        key = tuple(_value(run, dimension) for dimension in by)
        total = totals.get((key, run.currency)) or UsageTotal(key, run.currency, *(0,) * 6)
        sums = {name: getattr(total, name) + part for name, part in _parts(run, back_nanos)}
        totals[key, run.currency] = replace(total, **sums)
    return [totals[key] for key in sorted(totals)]


def _parts(run: Any, back_nanos: int) -> Iterator[tuple[str, int]]:
    """Yield the amounts taken back: all of a run whose whole cost was, else money alone."""
    if back_nanos == run.cost_nanos:
        yield from ((name, getattr(run, name)) for name in ("records", *SUMMED))
    else:
        yield from ((name, min(back_nanos, getattr(run, name))) for name in _MONEY)


def _value(run: Any, dimension: Dimension) -> str | int:
    if dimension is Dimension.DAY:
        return int(run.hour) // _DAY_HOURS
    value: str | int = getattr(run, dimension.value)
    return value
