"""Bugs that are planted on purpose, to check that the swarm finds them. Nothing of it ships.

Each is a context manager that patches the real code by name, in this process, while it is open. A
checker that cannot fail proves nothing. TREATY_BUGS show only between sites that deal with each
other, BUDGET_BUGS of them only at sites with budgets: the search uses only such worlds.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from federation.clocks import MonoS, UtcS
from federation.membership.gossip import MemberState, MemberUpdate
from federation.membership.membership import Membership
from federation.messages.contracts import ContractPhase
from federation.messages.deals import Bill, Deliver, Settle
from federation.messages.messages import Recall
from federation.messages.reconciliation import Reconcile, Tally, sums_of
from federation.messages.wire import pack, unpack
from federation.objects.labels import UNLABELLED, DataLabel, read_label
from federation.sessions.session import Session
from gateway.contracts.buying import purchases
from gateway.contracts.buying.deliveries import Deliveries
from gateway.contracts.buying.purchases import Purchases
from gateway.contracts.model.dealing import Consequences
from gateway.contracts.model.purchase import Purchase
from gateway.contracts.planning.deciding import PlacementDecider
from gateway.contracts.selling.sales import Sales
from gateway.contracts.slices.lending import Lending
from gateway.ledger.accounting.postings import (
    Balance,
    LedgerAccount,
    Transfer,
    add_to,
    transfers_of,
)
from gateway.ledger.db.contracts.records import ContractSide, PostingSettled
from gateway.ledger.db.records import Record
from gateway.ledger.db.settlement.records import DisputeRow, DisputeSettled
from gateway.ledger.db.usage.records import UsageRecord
from gateway.runtime.outbox import EffectOutbox
from gateway.scheduler.broker import Broker
from gateway.scheduler.dispatch.dispatcher import Dispatcher
from gateway.scheduler.graphs.core import Ready, TaskGraph
from gateway.scheduler.lifecycle.submissions import Submissions
from gateway.scheduler.model import intake, stored_terms
from gateway.scheduler.model.effects import (
    AnswerBill,
    Effect,
    Expel,
    Harden,
    PeerSide,
    SendToSite,
    Write,
)
from gateway.scheduler.model.events import JobOpened, ReportUsage, WorkerGone
from gateway.scheduler.model.jobs import Assignment, Job, Worker
from gateway.scheduler.model.terms import JobSpec
from gateway.scheduler.quotas.entitling import Entitling
from gateway.scheduler.quotas.occupancy import Occupancy
from gateway.scheduler.tasks import completion
from gateway.scheduler.tasks.charging import Charging
from gateway.scheduler.tasks.losses import Losses
from gateway.scheduler.tasks.ordered_ends import OrderedEnds
from gateway.sessions.conversation import Conversation
from gateway.settlement import disputes
from gateway.settlement.as_seller import SellerComparisons
from gateway.settlement.book_access import BookAccess
from gateway.settlement.disputes import Disputes
from gateway.settlement.payments import PaymentsDesk
from policies.costs.budgets import BudgetAccount, Earmark, payers
from policies.parties import Owner
from policies.placement.asks import Wishes
from policies.reservations.reservations import ReservationBook
from simulations.world.memory import disk, tables
from simulations.world.peers import SimRoll
from simulations.world.plan import WorldPlan

Bug = Callable[[], AbstractContextManager[Any]]


@contextmanager
def lost_ack() -> Iterator[None]:
    """Make a session that resumes count sent messages as delivered."""
    rewind = Session.rewind

    def forgetful(self: Session, acknowledged: int) -> None:
        rewind(self, acknowledged)
        # Not acknowledged: sent again, but without its messages.
        self._resend = type(self._resend)(_emptied(frame) for frame in self._resend)

    with patch.object(Session, "rewind", forgetful):
        yield


def _emptied(frame: bytes) -> bytes:

    number, acknowledged, _ = unpack(frame, len(frame))
    return pack([number, acknowledged, []])


@contextmanager
def double_charge() -> Iterator[None]:
    """Make a gateway that takes up a job again forget its charges."""

    def forgetful(*_: object) -> None:
        return

    with patch.object(Job, "take_up", forgetful):
        yield


@contextmanager
def leaked_hold() -> Iterator[None]:
    """Keep the counted tags of tasks of a job that is being cancelled."""
    hold = Worker.hold

    def leaky(self: Worker, assignment: Assignment, tasks: int) -> None:
        free = dict(self.free)
        hold(self, assignment, tasks)
        if tasks < 0 and assignment.job.leaving:
            self.free.update(free)

    with patch.object(Worker, "hold", leaky):
        yield


@contextmanager
def endless_lease() -> Iterator[None]:
    """Ignore the leases of sessions: a worker works on after its gateway has given it up."""
    with patch.object(Conversation, "_check_lease", lambda *_: True):
        yield


@contextmanager
def no_epoch() -> Iterator[None]:
    """Accept a delivery at any time, under any assignment: also after the lease."""
    # Both by name here: within the handling of a message, a wrong name would look like a find.
    delivered, fence = Deliveries.delivered, Deliveries.take

    def unfenced(
        self: Deliveries, purchase: Purchase, message: Deliver, mono_s: MonoS, utc_s: UtcS
    ) -> None:
        with (
            patch.object(Purchase, "is_live", True),
            patch.object(Deliveries, fence.__name__, lambda *_: True),
        ):
            delivered(self, purchase, message, mono_s, utc_s)

    with patch.object(Deliveries, "delivered", unfenced):
        yield


@contextmanager
def paid_after_failover() -> Iterator[None]:
    """Pay a bill unread: also for tasks that came too late, and have run elsewhere since."""
    billed = Deliveries.billed

    def pay(bill: Bill) -> Settle:
        return Settle(bill.contract, [[row[0], row[1], 1] for row in bill.deliveries])

    def unread(self: Deliveries, purchase: Purchase, bill: Bill, utc_s: UtcS) -> None:
        billed(self, purchase, bill, utc_s)
        said = self._outcome.effects.pop()
        assert isinstance(said, SendToSite)
        self._outcome.effects.append(replace(said, message=pay(bill)))

    def unread_late(self: EffectOutbox, answer: AnswerBill) -> None:
        self.perform([SendToSite(answer.site, PeerSide.SELLER, pay(answer.bill))])

    with (
        patch.object(Deliveries, "billed", unread),
        patch.object(EffectOutbox, "_answer_bill", unread_late),
    ):
        yield


@contextmanager
def endless_hold() -> Iterator[None]:
    """Hold slots for a contract until it is committed, without a time limit."""
    tick = Sales.tick

    def patient(self: Sales, mono_s: MonoS, utc_s: UtcS) -> None:
        for sale in self.sales.values():
            if sale.phase is ContractPhase.HELD:
                sale.until_s = max(sale.until_s, mono_s + 1.0)
        tick(self, mono_s, utc_s)

    with patch.object(Sales, "tick", patient):
        yield


@contextmanager
def ignored_refutation() -> Iterator[None]:
    """Ignore the refutation of a live member that is believed dead."""
    merge = Membership._merge

    def deaf(self: Membership, update: MemberUpdate, *rest: Any, **more: Any) -> None:
        buried = self.state(update.site) is MemberState.DEAD and update.state is MemberState.ALIVE
        if not buried:
            merge(self, update, *rest, **more)

    with patch.object(Membership, "_merge", deaf):
        yield


@contextmanager
def open_door() -> Iterator[None]:
    """Sell to buyers that the rules forbid."""
    with patch.object(SimRoll, "may_send", lambda *_: ""):
        yield


@contextmanager
def endless_deadline() -> Iterator[None]:
    """Keep queued jobs going after their deadline."""
    decide = PlacementDecider.decide

    def timeless(spec: JobSpec) -> JobSpec:
        return replace(spec, wishes=replace(spec.wishes, deadline_s=None))

    def unhurried(self: PlacementDecider, spec: JobSpec, *rest: Any, **more: Any) -> Any:
        return decide(self, timeless(spec), *rest, **more)

    with (
        patch.object(Broker, "_keep_deadlines", lambda *_: None),
        patch.object(PlacementDecider, "decide", unhurried),
    ):
        yield


@contextmanager
def deep_pockets() -> Iterator[None]:
    """Forget a job's cost limit when it is opened."""
    opened = Submissions.opened

    def generous(self: Submissions, event: JobOpened, utc_s: UtcS) -> None:
        opened(self, replace(event, spec=replace(event.spec, max_cost_nanos=None)), utc_s)

    with patch.object(Submissions, "opened", generous):
        yield


