"""A site's dealings with other sites: adverts, plans, purchases and sales. Pure.

    effects for contracts ─► take ─┬─► Sales      messages to clients that are contracts
                                   └─► Purchases  orders to workers that are contracts
    a site's message ─► hear ──────┴─► events for the broker, effects for the outbox
    queued jobs ─► plan ─► places that they may go to, requests for quotes

`gateway.runtime.kernel` calls it, and passes the events to the broker and the effects to the
runtime.

`mono_s` is monotonic, for leases; `utc_s` is the time of day, for prices, deadlines and books.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple

from federation.clocks import MonoS, UtcS
from federation.messages.adverts import SiteAdvert
from federation.messages.registry import Receiver
from federation.objects.labels import UNLABELLED, DataLabel
from federation.reasons import Reason
from gateway.base.handlers import MessageHandler
from gateway.config.contracts import DealRules
from gateway.config.pools import PoolFacts
from gateway.contracts.buying.purchases import Purchases
from gateway.contracts.buying.site_backoff import TooDear
from gateway.contracts.model.dealing import Consequences, Permits
from gateway.contracts.model.moved import MOVE_EPOCH, MovedObject, MoveProof
from gateway.contracts.model.object_moves import ObjectMoves
from gateway.contracts.model.sale import Sale
from gateway.contracts.planning.deciding import PlacementDecider
from gateway.contracts.planning.deferring import DEFERRABLE_LOOKS, look_in_s, to_come
from gateway.contracts.planning.eligibility import SiteEligibility
from gateway.contracts.planning.limits import (
    LimitWatch,
    awaits_judgement,
    is_too_late,
)
from gateway.contracts.planning.moving import Moving, left_out
from gateway.contracts.planning.placement_plan import PlacementPlan
from gateway.contracts.planning.planning_rate import PlanningRateLimit, PlanningTurns
from gateway.contracts.selling.advertising import (
    EMPTY,
    Aside,
    Stock,
    show_site,
    take_stock,
    waiting,
)
from gateway.contracts.selling.offering import Offering
from gateway.contracts.selling.sales import Sales
from gateway.contracts.slices.borrowing import Borrowing
from gateway.contracts.slices.lending import Lending
from gateway.ledger.db.contracts.records import ContractRow, PostingRow
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import Effect, Expel, PeerSide, SendToClient, SendToWorker
from gateway.scheduler.model.job_grants import GrantSigner
from gateway.scheduler.model.jobs import Job
from policies.access.entitlements import Work
from policies.parties import ANOTHER_SITE, NOBODY_KNOWN, Owner, PartyKind
from policies.placement.asks import CHEAPEST, Preferences, Wishes
from policies.placement.decisions import Decision
from policies.placement.deferral import Deferral
from policies.placement.market import Market

NO_WISHES: Final = Wishes()
# The queued jobs that one call checks for being due: in `act`, besides the newly queued ones, and
# in `tick`. The others have their turn later.
DUE_LOOKS: Final = 256
TICK_LOOKS: Final = 1_024


def _no_proofs(_side: str, _contract: str) -> Mapping[tuple[int, int], tuple[bytes, bytes]]:
    return {}


class Planned(NamedTuple):
    """The time of a job's last plan, and of the next; monotonic."""

    again_at_s: MonoS = MonoS(-inf)
    is_known: bool = False  # whether its tasks' duration was known then
    label: DataLabel = UNLABELLED  # of the data that its calls read


NEVER_YET: Final = Planned()
QUESTION_STALE_S: Final = 0.5  # how old the state of our pools may be in answers to questions


