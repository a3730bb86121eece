"""What we buy: contracts under which other sites run our jobs' tasks. Pure.

To the broker a contract is a worker for one job, a round trip away: what it is assigned is
forwarded under the assignment's number, which is the epoch, and what it reports is what was
delivered. So credit, recall, retries and fencing are the same as for our own workers.

    plan ─► AskQuote ─► Quote … choose ─► Hold ─► Held ─► stored ─► Commit ─► Committed
    Committed → WorkerJoined       Assign → Forward          Recall → Reclaim
    Deliver   → Reported           GivenBack → HandedBack    the lease runs out → WorkerGone
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from federation import deals
from federation.contracts import Delivery, Move, Phase, Tab, Verdict, grantor_until_s, move
from federation.errors import ProtocolError
from federation.messages import Assign, Drain, NeedFunction, Recall
from federation.money import NANOS_LIMIT, check_currency
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.wishes import NAME_CHARS_MAX
from gateway import events
from gateway.broker import Broker
from gateway.dealing import LEASE_MAX_S, RELAY, DealRules, Outcome, Permits
from gateway.effects import AnswerBill, SendFunction, Side
from gateway.errands import ERRAND_SITES_MAX, Errand, Notary, NotGranted
from gateway.events import HOPS_MAX, JobSpec
from gateway.handout import EPOCH_BITS
from gateway.intake import SLOTS_MAX, check_ranges, wishes_plain
from gateway.jobs import Assignment, Job
from gateway.ledger import records
from gateway.ledger.records import ContractRow, PostingRow
from gateway.outcomes import is_sound
from policies.brokering import Quote, Rest, choose_quote
from policies.decisions import Decision
from policies.estimates import pays_for_one
from policies.market import Key
from policies.tariffs import Tariff, cost_nanos

VERDICTS_MAX: Final = 100_000  # remembered of one contract
ROUND_TRIP_MAX_S: Final = 5.0
# Of a contract whose grant is used up: its seller did well, and may have another.
ENDED: Final = frozenset({"cost-limit", "expired"})
SLACK_S: Final = 1.0  # that two clocks and roundings may differ by in what a delivery took
TEXT_CHARS_MAX: Final = 200
FULL_S: Final = 0.5  # how long a site is left alone that has no slot
# Of a question without a pool, and of what is relayed: it says something of that job, and nothing
# of its seller.
ABOUT_JOBS: Final = frozenset(
    {Reason.NO_SLOTS, Reason.NOT_ENTITLED, Reason.ALREADY_VISITED, Reason.NO_HOPS_LEFT}
)


@dataclass(slots=True)
class Purchase:
    """One contract, as the buyer has it. `phase` is None until a quote has come."""

    contract: str
    job: str
    site: str
    pool: str
    tasks: int  # that were asked for
    asked_s: float
    phase: Phase | None = None
    quote: deals.Quote | None = None
    handle: int = 0
    until_s: float = 0.0  # of the lease, as we must count it
    round_trip_s: float = 0.0
    busy_s: float = 0.0  # when something was last out
    lease_s: float = 0.0
    opened_at_s: float = 0.0  # UTC, of a contract of a former life
    doubted: int = 0  # forwards up to this epoch may have been lost with a session
    is_recovered: bool = False  # of a former life, and its seller has not said what it has
    is_orphan: bool = False  # of a former life, and nobody wants what is out
    max_cost_nanos: int | None = None  # that is granted for it; None: no limit
    spent_nanos: int = 0
    tab: Tab = field(default_factory=lambda: Tab(NANOS_LIMIT))

    @property
    def place(self) -> str:
        """What the broker calls the pool."""
        return f"{self.site}/{self.pool}"

    @property
    def is_live(self) -> bool:
        """Whether tasks may be out under it."""
        return self.phase in (Phase.OPEN, Phase.CLOSING)

    @property
    def is_under_way(self) -> bool:
        """Whether it is being made."""
        return self.phase in (None, Phase.QUOTED, Phase.HELD)


@dataclass(slots=True)
class Enquiry:
    """Quotes that were asked for, for one job, and until when they are waited for."""

    job: str
    decision: Decision
    asked: list[str]
    until_s: float


class Purchases:
    """The contracts that we buy.

    Args:
        site: who we are.
        boot: which life of the site this is; no contract of another has the same name.
        broker: read, and told through `outcome`.
        rules: the knobs.
        permits: whose results are accepted.
        notary: gives grants.
        outcome: where what follows is put.
    """

    def __init__(
        self,
        site: str,
        boot: int,
        broker: Broker,
        rules: DealRules,
        permits: Permits,
        notary: Notary,
        outcome: Outcome,
    ) -> None:
        self._site = site
        self._boot = boot
        self._broker = broker
        self._rules = rules
        self._permits = permits
        self._notary = notary
        self._outcome = outcome
        self._numbers = 0
        self._handles = -(1 << 40)  # apart from those of sales
        self.purchases: dict[str, Purchase] = {}
        self._by_handle: dict[int, Purchase] = {}
        self._enquiries: dict[str, Enquiry] = {}  # by job
        self.resting: dict[str, Rest] = {}  # sites that are spared
        self._refusals: dict[str, int] = {}  # by site, one after the other
        # What was given back or delivered, by contract and epoch, and the broker has not heard of.
        self._taken: dict[tuple[str, int], RangeSet] = {}
        # Sites that were of no use for a job, though no pool was named: how often, until when.
        self._useless: dict[tuple[str, str], tuple[int, float]] = {}
        self._unreached: set[str] = set()  # sites that are spared because there was no way to them
        self._served: set[str] = set()  # jobs with a contract that opened since `take_served`

    # --- asking --------------------------------------------------------------------------------

    def is_asking(self, job: str) -> bool:
        """Whether quotes or a commit are awaited for this job."""
        return job in self._enquiries or any(
            each.job == job and each.is_under_way for each in self.purchases.values()
        )

    def live(self, job: str) -> list[Purchase]:
        """The contracts that a job's tasks may be out under."""
        return [each for each in self.purchases.values() if each.job == job and each.is_live]

    def take_served(self) -> set[str]:
        """The jobs that a contract opened for since this was asked last."""
        served, self._served = self._served, set()
        return served

    def ask(self, job: Job, decision: Decision, keys: Iterable[Key], now_s: float) -> list[Key]:
        """Ask sites for quotes, of which `_consider` chooses when they are here; who was asked."""
        shares = {lane.key: n for lane, n in decision.plan.shares} if decision.plan else {}
        left_nanos = self._left_nanos(job)
        asked = []
        for site, pool in keys:
            if left_nanos == 0 or self._open_with(site) >= self._rules.contracts_max:
                continue
            self._numbers += 1
            contract = f"{self._site}-{self._boot}-{self._numbers}"
            tasks = shares.get((site, pool), decision.ask.tasks)
            purchase = Purchase(contract, job.id, site, pool, tasks, now_s)
            purchase.max_cost_nanos = _part(left_nanos, decision, (site, pool))
            if purchase.max_cost_nanos == 0:
                continue
            try:
                question = self._question(job, purchase, decision)
            except NotGranted:
                self._spare(site, decision.made_s, "can't be granted this")
                continue
            self.purchases[contract] = purchase
            asked.append(contract)
            self._say(purchase, question)
        if asked:
            until_s = now_s + self._rules.quote_wait_s
            self._enquiries[job.id] = Enquiry(job.id, decision, asked, until_s)
        return [(each.site, each.pool) for each in map(self.purchases.__getitem__, asked)]

    def _left_nanos(self, job: Job) -> int | None:
        """What of a job's cost limit is neither spent nor granted already; None without one."""
        limits = [job.spec.max_cost_nanos]
        limits += [job.spec.given.errand.max_cost_nanos] if job.spec.given else []
        known = [each for each in limits if each is not None]
        if not known:
            return None
        granted = sum(
            max(0, (each.max_cost_nanos or 0) - each.spent_nanos)
            for each in self.purchases.values()
            if each.job == job.id and (each.is_live or each.is_under_way)
        )
        return max(0, min(known) - job.limited_nanos - granted)

    def _grant(self, job: Job, purchase: Purchase, made_s: float) -> bytes:
        """What the seller may do, in its user's name; NotGranted."""
        spec, given = job.spec, job.spec.given
        errand = Errand(
            target=purchase.site,
            contract=purchase.contract,
            job=job.id,
            user=spec.user,
            project=spec.project,
            function=spec.function,
            max_cost_nanos=purchase.max_cost_nanos,
            currency=spec.currency or "",
            expires_s=made_s + self._rules.grant_s,
            hops_left=max(0, spec.hops_left - 1),
            regions=spec.wishes.jurisdictions,
            sites=given.errand.sites if given else self._may_have(purchase.site, spec),
        )
        if given is not None:
            return self._notary.narrow(given, errand, made_s)
        return self._notary.issue(errand)

    def _may_have(self, target: str, spec: JobSpec) -> frozenset[str]:
        """The sites that may run or relay it: those whose results we take, as its user wishes."""
        wishes = spec.wishes
        found = self._permits.readable() - wishes.forbidden_sites
        if wishes.allowed_sites is not None:
            found &= wishes.allowed_sites
        others = sorted(found - {target})[: ERRAND_SITES_MAX - 1]
        return frozenset({target, *others})

    def _open_with(self, site: str) -> int:
        return sum(each.site == site for each in self.purchases.values())

    def _question(self, job: Job, purchase: Purchase, decision: Decision) -> deals.AskQuote:
        spec = job.spec
        return deals.AskQuote(
            contract=purchase.contract,
            pool=purchase.pool,
            tasks=purchase.tasks,
            task_s=decision.ask.task_s,
            function=spec.function,
            name=spec.name,
            user=spec.user,
            project=spec.project,
            priority=spec.priority,
            tags=dict(spec.tags),
            timeout_s=spec.timeout_s,
            python=spec.python,
            prints=spec.prints,
            currency=spec.currency or "",
            wishes=wishes_plain(spec.wishes),
            path=[*spec.path, self._site],
            hops_left=max(0, spec.hops_left - 1),
            grant=self._grant(job, purchase, decision.made_s),
        )

    def _say(self, purchase: Purchase, message: deals.FromBuyer, *, urgent: bool = False) -> None:
        self._outcome.say(purchase.site, Side.SELLER, message, urgent=urgent)

    # --- what a seller says --------------------------------------------------------------------

    def hear(self, seller: str, message: Any, now_s: float, utc_s: float) -> None:
        """Take a message of a seller; ProtocolError when it breaks the rules."""
        match message:
            case deals.Renew():
                self._renew(seller, message, now_s)
            case NeedFunction() if self._has_function(seller, message.digest):
                self._outcome.effects.append(SendFunction(seller, message.digest, again=True))
            case NeedFunction():
                return  # of a job that has ended, or of none
            case _:
                self._hear_of(seller, message, now_s, utc_s)

    def _has_function(self, seller: str, digest: bytes) -> bool:
        """Whether a seller has a contract for a job of this function."""
        jobs = (self._broker.jobs.get(p.job) for p in self.purchases.values() if p.site == seller)
        return any(job is not None and job.spec.function == digest for job in jobs)

    def _hear_of(self, seller: str, message: Any, now_s: float, utc_s: float) -> None:
        """Take a message about one contract."""
        purchase = self.purchases.get(message.contract)
        if purchase is None or purchase.site != seller:
            self._unknown(seller, message)
            return
        match message:
            case deals.Quote():
                self._quoted(purchase, message, now_s, utc_s)
            case deals.Decline():
                self._declined(purchase, message.code, message.reason, utc_s)
            case deals.Held():
                self._commit(purchase, now_s, utc_s)
            case deals.Committed():
                self._committed(purchase, now_s)
            case deals.Deliver():
                self._delivered(purchase, message, now_s, utc_s)
            case deals.GivenBack():
                self._given_back(purchase, message)
            case deals.Bill():
                self._billed(purchase, message)
            case deals.Holding():
                self._reconcile(purchase, message)
            case deals.Closed():
                self._closed(purchase, utc_s)
            case _:
                raise ProtocolError(f"a seller may not say {message.kind!r}")

    def _unknown(self, seller: str, message: Any) -> None:
        """A contract that we do not have any more: nothing of it counts."""
        match message:
            case deals.Bill():
                self._outcome.effects.append(AnswerBill(seller, message))
            case deals.Holding():
                self._outcome.say(seller, Side.SELLER, deals.Abandon(message.contract))

    def _quoted(self, purchase: Purchase, quote: deals.Quote, now_s: float, utc_s: float) -> None:
        if purchase.phase is not None:
            raise ProtocolError("a second quote for one contract")
        if purchase.pool not in ("", quote.pool) or not 1 <= quote.slots <= SLOTS_MAX:
            raise ProtocolError("a quote for another pool, or for no slots")
        if not _is_name(quote.pool) or not 0 <= quote.price_nanos <= NANOS_LIMIT:
            raise ProtocolError("a quote for a pool without a name, or at no price")
        if not 0 <= quote.lease_s <= LEASE_MAX_S:
            raise ProtocolError("a quote for a lease of more than a day")
        try:
            check_currency(quote.currency)
        except ValueError as error:
            raise ProtocolError(f"a quote in no money: {error}") from None
        purchase.phase = Phase.QUOTED
        purchase.quote = quote
        purchase.pool = quote.pool
        purchase.round_trip_s = min(now_s - purchase.asked_s, ROUND_TRIP_MAX_S)
        self._consider(purchase.job, now_s, utc_s)

    def was_refused(self, site: str) -> bool:
        """Whether a site that is spared has said that it will not have our work."""
        rest = self.resting.get(site)
        return rest is not None and rest.is_no

    def _is_resting(self, site: str, utc_s: float) -> bool:
        rest = self.resting.get(site)
        return rest is not None and utc_s < rest.until_s

    def _spare(self, site: str, utc_s: float, why: str, *, is_no: bool = False) -> None:
        """Leave a site alone for a while, twice as long each time that it is of no use.

        What else goes wrong while it is left alone was asked for before, and is no new sign.
        """
        if self._is_resting(site, utc_s):
            return
        times = self._refusals[site] = self._refusals.get(site, 0) + 1
        self.resting[site] = Rest(utc_s + self._rules.rest_after_s(times), why, is_no)

    def _declined(self, purchase: Purchase, code: str, reason: str, utc_s: float) -> None:
        why = f"declined ({_shown(code)}: {_shown(reason)})"
        is_relay = purchase.pool == RELAY or (purchase.phase is None and not purchase.pool)
        if is_relay and code in ABOUT_JOBS:
            self._note_useless(purchase, utc_s)
        elif not purchase.is_live and code == Reason.NO_SLOTS:
            # Others hold them for the moment that a contract takes; or it is full, as its next
            # advert will tell.
            if not self._is_resting(purchase.site, utc_s):
                until_s = utc_s + min(FULL_S, self._rules.rest_s)
                self.resting[purchase.site] = Rest(until_s, why)
        elif code not in ENDED:
            self._spare(purchase.site, utc_s, why, is_no=code == Reason.NOT_ENTITLED)
        if purchase.is_live:
            # Its seller knows nothing of it, or has given everything back.
            self._lapse(purchase, "its seller declined")
            return
        self._give_up(purchase, utc_s)

    def _note_useless(self, purchase: Purchase, utc_s: float) -> None:
        """A site has nothing for a job: it is not asked again soon, longer each time."""
        key = purchase.job, purchase.site
        times = self._useless.get(key, (0, 0.0))[0] + 1
        self._useless[key] = times, utc_s + self._rules.rest_after_s(times)

    def _consider(self, job: str, now_s: float, utc_s: float) -> None:
        """Choose among the quotes for a job once all are here, or it takes too long."""
        enquiry = self._enquiries.get(job)
        if enquiry is None:
            return
        waiting = [self.purchases.get(each) for each in enquiry.asked]
        found = [each for each in waiting if each is not None]
        if now_s < enquiry.until_s and any(each.phase is None for each in found):
            return
        del self._enquiries[job]
        decision = enquiry.decision
        quoted = [
            each for each in found if each.quote and _is_fair(each.site, each.quote, decision)
        ]
        chosen = self._chosen(decision, quoted)
        for purchase in found:
            if purchase in chosen:
                purchase.phase = move(Phase.QUOTED, Move.HOLD)
                self._say(purchase, deals.Hold(purchase.contract))
            else:
                if purchase in quoted and _is_beyond(purchase, decision):
                    self._note_useless(purchase, utc_s)
                if purchase not in quoted:  # no answer, or a dearer one than was advertised
                    self._spare(purchase.site, utc_s, "gave no quote, or not as advertised")
                self._drop(purchase)

    def _chosen(self, decision: Decision, quoted: list[Purchase]) -> list[Purchase]:
        """Of rivals for the same work the best; of shares all."""
        plan = decision.plan
        if plan is not None and len(plan.shares) > 1:
            return quoted
        quotes = {(each.site, each.pool): each for each in quoted}
        made_s = decision.made_s
        best = choose_quote(
            decision,
            [_as_quote(key, each, made_s) for key, each in quotes.items() if each.quote],
            made_s,
        )
        if best is not None:
            return [quotes[best.key]]
        if plan is not None and plan.shares:
            return []
        payable = [each for each in quoted if not _is_beyond(each, decision)]
        return sorted(payable, key=lambda each: _blind_rank(each, decision))[:1]

    def _commit(self, purchase: Purchase, now_s: float, utc_s: float) -> None:
        quote = purchase.quote
        if purchase.phase is not Phase.HELD or quote is None or purchase.until_s:
            raise ProtocolError("held, and nobody asked")
        if purchase.job not in self._broker.jobs:
            self._say(purchase, deals.CloseContract(purchase.contract))
            self._drop(purchase)
            return
        lease_s = purchase.lease_s = max(self._rules.lease_s, quote.lease_s)
        purchase.until_s = grantor_until_s(now_s, lease_s)
        self._outcome.write(
            records.ContractOpened(
                purchase.contract,
                "buy",
                purchase.site,
                purchase.job,
                purchase.pool,
                quote.slots,
                quote.price_nanos,
                quote.currency,
                lease_s,
                utc_s,
            ),
            durable=True,
        )
        commit = deals.Commit(
            purchase.contract, purchase.pool, quote.price_nanos, quote.currency, lease_s
        )
        self._say(purchase, commit)

    def _committed(self, purchase: Purchase, now_s: float) -> None:
        if purchase.phase is not Phase.HELD or purchase.quote is None or not purchase.until_s:
            raise ProtocolError("committed, and nobody asked")
        purchase.phase = move(purchase.phase, Move.COMMIT)
        self._refusals.pop(purchase.site, None)
        purchase.busy_s = now_s
        # Its lease began when the seller opened it, which is later than we counted.
        purchase.until_s = grantor_until_s(now_s, purchase.lease_s)
        job = self._broker.jobs.get(purchase.job)
        if job is None:
            return  # it ended meanwhile; the next tick closes the contract
        self._join(purchase, job.id, job.spec)

    def _join(self, purchase: Purchase, job: str, spec: JobSpec) -> None:
        """Let the broker have it as a worker."""
        self._handles -= 1
        purchase.handle = self._handles
        self._by_handle[purchase.handle] = purchase
        self._served.add(job)
        quote = purchase.quote
        assert quote is not None
        self._outcome.effects.append(SendFunction(purchase.site, spec.function))
        self._outcome.happened(
            events.WorkerJoined(
                purchase.handle,
                purchase.place,
                purchase.place,
                quote.slots,
                spec.tags,
                spec.python,
                job,
                Tariff(quote.price_nanos, quote.currency, purchase.contract),
                purchase.round_trip_s,
            )
        )

    def _delivered(
        self, purchase: Purchase, message: deals.Deliver, now_s: float, utc_s: float
    ) -> None:
        first, stop = message.first, message.first + len(message.values)
        if not purchase.is_live:
            return  # too late, or a second time: it will be void when it is billed
        assert purchase.quote is not None
        if message.cost_nanos > cost_nanos(purchase.quote.price_nanos, message.wall_ns) + 1:
            raise ProtocolError("a delivery that costs more than was agreed")
        if not is_sound(message):
            raise ProtocolError("a delivery of no tasks, or with failures beside them")
        most = purchase.max_cost_nanos
        if most is not None and purchase.spent_nanos + message.cost_nanos > most:
            raise ProtocolError("a delivery that costs more than was granted")
        self._check_time(purchase, message, utc_s)
        message = self._screened(purchase, message)
        if not self._take(purchase, message.epoch, first, stop):
            return  # too late, or a second time: it will be void when it is billed
        delivery = Delivery(message.epoch, first, stop, message.cost_nanos)
        if purchase.tab.deliver(delivery) is not None:
            return
        purchase.busy_s = now_s
        purchase.spent_nanos += message.cost_nanos
        self._outcome.write(
            records.Posted(
                purchase.contract,
                "buy",
                message.epoch,
                first,
                stop - first,
                message.wall_ns,
                message.cost_nanos,
                utc_s,
            )
        )
        self._outcome.happened(
            events.Reported(
                purchase.handle,
                message.epoch,
                first,
                message.values,
                message.failures,
                message.prints,
                message.wall_ns,
                message.cpu_ns,
                message.peak_memory_bytes,
                message.cost_nanos,
                (purchase.site, *message.sites),
            )
        )

    def _check_time(self, purchase: Purchase, message: deals.Deliver, utc_s: float) -> None:
        """A task can't have run for longer than since it was forwarded."""
        assignment = self._assignment(purchase, message.epoch)
        if assignment is None:
            return
        is_older = self._is_older(message.epoch)
        since_s = purchase.opened_at_s if is_older else assignment.given_s
        passed_s = max(0.0, utc_s - since_s)
        if message.wall_ns > (len(message.values) * passed_s + SLACK_S) * 1e9:
            raise ProtocolError("a delivery that took longer than has passed")

    def _screened(self, purchase: Purchase, message: deals.Deliver) -> deals.Deliver:
        """A delivery as users here may have it: nothing to unpickle of sites not trusted with that.

        Nobody sends work where this is known before; but trust can be withdrawn, and a seller may
        have passed it on to whom it should not. What we relay is for its origin to judge.
        """
        sites = message.sites
        if len(sites) > HOPS_MAX or self._site in sites or not all(map(_is_name, sites)):
            raise ProtocolError("results that came through too many sites, through us, or nowhere")
        job = self._broker.jobs.get(purchase.job)
        strangers = {purchase.site, *sites} - self._permits.readable()
        if not strangers or (job is not None and job.spec.path):
            return message
        names = ", ".join(sorted(strangers))
        reason = f"its result came from {names}, whose results are not accepted at {self._site}"
        failures = {at: [at, "untrusted", reason, b""] for at in range(len(message.values))}
        failures |= {at: [at, kind, text, b""] for at, kind, text, _ in message.failures}
        values = [b""] * len(message.values)
        return replace(message, values=values, failures=[failures[at] for at in sorted(failures)])

    def _assignment(self, purchase: Purchase, epoch: int) -> Assignment | None:
        """What is out under a contract by this number, as the broker has it."""
        worker = self._broker.workers.get(purchase.handle)
        return worker.assignments.get(epoch) if worker else None

    def _is_older(self, epoch: int) -> bool:
        """Whether it was given out in a former life of ours."""
        return 0 < epoch < self._boot << EPOCH_BITS

    def _take(self, purchase: Purchase, epoch: int, first: int, stop: int) -> bool:
        """Count tasks as back; False when they are not out, or came back a moment ago."""
        assignment = self._assignment(purchase, epoch)
        if assignment is None or assignment.left.within(first, stop) != [(first, stop)]:
            return False
        taken = self._taken.setdefault((purchase.contract, epoch), RangeSet())
        if taken.within(first, stop):
            return False
        taken.add(first, stop)
        return True

    def acted(self) -> None:
        """The broker has heard of all that came back."""
        self._taken.clear()

    def is_useless(self, job: str, site: str, utc_s: float) -> bool:
        """Whether a site said lately that it has nothing for a job."""
        return utc_s < self._useless.get((job, site), (0, 0.0))[1]

    def _given_back(self, purchase: Purchase, message: deals.GivenBack) -> None:
        if purchase.is_live:
            # Also when nothing is: the broker counts its recalls, and waits for each answer.
            back = tuple(
                each
                for each in check_ranges(message.ranges)
                if self._take(purchase, message.epoch, *each)
            )
            self._outcome.happened(events.HandedBack(purchase.handle, message.epoch, back))

    def _billed(self, purchase: Purchase, bill: deals.Bill) -> None:
        if purchase.is_recovered:
            # What a power cut took from our books will be delivered again, and billed again: void
            # must not be said before that.
            return
        verdicts: list[list[int]] = []
        tab = purchase.tab
        for row in bill.deliveries:
            if len(row) != 4:
                raise ProtocolError("a delivery is billed as [epoch, first, tasks, cost]")
            epoch, first, tasks, cost = row
            pending = tab.pending.get((epoch, first))
            settled = tab.verdicts.get((epoch, first))
            known = pending or (settled[0] if settled else None)
            if known is not None and known != Delivery(epoch, first, first + tasks, cost):
                raise ProtocolError("a bill that differs from what was delivered")
            is_posted = pending is not None or (settled is not None and settled[1] is Verdict.POST)
            if pending is not None:
                tab.settle(epoch, first, Verdict.POST)
                self._outcome.write(
                    records.PostingSettled(purchase.contract, "buy", epoch, first, Verdict.POST),
                    durable=True,
                )
            verdicts.append([epoch, first, int(is_posted)])
        while len(tab.verdicts) > VERDICTS_MAX:
            del tab.verdicts[next(iter(tab.verdicts))]
        self._say(purchase, deals.Settle(purchase.contract, verdicts))

    def _reconcile(self, purchase: Purchase, message: deals.Holding) -> None:
        """The seller's session is new: what it does not have any more is ours to place again."""
        if purchase.phase is Phase.CLOSING and not purchase.is_orphan:
            self._say(purchase, deals.CloseContract(purchase.contract))  # the first may be lost
        worker = self._broker.workers.get(purchase.handle)
        if worker is None or not purchase.is_live:
            return
        held: dict[int, list[Range]] = {}
        for row in message.forwards:
            if len(row) != 3:
                raise ProtocolError("what is held is [epoch, first, stop]")
            held.setdefault(row[0], []).append((row[1], row[2]))
        if purchase.is_recovered:
            self._take_up(purchase, held)
            return
        for epoch, assignment in list(worker.assignments.items()):
            if epoch > purchase.doubted:
                continue  # it went out after the seller had said this, and is under way
            missing = RangeSet(assignment.left)
            for first, stop in held.get(epoch, ()):
                missing.remove(first, stop)
            for first, stop in missing:  # what says otherwise in this very frame comes too late
                self._taken.setdefault((purchase.contract, epoch), RangeSet()).add(first, stop)
            if missing or assignment.recalls:
                back = events.HandedBack(purchase.handle, epoch, tuple(missing), of_all=True)
                self._outcome.happened(back)

    def _take_up(self, purchase: Purchase, held: dict[int, list[Range]]) -> None:
        """A contract of our former life: what its seller has of it is out again."""
        found = {epoch: check_ranges(sorted(map(list, held[epoch]))) for epoch in held}
        if not all(map(self._is_older, found)):
            raise ProtocolError("holds what was never forwarded")
        purchase.is_recovered = False
        for epoch, ranges in found.items():
            self._outcome.happened(events.Resumed(purchase.handle, epoch, ranges))
        self._outcome.happened(events.JobHeld(purchase.job, purchase.contract, on=False))

    def recover(
        self, row: ContractRow, postings: list[PostingRow], now_s: float, job: JobSpec | None
    ) -> None:
        """Take up a contract of a former life, in which tasks of a job may still be out.

        The job waits until its seller has said which, or the lease has ended. `job` is None for
        attached tasks, which their client sends again: then all of it is stopped.
        """
        quote = deals.Quote(
            row.contract,
            row.pool,
            0,
            row.slots,
            row.price_nanos,
            row.currency,
            *(0.0, 0.0, 0.0),
            row.lease_s,
        )
        purchase = Purchase(row.contract, row.job, row.site, row.pool, 0, now_s, Phase.OPEN, quote)
        purchase.lease_s = row.lease_s
        purchase.until_s = grantor_until_s(now_s, row.lease_s)
        purchase.busy_s = now_s
        purchase.opened_at_s = row.opened_at_s
        for each in postings:
            delivery = Delivery(each.epoch, each.first, each.first + each.tasks, each.cost_nanos)
            purchase.tab.deliver(delivery)
            if each.state != "pending":
                purchase.tab.settle(each.epoch, each.first, Verdict(each.state))
        self.purchases[row.contract] = purchase
        self._outcome.happened(events.JobHeld(row.job, row.contract, on=True))
        if job is None:
            purchase.phase = Phase.CLOSING
            purchase.is_orphan = True
            self._say(purchase, deals.Abandon(row.contract))
            return
        purchase.is_recovered = True
        self._join(purchase, row.job, job)
        self._say(purchase, deals.Resume(row.contract))

    def _renew(self, seller: str, message: deals.Renew, now_s: float) -> None:
        granted = []
        for contract in message.contracts:
            purchase = self.purchases.get(contract)
            if purchase is None or purchase.site != seller:
                continue
            if purchase.is_orphan:
                continue
            # One that is committed, but not known to be open, is renewed as well.
            if purchase.is_live or (purchase.phase is Phase.HELD and purchase.until_s):
                purchase.until_s = grantor_until_s(now_s, purchase.lease_s)
                granted.append(contract)
        answer = deals.Granted(message.stamp, granted)
        self._outcome.say(seller, Side.SELLER, answer, urgent=True)

    def _closed(self, purchase: Purchase, utc_s: float) -> None:
        if purchase.is_live and self._out(purchase):
            self._lapse(purchase, "its seller ended it")
            return
        state = "lapsed" if purchase.phase is Phase.LAPSED else "settled"
        self._outcome.write(records.ContractEnded(purchase.contract, "buy", state, utc_s))
        if purchase.is_live:
            self._outcome.happened(events.WorkerGone(purchase.handle, "the contract ended"))
        self._drop(purchase)

    # --- what the broker says ------------------------------------------------------------------

    def ordered(self, handle: int, message: Any, now_s: float) -> None:
        """Take what the broker orders one of our workers, which are contracts, to do."""
        purchase = self._by_handle.get(handle)
        if purchase is None or not purchase.is_live:
            return
        purchase.busy_s = now_s
        contract = purchase.contract
        match message:
            case Assign():
                forward = deals.Forward(
                    contract, message.assignment, message.first, message.arguments
                )
                self._say(purchase, forward, urgent=True)
            case Recall():
                reclaim = deals.Reclaim(
                    contract, message.assignment, message.first, message.stop, message.kill
                )
                self._say(purchase, reclaim, urgent=True)
            case Drain():
                return
            case _:
                raise AssertionError(f"{message.kind!r} is not for a contract")

    # --- as time passes ------------------------------------------------------------------------

    def tick(self, now_s: float, utc_s: float) -> None:
        """Give up quotes and commits that do not come, lapse leases, close what has no work."""
        for key in [each for each in self._useless if each[0] not in self._broker.jobs]:
            del self._useless[key]
        for site in list(self.resting):
            if not self._is_resting(site, utc_s):
                del self.resting[site]
        for enquiry in list(self._enquiries.values()):
            self._consider(enquiry.job, now_s, utc_s)
        for purchase in list(self.purchases.values()):
            waited_s = now_s - purchase.asked_s
            if purchase.is_live and now_s >= purchase.until_s:
                self._lapse(purchase, f"nothing was heard from {purchase.site} for its lease")
                self._spare(purchase.site, utc_s, "was not heard of for a lease")
            elif purchase.phase is Phase.OPEN and self._is_done(purchase, now_s):
                purchase.phase = move(purchase.phase, Move.CLOSE)
                self._say(purchase, deals.CloseContract(purchase.contract))
            elif purchase.phase is Phase.LAPSED:
                if now_s >= purchase.until_s + purchase.lease_s:
                    self._outcome.write(
                        records.ContractEnded(purchase.contract, "buy", "lapsed", utc_s)
                    )
                    self._drop(purchase)
            elif purchase.is_under_way and waited_s > 2 * self._rules.hold_s:
                self._spare(purchase.site, utc_s, "did not answer")
                if purchase.until_s:  # it may be open there, by now
                    self._say(purchase, deals.CloseContract(purchase.contract))
                self._give_up(purchase, utc_s)

    def _give_up(self, purchase: Purchase, utc_s: float) -> None:
        """It never came about; if it is in the books it ends there too."""
        if purchase.until_s:
            self._outcome.write(records.ContractEnded(purchase.contract, "buy", "settled", utc_s))
        self._drop(purchase)

    def unreachable(self, site: str, utc_s: float) -> None:
        """A site can't be reached: what is not committed is off, the rest waits for its lease."""
        self._spare(site, utc_s, "can't be reached")
        self._unreached.add(site)
        for purchase in list(self.purchases.values()):
            if purchase.site != site:
                continue
            if purchase.is_under_way and not purchase.until_s:
                self._drop(purchase)
            worker = self._broker.workers.get(purchase.handle)
            if worker is not None and worker.assignments:
                purchase.doubted = max(worker.assignments)

    def reached(self, site: str) -> None:
        """There is a session with a site: that there was none is no reason to spare it any more."""
        if site in self._unreached:
            self._unreached.discard(site)
            self._refusals.pop(site, None)
            self.resting.pop(site, None)

    def _is_done(self, purchase: Purchase, now_s: float) -> bool:
        if self._out(purchase) or purchase.is_recovered:
            purchase.busy_s = now_s
            return False
        is_over = purchase.job not in self._broker.jobs
        return is_over or now_s - purchase.busy_s > self._rules.idle_s

    def _out(self, purchase: Purchase) -> int:
        worker = self._broker.workers.get(purchase.handle)
        return worker.in_flight if worker else 0

    def _lapse(self, purchase: Purchase, reason: str) -> None:
        purchase.phase = move(purchase.phase or Phase.OPEN, Move.LAPSE)
        self._by_handle.pop(purchase.handle, None)
        self._outcome.happened(events.WorkerGone(purchase.handle, reason))
        if purchase.is_recovered or purchase.is_orphan:
            purchase.is_recovered = purchase.is_orphan = False
            self._outcome.happened(events.JobHeld(purchase.job, purchase.contract, on=False))

    def _drop(self, purchase: Purchase) -> None:
        if purchase.is_recovered or purchase.is_orphan:
            self._outcome.happened(events.JobHeld(purchase.job, purchase.contract, on=False))
        self.purchases.pop(purchase.contract, None)
        self._by_handle.pop(purchase.handle, None)


