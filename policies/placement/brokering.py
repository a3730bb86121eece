"""Placement of an ask: filter, score, choose, split; then the best of the quotes. Pure.

    candidates ─ terms ─ limits ─ utility ─ draw among near-equals ─ split ─► plan ─► quotes ─► best
                 never    not now

A decision is based on adverts, which are out of date. Ask the sites in `Decision.quotes_from` for
quotes, take the best (`choose_quote`), and expect to lose the race sometimes. Equal seeds and equal
knowledge give equal decisions, in whatever order the adverts arrived.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from federation.clocks import UtcS
from federation.reasons import Reason
from federation.words import ShownDuration
from policies.placement.asks import Demand, Preferences, WhenClosed
from policies.placement.decisions import Decision, DecisionReason
from policies.placement.deferral import Deferral, defer
from policies.placement.estimates import Estimate, estimate, fits, tasks_by
from policies.placement.market import Candidate, Key, Market
from policies.placement.placement import Refusal
from policies.placement.ranking import SAME, Chance, Ranked, Ranking, draw
from policies.placement.splitting import Lane, Split, SplitLimits, split
from policies.tariffs import cost_nanos


@dataclass(frozen=True, slots=True)
class PoolQuote:
    """A pool's offer: the tasks that it takes, when, and for how much."""

    key: Key
    tasks: int  # that it accepts
    price_nanos: int  # of a slot-hour, fixed
    begin_at_s: UtcS  # UTC, when the first task would start
    finish_at_s: UtcS  # UTC, when the last of them would be done
    moves_nanos: int = 0  # of the way of its inputs to there


@dataclass(frozen=True, slots=True)
class BackoffEnd:
    """The back-off of a site or pool: its end (UTC), and its cause as a part of a sentence.

    `is_no` marks a refusal of such work that only the site's operator can change. `reason` is the
    named reason; any other than SITE_RESTING is no back-off, and `why` is all that is to be said.
    """

    until_s: UtcS
    why: str = "did not answer"
    is_no: bool = False
    reason: Reason = Reason.SITE_RESTING


def place(
    ask: Demand,
    market: Market,
    preferences: Preferences,
    utc_s: UtcS,
    chance: Chance,
    site_backoff: Mapping[str, BackoffEnd] | None = None,
) -> Decision:
    """Decide where an ask goes.

    Args:
        ask: the tasks and their limits.
        market: the knowledge of all pools.
        preferences: this site's preferences.
        utc_s: now.
        chance: for the draw among near-equals; see ranking.tie_break.
        site_backoff: sites, and single pools as "site/pool", that are in back-off after a
            refusal or a timeout.
    """
    candidates, estimates, refused = consider(ask, market, preferences, utc_s, site_backoff or {})
    if not candidates:
        return Decision(ask, preferences, utc_s, DecisionReason.NOBODY, None, refused, 0, (), None)
    ranking = Ranking(candidates, estimates, ask.objective, preferences, utc_s)
    near = _near_equals(ask, ranking, preferences)
    own = ranking.own() if preferences.prefer_own_s else []
    home = [one for one in own if _starts_at_home(one, preferences, utc_s)]
    if ask.when_closed is WhenClosed.WAIT and not home:
        ranking, given_up = _worth_the_wait(ask, ranking, preferences, utc_s)
        refused += given_up
        near = _near_equals(ask, ranking, preferences)
    drawn = draw(near, ask.objective, preferences.band, max(1, preferences.sites_max - 1), chance)
    # With the best candidate among them, no plan is worse than the best possible by more than the
    # band.
    liked = _distinct(home, drawn, ranking[: preferences.sites_max + len(home)])
    preferred, plan = _plan(ask, liked, ranking, preferences, utc_s)
    deferral = None
    if ask.deferrable:
        shares = {lane.key for lane, _ in plan.shares}
        used = [one for one in preferred if one.key in shares]
        over_time = _distinct(used, ranking.promising(preferences.sites_max))
        over_time = over_time[: max(len(used), preferences.sites_max)]
        deferral = defer(ask, over_time, plan, ranking.scale, preferences, utc_s)
        if deferral.runs:
            preferred, plan = over_time, _begun(ask, over_time, deferral, preferences, utc_s)
    why = (
        DecisionReason.HOME_FIRST
        if home
        else DecisionReason.DRAWN
        if len(near) > 1
        else DecisionReason.BEST
    )
    return Decision(
        ask, preferences, utc_s, why, ranking, refused, len(near), preferred, plan, deferral
    )


