"""Handles the results under contracts that we buy, and the amounts owed for them. Pure.

A delivery counts once, for tasks that are in flight under its epoch, and is booked on arrival. A
billed delivery is owed if it was counted. `gateway.contracts.model.purchase` checks the contents of
messages.
"""

from collections.abc import Iterable, Set
from dataclasses import replace

from federation.clocks import MonoS, UtcS
from federation.messages import deals
from federation.messages.contracts import Verdict
from federation.messages.printed import joined
from federation.ranges import RangeSet
from gateway.contracts.buying.site_backoff import SiteBackoff
from gateway.contracts.model.dealing import Consequences, Permits
from gateway.contracts.model.moved import (
    MovedObject,
    MoveProof,
    delivery_of,
    direction_of,
    receipts_of,
    usage_of,
)
from gateway.contracts.model.purchase import (
    VERDICTS_KEPT,
    Purchase,
    check_delivery,
    check_moment,
    check_move,
    check_time,
    check_way,
    footprint_of,
    is_owed,
    why_unpaid,
    without_values,
)
from gateway.ledger.db import records
from gateway.scheduler.broker import Broker
from gateway.scheduler.dispatch.dispatcher import EPOCH_BITS
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import AnswerBill, PeerSide
from gateway.scheduler.model.jobs import Assignment
from gateway.scheduler.tasks.completion import doubted
from policies.costs.budgets import Earmark


