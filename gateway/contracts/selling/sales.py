"""The life of contracts under which this site runs other sites' tasks. Pure.

gateway.contracts.selling.offering decides what to offer, gateway.contracts.model.sale has the state
of one contract, and gateway.contracts.selling.renewals and gateway.contracts.selling.stopping
decide whether it may go on. This module applies events to
contracts: their buyers' messages, the broker's messages, and the passing of time.

To the broker a contract is a client with one job. Its tasks are numbered anew, in order of arrival,
so that a task that returns under a later epoch is a different task. The broker's messages to that
client become deliveries, counted on a tab until the buyer has settled them.

    AskQuote → quote, or the reason why not       Forward → TasksArrived
    Hold     → slots set aside for a moment       Results → Deliver, billed soon, kept till settled
    Commit   → ClientJoined, JobOpened            the lease runs out → ClientGone: all is stopped
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from federation.clocks import MonoS, UtcS
from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase, Lease, Move, Verdict, move
from federation.messages.messages import Answer, Dropped, NeedFunction, RejectJob, Results
from federation.messages.registry import FromEither, FromSeller, GatewayMessage, Receiver
from federation.objects.left import left_in
from federation.objects.references import objects_of
from federation.ranges import Range
from federation.reasons import Reason
from federation.words import duration_text
from gateway.base.handlers import MessageHandler, handles
from gateway.config.contracts import DealRules
from gateway.contracts.model.dealing import CONTRACT_CHARS_MAX, LEASE_MAX_S, Consequences
from gateway.contracts.model.moved import (
    NO_PROOFS,
    MovedObject,
    MoveProof,
    delivery_of,
    receipts_of,
    usage_of,
)
from gateway.contracts.model.quotations import allowed_nanos, booked_terms
from gateway.contracts.model.sale import Sale, former_sale
from gateway.contracts.selling.idle_holds import IdleHolds
from gateway.contracts.selling.lapses import Lapses
from gateway.contracts.selling.names import Names
from gateway.contracts.selling.offering import Offered, Offering
from gateway.contracts.selling.renewals import Renewals
from gateway.contracts.selling.stopping import Stopping
from gateway.contracts.selling.unsettled import UnsettledResults
from gateway.ledger.db import records
from gateway.ledger.db.contracts.records import ContractEnd, ContractRow, PostingRow
from gateway.scheduler.broker import Broker
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import NO_CHARGE, Charge, PeerSide, PullObjects, TakeObjects
from gateway.scheduler.model.intake import EPOCH_MAX, TASKS_IN_JOB_MAX
from gateway.scheduler.model.ports import PortKind

BILL_ROWS_MAX: Final = 10_000
FETCH_S: Final = 3_600.0  # that an ending contract waits for its buyer to fetch the last results
QUOTES_MAX: Final = 1_000  # of one buyer that have not been taken up
LAPSED: Final = "lapsed"
OBJECTS: Final = "objects"  # why tasks wait: what they refer to is on its way
# Phases of contracts that are in the books.
_BOOKED: Final = (ContractPhase.OPEN, ContractPhase.CLOSING, ContractPhase.LAPSED)
# The answer to a buyer that comes back, for a contract with nothing left to run.
_WHY_OVER: Final[dict[ContractEnd, str]] = {
    "lapsed": "the lease has expired",
    "ended": "the seller has ended it",
    "abandoned": "its buyer has given it up",
    "interrupted": "the seller's gateway was restarted",
}


class Sales(MessageHandler[[MonoS, UtcS], None], receiver=Receiver.SALES):
    """The contracts that this site sells.

    Args:
        site: the name of this site.
        broker: read, and told through `outcome`.
        rules: the settings.
        offering: answers requests for quotes; it reads `sales`.
        sales: the contracts of this site, by buyer and name.
        outcome: takes the resulting effects.
        has_function: whether this site has the function of this digest.
    """

    def __init__(
        self,
        site: str,
        broker: Broker,
        rules: DealRules,
        offering: Offering,
        sales: dict[tuple[str, str], Sale],
        outcome: Consequences,
        handles: Iterator[int],
        has_function: Callable[[bytes], bool] = lambda _: True,
    ) -> None:
        self._site = site
        self._broker = broker
        self._rules = rules
        self._offering = offering
        self.sales = sales
        self._outcome = outcome
        self._has_function = has_function
        self.settled_ms: dict[str, int] = {}  # by buyer: nothing is booked before
        self._by_handle: dict[int, Sale] = {}
        self._handles = handles
        self._requests = 0
        self.renewals = Renewals(outcome)
        self._stopping = Stopping(site, broker, rules)
        self._billed_at_s = self._mono_s = MonoS(0.0)
        self._unsettled = UnsettledResults(rules.unsettled_bytes_max)
        self._idle_holds = IdleHolds(rules)
        self._lapses = Lapses(rules)
        self.names = Names(sales)

    # --- messages of buyers --------------------------------------------------------------------

    def hear(self, buyer: str, message: GatewayMessage, mono_s: MonoS, utc_s: UtcS) -> None:
        """Take a message of a buyer; ProtocolError when it breaks the rules."""
        self._mono_s = mono_s
        super().hear(buyer, message, mono_s, utc_s)

    def _say(self, sale: Sale, message: FromSeller | FromEither) -> None:
        self._outcome.say(sale.buyer, PeerSide.BUYER, message)

    def _decline(self, buyer: str, contract: str, code: str, reason: str) -> None:
        self._outcome.say(buyer, PeerSide.BUYER, deals.Decline(contract, code, reason))

    @handles(deals.AskQuote)
    def _ask_quote(self, buyer: str, ask: deals.AskQuote, mono_s: MonoS, utc_s: UtcS) -> None:
        if not 0 < len(ask.contract) <= CONTRACT_CHARS_MAX or not ask.contract.isprintable():
            raise ProtocolError("the contract has no name")
        self.names.begin(buyer, ask.contract)
        if self.names.is_reserved(buyer, ask.contract):
            reason = (
                f"the contract name {ask.contract} is used by a reservation of {buyer}, or by a "
                "later contract"
            )
            self._decline(buyer, ask.contract, Reason.BAD_REQUEST, reason)
            return
        refusal = self._idle_holds.refusal(buyer, mono_s)
        if refusal is not None:
            reason = f"{buyer} holds slots without a commit: in back-off"
            self._decline(buyer, ask.contract, refusal, reason)
            return
        if self._lapses.refuses(buyer, mono_s):
            reason = f"{buyer} let contracts lapse while its tasks ran: in back-off"
            self._decline(buyer, ask.contract, Reason.BUSY, reason)
            return
        if sum(each.buyer == buyer for each in self.sales.values()) >= self._rules.contracts_max:
            self._decline(
                buyer, ask.contract, Reason.BUSY, "the limit of open contracts is reached"
            )
            return
        answer = self._offering.answer(buyer, ask, utc_s)
        if isinstance(answer, deals.Decline):
            self._outcome.say(buyer, PeerSide.BUYER, answer)
        else:
            self._quote(buyer, answer, mono_s)

    def _quote(self, buyer: str, offered: Offered, mono_s: MonoS) -> None:
        quoted = [
            each
            for each in self.sales.values()
            if each.buyer == buyer and each.phase is ContractPhase.QUOTED
        ]
        if len(quoted) >= QUOTES_MAX:
            raise ProtocolError(f"more than {QUOTES_MAX:,} quotes are unanswered")
        quote = offered.quote
        self.sales[buyer, quote.contract] = sale = Sale(
            contract=quote.contract,
            buyer=buyer,
            spec=offered.spec,
            pool=quote.pool,
            price=offered.price,
            slots=quote.slots,
            phase=ContractPhase.QUOTED,
            until_s=mono_s + self._rules.valid_s,
        )
        self._say(sale, quote)

    def _find(self, buyer: str, contract: str) -> Sale | None:
        """Return a contract of this buyer; if it is gone, tell the buyer."""
        sale = self.sales.get((buyer, contract))
        if sale is None:
            reason = "the contract does not exist, or has ended"
            self._decline(buyer, contract[:CONTRACT_CHARS_MAX], Reason.JOB_NOT_FOUND, reason)
        return sale

    @handles(deals.Hold)
    def _hold(self, buyer: str, message: deals.Hold, mono_s: MonoS, utc_s: UtcS) -> None:
        sale = self._find(buyer, message.contract)
        if sale is None:
            return
        if sale.phase is not ContractPhase.QUOTED:
            raise ProtocolError(f"contract {sale.contract} is {sale.phase}: the hold is too late")
        if not self._offering.can_hold(sale, utc_s):
            self._drop(sale)
            reason = (
                f"the slots were sold in the meantime: {self._site} does not have that many "
                "slots left"
            )
            self._decline(buyer, sale.contract, Reason.NO_SLOTS, reason)
            return
        sale.phase = move(sale.phase, Move.HOLD)
        sale.until_s, sale.held_at_s = mono_s + self._rules.hold_s, mono_s
        self._say(sale, deals.Held(sale.contract, self._rules.hold_s))

    @handles(deals.Commit)
    def _commit(self, buyer: str, message: deals.Commit, mono_s: MonoS, utc_s: UtcS) -> None:
        sale = self._find(buyer, message.contract)
        if sale is None:
            return
        if not sale.agrees(message):
            raise ProtocolError(
                f"contract {sale.contract}: the terms of the commit differ from the quote"
            )
        if sale.phase is not ContractPhase.HELD:
            raise ProtocolError(f"contract {sale.contract} is {sale.phase}: it can't be committed")
        least_s = self._rules.lease_min_s
        if not least_s <= message.lease_s <= LEASE_MAX_S:
            self._idle_holds.ran_out(buyer, mono_s)
            self._drop(sale)
            reason = (
                f"the lease is {duration_text(message.lease_s)}, but must be at least "
                f"{duration_text(least_s)}"
            )
            self._decline(buyer, sale.contract, Reason.BAD_REQUEST, reason)
            return
        sale.phase = move(sale.phase, Move.COMMIT)
        sale.idle_s = mono_s - sale.held_at_s
        sale.lease = Lease(message.lease_s, mono_s + message.lease_s)
        sale.is_awaited, sale.until_s = True, mono_s + self._rules.hold_s
        sale.handle, sale.job = next(self._handles), f"{buyer}:{sale.contract}"
        self._by_handle[sale.handle] = sale
        spec = sale.spec
        assert spec is not None
        if not sale.price.rules:  # a price of other sites, passed on
            sale.price = replace(sale.price, rules=self._broker.charging.rules)
        self._outcome.happened(
            events.ClientJoined(sale.handle, spec.user, buyer, port=PortKind.PEER)
        )
        if self._unsettled.is_full(buyer):
            self._outcome.happened(events.ClientReading(sale.handle, ready=False))
        has_function = self._has_function(spec.function)
        self._outcome.happened(events.JobOpened(sale.handle, sale.job, spec, has_function))
        self._outcome.write(
            records.ContractOpened(
                sale.contract,
                "sell",
                buyer,
                sale.job,
                sale.pool,
                sale.slots,
                lease_s=message.lease_s,
                opened_at_s=utc_s,
                max_cost_nanos=sale.max_cost_nanos,
                **booked_terms(sale.price),
            ),
            durable=True,
        )
        self._say(sale, deals.Committed(sale.contract))

    @handles(deals.Forward)
    def _forward(self, buyer: str, message: deals.Forward, *_: object) -> None:
        sale = self._find(buyer, message.contract)
        count = len(message.arguments)
        if sale is None or not sale.is_live:
            return  # it lapsed meanwhile; the buyer waits for the lease to end, or knows
        if message.first + count > TASKS_IN_JOB_MAX or message.epoch > EPOCH_MAX:
            raise ProtocolError("a task number or an epoch is too large")
        if not count or not sale.out.send(message.epoch, message.first, message.first + count):
            return
        if over := self._stopping.why_too_much(sale, message):
            self._end_early(sale, *over)
        if sale.ending is not None:
            sale.out.take(message.epoch, message.first, message.first + count)
            back = [[message.first, message.first + count]]
            self._say(sale, deals.GivenBack(sale.contract, message.epoch, back))
            self._end_if_quiet(sale)
            return
        sale.is_awaited = False
        self._idle_holds.bought(buyer)
        bundle = sale.add(message.epoch, message.first, count)
        objects = tuple(objects_of(message.arguments)) if message.objects else ()
        self._pull(sale, objects)
        arguments = list(message.arguments)
        self._outcome.happened(
            events.TasksArrived(sale.handle, sale.job, bundle.base, arguments, objects)
        )
        # The buyer sends it ahead, unless it believes that it came here with another contract.
        if sale.spec is not None and not self._has_function(sale.spec.function):
            self.need_function(sale.handle, sale.spec.function)

    def _pull(self, sale: Sale, objects: tuple[bytes, ...]) -> None:
        """Have the objects fetched that calls of a contract refer to; its tasks wait for them."""
        missing = tuple(each for each in objects if each not in sale.objects)
        spec = sale.spec
        if not missing or spec is None:
            return
        sale.objects.update(missing)
        sale.coming += 1
        self._outcome.happened(events.JobHeld(sale.job, OBJECTS, on=True))
        self._outcome.effects.append(
            PullObjects(sale.buyer, sale.contract, sale.job, spec.user, spec.scope, missing)
        )

    def objects_came(self, buyer: str, contract: str, reason: str) -> None:
        """Note that objects for a contract are here, or for which reason they can't be.

        In the second case its tasks go back to the buyer.
        """
        sale = self.sales.get((buyer, contract))
        if sale is None or sale.coming == 0:
            return
        sale.coming -= 1
        if reason and sale.is_live:
            self._end_early(sale, Reason.OBJECTS_STAY, reason)
        elif not sale.coming:
            self._outcome.happened(events.JobHeld(sale.job, OBJECTS, on=False))

    def objects_lost(self) -> None:
        """Note that the objects of this site are lost: what comes from now on needs them anew."""
        for sale in self.sales.values():
            sale.objects.clear()

    @handles(deals.Reclaim)
    def _reclaim(self, buyer: str, message: deals.Reclaim, *_: object) -> None:
        sale = self._find(buyer, message.contract)
        if sale is None or not sale.is_live:
            return
        ranges = sale.numbers(message.epoch, message.first, message.stop)
        if ranges:
            self._ask_back(sale, ranges, message.epoch, kill=message.kill)
        else:
            self._say(sale, deals.GivenBack(sale.contract, message.epoch, []))

    def _ask_back(
        self, sale: Sale, ranges: Iterable[Range], epoch: int | None, *, kill: bool
    ) -> None:
        """Ask the broker for tasks by own numbers, for a buyer that asked for those of an epoch."""
        found = tuple(sorted(ranges))
        if found:
            self._requests += 1
            sale.reclaims[self._requests] = epoch
            self._outcome.happened(
                events.CancelAsked(sale.handle, self._requests, sale.job, found, kill)
            )

    @handles(deals.Settle)
    def _settle(self, buyer: str, message: deals.Settle, _: MonoS, utc_s: UtcS) -> None:
        sale = self._find(buyer, message.contract)
        if sale is None:
            return
        for row in message.verdicts:
            if len(row) != 3:
                raise ProtocolError("a verdict must be [epoch, first, 0 or 1]")
            epoch, first, is_posted = row
            verdict = Verdict.POST if is_posted else Verdict.VOID
            # A delivery that was billed in one session and again in the next is settled twice.
            delivery = sale.tab.pending.get((epoch, first))
            if delivery is not None and sale.tab.settle(epoch, first, verdict):
                self._forget(sale, (epoch, first))
                sale.tab.verdicts.pop((epoch, first))  # the seller needs it no more
                self._outcome.write(
                    records.settled(
                        sale.contract, "sell", buyer, delivery, verdict, sale.price.currency, utc_s
                    )
                )

    @handles(deals.Granted)
    def _granted(self, buyer: str, message: deals.Granted, mono_s: MonoS, _: UtcS) -> None:
        for sale in self.renewals.granted(buyer, message, self.sales, mono_s):
            self._stop(sale, "abandoned")

    @handles(deals.Resume)
    def _resume(self, buyer: str, message: deals.Resume, *_: object) -> None:
        sale = self._find(buyer, message.contract)
        if sale is not None and not sale.was_told:
            self._tell_again(sale)
            sale.was_told = True

    @handles(deals.Abandon)
    def _abandon(self, buyer: str, message: deals.Abandon, mono_s: MonoS, utc_s: UtcS) -> None:
        sale = self._find(buyer, message.contract)
        if sale is None:
            return
        if sale.is_live:
            self._lapses.note(buyer, self._under_way_s(sale, utc_s), mono_s)
            self._stop(sale, "abandoned")
        sale.bill_again()

    @handles(deals.CloseContract)
    def _close(self, buyer: str, message: deals.CloseContract, mono_s: MonoS, _: UtcS) -> None:
        sale = self._find(buyer, message.contract)
        if sale is None:
            return
        if sale.phase is ContractPhase.HELD:
            sale.idle_s = mono_s - sale.held_at_s
        if sale.phase in (ContractPhase.HELD, ContractPhase.OPEN) and not sale.next_number:
            self._idle_holds.gave_back(sale.buyer, sale.held_at_s, sale.idle_s, mono_s)
        if sale.phase in (ContractPhase.QUOTED, ContractPhase.HELD):
            self._expire(sale)
            return
        if sale.phase is ContractPhase.OPEN:
            sale.phase = move(sale.phase, Move.CLOSE)
            self._outcome.happened(events.JobClosed(sale.handle, sale.job, sale.next_number))

    # --- messages of the broker ----------------------------------------------------------------

    def told(self, handle: int, message: Any, charge: Charge | None, utc_s: UtcS) -> None:
        """Take a message of the broker to one of its clients that are contracts."""
        sale = self._by_handle.get(handle)
        if sale is None or not sale.is_live:
            return
        match message:
            case Results():
                self._deliver(sale, message, charge or NO_CHARGE, utc_s)
            case Dropped():
                self._deliver_failures(sale, message, utc_s)
            case Answer():
                self._give_back(sale, message)
            case RejectJob():  # so nothing of it runs
                self._return_all(sale)
                sale.ending = message.code, message.reason
            case _:
                raise AssertionError(f"{message.kind!r} can't be sent to a contract")
        self._end_if_quiet(sale)

    def need_function(self, handle: int, digest: bytes) -> None:
        """Request a function that a worker lacks from the buyer of its contract."""
        sale = self._by_handle.get(handle)
        if sale is not None:
            self._outcome.say(sale.buyer, PeerSide.BUYER, NeedFunction(digest))

    @property
    def functions(self) -> set[bytes]:
        """The functions of contracts, which may be here before their jobs."""
        return {each.spec.function for each in self.sales.values() if each.spec is not None}

    def unsettled_bytes(self, buyer: str) -> int:
        """Return the size of a buyer's results that are kept until it has settled them."""
        return self._unsettled.bytes_of(buyer)

    def expelled(self, handle: int, reason: str) -> None:
        """End a contract whose buyer the broker expels: it sends more than it may."""
        sale = self._by_handle.get(handle)
        if sale is not None and sale.is_live:
            self._decline(sale.buyer, sale.contract, Reason.BAD_REQUEST, reason)
            self._stop(sale, "ended")

    def approval_ended(self, buyer: str, reason: str, mono_s: MonoS) -> None:
        """End all contracts of a buyer that is approved no more, and stop its tasks.

        Earlier deliveries stay owed; the time of stopped tasks is not.
        """
        self._mono_s = mono_s
        for sale in [each for each in self.sales.values() if each.buyer == buyer]:
            if sale.phase in (ContractPhase.QUOTED, ContractPhase.HELD):
                self._expire(sale)
            elif sale.is_live:
                self._decline(buyer, sale.contract, Reason.SITE_NOT_TRUSTED, reason)
                self._stop(sale, "ended")

    def _deliver(self, sale: Sale, results: Results, charge: Charge, utc_s: UtcS) -> None:
        if sale.is_overrun:
            results = replace(results, failures=self._over_budget(results.failures))
        first = results.first
        sale.owed_nanos += charge.cost_nanos
        for bundle, low, high in list(sale.parts(first, first + len(results.values))):
            tasks = sale.take(bundle, low, high)
            if tasks is None:
                continue
            part = low - first, high - first
            # This clock may have been set back: agreed amounts stay as they are.
            at_ms = max(int(utc_s * 1000), self.settled_ms.get(sale.buyer, 0))
            message = sale.delivery(bundle.epoch, tasks[0], results, part, charge, at_ms)
            charge = NO_CHARGE  # the time is all in the first part
            # A charge by the task is in each part: so no part costs more than was agreed.
            due_nanos = allowed_nanos(sale.price, message)
            message = replace(message, cost_nanos=min(sale.owed_nanos, due_nanos))
            if sale.is_spent_by(message.cost_nanos):
                self._offering.shortfalls.note(sale, due_nanos - message.cost_nanos, self._mono_s)
            sale.owed_nanos -= message.cost_nanos
            self._post(sale, message)

    def moved(self, fact: MovedObject, proof: MoveProof) -> bool:
        """Book an object that has moved under a contract, by its receipt, and bill it.

        Return False where this costs nothing: then it is no delivery. What was booked before, and
        comes again, changes nothing.

        Raises:
            ProtocolError: it is dated in a period whose books are closed.
        """
        buyer = fact.source if fact.to == self._site else fact.to
        sale = self.sales.get((buyer, fact.contract))
        if sale is None or sale.phase not in _BOOKED:
            return False
        delivery = delivery_of(fact, sale.price, self._site)
        if delivery is None or delivery.first in sale.moves:
            return delivery is not None
        if fact.at_ms < self.settled_ms.get(buyer, 0):
            raise ProtocolError("a receipt is dated in a period whose books are closed")
        sale.moves.add(delivery.first)
        key = delivery.epoch, delivery.first
        sale.tab.deliver(delivery)
        if fact.to == self._site:
            sale.proofs[key] = proof  # its buyer has it from us
        if self._unsettled.owe(buyer):
            self._hold_off(buyer)
        sale.unbilled.append(delivery)
        job = sale.job or f"{buyer}:{sale.contract}"
        used = usage_of(fact, delivery, sale.price, self._site, job, sale.pool)
        self._outcome.happened(events.MoveCharged(job, used))
        self._outcome.write(
            records.MoveProved(sale.contract, "sell", *key, proof.ticket, proof.receipt)
        )
        currency = sale.price.currency
        self._outcome.write(records.posted(sale.contract, "sell", buyer, delivery, currency))
        sale.spent_nanos += delivery.cost_nanos
        if sale.is_live and sale.is_spent:
            self._end_early(sale, Reason.COST_LIMIT, "the cost has reached the limit of the grant")
        return True

    def _over_budget(self, failures: list[list[Any]]) -> list[list[Any]]:
        """Return the failures, with the cost limit as the reason of those that were stopped."""
        text = f"the task was stopped at {self._site}: it ran longer than its cost limit pays for"
        return [
            [at, "budget", text, b""] if kind == "cancelled" else [at, kind, *rest]
            for at, kind, *rest in failures
        ]

    def _deliver_failures(self, sale: Sale, dropped: Dropped, utc_s: UtcS) -> None:
        for first, stop in dropped.ranges:
            # The name that the job has here means nothing to its user.
            reason = dropped.reason.replace(f"job {sale.job}", f"a job sent to {self._site}")
            failures = [[at, dropped.failure, reason, b""] for at in range(stop - first)]
            values = [b""] * (stop - first)
            results = Results(dropped.job, first, values, failures, [], [])
            self._deliver(sale, results, NO_CHARGE, utc_s)

    def _post(self, sale: Sale, message: deals.Deliver) -> None:
        delivery = message.delivery
        sale.tab.deliver(delivery)
        sale.kept[message.epoch, message.first] = message
        if self._unsettled.keep(sale.buyer, message):
            self._hold_off(sale.buyer)
        sale.unbilled.append(delivery)
        self._outcome.write(
            records.posted(sale.contract, "sell", sale.buyer, delivery, sale.price.currency)
        )
        self._say(sale, message)
        sale.spent_nanos += message.cost_nanos
        if sale.is_spent:
            self._end_early(sale, Reason.COST_LIMIT, "the cost has reached the limit of the grant")

    def _end_early(self, sale: Sale, code: str, reason: str, *, kill: bool = False) -> None:
        """End a contract: return tasks that have not started, let the others finish.

        With `kill` running tasks are stopped.
        """
        if sale.ending is not None and not kill:
            return
        sale.ending = code, reason
        # All in one request: of many the broker would refuse some.
        ranges = [
            pair
            for epoch, forward in sale.out.forwards.items()
            for pair in sale.numbers(epoch, forward.first, forward.stop)
        ]
        self._ask_back(sale, ranges, None, kill=kill)
        self._end_if_quiet(sale)

    def _end_if_over(self, sale: Sale, mono_s: MonoS, utc_s: UtcS) -> None:
        """End a contract that may not go on; see `gateway.contracts.selling.stopping`."""
        if sale.is_overrun:
            return  # its tasks are being stopped already
        if self._stopping.is_overrun(sale, utc_s):
            sale.is_overrun = True
            reason = "the running tasks cost more than the grant allows"
            self._end_early(sale, Reason.COST_LIMIT, reason, kill=True)
        elif over := self._stopping.why_over(sale, mono_s, utc_s):
            self._end_early(sale, *over)

    def _ask_for_waiting(self, sale: Sale) -> None:
        """Reclaim tasks that were queued again since their contract began to end.

        Their worker was lost, or a site that had bought them on returned them late: no other worker
        may take them here.
        """
        job = self._broker.jobs.get(sale.job)
        if job is not None and job.waiting:
            self._ask_back(sale, ((run.first, run.stop) for run in job.queue), None, kill=False)

    def _end_if_quiet(self, sale: Sale) -> None:
        """End an ending contract once nothing is out under it, so that no task runs twice.

        Its job holds the results that its buyer fetches: it ends when these are settled.
        """
        if sale.ending is not None and sale.is_live and not sale.out:
            if self._is_fetched(sale):
                return
            self._decline(sale.buyer, sale.contract, *sale.ending)
            self._stop(sale, "ended")

    def _is_fetched(self, sale: Sale) -> bool:
        """Whether a buyer still fetches results from here, and has had no longer than FETCH_S."""
        if not any(message.left for message in sale.kept.values()):
            return False
        if sale.quiet_since_s is None:
            sale.quiet_since_s = self._mono_s
        return self._mono_s < sale.quiet_since_s + FETCH_S

    def _give_back(self, sale: Sale, answer: Answer) -> None:
        if answer.request not in sale.reclaims:
            return
        asked = sale.reclaims.pop(answer.request)
        # The buyer gets an answer even when no task comes back.
        returned: dict[int, list[list[int]]] = {} if asked is None else {asked: []}
        for low, high in (answer.value or {}).get("taken", []):
            for bundle, first, stop in list(sale.parts(low, high)):
                tasks = sale.take(bundle, first, stop)
                if tasks is not None:
                    returned.setdefault(bundle.epoch, []).append(list(tasks))
        for epoch, ranges in returned.items():
            self._say(sale, deals.GivenBack(sale.contract, epoch, ranges))

    def _return_all(self, sale: Sale) -> None:
        for epoch, forward in list(sale.out.forwards.items()):
            ranges = [list(pair) for pair in forward.left]
            self._say(sale, deals.GivenBack(sale.contract, epoch, ranges))
        sale.out.take_all()

    # --- as time passes ------------------------------------------------------------------------

    def tick(self, mono_s: MonoS, utc_s: UtcS) -> None:
        """Expire quotes and holds, ask for renewals, stop expired leases, bill, close contracts."""
        renew: dict[str, list[Sale]] = {}
        self._mono_s = mono_s
        is_billing = mono_s - self._billed_at_s >= self._rules.bill_s
        if is_billing:
            self._billed_at_s = mono_s
        for sale in list(self.sales.values()):
            if sale.phase in (ContractPhase.QUOTED, ContractPhase.HELD):
                if mono_s >= sale.until_s:
                    if sale.phase is ContractPhase.HELD:
                        self._idle_holds.ran_out(sale.buyer, mono_s)
                    self._expire(sale)
                continue
            # Slots are not kept for a buyer that commits and sends nothing.
            sale.is_awaited = sale.is_awaited and mono_s < sale.until_s
            if sale.is_live and mono_s >= sale.lease.until_s - self._rules.grace_s:
                self._lapses.note(sale.buyer, self._under_way_s(sale, utc_s), mono_s)
                self._stop(sale, "lapsed")
            elif sale.is_live:
                self._end_if_over(sale, mono_s, utc_s)
                self._end_if_quiet(sale)  # its buyer has fetched all, or had the time for it
            # An ending contract goes on until its running tasks have ended: so does its lease.
            if sale.is_live and sale.lease.is_due(sale.asked_at_s, mono_s, self._rules.grace_s):
                renew.setdefault(sale.buyer, []).append(sale)
            if sale.phase is ContractPhase.LAPSED and sale.was_told:
                self._release(sale, mono_s)
            if is_billing:
                self._bill(sale)
            self._end(sale, utc_s)
        for buyer, sales in renew.items():
            self.renewals.ask(buyer, sales, mono_s)
        self.renewals.tidy(mono_s)

    def _release(self, sale: Sale, mono_s: MonoS) -> None:
        """Tell a returning buyer that it need not wait for its lease: none of its tasks runs.

        Not before the agents have stopped them, unreachable ones included.
        """
        if mono_s >= sale.lapsed_at_s + self._rules.grace_s:
            sale.was_told = False
            self._decline(sale.buyer, sale.contract, LAPSED, _WHY_OVER[sale.ended_as])
            sale.bill_again()  # bills before this were put off

    def _expire(self, sale: Sale) -> None:
        """Drop a quote that was not taken up, or a hold without a commit."""
        sale.phase = move(sale.phase, Move.EXPIRE)
        self._drop(sale)

    def end_stuck(self, mono_s: MonoS, is_served: Callable[[str], bool]) -> None:
        """Return tasks that no worker takes any more; see `Stopping.why_stuck`."""
        for sale in self.sales.values():
            if sale.is_live and sale.ending is not None:
                self._ask_for_waiting(sale)
                continue
            stuck = self._stopping.why_stuck(sale, mono_s, is_served)
            if stuck is not None:
                self._end_early(sale, *stuck)

    def _bill(self, sale: Sale) -> None:
        if sale.unbilled:
            # A power loss must not lose billed deliveries: the two books would differ for ever.
            self._outcome.harden()
        while sale.unbilled:
            part, sale.unbilled = sale.unbilled[:BILL_ROWS_MAX], sale.unbilled[BILL_ROWS_MAX:]
            # Ahead of the bill: the buyer's verdict depends on them. In a new session all are
            # billed again.
            keys = [(each.epoch, each.first) for each in part]
            for receipts in receipts_of(sale.proofs[key] for key in keys if key in sale.proofs):
                self._say(sale, receipts)
            self._say(sale, deals.Bill(sale.contract, [each.row for each in part]))

    def _stop(self, sale: Sale, ended_as: ContractEnd) -> None:
        """Stop all tasks, as the contract is over before its time; deliveries are still owed."""
        sale.phase, sale.ended_as = move(sale.phase, Move.LAPSE), ended_as
        sale.lapsed_at_s = self._mono_s
        sale.out.take_all()
        for message in sale.kept.values():  # never requested again; its cost stays on the tab
            if self._unsettled.shed(sale.buyer, message):
                self._hold_off(sale.buyer)
        sale.kept.clear()
        sale.order.clear()
        sale.bundles.clear()
        self._outcome.happened(events.ClientGone(sale.handle))

    def _under_way_s(self, sale: Sale, utc_s: UtcS) -> float:
        """Return the slot time so far of the tasks of a contract that run now."""
        job = self._broker.jobs.get(sale.job)
        return sum(
            min(len(each.left), each.worker.slots) * max(0.0, utc_s - each.given_at_s)
            for each in (job.assignments.values() if job is not None else ())
        )

    def lapsed(self) -> list[str]:
        """Describe the contracts that each buyer lately let lapse while its tasks ran."""
        return self._lapses.told(self._mono_s)

    def _forget(self, sale: Sale, key: tuple[int, int]) -> None:
        """Forget a settled delivery: its buyer has fetched what it left here."""
        message, buyer = sale.kept.pop(key, None), sale.buyer
        sale.proofs.pop(key, None)
        if message is not None and message.left and sale.spec is not None:
            left = tuple(left_in(message.values))
            self._outcome.effects.append(TakeObjects(sale.handle, sale.job, sale.spec.scope, left))
        unsettled = self._unsettled
        if unsettled.settle(buyer) if message is None else unsettled.forget(buyer, message):
            self._hold_off(buyer)

    def _hold_off(self, buyer: str) -> None:
        """Stop starting a buyer's tasks, or resume, by the size of its unsettled results."""
        is_full = self._unsettled.is_full(buyer)
        for sale in self.sales.values():
            if sale.buyer == buyer and sale.is_live:
                self._outcome.happened(events.ClientReading(sale.handle, not is_full))

    def _end(self, sale: Sale, utc_s: UtcS) -> None:
        """Forget a contract under which nothing is out and nothing is owed."""
        if (
            sale.phase not in (ContractPhase.CLOSING, ContractPhase.LAPSED)
            or sale.out
            or sale.tab.pending
        ):
            return
        if sale.phase is ContractPhase.CLOSING:
            self._outcome.happened(events.ClientGone(sale.handle))
        sale.phase = move(sale.phase, Move.SETTLE)
        self._outcome.write(records.ContractEnded(sale.contract, "sell", sale.ended_as, utc_s))
        self._say(sale, deals.Closed(sale.contract))
        self._drop(sale)

    def _drop(self, sale: Sale) -> None:
        if sale.job:  # its tasks may wait for objects: the dispatcher forgets it
            self._outcome.happened(events.JobHeld(sale.job, OBJECTS, on=False))
        del self.sales[sale.buyer, sale.contract]
        self._by_handle.pop(sale.handle, None)

    # --- buyers that come back -----------------------------------------------------------------

    def buyer_came(self, buyer: str) -> None:
        """Repeat messages in a buyer's new session: earlier ones may not have arrived."""
        for sale in self.sales.values():
            if sale.buyer == buyer and sale.phase not in (ContractPhase.QUOTED, ContractPhase.HELD):
                sale.was_told = False  # it may ask for that once more, when it has read its books
                self._tell_again(sale)

    def _tell_again(self, sale: Sale) -> None:
        if sale.is_live:
            self._say(sale, sale.holding())
            for message in sale.kept.values():
                self._say(sale, message)
        sale.bill_again()
        sale.asked_at_s = MonoS(0.0)

    def recover(
        self,
        row: ContractRow,
        postings: list[PostingRow],
        mono_s: MonoS,
        proofs: Mapping[tuple[int, int], MoveProof] = NO_PROOFS,
    ) -> None:
        """Take up a contract of an earlier run: nothing of it runs, deliveries are owed."""
        sale = former_sale(row, postings, proofs)
        sale.lapsed_at_s = mono_s
        for _ in sale.tab.pending:
            self._unsettled.owe(row.site)
        self.names.used(row.site, row.contract)
        self.sales[row.site, row.contract] = sale
