"""The life of a contract: one site runs tasks for another, at a price, for as long as it is leased.

    QUOTED ──hold──► HELD ──commit──► OPEN ──close──► CLOSING ──settle──► SETTLED
       │               │                │                 │                  ▲
       └──decline──► DECLINED ◄─expire──┘ (of a hold)     └──lapse──► LAPSED ┘ settle

Both sides walk through the same table, each at its own time; a move that the table does not have
is refused by name, and nothing changes. The *buyer* has the job and pays; the *seller* has the
slots. What is out under a contract is counted in tasks of the buyer's job; every forward has an
*epoch*, and only results of the epoch that a task is out under count. Pure.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Final

from federation.errors import ProtocolError
from federation.ranges import Range, RangeSet

# Clocks of two sites may drift apart by so much; the buyer waits that much longer.
DRIFT: Final = 0.02
# And so long for what is under way when the lease ends.
MARGIN_S: Final = 1.0
BILL_FIELDS: Final = 6
FORWARDS_MAX: Final = 10_000  # that are out under one contract at a time


class Phase(StrEnum):
    """Where a contract is in its life."""

    QUOTED = "quoted"  # a price is named, nothing is promised
    HELD = "held"  # slots and budget are set aside for a moment
    OPEN = "open"  # tasks go there and results come back
    CLOSING = "closing"  # no more tasks go there
    LAPSED = "lapsed"  # the lease has ended: what was out is the buyer's to place again
    SETTLED = "settled"  # nothing is out, and each delivery is posted or void
    DECLINED = "declined"


class Move(StrEnum):
    """What can happen to a contract."""

    HOLD = "hold"
    DECLINE = "decline"
    EXPIRE = "expire"
    COMMIT = "commit"
    CLOSE = "close"
    LAPSE = "lapse"
    SETTLE = "settle"


MOVES: Final[dict[tuple[Phase, Move], Phase]] = {
    (Phase.QUOTED, Move.HOLD): Phase.HELD,
    (Phase.QUOTED, Move.DECLINE): Phase.DECLINED,
    (Phase.QUOTED, Move.EXPIRE): Phase.DECLINED,
    (Phase.HELD, Move.COMMIT): Phase.OPEN,
    (Phase.HELD, Move.DECLINE): Phase.DECLINED,
    (Phase.HELD, Move.EXPIRE): Phase.DECLINED,
    (Phase.OPEN, Move.CLOSE): Phase.CLOSING,
    (Phase.OPEN, Move.LAPSE): Phase.LAPSED,
    (Phase.CLOSING, Move.LAPSE): Phase.LAPSED,
    (Phase.CLOSING, Move.SETTLE): Phase.SETTLED,
    (Phase.LAPSED, Move.SETTLE): Phase.SETTLED,
}
ENDED: Final = frozenset({Phase.SETTLED, Phase.DECLINED})


class WrongMoveError(ProtocolError):
    """A move that a contract in this phase does not have."""


def move(phase: Phase, what: Move) -> Phase:
    """The phase after a move. Raises WrongMoveError when the table does not have it."""
    after = MOVES.get((phase, what))
    if after is None:
        raise WrongMoveError(f"a contract that is {phase} can't {what}")
    return after


# --- the lease -----------------------------------------------------------------------------------


def holder_until_s(asked_s: float, lease_s: float) -> float:
    """Until when the seller may run tasks: counted, on its own clock, from when it *asked*."""
    return asked_s + lease_s


def grantor_until_s(granted_s: float, lease_s: float) -> float:
    """Until when the buyer must wait before it places the tasks elsewhere.

    Counted from its answer, which is later than the question, and stretched by what two clocks
    may drift apart: the seller has always stopped before.
    """
    return granted_s + lease_s * (1 + 2 * DRIFT) + MARGIN_S


@dataclass(slots=True)
class Lease:
    """The seller's end of a lease. Once it has ended, no late answer brings it back."""

    lease_s: float
    until_s: float

    def renewed(self, asked_s: float, now_s: float) -> bool:
        """Take the buyer's grant of what was asked at `asked_s`; False when it came too late."""
        if self.is_over(now_s):
            return False
        self.until_s = max(self.until_s, holder_until_s(asked_s, self.lease_s))
        return True

    def is_over(self, now_s: float) -> bool:
        """Whether its tasks must not run any more."""
        return now_s >= self.until_s

    def is_due(self, asked_s: float, now_s: float, grace_s: float) -> bool:
        """Whether to ask for a renewal, last asked for at `asked_s`.

        It is asked for four times before the last `grace_s` of the lease, in which the seller's
        agents must stop, so that three may be lost.
        """
        every_s = (self.lease_s - grace_s) / 4
        return now_s >= self.until_s - self.lease_s + every_s and now_s - asked_s >= every_s


# --- what is out ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Forward:
    """A bundle that went to the seller under an epoch. `left` has neither come back nor ended."""

    epoch: int
    first: int
    stop: int
    left: RangeSet


