"""Alerts on budgets, prices and deliveries without a verdict: when to raise and end them. Pure.

A rule is judged by the facts of the moment and by the alerts raised before. An alert has a mark,
(name, key, level), and is raised once for each mark. A budget's key is its period with its amount,
so a new period or another amount starts again. A price's key is the pool; a delivery's key is the
side and the site. An alert of these two kinds ends when its cause ends, and can be raised again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from math import floor
from typing import Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from federation.clocks import UtcS
from federation.money import format_money
from federation.words import clean, duration_text
from policies.calendar.periods import Period, PeriodLength, period_at

LEVELS: Final = (50, 80, 100)  # per cent of a budget
CLEAR_PERCENT: Final = 10.0
PENDING_H: Final = 24.0
NAME_CHARS_MAX: Final = 200  # of a name that another party chose
# Before this share of a period has passed, a linear estimate means nothing.
ESTIMATE_FROM: Final = 0.01

Kind = Literal["budget", "price", "unacknowledged"]


class Severity(StrEnum):
    """The severity of an alert, for tools that sort alerts."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class AlertScope(StrEnum):
    """The scope of a budget: the spending that counts for it."""

    ALL = "all"  # all users of this site
    PROJECT = "project"  # of this site
    USER = "user"  # of this site
    GROUP = "group"  # of this site's users
    SITE = "site"  # that this site buys from, for any user
    ORIGIN = "origin"  # a site that this site sells to


class Mark(NamedTuple):
    """The identity of an alert: each mark is raised once."""

    name: str
    key: str
    level: int


@dataclass(frozen=True, slots=True)
class AlertBudget:
    """An amount for each calendar period, and the shares of it that raise an alert.

    `levels` are in per cent, in rising order.
    """

    name: str
    amount_nanos: int
    currency: str
    whose: AlertScope = AlertScope.ALL
    of: str = ""
    span: PeriodLength = PeriodLength.MONTH
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    levels: tuple[int, ...] = LEVELS
    severity: Severity = Severity.WARNING
    kind: Kind = "budget"

    def period_at(self, utc_s: UtcS) -> Period:
        """The current period."""
        return period_at(self.span, self.zone, utc_s)

    def mark(self, period: Period, level: int) -> Mark:
        """Return the mark of the alert for this level of a period."""
        return Mark(
            self.name, f"{period.key} {format_money(self.amount_nanos, self.currency)}", level
        )


@dataclass(frozen=True, slots=True)
class PriceLimit:
    """A price per slot-hour that a pool should not exceed.

    Attributes:
        site: the pool's site; empty: every known site, including this one.
        pool: its name; empty: every pool of such sites.
        clear_percent: how far below the limit a price must fall before a new rise is reported. A
            price that fluctuates around the limit is reported once.
    """

    name: str
    limit_nanos: int
    currency: str
    site: str = ""
    pool: str = ""
    clear_percent: float = CLEAR_PERCENT
    severity: Severity = Severity.WARNING
    kind: Kind = "price"

    @property
    def clear_nanos(self) -> int:
        """The price at or below which the alert is over."""
        return floor(self.limit_nanos * (100 - Fraction(self.clear_percent)) / 100)

    def covers(self, price: "PoolPrice") -> bool:
        """Whether the rule applies to this pool, and the pool's price is in the rule's currency."""
        return self.is_about(price) and self.currency == price.currency

    def is_about(self, price: "PoolPrice") -> bool:
        """Whether the rule applies to this pool."""
        return self.site in ("", price.site) and self.pool in ("", price.pool)


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """A limit in seconds on the time that deliveries may be without a verdict.

    Empty `site` and `side` match all. Side "buy" is deliveries to this site, "sell" those from it.
    """

    name: str
    after_s: float = PENDING_H * 3600
    site: str = ""
    side: str = ""
    severity: Severity = Severity.WARNING
    kind: Kind = "unacknowledged"


Rule = AlertBudget | PriceLimit | Unacknowledged


# --- facts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlertSpending:
    """The spending that counts for a budget in its period, and its part without a verdict.

    Amounts between sites that were reversed since are in neither.

    `others_nanos` is the spending in other currencies, by currency. It does not count.
    """

    period: Period
    spent_nanos: int
    held_nanos: int
    others_nanos: Mapping[str, int] = field(default_factory=dict)

    @property
    def settled_nanos(self) -> int:
        """The part that is settled."""
        return self.spent_nanos - self.held_nanos

    def estimate_nanos(self, utc_s: UtcS) -> int | None:
        """Extrapolate the spending to the end of the period; None while it is too early."""
        whole_s = self.period.end_at_s - self.period.start_at_s
        passed_s = utc_s - self.period.start_at_s
        if passed_s < whole_s * ESTIMATE_FROM:
            return None
        return max(self.spent_nanos, round(self.spent_nanos * whole_s / passed_s))