@contextmanager
def one_sided_books() -> Iterator[None]:
    """Settle at the buyer without a booking to its seller."""

    def forgetful(record: Record) -> tuple[Transfer, ...]:
        is_buyers = isinstance(record, PostingSettled) and record.side == "buy"
        return () if is_buyers else transfers_of(record)

    with patch.object(disk, "transfers_of", forgetful):
        yield


@contextmanager
def half_a_transfer() -> Iterator[None]:
    """Take a reversal from one account and give it to none."""

    def lossy(found: dict[LedgerAccount, Balance], transfer: Transfer) -> None:
        add_to(found, transfer)
        if transfer.kind == "reversal":
            found[transfer.debit].debits_nanos -= transfer.amount_nanos

    with patch.object(tables, "add_to", lossy):
        yield


@contextmanager
def one_sided_reversal() -> Iterator[None]:
    """Reverse at the seller without a booking to its buyer."""

    def forgetful(record: Record) -> tuple[Transfer, ...]:
        is_buyers = isinstance(record, DisputeSettled) and record.side == "buy"
        return () if is_buyers else transfers_of(record)

    with patch.object(disk, "transfers_of", forgetful):
        yield


@contextmanager
def lost_verdict() -> Iterator[None]:
    """Make a seller ignore the verdict on some deliveries, however often it is sent."""
    settle = Sales._settle

    def deaf(self: Sales, buyer: str, message: Settle, mono_s: MonoS, utc_s: UtcS) -> None:
        heard = [row for row in message.verdicts if row[1] % 7]
        settle(self, buyer, replace(message, verdicts=heard), mono_s, utc_s)

    with patch.object(Sales, "_settle", deaf):
        yield


