"""Everything that a site has to do with others: what it shows, plans, buys and sells. Pure.

    broker ─ effects ─► act ───────┬─► Sales      what its clients below zero are told
                                   └─► Purchases  what its workers below zero are ordered
    a site's message ─► hear ──────┴─► events for the broker, effects for the outbox
    jobs that wait ─► plan ─► places that they may go to, quotes that are asked for

`now_s` is monotonic, for leases; `utc_s` is the time of day, for prices, deadlines and books.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple

from federation import deals
from federation.adverts import SiteAdvert
from federation.errors import ProtocolError
from federation.messages import NeedFunction
from federation.reasons import Reason
from federation.slices import AskSlice, Slice
from gateway import events
from gateway.broker import Broker
from gateway.budgets.borrowing import Borrowing
from gateway.budgets.lending import Lending
from gateway.budgets.spending import Short
from gateway.dealing import DealRules, Outcome, Permits
from gateway.deferring import DEFERRABLE_LOOKS, look_in_s, to_come, why_at_once
from gateway.effects import Effect, Expel, Order, Side, Tell
from gateway.errands import Notary
from gateway.events import JobSpec
from gateway.jobs import Job
from gateway.ledger.rows import ContractRow, PostingRow
from gateway.limits import LimitWatch, are_bound, awaits_judgement, committed_nanos, said_s
from gateway.looks import JUDGED_PLANS, Looks
from gateway.moving import Moving, left_out
from gateway.offering import Offering
from gateway.places import Places
from gateway.purchases import Purchases
from gateway.reach import Reach
from gateway.sale import Sale
from gateway.sales import Sales
from gateway.showing import EMPTY, Aside, PoolFacts, Stock, show_site, take_stock, waiting
from policies.asks import CHEAPEST, Ask, House, Wishes
from policies.brokering import Rest, place
from policies.decisions import Decision
from policies.deferral import Deferral
from policies.entitlements import Work
from policies.market import Market
from policies.offers import Unmet, falls_short, judge, why_hopeless
from policies.parties import ANOTHER_SITE, NOBODY_KNOWN, Kind, Whose
from policies.ranking import lots

NO_WISHES: Final = Wishes()
# Of the jobs that wait so many are looked at in one call, whether they are to be planned: in `act`
# beside those that have just begun to wait, and in `tick`. The others have their turn later.
DUE_LOOKS: Final = 256
TICK_LOOKS: Final = 1_024


class Planned(NamedTuple):
    """When a job's places were chosen last, and when they are to be again; monotonic."""

    again_s: float = -inf
    is_known: bool = False  # how long its tasks take, then


NEVER_YET: Final = Planned()


