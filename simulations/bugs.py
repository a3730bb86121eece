"""Bugs that are planted on purpose, to see that the swarm finds them. Nothing of it ships.

Each is a context manager that patches the real code by name, in this process, while it is open.
A checker that cannot fail proves nothing. TREATY_BUGS are those that only sites that deal with each
other can show, BUDGET_BUGS those of them that only sites with budgets can: they are looked for in
such worlds alone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from federation.contracts import Phase
from federation.deals import Bill, Deliver, Settle
from federation.gossip import Claim, State
from federation.membership import Membership
from federation.messages import Recall
from federation.reconciliation import Reconcile, Tally, sums_of
from federation.session import Session
from federation.wire import pack, unpack
from gateway import disputes, purchases
from gateway.bookkeeper import Bookkeeper
from gateway.broker import Broker
from gateway.budgets.lending import Lending
from gateway.dealing import Outcome
from gateway.deliveries import Deliveries
from gateway.disputes import Disputes
from gateway.effects import AnswerBill, Effect, Expel, Harden, Say, Side, Write
from gateway.entitling import Entitling
from gateway.events import JobOpened, JobSpec
from gateway.exchange import Exchange
from gateway.handout import Handout
from gateway.jobs import Assignment, Job, Worker
from gateway.ledger.postings import Account, Balance, Transfer, add_to, transfers_of
from gateway.ledger.records import ContractSide, DisputeSettled, PostingSettled, Record
from gateway.ledger.rows import DisputeRow
from gateway.occupancy import Occupancy
from gateway.outbox import Outbox
from gateway.payments import PaymentsDesk
from gateway.purchase import Purchase
from gateway.purchases import Purchases
from gateway.sales import Sales
from policies.budgets import Earmark, Purse, payers
from policies.parties import Whose
from policies.reservations import Book
from simulations.world import disk
from simulations.world.peers import Roll
from simulations.world.plan import Plan
from simulations.world.worker import Worker as Agent

Bug = Callable[[], AbstractContextManager[Any]]


@contextmanager
def lost_ack() -> Iterator[None]:
    """A session that resumes counts as delivered what was only sent."""
    rewind = Session.rewind

    def forgetful(self: Session, acknowledged: int) -> None:
        rewind(self, acknowledged)
        # Acknowledged by nobody: sent again, but without its messages.
        self._resend = type(self._resend)(_emptied(frame) for frame in self._resend)

    with patch.object(Session, "rewind", forgetful):
        yield


def _emptied(frame: bytes) -> bytes:

    number, acknowledged, _ = unpack(frame, len(frame))
    return pack([number, acknowledged, []])


@contextmanager
def double_charge() -> Iterator[None]:
    """A gateway that takes a job up again forgets what was charged for it."""

    def forgetful(*_: object) -> None:
        return

    with patch.object(Job, "take_up", forgetful):
        yield


@contextmanager
def leaked_hold() -> Iterator[None]:
    """Tasks of a job that is being cancelled don't give their counted tags back."""
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
    """A worker's agent does not look at its lease: it works on when its gateway has given it up."""
    with patch.object(Agent, "_check_lease", lambda self: True):
        yield


@contextmanager
def no_epoch() -> Iterator[None]:
    """A delivery counts whenever it comes, under whichever assignment: also after the lease."""
    # Both by name here: in the middle of a message a wrong name would only look like a find.
    delivered, fence = Deliveries.delivered, Deliveries.take

    def unfenced(
        self: Deliveries, purchase: Purchase, message: Deliver, now_s: float, utc_s: float
    ) -> None:
        with (
            patch.object(Purchase, "is_live", True),
            patch.object(Deliveries, fence.__name__, lambda *_: True),
        ):
            delivered(self, purchase, message, now_s, utc_s)

    with patch.object(Deliveries, "delivered", unfenced):
        yield