@contextmanager
def soft_bill() -> Iterator[None]:
    """Make a seller bill deliveries that are not yet on its disk, and may be lost."""
    with patch.object(Consequences, "harden", lambda self: None):
        yield


@contextmanager
def unheard_answer() -> Iterator[None]:
    """Make a buyer ignore the answer to a dispute, however often it is sent."""

    async def deaf(*_: object) -> None:
        return

    with patch.object(Disputes, "answered", deaf):
        yield


@contextmanager
def unheard_payments() -> Iterator[None]:
    """Make a site ignore payments that others have booked, however often they report them."""

    async def deaf(*_: object) -> None:
        return

    with patch.object(PaymentsDesk, "heard", deaf):
        yield


@contextmanager
def blind_agreement() -> Iterator[None]:
    """Make a seller agree to any figures of its buyer for a day, without reading its own books."""
    compare_for = SellerComparisons.compare_for

    async def blind(
        self: SellerComparisons, buyer: str, message: Reconcile, envelope: bytes
    ) -> None:
        told = Tally(sums_of(message.sums), message.digest)

        async def tally(*_: object) -> Tally:
            return told

        with patch.object(self._books, "tally", tally):
            await compare_for(self, buyer, message, envelope)

    with patch.object(SellerComparisons, "compare_for", blind):
        yield


@contextmanager
def hasty_agreement() -> Iterator[None]:
    """Make a seller agree before the agreement, and its subject, are safe on its disk."""
    keep = BookAccess.keep

    async def hasty(self: BookAccess, side: ContractSide, *rest: Any) -> None:
        async def write(*records: Record) -> None:
            context.store.write(records, False, lambda: None)

        context = self._context
        self._context = replace(context, write=write) if side == "sell" else context
        try:
            await keep(self, side, *rest)
        finally:
            self._context = context

    with patch.object(BookAccess, "keep", hasty):
        yield