class Exchange:
    """One site's dealings with others.

    Args:
        site: who we are.
        boot: which life of the site this is.
        broker: ours.
        rules, house: the knobs of contracts, and the taste in placing work.
        permits: whom we deal with.
        facts: our pools.
        notary: gives and reads grants.
    """

    def __init__(
        self,
        site: str,
        boot: int,
        broker: Broker,
        rules: DealRules,
        house: House,
        permits: Permits,
        facts: Mapping[str, PoolFacts],
        notary: Notary,
    ) -> None:
        self.site = site
        self.rules = rules
        self.house = house
        self._broker = broker
        self._facts = facts
        self._outcome = Outcome()
        self.market = Market(site)
        self.purchases = Purchases(site, boot, broker, rules, permits, notary, self._outcome)
        self.reach = Reach(
            *(site, broker, house, permits, facts, self.market),
            self.purchases.resting.was_refused,
        )
        sales: dict[tuple[str, str], Sale] = {}  # what is sold is not offered again
        self.offering = Offering(
            site, broker, rules, permits, notary, sales, self.decide, self.reach.suits
        )
        self.sales = Sales(site, broker, rules, self.offering, sales, self._outcome)
        self._places = Places(site, broker, house, self.market, self.purchases, self.reach)
        self.lending = Lending(broker.purses, self._outcome)
        self.borrowing = Borrowing(broker.purses, boot, self._outcome)
        self.limits = LimitWatch(self._judge_planned, self._outcome)
        self._version = 0
        self._planned: dict[str, Planned] = {}
        self._moving = Moving(broker.jobs, broker.durations.of)
        self._looks = Looks(rules.plan_s)
        self._round: Iterator[Job] = iter(())  # jobs that wait and were not looked at in a while
        self._due: dict[str, Job] = {}  # those that `tick` has found to be due
        self._now_s = 0.0
        broker.elsewhere.unmet = self._unmet
        broker.elsewhere.may_run = self.reach.may_run
        broker.elsewhere.may_be_made = self.reach.may_be_made
        broker.elsewhere.why_nowhere = self.reach.why_nowhere
        broker.elsewhere.currencies = self.reach.currencies
        broker.elsewhere.tariffs = self.reach.tariffs

    def act(self, happened: Iterable[events.Event], now_s: float, utc_s: float) -> list[Effect]:
        """Let the broker decide about what happened, and all that follows from it here.

        Returns what is to be done, in order.
        """
        broker, self._now_s = self._broker, now_s
        broker.monotonic_s = now_s
        effects = self._take_effects()
        pending = [*self._take_events(), *happened]
        while True:
            decided: list[Effect] = []
            for event in pending:
                decided += broker.handle(event, utc_s)
            self.purchases.deliveries.acted()
            self._plan_all(now_s, utc_s)
            for event in self._take_events():
                decided += broker.handle(event, utc_s)
            decided += broker.settle(utc_s)
            effects += self._translate(decided, now_s, utc_s)
            effects += self._take_effects()
            pending = self._take_events()
            if not pending:
                return effects

    def _tell_broker(self, now_s: float, utc_s: float) -> None:
        """Let the broker know what has happened, and leave all that follows for `act`.

        For a seller may say thousands of times what it holds, and to plan for each takes too long.
        """
        self._broker.monotonic_s = now_s
        effects = self._take_effects()
        try:
            while self._outcome.events:
                decided = self._broker.handle(self._outcome.events.pop(0), utc_s)
                effects += self._translate(decided, now_s, utc_s)
            self.purchases.deliveries.acted()
        finally:  # a fault of ours over one message must not lose what others have said
            self._outcome.effects = effects + self._take_effects()

    def _take_events(self) -> list[events.Event]:
        happened, self._outcome.events = self._outcome.events, []
        return happened

    def _take_effects(self) -> list[Effect]:
        effects, self._outcome.effects = self._outcome.effects, []
        return effects

    # --- what is said --------------------------------------------------------------------------

    def hear(self, site: str, side: Side, message: Any, now_s: float, utc_s: float) -> None:
        """Take a message of another site, which is our buyer or our seller here.

        Raises:
            ProtocolError: it broke the rules; nothing came of the message.
        """
        if side is Side.BUYER and isinstance(message, deals.FROM_BUYER):
            self.sales.hear(site, message, now_s, utc_s)
        elif side is Side.SELLER and isinstance(message, (*deals.FROM_SELLER, NeedFunction)):
            self.purchases.hear(site, message, now_s, utc_s)
            if isinstance(message, deals.Holding):
                # What its seller delivers next, in the same frame, counts for the tasks that are
                # out by this.
                self._tell_broker(now_s, utc_s)
        elif isinstance(message, AskSlice):  # whoever dialled whom
            self.lending.hear(site, message, utc_s)
        elif isinstance(message, Slice):
            self.borrowing.hear(site, message)
        else:
            raise ProtocolError(f"a {side} may not say {message.kind!r}")

    def _translate(self, effects: Iterable[Effect], now_s: float, utc_s: float) -> list[Effect]:
        """Keep what is for our own clients and workers; the rest becomes messages to others."""
        kept: list[Effect] = []
        for effect in effects:
            match effect:
                case Tell(client=handle) if handle < 0:
                    self.sales.told(handle, effect.message, effect.charge, utc_s)
                case Order(worker=handle) if handle < 0:
                    self.purchases.ordered(handle, effect.message, now_s)
                case Expel(guest=handle) if handle < 0:
                    self.sales.expelled(handle, effect.reason)
                case _:
                    kept.append(effect)
                    continue
            kept += self._take_effects()
        return kept

    def tick(self, now_s: float, utc_s: float) -> bool:
        """Time has passed: leases, quotes, bills. Whether `act` is needed for it."""
        self.sales.tick(now_s, utc_s)
        self.sales.end_stuck(now_s, lambda job: bool(self.purchases.live(job)))
        self.lending.tick(utc_s)
        self.borrowing.tick(now_s, utc_s)
        self.purchases.tick(now_s, utc_s)
        self._move(now_s, utc_s)
        if len(self._planned) > 2 * len(self._broker.jobs) + 100:
            self._planned = {
                job: each for job, each in self._planned.items() if job in self._broker.jobs
            }
            self.limits.tidy(self._broker.jobs)
        found = (job for job in self._some_waiting(TICK_LOOKS) if self._is_due(job, now_s))
        self._due |= {job.id: job for job in found}
        return bool(self._due) or bool(self._outcome.events or self._outcome.effects)

    def recover(
        self,
        contracts: Iterable[tuple[ContractRow, list[PostingRow]]],
        names: Iterable[tuple[str, str]],
        now_s: float,
        reserved: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Take up the contracts of a former life. The broker has its detached jobs by now.

        `names` has the last contracts, at least, that buyers have named: (buyer, contract);
        `reserved` all reservations of theirs: (buyer, reservation).
        """
        self.sales.names.recover(names, reserved)
        for row, postings in contracts:
            if row.side == "sell":
                self.sales.recover(row, postings, now_s)
            else:
                self.purchases.recover(row, postings, now_s, self._broker.jobs.get(row.job))

    def buyer_came(self, site: str) -> None:
        """A buyer has a new session with us."""
        self.sales.buyer_came(site)

    def note_settled(self, side: str, site: str, until_ms: int) -> None:
        """Books of what one side delivered to the other are agreed on up to here: no more goes in.

        `side` is "sell" for what we deliver. Nothing is ever taken back.
        """
        settled_ms = self._settled(side)
        settled_ms[site] = max(until_ms, settled_ms.get(site, 0))

    def settled_ms(self, side: str, site: str) -> int:
        """Up to when that is; milliseconds since 1970."""
        return self._settled(side).get(site, 0)

    def _settled(self, side: str) -> dict[str, int]:
        return self.sales.settled_ms if side == "sell" else self.purchases.deliveries.settled_ms

    def unreachable(self, site: str, utc_s: float, reason: str = "") -> None:
        """A seller can't be reached now; why, if that is known."""
        self.purchases.unreachable(site, utc_s, reason)

    def reached(self, site: str) -> None:
        """There is a new session with a seller."""
        self.purchases.resting.reached(site)

    def need_function(self, handle: int, digest: bytes) -> None:
        """A worker lacks a function of a job that another site sent."""
        self.sales.need_function(handle, digest)

    @property
    def functions(self) -> set[bytes]:
        """The functions of contracts that are being made."""
        return self.sales.functions

    # --- what is shown -------------------------------------------------------------------------

    def show(
        self,
        utc_s: float,
        without: Job | None = None,
        stock: Stock | None = None,
        whose: Whose = ANOTHER_SITE,
        *,
        for_others: bool = False,
    ) -> SiteAdvert:
        """Our own advert, whole, for somebody's work: that of the job `without`, if there is one.

        What waits of the job `without` is no load: it is that which is to be placed. `stock` is
        what there is, where that was looked at already. What takes no work of other sites is left
        out `for_others`.
        """
        self._version = max(self._version + 1, int(utc_s * 1000))
        return show_site(
            self.site,
            self._broker,
            stock or self._stock(utc_s, for_others=for_others),
            version=self._version,
            work=without.work if without is not None else Work(whose),
            own=waiting(self._broker, [without]) if without is not None else EMPTY,
        )

    def _stock(self, utc_s: float, *, for_others: bool = False) -> Stock:
        offering = self.offering
        aside = {
            pool: Aside(offering.held_slots(pool), offering.promised(pool)) for pool in self._facts
        }
        return take_stock(self._broker, self._facts, aside, utc_s, for_others=for_others)

    def booked_by(self) -> dict[str, Whose]:
        """The sites for which something is reserved here, now or later, each with whose work."""
        found: dict[str, Whose] = {}
        for rules in self._broker.occupancy.rules.values():
            for who in {seats.who for span in rules.spans for seats in span.claims.reserved}:
                user, _, site = who.name.rpartition("@")
                if who.kind is Kind.SITE:
                    found[who.name] = Whose("", site=who.name)
                elif who.kind is Kind.USER and user and site:
                    found.setdefault(site, Whose(who.name, site=site))
        return found

    def learn(self, advert: SiteAdvert, utc_s: float) -> bool:
        """Take another site's advert; False when it is no news. ProtocolError: see Market."""
        return advert.site != self.site and self.market.learn(advert, utc_s)

    # --- where jobs go -------------------------------------------------------------------------

    def _plan_all(self, now_s: float, utc_s: float) -> None:
        """Choose where the tasks of jobs that wait may go, and ask for quotes."""
        served = self.purchases.take_served()  # a contract that opened is for use at once
        ready = self._broker.ready
        some = {job.id: job for job in (*self._broker.take_fresh(), *self._some_waiting(DUE_LOOKS))}
        some |= self._due
        self._due = {}
        some |= {job: ready[job] for job in served if job in ready}
        due = [
            job
            for job in some.values()
            if job.id in ready and (job.id in served or self._is_due(job, now_s))
        ]
        if not due:
            return
        due.sort(key=lambda job: (job.id not in served, self._planned.get(job.id, NEVER_YET)))
        self._looks.begin(now_s, len(self.market.candidates))
        stock = self._stock(utc_s)  # once, for all of them
        deferrable_plans = 1 + DEFERRABLE_LOOKS // max(1, len(self.market.candidates))
        for job in due:
            if self._is_held(job):
                self._outcome.happened(events.PlacesChosen(job.id, {}))
            elif self._looks.plans > 0:
                self._looks.plans -= deferrable_plans if job.spec.wishes.deferrable else 1
                deferral = self._plan(job, stock, now_s, utc_s)
                again_s = look_in_s(deferral, utc_s, len(ready), self.rules.plan_s)
                self._planned[job.id] = Planned(now_s + again_s, self._is_known(job))
            elif job.places is None and self._has_choice(job):
                self._outcome.happened(events.PlacesChosen(job.id, {}))  # until its turn comes

    def _some_waiting(self, at_most: int) -> Iterable[Job]:
        """Some of the jobs that wait: all, or else as many as may be, and others the next time."""
        ready = self._broker.ready
        if len(ready) <= at_most:
            return ready.values()
        some = list(islice(self._round, at_most))
        if len(some) < at_most:
            self._round = iter(list(ready.values()))
            some += islice(self._round, at_most - len(some))
        return some

    def _is_due(self, job: Job, now_s: float) -> bool:
        """Whether a job's places are to be chosen, for the first time or anew."""
        if not self._has_choice(job):
            return job.places is not None
        if job.places is not None and self._is_held(job):
            return False
        planned = self._planned.get(job.id)
        return (
            planned is None
            or now_s >= planned.again_s
            or (self._is_known(job) and not planned.is_known)
        )

    def _is_known(self, job: Job) -> bool:
        return self._broker.durations.of(job.spec.function) is not None

    def _is_held(self, job: Job) -> bool:
        """Whether a job waits until its client has said how many tasks it has."""
        if not awaits_judgement(job):
            return False
        return job.spec.task_s is not None or self._is_known(job)

    def _has_choice(self, job: Job) -> bool:
        """Whether there is anything to decide: other sites, or wishes that ours may not fulfil."""
        if job.spec.pool:
            return False  # it was sold for this pool, and no other
        if self.market.has_others or job.spec.wishes != NO_WISHES or self._broker.growth:
            return True
        # Who shows nothing may be asked all the same.
        return bool(self.reach.trusted(job.spec.project))

    def _plan(self, job: Job, stock: Stock, now_s: float, utc_s: float) -> Deferral | None:
        """Choose the places of one job; what it waits for, if it is put off."""
        if not self._has_choice(job):
            self._outcome.happened(events.PlacesChosen(job.id, None))
            return None
        self.market.learn(self.show(utc_s, job, stock), utc_s)
        short = self._broker.spending.short(job.spec)
        short.note()
        decision = self.decide_for(job, to_come(job), utc_s, short)
        is_new = not (job.ended or job.in_flight or job.outran_s)
        if is_new and self._places.is_too_dear(job, decision):
            # So it seems, by what the function took others: one round of its own will show.
            decision = self.decide_for(job, job.waiting, utc_s, short, is_measured=False)
        self.limits.planned(job, decision, now_s)
        is_asking = self.purchases.enquiries.is_asking(job.id)
        wanted = self._places.to_ask(job, decision) if short.may_leave and not is_asking else []
        is_left = is_asking or bool(wanted) or job.in_flight > 0
        # What another site's job may cost is for that site to watch.
        if not is_left and not job.spec.path and self._places.is_too_dear(job, decision):
            self._outcome.happened(events.MoneySpent(job.id, _money_text(job, decision)))
            return None
        places = self._places.of(job, decision)
        if wanted:
            asked = self.purchases.enquiries.ask(job, decision, wanted, now_s)
            self._places.note_sent(job.id, decision, asked, utc_s)
        self._outcome.happened(events.PlacesChosen(job.id, places))
        return decision.deferral

    def _move(self, now_s: float, utc_s: float) -> None:
        """Take back what has not begun of jobs that cost less elsewhere, as is known by now."""
        away = (each.job for each in self.purchases.purchases.values() if each.is_live)
        for job in self._moving.due(away, now_s):
            self.refresh(utc_s, job, job.whose)
            decision = self.decide_for(job, job.waiting + job.in_flight, utc_s)
            if decision.plan is None or decision.ask.objective != CHEAPEST:
                continue
            pools = left_out(job, (self._places.name(lane.key) for lane, _ in decision.plan.shares))
            if pools:
                self._outcome.happened(events.PlacesLeft(job.id, pools))

    def refresh(
        self, utc_s: float, without: Job | None = None, whose: Whose = NOBODY_KNOWN
    ) -> None:
        """Let the market see our own pools as they are now; see `show`."""
        self.market.learn(self.show(utc_s, without, whose=whose), utc_s)

    def decide_for(
        self,
        job: Job,
        tasks: int,
        utc_s: float,
        short: Short | None = None,
        *,
        is_measured: bool = True,
    ) -> Decision:
        """Where so many tasks of a job would go now.

        Args:
            job: whose tasks they are.
            tasks: how many.
            utc_s: now.
            short: the budgets that have no room for one; None: that is yet to be found out.
            is_measured: if not, nobody knows how long they take.
        """
        task_s = None
        if is_measured:
            task_s = said_s(job, self._broker.durations.of(job.spec.function), utc_s)
        ask = self._ask(job.spec, tasks, task_s, is_measured=is_measured)
        if ask.budget_nanos is not None:
            # What is under way is paid for already, unless that is what is asked about.
            spent = committed_nanos(job, ask.task_s) if job.waiting else job.limited_nanos
            ask = replace(ask, budget_nanos=max(0, ask.budget_nanos - spent))
        if job.unfit:  # contracts among them are named as pools of others are
            ask = replace(ask, terms=replace(ask.terms, barred=ask.terms.barred | job.unfit))
        at_once = why_at_once(job, is_crowded=self._broker.is_crowded)
        ask = replace(ask, deferrable=ask.deferrable and not at_once)
        is_unfit = bool(job.unfit) and not self._broker.roster.has_fit(job, here=True)
        spared = self._spared(job.spec, utc_s, short, is_unfit=is_unfit)
        market = self.market.without(job.id, self._places.idle(job))
        # By its own lots: among near-equals it stays with them.
        decision = place(ask, market, self.house, utc_s, lots(job.id), spared)
        if at_once and job.spec.wishes.deferrable:
            decision = replace(decision, deferral=Deferral(at_once))
        return decision

    def decide(
        self, spec: JobSpec, tasks: int, utc_s: float, task_s: float | None = None
    ) -> Decision:
        """Where tasks of this kind would go now, and why.

        Args:
            spec: what they are.
            tasks: how many.
            utc_s: now.
            task_s: how long one takes, by somebody's word, which goes before what was measured.
        """
        ask, spared = self._ask(spec, tasks, task_s), self._spared(spec, utc_s)
        return place(ask, self.market, self.house, utc_s, lots(""), spared)

    def _ask(
        self, spec: JobSpec, tasks: int, task_s: float | None, *, is_measured: bool = True
    ) -> Ask:
        """What so many tasks of a job ask for, with all of its money."""
        durations, at = self._broker.durations, {}
        if task_s is None and is_measured:
            task_s = durations.of(spec.function)
            at = durations.by_site(spec.function)
        return Ask(
            terms=self.reach.terms(spec),
            objective=spec.wishes.objective or self.house.objective,
            tasks=max(1, tasks),
            task_s=task_s,
            task_s_at={site or self.site: seconds for site, seconds in at.items()},
            deadline_s=spec.wishes.deadline_s,
            when_closed=spec.wishes.when_closed,
            budget_nanos=spec.max_cost_nanos,
            price_class=spec.price_class,
            # What another site has sent waits there, if at all.
            deferrable=spec.wishes.deferrable and not spec.path,
        )

    def _spared(
        self, spec: JobSpec, utc_s: float, short: Short | None = None, *, is_unfit: bool = False
    ) -> Mapping[str, Rest]:
        """Sites and pools that rest now: ours, too, while a budget has no room for a task here.

        At another site a contract bounds what tasks cost, and less may do. And ours where none of
        our workers could make what a job is to run in (`is_unfit`).
        """
        resting = self.purchases.resting.rests(spec)
        budget = (short or self._broker.spending.short(spec)).budget
        if is_unfit:
            why = "could not make what it is to run in"
        elif budget:
            why = f"can't be paid now, as {budget} has no room"
        else:
            return resting
        return {**resting, self.site: Rest(utc_s + max(1.0, self.rules.plan_s), why)}

    # --- whether a job can keep its limits -----------------------------------------------------

    def _judge(self, spec: JobSpec, ask: Ask, utc_s: float, chance: str) -> Unmet | None:
        spared = self._spared(spec, utc_s)
        return judge(ask, self.market, self.house, utc_s, lots(chance), spared)

    def _judge_planned(self, job: Job, decision: Decision) -> Unmet | None:
        self._looks.plans -= JUDGED_PLANS
        return self._judge(job.spec, decision.ask, decision.made_s, job.id)

    def _unmet(self, job: str, spec: JobSpec, tasks: int, utc_s: float) -> Unmet | None:
        """Why a job that begins is refused for its limits: with an offer in hand, or as hopeless.

        Of very many that come in one breath those at the end are not judged, but when planned.
        """
        if spec.path or not (are_bound(spec) or spec.max_cost_nanos is not None):
            return None
        self._looks.begin(self._now_s, len(self.market.candidates))
        ask = self._ask(spec, tasks, spec.task_s)
        if ask.task_s is None or self._looks.judgements <= 0:
            return None
        arrived = self._broker.jobs.get(job)  # what has arrived of it is no load in front of it
        self.refresh(utc_s, arrived, spec.whose)
        unmet = self._judge(spec, ask, utc_s, job) if are_bound(spec) else None
        if unmet is None or not unmet.offers:
            unmet = self._hopeless(spec, ask, utc_s)
        self._looks.judged(len(self._broker.jobs), is_refused=unmet is not None)
        return unmet

    def _hopeless(self, spec: JobSpec, ask: Ask, utc_s: float) -> Unmet | None:
        """Why no task of a job can ever be paid for, by its client's own word of their length.

        While a site that it may go to has not shown its pools, that is not known.
        """
        if spec.task_s is None or self.reach.is_unheard(spec, ask.terms):
            return None
        one = replace(ask, tasks=1, deferrable=False)
        why = why_hopeless(place(one, self.market, self.house, utc_s, lots(""), {}))
        return Unmet(ask, ask.tasks, Reason.COST_LIMIT, (), why) if why else None

    def explain_unmet(
        self, spec: JobSpec, decision: Decision, chance: str
    ) -> dict[str, Any] | None:
        """What is to be said of a plan that is short for its job's limits; None if it is not."""
        if spec.path or not falls_short(decision):
            return None
        unmet = self._judge(spec, decision.ask, decision.made_s, chance)
        return None if unmet is None else unmet.to_plain()


def _money_text(job: Job, decision: Decision) -> str:
    text = next(each.text for _, each in decision.refused if each.reason is Reason.COST_LIMIT)
    return f"its cost limit pays for no more task of job {job.id}: one {text}"