@contextmanager
def paid_after_failover() -> Iterator[None]:
    """A bill is paid unread: also for what came too late, and has run elsewhere since."""
    billed = Deliveries.billed

    def pay(bill: Bill) -> Settle:
        return Settle(bill.contract, [[row[0], row[1], 1] for row in bill.deliveries])

    def unread(self: Deliveries, purchase: Purchase, bill: Bill, utc_s: float) -> None:
        billed(self, purchase, bill, utc_s)
        said = self._outcome.effects.pop()
        assert isinstance(said, Say)
        self._outcome.effects.append(replace(said, message=pay(bill)))

    def unread_late(self: Outbox, answer: AnswerBill) -> None:
        self.perform([Say(answer.site, Side.SELLER, pay(answer.bill))])

    with (
        patch.object(Deliveries, "billed", unread),
        patch.object(Outbox, "_answer_bill", unread_late),
    ):
        yield


@contextmanager
def endless_hold() -> Iterator[None]:
    """Slots that are held for a contract stay held until it is committed."""
    tick = Sales.tick

    def patient(self: Sales, now_s: float, utc_s: float) -> None:
        for sale in self.sales.values():
            if sale.phase is Phase.HELD:
                sale.until_s = max(sale.until_s, now_s + 1.0)
        tick(self, now_s, utc_s)

    with patch.object(Sales, "tick", patient):
        yield


@contextmanager
def ignored_refutation() -> Iterator[None]:
    """That a member which is thought dead lives, and says so, is not believed."""
    merge = Membership._merge

    def deaf(self: Membership, claim: Claim, *rest: Any, **more: Any) -> None:
        buried = self.state(claim.site) is State.DEAD and claim.state is State.ALIVE
        if not buried:
            merge(self, claim, *rest, **more)

    with patch.object(Membership, "_merge", deaf):
        yield


@contextmanager
def open_door() -> Iterator[None]:
    """A seller sells to whom its rules forbid it."""
    with patch.object(Roll, "may_send", lambda *_: ""):
        yield


@contextmanager
def endless_deadline() -> Iterator[None]:
    """A job that waits goes on when its deadline has passed."""
    decide = Exchange.decide

    def timeless(spec: JobSpec) -> JobSpec:
        return replace(spec, wishes=replace(spec.wishes, deadline_s=None))

    def unhurried(self: Exchange, spec: JobSpec, *rest: Any, **more: Any) -> Any:
        return decide(self, timeless(spec), *rest, **more)

    with (
        patch.object(Broker, "_keep_deadlines", lambda *_: None),
        patch.object(Exchange, "decide", unhurried),
    ):
        yield


@contextmanager
def deep_pockets() -> Iterator[None]:
    """What a job may cost is forgotten when it is opened."""
    opened = Broker._job_opened

    def generous(self: Broker, event: JobOpened, now_s: float) -> None:
        opened(self, replace(event, spec=replace(event.spec, max_cost_nanos=None)), now_s)

    with patch.object(Broker, "_job_opened", generous):
        yield


@contextmanager
def one_sided_books() -> Iterator[None]:
    """What a buyer has settled is not booked to its seller."""

    def forgetful(record: Record) -> tuple[Transfer, ...]:
        is_buyers = isinstance(record, PostingSettled) and record.side == "buy"
        return () if is_buyers else transfers_of(record)

    with patch.object(disk, "transfers_of", forgetful):
        yield


@contextmanager
def half_a_transfer() -> Iterator[None]:
    """A reversal is taken from one account and given to none."""

    def lossy(found: dict[Account, Balance], transfer: Transfer) -> None:
        add_to(found, transfer)
        if transfer.kind == "reversal":
            found[transfer.debit].debits_nanos -= transfer.amount_nanos

    with patch.object(disk, "add_to", lossy):
        yield


@contextmanager
def one_sided_reversal() -> Iterator[None]:
    """What a seller takes back is not booked to its buyer."""

    def forgetful(record: Record) -> tuple[Transfer, ...]:
        is_buyers = isinstance(record, DisputeSettled) and record.side == "buy"
        return () if is_buyers else transfers_of(record)

    with patch.object(disk, "transfers_of", forgetful):
        yield


