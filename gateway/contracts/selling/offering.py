"""Selling: turns another site's request for a quote into a quote or a refusal. Pure.

Checks run in order of cost: is the request well-formed, is it acceptable, does its user's grant
allow it, which of our pools would finish first, and could another site do a job that our pools
can't. The answer promises nothing and holds nothing; gateway.contracts.selling.sales records it,
and checks again here before slots are held.

Only the grant signer keeps state: it accepts each grant once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase
from federation.objects.labels import DataLabel
from federation.objects.left import AUTO
from federation.reasons import Reason
from federation.words import duration_text
from gateway.base.tags import OBJECTS_TAG
from gateway.config.contracts import DealRules
from gateway.contracts.model.dealing import RELAY, Permits
from gateway.contracts.model.object_moves import ObjectMoves
from gateway.contracts.model.quotations import quoted_terms
from gateway.contracts.model.sale import Sale
from gateway.contracts.selling.advertising import cold_slots, waiting
from gateway.contracts.selling.shortfalls import Shortfalls
from gateway.scheduler.broker import Broker
from gateway.scheduler.model.intake import BadJob, check_spec
from gateway.scheduler.model.job_grants import GrantSigner, NotGranted, check_ask
from gateway.scheduler.model.jobs import Worker
from gateway.scheduler.model.terms import HOPS_MAX, JobSpec
from gateway.scheduler.quotas.occupancy import is_reserved
from policies.placement.asks import CHEAPEST
from policies.placement.decisions import Decision
from policies.placement.placement import judge
from policies.placement.ranking import Ranked
from policies.tariffs import Extras, Tariff

UNMEASURED_S: Final = 1.0  # see Offering._slots_paid
# Contracts whose slots are used by the buyer, or were just offered to it.
TAKEN: Final = frozenset(
    {ContractPhase.QUOTED, ContractPhase.HELD, ContractPhase.OPEN, ContractPhase.CLOSING}
)


@dataclass(frozen=True, slots=True)
class Offered:
    """A quote, with the job's `spec` as the broker would open it, at `price`."""

    quote: deals.Quote
    spec: JobSpec
    price: Tariff


