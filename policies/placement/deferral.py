"""Deferring a job to better hours: greener or cheaper, as its objective weighs them. Pure.

A task that starts at t in a pool has the worth w(t): the objective's weight of its carbon and
money, as the mean over its run. All pools start tasks wherever and whenever w(t) is within a limit,
each slot as soon as it may. The chosen limit is the least by which everything is done in time.
Starting as early as possible, in the allowed times, fits in the most runs of one length, and a
higher limit allows all that a lower one does: so bisection finds it. Surplus tasks are left out
where they are worst, and the remaining runs move to their best place between the others. (The
greenest slots before a deadline: Wiesner et al., Let's Wait Awhile, Middleware 2021.)

In time means `defer_margin_s` before the deadline even if every task takes longer by
`defer_margin`. The part of this plan that begins at once is placed. The rest waits, if all of it
together is better than beginning now by `defer_gain`. The plan is made anew as time goes on, and
gives nothing away: turning back to beginning at once loses no more than waiting had gained.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Any, Final, NamedTuple

from federation.clocks import UtcS
from federation.money import format_money
from federation.words import count
from policies.placement.asks import Demand, Preferences, WhenClosed
from policies.placement.estimates import ROUNDING, price_over
from policies.placement.market import Candidate, Key, PricedSpan
from policies.placement.outlook import Curve, added, flat
from policies.placement.ranking import Ranked, UtilityScale
from policies.placement.splitting import Split

SAME_S: Final = 1e-3  # times that differ by less are the same
DIGITS: Final = 9  # figures that agree to this many digits, as parts of the largest, are equal
LATE_S: Final = 5.0  # how late a plan may be carried out, but at most half of the margin


@dataclass(frozen=True, slots=True, eq=False)
class Berth:
    """A pool's slots over a time in which they could run an ask's tasks.

    Attributes:
        task_s, counted_s: the expected duration of a task, and the duration that is planned for it.
        from_s, until_s: UTC; when the first could start, and when the last must have ended.
        lead_s: the transfer time of tasks sent there.
        is_open: whether tasks that begin at `from_s` are to be sent there now.
        worth, grams, money: of a slot-second: the objective's value, of which less is better; CO2e;
            nano-units of this site's currency.
        starts: times between which w(t) is linear, each with w(t); empty when nothing fits.
    """

    key: Key
    is_own: bool
    slots: int
    task_s: float
    counted_s: float
    from_s: UtcS
    until_s: UtcS
    lead_s: float
    is_open: bool
    worth: Curve
    grams: Curve
    money: Curve
    starts: Sequence[tuple[UtcS, float]]

    def runs(self, limit: float) -> "Iterator[SlotRun]":
        """Yield all the runs that it can do where w(t) is within a limit, in order."""
        free_s = self.from_s
        points = self.starts if len(self.starts) != 1 else [*self.starts, *self.starts]
        for before, after in pairwise(points):
            allowed = _below(before, after, limit)
            if allowed is None or free_s > allowed[1] + SAME_S:
                continue
            begin_at_s = max(free_s, allowed[0])
            more = max(0.0, allowed[1] - begin_at_s) / self.counted_s
            rounds = int(more + ROUNDING) + 1
            run = SlotRun(self, begin_at_s, rounds * self.slots)
            yield run
            free_s = run.end_at_s


class SlotRun(NamedTuple):
    """Tasks that a pool's slots run one after the other, without a break."""

    berth: Berth
    begin_at_s: UtcS
    tasks: int

    @property
    def rounds(self) -> int:
        """The maximum of these tasks per slot."""
        return -(-self.tasks // self.berth.slots)

    @property
    def end_at_s(self) -> UtcS:
        """When it is done, by the planned duration of a task."""
        return self.begin_at_s + self.rounds * self.berth.counted_s

    def total(self, what: str) -> float:
        """Return the total of `worth`, `grams` or `money`."""
        return self.mean(what) * self.tasks * self.berth.task_s

    def mean(self, what: str) -> float:
        """Return the mean per slot-second, if tasks take their expected duration.

        In the last round not all slots may have a task.
        """
        curve: Curve = getattr(self.berth, what)
        task_s, (full, rest) = self.berth.task_s, divmod(self.tasks, self.berth.slots)
        last_at_s = self.begin_at_s + full * task_s
        if not rest:
            return curve.mean(self.begin_at_s, last_at_s)
        before = self.tasks - rest
        whole = before * curve.mean(self.begin_at_s, last_at_s) if before else 0.0
        return (whole + rest * curve.mean(last_at_s, last_at_s + task_s)) / self.tasks


@dataclass(frozen=True, slots=True)
class Deferral:
    """The result of planning a job that may wait.

    Attributes:
        why: why nothing waits; empty when something does.
        now: tasks that begin at once, by pool, where that is better than the original plan.
        runs: the whole plan, by when the runs begin; empty when it is no better.
        waits: tasks that wait.
        until_s: UTC, when the first of them begin; `look_at_s`: when these are to be sent.
        finish_at_s: UTC, when all is done, by the planned duration of a task.
        carbon_g, money: the emissions and cost of all of it; `at_once_g`, `at_once_money`: the same
            if it began now. Money is in nano-units of this site's currency.
    """

    why: str = ""
    now: Mapping[Key, int] = field(default_factory=dict)
    runs: Sequence[SlotRun] = ()
    waits: int = 0
    until_s: UtcS = UtcS(0.0)
    look_at_s: UtcS = UtcS(0.0)
    finish_at_s: UtcS = UtcS(0.0)
    carbon_g: float = 0.0
    at_once_g: float = 0.0
    money: float = 0.0
    at_once_money: float = 0.0

    def to_plain(self, currency: str, shown: int) -> dict[str, Any]:
        """Convert to plain data for people and scripts, with at most `shown` of its runs."""
        if not self.waits:
            return {"waits": 0, "text": f"the job is deferrable, but starts now: {self.why}"}
        return {
            "waits": self.waits,
            "text": f"{count(self.waits, 'task')} deferred to greener or cheaper hours",
            "until_s": self.until_s,
            "finish_s": self.finish_at_s,
            "carbon_g": self.carbon_g,
            "at_once_carbon_g": self.at_once_g,
            "cost_nanos": round(self.money),
            "cost": format_money(round(self.money), currency),
            "at_once_cost_nanos": round(self.at_once_money),
            "at_once_cost": format_money(round(self.at_once_money), currency),
            "runs": [
                {
                    "site": run.berth.key[0],
                    "pool": run.berth.key[1],
                    "tasks": run.tasks,
                    "begin_s": run.begin_at_s,
                    "finish_s": run.end_at_s,
                    "carbon_g": run.total("grams"),
                }
                for run in self.runs[:shown]
            ],
            "runs_left_off": max(0, len(self.runs) - shown),
        }


def defer(
    ask: Demand,
    places: Sequence[Ranked],
    plan: Split,
    scale: UtilityScale,
    preferences: Preferences,
    utc_s: UtcS,
) -> Deferral:
    """Decide which part of an ask waits.

    Args:
        ask: one that may wait.
        places: where it may run: the places of the plan, and the most promising others.
        plan: where it would go at once.
        scale: the objective's weights of grams and money.
        preferences: the minimum gain, and the margins.
        utc_s: now.
    """
    assert ask.deadline_s is not None, "a deferrable ask needs a deadline"
    if ask.objective.time:
        return Deferral("its objective weighs time")
    if ask.task_s is None:
        return Deferral("the duration of its tasks is not known yet")
    if plan.short:
        return Deferral("part of the job can't be placed now within its limits")
    berths: list[Berth] = []
    runs: list[SlotRun] | None = None
    # A plan that is carried out slightly late at the last moment is still within the margin.
    for late_s in (0.0, min(LATE_S, preferences.defer_margin_s / 2)):
        until_s = ask.deadline_s - preferences.defer_margin_s + late_s
        berths = [
            each for one in places for each in _berths(ask, one, scale, preferences, utc_s, until_s)
        ]
        if not late_s and not any(map(_changes, berths)):
            return Deferral(
                "no pool that may run it has a forecast of other hours before the deadline"
            )
        runs = _least_own(berths, ask.tasks, preferences) or _least(berths, ask.tasks)
        if runs:
            break
    if not runs:
        return Deferral("its deadline leaves no time for it")
    at_once = list(_at_once(plan, berths))
    before, after = _total(at_once, "worth"), _total(runs, "worth")
    now, later = _parts(runs)
    gain = 1 - after / before if before else 0.0
    if gain < preferences.defer_gain and (later or gain <= 0):
        words = f"{max(0.0, gain):.0%}, less than the minimum of {preferences.defer_gain:.0%}"
        return Deferral(f"waiting would gain {words}")
    money = _total(runs, "money")
    rate = preferences.rate(ask.terms.need.currency or preferences.currency) or 0.0
    if ask.budget_nanos is not None and money > ask.budget_nanos * rate:
        return Deferral("waiting would exceed its cost limit")
    return Deferral(
        "" if later else "its best hours are now",
        now=now,
        runs=sorted(runs, key=lambda run: (run.begin_at_s, run.berth.key)),
        waits=sum(run.tasks for run in later),
        until_s=min((run.begin_at_s for run in later), default=utc_s),
        look_at_s=min((run.begin_at_s - run.berth.lead_s for run in later), default=utc_s),
        finish_at_s=max(run.end_at_s for run in runs),
        carbon_g=_total(runs, "grams"),
        at_once_g=_total(at_once, "grams"),
        money=money,
        at_once_money=_total(at_once, "money"),
    )


# --- pools over time -----------------------------------------------------------------------------


def _berths(
    ask: Demand,
    one: Ranked,
    scale: UtilityScale,
    preferences: Preferences,
    utc_s: UtcS,
    until_s: UtcS,
) -> Iterator[Berth]:
    """Yield a pool's slots over time for an ask: berths for each of its windows."""
    candidate, task_s = one.candidate, one.estimate.task_s
    counted_s = task_s * (1 + preferences.defer_margin)
    grams = candidate.carbon_ahead or flat(one.carbon / one.estimate.slot_s)
    for span in candidate.spans:
        end_at_s, is_open = min(until_s, span.until_s), span.from_s <= utc_s
        is_spurned = ask.when_closed is WhenClosed.ELSEWHERE and not is_open
        if span.until_s <= utc_s or not span.slots or is_spurned:
            continue
        money = _money_over(ask, one, span, preferences)
        parts = [money.times(scale.money)] if scale.money else []
        parts += [grams.times(scale.carbon)] if scale.carbon else []
        worth = added(parts)
        link = candidate.link
        lead_s = link.rtt_s + ask.function_bytes / link.bytes_s
        for slots, free_s in _free_from(ask, candidate, span, utc_s, task_s):
            begin_at_s = free_s + lead_s
            starts = list(_starts(worth, task_s, begin_at_s, end_at_s - counted_s))
            yield Berth(
                *(candidate.key, candidate.is_own, slots, task_s, counted_s, begin_at_s, end_at_s),
                *(lead_s, is_open, worth, grams, money, starts),
            )


def _free_from(
    ask: Demand, candidate: Candidate, span: PricedSpan, utc_s: UtcS, task_s: float
) -> Iterator[tuple[int, UtcS]]:
    """Yield how many slots of a window an ask can have, and from when."""
    link, slots = candidate.link, span.slots
    if ask.task_bytes:
        slots = max(1, min(slots, int(link.bytes_s / ask.task_bytes * task_s)))
    begin_at_s = max(utc_s, span.from_s)
    free = min(candidate.slots_free, slots) if span.from_s <= utc_s else 0
    if free:
        yield free, begin_at_s
    if slots > free:
        serving = slots - free if free else candidate.serving or slots
        yield slots - free, begin_at_s + candidate.backlog_slot_s(utc_s) / serving


def _money_over(ask: Demand, one: Ranked, span: PricedSpan, preferences: Preferences) -> Curve:
    """Return the cost of a slot-second there, in this site's currency."""
    rate = preferences.rate(one.candidate.advert.currency) or 0.0
    return price_over(ask, one.candidate, span, one.estimate.task_s).times(rate / 3600)


def _starts(
    worth: Curve, task_s: float, first_at_s: UtcS, last_at_s: UtcS
) -> Iterator[tuple[UtcS, float]]:
    """Yield the times between which w(t) is linear: where the run begins or ends at a change."""
    if last_at_s < first_at_s - SAME_S:
        return
    last_at_s = max(first_at_s, last_at_s)
    edges = (at for edge in worth.edges for at in (edge - task_s, edge))
    for at in sorted(
        {first_at_s, last_at_s, *(each for each in edges if first_at_s < each < last_at_s)}
    ):
        yield at, worth.mean(at, at + task_s)


def _below(
    before: tuple[UtcS, float], after: tuple[UtcS, float], limit: float
) -> tuple[UtcS, UtcS] | None:
    """Return from when to when a line is at or below a limit."""
    (x0, y0), (x1, y1) = before, after
    if y0 <= limit and y1 <= limit:
        return x0, x1
    if y0 <= limit:
        return x0, x0 + (x1 - x0) * (limit - y0) / (y1 - y0)
    if y1 <= limit:
        return x0 + (x1 - x0) * (y0 - limit) / (y0 - y1), x1
    return None


def _changes(berth: Berth) -> bool:
    """Whether the start time can matter there."""
    edges = berth.worth.edges
    in_time = bisect_left(edges, berth.until_s) - bisect_left(edges, berth.from_s)
    return in_time > 0 or not berth.is_open


# --- plans ---------------------------------------------------------------------------------------


def _least_own(
    berths: Sequence[Berth], tasks: int, preferences: Preferences
) -> list[SlotRun] | None:
    """Apply `_least` to this site's own pools alone, if the site prefers work to stay there."""
    return (
        _least([each for each in berths if each.is_own], tasks)
        if preferences.prefer_own_s
        else None
    )


def _least(berths: Sequence[Berth], tasks: int) -> list[SlotRun] | None:
    """Return the runs by which all tasks are done, by the least limit; None when they can't be."""

    def fits(limit: float) -> bool:
        left = tasks
        for berth in berths:
            for run in berth.runs(limit):
                left -= run.tasks
                if left <= 0:
                    return True
        return False

    limits = sorted({worth for berth in berths for _, worth in berth.starts})
    if not limits or not fits(limits[-1]):
        return None
    limit = limits[bisect_left(limits, True, key=fits)]
    found = [run for berth in berths for run in berth.runs(limit)]
    return list(_joined(_settled(_trimmed(found, tasks))))


def _trimmed(runs: list[SlotRun], tasks: int) -> list[SlotRun]:
    """Drop surplus tasks: the worst first, of equals the dearer, then the latest."""
    spare = sum(run.tasks for run in runs) - tasks
    most = max((run.mean("worth") for run in runs), default=0.0) or 1.0

    def badness(run: SlotRun) -> tuple[float, float, UtcS]:
        return round(run.mean("worth") / most, DIGITS), run.mean("money"), run.begin_at_s

    kept = []
    for run in sorted(runs, key=badness, reverse=True):
        fewer = min(spare, run.tasks)
        spare -= fewer
        if run.tasks > fewer:
            kept.append(run._replace(tasks=run.tasks - fewer))
    return kept


def _settled(runs: Iterable[SlotRun]) -> Iterator[SlotRun]:
    """Move each run to its best time between the runs before and after it in its slots.

    First all are moved later as far as they lose nothing by it, the last first, so that earlier
    runs find room. Then they are moved earlier, the first first, as far as they lose nothing by it.
    """
    by_berth: dict[Berth, list[SlotRun]] = {}
    for run in sorted(runs, key=lambda run: (run.berth.key, run.begin_at_s)):
        by_berth.setdefault(run.berth, []).append(run)
    for berth, in_order in by_berth.items():
        end_at_s, late = berth.until_s, []
        for run in reversed(in_order):
            latest_s = max(run.begin_at_s, end_at_s - run.rounds * berth.counted_s)
            end_at_s = _best_start(run, run.begin_at_s, latest_s, is_late=True)
            late.append(run._replace(begin_at_s=end_at_s))
        free_s = berth.from_s
        for run in reversed(late):
            found = run._replace(begin_at_s=_best_start(run, free_s, run.begin_at_s, is_late=False))
            yield found
            free_s = found.end_at_s


def _best_start(run: SlotRun, first_at_s: UtcS, last_at_s: UtcS, *, is_late: bool) -> UtcS:
    """Return the best start of a run within a time; of equals the earliest, or the latest."""
    last_at_s = max(
        first_at_s, last_at_s
    )  # rounding can make the previous run end after this one begins
    edges, run_s = run.berth.worth.edges, run.rounds * run.berth.task_s
    edges = edges[bisect_left(edges, first_at_s) : bisect_left(edges, last_at_s + run_s)]
    starts = (first_at_s, last_at_s, *edges, *(edge - run_s for edge in edges))
    rated = [
        (run._replace(begin_at_s=start_at_s).mean("worth"), start_at_s)
        for start_at_s in starts
        if first_at_s <= start_at_s <= last_at_s
    ]
    limit = min(rated)[0] * (1 + ROUNDING)
    best = [start_at_s for worth, start_at_s in rated if worth <= limit]
    return max(best) if is_late else min(best)


def _joined(runs: Iterable[SlotRun]) -> Iterator[SlotRun]:
    """Join runs that follow each other without a break, in order."""
    last: SlotRun | None = None
    for run in runs:
        if (
            last is not None
            and run.berth is last.berth
            and run.begin_at_s <= last.end_at_s + SAME_S
        ):
            last = last._replace(tasks=last.tasks + run.tasks)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _parts(runs: Iterable[SlotRun]) -> tuple[dict[Key, int], list[SlotRun]]:
    """Split into the tasks that begin at once, by pool, and the runs that begin later."""
    now: dict[Key, int] = {}
    later: list[SlotRun] = []
    for run in runs:
        berth = run.berth
        if berth.is_open and run.begin_at_s <= berth.from_s + SAME_S:
            now[berth.key] = now.get(berth.key, 0) + run.tasks
        else:
            later.append(run)
    return now, later


def _at_once(plan: Split, berths: Sequence[Berth]) -> Iterator[SlotRun]:
    """Convert a plan that begins now to runs: in the open window, or else the first to open."""
    for lane, tasks in plan.shares:
        of_pool = [berth for berth in berths if berth.key == lane.key]
        first, *others = [berth for berth in of_pool if berth.is_open] or of_pool[:1]
        if not others:
            yield SlotRun(first, first.from_s, tasks)
            continue
        (busy,) = others  # slots that become free somewhat later than the first
        ahead = max(1, ceil((busy.from_s - first.from_s) / first.task_s - ROUNDING)) * first.slots
        both = max(0, tasks - ahead)
        later = both * busy.slots // (first.slots + busy.slots)
        yield SlotRun(first, first.from_s, tasks - later)
        if later:
            yield SlotRun(busy, busy.from_s, later)


def _total(runs: Iterable[SlotRun], what: str) -> float:
    return sum(run.total(what) for run in runs)