@contextmanager
def lost_verdict() -> Iterator[None]:
    """A seller never takes the verdict on some deliveries, however often it is said."""
    settle = Sales._settle

    def deaf(self: Sales, buyer: str, message: Settle, utc_s: float) -> None:
        heard = [row for row in message.verdicts if row[1] % 7]
        settle(self, buyer, replace(message, verdicts=heard), utc_s)

    with patch.object(Sales, "_settle", deaf):
        yield


@contextmanager
def soft_bill() -> Iterator[None]:
    """A seller bills what it has not on its disk yet, and may lose when its power fails."""
    with patch.object(Outcome, "harden", lambda self: None):
        yield


@contextmanager
def unheard_answer() -> Iterator[None]:
    """A buyer never takes the answer to a dispute, however often it is said."""

    async def deaf(*_: object) -> None:
        return

    with patch.object(Disputes, "answered", deaf):
        yield


@contextmanager
def unheard_payments() -> Iterator[None]:
    """A site is deaf to what others have booked of payments, however often they say it."""

    async def deaf(*_: object) -> None:
        return

    with patch.object(PaymentsDesk, "heard", deaf):
        yield


@contextmanager
def blind_agreement() -> Iterator[None]:
    """A seller agrees to whatever its buyer says of a day, and does not read its own books."""
    compare_for = Bookkeeper._compare_for

    async def blind(self: Bookkeeper, buyer: str, message: Reconcile, envelope: bytes) -> None:
        told = Tally(sums_of(message.sums), message.digest)

        async def tally(*_: object) -> Tally:
            return told

        with patch.object(self, "_tally", tally):
            await compare_for(self, buyer, message, envelope)

    with patch.object(Bookkeeper, "_compare_for", blind):
        yield


@contextmanager
def hasty_agreement() -> Iterator[None]:
    """A seller says that it agrees before that, and what it agrees to, is safe on its disk."""
    keep = Bookkeeper._keep

    async def hasty(self: Bookkeeper, side: ContractSide, *rest: Any) -> None:
        async def write(*records: Record) -> None:
            office.store.write(records, False, lambda: None)

        office = self._office
        self._office = replace(office, write=write) if side == "sell" else office
        try:
            await keep(self, side, *rest)
        finally:
            self._office = office

    with patch.object(Bookkeeper, "_keep", hasty):
        yield


@contextmanager
def backdated_reversal() -> Iterator[None]:
    """A seller books what it takes back as of some time before, also when that is agreed on."""
    settle = disputes._settlement

    def backdated(row: DisputeRow, is_accepted: bool, reason: str, at_ms: int) -> DisputeSettled:
        at_ms -= 15_000 if row.side == "sell" and is_accepted else 0
        return settle(row, is_accepted, reason, at_ms)

    with patch.object(disputes, "_settlement", backdated):
        yield


@contextmanager
def unheeded_windows() -> Iterator[None]:
    """A gateway that never learns which window holds."""

    def turn(self: Occupancy, rules: object) -> None:
        """Leave all as it is."""

    with patch.object(Occupancy, "turn", turn):
        yield


@contextmanager
def unheeded_entitlements() -> Iterator[None]:
    """A gateway that hands out tasks whoever they are of."""
    with patch.object(Entitling, "bound", lambda *_: None):
        yield


@contextmanager
def forgotten_slots() -> Iterator[None]:
    """A gateway that does not see that somebody has slots already, of one worker after another."""
    with patch.object(Entitling, "note", lambda *_: None):
        yield


@contextmanager
def overbooked_slots() -> Iterator[None]:
    """A site that forgets what it has reserved already when it is asked for more."""
    free = Book.free

    def forgetful(self: Book, whose: Whose, from_s: float, until_s: float, utc_s: float) -> int:
        return free(replace(self, made=()), whose, from_s, until_s, utc_s)

    with patch.object(Book, "free", forgetful):
        yield