def _near_equals(ask: Demand, ranking: Ranking, preferences: Preferences) -> list[Ranked]:
    """Return the near-equals of the best; those that need new slots only if there are no others."""
    near = ranking.near_equals(preferences.band)
    return [one for one in near if not one.candidate.must_start(ask.tasks)] or near


def consider(
    ask: Demand,
    market: Market,
    preferences: Preferences,
    utc_s: UtcS,
    site_backoff: Mapping[str, BackoffEnd],
) -> tuple[list[Candidate], list[Estimate], list[tuple[Candidate, Refusal]]]:
    """Pass every candidate through the filters, cheapest first; estimate those that remain."""
    verdicts = market.verdicts(ask.terms)
    accepted: list[Candidate] = []
    estimates: list[Estimate] = []
    refused: list[tuple[Candidate, Refusal]] = []
    waits = ask.when_closed is WhenClosed.WAIT
    for candidate in market.candidates:
        verdict: Estimate | Refusal | None = verdicts[candidate.number]
        rest = _rest_of(candidate.key, site_backoff) if site_backoff else None
        if waits and rest is not None and candidate.is_closed(utc_s):
            rest = None  # it is asked only when it opens, and may have recovered by then
        if verdict is None and rest is not None and rest.until_s > utc_s:
            if rest.reason is Reason.SITE_RESTING:
                figures = (rest.why, ShownDuration(rest.until_s - utc_s))
                verdict = Refusal(rest.reason, "{}; in back-off for {}", figures)
            else:
                verdict = Refusal(rest.reason, rest.why)
        if verdict is None:
            verdict = estimate(ask, candidate, utc_s, preferences)
        if isinstance(verdict, Refusal):
            refused.append((candidate, verdict))
        else:
            accepted.append(candidate)
            estimates.append(verdict)
    return accepted, estimates, refused


def _rest_of(key: Key, site_backoff: Mapping[str, BackoffEnd]) -> BackoffEnd | None:
    found = [site_backoff.get(key[0]), site_backoff.get("/".join(key))]
    return max((each for each in found if each), key=lambda each: each.until_s, default=None)


def _worth_the_wait(
    ask: Demand, ranking: Ranking, preferences: Preferences, utc_s: UtcS
) -> tuple[Ranking, list[tuple[Candidate, Refusal]]]:
    """Rank, for a job that waits for windows, the near-equals of the best as if all were open.

    If the best one is open now, return the whole ranking, as for any other job.
    """
    rows = ranking[:]
    closed_s = [one.candidate.opens_at_s(utc_s) - utc_s for one in rows]
    if not any(closed_s):
        return ranking, []
    candidates = [one.candidate for one in rows]
    as_open = [
        one.estimate._replace(finish_at_s=one.estimate.finish_at_s - wait_s)
        for one, wait_s in zip(rows, closed_s, strict=True)
    ]
    near = Ranking(candidates, as_open, ask.objective, preferences, utc_s).near_equals(
        preferences.band
    )
    if near[0].candidate.opens_at_s(utc_s) <= utc_s:
        return ranking, []
    liked = {one.key for one in near}
    kept = [one for one in rows if one.key in liked]
    words = 'could run it, but the job waits for {} (when_closed = "wait")'
    place = "/".join(near[0].key)
    given_up = [
        (one.candidate, Refusal(Reason.WAITS_FOR_WINDOW, words, (place,)))
        for one in rows
        if one.key not in liked
    ]
    candidates, estimates = [one.candidate for one in kept], [one.estimate for one in kept]
    return Ranking(candidates, estimates, ask.objective, preferences, utc_s), given_up


