"""Decides where tasks would go now, at our pools and at other sites, and judges limits by it. Pure.

`policies.placement` decides; this module gives it a job's request, the sites in back-off, and the
state of the market. gateway.contracts.exchange plans by the decisions, and people ask for them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from federation.clocks import MonoS, UtcS
from federation.reasons import Reason
from gateway.config.contracts import DealRules
from gateway.contracts.buying.purchases import Purchases
from gateway.contracts.model.object_moves import ObjectMoves
from gateway.contracts.planning.deferring import why_at_once
from gateway.contracts.planning.eligibility import SiteEligibility
from gateway.contracts.planning.limits import (
    are_bound,
    committed_nanos,
    said_s,
)
from gateway.contracts.planning.placement_plan import PlacementPlan
from gateway.contracts.planning.planning_rate import JUDGED_PLANS, PlanningRateLimit
from gateway.contracts.planning.unpaid import payable
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.spending import Short
from policies.parties import Owner
from policies.placement.asks import Demand, Preferences
from policies.placement.brokering import BackoffEnd, place
from policies.placement.deadlines import DeadlineCheck, check_deadline
from policies.placement.decisions import Decision
from policies.placement.deferral import Deferral
from policies.placement.market import Market
from policies.placement.offers import Unmet, falls_short, judge, why_hopeless, why_too_late
from policies.placement.ranking import tie_break


class PlacementDecider:
    """Answers where the tasks of a job would go, and whether its limits can be met.

    Args:
        site: our name.
        broker: ours.
        preferences, rules: the settings of placing work, and of contracts.
        market: the adverts of all sites.
        purchases: our contracts, and the sites in back-off.
        reach: the sites that a job may go to.
        places: the contracts that lie idle for a job.
        looks: the quota of planning, which judgements share.
        refresh: updates the market with our own pools, as a job finds them: Exchange.refresh.
        moves: of objects between sites.
    """

    def __init__(  # noqa: PLR0913 - its dependencies, each by its name
        self,
        site: str,
        broker: Broker,
        preferences: Preferences,
        rules: DealRules,
        market: Market,
        purchases: Purchases,
        reach: SiteEligibility,
        places: PlacementPlan,
        looks: PlanningRateLimit,
        refresh: Callable[[UtcS, Job | None, Owner], None],
        moves: ObjectMoves,
    ) -> None:
        self._site = site
        self._broker = broker
        self._preferences = preferences
        self._rules = rules
        self._market = market
        self._purchases = purchases
        self._reach = reach
        self._places = places
        self._looks = looks
        self._refresh = refresh
        self._moves = moves

    def begin_looks(self, mono_s: MonoS) -> None:
        """Begin a round of planning, if the last is over; see PlanningRateLimit."""
        pools = self._broker.occupancy.pools.values()
        spans = sum(len(each.rules.spans) for each in pools)
        self._looks.begin(mono_s, len(self._market.candidates), spans)

    def decide_for(
        self,
        job: Job,
        tasks: int,
        utc_s: UtcS,
        short: Short | None = None,
        *,
        is_measured: bool = True,
    ) -> Decision:
        """Decide where `tasks` tasks of a job would go now.

        Args:
            job: the job of the tasks.
            tasks: their number.
            utc_s: now.
            short: the budgets that have no room for one; None: to be determined here.
            is_measured: False: treat their duration as unknown.
        """
        task_s = None
        if is_measured:
            task_s = said_s(job, self._broker.durations.of(job.spec.function), utc_s)
        ask = self._demand(job.spec, tasks, task_s, is_measured=is_measured)
        if ask.budget_nanos is not None:
            # Tasks in flight are paid already, unless the question is about them.
            spent = committed_nanos(job, ask.task_s) if job.waiting else job.limited_nanos
            ask = replace(ask, budget_nanos=max(0, ask.budget_nanos - spent))
        if job.unfit:  # contracts among them are named like other sites' pools
            ask = replace(ask, terms=replace(ask.terms, barred=ask.terms.barred | job.unfit))
        ask = self._with_moves(job, ask)
        at_once = why_at_once(job, is_crowded=self._broker.is_crowded)
        ask = replace(ask, deferrable=ask.deferrable and not at_once)
        is_unfit = bool(job.unfit) and not self._broker.roster.has_fit(job, here=True)
        spared = self._spared(job.spec, utc_s, short, is_unfit=is_unfit)
        market = self._market.without(job.id, self._places.idle(job))
        # With its own tie-break: among near-equals the job stays with its choice.
        decision = place(ask, market, self._preferences, utc_s, tie_break(job.id), spared)
        rest = BackoffEnd(utc_s + max(1.0, self._rules.plan_s), "is dearer than a budget allows")

        def without(pools: list[str]) -> Decision:
            rests = {**spared, **dict.fromkeys(pools, rest)}
            return place(ask, market, self._preferences, utc_s, tie_break(job.id), rests)

        bought = self._purchases.places(job.id)
        decision = payable(job, decision, market.candidates, bought, without)
        if at_once and job.spec.wishes.deferrable:
            decision = replace(decision, deferral=Deferral(at_once))
        return decision

    def _with_moves(self, job: Job, ask: Demand) -> Demand:
        """Add the objects that would move with a job, to sites where it has no contract yet."""
        moved_bytes = self._moves.input_bytes(job.id)
        if not moved_bytes:
            return ask
        moved_to = frozenset(each.site for each in self._purchases.live(job.id))
        return replace(ask, moved_bytes=moved_bytes, moved_to=moved_to)

    def decide(
        self, spec: JobSpec, tasks: int, utc_s: UtcS, task_s: float | None = None
    ) -> Decision:
        """Decide where tasks of this kind would go now, and why.

        Args:
            spec: the kind of work.
            tasks: their number.
            utc_s: now.
            task_s: a stated duration, which overrides the measured one.
        """
        ask, spared = self._demand(spec, tasks, task_s), self._spared(spec, utc_s)
        return place(ask, self._market, self._preferences, utc_s, tie_break(""), spared)

    def _demand(
        self, spec: JobSpec, tasks: int, task_s: float | None, *, is_measured: bool = True
    ) -> Demand:
        """The request for `tasks` tasks of a job, with all of its money."""
        durations, at = self._broker.durations, {}
        if task_s is None and is_measured:
            task_s = durations.of(spec.function)
            at = durations.by_site(spec.function)
        return Demand(
            terms=self._reach.terms(spec),
            objective=spec.wishes.objective or self._preferences.objective,
            tasks=max(1, tasks),
            task_s=task_s,
            task_s_at={site or self._site: seconds for site, seconds in at.items()},
            deadline_s=spec.wishes.deadline_s,
            when_closed=spec.wishes.when_closed,
            budget_nanos=spec.max_cost_nanos,
            price_class=spec.price_class,
            # Another site's job is deferred there, if at all.
            deferrable=spec.wishes.deferrable and not spec.path,
        )

    def _spared(
        self, spec: JobSpec, utc_s: UtcS, short: Short | None = None, *, is_unfit: bool = False
    ) -> Mapping[str, BackoffEnd]:
        """Sites and pools in back-off; ours too while a budget has no room for a task here.

        At another site a contract bounds the cost of tasks, and may be cheaper. Our site is also
        excluded where none of our workers could make the environment of a job (`is_unfit`).
        """
        site_backoff = self._purchases.site_backoff.rests(spec)
        budget = (short or self._broker.spending.short(spec)).budget
        reason = Reason.SITE_RESTING
        if is_unfit:
            why = "environment build failed on its workers"
        elif budget:
            why, reason = f"{budget} has no room for a task now", Reason.BUDGET_EXHAUSTED
        else:
            return site_backoff
        until_s = utc_s + max(1.0, self._rules.plan_s)
        return {**site_backoff, self._site: BackoffEnd(until_s, why, reason=reason)}

    # --- limits of jobs ------------------------------------------------------------------------

    def _judge(self, spec: JobSpec, ask: Demand, utc_s: UtcS, chance: str) -> Unmet | None:
        spared = self._spared(spec, utc_s)
        return judge(ask, self._market, self._preferences, utc_s, tie_break(chance), spared)

    def judge_planned(self, job: Job, decision: Decision) -> Unmet | None:
        """Return why a job's plan can't meet its limits; see LimitWatch."""
        self._looks.planned(JUDGED_PLANS)
        return self._judge(job.spec, decision.ask, decision.made_at_s, job.id)

    def unmet(self, job: str, spec: JobSpec, tasks: int, utc_s: UtcS) -> Unmet | None:
        """Why a new job is refused for its limits: with alternative offers, or as hopeless.

        If very many arrive at once, the last ones are judged only when planned.
        """
        if not _may_be_refused(spec):
            return None
        self.begin_looks(self._broker.monotonic_s)
        ask = self._demand(spec, tasks, spec.task_s)
        if ask.task_s is None or self._looks.judgements <= 0:
            return None
        arrived = self._broker.jobs.get(job)  # its arrived tasks are not a load ahead of it
        self._refresh(utc_s, arrived, spec.whose)
        unmet = self._judge_new(spec, ask, utc_s, job)
        self._looks.judged(len(self._broker.jobs), is_refused=unmet is not None)
        return unmet

    def explain_refusal(self, spec: JobSpec, tasks: int, utc_s: UtcS) -> Unmet | None:
        """Return why a job of this kind would be refused for its limits; None if it would not.

        For questions. The market is taken as it was last shown for the owner of the work, and
        nothing is counted: the judgements of a round are for jobs that begin.
        """
        if not _may_be_refused(spec):
            return None
        ask = self._demand(spec, tasks, spec.task_s)
        return None if ask.task_s is None else self._judge_new(spec, ask, utc_s, "")

    def _judge_new(self, spec: JobSpec, ask: Demand, utc_s: UtcS, chance: str) -> Unmet | None:
        unmet = self._judge(spec, ask, utc_s, chance) if are_bound(spec) else None
        if unmet is None or not unmet.offers:
            unmet = self._hopeless(spec, ask, utc_s)
        return unmet

    def _hopeless(self, spec: JobSpec, ask: Demand, utc_s: UtcS) -> Unmet | None:
        """Why no task of a job can be paid for, or end in time, by its client's stated duration.

        Unknown as long as a site that it may go to has not shown its pools. A measured duration
        does not refuse: the calls that were measured may have been longer.
        """
        if spec.task_s is None or self._reach.is_unheard(spec, ask.terms):
            return None
        one = replace(ask, tasks=1, deferrable=False)
        decision = place(one, self._market, self._preferences, utc_s, tie_break(""), {})
        if why := why_hopeless(decision):
            return Unmet(ask, ask.tasks, Reason.COST_LIMIT, (), why)
        if why := why_too_late(decision):
            judged = self._judge(spec, ask, utc_s, "")
            offers = judged.offers if judged is not None else ()
            return Unmet(ask, ask.tasks, Reason.DEADLINE, offers, why)
        return None

    def explain_unmet(self, spec: JobSpec, decision: Decision, chance: str) -> Unmet | None:
        """Return why a plan can't meet its job's limits; None if it can."""
        if spec.path or not falls_short(decision):
            return None
        return self._judge(spec, decision.ask, decision.made_at_s, chance)

    def explain_deadline(
        self,
        spec: JobSpec,
        decision: Decision,
        chance: str,
        unmet: Unmet | None,
        busy_until_s: UtcS | None = None,
    ) -> DeadlineCheck | None:
        """Return the expected end of a plan against its job's deadline; None without one.

        Args:
            spec: the job.
            decision: the plan of its tasks that wait.
            chance: its id, for the draw among near-equals.
            unmet: as from `explain_unmet`.
            busy_until_s: when its running tasks are expected to end, UTC.
        """
        return check_deadline(
            decision,
            self._market,
            self._preferences,
            tie_break(chance),
            self._spared(spec, decision.made_at_s),
            unmet.offers if unmet is not None else (),
            busy_until_s,
        )


def _may_be_refused(spec: JobSpec) -> bool:
    """Whether a new job is judged by its limits: all its tasks must meet them, or it says how long.

    Another site's job is judged by that site.
    """
    has_limit = spec.max_cost_nanos is not None or spec.wishes.deadline_s is not None
    return not spec.path and (are_bound(spec) or (has_limit and spec.task_s is not None))
