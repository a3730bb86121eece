"""Cost, usage and carbon: sums of usage records. Pure.

Every record is in exactly one row, whatever the keys of the report.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Final

from gateway.ledger.db.usage.records import Dimension, UsageTotal
from gateway.ledger.reports.question import UsageQuestion, merged
from gateway.ledger.reports.report import (
    DATA,
    Cell,
    ReportTable,
    Sum,
    data_cells,
    money,
    ratio,
    tabulate,
)

KWH_UJ: Final = 3_600 * 10**9
_SHOWN: Final = Decimal("0.01")

_COST: Final = ("tasks", "cost_nanos", "cost", "list_cost_nanos", "list_cost", *DATA)
_USAGE: Final = (
    *("records", "tasks", "tasks_failed", "tasks_cancelled", "tasks_preempted"),
    *("tasks_repeated", "tasks_void", "tasks_lost"),
    *("wall_ns", "failed_ns", "cancelled_ns", "preempted_ns", "repeated_ns", "void_ns", "lost_ns"),
    *("cpu_ns", "peak_memory_bytes", "cost_nanos", "cost", *DATA),
)
_CARBON: Final = (
    *("tasks", "wall_ns", "energy_uj", "energy_kwh"),
    *("carbon_ng", "carbon_g", "embodied_ng", "embodied_g", "g_per_kwh"),
    *("energy_unknown_ns", "carbon_unknown_ns"),
)
# The states with columns of their own in the usage report.
_APART: Final = (
    *(("failed",), ("cancelled",), ("preempted",)),
    *(("repeat",), ("void",), ("lost", "wasted")),
)
# The dimensions of a report's totals, beside its keys.
USAGE_EXTRA: Final = (Dimension.STATE,)
CARBON_EXTRA: Final = (Dimension.FOOTPRINT,)


def cost_report(question: UsageQuestion, found: Iterable[UsageTotal]) -> ReportTable:
    """Return the charges, and the charges at list price, without contracts."""
    return tabulate(question, found, _COST, _cost_cells)


def usage_report(question: UsageQuestion, found: Iterable[UsageTotal]) -> ReportTable:
    """Return the runs, with separate columns for runs that did not end well.

    `found` is by the keys and state. `tasks` and `wall_ns` are of all runs, however they ended: a
    task that ran twice counts twice.
    """
    return tabulate(question, found, _USAGE, _usage_cells)


def carbon_report(question: UsageQuestion, found: Iterable[UsageTotal]) -> ReportTable:
    """Return energy, and the CO2e of that energy and of the making of the hardware.

    `found` is by the keys and the known part of the footprint. Sums are of known amounts, None
    where none is known; `energy_unknown_ns` and `carbon_unknown_ns` are the slot time that is not
    in them. `g_per_kwh` is carbon by energy where both are known: 1 kWh is 3.6 * 10**12 uJ. None of
    it is money, so that work of all currencies is in the same rows.
    """
    made = tabulate(question, found, _CARBON, _carbon_cells, in_money=False)
    return replace(made, notes=(*made.notes, *_coverage(made)))


def _cost_cells(group: Sum) -> tuple[Cell, ...]:
    total = merged(group)
    costs = *money(total.cost_nanos), *money(total.list_cost_nanos)
    return (total.tasks, *costs, *data_cells(total))


def _usage_cells(group: Sum) -> tuple[Cell, ...]:
    total = merged(group)
    apart = [[each for each in group if each.key[-1] in states] for states in _APART]
    return (
        total.records,
        total.tasks,
        *(sum(each.tasks for each in some) for some in apart),
        total.wall_ns,
        *(sum(each.wall_ns for each in some) for some in apart),
        total.cpu_ns,
        total.peak_memory_bytes,
        *money(total.cost_nanos),
        *data_cells(total),
    )


def _carbon_cells(group: Sum) -> tuple[Cell, ...]:
    total = merged(group)
    measured = [each for each in group if each.key[-1]]
    rated = [each for each in measured if each.key[-1] == "carbon"]
    energy_uj = sum(each.energy_uj for each in measured) if measured else None
    embodied_ng = sum(each.embodied_ng for each in measured) if measured else None
    carbon_ng = sum(each.carbon_ng for each in rated) if rated else None
    rated_uj = sum(each.energy_uj for each in rated)
    return (
        total.tasks,
        total.wall_ns,
        energy_uj,
        None if energy_uj is None else ratio(energy_uj, KWH_UJ),
        *money(carbon_ng),  # 10**9 to a gram, as to a unit of money
        *money(embodied_ng),
        # ng / uJ * 3.6e12 uJ/kWh / 1e9 ng/g
        ratio(carbon_ng * 3_600, rated_uj) if carbon_ng is not None and rated_uj else None,
        total.wall_ns - sum(each.wall_ns for each in measured),
        total.wall_ns - sum(each.wall_ns for each in rated),
    )


def _coverage(report: ReportTable) -> Iterator[str]:
    """Yield notes on the share of the work that the totals don't cover, for people."""
    for total in report.totals:
        cells = dict(zip(report.columns, total, strict=True))
        wall_ns = int(cells["wall_ns"] or 0)
        for what, why in (
            ("energy", "energy use of a pool"),
            ("carbon", "carbon intensity of its electricity"),
        ):
            unknown_ns = int(cells[f"{what}_unknown_ns"] or 0)
            if unknown_ns:
                part = Decimal(ratio(100 * unknown_ns, wall_ns)).quantize(_SHOWN)
                yield (
                    f"{what}: unknown for {part} % of the slot time, because the {why} is "
                    "unknown; the sums exclude that share"
                )