class Exchange:
    """One site's dealings with others.

    Args:
        site: our name.
        boot: the number of this run of the site.
        broker: ours.
        rules, preferences: the settings of contracts, and of placing work.
        permits: the sites that we deal with.
        facts: our pools.
        signer: gives and reads grants.
        handles: the source of numbers for the site's sessions and contracts.
    """

    def __init__(  # noqa: PLR0913 - its dependencies, each by its name
        self,
        site: str,
        boot: int,
        broker: Broker,
        rules: DealRules,
        preferences: Preferences,
        permits: Permits,
        facts: Mapping[str, PoolFacts],
        signer: GrantSigner,
        handles: Iterator[int],
        has_function: Callable[[bytes], bool] = lambda _: True,
    ) -> None:
        self.site = site
        self.rules = rules
        self.preferences = preferences
        self._broker = broker
        self._facts = facts
        self._outcome = Consequences()
        self.market = Market(site)
        self.moves = ObjectMoves()
        self.purchases = Purchases(
            site, boot, broker, rules, permits, signer, self._outcome, handles, self.moves
        )
        self.reach = SiteEligibility(
            *(site, broker, preferences, permits, facts, self.market),
            *(self.purchases.site_backoff.was_refused, self.moves),
        )
        self._places = PlacementPlan(
            site, broker, preferences, self.market, self.purchases, self.reach
        )
        self._looks = PlanningRateLimit(rules.plan_s)
        self.deciding = PlacementDecider(
            *(site, broker, preferences, rules, self.market, self.purchases, self.reach),
            *(self._places, self._looks, self.refresh, self.moves),
        )
        sales: dict[tuple[str, str], Sale] = {}  # sold slots are not offered again
        self.offering = Offering(
            *(site, broker, rules, permits, signer, sales),
            *(self.deciding.decide, self.reach.suits, self.moves, self.reach.why_not_back),
        )
        self.sales = Sales(
            *(site, broker, rules, self.offering, sales, self._outcome, handles), has_function
        )
        self.lending = Lending(broker.budget_accounts, self._outcome)
        self.borrowing = Borrowing(broker.budget_accounts, boot, self._outcome)
        self._parts: dict[Receiver, MessageHandler[[MonoS, UtcS], None]] = {
            each.receiver: each
            for each in (self.sales, self.purchases, self.lending, self.borrowing)
        }
        self.limits = LimitWatch(self.deciding.judge_planned, self._outcome)
        self._version = 0
        self._kept_stock: Stock | None = None  # for questions
        self._sellers = 0  # how often we learnt of another seller, or of another pool of one
        self._planned: dict[str, Planned] = {}
        self._moving = Moving(broker.jobs, broker.durations.of)
        self._turns = PlanningTurns()
        self._round: Iterator[Job] = iter(())  # queued jobs yet to be checked in this round
        self._due: dict[str, Job] = {}  # jobs that `tick` has found to be due

    # --- between the broker and us -------------------------------------------------------------

    def take(
        self, effect: SendToClient | SendToWorker | Expel, mono_s: MonoS, utc_s: UtcS
    ) -> list[Effect]:
        """Turn an effect for a contract into the effects for its other site and the books."""
        match effect:
            case SendToClient():
                self.sales.told(effect.client, effect.message, effect.charge, utc_s)
            case SendToWorker():
                self.purchases.ordered(effect.worker, effect.message, mono_s)
            case Expel():
                self.sales.expelled(effect.peer, effect.reason)
        return self.take_effects()

    def came_back(self) -> None:
        """Note that the broker has processed all that contracts brought back."""
        self.purchases.deliveries.acted()

    def next_event(self) -> events.Event | None:
        """Return the oldest event for the broker; None: there is none."""
        return self._outcome.events.pop(0) if self._outcome.events else None

    def take_events(self) -> list[events.Event]:
        """Return all events for the broker."""
        happened, self._outcome.events = self._outcome.events, []
        return happened

    def take_effects(self) -> list[Effect]:
        """Return all effects to carry out."""
        effects, self._outcome.effects = self._outcome.effects, []
        return effects

    # --- messages ------------------------------------------------------------------------------

    def hear(self, site: str, side: PeerSide, message: Any, mono_s: MonoS, utc_s: UtcS) -> None:
        """Handle a message of another site, which is our buyer or our seller here.

        Raises:
            ProtocolError: it broke the rules; the message had no effect.
        """
        side.check(message)
        self._parts[message.row.to].hear(site, message, mono_s, utc_s)

    def tick(self, mono_s: MonoS, utc_s: UtcS) -> bool:
        """Act on the passing of time: leases, quotes, bills. Return whether `act` is needed."""
        self.sales.tick(mono_s, utc_s)
        self.sales.end_stuck(mono_s, lambda job: bool(self.purchases.live(job)))
        self.lending.tick(utc_s)
        self.borrowing.tick(mono_s, utc_s)
        self.purchases.tick(mono_s, utc_s)
        self._move(mono_s, utc_s)
        if len(self._planned) > 2 * len(self._broker.jobs) + 100:
            self._planned = {
                job: each for job, each in self._planned.items() if job in self._broker.jobs
            }
            self.limits.tidy(self._broker.jobs)
        found = (job for job in self._some_waiting(TICK_LOOKS) if self._is_due(job, mono_s))
        self._due |= {job.id: job for job in found}
        return bool(self._due) or bool(self._outcome.events or self._outcome.effects)

    def recover(
        self,
        contracts: Iterable[tuple[ContractRow, list[PostingRow]]],
        names: Iterable[tuple[str, str]],
        mono_s: MonoS,
        reserved: Iterable[tuple[str, str]] = (),
        proofs: Callable[[str, str], Mapping[tuple[int, int], tuple[bytes, bytes]]] = _no_proofs,
    ) -> None:
        """Restore the contracts of an earlier run. The broker has its detached jobs by now.

        `names` has, at least, the last contracts that buyers have named: (buyer, contract);
        `reserved` all of their reservations: (buyer, reservation). `proofs` returns those of moves
        under a contract, by side and name.
        """
        self.sales.names.recover(names, reserved)
        for row, postings in contracts:
            known: dict[tuple[int, int], MoveProof] = {}
            if any(each.epoch == MOVE_EPOCH for each in postings):
                found = proofs(row.side, row.contract)
                known = {key: MoveProof(*each) for key, each in found.items()}
            if row.side == "sell":
                self.sales.recover(row, postings, mono_s, known)
            else:
                job = self._broker.jobs.get(row.job)
                self.purchases.recover(row, postings, mono_s, job, known)

    def moved(self, fact: MovedObject, proof: MoveProof, utc_s: UtcS) -> bool:
        """Book an object that has moved, by its receipt, under the contract that it is of.

        Return False where this costs nothing, or there is no such contract.

        Raises:
            ProtocolError: the receipt is dated outside of its contract, or in closed books.
        """
        purchase = self.purchases.purchases.get(fact.contract)
        if purchase is not None and purchase.site in (fact.source, fact.to):
            return self.purchases.moved(fact, proof, utc_s)
        return self.sales.moved(fact, proof)

    def buyer_came(self, site: str) -> None:
        """Note a buyer's new session with us."""
        self.sales.buyer_came(site)

    def note_settled(self, side: str, site: str, until_ms: int) -> None:
        """Note that one side's deliveries up to `until_ms` are agreed: no more are booked before.

        `side` is "sell" for our own deliveries. The time never moves back.
        """
        settled_ms = self._settled(side)
        settled_ms[site] = max(until_ms, settled_ms.get(site, 0))

    def settled_ms(self, side: str, site: str) -> int:
        """The end of the agreed time; milliseconds since 1970."""
        return self._settled(side).get(site, 0)

    def _settled(self, side: str) -> dict[str, int]:
        return self.sales.settled_ms if side == "sell" else self.purchases.deliveries.settled_ms

    def unreachable(self, site: str, utc_s: UtcS, reason: str = "") -> None:
        """Note that a seller can't be reached now, and why, if known."""
        self.purchases.unreachable(site, utc_s, reason)

    def approval_ended(self, site: str, reason: str, mono_s: MonoS, utc_s: UtcS) -> None:
        """End all contracts with a site that is approved no more: see both sides.

        If it is approved again, dealings begin anew: no contract from before goes on.
        """
        self.sales.approval_ended(site, reason, mono_s)
        self.purchases.approval_ended(site, reason, mono_s, utc_s)

    def reached(self, site: str) -> None:
        """Note a new session with a seller."""
        self.purchases.reached(site)

    def paid(self, site: str) -> None:
        """Note that a seller has booked a payment: what it refused for our debt is asked again."""
        if self.purchases.site_backoff.paid(site):
            self._planned.clear()

    def need_function(self, handle: int, digest: bytes) -> None:
        """Note that a worker lacks a function of a job that another site sent."""
        self.sales.need_function(handle, digest)

    @property
    def functions(self) -> set[bytes]:
        """The functions of contracts that are being made."""
        return self.sales.functions

    # --- our advert ----------------------------------------------------------------------------

    def show(
        self,
        utc_s: UtcS,
        without: Job | None = None,
        stock: Stock | None = None,
        whose: Owner = ANOTHER_SITE,
        *,
        for_others: bool = False,
    ) -> SiteAdvert:
        """Our own advert, whole, for the work of the job `without`, if given, or of `whose`.

        Exclude the queued tasks of `without` from the advertised load: they are being placed.
        `stock` is the current stock, if already taken. With `for_others`, leave out capacity that
        takes no work of other sites.
        """
        self._version = max(self._version + 1, int(utc_s * 1000))
        found = show_site(
            self.site,
            self._broker,
            stock or self._stock(utc_s, for_others=for_others),
            version=self._version,
            work=without.work if without is not None else Work(whose),
            own=waiting(self._broker, [without]) if without is not None else EMPTY,
        )
        return replace(found, sellers=self._sellers, jurisdiction=self.reach.jurisdiction())

    def _stock(self, utc_s: UtcS, *, for_others: bool = False) -> Stock:
        offering = self.offering
        aside = {
            pool: Aside(offering.held_slots(pool), offering.promised(pool)) for pool in self._facts
        }
        moves = self.moves.prices() if self.moves.fetches else None
        return take_stock(
            self._broker, self._facts, aside, utc_s, for_others=for_others, moves=moves
        )

    def booked_by(self) -> dict[str, Owner]:
        """The sites with reservations here, now or later, each with the principal of its work."""
        found: dict[str, Owner] = {}
        for rules in self._broker.occupancy.rules.values():
            for who in {seats.who for span in rules.spans for seats in span.claims.reserved}:
                user, _, site = who.name.rpartition("@")
                if who.kind is PartyKind.SITE:
                    found[who.name] = Owner("", site=who.name)
                elif who.kind is PartyKind.USER and user and site:
                    found.setdefault(site, Owner(who.name, site=site))
        return found

    def learn(self, advert: SiteAdvert, utc_s: UtcS) -> bool:
        """Take another site's advert; False when it is no news. ProtocolError: see Market."""
        if advert.site == self.site:
            return False
        before = self.market.advert(advert.site)
        if not self.market.learn(advert, utc_s):
            return False
        if before is not None and _terms(before) != _terms(advert):
            self.purchases.site_backoff.terms_changed(advert.site, utc_s)
        elif before is not None and before.sellers != advert.sellers:
            self.purchases.site_backoff.sellers_changed(advert.site, utc_s)
        if _pools(advert) - (_pools(before) if before is not None else set()):
            self._sellers += 1  # only of its own sales: two relays would go on for ever
        return True

    # --- placement -----------------------------------------------------------------------------

    def plan(self, mono_s: MonoS, utc_s: UtcS) -> None:
        """Choose where the tasks of queued jobs may go, and ask for quotes."""
        self.came_back()
        served = self.purchases.take_served()  # a contract that opened is used at once
        ready = self._broker.ready
        some = {job.id: job for job in (*self._broker.take_fresh(), *self._some_waiting(DUE_LOOKS))}
        some |= self._due
        self._due = {}
        some |= {job: ready[job] for job in served if job in ready}
        due = [
            job
            for job in some.values()
            if job.id in ready and (job.id in served or self._is_due(job, mono_s))
        ]
        if not due:
            return
        due.sort(key=lambda job: self._planned.get(job.id, NEVER_YET)[:2])
        at_once = [job for job in due if job.id in served]
        due = [*at_once, *self._turns.order(job for job in due if job.id not in served)]
        self.deciding.begin_looks(mono_s)
        self._looks.begin_turn()
        stock = self._stock(utc_s)  # once, for all of them
        deferrable_plans = 1 + DEFERRABLE_LOOKS // max(1, len(self.market.candidates))
        for job in due:
            if self._looks.plans <= 0 and len(self._due) < DUE_LOOKS:
                self._due[job.id] = job  # the first ones are among the first of the next turn
            if self._is_held(job):
                self._outcome.happened(events.PlacesChosen(job.id, {}))
            elif self._looks.plans > 0:
                self._looks.planned(deferrable_plans if job.spec.wishes.deferrable else 1)
                self._turns.planned(job)
                deferral = self._plan(job, stock, mono_s, utc_s)
                again_s = look_in_s(deferral, utc_s, len(ready), self.rules.plan_s)
                self._planned[job.id] = Planned(
                    mono_s + again_s, self._is_known(job), job.spec.wishes.label
                )
            elif job.places is None and self._has_choice(job):
                self._outcome.happened(events.PlacesChosen(job.id, {}))  # until its turn comes

    def _some_waiting(self, at_most: int) -> Iterable[Job]:
        """Some of the queued jobs: all, or else `at_most`, and others the next time."""
        ready = self._broker.ready
        if len(ready) <= at_most:
            return ready.values()
        some = list(islice(self._round, at_most))
        if len(some) < at_most:
            self._round = iter(list(ready.values()))
            some += islice(self._round, at_most - len(some))
        return some

    def _is_due(self, job: Job, mono_s: MonoS) -> bool:
        """Whether a job's places are to be chosen, for the first time or again."""
        if not self._has_choice(job):
            return job.places is not None
        if job.places is not None and self._is_held(job):
            return False
        planned = self._planned.get(job.id)
        return (
            planned is None
            or mono_s >= planned.again_at_s
            or (self._is_known(job) and not planned.is_known)
            or planned.label != job.spec.wishes.label
        )

    def _is_known(self, job: Job) -> bool:
        return self._broker.durations.of(job.spec.function) is not None

    def _is_held(self, job: Job) -> bool:
        """Whether a job waits until its client has said how many tasks it has."""
        if not awaits_judgement(job):
            return False
        return job.spec.task_s is not None or self._is_known(job)

    def _has_choice(self, job: Job) -> bool:
        """Whether there is a choice: other sites, or wishes that our pools may not fulfil."""
        if job.spec.pool:
            return False  # it was sold for this pool alone
        if (
            self.market.has_others
            or self._broker.entitling.wishes_of(job.spec) != NO_WISHES
            or self._broker.growth
        ):
            return True
        # A site without an advert may still be asked.
        return bool(self.reach.trusted(job.spec.project))

    def _plan(self, job: Job, stock: Stock, mono_s: MonoS, utc_s: UtcS) -> Deferral | None:
        """Choose the places of one job; return its deferral, if it is deferred."""
        if not self._has_choice(job):
            self._outcome.happened(events.PlacesChosen(job.id, None))
            return None
        self.market.learn(self.show(utc_s, job, stock), utc_s)
        short = self._broker.spending.short(job.spec)
        lacking = [each for each, *_ in short.lacking]
        if lacking and self.purchases.give_back_idle(short=lacking):
            short = self._broker.spending.short(job.spec)  # idle contracts held the money
        short.note()
        decision = self.deciding.decide_for(job, to_come(job), utc_s, short)
        is_new = not (job.ended or job.in_flight or job.outran_s)
        is_guess = is_new and job.spec.task_s is None
        if is_guess and (
            self._places.is_too_dear(job, decision) or is_too_late(job.spec, decision)
        ):
            # It seems so by the duration of other jobs' tasks: its own first round will show.
            decision = self.deciding.decide_for(job, job.waiting, utc_s, short, is_measured=False)
        self.limits.planned(job, decision, mono_s)
        is_asking = self.purchases.enquiries.is_asking(job.id)
        wanted = self._places.to_ask(job, decision) if short.may_leave and not is_asking else []
        is_left = is_asking or bool(wanted) or job.in_flight > 0
        # The cost of another site's job is that site's concern.
        if not is_left and not job.spec.path and self._places.is_too_dear(job, decision):
            dear = self.purchases.site_backoff.too_dear(job.id)
            self._outcome.happened(events.MoneySpent(job.id, _money_text(job, decision, dear)))
            return None
        places = self._places.of(job, decision)
        if wanted:
            asked = self.purchases.enquiries.ask(job, decision, wanted, mono_s)
            self._places.note_sent(job.id, decision, asked, utc_s)
        self._outcome.happened(events.PlacesChosen(job.id, places))
        return decision.deferral

    def _move(self, mono_s: MonoS, utc_s: UtcS) -> None:
        """Recall unstarted tasks of jobs that, by the latest estimates, cost less elsewhere."""
        away = (each.job for each in self.purchases.purchases.values() if each.is_live)
        for job in self._moving.due(away, mono_s):
            self.refresh(utc_s, job, job.whose)
            decision = self.deciding.decide_for(job, job.waiting + job.in_flight, utc_s)
            if decision.plan is None or decision.ask.objective != CHEAPEST:
                continue
            pools = left_out(job, (self._places.name(lane.key) for lane, _ in decision.plan.shares))
            if pools:
                self._outcome.happened(events.PlacesLeft(job.id, pools))

    def refresh(
        self,
        utc_s: UtcS,
        without: Job | None = None,
        whose: Owner = NOBODY_KNOWN,
        *,
        is_question: bool = False,
    ) -> None:
        """Update the market with the current state of our own pools; see `show`.

        For the answer to a question (`is_question`) a state of up to QUESTION_STALE_S ago will do:
        to look at all workers and jobs takes most of the time of an answer.
        """
        stock = None
        if is_question:
            kept = self._kept_stock
            if kept is None or not 0 <= utc_s - kept.utc_s < QUESTION_STALE_S:
                kept = self._kept_stock = self._stock(utc_s)
            stock = kept._replace(utc_s=utc_s)
        self.market.learn(self.show(utc_s, without, stock, whose=whose), utc_s)


def _pools(advert: SiteAdvert) -> set[str]:
    return {each.pool for each in advert.pools}


def _terms(advert: SiteAdvert) -> list[tuple[Any, ...]]:
    return [pool.terms for pool in sorted(advert.pools, key=lambda pool: pool.pool)]


def _money_text(job: Job, decision: Decision, dear: Mapping[str, TooDear]) -> str:
    """Why nothing more of a job can be paid; `dear` is what sites quoted that show no pool."""
    refused = (each.text for _, each in decision.refused if each.reason is Reason.COST_LIMIT)
    text = (
        next(refused, "")
        or f"task costs about {' or '.join(dear[site].text for site in sorted(dear))}"
    )
    return f"the cost limit pays for no more tasks of job {job.id}: one {text}"
