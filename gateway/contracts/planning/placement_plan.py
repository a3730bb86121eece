"""Applies placement plans: tasks that each pool may take, and sites to ask for quotes. Pure.

A plan names the best pools of all sites. Tasks may go only to our own pools and to pools with which
we have a contract.
"""

from collections.abc import Set
from math import inf
from typing import Final

from federation.clocks import UtcS
from federation.reasons import NEVER, Reason
from gateway.contracts.buying.purchases import Purchases
from gateway.contracts.model.purchase import Purchase
from gateway.contracts.planning.eligibility import SiteEligibility
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.jobs import Job
from policies.placement.asks import Preferences
from policies.placement.decisions import Decision, DecisionReason
from policies.placement.estimates import affords
from policies.placement.market import Key, Market
from policies.placement.ranking import tie_break

# The contracts that one job may have with one pool at a time, as its work grows.
CONTRACTS_PER_POOL_MAX: Final = 8


class PlacementPlan:
    """Applies plans within the current contracts.

    Args:
        site: our site.
        broker: holds the tasks in flight under contracts.
        preferences: limits how many quotes are requested at a time.
        market: is notified of tasks sent.
        purchases: our contracts, and the sites in back-off.
        reach: finds sites that may know others that we don't.
    """

    def __init__(
        self,
        site: str,
        broker: Broker,
        preferences: Preferences,
        market: Market,
        purchases: Purchases,
        reach: SiteEligibility,
    ) -> None:
        self._site = site
        self._broker = broker
        self._preferences = preferences
        self._market = market
        self._purchases = purchases
        self._reach = reach

    def of(self, job: Job, decision: Decision) -> dict[str, float]:
        """Return how many waiting tasks each pool may take: the plan, where contracts are open.

        The largest share is unbounded: tasks that arrive before the next plan go there.
        """
        if decision.plan is None:
            # No visible pool can run it, but a site with a contract may know one.
            is_hopeful = decision.why is DecisionReason.NOBODY and not self.is_too_dear(
                job, decision
            )
            live = self._purchases.live(job.id) if is_hopeful else []
            return {each.place: inf for each in live}
        shares = decision.plan.shares
        limited = (
            decision.ask.task_s is None
            or decision.ask.budget_nanos is not None
            or decision.puts_off
        )
        most = max((n for _, n in shares), default=0)
        open_now = {each.place for each in self._purchases.live(job.id)}
        places: dict[str, float] = {}
        for lane, tasks in shares:
            name = self.name(lane.key)
            if lane.key[0] == self._site or name in open_now:
                places[name] = inf if tasks == most and not limited else tasks
        return places

    def name(self, key: Key) -> str:
        """Return the broker's name of a pool: for another site's pool with the site as prefix."""
        site, pool = key
        return pool if site == self._site else f"{site}/{pool}"

    def to_ask(self, job: Job, decision: Decision) -> list[Key]:
        """Return the sites to ask for a quote: those of the plan without enough contracts."""
        if decision.why is DecisionReason.NOBODY:
            terms = decision.ask.terms
            live = {each.site for each in self._purchases.live(job.id)}
            site_backoff, chance = self._purchases.site_backoff, tie_break(job.id)
            near = [
                site
                for site in self._reach.relays(job.spec, terms)
                if site not in live
                and site not in site_backoff.sites
                and not self._is_useless(job, decision, site)
            ]
            # Jobs start with different sites; useless ones make way for the next.
            near.sort(key=lambda site: chance((site, "")))
            return [(site, "") for site in near[: self._preferences.quotes_max]]
        enough = self._enough(job, decision)
        shares = [lane.key for lane, _ in decision.plan.shares] if decision.plan else []
        if len(shares) == 1 and shares[0] in enough:
            return []
        return [key for key in decision.quotes_from if key not in enough]

    def _is_useless(self, job: Job, decision: Decision, site: str) -> bool:
        """Whether a site has nothing for a job now.

        What was too dear for tasks as long as those of other jobs may not be for those of this one:
        that is asked anew without a duration, for its first round.
        """
        site_backoff = self._purchases.site_backoff
        dear = site_backoff.too_dear(job.id).get(site)
        if decision.ask.task_s is None and dear is not None and dear.is_by_duration:
            return False
        return site_backoff.is_useless(job.id, site, decision.made_at_s)

    def _enough(self, job: Job, decision: Decision) -> Set[Key]:
        """Return the pools that a job has enough contracts with.

        A contract has the slots that its pool quoted for the work at that time. If all of them are
        taken, more work waits, and the pool shows free slots, another contract buys some of them.
        """
        live: dict[Key, list[Purchase]] = {}
        for each in self._purchases.live(job.id):
            live.setdefault((each.site, each.pool), []).append(each)
        more = {
            one.key
            for one in decision.preferred
            if one.candidate.slots_free
            and 0 < len(live.get(one.key, ())) < CONTRACTS_PER_POOL_MAX
            and all(map(self._is_taken, live[one.key]))
        }
        return live.keys() - more

    def _is_taken(self, purchase: Purchase) -> bool:
        """Whether each slot of a contract has a task."""
        worker = self._broker.workers.get(purchase.handle)
        return worker is not None and worker.in_flight >= worker.slots

    def is_too_dear(self, job: Job, decision: Decision) -> bool:
        """Whether a job could run, were it not for its cost limit.

        A pool that is closed, has no worker or is in back-off counts only if the job can afford it
        once it opens. A pool that has refused work of this kind does not count. Neither does a pool
        without a slot for a long time: it may never have one again, and the job would wait forever.
        """
        if decision.why is not DecisionReason.NOBODY:
            return False  # checked first, because there may be thousands of refusals
        hopes = [each for each in decision.refused if each[1].reason not in NEVER]
        is_dear = any(refusal.reason is Reason.COST_LIMIT for _, refusal in hopes)
        return (is_dear or self._all_too_dear(job, decision)) and not any(
            refusal.reason is not Reason.COST_LIMIT
            and affords(decision.ask, candidate)
            and not candidate.is_deserted(decision.made_at_s)
            and not self._purchases.site_backoff.was_refused(job.spec, *candidate.key)
            for candidate, refusal in hopes
        )

    def _all_too_dear(self, job: Job, decision: Decision) -> bool:
        """Whether all sites that may know others have quoted more than a job can pay."""
        relays = self._reach.relays(job.spec, decision.ask.terms)
        return bool(relays) and self._purchases.site_backoff.too_dear(job.id).keys() >= set(relays)

    def idle(self, job: Job) -> list[Key]:
        """Return the pools where a job has bought slots that have no task of it yet.

        The load noted as sent there is the job's own. It would keep the job off the slots that it
        has bought, and start our own slots instead.
        """
        live = self._purchases.live(job.id)
        return [(each.site, each.pool) for each in live if not self._is_taken(each)]

    def note_sent(self, job: str, decision: Decision, asked: list[Key], utc_s: UtcS) -> None:
        """Count tasks sent to pools as load that their adverts do not show yet."""
        for lane, tasks in decision.plan.shares if decision.plan else ():
            if lane.key in asked:
                self._market.sent(lane.key, tasks, tasks * lane.task_s, utc_s, job)
