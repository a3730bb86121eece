"""What follows from a plan: how many tasks each pool may take, and who is asked for a quote. Pure.

A plan names the best pools there are; tasks may go only where there is a contract, and to our own.
"""

from collections.abc import Set
from math import inf
from typing import Final

from federation.reasons import NEVER, Reason
from gateway.broker import Broker
from gateway.jobs import Job
from gateway.purchase import Purchase
from gateway.purchases import Purchases
from gateway.reach import Reach
from policies.asks import House
from policies.decisions import Decision, Why
from policies.estimates import affords
from policies.market import Key, Market
from policies.ranking import lots

# So many contracts may one job have with one pool at a time, as its work grows.
CONTRACTS_PER_POOL_MAX: Final = 8


class Places:
    """Reads plans by the contracts that there are.

    Args:
        site: who we are.
        broker: what is out under contracts.
        house: how many quotes are asked for at a time.
        market: told what is sent.
        purchases: our contracts, and who rests.
        reach: who may know a site that we don't.
    """

    def __init__(
        self,
        site: str,
        broker: Broker,
        house: House,
        market: Market,
        purchases: Purchases,
        reach: Reach,
    ) -> None:
        self._site = site
        self._broker = broker
        self._house = house
        self._market = market
        self._purchases = purchases
        self._reach = reach

    def of(self, job: Job, decision: Decision) -> dict[str, float]:
        """How many of the waiting tasks each pool may take: the plan, as far as contracts are open.

        The largest share is without end: work that comes before the next plan goes there.
        """
        if decision.plan is None:
            # Nobody whom we see can run it, but who has a contract may know somebody.
            is_hopeful = decision.why is Why.NOBODY and not self.is_too_dear(job, decision)
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
        """What the broker calls a pool: ours by its name, another's after its site."""
        site, pool = key
        return pool if site == self._site else f"{site}/{pool}"

    def to_ask(self, job: Job, decision: Decision) -> list[Key]:
        """Whom to ask for a quote: those of the plan whose contracts with us are not enough."""
        if decision.why is Why.NOBODY:
            terms = decision.ask.terms
            live = {each.site for each in self._purchases.live(job.id)}
            resting, chance = self._purchases.resting, lots(job.id)
            near = [
                site
                for site in self._reach.relays(job.spec, terms)
                if site not in live
                and site not in resting.sites
                and not resting.is_useless(job.id, site, decision.made_s)
            ]
            # Each job begins with others; those that are of no use make way for the next.
            near.sort(key=lambda site: chance((site, "")))
            return [(site, "") for site in near[: self._house.quotes_max]]
        enough = self._enough(job, decision)
        shares = [lane.key for lane, _ in decision.plan.shares] if decision.plan else []
        if len(shares) == 1 and shares[0] in enough:
            return []
        return [key for key in decision.quotes_from if key not in enough]

    def _enough(self, job: Job, decision: Decision) -> Set[Key]:
        """The pools that a job has a contract with, and needs no further one with.

        A contract has the slots that its pool quoted for the work that there was. If they are all
        taken, more work waits, and the pool shows free ones, another contract buys some of them.
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

        A pool that is shut, has no worker now or is spared is no hope if it will be too dear when
        it opens; nor is one that has said that it will not have work of this kind, nor one that
        has had no slot for long: perhaps it never has one again, and the job would wait for good.
        """
        if decision.why is not Why.NOBODY:
            return False  # before anything else: there may be thousands that refused
        hopes = [each for each in decision.refused if each[1].reason not in NEVER]
        is_dear = any(refusal.reason is Reason.COST_LIMIT for _, refusal in hopes)
        return is_dear and not any(
            refusal.reason is not Reason.COST_LIMIT
            and affords(decision.ask, candidate)
            and not candidate.is_deserted(decision.made_s)
            and not self._purchases.resting.was_refused(job.spec, *candidate.key)
            for candidate, refusal in hopes
        )

    def idle(self, job: Job) -> list[Key]:
        """The pools where a job has bought slots that have no task of it yet.

        What was noted as sent there is its own work: it would keep the job from what it has bought,
        and have slots of ours started instead.
        """
        live = self._purchases.live(job.id)
        return [(each.site, each.pool) for each in live if not self._is_taken(each)]

    def note_sent(self, job: str, decision: Decision, asked: list[Key], utc_s: float) -> None:
        """Count what goes there as load that their adverts do not show yet."""
        for lane, tasks in decision.plan.shares if decision.plan else ():
            if lane.key in asked:
                self._market.sent(lane.key, tasks, tasks * lane.task_s, utc_s, job)
