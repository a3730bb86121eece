"""Asks sites for quotes, and chooses among them. Pure.

    plan ─► ask ─► AskQuote, with a grant for that contract alone
    Quote ─► quoted ─► consider: all are here, or the wait is over ─► Hold for the chosen seller

Each question makes a purchase, which is in the book of all purchases from then on. This module
drops the purchases that are not chosen; `gateway.contracts.buying.purchases` handles the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.adverts import PoolAdvert
from federation.messages.contracts import ContractPhase, Move, move
from federation.messages.registry import FromBuyer
from federation.money import format_money
from federation.objects.left import AUTO
from gateway.config.contracts import DealRules
from gateway.contracts.buying.grant_parts import part_of, room_of, unknown_s
from gateway.contracts.buying.site_backoff import SiteBackoff, TooDear
from gateway.contracts.model.dealing import Consequences, Permits
from gateway.contracts.model.object_moves import ObjectMoves
from gateway.contracts.model.purchase import Purchase, Purchased, check_quote
from gateway.contracts.model.quotations import tariff_of
from gateway.scheduler.model.effects import PeerSide
from gateway.scheduler.model.events import JobNoted
from gateway.scheduler.model.intake import wishes_plain
from gateway.scheduler.model.job_grants import (
    DELEGATION_SITES_MAX,
    GrantSigner,
    GrantTerms,
    NotGranted,
)
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import JobSpec
from policies.costs.budgets import note_short
from policies.costs.moving import charge_nanos
from policies.placement.asks import Demand, Wishes
from policies.placement.brokering import PoolQuote, choose_quote
from policies.placement.decisions import Decision
from policies.placement.estimates import pays_for_one, price_shown
from policies.placement.market import Key
from policies.reservations.reservations import Reservation
from policies.tariffs import Extras, Tariff

ROUND_TRIP_MAX_S: Final = 5.0


@dataclass(slots=True)
class Enquiry:
    """The quotes requested for one job, and the time limit for them."""

    job: str
    decision: Decision
    asked: list[str]
    until_s: MonoS


class Enquiries:
    """The quotes that we wait for.

    Args:
        site: our name.
        boot: the number of this run of the site, which makes contract names unique.
        rules: the settings.
        permits: the sites whose results are accepted.
        signer: gives grants.
        book: all our purchases; new ones are added, rejected ones removed.
        site_backoff: the back-off from sites that gave no quote, or no useful one.
        outcome: takes questions and holds.
        booked: (`site/pool`, tariff) → our reservation there that it is the price of.
        wishes_of: a job's wishes, within this site's rules about places.
        moves: of objects between sites.
    """

    def __init__(  # noqa: PLR0913 - its dependencies, each by its name
        self,
        site: str,
        boot: int,
        rules: DealRules,
        permits: Permits,
        signer: GrantSigner,
        book: Purchased,
        site_backoff: SiteBackoff,
        outcome: Consequences,
        booked: Callable[[str, Tariff], Reservation | None],
        wishes_of: Callable[[JobSpec], Wishes],
        moves: ObjectMoves,
    ) -> None:
        self._site = site
        self._boot = boot
        self._rules = rules
        self._permits = permits
        self._signer = signer
        self._book = book
        self._site_backoff = site_backoff
        self._outcome = outcome
        self._booked = booked
        self._wishes_of = wishes_of
        self._moves = moves
        self._numbers = 0
        self._enquiries: dict[str, Enquiry] = {}  # by job
        self._late: dict[str, tuple[str, MonoS]] = {}  # timed out: site, and time of the question
        self._delays_s: dict[str, float] = {}  # of sites whose last quote came too late

    def new_name(self) -> str:
        """Return a new name, unique among all that we buy."""
        self._numbers += 1
        return f"{self._site}-{self._boot}-{self._numbers}"

    # --- asking --------------------------------------------------------------------------------

    def is_asking(self, job: str) -> bool:
        """Whether quotes or a commit are awaited for this job."""
        return job in self._enquiries or any(each.is_under_way for each in self._book.of_job(job))

    def ask(self, job: Job, decision: Decision, keys: Iterable[Key], mono_s: MonoS) -> list[Key]:
        """Ask sites for quotes, for `consider` to choose from; return the sites and pools asked."""
        shares = {lane.key: n for lane, n in decision.plan.shares} if decision.plan else {}
        left_nanos = self._left_nanos(job)
        asked = []
        for site, pool in keys:
            if left_nanos == 0 or self._open_with(site) >= self._rules.contracts_max:
                continue
            contract = self.new_name()
            tasks = shares.get((site, pool), decision.ask.tasks)
            purchase = Purchase(contract, job.id, site, pool, tasks, mono_s)
            purchase.price_class = job.spec.price_class
            purchase.spec, purchase.is_blind = job.spec, not pool
            purchase.max_cost_nanos = part_of(
                *(left_nanos, decision, (site, pool), unknown_s(job)),
                is_first=not job.in_flight,
            )
            if purchase.max_cost_nanos == 0:
                continue
            try:
                question = self._question(job, purchase, decision)
            except NotGranted:
                self._note_not_granted(job, site, pool, decision.made_at_s)
                continue
            self._book.add(purchase)
            asked.append(contract)
            self._say(purchase, question)
        if asked:
            until_s = mono_s + max(self._wait_s(site) for site, _ in keys)
            self._enquiries[job.id] = Enquiry(job.id, decision, asked, until_s)
        return [(each.site, each.pool) for each in map(self._book.by_name.__getitem__, asked)]

    def _note_not_granted(self, job: Job, site: str, pool: str, utc_s: UtcS) -> None:
        """Back off for work whose grant, made by another site, does not reach this one."""
        if pool:
            self._site_backoff.refuse(job.spec, site, pool, utc_s, "the grant does not allow it")
        else:
            self._site_backoff.note_useless(job.id, site, utc_s)

    def _wait_s(self, site: str) -> float:
        """The time to wait for a site's quotes: longer if the last one came too late."""
        return max(self._rules.quote_wait_s, 2 * self._delays_s.get(site, 0.0))

    def _left_nanos(self, job: Job) -> int | None:
        """The part of a job's cost limit and budgets that is neither spent nor granted already.

        None without any.
        """
        limits = [job.spec.max_cost_nanos]
        limits += [job.spec.given.grant_terms.max_cost_nanos] if job.spec.given else []
        known = [each for each in limits if each is not None]
        room = room_of(job)
        # A task that was stopped for its cost would be stopped again by less, and paid again.
        least = max(1, job.needs_nanos)
        if room is not None and room < least:
            note_short(job.budget_accounts, least)
            room = 0
        if not known:
            return room
        granted = sum(
            each.left_nanos
            for each in self._book.of_job(job.id)
            if each.is_live or each.is_under_way
        )
        left = max(0, min(known) - job.limited_nanos - granted)
        return left if room is None else min(left, room)

    def _grant(self, job: Job, purchase: Purchase, made_at_s: UtcS) -> bytes:
        """The grant of the seller's rights in the user's name; raises NotGranted."""
        spec, given = job.spec, job.spec.given
        grant_terms = GrantTerms(
            target=purchase.site,
            contract=purchase.contract,
            job=job.id,
            user=spec.user,
            project=spec.project,
            function=spec.function,
            max_cost_nanos=purchase.max_cost_nanos,
            currency=spec.currency or "",
            expires_s=made_at_s + self._rules.grant_s,
            hops_left=max(0, spec.hops_left - 1),
            regions=self._wishes_of(spec).jurisdictions,
            sites=given.grant_terms.sites if given else self._may_have(purchase.site, spec),
        )
        if given is not None:
            return self._signer.narrow(given, grant_terms, made_at_s)
        return self._signer.issue(grant_terms)

    def _may_have(self, target: str, spec: JobSpec) -> frozenset[str]:
        """The sites that may run or relay it, as our rules and its user allow."""
        wishes = self._wishes_of(spec)
        found = self._permits.reach(target, spec.project) - wishes.forbidden_sites
        if wishes.allowed_sites is not None:
            found &= wishes.allowed_sites
        others = sorted(found - {target})[: DELEGATION_SITES_MAX - 1]
        return frozenset({target, *others})

    def _open_with(self, site: str) -> int:
        return sum(each.site == site for each in self._book.by_name.values())

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
            priority=spec.rank_priority,
            tags=dict(spec.tags),
            timeout_s=spec.timeout_s,
            python=spec.python,
            prints=job.wants_output,
            currency=spec.currency or "",
            wishes=wishes_plain(self._wishes_of(spec)),
            path=[*spec.path, self._site],
            hops_left=max(0, spec.hops_left - 1),
            grant=self._grant(job, purchase, decision.made_at_s),
            preemptible=spec.price_class == "preemptible",
            inputs=spec.has_inputs,
            results=self._results_of(spec),
            moves=_pays_moves(purchase),
        )

    def _results_of(self, spec: JobSpec) -> str:
        """Return whether a seller may keep large results of a job, to be fetched from there."""
        may = self._moves.fetches and spec.results == AUTO and spec.far_results
        return AUTO if may else ""

    def _say(self, purchase: Purchase, message: FromBuyer) -> None:
        self._outcome.say(purchase.site, PeerSide.SELLER, message)

    # --- choosing ------------------------------------------------------------------------------

    def quoted(self, purchase: Purchase, quote: deals.Quote, mono_s: MonoS, utc_s: UtcS) -> None:
        """Handle a quote; ProtocolError if it does not fit the question."""
        check_quote(purchase, quote)
        if not _pays_moves(purchase) and (quote.receive_nanos or quote.send_nanos):
            raise ProtocolError("the quote has a price of moved bytes, and none was asked for")
        purchase.phase = ContractPhase.QUOTED
        purchase.quote = quote
        purchase.pool = quote.pool
        purchase.round_trip_s = min(mono_s - purchase.asked_at_s, ROUND_TRIP_MAX_S)
        if 2 * purchase.round_trip_s <= self._rules.quote_wait_s:
            self._delays_s.pop(purchase.site, None)
        self._consider(purchase.job, mono_s, utc_s)

    def answered_late(self, site: str, contract: str, mono_s: MonoS) -> None:
        """Handle an answer that came after the time limit: the site is up, but slow.

        End its back-off for silence, and wait longer for it, up to ROUND_TRIP_MAX_S.
        """
        seller, asked_at_s = self._late.pop(contract, ("", mono_s))
        if seller != site:
            return
        delay_s = mono_s - asked_at_s
        if 2 * delay_s <= ROUND_TRIP_MAX_S:
            self._delays_s[site] = delay_s
            self._site_backoff.answered(site)

    def tick(self, mono_s: MonoS, utc_s: UtcS) -> None:
        """Stop waiting for quotes that are late."""
        for job in list(self._enquiries):
            self._consider(job, mono_s, utc_s)
        for contract, (_, asked_at_s) in list(self._late.items()):
            if mono_s - asked_at_s <= ROUND_TRIP_MAX_S:
                break  # in the order of their questions
            del self._late[contract]

    def _consider(self, job: str, mono_s: MonoS, utc_s: UtcS) -> None:
        """Choose among the quotes for a job once all are here, or the time limit has passed."""
        enquiry = self._enquiries.get(job)
        if enquiry is None:
            return
        waiting = [self._book.by_name.get(each) for each in enquiry.asked]
        found = [each for each in waiting if each is not None]
        if mono_s < enquiry.until_s and any(each.phase is None for each in found):
            return
        del self._enquiries[job]
        decision = enquiry.decision
        quoted = [
            each
            for each in found
            if each.quote and _is_fair(each.site, each.quote, decision, self._price_booked(each))
        ]
        chosen = _chosen(decision, quoted)
        for purchase in found:
            if not _is_beyond(purchase, decision):
                self._site_backoff.note_payable(purchase.job, purchase.site)
            if purchase in chosen:
                purchase.phase = move(ContractPhase.QUOTED, Move.HOLD)
                self._say(purchase, deals.Hold(purchase.contract))
            else:
                self._note_passed_over(purchase, quoted, chosen, decision, utc_s)
                if purchase.quote is not None:  # its slots count as ours until the quote expires
                    self._say(purchase, deals.CloseContract(purchase.contract))
                self._book.remove(purchase)  # none of its tasks is in flight, nor in the books

    def _price_booked(self, purchase: Purchase) -> Reservation | None:
        """Our reservation whose price a purchase is quoted at."""
        return self._booked(purchase.place, purchase.tariff)

    def _note_passed_over(
        self,
        purchase: Purchase,
        fair: list[Purchase],
        chosen: list[Purchase],
        decision: Decision,
        utc_s: UtcS,
    ) -> None:
        """Back off from a rejected seller, as far as it was responsible."""
        site, pool, spec = purchase.site, purchase.pool, purchase.spec
        assert spec is not None
        if purchase.quote is None:
            self._late[purchase.contract] = site, purchase.asked_at_s
            self._site_backoff.spare_silent(site, utc_s, "sent no quote in time")
        elif _is_beyond(purchase, decision):
            self._note_too_dear(purchase, decision, utc_s)
        elif purchase.is_blind and purchase not in fair:
            self._site_backoff.note_useless(purchase.job, site, utc_s)
        elif purchase not in fair:
            why = "quoted terms that differ from its advert"
            self._site_backoff.refuse(spec, site, pool, utc_s, why)
        elif not chosen:
            # It is busier than advertised, as its next advert will tell.
            self._site_backoff.refuse_full(
                spec, site, pool, utc_s, "quoted worse terms than it advertised"
            )

    def _note_too_dear(self, purchase: Purchase, decision: Decision, utc_s: UtcS) -> None:
        """Note that a job's money pays for no task at a seller; tell its owner once."""
        job, site = purchase.job, purchase.site
        cost_nanos = purchase.tariff.expected_nanos(1, decision.ask.task_s)
        price = f"{format_money(cost_nanos, purchase.currency)} at {site}"
        dear = TooDear(price, is_by_duration=decision.ask.task_s is not None)
        if self._site_backoff.note_too_dear(job, site, utc_s, dear):
            text = (
                f"one task costs about {price}: what is left of the job's cost limit pays for none"
            )
            self._outcome.happened(JobNoted(job, text))


