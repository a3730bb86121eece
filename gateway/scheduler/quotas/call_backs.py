"""Slots that are being called back for guaranteed work, and whether that helped. Pure.

While tasks are stopped for a claim, and as long as it has waiting work, the slots that it gets so
are kept for it: otherwise other work, as of a higher priority, would take them and be stopped
again. If its work does not have more slots once the tasks have stopped, it would not have them by
more stops. Then nothing is stopped for it for a while, for longer each time.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from federation.clocks import UtcS

# How long the work may take to use a slot: it is handed out in the turn in which the slot is free.
USE_S: Final = 1.0
WAIT_MIN_S: Final = 5.0  # after stops that did not help; doubled by each
WAIT_MAX_S: Final = 600.0


@dataclass(slots=True)
class _Call:
    """Tasks that stop for one claim.

    Attributes:
        level: the slots that the claim is to have.
        before: the most slots that it had before.
        pending: say whether tasks are still to stop.
        freed_at_s: when the last of them had stopped; None: they have not.
        helped: whether its work had more slots since.
    """

    level: int
    before: int
    pending: list[Callable[[], bool]] = field(default_factory=list)
    freed_at_s: UtcS | None = None
    helped: bool = False


class CallBacks:
    """The slots of one pool that are called back, by claim."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}
        self._failures: dict[int, int] = {}
        self._not_before_s: dict[int, UtcS] = {}

    def may_call(self, claim: int, utc_s: UtcS) -> bool:
        """Whether tasks may be stopped for a claim now."""
        return not utc_s < self._not_before_s.get(claim, UtcS(-inf))

    def coming(self, claim: int, used: int) -> int:
        """Return the slots that a claim is still to get by tasks that were told to stop.

        For these no others are stopped until it is known whether that has helped.
        """
        call = self._calls.get(claim)
        return 0 if call is None or call.helped else max(0, call.level - used)

    @property
    def levels(self) -> dict[int, int]:
        """The slots that each claim is to have, and that are kept for it."""
        return {claim: call.level for claim, call in self._calls.items()}

    def called(self, claim: int, level: int, before: int, pending: Callable[[], bool]) -> None:
        """Note that tasks stop for a claim.

        Args:
            level: the slots that it is to have then.
            before: the most slots that it had since the last look.
            pending: says whether any of these tasks is still to stop.
        """
        known = self._calls.get(claim)
        if known is None or known.helped:
            known = self._calls[claim] = _Call(level, before)
        known.level = max(known.level, level)
        known.pending.append(pending)
        known.freed_at_s = None

    def look(
        self,
        peaks: Mapping[int, int],
        working: Container[int],
        utc_s: UtcS,
    ) -> list[int]:
        """Judge what was called back; return the claims that stops have not helped.

        Args:
            peaks: by claim, the most slots that it has had since the last look.
            working: the claims with waiting work that would use their guaranteed slots.
        """
        failed = []
        for claim, call in list(self._calls.items()):
            call.pending = [each for each in call.pending if each()]
            if peaks.get(claim, 0) > call.before:
                call.helped = True
                self._failures.pop(claim, None)
            if call.freed_at_s is None and not call.pending:
                call.freed_at_s = utc_s
            late = call.freed_at_s is not None and not utc_s - call.freed_at_s < USE_S
            if claim not in working:
                del self._calls[claim]
            elif late and not call.helped:
                del self._calls[claim]
                failures = self._failures[claim] = self._failures.get(claim, 0) + 1
                wait_s = min(WAIT_MAX_S, WAIT_MIN_S * 2 ** min(failures - 1, 10))
                self._not_before_s[claim] = UtcS(utc_s + wait_s)
                failed.append(claim)
        return failed
