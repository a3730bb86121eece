"""Whether a job can keep its deadline and its budget, and if not, the nearest offers. Pure.

By Nimrod-G's rule (Buyya, Abramson, Giddy 2000; Buyya and Murshed 2002) a job whose limits can't be
kept together is refused when it is submitted, together with limits by which it would be taken: the
earliest end within its budget, and the least money by its deadline. The planner itself judges
(`brokering.place`): a job is taken if there is a place for all of it, and an offer is made only if
it would be taken, so that accepting it does not lead to another refusal. The objective decides, as
always, whether time or money counts more within the limits.

Only known facts refuse. Nothing is judged while the duration of a task is unknown. Pools that are
closed, full of others' work, or silent count as they are. Where no offer can be made, only a
hopeless job is refused: at every known pool one task costs more than the whole job may, or takes
longer than the time until the deadline. Any other job may be done by a pool that has room later.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final, Literal

from federation.clocks import UtcS
from federation.money import NANOS_LIMIT, format_money
from federation.offers import PLACES_MAX, Offer, show_time
from federation.reasons import NEVER, Reason
from federation.words import count, duration_text
from policies.placement.asks import CHEAPEST, FASTEST, Demand, Preferences
from policies.placement.brokering import BackoffEnd, place
from policies.placement.decisions import Decision
from policies.placement.estimates import affords, least_nanos
from policies.placement.market import Market
from policies.placement.ranking import Chance

# Tasks vary: an offer adds this share of time and money to the estimate, and time to accept it.
SPARE: Final = 0.05
KEEP_S: Final = 60.0
HALVINGS: Final = 6  # the earliest end is found to a part of 64
STRETCHES: Final = 3  # limits that turn out too tight are widened by half this often
DIGITS: Final = 3  # significant digits of an amount for people, rounded up

FAR_S: Final = 1e9  # later than the end of any job
# Reasons for which a plan is short because of the job's own limits.
OWN_LIMITS: Final = frozenset({Reason.DEADLINE, Reason.COST_LIMIT})


@dataclass(frozen=True, slots=True)
class Unmet:
    """An ask that can't keep its limits: the number of its tasks that don't fit, and the offers."""

    ask: Demand
    short: int
    reason: Reason
    offers: tuple[Offer, ...]
    why: str = ""  # why not even one of its tasks can be done

    @property
    def text(self) -> str:
        """A text that says what can't be done, how much of it could, and what can."""
        ask, limits = self.ask, []
        if ask.deadline_s is not None:
            limits.append(f"by {show_time(ask.deadline_s)}")
        if ask.budget_nanos is not None:
            limits.append(f"for {format_money(ask.budget_nanos, ask.terms.need.currency or '')}")
        each = duration_text(ask.task_s or 0.0)
        them, could = "It", ""
        tasks = f"1 task of {each}"
        if ask.tasks > 1:
            them, tasks = "All", f"{count(ask.tasks, 'task')} of {each}"
            fitting = ask.tasks - self.short
            could = f"; {fitting:,} of them can" if fitting else "; none of them can"
        found = f"{tasks} can't{' all' * (ask.tasks > 1)} be done {' '.join(limits)}{could}"
        if self.why:
            found = f"{found}: {self.why}"
        if not self.offers:
            return found
        return f"{found}. {them} can {'; or '.join(offer.text for offer in self.offers)}"

    def to_plain(self) -> dict[str, Any]:
        """Convert to plain values that any program can read."""
        return {
            "text": self.text,
            "short": self.short,
            "reason": self.reason.value,
            "offers": [offer.to_plain() for offer in self.offers],
        }