def _pays_moves(purchase: Purchase) -> bool:
    """Whether we pay for objects that move under a contract.

    Named pools have the price in their advert. Relayed work has our own price instead.
    """
    return purchase.spec is not None and not purchase.spec.path and not purchase.is_blind


def _are_moves_fair(quote: deals.Quote, advert: PoolAdvert, band: float) -> bool:
    """Whether moved bytes are quoted at no more than their advertised prices."""
    most = 1 + band
    return (
        quote.receive_nanos <= advert.receive_nanos * most
        and quote.send_nanos <= advert.send_nanos * most
    )


def _is_fair(site: str, quote: deals.Quote, decision: Decision, booked: Reservation | None) -> bool:
    """Whether a quote matches its site's advert; of an unadvertised pool, is in our money.

    In slots that we have reserved it must match the `booked` price, for any class of work.
    """
    preferences, ask = decision.preferences, decision.ask
    if any(candidate.key == (site, quote.pool) for candidate, _ in decision.refused):
        return False  # it may not run there at any price
    if f"{site}/{quote.pool}" in ask.terms.barred:
        return False
    known = next((each for each in decision.preferred if each.key == (site, quote.pool)), None)
    if known is None and (quote.receive_nanos or quote.send_nanos):
        return False  # no advert bounds these prices
    if known is not None and not _are_moves_fair(quote, known.candidate.advert, preferences.band):
        return False
    if known is not None and booked is not None:
        extras = known.candidate.extras or Extras()
        most_nanos = extras.price_nanos(booked.price_nanos, "guaranteed", ask.terms.need.tags)
        price_nanos = tariff_of(quote).for_tasks_of(round(known.estimate.task_s * 1e9))
        return quote.currency == booked.currency and price_nanos <= most_nanos
    if known is not None:
        # The quoted price is that of now, even where the run will see it fall.
        task_s = known.estimate.task_s
        shown_nanos = price_shown(ask, known.candidate, task_s)
        most = max(known.estimate.price_nanos, shown_nanos) * (1 + preferences.band)
        price_nanos = tariff_of(quote).for_tasks_of(round(task_s * 1e9))
        return quote.currency == known.candidate.advert.currency and price_nanos <= most
    wanted = ask.terms.need.currency
    is_late = ask.deadline_s is not None and decision.made_at_s + quote.begin_in_s > ask.deadline_s
    return (
        wanted in (None, quote.currency) and bool(preferences.rate(quote.currency)) and not is_late
    )


