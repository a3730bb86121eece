"""Chooses the gateway that a client dials next, and when. Pure.

A client stays where its session is. When that gateway is lost, the client dials it again for
`failover_s`: most losses are short, and resuming a session costs nothing. After that, or at once
when nothing listens there any more, it tries the others in rounds: first the gateways that its user
named, in their order; then those that gateways have told it about, in a random order, so that a
thousand clients of one dead gateway do not all go to the same; and last the one that was lost. It
pauses between two rounds, longer each time, and stays with the first gateway that admits it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from federation.address import OTHERS_MAX, AddressError, check_others, is_local, is_weak
from federation.chance import Chance
from federation.clocks import MonoS
from federation.words import duration_text

PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
# Even with a shorter `failover_s`, a gateway gets this long to answer.
ATTEMPT_MIN_S: Final = 1.0
FAILOVER_S: Final = 5.0
_COMPLAINTS_MAX: Final = 64


class GatewayLoss(Enum):
    """The way in which a gateway was lost, or an attempt to reach it failed."""

    GONE = "gone"  # the pipe was lost or silent, or did not come up in time
    ABSENT = "absent"  # nothing listens there, or it said that it stops
    UNWILLING = "unwilling"  # it answers, and will never admit this client


@dataclass(frozen=True, slots=True)
class DialGateway:
    """Dial this gateway, not before that moment."""

    address: str
    at_s: MonoS


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No gateway will be dialled any more."""

    reason: str