def _is_beyond(purchase: Purchase, decision: Decision) -> bool:
    """Whether a job's money pays for not one task at what was quoted."""
    quote, ask = purchase.quote, decision.ask
    if quote is None or ask.budget_nanos is None or ask.task_s is None:
        return False
    return not pays_for_one(ask.budget_nanos, quote.price_nanos, round(ask.task_s * 1e9))


def _shown(text: str) -> str:
    """What another site says, as people here may be shown it."""
    return "".join(each if each.isprintable() else "?" for each in text[:TEXT_CHARS_MAX])


def _part(left_nanos: int | None, decision: Decision, key: Key) -> int | None:
    """What of a job's money a contract is granted.

    Shares of one plan divide what is left by their tasks. Of rivals for all of it one is chosen,
    so each is offered twice what its work should cost, and no less than an eighth of what is left:
    the rest is for others that may be wanted later. Where it was too little, another contract
    follows.
    """
    plan = decision.plan
    if left_nanos is None or plan is None:
        return left_nanos
    tasks = sum(n for _, n in plan.shares)
    for lane, n in plan.shares:
        if lane.key == key and len(plan.shares) > 1:
            return left_nanos * n // max(1, tasks)
    if decision.ask.task_s is None or not plan.shares:
        return left_nanos
    costs = max(lane.cost_nanos(n) for lane, n in plan.shares)
    return min(left_nanos, max(2 * costs, -(-left_nanos // 8)))


def _is_fair(site: str, quote: deals.Quote, decision: Decision) -> bool:
    """Whether a quote is about what its site advertised; of a pool that none did, in our money."""
    house, ask = decision.house, decision.ask
    if any(candidate.key == (site, quote.pool) for candidate, _ in decision.refused):
        return False  # it may not run there, whatever it would cost
    known = next((each for each in decision.preferred if each.key == (site, quote.pool)), None)
    if known is not None:
        most = known.estimate.price_nanos * (1 + house.band)
        return quote.currency == known.candidate.advert.currency and quote.price_nanos <= most
    wanted = ask.terms.need.currency
    is_late = ask.deadline_s is not None and decision.made_s + quote.begin_in_s > ask.deadline_s
    return wanted in (None, quote.currency) and bool(house.rate(quote.currency)) and not is_late


def _blind_rank(purchase: Purchase, decision: Decision) -> tuple[float, float]:
    """How good a quote is that no advert was known for; less is better."""
    quote = purchase.quote
    assert quote is not None
    money = quote.price_nanos * (decision.house.rate(quote.currency) or 0.0)
    objective = decision.ask.objective
    is_for_money = objective.money >= objective.time
    return (money, quote.finish_in_s) if is_for_money else (quote.finish_in_s, money)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and text.isprintable()


def _as_quote(key: Key, purchase: Purchase, now_s: float) -> Quote:
    quote = purchase.quote
    assert quote is not None
    return Quote(
        key,
        quote.tasks,
        quote.price_nanos,
        now_s + quote.begin_in_s,
        now_s + quote.finish_in_s,
    )
