"""Limits the rate of each user's orders: an order is a durable write and a log line. Pure."""

from typing import Final

from federation.clocks import MonoS

ORDERS_PER_S: Final = 10.0  # of one user, on average
BURST: Final = 100  # orders that may come at once
WAIT_MAX_S: Final = 10.0  # an order that would wait for longer is refused
USERS_MAX: Final = 10_000


class OrderPace:
    """When the next order of each user may be carried out.

    A user has a store of BURST orders, which fills at ORDERS_PER_S. Orders beyond it wait their
    turn, so that a script with many orders is slowed down and loses none.
    """

    def __init__(self) -> None:
        self._full_at_s: dict[str, MonoS] = {}  # when the store of a user is full again

    def wait_s(self, user: str, mono_s: MonoS) -> float | None:
        """Take one order of a user; return how long it has to wait; None: it is one too many."""
        full_at_s = max(mono_s, self._full_at_s.get(user, mono_s)) + 1 / ORDERS_PER_S
        wait_s = max(0.0, full_at_s - mono_s - BURST / ORDERS_PER_S)
        if wait_s > WAIT_MAX_S:
            return None
        if len(self._full_at_s) >= USERS_MAX:
            self._full_at_s = {
                name: at_s for name, at_s in self._full_at_s.items() if at_s > mono_s
            }
        self._full_at_s[user] = full_at_s
        return wait_s
