"""The standing of a rule, as `gridfed alerts` shows it. Pure.

The keys are an interface (`--json`): they are only ever added to.
"""

from collections.abc import Sequence
from typing import Any

from federation.money import format_money
from federation.words import duration_text
from gateway.ledger.db.alerts.records import AlertRow
from policies.costs.alerts import (
    AlertBudget,
    Facts,
    PriceLimit,
    Rule,
    Unacknowledged,
    overlooked,
    printable,
    whose,
)


def standing(rule: Rule, facts: Facts, told: Sequence[AlertRow]) -> dict[str, Any]:
    """Return a rule's present standing and its alerts: `told` may have the rows of others."""
    own = [row for row in told if row.name == rule.name]
    last_s = max((row.at_s for row in own), default=None)
    raised = [row.key for row in own if row.ended_at_s is None]
    shown: dict[str, Any] = {
        "name": rule.name,
        "kind": rule.kind,
        "severity": rule.severity.value,
        "as_of_s": facts.utc_s,
        "last_fired_at_s": last_s,
        "overlooked": list(overlooked(rule, facts).values()),
    }
    match rule:
        case AlertBudget():
            return shown | _budget(rule, facts, own)
        case PriceLimit():
            return shown | _price(rule, facts) | {"raised": raised}
        case Unacknowledged():
            return shown | _pending(rule, facts) | {"raised": raised}


def _budget(rule: AlertBudget, facts: Facts, own: Sequence[AlertRow]) -> dict[str, Any]:
    spending = facts.spent[rule.name]
    fired = {(row.key, row.level) for row in own}
    levels = [level for level in rule.levels if rule.mark(spending.period, level)[1:] in fired]
    estimate_nanos = spending.estimate_nanos(facts.utc_s)
    return {
        "what": f"{whose(rule)}, {spending.period.key}",
        "limit": format_money(rule.amount_nanos, rule.currency),
        "period": spending.period.key,
        "start_s": spending.period.start_at_s,
        "end_s": spending.period.end_at_s,
        "currency": rule.currency,
        "amount_nanos": rule.amount_nanos,
        "spent_nanos": spending.spent_nanos,
        "settled_nanos": spending.settled_nanos,
        "held_nanos": spending.held_nanos,
        "share_percent": round(100 * spending.spent_nanos / rule.amount_nanos, 3),
        "estimate_nanos": estimate_nanos,
        "others_nanos": dict(spending.others_nanos),
        "raised": levels,
    }


def _price(rule: PriceLimit, facts: Facts) -> dict[str, Any]:
    """Return the dearest of the pools that a rule covers, and their number."""
    covered = [each for each in facts.prices if rule.covers(each)]
    dearest = max(covered, key=lambda each: each.price_nanos, default=None)
    place = f"{printable(rule.site) or '*'}/{printable(rule.pool) or '*'}"
    return {
        "what": f"price at {place}",
        "limit": format_money(rule.limit_nanos, rule.currency),
        "currency": rule.currency,
        "limit_nanos": rule.limit_nanos,
        "pools": len(covered),
        "dearest": dearest.key if dearest else "",
        "price_nanos": dearest.price_nanos if dearest else None,
    }


def _pending(rule: Unacknowledged, facts: Facts) -> dict[str, Any]:
    late = facts.pending[rule.name]
    words = {"": "deliveries", "buy": "deliveries from", "sell": "deliveries to"}
    return {
        "what": f"{words[rule.side]} {printable(rule.site) or 'all sites'} without a verdict",
        "limit": duration_text(rule.after_s),
        "after_s": rule.after_s,
        "records": sum(each.records for each in late),
        "late": [
            {
                "side": each.side,
                "site": printable(each.site),
                "records": each.records,
                "costs_nanos": dict(each.costs_nanos),
                "oldest_s": each.oldest_s,
            }
            for each in late
        ],
    }
