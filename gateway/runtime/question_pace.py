"""Limits the share of the loop that one user's heavy questions take. Pure.

A question such as `explain` takes the loop for milliseconds, with many jobs or sites for longer.
Its user may ask again at once, and then rests until the questions have had no more than their
share: one user, with any number of sessions, leaves the loop to the others.
"""

import math
from typing import Final

from federation.clocks import MonoS

SHARE: Final = 0.1  # of the loop, for the heavy questions of one user
BURST_S: Final = 0.5  # of the loop's time that a user who has rested may take at once
WAIT_MAX_S: Final = 10.0  # a question that would wait for longer is refused
LEAST_S: Final = 0.002  # that a question is taken to need before it has been answered
USERS_MAX: Final = 10_000


class QuestionPace:
    """When the next heavy question of each user may be answered."""

    def __init__(self) -> None:
        self._full_at_s: dict[str, MonoS] = {}  # when the store of a user is full again

    def wait_s(self, user: str, mono_s: MonoS) -> float | None:
        """Take one question; return how long it has to wait; None: it is one too many.

        It is taken to need LEAST_S of the loop: `took` adds the rest.
        """
        full_at_s = max(mono_s, self._full_at_s.get(user, mono_s)) + LEAST_S / SHARE
        wait_s = max(0.0, full_at_s - mono_s - BURST_S / SHARE)
        if wait_s > WAIT_MAX_S:
            return None
        if len(self._full_at_s) >= USERS_MAX:
            self._full_at_s = {
                name: at_s for name, at_s in self._full_at_s.items() if at_s > mono_s
            }
        self._full_at_s[user] = full_at_s
        return wait_s

    def refusal(self, user: str, mono_s: MonoS) -> str:
        """Say why a question of a user is one too many, and when it no longer is."""
        ahead_s = max(0.0, self._full_at_s.get(user, mono_s) - mono_s)
        again_s = ahead_s + LEAST_S / SHARE - BURST_S / SHARE - WAIT_MAX_S
        return (
            f"questions by {user} took {ahead_s * SHARE:.1f} s of this site lately: "
            f"try again in {max(1, math.ceil(again_s))} s"
        )

    def took(self, user: str, loop_s: float, mono_s: MonoS) -> None:
        """Note the time for which an answer took the loop, in seconds: no wait of it for others."""
        more_s = max(0.0, loop_s - LEAST_S)
        self._full_at_s[user] = max(mono_s, self._full_at_s.get(user, mono_s)) + more_s / SHARE