def judge(
    ask: Demand,
    market: Market,
    preferences: Preferences,
    utc_s: UtcS,
    chance: Chance,
    site_backoff: Mapping[str, BackoffEnd] | None = None,
) -> Unmet | None:
    """Judge whether all of an ask can be done within its limits; None when it can.

    None is also the answer while too little is known. The arguments are those of `place`.
    """
    if ask.task_s is None or (ask.deadline_s is None and ask.budget_nanos is None):
        return None
    # Deferral is an option within the time that it has, and no limit.
    question = _Question(
        replace(ask, deferrable=False), market, preferences, utc_s, chance, site_backoff or {}
    )
    found = question.plan()
    if _is_whole(found):
        return None
    later, dearer = _later(question), _dearer(question)
    offers = tuple(offer for offer in (later, dearer) if offer is not None)
    return Unmet(ask, *_short(found), offers)


def why_hopeless(one: Decision) -> str:
    """Explain why a cost limit pays for no task at any known pool; empty where it may.

    Every pool that could run it, now or later, would cost more at each advertised price, also those
    of later hours: so this stays true at any load and any number of slots.

    Args:
        one: the plan of a single task.
    """
    if one.plan is not None or one.ask.budget_nanos is None or one.ask.task_s is None:
        return ""
    hopes = [found for found, refusal in one.refused if refusal.reason not in NEVER]
    if not hopes or any(affords(one.ask, each) for each in hopes):
        return ""
    cheapest = min(hopes, key=lambda each: least_nanos(one.ask, each))
    cost = format_money(least_nanos(one.ask, cheapest), cheapest.advert.currency)
    return f"one task costs {cost} at {'/'.join(cheapest.key)}, the cheapest pool"


def why_too_late(one: Decision) -> str:
    """Explain why no task can end by the deadline at any known pool; empty where one may.

    Even a task that begins at once would end too late: so this stays true at any load.

    Args:
        one: the plan of a single task.
    """
    ask = one.ask
    if one.plan is not None or ask.deadline_s is None or ask.task_s is None:
        return ""
    sites = {found.key[0] for found, refusal in one.refused if refusal.reason not in NEVER}
    least_s = min((ask.task_s_at.get(each, ask.task_s) for each in sites), default=0.0)
    late_s = one.made_at_s + least_s - ask.deadline_s
    if not sites or late_s <= 0.0:
        return ""
    return f"one that begins now ends {duration_text(late_s)} after the deadline"


def falls_short(decision: Decision) -> bool:
    """Whether a plan leaves tasks out because of its job's own limits, and for no other reason."""
    ask = decision.ask
    if ask.task_s is None or (ask.deadline_s is None and ask.budget_nanos is None):
        return False
    if decision.plan is not None:
        return decision.plan.short > 0 and decision.plan.reason in OWN_LIMITS
    hopes = [refusal.reason for _, refusal in decision.refused if refusal.reason not in NEVER]
    return bool(hopes) and OWN_LIMITS.issuperset(hopes)


@dataclass(frozen=True, slots=True)
class _Question:
    """An ask, and all the inputs needed to plan it under other limits."""

    ask: Demand
    market: Market
    preferences: Preferences
    utc_s: UtcS
    chance: Chance
    site_backoff: Mapping[str, BackoffEnd]

    def plan(self, **changes: Any) -> Decision:
        """Plan the ask with these changes."""
        return self._place(self.preferences, changes)

    def plan_freely(self, **changes: Any) -> Decision:
        """Plan the ask with these changes, without the site's price band and its own preference."""
        return self._place(replace(self.preferences, band=0.0, prefer_own_s=0.0), changes)

    def _place(self, preferences: Preferences, changes: dict[str, Any]) -> Decision:
        ask = replace(self.ask, **changes)
        return place(ask, self.market, preferences, self.utc_s, self.chance, self.site_backoff)