def choose_quote(decision: Decision, quotes: Sequence[PoolQuote], utc_s: UtcS) -> PoolQuote | None:
    """Return the best of the quotes for the same work, on the decision's own scale, or None.

    A quote that breaks the deadline or the budget does not count, nor does one that is worse than
    this site's own pools: adverts are always stale, and a pool that looked idle may be busy. A
    quote for all the tasks is preferred to one for a part.
    """
    if decision.plan is None or decision.ranking is None:
        return None
    ask, preferences, scale = decision.ask, decision.preferences, decision.ranking.scale
    wanted = ask.tasks - decision.plan.short
    limit = inf
    if ask.task_s is not None:  # else the finish of this site's own pools is a guess
        own = (one for one in decision.ranking.own() if fits(ask, one.estimate) >= wanted)
        limit = min((one.utility for one in own), default=inf) * (1 + preferences.band) + SAME
    known = {one.key: one for one in decision.preferred}
    best: tuple[tuple[bool, float, Key], PoolQuote] | None = None
    for quote in quotes:
        one = known.get(quote.key)
        takes = min(quote.tasks, wanted)
        if one is None or takes < 1:
            continue
        if _breaks_limits(ask, one, quote, takes):
            continue
        rate = preferences.rate(one.candidate.advert.currency) or 0.0
        money = (quote.price_nanos * one.estimate.slot_s / 3600 + quote.moves_nanos) * rate
        utility = scale.utility(money, quote.finish_at_s - utc_s, one.carbon)
        if utility > limit:
            continue
        rated = ((takes < wanted, utility, quote.key), quote)
        if best is None or rated[0] < best[0]:
            best = rated
    return best[1] if best is not None else None


def _breaks_limits(ask: Demand, one: Ranked, quote: PoolQuote, tasks: int) -> bool:
    if ask.task_s is None:  # its cost and its finish are guesses
        return ask.deadline_s is not None and quote.begin_at_s > ask.deadline_s
    wall_ns = tasks * round(one.estimate.task_s * 1e9)
    costs = cost_nanos(quote.price_nanos, wall_ns) + quote.moves_nanos
    is_late = ask.deadline_s is not None and quote.finish_at_s > ask.deadline_s
    return is_late or (ask.budget_nanos is not None and costs > ask.budget_nanos)


def lane_of(one: Ranked, ask: Demand, preferences: Preferences, utc_s: UtcS) -> Lane:
    """Convert a candidate to a lane for the splitter.

    Its rate is that of its slots, or that of its link when that is lower. While the duration of a
    task is unknown, a place gets one round of tasks to measure it, and no limit applies.
    """
    candidate, found = one.candidate, one.estimate
    is_known = ask.task_s is not None
    rate = found.slots / found.task_s
    if ask.task_bytes:
        rate = min(rate, candidate.link.bytes_s / ask.task_bytes)
    return Lane(
        key=candidate.key,
        rate=rate,
        task_s=found.task_s,
        start_s=found.begin_at_s + found.late_s - utc_s,
        closes_s=found.closes_at_s - utc_s if is_known else inf,
        tasks_max=ask.tasks if is_known else min(ask.tasks, found.slots),
        price_nanos=found.price_nanos,
        moves_nanos=found.moves_nanos,
        currency=candidate.advert.currency,
        currency_rate=preferences.rate(candidate.advert.currency) or 0.0,
        task_g=one.carbon / ask.tasks,
    )


def _plan(
    ask: Demand, liked: Sequence[Ranked], ranking: Ranking, preferences: Preferences, utc_s: UtcS
) -> tuple[list[Ranked], Split]:
    """Split over the preferred places; if they are too few, over others as well."""
    most = preferences.sites_max
    if ask.task_s is None and ask.budget_nanos is not None:
        # The cost of a task is unknown: measure it at one place, before it costs too much.
        most = 1
    preferred = list(liked[:most])
    plan = _split(ask, preferred, preferences, utc_s)
    if ask.task_s is None:
        return preferred, replace(plan, reason=Reason.DURATION_UNKNOWN) if plan.short else plan
    for others, taste in _others(ask, liked, ranking, preferences):
        if not plan.short:
            break
        other = _split(ask, others, taste, utc_s)
        if other.short < plan.short:
            preferred, plan = others, other
    return preferred, plan