@contextmanager
def unheld_tasks() -> Iterator[None]:
    """Nothing is held for tasks that go out: each slot spends what is left of a budget."""
    with patch.object(Handout, "_holds", lambda *_: ()):
        yield


@contextmanager
def unheld_contracts() -> Iterator[None]:
    """A contract is committed with nothing held for what it may cost."""

    def empty(purses: Iterable[Purse], _nanos: int, *, anyway: bool = False) -> Earmark:
        return Earmark(payers(purses), 0)

    with patch.object(purchases, "earmark", empty):
        yield


@contextmanager
def forgotten_slices() -> Iterator[None]:
    """A gateway that starts again has forgotten what it gave out of its budgets."""

    def forgetful(self: Lending, rows: object, utc_s: float) -> None:
        self.tick(utc_s)

    with patch.object(Lending, "recover", forgetful):
        yield


@contextmanager
def overtaking_tells() -> Iterator[None]:
    """What has no record of its own is told at once, ahead of what waits for the store."""
    perform = Outbox.perform

    def hasty(self: Outbox, effects: Iterable[Effect]) -> list[Expel]:
        found = list(effects)
        if any(isinstance(each, Write | Harden) for each in found):
            return perform(self, found)
        with patch.object(self, "_batches", deque()):
            return perform(self, found)

    with patch.object(Outbox, "perform", hasty):
        yield


@contextmanager
def forgotten_holds() -> Iterator[None]:
    """Nothing is held any more for tasks that were out when their gateway started again."""
    resume = Handout.resume

    def forgetful(self: Handout, *resumed: Any) -> None:
        with patch.object(self, "_holds", lambda *_: ()):
            resume(self, *resumed)

    with patch.object(Handout, "resume", forgetful):
        yield


@contextmanager
def forgotten_stops() -> Iterator[None]:
    """A seller is asked for tasks that are to be stopped as if what runs might end."""
    ordered = Purchases.ordered

    def mild(self: Purchases, handle: int, message: Any, now_s: float) -> None:
        if isinstance(message, Recall):
            message = replace(message, kill=False)
        ordered(self, handle, message, now_s)

    with patch.object(Purchases, "ordered", mild):
        yield


@contextmanager
def bytes_released_twice() -> Iterator[None]:
    """A worker gives back the bytes of an assignment that is done once more than it held them."""
    release = Handout.release

    def twice(self: Handout, assignment: Assignment, first: int, stop: int) -> None:
        release(self, assignment, first, stop)
        if not assignment.left:
            assignment.worker.held_bytes -= assignment.run.size

    with patch.object(Handout, "release", twice):
        yield


@contextmanager
def hoarded_contracts() -> Iterator[None]:
    """A contract is kept for as long as its job lasts, though nothing is out under it."""
    is_done = Purchases._is_done

    def hoards(self: Purchases, purchase: Purchase, now_s: float) -> bool:
        return is_done(self, purchase, now_s) and purchase.job not in self._broker.jobs

    with patch.object(Purchases, "_is_done", hoards):
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
}
TREATY_BUGS: Final[dict[str, Bug]] = {
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
# Of these, what only sites with budgets can show.
BUDGET_BUGS: Final = frozenset({"unheld-contracts", "forgotten-slices", "forgotten-holds"})


def planted(name: str) -> AbstractContextManager[Any]:
    """The bug of that name for as long as this is open; none for the empty name."""
    return (BUGS | TREATY_BUGS)[name]() if name else nullcontext()


def may_show(name: str, plan: Plan) -> bool:
    """Whether a world has what a bug is about; else looking there would be in vain."""
    if name in TREATY_BUGS and not any(site.others for site in plan.sites):
        return False
    return name not in BUDGET_BUGS or any(site.budgets for site in plan.sites)
