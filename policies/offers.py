"""Whether a job can keep its deadline and its budget, and if not, what comes nearest. Pure.

By Nimrod-G's rule (Buyya, Abramson, Giddy 2000; Buyya and Murshed 2002) a job whose limits can't be
kept together is refused when it is submitted, and told by what limits it would be taken: the
earliest end within its budget, and the least money by its deadline. What judges is the planner
itself (`brokering.place`): a job is taken if there is a place for all of it, and an offer is named
only if it would be taken, so that who accepts it is not refused again. Which of time and money
counts more within the limits is the objective's to say, there as always.

Only what is known refuses. Nothing is judged while the length of a task is unknown; pools that are
shut, full of others' work, or not heard of lately count as they are; and where no offer can be
named, nobody is refused: who comes later may have room.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from federation.money import NANOS_LIMIT, format_money
from federation.reasons import NEVER, Reason
from policies.asks import CHEAPEST, FASTEST, Ask, House
from policies.brokering import Rest, place
from policies.decisions import Decision
from policies.market import Market
from policies.ranking import Chance

# Tasks vary: an offer has so much more time and money than is expected, and a minute to take it in.
SPARE: Final = 0.05
KEEP_S: Final = 60.0
HALVINGS: Final = 8  # the earliest end is found to a part of 256
STRETCHES: Final = 3  # limits that seemed enough, and weren't, are widened by half so often
SHARES_MAX: Final = 20  # that an offer names

FAR_S: Final = 1e9  # later than any job is waited for
# Reasons for which a plan is short because of the job's own limits.
OWN_LIMITS: Final = frozenset({Reason.DEADLINE, Reason.COST_LIMIT})


@dataclass(frozen=True, slots=True)
class Offer:
    """Limits by which all of an ask is taken, and what is expected then.

    Attributes:
        kind: "later" or "dearer".
        deadline_s, budget_nanos: what to ask for; one of them is the ask's own, if it has both.
        finish_s, cost_nanos: when it would be done (UTC), and for how much; None where it would be
            charged in several currencies.
        shares: site, pool, and tasks there.
    """

    kind: str
    deadline_s: float | None
    budget_nanos: int | None
    currency: str
    finish_s: float
    cost_nanos: int | None
    shares: tuple[tuple[str, str, int], ...]

    @property
    def text(self) -> str:
        """In words, as the end of a sentence."""
        places = ", ".join(dict.fromkeys(f"{site}/{pool}" for site, pool, _ in self.shares))
        if self.kind == "dearer":
            return f"in that time for {self._money(self.budget_nanos)}, at {places}"
        money = "for that money " if self.budget_nanos is not None else ""
        return f"{money}by {_when(self.deadline_s)}, at {places}"

    def to_plain(self) -> dict[str, Any]:
        """As it is told: values that any program can read."""
        return {
            "kind": self.kind,
            "deadline_s": self.deadline_s,
            "max_cost_nanos": self.budget_nanos,
            "max_cost": self._money(self.budget_nanos),
            "currency": self.currency,
            "finish_s": self.finish_s,
            "cost_nanos": self.cost_nanos,
            "cost": self._money(self.cost_nanos),
            "places": [
                {"site": site, "pool": pool, "tasks": tasks} for site, pool, tasks in self.shares
            ],
        }

    def _money(self, nanos: int | None) -> str:
        return "" if nanos is None else format_money(nanos, self.currency)


@dataclass(frozen=True, slots=True)
class Unmet:
    """An ask that can't keep its limits: how many of its tasks are too many, and the offers."""

    ask: Ask
    short: int
    reason: Reason
    offers: tuple[Offer, ...]

    @property
    def text(self) -> str:
        """In words."""
        ask, limits = self.ask, []
        if ask.deadline_s is not None:
            limits.append(f"by {_when(ask.deadline_s)}")
        if ask.budget_nanos is not None:
            limits.append(f"for {format_money(ask.budget_nanos, ask.terms.need.currency or '')}")
        length_s = ask.task_s or 0.0
        seconds = f"{length_s:.3g}" if length_s < 100 else f"{length_s:,.0f}"
        tasks = f"{ask.tasks:,} task{'s' * (ask.tasks != 1)} of {seconds} s"
        found = f"{tasks} can't all be done {' '.join(limits)}: {self.short:,} are too many"
        offers = "; or ".join(offer.text for offer in self.offers)
        return f"{found}. All can be done {offers}" if offers else found

    def to_plain(self) -> dict[str, Any]:
        """As it is told: values that any program can read."""
        return {
            "text": self.text,
            "short": self.short,
            "reason": self.reason.value,
            "offers": [offer.to_plain() for offer in self.offers],
        }


