"""Messages are sent only after their records are stored: a crash can't undo a sent message."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from federation.messages.messages import RejectJob
from gateway.ledger.accounting.journal import Booked
from gateway.ledger.db.records import Record
from gateway.scheduler.model.effects import Effect, Harden, SendToClient, SendToSite, Write
from simulations.world.invariants.invariants import Invariant

if TYPE_CHECKING:
    from simulations.world.gateway import SimMember
    from simulations.world.world import World


@dataclass(slots=True)
class _Before:
    """A message, and the records that must be stored before it is sent: up to these numbers."""

    message: Any
    stored: int
    hardened: int


@dataclass(slots=True)
class _Life:
    """One run of a gateway. Its records are counted as it decides on them, from 1 on."""

    number: int
    decided: int = 0
    durable: int = 0  # of these, all up to here must be synced before later messages
    stored: int = 0
    hardened: int = 0
    on_way: dict[int, tuple[Record, int]] = field(default_factory=dict)  # by id: with its number
    waiting: dict[int, deque[_Before]] = field(default_factory=dict)  # by id of the message


class ToldIsStored(Invariant):
    """A gateway's messages follow their records, and all earlier ones, onto its disk.

    Durable records must be synced as well. Excepted are messages to other sites that are sent at
    once, orders to workers, and refusals: they have no bookings.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._lives: dict[str, _Life] = {}

    def _life(self, site: "SimMember") -> _Life:
        life = self._lives.get(site.name)
        if life is None or life.number != site.life:
            life = self._lives[site.name] = _Life(site.life)
        return life

    def decided(self, site: "SimMember", effects: Sequence[Effect]) -> None:
        """Note the records that must be on the disk before each message."""
        life = self._life(site)
        for effect in effects:
            match effect:
                case Write(record, is_durable):
                    life.decided += 1
                    life.on_way[id(record)] = record, life.decided
                    life.durable = life.decided if is_durable else life.durable
                case Harden():
                    life.durable = life.decided
                case SendToClient(message=RejectJob()):
                    pass
                case SendToSite(message=message) if message.row.at_once:
                    pass
                case SendToClient(message=message) | SendToSite(message=message):
                    before = _Before(message, life.decided, life.durable)
                    life.waiting.setdefault(id(message), deque()).append(before)
                case _:
                    pass

    def committed(
        self,
        site: "SimMember",
        records: Sequence[Record],
        booked: Sequence[Booked],
        *,
        is_anew: bool,
    ) -> None:
        """Count records on the disk."""
        life = self._life(site)
        for record in records:
            _, number = life.on_way.pop(id(record), (record, life.stored))
            life.stored = number
        if site.disk.hardened == site.disk.written:
            life.hardened = life.stored

    def told(self, site: "SimMember", message: Any) -> None:
        """Check a message that leaves."""
        life = self._life(site)
        waiting = life.waiting.get(id(message))
        if waiting is None:
            return
        before = waiting.popleft()
        if not waiting:
            del life.waiting[id(message)]
        if before.stored > life.stored:
            missing = before.stored - life.stored
            text = f"{missing} records from before it are not stored"
            self.fail(f"{site.name} says {type(message).__name__}, and {text}")
        if before.hardened > life.hardened:
            text = "it depends on records that a power cut would lose"
            self.fail(f"{site.name} says {type(message).__name__}, but {text}")