def _chosen(decision: Decision, quoted: list[Purchase]) -> list[Purchase]:
    """Choose the best of rivals for the same work, or all shares of a plan."""
    plan = decision.plan
    if plan is not None and len(plan.shares) > 1:
        return quoted
    quotes = {(each.site, each.pool): each for each in quoted}
    made_at_s = decision.made_at_s
    best = choose_quote(
        decision,
        [_as_quote(key, each, decision) for key, each in quotes.items() if each.quote],
        made_at_s,
    )
    if best is not None:
        return [quotes[best.key]]
    if plan is not None and plan.shares:
        return []
    payable = [each for each in quoted if not _is_beyond(each, decision)]
    return sorted(payable, key=lambda each: _blind_rank(each, decision))[:1]


def _is_beyond(purchase: Purchase, decision: Decision) -> bool:
    """Whether a job's money does not pay for a single task at the quoted price.

    A task of unknown duration costs at least its minimum, or a step.
    """
    quote, ask = purchase.quote, decision.ask
    if quote is None or ask.budget_nanos is None:
        return False
    if ask.task_s is None:
        return tariff_of(quote).expected_nanos(1, None) > ask.budget_nanos
    task_ns = round(ask.task_s * 1e9)
    price_nanos = tariff_of(quote).for_tasks_of(task_ns)
    return not pays_for_one(ask.budget_nanos, price_nanos, task_ns)


