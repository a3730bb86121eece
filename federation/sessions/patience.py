"""How long an acknowledgement waits for a message that can carry it. Pure.

A bare acknowledgement costs both sides as much as a message does: between gateways three TLS
records and a wake-up. Where each answer is followed by the next request, waiting a little longer
saves it; where nothing follows, waiting only delays the other side, whose window is one frame. So
the wait follows the last observation: half as long again as it took for a message to come, and the
shortest where none came in time. TCP does the same with its delayed acknowledgements ("pingpong
mode").
"""

import math
from typing import Final

from federation.clocks import MonoS

WAIT_MIN_S: Final = 0.001
WAIT_MAX_S: Final = 0.006
MARGIN: Final = 1.5
CLOCK_S: Final = 1e-6  # a thread that wakes after a wait may find that a little less has passed
_NEVER_S: Final = MonoS(-math.inf)


class Patience:
    """When the owed acknowledgement goes alone. `mono_s` is any monotonic clock."""

    def __init__(self) -> None:
        self._owed_at_s = _NEVER_S  # since when the last one was owed
        self._wait_s = WAIT_MIN_S

    @property
    def wait_s(self) -> float:
        """How long an owed acknowledgement waits."""
        return self._wait_s

    def owed(self, mono_s: MonoS) -> None:
        """Note that a frame arrived, with all frames before it acknowledged."""
        self._owed_at_s = mono_s

    def is_over(self, mono_s: MonoS) -> bool:
        """Whether the owed acknowledgement must go now, alone."""
        return mono_s - self._owed_at_s >= self._wait_s - CLOCK_S

    def went(self, mono_s: MonoS, *, alone: bool) -> None:
        """Note that a frame went: a bare acknowledgement, or one with a message."""
        took_s = mono_s - self._owed_at_s
        if alone:
            self._wait_s = WAIT_MIN_S
        elif took_s < math.inf:
            # Even if the acknowledgement had gone alone by then: the next one should wait.
            is_soon = MARGIN * took_s <= WAIT_MAX_S
            self._wait_s = max(WAIT_MIN_S, MARGIN * took_s) if is_soon else WAIT_MIN_S
            self._owed_at_s = _NEVER_S  # only the first frame that follows shows how long it takes