class Offering:
    """The quotes that we give to other sites.

    Args:
        site: our site.
        broker: the broker; only read.
        rules: the settings.
        permits: the sites and rules that we sell by.
        signer: checks grants.
        sales: the contracts sold, by buyer and name; only read.
        decide: places a job as our own: PlacementDecider.decide.
        suits: whether one of our pools is at a location where the job's user lets it run.
        moves: of objects between sites.
        why_not_back: why data with a label may not be read for a buyer here.
    """

    def __init__(  # noqa: PLR0913 - its dependencies, each by its name
        self,
        site: str,
        broker: Broker,
        rules: DealRules,
        permits: Permits,
        signer: GrantSigner,
        sales: Mapping[tuple[str, str], Sale],
        decide: Callable[..., Decision],
        suits: Callable[[JobSpec, str], bool],
        moves: ObjectMoves,
        why_not_back: Callable[[DataLabel, str], str],
    ) -> None:
        self._site = site
        self._broker = broker
        self._rules = rules
        self._permits = permits
        self._signer = signer
        self._sales = sales
        self._decide = decide
        self._suits = suits
        self.shortfalls = Shortfalls()
        self._moves = moves
        self._why_not_back = why_not_back

    def answer(self, buyer: str, ask: deals.AskQuote, utc_s: UtcS) -> Offered | deals.Decline:
        """Answer a request for a quote; ProtocolError when it breaks the rules."""
        try:
            spec = check_spec(ask, f"{ask.user}@{buyer}")
        except BadJob as error:
            return deals.Decline(ask.contract, Reason.BAD_REQUEST, str(error))
        may_leave = self._pays_moves(ask) and self._moves.leaves_results()
        results = AUTO if ask.results == AUTO and may_leave else ""
        spec = replace(spec, path=tuple(ask.path), results=results, far_results=True)
        declined = self._check_asked(buyer, ask) or self._check_moves(ask)
        declined = declined or self._check_entitled(buyer, ask, spec)
        if declined is not None:
            return declined
        if why := self._why_not_back(spec.wishes.label, buyer):
            reason = f"results and output of its tasks may not go to {buyer} from here: {why}"
            return deals.Decline(ask.contract, Reason.OUTSIDE_LABEL, reason)
        try:
            given = self._signer.check(buyer, ask.grant, utc_s)
            check_ask(ask, given)
        except NotGranted as error:
            return deals.Decline(ask.contract, error.code, f"invalid grant: {error}")
        spec = replace(spec, currency=given.grant_terms.currency or None, given=given)
        broke = self._check_money(ask, spec, utc_s) or self._check_grant(ask, spec, utc_s)
        if broke is not None:
            return broke
        offers = self._offers(ask, spec, utc_s)
        best = min(offers, key=lambda each: each[0], default=None)
        found = best[1:] if best is not None else self._relayed(ask, spec, utc_s)
        if found is None:
            return self._nothing(buyer, ask, spec, utc_s)
        return self._offered(ask, spec, *found)

    def can_hold(self, sale: Sale, utc_s: UtcS) -> bool:
        """Whether the quoted slots are still there; a relay's quoted slots are another site's."""
        if sale.pool == RELAY or sale.spec is None:
            return True
        task_s = self._broker.durations.of(sale.spec.function)
        slots = self._warm_slots(sale.spec, sale.pool, task_s, utc_s)
        if sale.slots > slots:  # the quote included slots that are yet to be started
            slots += self._cold_slots(sale.spec, sale.pool, slots, utc_s)
        return not self._broker.draining and sale.slots <= slots

    def held_slots(self, pool: str) -> int:
        """Return the slots of a pool that are held for uncommitted contracts."""
        held = (each for each in self._sales.values() if each.phase is ContractPhase.HELD)
        return sum(each.slots for each in held if each.pool == pool)

    def promised(self, pool: str) -> int:
        """Return how many slots of a pool are promised to contracts and yet to be started.

        Existing slots go to these contracts first. A contract is promised a slot per task, up to
        the slots sold, and all of those while its first tasks are in flight.
        """
        if pool not in self._broker.growth:
            return 0
        slots = self.held_slots(pool)
        for each in self._sales.values():
            if each.pool == pool and each.is_live:
                job = self._broker.jobs.get(each.job)
                tasks = job.waiting + job.in_flight if job is not None else 0
                slots += each.slots if each.is_awaited else min(each.slots, tasks)
        # Workers are counted only for pools with sales: there may be thousands.
        return max(0, slots - self._broker.occupancy.slots(pool)) if slots else 0

    # --- refusals ------------------------------------------------------------------------------

    def _check_asked(self, buyer: str, ask: deals.AskQuote) -> deals.Decline | None:
        """Refuse a request that is not considered at all now."""
        broker = self._broker
        if buyer not in ask.path or ask.path[-1] != buyer:
            raise ProtocolError("the path does not end with the buyer")
        if self._site in ask.path:
            code, reason = Reason.ALREADY_VISITED, f"the job came through {self._site} before"
        elif broker.trouble:
            code, reason = Reason.STORE_TROUBLE, f"{self._site} can't record work now"
        elif broker.draining:
            code, reason = Reason.DRAINING, f"{self._site} accepts no new work"
        elif ask.hops_left > HOPS_MAX or len(ask.path) > HOPS_MAX + 1:
            code, reason = Reason.NO_HOPS_LEFT, f"the path has more than {HOPS_MAX} hops"
        else:
            return None
        return deals.Decline(ask.contract, code, reason)

    def _pays_moves(self, ask: deals.AskQuote) -> bool:
        """Whether a buyer pays for bytes that move, or they are free."""
        return ask.moves or not self._moves.prices()

    def _check_moves(self, ask: deals.AskQuote) -> deals.Decline | None:
        """Refuse calls with objects of a buyer whose version does not pay for moves."""
        if OBJECTS_TAG not in ask.tags or self._pays_moves(ask):
            return None
        reason = f"{self._site} charges for objects that move, and {ask.path[-1]} does not pay that"
        return deals.Decline(ask.contract, Reason.OBJECTS_STAY, reason)

    def _check_entitled(
        self, buyer: str, ask: deals.AskQuote, spec: JobSpec
    ) -> deals.Decline | None:
        """Refuse a job that our entitlements give no slots; the details are internal."""
        objection = self._broker.entitling.objection(spec, self._broker.peers.may_run)
        if objection is None:
            return None
        whole = objection[0] == Reason.NOT_ENTITLED  # otherwise it has its maximum for now
        reason = (
            f"the entitlements of {self._site} allow {buyer} no "
            f"{'slots' if whole else 'more slots'} for this job"
        )
        line = self._broker.entitling.line_of_refusal(spec) if whole else 0
        reason += f" (the [[entitlement]] at line {line} of its file)" if line else ""
        code = Reason.NOT_ENTITLED if whole else Reason.NO_SLOTS
        return deals.Decline(ask.contract, code, reason)

    def _check_money(self, ask: deals.AskQuote, spec: JobSpec, utc_s: UtcS) -> deals.Decline | None:
        """Refuse a job whose cost the buyer's credit, or a budget, can't cover in any pool."""
        if not self._broker.budget_accounts:
            return None
        found: tuple[str, str] | None = None
        for _, tariff in self._priced(ask, spec, utc_s):
            found = self._broker.spending.objection(spec, ask.path[-1], tariff)
            if found is None:
                return None
        return None if found is None else deals.Decline(ask.contract, *found)

    def _slots_paid(self, ask: deals.AskQuote, spec: JobSpec, price: Tariff) -> int:
        """Return how many slots its grant pays to run a task each, at most one for each task.

        If this site has measured none of its tasks, a task is taken to run for at least
        UNMEASURED_S, whatever the buyer says: otherwise much would run for a small grant until it
        is stopped (gateway.contracts.selling.stopping). A smaller grant buys one slot all the same,
        unless small grants of this buyer have left too much unpaid.
        """
        tasks = max(1, ask.tasks)
        most = spec.given.grant_terms.max_cost_nanos if spec.given is not None else None
        measured_s = self._broker.durations.of(spec.function)
        task_s = max(ask.task_s or 0.0, UNMEASURED_S) if measured_s is None else measured_s
        one = price.expected_nanos(1, task_s)
        if most is None or not one:
            return tasks
        return max(0 if self._has_shortfall(ask) else 1, min(tasks, most // one))

    def _has_shortfall(self, ask: deals.AskQuote) -> bool:
        """Whether small grants of a buyer have left too much unpaid."""
        return self.shortfalls.is_over(ask.path[-1], self._broker.monotonic_s)

    def _check_grant(self, ask: deals.AskQuote, spec: JobSpec, utc_s: UtcS) -> deals.Decline | None:
        """Decline a question whose grant pays for no slot, at the price of any pool."""
        if not self._has_shortfall(ask):
            return None  # a grant of any amount buys a slot
        prices = [price for _, price in self._priced(ask, spec, utc_s)]
        if not prices or any(self._slots_paid(ask, spec, price) for price in prices):
            return None
        reason = (
            f"small grants of {ask.path[-1]} left work at {self._site} unpaid: the grant "
            f"must pay for at least {duration_text(UNMEASURED_S)} of a slot"
        )
        return deals.Decline(ask.contract, Reason.COST_LIMIT, reason)

    def _nothing(
        self, buyer: str, ask: deals.AskQuote, spec: JobSpec, utc_s: UtcS
    ) -> deals.Decline:
        """Decline for lack of an offer: because of our rules, or because there is no slot."""
        pools = list(self._pools_for(ask, spec, utc_s))
        barred = [
            (pool, price) for pool, price in pools if self._may_not(ask, spec, pool, price, utc_s)
        ]
        if not barred:
            shut = self._shut(ask, spec, [pool for pool, _ in pools], utc_s)
            reason = f"{self._site} has no slots that can run the job now{shut}"
            return deals.Decline(ask.contract, Reason.NO_SLOTS, reason)
        for pool, price in barred:
            if not self._permits.may_send(buyer, ask.path[0], pool, spec.project, 1, price):
                why = self._why_no_more(ask, spec, pool, price)
                reason = (
                    f"{buyer} has all the slots that the rules of {self._site} allow it at a "
                    f"time: {why}"
                )
                return deals.Decline(ask.contract, Reason.NO_SLOTS, reason)
        pool, price = barred[0]
        why = self._permits.may_send(buyer, ask.path[0], pool, spec.project, 1, price)
        reason = f"the rules of {self._site} allow {buyer} no slots: {why}"
        return deals.Decline(ask.contract, Reason.NOT_ENTITLED, reason)

    def _shut(self, ask: deals.AskQuote, spec: JobSpec, pools: list[str], utc_s: UtcS) -> str:
        """Return which window keeps a job out of the requested pools now; empty if none does."""
        task_s = self._task_s(ask, spec)
        for pool in pools:
            shut = self._broker.occupancy.shut(pool, spec, task_s, utc_s)
            if shut is not None:
                return f": pool {pool} {shut.text}"
        return ""

    def _may_not(
        self, ask: deals.AskQuote, spec: JobSpec, pool: str, price: Tariff, utc_s: UtcS
    ) -> bool:
        """Whether a pool could run the job and only our rules forbid it."""
        if not self._suits(spec, pool) or self._permitted(ask, spec, pool, 1, price):
            return False
        return any(self._room(ask, replace(spec, price=price), pool, utc_s))

    def _why_no_more(self, ask: deals.AskQuote, spec: JobSpec, pool: str, price: Tariff) -> str:
        """Return the rule by which a buyer may have no slot of a pool beside those it has."""
        slots = self._slots_of(ask.path[-1], pool) + 1
        return self._permits.may_send(ask.path[-1], ask.path[0], pool, spec.project, slots, price)

    # --- offers --------------------------------------------------------------------------------

    def _pools_for(
        self, ask: deals.AskQuote, spec: JobSpec, utc_s: UtcS
    ) -> Iterator[tuple[str, Tariff]]:
        """Yield the requested pools whose charge for this job the buyer can pay."""
        for pool, tariff in self._priced(ask, spec, utc_s):
            if self._broker.spending.objection(spec, ask.path[-1], tariff) is None:
                yield pool, tariff

    def _priced(
        self, ask: deals.AskQuote, spec: JobSpec, utc_s: UtcS
    ) -> Iterator[tuple[str, Tariff]]:
        """Yield the requested pools, with their tariffs for this buyer and job."""
        charging = self._broker.charging
        for pool, tariff in self._broker.tariffs.items():
            if ask.pool in ("", pool) and ask.currency in ("", tariff.currency):
                found = [charging.tariff_for(pool, spec, ask.path[-1], utc_s)]
                for seats in self._broker.occupancy.reserved_for(pool, spec.whose):
                    found.append(charging.tariff_in(pool, seats, spec))
                yield from ((pool, self._with_moves(ask, each)) for each in found)

    def _with_moves(self, ask: deals.AskQuote, tariff: Tariff) -> Tariff:
        """Return a tariff with the prices of moved bytes, for a buyer that pays them."""
        prices = self._moves.prices()
        if not ask.moves or not prices or prices.currency != tariff.currency:
            return tariff
        return replace(tariff, receive_nanos=prices.receive_nanos, send_nanos=prices.send_nanos)

    def _offers(
        self, ask: deals.AskQuote, spec: JobSpec, utc_s: UtcS
    ) -> Iterator[tuple[tuple[bool, float, int], deals.Quote, Tariff]]:
        """Yield a sort key by finish time and price, the quote and the tariff for each pool.

        Slots reserved for the buyer sort first: it pays for them in any case.
        """
        task_s = self._task_s(ask, spec) or 0.0
        waiting_s = waiting(self._broker)[1]
        for pool, tariff in self._pools_for(ask, spec, utc_s):
            if not self._suits(spec, pool):
                continue
            sold = replace(spec, price=tariff)
            warm, cold = self._room(ask, sold, pool, utc_s)
            total = warm + cold
            if total < 1:
                continue
            wanted = min(total, self._slots_paid(ask, spec, tariff))
            slots = self._permitted(ask, spec, pool, wanted, tariff)
            if slots < 1:
                continue
            load_s = self._at_work_s(pool, utc_s) + waiting_s
            begin_s, late_s = load_s / warm if warm else inf, 0.0
            if ask.tasks <= warm and ask.tasks <= self._idle(sold, pool):
                begin_s = 0.0  # as in adverts: tasks on other slots are not in the way
            elif cold:
                start_s = self._broker.growth[pool].start_s
                begin_s = min(begin_s, start_s + load_s / total)
                late_s = max(0.0, start_s - begin_s) * cold / total
            finish_s = begin_s + late_s + task_s * -(-ask.tasks // slots)
            quote = deals.Quote(
                contract=ask.contract,
                pool=pool,
                tasks=ask.tasks,
                slots=slots,
                begin_in_s=begin_s,
                finish_in_s=finish_s,
                valid_s=self._rules.valid_s,
                lease_s=self._rules.lease_min_s,
                **quoted_terms(tariff),
            )
            is_usual = not tariff.reservation
            yield (is_usual, finish_s, tariff.price_nanos), quote, tariff

    def _permitted(
        self, ask: deals.AskQuote, spec: JobSpec, pool: str, slots: int, price: Tariff
    ) -> int:
        """Return how many of `slots` slots the buyer may have beside its own; approximate."""
        buyer = ask.path[-1]
        has = self._slots_of(buyer, pool)
        while slots and self._permits.may_send(
            buyer, ask.path[0], pool, spec.project, has + slots, price
        ):
            slots //= 2
        return slots

    def _slots_of(self, buyer: str, pool: str) -> int:
        """Return how many slots of a pool a buyer has, or was just offered.

        A contract that the buyer has closed, and of which nothing is out, has none any more.
        """
        return sum(
            each.slots
            for each in self._sales.values()
            if each.buyer == buyer
            and each.pool == pool
            and each.phase in TAKEN
            and (each.out or each.phase is not ContractPhase.CLOSING)
        )

    def _task_s(self, ask: deals.AskQuote, spec: JobSpec) -> float | None:
        """Return the duration of a task, as the buyer states or we have measured."""
        return ask.task_s or self._broker.durations.of(spec.function)

    def _room(self, ask: deals.AskQuote, spec: JobSpec, pool: str, utc_s: UtcS) -> tuple[int, int]:
        """Return the slots of a pool that could run a job: existing ones, and ones to start."""
        task_s = self._task_s(ask, spec)
        warm = self._warm_slots(spec, pool, task_s, utc_s)
        return warm, self._cold_for(spec, pool, utc_s, ask.tasks, task_s or 0.0, warm)

    def _warm_slots(self, spec: JobSpec, pool: str, task_s: float | None, utc_s: UtcS) -> int:
        """Return the slots of a pool that can and may run a job, less the held ones."""
        able = (each.slots for each in self._able(spec, pool))
        allowed = self._broker.occupancy.slots_for(pool, spec, task_s, utc_s)
        entitled = self._broker.entitling.slots_max(spec.work, pool)
        slots = int(min(sum(able), allowed, entitled))
        # Reserved slots are kept apart from the held ones, which may be yet to be started.
        return slots if is_reserved(spec) else max(0, slots - self.held_slots(pool))

    def _idle(self, spec: JobSpec, pool: str) -> int:
        """Return the idle slots of a pool that can run a job, less the held ones."""
        idle = sum(max(0, each.slots - each.in_flight) for each in self._able(spec, pool))
        return idle - self.held_slots(pool)

    def _able(self, spec: JobSpec, pool: str) -> Iterator[Worker]:
        """Yield the workers of a pool that can run a job, and take work."""
        for each in self._broker.workers.values():
            is_here = each.offer.pool == pool and not each.draining
            if is_here and judge(spec.need, each.offer) is None:
                yield each

    def _cold_for(
        self, spec: JobSpec, pool: str, utc_s: UtcS, tasks: int, task_s: float, warm: int
    ) -> int:
        """Return how many slots of a pool would be started for a job, beside `warm` ones."""
        growth = self._broker.growth.get(pool)
        offer = self._broker.offers.get(f"pool {pool}")
        if growth is None or offer is None or tasks <= warm:
            return 0
        if judge(spec.need, offer) is not None:
            return 0
        slots = self._cold_slots(spec, pool, warm, utc_s)
        objective = spec.wishes.objective or CHEAPEST
        return growth._replace(slots=slots).beside(warm, tasks, task_s, objective)

    def _cold_slots(self, spec: JobSpec, pool: str, warm: int, utc_s: UtcS) -> int:
        """Return how many slots of a pool could be started for a job, beside `warm` slots."""
        work, broker = spec.work, self._broker
        if not is_reserved(spec):
            return cold_slots(broker, pool, work, self.promised(pool), utc_s)
        # Promises to others were made in addition to it, and it has no more than it booked.
        seats = broker.occupancy.slots_for(pool, spec, None, utc_s)
        return int(max(0, min(seats - warm, cold_slots(broker, pool, work, 0, utc_s))))

    def _at_work_s(self, pool: str, utc_s: UtcS) -> float:
        """Return the remaining slot-seconds of the tasks at a pool's workers."""
        workers = (each for each in self._broker.workers.values() if each.offer.pool == pool)
        return sum(each.left_s(utc_s) for each in workers)

    def _relayed(
        self, ask: deals.AskQuote, spec: JobSpec, utc_s: UtcS
    ) -> tuple[deals.Quote, Tariff] | None:
        """Quote what the job would cost at a site that the buyer may not know."""
        if ask.pool or not ask.hops_left:
            return None
        spec = replace(_for_others(spec, self._site), path=tuple(ask.path), hops_left=ask.hops_left)
        is_known = self._broker.durations.of(spec.function) is not None
        decision = self._decide(spec, ask.tasks, utc_s, None if is_known else ask.task_s)
        if decision.plan is None or not decision.plan.shares:
            return None
        lanes = [lane for lane, _ in decision.plan.shares]
        dearest = max(lanes, key=lambda lane: lane.price_nanos)
        price = _price_of(next(one for one in decision.preferred if one.key == dearest.key), spec)
        slots = max(1, round(sum(lane.slots for lane in lanes)))
        slots = min(slots, self._slots_paid(ask, spec, price))
        slots = self._permitted(ask, spec, RELAY, slots, price)
        if self._broker.spending.objection(spec, ask.path[-1], price) is not None:
            return None
        if not slots or ask.currency not in ("", dearest.currency):
            return None
        quote = deals.Quote(
            contract=ask.contract,
            pool=RELAY,
            tasks=ask.tasks - decision.plan.short,
            slots=slots,
            begin_in_s=min(lane.start_s for lane in lanes),
            finish_in_s=decision.plan.finish_s,
            valid_s=self._rules.valid_s,
            lease_s=self._rules.lease_min_s,
            **quoted_terms(price),
        )
        return quote, price

    def _offered(
        self, ask: deals.AskQuote, spec: JobSpec, quote: deals.Quote, price: Tariff
    ) -> Offered:
        """Return a quote, with the job as it would be opened here."""
        pool = quote.pool
        if pool == RELAY:
            pool, spec = "", _for_others(spec, self._site)
        spec = replace(
            spec,
            price=price,
            path=tuple(ask.path),
            hops_left=ask.hops_left,
            pool=pool,
            slots_sold=quote.slots if pool else 0,
        )
        return Offered(quote, spec, price)


def _price_of(one: Ranked, spec: JobSpec) -> Tariff:
    """Return the price that another site's pool shows for a job, as a relay passes it on.

    With its minimum and step, as its seller charges them: a price of slot time that includes them
    holds for tasks of one duration only.
    """
    advert, extras = one.candidate.advert, one.candidate.extras or Extras()
    return Tariff(
        extras.price_nanos(advert.price_nanos, spec.price_class, spec.tags),
        advert.currency,
        RELAY,
        price_class=spec.price_class,
        minimum_nanos=extras.minimum_nanos,
        step_ns=extras.step_ns,
    )


def _for_others(spec: JobSpec, site: str) -> JobSpec:
    """Return a job to be run elsewhere: cost and access are up to the seller."""
    forbidden = spec.wishes.forbidden_sites | {site}
    return replace(spec, wishes=replace(spec.wishes, forbidden_sites=forbidden))