def _blind_rank(purchase: Purchase, decision: Decision) -> tuple[float, float]:
    """The rank of a quote without a known advert; less is better."""
    quote = purchase.quote
    assert quote is not None
    price_nanos = _price_nanos(quote, decision)
    money = price_nanos * (decision.preferences.rate(quote.currency) or 0.0)
    objective = decision.ask.objective
    is_for_money = objective.money >= objective.time
    return (money, quote.finish_in_s) if is_for_money else (quote.finish_in_s, money)


def _price_nanos(quote: deals.Quote, decision: Decision) -> int:
    """The price of a slot-hour of the tasks in question, minimum and steps included."""
    task_s = decision.ask.task_s
    task_s = decision.preferences.task_s_unknown if task_s is None else task_s
    return tariff_of(quote).for_tasks_of(round(task_s * 1e9))


def _as_quote(key: Key, purchase: Purchase, decision: Decision) -> PoolQuote:
    quote, utc_s = purchase.quote, decision.made_at_s
    assert quote is not None
    return PoolQuote(
        key,
        quote.tasks,
        _price_nanos(quote, decision),
        utc_s + quote.begin_in_s,
        utc_s + quote.finish_in_s,
        _moves_nanos(quote, purchase.site, decision.ask),
    )


def _moves_nanos(quote: deals.Quote, site: str, ask: Demand) -> int:
    """The cost of the inputs' way to a seller."""
    return 0 if site in ask.moved_to else charge_nanos(quote.receive_nanos, ask.moved_bytes)
