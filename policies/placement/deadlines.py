"""The expected end of a job against its deadline, and the ways to meet it. Pure.

The plan of a job with a deadline has only what ends in time, so it does not say when the rest would
end. The same ask without its deadline does. Each way out is tried by a plan before it is named.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from federation.clocks import UtcS
from federation.money import format_money
from federation.offers import Offer, show_time
from federation.words import count, duration_text
from policies.placement.asks import Demand, Preferences
from policies.placement.brokering import BackoffEnd, place
from policies.placement.decisions import Decision
from policies.placement.market import Market
from policies.placement.ranking import Chance


@dataclass(frozen=True, slots=True)
class DeadlineCheck:
    """A deadline against the expected end of the tasks of a job that have not ended.

    Attributes:
        deadline_s: the deadline, UTC.
        made_at_s: now, UTC.
        tasks: the number of tasks that are counted.
        finish_at_s: the expected end of all of them, UTC, if the deadline did not bind the plan;
            None if it is not known.
        in_time: the number that can be done by the deadline; None if it is not known.
        is_measured: whether the duration of a task is known; if not, only the wait before the tasks
            counts.
        ways: the ways to meet it, each in words.
    """

    deadline_s: UtcS
    made_at_s: UtcS
    tasks: int
    finish_at_s: UtcS | None
    in_time: int | None
    is_measured: bool
    ways: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool | None:
        """Whether all tasks are expected to end in time; None if that is not known."""
        if self.made_at_s >= self.deadline_s:
            return False
        if self.finish_at_s is not None and self.finish_at_s > self.deadline_s:
            return False
        if self.in_time is not None and self.in_time < self.tasks:
            return False
        return None if self.finish_at_s is None or not self.is_measured else True

    @property
    def text(self) -> str:
        """The answer for people."""
        deadline, is_met = show_time(self.deadline_s), self.is_met
        if self.made_at_s >= self.deadline_s:
            return f"the deadline {deadline} has passed"
        if is_met is None:
            why = "no slot is free to plan with"
            if not self.is_measured:
                why = "no task of it has been measured, and task_s is not given"
            return f"it is not known whether the deadline {deadline} is met: {why}"
        end = "" if self.finish_at_s is None else f"done by {show_time(self.finish_at_s)}"
        apart = duration_text(abs(self.deadline_s - (self.finish_at_s or self.deadline_s)))
        if is_met:
            return f"the deadline {deadline} is met: {end}, {apart} before it"
        found = f"the deadline {deadline} will be missed"
        if self.finish_at_s is not None:
            found += f": {count(self.tasks, 'task')} would be {end}, {apart} after it"
        if self.in_time is not None and self.tasks > 1:
            fitting = f"{self.in_time:,}" if self.in_time else "none"
            found += f"; {fitting} of them can be done in time"
        if self.ways:
            found += f". It would be met by {'; or by '.join(self.ways)}"
        return found

    def to_plain(self) -> dict[str, Any]:
        """Convert to plain values that any program can read."""
        return {
            "deadline_s": self.deadline_s,
            "finish_s": self.finish_at_s,
            "is_met": self.is_met,
            "tasks": self.tasks,
            "in_time": self.in_time,
            "ways": list(self.ways),
            "text": self.text,
        }


def check_deadline(
    decision: Decision,
    market: Market,
    preferences: Preferences,
    chance: Chance,
    site_backoff: Mapping[str, BackoffEnd],
    offers: Sequence[Offer],
    busy_until_s: UtcS | None = None,
) -> DeadlineCheck | None:
    """Compare the deadline of an ask with the expected end of its tasks; None without a deadline.

    Args:
        decision: the plan of the ask. Its arguments follow, as those of `place`.
        market: the knowledge of all pools.
        preferences: this site's preferences.
        chance: for the draw among near-equals.
        site_backoff: sites and pools in back-off.
        offers: wider limits that would be accepted, if the plan was judged.
        busy_until_s: when those of its tasks that run now are expected to end, UTC.
    """
    ask, utc_s, plan = decision.ask, decision.made_at_s, decision.plan
    if ask.deadline_s is None:
        return None

    def planned(**changes: Any) -> Decision:
        found = replace(ask, deferrable=False, **changes)
        return place(found, market, preferences, utc_s, chance, site_backoff)

    finish_at_s = _end_at_s(decision)
    in_time = ask.tasks if finish_at_s is not None else ask.tasks - plan.short if plan else 0
    ways: list[str] = []
    if finish_at_s is None:
        finish_at_s = _end_at_s(planned(deadline_s=None))
        if finish_at_s is not None and finish_at_s <= ask.deadline_s:
            finish_at_s = None  # it is short for another reason than its deadline
        if ask.deadline_s > utc_s:
            ways = [*map(_way, offers), *_elsewhere(ask, planned)]
    if finish_at_s is not None and busy_until_s is not None:
        finish_at_s = max(finish_at_s, busy_until_s)
    is_measured = ask.task_s is not None
    # Without a measured duration only a first round is planned: it says nothing of the rest.
    counted = in_time if is_measured or plan is None else None
    return DeadlineCheck(
        ask.deadline_s, utc_s, ask.tasks, finish_at_s, counted, is_measured, tuple(ways)
    )


def _elsewhere(ask: Demand, planned: Callable[..., Decision]) -> Iterator[str]:
    """Yield where an ask would be done in time if it did not name its sites."""
    terms = ask.terms
    if terms.allowed_sites is None and not terms.forbidden_sites:
        return
    found = planned(terms=replace(terms, allowed_sites=None, forbidden_sites=frozenset()))
    if _end_at_s(found) is not None and found.plan is not None:
        places = ", ".join(sorted({"/".join(lane.key) for lane, _ in found.plan.shares}))
        yield f"letting it run at {places} as well (`sites`, `not_sites`)"


def _end_at_s(decision: Decision) -> UtcS | None:
    """Return when all of a plan ends, UTC; None where it has not all."""
    if decision.deferral is not None and decision.puts_off:
        return decision.deferral.finish_at_s
    plan = decision.plan
    if plan is None or plan.short:
        return None
    return decision.made_at_s + plan.finish_s


def _way(offer: Offer) -> str:
    if offer.kind == "later" and offer.deadline_s is not None:
        return f"a deadline of {show_time(offer.deadline_s)}"
    money = (
        "any cost limit"
        if offer.max_cost_nanos is None
        else f"a cost limit of {format_money(offer.max_cost_nanos, offer.currency)}"
    )
    places = ", ".join(dict.fromkeys(f"{site}/{pool}" for site, pool, _ in offer.places))
    return f"{money}, at {places}"
