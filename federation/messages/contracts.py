"""The life of a contract: one site runs tasks for another, at a price, under a lease.

    QUOTED ──hold──► HELD ──commit──► OPEN ──close──► CLOSING ──settle──► SETTLED
       │               │                │                 │                  ▲
       └──decline──► DECLINED ◄─expire──┘ (of a hold)     └──lapse──► LAPSED ┘ settle

Both sides step through the same table, each at its own time. A move that is not in the table is
refused by name, and changes nothing. The *buyer* has the job and pays; the *seller* has the slots.
Tasks that are out under a contract are counted as tasks of the buyer's job. Every forward has an
*epoch*, and a task's result counts only under the epoch that the task is out under. Pure.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from federation.clocks import MonoS
from federation.errors import ProtocolError
from federation.ranges import Range, RangeSet

# The assumed drift between the clocks of two sites; the buyer waits that much longer.
DRIFT: Final = 0.02
# The allowance for messages in flight when the lease ends.
MARGIN_S: Final = 1.0
BILL_FIELDS: Final = 6
FORWARDS_MAX: Final = 10_000  # out under one contract at a time


class ContractPhase(StrEnum):
    """The phase of a contract."""

    QUOTED = "quoted"  # a price is named, nothing is promised
    HELD = "held"  # slots and budget are reserved for a moment
    OPEN = "open"  # tasks are forwarded and results come back
    CLOSING = "closing"  # no more tasks are forwarded
    LAPSED = "lapsed"  # the lease has ended: the buyer places the tasks that were out elsewhere
    SETTLED = "settled"  # no task is out, and each delivery is posted or void
    DECLINED = "declined"


class Move(StrEnum):
    """The events of a contract."""

    HOLD = "hold"
    DECLINE = "decline"
    EXPIRE = "expire"
    COMMIT = "commit"
    CLOSE = "close"
    LAPSE = "lapse"
    SETTLE = "settle"


MOVES: Final[dict[tuple[ContractPhase, Move], ContractPhase]] = {
    (ContractPhase.QUOTED, Move.HOLD): ContractPhase.HELD,
    (ContractPhase.QUOTED, Move.DECLINE): ContractPhase.DECLINED,
    (ContractPhase.QUOTED, Move.EXPIRE): ContractPhase.DECLINED,
    (ContractPhase.HELD, Move.COMMIT): ContractPhase.OPEN,
    (ContractPhase.HELD, Move.DECLINE): ContractPhase.DECLINED,
    (ContractPhase.HELD, Move.EXPIRE): ContractPhase.DECLINED,
    (ContractPhase.OPEN, Move.CLOSE): ContractPhase.CLOSING,
    (ContractPhase.OPEN, Move.LAPSE): ContractPhase.LAPSED,
    (ContractPhase.CLOSING, Move.LAPSE): ContractPhase.LAPSED,
    (ContractPhase.CLOSING, Move.SETTLE): ContractPhase.SETTLED,
    (ContractPhase.LAPSED, Move.SETTLE): ContractPhase.SETTLED,
}
ENDED: Final = frozenset({ContractPhase.SETTLED, ContractPhase.DECLINED})


class WrongMoveError(ProtocolError):
    """A move that is not allowed in this phase of a contract."""


def move(phase: ContractPhase, what: Move) -> ContractPhase:
    """Return the phase after a move. Raises WrongMoveError if the table does not have it."""
    after = MOVES.get((phase, what))
    if after is None:
        raise WrongMoveError(f"a contract in phase {phase} can't {what}")
    return after


# --- the lease -----------------------------------------------------------------------------------


def holder_until_s(asked_at_s: MonoS, lease_s: float) -> MonoS:
    """Return the time until which the seller may run tasks, counted from when it *asked*.

    The time is by the seller's own clock.
    """
    return asked_at_s + lease_s


def grantor_until_s(granted_at_s: MonoS, lease_s: float) -> MonoS:
    """Return the time until which the buyer must wait before it places the tasks elsewhere.

    Counted from the buyer's answer, which is later than the seller's request, and extended by the
    possible drift between the two clocks: the seller has always stopped before.
    """
    return granted_at_s + lease_s * (1 + 2 * DRIFT) + MARGIN_S


@dataclass(slots=True)
class Lease:
    """The seller's end of a lease. Once it has ended, no late answer revives it."""

    lease_s: float
    until_s: MonoS

    def renewed(self, asked_at_s: MonoS, mono_s: MonoS) -> bool:
        """Accept the buyer's grant of a request made at `asked_at_s`; False if it came too late."""
        if self.is_over(mono_s):
            return False
        self.until_s = max(self.until_s, holder_until_s(asked_at_s, self.lease_s))
        return True

    def is_over(self, mono_s: MonoS) -> bool:
        """Whether the lease has ended, so that its tasks must not run any more."""
        return mono_s >= self.until_s

    def is_due(self, asked_at_s: MonoS, mono_s: MonoS, grace_s: float) -> bool:
        """Whether to request a renewal, last requested at `asked_at_s`.

        It is requested four times before the last `grace_s` of the lease, in which the seller's
        agents must stop, so that three requests may be lost.
        """
        every_s = (self.lease_s - grace_s) / 4
        return mono_s >= self.until_s - self.lease_s + every_s and mono_s - asked_at_s >= every_s


# --- tasks that are out --------------------------------------------------------------------------


@dataclass(slots=True)
class ForwardedBundle:
    """A bundle forwarded to the seller under an epoch; `left` are its tasks that are still out."""

    epoch: int
    first: int
    stop: int
    left: RangeSet