def judge(
    ask: Ask,
    market: Market,
    house: House,
    now_s: float,
    chance: Chance,
    resting: Mapping[str, Rest] | None = None,
) -> Unmet | None:
    """Judge whether all of an ask can be done within its limits; None when it can, as far as
    anybody knows.

    The arguments are those of `place`.
    """
    if ask.task_s is None or (ask.deadline_s is None and ask.budget_nanos is None):
        return None
    # Waiting for better hours is what it may do with the time that it has, and no limit.
    question = _Question(
        replace(ask, deferrable=False), market, house, now_s, chance, resting or {}
    )
    found = question.plan()
    if _is_whole(found):
        return None
    later, dearer = _later(question), _dearer(question)
    offers = tuple(offer for offer in (later, dearer) if offer is not None)
    return Unmet(ask, *_short(found), offers)


def falls_short(decision: Decision) -> bool:
    """Whether a plan leaves out what its job's own limits have no room for, and nothing else."""
    ask = decision.ask
    if ask.task_s is None or (ask.deadline_s is None and ask.budget_nanos is None):
        return False
    if decision.plan is not None:
        return decision.plan.short > 0 and decision.plan.reason in OWN_LIMITS
    hopes = [refusal.reason for _, refusal in decision.refused if refusal.reason not in NEVER]
    return bool(hopes) and OWN_LIMITS.issuperset(hopes)


@dataclass(frozen=True, slots=True)
class _Question:
    """An ask, and all that it takes to plan it under other limits."""

    ask: Ask
    market: Market
    house: House
    now_s: float
    chance: Chance
    resting: Mapping[str, Rest]

    def plan(self, **changes: Any) -> Decision:
        """Where it would go, were it changed so."""
        return self._place(self.house, changes)

    def plan_freely(self, **changes: Any) -> Decision:
        """The same, were the house to like nothing but the best."""
        return self._place(replace(self.house, band=0.0, prefer_own_s=0.0), changes)

    def _place(self, house: House, changes: dict[str, Any]) -> Decision:
        ask = replace(self.ask, **changes)
        return place(ask, self.market, house, self.now_s, self.chance, self.resting)


def _later(question: _Question) -> Offer | None:
    """The earliest end within the budget."""
    ask, now_s = question.ask, question.now_s
    if ask.deadline_s is None:
        return None
    far_s = now_s + FAR_S
    quickest = question.plan_freely(deadline_s=far_s, objective=FASTEST)
    if not _is_whole(quickest):  # among others than these, it may be
        quickest = question.plan(deadline_s=far_s)
    if not _is_whole(quickest) or quickest.plan is None:
        return None
    low_s, need_s = max(0.0, ask.deadline_s - now_s), quickest.plan.finish_s

    def takes(span_s: float) -> bool:
        return _is_whole(question.plan(deadline_s=now_s + span_s))

    high_s = next((each for each in _stretched(need_s) if takes(each)), None)
    if high_s is None:
        return None
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if takes(middle_s) else (middle_s, high_s)
    return _offer("later", question.plan(deadline_s=now_s + high_s * (1 + SPARE) + KEEP_S))


def _dearer(question: _Question) -> Offer | None:
    """The least cost by the deadline."""
    if question.ask.budget_nanos is None:
        return None
    cheapest = question.plan_freely(budget_nanos=None, objective=CHEAPEST)
    if not _is_whole(cheapest):
        cheapest = question.plan(budget_nanos=None)
    if not _is_whole(cheapest) or cheapest.plan is None:
        return None
    for cost in _stretched(cheapest.plan.cost_nanos * (1 + SPARE)):
        budget_nanos = -int(-cost // 1)
        if budget_nanos > NANOS_LIMIT:
            return None
        found = _offer("dearer", question.plan(budget_nanos=budget_nanos))
        if found is not None:
            return found
    return None


def _stretched(least: float) -> list[float]:
    return [least * 1.5**times for times in range(STRETCHES + 1)]


def _offer(kind: str, decision: Decision) -> Offer | None:
    """An offer, by a plan that keeps it; None when the plan does not."""
    plan, ask = decision.plan, decision.ask
    if plan is None or not _is_whole(decision):
        return None
    shares = tuple((*lane.key, tasks) for lane, tasks in plan.shares[:SHARES_MAX])
    currencies = {lane.currency for lane, _ in plan.shares}
    currency = currencies.pop()
    cost_nanos = None if currencies else min(plan.cost_nanos, NANOS_LIMIT)
    finish_s = decision.made_s + plan.finish_s
    return Offer(kind, ask.deadline_s, ask.budget_nanos, currency, finish_s, cost_nanos, shares)


def _is_whole(decision: Decision) -> bool:
    return decision.plan is not None and not decision.plan.short


def _short(decision: Decision) -> tuple[int, Reason]:
    """How many tasks have no place, and why."""
    if decision.plan is not None:
        return decision.plan.short, decision.plan.reason or Reason.DEADLINE
    reasons = {refusal.reason for _, refusal in decision.refused}
    is_dear = Reason.COST_LIMIT in reasons and Reason.DEADLINE not in reasons
    return decision.ask.tasks, Reason.COST_LIMIT if is_dear else Reason.DEADLINE


def _when(utc_s: float | None) -> str:
    """A moment, for people."""
    return f"{datetime.fromtimestamp(utc_s or 0.0, UTC):%Y-%m-%d %H:%M:%S} UTC"