@dataclass(frozen=True, slots=True)
class PoolPrice:
    """The advertised price of a slot-hour of a pool."""

    site: str
    pool: str
    price_nanos: int
    currency: str

    @property
    def key(self) -> str:
        """The printable name of the pool."""
        return f"{printable(self.site)}/{printable(self.pool)}"


@dataclass(frozen=True, slots=True)
class OverdueDeliveries:
    """Deliveries of one side and site that have had no verdict for longer than a rule allows.

    `costs_nanos` is by currency; `oldest_s` is the time of the first delivery.
    """

    side: str
    site: str
    records: int
    costs_nanos: Mapping[str, int]
    oldest_s: UtcS

    @property
    def key(self) -> str:
        """The side and the printable name of the site."""
        return f"{self.side} {printable(self.site)}"


@dataclass(frozen=True, slots=True)
class Facts:
    """The input to the rules at one moment; `spent` and `pending` are by the name of the rule."""

    utc_s: UtcS
    spent: Mapping[str, AlertSpending] = field(default_factory=dict)
    prices: Collection[PoolPrice] = ()
    pending: Mapping[str, Collection[OverdueDeliveries]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """A message to people. `facts` is plain data; its texts are printable."""

    mark: Mark
    kind: Kind
    severity: Severity
    at_s: UtcS
    text: str
    facts: Mapping[str, Any]


# --- judgement -----------------------------------------------------------------------------------


def judge(rules: Iterable[Rule], facts: Facts, raised: Collection[Mark]) -> list[Alert]:
    """Return the new alerts, in the order of the rules and of their levels.

    Args:
        rules: with distinct names.
        facts: of this moment; a rule without facts is not judged.
        raised: the alerts that were raised and are not over.
    """
    found = [alert for rule in rules for alert in _alerts(rule, facts)]
    return [alert for alert in found if alert.mark not in raised]


def ended(rules: Iterable[Rule], facts: Facts, raised: Collection[Mark]) -> list[Mark]:
    """Return the marks of `raised` that are over. A pool that left all adverts stays raised."""
    over: list[Mark] = []
    for rule in rules:
        match rule:
            case PriceLimit():
                low = (each for each in facts.prices if rule.covers(each))
                keys = {each.key for each in low if each.price_nanos <= rule.clear_nanos}
            case Unacknowledged() if rule.name in facts.pending:
                late = {each.key for each in facts.pending[rule.name]}
                keys = {mark.key for mark in raised if mark.name == rule.name} - late
            case _:
                continue
        over += sorted(mark for mark in raised if mark.name == rule.name and mark.key in keys)
    return over


def overlooked(rule: Rule, facts: Facts) -> dict[str, str]:
    """Return warnings on what a rule appears to watch but does not, by subject.

    A rule watches one currency, and pools that exist. A mistake in either would mean an alert that
    never comes.
    """
    match rule:
        case AlertBudget() if rule.name in facts.spent:
            spending = facts.spent[rule.name]
            others, period = spending.others_nanos, spending.period.key
            text = (
                f"{whose(rule)}, {period}: {_amounts(others)} was spent in other "
                f"currencies, and does not count for a budget in {rule.currency}"
            )
            return {f"{period} {' '.join(sorted(others))}": text} if others else {}
        case PriceLimit():
            return _unpriced(rule, facts)
        case _:
            return {}


def _unpriced(rule: PriceLimit, facts: Facts) -> dict[str, str]:
    place = f"{printable(rule.site) or '*'}/{printable(rule.pool) or '*'}"
    meant = [each for each in facts.prices if rule.is_about(each)]
    if not meant:
        return {place: f"no pool {place} is known: the rule watches nothing until the pool appears"}
    return {
        each.key: f"{each.key} is priced in {each.currency}, and the limit is in {rule.currency}"
        for each in meant
        if not rule.covers(each)
    }


def sample(rule: Rule, utc_s: UtcS) -> Alert:
    """Return an alert of a rule whose text says that it is a test."""
    text = f"test of the alert {rule.name}: nothing has happened"
    return Alert(Mark(rule.name, "test", 0), rule.kind, rule.severity, utc_s, text, {})


def printable(name: str, chars_max: int = NAME_CHARS_MAX) -> str:
    """Make a name safe to print: no control characters, and a limited length."""
    shown = clean(name[:chars_max])
    return shown if len(name) <= chars_max else f"{shown}…"


def moment(at_s: UtcS) -> str:
    """Format a time in ISO form, UTC."""
    return f"{datetime.fromtimestamp(float(at_s), UTC):%Y-%m-%dT%H:%M:%SZ}"


def _alerts(rule: Rule, facts: Facts) -> Iterator[Alert]:
    def alert(mark: Mark, text: str, told: dict[str, Any]) -> Alert:
        return Alert(mark, rule.kind, rule.severity, facts.utc_s, f"{rule.name}: {text}", told)

    match rule:
        case AlertBudget() if rule.name in facts.spent:
            spending = facts.spent[rule.name]
            for level in rule.levels:
                if spending.spent_nanos * 100 >= rule.amount_nanos * level:
                    text, told = _budget_text(rule, spending, level, facts.utc_s)
                    yield alert(rule.mark(spending.period, level), text, told)
        case PriceLimit():
            for price in facts.prices:
                if rule.covers(price) and price.price_nanos > rule.limit_nanos:
                    yield _price_alert(rule, price, alert)
        case Unacknowledged():
            for pending in facts.pending.get(rule.name, ()):
                yield _pending_alert(rule, pending, alert)


_Make = Callable[[Mark, str, dict[str, Any]], Alert]


def whose(rule: AlertBudget) -> str:
    """Return a budget's scope in words."""
    words = {
        AlertScope.ALL: "all users",
        AlertScope.PROJECT: "project ",
        AlertScope.USER: "user ",
        AlertScope.GROUP: "group ",
        AlertScope.SITE: "bought from ",
        AlertScope.ORIGIN: "sold to ",
    }
    return words[rule.whose] + printable(rule.of)


def _budget_text(
    rule: AlertBudget, spending: AlertSpending, level: int, utc_s: UtcS
) -> tuple[str, dict[str, Any]]:
    def money(nanos: int) -> str:
        return format_money(nanos, rule.currency)

    share = 100 * spending.spent_nanos / rule.amount_nanos
    estimate_nanos = spending.estimate_nanos(utc_s)
    text = (
        f"{whose(rule)}, {spending.period.key}: {level} % of {money(rule.amount_nanos)} is reached"
        f" ({share:.1f} %): {money(spending.settled_nanos)} settled, "
        f"{money(spending.held_nanos)} held"
    )
    if estimate_nanos is not None:
        text += f"; estimated {money(estimate_nanos)} by the end of the period"
    if spending.others_nanos:
        text += f"; {_amounts(spending.others_nanos)} in other currencies does not count"
    return text, {
        "whose": rule.whose.value,
        "of": printable(rule.of),
        "period": spending.period.key,
        "start_s": spending.period.start_at_s,
        "end_s": spending.period.end_at_s,
        "currency": rule.currency,
        "amount_nanos": rule.amount_nanos,
        "settled_nanos": spending.settled_nanos,
        "held_nanos": spending.held_nanos,
        "share_percent": round(share, 3),
        "estimate_nanos": estimate_nanos,
        "others_nanos": dict(spending.others_nanos),
    }


def _amounts(nanos: Mapping[str, int]) -> str:
    return ", ".join(format_money(each, currency) for currency, each in sorted(nanos.items()))


def _price_alert(rule: PriceLimit, price: PoolPrice, alert: _Make) -> Alert:
    now, limit = (
        format_money(nanos, rule.currency) for nanos in (price.price_nanos, rule.limit_nanos)
    )
    return alert(
        Mark(rule.name, price.key, 0),
        f"a slot-hour of {price.key} costs {now}, above {limit}",
        {
            "site": printable(price.site),
            "pool": printable(price.pool),
            "currency": price.currency,
            "price_nanos": price.price_nanos,
            "limit_nanos": rule.limit_nanos,
        },
    )


def _pending_alert(rule: Unacknowledged, pending: OverdueDeliveries, alert: _Make) -> Alert:
    amounts = _amounts(pending.costs_nanos)
    noun = "delivery" if pending.records == 1 else "deliveries"
    direction = "from" if pending.side == "buy" else "to"
    return alert(
        Mark(rule.name, pending.key, 0),
        f"{pending.records:,} {noun} {direction} {printable(pending.site)} ({amounts}) had "
        f"no verdict for more than {duration_text(rule.after_s)}; the oldest is of "
        f"{moment(pending.oldest_s)}",
        {
            "side": pending.side,
            "site": printable(pending.site),
            "records": pending.records,
            "costs_nanos": dict(pending.costs_nanos),
            "oldest_s": pending.oldest_s,
        },
    )