@dataclass(slots=True)
class Out:
    """The tasks that are out under one contract, by epoch.

    Both sides keep the same books: the buyer's fence late results, the seller's late forwards.
    """

    forwards: dict[int, ForwardedBundle] = field(default_factory=dict)
    highest: int = 0
    _all: RangeSet = field(default_factory=RangeSet)  # the tasks that are out, under any epoch

    def send(self, epoch: int, first: int, stop: int) -> bool:
        """Count a bundle as out; return False if it was known, or its epoch is long gone.

        Raises:
            ProtocolError: the same epoch with other tasks, or tasks that are out already.
        """
        known = self.forwards.get(epoch)
        if known is not None:
            if (known.first, known.stop) != (first, stop):
                raise ProtocolError(f"epoch {epoch} was sent before, with other tasks")
            return False
        if epoch <= self.highest:
            return False
        if first >= stop or len(self.forwards) >= FORWARDS_MAX:
            raise ProtocolError(
                f"the bundle is empty, or there are more than {FORWARDS_MAX:,} bundles"
            )
        if self._all.within(first, stop):
            raise ProtocolError("tasks were forwarded that are already assigned")
        self.highest = epoch
        self.forwards[epoch] = ForwardedBundle(epoch, first, stop, RangeSet([(first, stop)]))
        self._all.add(first, stop)
        return True

    def take(self, epoch: int, first: int, stop: int) -> bool:
        """Count tasks as back, all or none; return False if they are not out under this epoch."""
        forward = self.forwards.get(epoch)
        if forward is None or forward.left.within(first, stop) != [(first, stop)]:
            return False
        forward.left.remove(first, stop)
        self._all.remove(first, stop)
        if not forward.left:
            del self.forwards[epoch]
        return True

    def take_all(self) -> list[Range]:
        """Count all tasks as back, at the end of the lease, and return them."""
        back, self._all = list(self._all), RangeSet()
        self.forwards.clear()
        return back

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return bool(self.forwards)


# --- debts ---------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """The outcome of a delivery."""

    POST = "post"  # the result was wanted: it is paid
    VOID = "void"  # it came too late, or was not wanted: it is not paid


@dataclass(frozen=True, slots=True)
class Delivery:
    """Results that the seller has sent: their tasks, their epoch and their cost.

    Attributes:
        wall_ns: the slot time that they took.
        at_ms: when the seller booked it, in milliseconds since 1970. Both books have this time.
    """

    epoch: int
    first: int
    stop: int
    cost_nanos: int
    wall_ns: int = 0
    at_ms: int = 0

    @property
    def row(self) -> list[int]:
        """The row of the delivery in a bill."""
        tasks = self.stop - self.first
        return [self.epoch, self.first, tasks, self.cost_nanos, self.wall_ns, self.at_ms]

    @classmethod
    def of(cls, row: list[int]) -> "Delivery":
        """Read a delivery from the row of a bill. Raises ProtocolError."""
        if len(row) != BILL_FIELDS:
            raise ProtocolError(
                "a delivery must be billed as [epoch, first, tasks, cost, wall, at]"
            )
        epoch, first, tasks, cost_nanos, wall_ns, at_ms = row
        return cls(epoch, first, first + tasks, cost_nanos, wall_ns, at_ms)


@dataclass(slots=True)
class Tab:
    """The deliveries under one contract. Each gets one verdict, however often it is requested.

    Both sides keep the same books: the seller records its deliveries, the buyer those that it
    received. In the end both have the same deliveries with the same verdicts. The stored books have
    all of them: the buyer may forget verdicts here, and looks them up if they are asked for again.
    """

    pending: dict[tuple[int, int], Delivery] = field(default_factory=dict)
    verdicts: dict[tuple[int, int], tuple[Delivery, Verdict]] = field(default_factory=dict)
    has_forgotten: bool = False  # verdicts: a delivery that is not here may be in the books

    def has(self, delivery: Delivery) -> bool:
        """Whether this very delivery was counted before."""
        key = (delivery.epoch, delivery.first)
        settled = self.verdicts.get(key)
        return delivery == (settled[0] if settled else self.pending.get(key))

    def deliver(self, delivery: Delivery) -> Verdict | None:
        """Count a delivery as pending; return its verdict if it has one already.

        Raises:
            ProtocolError: it was delivered before, with other tasks or at another cost.
        """
        key = (delivery.epoch, delivery.first)
        settled = self.verdicts.get(key)
        known = settled[0] if settled else self.pending.get(key)
        if known is not None and known != delivery:
            raise ProtocolError(f"epoch {delivery.epoch}: delivered again with other content")
        if settled:
            return settled[1]
        if known is None:
            self.pending[key] = delivery
        return None

    def settle(self, epoch: int, first: int, verdict: Verdict) -> bool:
        """Give a delivery its verdict; return False if it had that verdict already.

        Raises:
            ProtocolError: no such delivery exists, or it has the other verdict.
        """
        key = (epoch, first)
        settled = self.verdicts.get(key)
        if settled is not None:
            if settled[1] is not verdict:
                raise ProtocolError(
                    f"epoch {epoch}: the verdict was {settled[1]}, and is now {verdict}"
                )
            return False
        delivery = self.pending.pop(key, None)
        if delivery is None:
            raise ProtocolError(f"epoch {epoch}: the verdict is on tasks that were not delivered")
        self.verdicts[key] = delivery, verdict
        return True

    def forget(self, kept_max: int) -> None:
        """Forget the oldest verdicts beyond so many."""
        while len(self.verdicts) > kept_max:
            del self.verdicts[next(iter(self.verdicts))]
            self.has_forgotten = True