@contextmanager
def backdated_reversal() -> Iterator[None]:
    """Make a seller backdate its reversals, also when they are agreed on."""
    settle = disputes._settlement

    def backdated(row: DisputeRow, is_accepted: bool, reason: str, at_ms: int) -> DisputeSettled:
        at_ms -= 15_000 if row.side == "sell" and is_accepted else 0
        return settle(row, is_accepted, reason, at_ms)

    with patch.object(disputes, "_settlement", backdated):
        yield


@contextmanager
def unheeded_windows() -> Iterator[None]:
    """Keep a gateway from learning the window in force."""

    def turn(self: Occupancy, rules: object) -> None:
        """Leave all as it is."""

    with patch.object(Occupancy, "turn", turn):
        yield


@contextmanager
def unheeded_entitlements() -> Iterator[None]:
    """Make a gateway hand out tasks of any owner."""
    with patch.object(Entitling, "bound", lambda *_: None):
        yield


@contextmanager
def forgotten_slots() -> Iterator[None]:
    """Make a gateway overlook slots that a user already has, on one worker after another."""
    with patch.object(Entitling, "note", lambda *_: None):
        yield


@contextmanager
def overbooked_slots() -> Iterator[None]:
    """Make a site forget its reservations when it is asked for more."""
    free = ReservationBook.free

    def forgetful(
        self: ReservationBook, whose: Owner, from_s: UtcS, until_s: UtcS, utc_s: UtcS
    ) -> int:
        return free(replace(self, made=()), whose, from_s, until_s, utc_s)

    with patch.object(ReservationBook, "free", forgetful):
        yield


@contextmanager
def unheld_tasks() -> Iterator[None]:
    """Hold nothing for tasks that go out: each slot spends the rest of a budget."""
    with patch.object(Dispatcher, "_holds", lambda *_: ()):
        yield


@contextmanager
def unheld_contracts() -> Iterator[None]:
    """Commit a contract without a hold for its cost."""

    def empty(
        budget_accounts: Iterable[BudgetAccount], _nanos: int, *, anyway: bool = False
    ) -> Earmark:
        return Earmark(payers(budget_accounts), 0)

    with patch.object(purchases, "earmark", empty):
        yield


@contextmanager
def forgotten_slices() -> Iterator[None]:
    """Make a restarted gateway forget the slices that it gave out of its budgets."""

    def forgetful(self: Lending, rows: object, utc_s: UtcS) -> None:
        self.tick(utc_s)

    with patch.object(Lending, "recover", forgetful):
        yield


@contextmanager
def overtaking_tells() -> Iterator[None]:
    """Send messages without a record at once, ahead of those that wait for the store."""
    perform = EffectOutbox.perform

    def hasty(self: EffectOutbox, effects: Iterable[Effect]) -> list[Expel]:
        found = list(effects)
        if any(isinstance(each, Write | Harden) for each in found):
            return perform(self, found)
        with patch.object(self, "_batches", deque()):
            return perform(self, found)

    with patch.object(EffectOutbox, "perform", hasty):
        yield


@contextmanager
def forgotten_holds() -> Iterator[None]:
    """Hold nothing any more for tasks that were out when their gateway restarted."""
    resume = Dispatcher.resume

    def forgetful(self: Dispatcher, *resumed: Any) -> None:
        with patch.object(self, "_holds", lambda *_: ()):
            resume(self, *resumed)

    with patch.object(Dispatcher, "resume", forgetful):
        yield


@contextmanager
def forgotten_stops() -> Iterator[None]:
    """Ask a seller for tasks to stop without killing those that run."""
    ordered = Purchases.ordered

    def mild(self: Purchases, handle: int, message: Any, mono_s: MonoS) -> None:
        if isinstance(message, Recall):
            message = replace(message, kill=False)
        ordered(self, handle, message, mono_s)

    with patch.object(Purchases, "ordered", mild):
        yield