def _later(question: _Question) -> Offer | None:
    """Offer the earliest end within the budget."""
    ask, utc_s = question.ask, question.utc_s
    if ask.deadline_s is None:
        return None
    far_s = utc_s + FAR_S
    quickest = question.plan_freely(deadline_s=far_s, objective=FASTEST)
    if not _is_whole(quickest):  # it may be, with a choice of other pools
        quickest = question.plan(deadline_s=far_s)
    if not _is_whole(quickest) or quickest.plan is None:
        return None
    low_s, need_s = max(0.0, ask.deadline_s - utc_s), quickest.plan.finish_s

    def takes(span_s: float) -> bool:
        return _is_whole(question.plan(deadline_s=utc_s + span_s))

    high_s = next((each for each in _stretched(need_s) if takes(each)), None)
    if high_s is None:
        return None
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if takes(middle_s) else (middle_s, high_s)
    deadline_s = float(ceil(utc_s + high_s * (1 + SPARE) + KEEP_S))
    return _offer("later", question.plan(deadline_s=deadline_s))


def _dearer(question: _Question) -> Offer | None:
    """Offer the least cost by the deadline."""
    ask = question.ask
    if ask.budget_nanos is None:
        return None
    # It is accepted some time later: the deadline must have room for that.
    deadlines = [None if ask.deadline_s is None else ask.deadline_s - _accept_s(question)]
    deadlines += [] if ask.deadline_s is None else [ask.deadline_s]
    for deadline_s in deadlines:
        cheapest = question.plan_freely(
            budget_nanos=None, objective=CHEAPEST, deadline_s=deadline_s
        )
        if not _is_whole(cheapest):
            cheapest = question.plan(budget_nanos=None, deadline_s=deadline_s)
        if not _is_whole(cheapest) or cheapest.plan is None:
            continue
        for cost in _stretched(cheapest.plan.cost_nanos * (1 + SPARE)):
            budget_nanos = _rounded_up(cost)
            if budget_nanos > NANOS_LIMIT:
                return None
            if _is_whole(question.plan(budget_nanos=budget_nanos, deadline_s=deadline_s)):
                found = _offer("dearer", question.plan(budget_nanos=budget_nanos))
                if found is not None:
                    return found
    return None


def _accept_s(question: _Question) -> float:
    """Return the time that an offer within the same deadline leaves for its acceptance."""
    ask = question.ask
    assert ask.deadline_s is not None
    return min(KEEP_S, SPARE * max(0.0, ask.deadline_s - question.utc_s))


def _stretched(least: float) -> list[float]:
    return [least * 1.5**times for times in range(STRETCHES + 1)]


def _rounded_up(nanos: float) -> int:
    """Round an amount up to DIGITS digits."""
    step: int = 10 ** max(0, len(str(ceil(nanos))) - DIGITS)
    return -(-ceil(nanos) // step) * step


def _offer(kind: Literal["later", "dearer"], decision: Decision) -> Offer | None:
    """Make an offer from a plan that keeps it; None when the plan does not."""
    plan, ask = decision.plan, decision.ask
    if plan is None or not _is_whole(decision):
        return None
    largest = sorted(plan.shares, key=lambda share: -share[1])[:PLACES_MAX]
    currencies = {lane.currency for lane, _ in plan.shares}
    is_one = len(currencies) == 1
    return Offer(
        kind,
        None if ask.deadline_s is None else float(ask.deadline_s),
        ask.budget_nanos,
        currencies.pop() if is_one else "",
        float(decision.made_at_s) + plan.finish_s,
        min(plan.cost_nanos, NANOS_LIMIT) if is_one else None,
        tuple((*lane.key, tasks) for lane, tasks in largest),
    )


def _is_whole(decision: Decision) -> bool:
    return decision.plan is not None and not decision.plan.short


def _short(decision: Decision) -> tuple[int, Reason]:
    """Return how many tasks have no place, and why."""
    if decision.plan is not None:
        return decision.plan.short, decision.plan.reason or Reason.DEADLINE
    reasons = {refusal.reason for _, refusal in decision.refused}
    is_dear = Reason.COST_LIMIT in reasons and Reason.DEADLINE not in reasons
    return decision.ask.tasks, Reason.COST_LIMIT if is_dear else Reason.DEADLINE
