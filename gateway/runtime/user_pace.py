"""Limits the rate at which one user's orders and heavy questions take the gateway. Pure.

A rested user may take a burst, and is then held to the rate. Orders and questions beyond it wait
their turn, and are refused only where they would wait for too long.
"""

import math
from typing import Final

from federation.clocks import MonoS

ORDERS_PER_S: Final = 10.0  # of one user, on average
BURST: Final = 100  # orders that may come at once
OPERATOR_ORDERS_PER_S: Final = 100.0  # of one operator, who acts on everybody's jobs
OPERATOR_BURST: Final = 5_000
SHARE: Final = 0.1  # of the loop, for the heavy questions of one user
BURST_S: Final = 0.5  # of the loop's time that a rested user may take at once
OPERATOR_SHARE: Final = 0.3  # of one operator, whose scripts ask about all jobs
OPERATOR_BURST_S: Final = 3.0
LEAST_S: Final = 0.002  # that a question is taken to need before it has been answered
WAIT_MAX_S: Final = 10.0  # orders and questions that would wait for longer are refused
USERS_MAX: Final = 10_000


class _UserPace:
    """A store of `burst` for each user, which fills at `per_s`."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst_s = burst / per_s
        self._full_at_s: dict[str, MonoS] = {}  # when the store of a user is full again

    def _take(self, user: str, amount: float, mono_s: MonoS) -> float | None:
        """Take an amount; return how long that has to wait; None, and take nothing: too long."""
        full_at_s = self._full_after(user, amount, mono_s)
        wait_s = max(0.0, full_at_s - mono_s - self._burst_s)
        if wait_s > WAIT_MAX_S:
            return None
        if len(self._full_at_s) >= USERS_MAX:
            self._full_at_s = {
                name: at_s for name, at_s in self._full_at_s.items() if at_s > mono_s
            }
        self._full_at_s[user] = full_at_s
        return wait_s

    def _full_after(self, user: str, amount: float, mono_s: MonoS) -> MonoS:
        """Return when the store of a user would be full again after an amount was taken."""
        return max(mono_s, self._full_at_s.get(user, mono_s)) + amount / self._per_s


class OrderPace(_UserPace):
    """When the next order of each user may be carried out: a durable write and a log line.

    A script with many orders is slowed down and loses none.

    Args:
        per_s: orders of one user in a second, on average.
        burst: orders that may come at once.
    """

    def __init__(self, per_s: float = ORDERS_PER_S, burst: float = BURST) -> None:
        super().__init__(per_s, burst)
        self.per_s = per_s

    def wait_s(self, user: str, mono_s: MonoS) -> float | None:
        """Take one order of a user; return how long it has to wait; None: it is one too many."""
        return self._take(user, 1, mono_s)


class QuestionPace(_UserPace):
    """When the next heavy question of each user may be answered.

    A question such as `explain` takes the loop for milliseconds, with many jobs or sites for
    longer. One user, with any number of sessions, leaves the loop to the others.

    Args:
        share: of the loop, that the questions of one user may take.
        burst_s: of the loop's time that a rested user may take at once.
    """

    def __init__(self, share: float = SHARE, burst_s: float = BURST_S) -> None:
        super().__init__(share, burst_s)
        self._share = share

    def wait_s(self, user: str, mono_s: MonoS) -> float | None:
        """Take one question; return how long it has to wait; None: it is one too many.

        It is taken to need LEAST_S of the loop: `took` adds the rest.
        """
        return self._take(user, LEAST_S, mono_s)

    def took(self, user: str, loop_s: float, mono_s: MonoS) -> None:
        """Note the time for which an answer took the loop, in seconds: no wait of it for others."""
        self._full_at_s[user] = self._full_after(user, max(0.0, loop_s - LEAST_S), mono_s)

    def refusal(self, user: str, mono_s: MonoS) -> str:
        """Say why a question of a user is one too many, and when it no longer is."""
        ahead_s = max(0.0, self._full_at_s.get(user, mono_s) - mono_s)
        again_s = ahead_s + LEAST_S / self._share - self._burst_s - WAIT_MAX_S
        return (
            f"questions by {user} took {ahead_s * self._share:.1f} s of this site lately: "
            f"try again in {max(1, math.ceil(again_s))} s"
        )
