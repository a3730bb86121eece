"""Estimates of an ask at a candidate: time, cost and carbon. Pure.

Time and load are taken into account here: each decision makes new estimates. A candidate that can't
do even one task within the limits is refused; one that can do some says how many. A decision makes
thousands of estimates, hence the plain tuple, and costs that are computed on demand.
"""

from math import inf
from typing import Final, NamedTuple

from federation.clocks import NEVER_S, UtcS
from federation.messages.adverts import PriceChange
from federation.money import format_money
from federation.reasons import Reason
from federation.words import ShownDuration
from policies.costs.moving import charge_nanos
from policies.placement.asks import Demand, Preferences, WhenClosed
from policies.placement.autoscaling import PoolGrowth
from policies.placement.market import Candidate, PricedSpan
from policies.placement.outlook import Curve
from policies.placement.placement import Refusal
from policies.tariffs import HOUR_NS, Extras, cost_nanos

# Below this the duration of a task does not matter, and dividing by it does harm.
TASK_MIN_S: Final = 1e-6
# Keeps a task that just fits from being lost to rounding.
ROUNDING: Final = 1e-9


class Estimate(NamedTuple):
    """An ask at a candidate, as if all of it went there."""

    wait_s: float  # until a slot is free
    begin_at_s: UtcS  # UTC, when the first task could start
    finish_at_s: UtcS  # UTC
    task_s: float
    slot_s: float  # slot-seconds of all its tasks
    slots: int
    closes_at_s: UtcS  # UTC, when it must be done
    price_nanos: int  # of a slot-hour of such tasks, the mean over its run
    carbon_g: float | None  # by the mean intensity over its run
    late_s: float = 0.0  # the mean delay of its slots after the first: some must be started
    moves_nanos: int = 0  # of the way of its inputs to there

    @property
    def cost_nanos(self) -> int:
        """The total cost, in the pool's currency."""
        return cost_nanos(self.price_nanos, round(self.slot_s * 1e9)) + self.moves_nanos


def moves_nanos(ask: Demand, candidate: Candidate) -> int:
    """Return the cost of the way of an ask's inputs to a candidate; 0 where they are there."""
    if not ask.moved_bytes or candidate.is_own or candidate.key[0] in ask.moved_to:
        return 0
    return charge_nanos(candidate.advert.receive_nanos, ask.moved_bytes)


def estimate(
    ask: Demand, candidate: Candidate, utc_s: UtcS, preferences: Preferences
) -> Estimate | Refusal:
    """Estimate an ask at a candidate; a refusal names the limit that not even one task can keep.

    Of several windows, the one that serves the objective best counts.
    """
    if utc_s > candidate.expires_s:
        words = "was last heard from {} ago, and its advert was valid for {}"
        ages = (utc_s - candidate.as_of_s, candidate.expires_s - candidate.as_of_s)
        return Refusal(Reason.ADVERT_STALE, words, tuple(map(ShownDuration, ages)))
    advert = candidate.advert
    if advert.currency != preferences.currency and preferences.rate(advert.currency) is None:
        words = "charges in {}, and no exchange rate to {} is configured here"
        return Refusal(Reason.CURRENCY_DIFFERS, words, (advert.currency, preferences.currency))
    if advert.free_tags:
        refusal = _check_free_tags(ask, candidate)
        if refusal is not None:
            return refusal
    if not advert.windows:
        return _in_span(ask, candidate, candidate.spans[0], utc_s, preferences)
    spans = [span for span in candidate.spans if span.until_s > utc_s]
    if ask.when_closed is WhenClosed.ELSEWHERE:
        spans = [span for span in spans if span.from_s <= utc_s]
        if not spans and (opens_s := candidate.opens_at_s(utc_s)) < NEVER_S:
            words = 'opens in {}, and the job does not wait (when_closed = "elsewhere")'
            return Refusal(Reason.WINDOW_CLOSED, words, (ShownDuration(opens_s - utc_s),))
    found = [_in_span(ask, candidate, span, utc_s, preferences) for span in spans]
    fitting = [each for each in found if isinstance(each, Estimate)]
    if fitting:
        return _best(fitting, ask, utc_s)
    return found[0] if found else Refusal(Reason.WINDOW_CLOSED, "advertises no open window")


