"""The kinds of report: how each reads the store, and the module that computes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from federation.clocks import CALENDAR_END_S, UNIX_EPOCH_S, UtcS
from gateway.ledger.db.usage.records import CapacityRecord, Dimension, UsageTotal
from gateway.ledger.db.usage.store import UsageStore
from gateway.ledger.reports import idle, savings, tallies
from gateway.ledger.reports.finality import (
    DeliveryAmounts,
    OpenClaim,
    find_standing,
    standing_notes,
    standing_plain,
)
from gateway.ledger.reports.keys import key_of
from gateway.ledger.reports.question import (
    ALL,
    OURS,
    UsageQuestion,
    less,
    read,
    read_taken_back,
)
from gateway.ledger.reports.report import ReportTable
from gateway.ledger.store.slots import slots_of
from gateway.ledger.store.store import Store
from policies.tariffs import Tariff

UTILISATION: Final = "utilisation"
# Reports without the work of other sites that they do not pay: voided by them, or refunded.
_ONLY_PAID: Final = frozenset({"savings", "showback"})


@dataclass(frozen=True, slots=True)
class Present:
    """The current state of the site, which no database holds.

    Attributes:
        utc_s: now.
        prices: the current list price of our own pools, per slot-hour, by name.
        running: the expected cost of the tasks that run now.
        static_price: per slot-hour of a grid of one's own: nano-units and currency.
        unwritten: observed slots that may not be in the books yet.
    """

    utc_s: UtcS
    prices: Mapping[str, Tariff] = field(default_factory=dict)
    running: Iterable[OpenClaim] = ()
    static_price: tuple[int, str] | None = None
    unwritten: Sequence[CapacityRecord] = ()


def make_report(kind: str, store: Store, question: UsageQuestion, present: Present) -> ReportTable:
    """Make a report of a kind of `KINDS`. Raises ValueError for a question that it can't answer.

    Reads the store, and may take its time.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown report {kind[:60]!r}: choose from {', '.join(KINDS)}")
    report = KINDS[kind](store, question, present)
    whose = ALL if kind == UTILISATION else question.whose
    report = replace(report, notes=(*report.notes, _whose_note(kind, question)))
    if "cost_nanos" not in report.columns:
        facts = {"as_of_s": present.utc_s, "whose": whose, **report.facts}
        return replace(report, facts=facts)
    period = (question.start_at_s or UNIX_EPOCH_S, question.end_at_s or CALENDAR_END_S)
    due = store.contracts
    reversed_, voided = due.reversed(*period), due.voided(*period)
    if kind in _ONLY_PAID:
        reversed_ = [each for each in reversed_ if each.side == "buy"]
        voided = []
    standing = find_standing(
        question,
        report,
        DeliveryAmounts(due.pending(*period), reversed_, voided),
        present.running,
        present.utc_s,
    )
    return replace(
        report,
        facts={"whose": whose, **standing_plain(standing), **report.facts},
        notes=(*report.notes, *standing_notes(standing)),
    )


def _whose_note(kind: str, question: UsageQuestion) -> str:
    if kind == UTILISATION:
        return "all use of the slots, by any site"
    if question.whose == OURS:
        return "our own users' work; --all includes work of other sites"
    return "all work, including work of other sites" + (
        ", filtered by origin" if question.chosen_origins else ""
    )


def _cost(store: Store, question: UsageQuestion, _present: Present) -> ReportTable:
    return tallies.cost_report(question, read(store.usage, question))


def _usage(store: Store, question: UsageQuestion, _present: Present) -> ReportTable:
    return tallies.usage_report(question, read(store.usage, question, tallies.USAGE_EXTRA))


def _carbon(store: Store, question: UsageQuestion, _present: Present) -> ReportTable:
    return tallies.carbon_report(question, read(store.usage, question, tallies.CARBON_EXTRA))


def _savings(store: Store, question: UsageQuestion, present: Present) -> ReportTable:
    all_of_it = replace(question, by=())
    hours = _paid(store.usage, all_of_it, (Dimension.HOUR, *savings.BY_HOUR))
    if present.static_price is not None:
        savings.check_price(hours, present.static_price[1])
    # Pools are compared on all the work of the chosen origins.
    theirs = replace(all_of_it, where=question.chosen_origins)
    pools = _paid(store.usage, theirs, (Dimension.POOL, *savings.EXTRA))
    grids = savings.size_grid(hours, _static_prices(present), question, present.utc_s)
    found = _paid(store.usage, question, savings.EXTRA)
    dearest = savings.find_dearest(pools, present.prices)
    return savings.savings_report(question, found, dearest, grids)


def _paid(
    usage: UsageStore, question: UsageQuestion, extra: Sequence[Dimension]
) -> list[UsageTotal]:
    """Read totals without the part that other sites do not pay."""
    return less(read(usage, question, extra), read_taken_back(usage, question, extra))


def _static_prices(present: Present) -> dict[str, int]:
    """Return a price for each currency: the lowest of our pools, or the requested one."""
    prices: dict[str, int] = {}
    for tariff in present.prices.values():
        known = prices.get(tariff.currency, tariff.price_nanos)
        prices[tariff.currency] = min(known, tariff.price_nanos)
    if present.static_price is not None:
        nanos, currency = present.static_price
        prices[currency] = nanos
    return prices


def _utilisation(store: Store, question: UsageQuestion, present: Present) -> ReportTable:
    question = replace(question, by=question.by or (key_of("pool"),), whose=ALL)
    idle.check_utilisation(question)
    used = read(store.usage, question, idle.UTILISATION_EXTRA, idle.HERE)
    return idle.utilisation_report(question, used, _idle_hours(store.usage, question, present))


def _showback(store: Store, question: UsageQuestion, present: Present) -> ReportTable:
    idle.check_showback(question)
    found = _paid(store.usage, replace(question, where={}), idle.SHOWBACK_EXTRA)
    return idle.showback_report(
        question, found, _idle_hours(store.usage, question, present), present.prices
    )


def _idle_hours(usage: UsageStore, question: UsageQuestion, present: Present) -> list[idle.Idle]:
    period = (question.start_at_s or UNIX_EPOCH_S, question.end_at_s or CALENDAR_END_S)
    used = usage.totals(idle.USED_BY, question.start_at_s, question.end_at_s, idle.HERE)
    return idle.idle_hours(slots_of(usage, *period, present.unwritten), used)


KINDS: Final[Mapping[str, Callable[[Store, UsageQuestion, Present], ReportTable]]] = {
    "cost": _cost,
    "usage": _usage,
    "carbon": _carbon,
    "savings": _savings,
    UTILISATION: _utilisation,
    "showback": _showback,
}