class Itinerary:
    """A client's current gateway, and the gateways it may go to. `mono_s` is any monotonic clock.

    Args:
        own: the addresses that the user named, best first; at least one.
        failover_s: how long a lost gateway is waited for while there are others, and how long each
            of those has to answer.
        give_up_s: how long all gateways may be unreachable, in seconds; None: without limit.
        random: spreads clients over the gateways, and their attempts over time.
        follows: whether to go to gateways that a gateway named; otherwise only `own` counts.
    """

    def __init__(
        self,
        own: Sequence[str],
        *,
        failover_s: float = FAILOVER_S,
        give_up_s: float | None = None,
        random: Chance,
        follows: bool = True,
    ) -> None:
        self.own = tuple(own)
        self.address = self.own[0]
        self._failover_s = failover_s
        self._give_up_s = give_up_s
        self._random = random
        self._follows = follows
        self._learnt: dict[str, str] = {}  # address → the gateway that named it
        self._complaints: set[str] = set()
        self._barred: set[str] = set()
        self._round: deque[str] = deque()
        self._rounds = 0
        self._pause_s = PAUSE_MIN_S
        self._has_session = False
        self._away_at_s: MonoS | None = None
        self._deadline_s: MonoS | None = None
        self._attempt_s = max(failover_s, ATTEMPT_MIN_S)

    @property
    def known(self) -> tuple[str, ...]:
        """Every address that it may go to, the user's own first."""
        return (*self.own, *self._learnt)

    @property
    def has_others(self) -> bool:
        """Whether there is another gateway to go to."""
        return any(address != self.address for address in self.known)

    def begin(self, mono_s: MonoS, within_s: float) -> DialGateway:
        """Return the first gateway to dial; each gets a share of the time to find one."""
        if self.has_others:
            share_s = within_s / len(self.own)
            self._deadline_s = mono_s + min(self._attempt_s, share_s)
            self._attempt_s = min(self._attempt_s, share_s)
        return DialGateway(self.address, mono_s)

    def opened(self) -> None:
        """Note that a session is open: stay."""
        self._has_session = True
        self._away_at_s = self._deadline_s = None
        self._attempt_s = max(self._failover_s, ATTEMPT_MIN_S)
        self._pause_s = PAUSE_MIN_S
        self._rounds = 0
        self._round.clear()
        self._barred.clear()

    def hurry(self, mono_s: MonoS) -> None:
        """Give up when no gateway could be reached for `failover_s` from now, or from a later loss.

        For a process that ends: it would otherwise wait for ever.
        """
        patience_s = max(self._failover_s, ATTEMPT_MIN_S)
        if self._give_up_s is None or self._give_up_s > patience_s:
            self._give_up_s = patience_s
        if self._away_at_s is not None:
            self._away_at_s = mono_s
            over_s = mono_s + self._give_up_s
            self._deadline_s = over_s if self._deadline_s is None else min(self._deadline_s, over_s)

    def is_overdue(self, mono_s: MonoS) -> bool:
        """Whether the time of the gateway that is dialled is up: call `lost`."""
        return self._deadline_s is not None and mono_s >= self._deadline_s

    def lost(self, loss: GatewayLoss, mono_s: MonoS, since_s: MonoS) -> DialGateway | GiveUp:
        """Note that the gateway is lost, or was not reached; return the next step.

        `since_s` is the time when it was last there: `mono_s` if the loss was seen at once.
        """
        if self._away_at_s is None:
            self._away_at_s = since_s
        if loss is GatewayLoss.UNWILLING:
            self._barred.add(self.address)
        left = [address for address in self.known if address not in self._barred]
        if not left:
            return GiveUp("every known gateway refuses this client")
        if self._give_up_s is not None and mono_s >= self._away_at_s + self._give_up_s:
            return GiveUp(
                f"no gateway was reached within {duration_text(self._give_up_s)}: "
                f"{', '.join(self.known)}"
            )
        patient = self._has_session and loss is GatewayLoss.GONE
        if left == [self.address]:
            return self._dial(mono_s + self._pause(), None)
        if patient and mono_s < self._away_at_s + self._failover_s:
            return self._dial(mono_s + self._pause(), self._away_at_s + self._failover_s)
        return self._go_on(left, mono_s)

    def _go_on(self, left: list[str], mono_s: MonoS) -> DialGateway:
        self._has_session = False
        at_s = mono_s
        while self._round and self._round[0] in self._barred:
            self._round.popleft()
        if not self._round:
            at_s += self._pause() if self._rounds else 0.0
            self._rounds += 1
            self._round.extend(self._order(left))
        self.address = self._round.popleft()
        return self._dial(at_s, at_s + self._attempt_s)

    def _order(self, left: list[str]) -> list[str]:
        own = [address for address in left if address in self.own and address != self.address]
        learnt = [address for address in left if address not in self.own]
        learnt = [address for address in learnt if address != self.address]
        self._random.shuffle(learnt)
        return own + learnt + [address for address in left if address == self.address]

    def _dial(self, at_s: MonoS, deadline_s: MonoS | None) -> DialGateway:
        if self._give_up_s is not None and self._away_at_s is not None:
            over_s = self._away_at_s + self._give_up_s
            deadline_s = over_s if deadline_s is None else min(deadline_s, over_s)
        self._deadline_s = deadline_s
        return DialGateway(self.address, at_s)

    def _pause(self) -> float:
        pause_s = self._pause_s * self._random.uniform(0.5, 1.5)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return pause_s

    def learn(self, addresses: Sequence[str]) -> list[str]:
        """Take the list of others from the current gateway, in place of its earlier one.

        Returns a line for each address that is not followed, once. Addresses from other gateways
        are kept while there is room, except where that would now be a weaker transport.
        """
        if not self._follows:
            return []
        lines = []
        fresh: dict[str, str] = {}
        for address in addresses[:OTHERS_MAX]:
            wrong = find_fault(address, self.address)
            if not wrong:
                fresh[address] = self.address
            elif address not in self._complaints and len(self._complaints) < _COMPLAINTS_MAX:
                self._complaints.add(address)
                lines.append(f"gateway {address!a:.300}, named by {self.address}: {wrong}")
        for address, teacher in self._learnt.items():
            is_weaker = is_weak(address) and not is_weak(self.address)
            if teacher != self.address and not is_weaker:
                fresh.setdefault(address, teacher)
        news = ((address, who) for address, who in fresh.items() if address not in self.own)
        self._learnt = dict(islice(news, OTHERS_MAX))
        return lines


def find_fault(address: str, teacher: str) -> str:
    """Return why an address named by the gateway at `teacher` is not followed; empty if it is."""
    try:
        check_others([address])
    except AddressError as error:
        return str(error)
    if is_weak(address) and not is_weak(teacher):
        return "ignored: plain tcp to another host is weaker than the current connection"
    if is_local(address) and not is_local(teacher):
        return "ignored: the address is valid on that gateway's own host only"
    return ""