class Deliveries:
    """Counts and books the deliveries of sellers.

    Args:
        site: our name.
        boot: the number of this run of the site; assignments of earlier runs have smaller epochs.
        broker: knows the tasks in flight, and is told through `outcome`.
        permits: the sites whose results are accepted.
        site_backoff: the back-off from pools that stop work of ours.
        outcome: takes the resulting events and effects.
    """

    def __init__(
        self,
        site: str,
        boot: int,
        broker: Broker,
        permits: Permits,
        site_backoff: SiteBackoff,
        outcome: Consequences,
    ) -> None:
        self._site = site
        self._boot = boot
        self._broker = broker
        self._permits = permits
        self._site_backoff = site_backoff
        self._outcome = outcome
        self.settled_ms: dict[str, int] = {}  # by seller: nothing is booked before this time
        # Ranges returned or delivered, by contract and epoch, that the broker has not processed
        # yet.
        self._taken: dict[tuple[str, int], RangeSet] = {}
        # Amounts used of earmarks that the broker has not counted as spent yet.
        self._used: list[tuple[Earmark, int]] = []
        self._over: list[Earmark] = []  # earmarks of contracts that are over

    def delivered(
        self, purchase: Purchase, message: deals.Deliver, mono_s: MonoS, utc_s: UtcS
    ) -> str:
        """Take the results of a seller, or return why users here may not have them.

        Refused results are not paid: the delivery does not count, and is void once it is billed.

        Raises:
            ProtocolError: the delivery breaks the rules.
        """
        first, stop = message.first, message.first + len(message.values)
        delivery = message.delivery  # `is_due` asks the same
        if not purchase.is_live or purchase.is_void or purchase.tab.has(delivery):
            return ""  # too late, and void once billed, or repeated in a new session
        may_be_known = purchase.tab.has_forgotten and first < stop
        if may_be_known and not self._is_out(purchase, message.epoch, first, stop):
            return ""  # the same, and its verdict was forgotten
        check_delivery(purchase, message)
        footprint = footprint_of(message, purchase.site)
        check_moment(purchase, message, utc_s, self.settled_ms.get(purchase.site, 0))
        self._check_time(purchase, message, utc_s)
        if why := why_unpaid(purchase, message):
            return why
        strangers = self._strangers(purchase, message)
        if strangers and len(message.failures) < len(message.values):
            names = ", ".join(sorted(strangers))
            return f"results came through {names}, and {self._site} accepts none from there"
        if strangers:  # each task has failed: text is harmless, and the work was done
            message = without_values(message)
        if not self.take(purchase, message.epoch, first, stop):
            return ""  # too late, or a duplicate: void once it is billed
        purchase.tab.deliver(delivery)
        purchase.busy_at_s = mono_s
        if purchase.spec and any(kind == "preempted" for _, kind, *_ in message.failures):
            # A pool that stops all of our tasks, free of charge, must not stay the cheapest for
            # ever.
            why = "stopped tasks of this site to make room"
            where = purchase.spec, purchase.site, purchase.pool
            self._site_backoff.refuse(*where, utc_s, why, is_of_terms=False)
        if message.left:
            self._site_backoff.note_fetched(purchase.spec, purchase.site)
        purchase.spent_nanos += message.cost_nanos
        failures = message.failures
        if failures and not self._may_be_spent(purchase, message, utc_s):
            failures = doubted(failures, purchase.site)
        if purchase.earmark is not None:
            self._used.append((purchase.earmark, message.cost_nanos))
        self._outcome.write(
            records.posted(purchase.contract, "buy", purchase.site, delivery, purchase.currency)
        )
        self._outcome.happened(
            events.Reported(
                purchase.handle,
                message.epoch,
                first,
                message.values,
                failures,
                joined(message.prints, message.streams),
                message.wall_ns,
                message.cpu_ns,
                message.peak_memory_bytes,
                message.cost_nanos,
                (purchase.site, *message.sites),
                footprint,
                left=message.left,
            )
        )
        return ""

    def moved(self, purchase: Purchase, fact: MovedObject, proof: MoveProof, utc_s: UtcS) -> bool:
        """Book an object that has moved under a contract, by its receipt.

        Return False where this costs nothing: then it is no delivery. What was booked before, and
        comes again, changes nothing; of a contract of which nothing more counts, or whose cost
        limit pays for no more, nothing is booked, and it is void once billed.

        Raises:
            ProtocolError: it is dated before its contract, or in a period whose books are closed.
        """
        delivery = delivery_of(fact, purchase.tariff, purchase.site)
        if delivery is None:
            purchase.give_up(fact.digest, direction_of(fact, purchase.site))
        if delivery is None or delivery.first in purchase.moves or purchase.is_void:
            return delivery is not None
        check_move(purchase, fact, utc_s, self.settled_ms.get(purchase.site, 0))
        if not purchase.has_money_for(purchase.fetching_nanos + delivery.cost_nanos):
            # Tasks used up its money meanwhile, or another life of this site had pledged it. The
            # pledge stays: its seller counts the move as spent.
            return True
        key = delivery.epoch, delivery.first
        purchase.moves.add(delivery.first)
        purchase.pledges.pop(delivery.first, None)
        purchase.moves_nanos += delivery.cost_nanos
        purchase.tab.deliver(delivery)
        if purchase.earmark is not None:
            self._used.append((purchase.earmark, delivery.cost_nanos))
        place = purchase.job, purchase.place
        used = usage_of(fact, delivery, purchase.tariff, purchase.site, *place)
        self._outcome.happened(events.MoveCharged(purchase.job, used))
        self._outcome.write(
            records.MoveProved(purchase.contract, "buy", *key, proof.ticket, proof.receipt)
        )
        self._outcome.write(
            records.posted(purchase.contract, "buy", purchase.site, delivery, purchase.currency)
        )
        if fact.to == self._site:  # its seller has the proof from us
            purchase.proofs[key] = proof
            self._outcome.harden()  # or a power cut would take from us what we have signed for
            self._prove(purchase, [proof])
        return True

    def prove(self, purchase: Purchase) -> None:
        """Send the proofs of moves to here that have no verdict yet: they may have been lost."""
        self._prove(purchase, purchase.proofs.values())

    def _prove(self, purchase: Purchase, proofs: Iterable[MoveProof]) -> None:
        for receipts in receipts_of(proofs):
            self._outcome.say(purchase.site, PeerSide.SELLER, receipts)

    def is_due(self, purchase: Purchase, message: deals.Deliver) -> bool:
        """Whether a delivery would count: its tasks are in flight, it is new, and it is paid for.

        Raises:
            ProtocolError: it costs too much, or is inconsistent.
        """
        if not purchase.is_live or purchase.is_void or purchase.tab.has(message.delivery):
            return False
        stop = message.first + len(message.values)
        if not self._is_out(purchase, message.epoch, message.first, stop):
            return False
        check_delivery(purchase, message)
        return not why_unpaid(purchase, message)

    def _may_be_spent(self, purchase: Purchase, message: deals.Deliver, utc_s: UtcS) -> bool:
        """Whether a seller may have stopped a delivery's tasks for the cost limit of its contract.

        Moves of objects count, as at the seller, which may have receipts that have not come yet:
        so do pledges. The running tasks count, as far as the elapsed time allows: a seller stops
        all of them, and delivers one after the other. A site that passed the work on may have set a
        lower limit for its part. A task that did not run costs nothing, whatever the reason.
        """
        most = purchase.max_cost_nanos
        if not message.wall_ns and not message.cost_nanos:
            return True
        if most is None or purchase.quote is None:
            return False
        if message.sites:
            return True
        worker = self._broker.workers.get(purchase.handle)
        given_s = [each.given_at_s for each in worker.assignments.values()] if worker else []
        since_s = (
            purchase.opened_at_s if self.is_older(message.epoch) else min(given_s, default=utc_s)
        )
        slots = purchase.quote.slots
        ran_ns = round(slots * max(0.0, utc_s - since_s) * 1e9)
        moves_nanos = purchase.moves_nanos + purchase.pledged_nanos
        ran_nanos = purchase.tariff.charge_nanos(slots, ran_ns)
        return purchase.spent_nanos + moves_nanos + ran_nanos >= most

    def _check_time(self, purchase: Purchase, message: deals.Deliver, utc_s: UtcS) -> None:
        """Check that a task ran for no longer than since it was forwarded."""
        assignment = self.assignment(purchase, message.epoch)
        if assignment is None:
            return
        is_older = self.is_older(message.epoch)
        since_s = purchase.opened_at_s if is_older else assignment.given_at_s
        check_time(purchase, message, max(0.0, utc_s - since_s))

    def _strangers(self, purchase: Purchase, message: deals.Deliver) -> Set[str]:
        """Return the sites on the way of results from which users here open no pickles.

        No work is sent where this is known before, but trust can be withdrawn, and a seller may
        have forwarded the work to a site that is not allowed. For relayed work the origin decides.
        """
        check_way(message, self._site)
        job = self._broker.jobs.get(purchase.job)
        strangers = {purchase.site, *message.sites} - self._permits.readable()
        return frozenset() if job is not None and job.spec.path else strangers

    def assignment(self, purchase: Purchase, epoch: int) -> Assignment | None:
        """The broker's assignment with this number under a contract."""
        worker = self._broker.workers.get(purchase.handle)
        return worker.assignments.get(epoch) if worker else None

    def is_older(self, epoch: int) -> bool:
        """Whether the epoch belongs to an earlier run of this site."""
        return 0 < epoch < self._boot << EPOCH_BITS

    def take(self, purchase: Purchase, epoch: int, first: int, stop: int) -> bool:
        """Count tasks as returned; False when they are not in flight, or have just returned."""
        if not self._is_out(purchase, epoch, first, stop):
            return False
        self._taken.setdefault((purchase.contract, epoch), RangeSet()).add(first, stop)
        return True

    def _is_out(self, purchase: Purchase, epoch: int, first: int, stop: int) -> bool:
        """Whether tasks are in flight under an epoch, and have not just returned."""
        assignment = self.assignment(purchase, epoch)
        if assignment is None or assignment.left.within(first, stop) != [(first, stop)]:
            return False
        taken = self._taken.get((purchase.contract, epoch))
        return taken is None or not taken.within(first, stop)

    def acted(self) -> None:
        """Note that the broker has processed everything that came back."""
        self._taken.clear()
        for earmark, nanos in self._used:
            earmark.use(nanos)
        for earmark in self._over:
            earmark.end()
        self._used.clear()
        self._over.clear()

    def ended(self, earmark: Earmark) -> None:
        """End an earmark for which nothing more is delivered.

        Release it only after the broker has counted its spending: until then other work must not
        use it.
        """
        if self._used:
            self._over.append(earmark)
        else:
            earmark.end()

    def billed(self, purchase: Purchase, bill: deals.Bill, utc_s: UtcS) -> None:
        """Give and book a verdict on each billed delivery: owed, or void.

        Those that were settled long ago are looked up in the books, which answer for themselves.
        """
        if purchase.is_recovered:
            # The deliveries that a power cut took from our books are sent and billed again: do not
            # void them before that.
            return
        verdicts: list[list[int]] = []
        forgotten: list[list[int]] = []
        tab = purchase.tab
        for row in bill.deliveries:
            is_posted = is_owed(tab, row)
            epoch, first = row[:2]
            out = self.assignment(purchase, epoch)
            if not is_posted and out is not None and first in out.left:
                continue  # it may still be in flight, and is billed again later
            if is_posted is None:
                forgotten.append(row)
                continue
            if (epoch, first) in tab.pending:
                self.settle(purchase, (epoch, first), Verdict.POST, utc_s)
            verdicts.append([epoch, first, int(is_posted)])
        tab.forget(VERDICTS_KEPT)
        if forgotten:
            asked = replace(bill, deliveries=forgotten)
            self._outcome.effects.append(AnswerBill(purchase.site, asked, utc_s))
            if not verdicts:
                return
        settle = deals.Settle(purchase.contract, verdicts)
        self._outcome.say(purchase.site, PeerSide.SELLER, settle)

    def settle(
        self, purchase: Purchase, key: tuple[int, int], verdict: Verdict, utc_s: UtcS
    ) -> None:
        """Book the verdict on a delivery, by its epoch and first task."""
        delivery = purchase.tab.pending[key]
        purchase.tab.settle(*key, verdict)
        purchase.proofs.pop(key, None)
        self._outcome.write(
            records.settled(
                purchase.contract,
                "buy",
                purchase.site,
                delivery,
                verdict,
                purchase.currency,
                utc_s,
            ),
            durable=True,
        )