@contextmanager
def forgotten_cancels() -> Iterator[None]:
    """Keep an order to end a job in memory alone: it is lost with the gateway."""

    def unstored(_: OrderedEnds, job: Job, end: str, reason: str) -> None:
        job.leaving, job.reason = end, reason

    with patch.object(OrderedEnds, "order", unstored):
        yield


@contextmanager
def bytes_released_twice() -> Iterator[None]:
    """Release the bytes of a finished assignment once more than the worker held them."""
    release = Dispatcher.release

    def twice(self: Dispatcher, assignment: Assignment, first: int, stop: int) -> None:
        release(self, assignment, first, stop)
        if not assignment.left:
            assignment.worker.held_bytes -= assignment.run.size

    with patch.object(Dispatcher, "release", twice):
        yield


@contextmanager
def hoarded_contracts() -> Iterator[None]:
    """Keep a contract for as long as its job lasts, though no tasks are out under it."""
    is_done = Purchases._is_done

    def hoards(self: Purchases, purchase: Purchase, mono_s: MonoS) -> bool:
        return is_done(self, purchase, mono_s) and purchase.job not in self._broker.jobs

    with patch.object(Purchases, "_is_done", hoards):
        yield


@contextmanager
def restless_recalls() -> Iterator[None]:
    """Recall for a job that waits also what would return to the same worker at once."""

    def behind(
        self: Dispatcher, assignment: Assignment, _: int, rank: tuple[Any, ...], __: Job
    ) -> int:
        job = assignment.job
        is_behind = rank < self._order(job, self.durations.pace(job.spec.function), 0)
        return len(assignment.left) if is_behind else 0

    with patch.object(Dispatcher, "_behind", behind):
        yield


@contextmanager
def swapped_inputs() -> Iterator[None]:
    """Keep results of a report in another order for the calls that wait for them."""
    ended = TaskGraph.ended

    def swapped(self: TaskGraph, job: str, first: int, values: Sequence[bytes]) -> list[Ready]:
        return ended(self, job, first, values[::-1])

    with patch.object(TaskGraph, "ended", swapped):
        yield


@contextmanager
def unheard_failures() -> Iterator[None]:
    """Tell no call that an input of it has failed."""
    with patch.object(TaskGraph, "failed", lambda *_: []):
        yield


@contextmanager
def endless_rides() -> Iterator[None]:
    """Forget the ends of calls that went to a slot with their input."""
    with patch.object(TaskGraph, "rode", lambda *_: 0):
        yield


@contextmanager
def unheeded_labels() -> Iterator[None]:
    """Make a gateway place work without a look at the label of its data."""
    wishes_of = Entitling.wishes_of

    def unlabelled(self: Entitling, spec: JobSpec) -> Wishes:
        return wishes_of(self, replace(spec, wishes=_without_label(spec.wishes)))

    with patch.object(Entitling, "wishes_of", unlabelled):
        yield


@contextmanager
def unstored_labels() -> Iterator[None]:
    """Make a gateway forget the labels of jobs when it is restarted."""

    def unlabelled(wishes: Wishes) -> dict[str, Any]:
        return intake.wishes_plain(_without_label(wishes))

    with patch.object(stored_terms, "wishes_plain", unlabelled):
        yield


@contextmanager
def half_read_labels() -> Iterator[None]:
    """Make a gateway read the places that a label allows, and not those that it excludes."""

    def allowed(words: Any) -> DataLabel:
        return replace(read_label(words), not_sites=frozenset())

    with patch.object(intake, "read_label", allowed):
        yield


def _without_label(wishes: Wishes) -> Wishes:
    return replace(wishes, label=UNLABELLED)


@contextmanager
def charged_silence() -> Iterator[None]:
    """Charge the runs that were lost with a worker until its lease ended."""
    take_back = Losses.take_back

    def unheard(self: Losses, worker: Worker, event: WorkerGone, utc_s: UtcS) -> None:
        take_back(self, worker, replace(event, silent_s=0.0), utc_s)

    with patch.object(Losses, "take_back", unheard):
        yield


@contextmanager
def one_more_crash() -> Iterator[None]:
    """Run a task that ends its slots once more than is promised, and charge it."""
    with patch.object(completion, "CRASHES_MAX", completion.CRASHES_MAX + 1):
        yield


