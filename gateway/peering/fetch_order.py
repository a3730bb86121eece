"""Deliveries whose results are being fetched, and the messages that must not overtake them. Pure.

A seller that ends a contract says so right behind its last delivery. If the end came first, that
delivery would be void and its tasks would run again. So the end of a contract, and the bill for its
deliveries, wait for the deliveries that came before them. Other messages are of other tasks, and
go ahead.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from federation.errors import ProtocolError
from federation.messages.deals import Bill, Closed, Decline, Deliver
from federation.messages.registry import GatewayMessage

WAITING_MAX: Final = 1_000  # messages of one contract: an honest seller sends a few
DeliveryKey: TypeAlias = tuple[int, int]  # epoch and first task


@dataclass(slots=True)
class FetchOrder:
    """By seller and contract: what is being fetched, and what waits behind, as it came."""

    _rows: dict[tuple[str, str], list[DeliveryKey | GatewayMessage]] = field(default_factory=dict)

    def begin(self, seller: str, delivery: Deliver) -> bool:
        """Note that a delivery is being fetched; return False where it is so already."""
        row = self._rows.setdefault((seller, delivery.contract), [])
        key = delivery.epoch, delivery.first
        if key in row:
            return False
        row.append(key)
        return True

    def waits(self, seller: str, message: GatewayMessage) -> bool:
        """Whether a message waits for deliveries that came before it.

        Raises:
            ProtocolError: too many messages wait already.
        """
        if not isinstance(message, (Bill, Closed, Decline)):
            return False
        row = self._rows.get((seller, message.contract))
        if row is None:
            return False
        if len(row) >= WAITING_MAX:
            raise ProtocolError(f"over {WAITING_MAX:,} messages of a contract wait for results")
        row.append(message)
        return True

    def end(self, seller: str, delivery: Deliver) -> list[GatewayMessage]:
        """Note that a delivery is fetched or given up; return the messages that wait no more."""
        where = seller, delivery.contract
        row = self._rows.get(where, [])
        key = delivery.epoch, delivery.first
        if key in row:
            row.remove(key)
        due: list[GatewayMessage] = []
        for each in row:
            if not isinstance(each, GatewayMessage):
                break
            due.append(each)
        del row[: len(due)]
        if not row:
            self._rows.pop(where, None)
        return due
