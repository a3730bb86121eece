"""Facts from the books that alerts are judged by: read in a reader's thread, bounded by hours."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from federation.clocks import UNIX_EPOCH_S, UtcS
from gateway.ledger.db.checks import HOUR_S
from gateway.ledger.db.contracts.records import PendingDeliveries
from gateway.ledger.db.usage.records import Dimension
from gateway.ledger.store.store import Store
from policies.costs.alerts import (
    AlertBudget,
    AlertScope,
    AlertSpending,
    Facts,
    OverdueDeliveries,
    PoolPrice,
    Rule,
    Unacknowledged,
)

DAY_S: Final = 24 * HOUR_S
_DIMENSIONS: Final = {
    AlertScope.PROJECT: Dimension.PROJECT,
    AlertScope.USER: Dimension.USER,
    AlertScope.GROUP: Dimension.GROUP,
    AlertScope.SITE: Dimension.SITE,
    AlertScope.ORIGIN: Dimension.ORIGIN,
}
_Key = tuple[str, UtcS, UtcS]


class AlertBooks:
    """Reads the facts that rules are judged by.

    Usage before yesterday's midnight (UTC) is summed up once a day and kept: a year has thousands
    of hours, and a look each minute should read some dozens. Usage that is booked late, for the
    time before that, counts from the next day on.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._past: dict[_Key, Counter[str]] = {}  # by rule and hours; in nano-units by currency

    def facts(self, rules: Iterable[Rule], prices: tuple[PoolPrice, ...], utc_s: UtcS) -> Facts:
        """Return everything that these rules are judged by, at this moment."""
        spent: dict[str, AlertSpending] = {}
        pending: dict[str, list[OverdueDeliveries]] = {}
        before, self._past = self._past, {}
        for rule in rules:
            match rule:
                case AlertBudget():
                    spent[rule.name] = self._spending(rule, utc_s, before)
                case Unacknowledged():
                    pending[rule.name] = self._pending(rule, utc_s)
                case _:
                    pass
        return Facts(utc_s, spent, prices, pending)

    def _spending(
        self, rule: AlertBudget, utc_s: UtcS, before: dict[_Key, Counter[str]]
    ) -> AlertSpending:
        period = rule.period_at(utc_s)
        cut_s = UtcS(utc_s // DAY_S * DAY_S - DAY_S)
        spent: Counter[str] = Counter()
        if period.start_at_s < cut_s:
            key = (rule.name, period.start_at_s, cut_s)
            past = before.get(key)
            self._past[key] = self._spent(rule, *key[1:], utc_s) if past is None else past
            spent += self._past[key]
        spent += self._spent(rule, max(period.start_at_s, cut_s), period.end_at_s, utc_s)
        held_nanos = _sum(rule, self._store.contracts.pending(period.start_at_s, period.end_at_s))
        refunded_nanos = 0
        if rule.whose in (
            AlertScope.SITE,
            AlertScope.ORIGIN,
        ):  # users' charges stay: the site keeps refunds
            refunded_nanos = _sum(
                rule, self._store.contracts.reversed(period.start_at_s, period.end_at_s)
            )
        # A seller's charge and the charge to a user here may differ by a margin.
        spent_nanos = max(0, spent.pop(rule.currency, 0) - refunded_nanos)
        return AlertSpending(period, spent_nanos, min(held_nanos, spent_nanos), dict(spent))

    def _spent(
        self, rule: AlertBudget, start_at_s: UtcS, end_at_s: UtcS, utc_s: UtcS
    ) -> Counter[str]:
        """Return the spending by currency; only the rule's currency counts, others are reported."""
        only: dict[Dimension, str | int] = {}
        if rule.whose in _DIMENSIONS:
            only[_DIMENSIONS[rule.whose]] = rule.of
        if rule.whose in (AlertScope.ALL, AlertScope.PROJECT, AlertScope.USER, AlertScope.GROUP):
            only[Dimension.ORIGIN] = ""  # other sites have users and projects of these names, too
        spent: Counter[str] = Counter()
        for span in spans(start_at_s, end_at_s):
            if span[0] <= utc_s:
                for total in self._store.usage.totals([], *span, only):
                    spent[total.currency] += total.cost_nanos
        return spent

    def _pending(self, rule: Unacknowledged, utc_s: UtcS) -> list[OverdueDeliveries]:
        found: dict[tuple[str, str], OverdueDeliveries] = {}
        for each in self._store.contracts.pending(
            UtcS(0.0), max(UNIX_EPOCH_S, utc_s - rule.after_s)
        ):
            if rule.side not in ("", each.side) or rule.site not in ("", each.site):
                continue
            one = OverdueDeliveries(
                each.side,
                each.site,
                each.records,
                {each.currency: each.cost_nanos},
                each.oldest_s,
            )
            key = each.side, each.site
            found[key] = _both(found[key], one) if key in found else one
        return list(found.values())


def spans(start_at_s: UtcS, end_at_s: UtcS) -> Iterator[tuple[UtcS, UtcS]]:
    """Cut [start_at_s, end_at_s) so that whole hours, which are quick to sum up, are together.

    A period of a zone that is off by half an hour begins and ends within one.
    """
    first_s, last_s = UtcS(-(-start_at_s // HOUR_S) * HOUR_S), UtcS(end_at_s // HOUR_S * HOUR_S)
    if first_s >= last_s:
        yield start_at_s, end_at_s
        return
    if start_at_s < first_s:
        yield start_at_s, first_s
    yield first_s, last_s
    if last_s < end_at_s:
        yield last_s, end_at_s


def _sum(rule: AlertBudget, deliveries: Iterable[PendingDeliveries]) -> int:
    return sum(each.cost_nanos for each in deliveries if _counts(rule, each))


def _counts(rule: AlertBudget, each: PendingDeliveries) -> bool:
    """Whether deliveries, without a verdict or reversed, are of this budget."""
    if each.currency != rule.currency:
        return False
    is_ours = each.side == "buy" and not each.relayed
    match rule.whose:
        case AlertScope.ALL:
            return is_ours
        case AlertScope.PROJECT:
            return is_ours and each.project == rule.of
        case AlertScope.USER:
            return is_ours and each.user == rule.of
        case AlertScope.GROUP:
            return is_ours and each.group == rule.of
        case AlertScope.SITE:
            return each.side == "buy" and each.site == rule.of
        case AlertScope.ORIGIN:
            return each.side == "sell" and each.site == rule.of


def _both(one: OverdueDeliveries, other: OverdueDeliveries) -> OverdueDeliveries:
    costs_nanos = dict(one.costs_nanos)
    for currency, nanos in other.costs_nanos.items():
        costs_nanos[currency] = costs_nanos.get(currency, 0) + nanos
    return OverdueDeliveries(
        one.side,
        one.site,
        one.records + other.records,
        costs_nanos,
        min(one.oldest_s, other.oldest_s),
    )
