"""Cost, usage and carbon: sums of what usage records say. Pure.

Every record is in exactly one row, whatever the report is by.
"""

from collections.abc import Iterable
from typing import Final

from gateway.ledger.store import Dimension, UsageTotal

from .question import Question, merged
from .report import Cell, Report, Sum, money, ratio, tabulate

KWH_UJ: Final = 3_600 * 10**9

_COST: Final = ("tasks", "cost_nanos", "cost", "list_cost_nanos", "list_cost")
_USAGE: Final = (
    *("records", "tasks", "tasks_failed", "tasks_repeated"),
    *("wall_ns", "failed_ns", "repeated_ns", "cpu_ns", "peak_memory_bytes", "cost_nanos", "cost"),
)
_CARBON: Final = (
    *("tasks", "wall_ns", "energy_uj", "energy_kwh"),
    *("carbon_ng", "carbon_g", "embodied_ng", "embodied_g", "g_per_kwh"),
)
# What the rows of a usage report are made of, beside its keys.
USAGE_EXTRA: Final = (Dimension.STATE,)


def cost_report(question: Question, found: Iterable[UsageTotal]) -> Report:
    """What was charged, and what it would have been by the list: without anybody's contract."""
    return tabulate(question, found, _COST, _cost_cells)


def usage_report(question: Question, found: Iterable[UsageTotal]) -> Report:
    """What ran, `found` by the keys and state; failed and repeated work in columns of its own.

    `tasks` and `wall_ns` are of all runs, whatever became of them: a task that ran twice counts
    twice.
    """
    return tabulate(question, found, _USAGE, _usage_cells)


def carbon_report(question: Question, found: Iterable[UsageTotal]) -> Report:
    """Energy, and the CO2e that it and the making of the hardware stand for.

    `g_per_kwh` is carbon_ng / energy_uj, in other units: 1 kWh is 3.6 * 10**12 uJ. Empty without
    energy. None of it is money, so that work of all currencies is in the same rows.
    """
    return tabulate(question, found, _CARBON, _carbon_cells, in_money=False)


def _cost_cells(group: Sum) -> tuple[Cell, ...]:
    total = merged(group)
    return (total.tasks, *money(total.cost_nanos), *money(total.list_cost_nanos))


def _usage_cells(group: Sum) -> tuple[Cell, ...]:
    total = merged(group)
    failed = [each for each in group if each.key[-1] == "failed"]
    repeated = [each for each in group if each.key[-1] == "repeat"]
    return (
        total.records,
        total.tasks,
        sum(each.tasks for each in failed),
        sum(each.tasks for each in repeated),
        total.wall_ns,
        sum(each.wall_ns for each in failed),
        sum(each.wall_ns for each in repeated),
        total.cpu_ns,
        total.peak_memory_bytes,
        *money(total.cost_nanos),
    )


def _carbon_cells(group: Sum) -> tuple[Cell, ...]:
    total = merged(group)
    # ng / uJ * 3.6e12 uJ/kWh / 1e9 ng/g
    intensity = ratio(total.carbon_ng * 3_600, total.energy_uj) if total.energy_uj else None
    return (
        total.tasks,
        total.wall_ns,
        total.energy_uj,
        ratio(total.energy_uj, KWH_UJ),
        *money(total.carbon_ng),  # 10**9 to a gram, as to a unit of money
        *money(total.embodied_ng),
        intensity,
    )