def tasks_by(seconds: float, slots: float, task_s: float) -> int:
    """Return the tasks that slots complete in a time, in whole rounds: ⌊slots·⌊seconds/task_s⌋⌋."""
    return max(0, int(slots * ((seconds / task_s + ROUNDING) // 1) + ROUNDING))


def pays_for_one(budget_nanos: int, price_nanos: int, task_ns: int) -> bool:
    """Whether a budget pays for one task."""
    return price_nanos * task_ns <= budget_nanos * HOUR_NS


def tasks_for(budget_nanos: int, price_nanos: int, task_ns: int, most: int) -> int:
    """Return the number of tasks that a budget pays for, at most `most`."""
    one = price_nanos * task_ns
    return most if one == 0 else min(most, budget_nanos * HOUR_NS // one)


def fits(ask: Demand, found: Estimate) -> int:
    """Return how many of an ask's tasks a candidate can do within window, deadline and budget.

    While the duration of a task is a guess, all of them count as fitting: what it costs at least
    was checked for one.
    """
    if ask.task_s is None:
        return ask.tasks
    limit_s = (
        found.closes_at_s if ask.deadline_s is None else min(found.closes_at_s, ask.deadline_s)
    )
    tasks = ask.tasks
    if _may_be_stopped(ask) and found.begin_at_s + found.task_s > found.closes_at_s:
        tasks = min(tasks, found.slots)  # one for each slot: more would begin when it is closed
    elif found.finish_at_s > limit_s:
        tasks = min(tasks, tasks_by(limit_s - found.begin_at_s, found.slots, found.task_s))
    if ask.budget_nanos is not None:
        task_ns = round(found.task_s * 1e9)
        left_nanos = max(0, ask.budget_nanos - found.moves_nanos)
        tasks = tasks_for(left_nanos, found.price_nanos, task_ns, tasks)
    return tasks


def _in_span(
    ask: Demand, candidate: Candidate, span: PricedSpan, utc_s: UtcS, preferences: Preferences
) -> Estimate | Refusal:
    advert, slots, tasks, link = candidate.advert, span.slots, ask.tasks, candidate.link
    if advert.draining:
        return Refusal(Reason.DRAINING, "is draining and takes nothing new")
    if not candidate.profile.pythons:
        return Refusal(Reason.NO_SLOTS, "has no workers now")
    if not slots:
        return Refusal(Reason.NO_SLOTS, "has no free slot now")
    task_s = ask.task_s_at.get(candidate.key[0], ask.task_s)
    if task_s is None:
        task_s = preferences.task_s_unknown
    elif task_s < TASK_MIN_S:
        task_s = TASK_MIN_S
    wait_s = late_s = 0.0
    if tasks > candidate.slots_free or span.from_s > utc_s:
        slots_cold = advert.slots_cold
        if slots_cold:
            slots, slots_cold = _with_started(ask, candidate, slots, task_s)
        # All slots serve the backlog; when none is free, those that are working.
        front_s = candidate.backlog_slot_s(utc_s)
        warm = slots - slots_cold
        wait_s = front_s / (candidate.serving or warm) if warm else inf
        if slots_cold:
            wait_s = min(wait_s, advert.start_s + front_s / slots)
            late_s = max(0.0, advert.start_s - wait_s) * slots_cold / slots
    begin_at_s = utc_s if utc_s > span.from_s else span.from_s
    begin_at_s += wait_s + link.rtt_s + ask.function_bytes / link.bytes_s
    run_s = -(-tasks // slots) * task_s + late_s
    # The last task starts when its arguments have arrived.
    carry_s = tasks * ask.task_bytes / link.bytes_s + task_s
    finish_at_s = begin_at_s + (run_s if run_s > carry_s else carry_s)
    price_nanos = span.price_nanos
    change = candidate.price_change
    if change is not None and change.at_s < finish_at_s:
        price_nanos = _mean_price(price_nanos, change, begin_at_s, finish_at_s)
    if candidate.extras is not None:
        price_nanos = _for_job(price_nanos, candidate.extras, ask, task_s)
    slot_s = tasks * task_s
    grams, ahead = candidate.carbon_g_per_slot_s, candidate.carbon_ahead
    if ahead is not None:
        grams = ahead.mean(begin_at_s, finish_at_s)
    found = Estimate(
        wait_s,
        begin_at_s,
        finish_at_s,
        task_s,
        slot_s,
        slots,
        span.until_s,
        price_nanos,
        None if grams is None else grams * slot_s,
        late_s,
        moves_nanos(ask, candidate),
    )
    return _check_limits(ask, candidate, found, utc_s) or found


def _with_started(ask: Demand, candidate: Candidate, slots: int, task_s: float) -> tuple[int, int]:
    """Return the slots that would do an ask where some must be started: all, and those started."""
    advert, tasks = candidate.advert, ask.tasks
    cold = min(slots, advert.slots_cold)
    warm = slots - cold
    growth = PoolGrowth(cold, advert.start_s, advert.slot_work_s)
    started = growth.beside(warm, tasks, task_s, ask.objective)
    return warm + started, started


def price_over(ask: Demand, candidate: Candidate, span: PricedSpan, task_s: float) -> Curve:
    """Return the price of a slot-hour of an ask's tasks in a span, over time."""
    change = candidate.price_change
    prices = [span.price_nanos] if change is None else [span.price_nanos, change.price_nanos]
    extras = candidate.extras
    if extras is not None:
        prices = [_for_job(each, extras, ask, task_s) for each in prices]
    return Curve(() if change is None else (change.at_s,), prices)


def _check_limits(
    ask: Demand, candidate: Candidate, found: Estimate, utc_s: UtcS
) -> Refusal | None:
    """Check one task against the limits. Only known figures refuse, not a guessed duration."""
    task_s = 0.0 if ask.task_s is None else found.task_s
    ends_at_s = found.begin_at_s + task_s
    if (found.begin_at_s if _may_be_stopped(ask) else ends_at_s) > found.closes_at_s:
        words = "closes in {}, and a task that starts in {} would not end before that"
        times = (found.closes_at_s - utc_s, found.begin_at_s - utc_s)
        return Refusal(Reason.WINDOW_CLOSED, words, tuple(map(ShownDuration, times)))
    if ask.deadline_s is not None and ends_at_s > ask.deadline_s:
        words = "would end its first task {} after the deadline"
        return Refusal(Reason.DEADLINE, words, (ShownDuration(ends_at_s - ask.deadline_s),))
    budget_nanos = ask.budget_nanos
    if budget_nanos is not None:
        task_ns = round(task_s * 1e9)
        if ask.task_s is None:
            least = _certain_nanos(ask, candidate)
            is_payable = least + found.moves_nanos <= budget_nanos
        else:
            least = cost_nanos(found.price_nanos, task_ns)
            left_nanos = budget_nanos - found.moves_nanos
            is_payable = left_nanos >= 0 and pays_for_one(left_nanos, found.price_nanos, task_ns)
        if not is_payable:
            amounts = [found.moves_nanos] if found.moves_nanos else []
            amounts += [least, budget_nanos]
            texts = tuple(format_money(each, candidate.advert.currency) for each in amounts)
            words = "would cost {} to move its inputs there and " if found.moves_nanos else ""
            words = words or "would cost "
            return Refusal(Reason.COST_LIMIT, words + "{} a task, and {} is left", texts)
    return None


def _may_be_stopped(ask: Demand) -> bool:
    """Whether its tasks may begin too late to end in time: preemptible ones pay less for that."""
    return ask.price_class == "preemptible"


def affords(ask: Demand, candidate: Candidate) -> bool:
    """Whether a budget may pay for one task there, at the lowest advertised price."""
    if ask.budget_nanos is None:
        return True
    left_nanos = ask.budget_nanos - moves_nanos(ask, candidate)
    if ask.task_s is None:
        return _certain_nanos(ask, candidate) <= left_nanos
    return left_nanos >= 0 and pays_for_one(left_nanos, *_least(ask, candidate, ask.task_s))


def least_nanos(ask: Demand, candidate: Candidate) -> int:
    """Return the cost of one task there, at the lowest advertised price."""
    return cost_nanos(*_least(ask, candidate, ask.task_s or 0.0))


def _certain_nanos(ask: Demand, candidate: Candidate) -> int:
    """Return the charge for one task however short it is: its minimum, or a step."""
    extras = candidate.extras
    if extras is None or not (extras.minimum_nanos or extras.step_ns):
        return 0
    prices = [span.price_nanos for span in candidate.spans]
    if candidate.price_change is not None:
        prices.append(candidate.price_change.price_nanos)
    public_nanos = min(prices, default=0)
    price_nanos = extras.price_nanos(public_nanos, ask.price_class, ask.terms.need.tags)
    return max(min(extras.minimum_nanos, price_nanos), cost_nanos(price_nanos, extras.step_ns))


def _least(ask: Demand, candidate: Candidate, known_s: float) -> tuple[int, int]:
    """Return the lowest advertised price of a slot-hour for a job, and a task's duration in ns."""
    prices = [span.price_nanos for span in candidate.spans]
    if candidate.price_change is not None:
        prices.append(candidate.price_change.price_nanos)
    task_s = ask.task_s_at.get(candidate.key[0], known_s)
    task_ns = round(max(task_s, TASK_MIN_S) * 1e9)
    price_nanos = min(prices, default=0)
    if candidate.extras is not None:
        price_nanos = _for_job(price_nanos, candidate.extras, ask, task_s)
    return price_nanos, task_ns


def price_shown(ask: Demand, candidate: Candidate, task_s: float) -> int:
    """Return the advertised price of a slot-hour of this job now."""
    price_nanos = candidate.advert.price_nanos
    if candidate.extras is None:
        return price_nanos
    return _for_job(price_nanos, candidate.extras, ask, task_s)


def _for_job(price_nanos: int, extras: Extras, ask: Demand, task_s: float) -> int:
    """Return the price of a slot-hour of this job's tasks, by class, tags and duration."""
    task_ns = round(max(task_s, TASK_MIN_S) * 1e9)
    return extras.effective_nanos(price_nanos, ask.price_class, ask.terms.need.tags, task_ns)


def _check_free_tags(ask: Demand, candidate: Candidate) -> Refusal | None:
    """Refuse if no single worker has the counted tags free now."""
    free_tags = candidate.advert.free_tags
    for name, wanted in ask.terms.need.tags.items():
        if not isinstance(wanted, bool) and free_tags.get(name, wanted) < wanted:
            words = "has {}={:g} free on one worker now, {:g} needed"
            return Refusal(Reason.TAG_IN_USE, words, (name, free_tags[name], wanted))
    return None


def _mean_price(now_nanos: int, change: PriceChange, begin_at_s: UtcS, finish_at_s: UtcS) -> int:
    """Return the mean price of a slot-hour over a run that sees it change."""
    if change.at_s <= begin_at_s:
        return change.price_nanos
    after = round(
        1_000_000 * (finish_at_s - change.at_s) / (finish_at_s - begin_at_s)
    )  # in millionths
    return (now_nanos * (1_000_000 - after) + change.price_nanos * after) // 1_000_000


def _best(fitting: list[Estimate], ask: Demand, utc_s: UtcS) -> Estimate:
    """Return the pool's window that serves the objective best; the first among equals.

    With both a deadline and a budget, a window that can do more within them is preferred.
    """
    first, objective = fitting[0], ask.objective

    def value(one: Estimate) -> float:
        money = one.price_nanos / (first.price_nanos or 1)
        time = (one.finish_at_s - utc_s) / max(first.finish_at_s - utc_s, TASK_MIN_S)
        carbon = (one.carbon_g or 0.0) / (first.carbon_g or 1.0)
        return objective.money * money + objective.time * time + objective.carbon * carbon

    if ask.deadline_s is not None and ask.budget_nanos is not None:
        return min(fitting, key=lambda one: (-fits(ask, one), value(one)))
    return min(fitting, key=value)