@dataclass(slots=True)
class Out:
    """The tasks that are out under one contract, by the epoch that they went under.

    The same books on both sides: the buyer's fence late results, the seller's late forwards.
    """

    forwards: dict[int, Forward] = field(default_factory=dict)
    highest: int = 0
    _all: RangeSet = field(default_factory=RangeSet)  # what is out, under whatever epoch

    def send(self, epoch: int, first: int, stop: int) -> bool:
        """Count a bundle as out; False when it was known, or is of an epoch long gone.

        Raises:
            ProtocolError: the same epoch with other tasks, or tasks that are out already.
        """
        known = self.forwards.get(epoch)
        if known is not None:
            if (known.first, known.stop) != (first, stop):
                raise ProtocolError(f"epoch {epoch} again, with other tasks")
            return False
        if epoch <= self.highest:
            return False
        if first >= stop or len(self.forwards) >= FORWARDS_MAX:
            raise ProtocolError(f"an empty bundle, or over {FORWARDS_MAX:,} of them")
        if self._all.within(first, stop):
            raise ProtocolError("tasks forwarded that are out already")
        self.highest = epoch
        self.forwards[epoch] = Forward(epoch, first, stop, RangeSet([(first, stop)]))
        self._all.add(first, stop)
        return True

    def take(self, epoch: int, first: int, stop: int) -> bool:
        """Count tasks as back, all of them or none; False when they are not out under it."""
        forward = self.forwards.get(epoch)
        if forward is None or forward.left.within(first, stop) != [(first, stop)]:
            return False
        forward.left.remove(first, stop)
        self._all.remove(first, stop)
        if not forward.left:
            del self.forwards[epoch]
        return True

    def take_all(self) -> list[Range]:
        """Count everything as back: the lease has ended. Which tasks that were."""
        back, self._all = list(self._all), RangeSet()
        self.forwards.clear()
        return back

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return bool(self.forwards)


# --- what is owed --------------------------------------------------------------------------------


class Verdict(StrEnum):
    """What becomes of a delivery."""

    POST = "post"  # the result was wanted: it is paid
    VOID = "void"  # it came too late, or for nobody: it is not


@dataclass(frozen=True, slots=True)
class Delivery:
    """Results that the seller has sent: of which tasks, under which epoch, at what cost.

    Attributes:
        wall_ns: slot time that they took.
        at_ms: when the seller booked it, milliseconds since 1970. Both books have this time.
    """

    epoch: int
    first: int
    stop: int
    cost_nanos: int
    wall_ns: int = 0
    at_ms: int = 0

    @property
    def row(self) -> list[int]:
        """As it is billed."""
        tasks = self.stop - self.first
        return [self.epoch, self.first, tasks, self.cost_nanos, self.wall_ns, self.at_ms]

    @classmethod
    def of(cls, row: list[int]) -> "Delivery":
        """A delivery as it is billed. Raises ProtocolError."""
        if len(row) != BILL_FIELDS:
            raise ProtocolError("a delivery is billed as [epoch, first, tasks, cost, wall, at]")
        epoch, first, tasks, cost_nanos, wall_ns, at_ms = row
        return cls(epoch, first, first + tasks, cost_nanos, wall_ns, at_ms)


@dataclass(slots=True)
class Tab:
    """What is owed under one contract. Each delivery gets one verdict, whoever asks how often.

    The same books on both sides: the seller's has what it delivered, the buyer's what it was
    delivered, and in the end both have the same deliveries with the same verdicts.
    """

    pending: dict[tuple[int, int], Delivery] = field(default_factory=dict)
    verdicts: dict[tuple[int, int], tuple[Delivery, Verdict]] = field(default_factory=dict)

    def has(self, delivery: Delivery) -> bool:
        """Whether this very delivery was counted before."""
        key = (delivery.epoch, delivery.first)
        settled = self.verdicts.get(key)
        return delivery == (settled[0] if settled else self.pending.get(key))

    def delivered(self) -> dict[int, RangeSet]:
        """The tasks that were delivered under each epoch, whatever the verdict."""
        found: dict[int, RangeSet] = {}
        for each in chain(
            self.pending.values(), (settled for settled, _ in self.verdicts.values())
        ):
            found.setdefault(each.epoch, RangeSet()).add(each.first, each.stop)
        return found

    def deliver(self, delivery: Delivery) -> Verdict | None:
        """Count a delivery as under way; its verdict when it has one already.

        Raises:
            ProtocolError: it was delivered before, with other tasks or at another cost.
        """
        key = (delivery.epoch, delivery.first)
        settled = self.verdicts.get(key)
        known = settled[0] if settled else self.pending.get(key)
        if known is not None and known != delivery:
            raise ProtocolError(f"epoch {delivery.epoch}: delivered again, and not the same")
        if settled:
            return settled[1]
        if known is None:
            self.pending[key] = delivery
        return None

    def settle(self, epoch: int, first: int, verdict: Verdict) -> bool:
        """Give a delivery its verdict; False when it had it already.

        Raises:
            ProtocolError: nothing of that kind was delivered, or it has the other verdict.
        """
        key = (epoch, first)
        settled = self.verdicts.get(key)
        if settled is not None:
            if settled[1] is not verdict:
                raise ProtocolError(f"epoch {epoch}: {settled[1]} before, {verdict} now")
            return False
        delivery = self.pending.pop(key, None)
        if delivery is None:
            raise ProtocolError(f"epoch {epoch}: a verdict on what was never delivered")
        self.verdicts[key] = delivery, verdict
        return True
