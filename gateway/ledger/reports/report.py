"""A report: a table of exact numbers, with facts and notes. Pure.

Amounts are whole numbers, with their unit last in the column's name: `_nanos` (10**9 to one unit of
the currency), `_ns`, `_uj` (microjoules), `_ng` (nanograms of CO2e), `_bytes`, `_byte_s`
(byte-seconds; GB are of 10**9 bytes). Beside them are the same
amounts as decimal numbers, in text, for people and for readers whose numbers are floats: money and
grams to the last digit, hours, kilowatt-hours and shares rounded to nine.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from federation.money import NANOS_PER_UNIT, format_amount
from gateway.ledger.db.usage.records import UsageTotal
from gateway.ledger.reports.keys import Key
from gateway.ledger.reports.question import UsageQuestion, order

Cell = str | int | None

HOUR_NS: Final = 3_600 * 10**9
GB: Final = 10**9
# The columns of data in reports.
DATA: Final = ("held_byte_s", "held_gb_h", "moved_bytes", "moved_gb")
_WHOLE_ENDS: Final = ("_nanos", "_ns", "_uj", "_ng", "_bytes", "_byte_s", "_tasks")
_COUNTS: Final = frozenset(
    {
        *("records", "tasks", "tasks_failed", "tasks_cancelled", "tasks_preempted"),
        *("tasks_repeated", "tasks_void", "tasks_lost"),
    }
)
_DECIMALS: Final = frozenset(
    {
        *("cost", "list_cost", "idle_cost", "full_cost", "dearest", "dearest_saved", "static"),
        *("static_saved", "slot_h", "share", "energy_kwh", "carbon_g", "embodied_g", "g_per_kwh"),
        *("held_gb_h", "moved_gb"),
        # for statements between sites
        *("opening", "sold", "refunded", "bought", "credited", "paid", "received", "written_off"),
        *("balance", "held_sold", "held_bought", "void_sold", "void_bought", "unconfirmed"),
        *("to_confirm", "amount", "relayed_sold", "relayed_bought", "took", "gave", "margin"),
    }
)


# Decimal columns that are no money.
NO_MONEY: Final = frozenset(
    {
        *("slot_h", "share", "energy_kwh", "carbon_g", "embodied_g", "g_per_kwh"),
        *("held_gb_h", "moved_gb"),
    }
)


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table: `rows` in the order of their keys, and `totals`, one row per currency.

    Attributes:
        facts: other data, in plain form: when it was made, the settled amounts, …
        notes: the same for people, a sentence each.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    totals: tuple[tuple[Cell, ...], ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def is_whole(column: str) -> bool:
    """Whether the cells of a column are whole numbers; those of a tag are text."""
    return ":" not in column and (column in _COUNTS or column.endswith(_WHOLE_ENDS))


def is_decimal(column: str) -> bool:
    """Whether the cells of a column are decimal numbers in text."""
    return column in _DECIMALS


Sum = Sequence[UsageTotal]


def tabulate(
    question: UsageQuestion,
    found: Iterable[UsageTotal],
    columns: Sequence[str],
    cells: Callable[[Sum], tuple[Cell, ...]],
    *,
    in_money: bool = True,
) -> ReportTable:
    """Return a row for each key and, `in_money`, currency: `cells` makes the cells of `columns`.

    The keys of `found` begin with those of the question; the others are for `cells`. The totals are
    made from the same `found` as the rows: the sums of both are equal.
    """
    width = len(question.by)
    rows: dict[tuple[tuple[Any, ...], str], list[UsageTotal]] = {}
    totals: dict[str, list[UsageTotal]] = {}
    for each in found:
        currency = each.currency if in_money else ""
        rows.setdefault((each.key[:width], currency), []).append(each)
        totals.setdefault(currency, []).append(each)
    names = (*key_names(question.by), *(("currency",) if in_money else ()), *columns)

    def row(key: tuple[Cell, ...], currency: str, group: Sum) -> tuple[Cell, ...]:
        return (*key, *((currency,) if in_money else ()), *cells(group))

    ordered = sorted(rows, key=lambda each: (order(question.by, each[0]), each[1]))
    return ReportTable(
        names,
        tuple(row(key, currency, rows[key, currency]) for key, currency in ordered),
        tuple(row((None,) * width, currency, totals[currency]) for currency in sorted(totals)),
    )


def key_names(by: Iterable[Key]) -> tuple[str, ...]:
    """Return the names of the key columns."""
    return tuple(key.name for key in by)


def money(nanos: int | None) -> tuple[Cell, Cell]:
    """Return an amount, and the same as a decimal number."""
    return (nanos, None if nanos is None else format_amount(nanos))


def data_cells(total: UsageTotal) -> tuple[Cell, ...]:
    """Return the bytes held and moved, each exact, and in GB for people: cells of DATA."""
    return (
        *(total.held_byte_s, ratio(total.held_byte_s, GB * 3_600)),
        *(total.moved_bytes, ratio(total.moved_bytes, GB)),
    )


def ratio(number: int, by: int) -> str:
    """Return a quotient as a decimal number, rounded to nine digits, halves up."""
    return format_amount((2 * number * NANOS_PER_UNIT + by) // (2 * by))


def spread(amount: int, weights: Sequence[int]) -> list[int]:
    """Divide an amount in proportion to weights, at least one of which is above zero.

    The parts are whole, and their sum is the amount: by largest remainder (Hamilton), the first of
    equals first.
    """
    whole = sum(weights)
    parts = [amount * weight // whole for weight in weights]
    short = amount - sum(parts)
    by_remainder = sorted(range(len(weights)), key=lambda at: -(amount * weights[at] % whole))
    for at in by_remainder[:short]:
        parts[at] += 1
    return parts