@contextmanager
def free_crashes() -> Iterator[None]:
    """Charge nothing for a task that ended its slot, whatever its agent reports."""
    used = Charging.used

    def free(
        self: Charging, assignment: Assignment, usage: ReportUsage, utc_s: UtcS
    ) -> list[UsageRecord]:
        if any(kind == "crash" for _, kind in usage.failures):
            usage = replace(usage, wall_ns=0, cpu_ns=0)
        return used(self, assignment, usage, utc_s)

    with patch.object(Charging, "used", free):
        yield


BUGS: Final[dict[str, Bug]] = {
    "lost-ack": lost_ack,
    "double-charge": double_charge,
    "leaked-hold": leaked_hold,
    "endless-lease": endless_lease,
    "unheeded-entitlements": unheeded_entitlements,
    "forgotten-slots": forgotten_slots,
    "unheld-tasks": unheld_tasks,
    "overtaking-tells": overtaking_tells,
    "bytes-released-twice": bytes_released_twice,
    "restless-recalls": restless_recalls,
    "forgotten-cancels": forgotten_cancels,
    "charged-silence": charged_silence,
    "one-more-crash": one_more_crash,
    "free-crashes": free_crashes,
    "swapped-inputs": swapped_inputs,
    "unheard-failures": unheard_failures,
    "endless-rides": endless_rides,
}
TREATY_BUGS: Final[dict[str, Bug]] = {
    "unheeded-labels": unheeded_labels,
    "unstored-labels": unstored_labels,
    "half-read-labels": half_read_labels,
    "no-epoch": no_epoch,
    "paid-after-failover": paid_after_failover,
    "endless-hold": endless_hold,
    "ignored-refutation": ignored_refutation,
    "open-door": open_door,
    "endless-deadline": endless_deadline,
    "deep-pockets": deep_pockets,
    "one-sided-books": one_sided_books,
    "half-a-transfer": half_a_transfer,
    "one-sided-reversal": one_sided_reversal,
    "lost-verdict": lost_verdict,
    "soft-bill": soft_bill,
    "unheard-answer": unheard_answer,
    "unheard-payments": unheard_payments,
    "blind-agreement": blind_agreement,
    "hasty-agreement": hasty_agreement,
    "backdated-reversal": backdated_reversal,
    "unheeded-windows": unheeded_windows,
    "overbooked-slots": overbooked_slots,
    "unheld-contracts": unheld_contracts,
    "forgotten-slices": forgotten_slices,
    "forgotten-holds": forgotten_holds,
    "forgotten-stops": forgotten_stops,
    "hoarded-contracts": hoarded_contracts,
}
# Those of all that show only where calls wait for others.
GRAPH_BUGS: Final = frozenset({"swapped-inputs", "unheard-failures", "endless-rides"})
LABEL_BUGS: Final = frozenset({"unheeded-labels", "unstored-labels", "half-read-labels"})
# Those that show only where tasks end their slots.
CRASH_BUGS: Final = frozenset({"one-more-crash", "free-crashes"})
# Those of the treaties that show only at sites with budgets.
BUDGET_BUGS: Final = frozenset({"unheld-contracts", "forgotten-slices", "forgotten-holds"})


def planted(name: str) -> AbstractContextManager[Any]:
    """Return the context manager of a bug; none for the empty name."""
    return (BUGS | TREATY_BUGS)[name]() if name else nullcontext()


def may_show(name: str, plan: WorldPlan) -> bool:
    """Whether a world can show a bug; a search in other worlds is useless."""
    if name in TREATY_BUGS and not any(site.others for site in plan.sites):
        return False
    if name in GRAPH_BUGS and not any(job.chain for each in plan.clients for job in each.jobs):
        return False
    if name in LABEL_BUGS and not any(job.label for each in plan.clients for job in each.jobs):
        return False
    if name in CRASH_BUGS and not any(job.poison for each in plan.clients for job in each.jobs):
        return False
    return name not in BUDGET_BUGS or any(site.budgets for site in plan.sites)