def _others(
    ask: Demand, liked: Sequence[Ranked], ranking: Ranking, preferences: Preferences
) -> Iterator[tuple[list[Ranked], Preferences]]:
    """Yield alternative places for an ask, each with the preferences to use there.

    First the roomiest. For an ask with both a deadline and a budget also the cheapest, anywhere:
    limits take precedence over preferences.
    """
    most = preferences.sites_max
    if len(ranking) > most:
        yield _distinct(liked[: most // 2], ranking.roomiest(most, ask))[:most], preferences
    if ask.deadline_s is not None and ask.budget_nanos is not None:
        anywhere = replace(preferences, prefer_own_s=0.0)
        cheapest = ranking.cheapest(most)
        yield cheapest, anywhere
        yield _distinct(cheapest[: most // 2], ranking.roomiest(most, ask))[:most], anywhere


def _begun(
    ask: Demand,
    preferred: Sequence[Ranked],
    deferral: Deferral,
    preferences: Preferences,
    utc_s: UtcS,
) -> Split:
    """Return the part of a plan over time that begins at once; the rest waits."""
    lanes = tuple(lane_of(one, ask, preferences, utc_s) for one in preferred)
    tasks = tuple(deferral.now.get(lane.key, 0) for lane in lanes)
    reason = Reason.BETTER_LATER if deferral.waits else None
    return Split(lanes, tasks, deferral.waits, reason)


def _split(
    ask: Demand, preferred: Sequence[Ranked], preferences: Preferences, utc_s: UtcS
) -> Split:
    limits = SplitLimits()
    if ask.task_s is not None:
        deadline_s = inf if ask.deadline_s is None else ask.deadline_s - utc_s
        limits = SplitLimits(deadline_s, ask.budget_nanos)
    lanes = []
    tasks, left_nanos = ask.tasks, limits.budget_nanos
    for one in preferred:
        lane = lane_of(one, ask, preferences, utc_s)
        if _starts_at_home(one, preferences, utc_s):
            at_home = _home_tasks(_as_is(one, lane), preferences.prefer_own_s)
            home = min(tasks, at_home, lane.tasks_by(limits.deadline_s))
            if left_nanos is not None:
                home = min(home, lane.affords(left_nanos))
                left_nanos -= lane.cost_nanos(home)
            lane = replace(lane, tasks_min=home)
            tasks -= home
        lanes.append(lane)
    return split(lanes, ask.tasks, ask.objective, limits, preferences.band)


def _as_is(one: Ranked, lane: Lane) -> Lane:
    """Reduce a lane to its existing slots, without those that would be started."""
    warm = one.candidate.advert.slots_warm
    if lane.slots <= warm:
        return lane
    start_s = lane.start_s - one.estimate.late_s
    return replace(lane, rate=lane.rate * warm / lane.slots, start_s=start_s)


def _home_tasks(lane: Lane, prefer_own_s: float) -> int:
    """Return the number of tasks that start at home while home is preferred."""
    ahead_s = prefer_own_s - lane.start_s
    if ahead_s == inf:
        return lane.tasks_max
    return tasks_by(ahead_s + lane.task_s, lane.slots, lane.task_s)


def _distinct(*groups: Sequence[Ranked]) -> list[Ranked]:
    return list({one.key: one for group in groups for one in group}.values())


def _starts_at_home(one: Ranked, preferences: Preferences, utc_s: UtcS) -> bool:
    if not preferences.prefer_own_s or not one.candidate.is_own:
        return False
    if one.candidate.is_cold and preferences.prefer_own_s < inf:
        return False  # idle owned slots come before peers, and peers before rented slots
    return one.estimate.begin_at_s - utc_s <= preferences.prefer_own_s
