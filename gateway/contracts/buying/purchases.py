"""Buying: contracts under which other sites run our jobs' tasks. Pure.

The broker treats a contract as a worker for one job, a round trip away. Its assignments are
forwarded under the assignment's number, which is the epoch, and deliveries become its reports. So
credit, recall, retries and fencing are the same as for our own workers.

    plan ─► AskQuote ─► Quote … choose ─► Hold ─► Held ─► stored ─► Commit ─► Committed
    Committed → WorkerJoined       Assign → Forward          Recall → Reclaim
    Deliver   → Reported           GivenBack → HandedBack    the lease runs out → WorkerGone

`gateway.contracts.buying.enquiries` covers the steps up to Hold; this module covers a contract's
life from Held on. `gateway.contracts.model.purchase` checks a seller's messages,
`gateway.contracts.buying.deliveries` counts and books deliveries, and
`gateway.contracts.buying.site_backoff` keeps the back-off of sellers.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import (
    FORWARDS_MAX,
    ContractPhase,
    Move,
    Verdict,
    grantor_until_s,
    move,
)
from federation.messages.messages import Assign, Drain, NeedFunction, Recall
from federation.messages.registry import FromBuyer, GatewayMessage, Receiver
from federation.objects.labels import UNLABELLED
from federation.ranges import Range, RangeSet
from federation.reasons import Reason
from federation.words import count, duration_text
from gateway.base.handlers import MessageHandler, handles
from gateway.config.contracts import DealRules
from gateway.contracts.buying.deliveries import Deliveries
from gateway.contracts.buying.enquiries import Enquiries
from gateway.contracts.buying.grant_parts import room_of
from gateway.contracts.buying.site_backoff import SiteBackoff
from gateway.contracts.model.dealing import Consequences, Permits
from gateway.contracts.model.moved import NO_PROOFS, MovedObject, MoveProof
from gateway.contracts.model.object_moves import ObjectMoves
from gateway.contracts.model.purchase import Purchase, Purchased, from_books, held_by_epoch, shown
from gateway.contracts.model.quotations import booked_terms
from gateway.ledger.db import records
from gateway.ledger.db.contracts.records import ContractEnd, ContractRow, PostingRow
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import AnswerBill, PeerSide, SendFunction
from gateway.scheduler.model.intake import check_ranges
from gateway.scheduler.model.job_grants import GrantSigner
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.matching import BUNDLE_TASKS_MAX
from gateway.scheduler.model.ports import PortKind
from gateway.scheduler.model.terms import JobSpec
from policies.costs.budgets import BudgetAccount, earmark, hard_payers
from policies.placement import environments

_LAPSED: Final = "lapsed"  # the code of a contract whose lease ran out
STOPPING_LEASES: Final = 2  # that a seller has to deliver the tasks that it was told to stop


class Purchases(MessageHandler[[MonoS, UtcS], None], receiver=Receiver.PURCHASES):
    """The contracts that we buy, by name in `purchases`.

    `enquiries` requests quotes, and adds the requested contracts to them; `deliveries` counts the
    deliveries; `site_backoff` has the sellers in back-off.

    Args:
        site: our site.
        boot: which life of the site this is.
        broker: read, and changed through `outcome`.
        rules: the settings.
        permits: decides whose results are accepted.
        signer: makes grants, for `enquiries`.
        outcome: receives the resulting events and effects.
        handles: the source of numbers for contracts, as the broker's workers.
        moves: of objects between sites.
    """

    def __init__(  # noqa: PLR0913 - its dependencies, each by its name
        self,
        site: str,
        boot: int,
        broker: Broker,
        rules: DealRules,
        permits: Permits,
        signer: GrantSigner,
        outcome: Consequences,
        handles: Iterator[int],
        moves: ObjectMoves,
    ) -> None:
        self._broker = broker
        self._rules = rules
        self._outcome = outcome
        self._book = Purchased()
        self.purchases: Mapping[str, Purchase] = self._book.by_name
        self.site_backoff = SiteBackoff(rules)
        self.deliveries = Deliveries(site, boot, broker, permits, self.site_backoff, outcome)
        self.enquiries = Enquiries(
            *(site, boot, rules, permits, signer, self._book, self.site_backoff, outcome),
            broker.reserved.booked,
            broker.entitling.wishes_of,
            moves,
        )
        self._handles = handles
        self._by_handle: dict[int, Purchase] = {}
        self._served: set[str] = set()  # jobs with a contract that opened since `take_served`

    @property
    def sellers(self) -> set[str]:
        """The sites that we have a contract with, or are making one."""
        return {each.site for each in self.purchases.values()}

    def live(self, job: str) -> list[Purchase]:
        """Return the contracts under which a job's tasks may be in flight."""
        return [each for each in self._book.of_job(job) if each.is_live]

    def places(self, job: str) -> set[str]:
        """Return the pools, as "site/pool", where a job has a contract, or has asked for one."""
        found = self._book.of_job(job)
        return {each.place for each in found if each.is_live or each.is_under_way}

    def take_served(self) -> set[str]:
        """Return the jobs that a contract opened for since the last call."""
        served, self._served = self._served, set()
        return served

    def _say(self, purchase: Purchase, message: FromBuyer) -> None:
        if isinstance(message, (deals.CloseContract, deals.Abandon, deals.Resume)):
            self.deliveries.prove(purchase)  # its seller may close after that
        self._outcome.say(purchase.site, PeerSide.SELLER, message)

    # --- a seller's messages -------------------------------------------------------------------

    def hear(self, seller: str, message: GatewayMessage, mono_s: MonoS, utc_s: UtcS) -> None:
        """Process a message of a seller; ProtocolError when it breaks the rules.

        The handler of a message about one contract gets the contract in place of the seller.
        """
        contract: str | None = getattr(message, "contract", None)
        if contract is None:
            super().hear(seller, message, mono_s, utc_s)
            return
        purchase = self.purchases.get(contract)
        if purchase is not None and purchase.site == seller:
            self.handler(message)(purchase, message, mono_s, utc_s)
        else:
            self._unknown(seller, message, mono_s, utc_s)

    @handles(NeedFunction)
    def _need_function(self, seller: str, message: NeedFunction, *_: object) -> None:
        if self._has_function(seller, message.digest):  # else for a job that has ended, or for none
            self._outcome.effects.append(SendFunction(seller, message.digest, again=True))

    def _has_function(self, seller: str, digest: bytes) -> bool:
        """Whether a seller has a contract for a job of this function."""
        jobs = (self._broker.jobs.get(p.job) for p in self.purchases.values() if p.site == seller)
        return any(job is not None and job.spec.function == digest for job in jobs)

    def _unknown(self, seller: str, message: GatewayMessage, mono_s: MonoS, utc_s: UtcS) -> None:
        """Process a message about a contract that we no longer have: its tasks do not count."""
        match message:
            case deals.Quote() | deals.Decline():
                self.enquiries.answered_late(seller, message.contract, mono_s)
            case deals.Bill():
                self._outcome.effects.append(AnswerBill(seller, message, utc_s))
            case deals.Holding():
                self._outcome.say(seller, PeerSide.SELLER, deals.Abandon(message.contract))

    def moved(self, fact: MovedObject, proof: MoveProof, utc_s: UtcS) -> bool:
        """Book an object that has moved under a contract; see Deliveries.moved.

        False also for a contract that we do not have any more.
        """
        purchase = self.purchases.get(fact.contract)
        if purchase is None or purchase.site not in (fact.source, fact.to):
            return False
        if purchase.quote is None or not purchase.until_s:
            return False  # it is not in the books
        return self.deliveries.moved(purchase, fact, proof, utc_s)

    def pledge(
        self, site: str, contract: str, digest: bytes, size: int, direction: str, utc_s: UtcS
    ) -> str:
        """Keep money for an object before it moves; see Purchase.pledge.

        Empty, as where it can, for a contract that we do not buy.
        """
        purchase = self.purchases.get(contract)
        if purchase is None or purchase.site != site or purchase.quote is None:
            return ""
        return purchase.pledge(digest, size, direction, utc_s)

    def give_up(self, site: str, contract: str, digest: bytes, direction: str) -> None:
        """Keep no more money for an object that does not move; see Purchase.give_up."""
        purchase = self.purchases.get(contract)
        if purchase is not None and purchase.site == site:
            purchase.give_up(digest, direction)

    # --- making contracts ----------------------------------------------------------------------

    @handles(deals.Quote)
    def _quoted(self, purchase: Purchase, quote: deals.Quote, mono_s: MonoS, utc_s: UtcS) -> None:
        self.enquiries.quoted(purchase, quote, mono_s, utc_s)

    @handles(deals.Decline)
    def _declined(self, purchase: Purchase, message: deals.Decline, _: MonoS, utc_s: UtcS) -> None:
        if purchase.phase is ContractPhase.LAPSED:
            return  # we have ended it ourselves
        code, reason = message.code, message.reason
        if code == Reason.NO_SLOTS and purchase.is_under_way and self.give_back_idle(purchase.site):
            # A limit on the slots that we may have there counted idle ones: it is asked again at
            # once, and nothing goes to a dearer pool meanwhile.
            self._give_up(purchase, utc_s)
            return
        why = f"declined ({shown(code)}: {shown(reason)})"
        if self.site_backoff.declined(purchase, code, why, utc_s):
            # No pool of its is known here, which `gridfed explain` could give as the reason.
            self._outcome.happened(events.JobNoted(purchase.job, f"{purchase.site} {why}"))
        if code == Reason.WINDOW_CLOSED:
            text = f"{purchase.place} ended the contract: {shown(reason)}"
            self._outcome.happened(events.JobNoted(purchase.job, text))
        if purchase.is_live:
            # Its seller does not know it, or has returned all its tasks.
            why = f"{purchase.site} ended the contract ({shown(code)}: {shown(reason)})"
            self._lapse(purchase, why, self._end_by(purchase, code))
            return
        self._give_up(purchase, utc_s)

    def _end_by(self, purchase: Purchase, code: str) -> ContractEnd:
        """How a contract ended that its seller declines with this code."""
        if purchase.is_void:
            return "ended"
        if code == _LAPSED:
            return "lapsed"
        if code != Reason.JOB_NOT_FOUND:
            return "ended"
        is_done = purchase.phase is ContractPhase.CLOSING and not self._out(purchase)
        return "settled" if is_done else "interrupted"

    @handles(deals.Held)
    def _commit(self, purchase: Purchase, _: deals.Held, mono_s: MonoS, utc_s: UtcS) -> None:
        quote = purchase.quote
        if purchase.phase is not ContractPhase.HELD or quote is None or purchase.until_s:
            raise ProtocolError("the hold was not requested")
        job = self._broker.jobs.get(purchase.job)
        is_wanted = job is not None and job.spec.hold is None
        is_funded = job is not None and is_wanted and self._fund(purchase, job)
        if not is_funded and job is not None and is_wanted:
            wanted_nanos = purchase.left_nanos
            payers = hard_payers(job.budget_accounts)
            short = [each for each in payers if each.room_nanos < wanted_nanos]
            if self.give_back_idle(short=short):
                is_funded = self._fund(purchase, job)  # idle contracts held the money
        if not is_funded:
            self._say(purchase, deals.CloseContract(purchase.contract))
            self._drop(purchase)
            return
        lease_s = purchase.lease_s = max(self._rules.lease_s, quote.lease_s)
        purchase.until_s = grantor_until_s(mono_s, lease_s)
        purchase.opened_at_s = utc_s
        purchase.rules = self._broker.charging.rules
        self._outcome.write(
            records.ContractOpened(
                purchase.contract,
                "buy",
                purchase.site,
                purchase.job,
                purchase.pool,
                quote.slots,
                lease_s=lease_s,
                opened_at_s=utc_s,
                max_cost_nanos=purchase.max_cost_nanos,
                **booked_terms(purchase.tariff),
            ),
            durable=True,
        )
        commit = deals.Commit(
            purchase.contract,
            purchase.pool,
            quote.price_nanos,
            quote.currency,
            lease_s,
            quote.tariff,
            quote.minimum_nanos,
            quote.step_ns,
            quote.receive_nanos,
            quote.send_nanos,
        )
        self._say(purchase, commit)

    def _fund(self, purchase: Purchase, job: Job, *, anyway: bool = False) -> bool:
        """Hold a contract's cost limit in its job's budgets; False when they lack room.

        Work that was sold to us is paid at our own price, which is held as its tasks are assigned.
        So is the price of tasks in slots reserved at the seller, unless it is held for the
        reservation already.
        """
        most = purchase.max_cost_nanos
        if most is None or room_of(job) is None:
            return True
        if self._broker.reserved.accounts_of(purchase.place, purchase.tariff):
            return True
        purchase.earmark = earmark(job.budget_accounts, purchase.left_nanos, anyway=anyway)
        return purchase.earmark is not None

    @handles(deals.Committed)
    def _committed(self, purchase: Purchase, _: deals.Committed, mono_s: MonoS, __: UtcS) -> None:
        if purchase.is_live:
            return  # its Committed was late, and we restored the contract from our books meanwhile
        if (
            purchase.phase is not ContractPhase.HELD
            or purchase.quote is None
            or not purchase.until_s
        ):
            raise ProtocolError("the commit was not requested")
        purchase.phase = move(purchase.phase, Move.COMMIT)
        self.site_backoff.note_useful(purchase.spec, purchase.site, purchase.pool)
        purchase.busy_at_s = mono_s
        # Its lease began when the seller opened it, which is later than we counted.
        purchase.until_s = grantor_until_s(mono_s, purchase.lease_s)
        job = self._broker.jobs.get(purchase.job)
        if job is None:
            return  # it ended meanwhile; the next tick closes the contract
        self._join(purchase, job.id, job.spec)

    def _join(self, purchase: Purchase, job: str, spec: JobSpec) -> None:
        """Add a contract to the broker as a worker."""
        purchase.handle = next(self._handles)
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
                {**spec.tags, **environments.tag_of(spec.wishes.environment)},
                spec.python,
                job,
                purchase.tariff,
                purchase.round_trip_s,
                purchase.earmark is not None,
                takes_inputs=purchase.spec is not None and purchase.spec.has_inputs,  # as was asked
                label=UNLABELLED if purchase.spec is None else purchase.spec.wishes.label,
                port=PortKind.PEER,
            )
        )

    @handles(deals.GivenBack)
    def _given_back(self, purchase: Purchase, message: deals.GivenBack, *_: object) -> None:
        purchase.asked_back_at_s = None
        if purchase.is_live:
            assignment = self.deliveries.assignment(purchase, message.epoch)
            if message.ranges and assignment is not None and not assignment.recalls:
                # Unrequested: the seller is ending the contract, and would return all other tasks
                # too.
                self._retire(purchase)
            # Report an empty answer too: the broker counts its recalls, and waits for each answer.
            back = tuple(
                each
                for each in check_ranges(message.ranges)
                if self.deliveries.take(purchase, message.epoch, *each)
            )
            self._outcome.happened(events.HandedBack(purchase.handle, message.epoch, back))

    @handles(deals.Deliver)
    def _delivered(
        self, purchase: Purchase, message: deals.Deliver, mono_s: MonoS, utc_s: UtcS
    ) -> None:
        refused = self.deliveries.delivered(purchase, message, mono_s, utc_s)
        if refused:
            if purchase.spec is not None:  # the same seller is not asked again at once
                where = purchase.spec, purchase.site, purchase.pool
                self.site_backoff.refuse(*where, utc_s, refused, is_of_terms=False)
            self._void(purchase, refused, mono_s)

    def refuse(
        self, seller: str, message: deals.Deliver, why: str, mono_s: MonoS, utc_s: UtcS
    ) -> None:
        """Refuse a delivery with a result that its seller does not give, if it would count.

        It is not paid, and no later one under its contract counts. Its tasks run again at once: by
        its seller's word they run no more. Others wait for the end of the lease.

        Raises:
            ProtocolError: it breaks the rules.
        """
        if not self.is_due(seller, message):
            return
        purchase = self.purchases[message.contract]
        if purchase.spec is not None:  # all pools of a site have one bulk port
            self.site_backoff.refuse(purchase.spec, seller, "", utc_s, why, is_of_terms=False)
        first, stop = message.first, message.first + len(message.values)
        self.deliveries.take(purchase, message.epoch, first, stop)
        back = events.HandedBack(purchase.handle, message.epoch, ((first, stop),))
        self._outcome.happened(back)
        self._void(purchase, why, mono_s, back=stop - first)

    def is_due(self, seller: str, message: deals.Deliver) -> bool:
        """Whether results that a delivery has left at its seller are worth fetching.

        Raises:
            ProtocolError: it breaks the rules.
        """
        purchase = self.purchases.get(message.contract)
        if purchase is None or purchase.site != seller:
            return False
        return self.deliveries.is_due(purchase, message)

    def fetching(self, seller: str, message: deals.Deliver, *, on: bool) -> None:
        """Note that results of a delivery are being fetched, or no more: its lease waits for it.

        Its cost is kept meanwhile: moves of objects must leave it.
        """
        purchase = self.purchases.get(message.contract)
        if purchase is not None and purchase.site == seller:
            sign, cost_nanos = (1 if on else -1), message.cost_nanos
            purchase.fetching = max(0, purchase.fetching + sign)
            purchase.fetching_nanos = max(0, purchase.fetching_nanos + sign * cost_nanos)

    @handles(deals.Bill)
    def _billed(self, purchase: Purchase, bill: deals.Bill, _: MonoS, utc_s: UtcS) -> None:
        self.deliveries.billed(purchase, bill, utc_s)

    # --- progress and end of contracts ---------------------------------------------------------

    @handles(deals.Holding)
    def _reconcile(self, purchase: Purchase, message: deals.Holding, *_: object) -> None:
        """Return to the broker all tasks that the seller lacks in its new session."""
        purchase.asked_back_at_s = None  # our request may be lost, and is repeated if needed
        if purchase.is_void:
            self._say(purchase, deals.Abandon(purchase.contract))  # the first may be lost
            return
        if purchase.phase is ContractPhase.CLOSING and not purchase.is_orphan:
            self._say(purchase, deals.CloseContract(purchase.contract))  # the first may be lost
        worker = self._broker.workers.get(purchase.handle)
        if worker is None or not purchase.is_live:
            return
        held = held_by_epoch(message.forwards)
        if purchase.is_recovered:
            self._take_up(purchase, held)
            return
        for epoch, assignment in list(worker.assignments.items()):
            if epoch > purchase.doubted:
                continue  # it was sent after the seller's message, and is in flight
            missing = RangeSet(assignment.left)
            for first, stop in held.get(epoch, ()):
                missing.remove(first, stop)
            if missing or assignment.recalls:
                back = events.HandedBack(purchase.handle, epoch, tuple(missing), of_all=True)
                self._outcome.happened(back)

    def _take_up(self, purchase: Purchase, held: dict[int, list[Range]]) -> None:
        """Resume a contract from before a restart: its seller's tasks are in flight again."""
        found = {epoch: check_ranges(sorted(map(list, held[epoch]))) for epoch in held}
        spans = (each[-1][1] - each[0][0] for each in found.values() if each)
        is_older = len(found) <= FORWARDS_MAX and all(map(self.deliveries.is_older, found))
        if not is_older or max(spans, default=0) > BUNDLE_TASKS_MAX:
            raise ProtocolError(
                "the seller holds tasks that were not forwarded, or not in one bundle"
            )
        purchase.is_recovered = False
        delivered, purchase.delivered = purchase.delivered, {}
        for epoch, ranges in found.items():
            # A delivered task is no longer in flight under its epoch, although its seller keeps it
            # until it is settled. Otherwise a failed task that waits for a retry could be charged
            # twice for its first run.
            left = RangeSet(ranges)
            for low, high in delivered.get(epoch, ()):
                left.remove(low, high)
            if left:
                self._outcome.happened(events.Resumed(purchase.handle, epoch, tuple(left)))
        self._outcome.happened(events.JobHeld(purchase.job, purchase.contract, on=False))

    def recover(
        self,
        row: ContractRow,
        postings: list[PostingRow],
        mono_s: MonoS,
        job: Job | None,
        proofs: Mapping[tuple[int, int], MoveProof] = NO_PROOFS,
    ) -> None:
        """Restore a contract from before a restart, under which tasks may be in flight.

        The job waits until its seller has reported these, or the lease has ended. `job` is None for
        attached tasks, which their client sends again: then all of them are stopped.
        """
        purchase = from_books(row, postings, mono_s, proofs)
        self._book.add(purchase)
        self._outcome.happened(events.JobHeld(row.job, row.contract, on=True))
        if job is None:
            purchase.phase = ContractPhase.CLOSING
            purchase.is_orphan, purchase.ended_as = True, "abandoned"
            self._say(purchase, deals.Abandon(row.contract))
            return
        purchase.is_recovered = True
        purchase.spec = job.spec
        self._fund(purchase, job, anyway=True)
        self._join(purchase, row.job, job.spec)
        self._say(purchase, deals.Resume(row.contract))

    @handles(deals.Renew)
    def _renew(self, seller: str, message: deals.Renew, mono_s: MonoS, _: UtcS) -> None:
        granted = []
        for contract in message.contracts:
            purchase = self.purchases.get(contract)
            if purchase is None or purchase.site != seller:
                continue
            if purchase.is_orphan or self._is_stale(purchase, mono_s):
                continue
            # A contract that is committed, but not known to be open, is renewed as well.
            if purchase.is_live or (purchase.phase is ContractPhase.HELD and purchase.until_s):
                purchase.until_s = grantor_until_s(mono_s, purchase.lease_s)
                granted.append(contract)
        self._outcome.say(seller, PeerSide.SELLER, deals.Granted(message.stamp, granted))

    def _is_stale(self, purchase: Purchase, mono_s: MonoS) -> bool:
        """Whether its lease should end by itself: it is closing, or its seller does not answer.

        A seller that renews but does not answer otherwise would keep a contract and its tasks
        forever. Tasks to be stopped may have to wait for a lease of the seller's own, if it bought
        them elsewhere.
        """
        if purchase.phase is ContractPhase.CLOSING or purchase.is_void:
            return True
        since_s = purchase.asked_back_at_s
        if since_s is not None and mono_s - since_s > purchase.lease_s:
            return True
        for span in list(purchase.stopping):
            epoch, first, stop = span
            out = self.deliveries.assignment(purchase, epoch)
            if out is None or not out.left.within(first, stop):
                del purchase.stopping[span]
        oldest_s = min(purchase.stopping.values(), default=mono_s)
        return mono_s - oldest_s > STOPPING_LEASES * purchase.lease_s

    def _retire(self, purchase: Purchase) -> None:
        """Stop the broker from sending tasks under the contract, if it has joined."""
        if purchase.handle:
            event = events.DrainAsked(purchase.handle, on=True, by=events.Drainer.ITSELF)
            self._outcome.happened(event)

    @handles(deals.Closed)
    def _closed(self, purchase: Purchase, _: deals.Closed, __: MonoS, utc_s: UtcS) -> None:
        if purchase.is_under_way and not purchase.until_s:
            raise ProtocolError("the contract was closed before the commit")
        # Its seller sends no more bills: deliveries that it lost in a power cut are not held
        # forever.
        for key in list(purchase.tab.pending):
            self.deliveries.settle(purchase, key, Verdict.VOID, utc_s)
        if purchase.is_live and self._out(purchase):
            self._lapse(purchase, f"{purchase.site} closed the contract", "ended")
            return
        state = purchase.ended_as
        self._outcome.write(records.ContractEnded(purchase.contract, "buy", state, utc_s))
        if purchase.is_live:
            self._outcome.happened(events.WorkerGone(purchase.handle, "the contract ended"))
        self._drop(purchase)

    # --- orders of the broker ------------------------------------------------------------------

    def ordered(self, handle: int, message: Any, mono_s: MonoS) -> None:
        """Carry out an order of the broker to one of its workers that is a contract."""
        purchase = self._by_handle.get(handle)  # which has those that are live
        if purchase is None:
            return
        contract = purchase.contract
        match message:
            case Assign():
                purchase.busy_at_s = mono_s
                forward = deals.Forward(
                    contract,
                    message.assignment,
                    message.first,
                    message.arguments,
                    bool(message.objects),
                )
                self._say(purchase, forward)
            case Recall():
                if purchase.asked_back_at_s is None:
                    purchase.asked_back_at_s = mono_s
                if message.kill:
                    span = message.assignment, message.first, message.stop
                    purchase.stopping.setdefault(span, mono_s)
                reclaim = deals.Reclaim(
                    contract, message.assignment, message.first, message.stop, message.kill
                )
                self._say(purchase, reclaim)
            case Drain():
                return
            case _:
                raise AssertionError(f"{message.kind!r} can't be sent to a contract")

    # --- periodic work -------------------------------------------------------------------------

    def tick(self, mono_s: MonoS, utc_s: UtcS) -> None:
        """Give up late quotes and commits, lapse leases, and close contracts without work."""
        self.site_backoff.tidy(utc_s, self._broker.jobs)
        self.enquiries.tick(mono_s, utc_s)
        for purchase in list(self.purchases.values()):
            waited_s = mono_s - purchase.asked_at_s
            if purchase.is_live and mono_s >= purchase.until_s:
                if purchase.fetching and not purchase.is_void:
                    continue  # its tasks have run: they would run twice
                # Bills for tasks that seemed in flight were deferred until then: this requests them
                # again.
                self._say(purchase, deals.Abandon(purchase.contract))
                if purchase.is_void:
                    self._lapse(purchase, "its results were not wanted any more", "ended")
                    continue
                why = f"{purchase.site} sent nothing for the length of the lease"
                self._lapse(purchase, why, "lapsed")
                self.site_backoff.spare(
                    purchase.site, utc_s, "sent nothing for the length of a lease"
                )
            elif purchase.phase is ContractPhase.OPEN and self._is_done(purchase, mono_s):
                self._close(purchase)
            elif purchase.phase is ContractPhase.LAPSED:
                if mono_s >= purchase.until_s + purchase.lease_s:
                    state = purchase.ended_as
                    self._outcome.write(
                        records.ContractEnded(purchase.contract, "buy", state, utc_s)
                    )
                    self._drop(purchase)
            elif purchase.is_under_way and waited_s > 2 * self._rules.hold_s:
                self.site_backoff.spare_silent(purchase.site, utc_s, "did not answer in time")
                if purchase.until_s:  # it may be open at the seller by now
                    self._say(purchase, deals.CloseContract(purchase.contract))
                self._give_up(purchase, utc_s)

    def give_back_idle(
        self, site: str = "", short: Collection[BudgetAccount] | None = None
    ) -> bool:
        """Close the contracts of jobs that have nothing to run.

        Their slots, or the money that is held for them, are wanted for other work. Returns whether
        there were any.

        Args:
            site: those with this site; empty: with all.
            short: those for which one of these budgets holds money; None: all.
        """
        idle = [each for each in self.purchases.values() if self._is_idle(each)]
        idle = [each for each in idle if site in ("", each.site)]
        if short is not None:
            idle = [each for each in idle if each.earmark and each.earmark.is_in(short)]
        for each in idle:
            self._close(each)
            self._release(each)  # nothing more is sent under it
        return bool(idle)

    def _is_idle(self, purchase: Purchase) -> bool:
        if purchase.phase is not ContractPhase.OPEN or purchase.is_recovered or purchase.is_void:
            return False
        job = self._broker.jobs.get(purchase.job)
        return not self._out(purchase) and (job is None or not job.waiting)

    def _close(self, purchase: Purchase) -> None:
        """End an open contract of which nothing is out."""
        purchase.phase = move(ContractPhase.OPEN, Move.CLOSE)
        self._retire(purchase)
        self._say(purchase, deals.CloseContract(purchase.contract))

    def _give_up(self, purchase: Purchase, utc_s: UtcS) -> None:
        """Drop a contract that was never opened; end it in the books if it is there."""
        if purchase.until_s:
            self._outcome.write(records.ContractEnded(purchase.contract, "buy", "settled", utc_s))
        self._drop(purchase)

    def reached(self, site: str) -> None:
        """Repeat in a new session with a seller the proofs that may have been lost with the last.

        Its back-off for silence ends, too.
        """
        self.site_backoff.reached(site)
        for purchase in self.purchases.values():
            if purchase.site == site:
                self.deliveries.prove(purchase)

    def unreachable(self, site: str, utc_s: UtcS, reason: str) -> None:
        """Drop the uncommitted contracts of an unreachable site; others wait for their lease."""
        self.site_backoff.unreachable(site, utc_s, shown(reason))
        for purchase in list(self.purchases.values()):
            if purchase.site != site:
                continue
            if purchase.is_under_way and not purchase.until_s:
                self._drop(purchase)
            worker = self._broker.workers.get(purchase.handle)
            if worker is not None and worker.assignments:
                purchase.doubted = max(worker.assignments)

    def approval_ended(self, site: str, reason: str, mono_s: MonoS, utc_s: UtcS) -> None:
        """End all contracts with a seller that is approved no more.

        Its deliveries so far stay owed; no later one counts. Its tasks may run until
        their lease ends, which is not renewed, or until the seller says that they have stopped:
        then they return to the queue, and none has run at two places at once.
        """
        for purchase in [each for each in self.purchases.values() if each.site == site]:
            if purchase.is_under_way:
                if purchase.until_s:  # it may be open at the seller by now
                    self._say(purchase, deals.CloseContract(purchase.contract))
                self._give_up(purchase, utc_s)
            elif purchase.is_live:
                self._void(purchase, reason, mono_s)

    def _void(self, purchase: Purchase, reason: str, mono_s: MonoS, back: int = 0) -> None:
        """End an open contract, of which nothing more counts; `back` tasks have just returned."""
        purchase.is_void = True
        self._retire(purchase)
        self._say(purchase, deals.Abandon(purchase.contract))
        out = self._out(purchase) - back
        if not out and not purchase.is_recovered:
            self._lapse(purchase, reason, "ended")
            return
        within = duration_text(max(0.0, purchase.until_s - mono_s))
        text = f"{reason}: {count(out, 'task')} at {purchase.place} will run elsewhere"
        text += f" within {within}, when the lease has ended"
        self._outcome.happened(events.JobNoted(purchase.job, text))

    def _is_done(self, purchase: Purchase, mono_s: MonoS) -> bool:
        if self._out(purchase) or purchase.is_recovered:
            purchase.busy_at_s = mono_s
            return False
        is_over = purchase.job not in self._broker.jobs
        return is_over or mono_s - purchase.busy_at_s > self._rules.idle_s

    def _out(self, purchase: Purchase) -> int:
        worker = self._broker.workers.get(purchase.handle)
        return worker.in_flight if worker else 0

    def _lapse(self, purchase: Purchase, reason: str, ended_as: ContractEnd) -> None:
        purchase.phase = move(purchase.phase or ContractPhase.OPEN, Move.LAPSE)
        if not purchase.is_orphan:
            purchase.ended_as = ended_as
        self._release(purchase)
        self._by_handle.pop(purchase.handle, None)
        self._outcome.happened(events.WorkerGone(purchase.handle, reason))
        if purchase.is_recovered or purchase.is_orphan:
            purchase.is_recovered = purchase.is_orphan = False
            self._outcome.happened(events.JobHeld(purchase.job, purchase.contract, on=False))

    def _release(self, purchase: Purchase) -> None:
        """Release the budgets of a contract, whose deliveries do not count any more."""
        if purchase.earmark is not None:
            self.deliveries.ended(purchase.earmark)

    def _drop(self, purchase: Purchase) -> None:
        self._release(purchase)
        if purchase.until_s:  # it had slots there, which another contract may have now
            self.site_backoff.freed(purchase.site, purchase.pool)
        if purchase.is_recovered or purchase.is_orphan:
            self._outcome.happened(events.JobHeld(purchase.job, purchase.contract, on=False))
        self._book.remove(purchase)
        self._by_handle.pop(purchase.handle, None)
